//! The sealed part of a stream: its blocks and their exact totals.

use super::block::{Block, Data};
use super::dictionary::Family;
use super::id::StreamId;
use super::index::{At, Index};
use super::range::{StreamScratch, Want};
use super::{StreamError, StreamMemory, usable};
use crate::pack::identity::Identity;

/// Sums over all sealed blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Totals {
    memory: StreamMemory,
    pending: usize,
    pending_bytes: usize,
}

impl Totals {
    fn add(&mut self, block: &Block) {
        let Self { memory, pending, pending_bytes } = self;
        memory.blocks += 1;
        memory.allocated += block.heap_bytes();
        memory.raw += block.raw_bytes as usize;
        match block.data() {
            Data::Pending(_) => {
                *pending += 1;
                *pending_bytes += block.raw_bytes as usize;
            }
            Data::Raw(_) => {}
            Data::Packed { bytes, .. } => {
                memory.packed_blocks += 1;
                memory.packed_from += block.raw_bytes as usize;
                memory.packed += bytes.len();
            }
        }
    }

    fn subtract(&mut self, block: &Block) {
        let mut this = Self::default();
        this.add(block);
        self.pending -= this.pending;
        self.pending_bytes -= this.pending_bytes;
        let Self { memory, .. } = self;
        memory.blocks -= this.memory.blocks;
        memory.allocated -= this.memory.allocated;
        memory.raw -= this.memory.raw;
        memory.packed_blocks -= this.memory.packed_blocks;
        memory.packed_from -= this.memory.packed_from;
        memory.packed -= this.memory.packed;
    }
}

/// Of how many raw bytes packing is remembered: the newest half counts at least
/// as much as all before.
const REMEMBERED_BYTES: u64 = 1 << 20;

/// The fewest that tell what the next will be packed to.
const TELLING_BYTES: u64 = 32 * 1024;

/// Blocks that are counted anew at once.
const COUNTED_BLOCKS_MAX: usize = 1024;

/// What packing has made of the blocks it was tried on, whether or not they are
/// still there.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    raw: u64,
    packed: u64,
}

impl Outcomes {
    /// Takes in what a block has become; `packed` is `raw` where it stayed raw.
    fn note(&mut self, raw: u64, packed: u64) {
        self.raw += raw;
        self.packed += packed.min(raw);
        while self.raw > REMEMBERED_BYTES {
            (self.raw, self.packed) = (self.raw / 2, self.packed.div_ceil(2).min(self.raw / 2));
        }
    }
}

/// The sealed blocks of a stream. Allocated with the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Sealed {
    /// Stands for this stream's blocks, wherever the stream is moved.
    identity: Identity,
    /// Every block has entries left.
    index: Index,
    totals: Totals,
    outcomes: Outcomes,
    family: Family,
    /// First IDs of the blocks that are worth rewriting, ascending. Some may be
    /// gone.
    sparse: Vec<StreamId>,
    /// Blocks to be tried again: from which ID on, and how many at most.
    again: Option<(StreamId, usize)>,
}

impl Sealed {
    /// What this stream's blocks are known by for as long as it is there.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    pub(super) fn family(&self) -> &Family {
        &self.family
    }

    pub(super) fn family_mut(&mut self) -> &mut Family {
        &mut self.family
    }

    /// Changes what the block that begins with `first` lies in to what packing
    /// has made of it, and notes how much that is, if `change` says it did so.
    pub(super) fn change_block(
        &mut self,
        first: StreamId,
        change: impl FnOnce(&mut Block) -> bool,
    ) -> bool {
        let at = self.index.seek(|block| block.first < first);
        let Some(block) = self.index.get_mut(at).filter(|block| block.first == first) else {
            return false;
        };
        self.totals.subtract(block);
        self.family.count(block.data().dictionary(), -1);
        let changed = change(block);
        self.totals.add(block);
        self.family.count(block.data().dictionary(), 1);
        self.family.let_go();
        if changed {
            self.outcomes.note(block.raw_bytes.into(), block.data().len() as u64);
        }
        self.note_if_sparse(at);
        changed
    }

    /// Puts one block in the place of neighbours, those that begin with `firsts`,
    /// if all of them are there and `rewrite` gives one for them.
    pub(super) fn replace_run(
        &mut self,
        firsts: &[StreamId],
        rewrite: impl FnOnce(&[&Block]) -> Option<Block>,
    ) -> bool {
        let Some(&first) = firsts.first() else { return false };
        let at = self.index.seek(|block| block.first < first);
        let run = std::iter::successors(Some(at), |&at| Some(self.index.after(at)));
        let blocks: Vec<&Block> = (firsts.iter().zip(run))
            .map_while(|(&first, at)| self.index.get(at).filter(|block| block.first == first))
            .collect();
        let whole = blocks.len() == firsts.len();
        let Some(block) = whole.then(|| rewrite(&blocks)).flatten() else {
            // What is left of them is still to be rewritten.
            for &first in firsts {
                let at = self.index.seek(|block| block.first < first);
                if self.index.get(at).is_some_and(|block| block.first == first) {
                    self.note_if_sparse(at);
                }
            }
            return false;
        };
        for &first in &firsts[1..] {
            let block = self.index.remove(self.index.seek(|block| block.first < first));
            self.totals.subtract(&block);
            self.family.count(block.data().dictionary(), -1);
        }
        let at = self.index.seek(|block| block.first < first);
        if let Some(place) = self.index.get_mut(at) {
            self.totals.subtract(place);
            self.family.count(place.data().dictionary(), -1);
            *place = block;
            self.totals.add(place);
            self.family.count(place.data().dictionary(), 1);
        }
        self.family.let_go();
        self.note_if_sparse(at);
        true
    }

    /// Notes a block that has become worth rewriting. One that packing was not
    /// tried on yet is rewritten by being packed.
    fn note_if_sparse(&mut self, at: At) {
        let Some(block) = self.index.get(at) else { return };
        if !matches!(block.data(), Data::Pending(_))
            && block.is_sparse()
            && let Err(place) = self.sparse.binary_search(&block.first)
        {
            self.sparse.insert(place, block.first);
        }
    }

    /// Takes the next block that is worth rewriting off the list.
    pub(super) fn take_sparse(&mut self) -> Option<At> {
        while let Some(first) = self.sparse.pop() {
            let at = self.index.seek(|block| block.first < first);
            let is_it = |block: &Block| block.first == first && block.is_sparse();
            if self.index.get(at).is_some_and(is_it) {
                return Some(at);
            }
        }
        self.sparse = Vec::new();
        None
    }

    /// Takes the blocks from the one that begins with `first` to the one that
    /// begins with `last` off the list.
    pub(super) fn forget_sparse(&mut self, first: StreamId, last: StreamId) {
        let start = self.sparse.partition_point(|&at| at < first);
        let end = self.sparse.partition_point(|&at| at <= last);
        self.sparse.drain(start..end);
        if self.sparse.is_empty() {
            self.sparse = Vec::new();
        }
    }

    /// Has every block that was tried tried again, oldest first.
    pub(super) fn try_again(&mut self) {
        let tried = self.tried_blocks();
        self.again = (tried > 0).then_some((StreamId::MIN, tried));
    }

    /// Takes the next block that is to be tried again.
    pub(super) fn take_again(&mut self) -> Option<&Block> {
        let (from, left) = self.again.take()?;
        let at = self.index.seek(|block| block.first < from);
        let block = self.index.get(at)?;
        if matches!(block.data(), Data::Pending(_)) {
            return None;
        }
        self.again = (left > 1).then(|| block.last.next()).flatten().map(|id| (id, left - 1));
        Some(block)
    }

    pub(super) fn push(&mut self, block: Block) {
        self.totals.add(&block);
        self.index.push(block);
    }

    /// Adds a block that may be packed.
    pub(super) fn push_packed(&mut self, block: Block) {
        self.family.count(block.data().dictionary(), 1);
        self.push(block);
    }

    /// The last block's last ID, if there is a block.
    pub(super) fn last_id(&self) -> Option<StreamId> {
        self.index.back().map(|block| block.last)
    }

    pub(super) fn pop_front(&mut self) -> Option<Block> {
        let block = self.index.pop_front()?;
        self.totals.subtract(&block);
        self.family.count(block.data().dictionary(), -1);
        self.family.let_go();
        Some(block)
    }

    /// Changes the first block, and drops it if no entry is left in it.
    pub(super) fn change_front<R>(&mut self, change: impl FnOnce(&mut Block) -> R) -> Option<R> {
        let block = self.index.front_mut()?;
        let result = change(block);
        if block.live() == 0 {
            self.pop_front();
        }
        Some(result)
    }

    pub(super) fn clear(&mut self) {
        self.index = Index::default();
        self.totals = Totals::default();
        self.family.forget_shared();
        self.sparse = Vec::new();
        self.again = None;
    }

    /// Deletes the entry of `id`; whether there was one.
    pub(super) fn delete(
        &mut self,
        id: StreamId,
        scratch: &mut StreamScratch,
    ) -> Result<bool, StreamError> {
        let at = self.index.seek(|block| block.last < id);
        let Some(block) = self.index.get(at).filter(|block| block.first <= id) else {
            return Ok(false);
        };
        let Some(row) = self.open(block, scratch, Want::Ids)?.row_of(id)? else {
            return Ok(false);
        };
        let Some(block) = self.index.get_mut(at) else { return Ok(false) };
        self.totals.memory.allocated -= block.heap_bytes();
        let deleted = block.delete(row);
        self.totals.memory.allocated += block.heap_bytes();
        if block.live() == 0 {
            let block = self.index.remove(at);
            self.totals.subtract(&block);
            self.family.count(block.data().dictionary(), -1);
            self.family.let_go();
        } else if deleted {
            self.note_if_sparse(at);
        }
        Ok(deleted)
    }

    /// The entries at positions from `start` to before `end`.
    pub(super) fn live_between(&self, start: u64, end: u64) -> u64 {
        let mut at = self.index.seek(|block| block.end_position() <= start);
        let mut live = 0;
        while let Some(block) = self.index.get(at).filter(|block| block.position < end) {
            live += u64::from(block.live_between(start, end));
            at = self.index.after(at);
        }
        live
    }

    /// The position after the last block's last row.
    pub(super) fn end_position(&self) -> u64 {
        self.index.back().map_or(0, Block::end_position)
    }

    /// The bytes of the blocks' rows, packed or raw. Only the first block can
    /// have been trimmed in part.
    pub(super) fn size(&self) -> u64 {
        let memory = self.totals.memory;
        let all = memory.packed + (memory.raw - memory.packed_from);
        let trimmed =
            self.index.front().map_or(0, |block| block.data().len() as u64 - block.size_left());
        all as u64 - trimmed
    }

    /// What the blocks' rows would take raw, without those trimmed away.
    pub(super) fn raw_size(&self) -> u64 {
        let trimmed =
            self.index.front().map_or(0, |block| u64::from(block.raw_bytes) - block.raw_left());
        self.totals.memory.raw as u64 - trimmed
    }

    /// The bytes of the blocks that packing was not yet tried on, without rows
    /// trimmed away.
    pub(super) fn waiting(&self) -> u64 {
        let front = self.index.front().filter(|block| block.is_waiting());
        let trimmed = front.map_or(0, |block| block.data().len() as u64 - block.size_left());
        self.totals.pending_bytes as u64 - trimmed
    }

    /// What packing has lately made of how many raw bytes: packed and raw. Nothing
    /// where it was tried on too few to tell.
    pub(super) fn packing_ratio(&self) -> Option<(u64, u64)> {
        let Outcomes { raw, packed } = self.outcomes;
        (raw >= TELLING_BYTES).then_some((packed, raw))
    }

    /// Blocks sealed and not yet tried.
    pub(super) fn pending_blocks(&self) -> usize {
        self.totals.pending
    }

    /// Blocks that packing was tried on.
    pub(super) fn tried_blocks(&self) -> usize {
        self.index.len() - self.totals.pending
    }

    /// Blocks to be packed, rewritten or tried again; a few may be gone.
    pub(super) fn work(&self) -> usize {
        self.totals.pending + self.sparse.len() + self.again.map_or(0, |(_, left)| left)
    }

    pub(super) fn memory(&self) -> StreamMemory {
        let index = usable(size_of::<Self>()) + self.index.heap_bytes() + self.sparse_bytes();
        let memory = self.totals.memory;
        let allocated = memory.allocated + index + self.family.heap_bytes();
        StreamMemory { allocated, index, ..memory }
    }

    fn sparse_bytes(&self) -> usize {
        usable(self.sparse.capacity() * size_of::<StreamId>())
    }
}

impl Sealed {
    /// The entries of the blocks, counted one by one, once the totals have been
    /// compared with the blocks'. `None` of more blocks than is cheap enough to do
    /// each time.
    ///
    /// # Panics
    /// If a total is wrong.
    pub(super) fn count_anew(&self) -> Option<u64> {
        if self.index.len() > COUNTED_BLOCKS_MAX {
            return None;
        }
        let (mut totals, mut live) = (Totals::default(), 0);
        for block in self.index.iter() {
            totals.add(block);
            live += u64::from(block.live());
        }
        assert_eq!(self.totals, totals, "the totals of a stream are not its blocks'");
        for (id, blocks) in self.family.blocks() {
            let with_it = self.index.iter().filter(|block| block.data().dictionary() == id);
            assert_eq!(with_it.count(), blocks, "blocks that are packed with a dictionary");
        }
        Some(live)
    }
}

#[cfg(test)]
impl Sealed {
    /// Has packing made so much of what it was tried on.
    pub(super) fn pretend_packed(&mut self, percent: u64) {
        self.outcomes = Outcomes { raw: TELLING_BYTES, packed: TELLING_BYTES * percent / 100 };
    }

    /// [`Self::memory`] summed anew.
    pub(super) fn memory_by_walking(&self) -> StreamMemory {
        let mut anew = Self { index: self.index.clone(), ..Self::default() };
        self.index.iter().for_each(|block| anew.totals.add(block));
        assert_eq!(anew.index.len(), self.index.iter().count());
        let index =
            usable(size_of::<Self>()) + self.index.heap_bytes_by_walking() + self.sparse_bytes();
        let allocated = anew.totals.memory.allocated + index + self.family.heap_bytes();
        StreamMemory { allocated, index, ..anew.totals.memory }
    }
}
