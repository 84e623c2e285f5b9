//! What a command handler is given: who calls, what they may reach, and the
//! arguments.
//!
//! A handler is `fn(&mut Context, Args, &mut Out) -> Answer`. It
//!
//! - takes its keys with [`Context::key`] and locks their slots with
//!   [`Context::lock`], or several at once with [`Context::hold`] first;
//! - writes exactly one reply to `Out` and returns `Ok(())`, or returns the
//!   error to be sent, and what it has written is taken back;
//! - changes what it changes by ops ([`SlotGuard::apply`]), under the slot's guard:
//!   keyspace notifications, `WATCH`, clients that wait, and whoever follows commits
//!   are told by the store;
//! - if it finds nothing and the client asked to wait for it, and
//!   [may](Origin::may_block), returns what [`Context::wait`] gives it, which it calls
//!   while it holds its slots;
//! - passes on with `?` what asks for work on a large value first
//!   ([`Context::finish`], [`Context::make_raw`]), and is called again when it is done.

use crate::config::{self, Param};
use crate::engine::blocked::Waiter;
use crate::engine::client::{Absent, Caller, Client};
use crate::engine::command::Command;
use crate::engine::large::Done;
use crate::engine::server::Server;
use crate::follow::clients::Shared;
use crate::request::error::Error;
use snug_codec::pool::Pool;
use snug_store::{Batch, Found, Hold, Key, SlotGuard, Type};
use snug_store::{Class, Event};
use std::sync::Arc;

/// A key that a read looked for is not there.
const KEY_MISS: Event = Event::new(Class::KEY_MISS, "keymiss");

/// Who has a command executed. What it may do depends on that: whether it may wait,
/// whether it is refused for want of memory, what it finds of a key whose time has
/// come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'c> {
    /// A client, one command after the other.
    Client,
    /// A client's transaction: nothing in it may wait, and it sees one moment.
    Exec,
    /// A script: as a transaction's command.
    Script,
    /// The same aside, in another thread than its client's.
    Aside(&'c Absent),
    /// A client's own command that runs aside: it may not wait.
    Apart(&'c Absent),
    /// A client that has waited for the command's outcome, and still may; and which of
    /// its keys is ready.
    Waiter(&'c Arc<Waiter>, &'c [u8]),
    /// A commit that took effect elsewhere: it is not judged again. Whether a key is
    /// there is told by commits and not by the clock.
    Replay,
}

impl Origin<'_> {
    /// Whether it is a client's own command, which may be put off until work that it
    /// needs is done.
    pub(crate) fn may_wait(self) -> bool {
        matches!(self, Self::Client)
    }

    /// Whether it may wait for what others write.
    pub(crate) fn may_block(self) -> bool {
        matches!(self, Self::Client | Self::Waiter(..))
    }

    /// Whether it is a script's command.
    pub(crate) fn is_script(self) -> bool {
        matches!(self, Self::Script | Self::Aside(_))
    }

    /// Whether the time of a key that it names can have come.
    pub(crate) fn minds_time(self) -> bool {
        !matches!(self, Self::Replay)
    }
}

/// Everything a handler may reach.
pub(crate) struct Context<'c> {
    /// Who calls.
    pub caller: &'c mut Caller,
    /// The connection's client, where a connection calls: see
    /// [`client`](Self::client).
    pub client: Option<&'c mut Client>,
    /// The keyspace, for the length of this batch.
    pub store: &'c Batch<'c>,
    /// The server that all workers share.
    pub server: &'c Server,
    /// The command being executed.
    pub command: &'static Command,
    /// The worker that executes it, counted from 0.
    pub worker: usize,
    /// Who asks.
    pub origin: Origin<'c>,
    /// A key that was hashed before the command was executed, if one was.
    pub hashed: Option<&'c Key<'c>>,
    /// The worker's workspaces for large values, where a command may wait for
    /// work with them.
    pub pool: Option<&'c Pool>,
    /// Work that the command was put off for, done.
    pub finished: Option<Box<Done>>,
    /// Whether it was put off for values on disk: it is not again.
    pub brought: bool,
}

impl<'c> Context<'c> {
    /// The client whose connection calls: for commands that ask or change what only a
    /// connection has, as subscriptions, a transaction, a name. A client that has
    /// waited is served without it, and a replay has none.
    pub(crate) fn client(&mut self) -> Result<&mut Client, Error> {
        self.client.as_deref_mut().ok_or(Error::NO_CLIENT)
    }

    /// What others know of the client on whose behalf the command is executed.
    #[inline]
    pub(crate) fn known(&self) -> Option<&Arc<Shared>> {
        match (&self.client, &self.origin) {
            (Some(client), _) => Some(&client.shared),
            (None, Origin::Waiter(waiter, _)) => Some(&waiter.client),
            (None, Origin::Aside(absent) | Origin::Apart(absent)) => Some(&absent.shared),
            (None, _) => None,
        }
    }

    /// A key's hash and slot.
    #[inline]
    pub(crate) fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        match self.hashed.and_then(|key| key.of_same(bytes)) {
            Some(key) => key,
            None => self.store.key(bytes),
        }
    }

    /// Whether the caller may do what this parameter gives to nobody, to everybody,
    /// or to clients on this machine.
    pub(crate) fn permits(&self, access: Param) -> bool {
        match self.server.config.number(access) {
            config::ACCESS_NO => false,
            config::ACCESS_LOCAL => self.known().is_some_and(|client| client.peer.is_local()),
            _ => true,
        }
    }

    /// Refuses a command to whom its parameter, `enable-...-command`, does not let in.
    pub(crate) fn let_in(&self, command: &str, access: Param) -> Result<(), Error> {
        if self.permits(access) {
            return Ok(());
        }
        let parameter = access.declaration().name;
        Err(Error::from(format!(
            "ERR {command} command not allowed. If the {parameter} option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
        )))
    }

    /// The caller's database.
    #[inline]
    pub(crate) fn db(&self) -> usize {
        self.caller.db
    }

    /// The locked slot of a key in the caller's database. One guard at a time,
    /// unless the keys are held.
    #[inline]
    pub(crate) fn lock(&self, key: &Key<'_>) -> SlotGuard<'c> {
        self.store.lock(self.caller.db, key)
    }

    /// Locks the slots of several keys of the caller's database, so that what
    /// follows is one atomic step; then lock each as needed.
    pub(crate) fn hold<'k>(&self, keys: impl IntoIterator<Item = Key<'k>>) -> Hold<'c> {
        let db = self.caller.db;
        self.store.hold(keys.into_iter().map(|key| (db, key)))
    }

    /// Looks up a key that must hold a string, if it exists.
    #[inline]
    pub(crate) fn find_string(
        &self,
        slot: &mut SlotGuard<'_>,
        key: &Key<'_>,
    ) -> Result<Option<Found>, Error> {
        self.find_typed(slot, key, Type::String)
    }

    /// Looks up a key that must hold a value of this type, if it exists.
    #[inline]
    pub(crate) fn find_typed(
        &self,
        slot: &mut SlotGuard<'_>,
        key: &Key<'_>,
        kind: Type,
    ) -> Result<Option<Found>, Error> {
        let found = self.find(slot, key);
        match found {
            Some(found) if slot.type_of(found) != kind => Err(Error::WRONG_TYPE),
            found => Ok(found),
        }
    }

    /// Looks up a key for reading or writing, and counts the hit or miss of a
    /// read, as `INFO` reports them.
    #[inline]
    pub(crate) fn find(&self, slot: &mut SlotGuard<'_>, key: &Key<'_>) -> Option<Found> {
        let found = if self.caller.no_touch { slot.find_untouched(key) } else { slot.find(key) };
        if self.command.has(crate::engine::command::flags::READONLY) {
            self.read(key, found);
        }
        found
    }

    /// Looks up a key whose value is about to be replaced unread.
    pub(crate) fn find_replaced(&self, slot: &mut SlotGuard<'_>, key: &Key<'_>) -> Option<Found> {
        if self.caller.no_touch { slot.find_entry(key) } else { slot.find_replaced(key) }
    }

    /// Looks up a key that a writing command only reads: a hit or miss of a
    /// read all the same.
    pub(crate) fn find_to_read(&self, slot: &mut SlotGuard<'_>, key: &Key<'_>) -> Option<Found> {
        let found = if self.caller.no_touch { slot.find_untouched(key) } else { slot.find(key) };
        self.read(key, found);
        found
    }

    /// Looks up a key to tell something of it that is no access to its value:
    /// a hit or miss, but it does not keep the value from cooling.
    pub(crate) fn peek(&self, slot: &mut SlotGuard<'_>, key: &Key<'_>) -> Option<Found> {
        let found = slot.find_entry(key);
        self.read(key, found);
        found
    }

    #[inline]
    fn read(&self, key: &Key<'_>, found: Option<Found>) {
        if self.finished.is_some() || found.is_none() && self.store.has_met() {
            // It will be when what was met is in memory; or it was counted before the command was put off.
            return;
        }
        if matches!(self.origin, Origin::Replay) {
            return;
        }
        self.server.stats.lookup(found.is_some());
        if found.is_none() {
            self.notify(KEY_MISS, key.bytes);
        }
    }

    /// Tells of an event in the caller's database that is no change (`keymiss` and the
    /// like), or the second of a change that has two.
    #[inline]
    pub(crate) fn notify(&self, event: Event, key: &[u8]) {
        self.store.store().tell_event(self.caller.db, key, event);
    }
}
