//! Sparse blocks and their neighbours, packed anew as one.
//!
//! ```text
//!  before      [x.xx] [.xxx] [xxx.] [x.xx] [....]     . an entry, x a deleted one
//!                                     ^ more than half were deleted
//!  after       [. .  .  .]                 [....]     one block, the same positions
//! ```
//!
//! Its neighbours are joined with it as far as all fit into one block, so that what
//! is left of many blocks takes what as many entries in fresh ones would. One that
//! has many times the entries of those joined so far is left alone: so a block that
//! small ones come to one by one is not packed anew for each of them.

use std::ops::Range;

use snug_codec::Workspace;
use snug_codec::stream::{Pace, Pieces};

use super::block::Block;
use super::dictionary::Family;
use super::form::Packer;
use super::id::StreamId;
use super::index::At;
use super::pack::{PackJob, Part};
use super::rows::{self, Fields, Names, NewRow};
use super::sealed::Sealed;
use super::{Shape, StreamError};

/// The most blocks that one job joins, and what they may take together: they are
/// copied while the stream is held.
const JOINED_BLOCKS_MAX: usize = 64;
const JOINED_BYTES_MAX: usize = 128 * 1024;

/// A neighbour is joined if it has no more than so many times the entries of
/// those joined so far.
const JOINED_RATIO: u64 = 4;

/// Rows of one or more blocks, as rows.rs writes them.
#[derive(Debug, Default)]
pub(super) struct RowsLeft {
    pub(super) raw: Vec<u8>,
    /// The first and the last one's.
    pub(super) ids: Option<(StreamId, StreamId)>,
}

impl RowsLeft {
    fn push(&mut self, id: StreamId, fields: Fields<'_>) {
        let (first, last) = *self.ids.get_or_insert_with(|| {
            rows::put_names(&mut self.raw, fields.clone());
            (id, id)
        });
        let row = Names::parse(&self.raw)
            .map(|names| NewRow::measure(Some(names), last, id, fields.clone()));
        if let Ok(row) = row {
            row.put(&mut self.raw, fields);
        }
        self.ids = Some((first, id));
    }
}

impl Part {
    /// Appends the rows left to `rows`.
    fn put_rows_left(
        &self,
        family: &Family,
        ws: &mut Workspace,
        rows: &mut RowsLeft,
    ) -> Result<(), StreamError> {
        let mut wanted = self.left.iter().flatten().peekable();
        self.each_row(family, ws, |n, id, fields| {
            if wanted.next_if_eq(&&n).is_some() {
                rows.push(id, fields);
            }
        })?;
        if wanted.peek().is_none() { Ok(()) } else { Err(StreamError::Damaged) }
    }
}

impl Packer<'_> {
    /// The rows left of all parts; none where a part cannot be read, or several
    /// come to more than `bytes_max`.
    pub(super) async fn rows_left<P: Pace>(
        &mut self,
        parts: &[Part],
        bytes_max: usize,
        pieces: &mut Pieces<'_, P>,
    ) -> Option<RowsLeft> {
        let mut rows = RowsLeft::default();
        for part in parts {
            part.put_rows_left(self.family, self.ws, &mut rows).ok()?;
            pieces.stepped().await;
        }
        let fits = parts.len() == 1 || rows.raw.len() <= bytes_max;
        (fits && rows.ids.is_some()).then_some(rows)
    }
}

impl Sealed {
    /// Joins the neighbours of the block at `at` to a job that takes rows out of
    /// that block, as far as they fit.
    pub(super) fn join_neighbours(&self, job: &mut PackJob, at: At, shape: &Shape) {
        let Some(block) = self.index().get(at) else { return };
        if job.parts.iter().any(|part| part.left.is_none()) {
            return;
        }
        let mut joined = Joined::new(block, shape);
        let join = |block: &Block| Part::new(block, Some(block.live_rows()));
        let before = std::iter::successors(self.index().before(at), |&at| self.index().before(at));
        let before = before.map_while(|at| self.index().get(at));
        job.parts.extend(before.take_while(|block| joined.takes(block)).map(join));
        job.about = job.parts.len() - 1;
        job.parts.reverse();
        let after = std::iter::successors(Some(at), |&at| Some(self.index().after(at))).skip(1);
        let after = after.map_while(|at| self.index().get(at));
        job.parts.extend(after.take_while(|block| joined.takes(block)).map(join));
        job.block_bytes = shape.block_bytes as usize;
    }
}

/// What is joined so far.
struct Joined<'a> {
    shape: &'a Shape,
    /// The rows in a node of the block that the others are joined to, where it is
    /// their size that ends a node (trim.rs).
    node_rows: Option<u64>,
    blocks: usize,
    /// Where the first begins and the last ends.
    positions: Range<u64>,
    entries: u64,
    raw_bytes: u64,
    data_bytes: usize,
}

impl<'a> Joined<'a> {
    fn new(block: &Block, shape: &'a Shape) -> Self {
        Self {
            shape,
            node_rows: node_rows(block, shape),
            blocks: 1,
            positions: block.position..block.end_position(),
            entries: block.live().into(),
            raw_bytes: block.live_raw_bytes(),
            data_bytes: block.data().len(),
        }
    }

    /// Joins `block`, a neighbour, if it fits; whether it did.
    fn takes(&mut self, block: &Block) -> bool {
        let Self { shape, .. } = *self;
        let entries = u64::from(block.live());
        let with = Self {
            blocks: self.blocks + 1,
            positions: self.positions.start.min(block.position)
                ..self.positions.end.max(block.end_position()),
            entries: self.entries + entries,
            raw_bytes: self.raw_bytes + block.live_raw_bytes(),
            data_bytes: self.data_bytes + block.data().len(),
            ..*self
        };
        // Of a block of rows much smaller or larger nodes would end elsewhere.
        let is_alike = match (self.node_rows, node_rows(block, shape)) {
            (None, None) => true,
            (Some(a), Some(b)) => a <= 2 * b && b <= 2 * a,
            (None, Some(_)) | (Some(_), None) => false,
        };
        let fits = !block.is_waiting()
            && is_alike
            && entries <= JOINED_RATIO * self.entries
            && with.blocks <= JOINED_BLOCKS_MAX
            && u32::try_from(with.positions.end - with.positions.start).is_ok()
            && with.entries <= u64::from(shape.block_entries)
            && with.raw_bytes <= u64::from(shape.block_bytes)
            && with.data_bytes <= JOINED_BYTES_MAX;
        if fits {
            *self = with;
        }
        fits
    }
}

fn node_rows(block: &Block, shape: &Shape) -> Option<u64> {
    shape.node_rows_by_bytes(block.kept().into(), block.raw_bytes.into())
}

#[cfg(test)]
mod tests {
    use super::super::pack::PackParams;
    use super::super::pack::tests::noise;
    use super::super::{Stream, StreamScratch};
    use super::*;
    use snug_codec::WorkspaceConfig;
    use std::ops::ControlFlow;

    /// A stream of entries that are alike, of those of `1..=20_000` that `has` says.
    fn stream_of(has: impl Fn(u64) -> bool) -> Stream {
        let mut stream = Stream::new();
        for ms in (1..=20_000u64).filter(|&ms| has(ms)) {
            append(&mut stream, ms);
        }
        stream
    }

    fn append(stream: &mut Stream, ms: u64) {
        let values = [format!("sensor-{}", ms % 7), format!("{:08x}", noise(ms) as u32)];
        let fields =
            [(b"sensor".as_slice(), values[0].as_bytes()), (b"value", values[1].as_bytes())];
        stream.append(StreamId::new(ms, 0), fields.into_iter(), &Shape::default()).unwrap();
    }

    fn pack_all(stream: &mut Stream) {
        let mut ws = Workspace::new(WorkspaceConfig::default());
        while stream.pending_work() > 0 {
            stream.pack_some(&mut ws, &PackParams::default(), &Shape::default(), usize::MAX);
        }
    }

    /// Checks that a stream of the entries of `stays` that others were deleted from
    /// takes at most `percent` of one that never had others.
    fn assert_small(mut stream: Stream, percent: usize, stays: impl Fn(u64) -> bool + Copy) {
        stream.seal_tail();
        pack_all(&mut stream);
        let mut fresh = stream_of(stays);
        fresh.seal_tail();
        pack_all(&mut fresh);
        assert_eq!(stream.len(), fresh.len());
        let (thinned, fresh) = (stream.memory(), fresh.memory());
        let (is, as_fresh) = (thinned.allocated, fresh.allocated);
        assert!(is * 100 <= as_fresh * percent, "{thinned:?} {fresh:?}");
        let mut ids = Vec::new();
        let visit = |id: StreamId, _: Fields<'_>| {
            ids.push(id.ms);
            ControlFlow::Continue(())
        };
        let mut scratch = StreamScratch::new();
        stream.range(StreamId::MIN, StreamId::MAX, false, &mut scratch, visit).unwrap();
        assert!(ids.into_iter().eq((1..=20_000).filter(|&ms| stays(ms))));
    }

    #[test]
    fn what_is_left_of_many_blocks_takes_what_a_fresh_stream_would() {
        let shape = Shape::default();
        let mut scratch = StreamScratch::new();
        for one_in in [3, 10, 50] {
            let stays = move |ms: u64| ms.is_multiple_of(one_in);
            // Deleted once all is packed.
            let mut stream = stream_of(|_| true);
            pack_all(&mut stream);
            for ms in (1..=20_000).filter(|&ms| !stays(ms)) {
                assert!(stream.delete(StreamId::new(ms, 0), &shape, &mut scratch).unwrap());
            }
            assert_small(stream, 130, stays);
            // Deleted while it is packed: in each block as many rows may be deleted
            // ones as are entries.
            let mut stream = stream_of(|_| true);
            pack_all(&mut stream);
            for ms in (1..=20_000).filter(|&ms| !stays(ms)) {
                assert!(stream.delete(StreamId::new(ms, 0), &shape, &mut scratch).unwrap());
                pack_all(&mut stream);
            }
            assert_small(stream, 200, stays);
            // Deleted soon after they came, before they are sealed or packed.
            let mut stream = Stream::new();
            for ms in 1..=20_000 {
                append(&mut stream, ms);
                if ms > 100 && !stays(ms - 100) {
                    stream.delete(StreamId::new(ms - 100, 0), &shape, &mut scratch).unwrap();
                }
                pack_all(&mut stream);
            }
            for ms in (19_901..=20_000).filter(|&ms| !stays(ms)) {
                stream.delete(StreamId::new(ms, 0), &shape, &mut scratch).unwrap();
            }
            assert_small(stream, 200, stays);
        }
    }

    #[test]
    fn what_was_deleted_while_blocks_are_joined_stays_deleted() {
        let mut scratch = StreamScratch::new();
        let mut stream = stream_of(|_| true);
        pack_all(&mut stream);
        let mut delete = |stream: &mut Stream, ms| {
            assert!(stream.delete(StreamId::new(ms, 0), &Shape::default(), &mut scratch).unwrap());
        };
        (1..=20_000).filter(|ms| ms % 10 > 0).for_each(|ms| delete(&mut stream, ms));
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let mut run = |job: PackJob| job.run(&mut ws, &PackParams::default(), &mut Vec::new());
        let job = stream.pack_job(&Shape::default()).unwrap();
        assert!(job.parts.len() > 5, "{}", job.parts.len());
        // An entry of some block goes: its neighbours are joined without it.
        let gone = job.parts[2].first.ms / 10 * 10 + 100;
        delete(&mut stream, gone);
        let blocks = stream.memory().blocks;
        let joined = job.parts.len() - 1;
        assert!(stream.install(run(job)));
        assert_eq!(stream.memory().blocks, blocks - joined);
        // A whole block goes: the others stay, and are to be joined once more.
        let job = stream.pack_job(&Shape::default()).unwrap();
        let (first, end) = (job.parts[1].first.ms, job.parts[2].first.ms);
        (first..end).filter(|ms| ms % 10 == 0).for_each(|ms| delete(&mut stream, ms));
        let work = stream.pending_work();
        assert!(!stream.install(run(job)));
        assert!(stream.pending_work() > work);
        let len = stream.len();
        pack_all(&mut stream);
        assert!(stream.memory().blocks < 6, "{:?}", stream.memory());
        let mut ids = Vec::new();
        let visit = |id: StreamId, _: Fields<'_>| {
            ids.push(id.ms);
            ControlFlow::Continue(())
        };
        stream.range(StreamId::MIN, StreamId::MAX, false, &mut scratch, visit).unwrap();
        assert_eq!(ids.len() as u64, len);
        assert!(!ids.contains(&gone));
        assert!(ids.iter().all(|ms| ms % 10 == 0 && !(first..end).contains(ms)));
    }
}
