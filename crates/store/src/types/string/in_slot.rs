//! Strings in a locked slot: read, set, unpacked, and written in place.
//!
//! A string is an integer, bytes in the entry, or a chain of segments where it is longer
//! than `INLINE_MAX`; the form that fits is chosen as it is set (`set_string`). Only raw
//! ones are written in place.

use crate::cell::entry::{ACCESS_MAX, Cell, Payload};
use crate::hash::Key;
use crate::large::PackedChain;
use crate::pack::form::Damaged;
use crate::packing::PackedStr;
use crate::slot::{Found, SetExpiry, SlotGuard, WRITTEN, after_write};
use crate::types::string::{CHANGED, INLINE_MAX, INT, Int, NewStr, SET, Str, canonical_int};
use snug_codec::Segments;

impl SlotGuard<'_> {
    /// The string, or `None` if the value is of another type.
    #[inline]
    pub fn string(&self, found: Found) -> Option<Str<'_>> {
        Str::of(self.cell(found).value(), self.session())
    }

    /// Puts a large string's bytes in the place of their packed form.
    pub(crate) fn put_large(&mut self, found: Found, raw: Segments) {
        self.change(found, |cell| {
            cell.replace(cell.expiry(), Payload::boxed(raw));
            cell.set_access(cell.access().max(WRITTEN));
        });
    }

    fn packed<'c>(&'c self, cell: &'c Cell) -> PackedStr<'c> {
        PackedStr { form: cell.bytes(), session: self.session() }
    }

    /// Unpacks a string in place, and takes it for just used; whether it was
    /// packed. O(value).
    pub fn unpack(&mut self, found: Found) -> Result<bool, Damaged> {
        let cell = self.cell(found);
        if let Some(chain) = cell.get::<PackedChain>() {
            let raw = self.session().unpack_large(chain)?;
            self.put_large(found, raw);
            return Ok(true);
        }
        if !cell.bits().is_packed_inline() {
            return Ok(false);
        }
        let mut raw = Vec::new();
        self.packed(cell).append_to(&mut raw)?;
        self.change(found, |cell| put_raw(cell, &raw));
        Ok(true)
    }

    /// Unpacks a short string in place that is about to be read whole, if it has been
    /// read often lately and memory is not short. O(value).
    #[inline]
    pub fn unpack_hot(&mut self, found: Found) {
        let cell = self.cell(found);
        let is_hot = cell.bits().is_packed_inline() && cell.access() == ACCESS_MAX;
        if is_hot && !self.session().store().keeps_packed() {
            // If it is damaged, who reads it is told.
            let _ = self.unpack(found);
        }
    }

    /// Sets a key to a string, whatever it held. `found` is what a lookup of
    /// the same key gave. O(value); a large one is shared.
    #[inline]
    pub(crate) fn set_string(
        &mut self,
        key: &Key<'_>,
        found: Option<Found>,
        value: &NewStr<'_>,
        expiry: SetExpiry,
    ) -> Found {
        let int;
        let payload = match *value {
            NewStr::Int(value) => {
                int = Int::new(value);
                Payload::Inline(INT, int.bytes())
            }
            NewStr::Chain(ref chain) if chain.len() > INLINE_MAX => Payload::boxed(chain.clone()),
            NewStr::Chain(ref chain) => {
                let bytes = chain.to_vec();
                return self.set_string(key, found, &NewStr::Bytes(&bytes), expiry);
            }
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes)
                if bytes.len() > INLINE_MAX =>
            {
                Payload::boxed(Segments::from(bytes))
            }
            NewStr::Text(bytes) => Payload::Inline(SET, bytes),
            NewStr::Changed(bytes) => Payload::Inline(CHANGED, bytes),
            NewStr::Bytes(bytes) => match canonical_int(bytes) {
                Some(value) => {
                    int = Int::new(value);
                    Payload::Inline(INT, int.bytes())
                }
                None => Payload::Inline(SET, bytes),
            },
        };
        let Some(found) = found else {
            let expiry = match expiry {
                SetExpiry::At(at) => Some(at),
                SetExpiry::Clear | SetExpiry::Keep => None,
            };
            let mut cell = Cell::new(key.tag(), key.bytes, expiry, payload);
            cell.set_access(after_write(self.session(), 0));
            return self.insert(key, cell);
        };
        let expiry = match expiry {
            SetExpiry::At(at) => Some(at),
            SetExpiry::Clear => None,
            SetExpiry::Keep => self.expiry(found),
        };
        let session = self.session();
        self.change(found, |cell| {
            cell.replace(expiry, payload);
            cell.set_access(after_write(session, cell.access()));
        });
        found
    }

    /// The length in bytes of a string value.
    pub fn string_len(&self, found: Found) -> usize {
        self.string(found).map_or(0, |string| string.len())
    }

    /// A string to be changed in place: an empty one if the key does not exist.
    pub(crate) fn found_or_empty(&mut self, key: &Key<'_>, found: Option<Found>) -> Found {
        found.unwrap_or_else(|| self.set_string(key, None, &NewStr::Changed(b""), SetExpiry::Clear))
    }

    /// Writes into a string at `offset`, extending it with zeros where it is
    /// shorter; its new length. Keeps the expiry. O(`bytes`) plus what it
    /// extends. It is not packed.
    pub(crate) fn write_value_at(
        &mut self,
        found: Found,
        offset: usize,
        value: &NewStr<'_>,
    ) -> usize {
        match value {
            NewStr::Bytes(bytes) | NewStr::Text(bytes) | NewStr::Changed(bytes) => {
                self.write_pieces_at(found, offset, bytes.len(), std::iter::once(*bytes))
            }
            NewStr::Int(value) => {
                let digits = value.to_string();
                let pieces = std::iter::once(digits.as_bytes());
                self.write_pieces_at(found, offset, digits.len(), pieces)
            }
            NewStr::Chain(chain) => {
                let pieces = chain.parts().iter().map(|part| &part[..]);
                self.write_pieces_at(found, offset, chain.len(), pieces)
            }
        }
    }

    /// Has `OBJECT ENCODING` tell a string that is not packed as `raw` from now on, as if it
    /// had been changed in place. It is the same string, so it is no effect and is told to
    /// nobody.
    pub fn note_changed(&mut self, found: Found) {
        if [INT.bits(), SET.bits()].contains(&self.cell(found).bits()) {
            self.write_pieces_at(found, 0, 0, std::iter::empty());
        }
    }

    /// Writes pieces of `total` bytes, one behind the other.
    fn write_pieces_at<'p>(
        &mut self,
        found: Found,
        offset: usize,
        total: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> usize {
        debug_assert!(!self.cell(found).bits().is_packed(), "unpacked by whoever is to change it");
        let len = self.string_len(found).max(offset + total);
        let session = self.session();
        self.change(found, |cell| {
            cell.set_access(after_write(session, cell.access()));
            if cell.bits() == INT.bits() {
                let (expiry, digits) = (cell.expiry(), Int::read(cell.bytes()).to_string());
                cell.replace(expiry, Payload::Inline(CHANGED, digits.as_bytes()));
            }
            if len > INLINE_MAX && !cell.bits().is_boxed() {
                let (expiry, chain) = (cell.expiry(), Segments::from(cell.bytes()));
                cell.replace(expiry, Payload::boxed(chain));
            }
            let mut at = offset;
            if let Some(chain) = cell.get_mut::<Segments>() {
                for piece in pieces {
                    chain.write_at(at, piece);
                    at += piece.len();
                }
                return;
            }
            if len > cell.bytes().len() {
                cell.resize_bytes(len);
            }
            for piece in pieces {
                cell.bytes_mut()[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            cell.set_form(CHANGED);
        });
        len
    }
}

/// Puts raw bytes in the place of their packed form.
pub(crate) fn put_raw(cell: &mut Cell, raw: &[u8]) {
    let expiry = cell.expiry();
    cell.replace(expiry, Payload::Inline(cell.form().unpacked(), raw));
    cell.set_access(cell.access().max(WRITTEN));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::table::Mark;
    use crate::cooling::{Recheck, Rules};
    use crate::jobs::Names;
    use crate::types::string::SET_PACKED;
    use crate::{MinSaving, PieceParams, Store, StoreConfig, Type, Unobserved};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 500 }))]

        /// Whatever stands where a packed form should, each way to it is an
        /// answer or an error, and the books are right in the end.
        #[test]
        #[cfg_attr(miri, ignore = "calls into C")]
        fn a_damaged_form_is_an_error(
            mut form in prop::collection::vec(any::<u8>(), 0..60),
            codec in 0u8..7,
            long in any::<bool>(),
        ) {
            if let Some(first) = form.first_mut() {
                *first = *first & 0x38 | codec;
            }
            if long && form.len() > 12 {
                // A plain header that claims more than can be.
                form[0] = codec;
                form[1..10].fill(0xff);
                form[10] = 1;
            }
            let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
            let mut session = store.session();
            let batch = session.enter(1);
            let key = batch.key(b"key");
            let mut slot = batch.lock(0, &key);
            let cell = Cell::new(key.tag(), key.bytes, None, Payload::Inline(SET_PACKED, &form));
            let found = slot.insert(&key, cell);
            let string = slot.string(found).unwrap();
            let (len, bytes) = (string.len(), string.to_bytes().map(std::borrow::Cow::into_owned));
            let mut room = b"room".to_vec();
            prop_assert_eq!(string.unpacked(&mut room).is_ok(), bytes.is_ok());
            prop_assert!(len <= INLINE_MAX);
            let _ = (slot.string(found).unwrap().as_int(), slot.anatomy(found));
            match &bytes {
                Ok(bytes) => prop_assert_eq!(bytes.len(), len),
                Err(_) => {
                    prop_assert!(slot.unpack(found).is_err());
                    let params = PieceParams { min_size: 1, min_saving: MinSaving(0), level: 1, ..PieceParams::DEFAULT };
                    let recheck = Recheck::AllRaw(0);
                    let rules = Rules {
                        params: &params,
                        at_once: true,
                        keep_packed: false,
                        leave_mixed: false,
                        stays_until: 0,
                        recheck,
                        change: None,
                        left: &std::cell::Cell::default(),
                        meets: 0,
                        leaves_sparse: 0,
                        keys_changed: true,
                        unpacks_key: 0,
                    };
                    for _ in 0..4 {
                        let _ = slot.find(&key);
                    }
                    slot.cool(
                        Mark::default(),
                        rules,
                        &mut Vec::new(),
                        &mut Names::default(),
                    );
                    prop_assert!(matches!(slot.string(found), Some(Str::Packed(_))));
                }
            }
            let copy = slot.duplicate(found);
            drop(slot.detach(found));
            drop((slot, copy));
            let memory = store.type_memory(Type::String);
            prop_assert_eq!((memory.allocated, memory.raw, memory.packed), (0, 0, 0));
        }
    }
}
