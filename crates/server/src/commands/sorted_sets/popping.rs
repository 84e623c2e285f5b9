//! The members with the lowest or the highest scores, taken out.
//!
//! What names several keys holds the slots of all of them first, so that a client that
//! has to wait is registered before anything can be added.

use super::{event, find};
use crate::commands::blocking_pops::{numbered_keys, timeout, wait};
use crate::engine::command::Answer;
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_resp::Protocol;
use snug_store::{Event, Found, Key, SlotGuard, Type, ZPop};
use std::ops::Range;

/// Which end members are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

impl End {
    fn event(self) -> Event {
        event(if self == Self::Min { "zpopmin" } else { "zpopmax" })
    }
}

/// Takes members, each of which is written as a row; in RESP3, or if they are `nested`,
/// one with its score is an array.
fn take(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
    found: Found,
    (end, count): (End, usize),
    nested: bool,
    out: &mut Out,
) -> Result<(), Error> {
    let mark = out.mark();
    let len = {
        let mut room = Vec::new();
        slot.zset(found, &mut room)?.map_or(0, |zset| zset.len())
    };
    let count = count.min(len);
    cx.goes_through(count)?;
    out.w().array(if nested { count } else { 2 * count });
    let taken = |member: snug_store::Item<'_>, score| {
        if nested {
            out.w().array(2);
        }
        out.item(&member);
        out.score(score);
    };
    let op = ZPop { highest: end == End::Max, count, taken };
    let popped =
        slot.apply(key, Some(found), op, end.event()).inspect_err(|_| out.truncate(mark))?;
    if popped.is_gone {
        cx.notify(Event::DEL, key.bytes);
    }
    Ok(())
}

pub(super) fn zpopmin(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    pop(cx, args, End::Min, out)
}

pub(super) fn zpopmax(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    pop(cx, args, End::Max, out)
}

fn pop(cx: &mut Context<'_>, args: Args<'_>, end: End, out: &mut Out) -> Answer {
    if args.len() > 3 {
        return Err(Error::SYNTAX.into());
    }
    let count = match args.len() {
        3 => {
            let count = args.int(2).ok().and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(Error::new("ERR value is out of range, must be positive"))?)
        }
        _ => None,
    };
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    match find(cx, &mut slot, &key)? {
        Some(found) if count != Some(0) => {
            let nested = out.protocol == Protocol::Resp3 && count.is_some();
            take(cx, &mut slot, &key, found, (end, count.unwrap_or(1)), nested, out)?;
        }
        _ => out.w().array(0),
    }
    Ok(())
}

/// What `ZMPOP` and `BZMPOP` say behind the number of their keys, which is argument `at`.
fn parse(args: Args<'_>, at: usize) -> Result<(Range<usize>, End, usize), Error> {
    let keys = numbered_keys(args, at)?;
    let place = keys.end;
    let end = match () {
        () if args.is(place, "min") => End::Min,
        () if args.is(place, "max") => End::Max,
        () => return Err(Error::SYNTAX),
    };
    let mut wanted = None;
    let mut n = place + 1;
    while n < args.len() {
        if wanted.is_some() || !args.is(n, "count") || n + 1 >= args.len() {
            return Err(Error::SYNTAX);
        }
        let count = snug_resp::parse_integer(args.bytes(n + 1)).filter(|&count| count > 0);
        let count = count.ok_or(Error::new("ERR count should be greater than 0"))?;
        wanted = Some(usize::try_from(count).unwrap_or(usize::MAX));
        n += 2;
    }
    Ok((keys, end, wanted.unwrap_or(1)))
}

/// The first key that holds a sorted set is given to `take`; whether there is one.
fn first(
    cx: &Context<'_>,
    args: Args<'_>,
    keys: Range<usize>,
    take: impl FnOnce(&mut SlotGuard<'_>, &Key<'_>, Found) -> Result<(), Error>,
) -> Result<bool, Error> {
    for at in cx.keys_to_try(args, keys) {
        let key = cx.key(args.bytes(at));
        let mut slot = cx.lock(&key);
        if let Some(found) = find(cx, &mut slot, &key)? {
            take(&mut slot, &key, found)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// The reply of `ZMPOP`: the key, and what was taken from it.
fn pop_first(
    cx: &Context<'_>,
    args: Args<'_>,
    (keys, end, count): (Range<usize>, End, usize),
    out: &mut Out,
) -> Result<bool, Error> {
    first(cx, args, keys, |slot, key, found| {
        let mark = out.mark();
        out.w().array(2);
        out.w().bulk(key.bytes);
        take(cx, slot, key, found, (end, count), true, out).inspect_err(|_| out.truncate(mark))
    })
}

pub(super) fn zmpop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let wanted = parse(args, 1)?;
    let _held = cx.hold(wanted.0.clone().map(|at| cx.key(args.bytes(at))));
    if !pop_first(cx, args, wanted, out)? {
        out.w().null_array();
    }
    Ok(())
}

pub(super) fn bzmpop(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let timeout_ms = timeout(args.bytes(1))?;
    let wanted = parse(args, 2)?;
    let keys = wanted.0.clone();
    let _held = cx.hold(keys.clone().map(|at| cx.key(args.bytes(at))));
    if pop_first(cx, args, wanted, out)? {
        return Ok(());
    }
    wait_or_none(cx, args, keys, timeout_ms, out)
}

pub(super) fn bzpopmin(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    pop_or_wait(cx, args, End::Min, out)
}

pub(super) fn bzpopmax(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    pop_or_wait(cx, args, End::Max, out)
}

fn pop_or_wait(cx: &mut Context<'_>, args: Args<'_>, end: End, out: &mut Out) -> Answer {
    let timeout_ms = timeout(args.bytes(args.len() - 1))?;
    let keys = 1..args.len() - 1;
    let _held = cx.hold(keys.clone().map(|at| cx.key(args.bytes(at))));
    let popped = first(cx, args, keys.clone(), |slot, key, found| {
        out.w().array(3);
        out.w().bulk(key.bytes);
        let taken = |member: snug_store::Item<'_>, score| {
            out.item(&member);
            out.score(score);
        };
        let op = ZPop { highest: end == End::Max, count: 1, taken };
        let popped = slot.apply(key, Some(found), op, end.event())?;
        if popped.is_gone {
            cx.notify(Event::DEL, key.bytes);
        }
        Ok(())
    })?;
    if popped { Ok(()) } else { wait_or_none(cx, args, keys, timeout_ms, out) }
}

/// Nothing is there: the client waits if it may, or is told so.
fn wait_or_none(
    cx: &Context<'_>,
    args: Args<'_>,
    keys: Range<usize>,
    timeout_ms: u64,
    out: &mut Out,
) -> Answer {
    if cx.origin.may_block() {
        return Err(wait(cx, args, keys, timeout_ms, Type::SortedSet));
    }
    out.w().null_array();
    Ok(())
}
