//! CRC16/XMODEM of a key, as Redis Cluster's slots ask for it, and whether the
//! key has a `{` that would make a part of it count, in one pass.
//!
//! The sum is the remainder of the key, read as one polynomial over GF(2) with
//! its first bit the highest, times x^16, by P = x^16 + x^12 + x^5 + 1. It
//! begins at 0, so zeros before a key change nothing: a key of any length is
//! right-aligned in words of 128 bits.
//!
//! ```text
//!  high 64 | low 64       x the next 128 bits: high * (x^192 mod P)
//!                                            + low  * (x^128 mod P) + next
//!  at the end, times x^16: high * (x^80 mod P) + low * x^16        80 bits
//!                          its upper 16 * (x^64 mod P) + the rest  64 bits
//!                          and the remainder of that (Barrett)     16 bits
//! ```
//!
//! Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using
//! PCLMULQDQ Instruction" (Intel, 2009). A key of up to 16 bytes costs four
//! carry-less products, about 40 instructions; tables, for processors without
//! the instruction, cost 20 for every eight bytes and two cache lines a byte.
//!
//! Instructions a key, the search for `{` included, where a whole `GET` in a pipeline
//! of 16 is some 2,000 (callgrind):
//!
//! | bytes | 8 | 10 | 16 | 20 | 32 | 64 |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | products | 56 | 61 | 61 | 99 | 101 | 147 |
//! | eight tables, eight bytes at a time | 124 | 152 | 116 | 161 | 185 | 277 |
//! | one table, a byte at a time | 165 | 191 | 198 | 239 | 349 | 605 |
//!
//! So tables would cost every command of a cluster 3 to 7 percent more, or more.
#![allow(unsafe_code)]

/// The sum of `bytes`, or `None` if there is a `{` among them.
#[inline]
pub(crate) fn crc16_until_brace(bytes: &[u8]) -> Option<u16> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { products::until_brace(bytes) };
    }
    without_products(bytes)
}

/// The same on any processor. Not inlined: few have no such products.
#[cold]
fn without_products(bytes: &[u8]) -> Option<u16> {
    if bytes.contains(&b'{') { None } else { Some(crc16(bytes)) }
}

/// The sum of `bytes`, a byte at a time.
pub(crate) fn crc16(bytes: &[u8]) -> u16 {
    let advance = |crc: u16, byte: &u8| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)];
    bytes.iter().fold(0, advance)
}

static TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = power(16, byte as u64) as u16;
        byte += 1;
    }
    table
};

/// P.
const POLYNOMIAL: u64 = 0x1_1021;

/// `of * x^exponent mod P`, for `of` below x^16.
const fn power(exponent: u32, of: u64) -> u64 {
    let mut remainder = of;
    let mut step = 0;
    while step < exponent {
        remainder <<= 1;
        if remainder >> 16 != 0 {
            remainder ^= POLYNOMIAL;
        }
        step += 1;
    }
    remainder
}

#[cfg(target_arch = "x86_64")]
mod products {
    use super::{POLYNOMIAL, power};
    use std::arch::x86_64::*;

    /// The quotient of x^64 by P.
    const RECIPROCAL: u64 = {
        let (mut quotient, mut rest, mut step) = (0, 1 << 16, 0);
        while step <= 48 {
            quotient = (quotient << 1) | (rest >> 16);
            rest = (rest ^ ((rest >> 16) * POLYNOMIAL)) << 1;
            step += 1;
        }
        quotient
    };

    #[target_feature(enable = "pclmulqdq")]
    pub(super) fn until_brace(bytes: &[u8]) -> Option<u16> {
        let length = bytes.len();
        let word = match length {
            0..=8 => pair(0, short(bytes)),
            9..=16 => {
                let (first, last) = (*bytes.first_chunk()?, *bytes.last_chunk()?);
                pair(u64::from_be_bytes(first) >> (8 * (16 - length)), u64::from_be_bytes(last))
            }
            _ => return of_words(bytes),
        };
        (!has_brace(word)).then(|| remainder(word))
    }

    /// The same of more than 16 bytes.
    #[target_feature(enable = "pclmulqdq")]
    fn of_words(bytes: &[u8]) -> Option<u16> {
        // The first word holds what whole ones after it leave over.
        let first = u128::from_be_bytes(*bytes.first_chunk()?);
        let mut sum = halves(first >> (8 * (bytes.len().wrapping_neg() % 16)));
        if has_brace(sum) {
            return None;
        }
        let (_, words) = bytes.as_rchunks::<16>();
        for word in words.iter().skip(usize::from(bytes.len().is_multiple_of(16))) {
            let next = halves(u128::from_be_bytes(*word));
            if has_brace(next) {
                return None;
            }
            sum = _mm_xor_si128(next, times(sum, const { power(192, 1) }, const { power(128, 1) }));
        }
        Some(remainder(sum))
    }

    /// `sum * x^16 mod P`.
    #[target_feature(enable = "pclmulqdq")]
    fn remainder(sum: __m128i) -> u16 {
        let sum = times(sum, const { power(80, 1) }, 1 << 16);
        let by = pair(RECIPROCAL, const { power(64, 1) });
        // The lower half counts from here on.
        let sum = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0x01>(sum, by));
        let quotient = _mm_clmulepi64_si128::<0x10>(_mm_srli_epi64::<16>(sum), by);
        let quotient = _mm_srli_si128::<{ 48 / 8 }>(quotient);
        let multiple = _mm_clmulepi64_si128::<0x00>(quotient, pair(0, POLYNOMIAL));
        _mm_cvtsi128_si32(_mm_xor_si128(sum, multiple)) as u16
    }

    /// The sum of either half times its factor.
    #[target_feature(enable = "pclmulqdq")]
    fn times(halves: __m128i, high: u64, low: u64) -> __m128i {
        let by = pair(high, low);
        _mm_xor_si128(
            _mm_clmulepi64_si128::<0x11>(halves, by),
            _mm_clmulepi64_si128::<0x00>(halves, by),
        )
    }

    fn halves(word: u128) -> __m128i {
        pair((word >> 64) as u64, word as u64)
    }

    fn pair(high: u64, low: u64) -> __m128i {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe { _mm_set_epi64x(high.cast_signed(), low.cast_signed()) }
    }

    /// Up to eight bytes, right-aligned: two overlapping halves if there are
    /// four or more.
    fn short(bytes: &[u8]) -> u64 {
        match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(first), Some(last)) => {
                u64::from(u32::from_be_bytes(*first)) << (8 * (bytes.len() - 4))
                    | u64::from(u32::from_be_bytes(*last))
            }
            _ => bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        }
    }

    #[target_feature(enable = "pclmulqdq")]
    fn has_brace(word: __m128i) -> bool {
        _mm_movemask_epi8(_mm_cmpeq_epi8(word, _mm_set1_epi8(b'{'.cast_signed()))) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_at_a_time_are_bytes_at_a_time() {
        let bytes: Vec<u8> = (0..=255).filter(|&byte| byte != b'{').cycle().take(1000).collect();
        for length in 0..300 {
            for start in [0, 1, 77] {
                let bytes = &bytes[start..start + length];
                assert_eq!(crc16_until_brace(bytes), Some(crc16(bytes)), "{bytes:?}");
            }
            let mut with_brace = bytes[..=length].to_vec();
            for at in 0..length {
                with_brace[at] = b'{';
                assert_eq!(crc16_until_brace(&with_brace[..length]), None);
                with_brace[at] = bytes[at];
            }
        }
    }
}
