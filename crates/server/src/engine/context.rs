//! What a command handler is given: who calls, what they may reach, and the
//! arguments.
//!
//! A handler is `fn(&mut Context, Args, &mut Out) -> Result<(), Error>`. It
//!
//! - takes its keys with [`Context::key`] and locks their slots with
//!   [`Context::lock`], or several at once with [`Context::hold`] first;
//! - writes exactly one reply to `Out` and returns `Ok(())`, or returns the
//!   error to be sent, and what it has written is taken back;
//! - changes what it changes by ops ([`SlotGuard::apply`]), under the slot's guard:
//!   keyspace notifications, `WATCH`, clients that wait, and whoever follows commits
//!   are told by the store;
//! - if it finds nothing and the client asked to wait for it, writes nothing
//!   and calls [`Context::wait`](crate::follow::blocked), while it holds its slots.

use crate::catalog::command::Command;
use crate::catalog::error::Error;
use crate::config::{self, Param};
use crate::engine::client::Client;
use crate::engine::server::Server;
use crate::follow::blocked::Waiter;
use crate::follow::notify::{Class, Event};
use snug_codec::Segments;
use snug_codec::pool::Pool;
use snug_resp::{Argument, Span, parse_integer};
use snug_store::effect::{Argument as CommitArgument, CommitOp};
use snug_store::{Batch, Found, Hold, Key, NewStr, SlotGuard, Type};
use std::sync::Arc;
use std::sync::OnceLock;

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
    /// A client that has waited for the command's outcome, and still may.
    Waiter(&'c Arc<Waiter>),
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
        matches!(self, Self::Client | Self::Waiter(_))
    }

    /// Whether the time of a key that it names can have come.
    pub(crate) fn minds_time(self) -> bool {
        !matches!(self, Self::Replay)
    }
}

/// Everything a handler may reach.
pub(crate) struct Context<'c> {
    /// The caller.
    pub client: &'c mut Client,
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
    pub hashed: Option<Key<'c>>,
    /// The worker's workspaces for large values, where a command may wait for
    /// work with them.
    pub pool: Option<&'c Pool>,
}

impl<'c> Context<'c> {
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
            config::ACCESS_LOCAL => self.client.shared.peer.ip().to_canonical().is_loopback(),
            _ => true,
        }
    }

    /// The caller's database.
    #[inline]
    pub(crate) fn db(&self) -> usize {
        self.client.db
    }

    /// The locked slot of a key in the caller's database. One guard at a time,
    /// unless the keys are held.
    #[inline]
    pub(crate) fn lock(&self, key: &Key<'_>) -> SlotGuard<'c> {
        self.store.lock(self.client.db, key)
    }

    /// Locks the slots of several keys of the caller's database, so that what
    /// follows is one atomic step; then lock each as needed.
    pub(crate) fn hold<'k>(&self, keys: impl IntoIterator<Item = Key<'k>>) -> Hold<'c> {
        let db = self.client.db;
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
        let found = if self.client.no_touch { slot.find_untouched(key) } else { slot.find(key) };
        if self.command.has(crate::catalog::command::flags::READONLY) {
            self.read(key, found);
        }
        found
    }

    /// Looks up a key whose value is about to be replaced unread.
    pub(crate) fn find_replaced(&self, slot: &mut SlotGuard<'_>, key: &Key<'_>) -> Option<Found> {
        if self.client.no_touch { slot.find_untouched(key) } else { slot.find_replaced(key) }
    }

    /// Looks up a key that a writing command only reads: a hit or miss of a
    /// read all the same.
    pub(crate) fn find_to_read(&self, slot: &mut SlotGuard<'_>, key: &Key<'_>) -> Option<Found> {
        let found = if self.client.no_touch { slot.find_untouched(key) } else { slot.find(key) };
        self.read(key, found);
        found
    }

    /// Looks up a key to tell something of it that is no access to its value:
    /// a hit or miss, but it does not keep the value from cooling.
    pub(crate) fn peek(&self, slot: &mut SlotGuard<'_>, key: &Key<'_>) -> Option<Found> {
        let found = slot.find_untouched(key);
        self.read(key, found);
        found
    }

    #[inline]
    fn read(&self, key: &Key<'_>, found: Option<Found>) {
        if self.client.awaited.is_some() {
            // It was counted before the command waited.
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
        self.store.store().tell_event(self.client.db, key, event);
    }
}

/// A large argument: a chain, and its one-piece form once somebody asked.
#[derive(Debug, Default)]
pub(crate) struct Large {
    pub chain: Segments,
    flat: OnceLock<Vec<u8>>,
}

impl From<Segments> for Large {
    fn from(chain: Segments) -> Self {
        Self { chain, flat: OnceLock::new() }
    }
}

impl Large {
    fn bytes(&self) -> &[u8] {
        match self.chain.parts() {
            [] => &[],
            [only] => only,
            _ => self.flat.get_or_init(|| self.chain.to_vec()),
        }
    }
}

/// The arguments of a command, its name first. Cheap to copy: it refers to the
/// buffer they were parsed in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a> {
    pub buf: &'a [u8],
    pub spans: &'a [Span],
    pub large: &'a [Large],
}

impl<'a> Args<'a> {
    /// How many there are, the name included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Argument `index` in one piece (0 is the command's name).
    ///
    /// # Panics
    /// If there is no such argument: arity is checked before a handler runs.
    #[inline]
    pub(crate) fn bytes(&self, index: usize) -> &'a [u8] {
        match self.spans[index].argument(self.buf) {
            Argument::Bytes(bytes) => bytes,
            Argument::Large(n) => self.large[n].bytes(),
        }
    }

    /// Argument `index` as a value to be stored: a large one stays a chain.
    #[inline]
    pub(crate) fn value(&self, index: usize) -> NewStr<'a> {
        match self.spans[index].argument(self.buf) {
            Argument::Bytes(bytes) => NewStr::Bytes(bytes),
            Argument::Large(n) => NewStr::Chain(self.large[n].chain.clone()),
        }
    }

    /// Argument `index` if there is one.
    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        (index < self.len()).then(|| self.bytes(index))
    }

    /// Whether argument `index` is this word, in any case.
    #[inline]
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).is_some_and(|bytes| bytes.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Argument `index` as an integer.
    pub(crate) fn int(&self, index: usize) -> Result<i64, Error> {
        parse_integer(self.bytes(index)).ok_or(Error::NOT_INTEGER)
    }

    /// The arguments from `index` on.
    pub(crate) fn iter_from(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> {
        (index..self.len().max(index)).map(move |i| self.bytes(i))
    }
}

/// A command kept for later: `MULTI` queues these.
#[derive(Debug)]
pub(crate) struct OwnedArgs {
    buf: Vec<u8>,
    spans: Vec<Span>,
    large: Vec<Large>,
}

impl OwnedArgs {
    /// A copy of the arguments; large ones by reference.
    pub(crate) fn new(args: Args<'_>) -> Self {
        let large = args.large.iter().map(|large| Large::from(large.chain.clone())).collect();
        Self { buf: args.buf.to_vec(), spans: args.spans.to_vec(), large }
    }

    /// A command that nobody has sent.
    #[cfg(test)]
    pub(crate) fn of(command: &[Vec<u8>]) -> Self {
        let mut owned = Self { buf: Vec::new(), spans: Vec::new(), large: Vec::new() };
        for arg in command {
            let start = owned.buf.len();
            owned.buf.extend_from_slice(arg);
            owned.spans.extend(Span::new(start, arg.len()));
        }
        owned
    }

    /// An op of a commit, as the command that it is; large values by reference.
    /// `None` where its arguments are more bytes than a command can have.
    pub(crate) fn of_op(op: CommitOp<'_>) -> Option<Self> {
        let mut owned = Self { buf: Vec::new(), spans: Vec::new(), large: Vec::new() };
        for arg in op.args() {
            owned.spans.push(match arg {
                CommitArgument::Bytes(bytes) => {
                    let start = owned.buf.len();
                    owned.buf.extend_from_slice(bytes);
                    Span::new(start, bytes.len())?
                }
                CommitArgument::Chain(chain) => {
                    owned.large.push(Large::from(chain.clone()));
                    Span::of_large(owned.large.len() - 1)?
                }
            });
        }
        Some(owned)
    }

    /// Bytes that it keeps.
    pub(crate) fn bytes(&self) -> usize {
        let large: usize = self.large.iter().map(|large| large.chain.len()).sum();
        size_of::<Self>() + self.buf.len() + size_of_val(&self.spans[..]) + large
    }

    /// Puts other bytes in the place of an argument.
    pub(crate) fn replace(&mut self, index: usize, bytes: &[u8]) {
        if let Some(span) = Span::new(self.buf.len(), bytes.len()) {
            self.buf.extend_from_slice(bytes);
            self.spans[index] = span;
        }
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args { buf: &self.buf, spans: &self.spans, large: &self.large }
    }
}
