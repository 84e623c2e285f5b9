//! Changes of keys whatever they hold, and of whole databases.
//!
//! | change | as a command |
//! | --- | --- |
//! | a key is removed: asked for, expired, evicted | `DEL key` |
//! | it is given a time to expire at, or none | `PEXPIREAT key ms`, `PERSIST key` |
//! | its value goes to another name | `RENAME key name` |
//! | its value goes to another database | `MOVE key db` |
//! | another key gets a copy of its value | `COPY key other DB n REPLACE` |
//! | a database is emptied | `FLUSHDB` |
//! | two databases are swapped | `SWAPDB a b` |

use super::{Came, Change, Class, Event, Form, Told};
use crate::hash::Key;
use crate::slot::{Detached, Found, SlotGuard};
use crate::store::{Batch, Counter, Flushed};

/// Removes a key. What it held is given back, to be freed where it suits.
#[derive(Clone, Copy, Debug)]
pub struct Delete;

impl Delete {
    fn write(key: &[u8], form: &mut Form<'_>) {
        form.command("DEL").bytes(key);
    }
}

impl Change for Delete {
    type Outcome = Option<Detached>;

    fn apply(
        &mut self,
        slot: &mut SlotGuard<'_>,
        _: &Key<'_>,
        found: Option<Found>,
    ) -> Option<Detached> {
        found.map(|found| slot.detach(found))
    }

    fn form(&self, _: &Option<Detached>, key: &[u8], form: &mut Form<'_>) {
        Self::write(key, form);
    }

    fn told(&self, outcome: &Option<Detached>) -> Told {
        if outcome.is_some() { Told::Everybody } else { Told::Nobody }
    }
}

/// Has a key expire at this Unix time in milliseconds, or no longer. The key exists.
#[derive(Clone, Copy, Debug)]
pub struct Expire(pub Option<u64>);

impl Change for Expire {
    type Outcome = ();

    fn apply(&mut self, slot: &mut SlotGuard<'_>, _: &Key<'_>, found: Option<Found>) {
        if let Some(found) = found {
            slot.set_expiry(found, self.0);
        }
    }

    fn form(&self, (): &(), key: &[u8], form: &mut Form<'_>) {
        match self.0 {
            Some(at) => form.command("PEXPIREAT").bytes(key).number(at),
            None => form.command("PERSIST").bytes(key),
        };
    }
}

impl SlotGuard<'_> {
    /// Removes what the store itself removes, for the reason that `event` names.
    pub(crate) fn delete(&mut self, found: Found, event: Event) -> Detached {
        if self.session().store().is_kept() {
            let name = self.key(found).to_vec();
            self.keep(&self.session().store().key(&name));
        }
        let value = self.detach(found);
        let key = value.key();
        let session = self.session();
        if session.store().is_followed() {
            session.record(self.db(), |form| Delete::write(&key, form));
        }
        self.tell(&key, Told::Everybody, event);
        drop(key);
        value
    }
}

/// How the keys of databases were replaced all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// They are gone.
    Flushed,
    /// They are those of another database.
    Swapped,
}

impl Batch<'_> {
    /// Makes a change of something that is kept with the keys and is none, such as a
    /// library of functions, and tells whoever follows commits of the command that makes
    /// it. Has the store to itself meanwhile, so that its place among commits is that
    /// of the change. Nothing is told if it fails.
    pub fn change_beside<T, E>(
        &self,
        command: &[&[u8]],
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let _alone = self.exclusive();
        let changed = change()?;
        self.record(0, |form| {
            for word in command {
                form.bytes(word);
            }
        });
        self.store().count(Counter::Changes, 1);
        Ok(changed)
    }

    fn record(&self, db: usize, form: impl FnOnce(&mut Form<'_>)) {
        if self.store().is_followed() {
            self.session().record(db, form);
        }
    }

    /// A key's value, or a copy of it, as `take` gives it; `None` if there is no such key.
    fn value_of<'b>(
        &'b self,
        db: usize,
        key: &Key<'_>,
        take: impl FnOnce(&mut SlotGuard<'b>, Found) -> Detached,
    ) -> Option<Detached> {
        let mut slot = self.lock(db, key);
        let found = slot.find_entry(key)?;
        Some(take(&mut slot, found))
    }

    /// Gives a value to a key, in place of what that key held, which is given back.
    fn put(&self, db: usize, key: &Key<'_>, value: Detached) -> Option<Detached> {
        let mut slot = self.lock(db, key);
        let found = slot.find_entry(key);
        slot.keep(key);
        let before = found.map(|found| slot.detach(found));
        slot.attach(key, value);
        // Told before what follows, which is told of both keys.
        if slot.take_added() {
            self.store().tell_event(db, key.bytes, Event::NEW);
        }
        before
    }

    /// Tells of a change of a key that was made and recorded.
    fn tell(&self, db: usize, key: &Key<'_>, came: Came, name: &'static str) {
        let slot = self.lock(db, key);
        slot.tell_how(key.bytes, Told::Everybody, came, Event::new(Class::GENERIC, name));
    }

    /// Moves the value of a key of database `from` to a key of database `to`, in
    /// place of what that held, which is given back. Both slots are held, and there
    /// is such a key. O(1).
    fn carry(
        &self,
        (from_db, from): (usize, &Key<'_>),
        (to_db, to): (usize, &Key<'_>),
    ) -> Option<Detached> {
        let value = self.value_of(from_db, from, |slot, found| {
            slot.keep(from);
            slot.detach(found)
        })?;
        self.put(to_db, to, value)
    }

    /// Gives the value of a key to another name, in place of what that held, which
    /// is given back. The slots of both are held, and the key exists. O(1).
    pub fn rename(&self, db: usize, from: &Key<'_>, to: &Key<'_>) -> Option<Detached> {
        let before = self.carry((db, from), (db, to));
        self.record(db, |form| {
            form.command("RENAME").bytes(from.bytes).bytes(to.bytes);
        });
        self.tell(db, from, Came::Not, "rename_from");
        self.tell(db, to, Came::Given, "rename_to");
        before
    }

    /// Moves a key to another database, which has none of that name. The slots in
    /// both are held, and the key exists. O(1).
    pub fn move_key(&self, key: &Key<'_>, from: usize, to: usize) {
        let before = self.carry((from, key), (to, key));
        debug_assert!(before.is_none(), "the other database has such a key");
        self.record(from, |form| {
            form.command("MOVE").bytes(key.bytes).number(to as u64);
        });
        self.tell(from, key, Came::Not, "move_from");
        self.tell(to, key, Came::Given, "move_to");
    }

    /// Gives a copy of a key's value, with its expiry, to another key, in place of
    /// what that held, which is given back. The slots of both are held, and the key
    /// exists. O(value); large values share what they consist of.
    pub fn copy(
        &self,
        (from_db, from): (usize, &Key<'_>),
        (to_db, to): (usize, &Key<'_>),
    ) -> Option<Detached> {
        let value = self.value_of(from_db, from, |slot, found| slot.duplicate(found))?;
        let before = self.put(to_db, to, value);
        self.record(from_db, |form| {
            form.command("COPY").bytes(from.bytes).bytes(to.bytes);
            form.word("DB").number(to_db as u64).word("REPLACE");
        });
        self.tell(to_db, to, Came::Given, "copy_to");
        before
    }

    /// Swaps two databases. O(watched and awaited keys).
    pub fn swap(&self, a: usize, b: usize) {
        let _alone = self.exclusive();
        let observer = self.store().observer();
        observer.replacing(self, &[a, b]);
        self.exchange(a, b);
        observer.replaced(self, &[a, b], Replaced::Swapped);
        self.record(a, |form| {
            form.command("SWAPDB").number(a as u64).number(b as u64);
        });
        self.store().count(Counter::Changes, 1);
    }

    /// Empties a database at once, and gives what was in it to be freed when and
    /// where the caller sees fit. O(slots).
    pub fn flush(&self, db: usize) -> Flushed {
        let _alone = self.exclusive();
        let (store, keys) = (self.store(), self.store().keys(db));
        store.observer().replacing(self, &[db]);
        let flushed = self.take_all(db);
        store.observer().replaced(self, &[db], Replaced::Flushed);
        self.record(db, |form| {
            form.command("FLUSHDB");
        });
        store.count(Counter::Changes, keys as i64);
        flushed
    }
}
