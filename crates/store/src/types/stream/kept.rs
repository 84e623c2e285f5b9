//! Which rows of a rewritten block are still in its data.
//!
//! ```text
//!  rows kept   2 3 11 14 37 ...        ascending; each is cut in two:
//!
//!  high bits   .xx.x.x...x             the n-th x stands at (row >> low_bits) + n
//!  low bits    2 3 3 2 1 ...           low_bits of each, one behind the other
//! ```
//!
//! This is Elias and Fano's form: 2 bits and the logarithm of the gap for each row
//! kept, so 3 where every second row is, 5 where every tenth is. Finding the n-th
//! row counts bits in some dozen words at most in a block of 640.

use super::usable;

/// The numbers of the rows kept. See the module's description.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    count: u32,
    low_bits: u32,
    words: Box<[u64]>,
}

impl Kept {
    /// `rows` are ascending numbers below `span`, one at least.
    pub(super) fn new(rows: &[u32], span: u32) -> Self {
        let count = rows.len() as u32;
        debug_assert!(0 < count && count <= span && rows.is_sorted_by(|a, b| a < b));
        let low_bits = (span / count).ilog2();
        let high_words = high_words(count, low_bits, span);
        let low_words = (rows.len() * low_bits as usize).div_ceil(64);
        let mut words = vec![0u64; high_words + low_words];
        let (high, low) = words.split_at_mut(high_words);
        for (n, &row) in rows.iter().enumerate() {
            let at = (row >> low_bits) as usize + n;
            high[at / 64] |= 1 << (at % 64);
            let bits = u64::from(row) & ((1 << low_bits) - 1);
            let at = n * low_bits as usize;
            if low_bits > 0 {
                low[at / 64] |= bits << (at % 64);
                if at % 64 + low_bits as usize > 64 {
                    low[at / 64 + 1] |= bits >> (64 - at % 64);
                }
            }
        }
        Self { count, low_bits, words: words.into_boxed_slice() }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The number of the `n`-th row kept, counted from 0. There are more than `n`.
    pub(super) fn row(&self, n: u32) -> u32 {
        debug_assert!(n < self.count);
        let mut left = n;
        for (word, &bits) in (0u32..).zip(&self.words) {
            let ones = bits.count_ones();
            if left < ones {
                let mut bits = bits;
                (0..left).for_each(|_| bits &= bits - 1);
                let high = word * 64 + bits.trailing_zeros() - n;
                return high << self.low_bits | self.low(n);
            }
            left -= ones;
        }
        0
    }

    /// The low bits of the `n`-th row, which lie at the end of the words.
    fn low(&self, n: u32) -> u32 {
        if self.low_bits == 0 {
            return 0;
        }
        let low_words = (self.count as usize * self.low_bits as usize).div_ceil(64);
        let low = &self.words[self.words.len() - low_words..];
        let at = n as usize * self.low_bits as usize;
        let mut bits = low[at / 64] >> (at % 64);
        if at % 64 + self.low_bits as usize > 64 {
            bits |= low[at / 64 + 1] << (64 - at % 64);
        }
        (bits & ((1 << self.low_bits) - 1)) as u32
    }

    /// How many of the rows before `row` were kept.
    pub(super) fn before(&self, row: u32) -> u32 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.row(middle) < row {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The bytes allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        usable(size_of_val::<[u64]>(&self.words))
    }
}

/// The words of the high bits: one bit for each row, and one for each step of
/// what is left of a number without its low bits.
fn high_words(count: u32, low_bits: u32, span: u32) -> usize {
    (count as usize + (span >> low_bits) as usize + 1).div_ceil(64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn ten_rows_apart_cost_less_than_six_bits() {
        let rows: Vec<u32> = (0..640).map(|n| n * 10 + n % 7).collect();
        assert!(Kept::new(&rows, 6410).words.len() * 64 < 640 * 6);
    }

    proptest! {
        #[test]
        fn tells_what_it_was_given(
            rows in prop_oneof![
                prop::collection::btree_set(0u32..700, 1..640),
                prop::collection::btree_set(0u32..70_000, 1..100),
                prop::collection::btree_set(any::<u32>().prop_map(|n| n >> 1), 1..9),
            ],
            beyond in 1u32..300,
            probes in prop::collection::vec(any::<prop::sample::Index>(), 9),
        ) {
            let span = rows.last().unwrap() + beyond;
            let listed: Vec<u32> = rows.iter().copied().collect();
            let kept = Kept::new(&listed, span);
            prop_assert_eq!(kept.count() as usize, listed.len());
            let read: Vec<u32> = (0..kept.count()).map(|n| kept.row(n)).collect();
            prop_assert_eq!(&read, &listed);
            let at_random = probes.iter().map(|probe| probe.index(span as usize) as u32);
            let probes: BTreeSet<u32> =
                at_random.chain(listed.iter().flat_map(|&row| [row, row + 1])).collect();
            for row in probes {
                prop_assert_eq!(kept.before(row) as usize, rows.range(..row).count());
            }
        }
    }
}
