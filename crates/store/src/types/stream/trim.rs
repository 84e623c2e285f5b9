//! Trimming: dropping the oldest entries.
//!
//! Exact trimming removes what Redis removes. Approximate trimming (`~`) removes
//! whole nodes only, so that a client sees the lengths that Redis would show,
//! although blocks here are of another size. There are no nodes; where one would
//! end is told from what is there anyway:
//!
//! ```text
//!  positions   0        100       200       300  |312  324  336  ...
//!  rows        small: runs of node_entries       |large: as many as make up
//!                                                |node_bytes, from the block's
//!                                                |first on
//! ```
//!
//! Redis ends a node at `node_entries` entries or before its bytes come to
//! `node_bytes`. Here the second counts where `node_entries` rows of a block's (or
//! the tail's) average would be more than twice `node_bytes`: a node of that block
//! is then of as many rows as take `node_bytes`, by the average, and at least one.
//! So of what stays beyond what was asked there are fewer than `node_entries`
//! entries, and by the average of their block no more than twice `node_bytes`, or
//! none where each entry is as large.
//!
//! Trimming by size goes by what the entries take, packed where they are packed:
//! a block that was trimmed in part counts by the share of its rows that is left.
//! What waits to be packed counts as what blocks before it were packed to, so that
//! entries that come in a burst do not push out what would have fitted beside them;
//! but never is twice the limit held.
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
    /// At most so many bytes, as [`Stream::size`] will count them once all blocks
    /// are packed. The approximate form drops whole blocks only, and none without
    /// which the stream would have less than that.
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
                self.trim_blocks_to_size(self.size_for_now(size), limit);
                Ok(())
            }
            (None, Trim::MaxSize(size)) => {
                self.trim_to_size(self.size_for_now(size));
                Ok(())
            }
            (Some(limit), _) => self.trim_nodes(trim, limit, shape, scratch),
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

    /// The bytes that may be held to have `size` once all is packed, at most twice
    /// as many.
    pub(super) fn size_for_now(&self, size: u64) -> u64 {
        let saving = self.sealed.as_ref().map_or(0, |sealed| sealed.expected_saving());
        size.saturating_add(saving.min(size))
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
            let dropped = sealed.change_front(|block| block.skip_to(kept)).unwrap_or(0);
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
        shape: &Shape,
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
            let end = self.node_end(start, shape);
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

    /// The position after the node of `start`, the first row there is. Looks at
    /// as many blocks as the node spans.
    fn node_end(&self, start: u64, shape: &Shape) -> u64 {
        let end = (start / shape.node_rows() + 1) * shape.node_rows();
        let blocks = self.sealed.iter().flat_map(|sealed| sealed.index().iter()).map(|block| {
            let rows = shape.node_rows_by_bytes(block.kept().into(), block.raw_bytes.into());
            (block.position, block.end_position(), rows)
        });
        let tail = (self.tail.rows() > 0).then(|| {
            let (rows, bytes) = (self.tail.rows().into(), self.tail.raw_bytes() as u64);
            let rows = shape.node_rows_by_bytes(rows, bytes);
            (self.tail.position(), self.tail.next_position(), rows)
        });
        for (begin, past, rows) in blocks.chain(tail) {
            match rows {
                // Large rows never share a node with rows of another block.
                Some(rows) if begin <= start => {
                    return past.min(begin + ((start - begin) / rows + 1) * rows);
                }
                Some(_) => return end.min(begin),
                None if past >= end => return end,
                None => {}
            }
        }
        end
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
        // Of rows that were dropped from the data the IDs are not known, but
        // that they lie below the first of those that are in it.
        let Some(kept) = block.kept_before(end).checked_sub(1) else {
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
                sealed.change_front(|block| block.skip_to_position(end));
            }
            return;
        }
        self.tail.drop_while(|_, position| position < end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::stream::PackParams;
    use proptest::prelude::*;
    use snug_codec::{Workspace, WorkspaceConfig};

    /// Bytes that do not pack.
    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let step = |at: &mut u64| {
            *at =
                at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some((*at >> 56) as u8)
        };
        std::iter::repeat_with(|| ()).scan(seed, |at, ()| step(at)).take(len).collect()
    }

    struct Trimmed {
        stream: Stream,
        shape: Shape,
        scratch: StreamScratch,
        added: u64,
    }

    impl Trimmed {
        fn new(shape: Shape) -> Self {
            Self { stream: Stream::new(), shape, scratch: StreamScratch::new(), added: 0 }
        }

        fn add(&mut self, bytes: usize) {
            self.added += 1;
            let (id, value) = (StreamId::new(self.added, 0), noise(self.added, bytes));
            let fields = [(&b"v"[..], value.as_slice())];
            self.stream.append(id, fields.into_iter(), &self.shape).unwrap();
        }

        fn trim(&mut self, trim: Trim, limit: Option<u64>) -> u64 {
            self.stream.trim(trim, limit, &self.shape, &mut self.scratch).unwrap()
        }

        /// The greatest length when each addition trims.
        fn longest(&mut self, bytes: usize, entries: u64, length: u64) -> u64 {
            let longest = (0..entries).map(|_| {
                self.add(bytes);
                self.trim(Trim::MaxLen(length), Some(10_000));
                self.stream.len()
            });
            longest.max().unwrap()
        }
    }

    /// Redis's lengths, as redis-server 7.0 shows them: 10, 14 and 109.
    #[test]
    fn large_entries_do_not_pile_up() {
        for (bytes, longest) in [(100_000, 10), (20_000, 10), (4096, 10), (800, 14), (10, 109)] {
            let mut trimmed = Trimmed::new(Shape::default());
            assert_eq!(trimmed.longest(bytes, 300, 10), longest, "{bytes}");
        }
        // A little over Redis's 60: no node of 100 is above 8 KiB.
        let mut trimmed = Trimmed::new(Shape::default());
        assert_eq!(trimmed.longest(70, 1000, 10), 109);
        let mut trimmed = Trimmed::new(Shape::default());
        assert!(trimmed.longest(90, 1000, 10) < 10 + 46);
    }

    #[test]
    fn no_limit_of_bytes_or_of_entries() {
        let unlimited = Shape { node_bytes: 0, ..Shape::default() };
        assert_eq!(Trimmed::new(unlimited).longest(20_000, 300, 10), 109);
        let by_bytes = Shape { node_entries: 0, ..Shape::default() };
        assert_eq!(Trimmed::new(by_bytes).longest(800, 300, 10), 14);
    }

    #[test]
    fn a_limit_below_a_node_of_small_entries_trims_large_ones() {
        for limit in 1..4 {
            let mut trimmed = Trimmed::new(Shape::default());
            (0..50).for_each(|_| trimmed.add(20_000));
            assert_eq!(trimmed.trim(Trim::MaxLen(5), Some(limit)), limit);
            assert_eq!(trimmed.trim(Trim::MinId(StreamId::new(30, 0)), Some(0)), 29 - limit);
        }
    }

    /// What was trimmed away counts neither packed nor raw, so that cutting into
    /// a block leaves the ratio of the two.
    #[test]
    fn trimming_leaves_the_ratio() {
        let mut trimmed = Trimmed::new(Shape { block_bytes: 1 << 20, ..Shape::default() });
        let fields = [(&b"v"[..], &b"the same value again and again"[..])];
        for n in 1..=600 {
            trimmed.stream.append(StreamId::new(n, 0), fields.into_iter(), &trimmed.shape).unwrap();
        }
        trimmed.stream.seal_tail();
        let mut ws = Workspace::new(WorkspaceConfig::default());
        trimmed.stream.pack_some(&mut ws, &PackParams::default(), &Shape::default(), usize::MAX);
        assert_eq!(trimmed.stream.memory().packed_blocks, 1);
        let (raw, packed) = (trimmed.stream.raw_size(), trimmed.stream.size());
        assert_eq!(raw, trimmed.stream.memory().raw as u64);
        assert_eq!(trimmed.trim(Trim::MaxLen(150), None), 450);
        assert!(trimmed.stream.raw_size().abs_diff(raw / 4) <= 1);
        assert!(trimmed.stream.size().abs_diff(packed / 4) <= 1);
    }

    #[test]
    fn a_burst_does_not_push_out_what_would_fit_beside_it() {
        let value = |ms: u64| format!("the same in each of the entries {}", ms % 7).into_bytes();
        let shape = Shape::default();
        let mut stream = super::super::pack::tests::packed(&shape, value);
        let (size, scratch) = (stream.size(), &mut StreamScratch::new());
        let before = stream.len();
        for ms in 2001..=8000 {
            let value = value(ms);
            let fields = [(b"field".as_slice(), value.as_slice())];
            stream.append(StreamId::new(ms, 0), fields.into_iter(), &shape).unwrap();
        }
        let burst = stream.size() - size;
        // Most of what waits is saved before long: all of it fits ...
        assert_eq!(stream.trim(Trim::MaxSize(burst), Some(0), &shape, scratch), Ok(0));
        // ... but what is held meanwhile is bounded.
        let dropped = stream.trim(Trim::MaxSize(burst / 3), None, &shape, scratch);
        assert!(dropped.is_ok_and(|dropped| dropped > before), "{dropped:?} of {before}");
        assert!(stream.size() <= burst / 3 * 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]
        /// Whatever the sizes, sealed and deleted in any way: nothing is trimmed
        /// that was to stay, and what stays beyond it is less than a node, of
        /// many entries or of few large ones.
        #[test]
        fn what_stays_beyond_is_less_than_a_node(
            runs in prop::collection::vec(
                (prop_oneof![0usize..40, 100usize..300, 3000usize..9000], 1usize..60, any::<u8>()),
                1..12,
            ),
            node_entries in 0u32..50,
            node_bytes in prop_oneof![Just(0u32), 1u32..200, 1000u32..5000],
            length in 0u64..80,
            by_id in any::<bool>(),
        ) {
            let block_entries = 64;
            let mut trimmed = Trimmed::new(
                Shape { block_entries, block_bytes: 16_384, node_entries, node_bytes },
            );
            let mut deleted = std::collections::BTreeSet::new();
            let smallest = runs.iter().map(|run| run.0).min().unwrap_or(0);
            for (bytes, count, then) in runs {
                (0..count).for_each(|_| trimmed.add(bytes));
                match then % 4 {
                    0 => {
                        trimmed.stream.seal_tail();
                    }
                    1 => {
                        let id = 1 + u64::from(then) % trimmed.added;
                        deleted.insert(id);
                        let id = StreamId::new(id, 0);
                        let Trimmed { stream, shape, scratch, .. } = &mut trimmed;
                        stream.delete(id, shape, scratch).unwrap();
                    }
                    _ => {}
                }
                let before = trimmed.stream.len();
                let first_kept = trimmed.added.saturating_sub(length) + 1;
                let trim = if by_id {
                    Trim::MinId(StreamId::new(first_kept, 0))
                } else {
                    Trim::MaxLen(length)
                };
                let dropped = trimmed.trim(trim, Some(0));
                let left = trimmed.stream.len();
                prop_assert_eq!(before - dropped, left);
                let stays = |id: &u64| !deleted.contains(id);
                let asked = match by_id {
                    true => (first_kept..=trimmed.added).filter(stays).count() as u64,
                    false => length.min(before),
                };
                prop_assert!(left >= asked, "{} left of {}", left, asked);
                let node_rows = if node_entries == 0 { block_entries } else { node_entries };
                let beyond = left - asked;
                prop_assert!(beyond < u64::from(node_rows), "{} beyond", beyond);
                if node_bytes > 0 && smallest >= node_bytes as usize {
                    prop_assert!(beyond < 2, "{} large ones beyond", beyond);
                }
            }
        }
    }
}
