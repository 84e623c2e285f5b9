//! Scores as text: read as C's `strtod` reads them, written as C's `%.17g`.
//!
//! Seventeen digits are enough for every double to read back as itself; so
//! redis-server 7.0 prints scores, weights and distances. Numbers of few digits are
//! read and written without a detour; the others cost what the standard library's
//! exact conversions do, some hundred nanoseconds.

use rustc_apfloat::Float as _;
use rustc_apfloat::ieee::Double;
use std::io::Write as _;

/// Room for the text of a double.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    bytes: [u8; 40],
    len: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; 40], len: 0 }
    }
}

/// Significant digits.
const DIGITS: i32 = 17;

/// The largest number, 2^62, that Redis takes for an integer if it is whole.
const WHOLE_MAX: f64 = (1u64 << 62) as f64;

impl Text {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The text of a number, which is not NaN.
    #[inline]
    pub(crate) fn of(&mut self, value: f64) -> &[u8] {
        self.len = 0;
        // Zero has a sign of its own.
        if value.abs() < 1e17 && value.fract() == 0.0 && value != 0.0 {
            self.push(itoa::Buffer::new().format(value as i64).as_bytes());
        } else {
            self.write(value);
        }
        &self.bytes[..self.len]
    }

    /// The text of a number that a listpack of Redis holds: a whole one of up to 2^62 lies
    /// there as an integer, and is told with all its digits.
    pub(crate) fn of_listpack(&mut self, value: f64) -> &[u8] {
        if value.abs() > WHOLE_MAX || value.fract() != 0.0 {
            return self.of(value);
        }
        self.len = 0;
        self.push(itoa::Buffer::new().format(value as i64).as_bytes());
        &self.bytes[..self.len]
    }

    fn write(&mut self, value: f64) {
        if value.is_sign_negative() {
            self.push(b"-");
        }
        if value.is_infinite() {
            return self.push(b"inf");
        }
        if value == 0.0 {
            return self.push(b"0");
        }
        // "1.2345678901234567e-5": a digit, a point, sixteen digits, the exponent.
        let mut room = [0u8; 32];
        let mut rest = &mut room[..];
        // It has room for any double.
        let _ = write!(rest, "{:.16e}", value.abs());
        let len = 32 - rest.len();
        let text = &room[..len];
        let e = text.iter().position(|&byte| byte == b'e').unwrap_or(len);
        let exponent = text.get(e + 1..).and_then(snug_resp::parse_integer).unwrap_or(0) as i32;
        let mut digits = [b'0'; DIGITS as usize];
        digits[0] = text[0];
        digits[1..].copy_from_slice(&text[2..18]);
        let significant = 1 + digits.iter().rposition(|&digit| digit != b'0').unwrap_or(0);
        let digits = &digits[..significant];
        if !(-4..DIGITS).contains(&exponent) {
            self.push(&digits[..1]);
            if significant > 1 {
                self.push(b".");
                self.push(&digits[1..]);
            }
            self.push(if exponent < 0 { b"e-" } else { b"e+" });
            if exponent.abs() < 10 {
                self.push(b"0");
            }
            return self.push(itoa::Buffer::new().format(exponent.abs()).as_bytes());
        }
        if exponent < 0 {
            self.push(b"0.");
            self.push(&b"000"[..(-1 - exponent) as usize]);
            return self.push(digits);
        }
        let whole = exponent as usize + 1;
        if significant <= whole {
            self.push(digits);
            return self.push(&[b'0'; DIGITS as usize][..whole - significant]);
        }
        self.push(&digits[..whole]);
        self.push(b".");
        self.push(&digits[whole..]);
    }
}

/// The number that the whole of a text is: decimal or hexadecimal, or an infinity.
/// `None` if it is none, or too large or too small to be told from infinity or zero.
#[inline]
pub(crate) fn parse(text: &[u8]) -> Option<f64> {
    if let Some(integer) = small_integer(text) {
        return Some(integer);
    }
    match strtod(text)? {
        (value, true) if value == 0.0 || value.is_infinite() => None,
        (value, _) => Some(value),
    }
}

/// The same as it is read where only NaN is refused: a range's end. Spaces may stand in
/// front, a number too large is infinite, and no text at all is 0. The text ends at a NUL.
pub(crate) fn parse_loosely(text: &[u8]) -> Option<f64> {
    if let Some(integer) = small_integer(text) {
        return Some(integer);
    }
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte))?;
    strtod(&text[start..]).map(|(value, _)| value)
}

/// Up to fifteen digits, with a minus or without.
#[inline]
fn small_integer(text: &[u8]) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 15 {
        return None;
    }
    let mut value = 0u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    // This makes a zero with a sign, too.
    Some(if negative { -(value as f64) } else { value as f64 })
}

/// The number, and whether it was out of range: not zero, and became it, or infinite.
fn strtod(text: &[u8]) -> Option<(f64, bool)> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (magnitude, exceeds) = match rest {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits)?,
        word if word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"infinity") => {
            (f64::INFINITY, false)
        }
        [b'0'..=b'9' | b'.', ..] => {
            let value: f64 = std::str::from_utf8(rest).ok()?.parse().ok()?;
            let mantissa = rest.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
            let is_zero = { mantissa }.all(|byte| matches!(byte, b'0' | b'.'));
            (value, value.is_infinite() || value == 0.0 && !is_zero)
        }
        _ => return None,
    };
    Some((if negative { -magnitude } else { magnitude }, exceeds))
}

/// Digits, with a point or without, and an exponent of two or none.
fn hexadecimal(text: &[u8]) -> Option<(f64, bool)> {
    let (digits, exponent) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b"0"[..]),
    };
    let points = digits.split(|&byte| byte == b'.').count() - 1;
    if points > 1 || digits.len() == points || digits.len() > 256 {
        return None;
    }
    if !digits.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'.') {
        return None;
    }
    let number = exponent.strip_prefix(b"-").or(exponent.strip_prefix(b"+")).unwrap_or(exponent);
    if number.is_empty() || number.len() > 8 || !number.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    let exponent = std::str::from_utf8(exponent).ok()?;
    let value: Double = format!("0x{digits}p{exponent}").parse().ok()?;
    let value = f64::from_bits(value.to_bits() as u64);
    let is_zero = digits.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    Some((value, value.is_infinite() || value == 0.0 && !is_zero))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(value: f64) -> String {
        String::from_utf8(Text::default().of(value).to_vec()).unwrap()
    }

    #[test]
    fn prints_as_seventeen_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (3.0, "3"),
            (0.1, "0.10000000000000001"),
            (2.5, "2.5"),
            (-1e-5, "-1.0000000000000001e-05"),
            (1e-4, "0.0001"),
            (1e17, "1e+17"),
            (123_456_789_012_345_678.0, "1.2345678901234568e+17"),
            (99_999_999_999_999_984.0, "99999999999999984"),
            (1e21, "1e+21"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (1e100, "1e+100"),
            (123_456.789, "123456.789"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn reads_what_strtod_reads_whole() {
        for (text, value) in [
            ("1", 1.0),
            ("-17", -17.0),
            ("+.5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("0x10", 16.0),
            ("-0x1.8p1", -3.0),
            ("-Infinity", f64::NEG_INFINITY),
            ("inf", f64::INFINITY),
            ("0e-999", 0.0),
            ("4.9e-324", 5e-324),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "", "+", "-", ".", "1e", "1 ", " 1", "nan", "infinit", "1e400", "1e-400", "0x", "1_0",
            "--1", "+-1", "1\0", "e5",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        for (text, value) in [("", 0.0), (" 1", 1.0), ("1e400", f64::INFINITY), ("2\0x", 2.0)] {
            assert_eq!(parse_loosely(text.as_bytes()), Some(value), "{text}");
        }
        for text in [" ", "nan", "1 ", "x"] {
            assert_eq!(parse_loosely(text.as_bytes()), None, "{text}");
        }
        assert!(parse(b"-0").unwrap().is_sign_negative());
    }

    proptest! {
        #[test]
        fn reads_back_as_the_same_value(bits: u64) {
            let value = f64::from_bits(bits);
            if !value.is_nan() {
                prop_assert_eq!(parse(text(value).as_bytes()).unwrap().to_bits(), bits);
            }
        }

        #[test]
        fn no_text_panics(text in "[-+ ]?(0[xX])?[0-9a-f.]{0,30}([eEpP][-+]?[0-9]{0,12})?") {
            let _ = (parse(text.as_bytes()), parse_loosely(text.as_bytes()));
        }
    }
}
