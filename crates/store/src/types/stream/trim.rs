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
//! Trimming by size goes by what the entries will take once they are packed:
//!
//! ```text
//!  block   block  block | block     block    tail
//!  packed  raw    packed| waiting   waiting  rows
//!  what they take       | what packing has made of as many bytes lately
//! ```
//!
//! A block that was trimmed in part counts by the share of its rows that is left.
//! So entries that come in a burst, faster than they are packed, do not push out
//! what will fit beside them. What packing has made of the last megabyte or so is
//! remembered, whatever became of those blocks; where it made nothing smaller, all
//! counts raw.
//!
//! What waits takes its raw bytes meanwhile. Of these, [`WAITING_TIMES`] the limit,
//! or [`WAITING_BYTES`] if that is more, count as packed, and what is above counts
//! raw. That bounds what a stream holds while a client goes on writing faster than
//! it is packed. Only then do entries go that would have fitted: the oldest go
//! first, and those are packed and free little.
//!
//! Before it is known what packing makes of a stream, what waits counts nothing: of
//! up to the limit, or [`UNTRIED_BYTES`] if that is more, but no more than
//! [`UNTRIED_TIMES`] the limit. A new stream may hold that beyond its limit until
//! its first blocks are packed. Where nothing is packed ([`Shape::packs`]) all
//! counts raw at once.
//!
//! A tail of less than [`TAIL_MIN`] is not packed even when it is cold: to the exact
//! form so many bytes of a tail count raw.
//!
//! Neither form unpacks to trim by length or size. Trimming by ID unpacks one block at
//! most: the one the ID falls into.

use super::block::Block;
use super::id::StreamId;
use super::range::{StreamScratch, Want};
use super::sealed::Sealed;
use super::{Shape, Stream, StreamError, TAIL_MIN};

/// How often the limit, in bytes that wait to be packed, counts as packed ...
const WAITING_TIMES: u64 = 16;
/// ... and how many do at least.
const WAITING_BYTES: u64 = 16 << 20;
/// How many count nothing while it is not known what they pack to ...
const UNTRIED_BYTES: u64 = 1 << 20;
/// ... and how often the limit at most.
const UNTRIED_TIMES: u64 = 256;

/// What trimming leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// At most so many entries.
    MaxLen(u64),
    /// Entries whose ID is not below this one.
    MinId(StreamId),
    /// At most so many bytes, as [`Stream::size`] will count them once all is
    /// packed, as far as that can be told (see the module's description). The
    /// approximate form drops whole blocks only, and none without which the stream
    /// would have less than that.
    MaxSize(u64),
}

/// What bytes that wait to be packed count as.
#[derive(Clone, Copy, Debug)]
struct Counting {
    /// `packed` for each `raw` bytes ...
    packed: u64,
    raw: u64,
    /// ... of at most so many.
    most: u64,
}

impl Counting {
    const RAW: Self = Self { packed: 1, raw: 1, most: u64::MAX };

    fn of(ratio: Option<(u64, u64)>, limit: u64) -> Self {
        match ratio {
            Some((packed, raw)) => {
                let most = limit.saturating_mul(WAITING_TIMES).max(WAITING_BYTES);
                Self { packed, raw, most }
            }
            None => {
                let most = limit.max(UNTRIED_BYTES).min(limit.saturating_mul(UNTRIED_TIMES));
                Self { packed: 0, raw: 1, most }
            }
        }
    }

    /// What `waiting` bytes count as. Never falls as they rise.
    fn count(self, waiting: u64) -> u64 {
        let within = waiting.min(self.most);
        let packed = u128::from(within) * u128::from(self.packed);
        packed.div_ceil(self.raw.into()) as u64 + (waiting - within)
    }

    /// The most bytes that count as `count` or less.
    fn most_within(self, count: u64) -> u64 {
        match count.checked_sub(self.count(self.most)) {
            Some(beyond) => self.most.saturating_add(beyond),
            None => (u128::from(count) * u128::from(self.raw) / u128::from(self.packed)) as u64,
        }
    }
}

/// What a stream holds, as trimming by size counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// The bytes of blocks that packing was tried on.
    settled: u64,
    /// Those of the others and of the tail.
    waiting: u64,
    /// What the tail's count beyond that.
    tail_beyond: u64,
    counting: Counting,
}

impl Held {
    pub(super) fn size(self) -> u64 {
        self.settled + self.counting.count(self.waiting) + self.tail_beyond
    }

    fn without(self, block: &Block) -> Self {
        let (bytes, waiting) = (block.size_left(), block.is_waiting());
        Self {
            settled: self.settled - if waiting { 0 } else { bytes },
            waiting: self.waiting - if waiting { bytes } else { 0 },
            ..self
        }
    }

    /// The bytes of the first block, waiting or not, that have to go for the rest to
    /// count as no more than `size`; less than all, if without it that is less.
    fn excess(self, size: u64, waiting: bool) -> u64 {
        if !waiting {
            return self.size().saturating_sub(size);
        }
        let left = size.saturating_sub(self.settled + self.tail_beyond);
        self.waiting.saturating_sub(self.counting.most_within(left))
    }
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
                self.trim_blocks_to_size(size, limit, shape);
                Ok(())
            }
            (None, Trim::MaxSize(size)) => {
                self.trim_to_size(size, shape);
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

    /// What the stream holds, for trimming it to `size`, exactly or not.
    pub(super) fn held(&self, size: u64, exactly: bool, shape: &Shape) -> Held {
        let sealed = self.sealed.as_deref();
        let waiting = sealed.map_or(0, Sealed::waiting);
        let settled = sealed.map_or(0, Sealed::size) - waiting;
        let counting = if shape.packs {
            Counting::of(sealed.and_then(Sealed::packing_ratio), size)
        } else {
            Counting::RAW
        };
        let tail = self.tail.raw_bytes() as u64;
        let tail_least = if exactly { tail.min(TAIL_MIN as u64) } else { 0 };
        let tail_beyond = tail_least.saturating_sub(counting.count(tail));
        Held { settled, waiting: waiting + tail, tail_beyond, counting }
    }

    fn front_block(&self) -> Option<&Block> {
        self.sealed.as_ref()?.index().front()
    }

    /// Drops whole blocks for as long as what is left is not less than `size`
    /// bytes and no more than `limit` entries go.
    fn trim_blocks_to_size(&mut self, size: u64, limit: u64, shape: &Shape) {
        let mut held = self.held(size, false, shape);
        let mut dropped = 0;
        while let Some(block) = self.front_block() {
            let (left, live) = (held.without(block), u64::from(block.live()));
            let holds = held.size() <= size || left.size() < size;
            if holds || limit > 0 && dropped + live > limit {
                return;
            }
            self.drop_front_block();
            (held, dropped) = (left, dropped + live);
        }
    }

    /// Drops entries until what is left is at most `size` bytes. Never unpacks.
    fn trim_to_size(&mut self, size: u64, shape: &Shape) {
        let mut held = self.held(size, true, shape);
        while let Some(block) = self.front_block() {
            if held.size() <= size {
                return;
            }
            let left = held.without(block);
            if left.size() < size {
                let excess = held.excess(size, block.is_waiting());
                let change = |block: &mut Block| block.skip_bytes(excess);
                let dropped = self.sealed.as_mut().and_then(|sealed| sealed.change_front(change));
                self.len -= u64::from(dropped.unwrap_or(0));
                return;
            }
            self.drop_front_block();
            held = left;
        }
        self.trim_tail_to_size(size, held);
    }

    /// Drops entries of the tail, where there is nothing else.
    fn trim_tail_to_size(&mut self, size: u64, held: Held) {
        if held.size() <= size {
            return;
        }
        let most = held.counting.most_within(size);
        let most = if size < TAIL_MIN as u64 { most.min(size) } else { most };
        let mut excess = held.waiting.saturating_sub(most);
        self.len -= self.tail.drop_while(|row, _| {
            let more = excess > 0;
            excess = excess.saturating_sub((row.end - row.offset) as u64);
            more
        });
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

    /// Streams that each addition trims to a size.
    struct Limited {
        stream: Stream,
        shape: Shape,
        size: u64,
        approximate: Option<u64>,
        scratch: StreamScratch,
        workspace: Workspace,
        longest: u64,
    }

    impl Limited {
        fn new(size: u64, approximate: Option<u64>) -> Self {
            let workspace = Workspace::new(WorkspaceConfig::default());
            Self {
                stream: Stream::new(),
                shape: Shape::default(),
                size,
                approximate,
                scratch: StreamScratch::new(),
                workspace,
                longest: 0,
            }
        }

        fn trim(&mut self) {
            let trim = Trim::MaxSize(self.size);
            self.stream.trim(trim, self.approximate, &self.shape, &mut self.scratch).unwrap();
            self.longest = self.longest.max(self.stream.size());
        }

        fn add(&mut self, count: u64, value: impl Fn(u64) -> Vec<u8>) {
            for _ in 0..count {
                let n = self.stream.entries_added() + 1;
                let value = value(n);
                let fields = [(&b"field"[..], value.as_slice())];
                self.stream.append(StreamId::new(n, 0), fields.into_iter(), &self.shape).unwrap();
                self.trim();
            }
        }

        fn pack(&mut self) {
            self.stream.pack_some(
                &mut self.workspace,
                &PackParams::default(),
                &self.shape,
                usize::MAX,
            );
        }

        /// Additions that packing keeps up with.
        fn add_slowly(&mut self, count: u64, value: impl Fn(u64) -> Vec<u8>) {
            for _ in 0..count {
                self.add(1, &value);
                self.pack();
            }
        }

        /// What the stream takes when all of it is packed.
        fn settled(&mut self) -> u64 {
            self.stream.seal_tail();
            self.pack();
            self.stream.size()
        }
    }

    fn clicks(n: u64) -> Vec<u8> {
        let step = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        format!("user{}@example.com clicked /some/page/{}", step % 1000, step / 1000 % 100).into()
    }

    #[test]
    fn a_burst_leaves_what_fits_once_it_is_packed() {
        for (approximate, burst) in [(Some(0), 6_000), (None, 6_000), (Some(0), 100_000)] {
            let size = 30_000;
            let (mut limited, mut slow) =
                (Limited::new(size, approximate), Limited::new(size, approximate));
            for limited in [&mut limited, &mut slow] {
                limited.add_slowly(15_000, clicks);
                assert!(limited.stream.len() < 14_000, "more than fits: {}", limited.stream.len());
            }
            limited.add(burst, clicks);
            slow.add_slowly(burst, clicks);
            let (settled, settled_slow) = (limited.settled(), slow.settled());
            let (len, len_slow) = (limited.stream.len(), slow.stream.len());
            assert!(len.abs_diff(len_slow) < len_slow / 10, "{len} entries, {len_slow} slowly");
            assert!(settled.abs_diff(settled_slow) < size / 10, "{settled}, {settled_slow} slowly");
            match approximate {
                Some(_) => assert!(settled > size * 49 / 50, "{settled}"),
                None => assert!(settled < size * 51 / 50, "{settled}"),
            }
            // What was expected wrongly is made good by the next trimming.
            limited.trim();
            assert!(approximate.is_some() || limited.stream.size() <= size);
        }
    }

    #[test]
    fn a_burst_into_a_new_stream_waits_for_its_first_blocks() {
        let value = |n: u64| format!("value number {n}").into_bytes();
        for approximate in [Some(0), None] {
            let mut limited = Limited::new(20_000, approximate);
            limited.add(20_000, value);
            assert_eq!(limited.stream.len(), 20_000);
            assert!(limited.settled() < 20_000);
            // No more than is told.
            let mut limited = Limited::new(20_000, approximate);
            limited.add(50_000, |n| noise(n, 40));
            let most = 20_000 + UNTRIED_BYTES + 64 * 1024;
            assert!((UNTRIED_BYTES..most).contains(&limited.longest), "{}", limited.longest);
            // These do not pack.
            limited.pack();
            limited.trim();
            assert!(limited.stream.size() <= 20_000 + 2 * 64 * 1024, "{}", limited.stream.size());
            assert!(approximate.is_some() || limited.stream.size() <= 20_000);
        }
        for size in [0, 100, 3_000] {
            let mut limited = Limited::new(size, None);
            limited.add(200, |n| noise(n, 40));
            assert!(limited.stream.size() <= size);
        }
    }

    #[test]
    fn where_nothing_is_packed_raw_bytes_are_limited() {
        for slowly in [0, 10_000] {
            let mut limited = Limited::new(20_000, None);
            limited.add_slowly(slowly, clicks);
            (limited.shape.packs, limited.longest) = (false, 0);
            limited.add(5_000, clicks);
            assert!(limited.longest <= 20_000);
            assert!(limited.stream.size() > 19_900);
        }
    }

    #[test]
    fn what_waits_is_bounded_however_much_fits_once_packed() {
        let value = |n: u64| clicks(n % 50).repeat(1_000);
        for size in [100_000, 2 << 20] {
            let mut limited = Limited::new(size, Some(0));
            limited.add_slowly(50, value);
            limited.add((40 << 20) / 34_000, value);
            let most = WAITING_BYTES.max(size * WAITING_TIMES);
            let held = limited.stream.size();
            assert!((most.min(40 << 20)..most + size + 128 * 1024).contains(&held), "{held}");
        }
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
                Shape {
                    block_entries,
                    block_bytes: 16_384,
                    node_entries,
                    node_bytes,
                    ..Shape::default()
                },
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
