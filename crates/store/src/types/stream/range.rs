//! Reading a stream: ranges in both directions, single IDs, the ends.
//!
//! A packed block is unpacked into the caller's [`StreamScratch`], once per
//! call at most, and not at all when it is the block that was unpacked there
//! last: a scan in small steps and a run of deletions in one block each unpack
//! it once.

use std::ops::ControlFlow;

use snug_codec::Workspace;

use super::block::{Block, Data};
use super::id::StreamId;
use super::pack;
use super::rows::{Fields, Malformed, Names, Row, Rows};
use super::sealed::Sealed;
use super::{Stream, StreamError};

/// Memory for reading streams: what a block unpacks to. One serves any number
/// of streams; it grows to the size of a block and stays.
#[derive(Debug, Default)]
pub struct StreamScratch {
    unpacked: Unpacked,
    /// Rows of one block or stretch, for walking it backwards.
    rows: Vec<(u32, Row)>,
}

impl StreamScratch {
    /// An empty scratch. Allocates nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        let workspace = self.unpacked.workspace.as_ref().map_or(0, |ws| ws.memory_bytes());
        let Unpacked { bytes, joined, .. } = &self.unpacked;
        let rows = self.rows.capacity() * size_of::<(u32, Row)>();
        bytes.capacity() + joined.capacity() + rows + workspace
    }
}

/// The packed block that was unpacked last.
#[derive(Debug, Default)]
struct Unpacked {
    bytes: Vec<u8>,
    /// The block's serial; `None` while `bytes` are nobody's.
    serial: Option<u64>,
    /// Where a packed form in two parts is put together.
    joined: Vec<u8>,
    /// Made on first use.
    workspace: Option<Box<Workspace>>,
}

/// The rows of a sealed block, raw.
pub(super) struct OpenBlock<'a> {
    bytes: &'a [u8],
    names: Names<'a>,
    first: StreamId,
    /// The bytes come from a codec, so rows are checked before they are used.
    unpacked: bool,
}

impl<'a> OpenBlock<'a> {
    fn new(bytes: &'a [u8], first: StreamId, unpacked: bool) -> Result<Self, Malformed> {
        Ok(Self { bytes, names: Names::parse(bytes)?, first, unpacked })
    }

    /// Names and rows.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// All rows, trimmed and deleted ones included.
    fn rows(&self) -> impl Iterator<Item = Result<(u32, Row), Malformed>> {
        let rows = Rows::new(self.bytes, self.names.end(), self.first);
        (0..).zip(rows).map(|(index, row)| Ok((index, row?)))
    }

    /// The row of `id`.
    pub(super) fn row_of(&self, id: StreamId) -> Result<Option<u32>, Malformed> {
        Ok(self.first_from(id)?.filter(|(_, row)| row.id == id).map(|(index, _)| index))
    }

    /// The first row at or after `id`.
    pub(super) fn first_from(&self, id: StreamId) -> Result<Option<(u32, Row)>, Malformed> {
        self.rows().find(|row| row.as_ref().map_or(true, |(_, row)| row.id >= id)).transpose()
    }

    /// The ID of row `index`.
    pub(super) fn id_at(&self, index: u32) -> Result<Option<StreamId>, Malformed> {
        Ok(self.rows().nth(index as usize).transpose()?.map(|(_, row)| row.id))
    }

    fn fields(&self, row: Row) -> Result<Fields<'a>, Malformed> {
        let fields = Fields::new(self.bytes, self.names, row)?;
        if self.unpacked {
            fields.check()?;
        }
        Ok(fields)
    }
}

/// What a visitor says to go on or stop.
type Flow = ControlFlow<()>;

impl Sealed {
    /// The rows of `block`, unpacked into `unpacked` if need be.
    pub(super) fn open<'a>(
        &self,
        block: &'a Block,
        scratch: &'a mut StreamScratch,
    ) -> Result<OpenBlock<'a>, StreamError> {
        self.open_into(block, &mut scratch.unpacked)
    }

    fn open_into<'a>(
        &self,
        block: &'a Block,
        into: &'a mut Unpacked,
    ) -> Result<OpenBlock<'a>, StreamError> {
        match &block.data {
            Data::Pending(bytes) | Data::Raw(bytes) => {
                Ok(OpenBlock::new(bytes, block.first, false)?)
            }
            Data::Packed { bytes, serial } => {
                if into.serial != Some(*serial) {
                    into.serial = None;
                    let make = || Box::new(pack::unpacking_workspace());
                    let ws = into.workspace.get_or_insert_with(make);
                    let raw_bytes = block.raw_bytes as usize;
                    let packed = bytes.joined(&mut into.joined);
                    pack::unpack(packed, raw_bytes, self.family(), ws, &mut into.bytes)?;
                    into.serial = Some(*serial);
                }
                Ok(OpenBlock::new(&into.bytes, block.first, true)?)
            }
        }
    }

    fn visit_block(
        &self,
        block: &Block,
        bounds: Bounds,
        scratch: &mut StreamScratch,
        visit: &mut impl FnMut(StreamId, Fields<'_>) -> Flow,
    ) -> Result<Flow, StreamError> {
        let StreamScratch { unpacked, rows } = scratch;
        let open = self.open_into(block, unpacked)?;
        if bounds.reverse {
            rows.clear();
            for row in open.rows() {
                let (index, row) = row?;
                if row.id > bounds.end {
                    break;
                }
                if row.id >= bounds.start && block.is_live(index) {
                    rows.push((index, row));
                }
            }
            for &(_, row) in rows.iter().rev() {
                if visit(row.id, open.fields(row)?).is_break() {
                    return Ok(Flow::Break(()));
                }
            }
            return Ok(Flow::Continue(()));
        }
        for row in open.rows() {
            let (index, row) = row?;
            if row.id > bounds.end {
                return Ok(Flow::Break(()));
            }
            if row.id >= bounds.start
                && block.is_live(index)
                && visit(row.id, open.fields(row)?).is_break()
            {
                return Ok(Flow::Break(()));
            }
        }
        Ok(Flow::Continue(()))
    }

    fn visit(
        &self,
        bounds: Bounds,
        scratch: &mut StreamScratch,
        visit: &mut impl FnMut(StreamId, Fields<'_>) -> Flow,
    ) -> Result<Flow, StreamError> {
        let index = self.index();
        let mut at = if bounds.reverse {
            index.before(index.seek(|block| block.first <= bounds.end))
        } else {
            Some(index.seek(|block| block.last < bounds.start))
        };
        while let Some(here) = at {
            let Some(block) = index.get(here) else { break };
            if block.first > bounds.end || block.last < bounds.start {
                break;
            }
            if self.visit_block(block, bounds, scratch, visit)?.is_break() {
                return Ok(Flow::Break(()));
            }
            at = if bounds.reverse { index.before(here) } else { Some(index.after(here)) };
        }
        Ok(Flow::Continue(()))
    }
}

#[derive(Clone, Copy)]
struct Bounds {
    start: StreamId,
    end: StreamId,
    reverse: bool,
}

impl Stream {
    /// Shows `visit` the entries from `start` to `end`, both included, in order
    /// or in reverse order, until it breaks.
    ///
    /// O(log blocks) to begin and one unpacked block at a time after that. When
    /// a packed block turns out to be damaged, what was shown before stands and
    /// the error is returned.
    pub fn range(
        &self,
        start: StreamId,
        end: StreamId,
        reverse: bool,
        scratch: &mut StreamScratch,
        mut visit: impl FnMut(StreamId, Fields<'_>) -> ControlFlow<()>,
    ) -> Result<(), StreamError> {
        if start > end {
            return Ok(());
        }
        let bounds = Bounds { start, end, reverse };
        if reverse && self.visit_tail(bounds, scratch, &mut visit).is_break() {
            return Ok(());
        }
        if let Some(sealed) = &self.sealed
            && sealed.visit(bounds, scratch, &mut visit)?.is_break()
        {
            return Ok(());
        }
        if !reverse {
            let _ = self.visit_tail(bounds, scratch, &mut visit);
        }
        Ok(())
    }

    fn visit_tail(
        &self,
        bounds: Bounds,
        scratch: &mut StreamScratch,
        visit: &mut impl FnMut(StreamId, Fields<'_>) -> Flow,
    ) -> Flow {
        const OWN: &str = "the tail's rows were written by append";
        let tail = &self.tail;
        if tail.rows() == 0 || tail.first() > bounds.end || tail.last() < bounds.start {
            return Flow::Continue(());
        }
        let names = tail.names();
        let fields = |row| Fields::new(tail.bytes(), names, row).expect(OWN);
        let wanted = |row: &Row| row.id >= bounds.start && row.id <= bounds.end && !row.deleted;
        if !bounds.reverse {
            let rows = tail.walk_from(bounds.start).map(|row| row.expect(OWN));
            for row in rows.take_while(|row| row.id <= bounds.end).filter(wanted) {
                visit(row.id, fields(row))?;
            }
            return Flow::Continue(());
        }
        for (rows, stretch_end) in tail.stretches_back() {
            scratch.rows.clear();
            let rows = rows.map(|row| row.expect(OWN));
            let stretch = rows.take_while(|row| row.offset < stretch_end);
            let mut before_start = false;
            for row in stretch {
                before_start |= row.id < bounds.start;
                if wanted(&row) {
                    scratch.rows.push((0, row));
                }
            }
            for &(_, row) in scratch.rows.iter().rev() {
                visit(row.id, fields(row))?;
            }
            if before_start {
                break;
            }
        }
        Flow::Continue(())
    }

    /// The ID of the first entry.
    pub fn first_id(&self, scratch: &mut StreamScratch) -> Result<Option<StreamId>, StreamError> {
        self.edge(false, scratch)
    }

    /// The ID of the last entry, which [`Stream::last_id`] need not be.
    pub fn last_live_id(
        &self,
        scratch: &mut StreamScratch,
    ) -> Result<Option<StreamId>, StreamError> {
        self.edge(true, scratch)
    }

    /// The first or the last entry's ID, without unpacking when that is the
    /// first or the last row of a block.
    fn edge(
        &self,
        last: bool,
        scratch: &mut StreamScratch,
    ) -> Result<Option<StreamId>, StreamError> {
        if !(last && self.tail.live() > 0)
            && let Some(sealed) = &self.sealed
        {
            let block = if last { sealed.index().back() } else { sealed.index().front() };
            if let Some(block) = block {
                let (row, id) =
                    if last { (block.rows() - 1, block.last) } else { (0, block.first) };
                if block.is_live(row) {
                    return Ok(Some(id));
                }
            }
        }
        let mut found = None;
        self.range(StreamId::MIN, StreamId::MAX, last, scratch, |id, _| {
            found = Some(id);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}
