//! Keys, packed: what the keys of an application have in common once, and identifiers as
//! what they are.
//!
//! ```text
//!  session:3f0c8a52-1b7e-4e6a-9d5b-0c2f7a91e344       44 bytes
//!  | c0 | 9e | 16 bytes |                             18
//!
//!  part, by its first byte
//!  | 00..7f | that and one bytes as they are
//!  | 80..9c | hexadecimal digits in small letters: 4 to 32 bytes
//!  | 9d     | the same in capital letters: their number in a byte | bytes
//!  | 9e, 9f | a UUID in small letters, in capital ones: 16 bytes
//!  | a1..a8 | a number of 1 to 8 bytes, the lowest first
//!  | b1..b8 | the same with zeros before it: its digits in a byte | bytes
//!  | c0..df | a fragment, of the first 32
//!  | e0..ff | a fragment: 5 bits and a byte
//! ```
//!
//! A [fragment](fragments) is a text that many keys have: `session:`, `:profile`. It is
//! learnt from the keys themselves, and never forgotten, since keys refer to it.
//!
//! A key is sought as it was sent: its hash is that of the raw key, and what lies packed
//! is compared [part by part](is). So a key may lie in any of its forms, and is packed
//! again when there are better fragments.
//!
//! Cost: 0.2 to 1 microsecond to pack, tens of nanoseconds to compare.

mod fragments;

use smallvec::SmallVec;
use std::ops::Deref;

pub use fragments::held;
pub(crate) use fragments::{Fragments, generation};

/// The longest key that is packed. Longer ones are rare, and are not looked at.
pub(crate) const KEY_MAX: usize = 253;

/// Room for a key, or for its packed form.
pub(crate) type Room = SmallVec<[u8; 64]>;

const LITERAL_MAX: usize = 0x80;
const HEX: u8 = 0x80;
const HEX_CAPITAL: u8 = 0x9d;
const UUID: u8 = 0x9e;
const UUID_CAPITAL: u8 = 0x9f;
const NUMBER: u8 = 0xa0;
const PADDED: u8 = 0xb0;
const FRAGMENT: u8 = 0xc0;
const FRAGMENT_LONG: u8 = 0xe0;
/// Fragments whose number fits the first byte.
const SHORT_FRAGMENTS: u16 = 32;

const HEX_BYTES_MIN: usize = 4;
const HEX_BYTES_MAX: usize = 32;
const NUMBER_DIGITS_MIN: usize = 4;
const NUMBER_DIGITS_MAX: usize = 19;
const UUID_LEN: usize = 36;
/// Where a UUID's groups of digits begin and end.
const UUID_GROUPS: [(usize, usize); 5] = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];

/// A key as it was sent, wherever it is read from.
#[derive(Debug)]
pub enum KeyBytes<'a> {
    /// It lies so.
    Plain(&'a [u8]),
    /// It was unpacked for this.
    Unpacked(SmallVec<[u8; 64]>),
}

impl Deref for KeyBytes<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Unpacked(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for KeyBytes<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Packs a key of at most [`KEY_MAX`] bytes into `out`, which is empty. O(key).
///
/// `learns` says that its texts are to be counted: for a key that comes for the first time,
/// or what few keys have would be learnt by looking at them often enough.
pub(crate) fn pack(key: &[u8], learns: bool, out: &mut Room) {
    debug_assert!(key.len() <= KEY_MAX && out.is_empty());
    let known = Fragments::read();
    let learns = learns && known.is_learning();
    let mut unknown = learns.then(|| fragments::Candidates::of(key));
    // What is before `at` and not written yet begins here; and the text that no
    // identifier interrupts.
    let (mut literal, mut text, mut at) = (0, 0, 0);
    while at < key.len() {
        let rest = &key[at..];
        let (part, len) = match Id::at_start_of(rest) {
            Some((id, len)) => (Part::Id(id), len),
            None => match known.longest(rest) {
                Some((fragment, len)) => (Part::Fragment(fragment), len),
                None => {
                    at += token_len(rest);
                    continue;
                }
            },
        };
        if let Some(unknown) = &mut unknown {
            unknown.add(text..at);
        }
        write_literal(&key[literal..at], out);
        part.write(&rest[..len], out);
        at += len;
        (literal, text) = (at, at);
    }
    if let Some(unknown) = &mut unknown {
        unknown.add(text..key.len());
    }
    write_literal(&key[literal..], out);
    drop(known);
    if let Some(unknown) = unknown {
        unknown.learn();
    }
}

fn write_literal(bytes: &[u8], out: &mut Room) {
    for bytes in bytes.chunks(LITERAL_MAX) {
        out.push((bytes.len() - 1) as u8);
        out.extend_from_slice(bytes);
    }
}

/// Bytes up to where a fragment may end and the next begin: a run of digits, a run of
/// other letters, or one byte that is neither.
fn token_len(bytes: &[u8]) -> usize {
    let is_like_first: fn(&u8) -> bool = match bytes.first() {
        Some(b'0'..=b'9') => u8::is_ascii_digit,
        Some(first) if !first.is_ascii_punctuation() && *first > b' ' => {
            |b| !b.is_ascii_digit() && !b.is_ascii_punctuation() && *b > b' '
        }
        _ => return 1,
    };
    bytes.iter().take_while(|b| is_like_first(b)).count()
}

enum Part {
    Id(Id),
    Fragment(u16),
}

impl Part {
    fn write(&self, text: &[u8], out: &mut Room) {
        match self {
            Self::Fragment(number) if *number < SHORT_FRAGMENTS => {
                out.push(FRAGMENT | *number as u8);
            }
            Self::Fragment(number) => {
                let number = number - SHORT_FRAGMENTS;
                out.extend_from_slice(&[FRAGMENT_LONG | (number >> 8) as u8, number as u8]);
            }
            Self::Id(id) => id.write(text, out),
        }
    }
}

/// What identifies.
#[derive(Clone, Copy)]
enum Id {
    Uuid { capital: bool },
    Hex { capital: bool },
    Number,
}

impl Id {
    /// The one that the bytes begin with, and its length.
    fn at_start_of(bytes: &[u8]) -> Option<(Self, usize)> {
        if !bytes.first()?.is_ascii_hexdigit() {
            return None;
        }
        if let Some(uuid) = bytes.get(..UUID_LEN)
            && let Some(capital) = uuid_case(uuid)
        {
            return Some((Self::Uuid { capital }, UUID_LEN));
        }
        let word = bytes.iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
        let is_number = (NUMBER_DIGITS_MIN..=NUMBER_DIGITS_MAX).contains(&digits);
        let hex = &bytes[..word.min(2 * HEX_BYTES_MAX) & !1];
        if hex.len() >= 2 * HEX_BYTES_MIN
            && !(is_number && digits == word)
            && hex.iter().any(u8::is_ascii_digit)
            && let Some(capital) = hex_case(hex)
        {
            return Some((Self::Hex { capital }, hex.len()));
        }
        is_number.then_some((Self::Number, digits))
    }

    fn write(self, text: &[u8], out: &mut Room) {
        match self {
            Self::Uuid { capital } => {
                out.push(if capital { UUID_CAPITAL } else { UUID });
                for group in text.split(|&b| b == b'-') {
                    write_hex(group, out);
                }
            }
            Self::Hex { capital: false } => {
                out.push(HEX + (text.len() / 2 - HEX_BYTES_MIN) as u8);
                write_hex(text, out);
            }
            Self::Hex { capital: true } => {
                out.extend_from_slice(&[HEX_CAPITAL, (text.len() / 2) as u8]);
                write_hex(text, out);
            }
            Self::Number => {
                let number = text.iter().fold(0, |n, digit| 10 * n + u64::from(digit - b'0'));
                let bytes = (u64::BITS - number.leading_zeros()).div_ceil(8).max(1) as usize;
                match text[0] {
                    b'0' => out.extend_from_slice(&[PADDED + bytes as u8, text.len() as u8]),
                    _ => out.push(NUMBER + bytes as u8),
                }
                out.extend_from_slice(&number.to_le_bytes()[..bytes]);
            }
        }
    }
}

/// Whether the letters of hexadecimal digits are all capital, if they are of one kind; the
/// bytes may be others.
fn hex_case(bytes: &[u8]) -> Option<bool> {
    let small = bytes.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let capital = || bytes.iter().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'));
    if small { Some(false) } else { capital().then_some(true) }
}

/// The same of a UUID.
fn uuid_case(bytes: &[u8]) -> Option<bool> {
    let dashes = [8, 13, 18, 23];
    if dashes.iter().any(|&at| bytes[at] != b'-') {
        return None;
    }
    let mut digits = [0; 32];
    for (n, (from, to)) in UUID_GROUPS.into_iter().enumerate() {
        digits[from..to].copy_from_slice(&bytes[from + n..to + n]);
    }
    hex_case(&digits)
}

fn write_hex(digits: &[u8], out: &mut Room) {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    };
    out.extend(digits.chunks_exact(2).map(|two| value(two[0]) << 4 | value(two[1])));
}

/// Whether a packed key is this one. O(key).
#[inline]
pub(crate) fn is(packed: &[u8], key: &[u8]) -> bool {
    let mut rest = key;
    let all = each_piece(packed, &mut |piece| match rest.strip_prefix(piece) {
        Some(behind) => {
            rest = behind;
            true
        }
        None => false,
    });
    all && rest.is_empty()
}

/// Appends the key that a packed form stands for.
pub(crate) fn unpack(packed: &[u8], key: &mut Room) {
    each_piece(packed, &mut |piece| {
        key.extend_from_slice(piece);
        true
    });
}

/// Whether any part lies as it is that a fragment might stand for some day.
pub(crate) fn has_text(packed: &[u8]) -> bool {
    let mut rest = packed;
    while let Some((&first, behind)) = rest.split_first() {
        if usize::from(first) < LITERAL_MAX && usize::from(first) + 1 >= fragments::LEN_MIN {
            return true;
        }
        rest = &behind[part_len(first, behind).min(behind.len())..];
    }
    false
}

/// Bytes of a part behind its first.
fn part_len(first: u8, behind: &[u8]) -> usize {
    match first {
        0..HEX => usize::from(first) + 1,
        HEX..HEX_CAPITAL => usize::from(first - HEX) + HEX_BYTES_MIN,
        HEX_CAPITAL => 1 + behind.first().map_or(0, |&len| usize::from(len)),
        UUID | UUID_CAPITAL => 16,
        PADDED..FRAGMENT => 1 + usize::from(first - PADDED),
        NUMBER..PADDED => usize::from(first - NUMBER),
        FRAGMENT_LONG.. => 1,
        _ => 0,
    }
}

/// Gives the key piece by piece, until `visit` has seen enough; whether it saw all.
#[inline]
fn each_piece(packed: &[u8], visit: &mut impl FnMut(&[u8]) -> bool) -> bool {
    let mut rest = packed;
    while let Some((&first, behind)) = rest.split_first() {
        let (bytes, next) = behind.split_at(part_len(first, behind).min(behind.len()));
        let goes_on = match first {
            0..HEX => visit(bytes),
            HEX..HEX_CAPITAL => visit(&Digits::of(bytes, false)),
            HEX_CAPITAL => visit(&Digits::of(&bytes[1..], true)),
            UUID | UUID_CAPITAL => {
                let digits = Digits::of(bytes, first == UUID_CAPITAL);
                let mut uuid = [b'-'; UUID_LEN];
                for (n, (from, to)) in UUID_GROUPS.into_iter().enumerate() {
                    uuid[from + n..to + n].copy_from_slice(&digits[from..to]);
                }
                visit(&uuid)
            }
            PADDED..FRAGMENT => {
                let digits = itoa::Buffer::new().format(number(&bytes[1..])).len();
                let zeros = usize::from(bytes[0]).saturating_sub(digits).min(NUMBER_DIGITS_MAX);
                visit(&[b'0'; NUMBER_DIGITS_MAX][..zeros])
                    && visit(itoa::Buffer::new().format(number(&bytes[1..])).as_bytes())
            }
            NUMBER..PADDED => visit(itoa::Buffer::new().format(number(bytes)).as_bytes()),
            FRAGMENT_LONG.. => {
                let high = u16::from(first - FRAGMENT_LONG) << 8;
                visit(fragments::text(SHORT_FRAGMENTS + (high | u16::from(bytes[0]))))
            }
            FRAGMENT.. => visit(fragments::text(u16::from(first - FRAGMENT))),
        };
        if !goes_on {
            return false;
        }
        rest = next;
    }
    true
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

/// Hexadecimal digits of at most 32 bytes.
struct Digits([u8; 64], usize);

impl Digits {
    #[inline]
    fn of(bytes: &[u8], capital: bool) -> Self {
        let mut digits = [0; 64];
        let mut four = [0; 4];
        for (bytes, digits) in bytes.chunks(4).zip(digits.chunks_exact_mut(8)) {
            four[..bytes.len()].copy_from_slice(bytes);
            digits.copy_from_slice(&eight_digits(u32::from_be_bytes(four), capital));
        }
        Self(digits, (2 * bytes.len()).min(64))
    }
}

impl Deref for Digits {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// All eight at once: each half byte is spread to a byte, and what is above nine is moved
/// from behind the digits to the letters.
#[inline]
fn eight_digits(value: u32, capital: bool) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut x = u64::from(value);
    x = (x << 16 | x) & 0x0000_ffff_0000_ffff;
    x = (x << 8 | x) & 0x00ff_00ff_00ff_00ff;
    x = (x << 4 | x) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = (x + 6 * ONES) >> 4 & ONES;
    let above = u64::from(if capital { b'A' - b'0' - 10 } else { b'a' - b'0' - 10 });
    (x + u64::from(b'0') * ONES + letters * above).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(key: &[u8]) -> Room {
        let mut out = Room::new();
        pack(key, true, &mut out);
        out
    }

    fn comes_back(key: &[u8]) {
        let packed = packed(key);
        let mut back = Room::new();
        unpack(&packed, &mut back);
        assert_eq!(back.escape_ascii().to_string(), key.escape_ascii().to_string());
        assert!(is(&packed, key));
        for cut in 0..key.len() {
            assert!(!is(&packed, &key[..cut]));
        }
        let mut longer = key.to_vec();
        longer.push(b'0');
        assert!(!is(&packed, &longer));
    }

    #[test]
    fn identifiers_are_kept_as_what_they_are() {
        let uuid = "3f0c8a52-1b7e-4e6a-9d5b-0c2f7a91e344";
        let lens: [(&str, usize); 17] = [
            ("", 0),
            ("plain", 6),
            (uuid, 17),
            (&uuid.to_ascii_uppercase(), 17),
            ("3F0c8a52-1b7e-4e6a-9d5b-0c2f7a91e344", 32),
            ("d41d8cd98f00b204e9800998ecf8427e", 17),
            ("D41D8CD98F00B204E9800998ECF8427E", 18),
            ("d41d8cd98f00b204e9800998ecf8427", 18),
            ("1234", 3),
            ("123", 4),
            ("00001234", 4),
            ("0000", 3),
            ("18446744073709551615", 11),
            ("9999999999999999999", 9),
            ("key:000000012345", 9),
            ("deadbeef", 9),
            ("user12345x", 10),
        ];
        for (key, len) in lens {
            comes_back(key.as_bytes());
            assert!(packed(key.as_bytes()).len() <= len, "{key}: {:?}", packed(key.as_bytes()));
        }
        for digits in 1..=70 {
            comes_back(&b"0123456789abcdef".repeat(5)[..digits]);
            comes_back(&b"9876543210".repeat(7)[..digits]);
            comes_back(&b"0".repeat(digits));
            comes_back(&[b'9'].repeat(digits));
        }
    }

    #[test]
    fn what_keys_share_is_learnt() {
        let key = |n: u32| format!(":1:views.decorators.learnt.cache_page.{n:032x}");
        for n in 0..2000 {
            comes_back(key(n * 7919).as_bytes());
        }
        let packed = packed(key(0xabcd_ef12).as_bytes());
        // One text, or a few where keys of other tests have parts of it.
        assert!(packed.len() <= 24, "{packed:?}");
        assert!(!has_text(&packed));
        assert!(has_text(&super::tests::packed(b"a text that nobody knows")));
    }

    #[test]
    fn no_key_harms_what_is_learnt() {
        for n in 0..20_000u32 {
            comes_back(format!("{}:{}:x", mix(n), mix(n + 77)).as_bytes());
        }
        let (fragments, bytes) = held();
        assert!(fragments <= fragments::FRAGMENTS_MAX / 4 && bytes <= fragments * 128, "{bytes}");
    }

    /// A word of letters.
    fn mix(n: u32) -> String {
        let mut x = n.wrapping_mul(2_654_435_761);
        (0..6)
            .map(|_| {
                x = x.rotate_left(5).wrapping_mul(2_246_822_519);
                char::from(b'a' + (x >> 16) as u8 % 26)
            })
            .collect()
    }

    proptest! {
        #[test]
        fn any_key_comes_back(key in prop::collection::vec(any::<u8>(), 0..KEY_MAX)) {
            comes_back(&key);
        }

        #[test]
        fn any_likely_key_comes_back(key in "([a-z]{1,8}[:/._{}-]?|[0-9]{1,22}|[0-9a-f]{1,40}|[0-9A-F]{8}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}){0,5}") {
            if key.len() <= KEY_MAX {
                comes_back(key.as_bytes());
            }
        }
    }
}
