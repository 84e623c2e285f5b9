//! A sealed block: a run of rows that never change again, raw or packed.
//!
//! ```text
//!  rows   0 1 2 3 4 5 6 7 8 ...            as they were appended: a row's
//!                                          position is the block's and its number
//!  kept   . . . 3 4 . 6 . 8 ...            a rewritten block: the rows that are
//!                                          still in the data (kept.rs)
//!  data         0 1   2   3 ...            the rows in the data (rows.rs),
//!                                          counted anew
//!              |skipped|                   trimmed away: a count of these
//!                       .  x . x           deleted one by one: a bitmap of these,
//!                                          from the first deletion on
//! ```
//!
//! Neither trimming nor deleting touches the bytes, so neither unpacks to write;
//! deleting must find which row an ID is, which unpacks the ids. A block most of
//! whose rows were deleted is rewritten without them, and its neighbours with it
//! as far as they fit into one block (pack.rs). What is left keeps its positions:
//! a block rewritten from several spans all rows that these had, and those between.

use std::sync::Arc;

use super::id::StreamId;
use super::kept::Kept;
use super::usable;
use crate::pack::identity::Identity;

/// What a block's rows lie in.
#[derive(Clone, Debug)]
pub(super) enum Data {
    /// Raw; not yet tried. Shared with a packing job while one runs.
    Pending(Arc<[u8]>),
    /// Raw for good: packing would not save enough.
    Raw(Arc<[u8]>),
    /// Packed, with this dictionary or with none, which is 0.
    Packed { bytes: PackedBytes, dictionary: u32 },
}

/// The bytes of a packed block (see pack.rs for their layout), in two
/// allocations where one would waste too much.
///
/// The allocator's sizes are up to a quarter apart: a packed block in one piece
/// would waste a tenth of itself on average. Cut where a size ends, only the
/// rest is rounded up, which makes it a fiftieth.
#[derive(Clone, Debug)]
pub(super) struct PackedBytes {
    head: Box<[u8]>,
    rest: Box<[u8]>,
}

/// What a second allocation must save to be worth its being there.
const SPLIT_SAVING_BYTES: usize = 128;

impl PackedBytes {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let cut = size_below(bytes.len());
        let whole = usable(bytes.len());
        let split = usable(cut) + usable(bytes.len() - cut);
        let cut = if split + SPLIT_SAVING_BYTES <= whole { cut } else { bytes.len() };
        let (head, rest) = bytes.split_at(cut);
        Self { head: head.into(), rest: rest.into() }
    }

    pub(super) fn len(&self) -> usize {
        self.head.len() + self.rest.len()
    }

    /// The first byte, which tells the format.
    pub(super) fn first(&self) -> Option<u8> {
        self.head.first().copied()
    }

    /// The bytes in one piece; `room` is for putting them together.
    pub(super) fn joined<'a>(&'a self, room: &'a mut Vec<u8>) -> &'a [u8] {
        if self.rest.is_empty() {
            return &self.head;
        }
        room.clear();
        room.extend_from_slice(&self.head);
        room.extend_from_slice(&self.rest);
        room
    }

    fn heap_bytes(&self) -> usize {
        usable(self.head.len()) + usable(self.rest.len())
    }
}

/// The greatest size of the allocator that is not above `bytes`: four to each
/// doubling. Where it is not one, no harm is done but to memory.
fn size_below(bytes: usize) -> usize {
    let words = bytes / 8;
    let step = if words < 8 { 1 } else { 1 << (words.ilog2() - 2) };
    words / step * step * 8
}

/// Heap bytes in front of the bytes of an `Arc<[u8]>`: its two counts.
const ARC_BYTES: usize = 2 * size_of::<usize>();

impl Data {
    /// The id of the dictionary that it is packed with, 0 for none.
    pub(super) fn dictionary(&self) -> u32 {
        match self {
            Self::Pending(_) | Self::Raw(_) => 0,
            Self::Packed { dictionary, .. } => *dictionary,
        }
    }

    /// The bytes of the rows, packed or raw.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Pending(bytes) | Self::Raw(bytes) => bytes.len(),
            Self::Packed { bytes, .. } => bytes.len(),
        }
    }

    /// The bytes allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Pending(bytes) | Self::Raw(bytes) => usable(bytes.len() + ARC_BYTES),
            Self::Packed { bytes, .. } => bytes.heap_bytes(),
        }
    }
}

/// A sealed block. See the module's description.
#[derive(Debug)]
pub(super) struct Block {
    /// The IDs of the first and the last row, whatever became of them.
    pub(super) first: StreamId,
    pub(super) last: StreamId,
    /// The position of the first row (see tail.rs).
    pub(super) position: u64,
    data: Data,
    /// Stands for this block while its rows lie in this data: jobs and unpacked
    /// copies know the block by it.
    identity: Identity,
    marks: Option<Box<Marks>>,
    /// The bytes of the rows when raw.
    pub(super) raw_bytes: u32,
    rows: u32,
    /// Of the data's rows, as all that follows.
    skipped: u32,
    live: u32,
}

/// What a block has that is not as it was sealed.
#[derive(Clone, Debug, Default)]
struct Marks {
    /// A bit for each of the data's rows: the deleted ones. Empty until there is
    /// one.
    deleted: Box<[u64]>,
    /// The rows that are in the data, once the block was rewritten.
    kept: Option<Kept>,
}

impl Marks {
    fn boxed(deleted: Box<[u64]>, kept: Option<Kept>) -> Option<Box<Self>> {
        let any = !deleted.is_empty() || kept.is_some();
        any.then(|| Box::new(Self { deleted, kept }))
    }

    fn heap_bytes(&self) -> usize {
        let kept = self.kept.as_ref().map_or(0, Kept::heap_bytes);
        usable(size_of::<Self>()) + usable(size_of_val::<[u64]>(&self.deleted)) + kept
    }
}

impl Clone for Block {
    /// A copy that shares no memory with the original, so that both can be
    /// accounted for.
    fn clone(&self) -> Self {
        let data = match &self.data {
            Data::Pending(bytes) => Data::Pending(Arc::from(&bytes[..])),
            Data::Raw(bytes) => Data::Raw(Arc::from(&bytes[..])),
            packed @ Data::Packed { .. } => packed.clone(),
        };
        Self { data, identity: self.identity.clone(), marks: self.marks.clone(), ..*self }
    }
}

/// What of a block a file has besides its data.
pub(super) struct Lies {
    pub(super) rows: u32,
    pub(super) skipped: u32,
    /// The rows that are in the data, if not all are.
    pub(super) kept: Option<Vec<u32>>,
    pub(super) deleted: Vec<u64>,
}

impl Block {
    pub(super) fn lies(&self) -> Lies {
        let kept = self.kept_rows().map(|kept| (0..kept.count()).map(|n| kept.row(n)).collect());
        let deleted = self.marks.as_ref().map_or_else(Vec::new, |marks| marks.deleted.to_vec());
        Lies { rows: self.rows, skipped: self.skipped, kept, deleted }
    }

    /// A block that lies so; `None` if no entry is left in it.
    pub(super) fn lying(
        (first, last): (StreamId, StreamId),
        position: u64,
        data: Data,
        raw_bytes: u32,
        lies: Lies,
    ) -> Option<Self> {
        let Lies { rows, skipped, kept, deleted } = lies;
        let kept = kept.map(|kept| Kept::new(&kept, rows));
        let marks = Marks::boxed(deleted.into_boxed_slice(), kept);
        let identity = Identity::new();
        let mut block = Self {
            first,
            last,
            position,
            data,
            identity,
            marks,
            raw_bytes,
            rows,
            skipped,
            live: 0,
        };
        block.live = block.live_rows().len() as u32;
        (block.live > 0).then_some(block)
    }

    pub(super) fn new(
        first: StreamId,
        last: StreamId,
        position: u64,
        rows: u32,
        live: u32,
        bytes: Arc<[u8]>,
        deleted: Option<Box<[u64]>>,
    ) -> Self {
        debug_assert!(0 < live && live <= rows);
        let raw_bytes = bytes.len() as u32;
        let data = Data::Pending(bytes);
        let marks = Marks::boxed(deleted.unwrap_or_default(), None);
        let identity = Identity::new();
        Self { first, last, position, data, identity, marks, raw_bytes, rows, skipped: 0, live }
    }

    /// What the rows lie in.
    pub(super) fn data(&self) -> &Data {
        &self.data
    }

    /// What this block is known by until its data changes.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Puts the same rows into other data.
    pub(super) fn set_data(&mut self, data: Data) {
        self.data = data;
        self.identity = Identity::new();
    }

    /// The rows, trimmed, deleted and dropped ones included.
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    /// One block in the place of neighbours: `blocks`, and of each the data's rows
    /// that stay, no entry missing. `data` are these, in order; `ids` are the first
    /// and the last one's.
    pub(super) fn rewritten(
        blocks: &[(&Block, Vec<u32>)],
        (first, last): (StreamId, StreamId),
        data: Data,
        raw_bytes: u32,
    ) -> Self {
        let position = blocks.first().map_or(0, |(block, _)| block.position);
        let end = blocks.last().map_or(position, |(block, _)| block.end_position());
        let rows = (end - position) as u32;
        let stay =
            || blocks.iter().flat_map(|(block, stay)| stay.iter().map(move |&n| (*block, n)));
        let numbers: Vec<u32> =
            stay().map(|(block, n)| (block.position - position) as u32 + block.row_at(n)).collect();
        let kept = (numbers.len() < rows as usize).then(|| Kept::new(&numbers, rows));
        let mut deleted = Vec::new();
        for (at, _) in stay().enumerate().filter(|(_, (block, n))| block.is_marked(*n)) {
            deleted.resize(numbers.len().div_ceil(64), 0);
            deleted[at / 64] |= 1 << (at % 64);
        }
        let skipped = stay().filter(|(block, n)| *n < block.skipped).count() as u32;
        let live = blocks.iter().map(|(block, _)| block.live).sum();
        let marks = Marks::boxed(deleted.into_boxed_slice(), kept);
        let identity = Identity::new();
        Self { first, last, position, data, identity, marks, raw_bytes, rows, skipped, live }
    }

    /// The rows that are in the data.
    pub(super) fn kept(&self) -> u32 {
        self.kept_rows().map_or(self.rows, Kept::count)
    }

    fn kept_rows(&self) -> Option<&Kept> {
        self.marks.as_ref()?.kept.as_ref()
    }

    /// Which row the data's row number `n` is.
    fn row_at(&self, n: u32) -> u32 {
        self.kept_rows().map_or(n, |kept| kept.row(n))
    }

    /// How many rows at positions before `position` are in the data.
    pub(super) fn kept_before(&self, position: u64) -> u32 {
        let row = position.saturating_sub(self.position).min(u64::from(self.rows)) as u32;
        self.kept_rows().map_or(row, |kept| kept.before(row))
    }

    /// Whether more than half of the rows that are in the data, and were not
    /// trimmed away, were deleted.
    pub(super) fn is_sparse(&self) -> bool {
        self.live * 2 < self.kept() - self.skipped
    }

    /// The data's rows that still are entries.
    pub(super) fn live_rows(&self) -> Vec<u32> {
        (self.skipped..self.kept()).filter(|&n| !self.is_marked(n)).collect()
    }

    /// What the entries left take raw, by the share that they are of the rows.
    pub(super) fn live_raw_bytes(&self) -> u64 {
        u64::from(self.raw_bytes) * u64::from(self.live) / u64::from(self.kept()).max(1)
    }

    /// The entries left. A block without any is dropped by its owner.
    pub(super) fn live(&self) -> u32 {
        self.live
    }

    /// The position after that of the last row.
    pub(super) fn end_position(&self) -> u64 {
        self.position + u64::from(self.rows)
    }

    /// The position of the first row of the data that was not trimmed away.
    pub(super) fn start_position(&self) -> u64 {
        self.position + u64::from(self.row_at(self.skipped))
    }

    /// The bytes allocated, apart from the block itself.
    pub(super) fn heap_bytes(&self) -> usize {
        self.data.heap_bytes() + self.marks.as_ref().map_or(0, |marks| marks.heap_bytes())
    }

    /// Whether the data's row `n` still is an entry.
    #[inline]
    pub(super) fn is_live(&self, n: u32) -> bool {
        n >= self.skipped && n < self.kept() && !self.is_marked(n)
    }

    #[inline]
    fn is_marked(&self, n: u32) -> bool {
        let Some(marks) = &self.marks else { return false };
        marks.deleted.get(n as usize / 64).is_some_and(|bits| bits >> (n % 64) & 1 == 1)
    }

    /// Deletes the data's row `n`; whether it was an entry.
    pub(super) fn delete(&mut self, n: u32) -> bool {
        if !self.is_live(n) {
            return false;
        }
        let words = (self.kept() as usize).div_ceil(64);
        let Marks { deleted, .. } = &mut **self.marks.get_or_insert_default();
        if deleted.is_empty() {
            *deleted = vec![0; words].into_boxed_slice();
        }
        deleted[n as usize / 64] |= 1 << (n % 64);
        self.live -= 1;
        true
    }

    /// The entries at positions from `start` to before `end`.
    pub(super) fn live_between(&self, start: u64, end: u64) -> u32 {
        self.live_among(self.kept_before(start), self.kept_before(end))
    }

    /// The entries among the data's rows `start` to before `end`.
    fn live_among(&self, start: u32, end: u32) -> u32 {
        let (start, end) = (start.max(self.skipped), end.min(self.kept()));
        if start >= end {
            return 0;
        }
        if start == self.skipped && end == self.kept() {
            return self.live;
        }
        (start..end).filter(|&n| !self.is_marked(n)).count() as u32
    }

    /// Trims the data's rows before `n`; the entries among them.
    pub(super) fn skip_to(&mut self, n: u32) -> u32 {
        let dropped = self.live_among(self.skipped, n);
        self.skipped = self.skipped.max(n.min(self.kept()));
        self.live -= dropped;
        dropped
    }

    /// Trims the rows at positions before `position`; the entries among them.
    pub(super) fn skip_to_position(&mut self, position: u64) -> u32 {
        self.skip_to(self.kept_before(position))
    }

    /// Whether packing was not tried on it yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.data, Data::Pending(_))
    }

    /// What the rows that were not trimmed away take: their share of the data.
    pub(super) fn size_left(&self) -> u64 {
        self.share_left(self.data.len() as u64)
    }

    /// What they take raw.
    pub(super) fn raw_left(&self) -> u64 {
        self.share_left(u64::from(self.raw_bytes))
    }

    /// What falls to the rows that were not trimmed away, of a size of all rows
    /// that are in the data.
    fn share_left(&self, size: u64) -> u64 {
        size - size * u64::from(self.skipped) / u64::from(self.kept()).max(1)
    }

    /// Trims rows that take `bytes` or a little more, less than all; the entries
    /// among them.
    pub(super) fn skip_bytes(&mut self, bytes: u64) -> u32 {
        let kept = u64::from(self.kept());
        let rows = (bytes * kept).div_ceil((self.data.len() as u64).max(1));
        self.skip_to(self.skipped + rows as u32)
    }

    /// Trims the first `count` entries, fewer than there are.
    pub(super) fn skip_live(&mut self, count: u32) {
        debug_assert!(count < self.live);
        let mut left = count;
        let mut row = self.skipped;
        while left > 0 {
            left -= u32::from(!self.is_marked(row));
            row += 1;
        }
        self.skipped = row;
        self.live -= count;
    }
}
