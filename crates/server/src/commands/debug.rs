//! DEBUG: what tests and benchmarks need, for whoever `enable-debug-command`
//! lets in.
//!
//! As in Redis, it is one command to the command table and not a container.

use crate::commands;
use crate::commands::digest;
use crate::commands::mirror;
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::outside::clock::Instant;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::glob;
use snug_resp::{Protocol, parse_integer};
use snug_store::Event;
use snug_store::{NewStr, Set, SetExpiry};
use std::io::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(crate) const COMMANDS: &[Command] =
    &[Command::new("debug", -2, debug).flags(ADMIN | NOSCRIPT | LOADING | STALE | WIDE).about(
        Group::Server,
        "1.0.0",
        "Depends on subcommand.",
        "Looks inside the server, for tests.",
    )];

fn debug(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    cx.let_in("DEBUG", Param::EnableDebugCommand)?;
    let name = args.bytes(1).to_ascii_lowercase();
    match (name.as_slice(), args.len()) {
        (b"help", 2) => help(out),
        (b"digest", 2) => {
            let digest = digest::of_all(cx)?;
            out.w().simple(&digest.to_string());
        }
        (b"digest-value", _) => {
            out.w().array(args.len() - 2);
            for key in args.iter_from(2) {
                let digest = digest::of_value(cx, key)?;
                out.w().simple(&digest.to_string());
            }
        }
        (b"populate", 3..=5) => populate(cx, args, out)?,
        (b"sleep", 3) => sleep(cx, args.bytes(2), out),
        (b"object", 3 | 4) => object(cx, args, out)?,
        (b"set-active-expire", 3) => {
            let on = parse_integer(args.bytes(2)).unwrap_or(0) != 0;
            cx.server.active_expire.store(on, Relaxed);
            out.w().ok();
        }
        (b"set-disable-deny-scripts", 3) => {
            let on = parse_integer(args.bytes(2)).unwrap_or(0) != 0;
            cx.server.scripts.allow_all.store(on, Relaxed);
            out.w().ok();
        }
        (b"stringmatch-len", 4) => string_match(args, out)?,
        (b"htstats", 3 | 4) => table_stats(cx, args, out)?,
        (b"mirror", 3) => mirror(cx, args, out)?,
        (b"reload", _) => return reload(cx, args, out),
        (b"error", 3) => out.w().error_bytes(args.bytes(2)),
        (b"log", 3) => {
            tracing::warn!("DEBUG LOG: {}", String::from_utf8_lossy(args.bytes(2)));
            out.w().ok();
        }
        (b"protocol", 3) => protocol(args, out)?,
        _ => {
            return Err(commands::misused("debug", args.bytes(1)).into());
        }
    }
    Ok(())
}

/// Has a second store follow this one, and compares the two.
fn mirror(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.is(2, "start") {
        mirror::start(cx)?;
    } else if args.is(2, "check") {
        mirror::check(cx)?;
    } else if args.is(2, "stop") {
        mirror::stop(cx);
    } else {
        return Err(Error::SYNTAX.into());
    }
    out.w().ok();
    Ok(())
}

/// Saves everything, and loads it again in the place of what there is. Meanwhile commands
/// are answered as while the server loads at its start.
fn reload(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if let Some(done) = cx.waited() {
        let failed = "ERR Error trying to load the RDB dump, check server logs.";
        done.map_err(|_| Error::new(failed))?;
        out.w().ok();
        return Ok(());
    }
    let (mut save, mut flush) = (true, true);
    for option in args.iter_from(2) {
        match option.to_ascii_lowercase().as_slice() {
            b"nosave" => save = false,
            b"noflush" => flush = false,
            b"merge" => {}
            _ => {
                return Err(Error::new(
                    "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                )
                .into());
            }
        }
    }
    let done = cx.server.persist.reload(save, flush);
    Err(cx.wait_until(
        async move { done.await.unwrap_or_else(|_| Err("it ended".into())).map(|()| 0) },
    ))
}

/// Keys created before whole-database operations of others are let in.
const POPULATE_AT_ONCE: usize = 256;
/// The longest value that `POPULATE` makes.
const POPULATE_SIZE_MAX: i64 = 512 * 1024 * 1024;

/// Creates keys `prefix:0` to `prefix:count-1` that do not exist, with values
/// `value:0` ..., cut or filled with zeros to `size` if it is given.
fn populate(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let positive = |at: usize| {
        let number = parse_integer(args.bytes(at)).filter(|&n| n >= 0);
        number.ok_or(Error::new("ERR value is out of range, must be positive"))
    };
    let count = positive(2)?;
    let size = if args.len() == 5 { Some(positive(4)?) } else { None };
    if size.is_some_and(|size| size > POPULATE_SIZE_MAX) {
        return Err(Error::new("ERR value is out of range, must be positive").into());
    }
    let prefix = args.get(3).unwrap_or(b"key");
    let (mut name, mut value) = (Vec::with_capacity(prefix.len() + 21), Vec::new());
    let mut digits = itoa::Buffer::new();
    let db = cx.db();
    for number in 0..count {
        if number as usize % POPULATE_AT_ONCE == POPULATE_AT_ONCE - 1 {
            cx.store.outside(|| ());
            if cx.server.ending.load(Relaxed) {
                break;
            }
        }
        let digits = digits.format(number);
        name.clear();
        name.extend_from_slice(prefix);
        name.push(b':');
        name.extend_from_slice(digits.as_bytes());
        let key = cx.store.key(&name);
        let mut slot = cx.store.lock(db, &key);
        if slot.find_entry(&key).is_some() {
            continue;
        }
        value.clear();
        value.extend_from_slice(b"value:");
        value.extend_from_slice(digits.as_bytes());
        if let Some(size) = size {
            value.resize(size as usize, 0);
        }
        let set = Set { value: NewStr::Bytes(&value), expiry: SetExpiry::Clear };
        slot.apply(&key, None, set, Event::NONE);
        drop(slot);
        cx.store.settle();
    }
    out.w().ok();
    Ok(())
}

/// How often a sleeping worker looks whether the server is ending.
const SLEEP_SLICE: Duration = Duration::from_millis(50);

/// Stops this worker, as Redis stops itself. Others go on.
fn sleep(cx: &mut Context<'_>, seconds: &[u8], out: &mut Out) {
    let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse().ok());
    let length = Duration::try_from_secs_f64(seconds.unwrap_or(0.0)).unwrap_or_default();
    let server = cx.server;
    cx.store.outside(|| {
        let began = Instant::now();
        while !server.ending.load(Relaxed) {
            match length.checked_sub(began.elapsed()) {
                Some(left) if !left.is_zero() => std::thread::sleep(left.min(SLEEP_SLICE)),
                _ => break,
            }
        }
    });
    out.w().ok();
}

fn object(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = slot.find_entry(&key).ok_or(Error::NO_SUCH_KEY)?;
    let anatomy = slot.anatomy(found);
    let packed = anatomy.packed.map_or(anatomy.raw, |p| anatomy.raw - p.raw + p.packed);
    out.w().simple(&format!(
        "Value at:0x0 refcount:1 encoding:{} serializedlength:{} lru:0 lru_seconds_idle:{} \
         allocated:{} packed:{packed} access:{}",
        anatomy.encoding,
        anatomy.raw,
        u8::from(anatomy.access == 0),
        anatomy.allocated,
        anatomy.access,
    ));
    Ok(())
}

/// The most bytes that `STRINGMATCH-LEN` matches against.
const MATCH_LEN_MAX: i64 = 1 << 20;

/// Whether a pattern matches so many `a`: shows that no pattern takes forever.
fn string_match(args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let len = args.int(2)?;
    if !(0..=MATCH_LEN_MAX).contains(&len) {
        return Err(Error::new("ERR value is out of range"));
    }
    let text = vec![b'a'; len as usize];
    out.w().integer(i64::from(glob::matches(args.bytes(3), &text, false)));
    Ok(())
}

/// What Redis says of its hash tables, said of slots.
fn table_stats(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let db = usize::try_from(args.int(2)?).ok().filter(|&db| db < cx.store.store().databases());
    let Some(db) = db else { return Err(Error::new("ERR Out of range database").into()) };
    let store = cx.store.store();
    let mut text = Vec::new();
    for (title, elements) in
        [("[Dictionary HT]", store.keys(db)), ("[Expires HT]", store.expiring(db))]
    {
        // Writing to a vector does not fail.
        let _ = writeln!(text, "{title}\nHash table 0 stats (main hash table):");
        if elements == 0 {
            let _ = writeln!(text, "No stats available for empty dictionaries");
            continue;
        }
        let sizes = cx.store.slot_sizes(db);
        let (used, most) =
            sizes.fold((0, 0), |(used, most), keys| (used + usize::from(keys > 0), keys.max(most)));
        let _ = writeln!(text, " table size: {}", snug_store::SLOTS);
        let _ = writeln!(text, " number of elements: {elements}");
        let _ = writeln!(text, " different slots: {used}");
        let _ = writeln!(text, " max chain length: {most}");
        let _ = writeln!(text, " table bytes: {}", cx.store.table_bytes(db));
    }
    out.w().verbatim("txt", &text);
    Ok(())
}

/// A value of each type of the protocol, for client libraries' tests.
fn protocol(args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let name = args.bytes(2).to_ascii_lowercase();
    let resp3 = out.protocol == Protocol::Resp3;
    let mut w = out.w();
    match name.as_slice() {
        b"string" => w.bulk(b"Hello World"),
        b"integer" => w.integer(12345),
        // The very number that Redis answers, not an approximation of pi.
        #[allow(clippy::approx_constant)]
        b"double" => w.double(3.141),
        b"null" => w.null(),
        b"array" => {
            w.array(3);
            (0..3).for_each(|n| w.integer(n));
        }
        b"set" => {
            w.set(3);
            (0..3).for_each(|n| w.integer(n));
        }
        b"map" => {
            w.map(3);
            for n in 0..3 {
                w.integer(n);
                w.boolean(n == 1);
            }
        }
        b"attrib" => {
            if w.attribute(1) {
                w.bulk(b"key-popularity");
                w.array(2);
                w.bulk(b"key:123");
                w.integer(90);
            }
            w.bulk(b"Some real reply following the attribute");
        }
        b"push" if resp3 => {
            w.push(2);
            w.bulk(b"server-cpu-usage");
            w.integer(42);
        }
        b"push" => return Err(Error::new("ERR RESP2 is not supported by this command")),
        b"bignum" => w.big_number("1234567999999999999999999999999999999"),
        b"true" => w.boolean(true),
        b"false" => w.boolean(false),
        b"verbatim" => w.verbatim("txt", b"This is a verbatim\nstring"),
        _ => {
            return Err(Error::new(
                "ERR Wrong protocol type name. Please use one of the following: string|integer|double|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

fn help(out: &mut Out) {
    let lines = [
        (
            "DIGEST",
            "Answer with 40 hex digits of the whole dataset, after a pass over all of it; zeros if it is empty.",
        ),
        (
            "DIGEST-VALUE [<key> ...]",
            "Answer with 40 hex digits of each key's value; zeros if there is none.",
        ),
        ("ERROR <string>", "Answer with this error."),
        ("HTSTATS <dbid>", "Describe the slots of a database."),
        ("LOG <message>", "Write a message to the log."),
        ("OBJECT <key>", "Describe how a key is held."),
        (
            "MIRROR <START|CHECK|STOP>",
            "Keep a second store that is fed with the commits of this one; compare the two. START wants no keys; until a CHECK every write is kept.",
        ),
        (
            "POPULATE <count> [<prefix>] [<size>]",
            "Create <count> string keys <prefix>:<number>; the prefix is 'key' unless given.",
        ),
        (
            "PROTOCOL <type>",
            "Answer with a value of this type: string, integer, double, bignum, null, array, set, map, attrib, push, verbatim, true, false.",
        ),
        (
            "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
            "Save everything and load it again: NOFLUSH keeps what there is, NOSAVE loads what was saved before.",
        ),
        ("SET-DISABLE-DENY-SCRIPTS <0|1>", "Let scripts call what they may not else."),
        ("SET-ACTIVE-EXPIRE <0|1>", "Choose whether expired keys are removed unasked."),
        ("SLEEP <seconds>", "Stop the worker for <seconds>, which may be a decimal."),
        ("STRINGMATCH-LEN <len> <pattern>", "Match a pattern against <len> times 'a'."),
    ];
    commands::help(out, "DEBUG", &lines);
}
