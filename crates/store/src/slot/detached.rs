//! Values outside of a slot: on their way to another key, or copied for whoever reads
//! them later.
//!
//! Such a value is not counted, and holds what it needs to be read: the dictionary that
//! it was packed with, or its bytes on disk.

use super::{Found, SlotGuard};
use crate::away::{Away, Held, Lost};
use crate::books::weight::Weight;
use crate::cell::entry::{Cell, Payload};
use crate::hash::Key;
use crate::keyspace::Keys;
use crate::pack::dictionaries::Pin;
use crate::pack::form;
use crate::pack::keys::KeyBytes;
use crate::store::Store;
use crate::types::Type;
use crate::types::forms::Value;
use std::sync::atomic::Ordering::Relaxed;

/// A value taken out of its slot, or copied, on its way to another key.
#[derive(Debug)]
pub struct Detached {
    cell: Cell,
    /// Keeps the dictionary of a packed value meanwhile.
    _pin: Option<Pin>,
    /// The same of a value on disk.
    away: Option<Held>,
}

impl Detached {
    /// The key that it had.
    pub fn key(&self) -> KeyBytes<'_> {
        self.cell.key()
    }

    /// The value.
    pub(crate) fn value(&self) -> Value<'_> {
        self.cell.value()
    }

    /// The type of the value.
    pub fn type_of(&self) -> Type {
        self.cell.type_of()
    }

    /// The expiry it carries, in Unix milliseconds.
    pub fn expiry(&self) -> Option<u64> {
        self.cell.expiry()
    }

    /// Bytes allocated for it, to decide where it is freed.
    pub fn allocated(&self) -> usize {
        self.cell.allocated()
    }

    /// An entry that its slot has let go of, which is no longer counted.
    pub(crate) fn of_flushed(cell: Cell, store: &Store) -> Self {
        let (pin, away) = (pin(&cell, store), Held::of(&cell, store));
        Weight::of(&cell).count_gone(store);
        Self { cell, _pin: pin, away }
    }

    /// A new value, in no slot yet.
    pub(crate) fn new(key: &Key<'_>, expiry: Option<u64>, access: u8, value: Payload<'_>) -> Self {
        let mut cell = Cell::new(key.tag(), key.bytes, expiry, value);
        cell.set_access(access);
        // What had cooled where it comes from is not met cooling again.
        if access == 0 {
            cell.pack_key(true);
        }
        Self { cell, _pin: None, away: None }
    }

    /// The value in memory, if this one is on disk. The thread may block.
    pub(crate) fn brought(&self) -> Result<Option<Self>, Lost> {
        let Some(away) = &self.away else { return Ok(None) };
        let home = away.read(&self.key())?;
        let (tag, expiry) = (self.cell.tag(), self.expiry());
        let mut cell = home.put(|payload| Cell::new(tag, &self.key(), expiry, payload));
        cell.set_access(self.access());
        Ok(Some(Self { cell, _pin: None, away: None }))
    }

    /// How lately it was used, 0 to 3.
    pub(crate) fn access(&self) -> u8 {
        self.cell.access()
    }

    /// The same, and it keeps the dictionary that it needs until it is in a slot.
    pub(crate) fn pinned(self, store: &Store) -> Self {
        let pin = pin(&self.cell, store);
        Self { _pin: pin, ..self }
    }

    /// Whether parts of the value expire by themselves: fields of a hash.
    pub fn parts_expire(&self) -> bool {
        self.cell.parts_expire()
    }

    /// What freeing it takes, as Redis reckons it, for the same.
    pub fn effort(&self) -> usize {
        self.cell.value().effort()
    }
}

impl SlotGuard<'_> {
    /// Takes the value out, with its expiry, to be attached to another key.
    pub(crate) fn detach(&mut self, found: Found) -> Detached {
        let cell = self.cells_mut().remove(found.0);
        self.slot.keys.store(self.cells().len() as u32, Relaxed);
        if cell.expires() {
            self.count_keys(Keys::Expiring, -1);
        }
        self.count_keys(Keys::All, -1);
        let store = self.session.store();
        let (pin, away) = (pin(&cell, store), Held::of(&cell, store));
        Weight::of(&cell).count_gone(store);
        Detached { cell, _pin: pin, away }
    }

    /// A copy of the value, with its expiry: to be attached to another key, or to be
    /// saved away from the slot. O(bytes in the entry), or of references to what large
    /// values consist of.
    pub fn duplicate(&self, found: Found) -> Detached {
        self.copy_of(self.cell(found))
    }

    /// A copy of what a key holds, whether its time has come or not, if it exists.
    pub(crate) fn duplicate_key(&self, key: &Key<'_>) -> Option<Detached> {
        let place = self.cells().find(key)?;
        Some(self.copy_of(self.cells().get(place)))
    }

    /// Visits each key, with what makes a copy of what it holds.
    pub(crate) fn duplicate_each(&self, visit: &mut dyn FnMut(&Key<'_>, &dyn Fn() -> Detached)) {
        let store = self.session.store();
        for cell in self.cells().iter() {
            visit(&store.key(&cell.key()), &|| self.copy_of(cell));
        }
    }

    fn copy_of(&self, cell: &Cell) -> Detached {
        let store = self.session.store();
        let mut copy = Cell::new(cell.tag(), &cell.key(), cell.expiry(), cell.payload());
        copy.set_access(cell.access());
        Detached { cell: copy, _pin: pin(cell, store), away: Held::of(cell, store) }
    }

    /// Gives a detached value to a key that does not exist here.
    pub(crate) fn attach(&mut self, key: &Key<'_>, value: Detached) -> Found {
        let Detached { mut cell, _pin, away: _away } = value;
        if cell.tag() != key.tag() || !cell.is_of(key.bytes) {
            cell.rename(key.tag(), key.bytes);
        }
        self.insert(key, cell)
    }
}

/// Keeps the dictionary of a packed value that is about to leave its slot.
fn pin(cell: &Cell, store: &Store) -> Option<Pin> {
    let id = match cell.bits() {
        bits if bits.is_away() => Away::of(cell)?.dictionary(),
        bits if bits.is_packed_inline() => form::dictionary_id(cell.bytes()),
        _ => return None,
    };
    store.families().dictionaries.pin(id)
}
