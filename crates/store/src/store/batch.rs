//! A batch: a short while within the store, in which keys are reached.

use super::FOLLOWED;
use super::Store;
use super::session::{Expired, Mode, Session};
use crate::hash::Key;
use crate::memory::prefetch;
use crate::slot::SlotGuard;
use parking_lot::lock_api::RawRwLock as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A batch of work on a store. All access to keys begins here.
#[derive(Debug)]
pub struct Batch<'s> {
    pub(super) session: &'s Session,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // SAFETY: `enter` locked it, and `exclusive` gives it back locked.
        #[allow(unsafe_code)]
        unsafe {
            self.session.gate.0.unlock_shared();
        }
    }
}

impl<'s> Batch<'s> {
    /// The store.
    pub fn store(&self) -> &'s Arc<Store> {
        &self.session.store
    }

    #[inline]
    pub(crate) fn session(&self) -> &'s Session {
        self.session
    }

    /// A key's hash and slot.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.session.store.key(bytes)
    }

    /// The time that this batch counts as, in Unix milliseconds.
    pub fn now(&self) -> u64 {
        self.session.now.get()
    }

    /// Sets the time that what follows counts as.
    pub fn set_now(&self, now: u64) {
        self.session.now.set(now);
    }

    /// Brings what lookups of these keys will read into the processor's cache:
    /// a command alone waits for three reads of memory, one after the other
    /// (slot, cells, entry), and here those of all keys run at once. A hint,
    /// for before the commands of a batch are executed; nothing within a scope.
    pub fn warm<'k>(&self, db: usize, keys: impl Iterator<Item = &'k Key<'k>> + Clone) {
        if self.session.mode.get() != Mode::Single {
            return;
        }
        let keyspace = self.store().keyspace(db);
        let slots = || {
            // A pipeline into one stream names one key again and again.
            let mut last = None;
            let keys = keys.clone().filter(move |key| last.replace(key.hash()) != Some(key.hash()));
            keys.filter_map(|key| Some((keyspace.get(key.slot())?, key)))
        };
        slots().for_each(|(slot, _)| prefetch(std::ptr::from_ref(slot)));
        slots().for_each(|(slot, key)| slot.try_read(|cells| cells.prefetch_cells(key)));
        slots().for_each(|(slot, key)| slot.try_read(|cells| cells.prefetch_entry(key)));
    }

    /// The locked slot of a key.
    ///
    /// # Panics
    /// Under [`hold`](Self::hold) when the slot is not one of those held, and
    /// under any scope when another guard of the same slot is in use.
    #[inline]
    pub fn lock(&self, db: usize, key: &Key<'_>) -> SlotGuard<'_> {
        self.lock_slot(db, key.slot())
    }

    /// The locked slot of a key, unless somebody else has it: for what can be left undone
    /// then. Panics as [`lock`](Self::lock) does.
    pub fn try_lock(&self, db: usize, key: &Key<'_>) -> Option<SlotGuard<'_>> {
        self.try_lock_slot(db, key.slot())
    }

    fn try_lock_slot(&self, db: usize, slot: usize) -> Option<SlotGuard<'_>> {
        if self.session.mode.get() != Mode::Single {
            return Some(self.lock_slot(db, slot));
        }
        let keyspace = self.store().keyspace_of(db);
        let cells = self.store().keyspaces.slot(keyspace, slot);
        SlotGuard::try_lock(self.session, cells, db, keyspace)
    }

    /// The locked slot of that number; none where somebody has slots for long
    /// ([`Store::rest`](super::Store::rest)) and this may be one of them: for what any slot
    /// will do for.
    pub(crate) fn lock_unless_taken(&self, db: usize, slot: usize) -> Option<SlotGuard<'_>> {
        match self.store().resting.load(Ordering::SeqCst) {
            true => self.try_lock_slot(db, slot),
            false => Some(self.lock_slot(db, slot)),
        }
    }

    /// The locked slot of that number. Panics as [`lock`](Self::lock) does.
    #[inline]
    pub fn lock_slot(&self, db: usize, slot: usize) -> SlotGuard<'_> {
        self.lock_in(self.store().keyspace_of(db), db, slot)
    }

    /// The locked slot of that number of a keyspace, which goes by the number `db`.
    #[inline]
    pub(crate) fn lock_in(&self, keyspace: usize, db: usize, slot: usize) -> SlotGuard<'_> {
        let keyspaces = &self.store().keyspaces;
        let cells = keyspaces.slot(keyspace, slot);
        match self.session.mode.get() {
            Mode::Single => SlotGuard::lock(self.session, cells, db, keyspace),
            Mode::Exclusive => SlotGuard::borrow(self.session, cells, db, keyspace),
            Mode::Held => {
                let place = (keyspace, keyspaces[keyspace].home(slot));
                let mut held = self.session.held.borrow_mut();
                if let Err(at) = held.binary_search(&place) {
                    assert!(self.session.on_demand.get(), "slot {slot} is not among those held");
                    cells.lock();
                    held.insert(at, place);
                }
                SlotGuard::borrow(self.session, cells, db, keyspace)
            }
        }
    }

    /// Has two databases change their numbers. The store is the caller's alone.
    pub(crate) fn exchange(&self, a: usize, b: usize) {
        debug_assert_eq!(self.session.mode.get(), Mode::Exclusive);
        let databases = &self.store().databases;
        let was = databases[a].load(Ordering::Relaxed);
        databases[a].store(databases[b].load(Ordering::Relaxed), Ordering::Relaxed);
        databases[b].store(was, Ordering::Relaxed);
    }

    /// What a lookup does with a key whose time has come.
    pub fn session_expired(&self) -> Expired {
        self.session.expired()
    }

    /// What a lookup does from now on with a key whose time has come.
    pub fn expired_keys(&self, are: Expired) {
        self.session.expired.set(are);
    }

    /// Has commits told to the observer from now on. Waits for the batches of other
    /// sessions to end, so that every commit is told whole.
    pub fn follow(&self) {
        let _alone = self.exclusive();
        self.store().interests.fetch_or(FOLLOWED, Ordering::Relaxed);
    }
}
