//! Members one by one: given a score, removed, asked for.

use super::{event, find, limits, read};
use crate::engine::command::Answer;
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::double;
use smallvec::SmallVec;
use snug_store::{Event, ZAdd, ZRemove, ZWhen};

/// What `ZADD` says before its scores.
#[derive(Default)]
struct Options {
    when: ZWhen,
    /// Changed members are counted, too.
    ch: bool,
    increase: bool,
    /// Where the first score is.
    first: usize,
}

fn parse(args: Args<'_>, increase: bool) -> Result<Options, Error> {
    let mut options = Options { increase, first: 2, ..Options::default() };
    // An option begins with a letter, which no number but an infinity does.
    while let Some([b'a'..=b'z' | b'A'..=b'Z', ..]) = args.get(options.first) {
        let at = options.first;
        match () {
            () if args.is(at, "nx") => options.when.nx = true,
            () if args.is(at, "xx") => options.when.xx = true,
            () if args.is(at, "ch") => options.ch = true,
            () if args.is(at, "incr") => options.increase = true,
            () if args.is(at, "gt") => options.when.gt = true,
            () if args.is(at, "lt") => options.when.lt = true,
            () => break,
        }
        options.first += 1;
    }
    let rest = args.len() - options.first;
    if rest == 0 || !rest.is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    let ZWhen { nx, xx, gt, lt } = options.when;
    if nx && xx {
        return Err(Error::new("ERR XX and NX options at the same time are not compatible"));
    }
    if nx && (gt || lt) || gt && lt {
        return Err(Error::new(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        ));
    }
    if options.increase && rest > 2 {
        return Err(Error::new("ERR INCR option supports a single increment-element pair"));
    }
    Ok(options)
}

pub(super) fn zadd(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    add(cx, args, false, out)
}

pub(super) fn zincrby(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    add(cx, args, true, out)
}

fn add(cx: &mut Context<'_>, args: Args<'_>, increase: bool, out: &mut Out) -> Answer {
    let Options { when, ch, increase, first } = parse(args, increase)?;
    let mut scores: SmallVec<[f64; 8]> = SmallVec::new();
    for at in (first..args.len()).step_by(2) {
        scores.push(double::parse(args.bytes(at)).ok_or(Error::NOT_FLOAT)?);
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?;
    let members = (first + 1..args.len()).step_by(2).map(|at| args.value(at));
    let items = scores.iter().copied().zip(members);
    let op = ZAdd { items, when, increase, limits: limits(cx) };
    let name = if increase { "zincr" } else { "zadd" };
    let added = slot.apply(&key, found, op, event(name))?.outcome;
    if added.is_nan {
        return Err(Error::new("ERR resulting score is not a number (NaN)").into());
    }
    match (increase, added.score) {
        (true, Some(score)) => out.score(score),
        (true, None) => out.w().null(),
        (false, _) => {
            let changed = if ch { added.changed } else { 0 };
            out.w().integer((added.added + changed) as i64);
        }
    }
    Ok(())
}

pub(super) fn zrem(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key)?;
    if found.is_none() {
        out.w().integer(0);
        return Ok(());
    }
    let members = (2..args.len()).map(|at| args.value(at));
    let removed = slot.apply(&key, found, ZRemove { members }, event("zrem"))?;
    if removed.is_gone {
        cx.notify(Event::DEL, key.bytes);
    }
    out.w().integer(removed.outcome as i64);
    Ok(())
}

pub(super) fn zscore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let score = read(cx, args.bytes(1), |zset| Ok(zset.score(&args.value(2))?))?;
    write_score(score.flatten(), out);
    Ok(())
}

fn write_score(score: Option<f64>, out: &mut Out) {
    match score {
        Some(score) => out.score(score),
        None => out.w().null(),
    }
}

pub(super) fn zmscore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let count = args.len() - 2;
    let written = read(cx, args.bytes(1), |zset| {
        out.w().array(count);
        (2..args.len()).try_for_each(|at| {
            write_score(zset.score(&args.value(at))?, out);
            Ok(())
        })
    })?;
    if written.is_none() {
        out.w().array(count);
        (0..count).for_each(|_| out.w().null());
    }
    Ok(())
}

pub(super) fn zcard(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let len = read(cx, args.bytes(1), |zset| Ok(zset.len()))?;
    out.w().integer(len.unwrap_or(0) as i64);
    Ok(())
}

pub(super) fn zrank(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    rank(cx, args, false, out)
}

pub(super) fn zrevrank(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    rank(cx, args, true, out)
}

fn rank(cx: &mut Context<'_>, args: Args<'_>, back: bool, out: &mut Out) -> Answer {
    if args.len() > 4 {
        return Err(Error::wrong_arity(&cx.command.full_name()).into());
    }
    let with_score = args.len() == 4;
    if with_score && !args.is(3, "withscore") {
        return Err(Error::SYNTAX.into());
    }
    let found = read(cx, args.bytes(1), |zset| {
        let place = zset.rank(&args.value(2))?;
        let from_back = |rank| if back { zset.len() - 1 - rank } else { rank };
        Ok(place.map(|(rank, score)| (from_back(rank), score)))
    })?;
    match found.flatten() {
        Some((rank, score)) => {
            if with_score {
                out.w().array(2);
            }
            out.w().integer(rank as i64);
            if with_score {
                out.score(score);
            }
        }
        None if with_score => out.w().null_array(),
        None => out.w().null(),
    }
    Ok(())
}
