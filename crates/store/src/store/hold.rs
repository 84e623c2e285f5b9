//! Scopes that hold the slots of several keys, and how slots are waited for.
//!
//! Who needs several and finds one taken lets go of all, waits for that one, and begins
//! again: whoever waits has none. The exception is the one scope that takes slots on
//! demand, for which no other waits.

use super::batch::Batch;
use super::session::{Mode, Session};
use crate::hash::Key;
use crate::slot::Slot;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// When a slot is given up that somebody has for long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GivesUp {
    #[default]
    /// It is waited for.
    Never,
    /// While none was had yet, so that nothing can have been changed.
    AtFirst,
    /// Whenever it comes to one: nothing is changed.
    Ever,
}

/// What is unwound with where a slot was given up.
#[derive(Clone, Copy, Debug)]
pub struct GaveUp;

/// How often it is looked whether a slot that is waited for is to be given up.
pub(super) const LOOKS_AFTER: Duration = Duration::from_millis(2);

impl Session {
    /// Waits for a slot that somebody else has.
    #[cold]
    pub(crate) fn wait_for(&self, slot: &Slot) {
        while !slot.try_lock_for(LOOKS_AFTER) {
            if self.gives_up() {
                std::panic::resume_unwind(Box::new(GaveUp));
            }
        }
    }

    /// Whether what somebody has for long is to be given up.
    pub(super) fn gives_up(&self) -> bool {
        let may = match self.may_give_up.get() {
            GivesUp::Never => false,
            GivesUp::AtFirst => !self.had_one.get(),
            GivesUp::Ever => true,
        };
        may && self.store.resting.load(Ordering::SeqCst)
    }
}

impl Batch<'_> {
    /// Locks the slots of all these keys until the scope is dropped; within it
    /// [`lock`](Self::lock) gives any of them, one guard of a slot at a time. Within
    /// another scope it adds nothing. One that somebody else has is waited for with no
    /// other held.
    pub fn hold<'k>(&self, keys: impl IntoIterator<Item = (usize, Key<'k>)>) -> Hold<'_> {
        if self.session.mode.get() != Mode::Single {
            return Hold { session: None };
        }
        assert_eq!(self.session.guards.get(), 0, "holding slots with a guard in use");
        let store = self.store();
        let mut held = self.session.held.borrow_mut();
        // There are some left where a wait was given up.
        held.clear();
        held.extend(keys.into_iter().map(|(db, key)| {
            let keyspace = store.keyspace_of(db);
            (keyspace, store.keyspaces[keyspace].home(key.slot()))
        }));
        held.sort_unstable();
        held.dedup();
        lock_all(self.session, &held);
        self.session.mode.set(Mode::Held);
        Hold { session: Some(self.session) }
    }

    /// Under [`hold`](Self::hold), has slots that are not held locked when they are
    /// needed, for the rest of the scope. The caller sees to it that no other session
    /// does the same meanwhile: so the one that waits with slots held is the only one,
    /// and whoever it waits for does not wait.
    pub fn hold_on_demand(&self) {
        assert_eq!(self.session.mode.get(), Mode::Held, "on demand, with nothing held");
        self.session.on_demand.set(true);
    }

    /// Whether a scope holds slots.
    pub fn is_held(&self) -> bool {
        self.session.mode.get() == Mode::Held
    }

    /// Whether slots that are not held are locked when they are needed.
    pub fn takes_on_demand(&self) -> bool {
        self.session.on_demand.get()
    }

    /// Adds the places of the slots that a scope holds ([`Store::place`](super::Store::place)).
    /// One may stand for others of its page.
    pub fn held_slots(&self, into: &mut Vec<(usize, usize)>) {
        into.extend(self.session.held.borrow().iter());
    }

    /// Whether a key can be locked as things are, without waiting: a scope has it.
    pub fn has_held(&self, db: usize, key: &Key<'_>) -> bool {
        match self.session.mode.get() {
            Mode::Single => false,
            Mode::Exclusive => true,
            Mode::Held => {
                let keyspace = self.store().keyspace_of(db);
                let home = self.store().keyspaces[keyspace].home(key.slot());
                self.session.held.borrow().binary_search(&(keyspace, home)).is_ok()
            }
        }
    }

    /// Has a wait for a slot given up, for what is done until that is said anew, if
    /// somebody has slots for long ([`Store::rest`]): the thread unwinds with a [`GaveUp`],
    /// which whoever calls this catches.
    #[inline]
    pub fn may_give_up(&self, when: GivesUp) {
        self.session.may_give_up.set(when);
        self.session.had_one.set(false);
    }
}

/// Locks all these slots. Whoever waits for one has none: else a session that takes
/// slots when it needs them could wait for it, and it for that session.
fn lock_all(session: &Session, places: &[(usize, usize)]) {
    let store = &session.store;
    let slot = |n: usize| store.keyspaces.slot(places[n].0, places[n].1);
    let mut first = 0;
    'again: while first < places.len() {
        if !slot(first).try_lock() {
            session.wait_for(slot(first));
        }
        for n in (0..places.len()).filter(|&n| n != first) {
            if slot(n).try_lock() {
                continue;
            }
            for locked in (0..n).chain((first > n).then_some(first)) {
                // SAFETY: locked above: all before `n`, and the first.
                #[allow(unsafe_code)]
                unsafe {
                    slot(locked).unlock();
                }
            }
            first = n;
            continue 'again;
        }
        return;
    }
}

/// A scope under which slots are held. See [`Batch::hold`].
#[derive(Debug)]
#[must_use]
pub struct Hold<'b> {
    pub(super) session: Option<&'b Session>,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let Some(session) = self.session else { return };
        debug_assert_eq!(session.guards.get(), 0);
        session.commit();
        session.mode.set(Mode::Single);
        session.on_demand.set(false);
        for (keyspace, slot) in session.held.borrow_mut().drain(..) {
            // SAFETY: locked by `hold`, in this very scope.
            #[allow(unsafe_code)]
            unsafe {
                session.store.keyspaces.slot(keyspace, slot).unlock();
            }
        }
    }
}
