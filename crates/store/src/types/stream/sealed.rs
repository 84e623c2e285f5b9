//! The sealed part of a stream: its blocks and their exact totals.

use super::block::{Block, Data};
use super::id::StreamId;
use super::index::Index;
use super::pack::Family;
use super::range::StreamScratch;
use super::{StreamError, StreamMemory, usable};

/// Sums over all sealed blocks.
#[derive(Clone, Debug, Default)]
struct Totals {
    memory: StreamMemory,
    pending: usize,
}

impl Totals {
    fn add(&mut self, block: &Block) {
        let Self { memory, pending } = self;
        memory.blocks += 1;
        memory.allocated += block.heap_bytes();
        memory.raw += block.raw_bytes as usize;
        match &block.data {
            Data::Pending(_) => *pending += 1,
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
        let Self { memory, .. } = self;
        memory.blocks -= this.memory.blocks;
        memory.allocated -= this.memory.allocated;
        memory.raw -= this.memory.raw;
        memory.packed_blocks -= this.memory.packed_blocks;
        memory.packed_from -= this.memory.packed_from;
        memory.packed -= this.memory.packed;
    }
}

/// The sealed blocks of a stream. Allocated with the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Sealed {
    /// Every block has entries left.
    index: Index,
    totals: Totals,
    family: Family,
}

impl Sealed {
    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    pub(super) fn family(&self) -> &Family {
        &self.family
    }

    pub(super) fn family_mut(&mut self) -> &mut Family {
        &mut self.family
    }

    /// Changes what the block that begins with `first` lies in.
    pub(super) fn change_data(
        &mut self,
        first: StreamId,
        change: impl FnOnce(&mut Data) -> bool,
    ) -> bool {
        let at = self.index.seek(|block| block.first < first);
        let Some(block) = self.index.get_mut(at).filter(|block| block.first == first) else {
            return false;
        };
        self.totals.subtract(block);
        let changed = change(&mut block.data);
        self.totals.add(block);
        changed
    }

    pub(super) fn push(&mut self, block: Block) {
        self.totals.add(&block);
        self.index.push(block);
    }

    pub(super) fn pop_front(&mut self) -> Option<Block> {
        let block = self.index.pop_front()?;
        self.totals.subtract(&block);
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
        let Some(row) = self.open(block, scratch)?.row_of(id)? else { return Ok(false) };
        let Some(block) = self.index.get_mut(at) else { return Ok(false) };
        self.totals.memory.allocated -= block.heap_bytes();
        let deleted = block.delete(row);
        self.totals.memory.allocated += block.heap_bytes();
        if block.live() == 0 {
            let block = self.index.remove(at);
            self.totals.subtract(&block);
        }
        Ok(deleted)
    }

    /// The entries at positions from `start` to before `end`.
    pub(super) fn live_between(&self, start: u64, end: u64) -> u64 {
        let mut at = self.index.seek(|block| block.end_position() <= start);
        let mut live = 0;
        while let Some(block) = self.index.get(at).filter(|block| block.position < end) {
            let row = |position: u64| {
                position.saturating_sub(block.position).min(u64::from(block.rows())) as u32
            };
            live += u64::from(block.live_between(row(start), row(end)));
            at = self.index.after(at);
        }
        live
    }

    /// The position after the last block's last row.
    pub(super) fn end_position(&self) -> u64 {
        self.index.back().map_or(0, Block::end_position)
    }

    /// Blocks sealed and not yet tried.
    pub(super) fn pending_blocks(&self) -> usize {
        self.totals.pending
    }

    pub(super) fn memory(&self) -> StreamMemory {
        let own = usable(size_of::<Self>()) + self.index.heap_bytes() + self.family.heap_bytes();
        let memory = self.totals.memory;
        StreamMemory { allocated: memory.allocated + own, ..memory }
    }
}

#[cfg(test)]
impl Sealed {
    /// [`Self::memory`] summed anew.
    pub(super) fn memory_by_walking(&self) -> StreamMemory {
        let mut anew = Self { index: self.index.clone(), ..Self::default() };
        self.index.iter().for_each(|block| anew.totals.add(block));
        assert_eq!(anew.index.len(), self.index.iter().count());
        let own = usable(size_of::<Self>())
            + self.index.heap_bytes_by_walking()
            + self.family.heap_bytes();
        StreamMemory { allocated: anew.totals.memory.allocated + own, ..anew.memory() }
    }
}
