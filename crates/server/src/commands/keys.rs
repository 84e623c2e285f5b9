//! Commands on keys of any type: DEL, EXPIRE, SCAN, RENAME, ...
//!
//! A command of one key locks that key's slot. A command of several holds all
//! their slots first and then works on them one after the other, so that
//! nobody sees it half done. KEYS, SCAN and RANDOMKEY lock slot by slot.

use crate::auth::Categories;
use crate::commands::strings::PERSIST;
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::KeySpec;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::work::reclaim::reclaim;
use snug_resp::Writer;
use snug_store::Event;
use snug_store::{Delete, Expire, Type};

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("del", -2, del).flags(WRITE).keys(1, -1, 1).used(RM_DELETE).about(
        Group::Generic,
        "1.0.0",
        "O(N) where N is the number of keys, plus O(M) for each that holds M elements.",
        "Removes keys.",
    ),
    Command::new("unlink", -2, unlink).flags(WRITE | FAST).keys(1, -1, 1).used(RM_DELETE).about(
        Group::Generic,
        "4.0.0",
        "O(1) for each key; large values are freed by another thread.",
        "Removes keys, and frees what they held in the background.",
    ),
    Command::new("exists", -2, exists).flags(READONLY | FAST).keys(1, -1, 1).used(RO).about(
        Group::Generic,
        "1.0.0",
        "O(N) where N is the number of keys to check.",
        "Counts how many of the keys exist.",
    ),
    Command::new("type", 2, kind).flags(READONLY | FAST).key(1).used(RO).about(
        Group::Generic,
        "1.0.0",
        "O(1)",
        "Tells the type of a key's value.",
    ),
    Command::new("touch", -2, touch).flags(READONLY | FAST).keys(1, -1, 1).used(RO).about(
        Group::Generic,
        "3.2.1",
        "O(N) where N is the number of keys that will be touched.",
        "Counts keys as accessed, and how many of them exist.",
    ),
    Command::new("rename", 3, rename)
        .flags(WRITE)
        .keys(1, 2, 1)
        .specs(&[KeySpec::at(RW_ACCESS_DELETE, 1), KeySpec::at(OW_UPDATE, 2)])
        .about(
            Group::Generic,
            "1.0.0",
            "O(1)",
            "Gives a key another name, which loses what it held.",
        ),
    Command::new("renamenx", 3, renamenx)
        .flags(WRITE | FAST)
        .keys(1, 2, 1)
        .specs(&[KeySpec::at(RW_ACCESS_DELETE, 1), KeySpec::at(OW_INSERT, 2)])
        .about(
            Group::Generic,
            "1.0.0",
            "O(1)",
            "Gives a key another name if no key has that name.",
        ),
    // WIDE: in EXEC the other database's slot cannot be told beforehand.
    Command::new("copy", -3, copy)
        .flags(WRITE | DENYOOM | WIDE)
        .keys(1, 2, 1)
        .specs(&[KeySpec::at(RO_ACCESS, 1), KeySpec::at(OW_UPDATE, 2)])
        .about(
            Group::Generic,
            "6.2.0",
            "O(N) where N is the number of elements of the value; O(1) for strings.",
            "Copies a key's value and expiry to another key.",
        ),
    Command::new("move", 3, move_).flags(WRITE | FAST | WIDE).key(1).used(RW_ACCESS_UPDATE).about(
        Group::Generic,
        "1.0.0",
        "O(1)",
        "Moves a key to another database.",
    ),
    Command::new("randomkey", 1, randomkey).flags(READONLY | WIDE).about(
        Group::Generic,
        "1.0.0",
        "O(1)",
        "Returns a key drawn at random.",
    ),
    Command::new("keys", 2, keys)
        .flags(READONLY | WIDE)
        .acl(Categories::KEYSPACE.and(Categories::DANGEROUS))
        .about(
            Group::Generic,
            "1.0.0",
            "O(N) where N is the number of keys in the database.",
            "Returns all keys that match a pattern.",
        ),
    Command::new("scan", -2, scan).flags(READONLY | WIDE).about(
        Group::Generic,
        "2.8.0",
        "O(1) for every call. O(N) for a whole iteration over N keys.",
        "Iterates over the keys of the database, some at a time.",
    ),
    Command::new("expire", -3, expire).flags(WRITE | FAST).key(1).about(
        Group::Generic,
        "1.0.0",
        "O(1)",
        "Has a key expire after some seconds.",
    ),
    Command::new("pexpire", -3, pexpire).flags(WRITE | FAST).key(1).about(
        Group::Generic,
        "2.6.0",
        "O(1)",
        "Has a key expire after some milliseconds.",
    ),
    Command::new("expireat", -3, expireat).flags(WRITE | FAST).key(1).about(
        Group::Generic,
        "1.2.0",
        "O(1)",
        "Has a key expire at a Unix time in seconds.",
    ),
    Command::new("pexpireat", -3, pexpireat).flags(WRITE | FAST).key(1).about(
        Group::Generic,
        "2.6.0",
        "O(1)",
        "Has a key expire at a Unix time in milliseconds.",
    ),
    Command::new("ttl", 2, ttl).flags(READONLY | FAST).key(1).about(
        Group::Generic,
        "1.0.0",
        "O(1)",
        "Tells in how many seconds a key expires.",
    ),
    Command::new("pttl", 2, pttl).flags(READONLY | FAST).key(1).about(
        Group::Generic,
        "2.6.0",
        "O(1)",
        "Tells in how many milliseconds a key expires.",
    ),
    Command::new("expiretime", 2, expiretime).flags(READONLY | FAST).key(1).about(
        Group::Generic,
        "7.0.0",
        "O(1)",
        "Tells at which Unix time, in seconds, a key expires.",
    ),
    Command::new("pexpiretime", 2, pexpiretime).flags(READONLY | FAST).key(1).about(
        Group::Generic,
        "7.0.0",
        "O(1)",
        "Tells at which Unix time, in milliseconds, a key expires.",
    ),
    Command::new("persist", 2, persist).flags(WRITE | FAST).key(1).about(
        Group::Generic,
        "2.2.0",
        "O(1)",
        "Has a key expire no longer.",
    ),
];

const SAME_OBJECT: Error = Error::new("ERR source and destination objects are the same");
const DB_RANGE: Error = Error::new("ERR DB index is out of range");

fn del(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let lazy = cx.server.config.is_on(Param::LazyfreeLazyUserDel);
    remove(cx, args, out, lazy)
}

fn unlink(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    remove(cx, args, out, true)
}

fn remove(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out, lazy: bool) -> Answer {
    let _held = hold_all(cx, args);
    let mut removed = 0;
    for name in args.iter_from(1) {
        let key = cx.key(name);
        let mut slot = cx.lock(&key);
        let Some(found) = slot.find_entry(&key) else { continue };
        let value = slot.apply(&key, Some(found), Delete, Event::DEL);
        drop(slot);
        removed += 1;
        if lazy && let Some(value) = value {
            reclaim(value);
        }
    }
    out.w().integer(removed);
    Ok(())
}

/// Holds the slots of all arguments; one key alone needs no more than its lock.
fn hold_all<'c>(cx: &Context<'c>, args: Args<'_>) -> Option<snug_store::Hold<'c>> {
    (args.len() > 2).then(|| cx.hold(args.iter_from(1).map(|name| cx.key(name))))
}

fn exists(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let _held = hold_all(cx, args);
    let mut found = 0;
    for name in args.iter_from(1) {
        let key = cx.key(name);
        found += i64::from(cx.peek(&mut cx.lock(&key), &key).is_some());
    }
    out.w().integer(found);
    Ok(())
}

fn touch(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let _held = hold_all(cx, args);
    let mut found = 0;
    for name in args.iter_from(1) {
        let key = cx.key(name);
        found += i64::from(cx.find(&mut cx.lock(&key), &key).is_some());
    }
    out.w().integer(found);
    Ok(())
}

fn kind(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let name = cx.peek(&mut slot, &key).map_or("none", |found| slot.type_of(found).name());
    out.w().simple(name);
    Ok(())
}

fn rename(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    rename_to(cx, args, false)?;
    out.w().ok();
    Ok(())
}

fn renamenx(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let renamed = rename_to(cx, args, true)?;
    out.w().integer(i64::from(renamed));
    Ok(())
}

/// Renames a key; false if `unless_taken` and there is a key of the new name.
fn rename_to(cx: &mut Context<'_>, args: Args<'_>, unless_taken: bool) -> Result<bool, Error> {
    let (from, to) = (cx.key(args.bytes(1)), cx.key(args.bytes(2)));
    let _held = cx.hold([from, to]);
    if cx.lock(&from).find_anywhere(&from).is_none() {
        return Err(Error::NO_SUCH_KEY);
    }
    if from.bytes == to.bytes {
        return Ok(false);
    }
    if unless_taken && cx.lock(&to).find_anywhere(&to).is_some() {
        return Ok(false);
    }
    cx.store.rename(cx.db(), &from, &to);
    Ok(true)
}

/// Argument `index` as the number of a database.
fn database(cx: &Context<'_>, args: Args<'_>, index: usize) -> Result<usize, Error> {
    let number = i32::try_from(args.int(index)?).map_err(|_| {
        let (min, max) = (i32::MIN, i32::MAX);
        Error::from(format!("ERR value is out of range, value must between {min} and {max}"))
    })?;
    let databases = cx.store.store().databases();
    usize::try_from(number).ok().filter(|&db| db < databases).ok_or(DB_RANGE)
}

fn move_(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if cx.server.cluster.enabled {
        return Err(Error::new("ERR MOVE is not allowed in cluster mode").into());
    }
    let (from, to) = (cx.db(), database(cx, args, 2)?);
    if from == to {
        return Err(SAME_OBJECT.into());
    }
    let key = cx.key(args.bytes(1));
    let _held = cx.store.hold([(from, key), (to, key)]);
    let there = cx.store.lock(from, &key).find_anywhere(&key).is_some();
    if !there || cx.store.lock(to, &key).find_anywhere(&key).is_some() {
        out.w().integer(0);
        return Ok(());
    }
    cx.store.move_key(&key, from, to);
    out.w().integer(1);
    Ok(())
}

fn copy(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (mut to_db, mut replace) = (cx.db(), false);
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "replace") {
            replace = true;
            at += 1;
        } else if args.is(at, "db") && at + 1 < args.len() {
            to_db = database(cx, args, at + 1)?;
            at += 2;
        } else {
            return Err(Error::SYNTAX.into());
        }
    }
    let from_db = cx.db();
    if cx.server.cluster.enabled && (from_db != 0 || to_db != 0) {
        return Err(
            Error::new("ERR Copying to another database is not allowed in cluster mode").into()
        );
    }
    let (from, to) = (cx.key(args.bytes(1)), cx.key(args.bytes(2)));
    if from_db == to_db && from.bytes == to.bytes {
        return Err(SAME_OBJECT.into());
    }
    let _held = cx.store.hold([(from_db, from), (to_db, to)]);
    let taken = |cx: &Context<'_>| cx.store.lock(to_db, &to).find_entry(&to).is_some();
    let there = cx.find_to_read(&mut cx.lock(&from), &from).is_some();
    let copies = there && (replace || !taken(cx));
    if copies {
        cx.store.copy((from_db, &from), (to_db, &to));
    }
    out.w().integer(i64::from(copies));
    Ok(())
}

fn randomkey(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    match cx.store.random_key(cx.db()) {
        Some(key) => out.w().bulk(&key),
        None => out.w().null(),
    }
    Ok(())
}

fn keys(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    cx.goes_through(cx.store.store().keys(cx.db()) as usize)?;
    let pattern = args.bytes(1);
    let all = pattern == b"*";
    let header = out.w().array_deferred();
    let mut found = 0;
    cx.store.scan(cx.db(), 0, usize::MAX, |key, _| {
        if all || crate::text::glob::matches(pattern, key, false) {
            out.w().bulk(key);
            found += 1;
        }
    });
    out.w().set_array_len(header, found);
    Ok(())
}

/// A cursor as Redis reads it: an unsigned number with an optional sign, which
/// a minus wraps around; nothing at all is 0.
pub(super) fn cursor(text: &[u8]) -> Result<u64, Error> {
    const INVALID: Error = Error::new("ERR invalid cursor");
    if text.is_empty() {
        return Ok(0);
    }
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(INVALID);
    }
    let value = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
    let value = value.ok_or(INVALID)?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// The options of `SCAN`, and of the scans of collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    pub(super) count: usize,
    /// Fields of a hash are wanted without their values.
    pub(super) no_values: bool,
}

/// What is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    Keys,
    Fields,
    Members,
}

impl<'a> ScanOptions<'a> {
    /// Those from argument `from` on; keys alone have types, fields alone values.
    pub(super) fn parse(args: Args<'a>, from: usize, of: Scanned) -> Result<Self, Error> {
        let mut options = Self { pattern: None, kind: None, count: 10, no_values: false };
        let mut at = from;
        while at < args.len() {
            if of == Scanned::Fields && args.is(at, "novalues") {
                options.no_values = true;
                at += 1;
                continue;
            }
            let value = args.get(at + 1).ok_or(Error::SYNTAX)?;
            if args.is(at, "count") {
                options.count = args.int(at + 1)?.try_into().unwrap_or(0);
                if options.count < 1 {
                    return Err(Error::SYNTAX);
                }
            } else if args.is(at, "match") {
                options.pattern = (value != b"*").then_some(value);
            } else if of == Scanned::Keys && args.is(at, "type") {
                options.kind = Some(value);
            } else {
                return Err(Error::SYNTAX);
            }
            at += 2;
        }
        Ok(options)
    }

    /// Whether a name is asked for.
    pub(super) fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| crate::text::glob::matches(pattern, name, false))
    }
}

fn scan(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let cursor = cursor(args.bytes(1))?;
    let options = ScanOptions::parse(args, 2, Scanned::Keys)?;
    cx.goes_through(options.count.min(cx.store.store().keys(cx.db()) as usize))?;
    let mut found = 0;
    let mut encoded = Vec::new();
    let mut keys = Writer::new(&mut encoded, out.protocol);
    let wanted = |key: &[u8], key_type: Type| {
        let name = key_type.name().as_bytes();
        options.kind.is_none_or(|kind| kind.eq_ignore_ascii_case(name)) && options.wants(key)
    };
    let next = cx.store.scan_wanted(cx.db(), cursor, options.count, wanted, |key, _| {
        keys.bulk(key);
        found += 1;
    });
    out.w().array(2);
    out.w().bulk_display(next);
    out.w().array(found);
    out.bytes.extend_from_slice(&encoded);
    Ok(())
}

/// The unit of a time argument or reply, in milliseconds.
const SECONDS: i64 = 1000;
const MILLISECONDS: i64 = 1;

fn expire(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expire_at(cx, args, out, SECONDS, true)
}

fn pexpire(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expire_at(cx, args, out, MILLISECONDS, true)
}

fn expireat(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expire_at(cx, args, out, SECONDS, false)
}

fn pexpireat(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expire_at(cx, args, out, MILLISECONDS, false)
}

/// When an expiry is to be set at all.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Result<Self, Error> {
        let mut on = Self::default();
        for (index, word) in args.iter_from(3).enumerate() {
            let condition = match index + 3 {
                at if args.is(at, "nx") => &mut on.nx,
                at if args.is(at, "xx") => &mut on.xx,
                at if args.is(at, "gt") => &mut on.gt,
                at if args.is(at, "lt") => &mut on.lt,
                _ => {
                    return Err(Error::from([b"ERR Unsupported option ", word].concat()));
                }
            };
            *condition = true;
        }
        if on.nx && (on.xx || on.gt || on.lt) {
            return Err(Error::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if on.gt && on.lt {
            return Err(Error::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(on)
    }

    /// Whether a key that expires at `current`, if at all, is to expire at
    /// `at`. Never expiring counts as later than any time.
    fn allow(self, current: Option<i64>, at: i64) -> bool {
        !(self.nx && current.is_some()
            || self.xx && current.is_none()
            || self.gt && current.is_none_or(|current| at <= current)
            || self.lt && current.is_some_and(|current| at >= current))
    }
}

fn expire_at(
    cx: &mut Context<'_>,
    args: Args<'_>,
    out: &mut Out,
    unit: i64,
    relative: bool,
) -> Answer {
    let conditions = Conditions::parse(args)?;
    let now = cx.store.now() as i64;
    let at = args.int(2)?.checked_mul(unit);
    let at = at.and_then(|at| if relative { at.checked_add(now) } else { Some(at) });
    let at = at.ok_or_else(|| {
        Error::from(format!("ERR invalid expire time in '{}' command", cx.command.full_name()))
    })?;
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let set = match slot.find_anywhere(&key) {
        Some(found) if conditions.allow(slot.expiry(found).map(|ms| ms as i64), at) => {
            if at <= now && cx.origin.minds_time() {
                slot.apply(&key, Some(found), Delete, Event::DEL);
            } else {
                slot.apply(&key, Some(found), Expire(Some(at as u64)), Event::EXPIRE);
            }
            1
        }
        _ => 0,
    };
    out.w().integer(set);
    Ok(())
}

fn ttl(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expiry(cx, args, out, SECONDS, true)
}

fn pttl(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expiry(cx, args, out, MILLISECONDS, true)
}

fn expiretime(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expiry(cx, args, out, SECONDS, false)
}

fn pexpiretime(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    expiry(cx, args, out, MILLISECONDS, false)
}

/// Answers when a key expires, rounded to the nearest unit; -1 for never, -2
/// if there is no such key.
fn expiry(
    cx: &mut Context<'_>,
    args: Args<'_>,
    out: &mut Out,
    unit: i64,
    relative: bool,
) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let answer = match cx.peek(&mut slot, &key).map(|found| slot.expiry(found)) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let from = if relative { slot.now() } else { 0 };
            (at.saturating_sub(from) as i64).saturating_add(unit / 2) / unit
        }
    };
    out.w().integer(answer);
    Ok(())
}

fn persist(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let expiring = slot.find_anywhere(&key).filter(|&found| slot.expiry(found).is_some());
    if expiring.is_some() {
        slot.apply(&key, expiring, Expire(None), PERSIST);
    }
    out.w().integer(i64::from(expiring.is_some()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_redis_reads_them() {
        let valid: [(&[u8], u64); 6] = [
            (b"0", 0),
            (b"", 0),
            (b"+7", 7),
            (b"0012", 12),
            (b"-1", u64::MAX),
            (b"18446744073709551615", u64::MAX),
        ];
        for (text, value) in valid {
            assert_eq!(cursor(text), Ok(value));
        }
        let invalid: [&[u8]; 6] = [b" 1", b"1 ", b"x", b"-", b"1x", b"18446744073709551616"];
        for text in invalid {
            assert!(cursor(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn never_counts_as_the_latest_expiry() {
        let [mut gt, mut lt, mut nx, mut xx] = [Conditions::default(); 4];
        (gt.gt, lt.lt, nx.nx, xx.xx) = (true, true, true, true);
        assert_eq!(
            [None, Some(5), Some(6), Some(7)].map(|c| gt.allow(c, 6)),
            [false, true, false, false]
        );
        assert_eq!(
            [None, Some(5), Some(6), Some(7)].map(|c| lt.allow(c, 6)),
            [true, false, false, true]
        );
        assert_eq!([None, Some(5)].map(|c| nx.allow(c, 6)), [true, false]);
        assert_eq!([None, Some(5)].map(|c| xx.allow(c, 6)), [false, true]);
    }
}
