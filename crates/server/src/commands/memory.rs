//! MEMORY: what keys and the server take, by the allocator's own count.

use crate::commands::info::{View, resident};
use crate::commands::{self, container};
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_codec::Codec;
use snug_codec::family::Verdict;
use snug_store::Type;
use snug_store::families::FamilyInfo;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const SLOW: &str = "Depends on how much memory is allocated, could be slow";

pub(crate) const COMMANDS: &[Command] = &[Command::new("memory", -2, container)
    .about(Group::Server, "4.0.0", "Depends on subcommand.", "Shows what takes memory.")
    .subcommands(&[
        Command::new("usage", -3, usage).of("memory").flags(READONLY).key(2).used(RO).about(
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
fn usage(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (mut at, mut raw) = (3, false);
    while at < args.len() {
        if args.is(at, "raw") {
            raw = true;
            at += 1;
            continue;
        }
        if !args.is(at, "samples") || at + 1 == args.len() {
            return Err(Error::SYNTAX.into());
        }
        if args.int(at + 1)? < 0 {
            return Err(Error::SYNTAX.into());
        }
        at += 2;
    }
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    match slot.find_entry(&key) {
        Some(found) => {
            let anatomy = slot.anatomy(found);
            let allocated = if raw { anatomy.allocated_raw } else { anatomy.allocated };
            out.w().integer(allocated as i64);
        }
        None => out.w().null(),
    }
    Ok(())
}

/// What the server's memory is used for, in Redis's terms.
pub(crate) struct Usage {
    pub used: usize,
    pub peak: usize,
    pub resident: usize,
    /// What was used when the server was ready.
    pub startup: usize,
    /// `startup`, clients, and the tables that entries are in.
    pub overhead: usize,
    /// All else: entries with their keys and values.
    pub dataset: usize,
    pub keys: u64,
    pub clients: usize,
}

impl Usage {
    /// O(slots and clients).
    pub(crate) fn measure(view: &View<'_>) -> Self {
        let (server, store) = (view.server, view.store.store());
        let used = snug_store::memory::used();
        let startup = server.startup_memory.load(Relaxed);
        let tables: usize = store.databases_used().map(|db| view.store.table_bytes(db)).sum();
        let clients = server.client_memory.sum();
        let overhead = startup + tables + clients;
        Self {
            used,
            peak: server.peak_memory.fetch_max(used, Relaxed).max(used),
            resident: resident(),
            startup,
            overhead,
            dataset: used.saturating_sub(overhead),
            keys: store.keys_of_all(),
            clients,
        }
    }

    /// What has come since the start.
    fn net(&self) -> usize {
        self.used.saturating_sub(self.startup)
    }

    /// The part of that which is data, in percent.
    pub(crate) fn dataset_percent(&self) -> f64 {
        100.0 * ratio(self.dataset, self.net())
    }
}

fn measure(cx: &Context<'_>) -> Usage {
    Usage::measure(&View { server: cx.server, store: cx.store })
}

fn ratio(a: usize, b: usize) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

fn stats(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let usage = measure(cx);
    let databases: Vec<(usize, usize)> = cx
        .store
        .store()
        .databases_used()
        .filter(|&db| cx.store.store().keys(db) > 0)
        .map(|db| (db, cx.store.table_bytes(db)))
        .collect();
    let integers = [
        ("peak.allocated", usage.peak),
        ("total.allocated", usage.used),
        ("startup.allocated", usage.startup),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", usage.clients),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
    ];
    let more = [
        ("overhead.total", usage.overhead),
        ("keys.count", usage.keys as usize),
        ("keys.bytes-per-key", usage.net().checked_div(usage.keys as usize).unwrap_or(0)),
        ("dataset.bytes", usage.dataset),
    ];
    let mut w = out.w();
    w.map(integers.len() + databases.len() + more.len() + 13);
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
    double("dataset.percentage", usage.dataset_percent());
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
    w.bulk(b"fragmentation.bytes");
    w.integer(spare);
    Ok(())
}

/// Below this, nothing said about memory means much.
const LITTLE: usize = 5 * 1024 * 1024;

/// What was resident after the last `MEMORY PURGE`, 0 before the first. Until more is
/// resident than that, to purge again gives nothing back.
static PURGED: AtomicUsize = AtomicUsize::new(0);

/// What to say of memory that is resident and not in use, if that is much.
fn about_spare(usage: &Usage, purged: usize) -> Option<String> {
    let ratio = ratio(usage.resident, usage.used);
    let spare = usage.resident.saturating_sub(usage.used);
    if ratio <= 1.4 || spare < LITTLE {
        return None;
    }
    let spare = spare >> 20;
    let what = format!("{ratio:.2} bytes are resident for each byte in use, {spare} MiB more");
    Some(match usage.resident > purged + purged / 20 {
        true => format!("Freed memory: {what}; MEMORY PURGE gives what it can back to the system."),
        false => format!(
            "Freed memory: {what}, after MEMORY PURGE too. It lies between values that are in use, and takes new ones."
        ),
    })
}

fn doctor(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let usage = measure(cx);
    let mut text = String::new();
    let damaged = cx.server.stats.get(Stat::values_damaged);
    if usage.used < LITTLE && damaged == 0 {
        text.push_str("This server uses little memory: there is nothing to say about it yet.\n");
        out.w().verbatim("txt", text.as_bytes());
        return Ok(());
    }
    let clients = usage.clients / cx.server.clients.read().len().max(1);
    let buffers = (clients > 200 * 1024)
        .then(|| format!("Clients: each takes {clients} bytes of buffers on average."));
    let spare = about_spare(&usage, PURGED.load(Relaxed));
    for what in spare.into_iter().chain(buffers) {
        let _ = writeln!(text, " * {what}");
    }
    if text.is_empty() {
        text.push_str("Nothing is unusual about the memory of this server.\n");
    } else {
        text.insert_str(0, "What is unusual about the memory of this server:\n\n");
    }
    text.push_str("\nAbout packing:\n\n");
    about_packing(cx.server, &mut text);
    out.w().verbatim("txt", text.as_bytes());
    Ok(())
}

/// Blocks that wait to be packed, from which on that is told.
const BACKLOG_LONG: u64 = 1024;
/// How long a pass over all strings takes, in seconds, from which on that is told if
/// values are to cool faster.
const PASS_LONG: f64 = 5.0;
/// How long large values wait for a workspace on average, from which on that is told.
const WAIT_LONG: Duration = Duration::from_millis(1);
/// Families that are named, and the values one must have had to be.
const FAMILIES_NAMED: usize = 5;
const FAMILY_VALUES_MIN: u64 = 100;

/// What packing saves; what keeps it from saving more, and what to do about it.
fn about_packing(server: &Server, text: &mut String) {
    let store = &server.store;
    let (mut all, mut from, mut into) = (0, 0, 0);
    for &kind in Type::ALL {
        let memory = store.type_memory(kind);
        all += memory.raw;
        from += memory.packed_from;
        into += memory.packed;
    }
    let mut say = |what: String| {
        let _ = writeln!(text, " * {what}");
    };
    let saved = from.saturating_sub(into);
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    if all == 0 {
        say("There are no values to be packed.".into());
    } else {
        say(format!(
            "{from} of {all} bytes of values are packed, into {into}: {:.0} % of all is saved.",
            percent(saved, all)
        ));
    }
    let damaged = server.stats.get(Stat::values_damaged);
    if damaged > 0 {
        say(format!(
            "Damage: {damaged} times a packed value did not unpack to what was stored; the log says why. Test the machine's memory."
        ));
    }
    if !server.config.is_on(Param::Pack) {
        say("Packing is off: CONFIG SET pack yes packs what has cooled.".into());
        return;
    }
    let pending = store.pending_blocks();
    if pending > BACKLOG_LONG {
        say(format!(
            "Backlog: {pending} blocks of streams wait to be packed; there is too little time for it while clients keep the workers busy."
        ));
    }
    let backlog = server.backlog();
    if backlog.strings > BACKLOG_LONG {
        say(format!("Backlog: {} strings that have cooled wait to be packed.", backlog.strings));
    }
    let cold_after = server.config.number(Param::PackColdAfter) as f64;
    if backlog.pass_seconds > PASS_LONG.max(cold_after) {
        say(format!(
            "Backlog: a pass over all strings takes {:.0} seconds, where two are to take pack-cold-after, {cold_after}; pack-cpu-percent holds it back while clients keep the workers busy.",
            backlog.pass_seconds
        ));
    }
    let (waits, waited) = (server.workspaces.stats().waited_total, server.workspaces.waited());
    if waits > 0 && waited > WAIT_LONG * waits as u32 {
        say(format!(
            "Workspaces: {waits} times a large value waited for one, for {:.1} ms on average; a larger pack-workspaces works on more of them at once.",
            waited.as_secs_f64() * 1000.0 / waits as f64
        ));
    }
    let families = store.families();
    // Families outlive their keys for a while.
    let there = families.all().into_iter().filter(|family| !family.is_gone);
    let mut idle: Vec<(u64, String)> = there.filter_map(|family| why_raw(&family)).collect();
    idle.sort_by(|a, b| b.cmp(a));
    let more = idle.len().saturating_sub(FAMILIES_NAMED);
    for (_, why) in idle.into_iter().take(FAMILIES_NAMED) {
        say(why);
    }
    if more > 0 {
        say(format!("{more} more families are left raw or save little: see SNUG FAMILIES."));
    }
    let dictionaries = families.dictionary_stats();
    if dictionaries.memory_bytes as u64 > saved / 4 && dictionaries.live > 0 {
        say(format!(
            "Dictionaries: {} of them weigh {} bytes, much beside the {saved} that are saved; a smaller pack-dictionary-size may do.",
            dictionaries.live, dictionaries.memory_bytes
        ));
    }
    if dictionaries.superseded * 2 > dictionaries.live {
        say(format!(
            "Dictionaries: {} of {} were replaced and wait for the values that need them to be packed anew.",
            dictionaries.superseded, dictionaries.live
        ));
    }
}

/// Why the values of a family are not packed, if they are not; and how many
/// there were.
fn why_raw(family: &FamilyInfo) -> Option<(u64, String)> {
    let (stats, shape) = (family.stats, String::from_utf8_lossy(&family.shape));
    let looked_at = stats.judged + family.skipped + family.expiring;
    if looked_at < FAMILY_VALUES_MIN {
        return None;
    }
    let why = if family.choice.is_some_and(|choice| choice.codec == Codec::None) {
        "the policy leaves them raw".to_owned()
    } else if family.expiring * 2 > looked_at {
        format!("{} of them were soon to expire", family.expiring)
    } else if family.verdict == Verdict::Raw {
        "they are random, or compressed already".to_owned()
    } else if family.not_worth * 2 > stats.packed {
        format!("{} of {} would not save pack-min-saving percent", family.not_worth, stats.packed)
    } else {
        return None;
    };
    Some((looked_at, format!("Family {shape}: {looked_at} values looked at; {why}.")))
}

fn purge(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    snug_store::memory::purge();
    PURGED.store(resident(), Relaxed);
    out.w().ok();
    Ok(())
}

fn malloc_stats(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let usage = measure(cx);
    let text = format!(
        "allocator:mimalloc\nallocated:{}\npeak:{}\nresident:{}\ndataset:{}\n",
        usage.used, usage.peak, usage.resident, usage.dataset
    );
    out.w().verbatim("txt", text.as_bytes());
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = [
        ("DOCTOR", "Say what is unusual about the memory in use."),
        ("MALLOC-STATS", "Return the allocator's figures."),
        ("PURGE", "Give freed memory back to the system."),
        ("STATS", "Return what the server's memory is used for."),
        (
            "USAGE <key> [SAMPLES <count>]",
            "Return the bytes that a key and its value take, or with RAW would take unpacked; exact, whatever <count> is.",
        ),
    ];
    commands::help(out, "MEMORY", &lines);
    Ok(())
}
