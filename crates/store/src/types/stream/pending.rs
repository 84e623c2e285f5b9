//! A group's pending entries: what was delivered and not yet acknowledged.
//!
//! ```text
//!  Pending: chunks in order of ID, up to 256 entries each
//!    [chunk] [chunk] [chunk] ... [chunk]      VecDeque: cheap at both ends
//!       |
//!       base     ms   seq  consumer  delivered  count     smallest of each column
//!       width     2     1         1          2      0     bytes of each column
//!       consumers  64 bits: which may own an entry here
//!       rows     [ms seq consumer delivered count] [ms seq ...] ...
//!                 each number less its base, in its column's width
//! ```
//!
//! A number takes only the bytes in which it differs from its chunk's smallest,
//! and a chunk that meets a number it has no room for is written anew. Entries
//! of one second by 100 consumers, delivered once:
//!
//! ```text
//!  ms 2 + seq 1 + consumer 1 + delivered 2 + count 0    6      bytes a row
//!  a chunk's own 80 bytes, over 256 rows                0.3
//!  deque of chunks, half empty at worst                 0.3
//!  unused ends of the rows' allocation                  0.2
//!                                                       6.8    bytes an entry
//! ```
//!
//! Everything as wide as it can be (claims at any time, counts set at random,
//! IDs of any size) takes 37. Redis keeps two radix trees that share a 24-byte
//! structure and its allocation: 40 bytes besides the trees' nodes.
//!
//! | operation | cost |
//! | --- | --- |
//! | find, change, remove anywhere | O(log n), and a move of one chunk's rows, 2 KB |
//! | append | O(1); a chunk is written anew a few times as its columns widen |
//! | the entries of one consumer, or idle for long | O(log n), a look at each chunk's bits and smallest time, and at the rows of those that may have one |
//!
//! Chunks that deletions have emptied to a quarter are joined with a neighbour,
//! so memory follows what is pending.

use super::id::StreamId;
use super::usable;
use std::collections::VecDeque;

/// The most entries in a chunk.
const ROWS_MAX: usize = 256;
/// A chunk of fewer entries is joined with a neighbour if there is room.
const ROWS_MIN: usize = ROWS_MAX / 4;
/// The most entries in a chunk that was joined: it has room for a few more.
const JOINED_MAX: usize = ROWS_MAX - ROWS_MIN;
/// Rows by which a chunk's allocation grows.
const GROWTH: usize = 32;

/// An entry delivered and not yet acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// The entry's ID.
    pub id: StreamId,
    /// The number of the consumer that owns it.
    pub(super) consumer: u32,
    /// When it was delivered last, Unix milliseconds.
    pub delivered: u64,
    /// How often it was delivered.
    pub count: u64,
}

const COLUMNS: usize = 5;
const CONSUMER: usize = 2;
const DELIVERED: usize = 3;

impl PendingEntry {
    fn columns(&self) -> [u64; COLUMNS] {
        [self.id.ms, self.id.seq, u64::from(self.consumer), self.delivered, self.count]
    }

    fn from_columns([ms, seq, consumer, delivered, count]: [u64; COLUMNS]) -> Self {
        Self { id: StreamId::new(ms, seq), consumer: consumer as u32, delivered, count }
    }
}

/// The bit that stands for a consumer in a chunk's summary.
fn bit(consumer: u32) -> u64 {
    1 << (consumer % 64)
}

/// The bytes that a number takes.
fn width_of(number: u64) -> u8 {
    (8 - number.leading_zeros() / 8) as u8
}

/// The number of `width` bytes at a byte of a chunk's rows.
#[inline]
fn load(rows: &[u8], at: usize, width: u8) -> u64 {
    let above = 64 - 8 * u32::from(width);
    if let Some(eight) = rows.get(at..).and_then(<[u8]>::first_chunk) {
        return u64::from_le_bytes(*eight) & u64::MAX.checked_shr(above).unwrap_or(0);
    }
    let mut number = [0; 8];
    let width = usize::from(width);
    number[..width].copy_from_slice(&rows[at..at + width]);
    u64::from_le_bytes(number)
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    base: [u64; COLUMNS],
    width: [u8; COLUMNS],
    len: u16,
    /// Of each consumer that owns an entry here its [`bit`]; of others perhaps.
    consumers: u64,
    rows: Vec<u8>,
}

impl Chunk {
    fn len(&self) -> usize {
        usize::from(self.len)
    }

    fn stride(&self) -> usize {
        self.width.iter().map(|&width| usize::from(width)).sum()
    }

    /// One number of a row.
    fn number(&self, row: usize, column: usize) -> u64 {
        let before: usize = self.width[..column].iter().map(|&width| usize::from(width)).sum();
        let at = row * self.stride() + before;
        self.base[column] + load(&self.rows, at, self.width[column])
    }

    fn id(&self, row: usize) -> StreamId {
        StreamId::new(self.number(row, 0), self.number(row, 1))
    }

    fn get(&self, row: usize) -> PendingEntry {
        let mut at = row * self.stride();
        PendingEntry::from_columns(std::array::from_fn(|column| {
            let width = self.width[column];
            let number = self.base[column] + load(&self.rows, at, width);
            at += usize::from(width);
            number
        }))
    }

    fn entries(&self) -> impl Iterator<Item = PendingEntry> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// The first row at or after `id`.
    fn seek(&self, id: StreamId) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.id(middle) < id {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Whether the columns have room for these numbers.
    fn fits(&self, columns: &[u64; COLUMNS]) -> bool {
        columns.iter().zip(self.base).zip(self.width).all(|((&number, base), width)| {
            number.checked_sub(base).is_some_and(|over| width_of(over) <= width)
        })
    }

    /// Writes all anew: these entries, in order of ID.
    fn rewrite(&mut self, entries: &[PendingEntry]) {
        self.base = [u64::MAX; COLUMNS];
        let mut most = [0; COLUMNS];
        self.consumers = 0;
        for entry in entries {
            for (column, number) in entry.columns().into_iter().enumerate() {
                self.base[column] = self.base[column].min(number);
                most[column] = most[column].max(number);
            }
            self.consumers |= bit(entry.consumer);
        }
        self.width =
            std::array::from_fn(|column| width_of(most[column].saturating_sub(self.base[column])));
        self.len = entries.len() as u16;
        self.rows = Vec::with_capacity(self.stride() * entries.len());
        for entry in entries {
            let end = self.rows.len();
            self.rows.resize(end + self.stride(), 0);
            self.write(end, &entry.columns());
        }
    }

    /// Writes the numbers of a row that begins at this byte, which fit.
    fn write(&mut self, mut at: usize, columns: &[u64; COLUMNS]) {
        for (column, number) in columns.iter().enumerate() {
            let width = usize::from(self.width[column]);
            let bytes = (number - self.base[column]).to_le_bytes();
            self.rows[at..at + width].copy_from_slice(&bytes[..width]);
            at += width;
        }
    }

    fn insert(&mut self, row: usize, entry: &PendingEntry) {
        let columns = entry.columns();
        if self.len == 0 || !self.fits(&columns) {
            let mut entries: Vec<_> = self.entries().collect();
            entries.insert(row, *entry);
            self.rewrite(&entries);
            return;
        }
        let stride = self.stride();
        if self.rows.capacity() < self.rows.len() + stride {
            self.rows.reserve_exact(stride * GROWTH.min(ROWS_MAX - self.len()));
        }
        let (at, end) = (row * stride, self.rows.len());
        self.rows.resize(end + stride, 0);
        self.rows.copy_within(at..end, at + stride);
        self.write(at, &columns);
        self.len += 1;
        self.consumers |= bit(entry.consumer);
    }

    fn set(&mut self, row: usize, entry: &PendingEntry) {
        let columns = entry.columns();
        if self.fits(&columns) {
            self.write(row * self.stride(), &columns);
            self.consumers |= bit(entry.consumer);
        } else {
            let mut entries: Vec<_> = self.entries().collect();
            entries[row] = *entry;
            self.rewrite(&entries);
        }
    }

    fn remove(&mut self, row: usize) {
        let stride = self.stride();
        self.rows.drain(row * stride..(row + 1) * stride);
        self.len -= 1;
        if self.rows.capacity() > 2 * self.rows.len() + GROWTH * stride {
            self.rows.shrink_to(self.rows.len() + self.rows.len() / 4);
        }
    }

    fn heap_bytes(&self) -> usize {
        usable(self.rows.capacity())
    }
}

/// Which pending entries are sought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sought {
    /// The first and the last ID.
    pub(super) first: StreamId,
    pub(super) last: StreamId,
    /// The owner; `None` for any.
    pub(super) consumer: Option<u32>,
    /// Not delivered after this, Unix milliseconds.
    pub(super) delivered_max: u64,
}

impl Sought {
    /// Whether a chunk may have such entries, whatever their IDs.
    fn may_be_in(&self, chunk: &Chunk) -> bool {
        self.consumer.is_none_or(|consumer| chunk.consumers & bit(consumer) != 0)
            && chunk.base[DELIVERED] <= self.delivered_max
    }

    /// Whether a row is such an entry, whatever its ID.
    fn is(&self, chunk: &Chunk, row: usize) -> bool {
        let owner = |consumer| chunk.number(row, CONSUMER) == u64::from(consumer);
        self.consumer.is_none_or(owner)
            && (self.delivered_max == u64::MAX
                || chunk.number(row, DELIVERED) <= self.delivered_max)
    }
}

/// The pending entries of a group, in order of ID.
#[derive(Debug, Default)]
pub struct Pending {
    /// None is empty.
    chunks: VecDeque<Chunk>,
    len: usize,
    /// Allocated for rows.
    rows_bytes: usize,
}

impl Clone for Pending {
    fn clone(&self) -> Self {
        let chunks = self.chunks.clone();
        // A copied chunk has no unused end.
        let rows_bytes = chunks.iter().map(Chunk::heap_bytes).sum();
        Self { chunks, len: self.len, rows_bytes }
    }
}

impl Pending {
    /// The number of pending entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The smallest ID.
    pub fn first(&self) -> Option<StreamId> {
        self.chunks.front().map(|chunk| chunk.id(0))
    }

    /// The greatest ID.
    pub fn last(&self) -> Option<StreamId> {
        self.chunks.back().map(|chunk| chunk.id(chunk.len() - 1))
    }

    /// The entry of this ID.
    pub fn get(&self, id: StreamId) -> Option<PendingEntry> {
        self.place(id).ok().map(|(chunk, row)| self.chunks[chunk].get(row))
    }

    /// The first entry at or after `id`.
    pub fn next_from(&self, id: StreamId) -> Option<PendingEntry> {
        let (at, row) = self.place(id).unwrap_or_else(|place| place);
        let chunk = self.chunks.get(at)?;
        if row < chunk.len() {
            return Some(chunk.get(row));
        }
        self.chunks.get(at + 1).map(|chunk| chunk.get(0))
    }

    /// The entries sought, in order of ID. Finds the first chunk once, and
    /// passes over chunks that have none.
    pub(super) fn select(&self, sought: Sought) -> impl Iterator<Item = PendingEntry> + '_ {
        let (at, first_row) = self.place(sought.first).unwrap_or_else(|place| place);
        let at = at.min(self.chunks.len());
        let chunks = self.chunks.range(at..).enumerate();
        chunks
            .take_while(move |(_, chunk)| chunk.id(0) <= sought.last)
            .filter(move |(_, chunk)| sought.may_be_in(chunk))
            .flat_map(move |(n, chunk)| {
                let rows = if n == 0 { first_row..chunk.len() } else { 0..chunk.len() };
                rows.filter(move |&row| sought.is(chunk, row)).map(|row| chunk.get(row))
            })
            .take_while(move |entry| entry.id <= sought.last)
    }

    /// Where `id` is, or would be: chunk and row.
    fn place(&self, id: StreamId) -> Result<(usize, usize), (usize, usize)> {
        // Most are appended.
        let after = match self.chunks.back() {
            Some(last) if last.id(0) <= id => self.chunks.len(),
            _ => self.chunks.partition_point(|chunk| chunk.id(0) <= id),
        };
        let Some(at) = after.checked_sub(1) else { return Err((0, 0)) };
        let chunk = &self.chunks[at];
        let row = chunk.seek(id);
        if row < chunk.len() && chunk.id(row) == id { Ok((at, row)) } else { Err((at, row)) }
    }

    /// Adds an entry, or puts it in the place of that with the same ID, which
    /// is returned.
    pub(super) fn put(&mut self, entry: PendingEntry) -> Option<PendingEntry> {
        let (mut at, mut row) = match self.place(entry.id) {
            Ok((at, row)) => {
                let was = self.chunks[at].get(row);
                self.change(at, |chunk| chunk.set(row, &entry));
                return Some(was);
            }
            Err(place) => place,
        };
        if self.chunks.get(at).is_none_or(|chunk| chunk.len() == ROWS_MAX) {
            (at, row) = self.make_room(at, row);
        }
        self.change(at, |chunk| chunk.insert(row, &entry));
        self.len += 1;
        None
    }

    /// Makes room at a full chunk's row, or the first chunk: the place it is
    /// at now.
    fn make_room(&mut self, at: usize, row: usize) -> (usize, usize) {
        let Some(chunk) = self.chunks.get(at) else {
            self.chunks.push_back(Chunk::default());
            return (0, 0);
        };
        if row == chunk.len() {
            // Appended to, most likely: the full chunk stays full.
            self.change(at, |chunk| chunk.rows.shrink_to_fit());
            self.chunks.insert(at + 1, Chunk::default());
            return (at + 1, 0);
        }
        let entries: Vec<_> = chunk.entries().collect();
        let (left, right) = entries.split_at(ROWS_MAX / 2);
        self.change(at, |chunk| chunk.rewrite(left));
        self.chunks.insert(at + 1, Chunk::default());
        self.change(at + 1, |chunk| chunk.rewrite(right));
        if row <= left.len() { (at, row) } else { (at + 1, row - left.len()) }
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, id: StreamId) -> Option<PendingEntry> {
        let (at, row) = self.place(id).ok()?;
        let entry = self.chunks[at].get(row);
        self.change(at, |chunk| chunk.remove(row));
        self.len -= 1;
        self.tidy(at);
        Some(entry)
    }

    /// Takes out all entries of a consumer.
    pub(super) fn remove_all_of(&mut self, consumer: u32) {
        let mut at = 0;
        while let Some(chunk) = self.chunks.get(at) {
            if chunk.consumers & bit(consumer) != 0 {
                let kept: Vec<_> =
                    chunk.entries().filter(|entry| entry.consumer != consumer).collect();
                if kept.len() < chunk.len() {
                    self.len -= chunk.len() - kept.len();
                    self.change(at, |chunk| chunk.rewrite(&kept));
                    // It may be gone now, or hold what came after it too.
                    at = self.tidy(at);
                    continue;
                }
            }
            at += 1;
        }
        self.give_back();
    }

    /// Drops a chunk that is empty, joins one that has become small with a
    /// neighbour; the chunk to go on with.
    fn tidy(&mut self, at: usize) -> usize {
        let len = self.chunks[at].len();
        if len >= ROWS_MIN {
            return at + 1;
        }
        if len == 0 {
            self.drop_chunk(at);
            return at;
        }
        let room = |other: usize| {
            self.chunks.get(other).is_some_and(|chunk| chunk.len() + len <= JOINED_MAX)
        };
        let left = if room(at + 1) {
            at
        } else if at > 0 && room(at - 1) {
            at - 1
        } else {
            return at + 1;
        };
        let both: Vec<_> =
            self.chunks[left].entries().chain(self.chunks[left + 1].entries()).collect();
        self.change(left, |chunk| chunk.rewrite(&both));
        self.drop_chunk(left + 1);
        // What came from the right may still have to be looked at.
        left
    }

    fn drop_chunk(&mut self, at: usize) {
        if let Some(chunk) = self.chunks.remove(at) {
            self.rows_bytes -= chunk.heap_bytes();
        }
        self.give_back();
    }

    /// Gives back most of the deque when it is nearly empty.
    fn give_back(&mut self) {
        if self.chunks.capacity() > 8 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut Chunk)) {
        let chunk = &mut self.chunks[at];
        let before = chunk.heap_bytes();
        change(chunk);
        self.rows_bytes = self.rows_bytes + chunk.heap_bytes() - before;
    }

    /// The bytes allocated. O(1).
    pub(super) fn heap_bytes(&self) -> usize {
        self.rows_bytes + usable(self.chunks.capacity() * size_of::<Chunk>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Put(PendingEntry),
        /// So many after the last, a millisecond apart.
        Append(u64, u32),
        Remove(StreamId),
        RemoveAt(prop::sample::Index),
        RemoveFirst(usize),
        RemoveEvery(usize),
        RemoveAllOf(u32),
        Clone,
    }

    fn any_id() -> impl Strategy<Value = StreamId> {
        let part = || prop_oneof![8 => 0u64..6, 4 => 0u64..2000, 1 => any::<u64>()];
        (part(), part()).prop_map(|(ms, seq)| StreamId::new(ms, seq))
    }

    fn any_entry() -> impl Strategy<Value = PendingEntry> {
        let number = || prop_oneof![6 => 0u64..3, 2 => 0u64..70_000, 1 => any::<u64>()];
        let consumer = prop_oneof![8 => 0u32..4, 2 => 60u32..200, 1 => any::<u32>()];
        (any_id(), consumer, number(), number()).prop_map(|(id, consumer, delivered, count)| {
            PendingEntry { id, consumer, delivered, count }
        })
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => any_entry().prop_map(Step::Put),
            4 => (1u64..700, 0u32..70).prop_map(|(n, consumer)| Step::Append(n, consumer)),
            4 => any_id().prop_map(Step::Remove),
            8 => any::<prop::sample::Index>().prop_map(Step::RemoveAt),
            2 => (1usize..400).prop_map(Step::RemoveFirst),
            2 => (2usize..6).prop_map(Step::RemoveEvery),
            1 => (0u32..70).prop_map(Step::RemoveAllOf),
            1 => Just(Step::Clone),
        ]
    }

    /// What must hold of the structure itself.
    fn check(pending: &Pending) {
        let rows: usize = pending.chunks.iter().map(Chunk::len).sum();
        assert_eq!(rows, pending.len);
        let bytes: usize = pending.chunks.iter().map(Chunk::heap_bytes).sum();
        assert_eq!(bytes, pending.rows_bytes);
        for chunk in &pending.chunks {
            assert!((1..=ROWS_MAX).contains(&chunk.len()));
            assert_eq!(chunk.rows.len(), chunk.len() * chunk.stride());
            assert!(chunk.entries().all(|entry| chunk.consumers & bit(entry.consumer) != 0));
        }
        let small = |chunk: &Chunk| chunk.len() < ROWS_MIN / 2;
        let pairs = pending.chunks.iter().zip(pending.chunks.iter().skip(1));
        let sparse = pairs.filter(|(a, b)| small(a) && small(b)).count();
        assert!(sparse <= pending.chunks.len() / 2 + 1);
    }

    fn run(steps: Vec<Step>) {
        let mut pending = Pending::default();
        let mut model: BTreeMap<StreamId, PendingEntry> = BTreeMap::new();
        let mut last_ms = 1000;
        for step in steps {
            match step {
                Step::Put(entry) => {
                    assert_eq!(pending.put(entry), model.insert(entry.id, entry));
                }
                Step::Append(n, consumer) => {
                    for k in 0..n {
                        last_ms += 1;
                        let entry = PendingEntry {
                            id: StreamId::new(last_ms, k % 3),
                            consumer: consumer + (k % 2) as u32,
                            delivered: 5_000_000 + k,
                            count: 1,
                        };
                        assert_eq!(pending.put(entry), model.insert(entry.id, entry));
                    }
                }
                Step::Remove(id) => assert_eq!(pending.remove(id), model.remove(&id)),
                Step::RemoveAt(at) if !model.is_empty() => {
                    let id = *model.keys().nth(at.index(model.len())).unwrap();
                    assert_eq!(pending.remove(id), model.remove(&id));
                }
                Step::RemoveAt(_) => {}
                Step::RemoveFirst(n) => {
                    for _ in 0..n.min(model.len()) {
                        let (id, entry) = model.pop_first().unwrap();
                        assert_eq!(pending.first(), Some(id));
                        assert_eq!(pending.remove(id), Some(entry));
                    }
                }
                Step::RemoveEvery(n) => {
                    let ids: Vec<_> = model.keys().copied().step_by(n).collect();
                    for id in ids {
                        assert_eq!(pending.remove(id), model.remove(&id));
                    }
                }
                Step::RemoveAllOf(consumer) => {
                    pending.remove_all_of(consumer);
                    model.retain(|_, entry| entry.consumer != consumer);
                }
                Step::Clone => pending = pending.clone(),
            }
            check(&pending);
            assert_eq!(pending.len(), model.len());
            assert_eq!(pending.first(), model.keys().next().copied());
            assert_eq!(pending.last(), model.keys().next_back().copied());
        }
        let mut from = Some(StreamId::MIN);
        for entry in model.values() {
            let next = from.and_then(|from| pending.next_from(from));
            assert_eq!(next, Some(*entry));
            assert_eq!(pending.get(entry.id), next);
            from = entry.id.next();
        }
        assert_eq!(from.and_then(|from| pending.next_from(from)), None);
        for consumer in (0..72).chain(model.values().map(|entry| entry.consumer).take(4)) {
            let owned = |id| {
                let mut from = model.range(id..);
                from.find(|(_, entry)| entry.consumer == consumer).map(|(_, entry)| *entry)
            };
            for id in [StreamId::MIN, StreamId::new(3, 2), StreamId::new(1500, 0)] {
                let next_of = |last| {
                    let consumer = Some(consumer);
                    let sought = Sought { first: id, last, consumer, delivered_max: u64::MAX };
                    pending.select(sought).next()
                };
                let found = next_of(StreamId::MAX);
                assert_eq!(found, owned(id));
                if let Some(found) = found {
                    assert_eq!(next_of(found.id), Some(found));
                    let before = found.id.prev().unwrap_or(StreamId::MIN);
                    let nothing = next_of(before);
                    assert!(nothing.is_none() || before == found.id);
                }
            }
        }
        for consumer in [None, Some(0), Some(3), Some(64)] {
            for delivered_max in [0, 1, 5_000_000, 5_000_100, u64::MAX] {
                for (first, last) in [(0, u64::MAX), (2, 1500), (1200, 5), (1600, 1900)] {
                    let (first, last) = (StreamId::new(first, 1), StreamId::new(last, 1));
                    let sought = Sought { first, last, consumer, delivered_max };
                    let mut wanted: Vec<_> = model.values().copied().collect();
                    wanted.retain(|entry| first <= entry.id && entry.id <= last);
                    wanted.retain(|entry| consumer.is_none_or(|one| entry.consumer == one));
                    wanted.retain(|entry| entry.delivered <= delivered_max);
                    assert_eq!(pending.select(sought).collect::<Vec<_>>(), wanted);
                }
            }
        }
    }

    /// A chunk of others, or of entries all delivered since, is not read.
    #[test]
    fn chunks_without_what_is_sought_are_passed_over() {
        let mut pending = Pending::default();
        for n in 0..10_000u64 {
            let consumer = u32::from(n / 256 == 7);
            let (id, delivered) = (StreamId::new(n, 0), 1000 + n);
            pending.put(PendingEntry { id, consumer, delivered, count: 1 });
        }
        let all = Sought {
            first: StreamId::MIN,
            last: StreamId::MAX,
            consumer: None,
            delivered_max: u64::MAX,
        };
        let chunks =
            |sought: Sought| pending.chunks.iter().filter(|chunk| sought.may_be_in(chunk)).count();
        assert_eq!(chunks(all), 40);
        assert_eq!(chunks(Sought { consumer: Some(1), ..all }), 1);
        assert_eq!(chunks(Sought { delivered_max: 999, ..all }), 0);
        assert_eq!(chunks(Sought { delivered_max: 1300, ..all }), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]
        #[test]
        fn behaves_as_a_sorted_map(steps in prop::collection::vec(any_step(), 1..60)) {
            run(steps);
        }
    }

    /// The bar: 24 bytes an entry with a million pending.
    #[test]
    #[cfg_attr(miri, ignore = "a million entries take too long")]
    fn a_million_entries_take_little() {
        let mut pending = Pending::default();
        for n in 0..1_000_000u64 {
            pending.put(PendingEntry {
                id: StreamId::new(1_700_000_000_000 + n / 3, n % 3),
                consumer: (n * 7919 % 100) as u32,
                delivered: 1_700_000_000_500 + n / 3,
                count: 1 + n % 2,
            });
        }
        assert!(pending.heap_bytes() < 8_000_000, "{} bytes", pending.heap_bytes());
        // Half acknowledged in no order, the rest claimed at random times.
        let scattered = |n: u64| StreamId::new(1_700_000_000_000 + n / 3, n % 3);
        for n in (0..1_000_000u64).filter(|n| n * 2_654_435_761 % 4_294_967_296 < 2_147_483_648) {
            pending.remove(scattered(n));
        }
        for n in 0..1_000_000u64 {
            if let Some(entry) = pending.get(scattered(n)) {
                let delivered = entry.delivered + n * 2_654_435_761 % 2_592_000_000;
                pending.put(PendingEntry { delivered, count: n % 40, ..entry });
            }
        }
        let each = pending.heap_bytes() / pending.len();
        assert!(each <= 20, "{each} bytes an entry");
    }
}
