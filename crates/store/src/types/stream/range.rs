//! Reading a stream: ranges in both directions, single IDs, the ends.
//!
//! A packed block is unpacked into the caller's [`StreamScratch`], which keeps
//! what was unpacked last, up to some megabytes:
//!
//! ```text
//!  a few rows         the ids, and of the columns what those rows need
//!  the rows beside    all of the block, which stays; also for any rows on the
//!                     ninth touch
//!  XDEL, XTRIM        the ids alone
//! ```
//!
//! So a single entry costs tens of microseconds, and a scan in small steps or a
//! run of deletions in one block unpacks it once. Many single entries are read by
//! [`Stream::visit_each`], which opens each block once.

use std::ops::{ControlFlow, Range};

use snug_codec::columns::{self, RowRoom};
use snug_codec::{DictionarySource, Workspace};

use super::block::{Block, Data, PackedBytes};
use super::form::{self, Form};
use super::id::StreamId;
use super::rows::{Fields, Malformed, Names, Row, Rows};
use super::sealed::Sealed;
use super::{Stream, StreamError};
use crate::pack::identity::Seen;

/// The bytes of unpacked blocks that a scratch keeps.
const CACHE_BYTES: usize = 4 << 20;
/// The blocks that it keeps, however small they are.
const CACHE_BLOCKS: usize = 64;
/// The rows that are unpacked at first where more may be wanted.
const FIRST_ROWS: usize = 32;

/// A block is unpacked in part so many times, and then whole: by then that has taken
/// about as long as all of it would have.
const PARTS_MAX: u32 = 8;
/// So many entries of one block are read as if each were the only one.
const FEW_ENTRIES: usize = 3;

/// Memory for reading streams: what blocks unpack to. One serves any number of
/// streams; it grows to a few megabytes and stays until it is released.
#[derive(Debug, Default)]
pub struct StreamScratch {
    cache: Cache,
    /// Rows of one block or stretch, for walking it backwards.
    rows: Vec<(u32, Row)>,
    room: RowRoom,
}

impl StreamScratch {
    /// An empty scratch. Allocates nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Frees all that it holds, unless a packed block was read since this was last
    /// called.
    pub fn release_unused(&mut self) {
        let unused = self.cache.clock == self.cache.clock_before;
        self.cache.clock_before = self.cache.clock;
        if unused {
            *self = Self::new();
        }
    }

    /// The bytes allocated, at most.
    pub fn heap_bytes(&self) -> usize {
        let workspace = self.cache.workspace.as_ref().map_or(0, |ws| ws.memory_bytes());
        let rows = self.rows.capacity() * size_of::<(u32, Row)>();
        self.cache.bytes + self.cache.joined.capacity() + rows + workspace
    }
}

/// Packed blocks that were unpacked lately.
#[derive(Debug, Default)]
struct Cache {
    blocks: Vec<Unpacked>,
    /// Counts uses; and how many there were when it was last asked for room.
    clock: u64,
    clock_before: u64,
    /// What the blocks take together.
    bytes: usize,
    /// Where a packed form in two parts is put together.
    joined: Vec<u8>,
    /// Made on first use.
    workspace: Option<Box<Workspace>>,
}

/// One packed block, unpacked as far as it was needed.
#[derive(Debug)]
struct Unpacked {
    block: Seen,
    used: u64,
    /// How often it was unpacked before, since it is here.
    before: u32,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Ids(Vec<(u64, u64)>),
    Columns(Box<columns::Rows>),
    /// Rows as rows.rs writes them.
    Rows(Vec<u8>),
}

/// What of a block is asked for.
#[derive(Clone, Copy)]
pub(super) enum Want {
    Ids,
    /// The first rows within bounds.
    Some(Bounds),
    All,
}

impl Body {
    fn bytes(&self) -> usize {
        match self {
            Self::Ids(ids) => ids.capacity() * size_of::<(u64, u64)>(),
            Self::Columns(rows) => rows.memory_bytes(),
            Self::Rows(bytes) => bytes.capacity(),
        }
    }

    fn has(&self, want: Want) -> bool {
        match (self, want) {
            (Self::Rows(_), _) | (_, Want::Ids) => true,
            (Self::Ids(_), _) => false,
            (Self::Columns(rows), Want::All) => rows.range() == (0..rows.ids().len()),
            (Self::Columns(rows), Want::Some(bounds)) => {
                let wanted = bounds.first_rows(rows.ids());
                wanted.is_empty() || {
                    let next = if bounds.reverse { wanted.end - 1 } else { wanted.start };
                    rows.range().contains(&next)
                }
            }
        }
    }
}

impl Body {
    /// Whether the rows wanted begin where those unpacked end, or end where they begin: a
    /// scan in steps. Rows that only lie near are no sign of one: in a block of some
    /// fifty documents all rows do.
    fn is_beside(&self, want: Want) -> bool {
        let (Self::Columns(rows), Want::Some(bounds)) = (self, want) else { return false };
        let (wanted, had) = (bounds.first_rows(rows.ids()), rows.range());
        wanted.start <= had.end && had.start <= wanted.end
    }
}

/// What is needed to open a block, apart from the block.
struct Packed<'a> {
    bytes: &'a [u8],
    block: &'a Block,
    dictionaries: &'a dyn DictionarySource,
}

impl Packed<'_> {
    /// Unpacks what is wanted.
    fn unpack(&self, ws: &mut Workspace, want: Want) -> Result<Body, StreamError> {
        let Self { bytes, block, dictionaries } = self;
        match form::form(bytes)? {
            Form::Rows(packed) => {
                let mut rows = Vec::new();
                let raw_bytes = block.raw_bytes as usize;
                form::unpack_rows(packed, raw_bytes, *dictionaries, ws, &mut rows)?;
                Ok(Body::Rows(rows))
            }
            Form::Columns(packed) => {
                let raw_len_max = form::columns_raw_max(block.raw_bytes as usize, block.kept());
                let reader = columns::Reader::open(ws, packed, *dictionaries, raw_len_max)
                    .map_err(|_| StreamError::Damaged)?;
                self.check(reader.ids())?;
                let range = match want {
                    Want::Ids => return Ok(Body::Ids(reader.into_ids())),
                    Want::Some(bounds) => bounds.first_rows(reader.ids()),
                    Want::All => 0..reader.rows(),
                };
                let rows = reader.unpack(range).map_err(|_| StreamError::Damaged)?;
                Ok(Body::Columns(Box::new(rows)))
            }
        }
    }

    /// Checks that the ids are as many as the block has, ascend, and lie within
    /// its own.
    fn check(&self, ids: &[(u64, u64)]) -> Result<(), StreamError> {
        let Block { first, last, .. } = self.block;
        let inside = ids.first() == Some(&(first.ms, first.seq))
            && ids.last() == Some(&(last.ms, last.seq))
            && ids.len() == self.block.kept() as usize;
        if inside && ids.is_sorted_by(|a, b| a < b) { Ok(()) } else { Err(StreamError::Damaged) }
    }
}

impl Cache {
    /// A packed block, unpacked at least as far as wanted.
    fn get(
        &mut self,
        block: &Block,
        bytes: &PackedBytes,
        dictionaries: &dyn DictionarySource,
        mut want: Want,
    ) -> Result<&Body, StreamError> {
        self.clock += 1;
        let mut before = 0;
        let found = self.blocks.iter().position(|unpacked| block.identity().is(unpacked.block));
        if let Some(at) = found {
            if self.blocks[at].body.has(want) {
                self.blocks[at].used = self.clock;
                return Ok(&self.blocks[at].body);
            }
            let stale = self.blocks.swap_remove(at);
            self.bytes -= stale.body.bytes();
            before = stale.before + 1;
            if before == PARTS_MAX || stale.body.is_beside(want) {
                want = Want::All;
            }
        }
        let ws = self.workspace.get_or_insert_with(|| Box::new(Workspace::to_unpack()));
        let bytes = bytes.joined(&mut self.joined);
        let body = Packed { bytes, block, dictionaries }.unpack(ws, want)?;
        self.bytes += body.bytes();
        while !self.blocks.is_empty()
            && (self.bytes > CACHE_BYTES || self.blocks.len() == CACHE_BLOCKS)
        {
            self.drop_oldest();
        }
        self.blocks.push(Unpacked {
            block: block.identity().seen(),
            used: self.clock,
            before,
            body,
        });
        self.blocks.last().map(|unpacked| &unpacked.body).ok_or(StreamError::Damaged)
    }

    fn drop_oldest(&mut self) {
        let oldest = (0..self.blocks.len()).min_by_key(|&at| self.blocks[at].used);
        if let Some(at) = oldest {
            self.bytes -= self.blocks.swap_remove(at).body.bytes();
        }
    }
}

/// The rows of a sealed block. Those dropped from its data are not among them
/// and not counted.
pub(super) enum OpenBlock<'a> {
    Ids(&'a [(u64, u64)]),
    Columns(&'a columns::Rows),
    Rows(OpenRows<'a>),
}

/// Rows as rows.rs writes them.
pub(super) struct OpenRows<'a> {
    bytes: &'a [u8],
    names: Names<'a>,
    first: StreamId,
    /// The bytes come from a codec, so rows are checked before they are used.
    unpacked: bool,
}

impl<'a> OpenRows<'a> {
    pub(super) fn new(bytes: &'a [u8], first: StreamId, unpacked: bool) -> Result<Self, Malformed> {
        Ok(Self { bytes, names: Names::parse(bytes)?, first, unpacked })
    }

    /// All rows, trimmed and deleted ones included.
    pub(super) fn rows(&self) -> impl Iterator<Item = Result<(u32, Row), Malformed>> + use<'a> {
        let rows = Rows::new(self.bytes, self.names.end(), self.first);
        (0..).zip(rows).map(|(index, row)| Ok((index, row?)))
    }

    pub(super) fn fields(&self, row: Row) -> Result<Fields<'a>, Malformed> {
        let fields = Fields::new(self.bytes, self.names, row)?;
        if self.unpacked {
            fields.check()?;
        }
        Ok(fields)
    }
}

impl OpenBlock<'_> {
    fn ids(&self) -> Option<&[(u64, u64)]> {
        match self {
            Self::Ids(ids) => Some(ids),
            Self::Columns(rows) => Some(rows.ids()),
            Self::Rows(_) => None,
        }
    }

    /// The row of `id`.
    pub(super) fn row_of(&self, id: StreamId) -> Result<Option<u32>, Malformed> {
        let Some(row) = self.first_from(id)? else { return Ok(None) };
        Ok((self.id_at(row)? == Some(id)).then_some(row))
    }

    /// The first row at or after `id`.
    pub(super) fn first_from(&self, id: StreamId) -> Result<Option<u32>, Malformed> {
        if let Some(ids) = self.ids() {
            let row = ids.partition_point(|&at| at < (id.ms, id.seq));
            return Ok((row < ids.len()).then_some(row as u32));
        }
        let Self::Rows(open) = self else { return Ok(None) };
        let found = open.rows().find(|row| row.as_ref().map_or(true, |(_, row)| row.id >= id));
        Ok(found.transpose()?.map(|(index, _)| index))
    }

    /// The ID of row `index`.
    pub(super) fn id_at(&self, index: u32) -> Result<Option<StreamId>, Malformed> {
        if let Some(ids) = self.ids() {
            return Ok(ids.get(index as usize).map(|&(ms, seq)| StreamId { ms, seq }));
        }
        let Self::Rows(open) = self else { return Ok(None) };
        Ok(open.rows().nth(index as usize).transpose()?.map(|(_, row)| row.id))
    }
}

/// What a visitor says to go on or stop.
type Flow = ControlFlow<()>;

impl Sealed {
    /// The rows of `block`, as far as wanted, unpacked if need be.
    pub(super) fn open<'a>(
        &self,
        block: &'a Block,
        scratch: &'a mut StreamScratch,
        want: Want,
    ) -> Result<OpenBlock<'a>, StreamError> {
        self.open_with(block, &mut scratch.cache, want)
    }

    fn open_with<'a>(
        &self,
        block: &'a Block,
        cache: &'a mut Cache,
        want: Want,
    ) -> Result<OpenBlock<'a>, StreamError> {
        Ok(match block.data() {
            Data::Pending(bytes) | Data::Raw(bytes) => {
                OpenBlock::Rows(OpenRows::new(bytes, block.first, false)?)
            }
            Data::Packed { bytes, .. } => match cache.get(block, bytes, self.family(), want)? {
                Body::Ids(ids) => OpenBlock::Ids(ids),
                Body::Columns(rows) => OpenBlock::Columns(rows),
                Body::Rows(bytes) => OpenBlock::Rows(OpenRows::new(bytes, block.first, true)?),
            },
        })
    }

    fn visit_block(
        &self,
        block: &Block,
        bounds: Bounds,
        scratch: &mut StreamScratch,
        visit: &mut impl FnMut(StreamId, Fields<'_>) -> Flow,
    ) -> Result<Flow, StreamError> {
        let StreamScratch { cache, rows, room } = scratch;
        let mut want = Want::Some(bounds);
        let mut left = None;
        loop {
            match self.open_with(block, cache, want)? {
                OpenBlock::Rows(open) => return visit_rows(block, bounds, &open, rows, visit),
                OpenBlock::Ids(_) => return Err(StreamError::Damaged),
                OpenBlock::Columns(open) => {
                    let left = left.get_or_insert_with(|| bounds.rows(open.ids()));
                    if visit_columns(block, bounds, open, left, room, visit)?.is_break() {
                        return Ok(Flow::Break(()));
                    }
                    if Range::is_empty(left) {
                        return Ok(Flow::Continue(()));
                    }
                    want = Want::All;
                }
            }
        }
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

impl Sealed {
    /// Shows `visit` the entries of `ids`, or that there is none, up to the last
    /// that a block may have; those left over.
    fn visit_each<'i>(
        &self,
        mut ids: &'i [StreamId],
        scratch: &mut StreamScratch,
        visit: &mut impl FnMut(StreamId, Option<Fields<'_>>),
    ) -> Result<&'i [StreamId], StreamError> {
        while let Some(&id) = ids.first() {
            let Some(block) = self.index().get(self.index().seek(|block| block.last < id)) else {
                break;
            };
            let (before, rest) = ids.split_at(ids.partition_point(|&id| id < block.first));
            before.iter().for_each(|&id| visit(id, None));
            let (here, rest) = rest.split_at(rest.partition_point(|&id| id <= block.last));
            self.visit_each_of(block, here, scratch, visit)?;
            ids = rest;
        }
        Ok(ids)
    }

    /// Shows `visit` the entries of `ids`, all of them within the bounds of `block`.
    fn visit_each_of(
        &self,
        block: &Block,
        ids: &[StreamId],
        scratch: &mut StreamScratch,
        visit: &mut impl FnMut(StreamId, Option<Fields<'_>>),
    ) -> Result<(), StreamError> {
        let few = ids.len() <= FEW_ENTRIES;
        let at_once = if few { 1 } else { ids.len() };
        let StreamScratch { cache, room, .. } = scratch;
        for ids in ids.chunks(at_once) {
            let (start, end) = (ids[0], ids[0]);
            let one = Want::Some(Bounds { start, end, reverse: false });
            match self.open_with(block, cache, if few { one } else { Want::All })? {
                OpenBlock::Ids(_) => return Err(StreamError::Damaged),
                OpenBlock::Columns(open) => {
                    let mut rest = 0..open.ids().len();
                    for &id in ids {
                        let sought = (id.ms, id.seq);
                        rest.start += open.ids()[rest.clone()].partition_point(|&at| at < sought);
                        let n = rest.start;
                        if open.ids().get(n) != Some(&sought) || !block.is_live(n as u32) {
                            visit(id, None);
                            continue;
                        }
                        let row = open.row(n, room).map_err(|_| StreamError::Damaged)?;
                        visit(id, Some(Fields::of_columns(row)));
                    }
                }
                OpenBlock::Rows(open) => {
                    let fields = |row| open.fields(row);
                    let live = |n, row: &Row| block.is_live(n) && !row.deleted;
                    visit_each_row(ids, open.rows(), live, fields, visit)?;
                }
            }
        }
        Ok(())
    }
}

/// Shows `visit` the rows of `ids`, of rows in their order.
fn visit_each_row<'a>(
    ids: &[StreamId],
    rows: impl Iterator<Item = Result<(u32, Row), Malformed>>,
    is_live: impl Fn(u32, &Row) -> bool,
    fields: impl Fn(Row) -> Result<Fields<'a>, Malformed>,
    visit: &mut impl FnMut(StreamId, Option<Fields<'_>>),
) -> Result<(), Malformed> {
    let mut ids = ids.iter().copied().peekable();
    for row in rows {
        let (n, row) = row?;
        while let Some(id) = ids.next_if(|&id| id < row.id) {
            visit(id, None);
        }
        if let Some(id) = ids.next_if_eq(&row.id) {
            let live = is_live(n, &row);
            visit(id, if live { Some(fields(row)?) } else { None });
        }
        if ids.peek().is_none() {
            break;
        }
    }
    ids.for_each(|id| visit(id, None));
    Ok(())
}

/// Shows the rows of `left` that are unpacked, and takes them off it.
fn visit_columns(
    block: &Block,
    bounds: Bounds,
    open: &columns::Rows,
    left: &mut Range<usize>,
    room: &mut RowRoom,
    visit: &mut impl FnMut(StreamId, Fields<'_>) -> Flow,
) -> Result<Flow, StreamError> {
    while !Range::is_empty(left) {
        let n = if bounds.reverse { left.end - 1 } else { left.start };
        if !open.range().contains(&n) {
            break;
        }
        if bounds.reverse {
            left.end -= 1;
        } else {
            left.start += 1;
        }
        if !block.is_live(n as u32) {
            continue;
        }
        let row = open.row(n, room).map_err(|_| StreamError::Damaged)?;
        let id = StreamId { ms: row.id_ms, seq: row.id_seq };
        if visit(id, Fields::of_columns(row)).is_break() {
            return Ok(Flow::Break(()));
        }
    }
    Ok(Flow::Continue(()))
}

/// Shows the rows within bounds.
fn visit_rows(
    block: &Block,
    bounds: Bounds,
    open: &OpenRows<'_>,
    rows: &mut Vec<(u32, Row)>,
    visit: &mut impl FnMut(StreamId, Fields<'_>) -> Flow,
) -> Result<Flow, StreamError> {
    rows.clear();
    for row in open.rows() {
        let (index, row) = row?;
        if row.id > bounds.end {
            break;
        }
        if row.id < bounds.start || !block.is_live(index) {
            continue;
        }
        if bounds.reverse {
            rows.push((index, row));
        } else if visit(row.id, open.fields(row)?).is_break() {
            return Ok(Flow::Break(()));
        }
    }
    for &(_, row) in rows.iter().rev() {
        if visit(row.id, open.fields(row)?).is_break() {
            return Ok(Flow::Break(()));
        }
    }
    Ok(Flow::Continue(()))
}

#[derive(Clone, Copy)]
pub(super) struct Bounds {
    start: StreamId,
    end: StreamId,
    reverse: bool,
}

impl Bounds {
    /// The rows within, of those with these ids.
    fn rows(&self, ids: &[(u64, u64)]) -> Range<usize> {
        let start = ids.partition_point(|&id| id < (self.start.ms, self.start.seq));
        let end = ids.partition_point(|&id| id <= (self.end.ms, self.end.seq));
        start..end.max(start)
    }

    /// The first few of them, in the order in which they are read.
    fn first_rows(&self, ids: &[(u64, u64)]) -> Range<usize> {
        let rows = self.rows(ids);
        if self.reverse {
            rows.end.saturating_sub(FIRST_ROWS).max(rows.start)..rows.end
        } else {
            rows.start..rows.end.min(rows.start + FIRST_ROWS)
        }
    }
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

    /// Shows `visit` each of `ids`, which ascend, with the fields of its entry, or
    /// with none where there is no such entry.
    ///
    /// O(log blocks) for each block that has some of them, which is unpacked once.
    /// When a packed block turns out to be damaged, what was shown before stands
    /// and the error is returned.
    pub fn visit_each(
        &self,
        ids: &[StreamId],
        scratch: &mut StreamScratch,
        mut visit: impl FnMut(StreamId, Option<Fields<'_>>),
    ) -> Result<(), StreamError> {
        debug_assert!(ids.is_sorted_by(|a, b| a < b));
        let ids = match &self.sealed {
            Some(sealed) => sealed.visit_each(ids, scratch, &mut visit)?,
            None => ids,
        };
        let (Some(&first), true) = (ids.first(), self.tail.rows() > 0) else {
            ids.iter().for_each(|&id| visit(id, None));
            return Ok(());
        };
        let names = self.tail.names();
        let rows = (0..).zip(self.tail.walk_from(first)).map(|(n, row)| Ok((n, row?)));
        let fields = |row| Fields::new(self.tail.bytes(), names, row);
        Ok(visit_each_row(ids, rows, |_, row| !row.deleted, fields, &mut visit)?)
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
                    if last { (block.kept() - 1, block.last) } else { (0, block.first) };
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

#[cfg(test)]
mod tests {
    use super::super::Shape;
    use super::super::pack::tests::packed;
    use super::*;

    /// Whether reading these entries one by one unpacks all of their block, the first.
    fn unpacks_all(stream: &Stream, ids: &[u64]) -> bool {
        let mut scratch = StreamScratch::new();
        for &ms in ids {
            let (id, mut seen) = (StreamId::new(ms, 0), Vec::new());
            let visit = |id: StreamId, _: Fields<'_>| {
                seen.push(id);
                ControlFlow::Continue(())
            };
            stream.range(id, id, false, &mut scratch, visit).unwrap();
            assert_eq!(seen, [id]);
        }
        let [Unpacked { body: Body::Columns(rows), .. }] = &scratch.cache.blocks[..] else {
            panic!("one block of columns");
        };
        rows.range().len() == rows.ids().len()
    }

    #[test]
    fn entries_that_only_lie_near_each_other_do_not_unpack_their_block() {
        let stream = packed(&Shape::default(), |ms| format!("value {ms}").into_bytes());
        assert!(!unpacks_all(&stream, &[10]));
        assert!(!unpacks_all(&stream, &[10, 12, 8, 20, 30]));
        for steps in [[10, 11], [11, 10]] {
            assert!(unpacks_all(&stream, &steps), "{steps:?}");
        }
        let apart: Vec<u64> = (1..=u64::from(PARTS_MAX) + 1).map(|n| n * 2).collect();
        assert!(!unpacks_all(&stream, &apart[1..]));
        assert!(unpacks_all(&stream, &apart));
    }
}
