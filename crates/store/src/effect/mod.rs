//! Effects: what changes in a keyspace, told once and in order.
//!
//! ```text
//!  handler decides, under the slot's lock
//!    |
//!    v
//!  SlotGuard::apply(key, found, op, event)        the only way to change a value
//!    |-- op.apply      changes the value, and the books with it
//!    |-- op.form       the change as a Redis command, if anybody follows
//!    `-- observer      watches, waiting clients, keyspace events, if any
//!
//!  locks released:  the forms gathered under them are one commit, with a number
//! ```
//!
//! An [`Op`] is one change of one key. It is resolved as it is applied: its form
//! names the entry's ID, the time of expiry, the length that trimming left, and not
//! what a client had asked for. So a second store that executes nothing but the
//! forms of the first one's commits holds the same, whatever its clock and its
//! configuration say. Changes of two keys or of a whole database are functions of
//! [`Batch`](crate::Batch) (`keys.rs`); they are told in the same way.
//!
//! A commit is what was changed under one set of locks: by a command of one key
//! under its slot's guard, by a command of several, a transaction or a script under
//! its [`Hold`](crate::Hold) or [`Exclusive`](crate::Exclusive). Its number is taken
//! just before the locks are released. Whoever changes one of these slots later gets
//! a greater one: the order of numbers is the order of effects on every slot,
//! although sessions work side by side.
//!
//! What packing does is no effect: it changes how a value lies in memory and not
//! what it is. Nor is what reading notes: accesses, and when a consumer was seen.
//!
//! Cost where nobody follows, watches, waits or asks for events: an addition to a
//! counter and two branches a change, one more branch when a lock is released.

mod commit;
mod event;
mod form;
mod keys;

pub use commit::{Commit, CommitOp};
pub use event::{Class, Event, Told};
pub use form::Form;
pub use keys::{Delete, Expire, Replaced};

pub(crate) use commit::Recorder;

use crate::hash::Key;
use crate::slot::{Found, SlotGuard};
use crate::store::Counter;

/// One resolved change of one key. Implemented by the ops of keys
/// ([`Delete`], [`Expire`]) and of each type, and by nobody else.
pub trait Op: Change {}

impl<O: Change> Op for O {}

/// What an op does: the part of [`Op`] that only the store reaches.
pub trait Change {
    /// What whoever applied it learns.
    type Outcome;

    /// Changes the value at `found`, or makes one where there is none and the op
    /// can make one.
    #[doc(hidden)]
    fn apply(
        &mut self,
        slot: &mut SlotGuard<'_>,
        key: &Key<'_>,
        found: Option<Found>,
    ) -> Self::Outcome;

    /// The change as a Redis command. It has been applied.
    #[doc(hidden)]
    fn form(&self, outcome: &Self::Outcome, key: &[u8], form: &mut Form<'_>);

    /// Who is to hear of it.
    #[doc(hidden)]
    #[inline]
    fn told(&self, _: &Self::Outcome) -> Told {
        Told::Everybody
    }
}

impl SlotGuard<'_> {
    /// Applies an op to a key, and tells of it: the one way to change a value.
    /// `found` is what a lookup of the same key gave. What is heard of the change
    /// besides the op itself is `event`.
    #[inline]
    pub fn apply<O: Op>(
        &mut self,
        key: &Key<'_>,
        found: Option<Found>,
        mut op: O,
        event: Event,
    ) -> O::Outcome {
        self.keep(key);
        let outcome = op.apply(self, key, found);
        let told = op.told(&outcome);
        if told != Told::Nobody {
            if self.session().store().is_followed() {
                self.session().record(self.db(), |form| op.form(&outcome, key.bytes, form));
            }
            self.tell(key.bytes, told, event);
        }
        outcome
    }

    /// Counts a change, and tells the observer if there is anything to tell it.
    #[inline]
    pub(crate) fn tell(&self, key: &[u8], told: Told, event: Event) {
        let came = if self.take_added() { Came::Added } else { Came::Not };
        self.tell_how(key, told, came, event);
    }

    #[inline]
    fn tell_how(&self, key: &[u8], told: Told, came: Came, event: Event) {
        let store = self.session().store();
        store.count(Counter::Changes, 1);
        let class = event.class.and(Class::CHANGE);
        let heard = if came == Came::Added { class.and(Class::NEW) } else { class };
        if self.is_observed() || store.heeded().any(heard) {
            self.tell_observer(key, told, came, event);
        }
    }

    #[cold]
    fn tell_observer(&self, key: &[u8], told: Told, came: Came, event: Event) {
        let store = self.session().store();
        if self.is_observed() {
            store.observer().changed(self, key, told, came != Came::Not);
        }
        if told == Told::Everybody && store.heeded().any(Class::CHANGE) {
            store.observer().modified(key, event);
        }
        if came == Came::Added {
            store.tell_event(self.db(), key, Event::NEW);
        }
        store.tell_event(self.db(), key, event);
    }
}

/// Whether a change is that a key came to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Not,
    /// It is new, and nobody was told yet.
    Added,
    /// It was given the value of another key; an event told of it if it is new.
    Given,
}
