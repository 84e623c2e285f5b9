//! The other nodes of replication, and this one's place among them, as everybody may
//! see it: the role, the stream, the link to the primary, the replicas. What moves
//! bytes is the room `replication`.
//!
//! ```text
//!  primary ──link──> [ role, stream, limits ] ──stream──> replica
//!                       ^            ^              └───> replica
//!                  REPLICAOF    the journal's commits, where this node is the primary;
//!                               the primary's own bytes, where it is a replica
//! ```
//!
//! **One role at a time.** The role changes with the store to itself, and with it the
//! *epoch*. Whoever executes what a primary sends looks at the epoch within its batch:
//! nothing of an old primary is executed after `REPLICAOF` was answered.
//!
//! **Limits** are what the role and the state of links forbid clients, in one byte that
//! every command reads: it is brought up to date when something changes, not asked for
//! by each command anew.
//!
//! Locks: that of the stream is taken for moments; the journal's is below it, and that of
//! the replicas. No other is waited for under it.

pub(crate) mod backlog;
pub(crate) mod replica;

use crate::config::{Config, Param};
use crate::follow::clients::Shared;
use crate::journal::{Follower, Journal, Piece};
use crate::outside::clock::unix_ms;
use crate::persist::past::Past;
use crate::persist::rounds;
use crate::request::error::Error;
use crate::sockets::stream::Stream as Connection;
use backlog::Backlog;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use replica::{Introduction, Psync, Replica};
use snug_resp::append_command;
use snug_store::Batch;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

/// What the role and the links forbid: bits of [`Peers::limits`].
pub(crate) mod limits {
    /// Clients may not write to this replica.
    pub(crate) const READ_ONLY: u8 = 1;
    /// The link is down, and what may be stale is not served.
    pub(crate) const STALE: u8 = 2;
    /// The data set is being taken in.
    pub(crate) const LOADING: u8 = 4;
    /// Too few replicas are near enough for a write.
    pub(crate) const FEW_REPLICAS: u8 = 8;
    /// Keys whose time has come wait for the primary to say so.
    pub(crate) const REPLICA: u8 = 16;
}

/// How far the link to the primary is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// It is to be made.
    Connect,
    Connecting,
    Handshake,
    /// The whole data set comes.
    Transfer,
    Connected,
}

impl Link {
    /// As `ROLE` tells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Connecting => "connecting",
            Self::Handshake => "handshake",
            Self::Transfer => "sync",
            Self::Connected => "connected",
        }
    }
}

/// How far the data set is that comes from the primary.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transfer {
    /// Its length; none where its end is marked.
    pub(crate) total: Option<u64>,
    pub(crate) read: u64,
    pub(crate) heard: u64,
}

/// Whose replica this node is.
#[derive(Clone, Debug)]
pub(crate) struct Primary {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) link: Link,
    /// When something came from it last, in Unix milliseconds.
    pub(crate) heard: u64,
    pub(crate) down_since: Option<u64>,
    pub(crate) transfer: Transfer,
    /// It is asked to become one first: this node was the primary, and fails over.
    pub(crate) promote: bool,
}

impl Primary {
    fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            link: Link::Connect,
            heard: 0,
            down_since: Some(unix_ms()),
            transfer: Transfer::default(),
            promote: false,
        }
    }
}

/// How far a failover is that `FAILOVER` began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Failover {
    #[default]
    None,
    /// Until a replica, or this one, has everything; until then, or a time, or whatever.
    Waits { to: Option<(String, u16)>, until: Option<u64>, force: bool },
    /// The replica was asked to become the primary.
    Asked { to: (String, u16) },
}

impl Failover {
    /// As `INFO` tells it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::None => "no-failover",
            Self::Waits { .. } => "waiting-for-sync",
            Self::Asked { .. } => "failover-in-progress",
        }
    }
}

/// What a replica's bytes go through.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// A connection's stream on its way from a worker's runtime to another one.
pub(crate) enum Moved {
    Plain(TcpStream),
    Inside(Connection),
}

impl Moved {
    /// A socket changes runtimes; TLS stays with the worker's, which wakes whoever waits.
    pub(crate) fn new(stream: Connection) -> std::io::Result<Self> {
        match stream {
            Connection::Plain(socket) => Ok(Self::Plain(socket.into_std()?)),
            inside @ Connection::Tls(_) => Ok(Self::Inside(inside)),
            #[cfg(test)]
            inside @ Connection::Pipe(_) => Ok(Self::Inside(inside)),
        }
    }

    /// The stream, for the runtime that this is called in.
    pub(crate) fn open(self) -> std::io::Result<Box<dyn Socket>> {
        match self {
            Self::Plain(socket) => Ok(Box::new(tokio::net::TcpStream::from_std(socket)?)),
            Self::Inside(stream) => Ok(Box::new(stream)),
        }
    }
}

impl std::fmt::Debug for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Moved")
    }
}

/// A connection that becomes a replica's, taken from its worker.
#[derive(Debug)]
pub(crate) struct Adopted {
    pub(crate) client: Arc<Shared>,
    pub(crate) socket: Moved,
    pub(crate) introduction: Introduction,
    pub(crate) psync: Psync,
    /// What had come behind the request.
    pub(crate) rest: Vec<u8>,
}

/// What the threads of replication are to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Serve this replica.
    Adopt(Box<Adopted>),
    /// The role has changed: there may be a link to be made.
    Role,
}

/// The stream, and where it comes from while this node is its source.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) backlog: Backlog,
    follower: Option<Follower>,
    /// Room for what is read.
    pieces: Vec<Piece>,
    /// The database that is selected at its end, where a primary sends it.
    pub(crate) selected: usize,
    /// Since when the backlog is kept though there is no replica.
    pub(crate) lonely_since: Option<u64>,
}

impl Stream {
    /// Takes in what the journal has; whether that was anything. What comes later has
    /// the journal wake whoever does this.
    pub(crate) fn pump(&mut self) -> bool {
        let Some(follower) = &mut self.follower else { return false };
        if !follower.read_once(&mut self.pieces) {
            return false;
        }
        for piece in self.pieces.drain(..) {
            // Marks are for others: who needs one here has the store to itself.
            if let Piece::Bytes(bytes) = piece {
                self.backlog.append(bytes);
            }
        }
        follower.dealt();
        true
    }

    /// The number of the last commit that is in the stream.
    pub(crate) fn last_commit(&self) -> u64 {
        self.follower.as_ref().map_or(u64::MAX, Follower::last)
    }

    /// Appends a command that is nobody's commit.
    pub(crate) fn say(&mut self, words: &[&[u8]]) {
        self.pump();
        let mut bytes = Vec::new();
        append_command(&mut bytes, words);
        self.backlog.append(bytes.into());
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Peers {
    stream: Mutex<Stream>,
    /// The journal has something new.
    pub(crate) written: Arc<Notify>,
    /// The stream has.
    pub(crate) grown: Notify,
    limits: AtomicU8,
    loading: AtomicUsize,
    /// A data set is being made beside the one that is served.
    pub(crate) loads_beside: AtomicBool,
    primary: Mutex<Option<Primary>>,
    epoch: AtomicU64,
    replicas: Mutex<Vec<Arc<Replica>>>,
    /// How many they are.
    connected: AtomicUsize,
    pub(crate) failover: Mutex<Failover>,
    /// Memory of the stream that is only there for replicas that are behind.
    pub(crate) for_replicas: AtomicU64,
    /// The end of the stream when replicas were last asked how far they are.
    asked_at: AtomicU64,
    orders: OnceLock<UnboundedSender<Order>>,
}

impl Peers {
    /// Where orders go from now on.
    pub(crate) fn take_orders(&self, orders: UnboundedSender<Order>) {
        let _ = self.orders.set(orders);
    }

    /// Gives an order; false if nobody takes any.
    pub(crate) fn order(&self, order: Order) -> bool {
        self.orders.get().is_some_and(|orders| orders.send(order).is_ok())
    }

    /// What is forbidden now: bits of [`limits`].
    #[inline]
    pub(crate) fn limits(&self) -> u8 {
        self.limits.load(Relaxed)
    }

    /// Whether this node is a replica.
    #[inline]
    pub(crate) fn is_replica(&self) -> bool {
        self.limits() & limits::REPLICA != 0
    }

    /// Brings what is forbidden up to date.
    pub(crate) fn refresh(&self, config: &Config) {
        let primary = self.primary.lock();
        let mut now = 0;
        if let Some(primary) = &*primary {
            now |= limits::REPLICA;
            if config.is_on(Param::ReplicaReadOnly) {
                now |= limits::READ_ONLY;
            }
            if primary.link != Link::Connected && !config.is_on(Param::ReplicaServeStaleData) {
                now |= limits::STALE;
            }
        } else if self.lacks_replicas(config) {
            now |= limits::FEW_REPLICAS;
        }
        if self.loading.load(Relaxed) > 0 {
            now |= limits::LOADING;
        }
        self.limits.store(now, Relaxed);
    }

    fn lacks_replicas(&self, config: &Config) -> bool {
        let wanted = config.number(Param::MinReplicasToWrite);
        let lag = config.number(Param::MinReplicasMaxLag);
        wanted > 0 && lag > 0 && (self.good_replicas(config) as i64) < wanted
    }

    /// Replicas that were heard of within `min-replicas-max-lag` seconds.
    pub(crate) fn good_replicas(&self, config: &Config) -> usize {
        let (now, lag) = (unix_ms(), config.number(Param::MinReplicasMaxLag) as u64);
        let replicas = self.replicas.lock();
        replicas.iter().filter(|r| r.is_online() && r.lag_seconds(now) <= lag).count()
    }

    /// The data set is being taken in, or that has ended.
    pub(crate) fn set_loading(&self, config: &Config, loading: bool) {
        if loading {
            self.loading.fetch_add(1, Relaxed);
        } else {
            self.loading.fetch_sub(1, Relaxed);
        }
        self.refresh(config);
    }

    /// Whether the data set is being taken in where clients would see a part of it.
    pub(crate) fn is_loading(&self) -> bool {
        self.limits() & limits::LOADING != 0
    }

    /// The stream, with what the journal has for it.
    pub(crate) fn stream(&self) -> MutexGuard<'_, Stream> {
        let mut stream = self.stream.lock();
        if stream.pump() {
            self.grown.notify_waiters();
        }
        stream
    }

    /// Appends a command that is nobody's commit, if there are replicas to hear it and
    /// this node is the source of what they hear.
    pub(crate) fn say(&self, words: &[&[u8]]) {
        if self.is_replica() || self.connected.load(Relaxed) == 0 {
            return;
        }
        let mut stream = self.stream.lock();
        if stream.backlog.is_active() {
            stream.say(words);
            drop(stream);
            self.grown.notify_waiters();
        }
    }

    /// This node has no place in any stream: what it has is about to be replaced.
    pub(crate) fn leave_stream(&self) {
        self.end_stream();
        self.disconnect_replicas();
    }

    /// What this node has is the state of the stream `id` at `offset`.
    pub(crate) fn arrived(&self, id: &str, offset: u64, selected: usize) {
        let mut stream = self.stream.lock();
        stream.backlog.restart(id, offset);
        stream.selected = selected;
        drop(stream);
        self.disconnect_replicas();
    }

    /// Appends what the primary sent and this node has executed; the database that is
    /// selected behind it.
    pub(crate) fn pass_on(&self, bytes: Bytes, selected: usize) {
        let mut stream = self.stream.lock();
        stream.backlog.append(bytes);
        stream.selected = selected;
        drop(stream);
        self.grown.notify_waiters();
    }

    /// Asks all replicas how far they are, unless nothing has come since that was asked.
    pub(crate) fn ask_how_far(&self) {
        let end = self.stream().backlog.end();
        if self.asked_at.swap(end, Relaxed) != end {
            self.say(&[b"REPLCONF", b"GETACK", b"*"]);
            self.asked_at.store(self.stream().backlog.end(), Relaxed);
        }
    }

    /// Whose replica this node is.
    pub(crate) fn primary(&self) -> Option<Primary> {
        self.primary.lock().clone()
    }

    /// Changes what is known of the link of that epoch; false if the role has changed.
    pub(crate) fn with_primary(&self, epoch: u64, change: impl FnOnce(&mut Primary)) -> bool {
        let mut primary = self.primary.lock();
        if self.epoch() != epoch {
            return false;
        }
        primary.as_mut().is_some_and(|primary| {
            change(primary);
            true
        })
    }

    /// The link of that epoch is so far now.
    pub(crate) fn set_link(&self, config: &Config, epoch: u64, link: Link) -> bool {
        let known = self.with_primary(epoch, |primary| {
            let now = unix_ms();
            match link {
                Link::Connected => primary.down_since = None,
                Link::Connect if primary.down_since.is_none() => primary.down_since = Some(now),
                _ => {}
            }
            (primary.link, primary.heard) = (link, now);
        });
        self.refresh(config);
        known
    }

    /// Changes with every change of role.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// Makes this node a replica. The store is the caller's alone.
    /// It is asked to become a primary first, if it is to take this one's place.
    pub(crate) fn follow(
        &self,
        batch: &Batch<'_>,
        config: &Config,
        host: &str,
        port: u16,
        promote: bool,
    ) {
        let _alone = batch.exclusive();
        {
            let mut stream = self.stream.lock();
            // What was committed up to now is part of what this node has.
            stream.pump();
            stream.follower = None;
            stream.lonely_since = None;
        }
        *self.primary.lock() = Some(Primary { promote, ..Primary::new(host, port) });
        self.epoch.fetch_add(1, Relaxed);
        self.refresh(config);
        self.grown.notify_waiters();
        self.order(Order::Role);
    }

    /// Makes this node a primary. The store is the caller's alone. Replicas come back
    /// under the stream's new id.
    pub(crate) fn lead(&self, batch: &Batch<'_>, config: &Config, journal: &Arc<Journal>) {
        let _alone = batch.exclusive();
        if self.primary.lock().take().is_none() {
            return;
        }
        self.epoch.fetch_add(1, Relaxed);
        let mut stream = self.stream.lock();
        stream.backlog.shift_id();
        if stream.backlog.is_active() {
            stream.follower = Some(self.join(batch, journal));
            stream.pump();
            stream.lonely_since = Some(unix_ms());
        }
        drop(stream);
        self.refresh(config);
        self.disconnect_replicas();
        self.order(Order::Role);
    }

    fn join(&self, batch: &Batch<'_>, journal: &Arc<Journal>) -> Follower {
        let written = Arc::clone(&self.written);
        journal.join(batch, false, Box::new(move || rounds::wake(&written)))
    }

    /// Begins to keep the stream, if it is not kept yet. The store is the caller's alone.
    pub(crate) fn begin_stream(&self, batch: &Batch<'_>, journal: &Arc<Journal>) {
        let _alone = batch.exclusive();
        let mut stream = self.stream.lock();
        if !stream.backlog.is_active() {
            // What was written before was counted by nobody.
            stream.backlog.new_id();
            stream.backlog.begin();
        }
        if stream.follower.is_none() && !self.is_replica() {
            stream.follower = Some(self.join(batch, journal));
            // So that it asks to be woken.
            stream.pump();
        }
    }

    /// What was loaded from disk is the state of the stream `past.id` at `past.offset`. A
    /// replica asks its primary for what follows; a primary goes on under a new id, and
    /// replicas that are no further come back under the old one. The store is the caller's
    /// alone, and nothing was committed since it was loaded.
    pub(crate) fn resume(&self, batch: &Batch<'_>, journal: &Arc<Journal>, past: &Past) {
        let _alone = batch.exclusive();
        let mut stream = self.stream.lock();
        stream.backlog.restart(&past.id, past.offset);
        stream.selected = past.selected;
        if !self.is_replica() {
            stream.backlog.shift_id();
            stream.follower = Some(self.join(batch, journal));
            stream.pump();
            stream.lonely_since = Some(unix_ms());
        }
    }

    /// Where the stream is at this moment; none if it is not kept, so that nobody could go
    /// on from there. The store is the caller's alone.
    pub(crate) fn past(&self, batch: &Batch<'_>, journal: &Journal) -> Option<Past> {
        let _alone = batch.exclusive();
        if !self.is_replica() {
            // So that what follows begins with a SELECT.
            journal.select_anew(batch);
        }
        let stream = self.stream();
        let backlog = &stream.backlog;
        let past =
            Past { id: backlog.id.clone(), offset: backlog.end(), selected: stream.selected };
        backlog.is_active().then_some(past)
    }

    /// Ends to keep the stream: nobody has come for it in a long time.
    pub(crate) fn end_stream(&self) {
        let mut stream = self.stream.lock();
        stream.follower = None;
        stream.lonely_since = None;
        stream.backlog.end_keeping();
        stream.backlog.new_id();
    }

    /// All replicas.
    pub(crate) fn replicas(&self) -> Vec<Arc<Replica>> {
        self.replicas.lock().clone()
    }

    pub(crate) fn add_replica(&self, replica: &Arc<Replica>) {
        self.stream.lock().lonely_since = None;
        let mut replicas = self.replicas.lock();
        replicas.push(Arc::clone(replica));
        self.connected.store(replicas.len(), Relaxed);
    }

    pub(crate) fn remove_replica(&self, config: &Config, replica: &Arc<Replica>) {
        let mut replicas = self.replicas.lock();
        replicas.retain(|other| !Arc::ptr_eq(other, replica));
        self.connected.store(replicas.len(), Relaxed);
        let none = replicas.is_empty();
        drop(replicas);
        if none && !self.is_replica() {
            self.stream.lock().lonely_since = Some(unix_ms());
        }
        self.refresh(config);
    }

    /// Ends the connections of all replicas.
    pub(crate) fn disconnect_replicas(&self) {
        for replica in self.replicas() {
            replica.client.kill();
        }
        self.grown.notify_waiters();
    }

    /// Replicas that have executed the stream up to an offset.
    pub(crate) fn acknowledged(&self, offset: u64) -> usize {
        let replicas = self.replicas.lock();
        replicas.iter().filter(|r| r.is_online() && r.acknowledged() >= offset).count()
    }

    /// Lets go of what no replica needs and the backlog is not to hold. Done as the stream
    /// grows, so that its memory is used again while the processor has it at hand.
    pub(crate) fn trim(&self, config: &Config) {
        let size = (config.number(Param::ReplBacklogSize) as u64).max(16 * 1024);
        let mut stream = self.stream.lock();
        if stream.backlog.len() > size {
            let needed = self.replicas.lock().iter().map(|replica| replica.sent()).min();
            stream.backlog.trim(size, needed.unwrap_or(u64::MAX));
        }
        let kept = if stream.backlog.len() > size { stream.backlog.memory() } else { 0 };
        self.for_replicas.store(kept.saturating_sub(size), Relaxed);
    }

    /// Bytes that the past of the stream takes, and those that it holds for replicas that
    /// are behind.
    pub(crate) fn memory(&self, config: &Config) -> (u64, u64) {
        let size = config.number(Param::ReplBacklogSize) as u64;
        let kept = self.stream.lock().backlog.len();
        (kept.min(size), kept.saturating_sub(size))
    }

    /// Bytes of the stream that wait for a replica.
    pub(crate) fn behind(&self, replica: &Replica) -> u64 {
        self.stream.lock().backlog.end().saturating_sub(replica.sent())
    }

    /// What follows an offset of the stream; `None` if that is no longer there. What the
    /// journal has comes in whenever a worker's round is over: who took it in by itself
    /// would send a few commands at a time.
    pub(crate) fn read(&self, offset: u64, most: usize) -> Option<Vec<Bytes>> {
        self.stream.lock().backlog.read(offset, most)
    }
}

/// What a client is told that would write to a replica.
pub(crate) const READ_ONLY: Error =
    Error::new("READONLY You can't write against a read only replica.");
/// What a client is told while what is there may be stale.
pub(crate) const STALE: Error =
    Error::new("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
/// What a client is told while the data set is taken in.
pub(crate) const LOADING: Error = Error::new("LOADING Redis is loading the dataset in memory");
/// What a client is told that would write where too few replicas hear of it.
pub(crate) const FEW_REPLICAS: Error = Error::new("NOREPLICAS Not enough good replicas to write.");
/// What clients that wait are told when this node becomes a replica.
pub(crate) const ROLE_CHANGED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
