//! The store: databases of slots, sixteen unless it is told otherwise, what they count, and how a thread
//! gets to work on them.
//!
//! ```text
//!  Store
//!    databases  [0] [1] ... [15]          numbers that clients use; SWAPDB swaps two
//!                 \  /
//!    keyspaces  [a] [b] ... [p]           16,384 slots each, folded while they have few keys
//!    counters   keys, expiring, bytes by type ...
//!    gates      one per session
//! ```
//!
//! # Locks
//!
//! A thread works through a [`Session`]. While it executes a batch of commands
//! it holds its own *gate* shared, which costs one atomic operation a batch.
//! Within the batch, in one of three modes:
//!
//! - a command locks the slot of its key ([`Batch::lock`]);
//! - a command or transaction of several keys locks all their slots first, and works
//!   under that scope ([`Batch::hold`]); one of them at a time takes further slots when
//!   it needs them ([`Batch::hold_on_demand`]);
//! - whatever concerns a whole database, or keys not known beforehand, closes
//!   every gate and then needs no slot lock at all ([`Batch::exclusive`]).
//!
//! A slot is only ever waited for by a thread that holds none, but for the one that
//! takes them on demand; gates only by a thread that holds neither slot nor gate: nothing
//! can wait in a circle.

use crate::away::{Meeting, Tier};
use crate::effect::{Class, Event};
use crate::hash::{Key, KeyHasher, mixed};
use crate::keyspace::{Keys, Keyspace, Keyspaces};
use crate::pack::families::Families;
use crate::pack::form::Damaged;
use crate::sharded::Sharded;
use crate::snapshot::Moment;
use crate::sync::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Mutex, RwLock};
use crate::types::Type;
use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod batch;
mod counters;
mod flushed;
mod gates;
mod hold;
mod observer;
mod reshape;
mod session;
mod walk;

pub use batch::Batch;
use counters::COUNTERS;
pub(crate) use counters::Counter;
pub use counters::TypeMemory;
pub use flushed::Flushed;
pub use gates::Exclusive;
use gates::Gate;
pub use hold::{GaveUp, GivesUp, Hold};
pub use observer::{Observer, Unobserved};
use session::Mode;
pub use session::{Expired, Session};

/// In the place of a factor: access bits tell how lately a key was used.
const RECENCY: u64 = u64::MAX;

/// Logical databases, unless a store is told otherwise.
pub const DATABASES: usize = 16;

/// The most that a store may have. One in use costs 6 KiB before it has a key; what looks
/// at all of them, as eviction does, costs a nanosecond for each that is not.
pub const DATABASES_MAX: usize = 10_000;

impl Observer for Unobserved {}

/// How a store is set up.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// Whether slots are Redis Cluster's (CRC16 of the hash tag).
    pub cluster: bool,
    /// How many databases there are: 1 to [`DATABASES_MAX`].
    pub databases: usize,
    /// What the hashes of keys and the store's random choices begin with. Who knows it
    /// can build keys that collide, so it is drawn where nobody outside can guess it; with
    /// the same one, and the same done by each session, a store does the same again.
    pub seed: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            cluster: false,
            databases: DATABASES,
            seed: RandomState::new().build_hasher().finish(),
        }
    }
}

/// An in-memory keyspace of some databases.
pub struct Store {
    hasher: KeyHasher,
    config: StoreConfig,
    /// Which keyspace each database is.
    databases: Box<[AtomicU16]>,
    pub(crate) keyspaces: Keyspaces,
    counters: Sharded<COUNTERS>,
    gates: Mutex<Vec<Arc<Gate>>>,
    /// How many sessions there have been.
    sessions: AtomicU64,
    /// How reads are counted: see [`count_reads`](Self::count_reads).
    log_factor: AtomicU64,
    keep_packed: AtomicBool,
    /// Nothing but a command closes the gates: see [`rest`](Store::rest).
    resting: AtomicBool,
    families: Families,
    observer: Box<dyn Observer>,
    /// Classes of events that are heeded, [`FOLLOWED`] and [`SNAPSHOT`].
    interests: AtomicU32,
    /// The moment that a snapshot is of, while there is one.
    moment: RwLock<Option<Arc<Moment>>>,
    /// Commits so far, of those that were followed.
    commits: AtomicU64,
    tier: Tier,
}

/// Among the interests: commits are followed. No class of events has this bit.
const FOLLOWED: u32 = 1 << 31;

/// Among the interests: there is a snapshot.
const SNAPSHOT: u32 = 1 << 30;

/// Among the interests: values in boxes are on their way to disk.
const LEAVING: u32 = 1 << 29;
/// Those that are no classes of events.
const OTHERS: u32 = FOLLOWED | SNAPSHOT | LEAVING;

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Store {
    /// An empty store that tells `observer` what it does by itself.
    ///
    /// # Panics
    /// With no database, or more than [`DATABASES_MAX`].
    pub fn new(config: StoreConfig, observer: Box<dyn Observer>) -> Arc<Self> {
        assert!((1..=DATABASES_MAX).contains(&config.databases), "{} databases", config.databases);
        Arc::new(Self {
            hasher: KeyHasher::new(config.cluster, config.seed),
            config,
            databases: (0..config.databases).map(|n| AtomicU16::new(n as u16)).collect(),
            keyspaces: Keyspaces::new(config.databases),
            counters: Sharded::new(),
            gates: Mutex::default(),
            sessions: AtomicU64::new(0),
            log_factor: AtomicU64::new(RECENCY),
            keep_packed: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            families: Families::default(),
            observer,
            interests: AtomicU32::new(0),
            moment: RwLock::default(),
            commits: AtomicU64::new(0),
            tier: Tier::default(),
        })
    }

    /// The disk tier.
    #[inline]
    pub fn tier(&self) -> &Tier {
        &self.tier
    }

    /// How the store was set up.
    pub fn config(&self) -> StoreConfig {
        self.config
    }

    /// A session: what one thread works through. Costs a gate until dropped.
    pub fn session(self: &Arc<Self>) -> Session {
        let gate = Arc::new(Gate::new());
        let number = {
            let mut gates = self.gates.lock();
            gates.push(Arc::clone(&gate));
            self.sessions.fetch_add(1, Ordering::Relaxed)
        };
        Session {
            store: Arc::clone(self),
            gate,
            now: Cell::new(0),
            packed_at: Cell::default(),
            mode: Cell::new(Mode::Single),
            guards: Cell::new(0),
            held: RefCell::default(),
            on_demand: Cell::new(false),
            may_give_up: Cell::default(),
            had_one: Cell::default(),
            expired: Cell::default(),
            recorder: RefCell::default(),
            recorded: Cell::new(false),
            crowded: RefCell::default(),
            reshaped: Cell::default(),
            unpacker: RefCell::default(),
            meeting: Meeting::default(),
            random: Cell::new(mixed(self.config.seed ^ number.rotate_left(32)) | 1),
        }
    }

    /// The families of its strings, and their dictionaries.
    pub fn families(&self) -> &Families {
        &self.families
    }

    /// Has access bits tell how often a key is read, or with `None`, as they do
    /// at first, how lately. A new key then begins with [`NEW_READS`](crate::NEW_READS),
    /// and a read of one with `n` more than that adds one with a chance of 1 in
    /// `n * factor + 1`, up to 3, as Redis's `lfu-log-factor` does (Morris, 1978).
    pub fn count_reads(&self, factor: Option<u32>) {
        self.log_factor.store(factor.map_or(RECENCY, u64::from), Ordering::Relaxed);
    }

    /// Whether values stay packed however often they are read: memory is short.
    pub fn keep_packed(&self, keep: bool) {
        self.keep_packed.store(keep, Ordering::Relaxed);
    }

    /// Has pages neither folded nor unfolded for a while: a session holds its gate for
    /// long, and whoever closes all gates would wait for it.
    pub fn rest(&self, rests: bool) {
        self.resting.store(rests, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn keeps_packed(&self) -> bool {
        self.keep_packed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn log_factor(&self) -> Option<u64> {
        Some(self.log_factor.load(Ordering::Relaxed)).filter(|&factor| factor != RECENCY)
    }

    /// A key's hash and slot.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.hasher.key(bytes)
    }

    /// Has the observer told of events of these classes, and of no others.
    pub fn heed(&self, classes: Class) {
        let change = |interests| Some(interests & OTHERS | classes.0 & !OTHERS);
        let _ = self.interests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// The classes of events that are heeded.
    #[inline]
    pub fn heeded(&self) -> Class {
        Class(self.interests.load(Ordering::Relaxed) & !OTHERS)
    }

    /// Tells the observer of an event, if events of its class are heeded. One that is
    /// no effect, too: a key was missed.
    #[inline]
    pub fn tell_event(&self, db: usize, key: &[u8], event: Event) {
        if self.heeded().any(event.class) {
            self.observer.event(db, key, event);
        }
    }

    /// Whether commits are followed.
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.interests.load(Ordering::Relaxed) & FOLLOWED != 0
    }

    /// Has commits told to nobody any more. Those that are being made may still be.
    pub fn unfollow(&self) {
        self.interests.fetch_and(!FOLLOWED, Ordering::Relaxed);
    }

    /// Whether there is a snapshot, for which what is changed is kept first.
    #[inline]
    pub(crate) fn has_snapshot(&self) -> bool {
        self.interests.load(Ordering::Relaxed) & SNAPSHOT != 0
    }

    /// Whether a change of a key is to be told first, to a snapshot or to the disk tier.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.interests.load(Ordering::Relaxed) & (SNAPSHOT | LEAVING) != 0
    }

    /// Whether values in boxes are on their way to disk.
    #[inline]
    pub(crate) fn is_leaving(&self) -> bool {
        self.interests.load(Ordering::Relaxed) & LEAVING != 0
    }

    /// They are, or no longer.
    pub(crate) fn set_leaving(&self, leaving: bool) {
        match leaving {
            true => self.interests.fetch_or(LEAVING, Ordering::Relaxed),
            false => self.interests.fetch_and(!LEAVING, Ordering::Relaxed),
        };
    }

    /// What the snapshot that there is is of.
    pub(crate) fn moment(&self) -> Option<Arc<Moment>> {
        self.moment.read().clone()
    }

    /// Has what is changed from now on kept for a snapshot, unless there is another. The
    /// gates are closed.
    pub(crate) fn set_snapshot(&self, moment: &Arc<Moment>) -> bool {
        let mut current = self.moment.write();
        let is_free = current.is_none();
        if is_free {
            *current = Some(Arc::clone(moment));
            self.interests.fetch_or(SNAPSHOT, Ordering::Relaxed);
        }
        is_free
    }

    pub(crate) fn end_snapshot(&self) {
        let mut current = self.moment.write();
        self.interests.fetch_and(!SNAPSHOT, Ordering::Relaxed);
        let moment = current.take();
        drop(current);
        drop(moment);
    }

    /// Whether so much is kept for a snapshot that whoever writes had better wait until
    /// its reader has taken it.
    #[inline]
    pub fn is_snapshot_behind(&self) -> bool {
        self.has_snapshot() && self.moment.read().as_ref().is_some_and(|m| m.is_behind())
    }

    /// About what a snapshot takes beside what the store would hold without it: copies, and
    /// names of changed keys.
    pub fn snapshot_bytes(&self) -> usize {
        match self.has_snapshot() {
            true => self.moment.read().as_ref().map_or(0, |moment| moment.extra_bytes()),
            false => 0,
        }
    }

    /// The number of the last commit that was followed.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Effects since the start, followed or not.
    pub fn changes(&self) -> u64 {
        self.sum(Counter::Changes)
    }

    #[inline]
    pub(crate) fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    /// Tells the observer of what is damaged.
    pub(crate) fn noted<T>(&self, done: Result<T, Damaged>) -> Result<T, Damaged> {
        done.inspect_err(|damaged| self.observer.damaged(damaged))
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter, delta: i64) {
        self.counters.add(counter.index(), delta);
    }

    pub(crate) fn sum(&self, counter: Counter) -> u64 {
        self.counters.sum(counter.index()).max(0) as u64
    }

    #[inline]
    pub(crate) fn keyspace_of(&self, db: usize) -> usize {
        self.databases[db].load(Ordering::Relaxed) as usize
    }

    /// Where a database keeps a slot: for [`is_one`](Self::is_one).
    pub fn place(&self, db: usize, slot: usize) -> (usize, usize) {
        (self.keyspace_of(db), slot)
    }

    /// Whether a slot, in the keyspace of that place, is under one lock with the place. O(1).
    pub fn is_one(&self, (keyspace, place): (usize, usize), slot: usize) -> bool {
        let keyspace = &self.keyspaces[keyspace];
        keyspace.home(place) == keyspace.home(slot)
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.databases.len()
    }

    /// Keys in a database, expired but not yet removed ones included. O(1).
    pub fn keys(&self, db: usize) -> u64 {
        self.keyspace(db).count(Keys::All)
    }

    /// Keys in a database that expire. O(1).
    pub fn expiring(&self, db: usize) -> u64 {
        self.keyspace(db).count(Keys::Expiring)
    }

    /// Keys in all databases. O(databases).
    pub fn keys_of_all(&self) -> u64 {
        self.databases_used().map(|db| self.keys(db)).sum()
    }

    /// Those of which a key has ever been looked for or set. O(databases).
    pub fn databases_used(&self) -> impl Iterator<Item = usize> {
        (0..self.databases()).filter(|&db| self.keyspaces.is_used(self.keyspace_of(db)))
    }

    /// What the values of a type take, over all databases. O(1).
    pub fn type_memory(&self, kind: Type) -> TypeMemory {
        TypeMemory {
            allocated: self.sum(Counter::Bytes(kind)),
            raw: self.sum(Counter::Raw(kind)),
            packed_from: self.sum(Counter::PackedFrom(kind)),
            packed: self.sum(Counter::Packed(kind)),
            raw_values: self.sum(Counter::Values(kind, false)),
            packed_values: self.sum(Counter::Values(kind, true)),
        }
    }

    /// Keys removed because their time had come, since the start.
    pub fn expired(&self) -> u64 {
        self.sum(Counter::Expired)
    }

    /// Sealed blocks that await packing.
    pub fn pending_blocks(&self) -> u64 {
        self.sum(Counter::Pending)
    }

    /// The slots of a database.
    #[inline]
    pub(crate) fn keyspace(&self, db: usize) -> &Keyspace {
        &self.keyspaces[self.keyspace_of(db)]
    }
}
