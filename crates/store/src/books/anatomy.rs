//! What an entry is made of, for those who report: how it is held, what that weighs,
//! and what packing makes of it. Reads headers, never what is packed.

use crate::away::{Away, Held};
use crate::cell::entry::Cell;
use crate::pack::form;
use crate::packing::PackedStr;
use crate::slot::{Found, SlotGuard};
use crate::store::Session;
use crate::types::forms::Value;

/// What an entry is made of, for `OBJECT`, `MEMORY USAGE` and `SNUG OBJECT`.
#[derive(Clone, Copy, Debug)]
pub struct Anatomy {
    /// What Redis would answer to `OBJECT ENCODING`.
    pub encoding: &'static str,
    /// Bytes allocated for entry and value, the slot's cell included.
    pub allocated: usize,
    /// The same if nothing of it were packed.
    pub allocated_raw: usize,
    /// Bytes of the key as it lies: fewer than it has where it is packed.
    pub key: usize,
    /// Bytes of value as a client sees them (for streams: as rows).
    pub raw: usize,
    /// Of those, the bytes that are packed, and what they are packed into.
    pub packed: Option<Packed>,
    /// The codec of what is packed; `none` where nothing is.
    pub codec: &'static str,
    /// Bytes of the dictionary that it is packed with, if there is one.
    pub dictionary: Option<usize>,
    /// The dictionary's id and the level that it packs at.
    pub dictionary_id: Option<(u32, i32)>,
    /// How lately it was read: 3 just now, 0 not for long.
    pub access: u8,
    /// Whether the value is packed as a whole; a read then adds to `access`.
    pub is_packed_whole: bool,
    /// Bytes of it on disk, if it is there and not in memory.
    pub away: Option<usize>,
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
        Anatomy::of(self.cell(found), self.session())
    }
}

impl Anatomy {
    /// Of what is on disk, by what memory has of it. Only what a small collection's
    /// encoding is called needs its bytes: they are read, and the thread may block.
    fn of_away(cell: &Cell, away: &Away, session: &Session) -> Self {
        let (raw, len) = (away.raw as usize, away.len as usize);
        let mut notes = || {
            if let Some(notes) = away.notes() {
                return notes;
            }
            let held = Held::of(cell, session.store());
            let Some(home) = held.and_then(|held| held.read(&cell.key()).ok()) else { return 0 };
            if !away.is_packed() {
                return home.bytes().first().copied().unwrap_or_default();
            }
            let mut room = Vec::new();
            let _ = PackedStr { form: home.bytes(), session }.append_to(&mut room);
            room.first().copied().unwrap_or_default()
        };
        let value = Value::inline(away.home(), &[]);
        let id = away.dictionary();
        let dictionary = session.store().families().dictionaries.get(id);
        Self {
            encoding: (cell.type_of().row().encoding)(value, raw, &mut notes),
            allocated: cell.entry_allocated() + size_of::<Cell>(),
            allocated_raw: cell.allocated_with(raw) + size_of::<Cell>(),
            key: cell.key_bytes(),
            raw,
            packed: away.is_packed().then_some(Packed { raw, packed: len }),
            codec: "none",
            dictionary: dictionary.as_ref().map(|d| d.bytes().len()),
            dictionary_id: dictionary.map(|d| (id, d.level())),
            access: cell.access(),
            is_packed_whole: away.is_packed(),
            away: Some(len),
        }
    }

    fn of(cell: &Cell, session: &Session) -> Self {
        let families = session.store().families();
        if let Some(away) = Away::of(cell) {
            return Self::of_away(cell, &away, session);
        }
        let value = cell.value();
        let (row, measure) = (value.form().type_of().row(), value.measure());
        let raw = (row.len)(value);
        let entry = cell.entry_allocated() + size_of::<Cell>();
        let plain_entry = cell.entry_allocated_plain() + size_of::<Cell>();
        let allocated = entry + measure.allocated;
        let packed = Packed { raw: measure.packed_from, packed: measure.packed };
        let mut notes = || {
            let mut room = Vec::new();
            if !cell.bits().is_packed_inline() {
                return value.bytes().first().copied().unwrap_or_default();
            }
            // Of a damaged one, who reads it is told.
            let _ = PackedStr { form: value.bytes(), session }.append_to(&mut room);
            room.first().copied().unwrap_or_default()
        };
        let plain = Self {
            encoding: (row.encoding)(value, raw, &mut notes),
            allocated,
            allocated_raw: plain_entry + measure.allocated,
            key: cell.key_bytes(),
            raw,
            packed: (packed.packed > 0).then_some(packed),
            codec: "none",
            dictionary: None,
            dictionary_id: None,
            access: cell.access(),
            is_packed_whole: cell.bits().is_packed(),
            away: None,
        };
        if let Some(packing) = value.packing() {
            return Self {
                allocated_raw: plain_entry + packing.allocated_raw,
                codec: packing.codec,
                dictionary: packing.dictionary.as_ref().map(|d| d.bytes().len()),
                dictionary_id: packing.dictionary.map(|d| (d.id(), d.level())),
                ..plain
            };
        }
        if !cell.bits().is_packed_inline() {
            return plain;
        }
        let bytes = value.bytes();
        let id = form::dictionary_id(bytes);
        let dictionary = families.dictionaries.get(id);
        Self {
            allocated_raw: cell.allocated_with(raw) + size_of::<Cell>(),
            packed: Some(packed),
            codec: form::codec_name(bytes),
            dictionary: dictionary.as_ref().map(|d| d.bytes().len()),
            dictionary_id: dictionary.map(|d| (id, d.level())),
            ..plain
        }
    }
}
