//! What an entry is made of, for those who report: how it is held, what that weighs,
//! and what packing makes of it. Reads headers, never what is packed.

use crate::entry::{Cell, Kind};
use crate::families::Families;
use crate::packing;
use crate::slot::{Found, SlotGuard};

/// Redis embeds strings of up to so many bytes in their object.
const EMBEDDED_MAX: usize = 44;

/// What an entry is made of, for `OBJECT`, `MEMORY USAGE` and `SNUG OBJECT`.
#[derive(Clone, Copy, Debug)]
pub struct Anatomy {
    /// What Redis would answer to `OBJECT ENCODING`.
    pub encoding: &'static str,
    /// Bytes allocated for entry and value, the slot's cell included.
    pub allocated: usize,
    /// The same if nothing of it were packed.
    pub allocated_raw: usize,
    /// Bytes of value as a client sees them (for streams: as rows).
    pub raw: usize,
    /// Of those, the bytes that are packed, and what they are packed into.
    pub packed: Option<Packed>,
    /// The codec of what is packed; `none` where nothing is.
    pub codec: &'static str,
    /// Bytes of the dictionary that it is packed with, if there is one.
    pub dictionary: Option<usize>,
    /// The id of a string's dictionary and the level that it packs at.
    pub dictionary_id: Option<(u32, i32)>,
    /// How lately it was read: 3 just now, 0 not for long.
    pub access: u8,
}

/// The packed part of a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packed {
    /// Bytes before packing.
    pub raw: usize,
    /// Bytes after packing, headers included.
    pub packed: usize,
}

impl SlotGuard<'_> {
    /// What the entry is made of.
    pub fn anatomy(&self, found: Found) -> Anatomy {
        Anatomy::of(self.cell(found), self.session().store().families())
    }
}

impl Anatomy {
    fn of(cell: &Cell, families: &Families) -> Self {
        match cell.kind() {
            Kind::Int => Self::plain(cell, "int", cell.int().to_string().len()),
            Kind::Str | Kind::StrChanged => {
                let len = cell.bytes().len();
                Self::plain(cell, encoding(cell.kind() == Kind::Str, len), len)
            }
            Kind::Large => Self::plain(cell, "raw", cell.large().len()),
            Kind::Packed | Kind::PackedChanged => Self::packed(cell, families),
            Kind::PackedLarge => Self::packed_large(cell),
            Kind::Stream => Self::stream(cell),
        }
    }

    /// Of what is not packed.
    fn plain(cell: &Cell, encoding: &'static str, raw: usize) -> Self {
        let allocated = cell.allocated() + size_of::<Cell>();
        Self {
            encoding,
            allocated,
            allocated_raw: allocated,
            raw,
            packed: None,
            codec: "none",
            dictionary: None,
            dictionary_id: None,
            access: cell.access(),
        }
    }

    fn packed(cell: &Cell, families: &Families) -> Self {
        let form = cell.bytes();
        let (raw, id) = (packing::raw_len(form), packing::dictionary_id(form));
        let dictionary = families.dictionaries.get(id);
        Self {
            allocated_raw: cell.allocated_with(raw) + size_of::<Cell>(),
            packed: Some(Packed { raw, packed: form.len() }),
            codec: packing::codec_name(form),
            dictionary: dictionary.as_ref().map(|d| d.bytes().len()),
            dictionary_id: dictionary.map(|d| (id, d.level())),
            ..Self::plain(cell, encoding(cell.kind() == Kind::Packed, raw), raw)
        }
    }

    fn packed_large(cell: &Cell) -> Self {
        let chain = cell.packed_large();
        Self {
            allocated_raw: cell.allocated_unpacked() + size_of::<Cell>(),
            packed: Some(Packed { raw: chain.len(), packed: chain.packed_len() }),
            codec: chain.codec_name(),
            ..Self::plain(cell, "raw", chain.len())
        }
    }

    fn stream(cell: &Cell) -> Self {
        let (stream, memory) = (cell.stream(), cell.stream().memory());
        let packed = Packed { raw: memory.packed_from, packed: memory.packed };
        let plain = Self::plain(cell, "stream", memory.raw);
        Self {
            allocated_raw: plain.allocated.saturating_sub(packed.packed) + packed.raw,
            packed: (packed.packed > 0).then_some(packed),
            codec: stream.codec().name(),
            dictionary: stream.dictionary().map(|d| d.bytes().len()),
            ..plain
        }
    }
}

/// Redis's word for how it would hold a string; one that was `set` and not changed
/// since, it embeds if it is short.
fn encoding(set: bool, len: usize) -> &'static str {
    if set && len <= EMBEDDED_MAX { "embstr" } else { "raw" }
}
