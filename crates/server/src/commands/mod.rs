//! The commands: one file per group, each with its part of the one table.

// A handler may fail, and so all have one signature.
#![allow(clippy::unnecessary_wraps)]

use crate::command::Command;
use crate::context::{Args, Context};
use crate::error::Error;
use crate::out::Out;
use std::sync::LazyLock;

mod bitfield;
mod bits;
mod clients;
mod cluster;
mod command;
mod configuration;
mod connection;
mod debug;
pub(crate) mod digest;
pub(crate) mod info;
mod keys;
mod latency;
mod memory;
mod object;
mod pubsub;
mod server;
mod slowlog;
mod snug;
mod stream_groups;
mod stream_reads;
pub(crate) mod streams;
mod strings;
mod syntax;
pub(crate) mod transactions;

/// Every group's table.
const GROUPS: &[&[Command]] = &[
    bitfield::COMMANDS,
    bits::COMMANDS,
    clients::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    configuration::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    info::COMMANDS,
    keys::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    object::COMMANDS,
    pubsub::COMMANDS,
    server::COMMANDS,
    slowlog::COMMANDS,
    snug::COMMANDS,
    stream_groups::COMMANDS,
    stream_reads::COMMANDS,
    streams::COMMANDS,
    strings::COMMANDS,
    transactions::COMMANDS,
];

struct Table {
    commands: Vec<&'static Command>,
    /// An open-addressed hash table, a third full at most.
    by_name: Vec<Option<&'static Command>>,
}

/// The longest name that is looked for at all.
const NAME_MAX: usize = 24;

/// Places in `by_name`: a power of two.
const PLACES: usize = 1024;

/// Where in `by_name` the search for a name begins. FNV-1a, blind to case.
#[inline]
fn place_of(name: &[u8]) -> usize {
    let hash = name.iter().fold(0x811c_9dc5_u32, |hash, &byte| {
        (hash ^ u32::from(byte | 0x20)).wrapping_mul(0x0100_0193)
    });
    (hash >> 8) as usize % PLACES
}

/// The one table. Each command and subcommand has its index in it.
static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut index = 0;
    let mut commands = Vec::new();
    let mut by_name = vec![None; PLACES];
    let mut place = |command: &Command, subcommands: &'static [Command]| {
        let placed = Box::leak(Box::new(Command { index, subcommands, ..*command }));
        index += 1;
        &*placed
    };
    for command in GROUPS.iter().copied().flatten() {
        let subcommands: Vec<Command> =
            command.subcommands.iter().map(|sub| *place(sub, &[])).collect();
        let placed = place(command, subcommands.leak());
        commands.extend(placed.subcommands);
        commands.push(placed);
        let mut at = place_of(placed.name.as_bytes());
        while by_name[at].is_some() {
            at = (at + 1) % PLACES;
        }
        by_name[at] = Some(placed);
    }
    commands.sort_by_key(|command| command.index);
    assert!(by_name.iter().flatten().count() * 3 <= PLACES, "time for more places");
    Table { commands, by_name }
});

/// All commands and subcommands, by index.
pub(crate) fn all() -> &'static [&'static Command] {
    &TABLE.commands
}

/// The command of that name (not a subcommand), in any case.
pub(crate) fn named(name: &[u8]) -> Option<&'static Command> {
    if name.len() > NAME_MAX {
        return None;
    }
    let by_name = &TABLE.by_name;
    let mut at = place_of(name);
    while let Some(command) = by_name[at] {
        if command.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(command);
        }
        at = (at + 1) % PLACES;
    }
    None
}

/// The command that these arguments call: a container's subcommand if it is
/// one.
pub(crate) fn find(args: Args<'_>) -> Result<&'static Command, Error> {
    let Some(command) = named(args.bytes(0)) else { return Err(unknown(args)) };
    if command.subcommands.is_empty() {
        return Ok(command);
    }
    let Some(name) = args.get(1) else { return Ok(command) };
    let subcommand =
        command.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name));
    subcommand.ok_or_else(|| {
        let mut text = b"ERR unknown subcommand '".to_vec();
        text.extend_from_slice(quoted(name, 128));
        let container = command.name.to_ascii_uppercase();
        text.extend_from_slice(format!("'. Try {container} HELP.").as_bytes());
        Error::from(text)
    })
}

/// What an error quotes of an argument: so much of it, and as a C string, for
/// Redis's errors end a quotation at a NUL.
fn quoted(arg: &[u8], most: usize) -> &[u8] {
    let arg = &arg[..arg.len().min(most)];
    arg.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn unknown(args: Args<'_>) -> Error {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(quoted(args.bytes(0), 128));
    text.extend_from_slice(b"', with args beginning with: ");
    let from = text.len();
    for arg in args.iter_from(1) {
        let room = 128usize.saturating_sub(text.len() - from);
        if room == 0 {
            break;
        }
        text.push(b'\'');
        text.extend_from_slice(quoted(arg, room));
        text.extend_from_slice(b"' ");
    }
    Error::from(text)
}

/// A command that is none, for a context before its command is known.
pub(crate) fn none() -> &'static Command {
    static NONE: Command = Command::new("", -1, container);
    &NONE
}

/// The handler of a container called without a subcommand: arity prevents it.
pub(crate) fn container(cx: &mut Context<'_>, _: Args<'_>, _: &mut Out) -> Result<(), Error> {
    Err(Error::wrong_arity(&cx.command.full_name()))
}

/// The reply of a container's `HELP`: each subcommand with its arguments, as Redis
/// writes them and in its order, and what it does, in our words.
pub(crate) fn help(out: &mut Out, container: &str, subcommands: &[(&str, &str)]) {
    let mut lines =
        vec![format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for (usage, text) in subcommands.iter().chain(&[("HELP", "Print this help.")]) {
        lines.push((*usage).into());
        lines.push(format!("    {text}"));
    }
    out.w().array(lines.len());
    lines.iter().for_each(|line| out.w().simple(line));
}
