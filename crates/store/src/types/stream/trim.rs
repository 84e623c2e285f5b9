//! Trimming: dropping the oldest entries.
//!
//! Exact trimming removes what Redis removes. Approximate trimming (`~`) removes
//! whole nodes only, where a node is a run of `node_entries` positions, so that
//! a client sees the lengths that Redis would show, although blocks here are of
//! another size. (Redis also ends a node at `stream-node-max-bytes`; that bound
//! is about its own encoding and is not imitated.)
//!
//! Trimming by size goes by what the entries take, packed where they are packed:
//! a block that was trimmed in part counts by the share of its rows that is left.
//!
//! Neither form unpacks to trim by length or size. Trimming by ID unpacks one block at
//! most: the one the ID falls into.

use super::block::Block;
use super::id::StreamId;
use super::range::{StreamScratch, Want};
use super::{Shape, Stream, StreamError};

/// What trimming leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// At most so many entries.
    MaxLen(u64),
    /// Entries whose ID is not below this one.
    MinId(StreamId),
    /// At most so many bytes, as [`Stream::size`] counts them. The approximate
    /// form drops whole blocks only, and none without which the stream would
    /// have less than that.
    MaxSize(u64),
}

impl Stream {
    /// Drops the oldest entries until `trim` holds; the entries dropped.
    ///
    /// `approximate` is the limit of the `~` form in entries, 0 for none; `None`
    /// trims exactly. Whole blocks go in O(1) each.
    pub fn trim(
        &mut self,
        trim: Trim,
        approximate: Option<u64>,
        shape: &Shape,
        scratch: &mut StreamScratch,
    ) -> Result<u64, StreamError> {
        let before = self.len;
        let result = match (approximate, trim) {
            (Some(limit), Trim::MaxSize(size)) => {
                self.trim_blocks_to_size(size, limit);
                Ok(())
            }
            (None, Trim::MaxSize(size)) => {
                self.trim_to_size(size);
                Ok(())
            }
            (Some(limit), _) => self.trim_nodes(trim, limit, shape.node_rows(), scratch),
            (None, Trim::MaxLen(length)) => {
                self.trim_to_length(length);
                Ok(())
            }
            (None, Trim::MinId(id)) => self.trim_before(id, scratch),
        };
        if self.len < before {
            self.close_dead_node(shape.node_rows());
        }
        result.map(|()| before - self.len)
    }

    /// Drops entries until `length` are left. Never unpacks.
    fn trim_to_length(&mut self, length: u64) {
        while let Some(sealed) = &mut self.sealed
            && let Some(block) = sealed.index().front()
        {
            let excess = self.len.saturating_sub(length);
            let live = u64::from(block.live());
            if excess < live {
                sealed.change_front(|block| block.skip_live(excess as u32));
                self.len -= excess;
                return;
            }
            sealed.pop_front();
            self.len -= live;
        }
        let mut excess = self.len.saturating_sub(length);
        self.len -= self.tail.drop_while(|_, _| {
            let more = excess > 0;
            excess = excess.saturating_sub(1);
            more
        });
    }

    /// Drops whole blocks for as long as what is left is not less than `size`
    /// bytes and no more than `limit` entries go.
    fn trim_blocks_to_size(&mut self, size: u64, limit: u64) {
        let mut dropped = 0;
        while let Some((bytes, live)) = self.front_block() {
            if self.size() < size.saturating_add(bytes) || limit > 0 && dropped + live > limit {
                return;
            }
            self.drop_front_block();
            dropped += live;
        }
    }

    /// Drops entries until what is left is at most `size` bytes. Never unpacks.
    fn trim_to_size(&mut self, size: u64) {
        while let Some((bytes, _)) = self.front_block() {
            let excess = self.size().saturating_sub(size);
            if excess == 0 {
                return;
            }
            if excess < bytes {
                let change = |block: &mut Block| block.skip_bytes(excess);
                let dropped = self.sealed.as_mut().and_then(|sealed| sealed.change_front(change));
                self.len -= u64::from(dropped.unwrap_or(0));
                return;
            }
            self.drop_front_block();
        }
        let mut excess = self.size().saturating_sub(size);
        self.len -= self.tail.drop_while(|row, _| {
            let more = excess > 0;
            excess = excess.saturating_sub((row.end - row.offset) as u64);
            more
        });
    }

    /// The bytes and the entries left in the first sealed block.
    fn front_block(&self) -> Option<(u64, u64)> {
        let block = self.sealed.as_ref()?.index().front()?;
        Some((block.size_left(), u64::from(block.live())))
    }

    fn drop_front_block(&mut self) {
        if let Some(block) = self.sealed.as_mut().and_then(|sealed| sealed.pop_front()) {
            self.len -= u64::from(block.live());
        }
    }

    /// Drops the entries before `id`.
    fn trim_before(
        &mut self,
        id: StreamId,
        scratch: &mut StreamScratch,
    ) -> Result<(), StreamError> {
        while let Some(sealed) = &mut self.sealed
            && let Some(block) = sealed.index().front()
        {
            if block.first >= id {
                return Ok(());
            }
            if block.last < id {
                self.len -= u64::from(block.live());
                sealed.pop_front();
                continue;
            }
            let kept = sealed.open(block, scratch, Want::Ids)?.first_from(id)?.unwrap_or(0);
            let row = block.row_at(kept);
            let dropped = sealed.change_front(|block| block.skip_to(row)).unwrap_or(0);
            self.len -= u64::from(dropped);
            return Ok(());
        }
        self.len -= self.tail.drop_while(|row, _| row.id < id);
        Ok(())
    }

    /// Drops whole nodes for as long as `trim` does not hold without them and
    /// no more than `limit` entries go.
    fn trim_nodes(
        &mut self,
        trim: Trim,
        limit: u64,
        node_rows: u64,
        scratch: &mut StreamScratch,
    ) -> Result<(), StreamError> {
        let mut dropped = 0;
        while self.len > 0 {
            if let Trim::MaxLen(length) = trim
                && self.len <= length
            {
                break;
            }
            let start = self.start_position();
            let end = (start / node_rows + 1) * node_rows;
            let entries = self.live_between(start, end);
            if limit > 0 && dropped + entries > limit {
                break;
            }
            let droppable = match trim {
                Trim::MaxLen(length) => self.len - entries >= length,
                Trim::MinId(id) => self.last_before(end, id, scratch)?,
                Trim::MaxSize(_) => false,
            };
            if !droppable {
                break;
            }
            self.drop_positions_before(end);
            dropped += entries;
            self.len -= entries;
        }
        Ok(())
    }

    /// The position of the first row that was not trimmed away.
    fn start_position(&self) -> u64 {
        let front = self.sealed.as_ref().and_then(|sealed| sealed.index().front());
        front.map_or(self.tail.position(), Block::start_position)
    }

    /// Whether the last row before position `end` (deleted or not) has an ID
    /// below `id`. Unpacks only when the block's own bounds do not tell.
    fn last_before(
        &self,
        end: u64,
        id: StreamId,
        scratch: &mut StreamScratch,
    ) -> Result<bool, StreamError> {
        if self.tail.rows() > 0 && self.tail.position() < end {
            let position = end.min(self.tail.next_position()) - 1;
            return Ok(self.tail.id_at(position).is_some_and(|last| last < id));
        }
        let Some(sealed) = &self.sealed else { return Ok(false) };
        let index = sealed.index();
        let at = index.before(index.seek(|block| block.position < end));
        let Some(block) = at.and_then(|at| index.get(at)) else { return Ok(false) };
        if block.last < id {
            return Ok(true);
        }
        let rows = (end.min(block.end_position()) - block.position) as u32;
        // Of rows that were dropped from the data the IDs are not known, but
        // that they lie below the first of those that are in it.
        let Some(kept) = block.kept_before(rows).checked_sub(1) else {
            return Ok(block.first <= id);
        };
        if block.first >= id {
            return Ok(false);
        }
        Ok(sealed.open(block, scratch, Want::Ids)?.id_at(kept)?.is_some_and(|last| last < id))
    }

    /// Drops all rows at positions before `end`.
    fn drop_positions_before(&mut self, end: u64) {
        while let Some(sealed) = &mut self.sealed
            && let Some(block) = sealed.index().front()
        {
            if block.end_position() <= end {
                sealed.pop_front();
                continue;
            }
            if block.position < end {
                let row = (end - block.position) as u32;
                sealed.change_front(|block| block.skip_to(row));
            }
            return;
        }
        self.tail.drop_while(|_, position| position < end);
    }
}
