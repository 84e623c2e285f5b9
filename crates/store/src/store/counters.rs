//! What a store counts.

use crate::types::Type;

/// What the store counts. Exact at any moment nobody is writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    Bytes(Type),
    Raw(Type),
    PackedFrom(Type),
    Packed(Type),
    /// How many there are, and whether raw or packed.
    Values(Type, bool),
    Expired,
    Pending,
    /// Effects.
    Changes,
    /// Values on disk, their bytes there, and what they would be in memory, unpacked.
    Away,
    AwayBytes,
    AwayRaw,
}

const TYPES: usize = Type::ALL.len();

pub(super) const COUNTERS: usize = 6 * TYPES + 6;

impl Counter {
    #[inline]
    pub(super) fn index(self) -> usize {
        match self {
            Self::Bytes(kind) => kind as usize,
            Self::Raw(kind) => TYPES + kind as usize,
            Self::PackedFrom(kind) => 2 * TYPES + kind as usize,
            Self::Packed(kind) => 3 * TYPES + kind as usize,
            Self::Values(kind, is_packed) => (4 + is_packed as usize) * TYPES + kind as usize,
            Self::Away => COUNTERS - 6,
            Self::AwayBytes => COUNTERS - 5,
            Self::AwayRaw => COUNTERS - 4,
            Self::Changes => COUNTERS - 3,
            Self::Expired => COUNTERS - 2,
            Self::Pending => COUNTERS - 1,
        }
    }
}

/// What the values of one type take, in bytes, and how many there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct TypeMemory {
    /// Allocated, entries with their keys included.
    pub allocated: u64,
    /// Raw bytes of all values that can be packed, packed or not.
    pub raw: u64,
    /// Raw bytes of what is packed now.
    pub packed_from: u64,
    /// What those are packed into.
    pub packed: u64,
    /// How many values are raw ...
    pub raw_values: u64,
    /// ... and how many are packed, streams of which a block is among them.
    pub packed_values: u64,
}
