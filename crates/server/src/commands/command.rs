//! COMMAND: the command table as clients read it.
//!
//! Name, arity, flags, keys and how they are used, categories, group and summary come
//! from each command's declaration. What a declaration does not say and client
//! libraries want all the same (tips for cluster clients, what replaces a command) is
//! in the small tables at the end of this file.

use crate::auth::Categories;
use crate::commands;
use crate::commands::syntax;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::{Begin, Find, KeySpec, UsedKey};
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::text::glob;
use smallvec::SmallVec;

const FLAGS: u32 = LOADING | STALE;

pub(crate) const COMMANDS: &[Command] = &[Command::new("command", -1, info_all)
    .flags(FLAGS)
    .acl(Categories::CONNECTION)
    .about(
        Group::Server,
        "2.8.13",
        "O(N) where N is the total number of Redis commands",
        "Describes all commands.",
    )
    .subcommands(&[
        Command::new("count", 2, count)
            .of("command")
            .flags(FLAGS)
            .acl(Categories::CONNECTION)
            .about(Group::Server, "2.8.13", "O(1)", "Returns how many commands there are."),
        Command::new("docs", -2, docs)
            .of("command")
            .flags(FLAGS)
            .acl(Categories::CONNECTION)
            .about(
                Group::Server,
                "7.0.0",
                "O(N) where N is the number of commands to look up",
                "Says what commands do.",
            ),
        Command::new("info", -2, info)
            .of("command")
            .flags(FLAGS)
            .acl(Categories::CONNECTION)
            .about(
                Group::Server,
                "2.8.13",
                "O(N) where N is the number of commands to look up",
                "Describes commands: arity, flags, keys, categories.",
            ),
        Command::new("list", -2, list)
            .of("command")
            .flags(FLAGS)
            .acl(Categories::CONNECTION)
            .about(
                Group::Server,
                "7.0.0",
                "O(N) where N is the total number of Redis commands",
                "Returns the names of commands.",
            ),
        Command::new("getkeys", -4, get_keys)
            .of("command")
            .flags(FLAGS)
            .acl(Categories::CONNECTION)
            .about(
                Group::Server,
                "2.8.13",
                "O(N) where N is the number of arguments to the command",
                "Returns the keys among the arguments of a command.",
            ),
        Command::new("getkeysandflags", -4, get_keys_and_flags)
            .of("command")
            .flags(FLAGS)
            .acl(Categories::CONNECTION)
            .about(
                Group::Server,
                "7.0.0",
                "O(N) where N is the number of arguments to the command",
                "Returns the keys among the arguments of a command, and how each is used.",
            ),
        Command::new("help", 2, help).of("command").flags(FLAGS).acl(Categories::CONNECTION).about(
            Group::Server,
            "5.0.0",
            "O(1)",
            "Says what the subcommands do.",
        ),
    ])];

/// The commands and subcommands that have a name to be called by.
fn callable() -> impl Iterator<Item = &'static Command> + Clone {
    commands::all().iter().copied().filter(|command| command.is_callable())
}

/// The commands that are not subcommands.
fn top() -> impl Iterator<Item = &'static Command> + Clone {
    callable().filter(|command| command.container.is_none())
}

fn count(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    out.w().integer(top().count() as i64);
    Ok(())
}

/// A command by the name clients give it: `get`, `config|set`.
pub(crate) fn by_full_name(name: &[u8]) -> Option<&'static Command> {
    let mut parts = name.splitn(2, |&byte| byte == b'|');
    let command = commands::named(parts.next()?)?;
    match parts.next() {
        None => Some(command),
        Some(sub) => {
            command.subcommands.iter().find(|c| c.name.as_bytes().eq_ignore_ascii_case(sub))
        }
    }
}

fn info_all(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    out.w().array(top().count());
    top().for_each(|command| describe(command, out));
    Ok(())
}

fn info(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() == 2 {
        return info_all(cx, args, out);
    }
    out.w().array(args.len() - 2);
    for name in args.iter_from(2) {
        match by_full_name(name) {
            Some(command) => describe(command, out),
            None => out.w().null(),
        }
    }
    Ok(())
}

/// Writes a command as `COMMAND INFO` shows it.
fn describe(command: &Command, out: &mut Out) {
    let mut w = out.w();
    w.array(10);
    w.bulk(command.full_name().as_bytes());
    w.integer(i64::from(command.arity));
    let flags: Vec<&str> =
        FLAG_NAMES.iter().filter(|(flag, _)| command.has(*flag)).map(|(_, name)| *name).collect();
    w.set(flags.len());
    flags.iter().for_each(|flag| w.simple(flag));
    for number in [command.keys.first, command.keys.last, command.keys.step] {
        w.integer(i64::from(number));
    }
    let categories: Vec<&str> = command.categories().names().collect();
    w.set(categories.len());
    categories.iter().for_each(|category| w.simple(&format!("@{category}")));
    let tips = tips(command);
    w.set(tips.len());
    tips.iter().for_each(|tip| w.bulk(tip.as_bytes()));
    let specs = command.key_specs();
    w.set(specs.len());
    specs.iter().for_each(|spec| describe_spec(spec, out));
    // A set when there are none, as in Redis.
    match command.subcommands.len() {
        0 => out.w().set(0),
        some => out.w().array(some),
    }
    command.subcommands.iter().for_each(|subcommand| describe(subcommand, out));
}

fn describe_spec(spec: &KeySpec, out: &mut Out) {
    let mut w = out.w();
    w.map(3);
    w.bulk(b"flags");
    w.set(spec.used.names().count());
    spec.used.names().for_each(|flag| w.simple(flag));
    w.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(index) => describe_search(out, "index", &[("index", index)]),
        Begin::Keyword(keyword, from) => {
            describe_search(out, "keyword", &[]);
            let mut w = out.w();
            w.map(2);
            w.bulk(b"keyword");
            w.bulk(keyword.as_bytes());
            w.bulk(b"startfrom");
            w.integer(i64::from(from));
        }
        Begin::Unknown => {
            describe_search(out, "unknown", &[]);
            out.w().map(0);
        }
    }
    out.w().bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            let numbers = [("lastkey", last), ("keystep", step), ("limit", limit)];
            describe_search(out, "range", &numbers);
        }
        Find::Counted => {
            let numbers = [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)];
            describe_search(out, "keynum", &numbers);
        }
        Find::Unknown => {
            describe_search(out, "unknown", &[]);
            out.w().map(0);
        }
    }
}

/// Writes a way to find keys, and the numbers that it needs; without any, the caller
/// writes what it needs.
fn describe_search(out: &mut Out, kind: &str, numbers: &[(&str, i32)]) {
    let mut w = out.w();
    w.map(2);
    w.bulk(b"type");
    w.bulk(kind.as_bytes());
    w.bulk(b"spec");
    if !numbers.is_empty() {
        w.map(numbers.len());
    }
    for (name, number) in numbers {
        w.bulk(name.as_bytes());
        w.integer(i64::from(*number));
    }
}

fn docs(_: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let wanted: Vec<&Command> = if args.len() == 2 {
        top().collect()
    } else {
        args.iter_from(2).filter_map(by_full_name).collect()
    };
    out.w().map(wanted.len());
    wanted.iter().for_each(|command| document(command, out));
    Ok(())
}

/// Writes a command's name and what there is to read about it.
fn document(command: &Command, out: &mut Out) {
    let mut w = out.w();
    w.bulk(command.full_name().as_bytes());
    let mut pairs = vec![
        ("summary", command.summary),
        ("since", command.since),
        ("group", group_name(command.group)),
    ];
    if !command.complexity.is_empty() {
        pairs.push(("complexity", command.complexity));
    }
    let full_name = command.full_name();
    let deprecated = DEPRECATED.iter().find(|(name, ..)| *name == full_name);
    let flag = match deprecated {
        Some(_) => Some("deprecated"),
        None => (full_name == "debug").then_some("syscmd"),
    };
    let more = [flag.is_some(), deprecated.is_some(), deprecated.is_some()];
    let nested = !command.subcommands.is_empty();
    let more = [more.as_slice(), &[nested, syntax::is_known(&full_name)]].concat();
    w.map(pairs.len() + more.iter().filter(|&&more| more).count());
    for (field, value) in pairs {
        w.bulk(field.as_bytes());
        w.bulk(value.as_bytes());
    }
    if let Some(flag) = flag {
        w.bulk(b"doc_flags");
        w.set(1);
        w.simple(flag);
    }
    if let Some((_, since, by)) = deprecated {
        w.bulk(b"deprecated_since");
        w.bulk(since.as_bytes());
        w.bulk(b"replaced_by");
        w.bulk(by.as_bytes());
    }
    syntax::write(&full_name, out);
    if nested {
        let mut w = out.w();
        w.bulk(b"subcommands");
        w.map(command.subcommands.len());
        command.subcommands.iter().for_each(|subcommand| document(subcommand, out));
    }
}

fn list(_: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let names: Vec<String> = match args.len() {
        2 => callable().map(Command::full_name).collect(),
        5 if args.is(2, "filterby") => {
            let wanted = filter(args)?;
            callable().filter(|command| wanted(command)).map(Command::full_name).collect()
        }
        _ => return Err(Error::SYNTAX.into()),
    };
    // An unknown category gets an array, all else a set.
    if names.is_empty() && args.is(3, "aclcat") {
        out.w().array(0);
    } else {
        out.w().array(names.len());
    }
    names.iter().for_each(|name| out.w().bulk(name.as_bytes()));
    Ok(())
}

type Filter<'a> = Box<dyn Fn(&Command) -> bool + 'a>;

fn filter(args: Args<'_>) -> Result<Filter<'_>, Error> {
    let value = args.bytes(4);
    if args.is(3, "module") {
        Ok(Box::new(|_| false))
    } else if args.is(3, "aclcat") {
        let wanted = Categories::named(value).unwrap_or_default();
        Ok(Box::new(move |command| command.categories().has(wanted)))
    } else if args.is(3, "pattern") {
        Ok(Box::new(|command| glob::matches(value, command.full_name().as_bytes(), true)))
    } else {
        Err(Error::SYNTAX)
    }
}

/// The command that follows `GETKEYS`, its arguments, and its keys among them.
fn keys_of(args: Args<'_>) -> Result<(Args<'_>, SmallVec<[UsedKey; 4]>), Error> {
    let args = Args { spans: &args.spans[2..], ..args };
    let command = commands::find(args).map_err(|_| Error::new("ERR Invalid command specified"))?;
    let only_channels = command.used.is_some_and(|used| !used.is_of_key());
    if !command.names_keys() || only_channels {
        return Err(Error::new("ERR The command has no key arguments"));
    }
    if !command.arity_fits(args.len()) {
        return Err(Error::new("ERR Invalid number of arguments specified for command"));
    }
    match command.used_keys(args) {
        Ok(keys) if !keys.is_empty() => Ok((args, keys)),
        _ if command.has(NO_MANDATORY_KEYS) => Ok((args, SmallVec::new())),
        _ => Err(Error::new("ERR Invalid arguments specified for command")),
    }
}

fn get_keys(_: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (args, keys) = keys_of(args)?;
    out.w().array(keys.len());
    keys.iter().for_each(|(key, _)| out.w().bulk(args.bytes(*key)));
    Ok(())
}

fn get_keys_and_flags(_: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (args, keys) = keys_of(args)?;
    out.w().array(keys.len());
    for (key, used) in keys {
        let mut w = out.w();
        w.array(2);
        w.bulk(args.bytes(key));
        w.set(used.names().count());
        used.names().for_each(|flag| w.simple(flag));
    }
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = [
        ("(no subcommand)", "Describe all commands."),
        ("COUNT", "Return how many commands there are."),
        ("LIST", "Return the names of commands; FILTERBY (MODULE|ACLCAT|PATTERN) <value> chooses."),
        ("INFO [<command-name> ...]", "Describe commands; all if none is named."),
        ("DOCS [<command-name> ...]", "Say what commands do; all if none is named."),
        ("GETKEYS <full-command>", "Return the keys among the arguments of a command."),
        ("GETKEYSANDFLAGS <full-command>", "Return the keys and how each is used."),
    ];
    commands::help(out, "COMMAND", &lines);
    Ok(())
}

/// The names of flags, as clients read them. Redis 7 shows no `may_replicate`.
const FLAG_NAMES: &[(u32, &str)] = &[
    (WRITE, "write"),
    (READONLY, "readonly"),
    (DENYOOM, "denyoom"),
    (ADMIN, "admin"),
    (PUBSUB, "pubsub"),
    (NOSCRIPT, "noscript"),
    (BLOCKING, "blocking"),
    (LOADING, "loading"),
    (STALE, "stale"),
    (SKIP_MONITOR, "skip_monitor"),
    (SKIP_SLOWLOG, "skip_slowlog"),
    (ASKS, "asking"),
    (FAST, "fast"),
    (NO_AUTH, "no_auth"),
    (MOVABLE_KEYS, "movablekeys"),
    (NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (ALLOW_BUSY, "allow_busy"),
    (NO_ASYNC_LOADING, "no_async_loading"),
    (NO_MULTI, "no_multi"),
];

fn group_name(group: Group) -> &'static str {
    match group {
        Group::Generic => "generic",
        Group::String => "string",
        Group::Bitmap => "bitmap",
        Group::List => "list",
        Group::Set => "set",
        Group::SortedSet => "sorted-set",
        Group::Hash => "hash",
        Group::Hyperloglog => "hyperloglog",
        Group::Geo => "geo",
        Group::Stream => "stream",
        Group::Pubsub => "pubsub",
        Group::Transactions => "transactions",
        Group::Connection => "connection",
        Group::Server => "server",
        Group::Cluster => "cluster",
        Group::Scripting => "scripting",
    }
}

/// What a client of a cluster, or of a proxy, is told about a command.
fn tips(command: &Command) -> &'static [&'static str] {
    let name = command.full_name();
    let found = TIPS.iter().find(|(names, _)| names.split(' ').any(|tipped| tipped == name));
    found.map_or(&[], |(_, tips)| tips)
}

const TIPS: &[(&str, &[&str])] = &[
    (
        "client|info client|list cluster|getkeysinslot cluster|info cluster|links cluster|nodes \
         cluster|replicas cluster|shards cluster|slaves cluster|slots lastsave object|encoding \
         object|freq object|idletime object|refcount pttl time ttl xadd xautoclaim xclaim \
         xinfo|consumers xpending xtrim",
        &["nondeterministic_output"],
    ),
    (
        "command command|docs command|info command|list module|list",
        &["nondeterministic_output_order"],
    ),
    (
        "config|set latency|reset slowlog|reset",
        &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ),
    ("dbsize", &["request_policy:all_shards", "response_policy:agg_sum"]),
    ("del exists touch unlink", &["request_policy:multi_shard", "response_policy:agg_sum"]),
    (
        "flushall flushdb memory|purge ping",
        &["request_policy:all_shards", "response_policy:all_succeeded"],
    ),
    (
        "info memory|doctor memory|malloc-stats memory|stats",
        &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ),
    ("keys", &["request_policy:all_shards", "nondeterministic_output_order"]),
    (
        "latency|doctor latency|graph latency|histogram latency|history latency|latest",
        &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ),
    ("mget", &["request_policy:multi_shard"]),
    ("mset", &["request_policy:multi_shard", "response_policy:all_succeeded"]),
    ("msetnx", &["request_policy:multi_shard", "response_policy:agg_min"]),
    ("randomkey", &["request_policy:all_shards", "nondeterministic_output"]),
    ("scan", &["nondeterministic_output", "request_policy:special"]),
    ("slowlog|get", &["request_policy:all_nodes", "nondeterministic_output"]),
    (
        "slowlog|len",
        &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    ),
    ("wait", &["request_policy:all_shards", "response_policy:agg_min"]),
];

/// Commands kept for old clients: since when, and what to use instead.
const DEPRECATED: &[(&str, &str, &str)] = &[
    ("slaveof", "5.0.0", "`REPLICAOF`"),
    ("getset", "6.2.0", "`SET` with the `!GET` argument"),
    ("substr", "2.0.0", "`GETRANGE`"),
    ("cluster|slaves", "5.0.0", "`CLUSTER REPLICAS`"),
    ("cluster|slots", "7.0.0", "`CLUSTER SHARDS`"),
    ("quit", "7.2.0", "just closing the connection"),
];
