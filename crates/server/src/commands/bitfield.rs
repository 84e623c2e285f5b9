//! `BITFIELD`: integers of any width within a string.
//!
//! ```text
//!  byte      0                1
//!  bit       0 1 2 3 4 5 6 7  8 9 ...
//!  u5 at 6               |--------|      big-endian, as all of them
//! ```
//!
//! A field is read and written in a window of a few bytes, where it lies: its
//! cost is the same in a string of any length. Of a packed large one those
//! segments are unpacked that fields lie in, once for all of a command's.

use super::bits::{SETBIT, bitmap, parse_offset, pieces, spelled, string_of};
use super::strings::read_string;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command};
use crate::engine::context::Context;
use crate::engine::keys::Use;
use crate::engine::keys::uses::*;
use crate::engine::large::packed;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use bytes::Bytes;
use snug_codec::SEGMENT_BYTES;
use snug_resp::parse_integer;
use snug_store::Event;
use snug_store::{Found, Key, Lengthen, NewStr, PackedChain, SlotGuard, Str, Write};

const PER_FIELD: &str = "O(1) for each subcommand specified";

pub(crate) const COMMANDS: &[Command] = &[
    bitmap(
        Command::new("bitfield", -2, bitfield).flags(WRITE | DENYOOM).key(1).used_by(bitfield_uses),
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

fn bitfield(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
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
    if let Some(found) = found {
        cx.make_raw(&mut slot, found)?;
        // Even if no operation changes a bit.
        slot.note_changed(found);
    }
    let len = found.map_or(0, |found| slot.string_len(found));
    if end > len {
        // All the room that is needed, before the first operation looks.
        slot.apply(&key, found, Lengthen { len: end }, Event::NONE);
    }
    let Some(found) = slot.find_untouched(&key) else { return Ok(()) };
    out.w().array(operations.len());
    let mut changes = false;
    for (field, action) in operations {
        let Some((answer, changed)) = act(&mut slot, &key, found, field, action) else {
            out.w().null();
            continue;
        };
        out.w().integer(answer as i64);
        changes |= action != Action::Get && (changed || end > len);
    }
    if changes {
        cx.notify(SETBIT, key.bytes);
    }
    Ok(())
}

/// Carries out one operation: its answer, and whether it changed the field.
/// `None` if it failed.
fn act(
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
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
        let value = NewStr::Changed(&window[..field.byte_len()]);
        // One event tells of all fields.
        slot.apply(key, Some(found), Write { offset: field.byte(), value }, Event::NONE);
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
) -> Answer {
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

/// Only `GET` leaves the value as it is. What is not understood is taken for a write.
fn bitfield_uses(args: Args<'_>, _: usize) -> Use {
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        at += if args.is(at, "get") && more >= 2 {
            3
        } else if args.is(at, "overflow") && more >= 1 {
            2
        } else {
            return RW_ACCESS_UPDATE;
        };
    }
    RO_ACCESS
}

fn bitfield_ro(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let operations = parse_fields(cx, args)?;
    if operations.iter().any(|(_, action)| *action != Action::Get) {
        return Err(Error::new("ERR BITFIELD_RO only supports the GET subcommand").into());
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

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
