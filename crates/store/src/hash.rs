//! Which slot a key belongs to, and where in the slot it is looked for.
//!
//! ```text
//!  64-bit hash of the key
//!  | 14 slot | 26 branch | 12 tag | 12 unused |
//! ```
//!
//! Standalone, the slot comes from the hash itself. In cluster mode it is
//! CRC16 of the key's hash tag, as the Redis Cluster specification defines it,
//! and everything else stays the same. The hash is seeded per process, so
//! nobody outside can build keys that collide.

use crate::crc16::{crc16, crc16_until_brace};
use foldhash::SharedSeed;
use memchr::memchr;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, PoisonError};

/// Slots in a database: 2^14, as in Redis Cluster.
pub const SLOTS: usize = 16_384;

/// Bits of hash that choose a table within a slot grown beyond one.
pub(crate) const BRANCH_BITS: u32 = 26;
/// Bits of hash kept in a cell.
pub(crate) const TAG_BITS: u32 = 12;

/// A key with its hash, computed once per command.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The key's bytes.
    pub bytes: &'a [u8],
    slot: u16,
    hash: u64,
}

impl Key<'_> {
    /// The same for `bytes`, if they are these very bytes in the same place.
    #[inline]
    pub fn of_same<'b>(&self, bytes: &'b [u8]) -> Option<Key<'b>> {
        std::ptr::eq(self.bytes, bytes).then_some(Key { bytes, ..*self })
    }

    /// All 64 bits: equal for equal keys, and for others hardly ever.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The slot, below [`SLOTS`].
    #[inline]
    pub fn slot(&self) -> usize {
        self.slot as usize
    }

    #[inline]
    pub(crate) fn branch(&self) -> u32 {
        (self.hash >> 24) as u32 & ((1 << BRANCH_BITS) - 1)
    }

    #[inline]
    pub(crate) fn tag(&self) -> u16 {
        (self.hash >> 12) as u16 & ((1 << TAG_BITS) - 1)
    }
}

/// Turns bytes into [`Key`]s.
#[derive(Debug)]
pub(crate) struct KeyHasher {
    state: foldhash::quality::SeedableRandomState,
    cluster: bool,
}

impl KeyHasher {
    pub(crate) fn new(cluster: bool, seed: u64) -> Self {
        Self { state: seeded(seed), cluster }
    }

    #[inline]
    pub(crate) fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        let mut hasher = self.state.build_hasher();
        hasher.write(bytes);
        let hash = hasher.finish();
        let slot = if self.cluster { cluster_slot(bytes) } else { (hash >> 50) as u16 };
        Key { bytes, slot, hash }
    }
}

/// A hasher of this seed. What all hashers of one seed share, 48 bytes, is kept for ever:
/// for what there are few seeds of.
pub(crate) fn seeded(seed: u64) -> foldhash::quality::SeedableRandomState {
    static SHARED: Mutex<BTreeMap<u64, &SharedSeed>> = Mutex::new(BTreeMap::new());
    let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = all.entry(seed).or_insert_with(|| Box::leak(Box::new(SharedSeed::from_u64(seed))));
    foldhash::quality::SeedableRandomState::with_seed(mixed(seed), shared)
}

/// Another number for each, which has nothing in common with it: `SplitMix64`'s last steps
/// (Steele, Lea and Flood, 2014).
pub(crate) fn mixed(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The cluster slot of a key: CRC16 of what stands between the first `{` and
/// the next `}` if that is not empty, else of the whole key, modulo 16,384.
///
/// Source: the Redis Cluster specification, "Key distribution model".
pub fn cluster_slot(key: &[u8]) -> u16 {
    // Most keys have no tag: one pass finds that out and sums at once.
    let crc = crc16_until_brace(key).unwrap_or_else(|| crc16_of_tag(key));
    crc & (SLOTS as u16 - 1)
}

/// Apart, so that a key without a tag saves no registers for it.
#[cold]
#[inline(never)]
fn crc16_of_tag(key: &[u8]) -> u16 {
    crc16(hash_tag(key))
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr(b'{', key) else { return key };
    match memchr(b'}', &key[open + 1..]) {
        Some(length) if length > 0 => &key[open + 1..open + 1 + length],
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(cluster_slot(b"foo"), 12_182);
        assert_eq!(cluster_slot(b"{user1000}.following"), cluster_slot(b"{user1000}.followers"));
        assert_eq!(cluster_slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") & 16_383);
        assert_eq!(cluster_slot(b"foo{{bar}}zap"), crc16(b"{bar") & 16_383);
        assert_eq!(cluster_slot(b"foo{bar}{zap}"), cluster_slot(b"bar"));
        assert_eq!(cluster_slot(b""), 0);
    }
}
