//! An engine over somebody else's store of keys and values: it has what such a store does
//! not, references and room that comes back.
//!
//! ```text
//!  place    bytes written before, of all records: a record's key, 8 bytes, big-endian,
//!           so that what is written next goes behind everything
//!
//!  ranges   place / range ──> bytes referred to, records that are gone,
//!                             references beyond the first
//! ```
//!
//! A range is to this engine what a segment is to [the log](crate::Log). One in which
//! nothing is referred to is dropped, files and all. Of one that is sparse, by the log's
//! rules, the records that are gone are deleted together, and the store rewrites what is
//! left of it. So nothing is deleted one by one, and nobody has to move records.
//!
//! Costs in memory: a hundred bytes a range, eight for each record that is gone and still
//! takes room, and what the store itself keeps (buffers, indexes).

use crate::{Engine, Figures, Place, Purpose, full, sparse};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::io;
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes written to a range, about, within a limit that there is at the start: a
/// sixteenth, and no more than this. It is what the store rewrites at once, while the thread
/// that tidies waits, and what it had better keep in a buffer.
pub(crate) fn range_bytes(limit: u64) -> u64 {
    match limit {
        0 => RANGE_MAX,
        limit => (limit / 16).clamp(RANGE_MIN, RANGE_MAX),
    }
}

const RANGE_MIN: u64 = 256 << 10;
const RANGE_MAX: u64 = 16 << 20;

/// A store of keys and values. An error names what is wrong; `StorageFull` says that the
/// disk is.
pub(crate) trait KeyValues: Send + Sync + Debug {
    /// Writes records whose keys go behind all that were written before.
    fn put(&self, records: &[(Place, &[u8])]) -> io::Result<()>;

    /// Reads a record, if it is there.
    fn get(&self, place: Place) -> io::Result<Option<Vec<u8>>>;

    /// Deletes records of a range and gives back their room. May block for as long as it
    /// takes to write the range.
    fn rewrite(&self, range: Range<Place>, gone: &[Place]) -> io::Result<()>;

    /// Deletes a range of which all records, these, are gone.
    fn drop_range(&self, range: Range<Place>, gone: &[Place]) -> io::Result<()>;

    /// Bytes and number of its files, what it has not written out yet included.
    fn files(&self) -> (u64, u64);

    /// Bytes of memory that it takes.
    fn memory(&self) -> u64;
}

/// What is known of a range.
#[derive(Debug, Default)]
struct Part {
    /// Bytes of its records that somebody refers to, each once, ...
    live: u64,
    /// ... and of those that are there.
    there: u64,
    /// Records that are gone and still there.
    gone: Vec<Place>,
    /// References beyond the first, of the few that have any.
    more: HashMap<Place, u32>,
}

/// An engine over a store.
#[derive(Debug)]
pub(crate) struct Keyed<S> {
    store: S,
    range_bytes: u64,
    /// Where the next record goes. Held while records are written, so that keys come in
    /// order.
    next: Mutex<Place>,
    parts: Mutex<BTreeMap<u64, Part>>,
    limit: AtomicU64,
    live: AtomicU64,
    written: AtomicU64,
    moved: AtomicU64,
    read: AtomicU64,
}

impl<S: KeyValues> Keyed<S> {
    /// An engine over an empty store, with ranges of so many bytes; `limit` as in
    /// [`Engine::limit`].
    pub(crate) fn new(store: S, range_bytes: u64, limit: u64) -> Self {
        Self {
            store,
            range_bytes,
            next: Mutex::new(0),
            parts: Mutex::default(),
            limit: AtomicU64::new(limit),
            live: AtomicU64::new(0),
            written: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
    }

    fn range(&self, number: u64) -> Range<Place> {
        number * self.range_bytes..(number + 1) * self.range_bytes
    }

    /// Drops ranges of which all is gone.
    fn drop_dead(&self, current: u64) {
        let dead: Vec<_> = {
            let mut parts = self.parts.lock();
            parts.extract_if(..current, |_, part| part.live == 0).collect()
        };
        for (number, part) in dead {
            if self.store.drop_range(self.range(number), &part.gone).is_err() {
                // Tried again the next time.
                self.parts.lock().insert(number, part);
            }
        }
    }

    /// Has the sparsest range rewritten, if one is due.
    fn rewrite_one(&self, current: u64) {
        let taken = {
            let mut parts = self.parts.lock();
            let there: u64 = parts.values().map(|part| part.there).sum();
            let limit = self.limit.load(Relaxed);
            if !sparse::is_due(self.live.load(Relaxed), there, self.range_bytes, limit) {
                return;
            }
            let is_full = sparse::is_full(there, self.range_bytes, limit);
            let all = parts.range_mut(..current);
            let thin = all.filter(|(_, part)| sparse::is_sparse(part.live, part.there, is_full));
            let sparsest = thin.min_by_key(|(_, part)| part.live * 1000 / part.there.max(1));
            sparsest.map(|(&number, part)| (number, part.live, mem::take(&mut part.gone)))
        };
        let Some((number, live, gone)) = taken else { return };
        let done = self.store.rewrite(self.range(number), &gone);
        let mut parts = self.parts.lock();
        let Some(part) = parts.get_mut(&number) else { return };
        match done {
            // More may be gone by now, which is still there.
            Ok(()) => {
                part.there = live;
                self.moved.fetch_add(live, Relaxed);
                self.written.fetch_add(live, Relaxed);
            }
            Err(_) => part.gone.extend(gone),
        }
    }
}

impl<S: KeyValues> Engine for Keyed<S> {
    fn write(&self, records: &[&[u8]], _: Purpose) -> io::Result<Vec<Place>> {
        let mut next = self.next.lock();
        let mut at = *next;
        let placed: Vec<(Place, &[u8])> = records
            .iter()
            .map(|record| {
                let place = at;
                at += (record.len() as u64).max(1);
                (place, *record)
            })
            .collect();
        let bytes = records.iter().map(|record| record.len() as u64).sum();
        if !self.has_room(bytes) {
            return Err(full());
        }
        // What failed may be there in part: its keys are not used again.
        *next = at;
        self.store.put(&placed)?;
        let mut parts = self.parts.lock();
        for (place, record) in &placed {
            let part = parts.entry(place / self.range_bytes).or_default();
            part.live += record.len() as u64;
            part.there += record.len() as u64;
        }
        self.live.fetch_add(bytes, Relaxed);
        self.written.fetch_add(bytes, Relaxed);
        Ok(placed.into_iter().map(|(place, _)| place).collect())
    }

    fn read(&self, place: Place, len: usize) -> io::Result<Vec<u8>> {
        let record = self.store.get(place)?;
        let record = record.ok_or_else(|| io::Error::other("no such record"))?;
        self.read.fetch_add(record.len() as u64, Relaxed);
        match record.len() == len {
            true => Ok(record),
            false => Err(io::Error::other("the record has another length")),
        }
    }

    fn retain(&self, place: Place, _: usize) {
        let mut parts = self.parts.lock();
        *parts.entry(place / self.range_bytes).or_default().more.entry(place).or_default() += 1;
    }

    fn release(&self, place: Place, len: usize) {
        let mut parts = self.parts.lock();
        let part = parts.entry(place / self.range_bytes).or_default();
        if let Some(more) = part.more.get_mut(&place) {
            *more -= 1;
            if *more == 0 {
                part.more.remove(&place);
            }
            return;
        }
        part.live -= len as u64;
        part.gone.push(place);
        self.live.fetch_sub(len as u64, Relaxed);
    }

    /// None is: the store itself moves what is left of a range.
    fn is_sparse(&self, _: Place) -> bool {
        false
    }

    fn tidy(&self) -> bool {
        let current = *self.next.lock() / self.range_bytes;
        self.drop_dead(current);
        self.rewrite_one(current);
        false
    }

    fn limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
    }

    /// Room for one range more is kept: it is written before its old files go.
    fn has_room(&self, bytes: u64) -> bool {
        let limit = self.limit.load(Relaxed);
        limit == 0 || self.store.files().0 + bytes + self.range_bytes.min(limit / 4) <= limit
    }

    fn figures(&self) -> Figures {
        let (files_bytes, files) = self.store.files();
        Figures {
            live: self.live.load(Relaxed),
            files_bytes,
            files,
            written: self.written.load(Relaxed),
            moved: self.moved.load(Relaxed),
            read: self.read.load(Relaxed),
            syncs: 0,
            memory: self.store.memory(),
        }
    }
}
