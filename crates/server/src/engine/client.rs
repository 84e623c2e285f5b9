//! A client: what its connection's worker keeps of it, and the part of it that
//! other workers may reach.
//!
//! ```text
//!  worker of the connection            anybody
//!  Client (owned, plain)   --Arc-->    Shared: figures for CLIENT LIST,
//!    db, MULTI queue, WATCH ...        mailbox (pushes, kill), waker
//! ```

use crate::catalog::command::Command;
use crate::engine::context::OwnedArgs;
use crate::engine::large::Awaited;
use crate::follow::blocked::Waiter;
use parking_lot::Mutex;
use snug_resp::Protocol;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Instant;

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

/// One client, as its own worker has it.
#[derive(Debug)]
pub(crate) struct Client {
    pub shared: Arc<Shared>,
    pub db: usize,
    pub protocol: Protocol,
    pub authenticated: bool,
    /// `CLIENT NO-TOUCH`: its reads do not count as accesses.
    pub no_touch: bool,
    /// `READONLY` in cluster mode.
    pub readonly: bool,
    pub reply: ReplyMode,
    pub multi: Option<Multi>,
    pub watch: Watching,
    pub channels: HashSet<Vec<u8>>,
    pub patterns: HashSet<Vec<u8>>,
    pub shard_channels: HashSet<Vec<u8>>,
    /// A command of its waits for `CLIENT PAUSE` to end.
    pub paused: bool,
    /// What it waits for, if it does: it executes nothing meanwhile.
    pub blocked: Option<Arc<Waiter>>,
    /// Work on a large value that its command waits for.
    pub awaited: Option<Awaited>,
    /// The connection ends once what is queued has been sent.
    pub close: bool,
    /// When the last command of this batch ended, which is when the next
    /// begins: one look at the clock for each.
    pub clock: Option<Instant>,
}

/// The keys a client watches.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    pub keys: Vec<(usize, Vec<u8>)>,
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
    pub(crate) fn new(shared: Arc<Shared>, authenticated: bool) -> Self {
        Self {
            shared,
            db: 0,
            protocol: Protocol::Resp2,
            authenticated,
            no_touch: false,
            readonly: false,
            reply: ReplyMode::On,
            multi: None,
            watch: Watching::default(),
            channels: HashSet::new(),
            patterns: HashSet::new(),
            shard_channels: HashSet::new(),
            paused: false,
            blocked: None,
            awaited: None,
            close: false,
            clock: None,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.shared.id
    }

    /// Channels, patterns and shard channels it is subscribed to.
    pub(crate) fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shard_channels.len()
    }

    /// Whether the command that it executes is not answered.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.reply, ReplyMode::Off | ReplyMode::Skip)
    }

    /// In RESP2 a subscribed client may do little else.
    pub(crate) fn in_pubsub_mode(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscriptions() > 0
    }

    /// Brings the figures that others see up to date. A few plain stores.
    pub(crate) fn publish_figures(&self) {
        let figures = &self.shared.figures;
        figures.db.store(self.db as u8, Relaxed);
        figures.resp.store(if self.protocol == Protocol::Resp3 { 3 } else { 2 }, Relaxed);
        figures.multi.store(self.multi.as_ref().map_or(-1, |m| m.queue.len() as i64), Relaxed);
        figures.watching.store(self.watch.keys.len(), Relaxed);
        figures.channels.store(self.channels.len(), Relaxed);
        figures.patterns.store(self.patterns.len(), Relaxed);
        figures.shard_channels.store(self.shard_channels.len(), Relaxed);
        figures.no_touch.store(self.no_touch, Relaxed);
        figures.readonly.store(self.readonly, Relaxed);
    }
}

/// Names that a client gives itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub name: Vec<u8>,
    pub lib_name: Vec<u8>,
    pub lib_version: Vec<u8>,
}

/// What `CLIENT LIST` shows, kept up to date by the client's worker.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub db: AtomicU8,
    pub resp: AtomicU8,
    pub multi: AtomicI64,
    pub watching: AtomicUsize,
    pub channels: AtomicUsize,
    pub patterns: AtomicUsize,
    pub shard_channels: AtomicUsize,
    pub no_touch: AtomicBool,
    pub no_evict: AtomicBool,
    pub readonly: AtomicBool,
    /// It follows every command: `MONITOR`.
    pub monitoring: AtomicBool,
    pub blocked: AtomicBool,
    /// Index of the last command in the table, plus one.
    pub last_command: AtomicU32,
    /// When the last command came, milliseconds of the server's clock.
    pub last_active: AtomicU64,
    pub query_bytes: AtomicUsize,
    pub query_capacity: AtomicUsize,
    pub multi_bytes: AtomicUsize,
    pub output_bytes: AtomicUsize,
}

/// The part of a client that any thread may reach.
#[derive(Debug)]
pub(crate) struct Shared {
    pub id: u64,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub fd: i32,
    /// When it connected, milliseconds of the server's clock.
    pub connected: u64,
    pub names: Mutex<Names>,
    pub figures: Figures,
    mail: Mutex<Mail>,
    has_mail: AtomicBool,
    killed: AtomicBool,
    /// Of the connection's task, once that has run.
    waker: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct Mail {
    pushes: Vec<u8>,
    /// Shard channels that this node no longer serves.
    closed_shard_channels: Vec<Vec<u8>>,
}

impl Shared {
    pub(crate) fn new(
        id: u64,
        peer: SocketAddr,
        local: SocketAddr,
        fd: i32,
        connected: u64,
    ) -> Self {
        let figures = Figures::default();
        figures.last_active.store(connected, Relaxed);
        figures.multi.store(-1, Relaxed);
        figures.resp.store(2, Relaxed);
        Self {
            id,
            peer,
            local,
            fd,
            connected,
            names: Mutex::default(),
            figures,
            mail: Mutex::default(),
            has_mail: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            waker: OnceLock::new(),
        }
    }

    /// Puts an encoded push into the client's mailbox and wakes its worker;
    /// bytes that wait there now. One eventfd write at most.
    pub(crate) fn push(&self, message: &[u8]) -> usize {
        let mut mail = self.mail.lock();
        mail.pushes.extend_from_slice(message);
        let waiting = mail.pushes.len();
        drop(mail);
        // Whoever put in the first has woken it.
        if !self.has_mail.swap(true, AcqRel) {
            self.wake();
        }
        waiting
    }

    /// Ends a subscription to a shard channel that this node no longer serves,
    /// as soon as the client's worker gets to it.
    pub(crate) fn close_shard_channel(&self, name: &[u8]) {
        self.mail.lock().closed_shard_channels.push(name.to_vec());
        self.has_mail.store(true, Release);
        self.wake();
    }

    /// Ends the connection, as soon as its worker gets to it; false if that
    /// was said before.
    pub(crate) fn kill(&self) -> bool {
        let first = !self.killed.swap(true, AcqRel);
        self.wake();
        first
    }

    /// Bytes that it takes: what is kept of it, its requests and its replies.
    pub(crate) fn memory(&self) -> usize {
        let number = |counter: &AtomicUsize| counter.load(Relaxed);
        let figures = &self.figures;
        let requests = number(&figures.query_capacity).max(number(&figures.query_bytes));
        let queued = number(&figures.multi_bytes) + number(&figures.output_bytes);
        size_of::<Self>() + requests + queued
    }

    /// Has the client's worker look at it.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Acquire)
    }

    /// Takes waiting pushes, and the shard channels closed since.
    pub(crate) fn take_mail(&self) -> (Vec<u8>, Vec<Vec<u8>>) {
        if !self.has_mail.load(Acquire) || !self.has_mail.swap(false, AcqRel) {
            return Default::default();
        }
        let mut mail = self.mail.lock();
        (std::mem::take(&mut mail.pushes), std::mem::take(&mut mail.closed_shard_channels))
    }

    /// Whom to wake when mail comes: the task of the connection, always the
    /// same one. To be called before looking for mail.
    #[inline]
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let known = self.waker.get_or_init(|| waker.clone());
        debug_assert!(known.will_wake(waker), "a connection stays with its task");
    }
}
