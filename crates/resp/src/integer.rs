//! What Redis takes for an integer: an optional `-`, then digits without a
//! leading zero, within 64 bits; nothing else around them. `+1`, `01`, `-0`, ` 1`
//! and the empty text are not integers. O(length), no allocation.

/// The longest text of an `i64`: a sign and 19 digits.
const TEXT_MAX: usize = 20;

/// Reads `text` as an integer exactly when Redis would.
///
/// ```
/// assert_eq!(snug_resp::parse_integer(b"-42"), Some(-42));
/// assert_eq!(snug_resp::parse_integer(b"042"), None);
/// ```
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    if text == b"0" {
        return Some(0);
    }
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if text.len() > TEXT_MAX || !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    // At most 20 digits here, so only the last step can overflow.
    let mut magnitude = 0_u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

#[cfg(test)]
mod tests {
    use super::parse_integer;
    use proptest::prelude::*;

    #[test]
    fn accepts_what_redis_accepts() {
        for (text, value) in [
            ("0", 0),
            ("1", 1),
            ("-1", -1),
            ("10", 10),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), Some(value), "{text}");
        }
    }

    #[test]
    fn rejects_what_redis_rejects() {
        for text in [
            "",
            "-",
            "+1",
            "-0",
            "00",
            "01",
            "-01",
            " 1",
            "1 ",
            "1a",
            "a",
            "--1",
            "1.0",
            "0x1",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "99999999999999999999",
            "100000000000000000000",
            "1\0",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_integer_round_trips(value: i64) {
            prop_assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }

        /// An integer has one spelling: what is accepted prints back the same.
        #[test]
        fn one_spelling(text in "[-+0-9 ]{0,22}") {
            if let Some(value) = parse_integer(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }
}
