//! The commands: one file per group, each with its part of the one table.

// A handler may fail, and so all have one signature.
#![allow(clippy::unnecessary_wraps)]

use crate::auth::{Catalog, Categories, Entry};
use crate::config::Rename;
use crate::engine::command::{Answer, Command};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use std::collections::HashMap;
use std::sync::OnceLock;

mod acl;
mod bitfield;
mod bits;
mod blocking_pops;
mod clients;
mod cluster;
mod command;
mod configuration;
mod connection;
mod debug;
pub(crate) mod digest;
mod dumps;
mod functions;
#[cfg(fuzzing)]
pub(crate) mod fuzzed;
mod geo;
mod hash_expiry;
mod hashes;
mod hyperloglog;
pub(crate) mod info;
mod keys;
mod latency;
mod lists;
mod memory;
pub(crate) mod migrate;
mod mirror;
mod modules;
mod object;
mod persistence;
mod pubsub;
pub(crate) mod replay;
mod replication;
mod scripting;
mod server;
mod sets;
mod slowlog;
mod snug;
mod sort;
mod sorted_sets;
mod stream_groups;
mod stream_reads;
pub(crate) mod streams;
mod strings;
mod syntax;
pub(crate) mod transactions;

/// Every group's table.
const GROUPS: &[&[Command]] = &[
    acl::COMMANDS,
    bitfield::COMMANDS,
    bits::COMMANDS,
    clients::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    configuration::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    dumps::COMMANDS,
    functions::COMMANDS,
    geo::COMMANDS,
    hash_expiry::COMMANDS,
    hashes::COMMANDS,
    hyperloglog::COMMANDS,
    info::COMMANDS,
    keys::COMMANDS,
    latency::COMMANDS,
    lists::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    modules::COMMANDS,
    object::COMMANDS,
    persistence::COMMANDS,
    pubsub::COMMANDS,
    replication::COMMANDS,
    scripting::COMMANDS,
    server::COMMANDS,
    sets::COMMANDS,
    slowlog::COMMANDS,
    snug::COMMANDS,
    sort::COMMANDS,
    sorted_sets::COMMANDS,
    stream_groups::COMMANDS,
    stream_reads::COMMANDS,
    streams::COMMANDS,
    strings::COMMANDS,
    transactions::COMMANDS,
];

struct Table {
    commands: Vec<&'static Command>,
    /// Names of up to [`SHORT_MAX`] bytes, and those of up to [`NAME_MAX`]: open-addressed
    /// hash tables, a third full at most.
    by_short_name: Vec<Option<(ShortName, &'static Command)>>,
    by_name: Vec<Option<(Name, &'static Command)>>,
    /// Whether `rename-command` gave a command a longer name: then all are looked through.
    any_long: bool,
}

/// The most bytes of a name that is found at once.
const NAME_MAX: usize = 32;

/// A name in lower case, and zeros behind it: compared and hashed in a few steps.
type Name = [u8; NAME_MAX];

#[inline]
fn folded(name: &[u8]) -> Option<Name> {
    let mut folded = [0; NAME_MAX];
    folded.get_mut(..name.len())?.copy_from_slice(name);
    folded.make_ascii_lowercase();
    Some(folded)
}

/// The most bytes of a name that is one word to the processor: what is called most often
/// has no more.
const SHORT_MAX: usize = 8;

/// A name of one to eight bytes as that word, in lower case.
type ShortName = u64;

/// A short name as one word, put together from loads that overlap where it has less than
/// eight bytes. No two names of one length are the same word.
#[inline]
fn short(name: &[u8]) -> Option<ShortName> {
    let half = |at: usize| {
        let half = name.get(at..at + 4)?;
        Some(u32::from_le_bytes([half[0], half[1], half[2], half[3]]))
    };
    let (low, high) = match name.len() {
        4..=SHORT_MAX => (half(0)?, half(name.len() - 4)?),
        len @ 1..4 => {
            let byte = |at: usize| u32::from(name[at]);
            (byte(0) | byte(len / 2) << 8 | byte(len - 1) << 16, 0)
        }
        _ => return None,
    };
    Some(lower(u64::from(low) | u64::from(high) << 32))
}

/// Eight bytes, the capital letters among them as small ones: all at once.
#[inline]
fn lower(bytes: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * EACH;
    // Seven bits of each byte: a sum that reaches the eighth says what they are, and none
    // carries into its neighbour.
    let bits = bytes & !HIGH;
    let from_a = bits + EACH * u64::from(0x80 - b'A');
    let past_z = bits + EACH * u64::from(0x7f - b'Z');
    let capitals = from_a & !past_z & !bytes & HIGH;
    bytes | capitals >> 2
}

/// Where in `by_short_name` the search for a name begins.
#[inline]
fn place_of_short(name: ShortName) -> usize {
    (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % PLACES
}

/// Places in either table: a power of two.
const PLACES: usize = 1024;

/// Where in `by_name` the search for a name begins.
#[inline]
fn place_of(name: &Name) -> usize {
    let words = name.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    let hash = words.fold(0, |hash: u64, word| {
        (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    (hash >> 54) as usize % PLACES
}

/// The one table. Each command and subcommand has its index in it.
static TABLE: OnceLock<Table> = OnceLock::new();

fn table() -> &'static Table {
    TABLE.get_or_init(|| Table::new(&own_names()))
}

/// By which name each command that has one is called, the names in lower case.
type Names = HashMap<Vec<u8>, (Vec<u8>, &'static Command)>;

/// Every command by its own name.
fn own_names() -> Names {
    let name = |command: &'static Command| command.name.as_bytes().to_vec();
    let commands = GROUPS.iter().copied().flatten();
    commands.map(|command| (name(command), (name(command), command))).collect()
}

/// The names that commands have after `rename-command`, one after the other as
/// Redis does it: what was renamed may be renamed again, and its old name given
/// to another. The error is one line.
fn renamed(renames: &[Rename]) -> Result<Names, String> {
    let mut names = own_names();
    for Rename { from, to, place } in renames {
        let (_, command) = names
            .remove(&from.to_ascii_lowercase())
            .ok_or_else(|| format!("{place}No such command in rename-command"))?;
        if to.is_empty() {
            continue;
        }
        if names.insert(to.to_ascii_lowercase(), (to.clone(), command)).is_some() {
            return Err(format!("{place}Target command name already exists"));
        }
    }
    Ok(names)
}

/// Renames commands, before any is looked for. Once in a process, as the table is.
pub(crate) fn rename(renames: &[Rename]) -> Result<(), String> {
    if renames.is_empty() {
        return Ok(());
    }
    let set = TABLE.set(Table::new(&renamed(renames)?));
    set.map_err(|_| "rename-command: this process has its commands already".into())
}

/// Puts a name into a table, at this place or the first free one behind it.
fn put<N>(table: &mut [Option<N>], mut at: usize, name: N) {
    while table[at].is_some() {
        at = (at + 1) % table.len();
    }
    table[at] = Some(name);
}

impl Table {
    fn new(names: &Names) -> Self {
        let called = |command: &Command| {
            let found = names.values().find(|(_, other)| other.name == command.name);
            match found {
                Some((own, _)) if own == command.called => command.called,
                Some((called, _)) => called.clone().leak(),
                None => &[],
            }
        };
        let mut index = 0;
        let mut commands = Vec::new();
        let mut by_short_name = vec![None; PLACES];
        let mut by_name = vec![None; PLACES];
        let mut place = |command: &Command, called, subcommands: &'static [Command]| {
            let placed = Command { index, called, subcommands, ..*command };
            index += 1;
            placed
        };
        for command in GROUPS.iter().copied().flatten() {
            let called = called(command);
            let of_sub = |sub: &Command| if called.is_empty() { called } else { sub.called };
            let subcommands: Vec<Command> =
                command.subcommands.iter().map(|sub| place(sub, of_sub(sub), &[])).collect();
            let placed = place(command, called, subcommands.leak());
            let placed: &'static Command = Box::leak(Box::new(placed));
            commands.extend(placed.subcommands);
            commands.push(placed);
            if !placed.is_callable() {
                continue;
            }
            if let Some(name) = short(called) {
                put(&mut by_short_name, place_of_short(name), (name, placed));
            } else if let Some(name) = folded(called) {
                put(&mut by_name, place_of(&name), (name, placed));
            }
        }
        commands.sort_by_key(|command| command.index);
        let placed = [by_short_name.iter().flatten().count(), by_name.iter().flatten().count()];
        assert!(placed.iter().all(|names| names * 3 <= PLACES), "time for more places");
        let any_long = names.keys().any(|name| name.len() > NAME_MAX);
        Self { commands, by_short_name, by_name, any_long }
    }

    #[inline]
    fn named(&self, name: &[u8]) -> Option<&'static Command> {
        let Some(word) = short(name) else { return self.named_longer(name) };
        let mut at = place_of_short(word);
        while let Some((other, command)) = &self.by_short_name[at] {
            // Names of different lengths may be the same word.
            if *other == word && command.called.len() == name.len() {
                return Some(command);
            }
            at = (at + 1) % PLACES;
        }
        None
    }

    #[inline(never)]
    fn named_longer(&self, name: &[u8]) -> Option<&'static Command> {
        let Some(folded) = folded(name) else { return self.named_long(name) };
        let mut at = place_of(&folded);
        while let Some((other, command)) = &self.by_name[at] {
            // Zeros at its end are part of a name that is longer.
            if *other == folded && command.called.len() == name.len() {
                return Some(command);
            }
            at = (at + 1) % PLACES;
        }
        None
    }

    #[cold]
    fn named_long(&self, name: &[u8]) -> Option<&'static Command> {
        let commands = self.commands.iter().filter(|command| command.container.is_none());
        let mut called = commands.filter(|command| command.called.eq_ignore_ascii_case(name));
        called.next().copied().filter(|_| self.any_long)
    }
}

/// All commands and subcommands, by index.
pub(crate) fn all() -> &'static [&'static Command] {
    &table().commands
}

/// The commands as accounts know them: those that are served, at their indices, and behind
/// them those that are only named.
pub(crate) fn catalog() -> Catalog {
    let entry = |command: &&'static Command| {
        let is_container =
            |other: &&&Command| other.container.is_none() && Some(other.name) == command.container;
        Entry {
            full_name: command.full_name(),
            container: all().iter().find(is_container).map(|container| container.index),
            categories: command.categories(),
        }
    };
    let mut entries: Vec<Entry> = all().iter().map(entry).collect();
    let (name, subcommands) = NAMED_IN_RULES;
    let container = all().iter().find(|command| command.full_name() == name);
    entries.extend(subcommands.iter().map(|sub| Entry {
        full_name: format!("{name}|{sub}"),
        container: container.map(|container| container.index),
        categories: Categories::SLOW.and(Categories::ADMIN).and(Categories::DANGEROUS),
    }));
    Catalog::new(entries)
}

/// The command that clients call by that name (not a subcommand), in any case.
#[inline]
pub(crate) fn named(name: &[u8]) -> Option<&'static Command> {
    table().named(name)
}

/// Whether there is a command of that name, in any case.
pub fn is_command(name: &str) -> bool {
    named(name.as_bytes()).is_some()
}

/// The command that these arguments call: a container's subcommand if it is
/// one.
#[inline]
pub(crate) fn find(args: Args<'_>) -> Result<&'static Command, Error> {
    match named(args.bytes(0)) {
        Some(command) => called(command, args),
        None => Err(unknown(args)),
    }
}

/// The command, or the subcommand that these arguments call if it is a container.
#[inline]
fn called(command: &'static Command, args: Args<'_>) -> Result<&'static Command, Error> {
    if command.subcommands.is_empty() { Ok(command) } else { subcommand(command, args) }
}

/// The container's subcommand that these arguments call.
#[inline(never)]
fn subcommand(command: &'static Command, args: Args<'_>) -> Result<&'static Command, Error> {
    let Some(name) = args.get(1) else { return Ok(command) };
    let subcommand =
        command.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name));
    subcommand.ok_or_else(|| try_help(b"ERR unknown subcommand '", name, command.name))
}

/// The error of a subcommand that does not take such arguments.
pub(crate) fn misused(container: &str, subcommand: &[u8]) -> Error {
    let what = b"ERR unknown subcommand or wrong number of arguments for '";
    try_help(what, subcommand, container)
}

fn try_help(what: &[u8], subcommand: &[u8], container: &str) -> Error {
    let subcommand = quoted(subcommand, 128);
    Error::from([what, subcommand, b"'. Try ", &shouted(container), b" HELP."].concat())
}

/// The name by which a command is called, in capitals, as errors and `HELP` show it.
fn shouted(name: &str) -> Vec<u8> {
    let is = |command: &&&Command| {
        command.container.is_none() && command.name.eq_ignore_ascii_case(name)
    };
    let command = all().iter().find(is);
    command.map_or(name.as_bytes(), |command| command.called).to_ascii_uppercase()
}

/// What an error quotes of an argument: so much of it, and as a C string, for
/// Redis's errors end a quotation at a NUL.
fn quoted(arg: &[u8], most: usize) -> &[u8] {
    let arg = &arg[..arg.len().min(most)];
    arg.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cold]
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

/// Subcommands of Redis that are not here, behind their container. Rules name them all the
/// same: accounts that come from there are loaded as they are.
const NAMED_IN_RULES: (&str, &[&str]) = (
    "cluster",
    &["bumpepoch", "failover", "forget", "meet", "replicate", "set-config-epoch", "setslot"],
);

/// A command that is none, for a context before its command is known.
pub(crate) fn none() -> &'static Command {
    static NONE: Command = Command::new("", -1, container);
    &NONE
}

/// The handler of a container called without a subcommand: arity prevents it.
pub(crate) fn container(cx: &mut Context<'_>, _: Args<'_>, _: &mut Out) -> Answer {
    Err(Error::wrong_arity(&cx.command.full_name()).into())
}

/// The reply of a container's `HELP`: each subcommand with its arguments, as Redis
/// writes them and in its order, and what it does, in our words.
pub(crate) fn help(out: &mut Out, container: &str, subcommands: &[(&str, &str)]) {
    let container = String::from_utf8_lossy(&shouted(container)).into_owned();
    let mut lines =
        vec![format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for (usage, text) in subcommands.iter().chain(&[("HELP", "Print this help.")]) {
        lines.push((*usage).into());
        lines.push(format!("    {text}"));
    }
    out.w().array(lines.len());
    lines.iter().for_each(|line| out.w().simple(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(renames: &[(&str, &str)]) -> Result<Table, String> {
        let rename = |(from, to): &(&str, &str)| Rename {
            from: from.as_bytes().into(),
            to: to.as_bytes().into(),
            place: "x.conf, line 3: ".into(),
        };
        let renames: Vec<Rename> = renames.iter().map(rename).collect();
        Ok(Table::new(&renamed(&renames)?))
    }

    /// What is called by a name, through the table.
    fn called(table: &Table, name: &str) -> Option<&'static str> {
        table.named(name.as_bytes()).map(|command| command.name)
    }

    #[test]
    fn only_capitals_become_small() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                let mut bytes = [byte, b'A', b'Z', b'@', b'[', 0xff, 0xda, 0x80];
                bytes.rotate_left(at);
                let lowered = lower(u64::from_le_bytes(bytes)).to_le_bytes();
                assert_eq!(lowered, bytes.map(|byte| byte.to_ascii_lowercase()), "{bytes:?}");
            }
        }
    }

    #[test]
    fn names_move_from_command_to_command() {
        let long = "a name that is longer than any of Redis's own";
        let table = table(&[("GET", "fetch"), ("Fetch", long), ("set", "get"), ("object", "")]);
        let table = table.unwrap();
        for (name, wanted) in [
            (long, Some("get")),
            ("GET", Some("set")),
            ("fetch", None),
            ("set", None),
            ("object", None),
            ("config", Some("config")),
        ] {
            assert_eq!(called(&table, name), wanted, "{name}");
        }
        assert_eq!(called(&table, &long.to_uppercase()), called(&table, long));
        // Words and names in one: as long as another, as much of it, and with its bytes.
        for none in ["get\0", "ge", "g", "gget", "geget", "", "\0", "infoinfo", "gettt", "ge7"] {
            assert_eq!(called(&table, none), None, "{none:?}");
        }
        for command in table.commands.iter().filter(|command| command.container.is_none()) {
            if !command.is_callable() {
                continue;
            }
            let name = std::str::from_utf8(command.called).unwrap();
            assert_eq!(called(&table, name), Some(command.name));
            assert_eq!(called(&table, &name.to_uppercase()), Some(command.name));
        }
        let mut gone = table.commands.iter().filter(|command| !command.is_callable());
        assert!(gone.all(|c| c.name == "object" || c.container == Some("object")));
        let indices = table.commands.iter().map(|command| usize::from(command.index));
        assert!(indices.eq(0..table.commands.len()));
    }

    #[test]
    fn what_cannot_be_renamed_is_told_in_rediss_words() {
        let error = |renames: &[(&str, &str)]| table(renames).err();
        let none = Some("x.conf, line 3: No such command in rename-command".to_owned());
        assert_eq!(error(&[("nosuch", "x")]), none);
        assert_eq!(error(&[("get", ""), ("get", "x")]), none);
        assert_eq!(error(&[("config|get", "x")]), none);
        let taken = Some("x.conf, line 3: Target command name already exists".to_owned());
        assert_eq!(error(&[("get", "SET")]), taken);
        assert_eq!(error(&[("get", "GET")]), None);
    }
}
