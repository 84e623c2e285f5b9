//! Packing sealed blocks.
//!
//! Packing is always somebody's explicit work: a [`PackJob`] shares the block's
//! bytes and can run anywhere, without the stream;
//! [`install`](Stream::install) then takes its outcome if the block is still
//! there. [`pack_some`](Stream::pack_some) does both in place. A block that
//! would save too little is marked and not tried again, until how streams are
//! packed has changed: then each block is, once ([`reconsider`](Stream::reconsider)).
//!
//! Blocks are tried oldest first, so those still to be tried are always the
//! newest ones, and finding the next costs nothing. A job may also be about a
//! block of whose entries most were deleted: it is packed anew without them, so
//! that what deleting costs is repaid; each such job halves its block at least,
//! and takes what neighbours fit with it (join.rs). What rows are packed into is
//! in form.rs.

use std::any::Any;
use std::sync::Arc;

use snug_codec::columns;
use snug_codec::policy::Choice;
use snug_codec::stream::{AtOnce, Pace, Pieces};
use snug_codec::{Codec, Dictionary, DictionarySource, Workspace};

pub use snug_codec::columns::ColumnSize;

use super::block::{Block, Data, PackedBytes};
use super::dictionary::{Family, texts};
use super::form::{
    FORMAT_COLUMNS, FORMAT_ROWS, Form, Packer, columns_raw_max, dictionary_id, form, unpack_rows,
};
use super::id::StreamId;
use super::index::At;
use super::join::RowsLeft;
use super::range::OpenRows;
use super::rows::Fields;
use super::sealed::Sealed;
use super::{Shape, Stream, StreamError};
use crate::pack::families::{Families, KeyFamily};
use crate::pack::identity::Seen;
use crate::pack::piece::{
    Damage, Fate, Lesson, PieceJob, PieceParams, Plans, Ran, Running, Tried, With,
};
use crate::pack::saving::MinSaving;

/// How often rows are tried where columns were the smaller.
const ROWS_ONE_IN: u64 = 16;

/// A block of no more raw bytes is packed with the dictionary of its stream's family:
/// its texts are then packed as one with a dictionary as they are without.
const SHARED_BYTES_MAX: usize = 2 * columns::PART_BYTES;

/// Where some packed block is to speak for its stream, it is looked for among so
/// many.
const NEWEST_BLOCKS: usize = 16;

/// How to pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackParams {
    /// What packing must save.
    pub min_saving: MinSaving,
    /// The codec. Columns are coded with zstd; with any other codec rows are
    /// packed, and with none blocks stay raw.
    pub codec: Codec,
    /// The codec's level.
    pub level: i32,
    /// The most bytes of a dictionary; 0 for none.
    pub dictionary_bytes: usize,
}

impl Default for PackParams {
    fn default() -> Self {
        Self {
            min_saving: MinSaving(30),
            codec: Codec::Zstd,
            level: 3,
            dictionary_bytes: 16 * 1024,
        }
    }
}

/// What a call of [`Stream::pack_some`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackProgress {
    /// Raw bytes that went through the codec.
    pub raw_bytes: usize,
    /// Blocks that are packed now and were not before.
    pub packed_blocks: usize,
    /// Blocks still to be tried.
    pub pending: usize,
}

/// One block to be packed, away from its stream; or several to be packed as one.
#[derive(Debug)]
pub struct PackJob {
    /// Neighbours in their order.
    pub(super) parts: Vec<Part>,
    /// Which of them the job is about; the others come along if they can.
    pub(super) about: usize,
    /// The raw bytes that several may have as one.
    pub(super) block_bytes: usize,
    /// Whether rows may turn out smaller than columns that save little.
    tries_rows: bool,
    family: Family,
    /// The family of its stream's key, if the block goes by that, and whether it is to
    /// learn from it.
    kin: Option<Arc<KeyFamily>>,
    learns: bool,
}

/// A block as a job takes it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) first: StreamId,
    /// The block as it was when it was taken.
    identity: Seen,
    data: Data,
    raw_bytes: u32,
    kept: u32,
    /// The data's rows to leave in it, if they have to be taken out of it.
    pub(super) left: Option<Vec<u32>>,
}

/// A block that went through the codec; to be given back to its stream.
#[derive(Debug)]
pub struct PackOutcome {
    /// What was packed.
    parts: Vec<Part>,
    result: Packed,
    /// The dictionary that it was packed with.
    dictionary_id: Option<u32>,
    /// The stream's dictionary, digested for the level that is asked for.
    releveled: Option<Arc<Dictionary>>,
    /// Columns were made that were not the rows.
    is_miscoded: bool,
    /// The job's, with what it was packed with.
    family: Family,
    lesson: Option<Lesson>,
}

#[derive(Debug)]
enum Packed {
    /// All rows, packed.
    Whole(PackedBytes),
    /// Packing all rows is not worth it.
    NotWorth,
    /// The rows left of all parts, packed if that is worth it.
    Left { rows: RowsLeft, packed: Option<PackedBytes> },
    /// There was nothing to do.
    Nothing,
    /// The block is damaged.
    Damaged,
}

impl Packed {
    /// What was made of it, if it was worth packing.
    fn packed_bytes(&self) -> Option<usize> {
        match self {
            Self::Whole(bytes) | Self::Left { packed: Some(bytes), .. } => Some(bytes.len()),
            Self::NotWorth | Self::Left { packed: None, .. } | Self::Nothing | Self::Damaged => {
                None
            }
        }
    }
}

impl PackJob {
    fn new(block: &Block, family: &Family) -> Self {
        let left = block.is_sparse().then(|| block.live_rows());
        Self {
            parts: vec![Part::new(block, left)],
            about: 0,
            block_bytes: 0,
            tries_rows: true,
            family: family.clone(),
            kin: None,
            learns: false,
        }
    }

    /// Has a short block packed with the dictionary of the family of its stream's key,
    /// and has that learn from it. A longer one has enough of its own to learn from,
    /// and so has a stream with a dictionary of its own.
    pub fn share(&mut self, families: &Families, family: &Arc<KeyFamily>, choice: Choice) {
        let raw_bytes = self.raw_bytes();
        if choice.codec != Codec::Zstd
            || raw_bytes > SHARED_BYTES_MAX
            || self.family.current().is_some()
        {
            return;
        }
        if let Some(held) = family.hold(families, choice) {
            self.family.hold(held);
        }
        self.learns = family.is_learning(families, raw_bytes);
        self.kin = Some(Arc::clone(family));
    }

    /// A job that tries all rows of a block again, whatever was made of them.
    fn again(block: &Block, family: &Family) -> Self {
        let mut job = Self::new(block, family);
        if let [Part { left, data: Data::Packed { .. }, .. }] = &mut job.parts[..] {
            left.get_or_insert_with(|| (0..block.kept()).collect());
        }
        job
    }

    /// The raw bytes of the blocks to be packed.
    pub fn raw_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.raw_bytes as usize).sum()
    }

    /// Packs at once. `room` is reused memory for the codec's output.
    pub fn run(self, ws: &mut Workspace, params: &PackParams, room: &mut Vec<u8>) -> PackOutcome {
        AtOnce::run(self.run_in_slices(ws, params, room, &AtOnce, u64::MAX))
    }

    /// Packs in slices of about `slice_ns`. The columns are pieces of the work:
    /// one that takes longer than a slice makes that slice longer.
    pub async fn run_in_slices(
        self,
        ws: &mut Workspace,
        params: &PackParams,
        room: &mut Vec<u8>,
        pace: &impl Pace,
        slice_ns: u64,
    ) -> PackOutcome {
        let mut pieces = Pieces::new(pace, slice_ns);
        let releveled = self.family.releveled(params);
        let is_short = self.raw_bytes() <= SHARED_BYTES_MAX;
        let shared = if is_short { self.family.shared() } else { None };
        let own = releveled.as_ref().or(self.family.current());
        let dictionary = own.or(shared).map(|dictionary| &**dictionary);
        let dictionary = dictionary.filter(|_| params.codec == Codec::Zstd);
        let mut packer = Packer {
            family: &self.family,
            dictionary,
            params,
            tries_rows: self.tries_rows,
            is_miscoded: false,
            ws,
            room,
        };
        packer.room.clear();
        let mut parts = self.parts;
        let result = match &parts[..] {
            [Part { data: Data::Pending(raw) | Data::Raw(raw), left: None, first, .. }] => {
                packer.pack(raw, *first, &mut pieces).await.map_or(Packed::NotWorth, Packed::Whole)
            }
            [Part { data: Data::Packed { .. }, left: None, .. }] => Packed::Nothing,
            _ => {
                let mut rows = packer.rows_left(&parts, self.block_bytes, &mut pieces).await;
                if rows.is_none() && parts.len() > 1 {
                    // Too large, or a neighbour cannot be read.
                    parts = vec![parts.swap_remove(self.about)];
                    rows = packer.rows_left(&parts, 0, &mut pieces).await;
                }
                match rows {
                    Some(rows) => {
                        let first = rows.ids.map_or(StreamId::MIN, |ids| ids.0);
                        let packed = packer.pack(&rows.raw, first, &mut pieces).await;
                        Packed::Left { rows, packed }
                    }
                    None => Packed::Damaged,
                }
            }
        };
        let is_miscoded = packer.is_miscoded;
        pieces.finished();
        let dictionary_id = match &result {
            Packed::Whole(_) | Packed::Left { packed: Some(_), .. } => dictionary_id(room),
            _ => None,
        };
        let family = self.family;
        let lesson = self.kin.and_then(|kin| {
            let raw = match (&result, &parts[..]) {
                (Packed::Left { rows, .. }, _) => &rows.raw[..],
                (_, [Part { data: Data::Pending(raw) | Data::Raw(raw), .. }]) => raw,
                _ => return None,
            };
            // What was not worth it is in the room too.
            let kept: u32 = parts.iter().map(|part| part.kept).sum();
            let learnt = self.learns.then(|| texts(room, raw.len(), kept, &family, ws));
            let texts = learnt.and_then(Result::ok).unwrap_or_default();
            let (raw_bytes, packed_bytes) = (raw.len(), room.len());
            let worth = result.packed_bytes().is_some();
            let tried = Some(Tried { raw_bytes, packed_bytes, worth });
            Some(Lesson { family: kin, judges: Some(raw.to_vec()), texts, tried })
        });
        PackOutcome { parts, result, dictionary_id, releveled, is_miscoded, family, lesson }
    }
}

impl Part {
    pub(super) fn new(block: &Block, left: Option<Vec<u32>>) -> Self {
        Self {
            first: block.first,
            identity: block.identity().seen(),
            data: block.data().clone(),
            raw_bytes: block.raw_bytes,
            kept: block.kept(),
            left,
        }
    }

    /// Gives all rows of the data to `visit`: number, ID, fields.
    pub(super) fn each_row(
        &self,
        family: &Family,
        ws: &mut Workspace,
        mut visit: impl FnMut(u32, StreamId, Fields<'_>),
    ) -> Result<(), StreamError> {
        let mut room = Vec::new();
        let mut unpacked = Vec::new();
        let (rows, checked) = match &self.data {
            Data::Pending(raw) | Data::Raw(raw) => (&raw[..], false),
            Data::Packed { bytes, .. } => match form(bytes.joined(&mut room))? {
                Form::Rows(packed) => {
                    let raw_bytes = self.raw_bytes as usize;
                    unpack_rows(packed, raw_bytes, family, ws, &mut unpacked)?;
                    (&unpacked[..], true)
                }
                Form::Columns(packed) => {
                    let raw_len_max = columns_raw_max(self.raw_bytes as usize, self.kept);
                    let mut n = 0;
                    let visit = |row: columns::Row<'_>| {
                        let id = StreamId { ms: row.id_ms, seq: row.id_seq };
                        visit(n, id, Fields::of_columns(row));
                        n += 1;
                    };
                    return columns::Reader::open(ws, packed, family, raw_len_max)
                        .and_then(|reader| reader.visit(0..usize::MAX, visit))
                        .map_err(|_| StreamError::Damaged);
                }
            },
        };
        let open = OpenRows::new(rows, self.first, checked)?;
        for row in open.rows() {
            let (n, row) = row?;
            visit(n, row.id, open.fields(row)?);
        }
        Ok(())
    }
}

impl PackOutcome {
    /// Whether the block was worth packing.
    pub fn is_packed(&self) -> bool {
        self.packed_bytes().is_some()
    }

    /// What went through the codec.
    pub fn raw_bytes(&self) -> usize {
        match &self.result {
            Packed::Left { rows, .. } => rows.raw.len(),
            Packed::Whole(_) | Packed::NotWorth => {
                self.parts.iter().map(|part| part.raw_bytes as usize).sum()
            }
            Packed::Nothing | Packed::Damaged => 0,
        }
    }

    /// What it was packed into, if it was worth packing.
    pub fn packed_bytes(&self) -> Option<usize> {
        self.result.packed_bytes()
    }

    /// Whether what was to be packed anew could not be read, or what was packed
    /// would not have come back.
    pub fn is_damaged(&self) -> bool {
        self.damage().is_some()
    }

    fn came(&self) -> Fate {
        match &self.result {
            Packed::Nothing | Packed::Damaged => Fate::Nothing,
            result => result.packed_bytes().map_or(Fate::NotWorth, Fate::Packed),
        }
    }

    fn damage(&self) -> Option<Damage> {
        let unreadable = Damage::Unreadable(StreamError::Damaged.into());
        let damaged = matches!(self.result, Packed::Damaged).then_some(unreadable);
        damaged.or(self.is_miscoded.then_some(Damage::NotBack))
    }
}

/// A block as the machine for all pieces takes it (`jobs.rs`).
#[derive(Debug)]
struct BlockPiece {
    block: OutBlock,
    raw_bytes: usize,
    /// Raw bytes of the whole stream, which a policy goes by.
    stream_bytes: usize,
    params: PackParams,
}

/// A block that is out: before it was packed, and after.
#[derive(Debug)]
enum OutBlock {
    Taken(PackJob),
    Packed(PackOutcome),
    /// It is being worked on, or has been given back.
    Gone,
}

impl PieceJob for BlockPiece {
    fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    fn subject(&self) -> ((&[u8], &[u8]), usize) {
        ((&[], &[]), self.stream_bytes)
    }

    fn prepare(&mut self, plan: &Plans<'_>) {
        let Choice { codec, level, .. } = plan.choice;
        let PieceParams { min_saving, dictionary_bytes, .. } = *plan.params;
        self.params = PackParams { min_saving, codec, level, dictionary_bytes };
        if let OutBlock::Taken(job) = &mut self.block
            && dictionary_bytes > 0
        {
            job.share(plan.families, &(plan.family)(), plan.choice);
        }
    }

    fn run<'j>(&'j mut self, with: With<'j>) -> Running<'j> {
        let With { workspace, room, pace, slice_ns } = with;
        Box::pin(async move {
            let OutBlock::Taken(job) = std::mem::replace(&mut self.block, OutBlock::Gone) else {
                return Ran::default();
            };
            let mut outcome =
                job.run_in_slices(workspace, &self.params, room, &pace, slice_ns).await;
            let ran = Ran {
                raw_bytes: outcome.raw_bytes(),
                came: outcome.came(),
                codec: None,
                damage: outcome.damage(),
                lesson: outcome.lesson.take(),
            };
            self.block = OutBlock::Packed(outcome);
            ran
        })
    }
}

impl Stream {
    /// The next block, for the machine.
    pub(super) fn next_piece(&mut self, shape: &Shape) -> Option<Box<dyn PieceJob>> {
        let stream_bytes = self.memory().raw;
        let job = self.pack_job(shape)?;
        let (raw_bytes, params) = (job.raw_bytes(), PackParams::default());
        Some(Box::new(BlockPiece { block: OutBlock::Taken(job), raw_bytes, stream_bytes, params }))
    }

    /// Takes back a block, if it is one and its own. `new_dictionary` is that of the
    /// family of its key, if it came while the block was out: short blocks are then
    /// tried again unless the newest are packed with it.
    pub(super) fn take_back(
        &mut self,
        job: &mut dyn PieceJob,
        new_dictionary: Option<u32>,
    ) -> bool {
        let piece = (job as &mut dyn Any).downcast_mut::<BlockPiece>();
        let Some(block) = piece.map(|piece| std::mem::replace(&mut piece.block, OutBlock::Gone))
        else {
            return false;
        };
        let OutBlock::Packed(outcome) = block else { return false };
        let installed = self.install(outcome);
        if installed && new_dictionary.is_some_and(|id| self.may_share() && self.shares_not(id)) {
            self.reconsider();
        }
        installed
    }
}

impl Sealed {
    /// The oldest block that was not tried yet.
    fn next_pending(&self) -> Option<(At, &Block)> {
        let at = self.index().nth_back(self.pending_blocks())?;
        let block = self.index().get(at)?;
        matches!(block.data(), Data::Pending(_)).then_some((at, block))
    }

    /// Whether the next block to be tried is to be tried as rows too.
    fn tries_rows(&self, block: &Block) -> bool {
        let before = self.index().nth_back(self.pending_blocks() + 1);
        let is_rows = |before: &Block| match before.data() {
            Data::Packed { bytes, .. } => bytes.first() == Some(FORMAT_ROWS),
            Data::Pending(_) | Data::Raw(_) => false,
        };
        let number = block.position / u64::from(block.rows());
        number.is_multiple_of(ROWS_ONE_IN)
            || before.and_then(|at| self.index().get(at)).is_none_or(is_rows)
    }

    /// The packed ones among the newest blocks, the newest first.
    fn newest_packed(&self) -> impl Iterator<Item = (&Block, &PackedBytes)> {
        let newest = self.index().iter().rev().take(NEWEST_BLOCKS);
        newest.filter_map(|block| match block.data() {
            Data::Packed { bytes, .. } => Some((block, bytes)),
            Data::Pending(_) | Data::Raw(_) => None,
        })
    }

    /// Puts an outcome in the place of the blocks that it was made of, if they are
    /// the very same and each as it was taken.
    fn install(&mut self, outcome: PackOutcome) -> bool {
        let PackOutcome { parts, result, family, dictionary_id, releveled, .. } = outcome;
        let dictionary = dictionary_id.unwrap_or(0);
        self.family_mut().hold_as(&family, dictionary);
        if dictionary != 0 && self.family().dictionary(dictionary).is_none() {
            return false;
        }
        if let Some(dictionary) = releveled {
            self.family_mut().take_releveled(dictionary);
        }
        let same = |block: &Block, part: &Part| block.identity().is(part.identity);
        let Some(part) = parts.first() else { return false };
        let data = match (result, &part.data) {
            (Packed::Whole(bytes), _) => Data::Packed { bytes, dictionary },
            (Packed::NotWorth, Data::Pending(raw) | Data::Raw(raw)) => Data::Raw(raw.clone()),
            (Packed::Left { rows: RowsLeft { raw, ids: Some(ids) }, packed: bytes }, _) => {
                let firsts: Vec<StreamId> = parts.iter().map(|part| part.first).collect();
                return self.replace_run(&firsts, |blocks| {
                    let all_same = blocks.iter().zip(&parts).all(|(block, part)| same(block, part));
                    all_same.then(|| {
                        let left = parts.into_iter().map(|part| part.left.unwrap_or_default());
                        let blocks: Vec<_> = blocks.iter().copied().zip(left).collect();
                        let raw_bytes = raw.len() as u32;
                        let packed = |bytes| Data::Packed { bytes, dictionary };
                        let data = bytes.map_or_else(|| Data::Raw(raw.into()), packed);
                        Block::rewritten(&blocks, ids, data, raw_bytes)
                    })
                });
            }
            _ => return false,
        };
        self.change_block(part.first, |block| {
            let same = same(block, part);
            if same {
                block.set_data(data);
            }
            same
        })
    }
}

impl Stream {
    /// Sealed blocks to be packed, or to be rewritten since most of their
    /// entries were deleted.
    pub fn pending_work(&self) -> usize {
        self.sealed.as_ref().map_or(0, |sealed| sealed.work())
    }

    /// The next block to pack: the oldest that was not tried yet; when there is
    /// none, one to be rewritten, which is given out once. If most of its entries
    /// were deleted, what neighbours fit into one block with it come along.
    pub fn pack_job(&mut self, shape: &Shape) -> Option<PackJob> {
        let sealed = self.sealed.as_mut()?;
        if let Some((at, block)) = sealed.next_pending() {
            let tries_rows = sealed.tries_rows(block);
            let mut job = PackJob { tries_rows, ..PackJob::new(block, sealed.family()) };
            sealed.join_neighbours(&mut job, at, shape);
            return Some(job);
        }
        if let Some(at) = sealed.take_sparse() {
            let block = sealed.index().get(at)?;
            let mut job = PackJob::new(block, sealed.family());
            sealed.join_neighbours(&mut job, at, shape);
            let firsts = (job.parts.first()?.first, job.parts.last()?.first);
            sealed.forget_sparse(firsts.0, firsts.1);
            return Some(job);
        }
        let family = sealed.family().clone();
        sealed.take_again().map(|block| PackJob::again(block, &family))
    }

    /// Has every block that packing was tried on tried once more: how streams
    /// are to be packed has changed. O(1); the work is that of the jobs to come.
    pub fn reconsider(&mut self) {
        if let Some(sealed) = &mut self.sealed {
            sealed.try_again();
        }
    }

    /// Whether it is of short blocks, which are packed with the dictionary of the family
    /// of its key, and has none of its own.
    pub(crate) fn may_share(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| {
            let (memory, tail) = (self.memory(), self.tail.raw_bytes());
            sealed.family().current().is_none()
                && memory.raw - tail <= SHARED_BYTES_MAX * memory.blocks
                && memory.blocks > 0
        })
    }

    /// Whether its newest blocks are not packed with this dictionary.
    pub(crate) fn shares_not(&self, id: u32) -> bool {
        self.dictionary().is_none_or(|dictionary| dictionary.id() != id)
    }

    /// The codec of the newest packed block; none where nothing is packed.
    pub fn codec(&self) -> Codec {
        let newest = self.sealed.as_ref().and_then(|sealed| sealed.newest_packed().next());
        let Some((_, bytes)) = newest else { return Codec::None };
        match form(bytes.joined(&mut Vec::new())) {
            Ok(Form::Rows(packed)) => snug_codec::packed::codec(packed).unwrap_or(Codec::None),
            Ok(Form::Columns(_)) => Codec::Zstd,
            Err(_) => Codec::None,
        }
    }

    /// Puts packed bytes in the place of what they were packed from, if that
    /// block is still there as it was taken; whether it was so. Any other stream is
    /// left as it is, however alike: a copy shares no block's identity.
    pub fn install(&mut self, outcome: PackOutcome) -> bool {
        let Some(sealed) = &mut self.sealed else { return false };
        let installed = sealed.install(outcome);
        if cfg!(debug_assertions) {
            self.assert_counted();
        }
        installed
    }

    /// Packs pending blocks, oldest first, for as long as less than
    /// `budget_bytes` raw bytes have gone through the codec in this call; one
    /// block at least. Never trains a dictionary.
    pub fn pack_some(
        &mut self,
        ws: &mut Workspace,
        params: &PackParams,
        shape: &Shape,
        budget_bytes: usize,
    ) -> PackProgress {
        let mut progress = PackProgress::default();
        let mut room = Vec::new();
        while let Some(job) = self.pack_job(shape) {
            progress.raw_bytes += job.raw_bytes();
            let outcome = job.run(ws, params, &mut room);
            progress.packed_blocks += usize::from(outcome.is_packed());
            if !self.install(outcome) || progress.raw_bytes >= budget_bytes {
                break;
            }
        }
        progress.pending = self.pending_work();
        progress
    }

    /// What each field takes in the newest block of columns, as a sample of the
    /// stream. Unpacks that block; nothing where there is none.
    pub fn column_sizes(&self) -> Result<Vec<ColumnSize>, StreamError> {
        let columns = self.sealed.as_ref().and_then(|sealed| {
            let is_columns = |bytes: &PackedBytes| bytes.first() == Some(FORMAT_COLUMNS);
            let (block, bytes) = sealed.newest_packed().find(|(_, bytes)| is_columns(bytes))?;
            Some((sealed, block, bytes))
        });
        let Some((sealed, block, bytes)) = columns else { return Ok(Vec::new()) };
        let mut room = Vec::new();
        let Form::Columns(packed) = form(bytes.joined(&mut room))? else {
            return Ok(Vec::new());
        };
        let raw_len_max = columns_raw_max(block.raw_bytes as usize, block.kept());
        columns::Reader::open(&mut Workspace::to_unpack(), packed, sealed.family(), raw_len_max)
            .and_then(|reader| reader.unpack(0..usize::MAX))
            .map(|rows| rows.column_sizes())
            .map_err(|_| StreamError::Damaged)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::form::{BLOCK_BYTES_MAX, PACK_BYTES_MAX};
    use super::*;
    use crate::types::stream::{Shape, StreamScratch};
    use proptest::prelude::*;
    use snug_codec::WorkspaceConfig;
    use std::cell::Cell;
    use std::ops::ControlFlow;

    /// A stream of packed blocks of entries with one field.
    pub(in super::super) fn packed(shape: &Shape, value: impl Fn(u64) -> Vec<u8>) -> Stream {
        let mut stream = Stream::new();
        for ms in 1..=2000 {
            let value = value(ms);
            let fields = [(b"field".as_slice(), value.as_slice())];
            stream.append(StreamId::new(ms, 0), fields.into_iter(), shape).unwrap();
        }
        let mut ws = Workspace::new(WorkspaceConfig::default());
        stream.pack_some(&mut ws, &PackParams::default(), &Shape::default(), usize::MAX);
        stream
    }

    /// A number that looks like chance.
    pub(in super::super) fn noise(seed: u64) -> u64 {
        let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^ (state >> 27)
    }

    #[test]
    fn blocks_that_save_too_little_stay_raw_and_are_not_tried_again() {
        let noisy = |ms: u64| (0..40).map(|n| noise(ms * 40 + n) as u8).collect();
        let mut stream = packed(&Shape::default(), noisy);
        let memory = stream.memory();
        assert!(memory.blocks > 0);
        assert_eq!((memory.packed_blocks, memory.packed, memory.packed_from), (0, 0, 0));
        assert_eq!(stream.pending_work(), 0);
        assert!(stream.pack_job(&Shape::default()).is_none());
    }

    /// A clock that goes on by itself: each look at it takes a microsecond.
    #[derive(Default)]
    struct Ticking {
        now_us: Cell<u64>,
        pauses: Cell<usize>,
    }

    impl Pace for Ticking {
        fn now_ns(&self) -> u64 {
            self.now_us.set(self.now_us.get() + 1);
            self.now_us.get() * 1000
        }

        async fn pause(&self) {
            self.pauses.set(self.pauses.get() + 1);
        }
    }

    #[test]
    fn a_block_packs_to_the_same_bytes_in_slices() {
        let mut stream = Stream::new();
        let names: Vec<String> = (0..10).map(|n| format!("field {n}")).collect();
        for ms in 1..=2000 {
            let value = |n: usize| format!("{} {n}", ms * (n as u64 + 1) % 1013);
            let values: Vec<String> = (0..10).map(value).collect();
            let fields = names.iter().zip(&values).map(|(n, v)| (n.as_bytes(), v.as_bytes()));
            stream.append(StreamId::new(ms, 0), fields, &Shape::default()).unwrap();
        }
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let (params, mut whole, mut sliced) = (PackParams::default(), Vec::new(), Vec::new());
        assert!(
            stream
                .pack_job(&Shape::default())
                .unwrap()
                .run(&mut ws, &params, &mut whole)
                .is_packed()
        );
        let (pace, job) = (Ticking::default(), stream.pack_job(&Shape::default()).unwrap());
        let outcome = AtOnce::run(job.run_in_slices(&mut ws, &params, &mut sliced, &pace, 1));
        assert_eq!(whole, sliced);
        assert!(pace.pauses.get() > names.len(), "after each column");
        assert!(outcome.is_packed() && stream.install(outcome));
    }

    #[test]
    fn rows_are_tried_where_they_were_the_smaller_and_now_and_then() {
        let shape = Shape { block_entries: 10, ..Shape::default() };
        let tries = |codec| {
            let mut stream = Stream::new();
            for ms in 1..=400u64 {
                let value = format!("the same text in each, {:x}", ms * 7919);
                let fields = [(b"field".as_slice(), value.as_bytes())];
                stream.append(StreamId::new(ms, 0), fields.into_iter(), &shape).unwrap();
            }
            let mut ws = Workspace::new(WorkspaceConfig::default());
            let params = PackParams { codec, min_saving: MinSaving(0), ..PackParams::default() };
            let mut tried = Vec::new();
            while let Some(job) = stream.pack_job(&Shape::default()) {
                tried.push(job.tries_rows);
                let outcome = job.run(&mut ws, &params, &mut Vec::new());
                assert!(outcome.is_packed() && stream.install(outcome));
            }
            tried
        };
        let columns = tries(Codec::Zstd);
        let expected: Vec<bool> = (0..columns.len()).map(|block| block % 16 == 0).collect();
        assert_eq!(columns, expected);
        assert!(tries(Codec::Lz4).iter().all(|&tried| tried));
    }

    #[test]
    fn one_entry_larger_than_a_block_is_held_raw() {
        let mut stream = Stream::new();
        let shape = Shape::default();
        let huge = vec![b'x'; 1 << 20];
        for ms in 1..4 {
            let fields = [(b"field".as_slice(), huge.as_slice())];
            stream.append(StreamId::new(ms, 0), fields.into_iter(), &shape).unwrap();
        }
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let progress =
            stream.pack_some(&mut ws, &PackParams::default(), &Shape::default(), usize::MAX);
        assert_eq!((progress.packed_blocks, progress.pending), (0, 0));
        let mut seen = 0;
        let all = (StreamId::MIN, StreamId::MAX);
        let visit = |_, mut fields: crate::types::stream::Fields<'_>| {
            assert_eq!(fields.next().unwrap().1, huge);
            seen += 1;
            ControlFlow::Continue(())
        };
        stream.range(all.0, all.1, false, &mut StreamScratch::new(), visit).unwrap();
        assert_eq!(seen, 3);
    }

    #[test]
    fn an_entry_of_several_segments_is_packed_in_pieces() {
        let mut stream = Stream::new();
        let shape = Shape::default();
        let large = |ms: u64| -> Vec<u8> {
            let words = (0..50_000u64).map(|n| format!("{} ", (n * ms) % 1013));
            words.collect::<String>().into_bytes()
        };
        for ms in 1..4 {
            let (value, fields) = (large(ms), [b"field".as_slice()]);
            let fields = fields.into_iter().map(|name| (name, value.as_slice()));
            stream.append(StreamId::new(ms, 0), fields, &shape).unwrap();
        }
        let mut ws = Workspace::new(WorkspaceConfig::default());
        for codec in [Codec::Zstd, Codec::Lz4] {
            let params = PackParams { codec, ..PackParams::default() };
            let (pace, job) = (Ticking::default(), stream.pack_job(&Shape::default()).unwrap());
            assert!((PACK_BYTES_MAX..BLOCK_BYTES_MAX).contains(&job.raw_bytes()));
            let mut room = Vec::new();
            let outcome = AtOnce::run(job.run_in_slices(&mut ws, &params, &mut room, &pace, 1));
            assert!(pace.pauses.get() >= 2, "{}", pace.pauses.get());
            assert!(outcome.is_packed() && stream.install(outcome));
        }
        let mut read = Vec::new();
        let all = (StreamId::MIN, StreamId::MAX);
        let visit = |id: StreamId, mut fields: crate::types::stream::Fields<'_>| {
            read.push((id.ms, fields.next().unwrap().1.to_vec()));
            ControlFlow::Continue(())
        };
        stream.range(all.0, all.1, false, &mut StreamScratch::new(), visit).unwrap();
        assert!(read == [(1, large(1)), (2, large(2)), (3, large(3))]);
    }

    #[test]
    fn what_was_unpacked_is_kept_while_it_is_read_and_then_released() {
        let stream = packed(&Shape::default(), |ms| format!("value {ms}").into_bytes());
        let mut scratch = StreamScratch::new();
        let read = |scratch: &mut StreamScratch| {
            let go_on = |_, _: crate::types::stream::Fields<'_>| ControlFlow::Continue(());
            stream.range(StreamId::MIN, StreamId::MAX, false, scratch, go_on).unwrap();
        };
        for _ in 0..2 {
            read(&mut scratch);
            scratch.release_unused();
            assert!(scratch.heap_bytes() > 10_000, "it was read meanwhile");
        }
        scratch.release_unused();
        assert_eq!(scratch.heap_bytes(), 0);
        read(&mut scratch);
        assert!(scratch.heap_bytes() > 10_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn damage_in_a_packed_block_is_an_error_or_entries_never_a_panic(
            at: prop::sample::Index, byte: u8, cut in prop::option::of(any::<prop::sample::Index>()),
            reverse: bool,
        ) {
            let mut stream = packed(&Shape::default(), |ms| format!("value {ms}").into_bytes());
            let sealed = stream.sealed.as_mut().unwrap();
            let first = sealed.index().front().unwrap().first;
            sealed.change_block(first, |block| {
                let Data::Packed { bytes, .. } = block.data() else { panic!("not packed") };
                let mut damaged = bytes.joined(&mut Vec::new()).to_vec();
                let at = at.index(damaged.len());
                damaged[at] ^= byte;
                if let Some(cut) = cut {
                    damaged.truncate(cut.index(damaged.len() + 1));
                }
                block.set_data(Data::Packed { bytes: PackedBytes::new(&damaged), dictionary: 0 });
                true
            });
            let mut scratch = StreamScratch::new();
            let mut seen = 0u64;
            let (min, max) = (StreamId::MIN, StreamId::MAX);
            let result = stream.range(min, max, reverse, &mut scratch, |_, fields| {
                seen += fields.len() as u64;
                for pair in fields {
                    std::hint::black_box(pair);
                }
                ControlFlow::Continue(())
            });
            if byte == 0 && cut.is_none() {
                prop_assert_eq!((result, seen), (Ok(()), 2000));
            }
            let _ = stream.delete(StreamId::new(3, 0), &Shape::default(), &mut scratch);
            let _ = stream.trim(crate::types::stream::Trim::MinId(StreamId::new(5, 0)), None,
                &Shape::default(), &mut scratch);
            let _ = stream.first_id(&mut scratch);
        }
    }
}
