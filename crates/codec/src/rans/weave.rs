//! Several runs of bytes of the same length coded together, row by row, so that
//! one row of all of them can be decoded without the rows far before it.
//!
//! ```text
//!            lane 0   lane 1   lane 2   lane 3 | lane 4   lane 5   ...
//!  row 0      a0       b0       c0       d0    |  e0       f0
//!  row 1      a1       b1       c1       d1    |  e1       f1
//!  ...        each lane by frequencies of its own
//!
//!  [varint lanes] [lanes' frequencies] [varint coded length, per page] [page] ...
//!
//!  page: [4 states, 4 bytes each] [16-bit words ...]
//! ```
//!
//! A page is [`PAGE_ROWS`] rows of all lanes. Where each run on its own would
//! pay for four states, all of them pay once a page; so small pages cost
//! nothing if lanes are some. The states take turns within a row, always the
//! same one for the same lane.
//!
//! Cost: to decode, 2 KiB of tables a lane, which stay in the processor's first
//! cache for 16 lanes and in its second for any number.

use std::ops::Range;

use super::{
    EncodeSymbol, Histogram, LOW, Lane, N_LOG_N, STATES, Words, encode_symbols, n_log_n, normalise,
    push_frequencies, take_frequencies,
};
use crate::varint;

/// The rows that are coded together.
pub(crate) const PAGE_ROWS: usize = 64;

/// The most lanes of a weave: bounds the tables that decoding needs.
pub(crate) const LANES_MAX: usize = 64;

const BITS: u32 = 10;
const SLOTS: usize = 1 << BITS;

/// What a lane adds to a weave, by its histogram: less than a run of its own
/// takes by the states.
pub(crate) fn estimate(counts: &Histogram) -> usize {
    super::estimate(counts).saturating_sub(4 * STATES + 2)
}

/// The page that `rows` begin in.
pub(crate) fn page_start(rows: &Range<usize>) -> usize {
    if rows.is_empty() { rows.start } else { rows.start / PAGE_ROWS * PAGE_ROWS }
}

/// A run that is to be woven, and its histogram.
pub(crate) type Run = (Vec<u8>, Histogram);

/// Appends the weave of `lanes`, which are equally long.
pub(crate) fn encode(lanes: &[Run], out: &mut Vec<u8>) {
    varint::push(out, lanes.len() as u64);
    let rows = lanes.first().map_or(0, |(bytes, _)| bytes.len());
    let mut tables: Vec<[EncodeSymbol; 256]> = lanes
        .iter()
        .map(|(_, counts)| {
            let frequencies = normalise(counts, BITS);
            push_frequencies(&frequencies, out);
            encode_symbols(&frequencies, BITS)
        })
        .collect();
    // A lane of one symbol takes no bits.
    let constant = [EncodeSymbol::new(0, SLOTS as u32, BITS); 256];
    tables.resize(lanes.len().next_multiple_of(STATES), constant);
    let mut pages = Vec::new();
    for from in (0..rows).step_by(PAGE_ROWS) {
        let before = pages.len();
        encode_page(lanes, from..rows.min(from + PAGE_ROWS), &tables, &mut pages);
        varint::push(out, (pages.len() - before) as u64);
    }
    out.extend_from_slice(&pages);
}

fn encode_page(
    lanes: &[Run],
    rows: Range<usize>,
    tables: &[[EncodeSymbol; 256]],
    out: &mut Vec<u8>,
) {
    let width = tables.len();
    let mut page = vec![0; rows.len() * width];
    for (i, (bytes, _)) in lanes.iter().enumerate() {
        for (row, &byte) in page.chunks_exact_mut(width).zip(&bytes[rows.clone()]) {
            row[i] = byte;
        }
    }
    let head = out.len();
    let mut words = Words::open(page.len(), out);
    let tables = tables.as_chunks::<STATES>().0;
    let [mut s0, mut s1, mut s2, mut s3] = [LOW; STATES];
    for row in page.chunks_exact(width).rev() {
        for (four, tables) in row.as_chunks::<STATES>().0.iter().zip(tables).rev() {
            s3 = words.put(s3, tables[3][usize::from(four[3])]);
            s2 = words.put(s2, tables[2][usize::from(four[2])]);
            s1 = words.put(s1, tables[1][usize::from(four[1])]);
            s0 = words.put(s0, tables[0][usize::from(four[0])]);
        }
    }
    let len = words.close([s0, s1, s2, s3]);
    out.truncate(head + len);
}

/// What one lane is decoded by: each slot's symbol, and each symbol's frequency
/// (16 bits) and first slot (16 bits).
struct Table {
    slots: [u8; SLOTS + FILL],
    symbols: [u32; 256],
}

/// Slots are written this many at a time.
const FILL: usize = 8;

impl Table {
    /// One symbol that takes no bits.
    fn constant() -> Self {
        Self { slots: [0; SLOTS + FILL], symbols: [SLOTS as u32; 256] }
    }

    fn take(&mut self, bytes: &mut &[u8]) -> Option<()> {
        take_frequencies(bytes, SLOTS, |symbol, start, frequency| {
            // Those behind its own may be overwritten: they are the next symbol's.
            for eight in self.slots[start..start + frequency.next_multiple_of(FILL)]
                .as_chunks_mut::<FILL>()
                .0
            {
                *eight = [symbol; FILL];
            }
            self.symbols[usize::from(symbol)] = frequency as u32 | (start as u32) << 16;
        })
    }

    /// The bytes that `rows` symbols of these frequencies take.
    fn coded_len(&self, rows: usize) -> usize {
        let mut bits = SLOTS as f32 * BITS as f32;
        let mut start = 0;
        while let Some(&symbol) = self.slots[..SLOTS].get(start) {
            let frequency = self.symbols[usize::from(symbol)] & 0xffff;
            bits -= n_log_n(&N_LOG_N, frequency);
            start += frequency as usize;
        }
        (bits * rows as f32 / (8 * SLOTS) as f32) as usize
    }
}

/// Memory that weaves are decoded in: the tables of as many lanes as there ever
/// were, at most [`LANES_MAX`].
#[derive(Default)]
pub(crate) struct Room {
    tables: Vec<[Table; STATES]>,
}

impl Room {
    pub(crate) fn bytes(&self) -> usize {
        self.tables.capacity() * size_of::<[Table; STATES]>()
    }
}

/// The rows wanted of a weave, and those before them in their page.
#[derive(Default)]
pub(crate) struct Woven {
    /// How many rows the whole weave has.
    rows: usize,
    lanes: usize,
    wanted: Range<usize>,
    /// Row by row, each of as many bytes as there are lanes or up to three more.
    bytes: Vec<u8>,
    /// What each lane takes, if all rows were wanted.
    coded: Vec<usize>,
}

impl Woven {
    /// Appends what is `wanted` of a lane that has so many rows.
    pub(crate) fn append(
        &self,
        lane: usize,
        rows: usize,
        wanted: &Range<usize>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let inside = self.wanted.start <= wanted.start && wanted.end <= self.wanted.end;
        if lane >= self.lanes || rows != self.rows || !inside {
            return None;
        }
        let width = self.lanes.next_multiple_of(STATES);
        let bytes = &self.bytes[(wanted.start - self.wanted.start) * width..];
        out.extend(bytes.chunks_exact(width).take(wanted.len()).map(|row| row[lane]));
        Some(())
    }

    /// What a lane takes in the block, about; 0 unless all rows were wanted.
    pub(crate) fn coded_len(&self, lane: usize) -> usize {
        self.coded.get(lane).copied().unwrap_or(0)
    }
}

/// Takes a weave of so many rows off the front of `coded` and decodes what is
/// `wanted` of all its lanes. `None` when these are not such bytes.
pub(crate) fn take(
    coded: &mut &[u8],
    rows: usize,
    wanted: &Range<usize>,
    room: &mut Room,
) -> Option<Woven> {
    let lanes = varint::take_len(coded)?;
    if lanes == 0 {
        return Some(Woven::default());
    }
    if lanes > LANES_MAX || wanted.end > rows {
        return None;
    }
    let groups = lanes.div_ceil(STATES);
    while room.tables.len() < groups {
        room.tables.push(std::array::from_fn(|_| Table::constant()));
    }
    let tables = &mut room.tables[..groups];
    let whole = *wanted == (0..rows);
    let mut sizes = Vec::new();
    for (lane, table) in tables.iter_mut().flatten().enumerate() {
        if lane >= lanes {
            *table = Table::constant();
            continue;
        }
        let before = coded.len();
        table.take(coded)?;
        if whole {
            sizes.push(before - coded.len() + table.coded_len(rows));
        }
    }
    let from = page_start(wanted);
    let mut woven =
        Woven { rows, lanes, wanted: from..wanted.end, bytes: Vec::new(), coded: sizes };
    let mut lengths = *coded;
    for _ in (0..rows).step_by(PAGE_ROWS) {
        // Before anything is reserved: each page has its states.
        if varint::take_len(coded)? < 4 * STATES {
            return None;
        }
    }
    if coded.len() < rows.div_ceil(PAGE_ROWS) * (4 * STATES) {
        return None;
    }
    woven.bytes.resize((wanted.end - from) * groups * STATES, 0);
    let mut space = &mut woven.bytes[..];
    for start in (0..rows).step_by(PAGE_ROWS) {
        let (page, rest) = coded.split_at_checked(varint::take_len(&mut lengths)?)?;
        *coded = rest;
        if start < from || space.is_empty() {
            continue;
        }
        let page_rows = PAGE_ROWS.min(rows - start);
        let (here, after) = space.split_at_mut(space.len().min(page_rows * groups * STATES));
        let all = here.len() == page_rows * groups * STATES;
        decode_page(tables, page, here, all)?;
        space = after;
    }
    Some(woven)
}

/// Decodes the front of a page, or all of it.
fn decode_page(tables: &[[Table; STATES]], coded: &[u8], out: &mut [u8], all: bool) -> Option<()> {
    let mut lane = Lane::open(coded)?;
    for row in out.as_chunks_mut::<STATES>().0.chunks_exact_mut(tables.len()) {
        for (to, tables) in row.iter_mut().zip(tables) {
            let at = lane.states.map(|state| state & (SLOTS as u32 - 1));
            *to = std::array::from_fn(|i| tables[i].slots[at[i] as usize]);
            lane.refill(std::array::from_fn(|i| {
                let symbol = tables[i].symbols[usize::from(to[i])];
                (symbol & 0xffff) * (lane.states[i] >> BITS) + at[i] - (symbol >> 16)
            }));
        }
    }
    if all { lane.ended() } else { lane.at <= lane.words.len() }.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lanes() -> impl Strategy<Value = Vec<Vec<u8>>> {
        (1usize..300, 1usize..11).prop_flat_map(|(rows, lanes)| {
            let lane = (prop::collection::vec(any::<(u8, u8)>(), rows), 0u8..8);
            prop::collection::vec(lane, lanes).prop_map(|lanes| {
                let squeezed = |(bytes, by): (Vec<(u8, u8)>, u8)| {
                    bytes.into_iter().map(|(a, b)| (a & b) >> by).collect()
                };
                lanes.into_iter().map(squeezed).collect()
            })
        })
    }

    proptest! {
        #[test]
        fn any_rows_of_all_lanes_come_back(lanes in lanes(), some: (prop::sample::Index, prop::sample::Index)) {
            let rows = lanes[0].len();
            let mut coded = Vec::new();
            let runs: Vec<Run> = lanes.iter().map(|lane| (lane.clone(), super::super::histogram(lane))).collect();
            encode(&runs, &mut coded);
            let parts = (rows / PAGE_ROWS + 1) * (4 * STATES + 3);
            let estimated: usize = lanes.iter().map(|lane| estimate(&super::super::histogram(lane))).sum();
            prop_assert!(coded.len() <= estimated + parts + lanes.len() * (40 + rows / 20));
            coded.extend_from_slice(b"rest");
            let mut room = Room::default();
            let (a, b) = (some.0.index(rows + 1), some.1.index(rows + 1));
            for wanted in [0..rows, a.min(b)..a.max(b)] {
                let mut left = &coded[..];
                let woven = take(&mut left, rows, &wanted, &mut room).unwrap();
                prop_assert_eq!(left, b"rest");
                for (i, lane) in lanes.iter().enumerate() {
                    let mut out = Vec::new();
                    prop_assert_eq!(woven.append(i, rows, &wanted, &mut out), Some(()));
                    prop_assert_eq!(&out, &lane[wanted.clone()]);
                    prop_assert_eq!(woven.append(i, rows + 1, &wanted, &mut out), None);
                }
                prop_assert_eq!(woven.append(lanes.len(), rows, &wanted, &mut Vec::new()), None);
            }
            for cut in 0..(coded.len() - 4).min(200) {
                prop_assert!(take(&mut &coded[..cut], rows, &(0..rows), &mut room).is_none());
            }
        }

        #[test]
        fn any_bytes_are_a_weave_or_none(coded in prop::collection::vec(any::<u8>(), 1..400), lanes in 1u8..9, rows in 0usize..300, some: prop::sample::Index) {
            let mut coded = coded;
            coded[0] = lanes;
            let wanted = some.index(rows + 1)..rows;
            let _ = take(&mut &coded[..], rows, &wanted, &mut Room::default());
        }
    }
}
