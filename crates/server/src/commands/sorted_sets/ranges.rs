//! Ranges of members, by rank, by score or by bytes: read, counted, stored, removed.
//!
//! Whatever a range is by, it is first turned into ranks, which costs O(log n); so all
//! that follows is one way to read and one way to remove.

use super::{begin_rows, event, find, limits, read, write_row};
use crate::engine::command::Answer;
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::double;
use crate::work::reclaim::reclaim;
use snug_store::{Damaged, Delete, Event, Limit, NewStr, Type, ZAdd, ZRemoveRange, ZSet, ZWhen};
use std::ops::{ControlFlow, Range};

/// What a range is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A range as a client gives it.
#[derive(Clone, Copy, Debug)]
enum Wanted<'a> {
    /// From rank to rank, the last included; below 0 from the end.
    Ranks(i64, i64),
    Between(Limit<'a>, Limit<'a>),
}

/// One end of a range of scores; behind those that are equal or in front of them.
fn score_limit(text: &[u8], is_end: bool) -> Option<Limit<'_>> {
    let (text, excluded) = match text {
        [b'(', rest @ ..] => (rest, true),
        text => (text, false),
    };
    Some(Limit::Score(double::parse_loosely(text)?, is_end != excluded))
}

fn lex_limit(text: &[u8], is_end: bool) -> Option<Limit<'_>> {
    match text {
        [b'-'] | [b'-', 0, ..] => Some(Limit::Lex(b"", false)),
        [b'+'] | [b'+', 0, ..] => Some(Limit::End),
        [b'(', rest @ ..] => Some(Limit::Lex(rest, !is_end)),
        [b'[', rest @ ..] => Some(Limit::Lex(rest, is_end)),
        _ => None,
    }
}

impl<'a> Wanted<'a> {
    fn parse(args: Args<'a>, by: By, min: usize, max: usize) -> Result<Self, Error> {
        let (first, last) = (args.bytes(min), args.bytes(max));
        match by {
            By::Rank => Ok(Self::Ranks(args.int(min)?, args.int(max)?)),
            By::Score => score_limit(first, false)
                .zip(score_limit(last, true))
                .map(|(min, max)| Self::Between(min, max))
                .ok_or(Error::new("ERR min or max is not a float")),
            By::Lex => lex_limit(first, false)
                .zip(lex_limit(last, true))
                .map(|(min, max)| Self::Between(min, max))
                .ok_or(Error::new("ERR min or max not valid string range item")),
        }
    }

    /// Its ranks, counted from the highest score if it goes `back`.
    fn ranks(&self, zset: &ZSet<'_>, back: bool) -> Result<Range<usize>, Damaged> {
        match self {
            Self::Between(min, max) => {
                let (from, to) = (zset.rank_at(min)?, zset.rank_at(max)?);
                Ok(from..to.max(from))
            }
            Self::Ranks(first, last) => {
                let len = zset.len();
                let place = |n: i64| match usize::try_from(n) {
                    Ok(n) => Some(n),
                    Err(_) => len.checked_sub(usize::try_from(n.unsigned_abs()).ok()?),
                };
                let from = place(*first).unwrap_or(0).min(len);
                let to = place(*last).map_or(0, |last| last.saturating_add(1).min(len)).max(from);
                Ok(if back { len - to..len - from } else { from..to })
            }
        }
    }
}

/// What a command of the `ZRANGE` family asks for.
struct Query<'a> {
    key: &'a [u8],
    wanted: Wanted<'a>,
    back: bool,
    with_scores: bool,
    /// Members of the range that are left out.
    offset: i64,
    /// The most that are given; below 0, all.
    limit: i64,
}

/// Reads a command whose key is argument `at`. What is not said by its name is told by
/// its options.
fn parse(
    args: Args<'_>,
    at: usize,
    mut by: Option<By>,
    mut back: Option<bool>,
    is_stored: bool,
) -> Result<Query<'_>, Error> {
    let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
    let mut n = at + 3;
    while n < args.len() {
        if !is_stored && args.is(n, "withscores") {
            with_scores = true;
        } else if args.len() - n > 2 && args.is(n, "limit") {
            (offset, limit) = (args.int(n + 1)?, args.int(n + 2)?);
            n += 2;
        } else if back.is_none() && args.is(n, "rev") {
            back = Some(true);
        } else if by.is_none() && args.is(n, "bylex") {
            by = Some(By::Lex);
        } else if by.is_none() && args.is(n, "byscore") {
            by = Some(By::Score);
        } else {
            return Err(Error::SYNTAX);
        }
        n += 1;
    }
    let (by, back) = (by.unwrap_or(By::Rank), back.unwrap_or(false));
    if limit != -1 && by == By::Rank {
        return Err(Error::new(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    // All of a range of ranks is asked for then, whatever the offset.
    if by == By::Rank {
        offset = 0;
    }
    if with_scores && by == By::Lex {
        return Err(Error::new(
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ));
    }
    // Of scores and bytes that go back, the greater one is given first.
    let (min, max) = if back && by != By::Rank { (at + 2, at + 1) } else { (at + 1, at + 2) };
    let wanted = Wanted::parse(args, by, min, max)?;
    Ok(Query { key: args.bytes(at), wanted, back, with_scores, offset, limit })
}

impl Query<'_> {
    /// The ranks that are given.
    fn ranks(&self, zset: &ZSet<'_>) -> Result<Range<usize>, Damaged> {
        let Range { start, end } = self.wanted.ranks(zset, self.back)?;
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX).min(end - start);
        let count = usize::try_from(self.limit).unwrap_or(usize::MAX).min(end - start - skipped);
        Ok(match self.back {
            true => end - skipped - count..end - skipped,
            false => start + skipped..start + skipped + count,
        })
    }
}

fn answer(cx: &mut Context<'_>, query: &Query<'_>, out: &mut Out) -> Answer {
    let mark = out.mark();
    let written = read(cx, query.key, |zset| {
        let ranks = query.ranks(zset)?;
        cx.goes_through(ranks.len())?;
        begin_rows(out, ranks.len(), query.with_scores);
        zset.visit(ranks.start, ranks.len(), query.back, |member, score| {
            write_row(out, &member, score, query.with_scores);
            ControlFlow::Continue(())
        })
        .inspect_err(|_| out.truncate(mark))?;
        Ok(())
    })?;
    if written.is_none() {
        out.w().array(0);
    }
    Ok(())
}

pub(super) fn zrange(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    answer(cx, &parse(args, 1, None, None, false)?, out)
}

pub(super) fn zrevrange(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    answer(cx, &parse(args, 1, Some(By::Rank), Some(true), false)?, out)
}

pub(super) fn zrangebyscore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    answer(cx, &parse(args, 1, Some(By::Score), Some(false), false)?, out)
}

pub(super) fn zrevrangebyscore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    answer(cx, &parse(args, 1, Some(By::Score), Some(true), false)?, out)
}

pub(super) fn zrangebylex(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    answer(cx, &parse(args, 1, Some(By::Lex), Some(false), false)?, out)
}

pub(super) fn zrevrangebylex(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    answer(cx, &parse(args, 1, Some(By::Lex), Some(true), false)?, out)
}

/// Members on their way to another key.
pub(crate) type Rows = Vec<(Vec<u8>, f64)>;

/// Puts members in the place of whatever a key holds; with none, the key goes. How many
/// there are.
pub(crate) fn store(
    cx: &Context<'_>,
    name: &[u8],
    rows: &Rows,
    event: Event,
) -> Result<usize, Error> {
    let key = cx.key(name);
    let mut slot = cx.lock(&key);
    if let Some(found) = cx.find_replaced(&mut slot, &key) {
        let told = if rows.is_empty() { Event::DEL } else { Event::NONE };
        if let Some(value) = slot.apply(&key, Some(found), Delete, told) {
            reclaim(value);
        }
    }
    if !rows.is_empty() {
        let items = rows.iter().map(|(member, score)| (*score, NewStr::Bytes(member)));
        let when = ZWhen::default();
        let op = ZAdd { items, when, increase: false, limits: limits(cx) };
        slot.apply(&key, None, op, event)?;
    }
    Ok(rows.len())
}

pub(super) fn zrangestore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let query = parse(args, 2, None, None, true)?;
    let (target, source) = (cx.key(args.bytes(1)), cx.key(query.key));
    let _held = cx.hold([target, source]);
    let mut rows = Rows::new();
    let mut slot = cx.lock(&source);
    if let Some(found) = cx.find_to_read(&mut slot, &source) {
        if slot.type_of(found) != Type::SortedSet {
            return Err(Error::WRONG_TYPE.into());
        }
        let mut room = Vec::new();
        if let Some(zset) = slot.zset(found, &mut room)? {
            let ranks = query.ranks(&zset)?;
            cx.goes_through(ranks.len())?;
            zset.visit(ranks.start, ranks.len(), query.back, |member, score| {
                rows.push((member.bytes().into_owned(), score));
                ControlFlow::Continue(())
            })?;
        }
    }
    drop(slot);
    let stored = store(cx, target.bytes, &rows, event("zrangestore"))?;
    out.w().integer(stored as i64);
    Ok(())
}

pub(super) fn zcount(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    count(cx, args, By::Score, out)
}

pub(super) fn zlexcount(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    count(cx, args, By::Lex, out)
}

fn count(cx: &mut Context<'_>, args: Args<'_>, by: By, out: &mut Out) -> Answer {
    let wanted = Wanted::parse(args, by, 2, 3)?;
    let count = read(cx, args.bytes(1), |zset| Ok(wanted.ranks(zset, false)?.len()))?;
    out.w().integer(count.unwrap_or(0) as i64);
    Ok(())
}

pub(super) fn zremrangebyrank(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    remove(cx, args, By::Rank, "zremrangebyrank", out)
}

pub(super) fn zremrangebyscore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    remove(cx, args, By::Score, "zremrangebyscore", out)
}

pub(super) fn zremrangebylex(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    remove(cx, args, By::Lex, "zremrangebylex", out)
}

fn remove(
    cx: &mut Context<'_>,
    args: Args<'_>,
    by: By,
    name: &'static str,
    out: &mut Out,
) -> Answer {
    let wanted = Wanted::parse(args, by, 2, 3)?;
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let mut room = Vec::new();
    let ranks = match find(cx, &mut slot, &key)? {
        Some(found) => match slot.zset(found, &mut room)? {
            Some(zset) => Some((found, wanted.ranks(&zset, false)?)),
            None => None,
        },
        None => None,
    };
    let Some((found, ranks)) = ranks.filter(|(_, ranks)| !ranks.is_empty()) else {
        out.w().integer(0);
        return Ok(());
    };
    cx.goes_through(ranks.len())?;
    let op = ZRemoveRange { from: ranks.start, count: ranks.len() };
    let removed = slot.apply(&key, Some(found), op, event(name))?;
    if removed.is_gone {
        cx.notify(Event::DEL, key.bytes);
    }
    out.w().integer(removed.outcome as i64);
    Ok(())
}
