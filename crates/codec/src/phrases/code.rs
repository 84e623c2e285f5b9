//! Prefix codes of at most 15 bits: Huffman's lengths, canonical codes, and
//! decoding without a table of codes.
//!
//! Codes of one length are consecutive numbers, shorter ones before longer. So
//! the next 15 bits, read as a number, tell the length of the code at their
//! front by how many of 15 bounds they exceed, and its place among all codes by
//! one addition. A book for decoding thus takes 96 bytes whatever it holds,
//! which keeps those of all contexts in the nearest cache.

/// The longest code, in bits.
pub(super) const BITS_MAX: u32 = 15;

/// How many lengths there are.
const LENGTHS: usize = BITS_MAX as usize;

/// The most symbols that codes of [`BITS_MAX`] are made for here.
pub(super) const SYMBOLS_MAX: usize = 1 << BITS_MAX;

/// A code: its bits, and how many they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Code(u32);

impl Code {
    fn new(bits: u32, len: u32) -> Self {
        Self(bits << 8 | len)
    }

    #[inline]
    pub(super) fn bits(self) -> u32 {
        self.0 >> 8
    }

    #[inline]
    pub(super) fn len(self) -> u32 {
        self.0 & 0xff
    }
}

/// What codes are decoded by: 96 bytes, of lengths from 1 up, and one more that
/// nothing has.
#[derive(Clone, Debug)]
pub(super) struct Book {
    /// For each length, the last of the codes up to it, in units of the longest:
    /// of 16 bits, so that all are compared with at once.
    lasts: [i16; LENGTHS + 1],
    /// For each length, what to add to a code to get its place.
    places: [u32; LENGTHS + 1],
}

impl Book {
    /// The length and the place of the code at the front of `bits`; a place where
    /// nothing is if there is no such code.
    #[inline(always)]
    pub(super) fn find(&self, bits: u64) -> (u32, usize) {
        let front = front(bits);
        self.of_length(self.lasts.iter().map(|&last| u32::from(front > last)).sum(), bits)
    }

    /// The same, by comparing with all bounds in one instruction.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    #[inline]
    pub(super) fn find_at_once(&self, bits: u64) -> (u32, usize) {
        use std::arch::x86_64::{
            _mm256_cmpgt_epi16, _mm256_movemask_epi8, _mm256_set1_epi16, _mm256_setr_epi16,
        };
        let all = &self.lasts;
        let lasts = _mm256_setr_epi16(
            all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7], //
            all[8], all[9], all[10], all[11], all[12], all[13], all[14], all[15],
        );
        let behind = _mm256_cmpgt_epi16(_mm256_set1_epi16(front(bits)), lasts);
        // Two bits for each.
        self.of_length(_mm256_movemask_epi8(behind).count_ones() / 2, bits)
    }

    /// What is found if the code is longer than `longer` of the lengths.
    #[inline(always)]
    fn of_length(&self, longer: u32, bits: u64) -> (u32, usize) {
        let longer = longer % self.places.len() as u32;
        let code = bits.wrapping_shr(!longer) as u32;
        (longer + 1, code.wrapping_add(self.places[longer as usize]) as usize)
    }
}

/// As many bits as the longest code has, from the front.
#[inline(always)]
fn front(bits: u64) -> i16 {
    (bits >> (64 - BITS_MAX)) as i16
}

/// The canonical codes for these lengths.
pub(super) struct Canonical {
    /// By symbol.
    pub(super) codes: Vec<Code>,
    /// The symbols by their place.
    pub(super) order: Vec<u16>,
    /// Finds the place, counted from `first`.
    pub(super) book: Book,
}

impl Canonical {
    /// `None` unless each length is 1 to 15 and there are enough codes.
    pub(super) fn new(lengths: &[u8], first: usize) -> Option<Self> {
        if lengths.len() > SYMBOLS_MAX {
            return None;
        }
        let mut counts = [0u32; LENGTHS];
        for &len in lengths {
            *counts.get_mut(usize::from(len).wrapping_sub(1))? += 1;
        }
        let (mut next, mut places_next) = ([0u32; LENGTHS], [0u32; LENGTHS]);
        let mut book = Book { lasts: [i16::MAX; _], places: [u32::MAX / 2; _] };
        let (mut code, mut place) = (0u32, first as u32);
        for (i, &count) in counts.iter().enumerate() {
            let unused = BITS_MAX - 1 - i as u32;
            (next[i], places_next[i]) = (code, place - first as u32);
            book.places[i] = place.wrapping_sub(code);
            code += count;
            place += count;
            if code > 2 << i {
                return None;
            }
            book.lasts[i] = ((code << unused) as i32 - 1) as i16;
            code <<= 1;
        }
        let mut order = vec![0; lengths.len()];
        let codes = lengths.iter().enumerate().map(|(symbol, &len)| {
            let i = usize::from(len) - 1;
            order[places_next[i] as usize] = symbol as u16;
            places_next[i] += 1;
            next[i] += 1;
            Code::new(next[i] - 1, u32::from(len))
        });
        Some(Self { codes: codes.collect(), order, book })
    }
}

/// The lengths of the best codes for symbols that occur so often (0 counts as
/// 1), held to [`BITS_MAX`] by flattening the counts. O(n log n).
pub(super) fn lengths(counts: &[u32]) -> Vec<u8> {
    assert!(counts.len() <= SYMBOLS_MAX, "more symbols than codes");
    if counts.len() == 1 {
        return vec![1];
    }
    let mut counts: Vec<u64> = counts.iter().map(|&count| u64::from(count.max(1))).collect();
    loop {
        let lengths = huffman(&counts);
        if lengths.iter().all(|&len| u32::from(len) <= BITS_MAX) {
            return lengths;
        }
        for count in &mut counts {
            *count = *count / 2 + 1;
        }
    }
}

/// Huffman's lengths, from two queues: the symbols by count, and the inner
/// nodes, which come about by weight.
fn huffman(counts: &[u64]) -> Vec<u8> {
    let mut leaves: Vec<usize> = (0..counts.len()).collect();
    leaves.sort_by_key(|&symbol| counts[symbol]);
    let inner = counts.len().saturating_sub(1);
    let mut weights: Vec<u64> = Vec::with_capacity(inner);
    // Children by number: leaves in order of their count, then inner nodes.
    let mut parents = vec![0; leaves.len() + inner];
    let (mut leaf, mut node) = (0, 0);
    for made in 0..inner {
        let mut weight = 0;
        for _ in 0..2 {
            let light = leaves.get(leaf).map_or(u64::MAX, |&symbol| counts[symbol]);
            let child = if weights.get(node).is_none_or(|&weight| light <= weight) {
                leaf += 1;
                weight += light;
                leaf - 1
            } else {
                node += 1;
                weight += weights[node - 1];
                leaves.len() + node - 1
            };
            parents[child] = made;
        }
        weights.push(weight);
    }
    let mut depths = vec![0u8; inner];
    for node in (0..inner.saturating_sub(1)).rev() {
        depths[node] = depths[parents[leaves.len() + node]].saturating_add(1);
    }
    let mut lengths = vec![0; counts.len()];
    for (i, &symbol) in leaves.iter().enumerate() {
        lengths[symbol] = depths.get(parents[i]).map_or(0, |depth| depth.saturating_add(1));
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_code_is_found_by_its_bits_whatever_follows(
            counts in prop::collection::vec(prop_oneof![0u32..4, any::<u32>()], 1..400),
            behind: u32, first in 0usize..1000,
        ) {
            let lengths = lengths(&counts);
            let codes = Canonical::new(&lengths, first).unwrap();
            for (symbol, code) in codes.codes.iter().enumerate() {
                let free = BITS_MAX - code.len();
                let bits = u64::from(code.bits() << free | behind & ((1 << free) - 1)) << (64 - BITS_MAX);
                let (len, place) = codes.book.find(bits);
                prop_assert_eq!(len, code.len());
                prop_assert_eq!(usize::from(codes.order[place - first]), symbol);
            }
        }

        #[test]
        fn lengths_are_within_a_bit_of_the_entropy(counts in prop::collection::vec(1u32..1000, 2..300)) {
            let total: f64 = counts.iter().map(|&c| f64::from(c)).sum();
            let entropy: f64 = counts.iter().map(|&c| f64::from(c) * (total / f64::from(c)).log2()).sum();
            let coded: f64 = counts.iter().zip(lengths(&counts)).map(|(&c, l)| f64::from(c) * f64::from(l)).sum();
            prop_assert!(coded + 1e-6 >= entropy && coded <= entropy + total);
        }

        #[test]
        fn any_lengths_make_codes_or_none(lengths in prop::collection::vec(0u8..20, 0..200)) {
            let shares: f64 = lengths.iter().map(|&len| 0.5f64.powi(i32::from(len))).sum();
            let fits = lengths.iter().all(|len| (1..=15).contains(len)) && shares <= 1.0;
            prop_assert_eq!(Canonical::new(&lengths, 0).is_some(), fits);
        }
    }

    #[test]
    fn the_most_symbols_of_the_steepest_counts_have_codes() {
        let counts: Vec<u32> = (0..SYMBOLS_MAX).map(|i| 1 << (i % 32)).collect();
        assert!(Canonical::new(&lengths(&counts), 0).is_some());
        let fibonacci = [
            1u32, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597, 2584, 4181,
            6765,
        ];
        assert!(Canonical::new(&lengths(&fibonacci), 0).is_some());
    }
}
