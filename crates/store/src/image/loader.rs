//! Loads a file of Snug's format into a store that nobody follows, by several threads.
//!
//! ```text
//!  file ──> blocks, one by one, their sums checked ──┬──> a thread: values made and loaded
//!           dictionaries and families taken in       └──> a thread
//! ```
//!
//! A block of keys needs no other, but for a value that goes on: its blocks go to the
//! thread that has the first, one by one. So what is read ahead is bounded: some blocks
//! for each thread, whatever the file says. Values are made with the store untouched, and
//! some at once are given to it: others may use the store meanwhile.

use super::pen::{Source, wrong};
use super::reader::{Blocks, Brought, Entries, ImageError, Trust, database, find};
use super::wire;
use crate::making::Limits;
use crate::pack::dictionaries::HeldDictionary;
use crate::slot::Detached;
use crate::store::{Session, Store};
use parking_lot::Mutex;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// So many values are given to the store at once, or so many bytes of them.
const KEYS_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: usize = 256 * 1024;
/// Blocks that wait for each thread, and of one value.
const BLOCKS_AHEAD: usize = 2;

/// How a file is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    /// Whose it is.
    pub trust: Trust,
    /// Up to what size collections count as compact.
    pub limits: Limits,
    /// How many databases there may be.
    pub databases: usize,
    /// The time. Keys that have expired by then are left out, unless it is 0.
    pub now: u64,
    /// How many threads make values.
    pub threads: usize,
}

/// What was loaded; also told meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Keys that were given to the store.
    pub keys: u64,
    /// Keys that were left out because they had expired.
    pub expired: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Libraries of functions.
    pub functions: Vec<Vec<u8>>,
}

/// Why a file was not loaded. What came before stays in the store.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The file is damaged, or not for this store.
    #[error(transparent)]
    Damaged(#[from] ImageError),
    /// A key is there twice.
    #[error("key '{}' of database {db} is there twice", key.escape_ascii())]
    Twice {
        /// In which database.
        db: usize,
        /// Which.
        key: Vec<u8>,
    },
    /// Whoever watches has stopped it.
    #[error("loading was stopped")]
    Stopped,
}

/// A block on its way to a thread: where it begins, its body, and whether its last value
/// goes on.
struct Body {
    began: u64,
    bytes: Vec<u8>,
    goes_on: bool,
}

/// A block of keys, and what follows it of its last value.
struct Group {
    first: Body,
    more: Option<Receiver<Body>>,
}

/// What the threads share.
struct Shared<'s> {
    store: &'s Arc<Store>,
    loading: &'s Loading,
    brought: Arc<Brought>,
    is_own_seed: bool,
    groups: Mutex<Receiver<Group>>,
    keys: AtomicU64,
    /// All keys, those too that had expired.
    met: AtomicU64,
    expired: AtomicU64,
    failed: AtomicBool,
    refused: Mutex<Option<Refused>>,
}

/// Loads all that a file has, up to its end. `watch` is told what was loaded so far, at
/// each block, and says whether to go on.
pub fn load<R: Read>(
    from: R,
    store: &Arc<Store>,
    loading: &Loading,
    watch: impl FnMut(&Loaded) -> bool,
) -> Result<Loaded, Refused> {
    let mut blocks = Blocks::new(from, store);
    let begun = blocks.begin();
    let is_own_seed = begun.map_err(|what| ImageError { at: blocks.began, what })?;
    let threads = loading.threads.max(1);
    let (sender, receiver) = sync_channel(threads * BLOCKS_AHEAD);
    let shared = Shared {
        store,
        loading,
        brought: Arc::clone(&blocks.dictionaries),
        is_own_seed,
        groups: Mutex::new(receiver),
        keys: AtomicU64::new(0),
        met: AtomicU64::new(0),
        expired: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        refused: Mutex::default(),
    };
    let read = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| shared.work());
        }
        // The threads end when there is nothing more to come.
        shared.read(&mut blocks, sender, watch)
    });
    let now = shared.loaded(blocks.offset);
    // What a thread found stands before whatever was read later.
    if let Some(refused) = shared.refused.into_inner() {
        return Err(refused);
    }
    let (functions, told) = read?;
    if told != shared.met.into_inner() {
        let what = wrong("there are not as many keys as were written");
        return Err(ImageError { at: blocks.began, what }.into());
    }
    Ok(Loaded { functions, ..now })
}

impl Shared<'_> {
    fn loaded(&self, bytes: u64) -> Loaded {
        let (keys, expired) = (self.keys.load(Relaxed), self.expired.load(Relaxed));
        Loaded { keys, expired, bytes, functions: Vec::new() }
    }

    /// Reads blocks and gives those of keys to the threads; libraries of functions, and how
    /// many keys the file says it has.
    fn read<R: Read>(
        &self,
        blocks: &mut Blocks<R>,
        threads: SyncSender<Group>,
        mut watch: impl FnMut(&Loaded) -> bool,
    ) -> Result<(Vec<Vec<u8>>, u64), Refused> {
        let mut functions = Vec::new();
        let mut going_on: Option<SyncSender<Body>> = None;
        loop {
            // A thread has told why.
            if self.failed.load(Relaxed) || !watch(&self.loaded(blocks.offset)) {
                return Err(Refused::Stopped);
            }
            let taken = self.take(blocks, &threads, &mut going_on, &mut functions);
            if let Some(keys) = taken.map_err(|what| ImageError { at: blocks.began, what })? {
                return Ok((functions, keys));
            }
        }
    }

    /// Reads one block; how many keys there are, if it is the last.
    fn take<R: Read>(
        &self,
        blocks: &mut Blocks<R>,
        threads: &SyncSender<Group>,
        going_on: &mut Option<SyncSender<Body>>,
        functions: &mut Vec<Vec<u8>>,
    ) -> io::Result<Option<u64>> {
        blocks.next()?;
        let is_more = blocks.kind == wire::block::MORE;
        if is_more != going_on.is_some() && blocks.kind != wire::block::DICTIONARY {
            return Err(wrong(if is_more {
                "a value goes on that is whole"
            } else {
                "a value is cut short"
            }));
        }
        match blocks.kind {
            wire::block::KEYS => {
                let first = Body::of(blocks);
                let more = first.goes_on.then(|| {
                    let (sender, receiver) = sync_channel(BLOCKS_AHEAD);
                    *going_on = Some(sender);
                    receiver
                });
                // They are there until there is nothing more to come.
                let _ = threads.send(Group { first, more });
            }
            wire::block::MORE => {
                let body = Body::of(blocks);
                let ends = !body.goes_on;
                if let Some(thread) = going_on {
                    // If it takes no more, it has told why.
                    let _ = thread.send(body);
                }
                if ends {
                    *going_on = None;
                }
            }
            wire::block::DICTIONARY => blocks.take_dictionary()?,
            wire::block::FAMILY => blocks.take_family(self.store)?,
            wire::block::AUX => drop(blocks.take_aux()?),
            wire::block::FUNCTION => functions.push(blocks.take_function()?),
            wire::block::END => {
                let keys = blocks.body.as_slice().try_into().map(u64::from_le_bytes);
                let keys = keys.map_err(|_| wrong("a block is damaged"))?;
                blocks.at_end()?;
                return Ok(Some(keys));
            }
            _ => return Err(wrong("a block is of an unknown kind")),
        }
        Ok(None)
    }

    /// What each thread does.
    fn work(&self) {
        let (workshop, mut session) = (self.store.session(), self.store.session());
        let mut entries = Entries::new(&workshop, &self.loading.limits, self.loading.trust);
        entries.is_own_seed = self.is_own_seed;
        loop {
            let group = self.groups.lock().recv();
            let Ok(group) = group else { return };
            // What is left is taken from the queue, so that it does not stay full.
            if self.failed.load(Relaxed) {
                continue;
            }
            let mut source =
                GroupSource { body: group.first, at: 0, more: group.more, brought: &self.brought };
            if let Err(refused) = self.make(&mut source, &mut entries, &mut session) {
                self.refused.lock().get_or_insert(refused);
                self.failed.store(true, Relaxed);
            }
        }
    }

    /// Makes the values of a group and loads them.
    fn make(
        &self,
        source: &mut GroupSource<'_>,
        entries: &mut Entries<'_>,
        session: &mut Session,
    ) -> Result<(), Refused> {
        let located = |source: &GroupSource<'_>, what| ImageError { at: source.body.began, what };
        let db = database(source, self.loading.databases);
        let db = db.map_err(|what| located(source, what))?;
        let (mut some, mut bytes) = (Vec::with_capacity(KEYS_AT_ONCE), 0);
        let now = self.loading.now;
        loop {
            let made = entries.next(source).map_err(|what| located(source, what))?;
            self.met.fetch_add(1, Relaxed);
            if now > 0 && made.expiry().is_some_and(|at| at <= now) {
                self.expired.fetch_add(1, Relaxed);
            } else {
                bytes += made.allocated();
                some.push(made);
            }
            let is_done = source.at == source.body.bytes.len();
            if is_done && source.body.goes_on {
                return Err(located(source, wrong("a value goes on that is whole")).into());
            }
            if is_done || some.len() >= KEYS_AT_ONCE || bytes >= BYTES_AT_ONCE {
                self.give(db, &mut some, session)?;
                bytes = 0;
            }
            if is_done {
                return Ok(());
            }
        }
    }

    fn give(
        &self,
        db: usize,
        some: &mut Vec<Detached>,
        session: &mut Session,
    ) -> Result<(), Refused> {
        self.keys.fetch_add(some.len() as u64, Relaxed);
        let batch = session.enter(self.loading.now);
        for value in some.drain(..) {
            let loaded = batch.load(db, value);
            loaded.map_err(|value| Refused::Twice { db, key: value.key().to_vec() })?;
        }
        Ok(())
    }
}

impl Body {
    /// The block that was read.
    fn of<R>(blocks: &mut Blocks<R>) -> Self {
        let bytes = std::mem::take(&mut blocks.body);
        Self { began: blocks.began, bytes, goes_on: blocks.flags & wire::GOES_ON != 0 }
    }
}

/// The blocks of a group, one behind the other.
struct GroupSource<'s> {
    body: Body,
    at: usize,
    more: Option<Receiver<Body>>,
    brought: &'s Brought,
}

impl Source for GroupSource<'_> {
    fn some(&mut self) -> io::Result<&[u8]> {
        while self.at == self.body.bytes.len() {
            let next = match &self.more {
                Some(more) if self.body.goes_on => more.recv().ok(),
                _ => None,
            };
            self.body = next.ok_or_else(|| wrong("a value is cut short"))?;
            self.at = 0;
        }
        Ok(&self.body.bytes[self.at..])
    }

    fn take(&mut self, count: usize) {
        self.at += count;
    }

    fn dictionary(&self, id: u32) -> io::Result<HeldDictionary> {
        find(self.brought, id)
    }

    fn has_dictionary(&self, id: u32) -> bool {
        self.brought.read().contains_key(&id)
    }
}
