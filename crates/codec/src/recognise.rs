//! Recognisers: text that stands for something shorter, with the exact way
//! back. A number, a UUID, hexadecimal, base64. Each either gives a binary form
//! from which it can rebuild the text to the byte, or nothing.

/// A decimal number as an integer: `1234.50` is 123,450 with two decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    pub(crate) mantissa: i64,
    /// Digits after the point; 0 for no point.
    pub(crate) scale: u8,
}

/// Eighteen digits always fit an `i64`.
const DIGITS_MAX: usize = 18;

/// The number that prints as exactly `text`: no plus sign, no leading zeros, no
/// negative zero, no empty side of the point.
pub(crate) fn decimal(text: &[u8]) -> Option<Decimal> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > DIGITS_MAX + 1 {
        return None;
    }
    let mut mantissa = 0u64;
    let mut point = None;
    for (i, &byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(i),
            _ => return None,
        }
    }
    let whole = point.unwrap_or(digits.len());
    let scale = digits.len() - whole - usize::from(point.is_some());
    let ok = whole > 0
        && whole + scale <= DIGITS_MAX
        && (digits[0] != b'0' || whole == 1)
        && (point.is_none() || scale > 0)
        && !(negative && mantissa == 0);
    // Nineteen digits, which are none of these, may not even be negated.
    ok.then(|| Decimal {
        mantissa: if negative { -(mantissa as i64) } else { mantissa as i64 },
        scale: scale as u8,
    })
}

/// Digits only, all of one length with zeros in front: `0042`.
pub(crate) fn padded(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > DIGITS_MAX || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |n, &digit| n * 10 + i64::from(digit - b'0')))
}

/// Appends a number as [`decimal`] read it, or with zeros in front up to `pad`
/// digits as [`padded`] did. `scale` and `pad` are at most [`DIGITS_MAX`].
#[inline]
pub(crate) fn push_decimal(out: &mut Vec<u8>, mantissa: i64, scale: u8, pad: u8) {
    match short_decimal(mantissa, scale, pad) {
        Some((text, len)) => {
            out.extend_from_slice(&text.to_le_bytes());
            out.truncate(out.len() - (8 - len));
        }
        None => push_long_decimal(out, mantissa, scale, pad),
    }
}

/// A number of at most eight bytes, made in a register, the first byte lowest, and
/// its length. Written digit by digit to memory and read from there at once, it
/// would keep the processor waiting for the writes.
#[inline]
fn short_decimal(mantissa: i64, scale: u8, pad: u8) -> Option<(u64, usize)> {
    let n = u32::try_from(mantissa.unsigned_abs()).ok().filter(|&n| n < 100_000_000)?;
    let (scale, least) = (usize::from(scale), usize::from(pad.max(scale + 1)));
    let digits = eight_digits(n);
    let mut len = (8 - digits.trailing_zeros() as usize / 8).max(least);
    if len + usize::from(scale > 0) + usize::from(mantissa < 0) > 8 {
        return None;
    }
    let mut text = (digits | u64::from_le_bytes([b'0'; 8])) >> (8 * (8 - len));
    if scale > 0 {
        let point = 8 * (len - scale);
        let whole = text & ((1 << point) - 1);
        text = (text ^ whole) << 8 | u64::from(b'.') << point | whole;
        len += 1;
    }
    if mantissa < 0 {
        text = text << 8 | u64::from(b'-');
        len += 1;
    }
    Some((text, len))
}

/// The values of eight decimal digits, one a byte, the first one lowest: halves,
/// quarters and digits are each split off all at once, by multiplying with the
/// reciprocal.
#[inline]
fn eight_digits(n: u32) -> u64 {
    let fours = u64::from(n / 10_000) | u64::from(n % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0xf_000f_000f_000f;
    tens | (twos - 10 * tens) << 8
}

fn push_long_decimal(out: &mut Vec<u8>, mantissa: i64, scale: u8, pad: u8) {
    // The longest: a sign, a point and 20 digits. Written back to front into
    // the middle, so that what is copied is of one length.
    const TEXT: usize = 24;
    let mut text = [b'0'; 2 * TEXT];
    let scale = usize::from(scale).min(DIGITS_MAX);
    let least = usize::from(pad).min(DIGITS_MAX).max(scale + 1);
    let mut at = push_digits(&mut text, mantissa.unsigned_abs(), TEXT).min(TEXT - least);
    if scale > 0 {
        text.copy_within(at..TEXT - scale, at - 1);
        text[TEXT - scale - 1] = b'.';
        at -= 1;
    }
    if mantissa < 0 {
        at -= 1;
        text[at] = b'-';
    }
    out.extend_from_slice(&text[at..at + TEXT]);
    out.truncate(out.len() - at);
}

/// The digits of 00 to 99.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// Writes the digits of `n` so that they end at `end`; where they begin.
#[inline]
fn push_digits(text: &mut [u8; 48], mut n: u64, end: usize) -> usize {
    let mut at = end;
    while n >= 100_000_000 {
        let mut eight = (n % 100_000_000) as u32;
        n /= 100_000_000;
        for _ in 0..4 {
            at -= 2;
            text[at..at + 2].copy_from_slice(&PAIRS[(eight % 100) as usize]);
            eight /= 100;
        }
    }
    let mut n = n as u32;
    while n >= 100 {
        at -= 2;
        text[at..at + 2].copy_from_slice(&PAIRS[(n % 100) as usize]);
        n /= 100;
    }
    if n >= 10 {
        at -= 2;
        text[at..at + 2].copy_from_slice(&PAIRS[n as usize]);
    } else {
        at -= 1;
        text[at] = b'0' + n as u8;
    }
    at
}

/// The bytes that 0 to 18 digits need.
const DIGITS_BYTES: [usize; DIGITS_MAX + 1] =
    [0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5, 6, 6, 7, 7, 8, 8];

/// The bytes that `len` digits are kept in: eighteen in eight.
pub(crate) fn digits_bytes(len: usize) -> Option<usize> {
    (len / DIGITS_MAX).checked_mul(8)?.checked_add(DIGITS_BYTES[len % DIGITS_MAX])
}

/// Appends the bytes of a text that is all digits, leading zeros included.
pub(crate) fn digits(text: &[u8], out: &mut Vec<u8>) {
    for part in text.chunks(DIGITS_MAX) {
        let number = part.iter().fold(0u64, |n, &digit| n * 10 + u64::from(digit - b'0'));
        out.extend_from_slice(&number.to_le_bytes()[..DIGITS_BYTES[part.len()]]);
    }
}

/// Appends the `len` digits that [`digits`] made `bytes` of; `None` where it
/// made none such.
pub(crate) fn push_digits_of(out: &mut Vec<u8>, mut bytes: &[u8], len: usize) -> Option<()> {
    let mut left = len;
    while left > 0 {
        let part = left.min(DIGITS_MAX);
        let (number, rest) = bytes.split_at_checked(DIGITS_BYTES[part])?;
        let mut eight = [0; 8];
        eight[..number.len()].copy_from_slice(number);
        let number = u64::from_le_bytes(eight);
        if number >= 10u64.pow(part as u32) {
            return None;
        }
        push_decimal(out, number as i64, 0, part as u8);
        (bytes, left) = (rest, left - part);
    }
    bytes.is_empty().then_some(())
}

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// What a byte stands for in hexadecimal; 0xff for nothing, bit 4 for an upper
/// case letter, bit 5 for a lower case one.
const HEX: [u8; 256] = {
    let mut table = [0xff; 256];
    let mut i = 0;
    while i < 10 {
        table[b'0' as usize + i] = i as u8;
        i += 1;
    }
    let mut i = 0;
    while i < 6 {
        table[b'A' as usize + i] = (10 + i) as u8 | 0x10;
        table[b'a' as usize + i] = (10 + i) as u8 | 0x20;
        i += 1;
    }
    table
};

/// Appends the bytes of hexadecimal `text`, which must be of even length and
/// one case; whether any letter was upper case. Nothing appended on `None`.
pub(crate) fn hex(text: &[u8], out: &mut Vec<u8>) -> Option<HexCase> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let before = out.len();
    let mut seen = 0u8;
    for pair in text.as_chunks::<2>().0 {
        let (high, low) = (HEX[usize::from(pair[0])], HEX[usize::from(pair[1])]);
        seen |= high | low;
        out.push(high << 4 | low & 15);
    }
    if seen & 0x80 != 0 || seen & 0x30 == 0x30 {
        out.truncate(before);
        return None;
    }
    Some(match seen & 0x30 {
        0 => HexCase::Either,
        0x10 => HexCase::Upper,
        _ => HexCase::Lower,
    })
}

/// The letters of a hexadecimal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HexCase {
    Either,
    Lower,
    Upper,
}

impl HexCase {
    /// The case that suits both, if one does.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Either, case) | (case, Self::Either) => Some(case),
            (a, b) => (a == b).then_some(a),
        }
    }
}

/// Appends the hexadecimal text of `bytes`.
pub(crate) fn push_hex(out: &mut Vec<u8>, bytes: &[u8], upper: bool) {
    let digits = if upper { UPPER } else { LOWER };
    for &byte in bytes {
        out.push(digits[usize::from(byte >> 4)]);
        out.push(digits[usize::from(byte & 15)]);
    }
}

/// Where a UUID's dashes are.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// Appends the 16 bytes of a UUID in its 36-character form.
pub(crate) fn uuid(text: &[u8], out: &mut Vec<u8>) -> Option<HexCase> {
    if text.len() != 36 || DASHES.iter().any(|&at| text[at] != b'-') {
        return None;
    }
    let mut digits = [0u8; 32];
    let mut at = 0;
    for part in [0..8, 9..13, 14..18, 19..23, 24..36] {
        let len = part.len();
        digits[at..at + len].copy_from_slice(&text[part]);
        at += len;
    }
    hex(&digits, out)
}

/// Appends a UUID's text.
pub(crate) fn push_uuid(out: &mut Vec<u8>, bytes: &[u8; 16], upper: bool) {
    for (i, part) in [0..4, 4..6, 6..8, 8..10, 10..16].into_iter().enumerate() {
        if i > 0 {
            out.push(b'-');
        }
        push_hex(out, &bytes[part], upper);
    }
}

/// How a base64 text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Base64 {
    /// `-` and `_` instead of `+` and `/`.
    pub(crate) url: bool,
    /// Ends in `=` where the length asks for it.
    pub(crate) padded: bool,
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The value of a base64 digit, with a bit that says which alphabet it is in where
/// they differ; both bits for what is no digit. So digits of a text, or-ed, have
/// both bits if one is none, or if they are of both alphabets.
const DIGIT: [u8; 256] = {
    let mut table = [STANDARD_ONLY | URL_ONLY; 256];
    let mut i = 0;
    while i < 64 {
        let (standard, url) = if i < 62 { (0, 0) } else { (STANDARD_ONLY, URL_ONLY) };
        table[STANDARD[i] as usize] = i as u8 | standard;
        table[URL[i] as usize] = i as u8 | url;
        i += 1;
    }
    table
};

const STANDARD_ONLY: u8 = 0x40;
const URL_ONLY: u8 = 0x80;

/// Appends the bytes of base64 `text`, which must be what an encoder would
/// write: one alphabet, no loose bits, padding complete or absent. `style` says
/// what is known already; more may be known after. Nothing appended on `None`.
pub(crate) fn base64(text: &[u8], style: &mut Base64Style, out: &mut Vec<u8>) -> Option<()> {
    let padding = text.iter().rev().take(2).take_while(|&&b| b == b'=').count();
    let (fours, rest) = text[..text.len() - padding].as_chunks::<4>();
    let tail = rest.len();
    if tail == 1 || (padding > 0 && padding + tail != 4) {
        return None;
    }
    let before = out.len();
    out.resize(before + fours.len() * 3, 0);
    let mut kinds = 0;
    let mut bits_of = |digits: [u8; 4]| {
        let digits = u32::from_be_bytes(digits.map(|digit| DIGIT[usize::from(digit)]));
        kinds |= digits;
        let pairs = (digits & 0x003f_003f) | (digits >> 2 & 0x0fc0_0fc0);
        (pairs & 0xfff) | pairs >> 16 << 12
    };
    for (four, three) in fours.iter().zip(out[before..].as_chunks_mut::<3>().0) {
        three.copy_from_slice(&bits_of(*four).to_be_bytes()[1..]);
    }
    let mut last = [b'A'; 4];
    last[..tail].copy_from_slice(rest);
    let last = bits_of(last);
    let bytes = tail.saturating_sub(1);
    out.extend_from_slice(&last.to_be_bytes()[1..=bytes]);
    let loose = last & (0xff_ffff >> (8 * bytes));
    let kinds = kinds.to_be_bytes().into_iter().fold(0, |all, kind| all | kind);
    let learned = style.learn(kinds, (tail > 0).then_some(padding > 0)).filter(|_| loose == 0);
    match learned {
        Some(learned) => *style = learned,
        None => out.truncate(before),
    }
    learned.map(|_| ())
}

/// What is known of how some base64 texts are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Base64Style {
    url: Option<bool>,
    padded: Option<bool>,
}

impl Base64Style {
    /// What is known after a text of these kinds of digits, padded or not if that
    /// could be seen; `None` if it is written otherwise than those before.
    fn learn(self, kinds: u8, padded: Option<bool>) -> Option<Self> {
        let url = match (kinds & STANDARD_ONLY > 0, kinds & URL_ONLY > 0) {
            (true, true) => return None,
            (false, false) => None,
            (_, url) => Some(url),
        };
        let agree = |known: Option<bool>, seen: Option<bool>| match (known, seen) {
            (Some(known), Some(seen)) if known != seen => None,
            _ => Some(known.or(seen)),
        };
        Some(Self { url: agree(self.url, url)?, padded: agree(self.padded, padded)? })
    }

    /// The style to write with: what no text showed does not matter.
    pub(crate) fn settle(self) -> Base64 {
        Base64 { url: self.url.unwrap_or(false), padded: self.padded.unwrap_or(true) }
    }
}

/// Makes base64 text of the bytes from `from` on, where they are.
pub(crate) fn base64_in_place(out: &mut Vec<u8>, from: usize, style: Base64) {
    let alphabet = if style.url { URL } else { STANDARD };
    let digits = |n: u32| [18, 12, 6, 0].map(|shift| alphabet[(n >> shift & 63) as usize]);
    let (threes, rest) = ((out.len() - from) / 3, (out.len() - from) % 3);
    let mut tail = [0; 3];
    tail[..rest].copy_from_slice(&out[from + 3 * threes..]);
    let last = digits(u32::from_be_bytes([0, tail[0], tail[1], tail[2]]));
    let shown = if rest == 0 { 0 } else { rest + 1 };
    let padding = if style.padded && rest > 0 { 3 - rest } else { 0 };
    out.resize(from + 4 * threes, 0);
    // From the back: four digits never reach a group not yet read.
    let space = &mut out[from..];
    for i in (0..threes).rev() {
        let at = 3 * i;
        let n = u32::from_be_bytes([0, space[at], space[at + 1], space[at + 2]]);
        space[4 * i..4 * i + 4].copy_from_slice(&digits(n));
    }
    out.extend_from_slice(&last[..shown]);
    out.resize(out.len() + padding, b'=');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn push_base64(out: &mut Vec<u8>, bytes: &[u8], style: Base64) {
        let from = out.len();
        out.extend_from_slice(bytes);
        base64_in_place(out, from, style);
    }

    proptest! {
        #[test]
        fn a_decimal_prints_as_it_was(text in "-?[0-9]{0,20}(\\.[0-9]{0,20})?|-?(0|[1-9][0-9]{0,8})(\\.[0-9]{1,9})?") {
            if let Some(d) = decimal(text.as_bytes()) {
                let mut out = Vec::new();
                push_decimal(&mut out, d.mantissa, d.scale, 0);
                prop_assert_eq!(String::from_utf8(out).unwrap(), text);
            }
        }

        #[test]
        fn numbers_of_too_many_digits_are_none(n in prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()]) {
            let text = n.to_string();
            prop_assert_eq!(decimal(text.as_bytes()).is_some(), n.unsigned_abs() < 10u64.pow(DIGITS_MAX as u32));
        }

        #[test]
        fn numbers_print_as_formatted(n: i64, shift in 0u32..64, pad in 0u8..19) {
            let n = n >> shift;
            let mut out = b"kept".to_vec();
            push_decimal(&mut out, n, 0, pad);
            let sign = if n < 0 { "-" } else { "" };
            let plain = format!("kept{sign}{:0width$}", n.unsigned_abs(), width = usize::from(pad.max(1)));
            prop_assert_eq!(String::from_utf8(out).unwrap(), plain);
        }

        #[test]
        fn short_numbers_print_as_long_ones(n: i32, shift in 0u32..32, scale in 0u8..19, pad in 0u8..19) {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            let n = i64::from(n >> shift);
            push_decimal(&mut one, n, scale, pad);
            push_long_decimal(&mut other, n, scale, pad);
            prop_assert_eq!(one, other);
        }

        #[test]
        fn ordinary_numbers_are_decimals(n in -1_000_000_000_000i64..1_000_000_000_000, scale in 0u8..7) {
            let mut text = Vec::new();
            push_decimal(&mut text, n, scale, 0);
            prop_assert_eq!(decimal(&text), Some(Decimal { mantissa: n, scale }));
        }

        #[test]
        fn padded_numbers_print_as_they_were(text in "[0-9]{1,18}") {
            let mut out = Vec::new();
            push_decimal(&mut out, padded(text.as_bytes()).unwrap(), 0, text.len() as u8);
            prop_assert_eq!(String::from_utf8(out).unwrap(), text);
        }

        #[test]
        fn digits_come_back(text in "[0-9]{0,60}") {
            let (mut bytes, mut back) = (Vec::new(), Vec::new());
            digits(text.as_bytes(), &mut bytes);
            prop_assert_eq!(Some(bytes.len()), digits_bytes(text.len()));
            prop_assert_eq!(push_digits_of(&mut back, &bytes, text.len()), Some(()));
            prop_assert_eq!(String::from_utf8(back).unwrap(), text);
        }

        #[test]
        fn hex_and_uuids_come_back(bytes in prop::collection::vec(any::<u8>(), 0..40), id: [u8; 16], upper: bool) {
            let (mut text, mut back) = (Vec::new(), Vec::new());
            push_hex(&mut text, &bytes, upper);
            let case = hex(&text, &mut back).unwrap();
            prop_assert_eq!(&back, &bytes);
            prop_assert!(case == HexCase::Either || (case == HexCase::Upper) == upper);
            text.clear();
            back.clear();
            push_uuid(&mut text, &id, upper);
            prop_assert!(uuid(&text, &mut back).is_some());
            prop_assert_eq!(&back, &id);
        }

        #[test]
        fn base64_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..60), url: bool, padded: bool) {
            let style = Base64 { url, padded };
            let (mut text, mut back, mut again) = (Vec::new(), Vec::new(), Vec::new());
            push_base64(&mut text, &bytes, style);
            let mut learned = Base64Style::default();
            prop_assert_eq!(base64(&text, &mut learned, &mut back), Some(()));
            prop_assert_eq!(&back, &bytes);
            push_base64(&mut again, &back, learned.settle());
            prop_assert_eq!(text, again);
        }

        #[test]
        fn what_decodes_encodes_to_the_same_text(text in "[A-Za-z0-9+/_=-]{0,24}") {
            let (mut style, mut bytes, mut again) = (Base64Style::default(), Vec::new(), Vec::new());
            if base64(text.as_bytes(), &mut style, &mut bytes).is_some() {
                push_base64(&mut again, &bytes, style.settle());
                prop_assert_eq!(String::from_utf8(again).unwrap(), text);
            } else {
                prop_assert!(bytes.is_empty());
            }
        }
    }
}
