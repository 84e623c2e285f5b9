//! A client: what its connection's worker keeps of it, and the part of it that
//! other workers may reach; and the caller of a command, which need not be one.
//!
//! ```text
//!  worker of the connection            anybody
//!  Caller (owned, plain):
//!    db, protocol, NO-TOUCH
//!  Client (owned, plain)   --Arc-->    Shared: figures for CLIENT LIST,
//!    MULTI queue, WATCH ...            mailbox (pushes, kill), waker
//! ```
//!
//! Every command has a caller. That of a client that waits is a copy, kept with what
//! it waits for; a replay has one and no client at all.

use crate::auth::Account;
use crate::engine::command::Command;
use crate::follow::clients::Shared;
use crate::follow::pubsub::Subscriptions;
use crate::outside::clock::Instant;
use crate::peers::replica::{Introduction, Psync};
use crate::request::args::OwnedArgs;
use snug_resp::Protocol;
use std::any::Any;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What `CLIENT REPLY` asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    Off,
    /// The command after `CLIENT REPLY SKIP` is not answered.
    SkipNext,
    /// This very command is not answered.
    Skip,
}

/// How a client tracks.
#[derive(Debug, Default)]
pub(crate) struct TrackingMode {
    pub broadcast: bool,
    pub opt_in: bool,
    pub opt_out: bool,
    pub no_loop: bool,
    /// `CLIENT CACHING` was said: the next command, or transaction, is the exception.
    pub caching: bool,
    pub redirect: Option<u64>,
    /// In `BCAST` mode.
    pub prefixes: BTreeSet<Vec<u8>>,
    /// What these take, here and in the register of all.
    pub bytes: usize,
}

/// What a prefix takes beside its name: its places in two trees, and a list of clients.
const PREFIX_BYTES: usize = 120;

impl TrackingMode {
    pub(crate) fn add_prefix(&mut self, prefix: Vec<u8>) {
        let bytes = PREFIX_BYTES + 2 * prefix.len();
        if self.prefixes.insert(prefix) {
            self.bytes += bytes;
        }
    }

    /// Whether keys that are read now are to be remembered.
    pub(crate) fn remembers(&self) -> bool {
        let excepted = (self.opt_in && !self.caching) || (self.opt_out && self.caching);
        !self.broadcast && !excepted
    }
}

/// A queued transaction.
#[derive(Debug, Default)]
pub(crate) struct Multi {
    pub queue: Vec<(&'static Command, OwnedArgs)>,
    /// A command could not be queued: `EXEC` will refuse.
    pub failed: bool,
    pub bytes: usize,
    /// How many of the keys that it changes in place `EXEC` has looked at, to
    /// have their values unpacked beforehand.
    pub looked_at: usize,
}

/// What a command asks of who has it executed, whoever that is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// The database selected.
    pub db: usize,
    /// The protocol of the reply.
    pub protocol: Protocol,
    /// `CLIENT NO-TOUCH`: its reads do not count as accesses.
    pub no_touch: bool,
}

impl Default for Caller {
    /// That of a new client.
    fn default() -> Self {
        Self { db: 0, protocol: Protocol::Resp2, no_touch: false }
    }
}

/// A client that another thread executes for: what a command that runs aside needs of it.
#[derive(Debug)]
pub(crate) struct Absent {
    pub shared: Arc<Shared>,
    /// Whether keys that are read for it are to be remembered.
    pub remembers: bool,
}

/// One client, as its own worker has it, beside its [`Caller`].
#[derive(Debug)]
pub(crate) struct Client {
    pub shared: Arc<Shared>,
    /// As whom it has logged in: until then, as the default user.
    pub account: Account,
    pub authenticated: bool,
    /// `READONLY` in cluster mode.
    pub readonly: bool,
    pub reply: ReplyMode,
    /// `CLIENT TRACKING`, if it is on.
    pub tracking: Option<Box<TrackingMode>>,
    pub multi: Option<Multi>,
    pub watch: Watching,
    pub subscriptions: Subscriptions,
    /// It has had a command executed that reads or writes keys: what it is sent may tell
    /// of changes, and waits until they are on disk if replies are to.
    pub tells_of_keys: bool,
    /// The connection ends once what is queued has been sent.
    pub close: bool,
    /// The number of the last commit when it last wrote, if commits are followed.
    pub wrote: u64,
    /// What it said of itself, if it is to become a replica; and that it is to now.
    pub introduction: Introduction,
    pub psync: Option<Psync>,
    /// When the last command of this batch ended, which is when the next
    /// begins: one look at the clock for each.
    pub clock: Option<Instant>,
    /// What will come of its command, which runs aside, until it is executed again.
    pub aside: Option<Box<dyn Any + Send>>,
    /// Keys that its command has sent to another server, until it is executed again.
    pub moving: Option<Box<dyn Any + Send>>,
}

/// The keys a client watches.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    pub keys: HashSet<(usize, Vec<u8>)>,
    /// What these take, here and in the register of all.
    pub bytes: usize,
    /// Set by whoever changes one of them. New with each first `WATCH`.
    pub broken: Arc<AtomicBool>,
}

impl Watching {
    /// Whether a watched key changed.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }
}

impl Client {
    pub(crate) fn new(shared: Arc<Shared>, (account, authenticated): (Account, bool)) -> Self {
        Self {
            shared,
            account,
            authenticated,
            readonly: false,
            reply: ReplyMode::On,
            tracking: None,
            multi: None,
            watch: Watching::default(),
            subscriptions: Subscriptions::default(),
            tells_of_keys: false,
            close: false,
            wrote: 0,
            introduction: Introduction::default(),
            psync: None,
            clock: None,
            aside: None,
            moving: None,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.shared.id
    }

    /// Bytes that are kept for it besides its requests and its replies.
    #[inline]
    pub(crate) fn kept_bytes(&self) -> usize {
        let multi = self.multi.as_ref().map_or(0, |multi| multi.bytes);
        let tracking = self.tracking.as_ref().map_or(0, |tracking| tracking.bytes);
        multi + self.watch.bytes + self.subscriptions.bytes + tracking
    }

    /// Whether the command that it executes is not answered.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.reply, ReplyMode::Off | ReplyMode::Skip)
    }

    /// In RESP2 a subscribed client may do little else.
    pub(crate) fn in_pubsub_mode(&self, caller: &Caller) -> bool {
        caller.protocol == Protocol::Resp2 && self.subscriptions.len() > 0
    }

    /// Brings the figures that others see up to date. A few plain stores.
    pub(crate) fn publish_figures(&self, caller: &Caller) {
        let figures = &self.shared.figures;
        figures.db.store(caller.db as u16, Relaxed);
        figures.resp.store(if caller.protocol == Protocol::Resp3 { 3 } else { 2 }, Relaxed);
        figures.multi.store(self.multi.as_ref().map_or(-1, |m| m.queue.len() as i64), Relaxed);
        figures.multi_bytes.store(self.multi.as_ref().map_or(0, |m| m.bytes), Relaxed);
        figures.watching.store(self.watch.keys.len(), Relaxed);
        figures.channels.store(self.subscriptions.channels.len(), Relaxed);
        figures.patterns.store(self.subscriptions.patterns.len(), Relaxed);
        figures.shard_channels.store(self.subscriptions.shard_channels.len(), Relaxed);
        figures.no_touch.store(caller.no_touch, Relaxed);
        figures.closing.store(self.close, Relaxed);
        figures.readonly.store(self.readonly, Relaxed);
    }
}
