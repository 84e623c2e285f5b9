//! Commands of fields that expire, as Redis 8.0 has them, and those of hashes that came
//! with them.
//!
//! A field whose time has come is hidden from all readers and removed by whoever writes to
//! its hash next, or by the sweeper (`hexpired`). A time in the past removes at once.

use crate::commands::hashes::{event, find, hash, reply, set, value_of, with_hash};
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_resp::parse_integer;
use snug_store::Event;
use snug_store::{ExpireFields, FieldExpiry, Found, Key, NewStr, RemoveFields, SlotGuard};

const PER_FIELD: &str = "O(N) where N is the number of fields that are named.";

pub(crate) const COMMANDS: &[Command] = &[
    hash(
        Command::new("hexpire", -6, hexpire).flags(WRITE | DENYOOM | FAST).key(1),
        "7.4.0",
        PER_FIELD,
        "Has fields of a hash expire in so many seconds.",
    ),
    hash(
        Command::new("hpexpire", -6, hpexpire).flags(WRITE | DENYOOM | FAST).key(1),
        "7.4.0",
        PER_FIELD,
        "Has fields of a hash expire in so many milliseconds.",
    ),
    hash(
        Command::new("hexpireat", -6, hexpireat).flags(WRITE | DENYOOM | FAST).key(1),
        "7.4.0",
        PER_FIELD,
        "Has fields of a hash expire at a Unix time in seconds.",
    ),
    hash(
        Command::new("hpexpireat", -6, hpexpireat).flags(WRITE | DENYOOM | FAST).key(1),
        "7.4.0",
        PER_FIELD,
        "Has fields of a hash expire at a Unix time in milliseconds.",
    ),
    hash(
        Command::new("hpersist", -5, hpersist).flags(WRITE | FAST).key(1),
        "7.4.0",
        PER_FIELD,
        "Has fields of a hash expire no longer.",
    ),
    hash(
        Command::new("httl", -5, httl).flags(READONLY | FAST).key(1),
        "7.4.0",
        PER_FIELD,
        "Tells in how many seconds fields of a hash expire.",
    ),
    hash(
        Command::new("hpttl", -5, hpttl).flags(READONLY | FAST).key(1),
        "7.4.0",
        PER_FIELD,
        "Tells in how many milliseconds fields of a hash expire.",
    ),
    hash(
        Command::new("hexpiretime", -5, hexpiretime).flags(READONLY | FAST).key(1),
        "7.4.0",
        PER_FIELD,
        "Tells at which Unix time in seconds fields of a hash expire.",
    ),
    hash(
        Command::new("hpexpiretime", -5, hpexpiretime).flags(READONLY | FAST).key(1),
        "7.4.0",
        PER_FIELD,
        "Tells at which Unix time in milliseconds fields of a hash expire.",
    ),
    hash(
        Command::new("hgetex", -5, hgetex).flags(WRITE | FAST).key(1),
        "8.0.0",
        PER_FIELD,
        "Returns the values of fields of a hash, and changes when the fields expire.",
    ),
    hash(
        Command::new("hsetex", -6, hsetex).flags(WRITE | DENYOOM | FAST).key(1),
        "8.0.0",
        PER_FIELD,
        "Sets fields of a hash to values, and when they expire.",
    ),
    hash(
        Command::new("hgetdel", -5, hgetdel).flags(WRITE | FAST).key(1),
        "8.0.0",
        PER_FIELD,
        "Returns the values of fields of a hash and removes the fields.",
    ),
];

/// The latest time that Redis gives a field, in Unix milliseconds.
const LATEST: i64 = ((1 << 48) - 2) >> 2;

/// The unit of a time argument or reply, in milliseconds.
const SECONDS: i64 = 1000;
const MILLISECONDS: i64 = 1;

fn invalid_time(cx: &Context<'_>) -> Error {
    Error::from(format!("ERR invalid expire time in '{}' command", cx.command.full_name()))
}

/// The Unix time in milliseconds that argument `at` stands for.
fn time(
    cx: &Context<'_>,
    args: Args<'_>,
    at: usize,
    (unit, relative): (i64, bool),
) -> Result<u64, Error> {
    let given = parse_integer(args.bytes(at)).ok_or(Error::NOT_INTEGER)?;
    if given < 0 {
        return Err(Error::new("ERR invalid expire time, must be >= 0"));
    }
    let since = if relative { cx.store.now() as i64 } else { 0 };
    let time = given.checked_mul(unit).and_then(|ms| ms.checked_add(since));
    time.filter(|&at| at <= LATEST).map(|at| at as u64).ok_or_else(|| invalid_time(cx))
}

/// What most commands say of a number of fields that is none.
const NO_COUNT: &str = "ERR Number of fields must be a positive integer";
/// What those say that set when fields expire.
const NO_COUNT_TO_EXPIRE: &str = "ERR Parameter `numFields` should be greater than 0";

/// The arguments behind `FIELDS`, which stands at `at`: where the first field is.
/// `no_count` is the error if their number is none.
fn fields(args: Args<'_>, at: usize, no_count: &'static str) -> Result<usize, Error> {
    if !args.is(at, "fields") || at + 1 >= args.len() {
        return Err(Error::new(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = args.int(at + 1).ok().and_then(|count| usize::try_from(count).ok());
    let Some(count) = count.filter(|&count| count > 0) else {
        return Err(Error::new(no_count));
    };
    if count != args.len() - at - 2 {
        return Err(Error::new("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(at + 2)
}

fn values(args: Args<'_>, first: usize) -> impl Iterator<Item = NewStr<'_>> + Clone {
    (first..args.len()).map(move |at| args.value(at))
}

/// Among so many fields, one that is named again is looked for by comparing each with each.
const FEW_FIELDS: usize = 16;

/// Which of the fields from argument `first` on an earlier argument names too: their places
/// among the fields, ascending. Redis goes field by field, so a field that is named again
/// is met as the first naming left it.
///
/// Cost where all are different: comparisons alone for up to [`FEW_FIELDS`], else a sort.
fn named_again(args: Args<'_>, first: usize) -> Vec<usize> {
    let count = args.len() - first;
    let name = |n: usize| args.bytes(first + n);
    if count <= FEW_FIELDS {
        return (1..count).filter(|&n| (0..n).any(|other| name(other) == name(n))).collect();
    }
    let mut by_name: Vec<usize> = (0..count).collect();
    // Equal names stay in the order of their places.
    by_name.sort_by_key(|&n| name(n));
    let pairs = by_name.windows(2).filter(|pair| name(pair[0]) == name(pair[1]));
    let mut again: Vec<usize> = pairs.map(|pair| pair[1]).collect();
    again.sort_unstable();
    again
}

/// Removes fields and tells of it; how many there were.
fn remove<'a>(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    (key, found): (&Key<'_>, Found),
    fields: impl Iterator<Item = NewStr<'a>> + Clone,
) -> Result<usize, Error> {
    let edited = slot.apply(key, Some(found), RemoveFields { fields }, event("hdel"))?;
    if edited.is_gone {
        cx.notify(Event::DEL, key.bytes);
    }
    Ok(edited.outcome)
}

/// When a field is to be given a time at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    Never,
    Some,
    Later,
    Sooner,
}

impl Condition {
    fn named(args: Args<'_>, at: usize) -> Self {
        let words =
            [("nx", Self::Never), ("xx", Self::Some), ("gt", Self::Later), ("lt", Self::Sooner)];
        let found = words.into_iter().find(|(word, _)| args.is(at, word));
        found.map_or(Self::Always, |(_, condition)| condition)
    }

    fn allows(self, before: Option<u64>, at: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Never => before.is_none(),
            Self::Some => before.is_some(),
            Self::Later => before.is_some_and(|before| at > before),
            Self::Sooner => before.is_none_or(|before| at < before),
        }
    }
}

fn hexpire(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expire(cx, args, out, (SECONDS, true))
}

fn hpexpire(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expire(cx, args, out, (MILLISECONDS, true))
}

fn hexpireat(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expire(cx, args, out, (SECONDS, false))
}

fn hpexpireat(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expire(cx, args, out, (MILLISECONDS, false))
}

/// When the field at each of these arguments expires, if it does; `None` outside if there
/// is no such field.
#[allow(clippy::option_option)]
fn expiries(
    slot: &SlotGuard<'_>,
    found: Option<Found>,
    args: Args<'_>,
    first: usize,
) -> Result<Vec<Option<Option<u64>>>, Error> {
    let mut room = Vec::new();
    let view = match found {
        Some(found) => slot.hash(found, &mut room)?,
        None => None,
    };
    let of = |field| match &view {
        Some(view) => Ok(view.expiry(&field)?),
        None => Ok(None),
    };
    values(args, first).map(of).collect()
}

fn expire(cx: &Context<'_>, args: Args<'_>, out: &mut Out, unit: (i64, bool)) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let all = values(args, 4);
    let found = find(cx, &mut slot, &key, all)?;
    let at = time(cx, args, 2, unit)?;
    let condition = Condition::named(args, 3);
    let first =
        fields(args, if condition == Condition::Always { 3 } else { 4 }, NO_COUNT_TO_EXPIRE)?;
    let mut before = expiries(&slot, found, args, first)?;
    let is_past = at <= slot.now() && cx.origin.minds_time();
    for n in named_again(args, first) {
        if before[n].is_some_and(|before| condition.allows(before, at)) {
            before[n] = (!is_past).then_some(Some(at));
        }
    }
    let allowed = |n: &usize| before[*n].is_some_and(|before| condition.allows(before, at));
    let concerned: Vec<usize> = (0..before.len()).filter(allowed).collect();
    let named = concerned.iter().map(|&n| args.value(first + n));
    if let Some(found) = found.filter(|_| !concerned.is_empty()) {
        if is_past {
            remove(cx, &mut slot, (&key, found), named)?;
        } else {
            let op = ExpireFields { fields: named, at: Some(at) };
            slot.apply(&key, Some(found), op, event("hexpire"))?;
        }
    }
    out.w().array(before.len());
    for (n, before) in before.iter().enumerate() {
        out.w().integer(match before {
            None => -2,
            Some(_) if concerned.binary_search(&n).is_err() => 0,
            Some(_) if is_past => 2,
            Some(_) => 1,
        });
    }
    Ok(())
}

fn hpersist(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key, values(args, 4))?;
    let first = fields(args, 2, NO_COUNT)?;
    let mut before = expiries(&slot, found, args, first)?;
    for n in named_again(args, first) {
        before[n] = before[n].map(|_| None);
    }
    if let Some(found) =
        found.filter(|_| before.iter().any(|before| matches!(before, Some(Some(_)))))
    {
        let op = ExpireFields { fields: values(args, first), at: None };
        slot.apply(&key, Some(found), op, event("hpersist"))?;
    }
    out.w().array(before.len());
    for before in before {
        out.w().integer(match before {
            None => -2,
            Some(None) => -1,
            Some(Some(_)) => 1,
        });
    }
    Ok(())
}

fn httl(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    tell(cx, args, out, (SECONDS, true))
}

fn hpttl(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    tell(cx, args, out, (MILLISECONDS, true))
}

fn hexpiretime(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    tell(cx, args, out, (SECONDS, false))
}

fn hpexpiretime(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    tell(cx, args, out, (MILLISECONDS, false))
}

/// Answers when fields expire, rounded up to the unit; -1 for never, -2 if there is no
/// such field.
fn tell(cx: &Context<'_>, args: Args<'_>, out: &mut Out, (unit, relative): (i64, bool)) -> Answer {
    Ok(with_hash(cx, args.bytes(1), |view| {
        let first = fields(args, 2, NO_COUNT)?;
        let since = if relative { cx.store.now() } else { 0 };
        out.w().array(args.len() - first);
        for field in values(args, first) {
            let expiry = match &view {
                Some(view) => view.expiry(&field)?,
                None => None,
            };
            out.w().integer(match expiry {
                None => -2,
                Some(None) => -1,
                Some(Some(at)) => (at.saturating_sub(since) as i64 + unit - 1) / unit,
            });
        }
        Ok(())
    })?)
}

/// What `HGETEX` and `HSETEX` say of when fields expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ttl {
    Unsaid,
    Keep,
    Persist,
    At(u64),
}

/// The unit of the time behind the word at `at`, if such a word stands there, and whether
/// it is relative.
fn unit(args: Args<'_>, at: usize) -> Option<(i64, bool)> {
    let units = [
        ("ex", (SECONDS, true)),
        ("px", (MILLISECONDS, true)),
        ("exat", (SECONDS, false)),
        ("pxat", (MILLISECONDS, false)),
    ];
    units.into_iter().find(|(word, _)| args.is(at, word)).map(|(_, unit)| unit)
}

/// The values of fields. If reading a field removes it, it has none where it is named again.
fn reply_all(
    slot: &SlotGuard<'_>,
    found: Option<Found>,
    args: Args<'_>,
    (first, removes): (usize, bool),
    out: &mut Out,
) -> Result<(), Error> {
    let again = if removes { named_again(args, first) } else { Vec::new() };
    let mut room = Vec::new();
    let view = match found {
        Some(found) => slot.hash(found, &mut room)?,
        None => None,
    };
    out.w().array(args.len() - first);
    values(args, first).enumerate().try_for_each(|(n, field)| {
        let view = view.as_ref().filter(|_| again.binary_search(&n).is_err());
        reply(view, &field, out)
    })
}

fn hgetex(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key, values(args, 4))?;
    let (mut at, mut said) = (2, Ttl::Unsaid);
    if args.is(2, "persist") {
        (at, said) = (3, Ttl::Persist);
    } else if let Some(unit) = unit(args, 2) {
        (at, said) = (4, Ttl::At(time(cx, args, 3, unit)?));
    }
    let first = fields(args, at, NO_COUNT)?;
    let is_past = matches!(said, Ttl::At(at) if at <= slot.now() && cx.origin.minds_time());
    reply_all(&slot, found, args, (first, is_past), out)?;
    let Some(found) = found else { return Ok(()) };
    let all = values(args, first);
    match said {
        Ttl::At(_) if is_past => {
            remove(cx, &mut slot, (&key, found), all)?;
        }
        Ttl::At(at) => {
            let op = ExpireFields { fields: all, at: Some(at) };
            slot.apply(&key, Some(found), op, event("hexpire"))?;
        }
        Ttl::Persist => {
            let op = ExpireFields { fields: all, at: None };
            slot.apply(&key, Some(found), op, event("hpersist"))?;
        }
        Ttl::Unsaid | Ttl::Keep => {}
    }
    Ok(())
}

fn hgetdel(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key, values(args, 4))?;
    let first = fields(args, 2, NO_COUNT)?;
    reply_all(&slot, found, args, (first, true), out)?;
    if let Some(found) = found {
        remove(cx, &mut slot, (&key, found), values(args, first))?;
    }
    Ok(())
}

/// What stands in front of the fields of `HSETEX`.
struct SetOptions {
    ttl: Ttl,
    /// Whether all of the fields must be there, or none of them.
    condition: Option<bool>,
    /// The argument that is the first field.
    first: usize,
}

impl SetOptions {
    fn parse(cx: &Context<'_>, args: Args<'_>) -> Result<Self, Error> {
        let wrong_arity = || Error::wrong_arity(&cx.command.full_name());
        let (mut at, mut ttl, mut condition) = (2, Ttl::Unsaid, None);
        while !args.is(at, "fields") {
            let Some(word) = args.get(at) else { return Err(wrong_arity()) };
            let (unit, is_fxx) = (unit(args, at), args.is(at, "fxx"));
            if unit.is_some() || args.is(at, "keepttl") {
                if ttl != Ttl::Unsaid {
                    return Err(Error::new(
                        "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
                    ));
                }
                ttl = Ttl::Keep;
                if let Some(unit) = unit {
                    at += 1;
                    if at == args.len() {
                        return Err(Error::new("ERR missing expire time"));
                    }
                    ttl = Ttl::At(time(cx, args, at, unit)?);
                }
            } else if is_fxx || args.is(at, "fnx") {
                if condition.replace(is_fxx).is_some() {
                    return Err(Error::new(
                        "ERR Only one of FXX or FNX arguments can be specified",
                    ));
                }
            } else {
                return Err(Error::from([b"ERR unknown argument: ", word].concat()));
            }
            at += 1;
        }
        let first = at + 2;
        if first + 1 >= args.len() {
            return Err(wrong_arity());
        }
        let count = parse_integer(args.bytes(at + 1)).and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| (1..=i32::MAX as usize).contains(count));
        match count {
            None => Err(Error::new("ERR invalid number of fields")),
            Some(count) if 2 * count != args.len() - first => Err(wrong_arity()),
            Some(_) => Ok(Self { ttl, condition, first }),
        }
    }
}

fn hsetex(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let SetOptions { ttl, condition, first } = SetOptions::parse(cx, args)?;
    let pairs = (first..args.len()).step_by(2).map(|at| (args.value(at), args.value(at + 1)));
    let named = pairs.clone().map(|(field, _)| field);
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key, named.clone())?;
    if let Some(wanted) = condition {
        for field in named.clone() {
            if value_of(&slot, found, &field, |_| ())?.is_some() != wanted {
                out.w().integer(0);
                return Ok(());
            }
        }
    }
    let expiry = match ttl {
        Ttl::At(at) => FieldExpiry::At(at),
        Ttl::Keep => FieldExpiry::Keep,
        Ttl::Unsaid | Ttl::Persist => FieldExpiry::Clear,
    };
    let is_past = |at: u64| at <= slot.now() && cx.origin.minds_time();
    match expiry {
        // The fields are set and go at once. Events tell of both; nothing is written, and
        // what goes is what was there before.
        FieldExpiry::At(at) if is_past(at) => {
            if found.is_none() {
                cx.notify(Event::NEW, key.bytes);
            }
            cx.notify(event("hset"), key.bytes);
            let removed = match found {
                Some(found) => remove(cx, &mut slot, (&key, found), named)?,
                None => 0,
            };
            if removed == 0 {
                cx.notify(event("hdel"), key.bytes);
            }
            if found.is_none() {
                cx.notify(Event::DEL, key.bytes);
            }
        }
        _ => {
            set(cx, &mut slot, (&key, found), pairs, expiry, "hset")?;
            if let FieldExpiry::At(_) = expiry {
                cx.notify(event("hexpire"), key.bytes);
            }
        }
    }
    out.w().integer(1);
    Ok(())
}
