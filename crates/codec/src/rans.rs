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
//!  [frequency - 1, varint, per symbol but the last] [4 states, 4 bytes each] [16-bit words ...]
//! ```
//!
//! Cost: 1 to 2 ns a byte each way, and a table of 2^scale entries to unpack.

use std::sync::LazyLock;

use crate::varint;

/// The states stay in `LOW..LOW << 16`.
const LOW: u32 = 1 << 15;
const STATES: usize = 4;

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
    let mut bits = n_log_n(total);
    let mut symbols = 0;
    for &count in counts.iter().filter(|&&count| count > 0) {
        bits -= n_log_n(count);
        symbols += 1;
    }
    let wide = 1.0f32 / 16.0;
    let table = symbols.min(32) as f32 + symbols as f32 * (1.0 + wide);
    ((bits / 8.0) + table) as usize + 4 * STATES + 2
}

/// `n * log2(n)`, from a table for the counts that columns have.
fn n_log_n(n: u32) -> f32 {
    static TABLE: LazyLock<[f32; 1025]> =
        LazyLock::new(|| std::array::from_fn(|n| n as f32 * (n.max(1) as f32).log2()));
    TABLE.get(n as usize).copied().unwrap_or_else(|| n as f32 * (n as f32).log2())
}

fn scale_bits(len: usize) -> u32 {
    if len >= 2048 { 12 } else { 10 }
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
    push_table(&frequencies, bits, out);
    let mut symbols = [EncodeSymbol::default(); 256];
    let mut start = 0;
    for (symbol, &frequency) in symbols.iter_mut().zip(&frequencies) {
        if frequency > 0 {
            *symbol = EncodeSymbol::new(start, u32::from(frequency), bits);
            start += u32::from(frequency);
        }
    }
    // Coded back to front, so that it reads front to back. Two bytes a symbol
    // are the most it can take.
    let head = out.len();
    let room = 4 * STATES + 2 * bytes.len();
    out.resize(head + room, 0);
    let space = &mut out[head..];
    let mut at = room;
    let mut states = [LOW; STATES];
    for (i, &byte) in bytes.iter().enumerate().rev() {
        let symbol = &symbols[usize::from(byte)];
        let mut x = states[i % STATES];
        if x >= symbol.limit {
            at -= 2;
            space[at..at + 2].copy_from_slice(&(x as u16).to_le_bytes());
            x >>= 16;
        }
        let q = ((u64::from(x) * u64::from(symbol.reciprocal)) >> 32) as u32 >> symbol.shift;
        states[i % STATES] = x + symbol.bias + q * u32::from(symbol.complement);
    }
    for state in states.iter().rev() {
        at -= 4;
        space[at..at + 4].copy_from_slice(&state.to_le_bytes());
    }
    space.copy_within(at.., 0);
    out.truncate(head + room - at);
}

fn push_table(frequencies: &[u16; 256], bits: u32, out: &mut Vec<u8>) {
    let used: Vec<usize> = (0..256).filter(|&i| frequencies[i] > 0).collect();
    out.push(bits as u8);
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

/// The slot table: for each of `1 << bits` slots the symbol (8 bits), its
/// frequency less 1 (12 bits) and the slot's place within it (12 bits).
fn take_table(bytes: &mut &[u8], slots: &mut Vec<u32>) -> Option<u32> {
    let (&[bits, last], rest) = bytes.split_first_chunk::<2>()?;
    *bytes = rest;
    let bits = u32::from(bits);
    if !(8..=12).contains(&bits) {
        return None;
    }
    let count = usize::from(last) + 1;
    let mut used = Vec::with_capacity(256);
    if count <= 32 {
        used.extend_from_slice(bytes.get(..count)?);
        *bytes = &bytes[count..];
    } else {
        let (map, rest) = bytes.split_first_chunk::<32>()?;
        *bytes = rest;
        used.extend((0..=255u8).filter(|&i| map[usize::from(i) / 8] & 1 << (i % 8) != 0));
        if used.len() != count {
            return None;
        }
    }
    slots.clear();
    slots.reserve(1 << bits);
    for (i, &symbol) in used.iter().enumerate() {
        let left = (1usize << bits) - slots.len();
        let frequency =
            if i + 1 == count { left } else { varint::take_len(bytes)?.checked_add(1)? };
        if frequency == 0 || frequency > left {
            return None;
        }
        let fixed = u32::from(symbol) | (frequency as u32 - 1) << 8;
        slots.extend((0..frequency as u32).map(|place| fixed | place << 20));
    }
    (slots.len() == 1 << bits).then_some(bits)
}

/// Appends the `len` bytes that `coded` holds; `None` when it does not.
pub(crate) fn decode(mut coded: &[u8], len: usize, out: &mut Vec<u8>) -> Option<()> {
    if len == 0 {
        return coded.is_empty().then_some(());
    }
    let mut slots = Vec::new();
    let bits = take_table(&mut coded, &mut slots)?;
    let mask = (1u32 << bits) - 1;
    let mut states = [0u32; STATES];
    for state in &mut states {
        let (four, rest) = coded.split_first_chunk::<4>()?;
        *state = u32::from_le_bytes(*four);
        if *state < LOW || *state >= LOW << 16 {
            return None;
        }
        coded = rest;
    }
    let before = out.len();
    out.resize(before + len, 0);
    let slots = &slots[..=mask as usize];
    let mut groups = out[before..].chunks_exact_mut(STATES);
    let mut at = 0;
    // Apart, so that they stay in registers.
    let [mut s0, mut s1, mut s2, mut s3] = states;
    for group in &mut groups {
        // While four words are surely there, none is checked for.
        let Some(words) = coded.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
            for (to, state) in group.iter_mut().zip([&mut s0, &mut s1, &mut s2, &mut s3]) {
                *to = step(state, slots, bits, coded, &mut at)?;
            }
            continue;
        };
        let mut words = u64::from_le_bytes(*words);
        let mut taken = 0;
        for (to, state) in group.iter_mut().zip([&mut s0, &mut s1, &mut s2, &mut s3]) {
            let entry = slots[(*state & mask) as usize];
            *to = entry as u8;
            let x = next_state(entry, *state >> bits);
            let refill = x < LOW;
            *state = if refill { x << 16 | (words as u32 & 0xffff) } else { x };
            words >>= u32::from(refill) << 4;
            taken += usize::from(refill);
        }
        at += 2 * taken;
    }
    states = [s0, s1, s2, s3];
    for (to, state) in groups.into_remainder().iter_mut().zip(&mut states) {
        *to = step(state, slots, bits, coded, &mut at)?;
    }
    (at == coded.len() && states == [LOW; STATES]).then_some(())
}

#[inline(always)]
fn next_state(entry: u32, quotient: u32) -> u32 {
    ((entry >> 8 & 0xfff) + 1) * quotient + (entry >> 20)
}

/// One symbol, near the end of the words.
fn step(state: &mut u32, slots: &[u32], bits: u32, coded: &[u8], at: &mut usize) -> Option<u8> {
    let entry = slots[(*state & ((1 << bits) - 1)) as usize];
    let x = next_state(entry, *state >> bits);
    *state = x;
    if x < LOW {
        let word = coded.get(*at..)?.first_chunk::<2>()?;
        *state = x << 16 | u32::from(u16::from_le_bytes(*word));
        *at += 2;
    }
    Some(entry as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(any::<(u8, u8)>(), 0..5000), squeeze in 0u8..8) {
            let bytes: Vec<u8> = bytes.iter().map(|(a, b)| (a & b) >> squeeze).collect();
            let counts = histogram(&bytes);
            let mut coded = Vec::new();
            encode(&bytes, &counts, &mut coded);
            prop_assert!(coded.len() <= estimate(&counts) + bytes.len() / 20 + 80);
            let mut out = b"kept".to_vec();
            prop_assert_eq!(decode(&coded, bytes.len(), &mut out), Some(()));
            prop_assert!(out[4..] == bytes);
            for cut in 0..coded.len().min(200) {
                prop_assert_eq!(decode(&coded[..cut], bytes.len(), &mut Vec::new()), None);
            }
        }

        #[test]
        fn any_bytes_decode_or_fail(coded in prop::collection::vec(any::<u8>(), 0..400), bits in 8u8..13, len in 0usize..3000) {
            let mut coded = coded;
            if let Some(first) = coded.first_mut() { *first = bits; }
            let mut out = Vec::new();
            let _ = decode(&coded, len, &mut out);
            prop_assert!(out.len() <= len);
        }
    }
}
