//! List commands, and those that wait for an item.
//!
//! What is popped is written to the reply where it lies, and large items go out by
//! reference. A client that waits is served by executing its command again
//! (`engine/blocked`), so `BLPOP` is `LPOP` of the first key that has a list.

use crate::commands::blocking_pops::{keys_after_number, numbered_keys, timeout, wait};
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::KeySpec;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_store::types::list::ops::{InsertItem, Pop, Push, RemoveItems, SetItem, Trim};
use snug_store::types::list::{End, List};
use snug_store::{Class, Event, Found, Key, NewStr, SlotGuard, Type};
use std::ops::{ControlFlow, Range};

const fn list(
    command: Command,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    command.about(Group::List, since, complexity, summary)
}

const CONSTANT: &str = "O(1)";
const PER_ITEM: &str = "O(1) for each item added, so O(N) to add N items.";
const PER_POPPED: &str = "O(N) where N is the number of items returned.";
const PER_KEY: &str = "O(N) where N is the number of provided keys.";
const PER_KEY_AND_ITEM: &str =
    "O(N+M) where N is the number of provided keys and M is the number of items returned.";
const TO_POSITION: &str = "O(log N) where N is the number of items in the list.";
const WHOLE: &str = "O(N) where N is the number of items in the list.";

pub(crate) const COMMANDS: &[Command] = &[
    list(
        Command::new("lpush", -3, lpush).flags(WRITE | DENYOOM | FAST).key(1).used(RW_INSERT),
        "1.0.0",
        PER_ITEM,
        "Adds items at the left end of a list, which is made if there is none.",
    ),
    list(
        Command::new("rpush", -3, rpush).flags(WRITE | DENYOOM | FAST).key(1).used(RW_INSERT),
        "1.0.0",
        PER_ITEM,
        "Adds items at the right end of a list, which is made if there is none.",
    ),
    list(
        Command::new("lpushx", -3, lpushx).flags(WRITE | DENYOOM | FAST).key(1).used(RW_INSERT),
        "2.2.0",
        PER_ITEM,
        "Adds items at the left end of a list that exists.",
    ),
    list(
        Command::new("rpushx", -3, rpushx).flags(WRITE | DENYOOM | FAST).key(1).used(RW_INSERT),
        "2.2.0",
        PER_ITEM,
        "Adds items at the right end of a list that exists.",
    ),
    list(
        Command::new("lpop", -2, lpop).flags(WRITE | FAST).key(1).used(RW_ACCESS_DELETE),
        "1.0.0",
        PER_POPPED,
        "Removes items from the left end of a list and returns them.",
    ),
    list(
        Command::new("rpop", -2, rpop).flags(WRITE | FAST).key(1).used(RW_ACCESS_DELETE),
        "1.0.0",
        PER_POPPED,
        "Removes items from the right end of a list and returns them.",
    ),
    list(
        Command::new("llen", 2, llen).flags(READONLY | FAST).key(1).used(RO),
        "1.0.0",
        CONSTANT,
        "Returns the number of items of a list.",
    ),
    list(
        Command::new("lindex", 3, lindex).flags(READONLY).key(1),
        "1.0.0",
        TO_POSITION,
        "Returns the item at a position.",
    ),
    list(
        Command::new("lset", 4, lset).flags(WRITE | DENYOOM).key(1),
        "1.0.0",
        TO_POSITION,
        "Puts another item at a position.",
    ),
    list(
        Command::new("linsert", 5, linsert).flags(WRITE | DENYOOM).key(1).used(RW_INSERT),
        "2.2.0",
        WHOLE,
        "Puts an item before or behind another.",
    ),
    list(
        Command::new("lrange", 4, lrange).flags(READONLY).key(1),
        "1.0.0",
        "O(log N + M) where N is the number of items in the list and M that of items returned.",
        "Returns the items of some positions.",
    ),
    list(
        Command::new("lrem", 4, lrem).flags(WRITE).key(1).used(RW_DELETE),
        "1.0.0",
        WHOLE,
        "Removes items that are equal to one.",
    ),
    list(
        Command::new("ltrim", 4, ltrim).flags(WRITE).key(1).used(RW_DELETE),
        "1.0.0",
        "O(N) where N is the number of pages removed.",
        "Removes all items but those of some positions.",
    ),
    list(
        Command::new("lpos", -3, lpos).flags(READONLY).key(1),
        "6.0.6",
        WHOLE,
        "Returns the positions of items that are equal to one.",
    ),
    list(
        Command::new("lmove", 5, lmove)
            .flags(WRITE | DENYOOM)
            .keys(1, 2, 1)
            .specs(&[KeySpec::at(RW_ACCESS_DELETE, 1), KeySpec::at(RW_INSERT, 2)]),
        "6.2.0",
        CONSTANT,
        "Moves an item from an end of a list to an end of another, and returns it.",
    ),
    list(
        Command::new("rpoplpush", 3, rpoplpush)
            .flags(WRITE | DENYOOM)
            .keys(1, 2, 1)
            .specs(&[KeySpec::at(RW_ACCESS_DELETE, 1), KeySpec::at(RW_INSERT, 2)]),
        "1.2.0",
        CONSTANT,
        "Moves the last item of a list to the left end of another, and returns it.",
    ),
    list(
        Command::new("lmpop", -4, lmpop)
            .flags(WRITE)
            .movable(lmpop_keys)
            .specs(&[KeySpec::counted(RW_ACCESS_DELETE, 1)]),
        "7.0.0",
        PER_KEY_AND_ITEM,
        "Removes items from the first of some lists that is not empty, and returns them.",
    ),
    list(
        Command::new("blpop", -3, blpop)
            .flags(WRITE | NOSCRIPT | BLOCKING)
            .keys(1, -2, 1)
            .used(RW_ACCESS_DELETE),
        "2.0.0",
        PER_KEY,
        "Removes the first item of the first list that has one, and returns it. Waits for it.",
    ),
    list(
        Command::new("brpop", -3, brpop)
            .flags(WRITE | NOSCRIPT | BLOCKING)
            .keys(1, -2, 1)
            .used(RW_ACCESS_DELETE),
        "2.0.0",
        PER_KEY,
        "Removes the last item of the first list that has one, and returns it. Waits for it.",
    ),
    list(
        Command::new("blmove", 6, blmove)
            .flags(WRITE | DENYOOM | NOSCRIPT | BLOCKING)
            .keys(1, 2, 1)
            .specs(&[KeySpec::at(RW_ACCESS_DELETE, 1), KeySpec::at(RW_INSERT, 2)]),
        "6.2.0",
        CONSTANT,
        "Moves an item from an end of a list to an end of another. Waits for it.",
    ),
    list(
        Command::new("brpoplpush", 4, brpoplpush)
            .flags(WRITE | DENYOOM | NOSCRIPT | BLOCKING)
            .keys(1, 2, 1)
            .specs(&[KeySpec::at(RW_ACCESS_DELETE, 1), KeySpec::at(RW_INSERT, 2)]),
        "2.2.0",
        CONSTANT,
        "Moves the last item of a list to the left end of another. Waits for it.",
    ),
    list(
        Command::new("blmpop", -5, blmpop)
            .flags(WRITE | BLOCKING)
            .movable(blmpop_keys)
            .specs(&[KeySpec::counted(RW_ACCESS_DELETE, 2)]),
        "7.0.0",
        PER_KEY_AND_ITEM,
        "Removes items from the first of some lists that has any. Waits for them.",
    ),
];

const LSET: Event = Event::new(Class::LIST, "lset");
const LINSERT: Event = Event::new(Class::LIST, "linsert");
const LREM: Event = Event::new(Class::LIST, "lrem");
const LTRIM: Event = Event::new(Class::LIST, "ltrim");

const NOT_POSITIVE: Error = Error::new("ERR value is out of range, must be positive");
const COUNT_TOO_SMALL: Error = Error::new("ERR count should be greater than 0");

const fn pushed(end: End) -> Event {
    Event::new(Class::LIST, if matches!(end, End::Left) { "lpush" } else { "rpush" })
}

const fn popped(end: End) -> Event {
    Event::new(Class::LIST, if matches!(end, End::Left) { "lpop" } else { "rpop" })
}

/// `LEFT` or `RIGHT`.
fn end(args: Args<'_>, at: usize) -> Result<End, Error> {
    match args {
        _ if args.is(at, "left") => Ok(End::Left),
        _ if args.is(at, "right") => Ok(End::Right),
        _ => Err(Error::SYNTAX),
    }
}

/// The list at a key, if there is one, given to `read`; what it says.
fn read<R>(
    cx: &Context<'_>,
    key: &[u8],
    read: impl FnOnce(&List<'_>) -> Result<R, Error>,
) -> Result<Option<R>, Error> {
    let key = cx.key(key);
    let mut slot = cx.lock(&key);
    let Some(found) = cx.find_typed(&mut slot, &key, Type::List)? else { return Ok(None) };
    let mut room = Vec::new();
    slot.list(found, &mut room)?.map(|list| read(&list)).transpose()
}

/// The length of a list that was found.
fn len(slot: &SlotGuard<'_>, found: Found) -> Result<usize, Error> {
    Ok(slot.list(found, &mut Vec::new())?.map_or(0, |list| list.len()))
}

/// An index as Redis has it: below 0 it counts from the end. `None` if it is before the
/// first item; it may be behind the last.
fn absolute(index: i64, len: usize) -> Option<usize> {
    match index {
        0.. => usize::try_from(index).ok(),
        _ => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

/// The positions that two indices mean, cut to those that there are.
fn range(first: i64, last: i64, len: usize) -> Range<usize> {
    let from = absolute(first, len).unwrap_or(0);
    match absolute(last, len) {
        Some(last) if from <= last && from < len => from..last.saturating_add(1).min(len),
        _ => 0..0,
    }
}

fn push(cx: &mut Context<'_>, args: Args<'_>, end: End, exists: bool, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = cx.find_typed(&mut slot, &key, Type::List)?;
    if found.is_none() && exists {
        out.w().integer(0);
        return Ok(());
    }
    let items = (2..args.len()).map(|at| args.value(at));
    let pushed = slot.apply(&key, found, Push { end, items }, pushed(end))?;
    out.w().integer(pushed.outcome as i64);
    Ok(())
}

fn lpush(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    push(cx, args, End::Left, false, out)
}

fn rpush(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    push(cx, args, End::Right, false, out)
}

fn lpushx(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    push(cx, args, End::Left, true, out)
}

fn rpushx(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    push(cx, args, End::Right, true, out)
}

/// Takes items from an end of a list that was found, and writes each to the reply.
fn take(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
    found: Found,
    (end, count): (End, usize),
    out: &mut Out,
) -> Result<(), Error> {
    let op = Pop { end, count, taken: |item: snug_store::Item<'_>| out.item(&item) };
    let taken = slot.apply(key, Some(found), op, popped(end))?;
    if taken.is_gone {
        cx.notify(Event::DEL, key.bytes);
    }
    Ok(())
}

fn pop(cx: &mut Context<'_>, args: Args<'_>, end: End, out: &mut Out) -> Answer {
    if args.len() > 3 {
        return Err(Error::wrong_arity(&cx.command.full_name()).into());
    }
    let count = match args.get(2) {
        None => None,
        Some(_) => {
            let count = args.int(2).map_err(|_| NOT_POSITIVE)?;
            Some(usize::try_from(count).map_err(|_| NOT_POSITIVE)?)
        }
    };
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let Some(found) = cx.find_typed(&mut slot, &key, Type::List)? else {
        match count {
            None => out.w().null(),
            Some(_) => out.w().null_array(),
        }
        return Ok(());
    };
    let count = match count {
        None => 1,
        Some(count) => {
            let count = count.min(len(&slot, found)?);
            cx.goes_through(count)?;
            out.w().array(count);
            count
        }
    };
    if count > 0 {
        take(cx, &mut slot, &key, found, (end, count), out)?;
    }
    Ok(())
}

fn lpop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    pop(cx, args, End::Left, out)
}

fn rpop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    pop(cx, args, End::Right, out)
}

fn llen(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let len = read(cx, args.bytes(1), |list| Ok(list.len()))?;
    out.w().integer(len.unwrap_or(0) as i64);
    Ok(())
}

fn lindex(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let index = args.int(2);
    let found = read(cx, args.bytes(1), |list| {
        let Some(index) = absolute(index.clone()?, list.len()) else { return Ok(false) };
        Ok(list.get(index, |item| out.item(&item))?)
    })?;
    if !found.unwrap_or(false) {
        out.w().null();
    }
    Ok(())
}

fn lset(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = cx.find_typed(&mut slot, &key, Type::List)?.ok_or(Error::NO_SUCH_KEY)?;
    let len = len(&slot, found)?;
    let index = absolute(args.int(2)?, len).filter(|&index| index < len);
    let index = index.ok_or(Error::new("ERR index out of range"))?;
    slot.apply(&key, Some(found), SetItem { index, item: args.value(3) }, LSET)?;
    out.w().ok();
    Ok(())
}

fn linsert(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let after = match args {
        _ if args.is(2, "after") => true,
        _ if args.is(2, "before") => false,
        _ => return Err(Error::SYNTAX.into()),
    };
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let Some(found) = cx.find_typed(&mut slot, &key, Type::List)? else {
        out.w().integer(0);
        return Ok(());
    };
    cx.goes_through(len(&slot, found)?)?;
    let (pivot, mut index) = (args.value(3), None);
    if let Some(list) = slot.list(found, &mut Vec::new())? {
        list.positions(&pivot, End::Left, 0, |at| {
            index = Some(at);
            ControlFlow::Break(())
        })?;
    }
    let Some(index) = index else {
        out.w().integer(-1);
        return Ok(());
    };
    let op = InsertItem { index, pivot, after, item: args.value(4) };
    let inserted = slot.apply(&key, Some(found), op, LINSERT)?;
    out.w().integer(inserted.outcome as i64);
    Ok(())
}

fn lrange(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (first, last) = (args.int(2)?, args.int(3)?);
    let found = read(cx, args.bytes(1), |list| {
        let range = range(first, last, list.len());
        cx.goes_through(range.len())?;
        out.w().array(range.len());
        list.visit(range.start, range.len(), |item| {
            out.item(&item);
            ControlFlow::Continue(())
        })?;
        Ok(())
    })?;
    if found.is_none() {
        out.w().array(0);
    }
    Ok(())
}

fn lrem(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let count = args.int(2)?;
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let Some(found) = cx.find_typed(&mut slot, &key, Type::List)? else {
        out.w().integer(0);
        return Ok(());
    };
    cx.goes_through(len(&slot, found)?)?;
    let removed =
        slot.apply(&key, Some(found), RemoveItems { count, item: args.value(3) }, LREM)?;
    if removed.is_gone {
        cx.notify(Event::DEL, key.bytes);
    }
    out.w().integer(removed.outcome as i64);
    Ok(())
}

fn ltrim(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (first, last) = (args.int(2)?, args.int(3)?);
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    if let Some(found) = cx.find_typed(&mut slot, &key, Type::List)? {
        let kept = range(first, last, len(&slot, found)?);
        let op = Trim { first: kept.start, count: kept.len() };
        let trimmed = slot.apply(&key, Some(found), op, LTRIM)?;
        if trimmed.is_gone {
            cx.notify(Event::DEL, key.bytes);
        }
    }
    out.w().ok();
    Ok(())
}

/// What `LPOS` is asked for.
struct Positions {
    /// The first match that counts.
    rank: usize,
    from: End,
    /// How many are wanted; `None` for one, which is not answered as an array.
    count: Option<usize>,
    /// How many items are compared at most; 0 for all.
    limit: usize,
}

fn parse_lpos(args: Args<'_>) -> Result<Positions, Error> {
    const ZERO: Error = Error::new(
        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
    );
    let mut wanted = Positions { rank: 1, from: End::Left, count: None, limit: 0 };
    let number = |at: usize, error: Error| match args.int(at) {
        Ok(number) => usize::try_from(number).map_err(|_| error),
        Err(_) => Err(error),
    };
    let mut at = 3;
    while at < args.len() {
        if at + 1 == args.len() {
            return Err(Error::SYNTAX);
        }
        if args.is(at, "rank") {
            let rank = args.int(at + 1)?;
            if rank == i64::MIN {
                return Err(Error::new(
                    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
                ));
            }
            if rank == 0 {
                return Err(ZERO);
            }
            wanted.from = if rank < 0 { End::Right } else { End::Left };
            wanted.rank = usize::try_from(rank.unsigned_abs()).unwrap_or(usize::MAX);
        } else if args.is(at, "count") {
            wanted.count = Some(number(at + 1, Error::new("ERR COUNT can't be negative"))?);
        } else if args.is(at, "maxlen") {
            wanted.limit = number(at + 1, Error::new("ERR MAXLEN can't be negative"))?;
        } else {
            return Err(Error::SYNTAX);
        }
        at += 2;
    }
    Ok(wanted)
}

fn lpos(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let wanted = parse_lpos(args)?;
    let most = match wanted.count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let (mut matches, mut positions) = (0, Vec::new());
    read(cx, args.bytes(1), |list| {
        let limit = if wanted.limit == 0 { usize::MAX } else { wanted.limit };
        cx.goes_through(limit.min(list.len()))?;
        list.positions(&args.value(2), wanted.from, wanted.limit, |at| {
            matches += 1;
            if matches >= wanted.rank {
                positions.push(at);
            }
            if positions.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(())
    })?;
    let mut w = out.w();
    match (wanted.count, positions.first()) {
        (None, Some(&at)) => w.integer(at as i64),
        (None, None) => w.null(),
        (Some(_), _) => {
            w.array(positions.len());
            positions.iter().for_each(|&at| w.integer(at as i64));
        }
    }
    Ok(())
}

/// Moves an item between the ends of two lists; false if there is none to move.
fn carry(
    cx: &Context<'_>,
    (from, to): (&[u8], &[u8]),
    (from_end, to_end): (End, End),
    out: &mut Out,
) -> Result<bool, Error> {
    let (source, target) = (cx.key(from), cx.key(to));
    let _held = cx.hold([source, target]);
    let mut slot = cx.lock(&source);
    let Some(found) = cx.find_typed(&mut slot, &source, Type::List)? else { return Ok(false) };
    let mut item = Vec::new();
    let mut chain = None;
    if let Some(list) = slot.list(found, &mut Vec::new())? {
        let index = if from_end == End::Left { 0 } else { list.len() - 1 };
        list.get(index, |moved| match moved.value() {
            NewStr::Chain(large) => chain = Some(large),
            _ => item.extend_from_slice(&moved.bytes()),
        })?;
    }
    let value = || chain.clone().map_or(NewStr::Bytes(&item), NewStr::Chain);
    let op = Push { end: to_end, items: std::iter::once(value()) };
    if from == to {
        // Pushed first, so that the list, and its time to expire, outlive the move.
        slot.apply(&source, Some(found), op, pushed(to_end))?;
    } else {
        drop(slot);
        let mut other = cx.lock(&target);
        let there = cx.find_typed(&mut other, &target, Type::List)?;
        other.apply(&target, there, op, pushed(to_end))?;
        drop(other);
        slot = cx.lock(&source);
    }
    // What was added may lie in the same slot.
    if let Some(found) = slot.find_untouched(&source) {
        let op =
            Pop { end: from_end, count: 1, taken: |item: snug_store::Item<'_>| out.item(&item) };
        let taken = slot.apply(&source, Some(found), op, popped(from_end))?;
        if taken.is_gone {
            cx.notify(Event::DEL, source.bytes);
        }
    }
    Ok(true)
}

fn lmove(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let ends = (end(args, 3)?, end(args, 4)?);
    if !carry(cx, (args.bytes(1), args.bytes(2)), ends, out)? {
        out.w().null();
    }
    Ok(())
}

fn rpoplpush(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if !carry(cx, (args.bytes(1), args.bytes(2)), (End::Right, End::Left), out)? {
        out.w().null();
    }
    Ok(())
}

fn blmove(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let ends = (end(args, 3)?, end(args, 4)?);
    carry_or_wait(cx, args, ends, timeout(args.bytes(5))?, out)
}

fn brpoplpush(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    carry_or_wait(cx, args, (End::Right, End::Left), timeout(args.bytes(3))?, out)
}

fn carry_or_wait(
    cx: &mut Context<'_>,
    args: Args<'_>,
    ends: (End, End),
    timeout_ms: u64,
    out: &mut Out,
) -> Answer {
    // Held until the client is registered.
    let _held = cx.hold([cx.key(args.bytes(1)), cx.key(args.bytes(2))]);
    if carry(cx, (args.bytes(1), args.bytes(2)), ends, out)? {
        return Ok(());
    }
    if cx.origin.may_block() {
        return Err(wait(cx, args, 1..2, timeout_ms, Type::List));
    }
    out.w().null();
    Ok(())
}

/// The first of some keys that has a list; its slot is locked.
fn first_list<'c, 'a>(
    cx: &Context<'c>,
    args: Args<'a>,
    keys: Range<usize>,
) -> Result<Option<(Key<'a>, SlotGuard<'c>, Found)>, Error> {
    for at in cx.keys_to_try(args, keys) {
        let key = cx.key(args.bytes(at));
        let mut slot = cx.lock(&key);
        if let Some(found) = cx.find_typed(&mut slot, &key, Type::List)? {
            return Ok(Some((key, slot, found)));
        }
    }
    Ok(None)
}

/// Takes an item from the first of some lists, or waits for one.
fn blocking_pop(cx: &mut Context<'_>, args: Args<'_>, end: End, out: &mut Out) -> Answer {
    let keys = 1..args.len() - 1;
    let timeout_ms = timeout(args.bytes(keys.end))?;
    let _held = cx.hold(keys.clone().map(|at| cx.key(args.bytes(at))));
    if let Some((key, mut slot, found)) = first_list(cx, args, keys.clone())? {
        out.w().array(2);
        out.w().bulk(key.bytes);
        return Ok(take(cx, &mut slot, &key, found, (end, 1), out)?);
    }
    if cx.origin.may_block() {
        return Err(wait(cx, args, keys, timeout_ms, Type::List));
    }
    out.w().null_array();
    Ok(())
}

fn blpop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    blocking_pop(cx, args, End::Left, out)
}

fn brpop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    blocking_pop(cx, args, End::Right, out)
}

fn lmpop_keys(args: Args<'_>) -> Result<Vec<usize>, Error> {
    keys_after_number(args, 1)
}

fn blmpop_keys(args: Args<'_>) -> Result<Vec<usize>, Error> {
    keys_after_number(args, 2)
}

/// `numkeys key [key ...] LEFT|RIGHT [COUNT count]`.
fn parse_mpop(args: Args<'_>, at: usize) -> Result<(Range<usize>, End, usize), Error> {
    let keys = numbered_keys(args, at)?;
    let end = end(args, keys.end)?;
    let (mut count, mut at) = (None, keys.end + 1);
    while at < args.len() {
        if count.is_some() || !args.is(at, "count") || at + 1 >= args.len() {
            return Err(Error::SYNTAX);
        }
        let number = args.int(at + 1).ok().filter(|&count| count > 0).ok_or(COUNT_TOO_SMALL)?;
        count = usize::try_from(number).ok();
        at += 2;
    }
    Ok((keys, end, count.unwrap_or(1)))
}

/// Takes items from the first of some lists; false if there is none.
fn take_some(
    cx: &Context<'_>,
    args: Args<'_>,
    (keys, end, count): (Range<usize>, End, usize),
    out: &mut Out,
) -> Result<bool, Error> {
    let Some((key, mut slot, found)) = first_list(cx, args, keys)? else { return Ok(false) };
    let count = count.min(len(&slot, found)?);
    cx.goes_through(count)?;
    out.w().array(2);
    out.w().bulk(key.bytes);
    out.w().array(count);
    take(cx, &mut slot, &key, found, (end, count), out)?;
    Ok(true)
}

fn lmpop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let wanted = parse_mpop(args, 1)?;
    let _held = cx.hold(wanted.0.clone().map(|at| cx.key(args.bytes(at))));
    if !take_some(cx, args, wanted, out)? {
        out.w().null_array();
    }
    Ok(())
}

fn blmpop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let wanted = parse_mpop(args, 2)?;
    let timeout_ms = timeout(args.bytes(1))?;
    let keys = wanted.0.clone();
    let _held = cx.hold(keys.clone().map(|at| cx.key(args.bytes(at))));
    if take_some(cx, args, wanted, out)? {
        return Ok(());
    }
    if cx.origin.may_block() {
        return Err(wait(cx, args, keys, timeout_ms, Type::List));
    }
    out.w().null_array();
    Ok(())
}
