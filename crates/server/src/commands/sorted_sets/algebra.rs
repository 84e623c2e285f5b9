//! Unions, intersections and differences of several sorted sets, and of sets, whose
//! members count as having the score 1.

use super::{Rows, begin_rows, event, store};
use crate::engine::command::Answer;
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::double;
use foldhash::{HashMap, HashMapExt as _};
use snug_resp::Protocol;
use snug_store::{NewStr, Type};
use std::ops::{ControlFlow, Range};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// How scores of one member are made one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    /// A sum of infinities of both signs is 0. `b` may be NaN: then a sum is 0 too, and
    /// `Min` and `Max` keep `a`.
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Sum => number(a + b),
            Self::Min if b < a => b,
            Self::Max if b > a => b,
            Self::Min | Self::Max => a,
        }
    }
}

fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What becomes of the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Told,
    Stored,
    /// Its size alone is asked for.
    Counted,
}

struct Query {
    operation: Operation,
    keys: Range<usize>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// The most members to count; 0 for all.
    limit: usize,
}

/// Where the keys are, whose number is argument `at`.
fn keys(cx: &Context<'_>, args: Args<'_>, at: usize) -> Result<Range<usize>, Error> {
    let count = args.int(at)?;
    if count < 1 {
        return Err(Error::from(format!(
            "ERR at least 1 input key is needed for '{}' command",
            cx.command.full_name()
        )));
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > args.len() - at - 1 {
        return Err(Error::SYNTAX);
    }
    Ok(at + 1..at + 1 + count)
}

fn parse(
    args: Args<'_>,
    operation: Operation,
    keys: Range<usize>,
    purpose: Purpose,
) -> Result<Query, Error> {
    let count = keys.len();
    let mut n = keys.end;
    let mut query = Query {
        operation,
        keys,
        weights: vec![1.0; count],
        aggregate: Aggregate::Sum,
        with_scores: false,
        limit: 0,
    };
    let has_weights = operation != Operation::Difference && purpose != Purpose::Counted;
    while n < args.len() {
        let behind = args.len() - n - 1;
        if has_weights && behind >= count && args.is(n, "weights") {
            for (weight, at) in query.weights.iter_mut().zip(n + 1..) {
                let value = double::parse(args.bytes(at));
                *weight = value.ok_or(Error::new("ERR weight value is not a float"))?;
            }
            n += 1 + count;
        } else if has_weights && behind >= 1 && args.is(n, "aggregate") {
            query.aggregate = match () {
                () if args.is(n + 1, "sum") => Aggregate::Sum,
                () if args.is(n + 1, "min") => Aggregate::Min,
                () if args.is(n + 1, "max") => Aggregate::Max,
                () => return Err(Error::SYNTAX),
            };
            n += 2;
        } else if purpose == Purpose::Told && args.is(n, "withscores") {
            query.with_scores = true;
            n += 1;
        } else if purpose == Purpose::Counted && behind >= 1 && args.is(n, "limit") {
            let limit = snug_resp::parse_integer(args.bytes(n + 1));
            let limit = limit.and_then(|limit| usize::try_from(limit).ok());
            query.limit = limit.ok_or(Error::new("ERR LIMIT can't be negative"))?;
            n += 2;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(query)
}

/// One of the inputs.
struct Input<'a> {
    key: &'a [u8],
    weight: f64,
    len: usize,
}

/// How many members there are under a key: none if there is no such key.
fn len_of(cx: &Context<'_>, name: &[u8]) -> Result<usize, Error> {
    let key = cx.key(name);
    let mut slot = cx.lock(&key);
    let Some(found) = cx.find_to_read(&mut slot, &key) else { return Ok(0) };
    let mut room = Vec::new();
    match slot.type_of(found) {
        Type::Set => Ok(slot.set(found, &mut room)?.map_or(0, |set| set.len())),
        Type::SortedSet => Ok(slot.zset(found, &mut room)?.map_or(0, |zset| zset.len())),
        _ => Err(Error::WRONG_TYPE),
    }
}

/// Gives members and their scores to `visit` until that breaks.
fn each(
    cx: &Context<'_>,
    name: &[u8],
    mut visit: impl FnMut(Vec<u8>, f64) -> ControlFlow<()>,
) -> Result<(), Error> {
    let key = cx.key(name);
    let mut slot = cx.lock(&key);
    let Some(found) = slot.find_untouched(&key) else { return Ok(()) };
    let mut room = Vec::new();
    if slot.type_of(found) == Type::Set {
        if let Some(set) = slot.set(found, &mut room)? {
            set.visit(|member| visit(member.bytes().into_owned(), 1.0))?;
        }
    } else if let Some(zset) = slot.zset(found, &mut room)? {
        zset.visit(0, usize::MAX, false, |member, score| {
            visit(member.bytes().into_owned(), score)
        })?;
    }
    Ok(())
}

/// Keeps those rows whose member is under a key, as `keep` says when it has its score.
fn retain(
    cx: &Context<'_>,
    name: &[u8],
    rows: &mut Rows,
    mut keep: impl FnMut(&mut f64, Option<f64>) -> bool,
) -> Result<(), Error> {
    let key = cx.key(name);
    let mut slot = cx.lock(&key);
    let found = slot.find_untouched(&key);
    let mut room = Vec::new();
    let mut other_room = Vec::new();
    let (zset, set) = match found {
        Some(found) => (slot.zset(found, &mut room)?, slot.set(found, &mut other_room)?),
        None => (None, None),
    };
    let mut result = Ok(());
    rows.retain_mut(|(member, own)| {
        let member = NewStr::Bytes(member);
        let score = match (&zset, &set) {
            (Some(zset), _) => zset.score(&member),
            (None, Some(set)) => set.contains(&member).map(|is_in| is_in.then_some(1.0)),
            (None, None) => Ok(None),
        };
        match score {
            Ok(score) => keep(own, score),
            Err(damaged) => {
                result = Err(damaged.into());
                false
            }
        }
    });
    result
}

/// The outcome, in no order.
fn reckon(cx: &Context<'_>, query: &Query, inputs: &mut [Input<'_>]) -> Result<Rows, Error> {
    let aggregate = query.aggregate;
    let mut rows = Rows::new();
    if query.operation != Operation::Difference {
        inputs.sort_by_key(|input| input.len);
    }
    let Some((first, others)) = inputs.split_first() else { return Ok(rows) };
    if query.operation == Operation::Union {
        let mut union: HashMap<Vec<u8>, f64> = HashMap::new();
        for input in &*inputs {
            each(cx, input.key, |member, score| {
                let score = number(input.weight * score);
                let sum = union.entry(member);
                sum.and_modify(|sum| *sum = aggregate.of(*sum, score)).or_insert(score);
                ControlFlow::Continue(())
            })?;
        }
        rows.extend(union);
        return Ok(rows);
    }
    let is_difference = query.operation == Operation::Difference;
    if !is_difference && first.len == 0 {
        return Ok(rows);
    }
    each(cx, first.key, |member, score| {
        rows.push((member, if is_difference { score } else { number(first.weight * score) }));
        ControlFlow::Continue(())
    })?;
    for input in others {
        retain(cx, input.key, &mut rows, |own, score| match (score, is_difference) {
            (Some(score), false) => {
                // As it is, for redis-server has no 0 in the place of this NaN: it differs
                // from what it does with the first input, and in a union.
                *own = aggregate.of(*own, input.weight * score);
                true
            }
            (None, false) | (Some(_), true) => false,
            (None, true) => true,
        })?;
    }
    Ok(rows)
}

fn execute(
    cx: &mut Context<'_>,
    args: Args<'_>,
    operation: Operation,
    purpose: Purpose,
    out: &mut Out,
) -> Answer {
    let at = if purpose == Purpose::Stored { 2 } else { 1 };
    let keys = keys(cx, args, at)?;
    let target = (purpose == Purpose::Stored).then_some(1);
    let _held = cx.hold(target.into_iter().chain(keys.clone()).map(|at| cx.key(args.bytes(at))));
    let mut inputs = Vec::with_capacity(keys.len());
    for at in keys.clone() {
        let key = args.bytes(at);
        inputs.push(Input { key, weight: 1.0, len: len_of(cx, key)? });
    }
    let query = parse(args, operation, keys, purpose)?;
    debug_assert_eq!(query.keys.len(), inputs.len());
    inputs.iter_mut().zip(&query.weights).for_each(|(input, weight)| input.weight = *weight);
    let lens = || inputs.iter().map(|input| input.len);
    cx.goes_through(match operation {
        Operation::Intersection => lens().min().unwrap_or(0) * inputs.len(),
        Operation::Union | Operation::Difference => lens().sum(),
    })?;
    let mut rows = reckon(cx, &query, &mut inputs)?;
    match purpose {
        Purpose::Counted => {
            let limit = if query.limit == 0 { usize::MAX } else { query.limit };
            out.w().integer(rows.len().min(limit) as i64);
        }
        Purpose::Stored => {
            let name = match operation {
                Operation::Union => "zunionstore",
                Operation::Intersection => "zinterstore",
                Operation::Difference => "zdiffstore",
            };
            let stored = store(cx, args.bytes(1), &rows, event(name))?;
            out.w().integer(stored as i64);
        }
        Purpose::Told => {
            rows.sort_by(|a, b| {
                let by_score = a.1.partial_cmp(&b.1).unwrap_or(std::cmp::Ordering::Equal);
                by_score.then_with(|| a.0.cmp(&b.0))
            });
            begin_rows(out, rows.len(), query.with_scores);
            for (member, score) in &rows {
                if query.with_scores && out.protocol == Protocol::Resp3 {
                    out.w().array(2);
                }
                out.w().bulk(member);
                if query.with_scores {
                    out.score(*score);
                }
            }
        }
    }
    Ok(())
}

pub(super) fn zunion(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Operation::Union, Purpose::Told, out)
}

pub(super) fn zinter(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Operation::Intersection, Purpose::Told, out)
}

pub(super) fn zdiff(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Operation::Difference, Purpose::Told, out)
}

pub(super) fn zunionstore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Operation::Union, Purpose::Stored, out)
}

pub(super) fn zinterstore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Operation::Intersection, Purpose::Stored, out)
}

pub(super) fn zdiffstore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Operation::Difference, Purpose::Stored, out)
}

pub(super) fn zintercard(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    execute(cx, args, Operation::Intersection, Purpose::Counted, out)
}
