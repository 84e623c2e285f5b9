//! Hash commands.
//!
//! A handler looks and decides under the slot's lock and changes the hash by ops; a large
//! value goes from its argument to the store and back by reference.

use crate::commands::keys::{ScanOptions, Scanned, cursor};
use crate::commands::strings::read;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::float::Extended;
use snug_store::{Class, Event, canonical_int};
use snug_store::{
    FieldExpiry, Found, Hash, HashLimits, Item, Key, NewStr, RemoveDue, RemoveFields, SetFields,
    SlotGuard, Type,
};
use std::ops::ControlFlow;

pub(super) const fn hash(
    command: Command,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    command.about(Group::Hash, since, complexity, summary)
}

const CONSTANT: &str = "O(1)";
const PER_FIELD: &str = "O(N) where N is the number of fields that are named.";
const WHOLE: &str = "O(N) where N is the number of fields of the hash.";

pub(crate) const COMMANDS: &[Command] = &[
    hash(
        Command::new("hset", -4, hset).flags(WRITE | DENYOOM | FAST).key(1),
        "2.0.0",
        PER_FIELD,
        "Sets fields of a hash to values.",
    ),
    hash(
        Command::new("hsetnx", 4, hsetnx).flags(WRITE | DENYOOM | FAST).key(1).used(RW_INSERT),
        "2.0.0",
        CONSTANT,
        "Sets a field of a hash to a value unless the field exists.",
    ),
    hash(
        Command::new("hmset", -4, hmset).flags(WRITE | DENYOOM | FAST).key(1),
        "2.0.0",
        PER_FIELD,
        "Sets fields of a hash to values; the old form of HSET.",
    ),
    hash(
        Command::new("hget", 3, hget).flags(READONLY | FAST).key(1),
        "2.0.0",
        CONSTANT,
        "Returns the value of a field of a hash.",
    ),
    hash(
        Command::new("hmget", -3, hmget).flags(READONLY | FAST).key(1),
        "2.0.0",
        PER_FIELD,
        "Returns the values of fields of a hash.",
    ),
    hash(
        Command::new("hgetall", 2, hgetall).flags(READONLY).key(1),
        "2.0.0",
        WHOLE,
        "Returns all fields of a hash and their values.",
    ),
    hash(
        Command::new("hkeys", 2, hkeys).flags(READONLY).key(1),
        "2.0.0",
        WHOLE,
        "Returns all fields of a hash.",
    ),
    hash(
        Command::new("hvals", 2, hvals).flags(READONLY).key(1),
        "2.0.0",
        WHOLE,
        "Returns the values of all fields of a hash.",
    ),
    hash(
        Command::new("hlen", 2, hlen).flags(READONLY | FAST).key(1).used(RO),
        "2.0.0",
        CONSTANT,
        "Returns how many fields a hash has.",
    ),
    hash(
        Command::new("hstrlen", 3, hstrlen).flags(READONLY | FAST).key(1).used(RO),
        "3.2.0",
        CONSTANT,
        "Returns the length in bytes of the value of a field.",
    ),
    hash(
        Command::new("hexists", 3, hexists).flags(READONLY | FAST).key(1).used(RO),
        "2.0.0",
        CONSTANT,
        "Tells whether a hash has a field.",
    ),
    hash(
        Command::new("hdel", -3, hdel).flags(WRITE | FAST).key(1).used(RW_DELETE),
        "2.0.0",
        PER_FIELD,
        "Removes fields of a hash, and the hash with its last one.",
    ),
    hash(
        Command::new("hincrby", 4, hincrby)
            .flags(WRITE | DENYOOM | FAST)
            .key(1)
            .used(RW_ACCESS_UPDATE),
        "2.0.0",
        CONSTANT,
        "Adds to the integer that is the value of a field.",
    ),
    hash(
        Command::new("hincrbyfloat", 4, hincrbyfloat)
            .flags(WRITE | DENYOOM | FAST)
            .key(1)
            .used(RW_ACCESS_UPDATE),
        "2.6.0",
        CONSTANT,
        "Adds to the decimal number that is the value of a field.",
    ),
    hash(
        Command::new("hrandfield", -2, hrandfield).flags(READONLY).key(1),
        "6.2.0",
        "O(N) where N is the number of fields returned.",
        "Returns fields of a hash drawn at random.",
    ),
    hash(
        Command::new("hscan", -3, hscan).flags(READONLY).key(1),
        "2.8.0",
        "O(1) for every call, O(N) for a whole walk, where N is the number of fields.",
        "Walks over the fields of a hash and their values.",
    ),
];

/// Up to what size Redis would hold a hash as a listpack.
fn limits(cx: &Context<'_>) -> HashLimits {
    cx.server.config.hash_limits()
}

pub(super) const fn event(name: &'static str) -> Event {
    Event::new(Class::HASH, name)
}

/// Gives the hash at a key to `reader`, or none if there is no such key.
#[inline]
pub(super) fn with_hash<R>(
    cx: &Context<'_>,
    name: &[u8],
    reader: impl FnOnce(Option<Hash<'_>>) -> Result<R, Error>,
) -> Result<R, Error> {
    let key = cx.key(name);
    let mut slot = cx.lock(&key);
    let Some(found) = read(cx, &mut slot, &key) else { return reader(None) };
    if slot.type_of(found) != Type::Hash {
        return Err(Error::WRONG_TYPE);
    }
    slot.unpack_hot(found);
    let mut room = Vec::new();
    reader(slot.hash(found, &mut room)?)
}

/// Of the fields whose time has come and that a write does not name, it removes so many, ...
const DUE_AT_ONCE: usize = 64;
/// ... or so many for each that it names: whoever adds fields that expire soon removes more
/// than there come.
const DUE_FOR_EACH: usize = 2;

/// Looks up a hash that is about to be changed, and removes what of it has expired: the
/// fields that are `named`, and some of the others.
#[inline]
pub(super) fn find<'a>(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
    named: impl Iterator<Item = NewStr<'a>> + Clone,
) -> Result<Option<Found>, Error> {
    match cx.find_typed(slot, key, Type::Hash)? {
        Some(found) if slot.has_due_fields(found) => remove_due(cx, slot, (key, found), named),
        found => Ok(found),
    }
}

#[cold]
fn remove_due<'a>(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    (key, found): (&Key<'_>, Found),
    named: impl Iterator<Item = NewStr<'a>> + Clone,
) -> Result<Option<Found>, Error> {
    let limit = DUE_AT_ONCE.max(named.clone().count() * DUE_FOR_EACH);
    let op = RemoveDue::new(named, limit);
    let is_gone = slot.apply(key, Some(found), op, event("hexpired"))?.is_gone;
    if is_gone {
        cx.notify(Event::DEL, key.bytes);
    }
    Ok((!is_gone).then_some(found))
}

/// Sets fields and tells of it; how many are new.
pub(super) fn set<'a>(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    (key, found): (&Key<'_>, Option<Found>),
    fields: impl Iterator<Item = (NewStr<'a>, NewStr<'a>)> + Clone,
    expiry: FieldExpiry,
    name: &'static str,
) -> Result<usize, Error> {
    let op = SetFields::new(fields, expiry, limits(cx));
    Ok(slot.apply(key, found, op, event(name))?.outcome)
}

/// Sets what `HSET` and `HMSET` name; how many fields are new.
fn set_all(cx: &Context<'_>, args: Args<'_>) -> Result<usize, Error> {
    if args.len() % 2 == 1 {
        return Err(Error::wrong_arity(&cx.command.full_name()));
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let fields = (2..args.len()).step_by(2).map(|at| (args.value(at), args.value(at + 1)));
    let found = find(cx, &mut slot, &key, fields.clone().map(|(field, _)| field))?;
    set(cx, &mut slot, (&key, found), fields, FieldExpiry::Clear, "hset")
}

fn hset(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let added = set_all(cx, args)?;
    out.w().integer(added as i64);
    Ok(())
}

fn hmset(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    set_all(cx, args)?;
    out.w().ok();
    Ok(())
}

/// What a value of the hash found comes to, if it has the field.
pub(super) fn value_of<R>(
    slot: &SlotGuard<'_>,
    found: Option<Found>,
    field: &NewStr<'_>,
    value: impl FnOnce(Item<'_>) -> R,
) -> Result<Option<R>, Error> {
    let Some(found) = found else { return Ok(None) };
    let mut room = Vec::new();
    match slot.hash(found, &mut room)? {
        Some(hash) => Ok(hash.get(field, value)?),
        None => Ok(None),
    }
}

fn hsetnx(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key, std::iter::once(args.value(2)))?;
    let is_there = value_of(&slot, found, &args.value(2), |_| ())?.is_some();
    if !is_there {
        let field = std::iter::once((args.value(2), args.value(3)));
        set(cx, &mut slot, (&key, found), field, FieldExpiry::Clear, "hset")?;
    }
    out.w().integer(i64::from(!is_there));
    Ok(())
}

fn hget(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    Ok(with_hash(cx, args.bytes(1), |hash| reply(hash.as_ref(), &args.value(2), out))?)
}

/// Writes the value of a field, or null.
pub(super) fn reply(
    hash: Option<&Hash<'_>>,
    field: &NewStr<'_>,
    out: &mut Out,
) -> Result<(), Error> {
    let is_there = match hash {
        Some(hash) => hash.get(field, |value| out.item(&value))?.is_some(),
        None => false,
    };
    if !is_there {
        out.w().null();
    }
    Ok(())
}

fn hmget(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    Ok(with_hash(cx, args.bytes(1), |hash| {
        out.w().array(args.len() - 2);
        (2..args.len()).try_for_each(|at| reply(hash.as_ref(), &args.value(at), out))
    })?)
}

fn hgetall(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    whole(cx, args, out, true, true)
}

fn hkeys(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    whole(cx, args, out, true, false)
}

fn hvals(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    whole(cx, args, out, false, true)
}

/// Writes all fields of a hash, their values, or both.
fn whole(cx: &Context<'_>, args: Args<'_>, out: &mut Out, fields: bool, values: bool) -> Answer {
    Ok(with_hash(cx, args.bytes(1), |hash| {
        let len = hash.as_ref().map_or(0, Hash::len);
        cx.goes_through(len)?;
        if fields && values {
            out.w().map(len);
        } else {
            out.w().array(len);
        }
        let Some(hash) = hash else { return Ok(()) };
        hash.visit(|field, value| {
            if fields {
                out.item(&field);
            }
            if values {
                out.item(&value);
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    })?)
}

fn hlen(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = cx.find_typed(&mut slot, &key, Type::Hash)?;
    let mut room = Vec::new();
    let len = match found {
        Some(found) => slot.hash(found, &mut room)?.map_or(0, |hash| hash.len()),
        None => 0,
    };
    out.w().integer(len as i64);
    Ok(())
}

fn hstrlen(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let len = with_hash(cx, args.bytes(1), |hash| match hash {
        Some(hash) => Ok(hash.get(&args.value(2), |value| value.len())?.unwrap_or(0)),
        None => Ok(0),
    })?;
    out.w().integer(len as i64);
    Ok(())
}

fn hexists(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let is_there = with_hash(cx, args.bytes(1), |hash| match hash {
        Some(hash) => Ok(hash.get(&args.value(2), |_| ())?.is_some()),
        None => Ok(false),
    })?;
    out.w().integer(i64::from(is_there));
    Ok(())
}

fn hdel(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let mut removed = 0;
    let fields = (2..args.len()).map(|at| args.value(at));
    if let Some(found) = find(cx, &mut slot, &key, fields.clone())? {
        let edited = slot.apply(&key, Some(found), RemoveFields { fields }, event("hdel"))?;
        removed = edited.outcome;
        if edited.is_gone {
            cx.notify(Event::DEL, key.bytes);
        }
    }
    out.w().integer(removed as i64);
    Ok(())
}

fn hincrby(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let by = args.int(3)?;
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key, std::iter::once(args.value(2)))?;
    let before = value_of(&slot, found, &args.value(2), |value| match value {
        Item::Bytes(bytes) => canonical_int(&bytes),
        Item::Large(_) => None,
    })?;
    let before = before.unwrap_or(Some(0)).ok_or(Error::new("ERR hash value is not an integer"))?;
    let sum =
        before.checked_add(by).ok_or(Error::new("ERR increment or decrement would overflow"))?;
    let field = std::iter::once((args.value(2), NewStr::Int(sum)));
    set(cx, &mut slot, (&key, found), field, FieldExpiry::Keep, "hincrby")?;
    out.w().integer(sum);
    Ok(())
}

fn hincrbyfloat(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let by = Extended::parse(args.bytes(3)).ok_or(Error::NOT_FLOAT)?;
    if !by.is_finite() {
        return Err(Error::new("ERR value is NaN or Infinity").into());
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = find(cx, &mut slot, &key, std::iter::once(args.value(2)))?;
    let before = value_of(&slot, found, &args.value(2), |value| match value {
        Item::Bytes(bytes) => Extended::parse(&bytes),
        Item::Large(_) => None,
    })?;
    let before = before
        .unwrap_or(Some(Extended::ZERO))
        .ok_or(Error::new("ERR hash value is not a float"))?;
    let sum =
        before.add(by).ok_or(Error::new("ERR increment would produce NaN or Infinity"))?.to_text();
    let field = std::iter::once((args.value(2), NewStr::Bytes(sum.as_bytes())));
    set(cx, &mut slot, (&key, found), field, FieldExpiry::Keep, "hincrbyfloat")?;
    out.w().bulk(sum.as_bytes());
    Ok(())
}

/// The most items that are drawn of which one may come twice, and the most bytes of a
/// reply with such: the number of these is the client's to name, whatever there is.
const DRAWN_MAX: u64 = 10_000_000;
const DRAWN_BYTES_MAX: usize = 512 << 20;
const TOO_MANY: Error = Error::new("ERR value is out of range");

/// How many items a client asks for that are drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    /// So many, each different from the others.
    Distinct(usize),
    /// So many, of which one may come twice.
    Any(usize),
}

impl Drawn {
    /// What argument `at` asks for: below 0 for what may come twice.
    pub(super) fn parse(args: Args<'_>, at: usize) -> Result<Self, Error> {
        let count = args.int(at)?;
        if count == i64::MIN {
            let max = i64::MAX;
            return Err(Error::from(format!(
                "ERR value is out of range, value must between -{max} and {max}"
            )));
        }
        let many = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        Ok(if count < 0 { Self::Any(many) } else { Self::Distinct(many) })
    }

    /// Refuses what there is no end to.
    pub(super) fn check(self) -> Result<(), Error> {
        match self {
            Self::Any(count) if count as u64 > DRAWN_MAX => Err(TOO_MANY),
            _ => Ok(()),
        }
    }

    /// Refuses a reply that has become too long.
    pub(super) fn check_reply(out: &Out) -> Result<(), Error> {
        if out.len() > DRAWN_BYTES_MAX { Err(TOO_MANY) } else { Ok(()) }
    }
}

fn hrandfield(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() == 2 {
        return Ok(with_hash(cx, args.bytes(1), |hash| {
            let mut is_drawn = false;
            if let Some(hash) = hash {
                hash.draw_any(1, |field, _| {
                    out.item(&field);
                    is_drawn = true;
                    ControlFlow::Continue(())
                })?;
            }
            if !is_drawn {
                out.w().null();
            }
            Ok(())
        })?);
    }
    let drawn = Drawn::parse(args, 2)?;
    if args.len() > 4 || args.len() == 4 && !args.is(3, "withvalues") {
        return Err(Error::SYNTAX.into());
    }
    let with_values = args.len() == 4;
    let (Drawn::Any(count) | Drawn::Distinct(count)) = drawn;
    if with_values && count > i64::MAX as usize / 2 {
        return Err(TOO_MANY.into());
    }
    Ok(with_hash(cx, args.bytes(1), |hash| {
        let Some(hash) = hash else {
            out.w().array(0);
            return Ok(());
        };
        drawn.check()?;
        let len = hash.len();
        let count = match drawn {
            Drawn::Distinct(count) => count.min(len),
            Drawn::Any(count) => {
                if len == 0 {
                    0
                } else {
                    count
                }
            }
        };
        cx.goes_through(count)?;
        let pairs = with_values && out.protocol == snug_resp::Protocol::Resp3;
        out.w().array(if with_values && !pairs { 2 * count } else { count });
        let mut each = |field: Item<'_>, value: Item<'_>| {
            if pairs {
                out.w().array(2);
            }
            out.item(&field);
            if with_values {
                out.item(&value);
            }
            match Drawn::check_reply(out) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        match drawn {
            Drawn::Distinct(count) => hash.draw(count, |field, value| _ = each(field, value))?,
            Drawn::Any(count) => {
                hash.draw_any(count, each)?;
                Drawn::check_reply(out)?;
            }
        }
        Ok(())
    })?)
}

fn hscan(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let cursor = cursor(args.bytes(2))?;
    Ok(with_hash(cx, args.bytes(1), |hash| {
        let Some(hash) = hash else {
            out.w().array(2);
            out.w().bulk(b"0");
            out.w().array(0);
            return Ok(());
        };
        let options = ScanOptions::parse(args, 3, Scanned::Fields)?;
        cx.goes_through(options.count.min(hash.len()))?;
        let mut found = Out::default();
        found.protocol = out.protocol;
        let mut count = 0;
        let next = hash.scan(cursor, options.count, |field, value| {
            if options.wants(&field.bytes()) {
                found.item(&field);
                count += 1;
                if !options.no_values {
                    found.item(&value);
                    count += 1;
                }
            }
        })?;
        scanned(out, next, found, count);
        Ok(())
    })?)
}

/// Writes the reply of a scan: the next cursor, and what was found.
pub(super) fn scanned(out: &mut Out, next: u64, found: Out, count: usize) {
    out.w().array(2);
    out.w().bulk_display(next);
    out.w().array(count);
    out.append(found);
}
