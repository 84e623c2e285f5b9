//! The end of a stream: the block that entries are appended to.
//!
//! ```text
//!  bytes  [ names | trimmed rows | row | row | row ...      ] spare
//!                                 ^ start                    ^ len
//!  marks          every MARK_BYTES or so: where a row begins, its ID, its position
//! ```
//!
//! Appending writes one row: no codec, no allocation but the buffer's growth by
//! half of itself. Deleting flips a flag inside the row. Trimming moves `start`
//! and, once the trimmed rows outweigh what is left, moves the rest down, so a
//! stream held at a few entries stays small. Finding an ID is a binary search
//! over the marks and a walk of at most [`MARK_BYTES`] and one row.
//!
//! A *position* counts every row that was ever appended, deleted ones included.
//! Redis's nodes are runs of positions; approximate trimming needs them.

use std::sync::Arc;

use super::block::Block;
use super::id::StreamId;
use super::rows::{self, Names, NewRow, Row, Rows};
use super::{Growth, usable};

/// The distance between marks.
const MARK_BYTES: usize = 2048;
/// Trimmed rows below this are not worth moving the others for.
const SLACK_BYTES: usize = 512;
/// An empty tail keeps a buffer up to this size.
const KEPT_BYTES: usize = 1024;

/// Why a buffer of our own making always reads back.
const OWN_ROWS: &str = "the tail's rows were written by append";

/// A row that a search can start from.
#[derive(Clone, Copy, Debug)]
struct Mark {
    id: StreamId,
    position: u64,
    offset: u32,
}

#[derive(Clone, Debug, Default)]
struct Marks {
    list: Vec<Mark>,
}

/// The block that is appended to. See the module's description.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    /// The IDs of the first and the last row, deleted or not; of no meaning
    /// while there are no rows.
    first: StreamId,
    last: StreamId,
    /// The position of the first row, or of the next one to come.
    position: u64,
    start: u32,
    /// Where the names end.
    names_end: u32,
    rows: u32,
    live: u32,
    marks: Option<Box<Marks>>,
}

/// What a tail has allocated: the capacity for rows, and for marks if any.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Room {
    bytes: usize,
    marks: Option<usize>,
}

impl Room {
    fn heap_bytes(self) -> usize {
        let marks = |capacity| usable(size_of::<Marks>()) + usable(capacity * size_of::<Mark>());
        usable(self.bytes) + self.marks.map_or(0, marks)
    }
}

impl Tail {
    /// The rows held, deleted ones included.
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    /// The entries held.
    pub(super) fn live(&self) -> u32 {
        self.live
    }

    /// The ID of the last row; of no meaning while there are no rows.
    pub(super) fn last(&self) -> StreamId {
        self.last
    }

    /// The ID of the first row; of no meaning while there are no rows.
    pub(super) fn first(&self) -> StreamId {
        self.first
    }

    /// The position of the first row.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The position that the next row gets.
    pub(super) fn next_position(&self) -> u64 {
        self.position + u64::from(self.rows)
    }

    /// Sets the position of the next row. Only while there are no rows.
    pub(super) fn set_next_position(&mut self, position: u64) {
        debug_assert_eq!(self.rows, 0);
        self.position = position;
    }

    /// Names and rows; trimmed rows lie before [`Self::walk`]'s first.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of names and rows, without trimmed rows.
    pub(super) fn raw_bytes(&self) -> usize {
        if self.rows == 0 {
            return 0;
        }
        self.bytes.len() - self.start as usize + self.names_end as usize
    }

    /// The bytes allocated for rows and marks.
    pub(super) fn heap_bytes(&self) -> usize {
        self.room().heap_bytes()
    }

    fn room(&self) -> Room {
        let marks = self.marks.as_ref().map(|marks| marks.list.capacity());
        Room { bytes: self.bytes.capacity(), marks }
    }

    /// The names that rows share. Only while there are rows.
    pub(super) fn names(&self) -> Names<'_> {
        Names::parse(&self.bytes).expect(OWN_ROWS)
    }

    /// Appends a row of `id` if it fits a block of `bytes_max`, and says by how
    /// much that has grown the tail; a block's first row always fits. The ID is
    /// greater than that of every row before.
    #[inline]
    pub(super) fn append<'f>(
        &mut self,
        id: StreamId,
        fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone,
        bytes_max: usize,
    ) -> Option<Growth> {
        let (raw, room) = (self.raw_bytes(), self.room());
        let row = if self.rows == 0 {
            let row = NewRow::measure(None, id, id, fields.clone());
            self.bytes.clear();
            self.reserve(rows::names_bytes(fields.clone()) + row.bytes());
            rows::put_names(&mut self.bytes, fields.clone());
            self.names_end = self.bytes.len() as u32;
            self.start = self.names_end;
            self.first = id;
            row
        } else {
            let row = NewRow::measure(Some(self.names()), self.last, id, fields.clone());
            if self.bytes.len() + row.bytes() > bytes_max {
                return None;
            }
            self.reserve(row.bytes());
            self.mark(id);
            row
        };
        row.put(&mut self.bytes, fields);
        self.last = id;
        self.rows += 1;
        self.live += 1;
        let (raw, grown) = (self.raw_bytes() - raw, self.room());
        let allocated = match grown == room {
            true => 0,
            false => grown.heap_bytes() as i64 - room.heap_bytes() as i64,
        };
        Some(Growth { raw: raw as i64, allocated, pending: 0 })
    }

    /// Makes room for `more` bytes: as much as needed, and at least half as
    /// much again as there was, rounded up to what the allocator gives anyway.
    fn reserve(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        let capacity = self.bytes.capacity();
        if needed > capacity {
            let target = usable(needed.max(capacity + capacity / 2));
            self.bytes.reserve_exact(target - self.bytes.len());
        }
    }

    /// Notes where the row of `id`, about to be appended, begins.
    fn mark(&mut self, id: StreamId) {
        let last = self.marks.as_ref().and_then(|m| m.list.last()).map_or(0, |m| m.offset as usize);
        if self.bytes.len() - last >= MARK_BYTES {
            let mark = Mark { id, position: self.next_position(), offset: self.bytes.len() as u32 };
            self.marks.get_or_insert_default().list.push(mark);
        }
    }

    fn marks(&self) -> &[Mark] {
        self.marks.as_ref().map_or(&[], |marks| &marks.list)
    }

    /// All rows, from the first.
    pub(super) fn walk(&self) -> Rows<'_> {
        Rows::new(&self.bytes, self.start as usize, self.first)
    }

    /// The rows from the last mark that is known to be at or before what is
    /// sought, and the position of the first of them.
    fn walk_near(&self, at_or_before: impl Fn(&Mark) -> bool) -> (Rows<'_>, u64) {
        let marks = self.marks();
        match marks.partition_point(at_or_before).checked_sub(1) {
            None => (self.walk(), self.position),
            Some(index) => {
                let mark = marks[index];
                (Rows::new(&self.bytes, mark.offset as usize, mark.id), mark.position)
            }
        }
    }

    /// The rows from one that is at or shortly before `id`.
    pub(super) fn walk_from(&self, id: StreamId) -> Rows<'_> {
        self.walk_near(|mark| mark.id <= id).0
    }

    /// The tail's stretches between marks, last first: the rows from one mark
    /// on, and where the stretch ends.
    pub(super) fn stretches_back(&self) -> impl Iterator<Item = (Rows<'_>, usize)> {
        let mut end = self.bytes.len();
        let marked = self.marks().iter().rev();
        let starts = marked.map(|mark| (mark.offset as usize, mark.id));
        starts.chain([(self.start as usize, self.first)]).map(move |(offset, id)| {
            (Rows::new(&self.bytes, offset, id), std::mem::replace(&mut end, offset))
        })
    }

    /// Marks the row of `id` deleted; its position, or `None` when there is no
    /// such entry.
    pub(super) fn delete(&mut self, id: StreamId) -> Option<u64> {
        if self.rows == 0 || id < self.first || id > self.last {
            return None;
        }
        let (walk, position) = self.walk_near(|mark| mark.id <= id);
        let (row, position) = walk
            .map(|row| row.expect(OWN_ROWS))
            .zip(position..)
            .take_while(|(row, _)| row.id <= id)
            .find(|(row, _)| row.id == id && !row.deleted)?;
        rows::mark_deleted(&mut self.bytes, row.offset);
        self.live -= 1;
        if position == self.position {
            self.drop_while(|_, _| false);
        }
        Some(position)
    }

    /// The entries at positions from `start` to before `end`.
    pub(super) fn live_between(&self, start: u64, end: u64) -> u64 {
        if start <= self.position && end >= self.next_position() {
            return u64::from(self.live);
        }
        let (walk, position) = self.walk_near(|mark| mark.position <= start);
        walk.map(|row| row.expect(OWN_ROWS))
            .zip(position..)
            .skip_while(|&(_, position)| position < start)
            .take_while(|&(_, position)| position < end)
            .filter(|(row, _)| !row.deleted)
            .count() as u64
    }

    /// The ID of the row at `position`, deleted or not.
    pub(super) fn id_at(&self, position: u64) -> Option<StreamId> {
        let (walk, start) = self.walk_near(|mark| mark.position <= position);
        walk.map(|row| row.expect(OWN_ROWS).id)
            .zip(start..)
            .find(|&(_, at)| at == position)
            .map(|(id, _)| id)
    }

    /// Drops rows from the front for as long as they are deleted or
    /// `drop(row, position)` says so; the entries (not the rows) dropped. So the
    /// first row is never a deleted one. Amortised O(1) a row.
    pub(super) fn drop_while(&mut self, mut drop: impl FnMut(&Row, u64) -> bool) -> u64 {
        let (mut dropped_rows, mut dropped) = (0, 0);
        let mut stop = None;
        for row in self.walk() {
            let row = row.expect(OWN_ROWS);
            if !row.deleted && !drop(&row, self.position + u64::from(dropped_rows)) {
                stop = Some(row);
                break;
            }
            dropped_rows += 1;
            dropped += u32::from(!row.deleted);
        }
        match stop {
            None => {
                dropped = self.live;
                self.clear();
            }
            Some(row) => {
                self.start = row.offset as u32;
                self.first = row.id;
                self.position += u64::from(dropped_rows);
                self.rows -= dropped_rows;
                self.live -= dropped;
                if let Some(marks) = &mut self.marks {
                    marks.list.retain(|mark| mark.offset as usize > row.offset);
                }
                self.compact();
            }
        }
        u64::from(dropped)
    }

    /// Moves the rows down once those trimmed before them outweigh them.
    fn compact(&mut self) {
        let names_end = self.names_end as usize;
        let trimmed = self.start as usize - names_end;
        let left = self.bytes.len() - self.start as usize;
        if trimmed < SLACK_BYTES || trimmed < left {
            return;
        }
        self.bytes.drain(names_end..self.start as usize);
        self.start = self.names_end;
        if self.bytes.capacity() / 4 > self.bytes.len().max(KEPT_BYTES) {
            self.bytes.shrink_to(usable(self.bytes.len() * 2));
        }
        if let Some(marks) = &mut self.marks {
            for mark in &mut marks.list {
                mark.offset -= trimmed as u32;
            }
        }
    }

    /// Forgets the rows from `position` on, all of them deleted and none the
    /// first, as if they had never been appended.
    pub(super) fn forget_deleted_from(&mut self, position: u64) {
        debug_assert_eq!(self.live_between(position, u64::MAX), 0);
        let (walk, start) = self.walk_near(|mark| mark.position < position);
        let before = walk
            .map(|row| row.expect(OWN_ROWS))
            .zip(start..)
            .find(|&(_, at)| at + 1 == position)
            .map(|(row, _)| row);
        if let Some(row) = before {
            self.bytes.truncate(row.end);
            self.last = row.id;
            self.rows = (position - self.position) as u32;
            if let Some(marks) = &mut self.marks {
                marks.list.retain(|mark| mark.position < position);
            }
        }
    }

    /// Forgets all rows; the next one gets the position it would have had.
    fn clear(&mut self) {
        self.position = self.next_position();
        self.rows = 0;
        self.live = 0;
        self.start = 0;
        self.marks = None;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Turns the rows into a sealed block and starts over. `None` when there
    /// are no entries.
    pub(super) fn seal(&mut self) -> Option<Block> {
        if self.live == 0 {
            self.clear();
            return None;
        }
        let deleted = (self.live < self.rows).then(|| self.lift_deleted());
        let names_end = self.names_end as usize;
        let bytes: Arc<[u8]> = if self.start as usize == names_end {
            Arc::from(self.bytes.as_slice())
        } else {
            self.bytes.drain(names_end..self.start as usize);
            Arc::from(self.bytes.as_slice())
        };
        let block =
            Block::new(self.first, self.last, self.position, self.rows, self.live, bytes, deleted);
        self.clear();
        Some(block)
    }

    /// Moves the rows' deletion flags into a bitmap.
    fn lift_deleted(&mut self) -> Box<[u64]> {
        let mut bits = vec![0u64; (self.rows as usize).div_ceil(64)];
        let deleted: Vec<_> = (self.walk().map(|row| row.expect(OWN_ROWS)).enumerate())
            .filter(|(_, row)| row.deleted)
            .map(|(index, row)| (index, row.offset))
            .collect();
        for (index, offset) in deleted {
            bits[index / 64] |= 1 << (index % 64);
            rows::clear_deleted(&mut self.bytes, offset);
        }
        bits.into_boxed_slice()
    }
}
