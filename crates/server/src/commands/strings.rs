//! String commands.
//!
//! A value above 64 KiB is a chain of segments, here as in the store: it is
//! taken from its argument, written into, cut and sent without ever being in
//! one piece. Only `LCS` looks at whole values, within Redis's limit on them.
//!
//! What is heard of a write, in Redis's order: `new` if the key did not exist,
//! the command's own event, `expire` if it was given a time.
// Handlers share one type; a few of them cannot fail.
#![allow(clippy::unnecessary_wraps)]

use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group, Unanswered};
use crate::engine::context::Context;
use crate::engine::keys::Use;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::float::Extended;
use crate::text::lcs;
use snug_codec::Segments;
use snug_resp::parse_integer;
use snug_store::{
    Append, Delete, Expire, Found, Key, NewStr, PackedChain, Set, SetExpiry, SlotGuard, Str, Type,
    Write,
};
use snug_store::{Class, Event};

const fn string(
    command: Command,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    command.about(Group::String, since, complexity, summary)
}

/// The event of a string that was set.
const SET: Event = Event::new(Class::STRING, "set");
/// The event of a key that expires no longer.
pub(super) const PERSIST: Event = Event::new(Class::GENERIC, "persist");

const CONSTANT: &str = "O(1)";
const PER_KEY_READ: &str = "O(N) where N is the number of keys to retrieve.";
const PER_KEY_SET: &str = "O(N) where N is the number of keys to set.";
const PER_BYTE: &str = "O(N) where N is the length of the returned string.";

pub(crate) const COMMANDS: &[Command] = &[
    string(
        Command::new("get", 2, get).flags(READONLY | FAST).key(1),
        "1.0.0",
        CONSTANT,
        "Returns the string at a key.",
    ),
    string(
        Command::new("set", -3, set).flags(WRITE | DENYOOM).key(1).used_by(set_uses),
        "1.0.0",
        CONSTANT,
        "Sets a key to a string, whatever it held.",
    ),
    string(
        Command::new("getex", -2, getex).flags(WRITE | FAST).key(1).used(RW_ACCESS_UPDATE),
        "6.2.0",
        CONSTANT,
        "Returns the string at a key, and changes when the key expires.",
    ),
    string(
        Command::new("getdel", 2, getdel).flags(WRITE | FAST).key(1).used(RW_ACCESS_DELETE),
        "6.2.0",
        CONSTANT,
        "Returns the string at a key and removes the key.",
    ),
    string(
        Command::new("getset", 3, getset)
            .flags(WRITE | DENYOOM | FAST)
            .key(1)
            .used(RW_ACCESS_UPDATE),
        "1.0.0",
        CONSTANT,
        "Sets a key to a string and returns the one before.",
    ),
    string(
        Command::new("setnx", 3, setnx).flags(WRITE | DENYOOM | FAST).key(1).used(OW_INSERT),
        "1.0.0",
        CONSTANT,
        "Sets a key to a string unless it exists.",
    ),
    string(
        Command::new("setex", 4, setex).flags(WRITE | DENYOOM).key(1).used(OW_UPDATE),
        "2.0.0",
        CONSTANT,
        "Sets a key to a string that expires in so many seconds.",
    ),
    string(
        Command::new("psetex", 4, psetex).flags(WRITE | DENYOOM).key(1).used(OW_UPDATE),
        "2.6.0",
        CONSTANT,
        "Sets a key to a string that expires in so many milliseconds.",
    ),
    string(
        Command::new("mget", -2, mget).flags(READONLY | FAST).keys(1, -1, 1),
        "1.0.0",
        PER_KEY_READ,
        "Returns the strings at several keys.",
    ),
    string(
        Command::new("mset", -3, mset).flags(WRITE | DENYOOM).keys(1, -1, 2).used(OW_UPDATE),
        "1.0.1",
        PER_KEY_SET,
        "Sets several keys to strings in one step.",
    ),
    string(
        Command::new("msetnx", -3, msetnx).flags(WRITE | DENYOOM).keys(1, -1, 2).used(OW_INSERT),
        "1.0.1",
        PER_KEY_SET,
        "Sets several keys to strings in one step unless any of them exists.",
    ),
    string(
        Command::new("incr", 2, incr).flags(WRITE | DENYOOM | FAST).key(1).used(RW_ACCESS_UPDATE),
        "1.0.0",
        CONSTANT,
        "Adds one to the integer at a key.",
    ),
    string(
        Command::new("decr", 2, decr).flags(WRITE | DENYOOM | FAST).key(1).used(RW_ACCESS_UPDATE),
        "1.0.0",
        CONSTANT,
        "Takes one from the integer at a key.",
    ),
    string(
        Command::new("incrby", 3, incrby)
            .flags(WRITE | DENYOOM | FAST)
            .key(1)
            .used(RW_ACCESS_UPDATE),
        "1.0.0",
        CONSTANT,
        "Adds to the integer at a key.",
    ),
    string(
        Command::new("decrby", 3, decrby)
            .flags(WRITE | DENYOOM | FAST)
            .key(1)
            .used(RW_ACCESS_UPDATE),
        "1.0.0",
        CONSTANT,
        "Takes from the integer at a key.",
    ),
    string(
        Command::new("incrbyfloat", 3, incrbyfloat)
            .flags(WRITE | DENYOOM | FAST)
            .key(1)
            .used(RW_ACCESS_UPDATE),
        "2.6.0",
        CONSTANT,
        "Adds to the decimal number at a key.",
    ),
    string(
        Command::new("append", 3, append).flags(WRITE | DENYOOM | FAST).key(1).used(RW_INSERT),
        "2.0.0",
        "O(M) where M is the length of what is appended.",
        "Adds bytes at the end of a string.",
    ),
    string(
        Command::new("strlen", 2, strlen).flags(READONLY | FAST).key(1).used(RO),
        "2.2.0",
        CONSTANT,
        "Returns the length of a string in bytes.",
    ),
    string(
        Command::new("getrange", 4, getrange).flags(READONLY).key(1),
        "2.4.0",
        PER_BYTE,
        "Returns a part of a string.",
    ),
    string(
        Command::new("substr", 4, getrange).flags(READONLY).key(1),
        "1.0.0",
        PER_BYTE,
        "Returns a part of a string; the old name of GETRANGE.",
    ),
    string(
        Command::new("setrange", 4, setrange).flags(WRITE | DENYOOM).key(1),
        "2.2.0",
        "O(M) where M is the length of what is written, and of the zeros before it.",
        "Overwrites a part of a string, lengthening it where it is too short.",
    ),
    string(
        Command::new("lcs", -3, lcs).flags(READONLY).keys(1, 2, 1),
        "7.0.0",
        "O(N*M) where N and M are the lengths of the two strings.",
        "Finds the longest subsequence that two strings have in common.",
    ),
];

/// Looks a key up as Redis's reads do: a hit or miss is counted and a miss can be
/// heard of, also for the commands that write besides.
pub(super) fn read(cx: &Context<'_>, slot: &mut SlotGuard<'_>, key: &Key<'_>) -> Option<Found> {
    if cx.command.has(READONLY) { cx.find(slot, key) } else { cx.find_to_read(slot, key) }
}

/// The same for a key that must hold a string, if it exists.
pub(super) fn read_string(
    cx: &Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
) -> Result<Option<Found>, Error> {
    match read(cx, slot, key) {
        Some(found) if slot.type_of(found) != Type::String => Err(Error::WRONG_TYPE),
        found => Ok(found),
    }
}

/// Sets a key to a string and tells of it.
pub(super) fn store(
    cx: &mut Context<'_>,
    slot: &mut SlotGuard<'_>,
    key: &Key<'_>,
    found: Option<Found>,
    value: NewStr<'_>,
    expiry: SetExpiry,
) {
    slot.apply(key, found, Set { value, expiry }, SET);
    if let SetExpiry::At(_) = expiry {
        cx.notify(Event::EXPIRE, key.bytes);
    }
}

/// Refuses a string that would be longer than `proto-max-bulk-len`.
fn check_length(cx: &Context<'_>, len: usize, more: usize) -> Result<(), Error> {
    let limit = cx.server.config.number(Param::ProtoMaxBulkLen) as u64;
    match (len as u64).checked_add(more as u64) {
        Some(total) if total <= limit => Ok(()),
        _ => Err(Error::TOO_LONG),
    }
}

/// Positions `start` to `end` of `len`, where negative ones count from the end:
/// brought to within `0..len`. Empty if the first is then behind the second.
pub(super) fn clamp_range(len: i64, start: i64, end: i64) -> (i64, i64) {
    let from_start = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    (from_start(start), from_start(end).min(len - 1))
}

/// Writes the string found, or null.
fn reply(slot: &SlotGuard<'_>, found: Option<Found>, out: &mut Out) -> Answer {
    match found.and_then(|found| slot.string(found)) {
        Some(string) => out.string(string)?,
        None => out.w().null(),
    }
    Ok(())
}

/// The same of a string that stays: what is read often is unpacked for good.
fn reply_whole(slot: &mut SlotGuard<'_>, found: Option<Found>, out: &mut Out) -> Answer {
    if let Some(found) = found {
        slot.unpack_hot(found);
    }
    reply(slot, found, out)
}

fn get(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = read_string(cx, &mut slot, &key)?;
    reply_whole(&mut slot, found, out)
}

/// How a time of expiry is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl Unit {
    fn named(word: &[u8]) -> Option<Self> {
        let units = [
            (&b"ex"[..], Self::Seconds),
            (b"px", Self::Milliseconds),
            (b"exat", Self::UnixSeconds),
            (b"pxat", Self::UnixMilliseconds),
        ];
        units.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, unit)| unit)
    }

    fn is_absolute(self) -> bool {
        matches!(self, Self::UnixSeconds | Self::UnixMilliseconds)
    }

    /// The Unix time in milliseconds that `text` stands for.
    fn time(self, cx: &Context<'_>, text: &[u8]) -> Result<u64, Error> {
        let given = parse_integer(text).ok_or(Error::NOT_INTEGER)?;
        let milliseconds = match self {
            Self::Seconds | Self::UnixSeconds => given.checked_mul(1000),
            Self::Milliseconds | Self::UnixMilliseconds => Some(given),
        };
        let since = if self.is_absolute() { 0 } else { cx.store.now() as i64 };
        let time = milliseconds.filter(|ms| *ms > 0).and_then(|ms| ms.checked_add(since));
        time.map(|time| time as u64).ok_or_else(|| {
            let command = cx.command.full_name();
            Error::from(format!("ERR invalid expire time in '{command}' command"))
        })
    }
}

/// What is said about the expiry of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ttl<'a> {
    Unsaid,
    Keep,
    Persist,
    Time(Unit, &'a [u8]),
}

/// When `SET` is to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Exists,
    IsNew,
}

/// The options of `SET` and `GETEX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options<'a> {
    condition: Option<Condition>,
    get: bool,
    ttl: Ttl<'a>,
}

impl<'a> Options<'a> {
    const NONE: Self = Self { condition: None, get: false, ttl: Ttl::Unsaid };

    fn expiring(unit: Unit, time: &'a [u8]) -> Self {
        Self { ttl: Ttl::Time(unit, time), ..Self::NONE }
    }

    /// Those of `SET key value`, from argument 3 on.
    fn of_set(args: Args<'a>) -> Result<Self, Error> {
        let mut options = Self::NONE;
        let mut words = args.iter_from(3);
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"nx") {
                options.only(Condition::IsNew)?;
            } else if word.eq_ignore_ascii_case(b"xx") {
                options.only(Condition::Exists)?;
            } else if word.eq_ignore_ascii_case(b"get") {
                options.get = true;
            } else if word.eq_ignore_ascii_case(b"keepttl") {
                options.say(Ttl::Keep)?;
            } else {
                options.say_time(word, words.next())?;
            }
        }
        Ok(options)
    }

    /// Those of `GETEX key`, from argument 2 on.
    fn of_getex(args: Args<'a>) -> Result<Self, Error> {
        let mut options = Self::NONE;
        let mut words = args.iter_from(2);
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"persist") {
                options.say(Ttl::Persist)?;
            } else {
                options.say_time(word, words.next())?;
            }
        }
        Ok(options)
    }

    fn only(&mut self, condition: Condition) -> Result<(), Error> {
        if self.condition.is_some_and(|other| other != condition) {
            return Err(Error::SYNTAX);
        }
        self.condition = Some(condition);
        Ok(())
    }

    fn say_time(&mut self, word: &[u8], time: Option<&'a [u8]>) -> Result<(), Error> {
        match (Unit::named(word), time) {
            (Some(unit), Some(time)) => self.say(Ttl::Time(unit, time)),
            _ => Err(Error::SYNTAX),
        }
    }

    /// One thing may be said of the expiry; saying it again is no error.
    fn say(&mut self, ttl: Ttl<'a>) -> Result<(), Error> {
        let again = match (self.ttl, ttl) {
            (Ttl::Unsaid, _) => true,
            (Ttl::Time(unit, _), Ttl::Time(other, _)) => unit == other,
            (said, ttl) => said == ttl,
        };
        if !again {
            return Err(Error::SYNTAX);
        }
        self.ttl = ttl;
        Ok(())
    }
}

/// Without `GET` it does not tell what was there. The word may be another option's
/// argument; it is then an error.
fn set_uses(args: Args<'_>, _: usize) -> Use {
    if (3..args.len()).any(|at| args.is(at, "get")) { RW_ACCESS_UPDATE } else { OW_UPDATE }
}

fn set(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() == 3 {
        let key = cx.key(args.bytes(1));
        let mut slot = cx.lock(&key);
        let found = cx.find_replaced(&mut slot, &key);
        store(cx, &mut slot, &key, found, args.value(2), SetExpiry::Clear);
        out.w().ok();
        return Ok(());
    }
    let options = Options::of_set(args)?;
    let done = set_with(cx, args, 2, options, out)?;
    match (options.get, done) {
        (true, _) => {}
        (false, true) => out.w().ok(),
        (false, false) => out.w().null(),
    }
    Ok(())
}

/// Sets the key to argument `value` if the options allow it, and says whether
/// they did. With `GET`, the reply is the string before.
fn set_with(
    cx: &mut Context<'_>,
    args: Args<'_>,
    value: usize,
    options: Options<'_>,
    out: &mut Out,
) -> Result<bool, Unanswered> {
    let expiry = match options.ttl {
        Ttl::Time(unit, text) => SetExpiry::At(unit.time(cx, text)?),
        Ttl::Keep => SetExpiry::Keep,
        Ttl::Unsaid | Ttl::Persist => SetExpiry::Clear,
    };
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = if options.get {
        let found = read_string(cx, &mut slot, &key)?;
        reply(&slot, found, out)?;
        found
    } else {
        cx.find_replaced(&mut slot, &key)
    };
    let wanted = options.condition.is_none_or(|condition| match condition {
        Condition::Exists => found.is_some(),
        Condition::IsNew => found.is_none(),
    });
    if wanted {
        store(cx, &mut slot, &key, found, args.value(value), expiry);
    }
    Ok(wanted)
}

fn setnx(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let options = Options { condition: Some(Condition::IsNew), ..Options::NONE };
    let done = set_with(cx, args, 2, options, out)?;
    out.w().integer(i64::from(done));
    Ok(())
}

fn setex(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    set_with(cx, args, 3, Options::expiring(Unit::Seconds, args.bytes(2)), out)?;
    out.w().ok();
    Ok(())
}

fn psetex(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    set_with(cx, args, 3, Options::expiring(Unit::Milliseconds, args.bytes(2)), out)?;
    out.w().ok();
    Ok(())
}

fn getset(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    set_with(cx, args, 2, Options { get: true, ..Options::NONE }, out)?;
    Ok(())
}

fn getdel(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = read_string(cx, &mut slot, &key)?;
    reply(&slot, found, out)?;
    slot.apply(&key, found, Delete, Event::DEL);
    Ok(())
}

fn getex(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let options = Options::of_getex(args)?;
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let Some(found) = read_string(cx, &mut slot, &key)? else {
        out.w().null();
        return Ok(());
    };
    let time = match options.ttl {
        Ttl::Time(unit, text) => Some((unit, unit.time(cx, text)?)),
        _ => None,
    };
    reply(&slot, Some(found), out)?;
    match time {
        Some((unit, time))
            if unit.is_absolute() && time <= slot.now() && cx.origin.minds_time() =>
        {
            slot.apply(&key, Some(found), Delete, Event::DEL);
        }
        Some((_, time)) => {
            slot.apply(&key, Some(found), Expire(Some(time)), Event::EXPIRE);
        }
        None if options.ttl == Ttl::Persist && slot.expiry(found).is_some() => {
            slot.apply(&key, Some(found), Expire(None), PERSIST);
        }
        None => {}
    }
    Ok(())
}

fn mget(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let _held = cx.hold(args.iter_from(1).map(|bytes| cx.key(bytes)));
    out.w().array(args.len() - 1);
    for bytes in args.iter_from(1) {
        let key = cx.key(bytes);
        let mut slot = cx.lock(&key);
        let found = read(cx, &mut slot, &key);
        reply_whole(&mut slot, found, out)?;
    }
    Ok(())
}

fn mset(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let _held = cx.hold(keys_of_pairs(cx, args)?);
    set_pairs(cx, args);
    out.w().ok();
    Ok(())
}

fn msetnx(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let _held = cx.hold(keys_of_pairs(cx, args)?);
    let exists = keys_of_pairs(cx, args)?.any(|key| cx.find(&mut cx.lock(&key), &key).is_some());
    if !exists {
        set_pairs(cx, args);
    }
    out.w().integer(i64::from(!exists));
    Ok(())
}

/// The keys of `MSET` and `MSETNX`, if there is a value for each.
fn keys_of_pairs<'a>(
    cx: &Context<'_>,
    args: Args<'a>,
) -> Result<impl Iterator<Item = Key<'a>>, Error> {
    if args.len().is_multiple_of(2) {
        return Err(Error::wrong_arity(&cx.command.full_name()));
    }
    let store = cx.store;
    Ok(args.iter_from(1).step_by(2).map(|bytes| store.key(bytes)))
}

fn set_pairs(cx: &mut Context<'_>, args: Args<'_>) {
    for index in (1..args.len()).step_by(2) {
        let key = cx.key(args.bytes(index));
        let mut slot = cx.lock(&key);
        let found = cx.find_replaced(&mut slot, &key);
        store(cx, &mut slot, &key, found, args.value(index + 1), SetExpiry::Clear);
    }
}

fn incr(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    increment(cx, args, 1, out)
}

fn decr(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    increment(cx, args, -1, out)
}

fn incrby(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    increment(cx, args, args.int(2)?, out)
}

fn decrby(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let by = args.int(2)?.checked_neg().ok_or(Error::new("ERR decrement would overflow"))?;
    increment(cx, args, by, out)
}

fn increment(cx: &mut Context<'_>, args: Args<'_>, by: i64, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = cx.find_string(&mut slot, &key)?;
    let before = match found.and_then(|found| slot.string(found)) {
        Some(string) => string.as_int().ok_or(Error::NOT_INTEGER)?,
        None => 0,
    };
    let value =
        before.checked_add(by).ok_or(Error::new("ERR increment or decrement would overflow"))?;
    let set = Set { value: NewStr::Int(value), expiry: SetExpiry::Keep };
    slot.apply(&key, found, set, Event::new(Class::STRING, "incrby"));
    out.w().integer(value);
    Ok(())
}

fn incrbyfloat(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = cx.find_string(&mut slot, &key)?;
    let before = match found.and_then(|found| slot.string(found)) {
        Some(Str::Chain(_) | Str::PackedLarge(_)) => return Err(Error::NOT_FLOAT.into()),
        Some(string) => Extended::parse(&string.to_bytes()?).ok_or(Error::NOT_FLOAT)?,
        None => Extended::ZERO,
    };
    let by = Extended::parse(args.bytes(2)).ok_or(Error::NOT_FLOAT)?;
    let sum =
        before.add(by).ok_or(Error::new("ERR increment would produce NaN or Infinity"))?.to_text();
    let set = Set { value: NewStr::Text(sum.as_bytes()), expiry: SetExpiry::Keep };
    slot.apply(&key, found, set, Event::new(Class::STRING, "incrbyfloat"));
    out.w().bulk(sum.as_bytes());
    Ok(())
}

fn append(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let value = args.value(2);
    let found = cx.find_string(&mut slot, &key)?;
    if let Some(found) = found {
        check_length(cx, slot.string_len(found), value.len())?;
        cx.make_raw(&mut slot, found)?;
    }
    let len = slot.apply(&key, found, Append(value), Event::new(Class::STRING, "append"));
    out.w().integer(len as i64);
    Ok(())
}

fn strlen(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = read_string(cx, &mut slot, &key)?;
    out.w().integer(found.map_or(0, |found| slot.string_len(found)) as i64);
    Ok(())
}

fn getrange(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (start, end) = (args.int(2)?, args.int(3)?);
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = read_string(cx, &mut slot, &key)?;
    let Some(string) = found.and_then(|found| slot.string(found)) else {
        out.w().bulk(b"");
        return Ok(());
    };
    let crossed = start < 0 && end < 0 && start > end;
    let (first, last) = clamp_range(string.len() as i64, start, end);
    if crossed || first > last {
        out.w().bulk(b"");
        return Ok(());
    }
    let range = first as usize..last as usize + 1;
    if let Str::PackedLarge(packed) = string {
        out.packed_range(packed.checked()?, range);
        return Ok(());
    }
    let mut room = Vec::new();
    match string.unpacked(&mut room)? {
        Str::Int(value) => out.w().bulk(&value.to_string().as_bytes()[range]),
        Str::Bytes(bytes) => out.w().bulk(&bytes[range]),
        Str::Chain(chain) => out.chain_range(chain, range.start, range.end),
        Str::Packed(_) | Str::PackedLarge(_) => unreachable!("unpacked above"),
    }
    Ok(())
}

fn setrange(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let Ok(offset) = usize::try_from(args.int(2)?) else {
        return Err(Error::new("ERR offset is out of range").into());
    };
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let value = args.value(3);
    let found = cx.find_string(&mut slot, &key)?;
    if value.is_empty() {
        out.w().integer(found.map_or(0, |found| slot.string_len(found)) as i64);
        return Ok(());
    }
    check_length(cx, offset, value.len())?;
    if let Some(found) = found {
        cx.make_raw(&mut slot, found)?;
    }
    let event = Event::new(Class::STRING, "setrange");
    let len = slot.apply(&key, found, Write { offset, value }, event);
    out.w().integer(len as i64);
    Ok(())
}

/// A string taken along from under its slot's lock.
enum Taken {
    Bytes(Vec<u8>),
    Chain(Segments),
    Packed(PackedChain),
}

impl Taken {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Chain(chain) => chain.len(),
            Self::Packed(chain) => chain.len(),
        }
    }

    fn into_bytes(self, cx: &Context<'_>) -> Result<Vec<u8>, Error> {
        Ok(match self {
            Self::Bytes(bytes) => bytes,
            Self::Chain(chain) => chain.to_vec(),
            Self::Packed(chain) => {
                let mut bytes = Vec::with_capacity(chain.len());
                for index in 0..chain.segments() {
                    bytes.extend_from_slice(&cx.store.segment(&chain, index)?);
                }
                bytes
            }
        })
    }
}

/// Both strings of `LCS`, as they were at one moment.
fn take_two(cx: &Context<'_>, args: Args<'_>) -> Result<[Taken; 2], Error> {
    let _held = cx.hold([1, 2].map(|index| cx.key(args.bytes(index))));
    let mut all_strings = true;
    let mut damaged = None;
    let taken = [1, 2].map(|index| {
        let key = cx.key(args.bytes(index));
        let mut slot = cx.lock(&key);
        let Some(found) = read(cx, &mut slot, &key) else { return Taken::Bytes(Vec::new()) };
        match slot.string(found) {
            Some(Str::Chain(chain)) => Taken::Chain(chain.clone()),
            Some(Str::PackedLarge(packed)) => Taken::Packed(packed.share()),
            Some(string) => match string.to_bytes() {
                Ok(bytes) => Taken::Bytes(bytes.into_owned()),
                Err(error) => {
                    damaged = Some(error);
                    Taken::Bytes(Vec::new())
                }
            },
            None => {
                all_strings = false;
                Taken::Bytes(Vec::new())
            }
        }
    });
    if !all_strings {
        return Err(Error::new("ERR The specified keys must contain string values"));
    }
    match damaged {
        Some(damaged) => Err(damaged.into()),
        None => Ok(taken),
    }
}

/// What `LCS` is to answer.
#[derive(Clone, Copy, Debug, Default)]
struct LcsOptions {
    len: bool,
    idx: bool,
    match_len_min: i64,
    with_match_len: bool,
}

impl LcsOptions {
    fn parse(args: Args<'_>) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut index = 3;
        while index < args.len() {
            if args.is(index, "idx") {
                options.idx = true;
            } else if args.is(index, "len") {
                options.len = true;
            } else if args.is(index, "withmatchlen") {
                options.with_match_len = true;
            } else if args.is(index, "minmatchlen") && index + 1 < args.len() {
                index += 1;
                options.match_len_min = args.int(index)?;
            } else {
                return Err(Error::SYNTAX);
            }
            index += 1;
        }
        if options.len && options.idx {
            return Err(Error::new(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

/// Steps of `LCS` that take as long as an item elsewhere.
const STEPS_AN_ITEM: usize = 64;

fn lcs(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let [a, b] = take_two(cx, args)?;
    let options = LcsOptions::parse(args)?;
    let too_long = u32::MAX as usize - 1;
    if a.len() >= too_long || b.len() >= too_long {
        return Err(Error::new("ERR String too long for LCS").into());
    }
    cx.goes_through(a.len().saturating_mul(b.len()) / STEPS_AN_ITEM)?;
    let limit = cx.server.config.number(Param::ProtoMaxBulkLen) as u128;
    if lcs::table_bytes(a.len(), b.len()) > limit {
        return Err(Error::new(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        )
        .into());
    }
    // An empty string has nothing in common with one that may be huge.
    let nothing = a.len() == 0 || b.len() == 0;
    let (a, b) = if nothing { Default::default() } else { (a.into_bytes(cx)?, b.into_bytes(cx)?) };
    if options.len {
        out.w().integer(lcs::length(&a, &b) as i64);
        return Ok(());
    }
    let common = lcs::common(&a, &b);
    if !options.idx {
        out.w().bulk(&common.bytes);
        return Ok(());
    }
    let shown = common.matches.iter().filter(|found| found.len() as i64 >= options.match_len_min);
    let mut w = out.w();
    w.map(2);
    w.bulk(b"matches");
    w.array(shown.clone().count());
    for found in shown {
        w.array(if options.with_match_len { 3 } else { 2 });
        for (first, last) in [found.a, found.b] {
            w.array(2);
            w.integer(first as i64);
            w.integer(last as i64);
        }
        if options.with_match_len {
            w.integer(found.len() as i64);
        }
    }
    w.bulk(b"len");
    w.integer(common.bytes.len() as i64);
    Ok(())
}
