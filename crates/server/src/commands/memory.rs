//! MEMORY: what keys and the server take, by the allocator's own count.

use crate::command::flags::*;
use crate::command::{Command, Group};
use crate::commands::info::resident;
use crate::commands::{self, container};
use crate::context::{Args, Context};
use crate::error::Error;
use crate::out::Out;
use snug_store::{DATABASES, Type};
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

const SLOW: &str = "Depends on how much memory is allocated, could be slow";

pub(crate) const COMMANDS: &[Command] = &[Command::new("memory", -2, container)
    .about(Group::Server, "4.0.0", "Depends on subcommand.", "Shows what takes memory.")
    .subcommands(&[
        Command::new("usage", -3, usage).of("memory").flags(READONLY).key(2).about(
            Group::Server,
            "4.0.0",
            "O(N) where N is the number of samples.",
            "Returns the bytes that a key and its value take.",
        ),
        Command::new("stats", 2, stats).of("memory").about(
            Group::Server,
            "4.0.0",
            "O(1)",
            "Returns what the server's memory is used for.",
        ),
        Command::new("doctor", 2, doctor).of("memory").about(
            Group::Server,
            "4.0.0",
            "O(1)",
            "Says what is unusual about the memory in use.",
        ),
        Command::new("purge", 2, purge).of("memory").about(
            Group::Server,
            "4.0.0",
            SLOW,
            "Gives freed memory back to the system.",
        ),
        Command::new("malloc-stats", 2, malloc_stats).of("memory").about(
            Group::Server,
            "4.0.0",
            SLOW,
            "Returns the allocator's figures.",
        ),
        Command::new("help", 2, help).of("memory").flags(LOADING | STALE).about(
            Group::Server,
            "4.0.0",
            "O(1)",
            "Says what the subcommands do.",
        ),
    ])];

/// Exact, so that `SAMPLES` changes nothing. With `RAW`, what the key would take
/// if its value were not packed.
fn usage(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let (mut at, mut raw) = (3, false);
    while at < args.len() {
        if args.is(at, "raw") {
            raw = true;
            at += 1;
            continue;
        }
        if !args.is(at, "samples") || at + 1 == args.len() {
            return Err(Error::SYNTAX);
        }
        if args.int(at + 1)? < 0 {
            return Err(Error::SYNTAX);
        }
        at += 2;
    }
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    match slot.find_untouched(&key) {
        Some(found) => {
            let anatomy = slot.anatomy(found);
            let allocated = if raw { anatomy.allocated_raw } else { anatomy.allocated };
            out.w().integer(allocated as i64);
        }
        None => out.w().null(),
    }
    Ok(())
}

/// What the server's memory is used for.
struct Usage {
    used: usize,
    peak: usize,
    resident: usize,
    /// Entries with their keys and values, and the tables they are in.
    dataset: usize,
    keys: u64,
    clients: usize,
}

fn measure(cx: &Context<'_>) -> Usage {
    let store = cx.store.store();
    let used = snug_store::memory::used();
    let peak = cx.server.peak_memory.fetch_max(used, Relaxed).max(used);
    let tables: usize = (0..DATABASES).map(|db| cx.store.table_bytes(db)).sum();
    let values: u64 = Type::ALL.iter().map(|&kind| store.type_memory(kind).allocated).sum();
    let clients = cx.server.clients.read();
    let of_client = |client: &std::sync::Arc<crate::client::Shared>| {
        let figures = &client.figures;
        let queued = figures.multi_bytes.load(Relaxed) + figures.output_bytes.load(Relaxed);
        size_of::<crate::client::Shared>() + figures.query_capacity.load(Relaxed) + queued
    };
    Usage {
        used,
        peak,
        resident: resident(),
        dataset: tables + values as usize,
        keys: (0..DATABASES).map(|db| store.keys(db)).sum(),
        clients: clients.values().map(of_client).sum(),
    }
}

fn ratio(a: usize, b: usize) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

fn stats(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let usage = measure(cx);
    let overhead = usage.used.saturating_sub(usage.dataset);
    let databases: Vec<(usize, usize)> = (0..DATABASES)
        .filter(|&db| cx.store.store().keys(db) > 0)
        .map(|db| (db, cx.store.table_bytes(db)))
        .collect();
    let integers = [
        ("peak.allocated", usage.peak),
        ("total.allocated", usage.used),
        ("startup.allocated", cx.server.startup_memory.load(Relaxed)),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", usage.clients),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
    ];
    let more = [
        ("overhead.total", overhead),
        ("keys.count", usage.keys as usize),
        ("keys.bytes-per-key", usage.used.checked_div(usage.keys as usize).unwrap_or(0)),
        ("dataset.bytes", usage.dataset),
    ];
    let mut w = out.w();
    w.map(integers.len() + databases.len() + more.len() + 12);
    let mut number = |name: &str, value: usize| {
        w.bulk(name.as_bytes());
        w.integer(value as i64);
    };
    integers.iter().for_each(|(name, value)| number(name, *value));
    for (db, table) in databases {
        let mut w = out.w();
        w.bulk(format!("db.{db}").as_bytes());
        w.map(3);
        w.bulk(b"overhead.hashtable.main");
        w.integer(table as i64);
        w.bulk(b"overhead.hashtable.expires");
        w.integer(0);
        w.bulk(b"overhead.hashtable.slot-to-keys");
        w.integer(0);
    }
    let mut w = out.w();
    for (name, value) in more {
        w.bulk(name.as_bytes());
        w.integer(value as i64);
    }
    let mut double = |name: &str, value: f64| {
        w.bulk(name.as_bytes());
        w.double(value);
    };
    double("dataset.percentage", 100.0 * ratio(usage.dataset, usage.used));
    double("peak.percentage", 100.0 * ratio(usage.used, usage.peak));
    let mut w = out.w();
    for (name, value) in [
        ("allocator.allocated", usage.used),
        ("allocator.active", usage.resident),
        ("allocator.resident", usage.resident),
    ] {
        w.bulk(name.as_bytes());
        w.integer(value as i64);
    }
    let spare = usage.resident as i64 - usage.used as i64;
    for (name, of, bytes) in [
        ("allocator-fragmentation", ratio(usage.resident, usage.used), spare),
        ("allocator-rss", 1.0, 0),
        ("rss-overhead", 1.0, 0),
    ] {
        w.bulk(format!("{name}.ratio").as_bytes());
        w.double(of);
        w.bulk(format!("{name}.bytes").as_bytes());
        w.integer(bytes);
    }
    w.bulk(b"fragmentation");
    w.double(ratio(usage.resident, usage.used));
    Ok(())
}

/// Below this, nothing said about memory means much.
const LITTLE: usize = 5 * 1024 * 1024;

fn doctor(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let usage = measure(cx);
    let mut text = String::new();
    if usage.used < LITTLE {
        text.push_str("There is too little data to say anything about its memory.\n");
        out.w().verbatim("txt", text.as_bytes());
        return Ok(());
    }
    let mut found = |yes: bool, what: String| {
        if yes {
            let _ = writeln!(text, " * {what}");
        }
    };
    let now = 100.0 * ratio(usage.used, usage.peak);
    found(
        now < 66.0,
        format!(
            "Peak: memory in use is {now:.0} % of what it was at its peak; MEMORY PURGE gives freed memory back."
        ),
    );
    let fragmentation = ratio(usage.resident, usage.used);
    found(
        fragmentation > 1.4,
        format!("Fragmentation: {fragmentation:.2} bytes are resident for each byte in use."),
    );
    let clients = cx.server.clients.read().len().max(1);
    found(
        usage.clients / clients > 200 * 1024,
        format!("Clients: each takes {} bytes of buffers on average.", usage.clients / clients),
    );
    if text.is_empty() {
        text.push_str("Nothing is unusual about the memory in use.\n");
    } else {
        text.insert_str(0, "This is unusual about the memory in use:\n\n");
    }
    out.w().verbatim("txt", text.as_bytes());
    Ok(())
}

fn purge(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Result<(), Error> {
    snug_store::memory::purge();
    out.w().ok();
    Ok(())
}

fn malloc_stats(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let usage = measure(cx);
    let text = format!(
        "allocator:mimalloc\nallocated:{}\npeak:{}\nresident:{}\ndataset:{}\n",
        usage.used, usage.peak, usage.resident, usage.dataset
    );
    out.w().verbatim("txt", text.as_bytes());
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let lines = [
        ("DOCTOR", "Say what is unusual about the memory in use."),
        ("MALLOC-STATS", "Return the allocator's figures."),
        ("PURGE", "Give freed memory back to the system."),
        ("STATS", "Return what the server's memory is used for."),
        (
            "USAGE <key> [SAMPLES <count>] [RAW]",
            "Return the bytes that a key and its value take, or with RAW would take unpacked; exact, whatever <count> is.",
        ),
    ];
    commands::help(out, "MEMORY", &lines);
    Ok(())
}
