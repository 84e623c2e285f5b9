//! Numbers as `INCRBYFLOAT` computes with them: the 80-bit floats of the x87,
//! which are what Redis's `long double` is where Redis usually runs.
//!
//! ```text
//!  | sign 1 | exponent 15, bias 16,383 | significand 64, its integer bit explicit |
//! ```
//!
//! Text is read as C's `strtold` reads it and written as C's `%.17Lf` with the
//! zeros at the end left out, both rounded to nearest, ties to even, so every
//! digit is the one Redis would print. Reading and adding are O(digits squared)
//! at worst, and a text is shorter than [`TEXT_LIMIT`].

use rustc_apfloat::Float as _;
use rustc_apfloat::FloatConvert;
use rustc_apfloat::ieee::{Double, X87DoubleExtended};

/// Texts of this many bytes or more are no numbers, as in Redis.
const TEXT_LIMIT: usize = 5 * 1024;

/// Digits after the decimal point.
const DECIMALS: u32 = 17;

const SIGNIFICAND_BITS: i32 = 64;
const EXPONENT_BIAS: i32 = 16_383;

/// An exponent beyond all that a text's digits could bring back into range.
const EXPONENT_MAX: i64 = 1_000_000;

/// A float of the x87; may be infinite, is never NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extended(X87DoubleExtended);

impl Extended {
    pub(crate) const ZERO: Self = Self(X87DoubleExtended::ZERO);

    /// A double as it is; it is not NaN.
    pub(crate) fn of(value: f64) -> Self {
        Self(Double::from_bits(u128::from(value.to_bits())).convert(&mut false).value)
    }

    /// The number that the whole of `text` is, as `strtold` takes it: decimal
    /// or hexadecimal, or an infinity. `None` if it is none, or too large or
    /// too small to be told from infinity or zero.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= TEXT_LIMIT {
            return None;
        }
        let (negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let magnitude = match rest {
            [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits)?,
            word if is_infinity(word) => X87DoubleExtended::INFINITY,
            digits => decimal(digits)?,
        };
        Some(Self(if negative { -magnitude } else { magnitude }))
    }

    pub(crate) fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    /// The sum; `None` if it is not finite.
    pub(crate) fn add(self, other: Self) -> Option<Self> {
        let sum = (self.0 + other.0).value;
        sum.is_finite().then_some(Self(sum))
    }

    /// The nearest double.
    pub(crate) fn to_f64(self) -> f64 {
        let double: Double = self.0.convert(&mut false).value;
        f64::from_bits(double.to_bits() as u64)
    }

    /// `%.17Lf` without zeros at the end. The number must be finite.
    pub(crate) fn to_text(self) -> String {
        let bits = self.0.to_bits();
        let significand = bits as u64;
        let biased = (bits >> SIGNIFICAND_BITS) as i32 & 0x7fff;
        let negative = bits >> 79 & 1 == 1;
        // The value is `significand * 2^exponent`; subnormal numbers share the
        // exponent of the smallest normal ones.
        let exponent = biased.max(1) - EXPONENT_BIAS - (SIGNIFICAND_BITS - 1);
        let magnitude = match u32::try_from(exponent) {
            Ok(exponent) => shifted_decimal(significand, exponent),
            Err(_) => fraction_decimal(significand, exponent.unsigned_abs()),
        };
        if negative && magnitude != "0" { format!("-{magnitude}") } else { magnitude }
    }
}

fn is_infinity(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"infinity")
}

/// Digits with at most one point among them, and what comes behind.
fn split_digits(text: &[u8], is_digit: impl Fn(&u8) -> bool) -> Option<(&str, &[u8])> {
    let mut points = 0;
    let mut digits = 0;
    let end = text.iter().position(|byte| match byte {
        b'.' if points == 0 => {
            points += 1;
            false
        }
        byte if is_digit(byte) => {
            digits += 1;
            false
        }
        _ => true,
    });
    let (number, rest) = text.split_at(end.unwrap_or(text.len()));
    (digits > 0).then_some((std::str::from_utf8(number).ok()?, rest))
}

/// An exponent with its letter, or nothing at all.
fn exponent(text: &[u8], letter: u8) -> Option<i64> {
    let [first, text @ ..] = text else { return Some(0) };
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if first.to_ascii_lowercase() != letter || digits.is_empty() {
        return None;
    }
    let magnitude = digits.iter().try_fold(0i64, |value, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        Some((value * 10 + i64::from(digit)).min(EXPONENT_MAX))
    })?;
    Some(if negative { -magnitude } else { magnitude })
}

fn decimal(text: &[u8]) -> Option<X87DoubleExtended> {
    let (digits, rest) = split_digits(text, u8::is_ascii_digit)?;
    representable(&format!("{digits}e{}", exponent(rest, b'e')?), digits)
}

fn hexadecimal(text: &[u8]) -> Option<X87DoubleExtended> {
    let (digits, rest) = split_digits(text, u8::is_ascii_hexdigit)?;
    representable(&format!("0x{digits}p{}", exponent(rest, b'p')?), digits)
}

/// Reads `number`, unless it is out of range: what is not zero must not become
/// zero, nor infinite.
fn representable(number: &str, digits: &str) -> Option<X87DoubleExtended> {
    let value: X87DoubleExtended = number.parse().ok()?;
    let is_zero = digits.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    (value.is_finite() && value.is_zero() == is_zero).then_some(value)
}

/// `significand * 2^exponent`.
fn shifted_decimal(significand: u64, exponent: u32) -> String {
    const LIMB: u64 = 1_000_000_000;
    let mut limbs = vec![significand % LIMB, significand / LIMB % LIMB, significand / LIMB / LIMB];
    let mut left = exponent;
    while left > 0 {
        let bits = left.min(32);
        let mut carry = 0;
        for limb in &mut limbs {
            let shifted = (*limb << bits) + carry;
            *limb = shifted % LIMB;
            carry = shifted / LIMB;
        }
        while carry > 0 {
            limbs.push(carry % LIMB);
            carry /= LIMB;
        }
        left -= bits;
    }
    let digits: Vec<String> = limbs.iter().rev().map(|limb| format!("{limb:09}")).collect();
    match digits.concat().trim_start_matches('0') {
        "" => "0".into(),
        digits => digits.into(),
    }
}

/// `significand / 2^shift`, rounded to [`DECIMALS`].
fn fraction_decimal(significand: u64, shift: u32) -> String {
    let ten = 10u128.pow(DECIMALS);
    // The significand times 10^17 is below 2^121, so a shift above 121 leaves
    // less than half a unit of the last place.
    if shift > 121 {
        return "0".into();
    }
    let whole = if shift < 64 { significand >> shift } else { 0 };
    let rest = if shift < 64 { significand & ((1 << shift) - 1) } else { significand };
    let scaled = u128::from(rest) * ten;
    let half = 1u128 << (shift - 1);
    let (units, lost) = (scaled >> shift, scaled & ((1 << shift) - 1));
    let round_up = lost > half || lost == half && units & 1 == 1;
    let units = units + u128::from(round_up);
    let whole = u128::from(whole) + units / ten;
    let decimals = format!("{:017}", units % ten);
    match decimals.trim_end_matches('0') {
        "" => whole.to_string(),
        decimals => format!("{whole}.{decimals}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let (a, b) = (Extended::parse(a.as_bytes())?, Extended::parse(b.as_bytes())?);
        a.add(b).map(Extended::to_text)
    }

    #[test]
    fn sums_are_those_of_redis() {
        for (a, b, expected) in [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "200", "5200"),
            ("1", "1e17", "100000000000000001"),
            ("0.1", "0.00000000000000001", "0.10000000000000001"),
            ("-0.0", "0", "0"),
            ("-1e-20", "0", "0"),
            ("123456789012345678", "0.5", "123456789012345678.5"),
            ("0x10", "0x.8", "16.5"),
            ("0x1p-1", "+.5", "1"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("5.", "0", "5"),
            ("0e99999999999999999999", "1", "1"),
            ("3e-4951", "0", "0"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
        let large = sum("1e4932", "0").unwrap();
        assert_eq!((large.len(), &large[..20]), (4933, "10000000000000000000"));
    }

    #[test]
    fn what_strtold_would_not_take_whole_is_no_number() {
        let long = "1".repeat(TEXT_LIMIT);
        for text in [
            "",
            "+",
            "-",
            ".",
            "e5",
            "1e",
            "1e+",
            "1 ",
            " 1",
            "1x",
            "0x",
            "0x.",
            "0x1p",
            "0xg",
            "--1",
            "1.2.3",
            "nan",
            "-nan",
            "infin",
            "1e5000",
            "-1e5000",
            "1e-5000",
            "0x1p99999",
            "1\0",
            "1_0",
            "1e1.5",
            &long,
        ] {
            assert!(Extended::parse(text.as_bytes()).is_none(), "{text:?}");
        }
        assert!(Extended::parse(b"-INFinity").is_some());
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("inf", "-inf"), None);
        assert_eq!(sum("1.1e4932", "1e4932"), None);
    }

    proptest! {
        /// Where a sum is exact in 64 bits of significand, it is printed exactly.
        #[test]
        fn exact_sums_are_exact(a in -1i64 << 50..1 << 50, b in -1i64 << 50..1 << 50, shift in 0u32..17) {
            let unit = f64::from(1u32 << shift);
            let text = |n: i64| format!("{:.17}", n as f64 / unit);
            let expected = text(a + b);
            let expected = expected.trim_end_matches('0').trim_end_matches('.');
            let expected = if expected == "-0" { "0" } else { expected };
            prop_assert_eq!(sum(&text(a), &text(b)).unwrap(), expected);
        }

        #[test]
        fn no_text_panics(text in "[-+]?(0[xX])?[0-9a-f.]{0,30}([eEpP][-+]?[0-9]{0,25})?") {
            if let Some(number) = Extended::parse(text.as_bytes())
                && let Some(number) = number.add(Extended::ZERO)
            {
                number.to_text();
            }
        }
    }
}
