//! Bitmap commands: strings seen as bits, the first the highest of the first
//! byte. Integers among them are `bitfield`'s.
//!
//! Values are read and written in the pieces they are held in: a bit of a
//! 512 MB value costs what a bit of a small one does, and counting, searching
//! and combining go over each piece once, at memory speed. Of a packed large
//! string one segment at a time is unpacked, about a tenth of a millisecond
//! each; before a bit of it is changed, all of it.

use super::strings::{clamp_range, read_string, store};
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::KeySpec;
use crate::engine::keys::uses::*;
use crate::engine::large::packed;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_codec::{SEGMENT_BYTES, Segments};
use snug_resp::parse_integer;
use snug_store::{Class, Event};
use snug_store::{Delete, Found, NewStr, PackedChain, SetExpiry, SlotGuard, Str, Write};

/// The event of bits that were set or cleared.
pub(super) const SETBIT: Event = Event::new(Class::STRING, "setbit");

pub(super) const fn bitmap(
    command: Command,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    command.about(Group::Bitmap, since, complexity, summary)
}

pub(crate) const COMMANDS: &[Command] = &[
    bitmap(
        Command::new("setbit", 4, setbit).flags(WRITE | DENYOOM).key(1).used(RW_ACCESS_UPDATE),
        "2.2.0",
        "O(1)",
        "Sets or clears one bit of a string and returns what it was.",
    ),
    bitmap(
        Command::new("getbit", 3, getbit).flags(READONLY | FAST).key(1),
        "2.2.0",
        "O(1)",
        "Returns one bit of a string.",
    ),
    bitmap(
        Command::new("bitcount", -2, bitcount).flags(READONLY).key(1),
        "2.6.0",
        "O(N)",
        "Counts the bits that are set in a string or a part of it.",
    ),
    bitmap(
        Command::new("bitpos", -3, bitpos).flags(READONLY).key(1),
        "2.8.7",
        "O(N)",
        "Finds the first bit that is set, or clear, in a string or a part of it.",
    ),
    bitmap(
        Command::new("bitop", -4, bitop)
            .flags(WRITE | DENYOOM)
            .keys(2, -1, 1)
            .specs(&[KeySpec::at(OW_UPDATE, 2), KeySpec::up_to(RO_ACCESS, 3, -1)]),
        "2.6.0",
        "O(N)",
        "Combines strings bit by bit and stores the outcome.",
    ),
];

/// The string found, its bytes within reach; unless it is a packed large one,
/// whose segments are unpacked one by one.
pub(super) fn string_of<'a>(
    slot: &'a SlotGuard<'_>,
    found: Option<Found>,
    room: &'a mut Vec<u8>,
) -> Result<Option<Str<'a>>, Error> {
    let string = found.and_then(|found| slot.string(found));
    Ok(string.map(|string| string.unpacked(room)).transpose()?)
}

/// The string with its bytes written out: never an integer.
pub(super) fn spelled<'a>(string: Str<'a>, digits: &'a mut itoa::Buffer) -> Str<'a> {
    match string {
        Str::Int(value) => Str::Bytes(digits.format(value).as_bytes()),
        string => string,
    }
}

/// The bytes `start..end` of a [`spelled`] string that is not packed, clamped to
/// it, in pieces.
pub(super) fn pieces(string: Str<'_>, start: usize, end: usize) -> impl Iterator<Item = &[u8]> {
    let (bytes, chain) = match string {
        Str::Bytes(bytes) => {
            let end = end.min(bytes.len());
            (Some(&bytes[start.min(end)..end]), None)
        }
        Str::Chain(chain) => (None, Some(chain.range(start, end))),
        Str::Int(_) | Str::Packed(_) | Str::PackedLarge(_) => (None, None),
    };
    bytes.into_iter().chain(chain.into_iter().flatten())
}

/// The byte at `at`, 0 where there is none.
fn byte_at(string: Str<'_>, at: usize) -> u8 {
    let mut digits = itoa::Buffer::new();
    match spelled(string, &mut digits) {
        Str::Bytes(bytes) => bytes.get(at).copied().unwrap_or(0),
        Str::Chain(chain) => chain.get(at).unwrap_or(0),
        Str::Int(_) | Str::Packed(_) | Str::PackedLarge(_) => 0,
    }
}

fn is_set(byte: u8, bit: u64) -> bool {
    byte >> (7 - (bit & 7)) & 1 == 1
}

/// A bit's offset as text, `#n` for the `n`-th of fields of `width` bits.
pub(super) fn parse_offset(
    cx: &Context<'_>,
    text: &[u8],
    width: Option<u32>,
) -> Result<u64, Error> {
    let limit = cx.server.config.number(Param::ProtoMaxBulkLen) as u64;
    let offset = match (text, width) {
        ([b'#', text @ ..], Some(width)) => {
            parse_integer(text).and_then(|n| n.checked_mul(i64::from(width)))
        }
        (text, _) => parse_integer(text),
    };
    offset
        .and_then(|offset| u64::try_from(offset).ok())
        .filter(|offset| offset >> 3 < limit)
        .ok_or(Error::new("ERR bit offset is not an integer or out of range"))
}

fn setbit(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let offset = parse_offset(cx, args.bytes(2), None)?;
    let on = match parse_integer(args.bytes(3)) {
        Some(bit @ 0..=1) => bit == 1,
        _ => return Err(Error::new("ERR bit is not an integer or out of range").into()),
    };
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let at = (offset >> 3) as usize;
    let found = cx.find_string(&mut slot, &key)?;
    if let Some(found) = found {
        cx.make_raw(&mut slot, found)?;
    }
    let string = found.and_then(|found| slot.string(found));
    let longer = string.is_none_or(|string| string.len() <= at);
    let byte = string.map_or(0, |string| byte_at(string, at));
    let was = is_set(byte, offset);
    let mask = 0x80 >> (offset & 7);
    if longer || was != on {
        let byte = [if on { byte | mask } else { byte & !mask }];
        let write = Write { offset: at, value: NewStr::Changed(&byte) };
        slot.apply(&key, found, write, SETBIT);
    } else if let Some(found) = found {
        slot.note_changed(found);
    }
    out.w().integer(i64::from(was));
    Ok(())
}

fn getbit(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let offset = parse_offset(cx, args.bytes(2), None)?;
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = read_string(cx, &mut slot, &key)?;
    if let Some(chain) = found.and_then(|found| packed(&slot, found)) {
        drop(slot);
        let at = (offset >> 3) as usize;
        let byte = if at < chain.len() {
            cx.store.segment(&chain, at / SEGMENT_BYTES)?[at % SEGMENT_BYTES]
        } else {
            0
        };
        out.w().integer(i64::from(is_set(byte, offset)));
        return Ok(());
    }
    let mut room = Vec::new();
    let string = string_of(&slot, found, &mut room)?;
    let byte = string.map_or(0, |string| byte_at(string, (offset >> 3) as usize));
    out.w().integer(i64::from(is_set(byte, offset)));
    Ok(())
}

/// A run of bits: the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BitRange {
    first: u64,
    last: u64,
}

impl BitRange {
    /// Positions `start` to `end`, in bits or in bytes, of a string of `len`
    /// bytes; `None` if there is nothing between them.
    fn new(len: usize, start: i64, end: i64, in_bits: bool) -> Option<Self> {
        let unit = if in_bits { 1 } else { 8 };
        let (first, last) = clamp_range(len as i64 * 8 / unit, start, end);
        (first <= last)
            .then(|| Self { first: (first * unit) as u64, last: (last * unit + unit - 1) as u64 })
    }

    fn bytes(self) -> (usize, usize) {
        ((self.first >> 3) as usize, (self.last >> 3) as usize + 1)
    }

    /// The segments that it lies in, and the part of it in each.
    fn by_segments(self) -> impl Iterator<Item = (usize, Self)> {
        const BITS: u64 = SEGMENT_BYTES as u64 * 8;
        (self.first / BITS..=self.last / BITS).map(move |index| {
            let (start, end) = (index * BITS, (index + 1) * BITS - 1);
            let first = self.first.max(start) - start;
            (index as usize, Self { first, last: self.last.min(end) - start })
        })
    }

    /// Which bits of the byte at `at` are within the range.
    fn mask(self, at: usize) -> u8 {
        let (start, end) = self.bytes();
        let head = if at == start { 0xff >> (self.first & 7) } else { 0xff };
        let tail = if at + 1 == end { 0xff << (7 - (self.last & 7)) } else { 0xff };
        head & tail
    }

    /// How many of the bits are set.
    fn count(self, string: Str<'_>) -> u64 {
        let (start, end) = self.bytes();
        let all: u64 = pieces(string, start, end).map(count_ones).sum();
        let outside = |at: usize| u64::from((byte_at(string, at) & !self.mask(at)).count_ones());
        let edges = outside(start) + if end - 1 > start { outside(end - 1) } else { 0 };
        all - edges
    }

    /// The first bit that is set, or clear.
    fn find(self, string: Str<'_>, set: bool) -> Option<u64> {
        let (start, end) = self.bytes();
        let skip = if set { 0x00 } else { 0xff };
        let mut at = start;
        for piece in pieces(string, start, end) {
            let mut within = 0;
            while let Some(next) = first_other(&piece[within..], skip) {
                within += next;
                let wanted = (piece[within] ^ skip) & self.mask(at + within);
                if wanted != 0 {
                    return Some((at + within) as u64 * 8 + u64::from(wanted.leading_zeros()));
                }
                within += 1;
            }
            at += piece.len();
        }
        None
    }
}

fn count_ones(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest: u32 = words.remainder().iter().map(|byte| byte.count_ones()).sum();
    let word = |word: &[u8]| u64::from_ne_bytes(word.try_into().unwrap_or_default());
    words.map(|bytes| u64::from(word(bytes).count_ones())).sum::<u64>() + u64::from(rest)
}

/// The position of the first byte that is not `skip`.
fn first_other(bytes: &[u8], skip: u8) -> Option<usize> {
    let same = bytes.chunks_exact(32).take_while(|chunk| **chunk == [skip; 32]).count() * 32;
    bytes[same..].iter().position(|byte| *byte != skip).map(|at| same + at)
}

/// Whether argument `index`, if there is one, asks for positions in bits.
fn in_bits(args: Args<'_>, index: usize) -> Result<bool, Error> {
    match args.get(index) {
        Some(_) if args.is(index, "bit") => Ok(true),
        Some(_) if args.is(index, "byte") => Ok(false),
        Some(_) => Err(Error::SYNTAX),
        None => Ok(false),
    }
}

/// Bytes of a bitmap that are gone through as fast as an item elsewhere.
const BYTES_AN_ITEM: usize = 512;

fn bitcount(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = read_string(cx, &mut slot, &key)?;
    let mut room = Vec::new();
    let Some(string) = string_of(&slot, found, &mut room)? else {
        out.w().integer(0);
        return Ok(());
    };
    let mut digits = itoa::Buffer::new();
    let string = spelled(string, &mut digits);
    cx.goes_through(string.len() / BYTES_AN_ITEM)?;
    let range = match args.len() {
        2 => BitRange::new(string.len(), 0, -1, false),
        4 | 5 => {
            let (start, end) = (args.int(2)?, args.int(3)?);
            // Said to be empty before the unit is looked at.
            if start < 0 && end < 0 && start > end {
                None
            } else {
                BitRange::new(string.len(), start, end, in_bits(args, 4)?)
            }
        }
        _ => return Err(Error::SYNTAX.into()),
    };
    let Str::PackedLarge(packed) = string else {
        out.w().integer(range.map_or(0, |range| range.count(string)) as i64);
        return Ok(());
    };
    let (chain, mut count) = (packed.share(), 0);
    drop(slot);
    for (index, range) in range.into_iter().flat_map(BitRange::by_segments) {
        count += range.count(Str::Bytes(&cx.store.segment(&chain, index)?));
    }
    out.w().integer(count as i64);
    Ok(())
}

fn bitpos(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let set = match args.int(2)? {
        bit @ 0..=1 => bit == 1,
        _ => return Err(Error::new("ERR The bit argument must be 1 or 0.").into()),
    };
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = read_string(cx, &mut slot, &key)?;
    let mut room = Vec::new();
    let Some(string) = string_of(&slot, found, &mut room)? else {
        // As if there were zeros without end.
        out.w().integer(if set { -1 } else { 0 });
        return Ok(());
    };
    let mut digits = itoa::Buffer::new();
    let string = spelled(string, &mut digits);
    cx.goes_through(string.len() / BYTES_AN_ITEM)?;
    let (mut start, mut end, mut bits) = (0, -1, false);
    match args.len() {
        3 => {}
        4..=6 => {
            start = args.int(3)?;
            bits = in_bits(args, 5)?;
            end = if args.len() > 4 { args.int(4)? } else { -1 };
        }
        _ => return Err(Error::SYNTAX.into()),
    }
    let range = BitRange::new(string.len(), start, end, bits);
    let position = match string {
        Str::PackedLarge(packed) => {
            let chain = packed.share();
            drop(slot);
            find_in_segments(cx, &chain, range, set)?
        }
        string => range.and_then(|range| range.find(string, set)),
    };
    out.w().integer(match (position, range) {
        (Some(position), _) => position as i64,
        // Zeros follow a string whose end was not asked about.
        (None, Some(range)) if !set && args.len() < 5 => range.last as i64 + 1,
        _ => -1,
    });
    Ok(())
}

/// The first bit of a packed large string that is set, or clear: unpacks no more
/// than it looks at.
fn find_in_segments(
    cx: &Context<'_>,
    chain: &PackedChain,
    range: Option<BitRange>,
    set: bool,
) -> Result<Option<u64>, Error> {
    for (index, range) in range.into_iter().flat_map(BitRange::by_segments) {
        let segment = cx.store.segment(chain, index)?;
        if let Some(position) = range.find(Str::Bytes(&segment), set) {
            return Ok(Some((index * SEGMENT_BYTES) as u64 * 8 + position));
        }
    }
    Ok(None)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BitOp {
    And,
    Or,
    Xor,
    Not,
}

impl BitOp {
    fn named(word: &[u8]) -> Option<Self> {
        let operations =
            [("and", Self::And), ("or", Self::Or), ("xor", Self::Xor), ("not", Self::Not)];
        let found =
            operations.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))?;
        Some(found.1)
    }
}

/// A bitmap being computed, in segments.
#[derive(Debug, Default)]
struct Bitmap {
    segments: Vec<Vec<u8>>,
    len: usize,
}

impl Bitmap {
    /// Lengthens it to `len` with zeros.
    fn extend(&mut self, len: usize) {
        while self.len < len {
            let within = self.len % SEGMENT_BYTES;
            let more = (len - self.len).min(SEGMENT_BYTES - within);
            match self.segments.last_mut() {
                Some(last) if within > 0 => last.resize(within + more, 0),
                _ => self.segments.push(vec![0; more]),
            }
            self.len += more;
        }
    }

    /// The bytes from `at` on, in pieces.
    fn pieces_from(&mut self, at: usize) -> impl Iterator<Item = &mut [u8]> {
        let first = at / SEGMENT_BYTES;
        let segments = self.segments.iter_mut().enumerate().skip(first);
        segments.map(move |(i, segment)| {
            let skip = at.saturating_sub(i * SEGMENT_BYTES);
            &mut segment[skip..]
        })
    }

    /// Combines the bytes from `at` on with as many others.
    fn combine(&mut self, at: usize, others: &[u8], with: impl Fn(&mut u8, u8) + Copy) {
        let mut rest = others;
        for piece in self.pieces_from(at) {
            let (now, later) = rest.split_at(rest.len().min(piece.len()));
            piece.iter_mut().zip(now).for_each(|(byte, other)| with(byte, *other));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
    }

    /// Combines it with a [`spelled`] string; the shorter counts as followed by
    /// zeros.
    fn fold(&mut self, string: Str<'_>, operation: BitOp) {
        self.extend(string.len());
        let mut at = 0;
        for piece in pieces(string, 0, string.len()) {
            self.fold_piece(at, piece, operation);
            at += piece.len();
        }
        self.end_fold(at, operation);
    }

    /// The same with a packed large string, of which one segment is unpacked at
    /// a time.
    fn fold_packed(
        &mut self,
        cx: &Context<'_>,
        chain: &PackedChain,
        operation: BitOp,
    ) -> Result<(), Error> {
        self.extend(chain.len());
        for index in 0..chain.segments() {
            let segment = cx.store.segment(chain, index)?;
            self.fold_piece(index * SEGMENT_BYTES, &segment, operation);
        }
        self.end_fold(chain.len(), operation);
        Ok(())
    }

    fn fold_piece(&mut self, at: usize, piece: &[u8], operation: BitOp) {
        match operation {
            BitOp::And => self.combine(at, piece, |byte, other| *byte &= other),
            BitOp::Or => self.combine(at, piece, |byte, other| *byte |= other),
            BitOp::Xor => self.combine(at, piece, |byte, other| *byte ^= other),
            BitOp::Not => self.combine(at, piece, |byte, other| *byte = !other),
        }
    }

    /// The string ends at `at`.
    fn end_fold(&mut self, at: usize, operation: BitOp) {
        if operation == BitOp::And {
            self.pieces_from(at).for_each(|piece| piece.fill(0));
        }
    }

    /// The bitmap as a chain; each segment is freed as soon as it is copied.
    fn into_chain(self) -> Segments {
        let mut chain = Segments::default();
        self.segments.into_iter().for_each(|segment| chain.append(&segment));
        chain
    }
}

fn bitop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let operation = BitOp::named(args.bytes(1)).ok_or(Error::SYNTAX)?;
    if operation == BitOp::Not && args.len() != 4 {
        return Err(Error::new("ERR BITOP NOT must be called with a single source key.").into());
    }
    let _held = cx.hold(args.iter_from(2).map(|bytes| cx.key(bytes)));
    let (mut bitmap, mut total) = (Bitmap::default(), 0);
    for (nth, bytes) in args.iter_from(3).enumerate() {
        let key = cx.key(bytes);
        let mut slot = cx.lock(&key);
        let found = read_string(cx, &mut slot, &key)?;
        let mut digits = itoa::Buffer::new();
        let mut room = Vec::new();
        let string = string_of(&slot, found, &mut room)?.unwrap_or(Str::Bytes(b""));
        total += string.len();
        cx.goes_through(total / BYTES_AN_ITEM)?;
        // The first is taken as it is, unless it is to be inverted.
        let first = nth == 0 && operation != BitOp::Not;
        let operation = if first { BitOp::Or } else { operation };
        match string {
            Str::PackedLarge(packed) => bitmap.fold_packed(cx, &packed.share(), operation)?,
            string => bitmap.fold(spelled(string, &mut digits), operation),
        }
    }
    let len = bitmap.len;
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = cx.find(&mut slot, &key);
    if len > 0 {
        let small;
        let value = if bitmap.segments.len() == 1 {
            small = bitmap.segments.swap_remove(0);
            NewStr::Changed(&small)
        } else {
            NewStr::Chain(bitmap.into_chain())
        };
        store(cx, &mut slot, &key, found, value, SetExpiry::Clear);
    } else {
        slot.apply(&key, found, Delete, Event::DEL);
    }
    out.w().integer(len as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits_of(bytes: &[u8]) -> Vec<bool> {
        (0..bytes.len() as u64 * 8).map(|at| is_set(bytes[(at / 8) as usize], at)).collect()
    }

    /// Mostly long runs of the same byte, as bitmaps are; at times long enough
    /// for several segments.
    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(0xff), any::<u8>()];
        let len = prop_oneof![8 => 0usize..40, 1 => 131_000usize..131_100];
        prop::collection::vec((byte, len), 0..4)
            .prop_map(|runs| runs.into_iter().flat_map(|(byte, n)| vec![byte; n]).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn ranges_count_and_find_as_bit_by_bit(
            bytes in any_bytes(), start in -300i64..300, end in -300i64..300, in_bits: bool, set: bool,
        ) {
            let chain = Segments::from(&bytes[..]);
            let all = bits_of(&bytes);
            let Some(range) = BitRange::new(bytes.len(), start, end, in_bits) else { return Ok(()) };
            let bits = &all[range.first as usize..=range.last as usize];
            let count = bits.iter().filter(|bit| **bit).count() as u64;
            let position = bits.iter().position(|bit| *bit == set).map(|at| at as u64 + range.first);
            for string in [Str::Bytes(&bytes), Str::Chain(&chain)] {
                prop_assert_eq!(range.count(string), count);
                prop_assert_eq!(range.find(string, set), position);
            }
        }

        #[test]
        fn bitmaps_combine_as_byte_by_byte(
            a in any_bytes(), b in any_bytes(),
            operation in prop::sample::select(vec![BitOp::And, BitOp::Or, BitOp::Xor]),
        ) {
            let mut bitmap = Bitmap::default();
            bitmap.fold(Str::Bytes(&a), BitOp::Or);
            bitmap.fold(Str::Chain(&Segments::from(&b[..])), operation);
            let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
            let expected: Vec<u8> = (0..a.len().max(b.len())).map(|at| {
                let (a, b) = (byte(&a, at), byte(&b, at));
                match operation { BitOp::And => a & b, BitOp::Or => a | b, _ => a ^ b }
            }).collect();
            prop_assert!(bitmap.into_chain().to_vec() == expected);
            let mut inverted = Bitmap::default();
            inverted.fold(Str::Bytes(&a), BitOp::Not);
            prop_assert!(inverted.into_chain().to_vec() == a.iter().map(|a| !a).collect::<Vec<_>>());
        }
    }
}
