//! An element: one field, value, member, score or item of a collection, as it lies
//! among others.
//!
//! ```text
//!  first byte
//!  0x00 .. 0x7f   the integer 0 to 127                        nothing follows
//!  0x80 .. 0xbf   0 to 63 bytes                               they follow
//!  0xc0           64 to 319 bytes                             length - 64: 1, bytes
//!  0xc1           more bytes                                  length: 4, bytes
//!  0xc2           a double                                    8
//!  0xc3           a large string beside the collection        number: 4, length: 8, hash: 8
//!  0xc4           (not an element: a record's time of expiry) 8
//!  0xc8 .. 0xcf   an integer of 1 to 8 bytes                  little-endian, signed
//!  0xd0, 0xd1     a UUID in lower, in upper case              16
//!  0xd2, 0xd3     hexadecimal digits, lower, upper case       their number / 2: 1, bytes
//!  0xe0 .. 0xff   a decimal: 3 bits length - 1, 2 bits scale  integer of 1 to 8 bytes
//! ```
//!
//! Strings that are the text of an integer, a decimal, a UUID or hexadecimal digits
//! are kept as what they are, where that gives back every byte. There is one way to
//! write a string: equal strings are equal bytes here, and nothing is decoded to
//! compare them. Doubles are scores; they are written as integers or decimals where
//! these are the same number.
//!
//! `snug_codec` packs elements by this layout (its `elements.rs`).
//!
//! Cost: writing looks at the first byte, and on from there only while the string may
//! be something special. Reading is a branch on the first byte.

use crate::hash::seeded;
use crate::types::string::canonical_int;
use std::cmp::Ordering;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{LazyLock, OnceLock};

const BYTES: u8 = 0x80;
const BYTES_SHORT_MAX: usize = 63;
const BYTES_MEDIUM: u8 = 0xc0;
const BYTES_MEDIUM_MAX: usize = BYTES_SHORT_MAX + 1 + 255;
const BYTES_LONG: u8 = 0xc1;
const DOUBLE: u8 = 0xc2;
const LARGE: u8 = 0xc3;
/// Stands before a record that expires: the time in Unix milliseconds follows.
pub(crate) const EXPIRES: u8 = 0xc4;
/// Bytes of that, with the time.
pub(crate) const EXPIRY_LEN: usize = 9;
const INT: u8 = 0xc8;
const UUID_LOWER: u8 = 0xd0;
const UUID_UPPER: u8 = 0xd1;
const HEX_LOWER: u8 = 0xd2;
const HEX_UPPER: u8 = 0xd3;
const DECIMAL: u8 = 0xe0;

/// Digits of a hexadecimal string that is kept as what it stands for.
const HEX_MIN: usize = 8;
const HEX_MAX: usize = 510;
const UUID_LEN: usize = 36;
/// Where in a UUID the hyphens are.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
const SCALE_MAX: usize = 4;
const POWERS: [f64; SCALE_MAX + 1] = [1.0, 10.0, 100.0, 1000.0, 10000.0];
/// Integers up to here are doubles exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// An element as it is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Element<'a> {
    /// The bytes themselves.
    Bytes(&'a [u8]),
    /// The text of an integer.
    Int(i64),
    /// The text of a decimal: an integer and the digits behind its point.
    Decimal(i64, usize),
    /// A double that has no shorter form.
    Double(f64),
    /// A UUID, and whether it is in upper case.
    Uuid(&'a [u8], bool),
    /// Hexadecimal digits, and whether they are in upper case.
    Hex(&'a [u8], bool),
    /// A large string that lies beside the collection.
    Large(Large),
}

/// What stands in the place of a large string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Large {
    /// Its number among the collection's large strings.
    pub(crate) number: u32,
    pub(crate) len: u64,
    /// Of its bytes, so that one can be told from another without reading them.
    pub(crate) hash: u64,
}

pub(crate) const LARGE_LEN: usize = 21;

/// Room for the text of a short element.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    bytes: [u8; TEXT_MAX],
    len: usize,
}

const TEXT_MAX: usize = 40;

impl Text {
    fn new() -> Self {
        Self { bytes: [0; TEXT_MAX], len: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The text.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// An element's text, borrowed where it lies as it is.
#[derive(Clone, Debug)]
pub enum Shown<'a> {
    /// It lies so.
    Bytes(&'a [u8]),
    /// It was made, and is short.
    Text(Text),
    /// It was made.
    Made(Vec<u8>),
}

impl std::ops::Deref for Shown<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Text(text) => text.bytes(),
            Self::Made(bytes) => bytes,
        }
    }
}

impl<'a> Element<'a> {
    /// The element as a client sees it. A large one is empty here: who can meet one asks
    /// for it first.
    #[inline]
    pub(crate) fn show(self) -> Shown<'a> {
        match self {
            Self::Bytes(bytes) => Shown::Bytes(bytes),
            _ => self.made(),
        }
    }

    fn made(self) -> Shown<'a> {
        let mut text = Text::new();
        match self {
            Self::Bytes(bytes) => return Shown::Bytes(bytes),
            Self::Large(_) => return Shown::Bytes(&[]),
            Self::Int(value) => text.push(itoa::Buffer::new().format(value).as_bytes()),
            Self::Double(value) => return Shown::Made(value.to_string().into_bytes()),
            Self::Decimal(value, scale) => push_decimal(&mut text, value, scale),
            Self::Uuid(bytes, upper) => {
                let digits = digits(upper);
                for (n, &byte) in bytes.iter().enumerate() {
                    if matches!(n, 4 | 6 | 8 | 10) {
                        text.push(b"-");
                    }
                    text.push(&digits[usize::from(byte)]);
                }
            }
            Self::Hex(bytes, upper) => {
                let digits = digits(upper);
                if bytes.len() > TEXT_MAX / 2 {
                    let made = bytes.iter().flat_map(|&byte| digits[usize::from(byte)]);
                    return Shown::Made(made.collect());
                }
                let pairs = text.bytes.chunks_exact_mut(2).zip(bytes);
                pairs.for_each(|(pair, &byte)| pair.copy_from_slice(&digits[usize::from(byte)]));
                text.len = 2 * bytes.len();
            }
        }
        Shown::Text(text)
    }

    /// The number that a score is.
    #[inline]
    pub(crate) fn score(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Double(value) => value,
            Self::Decimal(value, scale) => value as f64 / POWERS[scale],
            _ => 0.0,
        }
    }

    /// Compares the text with another's, byte by byte.
    #[inline]
    pub(crate) fn cmp_text(self, other: Element<'_>) -> Ordering {
        match (self, other) {
            (Self::Bytes(a), Element::Bytes(b)) => a.cmp(b),
            (Self::Uuid(a, upper), Element::Uuid(b, other))
            | (Self::Hex(a, upper), Element::Hex(b, other))
                if upper == other =>
            {
                a.cmp(b)
            }
            _ => self.show()[..].cmp(&other.show()[..]),
        }
    }
}

fn push_decimal(text: &mut Text, value: i64, scale: usize) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value.unsigned_abs()).as_bytes();
    if value < 0 {
        text.push(b"-");
    }
    let zeros = (scale + 1).saturating_sub(digits.len());
    let whole = zeros + digits.len() - scale;
    for (n, digit) in std::iter::repeat_n(&b'0', zeros).chain(digits).enumerate() {
        if n == whole {
            text.push(b".");
        }
        text.push(&[*digit]);
    }
}

/// Both digits of each byte.
type Digits = [[u8; 2]; 256];

fn digits(upper: bool) -> &'static Digits {
    static LOWER: Digits = hex_digits(b"0123456789abcdef");
    static UPPER: Digits = hex_digits(b"0123456789ABCDEF");
    if upper { &UPPER } else { &LOWER }
}

const fn hex_digits(digits: &[u8; 16]) -> Digits {
    let mut all = [[0; 2]; 256];
    let mut byte = 0;
    while byte < all.len() {
        all[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    all
}

/// Reads the element at the front of `bytes`; also the bytes that it takes, at least 1.
/// What was cut short reads as the empty string.
#[inline]
pub(crate) fn read(bytes: &[u8]) -> (Element<'_>, usize) {
    match bytes.first() {
        Some(&int @ ..BYTES) => (Element::Int(i64::from(int)), 1),
        Some(&len @ BYTES..BYTES_MEDIUM) => {
            let end = 1 + usize::from(len & 0x3f);
            (Element::Bytes(bytes.get(1..end).unwrap_or_default()), end)
        }
        Some(&first @ INT..=0xcf) => {
            let len = usize::from(first - INT) + 1;
            match int_behind(bytes, len) {
                Some(value) => (Element::Int(value), 1 + len),
                None => (Element::Bytes(&[]), 1),
            }
        }
        Some(&first) => read_other(first, bytes).unwrap_or((Element::Bytes(&[]), 1)),
        None => (Element::Bytes(&[]), 1),
    }
}

fn read_other(first: u8, bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let at = |from: usize, len: usize| bytes.get(from..from.checked_add(len)?);
    Some(match first {
        BYTES_MEDIUM => {
            let len = usize::from(*bytes.get(1)?) + BYTES_SHORT_MAX + 1;
            (Element::Bytes(at(2, len)?), 2 + len)
        }
        BYTES_LONG => {
            let len = u32::from_le_bytes(at(1, 4)?.try_into().ok()?) as usize;
            (Element::Bytes(at(5, len)?), 5 + len)
        }
        DOUBLE => (Element::Double(f64::from_le_bytes(at(1, 8)?.try_into().ok()?)), 9),
        LARGE => {
            let number = u32::from_le_bytes(at(1, 4)?.try_into().ok()?);
            let len = u64::from_le_bytes(at(5, 8)?.try_into().ok()?);
            let hash = u64::from_le_bytes(at(13, 8)?.try_into().ok()?);
            (Element::Large(Large { number, len, hash }), LARGE_LEN)
        }
        UUID_LOWER | UUID_UPPER => (Element::Uuid(at(1, 16)?, first == UUID_UPPER), 17),
        HEX_LOWER | HEX_UPPER => {
            let len = usize::from(*bytes.get(1)?);
            (Element::Hex(at(2, len)?, first == HEX_UPPER), 2 + len)
        }
        DECIMAL.. => {
            let len = usize::from(first >> 2 & 7) + 1;
            let scale = usize::from(first & 3) + 1;
            (Element::Decimal(int_behind(bytes, len)?, scale), 1 + len)
        }
        _ => return None,
    })
}

/// The bytes that the element at the front takes.
#[inline]
pub(crate) fn skip(bytes: &[u8]) -> usize {
    match bytes.first() {
        Some(..BYTES) => 1,
        Some(&len @ BYTES..BYTES_MEDIUM) => 1 + usize::from(len & 0x3f),
        Some(&first @ INT..=0xcf) => 2 + usize::from(first - INT),
        _ => read(bytes).1,
    }
}

/// Where elements are written to.
pub(crate) trait Buffer {
    /// Adds bytes at the end.
    fn put(&mut self, bytes: &[u8]);
}

impl Buffer for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Adds a string.
#[inline]
pub(crate) fn write(out: &mut impl Buffer, string: &[u8]) {
    match string {
        [b'0'..=b'9' | b'-' | b'a'..=b'f' | b'A'..=b'F', ..] => write_special(out, string),
        _ => write_bytes(out, string),
    }
}

/// Adds a string that may be the text of something.
fn write_special(out: &mut impl Buffer, string: &[u8]) {
    if let Some(int) = canonical_int(string) {
        return write_int(out, int);
    }
    if let Some((value, scale)) = decimal(string) {
        return write_decimal(out, value, scale);
    }
    if string.len() == UUID_LEN && write_uuid(out, string) {
        return;
    }
    let is_hex = string.len().is_multiple_of(2) && (HEX_MIN..=HEX_MAX).contains(&string.len());
    if is_hex && let Some(upper) = case(string) {
        out.put(&[if upper { HEX_UPPER } else { HEX_LOWER }, (string.len() / 2) as u8]);
        return write_pairs(out, string);
    }
    write_bytes(out, string);
}

pub(crate) fn write_bytes(out: &mut impl Buffer, string: &[u8]) {
    let len = string.len();
    if len <= BYTES_SHORT_MAX {
        out.put(&[BYTES | len as u8]);
    } else if len <= BYTES_MEDIUM_MAX {
        out.put(&[BYTES_MEDIUM, (len - BYTES_SHORT_MAX - 1) as u8]);
    } else {
        out.put(&[BYTES_LONG]);
        out.put(&(len as u32).to_le_bytes());
    }
    out.put(string);
}

/// Adds an integer.
#[inline]
pub(crate) fn write_int(out: &mut impl Buffer, value: i64) {
    if (0..i64::from(BYTES)).contains(&value) {
        return out.put(&[value as u8]);
    }
    let len = int_len(value);
    out.put(&[INT + len as u8 - 1]);
    out.put(&value.to_le_bytes()[..len]);
}

fn write_decimal(out: &mut impl Buffer, value: i64, scale: usize) {
    let len = int_len(value);
    out.put(&[DECIMAL | (len as u8 - 1) << 2 | (scale as u8 - 1)]);
    out.put(&value.to_le_bytes()[..len]);
}

/// Adds a score, in the one way that is for this number.
#[inline]
pub(crate) fn write_score(out: &mut impl Buffer, score: f64) {
    if score.abs() < EXACT_MAX && !(score == 0.0 && score.is_sign_negative()) {
        if score.fract() == 0.0 {
            return write_int(out, score as i64);
        }
        for (scale, power) in POWERS.iter().enumerate().skip(1) {
            let scaled = (score * power).round();
            if scaled.abs() < EXACT_MAX && (scaled / power).to_bits() == score.to_bits() {
                return write_decimal(out, scaled as i64, scale);
            }
        }
    }
    out.put(&[DOUBLE]);
    out.put(&score.to_le_bytes());
}

/// Adds a large string that lies beside the collection.
pub(crate) fn write_large(out: &mut impl Buffer, large: Large) {
    out.put(&[LARGE]);
    out.put(&large.number.to_le_bytes());
    out.put(&large.len.to_le_bytes());
    out.put(&large.hash.to_le_bytes());
}

/// A number that is equal for equal elements, and grows with them where they are
/// integers: what members and fields are ordered by. `bytes` is the element alone.
#[inline]
pub(crate) fn key(bytes: &[u8]) -> u64 {
    match bytes.first() {
        Some(..BYTES | INT..=0xcf) => match read(bytes).0 {
            // The sign is turned so that the negative ones come first.
            Element::Int(value) => (value as u64 ^ OTHERS) >> 1,
            _ => 0,
        },
        Some(&LARGE) => match read(bytes).0 {
            Element::Large(large) => key_of_large(large.hash),
            _ => 0,
        },
        _ => OTHERS | hash(bytes) >> 1,
    }
}

/// The same of a large string with this hash.
pub(crate) fn key_of_large(hash: u64) -> u64 {
    OTHERS | hash >> 1
}

/// Set in the keys of what is no integer.
pub(crate) const OTHERS: u64 = 1 << 63;

static SEED: OnceLock<u64> = OnceLock::new();

/// The seed of hashes in this process: drawn at random when it is first needed, unless it
/// was [taken](take_seed) before.
pub(crate) fn seed() -> u64 {
    *SEED.get_or_init(|| RandomState::new().build_hasher().finish())
}

/// Takes the seed by which pages elsewhere are in order; whether it is this process's now.
pub(crate) fn take_seed(other: u64) -> bool {
    *SEED.get_or_init(|| other) == other
}

/// A hash of these bytes, seeded for each process: nobody outside can build members
/// that collide.
#[inline]
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    static STATE: LazyLock<foldhash::quality::SeedableRandomState> =
        LazyLock::new(|| seeded(seed()));
    let mut hasher = STATE.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// Bytes of a signed integer, 1 to 8.
fn int_len(value: i64) -> usize {
    let significant = 65 - (value ^ value >> 63).leading_zeros() as usize;
    significant.div_ceil(8).clamp(1, 8)
}

/// The integer of so many bytes behind the first: with one read of eight where these are
/// there, whatever the last of them are.
#[inline]
fn int_behind(bytes: &[u8], len: usize) -> Option<i64> {
    if let Some(&eight) = bytes.get(1..9).and_then(|bytes| bytes.first_chunk::<8>()) {
        let spare = 64 - 8 * len as u32;
        return Some(i64::from_le_bytes(eight) << spare >> spare);
    }
    bytes.get(1..1 + len).map(int_of)
}

fn int_of(bytes: &[u8]) -> i64 {
    let mut room = [0; 8];
    let len = bytes.len().clamp(1, 8);
    room[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let spare = 64 - 8 * len as u32;
    i64::from_le_bytes(room) << spare >> spare
}

/// The integer and the scale of a decimal that is written in the one way for these.
fn decimal(string: &[u8]) -> Option<(i64, usize)> {
    let digits = string.strip_prefix(b"-").unwrap_or(string);
    let point = digits.iter().take(18).position(|byte| !byte.is_ascii_digit())?;
    if digits[point] != b'.' {
        return None;
    }
    let scale = digits.len() - point - 1;
    let whole = &digits[..point];
    let is_whole = matches!(whole, [b'0'] | [b'1'..=b'9', ..]);
    if !is_whole || !(1..=SCALE_MAX).contains(&scale) || digits.len() > 18 {
        return None;
    }
    let mut value = 0i64;
    for &digit in whole.iter().chain(&digits[point + 1..]) {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    let is_negative = digits.len() < string.len();
    // There is no negative zero among integers.
    (value != 0 || !is_negative).then_some((if is_negative { -value } else { value }, scale))
}

/// Adds what hexadecimal digits stand for.
fn write_pairs(out: &mut impl Buffer, digits: &[u8]) {
    let mut bytes = [0; HEX_MAX / 2];
    let pairs = bytes.iter_mut().zip(digits.chunks_exact(2));
    pairs.for_each(|(byte, two)| *byte = nibble(two[0]) << 4 | nibble(two[1]));
    out.put(&bytes[..digits.len() / 2]);
}

/// Whether letters among hexadecimal digits are in upper case; `None` if there is
/// anything else, or both cases.
fn case(string: &[u8]) -> Option<bool> {
    let (mut lower, mut upper) = (false, false);
    for byte in string {
        match byte {
            b'0'..=b'9' => {}
            b'a'..=b'f' => lower = true,
            b'A'..=b'F' => upper = true,
            _ => return None,
        }
    }
    (!(lower && upper)).then_some(upper)
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Adds a UUID; whether the string is one.
fn write_uuid(out: &mut impl Buffer, string: &[u8]) -> bool {
    if HYPHENS.iter().any(|&at| string[at] != b'-') {
        return false;
    }
    let mut digits = [0; 32];
    let mut n = 0;
    for (at, &digit) in string.iter().enumerate() {
        if !HYPHENS.contains(&at) {
            digits[n] = digit;
            n += 1;
        }
    }
    let Some(upper) = case(&digits) else { return false };
    out.put(&[if upper { UUID_UPPER } else { UUID_LOWER }]);
    write_pairs(out, &digits);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(string: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, string);
        out
    }

    fn comes_back(string: &[u8]) {
        let out = written(string);
        let (element, len) = read(&out);
        assert_eq!((&element.show()[..], len), (string, out.len()), "{string:?}");
        assert_eq!(skip(&out), out.len());
    }

    #[test]
    fn strings_come_back_and_special_ones_are_short() {
        let sizes: [(&[u8], usize); 16] = [
            (b"0", 1),
            (b"127", 1),
            (b"128", 3),
            (b"-1", 2),
            (b"9223372036854775807", 9),
            (b"", 1),
            (b"hello", 6),
            (b"87.25", 3),
            (b"-0.5", 2),
            (b"0.05", 2),
            (b"100.00", 3),
            (b"0123456789abcdef", 10),
            (b"DEADBEEF", 6),
            (b"7c8db4a1-54f3-4c59-9f5e-0123456789ab", 17),
            (b"7C8DB4A1-54F3-4C59-9F5E-0123456789AB", 17),
            (b"1764028922123", 7),
        ];
        for (string, size) in sizes {
            comes_back(string);
            assert_eq!(written(string).len(), size, "{}", String::from_utf8_lossy(string));
        }
        let odd: [&[u8]; 16] = [
            b"01",
            b"-0",
            b"+1",
            b"1e5",
            b"-0.0",
            b"00.5",
            b".5",
            b"5.",
            b"-",
            b"1.23456",
            b"DEADbeef",
            b"abc",
            b"7c8db4a1-54f3-4c59-9f5e-0123456789aB",
            b"7c8db4a1054f3-4c59-9f5e-0123456789ab",
            b"99999999999999999999",
            b"12345678901234567.5",
        ];
        odd.iter().for_each(|string| comes_back(string));
        for len in [63, 64, 319, 320, 5000] {
            comes_back(&vec![b'z'; len]);
            comes_back(&vec![b'a'; len]);
        }
    }

    proptest! {
        #[test]
        fn any_string_comes_back(string in prop::collection::vec(any::<u8>(), 0..400)) {
            comes_back(&string);
        }

        #[test]
        fn any_text_of_digits_comes_back(string in "-?[0-9a-fA-F.-]{0,40}") {
            comes_back(string.as_bytes());
        }

        #[test]
        fn numbers_come_back(value in any::<i64>(), shift in 0u32..64, scale in 0i32..6) {
            comes_back((value >> shift).to_string().as_bytes());
            let score = (value >> shift) as f64 / 10f64.powi(scale);
            for score in [score, f64::from_bits(value as u64)] {
                let mut out = Vec::new();
                write_score(&mut out, score);
                let (element, len) = read(&out);
                prop_assert_eq!(len, out.len());
                prop_assert!(element.score().to_bits() == score.to_bits() || score.is_nan());
            }
        }

        #[test]
        fn texts_compare_as_bytes(a in "[0-9a-f.-]{0,12}", b in "[0-9a-f.-]{0,12}") {
            let (x, y) = (written(a.as_bytes()), written(b.as_bytes()));
            prop_assert_eq!(read(&x).0.cmp_text(read(&y).0), a.as_bytes().cmp(b.as_bytes()));
            prop_assert_eq!(x == y, a == b);
        }

        #[test]
        fn whatever_stands_there_is_read(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let (element, len) = read(&bytes);
            let _ = (element.show().len(), element.score());
            prop_assert!(len >= 1 && skip(&bytes) >= 1);
        }
    }
}
