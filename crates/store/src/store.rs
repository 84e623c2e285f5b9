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
use crate::books::weight::Weight;
use crate::cell::table::Mark;
use crate::effect::{Class, Commit, Event, Form, Recorder, Replaced, Told};
use crate::hash::{Key, KeyHasher, SLOTS};
use crate::keyspace::{Keys, Keyspace, Keyspaces, PAGE_SLOTS, Page};
use crate::memory::prefetch;
use crate::pack::families::Families;
use crate::pack::form::Damaged;
use crate::packing::Unpacker;
use crate::sharded::Sharded;
use crate::slot::{Detached, Slot, SlotGuard};
use crate::snapshot::Moment;
use crate::sync::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64, Mutex, MutexGuard, RawRwLock, RwLock,
};
use crate::types::Type;
use parking_lot::lock_api::{RawRwLock as _, RawRwLockTimed as _};
use std::cell::{Cell, RefCell, RefMut};
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Expired keys removed under one hold of a slot's lock.
const EXPIRE_AT_ONCE: usize = 64;

/// Pages of slots folded or unfolded while everybody else waits: 200 microseconds
/// at most.
const RESHAPED_AT_ONCE: usize = 4;
/// Pages of slots looked at by one call of [`Batch::tidy`].
const TIDIED_AT_ONCE: usize = 16;

/// In the place of a factor: access bits tell how lately a key was used.
const RECENCY: u64 = u64::MAX;

/// Logical databases, unless a store is told otherwise.
pub const DATABASES: usize = 16;
/// The most that a store may have. One in use costs 6 KiB before it has a key; what looks
/// at all of them, as eviction does, costs a nanosecond for each that is not.
pub const DATABASES_MAX: usize = 10_000;

/// Who is told of what becomes of a store, as it happens: watches, waiting clients,
/// keyspace events, and those who follow commits.
///
/// Called under the locks of what has changed: to be quick, and to lock no slot but
/// where it says so.
#[allow(unused_variables)]
pub trait Observer: Send + Sync {
    /// A key changed in a slot that is observed ([`SlotGuard::observe`]); `told` is
    /// not [`Told::Nobody`]. `came` if it is new, or has been
    /// given the value of another key.
    fn changed(&self, slot: &SlotGuard<'_>, key: &[u8], told: Told, came: bool) {}

    /// A key changed, and changes are heeded ([`Class::CHANGE`]). For what `WATCH` does
    /// not take for a change it is not called.
    fn modified(&self, key: &[u8]) {}

    /// An event happened to a key, of a class that is heeded ([`Store::heed`]).
    fn event(&self, db: usize, key: &[u8], event: Event) {}

    /// These databases are about to be emptied or swapped. The store is the caller's
    /// alone; slots can be locked.
    fn replacing(&self, store: &Batch<'_>, dbs: &[usize]) {}

    /// They were: none of their slots is observed any more. The store is still the
    /// caller's alone; slots can be locked.
    fn replaced(&self, store: &Batch<'_>, dbs: &[usize], how: Replaced) {}

    /// A commit took effect, and commits are followed ([`Batch::follow`]). Commits
    /// of several sessions may arrive out of order; their numbers have no gap.
    fn committed(&self, commit: Commit<'_>) {}

    /// Frees the value of such a key, here or elsewhere. Called under the slot's
    /// lock.
    fn free_expired(&self, value: Detached) {
        drop(value);
    }

    /// A packed form does not unpack to what it was made of, and why. A slot's lock
    /// may be held.
    fn damaged(&self, why: &dyn Display) {}
}

/// An observer that listens to nothing.
#[derive(Debug)]
pub struct Unobserved;

impl Observer for Unobserved {}

/// What a lookup does with a key whose time has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expired {
    /// It removes the key, which is an effect, and finds none.
    #[default]
    Removed,
    /// It finds none and leaves the key where it is: it is not this session's to
    /// remove. A replica's clients, and everybody's while writes are paused.
    Hidden,
    /// It finds the key: whether it is there is told by the commits that are
    /// replayed, and not by the clock.
    Seen,
}

/// How a store is set up.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// Whether slots are Redis Cluster's (CRC16 of the hash tag).
    pub cluster: bool,
    /// How many databases there are: 1 to [`DATABASES_MAX`].
    pub databases: usize,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { cluster: false, databases: DATABASES }
    }
}

/// What the store counts. Exact at any moment nobody is writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    Bytes(Type),
    Raw(Type),
    PackedFrom(Type),
    Packed(Type),
    /// How many there are, and whether raw or packed.
    Values(Type, bool),
    Expired,
    Pending,
    /// Effects.
    Changes,
    /// Values on disk, their bytes there, and what they would be in memory, unpacked.
    Away,
    AwayBytes,
    AwayRaw,
}

const TYPES: usize = Type::ALL.len();
const COUNTERS: usize = 6 * TYPES + 6;

impl Counter {
    #[inline]
    fn index(self) -> usize {
        match self {
            Self::Bytes(kind) => kind as usize,
            Self::Raw(kind) => TYPES + kind as usize,
            Self::PackedFrom(kind) => 2 * TYPES + kind as usize,
            Self::Packed(kind) => 3 * TYPES + kind as usize,
            Self::Values(kind, is_packed) => (4 + is_packed as usize) * TYPES + kind as usize,
            Self::Away => COUNTERS - 6,
            Self::AwayBytes => COUNTERS - 5,
            Self::AwayRaw => COUNTERS - 4,
            Self::Changes => COUNTERS - 3,
            Self::Expired => COUNTERS - 2,
            Self::Pending => COUNTERS - 1,
        }
    }
}

/// What the values of one type take, in bytes, and how many there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct TypeMemory {
    /// Allocated, entries with their keys included.
    pub allocated: u64,
    /// Raw bytes of all values that can be packed, packed or not.
    pub raw: u64,
    /// Raw bytes of what is packed now.
    pub packed_from: u64,
    /// What those are packed into.
    pub packed: u64,
    /// How many values are raw ...
    pub raw_values: u64,
    /// ... and how many are packed, streams of which a block is among them.
    pub packed_values: u64,
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
/// Those that are no classes of events.
const OTHERS: u32 = FOLLOWED | SNAPSHOT;

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
            hasher: KeyHasher::new(config.cluster),
            config,
            databases: (0..config.databases).map(|n| AtomicU16::new(n as u16)).collect(),
            keyspaces: Keyspaces::new(config.databases),
            counters: Sharded::new(),
            gates: Mutex::default(),
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
        self.gates.lock().push(Arc::clone(&gate));
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
            random: Cell::new(RandomState::new().build_hasher().finish() | 1),
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
const LOOKS_AFTER: Duration = Duration::from_millis(2);

/// What one session holds while it executes a batch.
struct Gate(RawRwLock);

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    fn new() -> Self {
        Self(RawRwLock::INIT)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Each slot is locked when it is needed.
    Single,
    /// The slots in `held` are locked.
    Held,
    /// All gates are closed.
    Exclusive,
}

/// What one thread works on a store through.
pub struct Session {
    store: Arc<Store>,
    gate: Arc<Gate>,
    now: Cell<u64>,
    /// Where something to pack was found last: database and slot.
    packed_at: Cell<(usize, usize)>,
    mode: Cell<Mode>,
    /// Slot guards in use.
    guards: Cell<usize>,
    /// The slots locked in mode `Held`, ascending: keyspace and home.
    held: RefCell<Vec<(usize, usize)>>,
    /// In mode `Held`: slots that are not held are locked when they are needed.
    on_demand: Cell<bool>,
    /// Whether a slot that somebody has for long may be given up, and whether one was had
    /// since that was said: see [`Batch::may_give_up`].
    may_give_up: Cell<GivesUp>,
    had_one: Cell<bool>,
    /// What a lookup does with a key whose time has come.
    expired: Cell<Expired>,
    /// What was changed under the locks that are held, if commits are followed, and
    /// whether there is anything.
    recorder: RefCell<Recorder>,
    recorded: Cell<bool>,
    /// Pages that may have to be unfolded: keyspace and number.
    crowded: RefCell<Vec<(usize, usize)>>,
    /// The page that was last looked at by [`Batch::tidy`], of all keyspaces' pages.
    reshaped: Cell<usize>,
    /// What it unpacks strings with.
    unpacker: RefCell<Unpacker>,
    /// What it does when it meets a value that is on disk.
    pub(crate) meeting: Meeting,
    /// The state of its random numbers; never 0.
    random: Cell<u64>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("mode", &self.mode.get()).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.store.gates.lock().retain(|gate| !Arc::ptr_eq(gate, &self.gate));
    }
}

impl Session {
    /// Begins a batch of work that counts as done at `now`, Unix milliseconds.
    ///
    /// A batch is to be short, and must not be held across an await or a wait
    /// for anything but the store: it keeps whole-database operations waiting.
    pub fn enter(&mut self, now: u64) -> Batch<'_> {
        self.gate.0.lock_shared();
        self.now.set(now);
        self.expired.set(Expired::Removed);
        let batch = Batch { session: self };
        batch.settle();
        batch
    }

    /// Waits until every batch of another session that is under way has ended; new ones
    /// may have begun by then.
    pub fn wait_for_others(&mut self) {
        let gates = self.store.gates.lock();
        for gate in gates.iter().filter(|gate| !Arc::ptr_eq(gate, &self.gate)) {
            gate.0.lock_exclusive();
            // SAFETY: locked just now.
            #[allow(unsafe_code)]
            unsafe {
                gate.0.unlock_exclusive();
            }
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// What a lookup does with a key whose time has come.
    #[inline]
    pub fn expired(&self) -> Expired {
        self.expired.get()
    }

    /// Gathers an op on a key of database `db` for the commit that is being made.
    #[cold]
    pub(crate) fn record(&self, db: usize, form: impl FnOnce(&mut Form<'_>)) {
        self.recorder.borrow_mut().add(db, form);
        self.recorded.set(true);
    }

    /// Ends the commit that is being made: the locks under which it was are about
    /// to be released.
    #[inline]
    pub(crate) fn commit(&self) {
        if self.recorded.get() {
            self.tell_commit();
        }
    }

    #[cold]
    fn tell_commit(&self) {
        self.recorded.set(false);
        let mut recorder = self.recorder.take();
        let number = self.store.commits.fetch_add(1, Ordering::Relaxed) + 1;
        self.store.observer.committed(Commit::new(number, self.now(), &recorder));
        recorder.clear();
        self.recorder.replace(recorder);
    }

    /// What it unpacks strings with; to be let go of at once.
    pub(crate) fn unpacker(&self) -> RefMut<'_, Unpacker> {
        self.unpacker.borrow_mut()
    }

    /// A random number below `n`, fit for sampling and nothing else: xorshift64*
    /// (Vigna, 2016). 0 when `n` is.
    #[inline]
    pub(crate) fn below(&self, n: u64) -> u64 {
        let mut x = self.random.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        let x = x.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(x) * u128::from(n)) >> 64) as u64
    }

    /// A slot has come to a number of keys at which its page, if it is folded, is to
    /// be unfolded.
    #[cold]
    pub(crate) fn crowded(&self, keyspace: usize, slot: usize) {
        if self.store.keyspaces[keyspace].is_folded(slot) {
            self.crowded.borrow_mut().push((keyspace, slot / PAGE_SLOTS));
        }
    }

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
    fn gives_up(&self) -> bool {
        let may = match self.may_give_up.get() {
            GivesUp::Never => false,
            GivesUp::AtFirst => !self.had_one.get(),
            GivesUp::Ever => true,
        };
        may && self.store.resting.load(Ordering::SeqCst)
    }

    /// Closes all gates; its own is not held. One that somebody has for long is waited for
    /// with no other closed.
    fn close_gates(&self) -> MutexGuard<'_, Vec<Arc<Gate>>> {
        let give_up = || {
            if self.gives_up() {
                self.gate.0.lock_shared();
                std::panic::resume_unwind(Box::new(GaveUp));
            }
        };
        let gates = loop {
            match self.store.gates.try_lock_for(LOOKS_AFTER) {
                Some(gates) => break gates,
                None => give_up(),
            }
        };
        let mut first = 0;
        'again: loop {
            while !gates[first].0.try_lock_exclusive_for(LOOKS_AFTER) {
                give_up();
            }
            for n in (0..gates.len()).filter(|&n| n != first) {
                if gates[n].0.try_lock_exclusive_for(LOOKS_AFTER) {
                    continue;
                }
                for closed in (0..n).chain((first > n).then_some(first)) {
                    // SAFETY: closed above: all before `n`, and the first.
                    #[allow(unsafe_code)]
                    unsafe {
                        gates[closed].0.unlock_exclusive();
                    }
                }
                first = n;
                continue 'again;
            }
            return gates;
        }
    }

    #[inline]
    pub(crate) fn guard_made(&self) {
        self.had_one.set(true);
        self.guards.set(self.guards.get() + 1);
    }

    #[inline]
    pub(crate) fn guard_dropped(&self) {
        self.guards.set(self.guards.get() - 1);
    }
}

/// A batch of work on a store. All access to keys begins here.
#[derive(Debug)]
pub struct Batch<'s> {
    session: &'s Session,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // SAFETY: `enter` locked it, and `exclusive` gives it back locked.
        #[allow(unsafe_code)]
        unsafe {
            self.session.gate.0.unlock_shared();
        }
    }
}

impl<'s> Batch<'s> {
    /// The store.
    pub fn store(&self) -> &'s Arc<Store> {
        &self.session.store
    }

    #[inline]
    pub(crate) fn session(&self) -> &'s Session {
        self.session
    }

    /// A key's hash and slot.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.session.store.key(bytes)
    }

    /// The time that this batch counts as, in Unix milliseconds.
    pub fn now(&self) -> u64 {
        self.session.now.get()
    }

    /// Sets the time that what follows counts as.
    pub fn set_now(&self, now: u64) {
        self.session.now.set(now);
    }

    /// Brings what lookups of these keys will read into the processor's cache:
    /// a command alone waits for three reads of memory, one after the other
    /// (slot, cells, entry), and here those of all keys run at once. A hint,
    /// for before the commands of a batch are executed; nothing within a scope.
    pub fn warm<'k>(&self, db: usize, keys: impl Iterator<Item = &'k Key<'k>> + Clone) {
        if self.session.mode.get() != Mode::Single {
            return;
        }
        let keyspace = self.store().keyspace(db);
        let slots = || {
            // A pipeline into one stream names one key again and again.
            let mut last = None;
            let keys = keys.clone().filter(move |key| last.replace(key.hash()) != Some(key.hash()));
            keys.filter_map(|key| Some((keyspace.get(key.slot())?, key)))
        };
        slots().for_each(|(slot, _)| prefetch(std::ptr::from_ref(slot)));
        slots().for_each(|(slot, key)| slot.try_read(|cells| cells.prefetch_cells(key)));
        slots().for_each(|(slot, key)| slot.try_read(|cells| cells.prefetch_entry(key)));
    }

    /// The locked slot of a key.
    ///
    /// # Panics
    /// Under [`hold`](Self::hold) when the slot is not one of those held, and
    /// under any scope when another guard of the same slot is in use.
    #[inline]
    pub fn lock(&self, db: usize, key: &Key<'_>) -> SlotGuard<'_> {
        self.lock_slot(db, key.slot())
    }

    /// The locked slot of that number. Panics as [`lock`](Self::lock) does.
    #[inline]
    pub fn lock_slot(&self, db: usize, slot: usize) -> SlotGuard<'_> {
        self.lock_in(self.store().keyspace_of(db), db, slot)
    }

    /// The locked slot of that number of a keyspace, which goes by the number `db`.
    #[inline]
    pub(crate) fn lock_in(&self, keyspace: usize, db: usize, slot: usize) -> SlotGuard<'_> {
        let keyspaces = &self.store().keyspaces;
        let cells = keyspaces.slot(keyspace, slot);
        match self.session.mode.get() {
            Mode::Single => SlotGuard::lock(self.session, cells, db, keyspace),
            Mode::Exclusive => SlotGuard::borrow(self.session, cells, db, keyspace),
            Mode::Held => {
                let place = (keyspace, keyspaces[keyspace].home(slot));
                let mut held = self.session.held.borrow_mut();
                if let Err(at) = held.binary_search(&place) {
                    assert!(self.session.on_demand.get(), "slot {slot} is not among those held");
                    cells.lock();
                    held.insert(at, place);
                }
                SlotGuard::borrow(self.session, cells, db, keyspace)
            }
        }
    }

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

    /// Adds the numbers of the slots that a scope holds. One may stand for others of its
    /// page.
    pub fn held_slots(&self, into: &mut Vec<usize>) {
        into.extend(self.session.held.borrow().iter().map(|(_, slot)| slot));
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

    /// Whether the whole store is this batch's alone.
    pub fn is_exclusive(&self) -> bool {
        self.session.mode.get() == Mode::Exclusive
    }

    /// Keeps everybody else out of the whole store until the scope is dropped.
    /// Waits for the batches of other sessions to end. Within another such
    /// scope it adds nothing.
    ///
    /// # Panics
    /// Under [`hold`](Self::hold), or with a slot guard in use.
    pub fn exclusive(&self) -> Exclusive<'_> {
        if self.session.mode.get() == Mode::Exclusive {
            return Exclusive { session: None };
        }
        assert_eq!(self.session.mode.get(), Mode::Single, "closing the gates with slots held");
        assert_eq!(self.session.guards.get(), 0, "closing the gates with a guard in use");
        // SAFETY: this batch holds its own gate; it holds it again before the
        // scope that is returned here has ended.
        #[allow(unsafe_code)]
        unsafe {
            self.session.gate.0.unlock_shared();
        }
        let gates = self.session.close_gates();
        self.session.mode.set(Mode::Exclusive);
        Exclusive { session: Some((self.session, gates)) }
    }

    /// Unfolds the pages of slots that this session's insertions have crowded, if it
    /// may close the gates here: at the beginning of a batch, or between two commands.
    /// Costs a branch when there are none, and a bounded time else.
    #[inline]
    pub fn settle(&self) {
        if !self.session.crowded.borrow().is_empty() {
            self.unfold();
        }
    }

    #[cold]
    fn unfold(&self) {
        let rests = self.store().resting.load(Ordering::SeqCst);
        if rests || self.session.mode.get() == Mode::Held || self.session.guards.get() > 0 {
            return;
        }
        let _alone = self.exclusive();
        let mut crowded = self.session.crowded.borrow_mut();
        let left = crowded.len().saturating_sub(RESHAPED_AT_ONCE);
        for (keyspace, page) in crowded.drain(left..) {
            self.reshape(keyspace, page);
        }
    }

    /// Looks at some pages of slots, the next of all whenever it is called, and folds
    /// or frees those of which few or no keys are left. To be called now and then; 1,024
    /// loads at most and no lock while all are in shape.
    pub fn tidy(&self) {
        if self.store().resting.load(Ordering::SeqCst) {
            return;
        }
        let pages = SLOTS / PAGE_SLOTS;
        let keyspaces = &self.session.store.keyspaces;
        let mut looks = TIDIED_AT_ONCE;
        let all = keyspaces.len() * pages;
        let mut looked = 0;
        while looked < all {
            let at = (self.session.reshaped.get() + 1) % all;
            let (keyspace, page) = (at / pages, at % pages);
            if !keyspaces.is_used(keyspace) {
                self.session.reshaped.set(at - page + pages - 1);
                looked += pages;
                continue;
            }
            self.session.reshaped.set(at);
            looked += 1;
            if keyspaces[keyspace].get(page * PAGE_SLOTS).is_none() {
                continue;
            }
            if keyspaces[keyspace].is_misshapen(page) {
                let _alone = self.exclusive();
                self.reshape(keyspace, page);
            }
            looks -= 1;
            if looks == 0 {
                return;
            }
        }
    }

    /// To be called with the gates closed.
    fn reshape(&self, keyspace: usize, page: usize) {
        assert_eq!(self.session.mode.get(), Mode::Exclusive);
        assert_eq!(self.session.guards.get(), 0, "folding slots with a guard in use");
        let store = &self.session.store;
        // SAFETY: every gate is closed and this session has no guard in use.
        #[allow(unsafe_code)]
        unsafe {
            store.keyspaces[keyspace].reshape(page, &store.hasher);
        }
    }

    /// Does something that takes a while and needs no key, and lets whole-database
    /// operations of others in meanwhile. Within a scope it only does it.
    ///
    /// # Panics
    /// With a slot guard in use, which would outlive the batch it belongs to.
    pub fn outside<R>(&self, work: impl FnOnce() -> R) -> R {
        /// Enters again, also when `work` panics: the batch will be left.
        struct Enter<'g>(&'g Gate);
        impl Drop for Enter<'_> {
            fn drop(&mut self) {
                self.0.0.lock_shared();
            }
        }
        if self.session.mode.get() != Mode::Single {
            return work();
        }
        assert_eq!(self.session.guards.get(), 0, "leaving the gate with a guard in use");
        // SAFETY: this batch holds its gate, and holds it again on return.
        #[allow(unsafe_code)]
        unsafe {
            self.session.gate.0.unlock_shared();
        }
        let _enter = Enter(&self.session.gate);
        work()
    }

    /// Has two databases change their numbers. The store is the caller's alone.
    pub(crate) fn exchange(&self, a: usize, b: usize) {
        debug_assert_eq!(self.session.mode.get(), Mode::Exclusive);
        let databases = &self.store().databases;
        let was = databases[a].load(Ordering::Relaxed);
        databases[a].store(databases[b].load(Ordering::Relaxed), Ordering::Relaxed);
        databases[b].store(was, Ordering::Relaxed);
    }

    /// What a lookup does with a key whose time has come.
    pub fn session_expired(&self) -> Expired {
        self.session.expired()
    }

    /// What a lookup does from now on with a key whose time has come.
    pub fn expired_keys(&self, are: Expired) {
        self.session.expired.set(are);
    }

    /// Has commits told to the observer from now on. Waits for the batches of other
    /// sessions to end, so that every commit is told whole.
    pub fn follow(&self) {
        let _alone = self.exclusive();
        self.store().interests.fetch_or(FOLLOWED, Ordering::Relaxed);
    }

    /// Takes everything out of a database. The store is the caller's alone. O(slots).
    pub(crate) fn take_all(&self, db: usize) -> Flushed {
        assert_eq!(self.session.mode.get(), Mode::Exclusive);
        assert_eq!(self.session.guards.get(), 0, "flushing with a guard in use");
        let store = &self.session.store;
        let keyspace = store.keyspace_of(db);
        for counter in [Keys::All, Keys::Expiring] {
            let keys = store.keyspaces[keyspace].count(counter) as i64;
            store.keyspaces.count(keyspace, counter, -keys);
        }
        // SAFETY: every gate is closed and this session has no guard in use.
        #[allow(unsafe_code)]
        let pages = unsafe { store.keyspaces[keyspace].take() };
        let flushed = Flushed { store: Arc::clone(store), pages };
        match store.moment() {
            // A snapshot that has not read it yet frees it when it has.
            Some(moment) => moment.flushed(keyspace, flushed),
            None => flushed,
        }
    }

    /// Empties a database and tells nobody who follows commits: for what is loaded again,
    /// so that it is in the end what it was. What was in it is given to be freed.
    pub fn unload(&self, db: usize) -> Flushed {
        let _alone = self.exclusive();
        self.store().observer().replacing(self, &[db]);
        let flushed = self.take_all(db);
        self.store().observer().replaced(self, &[db], Replaced::Flushed);
        flushed
    }

    /// Visits the live keys of a database from `cursor` (0 to begin) on, about
    /// `count` keys; the cursor to go on with, 0 at the end. A key that is
    /// there from the first call to the last is visited at least once.
    pub fn scan(
        &self,
        db: usize,
        cursor: u64,
        count: usize,
        visit: impl FnMut(&[u8], Type),
    ) -> u64 {
        self.walk(db, cursor, count, |_, _| true, visit, false)
    }

    /// As [`scan`](Self::scan), visiting only wanted keys. A wanted key whose
    /// time has come is removed, as any lookup of it would have done.
    pub fn scan_wanted(
        &self,
        db: usize,
        cursor: u64,
        count: usize,
        wanted: impl Fn(&[u8], Type) -> bool,
        visit: impl FnMut(&[u8], Type),
    ) -> u64 {
        self.walk(db, cursor, count, wanted, visit, true)
    }

    fn walk(
        &self,
        db: usize,
        cursor: u64,
        count: usize,
        wanted: impl Fn(&[u8], Type) -> bool,
        mut visit: impl FnMut(&[u8], Type),
        expire: bool,
    ) -> u64 {
        let Some((mut first, mut mark, folded)) = Mark::from_cursor(cursor) else { return 0 };
        let keyspace = self.store().keyspace(db);
        if folded != keyspace.is_folded(first) {
            // Its page has been folded or unfolded since: all of it again.
            (first, mark) = (first - first % PAGE_SLOTS, Mark::default());
        }
        let cursor = |slot, mark: Mark| mark.cursor(slot, keyspace.is_folded(slot));
        let mut visited = 0;
        let mut expired: Vec<Vec<u8>> = Vec::new();
        for (slot, hint) in keyspace.made(first) {
            if slot > first {
                mark = Mark::default();
            }
            while hint.keys() > 0 {
                let mut guard = self.lock_slot(db, slot);
                let next = guard.walk(mark, count - visited, &mut |key, kind, live| {
                    visited += 1;
                    match wanted(key, kind) {
                        true if live => visit(key, kind),
                        true if expire => expired.push(key.to_vec()),
                        _ => {}
                    }
                });
                for key in expired.drain(..) {
                    guard.find_entry(&self.key(&key));
                }
                match next {
                    Some(next) => mark = next,
                    None => break,
                }
                if visited >= count {
                    return cursor(slot, mark);
                }
            }
            let next = keyspace.covered(slot).end;
            if visited >= count && next < SLOTS {
                return cursor(next, Mark::default());
            }
        }
        0
    }

    /// A random key of a database, each about as likely; `None` when it has
    /// no live key. A few reads of memory; O(slots) where most slots have none.
    pub fn random_key(&self, db: usize) -> Option<Vec<u8>> {
        // Expired keys may be drawn: a hundred times at most, as Redis does,
        // then the first live one will do.
        for _ in 0..100 {
            let keyspace = self.store().keyspace(db);
            let slot = keyspace.draw(&|n| self.session.below(n), Slot::keys)?;
            let guard = self.lock_slot(db, slot);
            let n = self.session.below(guard.keys() as u64);
            if let Some(key) = guard.nth_key(n as usize) {
                return Some(key.to_vec());
            }
        }
        let mut first = None;
        self.scan(db, 0, usize::MAX, |key, _| {
            first.get_or_insert_with(|| key.to_vec());
        });
        first
    }

    /// Removes keys whose time has come from every `of`-th page of slots, beginning
    /// with page `first`, in all databases, until `enough`; whether some may be left. A
    /// slot in which nothing is due costs one load.
    pub fn expire_due(&self, first: usize, of: usize, enough: &mut dyn FnMut() -> bool) -> bool {
        for db in self.store().databases_used() {
            let due = |hint: &Slot| hint.next_expiry() <= self.now();
            for slot in self.store().keyspace(db).share(first, of, due) {
                self.lock_slot(db, slot).expire_due(EXPIRE_AT_ONCE);
                if enough() {
                    return true;
                }
            }
        }
        false
    }

    /// A value with pieces to pack in every `of`-th page of slots,
    /// beginning with page `first`: its database and key. O(1) while there is more
    /// where the last was found, else O(slots), one load each.
    pub fn next_unpacked(&self, first: usize, of: usize) -> Option<(usize, Vec<u8>)> {
        // A busy stream seals block after block: most often it is the same slot.
        let (db, slot) = self.session.packed_at.get();
        let again = self.store().keyspace(db).get(slot).is_some_and(Slot::unpacked);
        if let Some(found) = again.then(|| self.unpacked_in(db, slot)).flatten() {
            return Some(found);
        }
        self.store().databases_used().find_map(|db| {
            let mut slots = self.store().keyspace(db).share(first, of, Slot::unpacked);
            slots.find_map(|slot| self.unpacked_in(db, slot))
        })
    }

    fn unpacked_in(&self, db: usize, slot: usize) -> Option<(usize, Vec<u8>)> {
        let mut guard = self.lock_slot(db, slot);
        let found = guard.unpacked()?;
        self.session.packed_at.set((db, slot));
        Some((db, guard.key(found).to_vec()))
    }

    /// Mean remaining milliseconds of the keys of a database that expire,
    /// estimated from a few slots. 0 when none does.
    pub fn average_ttl(&self, db: usize) -> u64 {
        let slots = self.store().keyspace(db).made(0);
        let expiring = slots.filter(|(_, slot)| slot.next_expiry() != u64::MAX);
        let sampled = expiring.take(16).map(|(n, _)| self.lock_slot(db, n).ttl_sum());
        let (keys, sum) = sampled.fold((0, 0), |(n, sum), (k, s)| (n + k, sum + s));
        sum.checked_div(keys).unwrap_or(0)
    }

    /// Keys in a slot of a database. O(1), or O(keys) of a few hundred at most where
    /// its page is folded.
    pub fn keys_in_slot(&self, db: usize, slot: usize) -> usize {
        let keyspace = self.store().keyspace(db);
        match keyspace.get(slot).map_or(0, Slot::keys) {
            0 => 0,
            _ if keyspace.is_folded(slot) => self.lock_slot(db, slot).keys_of(slot),
            keys => keys,
        }
    }

    /// How many keys each slot of a database has that has been made; those of a folded
    /// page count as one. O(slots).
    pub fn slot_sizes(&self, db: usize) -> impl Iterator<Item = usize> {
        self.store().keyspace(db).made(0).map(|(_, slot)| slot.keys())
    }

    /// Bytes allocated for a database's slots and tables, entries not counted.
    /// O(slots).
    pub fn table_bytes(&self, db: usize) -> usize {
        let keyspace = self.store().keyspace(db);
        let used = keyspace.made(0).filter(|(_, slot)| slot.keys() > 0);
        let tables: usize = used.map(|(slot, _)| self.lock_slot(db, slot).table_bytes()).sum();
        keyspace.allocated() + tables
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
    session: Option<&'b Session>,
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

/// A scope with the store to itself. See [`Batch::exclusive`].
#[derive(Debug)]
#[must_use]
pub struct Exclusive<'b> {
    session: Option<(&'b Session, MutexGuard<'b, Vec<Arc<Gate>>>)>,
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        let Some((session, gates)) = self.session.take() else { return };
        session.commit();
        session.mode.set(Mode::Single);
        for gate in gates.iter() {
            // SAFETY: closed by `exclusive`, in this very scope.
            #[allow(unsafe_code)]
            unsafe {
                gate.0.unlock_exclusive();
            }
        }
        drop(gates);
        session.gate.0.lock_shared();
    }
}

/// What a database held before it was flushed. Its memory is freed, and no
/// longer counted, when this is dropped: O(keys).
#[derive(Debug)]
pub struct Flushed {
    store: Arc<Store>,
    pages: Vec<Page>,
}

impl Flushed {
    pub(crate) fn nothing(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store), pages: Vec::new() }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Takes one of its slots out, whose entries stay counted.
    pub(crate) fn pop_slot(&mut self) -> Option<Slot> {
        let mut slots = self.pages.pop()?.into_vec();
        let slot = slots.pop();
        if !slots.is_empty() {
            self.pages.push(slots.into_boxed_slice());
        }
        slot
    }
}

impl Drop for Flushed {
    fn drop(&mut self) {
        for slot in self.pages.drain(..).flatten() {
            let cells = slot.into_cells();
            cells.iter().for_each(|cell| Weight::of(cell).count_gone(&self.store));
        }
    }
}

impl Mark {
    /// This place in this slot as a cursor: whether the slot's page is folded, 14
    /// bits of slot, 26 of branch, 12 of tag. Never 0 but where everything begins.
    fn cursor(self, slot: usize, folded: bool) -> u64 {
        let slot = u64::from(folded) << 52 | (slot as u64) << 38;
        slot | u64::from(self.branch) << 12 | u64::from(self.tag)
    }

    /// The slot and place that a cursor stands for, unless it is none of ours.
    fn from_cursor(cursor: u64) -> Option<(usize, Self, bool)> {
        let slot = (cursor >> 38) as usize % SLOTS;
        let branch = (cursor >> 12) as u32 & ((1 << 26) - 1);
        let mark = Self { branch, tag: cursor as u16 & 0xfff };
        (cursor >> 53 == 0).then_some((slot, mark, cursor >> 52 == 1))
    }
}
