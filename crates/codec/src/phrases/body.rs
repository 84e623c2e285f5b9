//! A body: the codes of a value's phrases as bits, in lanes that are unpacked side
//! by side.
//!
//! Where a code ends is known only when it has been looked up, so that one lane
//! keeps a processor waiting most of the time. The phrases of a value of some
//! length are dealt out to several: each has an equal share of the raw bytes, and
//! those up to the end of the phrase that reaches over it. Two lanes share their
//! bytes, one from the front, the other from the back, so that nobody need be told
//! where the one ends and the other begins.
//!
//! ```text
//!  raw bytes     body
//!  below 256     [1st ->]
//!  below 1,024   [over][1st -> <- 2nd]
//!  others        [over][over][over][varint: bytes of two][1st -> <- 2nd][3rd -> <- 4th]
//!
//!  over: raw bytes by which a lane reaches over its share, for all but the last
//! ```
//!
//! The first bit of a lane's byte is its highest, and what is left of its last
//! byte is 0. What comes before the phrase a lane begins with is not known there:
//! it has its common code.

use super::code::{BITS_MAX, Book, Code};
use super::parse::WORTH_BITS;
use super::search::{COPY, PHRASE_LEN_MAX, Symbol};
use super::{PhraseTable, Scratch};
use crate::varint;

/// Values of so many bytes have two lanes, and of so many four. A share of four is
/// longer than a phrase, so each lane has one; of two the second may be left none,
/// where a phrase of the first reaches to the end.
const TWO_FROM: usize = 256;
const FOUR_FROM: usize = 1024;
const _: () = assert!(FOUR_FROM / 4 > PHRASE_LEN_MAX);

fn lanes_of(raw_len: usize) -> usize {
    match raw_len {
        ..TWO_FROM => 1,
        TWO_FROM..FOUR_FROM => 2,
        _ => 4,
    }
}

/// Where the share of lane `n` of `lanes` ends.
fn share_end(raw_len: usize, n: usize, lanes: usize) -> usize {
    raw_len / lanes * (n + 1) + raw_len % lanes * (n + 1) / lanes
}

impl PhraseTable {
    /// Appends the body that `raw` packs to: at most 4 bytes a byte and 16.
    pub(crate) fn pack(&self, scratch: &mut Scratch, raw: &[u8], out: &mut Vec<u8>) {
        let lanes = lanes_of(raw.len());
        let head = out.len();
        out.resize(head + lanes - 1, 0);
        let first = out.len();
        let (mut at, mut lane, mut middle) = (0, 0, 0);
        let mut bits = Bits::begin(out);
        let mut end = share_end(raw.len(), lane, lanes);
        let costs = |before| self.costs(before);
        scratch.parse(&self.phrases, raw, WORTH_BITS, costs, |before, id| {
            let begins = at >= end && lane + 1 < lanes;
            if begins {
                bits.finish(out, lane % 2 == 1);
                out[head + lane] = (at - end) as u8;
                lane += 1;
                end = share_end(raw.len(), lane, lanes);
                middle = if lane == 2 { out.len() - first } else { middle };
                bits = Bits::begin(out);
            }
            let context = usize::from(self.contexts[usize::from(before)]);
            match self.code(context, id).filter(|_| !begins) {
                Some(code) => bits.push(code, out),
                None => {
                    if !begins {
                        bits.push(self.common[context], out);
                    }
                    bits.push(self.common_code(id), out);
                }
            }
            at += self.phrases.get(id).len();
        });
        if lane + 1 < lanes {
            out[head + lane] = (raw.len() - end) as u8;
        }
        bits.finish(out, lane % 2 == 1);
        if lanes == 4 {
            let end = out.len();
            varint::push(out, middle as u64);
            let len = out.len() - end;
            out[first..].rotate_right(len);
        }
    }

    /// Appends the `raw_len` bytes that `body` unpacks to. On `None`, when it is
    /// no body of that many, some may have been appended.
    pub(crate) fn unpack(&self, body: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Option<()> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
        {
            // SAFETY: the processor has what the function is compiled for.
            #[allow(unsafe_code)]
            return unsafe { self.unpack_at_once(body, raw_len, out) };
        }
        self.unpack_any(body, raw_len, out)
    }

    /// [`unpack_any`](Self::unpack_any) for processors that compare a code with
    /// the bounds of all lengths at once, and count how many it reaches.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn unpack_at_once(&self, body: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Option<()> {
        self.unpack_by(|book, bits| book.find_at_once(bits), body, raw_len, out)
    }

    pub(super) fn unpack_any(&self, body: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Option<()> {
        self.unpack_by(Book::find, body, raw_len, out)
    }

    #[inline(always)]
    fn unpack_by(
        &self,
        find: impl Find,
        body: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let before = out.len();
        out.resize(before + raw_len, 0);
        let to = &mut out[before..];
        match lanes_of(raw_len) {
            1 => self.unpack_lanes(find, [body], &[], to),
            2 => {
                let (over, rest) = body.split_first_chunk::<1>()?;
                self.unpack_lanes(find, [rest; 2], over, to)
            }
            _ => {
                let (over, mut rest) = body.split_first_chunk::<3>()?;
                let len = varint::take_len(&mut rest)?;
                let (first, second) = rest.split_at_checked(len)?;
                self.unpack_lanes(find, [first, first, second, second], over, to)
            }
        }
    }

    /// Unpacks lanes side by side. Each has the bytes that it shares with its
    /// neighbour.
    #[inline(always)]
    fn unpack_lanes<const N: usize>(
        &self,
        find: impl Find,
        bytes: [&[u8]; N],
        over: &[u8],
        to: &mut [u8],
    ) -> Option<()> {
        let (raw_len, mut left, mut at) = (to.len(), to, 0);
        let mut lanes = [const { None }; N];
        for (n, lane) in lanes.iter_mut().enumerate() {
            let end = share_end(raw_len, n, N) + over.get(n).map_or(0, |&over| usize::from(over));
            let (to, rest) = left.split_at_mut_checked(end.checked_sub(at)?)?;
            (left, at) = (rest, end);
            let context = if n == 0 { usize::from(self.contexts[0]) } else { 0 };
            *lane = Some(Lane { bytes: bytes[n], at: 0, context, to });
        }
        let mut lanes = lanes.map(|lane| lane.expect("each was begun"));
        while lanes.iter().any(|lane| !lane.to.is_empty()) {
            lanes = self.unpack_while_easy(find, lanes);
            for (n, lane) in lanes.iter_mut().enumerate() {
                lane.advance(self, find, n % 2 == 1)?;
            }
        }
        let taken = |lane: &Lane<'_>| lane.at.div_ceil(8);
        let all = |two: &[Lane<'_>]| two.iter().map(taken).sum::<usize>() == two[0].bytes.len();
        lanes.chunks(2).all(all).then_some(())
    }

    /// The code at the front of `bits`, how long it is and what it stands for.
    #[inline(always)]
    fn first(&self, context: usize, find: impl Find, bits: u64) -> Option<(u32, Symbol)> {
        let (len, place) = find(self.books.get(context)?, bits);
        Some((len, *self.symbols.get(place)?))
    }

    /// Unpacks a phrase of each lane in turn, until one of them needs a closer look:
    /// its phrase is long, or it is near its end. Most of a value is unpacked here.
    /// The lanes are the function's own, so that they are kept in registers.
    #[inline(always)]
    fn unpack_while_easy<'a, const N: usize>(
        &self,
        find: impl Find,
        mut lanes: [Lane<'a>; N],
    ) -> [Lane<'a>; N] {
        while lanes.iter().all(Lane::has_room) {
            if lanes[0].copy_next(self, find, false).is_none()
                || N > 1 && lanes[1].copy_next(self, find, true).is_none()
                || N > 2 && lanes[2].copy_next(self, find, false).is_none()
                || N > 3 && lanes[3].copy_next(self, find, true).is_none()
            {
                break;
            }
        }
        lanes
    }
}

/// How the length and the place of the code at the front of some bits is found.
trait Find: Fn(&Book, u64) -> (u32, usize) + Copy {}

impl<T: Fn(&Book, u64) -> (u32, usize) + Copy> Find for T {}

/// A lane that is being unpacked.
struct Lane<'a> {
    bytes: &'a [u8],
    /// The bit that is next, from the front or from the back.
    at: usize,
    context: usize,
    to: &'a mut [u8],
}

/// As many codes are within eight bytes, whatever bit they begin with.
const AT_ONCE: usize = (64 - 7) / BITS_MAX as usize;

impl Lane<'_> {
    /// Whether there are eight bytes to read from, and [`COPY`] to write to.
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.to.len() >= COPY && self.at / 8 + 8 <= self.bytes.len()
    }

    /// Unpacks a phrase, or the announcement of a common one, where there is
    /// [room](Self::has_room); `None` and nothing, if it is longer than [`COPY`] or
    /// there is none.
    #[inline(always)]
    fn copy_next(&mut self, table: &PhraseTable, find: impl Find, from_back: bool) -> Option<()> {
        let byte = self.at / 8;
        let eight = if from_back {
            let end = self.bytes.len() - byte;
            u64::from_le_bytes(*self.bytes.get(end.wrapping_sub(8)..end)?.first_chunk()?)
        } else {
            u64::from_be_bytes(*self.bytes.get(byte..byte + 8)?.first_chunk()?)
        };
        let (len, phrase) = table.first(self.context, find, eight << (self.at % 8))?;
        if phrase.len() > COPY {
            return None;
        }
        *self.to.first_chunk_mut()? = *table.phrases.padded(phrase)?;
        self.go_on(len, phrase)
    }

    /// Unpacks some phrases, or announcements of common ones, unless all are;
    /// `None` if there are none, or no room for them.
    #[inline(always)]
    fn advance(&mut self, table: &PhraseTable, find: impl Find, from_back: bool) -> Option<()> {
        let mut bits = if from_back {
            eight_from_back(self.bytes, self.at)
        } else {
            eight_at(self.bytes, self.at)
        };
        for _ in 0..AT_ONCE {
            if self.to.is_empty() {
                break;
            }
            let (len, phrase) = table.first(self.context, find, bits)?;
            table.phrases.copy(phrase, self.to)?;
            self.go_on(len, phrase)?;
            bits <<= len;
        }
        Some(())
    }

    /// Goes on behind a code of `len` bits, and behind its phrase.
    #[inline(always)]
    fn go_on(&mut self, len: u32, phrase: Symbol) -> Option<()> {
        self.to = std::mem::take(&mut self.to).split_at_mut_checked(phrase.len())?.1;
        self.at += len as usize;
        self.context = phrase.context();
        Some(())
    }
}

/// The 57 bits or more from bit `at` on, 0 behind the end.
#[inline(always)]
fn eight_at(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at / 8..).unwrap_or_default();
    let eight = rest.first_chunk().map_or_else(
        || {
            let from = |n: usize| rest.get(n).map_or(0, |&byte| u64::from(byte) << (56 - 8 * n));
            (0..7).map(from).sum()
        },
        |eight| u64::from_be_bytes(*eight),
    );
    eight << (at % 8)
}

/// The same of a lane whose first byte is the last.
#[inline(always)]
fn eight_from_back(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.len().checked_sub(at / 8).map_or(&[][..], |end| &bytes[..end]);
    let eight = rest.last_chunk().map_or_else(
        || {
            rest.iter()
                .enumerate()
                .map(|(n, &byte)| u64::from(byte) << (64 - 8 * (rest.len() - n)))
                .sum()
        },
        |eight| u64::from_le_bytes(*eight),
    );
    eight << (at % 8)
}

/// Writes the codes of a lane, the highest bit of each byte first.
struct Bits {
    /// Where the lane begins.
    begin: usize,
    held: u64,
    count: u32,
}

impl Bits {
    fn begin(out: &[u8]) -> Self {
        Self { begin: out.len(), held: 0, count: 0 }
    }

    #[inline]
    fn push(&mut self, code: Code, out: &mut Vec<u8>) {
        self.held = self.held << code.len() | u64::from(code.bits());
        self.count += code.len();
        if self.count >= 32 {
            self.count -= 32;
            out.extend_from_slice(&((self.held >> self.count) as u32).to_be_bytes());
        }
    }

    /// Writes what is left, and turns a lane around that is read from the back.
    fn finish(&self, out: &mut Vec<u8>, from_back: bool) {
        let whole = self.held << (64 - self.count.max(1));
        let whole = if self.count == 0 { 0 } else { whole };
        out.extend_from_slice(&whole.to_be_bytes()[..self.count.div_ceil(8) as usize]);
        if from_back {
            out[self.begin..].reverse();
        }
    }
}
