//! The guard of a locked slot: through it everything in the slot is read and changed,
//! and it keeps the books.
//!
//! Whoever has one has the slot's lock, or works under a scope that has it. Each change
//! goes through [`SlotGuard::insert`], [`SlotGuard::change`] or `detach`, which count what
//! came and what went. What can be done with a slot besides lies in files of its own:
//! lookups (`find.rs`), values on their way (`detached.rs`), walks (`walk.rs`), and what
//! only strings or streams need with those types.
#![allow(unsafe_code)]

use super::{BORROWED, Found, Interest, OBSERVED, Slot, UNPACKED};
use crate::books::weight::Weight;
use crate::cell::entry::Cell;
use crate::cell::table::{Cells, Place};
use crate::effect::Event;
use crate::hash::Key;
use crate::keyspace::{CROWDED, Keys};
use crate::pack::keys::KeyBytes;
use crate::store::{Counter, Expired, Session};
use crate::types::Type;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// A locked slot. Everything in it is read and changed through this.
///
/// No guard may be held across an await or a system call.
#[derive(Debug)]
pub struct SlotGuard<'a> {
    pub(super) slot: &'a Slot,
    pub(super) session: &'a Session,
    /// The database's number as clients know it.
    pub(super) db: usize,
    /// The keyspace behind it, for counting.
    pub(super) keyspace: usize,
    /// Whether dropping the guard unlocks, or the lock belongs to a scope.
    pub(super) locked: bool,
    /// Whether a key was added that nobody has asked about yet.
    pub(super) added: std::cell::Cell<bool>,
}

impl Drop for SlotGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.session.guard_dropped();
        if self.locked {
            self.session.commit();
            // SAFETY: locked in `SlotGuard::lock`.
            unsafe { self.slot.unlock() }
        } else {
            self.note(BORROWED, false);
        }
    }
}

impl<'a> SlotGuard<'a> {
    /// Locks the slot.
    #[inline]
    pub(crate) fn lock(session: &'a Session, slot: &'a Slot, db: usize, keyspace: usize) -> Self {
        if !slot.try_lock() {
            session.wait_for(slot);
        }
        session.guard_made();
        Self { slot, session, db, keyspace, locked: true, added: std::cell::Cell::new(false) }
    }

    /// Locks the slot, unless somebody has it.
    pub(crate) fn try_lock(
        session: &'a Session,
        slot: &'a Slot,
        db: usize,
        keyspace: usize,
    ) -> Option<Self> {
        if !slot.try_lock() {
            return None;
        }
        session.guard_made();
        Some(Self { slot, session, db, keyspace, locked: true, added: std::cell::Cell::new(false) })
    }

    /// A guard under a scope that keeps everybody else out of the slot. Panics
    /// if the scope has another guard of it in use.
    pub(crate) fn borrow(session: &'a Session, slot: &'a Slot, db: usize, keyspace: usize) -> Self {
        let notes = slot.notes.load(Relaxed);
        assert!(notes & BORROWED == 0, "two guards of one slot in use at once");
        slot.notes.store(notes | BORROWED, Relaxed);
        session.guard_made();
        Self { slot, session, db, keyspace, locked: false, added: std::cell::Cell::new(false) }
    }

    #[inline]
    pub(super) fn cells(&self) -> &Cells {
        // SAFETY: this guard is the only one of its slot.
        unsafe { &*self.slot.cells.get() }
    }

    #[inline]
    pub(crate) fn cells_mut(&mut self) -> &mut Cells {
        // SAFETY: this guard is the only one of its slot, borrowed mutably.
        unsafe { &mut *self.slot.cells.get() }
    }

    pub(super) fn note(&self, note: u8, set: bool) {
        let notes = self.slot.notes.load(Relaxed);
        self.slot.notes.store(if set { notes | note } else { notes & !note }, Relaxed);
    }

    #[inline]
    pub(crate) fn session(&self) -> &'a Session {
        self.session
    }

    /// The number of the database, as clients know it.
    pub fn db(&self) -> usize {
        self.db
    }

    /// The time that this guard's work counts as, in Unix milliseconds.
    pub fn now(&self) -> u64 {
        self.session.now()
    }

    /// Whether this guard added a key since it was last asked.
    #[inline]
    pub fn take_added(&self) -> bool {
        self.added.take()
    }

    /// The keyspace behind the database.
    pub(crate) fn keyspace(&self) -> usize {
        self.keyspace
    }

    /// What a key holds is about to be changed: a snapshot that has not come to it keeps
    /// it first, and what was copied for the disk tier counts no longer. Costs a branch when
    /// there is neither.
    #[inline]
    pub(crate) fn keep(&self, key: &Key<'_>) {
        if self.session.store().is_kept() {
            self.keep_now(key);
        }
    }

    #[cold]
    fn keep_now(&self, key: &Key<'_>) {
        if let Some(moment) = self.session.store().moment() {
            moment.keep(self, key);
        }
        self.forget_leaving(key);
    }

    /// What was copied of a key to go to disk counts no longer.
    #[inline]
    fn forget_leaving(&self, key: &Key<'_>) {
        let store = self.session.store();
        if store.is_leaving() {
            store.tier().transit.forget(store, self.keyspace, key.bytes);
        }
    }

    /// Keys under this lock, expired but not yet removed ones included. O(1).
    pub fn keys(&self) -> usize {
        self.cells().len()
    }

    /// Those of them whose slot is that of this number. O(keys) if the lock is that of
    /// a folded page.
    pub(crate) fn keys_of(&self, slot: usize) -> usize {
        let store = self.session.store();
        self.cells().iter().filter(|cell| store.key(&cell.key()).slot() == slot).count()
    }

    /// The slots of which this is the lock, the slot of `key` among them.
    pub fn covered(&self, key: &Key<'_>) -> Range<usize> {
        self.session.store().keyspaces[self.keyspace].covered(key.slot())
    }

    /// Whether somebody wants to hear of changes here ([`observe`](Self::observe)).
    #[inline]
    pub fn is_observed(&self) -> bool {
        self.slot.notes.load(Relaxed) & OBSERVED != 0
    }

    /// Whether somebody wants to hear of changes here for this reason.
    pub fn observed(&self, interest: Interest) -> bool {
        self.slot.notes.load(Relaxed) & interest as u8 != 0
    }

    /// Asks for changes in this slot to be told, or no longer.
    pub fn observe(&self, interest: Interest, observed: bool) {
        self.note(interest as u8, observed);
    }

    pub(crate) fn cell(&self, found: Found) -> &Cell {
        self.cells().get(found.0)
    }

    pub(crate) fn cell_mut(&mut self, found: Found) -> &mut Cell {
        self.cells_mut().get_mut(found.0)
    }

    /// The type of the key's value.
    #[inline]
    pub fn type_of(&self, found: Found) -> Type {
        self.cell(found).type_of()
    }

    /// The key's expiry, in Unix milliseconds.
    #[inline]
    pub fn expiry(&self, found: Found) -> Option<u64> {
        self.cell(found).expiry()
    }

    pub(crate) fn access(&self, found: Found) -> u8 {
        self.cell(found).access()
    }

    /// Sets or removes the key's expiry.
    pub(crate) fn set_expiry(&mut self, found: Found, expiry: Option<u64>) {
        self.change(found, |cell| cell.set_expiry(expiry));
    }

    /// The key at a place.
    pub fn key(&self, found: Found) -> KeyBytes<'_> {
        self.cell(found).key()
    }

    pub(super) fn expire(&mut self, place: Place) {
        let value = self.delete(Found(place), Event::EXPIRED);
        self.session.store().observer().free_expired(value);
        self.count(Counter::Expired, 1);
    }

    pub(crate) fn insert(&mut self, key: &Key<'_>, cell: Cell) -> Found {
        if self.session.expired() == Expired::Hidden
            && let Some(hidden) = self.cells().find(key)
        {
            self.expire(hidden);
        }
        self.note_access();
        self.forget_leaving(key);
        let weight = Weight::of(&cell);
        weight.count(self.session.store());
        self.note_pending(weight);
        self.count_keys(Keys::All, 1);
        if cell.expires() {
            self.count_keys(Keys::Expiring, 1);
        }
        self.expires_at(cell.due());
        let store = self.session.store();
        let place = self.cells_mut().insert(key, cell, |key| store.key(key).branch());
        let keys = self.cells().len();
        self.slot.keys.store(keys as u32, Relaxed);
        if keys.is_multiple_of(CROWDED) {
            self.session.crowded(self.keyspace, key.slot());
        }
        self.added.set(true);
        Found(place)
    }

    /// Changes an entry in place and counts the difference.
    #[inline]
    pub(crate) fn change<R>(&mut self, found: Found, change: impl FnOnce(&mut Cell) -> R) -> R {
        let cell = self.cell_mut(found);
        let (before, expired) = (Weight::of(cell), cell.expires());
        let result = change(cell);
        let (after, expiry) = (Weight::of(cell), cell.expiry());
        before.becomes(after, self.session.store());
        self.note_pending(after);
        if expired != expiry.is_some() {
            let delta = if expired { -1 } else { 1 };
            self.count_keys(Keys::Expiring, delta);
        }
        if let Some(expiry) = expiry {
            self.expires_at(expiry);
        }
        result
    }

    #[inline]
    pub(crate) fn expires_at(&self, expiry: u64) {
        if expiry < self.slot.next_expiry() {
            self.slot.next_expiry.store(expiry, Relaxed);
        }
    }

    /// Notes for the sweeper if some of an entry awaits packing.
    #[inline]
    fn note_pending(&self, weight: Weight) {
        if weight.pending() {
            self.note_unpacked();
        }
    }

    /// Notes for the sweeper that something here awaits packing.
    pub(crate) fn note_unpacked(&self) {
        self.note(UNPACKED, true);
    }

    #[inline]
    pub(super) fn count_keys(&self, counter: Keys, delta: i64) {
        self.session.store().keyspaces.count(self.keyspace, counter, delta);
    }

    #[inline]
    pub(super) fn count(&self, counter: Counter, delta: i64) {
        self.session.store().count(counter, delta);
    }
}
