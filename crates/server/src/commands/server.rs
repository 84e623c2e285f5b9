//! Commands about whole databases and the server itself: `DBSIZE`,
//! `FLUSHDB`, `FLUSHALL`, `SWAPDB`, `TIME`, `LOLWUT`, `MONITOR`.
//!
//! Emptying or swapping databases closes every gate of the store, so it is one
//! step for everybody; what a database held is freed afterwards, and with
//! `ASYNC` on a thread of its own.

use crate::auth::Categories;
use crate::commands::connection::{REDIS_VERSION, database};
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::{Context, Origin};
use crate::engine::out::Out;
use crate::outside::chance;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::work::reclaim::Lazily;
use rand::RngExt as _;
use snug_resp::parse_integer;
use snug_store::Flushed;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("dbsize", 1, dbsize).flags(READONLY | FAST).acl(Categories::KEYSPACE).about(
        Group::Server,
        "1.0.0",
        "O(1)",
        "Returns the number of keys in the database.",
    ),
    Command::new("flushdb", -1, flushdb).flags(WRITE | WIDE).acl(Categories::KEYSPACE.and(Categories::DANGEROUS)).about(
        Group::Server,
        "1.0.0",
        "O(N) where N is the number of keys in the selected database",
        "Removes all keys of the database.",
    ),
    Command::new("flushall", -1, flushall).flags(WRITE | WIDE).acl(Categories::KEYSPACE.and(Categories::DANGEROUS)).about(
        Group::Server,
        "1.0.0",
        "O(N) where N is the total number of keys in all databases",
        "Removes all keys of all databases.",
    ),
    Command::new("swapdb", 3, swapdb).flags(WRITE | FAST | WIDE).acl(Categories::KEYSPACE.and(Categories::DANGEROUS)).about(
        Group::Server,
        "4.0.0",
        "O(N) where N is the count of clients watching or blocking on keys from both databases.",
        "Swaps two databases.",
    ),
    Command::new("time", 1, time).flags(LOADING | STALE | FAST).about(
        Group::Server,
        "2.6.0",
        "O(1)",
        "Returns the server's time: seconds, and microseconds within the second.",
    ),
    Command::new("lolwut", -1, lolwut).flags(READONLY | FAST).about(
        Group::Server,
        "5.0.0",
        "",
        "Draws something.",
    ),
    Command::new("monitor", 1, monitor).flags(ADMIN | NOSCRIPT | LOADING | STALE).about(
        Group::Server,
        "1.0.0",
        "",
        "Shows the connection every command that the server executes.",
    ),
];

fn dbsize(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    out.w().integer(cx.store.store().keys(cx.db()) as i64);
    Ok(())
}

fn flushdb(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let db = cx.db();
    flush(cx, args, Some(db))?;
    out.w().ok();
    Ok(())
}

fn flushall(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    flush(cx, args, None)?;
    out.w().ok();
    Ok(())
}

/// Empties all databases or one in one step, and frees what they held now or, if asked
/// to, on another thread.
fn flush(cx: &mut Context<'_>, args: Args<'_>, only: Option<usize>) -> Result<(), Error> {
    let background = match args.len() {
        1 => cx.server.config.is_on(Param::LazyfreeLazyUserFlush),
        2 if args.is(1, "async") => true,
        2 if args.is(1, "sync") => false,
        _ => return Err(Error::SYNTAX),
    };
    let alone = cx.store.exclusive();
    let mut flushed = Vec::new();
    let mut keys = 0;
    let own = cx.db();
    let all = || cx.store.store().databases_used().filter(|&db| db != own).chain([own]).collect();
    let dbs: Vec<usize> = only.map_or_else(all, |db| vec![db]);
    for db in dbs {
        keys += cx.store.store().keys(db);
        flushed.push(cx.store.flush(db));
    }
    let store = cx.store.store();
    if store.keys_of_all() == 0 {
        store.families().emptied();
    }
    drop(alone);
    if background {
        free_elsewhere(flushed, keys);
    }
    Ok(())
}

/// Frees what was flushed, so many keys, on a thread of its own; on this one if
/// there can be no other.
fn free_elsewhere(flushed: Vec<Flushed>, keys: u64) {
    let freeing = (flushed, Lazily::new(keys));
    let thread = std::thread::Builder::new().name("flush".into());
    if let Err(error) = thread.spawn(move || drop(freeing)) {
        tracing::warn!(%error, "no thread to free a flushed database: freed at once");
    }
}

fn swapdb(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if cx.server.cluster.enabled {
        return Err(Error::new("ERR SWAPDB is not allowed in cluster mode").into());
    }
    let number = |at, which| {
        let invalid = || Error::from(format!("ERR invalid {which} DB index"));
        parse_integer(args.bytes(at)).ok_or_else(invalid)
    };
    let (first, second) = (number(1, "first")?, number(2, "second")?);
    let (first, second) = (database(cx, first)?, database(cx, second)?);
    if first != second {
        cx.store.swap(first, second);
    }
    out.w().ok();
    Ok(())
}

fn time(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    out.w().array(2);
    out.w().bulk_integer(now.as_secs() as i64);
    out.w().bulk_integer(i64::from(now.subsec_micros()));
    Ok(())
}

fn monitor(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    if matches!(cx.origin, Origin::Exec) {
        return Err(Error::new("ERR MONITOR isn't allowed for DENY BLOCKING client").into());
    }
    // Who is one already is not even answered.
    let server = cx.server;
    let client = &cx.client()?.shared;
    if client.figures.monitoring.swap(true, Relaxed) {
        return Ok(());
    }
    server.monitor.follow(client);
    out.w().ok();
    Ok(())
}

/// Columns and rows of the drawing, unless told, and at most.
const COLUMNS: usize = 64;
const ROWS: usize = 10;
const COLUMNS_MAX: usize = 200;
const ROWS_MAX: usize = 60;

/// Draws boxes of random widths, packed row by row so that no gap is left.
fn lolwut(_: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let mut first = 1;
    if args.is(1, "version") {
        // Without a number it says nothing.
        first = args.len().min(3);
        if args.len() > 2 {
            args.int(2)?;
        }
    }
    let size = |at: usize, default: usize, max: usize| match args.get(at) {
        Some(_) => args.int(at).map(|n| n.clamp(1, max as i64) as usize),
        None => Ok(default),
    };
    let columns = size(first, COLUMNS, COLUMNS_MAX)?;
    let rows = size(first + 1, ROWS, ROWS_MAX)?;
    let mut drawing = String::new();
    for _ in 0..rows {
        let (mut top, mut bottom) = (String::new(), String::new());
        let mut left = columns;
        while left > 0 {
            // Two columns for the sides; what would be too narrow joins in.
            let mut inner = chance::rng().random_range(1..=9).min(left.saturating_sub(2).max(1));
            if left - (inner + 2).min(left) < 3 {
                inner = left.saturating_sub(2).max(1);
            }
            let fill = ['░', '▒', '▓', '█'][chance::rng().random_range(0..4)];
            top.push('▐');
            top.extend(std::iter::repeat_n(fill, inner));
            top.push('▌');
            bottom.push('▝');
            bottom.extend(std::iter::repeat_n('▀', inner));
            bottom.push('▘');
            left = left.saturating_sub(inner + 2);
        }
        // Writing to a string does not fail.
        let _ = writeln!(drawing, "{top}\n{bottom}");
    }
    let version = env!("CARGO_PKG_VERSION");
    let _ = writeln!(drawing, "\nEverything fits, if you pack it. Snug {version}");
    let _ = writeln!(drawing, "Redis ver. {REDIS_VERSION}");
    out.w().verbatim("txt", drawing.as_bytes());
    Ok(())
}
