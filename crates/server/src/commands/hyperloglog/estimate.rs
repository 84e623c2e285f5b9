//! How many distinct elements a sketch has seen, from how many of its registers have
//! which value.
//!
//! The estimator is the improved one of Otmar Ertl, "New cardinality estimation
//! algorithms for HyperLogLog sketches" (2017), algorithm 6: no table of corrections, and
//! as exact at small cardinalities as at large ones. The order of the operations is
//! Redis's, so that the counts are the same to the last digit.

// The sums end where another term changes nothing: floats are compared exactly.
#![allow(clippy::float_cmp)]

use super::sketch::{COUNTED_BITS, REGISTERS};

/// How many registers have which value; values are of 6 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Histogram([usize; 64]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Histogram {
    /// `count` more registers have this value.
    pub(super) fn add(&mut self, value: u8, count: usize) {
        self.0[usize::from(value & 63)] += count;
    }

    /// The cardinality, within 0.81 % (standard error). Where a client's bytes have
    /// registers above what any element can raise them to, there may be no number: it is
    /// the lowest then, as in Redis on x86-64.
    pub(super) fn estimate(&self) -> i64 {
        /// 1 / (2 ln 2)
        const ALPHA: f64 = 0.721_347_520_444_481_7;
        let m = REGISTERS as f64;
        let top = COUNTED_BITS as usize + 1;
        let of = |value: usize| self.0[value] as f64;
        let mut z = m * tau((m - of(top)) / m);
        for value in (1..top).rev() {
            z = (z + of(value)) * 0.5;
        }
        z += m * sigma(of(0) / m);
        let cardinality = (ALPHA * m * m / z).round();
        if cardinality < i64::MAX as f64 { cardinality as i64 } else { i64::MIN }
    }
}

/// x + the sum of x^(2^k) * 2^(k - 1): what registers that are 0 add.
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

/// What registers add that are as high as the hash allows.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::hyperloglog::sketch::{Draft, Mark};

    #[test]
    fn nothing_is_nothing_and_all_is_without_number() {
        let mut histogram = Histogram::default();
        histogram.add(0, REGISTERS);
        assert_eq!(histogram.estimate(), 0);
        for value in 52..64 {
            let mut histogram = Histogram::default();
            histogram.add(value, REGISTERS);
            assert_eq!(histogram.estimate(), i64::MIN);
        }
    }

    #[test]
    fn estimates_are_within_a_few_standard_errors() {
        let mut draft = Draft::empty(3000);
        let mut next = 1;
        for n in 1..=100_000u64 {
            let element = n.to_le_bytes();
            draft.raise(Mark::of(8, std::iter::once(&element[..]))).unwrap();
            if n == next {
                let estimate = draft.sketch().histogram().unwrap().estimate();
                let error = (estimate - n as i64).unsigned_abs() as f64 / n as f64;
                assert!(error < 0.0081 * 4.0, "{estimate} for {n}");
                next = next * 10 / 3 + 1;
            }
        }
    }
}
