//! A session: what one thread works on a store through, and what it remembers meanwhile.

use super::Store;
use super::batch::Batch;
use super::gates::Gate;
use super::hold::GivesUp;
use crate::away::Meeting;
use crate::effect::{Commit, Form, Recorder};
use crate::packing::Unpacker;
use parking_lot::lock_api::RawRwLock as _;
use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a lookup does with a key whose time has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expired {
    /// It removes the key, which is an effect, and finds none.
    #[default]
    Removed,
    /// It finds none and leaves the key where it is: it is not this session's to
    /// remove. A replica's clients, and everybody's while writes are paused.
    Hidden,
    /// It finds the key: whether it is there is told by the commits that are
    /// replayed, and not by the clock.
    Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each slot is locked when it is needed.
    Single,
    /// The slots in `held` are locked.
    Held,
    /// All gates are closed.
    Exclusive,
}

/// What one thread works on a store through.
pub struct Session {
    pub(super) store: Arc<Store>,
    pub(super) gate: Arc<Gate>,
    pub(super) now: Cell<u64>,
    /// Where something to pack was found last: database and slot.
    pub(super) packed_at: Cell<(usize, usize)>,
    pub(super) mode: Cell<Mode>,
    /// Slot guards in use.
    pub(super) guards: Cell<usize>,
    /// The slots locked in mode `Held`, ascending: keyspace and home.
    pub(super) held: RefCell<Vec<(usize, usize)>>,
    /// In mode `Held`: slots that are not held are locked when they are needed.
    pub(super) on_demand: Cell<bool>,
    /// Whether a slot that somebody has for long may be given up, and whether one was had
    /// since that was said: see [`Batch::may_give_up`].
    pub(super) may_give_up: Cell<GivesUp>,
    pub(super) had_one: Cell<bool>,
    /// What a lookup does with a key whose time has come.
    pub(super) expired: Cell<Expired>,
    /// What was changed under the locks that are held, if commits are followed, and
    /// whether there is anything.
    pub(super) recorder: RefCell<Recorder>,
    pub(super) recorded: Cell<bool>,
    /// Pages that may have to be unfolded: keyspace and number.
    pub(super) crowded: RefCell<Vec<(usize, usize)>>,
    /// The page that was last looked at by [`Batch::tidy`], of all keyspaces' pages.
    pub(super) reshaped: Cell<usize>,
    /// What it unpacks strings with.
    pub(super) unpacker: RefCell<Unpacker>,
    /// What it does when it meets a value that is on disk.
    pub(crate) meeting: Meeting,
    /// The state of its random numbers; never 0.
    pub(super) random: Cell<u64>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("mode", &self.mode.get()).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.store.gates.lock().retain(|gate| !Arc::ptr_eq(gate, &self.gate));
    }
}

impl Session {
    /// Begins a batch of work that counts as done at `now`, Unix milliseconds.
    ///
    /// A batch is to be short, and must not be held across an await or a wait
    /// for anything but the store: it keeps whole-database operations waiting.
    pub fn enter(&mut self, now: u64) -> Batch<'_> {
        self.gate.0.lock_shared();
        self.now.set(now);
        self.expired.set(Expired::Removed);
        let batch = Batch { session: self };
        batch.settle();
        batch
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// What a lookup does with a key whose time has come.
    #[inline]
    pub fn expired(&self) -> Expired {
        self.expired.get()
    }

    /// Gathers an op on a key of database `db` for the commit that is being made.
    #[cold]
    pub(crate) fn record(&self, db: usize, form: impl FnOnce(&mut Form<'_>)) {
        self.recorder.borrow_mut().add(db, form);
        self.recorded.set(true);
    }

    /// Ends the commit that is being made: the locks under which it was are about
    /// to be released.
    #[inline]
    pub(crate) fn commit(&self) {
        if self.recorded.get() {
            self.tell_commit();
        }
    }

    #[cold]
    fn tell_commit(&self) {
        self.recorded.set(false);
        let mut recorder = self.recorder.borrow_mut();
        let number = self.store.commits.fetch_add(1, Ordering::Relaxed) + 1;
        self.store.observer.committed(Commit::new(number, self.now(), &recorder));
        recorder.clear();
    }

    /// What it unpacks strings with; to be let go of at once.
    pub(crate) fn unpacker(&self) -> RefMut<'_, Unpacker> {
        self.unpacker.borrow_mut()
    }

    /// A random number below `n`, fit for sampling and nothing else: xorshift64*
    /// (Vigna, 2016). 0 when `n` is.
    #[inline]
    pub(crate) fn below(&self, n: u64) -> u64 {
        let mut x = self.random.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        let x = x.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(x) * u128::from(n)) >> 64) as u64
    }

    #[inline]
    pub(crate) fn guard_made(&self) {
        self.had_one.set(true);
        self.guards.set(self.guards.get() + 1);
    }

    #[inline]
    pub(crate) fn guard_dropped(&self) {
        self.guards.set(self.guards.get() - 1);
    }
}
