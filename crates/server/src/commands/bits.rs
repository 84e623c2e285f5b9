//! Bitmap commands: strings seen as bits, the first the highest of the first
//! byte.
//!
//! ```text
//!  byte      0                1
//!  bit       0 1 2 3 4 5 6 7  8 9 ...
//!  u5 at 6               |--------|      big-endian, as all of BITFIELD's integers
//! ```
//!
//! Values are read and written in the pieces they are held in: a bit of a
//! 512 MB value costs what a bit of a small one does, and counting, searching
//! and combining go over each piece once, at memory speed.

use super::strings::{clamp_range, found_or_empty, read_string, store};
use crate::command::flags::*;
use crate::command::{Command, Group};
use crate::config::Param;
use crate::context::{Args, Context};
use crate::error::Error;
use crate::large::packed;
use crate::notify::Class;
use crate::out::Out;
use crate::stats::Stat;
use bytes::Bytes;
use snug_codec::{SEGMENT_BYTES, Segments};
use snug_resp::parse_integer;
use snug_store::{Found, NewStr, PackedChain, SetExpiry, SlotGuard, Str};

const fn bitmap(
    command: Command,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    command.about(Group::Bitmap, since, complexity, summary)
}

const PER_FIELD: &str = "O(1) for each subcommand specified";

pub(crate) const COMMANDS: &[Command] = &[
    bitmap(
        Command::new("setbit", 4, setbit).flags(WRITE | DENYOOM).key(1),
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
        Command::new("bitop", -4, bitop).flags(WRITE | DENYOOM).keys(2, -1, 1),
        "2.6.0",
        "O(N)",
        "Combines strings bit by bit and stores the outcome.",
    ),
    bitmap(
        Command::new("bitfield", -2, bitfield).flags(WRITE | DENYOOM).key(1),
        "3.2.0",
        PER_FIELD,
        "Reads and writes integers of any width within a string.",
    ),
    bitmap(
        Command::new("bitfield_ro", -2, bitfield_ro).flags(READONLY | FAST).key(1),
        "6.0.0",
        PER_FIELD,
        "Reads integers of any width within a string.",
    ),
];

/// The string found, its bytes within reach: never packed.
fn string_of<'a>(
    slot: &'a SlotGuard<'_>,
    found: Option<Found>,
    room: &'a mut Vec<u8>,
) -> Result<Option<Str<'a>>, Error> {
    let string = found.and_then(|found| slot.string(found));
    Ok(string.map(|string| string.unpacked(room)).transpose()?)
}

/// The string with its bytes written out: never an integer.
fn spelled<'a>(string: Str<'a>, digits: &'a mut itoa::Buffer) -> Str<'a> {
    match string {
        Str::Int(value) => Str::Bytes(digits.format(value).as_bytes()),
        string => string,
    }
}

/// The bytes `start..end` of a [`spelled`] string, clamped to it, in pieces.
fn pieces(string: Str<'_>, start: usize, end: usize) -> impl Iterator<Item = &[u8]> {
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
fn parse_offset(cx: &Context<'_>, text: &[u8], width: Option<u32>) -> Result<u64, Error> {
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

fn setbit(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let offset = parse_offset(cx, args.bytes(2), None)?;
    let on = match parse_integer(args.bytes(3)) {
        Some(bit @ 0..=1) => bit == 1,
        _ => return Err(Error::new("ERR bit is not an integer or out of range")),
    };
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let at = (offset >> 3) as usize;
    let found = cx.find_string(&mut slot, &key)?;
    if let Some(found) = found {
        if !cx.make_raw(&mut slot, found)? {
            return Ok(());
        }
        slot.unpack(found)?;
    }
    let string = found.and_then(|found| slot.string(found));
    let longer = string.is_none_or(|string| string.len() <= at);
    let byte = string.map_or(0, |string| byte_at(string, at));
    let was = is_set(byte, offset);
    let mask = 0x80 >> (offset & 7);
    let found = found_or_empty(&mut slot, &key, found);
    slot.write_at(found, at, &[if on { byte | mask } else { byte & !mask }])?;
    if longer || was != on {
        cx.changed(&slot, key.bytes, Class::STRING, "setbit");
    }
    out.w().integer(i64::from(was));
    Ok(())
}

fn getbit(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
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

fn bitcount(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
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
        _ => return Err(Error::SYNTAX),
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

fn bitpos(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let set = match args.int(2)? {
        bit @ 0..=1 => bit == 1,
        _ => return Err(Error::new("ERR The bit argument must be 1 or 0.")),
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
    let (mut start, mut end, mut bits) = (0, -1, false);
    match args.len() {
        3 => {}
        4..=6 => {
            start = args.int(3)?;
            bits = in_bits(args, 5)?;
            end = if args.len() > 4 { args.int(4)? } else { -1 };
        }
        _ => return Err(Error::SYNTAX),
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

fn bitop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let operation = BitOp::named(args.bytes(1)).ok_or(Error::SYNTAX)?;
    if operation == BitOp::Not && args.len() != 4 {
        return Err(Error::new("ERR BITOP NOT must be called with a single source key."));
    }
    let _held = cx.hold(args.iter_from(2).map(|bytes| cx.key(bytes)));
    let mut bitmap = Bitmap::default();
    for (nth, bytes) in args.iter_from(3).enumerate() {
        let key = cx.key(bytes);
        let mut slot = cx.lock(&key);
        let found = read_string(cx, &mut slot, &key)?;
        let mut digits = itoa::Buffer::new();
        let mut room = Vec::new();
        let string = string_of(&slot, found, &mut room)?.unwrap_or(Str::Bytes(b""));
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
    } else if let Some(found) = found {
        slot.remove(found);
        cx.changed(&slot, key.bytes, Class::GENERIC, "del");
    }
    out.w().integer(len as i64);
    Ok(())
}

/// What becomes of a value that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// An integer's kind and place within a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    signed: bool,
    /// 1 to 64 bits, at most 63 of an unsigned one.
    bits: u32,
    offset: u64,
}

impl Field {
    /// A type as in `u8` or `i16`: whether it is signed, and its bits.
    fn parse_type(text: &[u8]) -> Result<(bool, u32), Error> {
        let (signed, bits) = match text {
            [b'i', bits @ ..] => (true, parse_integer(bits)),
            [b'u', bits @ ..] => (false, parse_integer(bits)),
            _ => (false, None),
        };
        let bits_max = if signed { 64 } else { 63 };
        let bits = bits.filter(|bits| (1..=bits_max).contains(bits));
        let bits = bits.ok_or(Error::new(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ))?;
        Ok((signed, bits as u32))
    }

    /// The byte that the field begins in.
    fn byte(self) -> usize {
        (self.offset >> 3) as usize
    }

    /// The bytes that the field is in.
    fn byte_len(self) -> usize {
        ((self.offset & 7) as usize + self.bits as usize).div_ceil(8)
    }

    /// The least and the greatest value.
    fn limits(self) -> (i128, i128) {
        if self.signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// The value of these low bits.
    fn extend_low_bits(self, value: i128) -> i128 {
        let low = value & ((1 << self.bits) - 1);
        if self.signed && low >> (self.bits - 1) == 1 { low - (1 << self.bits) } else { low }
    }

    /// What is to be written for `value`; `None` if it does not fit and that is
    /// to fail.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i128> {
        let (min, max) = self.limits();
        if (min..=max).contains(&value) {
            return Some(value);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Wrap => Some(self.extend_low_bits(value)),
            Overflow::Saturate => Some(if value > max { max } else { min }),
        }
    }

    /// What `SET` is to write for `value`.
    fn fit_set(self, value: i64, overflow: Overflow) -> Option<i128> {
        let (_, max) = self.limits();
        let value = if self.signed { i128::from(value) } else { i128::from(value as u64) };
        // Redis subtracts in 64 bits here: what is so far below that this goes
        // round counts as too large.
        let round = self.signed && self.bits < 64 && max - value > i128::from(i64::MAX);
        self.fit(if round { value + (1 << 64) } else { value }, overflow)
    }

    fn shift(self) -> u32 {
        u128::BITS - (self.offset & 7) as u32 - self.bits
    }

    fn read(self, window: Window) -> i128 {
        self.extend_low_bits((u128::from_be_bytes(window) >> self.shift()) as i128)
    }

    fn write(self, window: Window, value: i128) -> Window {
        let mask = ((1u128 << self.bits) - 1) << self.shift();
        let placed = (value as u128) << self.shift() & mask;
        (u128::from_be_bytes(window) & !mask | placed).to_be_bytes()
    }
}

/// The bytes of a string from the one that a field begins in, zeros behind its
/// end. Nine of them matter.
type Window = [u8; 16];

fn window(string: Option<Str<'_>>, at: usize) -> Window {
    let mut window = Window::default();
    let mut digits = itoa::Buffer::new();
    let Some(string) = string.map(|string| spelled(string, &mut digits)) else { return window };
    let mut filled = 0;
    for piece in pieces(string, at, at.saturating_add(window.len())) {
        window[filled..filled + piece.len()].copy_from_slice(piece);
        filled += piece.len();
    }
    window
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64, Overflow),
    IncrBy(i64, Overflow),
}

/// The operations that `BITFIELD`'s arguments ask for, in order.
fn parse_fields(cx: &Context<'_>, args: Args<'_>) -> Result<Vec<(Field, Action)>, Error> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut index = 2;
    while index < args.len() {
        let more = args.len() - index - 1;
        if args.is(index, "overflow") && more >= 1 {
            overflow = match args.bytes(index + 1).to_ascii_lowercase().as_slice() {
                b"wrap" => Overflow::Wrap,
                b"sat" => Overflow::Saturate,
                b"fail" => Overflow::Fail,
                _ => return Err(Error::new("ERR Invalid OVERFLOW type specified")),
            };
            index += 2;
            continue;
        }
        let get = args.is(index, "get") && more >= 2;
        let set = args.is(index, "set") && more >= 3;
        let incrby = args.is(index, "incrby") && more >= 3;
        if !(get || set || incrby) {
            return Err(Error::SYNTAX);
        }
        let (signed, bits) = Field::parse_type(args.bytes(index + 1))?;
        let offset = parse_offset(cx, args.bytes(index + 2), Some(bits))?;
        let action = if get {
            Action::Get
        } else if set {
            Action::Set(args.int(index + 3)?, overflow)
        } else {
            Action::IncrBy(args.int(index + 3)?, overflow)
        };
        operations.push((Field { signed, bits, offset }, action));
        index += if get { 3 } else { 4 };
    }
    Ok(operations)
}

fn bitfield(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let operations = parse_fields(cx, args)?;
    let written = operations.iter().filter(|(_, action)| *action != Action::Get);
    let end = written.map(|(field, _)| field.byte() + field.byte_len()).max();
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let Some(end) = end else {
        let found = read_string(cx, &mut slot, &key)?;
        return answer_gets(cx, slot, found, &operations, out);
    };
    let found = cx.find_string(&mut slot, &key)?;
    let is_new = found.is_none();
    let len = found.map_or(0, |found| slot.string_len(found));
    let found = found_or_empty(&mut slot, &key, found);
    if !cx.make_raw(&mut slot, found)? {
        return Ok(());
    }
    // All the room that is needed, before the first operation looks.
    slot.write_at(found, len.max(end), b"")?;
    out.w().array(operations.len());
    let mut changes = 0;
    for (field, action) in operations {
        // What `write_at` has unpacked cannot fail to be read any more.
        let Some((answer, changed)) = act(&mut slot, found, field, action) else {
            out.w().null();
            continue;
        };
        out.w().integer(answer as i64);
        changes += u64::from(action != Action::Get && (changed || end > len));
    }
    if changes > 0 {
        cx.changed(&slot, key.bytes, Class::STRING, "setbit");
        cx.server.stats.add(Stat::dirty, changes - 1);
    } else if is_new {
        // Every operation failed, but the room for them was made.
        cx.notify(Class::NEW, "new", key.bytes);
    }
    Ok(())
}

/// Carries out one operation: its answer, and whether it changed the field.
/// `None` if it failed.
fn act(
    slot: &mut SlotGuard<'_>,
    found: Found,
    field: Field,
    action: Action,
) -> Option<(i128, bool)> {
    let window = window(slot.string(found), field.byte());
    let before = field.read(window);
    let (after, answer) = match action {
        Action::Get => return Some((before, false)),
        Action::Set(value, overflow) => (field.fit_set(value, overflow)?, before),
        Action::IncrBy(by, overflow) => {
            let after = field.fit(before + i128::from(by), overflow)?;
            (after, after)
        }
    };
    if after != before {
        let window = field.write(window, after);
        slot.write_at(found, field.byte(), &window[..field.byte_len()]).ok()?;
    }
    Some((answer, after != before))
}

/// Answers operations that only read.
fn answer_gets(
    cx: &Context<'_>,
    slot: SlotGuard<'_>,
    found: Option<Found>,
    operations: &[(Field, Action)],
    out: &mut Out,
) -> Result<(), Error> {
    out.w().array(operations.len());
    if let Some(chain) = found.and_then(|found| packed(&slot, found)) {
        drop(slot);
        let values = read_in_segments(cx, &chain, operations)?;
        values.into_iter().for_each(|value| out.w().integer(value));
        return Ok(());
    }
    let mut room = Vec::new();
    let string = string_of(&slot, found, &mut room)?;
    for (field, _) in operations {
        out.w().integer(field.read(window(string, field.byte())) as i64);
    }
    Ok(())
}

/// The values of fields of a packed large string. They are read in the order in
/// which they lie there, so that each segment is unpacked once, however often and
/// in whatever order it is asked for.
fn read_in_segments(
    cx: &Context<'_>,
    chain: &PackedChain,
    operations: &[(Field, Action)],
) -> Result<Vec<i64>, Error> {
    let mut by_place: Vec<usize> = (0..operations.len()).collect();
    by_place.sort_unstable_by_key(|&nth| operations[nth].0.offset);
    let mut values = vec![0; operations.len()];
    let mut segments = TwoSegments { cx, chain, held: Default::default() };
    for nth in by_place {
        let field = operations[nth].0;
        values[nth] = field.read(segments.window(field)?) as i64;
    }
    Ok(values)
}

/// A packed large string, of which two neighbouring segments are kept: a field
/// may lie across their border, and the next one too.
struct TwoSegments<'c> {
    cx: &'c Context<'c>,
    chain: &'c PackedChain,
    /// Each at the parity of its index, with the number of segments up to it.
    held: [(usize, Bytes); 2],
}

impl TwoSegments<'_> {
    /// The bytes of a field, zeros behind the string's end.
    fn window(&mut self, field: Field) -> Result<Window, Error> {
        let mut window = Window::default();
        let from = field.byte();
        let to = self.chain.len().min(from + field.byte_len());
        for (byte, at) in window.iter_mut().zip(from..to) {
            *byte = self.segment(at / SEGMENT_BYTES)?[at % SEGMENT_BYTES];
        }
        Ok(window)
    }

    fn segment(&mut self, index: usize) -> Result<&Bytes, Error> {
        let (up_to, segment) = &mut self.held[index % 2];
        if *up_to != index + 1 {
            *segment = self.cx.store.segment(self.chain, index)?;
            *up_to = index + 1;
        }
        Ok(segment)
    }
}

fn bitfield_ro(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let operations = parse_fields(cx, args)?;
    if operations.iter().any(|(_, action)| *action != Action::Get) {
        return Err(Error::new("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = read_string(cx, &mut slot, &key)?;
    answer_gets(cx, slot, found, &operations, out)
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

        #[test]
        fn a_field_reads_what_was_written_and_nothing_else_changes(
            bytes in any::<[u8; 16]>(), signed: bool, bits in 1u32..=63, offset in 0u64..8, value: i64,
        ) {
            let field = Field { signed, bits, offset };
            let wrapped = field.fit(i128::from(value), Overflow::Wrap).unwrap();
            let written = field.write(bytes, wrapped);
            prop_assert_eq!(field.read(written), wrapped);
            prop_assert_eq!(field.write(written, field.read(bytes)), bytes);
            let (min, max) = field.limits();
            prop_assert!((min..=max).contains(&wrapped));
            prop_assert_eq!(wrapped & ((1 << bits) - 1), i128::from(value) & ((1 << bits) - 1));
        }
    }

    #[test]
    fn fields_overflow_as_redis_lets_them() {
        let i8 = Field { signed: true, bits: 8, offset: 0 };
        let u8 = Field { signed: false, ..i8 };
        let i64 = Field { bits: 64, ..i8 };
        assert_eq!(i8.fit(128, Overflow::Wrap), Some(-128));
        assert_eq!(i8.fit(128, Overflow::Saturate), Some(127));
        assert_eq!(i8.fit(-129, Overflow::Saturate), Some(-128));
        assert_eq!(i8.fit(128, Overflow::Fail), None);
        assert_eq!(u8.fit(-1, Overflow::Saturate), Some(0));
        assert_eq!(u8.fit_set(-1, Overflow::Saturate), Some(255));
        assert_eq!(i8.fit_set(-1000, Overflow::Saturate), Some(-128));
        assert_eq!(i8.fit_set(i64::MIN, Overflow::Saturate), Some(127));
        assert_eq!(i8.fit_set(i64::MIN + 128, Overflow::Saturate), Some(-128));
        assert_eq!(i64.fit_set(i64::MIN, Overflow::Fail), Some(i128::from(i64::MIN)));
        assert_eq!(i64.fit(i128::from(i64::MAX) + 1, Overflow::Wrap), Some(i128::from(i64::MIN)));
    }

    #[test]
    fn types_are_bounded() {
        for text in ["u64", "i65", "u0", "i0", "x8", "u", "", "U8", "u08", "i-1"] {
            assert!(Field::parse_type(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(Field::parse_type(b"i64").unwrap(), (true, 64));
    }
}
