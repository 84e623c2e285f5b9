//! Numbers of one size, more or less, in few bits: Rice's code.
//!
//! ```text
//!  | k | number | number | ...          the lowest bit of a byte first
//!
//!  number   zeros: the number without its k lower bits | 1 | the k lower bits
//!           32 zeros | 64 bits                             where that is 32 and more
//! ```
//!
//! Differences between members that were drawn at random take half a bit more than they
//! must (R. F. Rice, "Some Practical Universal Noiseless Coding Techniques", 1979). `k` is
//! the best of four near the logarithm of the mean.
//!
//! Cost: some nanoseconds a number.

/// So many zeros announce a number in all its bits.
const ZEROS_MAX: u32 = 32;

/// Appends the numbers.
pub fn push(numbers: &[u64], out: &mut Vec<u8>) {
    let sum: u128 = numbers.iter().map(|&number| u128::from(number)).sum();
    let mean = sum / numbers.len().max(1) as u128;
    let near = (mean + 1).ilog2().min(63);
    let takes = |k: u32| -> u64 {
        let all = numbers.iter().map(|number| match number >> k {
            upper if upper < u64::from(ZEROS_MAX) => upper + 1 + u64::from(k),
            _ => u64::from(ZEROS_MAX) + 64,
        });
        all.sum()
    };
    let k = (near.saturating_sub(2)..=near.min(62) + 1).min_by_key(|&k| takes(k)).unwrap_or(0);
    out.push(k as u8);
    let (mut bits, mut count) = (0u128, 0u32);
    for &number in numbers {
        let upper = number >> k;
        if upper < u64::from(ZEROS_MAX) {
            let lower = number & ((1 << k) - 1);
            bits |= (1 | u128::from(lower) << 1) << (count + upper as u32);
            count += upper as u32 + 1 + k;
        } else {
            bits |= u128::from(number) << (count + ZEROS_MAX);
            count += ZEROS_MAX + 64;
        }
        while count >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        out.push(bits as u8);
    }
}

/// The `count` numbers that these bytes are; `None` if they are not so many.
pub fn take(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    let (&k, mut bytes) = bytes.split_first()?;
    let k = u32::from(k);
    // Each takes a bit and more.
    if k >= u64::BITS || count > 8 * bytes.len() {
        return None;
    }
    let mut numbers = Vec::with_capacity(count);
    let (mut bits, mut left) = (0u128, 0u32);
    for _ in 0..count {
        while left <= 120
            && let Some((&byte, rest)) = bytes.split_first()
        {
            bits |= u128::from(byte) << left;
            left += 8;
            bytes = rest;
        }
        let upper = bits.trailing_zeros().min(ZEROS_MAX);
        let (number, took) = match upper < ZEROS_MAX {
            true => {
                let lower = (bits >> (upper + 1)) as u64 & ((1 << k) - 1);
                (u64::from(upper) << k | lower, upper + 1 + k)
            }
            false => ((bits >> ZEROS_MAX) as u64, ZEROS_MAX + 64),
        };
        left = left.checked_sub(took)?;
        bits >>= took;
        numbers.push(number);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(numbers: &[u64]) -> usize {
        let mut out = Vec::new();
        push(numbers, &mut out);
        assert_eq!(take(&out, numbers.len()).as_deref(), Some(numbers));
        assert_eq!(take(&out[..out.len() - 1], numbers.len()), None);
        out.len()
    }

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec((any::<u64>(), 0u32..64), 1..100), shift in 0u32..64) {
            packed(&numbers.iter().map(|(number, _)| number >> shift).collect::<Vec<u64>>());
            packed(&numbers.iter().map(|(number, shift)| number >> shift).collect::<Vec<u64>>());
        }

        #[test]
        fn any_bytes_are_numbers_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60), count in 0usize..600) {
            if let Some(numbers) = take(&bytes, count) {
                prop_assert_eq!(numbers.len(), count);
            }
        }
    }

    #[test]
    fn differences_of_random_numbers_take_little_more_than_they_must() {
        let random = |n: u64| (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        // Exponential with a mean of 10.5: 4.8 bits each.
        let draw = |n: u64| (-(1.0 - random(n) as f64 / (1 << 24) as f64).ln() * 10.5) as u64;
        let bytes = packed(&(0..1000).map(draw).collect::<Vec<u64>>());
        assert!(bytes < 1000 * 54 / 80, "{bytes}");
        assert_eq!(packed(&[0; 80]), 11);
    }
}
