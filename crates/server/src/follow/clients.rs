//! What any thread may reach of a client: figures for `CLIENT LIST`, and a mailbox
//! with what others have for it.

use parking_lot::Mutex;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

/// An end of a client's connection. Whoever comes through a Unix socket has its name for
/// an address on both ends, as in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Net(SocketAddr),
    Unix(Arc<Path>),
}

impl Address {
    /// Whether it is of the server's own machine.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Net(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{}:0", path.display()),
        }
    }
}

/// Names that a client gives itself, and that of the user as which it has logged in.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub user: Vec<u8>,
    pub name: Vec<u8>,
    pub lib_name: Vec<u8>,
    pub lib_version: Vec<u8>,
}

impl Default for Names {
    /// Those of a new client: it is the default user.
    fn default() -> Self {
        Self {
            user: b"default".to_vec(),
            name: Vec::new(),
            lib_name: Vec::new(),
            lib_version: Vec::new(),
        }
    }
}

/// What `CLIENT LIST` shows, kept up to date by the client's worker.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub db: AtomicU16,
    pub resp: AtomicU8,
    pub multi: AtomicI64,
    pub watching: AtomicUsize,
    pub channels: AtomicUsize,
    pub patterns: AtomicUsize,
    pub shard_channels: AtomicUsize,
    pub no_touch: AtomicBool,
    /// Its connection ends once its replies are sent.
    pub closing: AtomicBool,
    /// `CLIENT TRACKING`: whether it is on, of prefixes, and told to a client that is
    /// there no more; and to whom, -1 for off.
    pub tracking: AtomicBool,
    pub tracking_prefixes: AtomicBool,
    pub tracking_broken: AtomicBool,
    pub redirect: AtomicI64,
    pub no_evict: AtomicBool,
    pub readonly: AtomicBool,
    /// It follows every command: `MONITOR`.
    pub monitoring: AtomicBool,
    /// It is a replica of this node, or its primary.
    pub replica: AtomicBool,
    pub primary: AtomicBool,
    pub blocked: AtomicBool,
    /// Index of the last command in the table, plus one.
    pub last_command: AtomicU32,
    /// When the last command came, milliseconds of the server's clock.
    pub last_active: AtomicU64,
    /// Of a request that is not whole: its bytes, or those of its large value alone; the
    /// room for them; those of its other arguments beside a large value.
    pub query_bytes: AtomicUsize,
    pub query_capacity: AtomicUsize,
    pub argument_bytes: AtomicUsize,
    pub multi_bytes: AtomicUsize,
    /// Of replies that wait, and in how many pieces.
    pub output_bytes: AtomicUsize,
    pub output_chunks: AtomicUsize,
    /// All that it takes, as its worker counted last.
    pub memory: AtomicUsize,
}

/// The part of a client that any thread may reach.
#[derive(Debug)]
pub(crate) struct Shared {
    pub id: u64,
    pub peer: Address,
    pub local: Address,
    pub fd: i32,
    /// When it connected, milliseconds of the server's clock.
    pub connected: u64,
    pub names: Mutex<Names>,
    pub figures: Figures,
    mail: Mutex<Mail>,
    has_mail: AtomicBool,
    killed: AtomicBool,
    /// Its replies wait for commits of the round, or to be written or on disk.
    pub is_held: AtomicBool,
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
    pub(crate) fn new(id: u64, (peer, local): (Address, Address), fd: i32, connected: u64) -> Self {
        let figures = Figures::default();
        figures.last_active.store(connected, Relaxed);
        figures.multi.store(-1, Relaxed);
        figures.redirect.store(-1, Relaxed);
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
            is_held: AtomicBool::new(false),
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
        self.figures.memory.load(Relaxed)
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
