//! HyperLogLog commands: how many distinct elements were added, in 12 KiB at most.
//!
//! The value is a string, byte for byte Redis's ([`sketch`] draws it), and is changed by
//! the ops of strings. A register of a dense one is written in place; a sparse one, of at
//! most `hll-sparse-max-bytes`, is written whole.
//!
//! A client can `SET` a string that only looks like a sketch. A sparse sketch of more
//! than 64 KiB cannot be whole, for each of its runs stands for a register at least: it is
//! not walked through, and always answered as corrupt. A command that finds a sketch
//! corrupt changes nothing; Redis keeps what `PFADD` had added before it came upon it.

mod estimate;
mod sketch;

use super::strings::read;
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::KeySpec;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use estimate::Histogram;
use sketch::{Corrupt, Cursor, Draft, Mark, NoSketch, REGISTERS, STALE, STALE_BIT, Sketch};
use snug_store::{Class, Event};
use snug_store::{Found, Key, NewStr, Set, SetExpiry, SlotGuard, Str, Type, Write};
use std::borrow::Cow;

const fn hyperloglog(
    command: Command,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    command.about(Group::Hyperloglog, since, complexity, summary)
}

pub(crate) const COMMANDS: &[Command] = &[
    hyperloglog(
        Command::new("pfadd", -2, pfadd).flags(WRITE | DENYOOM | FAST).key(1).used(RW_INSERT),
        "2.8.9",
        "O(1) to add every element.",
        "Adds elements to a HyperLogLog, which is made if there is none.",
    ),
    hyperloglog(
        // It writes down what it has counted.
        Command::new("pfcount", -2, pfcount)
            .flags(READONLY | MAY_REPLICATE)
            .keys(1, -1, 1)
            .used(RW_ACCESS),
        "2.8.9",
        "O(1) of one key with a small constant, O(N) of N keys with a larger one.",
        "Estimates how many distinct elements HyperLogLogs have seen together.",
    ),
    hyperloglog(
        Command::new("pfmerge", -2, pfmerge)
            .flags(WRITE | DENYOOM)
            .keys(1, -1, 1)
            .specs(&[KeySpec::at(RW_ACCESS_INSERT, 1), KeySpec::up_to(RO_ACCESS, 2, -1)]),
        "2.8.9",
        "O(N) to merge N HyperLogLogs, with a large constant.",
        "Merges HyperLogLogs into one.",
    ),
    hyperloglog(
        Command::new("pfdebug", 3, pfdebug).flags(WRITE | DENYOOM | ADMIN).key(2).used(RW_ACCESS),
        "2.8.9",
        "N/A",
        "Shows how a HyperLogLog lies in memory.",
    ),
    hyperloglog(
        Command::new("pfselftest", 1, pfselftest).flags(ADMIN),
        "2.8.9",
        "N/A",
        "Tests the HyperLogLog's own code.",
    ),
];

/// The event of a sketch that was changed, by `PFMERGE` too.
const PFADD: Event = Event::new(Class::STRING, "pfadd");

const NO_SKETCH: Error = Error::new("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPT: Error = Error::new("INVALIDOBJ Corrupted HLL object detected");

/// Strings of more bytes are not read: no sketch has as many.
const WHOLE_MAX: usize = 64 * 1024;

impl From<NoSketch> for Error {
    fn from(_: NoSketch) -> Self {
        NO_SKETCH
    }
}

impl From<Corrupt> for Error {
    fn from(_: Corrupt) -> Self {
        CORRUPT
    }
}

/// The sketch that a key holds.
fn sketch_of<'s>(
    cx: &Context<'_>,
    slot: &'s SlotGuard<'_>,
    found: Found,
    room: &'s mut Vec<u8>,
) -> Result<Sketch<'s>, Error> {
    let string = match slot.string(found) {
        _ if slot.type_of(found) != Type::String => return Err(Error::WRONG_TYPE),
        None => return Err(Error::WRONG_TYPE),
        Some(string) => string,
    };
    if string.len() > WHOLE_MAX {
        let head: Cow<'_, [u8]> = match string {
            Str::Chain(chain) => chain.parts().first().map_or(&b""[..], |part| part).into(),
            Str::PackedLarge(packed) => cx.store.segment(&packed.share(), 0)?.to_vec().into(),
            _ => b""[..].into(),
        };
        return Err(if Sketch::is_sparse_head(&head)? { CORRUPT } else { NO_SKETCH });
    }
    match string.unpacked(room)? {
        Str::Bytes(bytes) => Ok(Sketch::of(bytes)?),
        // An integer, or a chain that was once longer; there are none.
        _ => Err(NO_SKETCH),
    }
}

/// What argument `index` says of a register.
fn mark(args: Args<'_>, index: usize) -> Mark {
    match args.value(index) {
        NewStr::Chain(chain) => Mark::of(chain.len(), chain.parts().iter().map(|part| &part[..])),
        _ => {
            let bytes = args.bytes(index);
            Mark::of(bytes.len(), std::iter::once(bytes))
        }
    }
}

fn sparse_max(cx: &Context<'_>) -> usize {
    usize::try_from(cx.server.config.number(Param::HllSparseMaxBytes)).unwrap_or(usize::MAX)
}

/// Puts a sketch in the place of what the key held.
fn put(
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
    found: Option<Found>,
    bytes: &[u8],
    event: Event,
) -> Found {
    let value = NewStr::Changed(bytes);
    slot.apply(key, found, Set { value, expiry: SetExpiry::Keep }, event)
}

fn pfadd(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = cx.find_string(&mut slot, &key)?;
    let mut room = Vec::new();
    let raised = match found {
        Some(found) if sketch_of(cx, &slot, found, &mut room)?.is_sparse() => {
            let sketch = sketch_of(cx, &slot, found, &mut room)?;
            let mut draft = Draft::of(sketch, sparse_max(cx));
            let mut raised = false;
            for index in 2..args.len() {
                raised |= draft.raise(mark(args, index))?;
            }
            if raised {
                draft.set_stale();
                let bytes = draft.into_bytes();
                put(&mut slot, &key, Some(found), &bytes, PFADD);
            }
            raised
        }
        Some(found) => {
            cx.make_raw(&mut slot, found)?;
            add_dense(cx, &mut slot, &key, found, args)?
        }
        None => {
            let mut draft = Draft::empty(sparse_max(cx));
            for index in 2..args.len() {
                draft.raise(mark(args, index))?;
            }
            draft.set_stale();
            put(&mut slot, &key, None, draft.bytes(), PFADD);
            true
        }
    };
    out.w().integer(i64::from(raised));
    Ok(())
}

/// Adds elements to a dense sketch that is not packed: writes a byte or two for each that
/// raises a register. The last write tells of the change.
fn add_dense(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
    found: Found,
    args: Args<'_>,
) -> Result<bool, Error> {
    let write = |slot: &mut SlotGuard<'_>, offset, bytes: &[u8], event| {
        slot.apply(key, Some(found), Write { offset, value: NewStr::Changed(bytes) }, event);
    };
    let mut room = Vec::new();
    let stale = sketch_of(cx, slot, found, &mut room)?.cached().is_none();
    let (mut raised, mut told) = (false, false);
    for index in 2..args.len() {
        let sketch = sketch_of(cx, slot, found, &mut room)?;
        if let Some((at, bytes, len)) = sketch.dense_raise(mark(args, index)) {
            told = stale && index + 1 == args.len();
            raised = true;
            write(slot, at, &bytes[..len], if told { PFADD } else { Event::NONE });
        }
    }
    if raised && !told {
        let last = match slot.string(found) {
            Some(Str::Bytes(bytes)) => bytes.get(STALE).copied().unwrap_or(0),
            _ => 0,
        };
        write(slot, STALE, &[last | STALE_BIT], PFADD);
    }
    Ok(raised)
}

fn pfcount(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let mut room = Vec::new();
    if args.len() > 2 {
        let _held = cx.hold(args.iter_from(1).map(|bytes| cx.key(bytes)));
        let mut registers = Box::new([0; REGISTERS]);
        for bytes in args.iter_from(1) {
            let key = cx.key(bytes);
            let mut slot = cx.lock(&key);
            if let Some(found) = read(cx, &mut slot, &key) {
                sketch_of(cx, &slot, found, &mut room)?.merge_into(&mut registers)?;
            }
        }
        let mut histogram = Histogram::default();
        registers.iter().for_each(|register| histogram.add(*register, 1));
        out.w().integer(histogram.estimate());
        return Ok(());
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let Some(found) = read(cx, &mut slot, &key) else {
        out.w().integer(0);
        return Ok(());
    };
    let sketch = sketch_of(cx, &slot, found, &mut room)?;
    let cardinality = match sketch.cached() {
        Some(cardinality) => cardinality as i64,
        None => {
            let cardinality = sketch.histogram()?.estimate();
            let (offset, bytes) = sketch::cache(cardinality as u64);
            cx.make_raw(&mut slot, found)?;
            let write = Write { offset, value: NewStr::Changed(&bytes) };
            slot.apply(&key, Some(found), write, Event::NONE);
            cardinality
        }
    };
    out.w().integer(cardinality);
    Ok(())
}

fn pfmerge(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let _held = cx.hold(args.iter_from(1).map(|bytes| cx.key(bytes)));
    let mut room = Vec::new();
    let mut registers = Box::new([0; REGISTERS]);
    let mut dense = false;
    for bytes in args.iter_from(1) {
        let key = cx.key(bytes);
        let mut slot = cx.lock(&key);
        if let Some(found) = read(cx, &mut slot, &key) {
            let sketch = sketch_of(cx, &slot, found, &mut room)?;
            dense |= !sketch.is_sparse();
            sketch.merge_into(&mut registers)?;
        }
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = cx.find(&mut slot, &key);
    let bytes = {
        let mut draft = match found {
            Some(found) => Draft::of(sketch_of(cx, &slot, found, &mut room)?, sparse_max(cx)),
            None => Draft::empty(sparse_max(cx)),
        };
        if dense {
            draft.make_dense()?;
        }
        let mut cursor = Cursor::default();
        for (index, &count) in registers.iter().enumerate().filter(|(_, count)| **count > 0) {
            draft.raise_from(Mark { index, count }, &mut cursor)?;
        }
        draft.set_stale();
        draft.into_bytes()
    };
    put(&mut slot, &key, found, &bytes, PFADD);
    out.w().ok();
    Ok(())
}

fn pfdebug(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = cx.find(&mut slot, &key);
    let found = found.ok_or(Error::new("ERR The specified key does not exist"))?;
    let mut room = Vec::new();
    let sketch = sketch_of(cx, &slot, found, &mut room)?;
    if args.is(1, "getreg") {
        let registers = sketch.registers()?;
        if sketch.is_sparse() {
            make_dense(cx, &mut slot, &key, found)?;
        }
        out.w().array(REGISTERS);
        registers.iter().for_each(|register| out.w().integer(i64::from(*register)));
    } else if args.is(1, "decode") {
        if !sketch.is_sparse() {
            return Err(Error::new("ERR HLL encoding is not sparse").into());
        }
        out.w().bulk(sketch.runs_text().as_bytes());
    } else if args.is(1, "encoding") {
        out.w().simple(if sketch.is_sparse() { "sparse" } else { "dense" });
    } else if args.is(1, "todense") {
        let was_sparse = sketch.is_sparse();
        if was_sparse {
            make_dense(cx, &mut slot, &key, found)?;
        }
        out.w().integer(i64::from(was_sparse));
    } else {
        let mut text = b"ERR Unknown PFDEBUG subcommand '".to_vec();
        text.extend_from_slice(super::quoted(args.bytes(1), usize::MAX));
        text.push(b'\'');
        return Err(Error::from(text).into());
    }
    Ok(())
}

/// Gives a sketch its dense form in the store.
fn make_dense(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
    found: Found,
) -> Result<(), Error> {
    let mut room = Vec::new();
    let mut draft = Draft::of(sketch_of(cx, slot, found, &mut room)?, 0);
    draft.make_dense()?;
    let bytes = draft.into_bytes();
    put(slot, key, Some(found), &bytes, Event::NONE);
    Ok(())
}

/// Adds elements to a sketch and compares it with plain registers, and its count with how
/// many they are. Takes less than a millisecond, where Redis's own adds millions.
fn pfselftest(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    const ELEMENTS: u64 = 2000;
    /// Standard errors.
    const ERROR_MAX: f64 = 0.0081 * 5.0;
    let mut draft = Draft::empty(3000);
    let mut registers = Box::new([0; REGISTERS]);
    for n in 0..ELEMENTS {
        let element = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let mark = Mark::of(element.len(), std::iter::once(&element[..]));
        draft.raise(mark)?;
        registers[mark.index] = mark.count.max(registers[mark.index]);
    }
    let estimate = draft.sketch().histogram()?.estimate();
    let kept = draft.sketch().registers()?;
    for (index, (&register, &is)) in registers.iter().zip(kept.iter()).enumerate() {
        if is != register {
            let text = format!("TESTFAILED Register {index} should be {register} but is {is}");
            return Err(Error::from(text).into());
        }
    }
    if (estimate as f64 / ELEMENTS as f64 - 1.0).abs() > ERROR_MAX {
        let text = format!("TESTFAILED Too big error. card:{ELEMENTS} estimated:{estimate}");
        return Err(Error::from(text).into());
    }
    out.w().ok();
    Ok(())
}
