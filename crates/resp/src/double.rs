//! A double as Redis 7.2 prints it: the shortest digits that read back as the
//! same value, laid out like JavaScript does, give or take:
//!
//! ```text
//!  inf  -inf  nan  0  -0
//!  3  -1000000000000000000             whole, up to 2^62 in magnitude
//!  9223372036854776000                 whole, at most 7 zeros appended
//!  0.0001  3.14                        point within reach
//!  1.5e-7  1e+21                       otherwise
//! ```
//!
//! Redis finds its digits with Grisu2, which for about one value in a thousand
//! yields more digits than needed (0.19312 becomes 0.19312000000000001); here
//! they are always the fewest. Both read back as the same value.

use std::io::Write;

/// The largest whole double printed as an integer, 2^62, as Redis has it.
const WHOLE_MAX: f64 = (1_u64 << 62) as f64;

/// Appends `value` as Redis 7.2 prints it.
pub fn append_double(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if value.abs() <= WHOLE_MAX && value.fract() == 0.0 {
        out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    } else {
        append_digits(out, value);
    }
}

/// Appends a finite double that is neither zero nor whole and small.
fn append_digits(out: &mut Vec<u8>, value: f64) {
    if value < 0.0 {
        out.push(b'-');
    }
    let decimal = Decimal::shortest(value.abs());
    let digits = decimal.digits();
    // The value is `digits` times ten to the `scale`; its first digit stands for
    // ten to the `exponent`.
    let exponent = decimal.exponent;
    let scale = exponent - (digits.len() as i32 - 1);
    let magnitude = exponent.unsigned_abs() as usize;
    if scale >= 0 && magnitude < digits.len() + 7 {
        out.extend_from_slice(digits);
        append_zeros(out, scale);
    } else if scale < 0 && (scale > -7 || magnitude < 4) {
        match digits.split_at_checked((digits.len() as i32 + scale).max(0) as usize) {
            Some((whole, fraction)) if !whole.is_empty() => {
                out.extend_from_slice(whole);
                out.push(b'.');
                out.extend_from_slice(fraction);
            }
            _ => {
                out.extend_from_slice(b"0.");
                append_zeros(out, -scale - digits.len() as i32);
                out.extend_from_slice(digits);
            }
        }
    } else {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        out.extend_from_slice(itoa::Buffer::new().format(magnitude).as_bytes());
    }
}

fn append_zeros(out: &mut Vec<u8>, count: i32) {
    out.resize(out.len() + count as usize, b'0');
}

/// The shortest decimal digits of a double, and the power of ten that the first
/// one stands for.
struct Decimal {
    digits: [u8; 17],
    len: usize,
    exponent: i32,
}

impl Decimal {
    fn shortest(value: f64) -> Self {
        // The standard library finds the digits: "1.2345e-7", at most 23 bytes.
        let mut text = [0_u8; 32];
        let mut rest = &mut text[..];
        let written = write!(rest, "{value:e}").map_or(0, |()| 32 - rest.len());
        let text = &text[..written];
        let e = text.iter().position(|&byte| byte == b'e').unwrap_or(written);
        let mut decimal = Self { digits: [b'0'; 17], len: 0, exponent: 0 };
        for (place, &digit) in
            decimal.digits.iter_mut().zip(text[..e].iter().filter(|&&byte| byte != b'.'))
        {
            *place = digit;
            decimal.len += 1;
        }
        let exponent = text.get(e + 1..).and_then(crate::parse_integer);
        decimal.exponent = exponent.unwrap_or(0) as i32;
        decimal
    }

    fn digits(&self) -> &[u8] {
        &self.digits[..self.len.max(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::append_double;
    use proptest::prelude::*;

    fn text(value: f64) -> String {
        let mut out = Vec::new();
        append_double(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    /// Each printed by Redis 7.2's own routine.
    #[test]
    fn prints_as_redis_does() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (3.0, "3"),
            (-17.0, "-17"),
            (1e17, "100000000000000000"),
            (1e18, "1000000000000000000"),
            (4611686018427387904.0, "4611686018427387904"),
            (9223372036854775808.0, "9223372036854776000"),
            (1e21, "1e+21"),
            (1.5e22, "1.5e+22"),
            (2.75, "2.75"),
            (-0.5, "-0.5"),
            (0.1, "0.1"),
            (0.30000000000000004, "0.30000000000000004"),
            (0.001, "0.001"),
            (0.000001, "0.000001"),
            (0.0000001, "1e-7"),
            (0.00000015, "1.5e-7"),
            (0.000123456789, "1.23456789e-4"),
            (0.00012345, "1.2345e-4"),
            (0.00123456789, "0.00123456789"),
            (123456.789, "123456.789"),
            (1234567890.123456, "1234567890.123456"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    proptest! {
        #[test]
        fn reads_back_as_the_same_value(bits: u64) {
            let value = f64::from_bits(bits);
            let back: f64 = text(value).parse().unwrap();
            prop_assert!(back.to_bits() == bits || (back.is_nan() && value.is_nan()));
        }
    }
}
