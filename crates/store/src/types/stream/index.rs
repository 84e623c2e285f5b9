//! The sealed blocks of one stream, in order.
//!
//! ```text
//!  runs: [ block 0..73 ][ block 73..146 ] ... [ up to 73 blocks ]
//! ```
//!
//! A run holds at most [`RUN_BLOCKS`] blocks, so appending, dropping from the
//! front and removing from the middle move a few kilobytes at most however long
//! the stream is, and finding an ID is two binary searches. A block costs
//! `size_of::<Block>()` here, less than 0.2 byte for each of its 640 entries. Where
//! blocks go, runs are joined and give back what they have no use for.

use std::collections::VecDeque;

use super::block::Block;
use super::usable;

/// As many as fill one of the allocator's sizes (8 KiB).
const RUN_BLOCKS: usize = 73;

/// Where a block is. Valid until the index changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    run: usize,
    slot: usize,
}

/// The sealed blocks of one stream. See the module's description.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// None is empty.
    runs: VecDeque<Vec<Block>>,
    blocks: usize,
    /// The bytes allocated for the runs' blocks.
    run_bytes: usize,
}

fn run_heap_bytes(run: &Vec<Block>) -> usize {
    usable(run.capacity() * size_of::<Block>())
}

impl Clone for Index {
    fn clone(&self) -> Self {
        let mut copy = Self::default();
        for block in self.iter() {
            copy.push(block.clone());
        }
        copy
    }
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.blocks
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// The bytes allocated for the index, the blocks' own allocations apart.
    pub(super) fn heap_bytes(&self) -> usize {
        usable(self.runs.capacity() * size_of::<Vec<Block>>()) + self.run_bytes
    }

    pub(super) fn push(&mut self, block: Block) {
        if self.runs.back().is_none_or(|run| run.len() == RUN_BLOCKS) {
            self.runs.push_back(Vec::new());
        }
        let run = self.runs.back_mut().expect("a run was just made sure of");
        self.run_bytes -= run_heap_bytes(run);
        if run.len() == run.capacity() {
            run.reserve_exact(run.len().max(2).min(RUN_BLOCKS - run.len()));
        }
        run.push(block);
        self.run_bytes += run_heap_bytes(run);
        self.blocks += 1;
    }

    pub(super) fn front(&self) -> Option<&Block> {
        self.runs.front()?.first()
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Block> {
        self.runs.front_mut()?.first_mut()
    }

    pub(super) fn back(&self) -> Option<&Block> {
        self.runs.back()?.last()
    }

    pub(super) fn pop_front(&mut self) -> Option<Block> {
        (!self.is_empty()).then(|| self.remove(At { run: 0, slot: 0 }))
    }

    pub(super) fn remove(&mut self, at: At) -> Block {
        let run = &mut self.runs[at.run];
        let block = run.remove(at.slot);
        self.blocks -= 1;
        if run.is_empty() {
            self.run_bytes -= run_heap_bytes(run);
            self.runs.remove(at.run);
        } else if run.len() <= run.capacity() / 2 {
            self.run_bytes -= run_heap_bytes(run);
            run.shrink_to_fit();
            self.run_bytes += run_heap_bytes(run);
            self.join_runs(at.run);
            self.join_runs(at.run.saturating_sub(1));
        }
        block
    }

    /// Makes one run of this one and the next where that fills half a run at most.
    fn join_runs(&mut self, run: usize) {
        let len = |run: usize| self.runs.get(run).map_or(RUN_BLOCKS, Vec::len);
        if len(run) + len(run + 1) > RUN_BLOCKS / 2 {
            return;
        }
        if let Some(next) = self.runs.remove(run + 1) {
            let run = &mut self.runs[run];
            self.run_bytes -= run_heap_bytes(run) + run_heap_bytes(&next);
            run.reserve_exact(next.len());
            run.extend(next);
            self.run_bytes += run_heap_bytes(run);
        }
        if self.runs.capacity() > self.runs.len() * 4 {
            self.runs.shrink_to(self.runs.len() * 2);
        }
    }

    pub(super) fn get(&self, at: At) -> Option<&Block> {
        self.runs.get(at.run)?.get(at.slot)
    }

    pub(super) fn get_mut(&mut self, at: At) -> Option<&mut Block> {
        self.runs.get_mut(at.run)?.get_mut(at.slot)
    }

    /// The first block for which `before` is false; it is true for all blocks
    /// before some point and false for all after.
    pub(super) fn seek(&self, before: impl Fn(&Block) -> bool) -> At {
        let run = self.runs.partition_point(|run| run.last().is_some_and(&before));
        let slot = self.runs.get(run).map_or(0, |run| run.partition_point(before));
        At { run, slot }
    }

    /// The place of the `count`-th block from the end, 1 being the last.
    pub(super) fn nth_back(&self, count: usize) -> Option<At> {
        let mut left = count.checked_sub(1)?;
        for (run, blocks) in self.runs.iter().enumerate().rev() {
            match blocks.len().checked_sub(left + 1) {
                Some(slot) => return Some(At { run, slot }),
                None => left -= blocks.len(),
            }
        }
        None
    }

    /// The place after `at`.
    pub(super) fn after(&self, at: At) -> At {
        if at.slot + 1 < self.runs.get(at.run).map_or(0, Vec::len) {
            At { run: at.run, slot: at.slot + 1 }
        } else {
            At { run: at.run + 1, slot: 0 }
        }
    }

    /// The place before `at`.
    pub(super) fn before(&self, at: At) -> Option<At> {
        match at.slot.checked_sub(1) {
            Some(slot) => Some(At { run: at.run, slot }),
            None => {
                let run = at.run.min(self.runs.len()).checked_sub(1)?;
                Some(At { run, slot: self.runs[run].len() - 1 })
            }
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Block> {
        self.runs.iter().flatten()
    }
}

#[cfg(test)]
impl Index {
    /// [`Self::heap_bytes`] summed anew.
    pub(super) fn heap_bytes_by_walking(&self) -> usize {
        usable(self.runs.capacity() * size_of::<Vec<Block>>())
            + self.runs.iter().map(run_heap_bytes).sum::<usize>()
    }
}
