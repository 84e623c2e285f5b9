//! The OBJECT command: what Redis would say of how a value is held.

use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::uses::*;
use crate::engine::out::Out;
use crate::measure::passes::PASSES;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_store::{Anatomy, NEW_READS, Str, WRITTEN};

pub(crate) const COMMANDS: &[Command] = &[Command::new("object", -2, super::container)
    .subcommands(SUBCOMMANDS)
    .about(Group::Generic, "2.2.3", "Depends on subcommand.", "Tells how a key's value is held.")];

const SUBCOMMANDS: &[Command] = &[
    Command::new("encoding", 3, encoding).of("object").flags(READONLY).key(2).used(RO).about(
        Group::Generic,
        "2.2.3",
        "O(1)",
        "Tells the encoding that Redis would use for the value.",
    ),
    Command::new("freq", 3, freq).of("object").flags(READONLY).key(2).used(RO).about(
        Group::Generic,
        "4.0.0",
        "O(1)",
        "Tells how often a key is accessed, as a logarithm.",
    ),
    Command::new("idletime", 3, idletime).of("object").flags(READONLY).key(2).used(RO).about(
        Group::Generic,
        "2.2.3",
        "O(1)",
        "Tells for how many seconds, at least, a key has not been accessed.",
    ),
    Command::new("refcount", 3, refcount).of("object").flags(READONLY).key(2).used(RO).about(
        Group::Generic,
        "2.2.3",
        "O(1)",
        "Tells how many references Redis would count to the value.",
    ),
    Command::new("help", 2, help).of("object").flags(LOADING | STALE).about(
        Group::Generic,
        "6.2.0",
        "O(1)",
        "Describes the subcommands.",
    ),
];

/// Redis keeps one object for each of these integers, shared by all keys, and
/// never counts its references.
const SHARED_INTEGERS: std::ops::Range<i64> = 0..10_000;
const SHARED: i64 = i32::MAX as i64;

/// What an entry is made of; looking does not count as an access.
fn anatomy(cx: &Context<'_>, args: Args<'_>) -> Option<Anatomy> {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    slot.find_entry(&key).map(|found| slot.anatomy(found))
}

fn encoding(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    match anatomy(cx, args) {
        Some(anatomy) => out.w().bulk(anatomy.encoding.as_bytes()),
        None => out.w().null(),
    }
    Ok(())
}

fn refcount(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let Some(found) = slot.find_entry(&key) else {
        out.w().null();
        return Ok(());
    };
    let shared = match slot.string(found) {
        Some(Str::Int(value)) => SHARED_INTEGERS.contains(&value) && shares_integers(cx),
        _ => false,
    };
    out.w().integer(if shared { SHARED } else { 1 });
    Ok(())
}

/// Redis shares integers unless eviction needs to know each key's accesses.
fn shares_integers(cx: &Context<'_>) -> bool {
    let policy = cx.server.config.text(Param::MaxMemoryPolicy);
    let limited = cx.server.config.number(Param::MaxMemory) > 0;
    !(limited && (policy.ends_with("-lru") || policy.ends_with("-lfu")))
}

fn tracks_frequency(cx: &Context<'_>) -> bool {
    cx.server.config.text(Param::MaxMemoryPolicy).ends_with("-lfu")
}

/// What can be vouched for, in seconds: the larger of two lower bounds. An entry
/// keeps two bits of access, which the sweeper's passes take away: that reaches as far
/// as `pack-cold-after`. Its slot keeps when any of its keys was accessed: that reaches
/// as far as one likes, where few others share the slot or nobody uses them.
fn idletime(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let found = slot.find_entry(&key).map(|found| slot.anatomy(found));
    let of_slot = slot.idle_ms() / 1000;
    drop(slot);
    if found.is_some() && tracks_frequency(cx) {
        return Err(Error::new(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ).into());
    }
    match found {
        // A pass of the sweeper takes one off at most: the first may have come at
        // once, those after it were a pass's time apart.
        Some(anatomy) => {
            let passes = i64::from(WRITTEN.saturating_sub(anatomy.access + 1));
            // What is packed gains one with each read, and had none before it.
            let passes = if anatomy.is_packed_whole && anatomy.access > 0 { 0 } else { passes };
            let seconds = cx.server.config.number(Param::PackColdAfter);
            out.w().integer((passes * seconds / i64::from(PASSES)).max(of_slot as i64));
        }
        None => out.w().null(),
    }
    Ok(())
}

/// Redis's counter of a new key.
const FREQUENCY_OF_NEW: i64 = 5;
/// What it is counted on from: access bits of 0.
const FREQUENCY_OF_NONE: i64 = FREQUENCY_OF_NEW - NEW_READS as i64;

fn freq(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let found = anatomy(cx, args);
    if found.is_some() && !tracks_frequency(cx) {
        return Err(Error::new(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ).into());
    }
    match found {
        Some(anatomy) => out.w().integer(FREQUENCY_OF_NONE + i64::from(anatomy.access)),
        None => out.w().null(),
    }
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let subcommands = [
        ("ENCODING <key>", "Tell the encoding that Redis would use for the value."),
        ("FREQ <key>", "Tell how often the key is accessed, as a logarithm."),
        ("IDLETIME <key>", "Tell for how many seconds, at least, the key was not accessed."),
        ("REFCOUNT <key>", "Tell how many references Redis would count to the value."),
    ];
    super::help(out, "OBJECT", &subcommands);
    Ok(())
}
