//! Unsigned numbers in as many bytes as they need, seven bits a byte, lowest
//! first, the top bit set on all but the last (LEB128): 1 byte below 128, 2
//! below 16,384, at most 10.

/// Appends `value`.
pub fn push(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front of `bytes`; `None` when it is cut short or does
/// not fit 64 bits.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().enumerate().take(10) {
        let part = u64::from(byte & 0x7f);
        if i == 9 && part > 1 {
            return None;
        }
        value |= part << (7 * i);
        if byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes a number that must fit `usize`.
pub fn take_len(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(take(bytes)?).ok()
}

/// Small magnitudes of either sign as small unsigned numbers: 0, -1, 1, -2, ...
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(values in prop::collection::vec(any::<u64>().prop_map(|v| v >> (v % 64)), 0..20)) {
            let mut bytes = Vec::new();
            for &value in &values { push(&mut bytes, value); }
            let mut rest = &bytes[..];
            for &value in &values {
                prop_assert_eq!(take(&mut rest), Some(value));
                prop_assert_eq!(zigzag(unzigzag(value)), value);
            }
            prop_assert!(rest.is_empty());
            prop_assert_eq!(take(&mut rest), None);
        }
    }

    #[test]
    fn too_large_or_cut_short_is_refused() {
        assert_eq!(take(&mut &[0xff; 10][..]), None);
        assert_eq!(take(&mut &[0x80; 3][..]), None);
    }
}
