//! An order-0 entropy coder for bytes: range asymmetric numeral systems (Duda,
//! "Asymmetric numeral systems", 2013) in the table form with interleaved
//! states (Giesen, "Interleaved entropy coders", 2014).
//!
//! Where Huffman codes spend whole bits, this spends fractions: a column that
//! is one value nine times out of ten costs half a bit a row. Four states take
//! turns, so that four symbols are in flight at once.
//!
//! ```text
//!  [scale bits][symbols - 1][symbol list, or 32-byte bitmap when above 32]
//!  [frequency - 1, varint, per symbol but the last]
//!  [varint coded length, per part but the last] [part] [part] ...
//!
//!  part: [4 states, 4 bytes each] [16-bit words ...]
//! ```
//!
//! One table serves the run; a part is [`PART_BYTES`] of it and can be decoded
//! without those before it, and from its front as far as is wanted. Whole runs
//! are decoded two parts at a time, which the processor does at once.
//!
//! Cost: about 1 ns a byte each way, a table of 2^scale entries to unpack, and
//! 18 bytes for each further part: 1.2 percent of a run of letters.

use std::ops::Range;
use std::sync::LazyLock;

use crate::varint;

pub(crate) mod weave;

/// The states stay in `LOW..LOW << 16`.
const LOW: u32 = 1 << 15;
const STATES: usize = 4;

/// The bytes of a run that are coded together; a multiple of [`STATES`].
pub(crate) const PART_BYTES: usize = 2048;

const SCALE_BITS_MAX: u32 = 11;

/// How often each byte occurs.
pub(crate) type Histogram = [u32; 256];

pub(crate) fn histogram(bytes: &[u8]) -> Histogram {
    // Four tables, so that a run of one byte does not wait for itself.
    let mut parts = [[0u32; 256]; 4];
    let mut chunks = bytes.chunks_exact(4);
    for four in &mut chunks {
        for (part, &byte) in parts.iter_mut().zip(four) {
            part[usize::from(byte)] += 1;
        }
    }
    for &byte in chunks.remainder() {
        parts[0][usize::from(byte)] += 1;
    }
    std::array::from_fn(|i| parts.iter().map(|part| part[i]).sum())
}

/// The bytes that coding by this histogram takes, table included: the order-0
/// entropy plus what the table costs.
pub(crate) fn estimate(counts: &Histogram) -> usize {
    let total: u32 = counts.iter().sum();
    if total == 0 {
        return 0;
    }
    let (mut sums, mut symbols) = ([0f32; 4], 0);
    let table: &[f32; 1025] = &N_LOG_N;
    // Four sums, so that none waits for the one before.
    for four in counts.as_chunks::<4>().0 {
        for (sum, &count) in sums.iter_mut().zip(four) {
            *sum += n_log_n(table, count);
            symbols += u32::from(count > 0);
        }
    }
    let bits = n_log_n(table, total) - sums.iter().sum::<f32>();
    let parts = (total as usize).div_ceil(PART_BYTES);
    let wide = 1.0f32 / 16.0;
    let head = symbols.min(32) as f32 + symbols as f32 * (1.0 + wide);
    ((bits / 8.0) + head) as usize + parts * (4 * STATES + 2)
}

/// `n * log2(n)` for the counts that columns have.
static N_LOG_N: LazyLock<[f32; 1025]> =
    LazyLock::new(|| std::array::from_fn(|n| n as f32 * (n.max(1) as f32).log2()));

#[inline]
fn n_log_n(table: &[f32; 1025], n: u32) -> f32 {
    table.get(n as usize).copied().unwrap_or_else(|| n as f32 * (n as f32).log2())
}

fn scale_bits(len: usize) -> u32 {
    if len >= 2048 { SCALE_BITS_MAX } else { 10 }
}

/// Frequencies that sum to `1 << bits`, at least 1 for each byte that occurs.
fn normalise(counts: &Histogram, bits: u32) -> [u16; 256] {
    let total: u64 = counts.iter().map(|&c| u64::from(c)).sum();
    let target = 1u64 << bits;
    let mut frequencies = [0u16; 256];
    let mut sum = 0u64;
    for (frequency, &count) in frequencies.iter_mut().zip(counts) {
        if count > 0 {
            let share = (u64::from(count) * target + total / 2) / total;
            *frequency = share.clamp(1, target) as u16;
            sum += u64::from(*frequency);
        }
    }
    // The most frequent ones absorb what rounding gave too much or too little.
    while sum != target {
        let largest = (0..256).max_by_key(|&i| frequencies[i]).expect("256 of them");
        let f = &mut frequencies[largest];
        if sum < target {
            *f += (target - sum) as u16;
            sum = target;
        } else {
            let take = (sum - target).min(u64::from(*f / 2).max(1));
            *f -= take as u16;
            sum -= take;
        }
    }
    frequencies
}

#[derive(Clone, Copy, Default)]
struct EncodeSymbol {
    limit: u32,
    reciprocal: u32,
    bias: u32,
    complement: u16,
    shift: u16,
}

impl EncodeSymbol {
    fn new(start: u32, frequency: u32, bits: u32) -> Self {
        let limit = frequency << (31 - bits);
        let complement = ((1 << bits) - frequency) as u16;
        if frequency < 2 {
            let bias = start + (1 << bits) - 1;
            return Self { limit, reciprocal: !0, bias, complement, shift: 0 };
        }
        let shift = 32 - (frequency - 1).leading_zeros();
        let reciprocal = (1u64 << (shift + 31)).div_ceil(u64::from(frequency)) as u32;
        Self { limit, reciprocal, bias: start, complement, shift: shift as u16 - 1 }
    }
}

/// Appends `bytes`, of which `counts` is the histogram. Nothing for nothing.
pub(crate) fn encode(bytes: &[u8], counts: &Histogram, out: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let bits = scale_bits(bytes.len());
    let frequencies = normalise(counts, bits);
    out.push(bits as u8);
    push_frequencies(&frequencies, out);
    let symbols = encode_symbols(&frequencies, bits);
    if bytes.len() <= PART_BYTES {
        encode_part(bytes, &symbols, out);
        return;
    }
    let (mut bodies, mut end) = (Vec::with_capacity(bytes.len()), 0);
    let parts = bytes.chunks(PART_BYTES);
    let last = parts.len() - 1;
    for (i, part) in parts.enumerate() {
        encode_part(part, &symbols, &mut bodies);
        if i < last {
            varint::push(out, (bodies.len() - end) as u64);
        }
        end = bodies.len();
    }
    out.extend_from_slice(&bodies);
}

fn encode_symbols(frequencies: &[u16; 256], bits: u32) -> [EncodeSymbol; 256] {
    let mut symbols = [EncodeSymbol::default(); 256];
    let mut start = 0;
    for (symbol, &frequency) in symbols.iter_mut().zip(frequencies) {
        if frequency > 0 {
            *symbol = EncodeSymbol::new(start, u32::from(frequency), bits);
            start += u32::from(frequency);
        }
    }
    symbols
}

/// Coded back to front, so that it reads front to back.
fn encode_part(bytes: &[u8], symbols: &[EncodeSymbol; 256], out: &mut Vec<u8>) {
    let head = out.len();
    let mut words = Words::open(bytes.len(), out);
    let (groups, rest) = bytes.as_chunks::<STATES>();
    let mut states = [LOW; STATES];
    for (state, &byte) in states.iter_mut().zip(rest).rev() {
        *state = words.put(*state, symbols[usize::from(byte)]);
    }
    // Apart, so that they stay in registers.
    let [mut s0, mut s1, mut s2, mut s3] = states;
    for group in groups.iter().rev() {
        s3 = words.put(s3, symbols[usize::from(group[3])]);
        s2 = words.put(s2, symbols[usize::from(group[2])]);
        s1 = words.put(s1, symbols[usize::from(group[1])]);
        s0 = words.put(s0, symbols[usize::from(group[0])]);
    }
    let len = words.close([s0, s1, s2, s3]);
    out.truncate(head + len);
}

/// The words of a part, from the back.
struct Words<'a> {
    space: &'a mut [u8],
    at: usize,
}

impl<'a> Words<'a> {
    /// Room behind `out` for a part of `count` symbols: two bytes a symbol are
    /// the most it can take; one word more, because each symbol writes a word,
    /// counted only if it was due.
    fn open(count: usize, out: &'a mut Vec<u8>) -> Self {
        let head = out.len();
        let room = 2 + 4 * STATES + 2 * count;
        out.resize(head + room, 0);
        Words { space: &mut out[head..], at: room }
    }

    /// Puts the states in front and all of it at the front of the room; its
    /// length.
    fn close(self, states: [u32; STATES]) -> usize {
        let Words { space, mut at } = self;
        for state in states.into_iter().rev() {
            at -= 4;
            space[at..at + 4].copy_from_slice(&state.to_le_bytes());
        }
        space.copy_within(at.., 0);
        space.len() - at
    }

    /// Codes one symbol; the state after it. Without branches: whether a word
    /// is due is as good as random.
    #[inline(always)]
    fn put(&mut self, x: u32, symbol: EncodeSymbol) -> u32 {
        let due = u32::from(x >= symbol.limit);
        self.space[self.at - 2..self.at].copy_from_slice(&(x as u16).to_le_bytes());
        self.at -= 2 * due as usize;
        let x = x >> (16 * due);
        let q = ((u64::from(x) * u64::from(symbol.reciprocal)) >> 32) as u32 >> symbol.shift;
        x + symbol.bias + q * u32::from(symbol.complement)
    }
}

fn push_frequencies(frequencies: &[u16; 256], out: &mut Vec<u8>) {
    let used: Vec<usize> = (0..256).filter(|&i| frequencies[i] > 0).collect();
    out.push((used.len() - 1) as u8);
    if used.len() <= 32 {
        out.extend(used.iter().map(|&i| i as u8));
    } else {
        let mut map = [0u8; 32];
        for &i in &used {
            map[i / 8] |= 1 << (i % 8);
        }
        out.extend_from_slice(&map);
    }
    for &i in &used[..used.len() - 1] {
        varint::push(out, u64::from(frequencies[i] - 1));
    }
}

const SCALE_BITS_MIN: u32 = 8;

/// Slots are written this many at a time.
const FILL: usize = 8;

/// What runs are decoded by: for each of `1 << bits` slots the symbol (8 bits),
/// its frequency less 1 (12 bits) and the slot's place within it (12 bits).
pub(crate) struct Table {
    slots: Box<[u32; (1 << SCALE_BITS_MAX) + FILL]>,
    bits: u32,
}

impl Default for Table {
    fn default() -> Self {
        Self { slots: Box::new([0; (1 << SCALE_BITS_MAX) + FILL]), bits: 0 }
    }
}

impl Table {
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    fn take(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let (&bits, rest) = bytes.split_first()?;
        *bytes = rest;
        self.bits = u32::from(bits);
        if !(SCALE_BITS_MIN..=SCALE_BITS_MAX).contains(&self.bits) {
            return None;
        }
        take_frequencies(bytes, 1 << bits, |symbol, start, frequency| {
            self.fill(start, frequency, symbol);
        })
    }

    /// Gives a symbol its slots. Those behind them may be overwritten: they are
    /// the next symbol's.
    #[inline]
    fn fill(&mut self, start: usize, frequency: usize, symbol: u8) {
        let first = u32::from(symbol) | (frequency as u32 - 1) << 8;
        let mut slots: [u32; FILL] = std::array::from_fn(|place| first + ((place as u32) << 20));
        for at in (start..start + frequency).step_by(FILL) {
            self.slots[at..at + FILL].copy_from_slice(&slots);
            slots = slots.map(|slot| slot.wrapping_add((FILL as u32) << 20));
        }
    }
}

/// Takes what [`push_frequencies`] wrote, for `size` slots; gives each symbol,
/// its first slot and its frequency to `each`.
fn take_frequencies(
    bytes: &mut &[u8],
    size: usize,
    mut each: impl FnMut(u8, usize, usize),
) -> Option<()> {
    let (&last, rest) = bytes.split_first()?;
    *bytes = rest;
    let count = usize::from(last) + 1;
    let mut used = [0u8; 256];
    if count <= 32 {
        used[..count].copy_from_slice(bytes.get(..count)?);
        *bytes = &bytes[count..];
        // One listed twice would have slots of two frequencies.
        if !used[..count].is_sorted_by(|a, b| a < b) {
            return None;
        }
    } else {
        let (map, rest) = bytes.split_first_chunk::<32>()?;
        *bytes = rest;
        if take_bitmap(map, &mut used) != count {
            return None;
        }
    }
    let mut start = 0;
    for &symbol in &used[..count - 1] {
        let frequency = take_frequency(bytes)?;
        // Each symbol has a slot at least, the last one too.
        if frequency >= size - start {
            return None;
        }
        each(symbol, start, frequency);
        start += frequency;
    }
    each(used[count - 1], start, size - start);
    Some(())
}

/// Lists the bits that are set; how many.
fn take_bitmap(map: &[u8; 32], used: &mut [u8; 256]) -> usize {
    let mut found = 0;
    for (i, eight) in map.as_chunks::<8>().0.iter().enumerate() {
        let mut bits = u64::from_le_bytes(*eight);
        while bits != 0 {
            used[found] = (64 * i) as u8 + bits.trailing_zeros() as u8;
            found += 1;
            bits &= bits - 1;
        }
    }
    found
}

#[inline]
fn take_frequency(bytes: &mut &[u8]) -> Option<usize> {
    match **bytes {
        [one @ 0..0x80, ref rest @ ..] => {
            *bytes = rest;
            Some(usize::from(one) + 1)
        }
        _ => varint::take_len(bytes)?.checked_add(1),
    }
}

/// Decodes what of the `len` bytes in `coded` is `wanted`, and what lies before
/// that in its first part; appends it to `out`. Where in the run that begins;
/// `None` when `coded` does not hold them.
pub(crate) fn decode(
    mut coded: &[u8],
    len: usize,
    wanted: Range<usize>,
    table: &mut Table,
    out: &mut Vec<u8>,
) -> Option<usize> {
    if wanted.start >= wanted.end || wanted.end > len {
        return (wanted.is_empty() && wanted.end <= len).then_some(wanted.start);
    }
    table.take(&mut coded)?;
    let parts = len.div_ceil(PART_BYTES);
    // Before anything is reserved: each part has its states.
    if coded.len() < parts * (4 * STATES) {
        return None;
    }
    let mut ends = Vec::new();
    let mut end = 0usize;
    for _ in 1..parts {
        end = end.checked_add(varint::take_len(&mut coded)?)?;
        ends.push(end);
    }
    ends.push(coded.len());
    let part = |i: usize| coded.get(if i == 0 { 0 } else { ends[i - 1] }..ends[i]);
    let at = wanted.start / PART_BYTES;
    let from = at * PART_BYTES;
    let before = out.len();
    out.resize(before + wanted.end - from, 0);
    let space = &mut out[before..];
    match table.bits {
        8 => decode_parts::<8>(table, part, at, len, space)?,
        9 => decode_parts::<9>(table, part, at, len, space)?,
        10 => decode_parts::<10>(table, part, at, len, space)?,
        _ => decode_parts::<SCALE_BITS_MAX>(table, part, at, len, space)?,
    }
    Some(from)
}

/// Fills `space` from part number `at` on.
fn decode_parts<'c, const BITS: u32>(
    table: &Table,
    part: impl Fn(usize) -> Option<&'c [u8]>,
    mut at: usize,
    len: usize,
    mut space: &mut [u8],
) -> Option<()> {
    while space.len() >= 2 * PART_BYTES {
        let (one, rest) = space.split_at_mut(PART_BYTES);
        let (two, rest) = rest.split_at_mut(PART_BYTES);
        decode_two::<BITS>(table, [part(at)?, part(at + 1)?], [one, two])?;
        (at, space) = (at + 2, rest);
    }
    while !space.is_empty() {
        let (one, rest) = space.split_at_mut(space.len().min(PART_BYTES));
        let whole = one.len() == PART_BYTES.min(len - at * PART_BYTES);
        decode_one::<BITS>(table, part(at)?, one, whole)?;
        (at, space) = (at + 1, rest);
    }
    Some(())
}

fn decode_two<const BITS: u32>(
    table: &Table,
    coded: [&[u8]; 2],
    out: [&mut [u8]; 2],
) -> Option<()> {
    let [a, b] = coded;
    let (mut a, mut b) = (Lane::open(a)?, Lane::open(b)?);
    let [to_a, to_b] = out;
    for (to_a, to_b) in to_a.as_chunks_mut().0.iter_mut().zip(to_b.as_chunks_mut().0) {
        *to_a = a.group::<BITS>(table);
        *to_b = b.group::<BITS>(table);
    }
    (a.ended() && b.ended()).then_some(())
}

/// Decodes the front of a part, or the whole.
fn decode_one<const BITS: u32>(
    table: &Table,
    coded: &[u8],
    out: &mut [u8],
    whole: bool,
) -> Option<()> {
    let mut lane = Lane::open(coded)?;
    let (groups, rest) = out.as_chunks_mut();
    for to in groups {
        *to = lane.group::<BITS>(table);
    }
    for (i, to) in rest.iter_mut().enumerate() {
        *to = lane.one::<BITS>(table, i);
    }
    if whole { lane.ended() } else { lane.at <= lane.words.len() }.then_some(())
}

/// The states of a part and how far its words have been read. Words past the
/// end are zeros, which [`Lane::ended`] notices.
struct Lane<'a> {
    states: [u32; STATES],
    words: &'a [u8],
    at: usize,
}

impl<'a> Lane<'a> {
    fn open(coded: &'a [u8]) -> Option<Self> {
        let (states, words) = coded.split_first_chunk::<{ 4 * STATES }>()?;
        let states = states.as_chunks::<4>().0;
        let states = std::array::from_fn(|i| u32::from_le_bytes(states[i]));
        let proper = states.iter().all(|state| (LOW..LOW << 16).contains(state));
        proper.then_some(Self { states, words, at: 0 })
    }

    #[cold]
    fn last_words(&self) -> [u8; 8] {
        let mut words = [0; 8];
        for (to, &byte) in words.iter_mut().zip(self.words.get(self.at..).unwrap_or(&[])) {
            *to = byte;
        }
        words
    }

    /// The next four symbols, one from each state. No state waits for another:
    /// which of the words is whose follows from counts.
    #[inline(always)]
    fn group<const BITS: u32>(&mut self, table: &Table) -> [u8; STATES] {
        let slots = self.states.map(|state| slot::<BITS>(table, state));
        self.refill(std::array::from_fn(|i| next_state(slots[i], self.states[i] >> BITS)));
        slots.map(|slot| slot as u8)
    }

    /// Takes the states that follow, and the words that they are due.
    #[inline(always)]
    fn refill(&mut self, states: [u32; STATES]) {
        let last;
        let words = match self.words.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) {
            Some(words) => words,
            None => {
                last = self.last_words();
                &last
            }
        };
        let words = words.as_chunks::<2>().0;
        let [x0, x1, x2, x3] = states;
        let [d0, d1, d2, d3] = [x0, x1, x2, x3].map(|x| usize::from(x < LOW));
        let refill = |x: u32, before: usize| {
            let word = u32::from(u16::from_le_bytes(words[before & 3]));
            if x < LOW { x << 16 | word } else { x }
        };
        self.states =
            [refill(x0, 0), refill(x1, d0), refill(x2, d0 + d1), refill(x3, d0 + d1 + d2)];
        self.at += 2 * (d0 + d1 + d2 + d3);
    }

    /// One symbol from one state: the end of a run.
    fn one<const BITS: u32>(&mut self, table: &Table, state: usize) -> u8 {
        let slot = slot::<BITS>(table, self.states[state]);
        let x = next_state(slot, self.states[state] >> BITS);
        let due = x < LOW;
        let [low, high, ..] = self.last_words();
        let word = u32::from(u16::from_le_bytes([low, high]));
        self.states[state] = if due { x << 16 | word } else { x };
        self.at += 2 * usize::from(due);
        slot as u8
    }

    /// Whether all words and nothing else went into what came out.
    fn ended(&self) -> bool {
        self.at == self.words.len() && self.states == [LOW; STATES]
    }
}

#[inline(always)]
fn slot<const BITS: u32>(table: &Table, state: u32) -> u32 {
    table.slots[(state & ((1 << BITS) - 1)) as usize]
}

#[inline(always)]
fn next_state(slot: u32, quotient: u32) -> u32 {
    ((slot >> 8 & 0xfff) + 1) * quotient + (slot >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(any::<(u8, u8)>(), 1..20_000), squeeze in 0u8..8, some: (prop::sample::Index, prop::sample::Index)) {
            let bytes: Vec<u8> = bytes.iter().map(|(a, b)| (a & b) >> squeeze).collect();
            let counts = histogram(&bytes);
            let mut coded = Vec::new();
            encode(&bytes, &counts, &mut coded);
            prop_assert!(coded.len() <= estimate(&counts) + bytes.len() / 20 + 80);
            let (mut table, mut out) = (Table::default(), b"kept".to_vec());
            prop_assert_eq!(decode(&coded, bytes.len(), 0..bytes.len(), &mut table, &mut out), Some(0));
            prop_assert!(out[4..] == bytes);
            for cut in 0..coded.len().min(200) {
                prop_assert_eq!(decode(&coded[..cut], bytes.len(), 0..bytes.len(), &mut table, &mut Vec::new()), None);
            }
            // Any piece of it, without what lies in other parts.
            let (a, b) = (some.0.index(bytes.len() + 1), some.1.index(bytes.len() + 1));
            let wanted = a.min(b)..a.max(b);
            out.clear();
            let from = decode(&coded, bytes.len(), wanted.clone(), &mut table, &mut out).unwrap();
            prop_assert!(from <= wanted.start && wanted.start - from < PART_BYTES);
            prop_assert!(out[wanted.start - from..] == bytes[wanted]);
        }

        #[test]
        fn any_bytes_decode_or_fail(coded in prop::collection::vec(any::<u8>(), 0..400), bits in 7u8..13, len in 0usize..9000, some: prop::sample::Index) {
            let mut coded = coded;
            if let Some(first) = coded.first_mut() { *first = bits; }
            let wanted = some.index(len + 1)..len;
            let mut out = Vec::new();
            let _ = decode(&coded, len, wanted, &mut Table::default(), &mut out);
            prop_assert!(out.len() <= len);
        }
    }

    #[test]
    fn a_symbol_has_one_frequency() {
        let take = |mut bytes: &[u8]| take_frequencies(&mut bytes, 256, |_, _, _| ());
        assert_eq!(
            [take(&[1, 4, 5, 9]), take(&[1, 5, 5, 9]), take(&[1, 5, 4, 9])],
            [Some(()), None, None]
        );
    }
}
