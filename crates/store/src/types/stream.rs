//! The stream type: an append-only log of entries, each an ID and a list of
//! fields, that packs itself as it grows.
//!
//! ```text
//!  Stream
//!   |-- sealed:  block  block  block  block ...     up to 640 entries each
//!   |            packed packed raw    raw           immutable; found by ID
//!   |                          ^^^^^^^^^ pending work for the sweeper
//!   |-- tail:    row row row ...                    raw, appended to
//!   `-- groups:  consumers and what is pending      none until one is made
//! ```
//!
//! * [`append`](Stream::append) writes one row into the tail and touches no
//!   codec. A full tail is sealed: its bytes become an immutable block.
//! * [`pack_some`](Stream::pack_some), or a [`PackJob`] run
//!   elsewhere, packs sealed blocks. Nothing else ever packs.
//! * [`range`](Stream::range) unpacks each packed block it needs once, into a
//!   buffer that the caller owns and reuses.
//! * [`delete`](Stream::delete) and [`trim`](Stream::trim) mark; they never
//!   rewrite a block, and trimming drops whole blocks in O(1) each.
//!
//! A pure data structure: no key, no lock, no clock, no protocol. What a client
//! sees follows Redis's `t_stream.c`; how it is kept does not.
//!
//! Costs: an entry in the tail, 3 bytes besides its values and their lengths
//! (field names are written once per block); a sealed entry, less than 0.2 byte
//! of index besides its share of the packed block; a stream of one small entry,
//! `size_of::<Stream>()` (152 bytes) and one allocation of the entry's size.

mod block;
mod dictionary;
mod form;
mod group;
mod id;
mod image;
mod in_slot;
mod index;
mod join;
mod kept;
pub(crate) mod make;
#[cfg(test)]
mod model;
pub mod ops;
mod pack;
mod pending;
mod range;
mod row;
mod rows;
mod sealed;
mod tail;
mod trim;

pub use dictionary::DictionarySamples;
pub use group::{Consumer, ConsumerId, Course, Group, Groups, Position};
pub use id::StreamId;
pub use pack::{ColumnSize, PackJob, PackOutcome, PackParams, PackProgress};
pub use pending::{Pending, PendingEntry};
pub use range::StreamScratch;
pub(crate) use row::{Streams, TAIL_MIN};
pub use rows::Fields;
pub use trim::Trim;

use sealed::Sealed;
use tail::Tail;

/// The most bytes that the fields of one entry may have together (Redis's own
/// limit).
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// What can go wrong inside a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The ID of a new entry is not greater than the last one's.
    #[error("the ID is equal or smaller than the stream's last ID")]
    NotGreater,
    /// The fields of a new entry are too many bytes.
    #[error("the entry's fields are too large to be stored")]
    TooLarge,
    /// A packed block does not unpack to what was packed.
    #[error("a packed block of the stream is damaged")]
    Damaged,
}

impl From<rows::Malformed> for StreamError {
    fn from(_: rows::Malformed) -> Self {
        Self::Damaged
    }
}

/// How large a stream's parts get. The same for all streams of a server, hence
/// handed in instead of kept in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The most rows in a block, at least 1.
    pub block_entries: u32,
    /// The most raw bytes in a block; one entry may exceed it alone.
    pub block_bytes: u32,
    /// Redis's `stream-node-max-entries`: the granularity of approximate
    /// trimming that a client sees. 0 stands for no limit there, and for
    /// `block_entries` here.
    pub node_entries: u32,
    /// Redis's `stream-node-max-bytes`, for the same; 0 for no limit (see
    /// trim.rs).
    pub node_bytes: u32,
    /// Whether sealed blocks will be packed: what trimming by size counts those
    /// as that were not yet.
    pub packs: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Shape {
    /// What a server begins with.
    pub const DEFAULT: Self = Self {
        block_entries: 640,
        block_bytes: 64 * 1024,
        node_entries: 100,
        node_bytes: 4096,
        packs: true,
    };

    fn node_rows(&self) -> u64 {
        u64::from(if self.node_entries == 0 { self.block_entries } else { self.node_entries })
    }

    /// The rows in a node, of rows that take `bytes` together, if it is their
    /// size that ends it: where a node of as many as may be would be more than
    /// twice `node_bytes`.
    fn node_rows_by_bytes(&self, rows: u64, bytes: u64) -> Option<u64> {
        let (rows, bytes_max) = (rows.max(1), u64::from(self.node_bytes));
        let ends_it =
            bytes_max > 0 && bytes.saturating_mul(self.node_rows()) > 2 * bytes_max * rows;
        ends_it.then(|| (bytes_max * rows / bytes).clamp(1, self.node_rows()))
    }
}

/// What a stream takes. Exact, and O(1) to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamMemory {
    /// All bytes allocated, as the allocator rounds them, without the `Stream`
    /// itself.
    pub allocated: usize,
    /// Of these, what it takes to find the sealed blocks.
    pub index: usize,
    /// What the rows take, or would take if nothing were packed.
    pub raw: usize,
    /// What the packed blocks would take raw.
    pub packed_from: usize,
    /// What they take packed.
    pub packed: usize,
    /// Sealed blocks.
    pub blocks: usize,
    /// Sealed blocks that are packed.
    pub packed_blocks: usize,
}

/// What one appended entry has changed: the books of a store are kept by these,
/// for to ask a stream twice what it takes costs more than to append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Of [`StreamMemory::raw`].
    pub raw: i64,
    /// Of [`StreamMemory::allocated`].
    pub allocated: i64,
    /// Of the blocks that await packing.
    pub pending: i64,
}

/// A stream. See the module's description.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    len: u64,
    tail: Tail,
    sealed: Option<Box<Sealed>>,
    groups: Option<Box<Groups>>,
}

impl Stream {
    /// An empty stream. Allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The entries in the stream.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the stream has no entries. Unlike other types, an empty stream
    /// stays.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The greatest ID ever added, or what [`Self::set_id`] made of it.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// The greatest ID that was deleted (trimming does not count).
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// The entries added in the stream's life.
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// Overwrites what `XSETID` sets. The caller has checked that `last_id` is
    /// not below the last entry's.
    pub fn set_id(
        &mut self,
        last_id: StreamId,
        entries_added: Option<u64>,
        max_deleted_id: Option<StreamId>,
    ) {
        self.last_id = last_id;
        self.entries_added = entries_added.unwrap_or(self.entries_added);
        self.max_deleted_id = max_deleted_id.unwrap_or(self.max_deleted_id);
    }

    /// A copy that shares no memory with this stream but its dictionary.
    pub fn duplicate(&self) -> Self {
        self.clone()
    }

    /// Adds an entry, and says by how much that has changed what
    /// [`memory`](Self::memory) and [`pending_work`](Self::pending_work) tell.
    /// `id` must be greater than [`Self::last_id`]; the entry's fields may be at
    /// most 1 GiB together. On an error nothing has changed.
    ///
    /// Writes one row; amortised O(bytes).
    pub fn append<'f>(
        &mut self,
        id: StreamId,
        fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone,
        shape: &Shape,
    ) -> Result<Growth, StreamError> {
        if id <= self.last_id {
            return Err(StreamError::NotGreater);
        }
        check_size(fields.clone())?;
        let bytes_max = shape.block_bytes as usize;
        let full = self.tail.rows() >= shape.block_entries;
        let appended = if full { None } else { self.tail.append(id, fields.clone(), bytes_max) };
        let growth = match appended {
            Some(growth) => growth,
            None => self.append_behind_seal(id, fields, bytes_max),
        };
        self.last_id = id;
        self.entries_added = self.entries_added.saturating_add(1);
        self.len += 1;
        Ok(growth)
    }

    /// Seals the tail and appends the first row of the next.
    #[cold]
    fn append_behind_seal<'f>(
        &mut self,
        id: StreamId,
        fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone,
        bytes_max: usize,
    ) -> Growth {
        let (before, pending) = (self.memory(), self.pending_work() as i64);
        self.seal_tail();
        let begun = self.tail.append(id, fields, bytes_max);
        debug_assert!(begun.is_some(), "a block's first row always fits");
        let after = self.memory();
        Growth {
            raw: after.raw as i64 - before.raw as i64,
            allocated: after.allocated as i64 - before.allocated as i64,
            pending: self.pending_work() as i64 - pending,
        }
    }

    /// Seals what the tail holds, whatever its size, so that it can be packed:
    /// for a stream that has gone cold. Whether there was anything.
    pub fn seal_tail(&mut self) -> bool {
        let block = self.tail.seal();
        let sealed = block.is_some();
        if let Some(block) = block {
            self.sealed.get_or_insert_default().push(block);
        }
        sealed
    }

    /// The raw bytes in the tail, for deciding whether to seal it.
    pub fn tail_bytes(&self) -> usize {
        self.tail.raw_bytes()
    }

    /// Deletes the entry of `id`; whether there was one. Unpacks the block that
    /// it would be in when that is packed; writes one bit.
    pub fn delete(
        &mut self,
        id: StreamId,
        shape: &Shape,
        scratch: &mut StreamScratch,
    ) -> Result<bool, StreamError> {
        let in_tail = self.tail.rows() > 0 && id >= self.tail.first();
        let deleted = if in_tail {
            self.tail.delete(id).is_some()
        } else {
            self.sealed.as_mut().map_or(Ok(false), |sealed| sealed.delete(id, scratch))?
        };
        if deleted {
            self.len -= 1;
            self.max_deleted_id = self.max_deleted_id.max(id);
            self.close_dead_node(shape.node_rows());
        }
        Ok(deleted)
    }

    /// What the stream takes. O(1).
    pub fn memory(&self) -> StreamMemory {
        let sealed = self.sealed.as_ref().map_or_else(StreamMemory::default, |s| s.memory());
        let groups = self.groups.as_ref().map_or(0, |groups| groups.heap_bytes());
        StreamMemory {
            allocated: sealed.allocated + self.tail.heap_bytes() + groups,
            raw: sealed.raw + self.tail.raw_bytes(),
            ..sealed
        }
    }

    /// The bytes of all entries, packed where they are packed. O(1).
    pub fn size(&self) -> u64 {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.size());
        sealed + self.tail.raw_bytes() as u64
    }

    /// What those bytes would be if nothing were packed. Entries trimmed away
    /// are not counted, as they are not there. O(1).
    pub fn raw_size(&self) -> u64 {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.raw_size());
        sealed + self.tail.raw_bytes() as u64
    }

    /// Called after entries were removed: Redis frees a node whose entries are
    /// all gone, so that the next entry begins another.
    fn close_dead_node(&mut self, node_rows: u64) {
        if self.len == 0 {
            if let Some(sealed) = &mut self.sealed {
                sealed.clear();
            }
            self.tail.set_next_position(0);
            return;
        }
        let next = self.tail.next_position();
        let node_start = next - next % node_rows;
        if node_start == next || self.live_between(node_start, next) > 0 {
            return;
        }
        if self.tail.rows() > 0 {
            self.tail.forget_deleted_from(node_start);
            return;
        }
        // What sealed blocks hold of the node keeps its positions.
        let sealed_end = self.sealed.as_ref().map_or(0, |sealed| sealed.end_position());
        let begins = if sealed_end > node_start { node_start + node_rows } else { node_start };
        self.tail.set_next_position(begins);
    }

    /// Checks that the counts are those of the rows: what debug builds do whenever
    /// something was installed. O(blocks), nothing where they are many.
    fn assert_counted(&self) {
        let sealed = self.sealed.as_ref().map_or(Some(0), |sealed| sealed.count_anew());
        if let Some(live) = sealed {
            let rows = live + u64::from(self.tail.live());
            assert_eq!(self.len, rows, "the length of a stream is not its entries'");
        }
    }

    /// The entries at positions from `start` to before `end`.
    fn live_between(&self, start: u64, end: u64) -> u64 {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.live_between(start, end));
        sealed + self.tail.live_between(start, end)
    }
}

/// Whether fields are few enough bytes for one entry.
fn check_size<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Result<(), StreamError> {
    let bytes: usize = fields.map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ENTRY_BYTES_MAX { Err(StreamError::TooLarge) } else { Ok(()) }
}

/// The bytes that the allocator hands out for a buffer of `bytes`, which has
/// none while it is empty.
fn usable(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { crate::memory::usable(bytes) }
}
