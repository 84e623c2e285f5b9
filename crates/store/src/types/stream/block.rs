//! A sealed block: a run of rows that never change again, raw or packed.
//!
//! ```text
//!  rows   0 1 2 3 4 5 6 7 8 ...            as they were sealed (rows.rs)
//!         |skipped|                        trimmed away: a count
//!                 . . x . x                deleted one by one: a bitmap, from
//!                                          the first deletion on
//!  data   0     3 4 . 6 .                  a rewritten block: dropped rows are
//!                                          no longer in the data, a second bitmap
//! ```
//!
//! Neither trimming nor deleting touches the bytes, so neither unpacks to write;
//! deleting must find which row an ID is, which unpacks the ids. A block most of
//! whose rows were deleted is rewritten without them (pack.rs); the others keep
//! their numbers, and with them their positions.

use std::sync::Arc;

use super::id::StreamId;
use super::usable;

/// What a block's rows lie in.
#[derive(Clone, Debug)]
pub(super) enum Data {
    /// Raw; not yet tried. Shared with a packing job while one runs.
    Pending(Arc<[u8]>),
    /// Raw for good: packing would not save enough.
    Raw(Arc<[u8]>),
    /// Packed. `serial` is unique to these bytes, so that an unpacked copy can
    /// be recognised.
    Packed { bytes: PackedBytes, serial: u64 },
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
    pub(super) data: Data,
    /// A bit a row: the deleted ones; and behind these bits, once the block was
    /// rewritten, as many again: those dropped from the data.
    deleted: Option<Box<[u64]>>,
    /// The bytes of the rows when raw.
    pub(super) raw_bytes: u32,
    rows: u32,
    skipped: u32,
    live: u32,
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
        Self { data, deleted: self.deleted.clone(), ..*self }
    }
}

impl Block {
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
        Self { first, last, position, data, deleted, raw_bytes, rows, skipped: 0, live }
    }

    /// The rows, trimmed and deleted ones included.
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    fn words(&self) -> usize {
        (self.rows as usize).div_ceil(64)
    }

    /// The bits of the rows that are no longer in the data.
    fn dropped(&self) -> Option<&[u64]> {
        self.deleted.as_ref()?.get(self.words()..).filter(|bits| !bits.is_empty())
    }

    /// The rows that are in the data.
    pub(super) fn kept(&self) -> u32 {
        let dropped = self.dropped().unwrap_or_default();
        self.rows - dropped.iter().map(|bits| bits.count_ones()).sum::<u32>()
    }

    /// Which row the data's row number `n` is.
    #[inline]
    pub(super) fn row_at(&self, n: u32) -> u32 {
        let Some(dropped) = self.dropped() else { return n };
        let mut left = n;
        for (word, bits) in (0..).zip(dropped) {
            let kept = bits.count_zeros();
            if left < kept {
                let mut bits = !bits;
                (0..left).for_each(|_| bits &= bits - 1);
                return word * 64 + bits.trailing_zeros();
            }
            left -= kept;
        }
        self.rows
    }

    /// How many of the rows before `row` are in the data.
    pub(super) fn kept_before(&self, row: u32) -> u32 {
        let dropped = self.dropped().unwrap_or_default();
        let gone: u32 = (0..)
            .zip(dropped)
            .map(|(word, bits)| {
                let below = row.saturating_sub(word * 64);
                if below >= 64 {
                    bits.count_ones()
                } else {
                    (bits & ((1 << below) - 1)).count_ones()
                }
            })
            .sum();
        row - gone
    }

    /// Whether more than half of the rows that are in the data, and were not
    /// trimmed away, were deleted.
    pub(super) fn is_sparse(&self) -> bool {
        let held = self.kept() - self.kept_before(self.skipped);
        self.live * 2 < held
    }

    /// The data's rows that still are entries, if that is less than half.
    pub(super) fn left_if_sparse(&self) -> Option<Vec<u32>> {
        let is_entry = |&n: &u32| self.is_live(self.row_at(n));
        self.is_sparse().then(|| (0..self.kept()).filter(is_entry).collect())
    }

    /// Puts other data in the place of the block's own, without the rows that
    /// are not among `left`, the numbers of rows in the data so far.
    pub(super) fn rewrite(
        &mut self,
        left: &[u32],
        (first, last): (StreamId, StreamId),
        data: Data,
        raw_bytes: u32,
    ) {
        let words = self.words();
        let mut bits = vec![0u64; 2 * words];
        if let Some(deleted) = &self.deleted {
            bits[..words].copy_from_slice(&deleted[..words]);
        }
        bits[words..].fill(!0);
        for &n in left {
            let row = self.row_at(n) as usize;
            bits[words + row / 64] &= !(1 << (row % 64));
        }
        // Bits beyond the last row count for nothing.
        let beyond = words * 64 - self.rows as usize;
        if beyond > 0 {
            bits[2 * words - 1] &= !0 >> beyond;
        }
        self.deleted = Some(bits.into_boxed_slice());
        (self.first, self.last) = (first, last);
        (self.data, self.raw_bytes) = (data, raw_bytes);
    }

    /// The entries left. A block without any is dropped by its owner.
    pub(super) fn live(&self) -> u32 {
        self.live
    }

    /// The position after that of the last row.
    pub(super) fn end_position(&self) -> u64 {
        self.position + u64::from(self.rows)
    }

    /// The position of the first row not trimmed away.
    pub(super) fn start_position(&self) -> u64 {
        self.position + u64::from(self.skipped)
    }

    /// The bytes allocated, apart from the block itself.
    pub(super) fn heap_bytes(&self) -> usize {
        let bits = self.deleted.as_ref().map_or(0, |bits| usable(size_of_val::<[u64]>(bits)));
        self.data.heap_bytes() + bits
    }

    /// Whether row `row` still is an entry.
    #[inline]
    pub(super) fn is_live(&self, row: u32) -> bool {
        row >= self.skipped && row < self.rows && !self.is_marked(row)
    }

    fn is_marked(&self, row: u32) -> bool {
        self.deleted.as_ref().is_some_and(|bits| bits[row as usize / 64] >> (row % 64) & 1 == 1)
    }

    /// Deletes row `row`; whether it was an entry.
    pub(super) fn delete(&mut self, row: u32) -> bool {
        if !self.is_live(row) {
            return false;
        }
        let words = (self.rows as usize).div_ceil(64);
        let bits = self.deleted.get_or_insert_with(|| vec![0; words].into_boxed_slice());
        bits[row as usize / 64] |= 1 << (row % 64);
        self.live -= 1;
        true
    }

    /// The entries among rows `start` to before `end`.
    pub(super) fn live_between(&self, start: u32, end: u32) -> u32 {
        let (start, end) = (start.max(self.skipped), end.min(self.rows));
        if start >= end {
            return 0;
        }
        if start == self.skipped && end == self.rows {
            return self.live;
        }
        match &self.deleted {
            None => end - start,
            Some(_) => (start..end).filter(|&row| !self.is_marked(row)).count() as u32,
        }
    }

    /// Trims the rows before `row`; the entries among them.
    pub(super) fn skip_to(&mut self, row: u32) -> u32 {
        let dropped = self.live_between(self.skipped, row);
        self.skipped = self.skipped.max(row.min(self.rows));
        self.live -= dropped;
        dropped
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
        let (trimmed, kept) = (self.kept_before(self.skipped), self.kept());
        size - size * u64::from(trimmed) / u64::from(kept).max(1)
    }

    /// Trims rows that take `bytes` or a little more, less than all; the entries
    /// among them.
    pub(super) fn skip_bytes(&mut self, bytes: u64) -> u32 {
        let (trimmed, kept) = (self.kept_before(self.skipped), self.kept());
        let rows = (bytes * u64::from(kept)).div_ceil((self.data.len() as u64).max(1));
        self.skip_to(self.row_at(trimmed + rows as u32))
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
