//! The log: commits in the order of their numbers, until every follower has dealt with
//! them.
//!
//! ```text
//!  pieces   [Bytes][Bytes][mark][Bytes] ... [tail, still written to]
//!            n      n+1    n+2   n+3            places
//!                   ^ follower A     ^ follower B
//!  early    [-][commit][-][commit]               by number: those that wait for others
//! ```
//!
//! Followers read whole pieces by reference; the tail becomes a piece when one reads.

use super::FULL_BYTES;
use super::encode::{self, Encoded, Part, select};
use crate::follow::held::Held;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use snug_store::effect::Commit;
use snug_store::{Batch, Store};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The tail becomes a piece when it is longer than this.
const PIECE_BYTES: usize = 64 * 1024;
/// How much of its buffer a thread keeps between two commits.
const KEPT_BYTES: usize = 64 * 1024;

/// What a follower reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Some of the stream's bytes.
    Bytes(Bytes),
    /// A moment between two commits: see [`Journal::mark`].
    Mark(u64),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Mark(_) => 0,
        }
    }
}

struct Place {
    /// The first piece that it has not read.
    next: u64,
    /// The first piece that it has not dealt with.
    held: u64,
    /// It has read all there is, and wants to be woken.
    asleep: bool,
    /// Writers do not wait for it.
    unlimited: bool,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Log {
    /// The number of the last commit in the log.
    last: u64,
    early: VecDeque<Option<Encoded>>,
    /// The database that is selected at the end of the log, if followers know it.
    db: Option<usize>,
    pieces: VecDeque<Piece>,
    /// The place of the first piece.
    first: u64,
    tail: BytesMut,
    marks: u64,
    followers: Vec<Option<Place>>,
}

/// See the [module](super).
#[derive(Default)]
pub(crate) struct Journal {
    log: Mutex<Log>,
    full: AtomicBool,
    /// What waited when it was last counted.
    held_bytes: AtomicUsize,
    /// Clients that wait until followers, or the reader of a snapshot, have caught up.
    pub(crate) held: Held,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

thread_local! {
    static ENCODED: RefCell<Encoded> = RefCell::default();
}

impl Journal {
    /// A commit took effect: called under its locks, by the thread that made it.
    pub(crate) fn committed(&self, commit: Commit<'_>) {
        let mut ops = commit.ops();
        if ops.len() == 1
            && let Some(op) = ops.next()
        {
            let mut log = self.log.lock();
            if log.followers.is_empty() {
                return;
            }
            if log.is_next(commit.number) {
                // Most are so: the op's bytes are those of the log.
                log.append((op.db, op.db), encode::pieces(op.bytes, op.shared()));
                log.wake();
                self.judge(&log);
                return;
            }
        }
        self.take_in(commit);
    }

    /// The same of a commit of several ops, or one that comes early or is waited for.
    fn take_in(&self, commit: Commit<'_>) {
        ENCODED.with_borrow_mut(|encoded| {
            encoded.set(commit);
            let mut log = self.log.lock();
            if log.followers.is_empty() {
                return;
            }
            log.take_in(commit.number, encoded);
            self.judge(&log);
            drop(log);
            encoded.clear();
            encoded.bytes.shrink_to(KEPT_BYTES);
        });
    }

    /// Begins to follow commits at this moment. See the [module](super) for what
    /// `wake` may do; `unlimited` says that writers never wait for this follower.
    pub(crate) fn join(
        self: &Arc<Self>,
        batch: &Batch<'_>,
        unlimited: bool,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Follower {
        let _alone = batch.exclusive();
        let mut log = self.log.lock();
        batch.follow();
        if log.followers.is_empty() {
            log.last = batch.store().commits();
        }
        debug_assert_eq!(log.last, batch.store().commits(), "all that was before has been told");
        let next = log.cut();
        log.db = None;
        let place = Place { next, held: next, asleep: false, unlimited, wake };
        let number = log.followers.iter().position(Option::is_none).unwrap_or(log.followers.len());
        if number == log.followers.len() {
            log.followers.push(None);
        }
        log.followers[number] = Some(place);
        let store = Arc::clone(batch.store());
        Follower { journal: Arc::clone(self), store, number, joined_at: log.last, last: log.last }
    }

    /// Puts a mark into the stream at this moment; its number. Whoever follows finds it
    /// between the commits before and those after, which begin with a `SELECT`.
    pub(crate) fn mark(&self, batch: &Batch<'_>) -> u64 {
        let _alone = batch.exclusive();
        let mut log = self.log.lock();
        log.cut();
        log.marks += 1;
        let number = log.marks;
        if !log.followers.is_empty() {
            log.pieces.push_back(Piece::Mark(number));
            log.db = None;
            log.wake();
        }
        number
    }

    /// Has the next commit begin with a `SELECT`: somebody may begin to read at this moment.
    pub(crate) fn select_anew(&self, batch: &Batch<'_>) {
        let _alone = batch.exclusive();
        self.log.lock().db = None;
    }

    /// Whether followers are so far behind that commands that write are to wait.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Bytes that some follower has not dealt with.
    pub(crate) fn waiting(&self) -> usize {
        self.log.lock().waiting()
    }

    /// The same as it was not long ago, for less: it is counted as a piece fills.
    pub(crate) fn waited(&self) -> usize {
        self.held_bytes.load(Relaxed)
    }

    /// What followers have yet to deal with.
    #[cfg(test)]
    pub(crate) fn peek(&self) -> Vec<Piece> {
        let mut log = self.log.lock();
        log.cut();
        log.pieces.iter().cloned().collect()
    }

    fn judge(&self, log: &Log) {
        let waiting = || {
            let bytes = log.waiting();
            self.held_bytes.store(bytes, Relaxed);
            bytes
        };
        match self.full.load(Relaxed) {
            // What waits is counted only when a piece is full: seldom.
            false if log.tail.is_empty() && waiting() > FULL_BYTES => {
                self.full.store(true, Relaxed);
            }
            true if waiting() < FULL_BYTES / 2 => {
                self.full.store(false, Relaxed);
                self.held.release();
            }
            _ => {}
        }
    }
}

impl Log {
    /// Takes a commit in, and all those that have waited for it.
    fn take_in(&mut self, number: u64, encoded: &mut Encoded) {
        debug_assert!(number > self.last, "commit {number} after {}", self.last);
        let ahead = (number - self.last - 1) as usize;
        if ahead > 0 {
            if self.early.len() <= ahead {
                self.early.resize_with(ahead + 1, || None);
            }
            self.early[ahead] = Some(std::mem::take(encoded));
            return;
        }
        self.append((encoded.first_db, encoded.last_db), encoded.pieces());
        self.early.pop_front();
        while let Some(waiting) = self.early.front_mut() {
            let Some(encoded) = waiting.take() else { break };
            self.append((encoded.first_db, encoded.last_db), encoded.pieces());
            self.early.pop_front();
        }
        self.wake();
    }

    /// Whether a commit comes behind the last, and nobody waits for it.
    fn is_next(&self, number: u64) -> bool {
        number == self.last + 1 && self.early.is_empty()
    }

    /// Puts a commit behind the last: the databases of its first and last op, its bytes.
    fn append<'e>(&mut self, dbs: (usize, usize), parts: impl Iterator<Item = Part<'e>>) {
        self.last += 1;
        if self.db != Some(dbs.0) {
            let mut select_db = Vec::new();
            select(dbs.0, &mut select_db);
            self.tail.extend_from_slice(&select_db);
        }
        self.db = Some(dbs.1);
        for part in parts {
            match part {
                Part::Copied(bytes) => self.tail.extend_from_slice(bytes),
                Part::Shared(bytes) => {
                    self.cut();
                    self.pieces.push_back(Piece::Bytes(bytes.clone()));
                }
            }
        }
        if self.tail.len() > PIECE_BYTES {
            self.cut();
        }
    }

    /// Ends the piece that is written to; the place of the next one.
    fn cut(&mut self) -> u64 {
        if !self.tail.is_empty() {
            // Of its own length: it may be kept for long, and what was grown for it is as
            // good for the next.
            let piece = Bytes::copy_from_slice(&self.tail);
            match self.tail.capacity() > 4 * PIECE_BYTES {
                true => self.tail = BytesMut::new(),
                false => self.tail.clear(),
            }
            self.pieces.push_back(Piece::Bytes(piece));
        }
        self.first + self.pieces.len() as u64
    }

    fn wake(&mut self) {
        for place in self.followers.iter_mut().flatten() {
            if std::mem::take(&mut place.asleep) {
                (place.wake)();
            }
        }
    }

    /// Gives a follower what is new; whether something is.
    fn read(&mut self, number: usize, pieces: &mut Vec<Piece>, once: bool) -> bool {
        let end = self.cut();
        let first = self.first;
        let Some(place) = &mut self.followers[number] else { return false };
        let new = (place.next - first) as usize;
        let something = place.next < end;
        (place.held, place.next) = (place.next, end);
        place.asleep = once || !something;
        pieces.extend(self.pieces.iter().skip(new).cloned());
        something
    }

    /// Bytes from the first piece on that a follower with a limit holds.
    fn waiting(&self) -> usize {
        let limited = self.followers.iter().flatten().filter(|place| !place.unlimited);
        let Some(held) = limited.map(|place| place.held).min() else { return 0 };
        let passed = (held - self.first) as usize;
        self.pieces.iter().skip(passed).map(Piece::len).sum::<usize>() + self.tail.len()
    }

    /// Frees what every follower has dealt with.
    fn free(&mut self) {
        let end = self.first + self.pieces.len() as u64;
        let held = self.followers.iter().flatten().map(|place| place.held).min().unwrap_or(end);
        self.pieces.drain(..(held - self.first) as usize);
        self.first = held;
    }
}

/// One who follows commits. Dropped, it follows no longer.
#[derive(Debug)]
pub(crate) struct Follower {
    journal: Arc<Journal>,
    store: Arc<Store>,
    number: usize,
    joined_at: u64,
    last: u64,
}

impl Follower {
    /// The number of the last commit before the moment at which it joined.
    pub(crate) fn joined_at(&self) -> u64 {
        self.joined_at
    }

    /// The number of the last commit that it has read.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Reads what is new, whole commits; false, and `wake` will be called, if nothing
    /// is. What it gave before counts as dealt with.
    pub(crate) fn read(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let mut log = self.journal.log.lock();
        self.last = log.last;
        let something = log.read(self.number, pieces, false);
        log.free();
        self.journal.judge(&log);
        something
    }

    /// The same for a follower that does not come back by itself: `wake` will be called in
    /// any case. [`dealt`](Self::dealt) gives memory back.
    pub(crate) fn read_once(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let mut log = self.journal.log.lock();
        self.last = log.last;
        log.read(self.number, pieces, true)
    }

    /// What it was given is dealt with.
    pub(crate) fn dealt(&mut self) {
        let mut log = self.journal.log.lock();
        if let Some(place) = &mut log.followers[self.number] {
            place.held = place.next;
        }
        log.free();
        self.journal.judge(&log);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut log = self.journal.log.lock();
        log.followers[self.number] = None;
        if log.followers.iter().all(Option::is_none) {
            // Under the lock, so that nobody joins meanwhile.
            self.store.unfollow();
            log.followers.clear();
            log.early.clear();
            log.tail.clear();
        }
        log.free();
        self.journal.judge(&log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_store::{Event, NewStr, Observer, Session, Set, StoreConfig};

    struct Tells(Arc<Journal>);

    impl Observer for Tells {
        fn committed(&self, commit: Commit<'_>) {
            self.0.committed(commit);
        }
    }

    fn journal() -> (Arc<Journal>, Session) {
        let journal = Arc::<Journal>::default();
        let store = Store::new(StoreConfig::default(), Box::new(Tells(Arc::clone(&journal))));
        (journal, store.session())
    }

    fn set(batch: &Batch<'_>, db: usize, name: &str, value: NewStr<'_>) {
        let key = batch.key(name.as_bytes());
        let mut slot = batch.lock(db, &key);
        let found = slot.find(&key);
        slot.apply(&key, found, Set::to(value), Event::NONE);
    }

    /// What a follower reads, without line ends and lengths.
    fn read(follower: &mut Follower) -> String {
        let mut pieces = Vec::new();
        follower.read(&mut pieces);
        let told = pieces.iter().map(|piece| match piece {
            Piece::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Piece::Mark(number) => format!("mark {number}\r\n"),
        });
        let told: String = told.collect();
        let words = told.split("\r\n").filter(|word| !word.starts_with(['*', '$']));
        words.collect::<Vec<_>>().join(" ").trim().to_string()
    }

    #[test]
    fn followers_read_what_was_committed_since_they_joined() {
        let (journal, mut session) = journal();
        let batch = session.enter(1);
        set(&batch, 0, "before", NewStr::Int(1));
        let mut first = journal.join(&batch, false, Box::new(|| ()));
        assert_eq!(read(&mut first), "");
        set(&batch, 0, "a", NewStr::Int(1));
        set(&batch, 0, "b", NewStr::Int(2));
        let mut second = journal.join(&batch, false, Box::new(|| ()));
        assert_eq!(second.joined_at(), 2);
        let held = batch.hold([(0, batch.key(b"a")), (3, batch.key(b"a"))]);
        set(&batch, 0, "a", NewStr::Int(3));
        set(&batch, 3, "a", NewStr::Int(4));
        drop(held);
        assert_eq!(journal.mark(&batch), 1);
        set(&batch, 3, "b", NewStr::Int(5));
        let after = "SELECT 0 MULTI SET a 3 SELECT 3 SET a 4 EXEC mark 1 SELECT 3 SET b 5";
        assert_eq!(read(&mut first), format!("SELECT 0 SET a 1 SET b 2 {after}"));
        assert_eq!(read(&mut second), after);
        assert_eq!((first.last(), read(&mut second).as_str()), (4, ""));
        drop(first);
        assert!(batch.store().is_followed());
        drop(second);
        assert!(!batch.store().is_followed());
        set(&batch, 0, "nobody", NewStr::Int(6));
        assert_eq!(journal.waiting(), 0);
    }

    #[test]
    fn what_comes_early_waits_for_those_before_it() {
        let mut log = Log::default();
        let encoded = |text: &str| Encoded { bytes: text.into(), ..Encoded::default() };
        for number in [3, 2, 5, 1, 4, 6] {
            log.take_in(number, &mut encoded(&format!("{number} ")));
        }
        assert_eq!(log.last, 6);
        assert!(log.tail.ends_with(b"\r\n1 2 3 4 5 6 "), "{:?}", log.tail);
        assert!(log.early.iter().all(Option::is_none));
    }

    #[test]
    fn it_is_full_until_the_slowest_has_caught_up() {
        let (journal, mut session) = journal();
        let batch = session.enter(1);
        let mut mirror = journal.join(&batch, true, Box::new(|| ()));
        let large = snug_codec::Segments::from(&vec![7; FULL_BYTES / 3][..]);
        for _ in 0..5 {
            set(&batch, 0, "key", NewStr::Chain(large.clone()));
        }
        assert!(!journal.is_full(), "a mirror has no limit");
        let mut slow = journal.join(&batch, false, Box::new(|| ()));
        for n in 0..4 {
            assert_eq!(journal.is_full(), n == 3);
            set(&batch, 0, "key", NewStr::Chain(large.clone()));
            // What comes behind it has the log looked at.
            set(&batch, 0, "other", NewStr::Bytes(&vec![b'x'; PIECE_BYTES]));
        }
        assert!(journal.is_full());
        let mut pieces = Vec::new();
        assert!(slow.read(&mut pieces));
        assert!(journal.is_full(), "it has read them, and holds them still");
        assert!(!slow.read(&mut pieces));
        assert!(!journal.is_full());
        mirror.read(&mut pieces);
        mirror.read(&mut pieces);
        assert_eq!(journal.waiting(), 0);
    }
}
