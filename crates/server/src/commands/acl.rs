//! `ACL`: users, their rules, and what was denied.

use crate::auth::{self, Categories, Denied, Selector};
use crate::commands::{self, container, misused, quoted};
use crate::config::{self, Param};
use crate::engine::accounts;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group, Handler};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::outside::chance::random_digits;
use crate::outside::clock::unix_ms;
use crate::request::args::Args;
use crate::request::error::Error;

const PLAIN: u32 = NOSCRIPT | LOADING | STALE;
const ADMINS: u32 = PLAIN | ADMIN;
const PER_USER: &str = "O(N). Where N is the number of configured users.";

const fn sub(
    name: &'static str,
    arity: i32,
    flags: u32,
    handler: Handler,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).of("acl").flags(flags).about(
        Group::Server,
        since,
        complexity,
        summary,
    )
}

pub(crate) const COMMANDS: &[Command] = &[Command::new("acl", -2, container)
    .about(Group::Server, "6.0.0", "Depends on subcommand.", "Says who may do what.")
    .subcommands(&[
        sub(
            "cat",
            -2,
            PLAIN,
            cat,
            "6.0.0",
            "O(1) since the categories and commands are a fixed set.",
            "Lists the categories of commands, or the commands of one.",
        ),
        sub(
            "deluser",
            -3,
            ADMINS,
            deluser,
            "6.0.0",
            "O(N) where N is the number of client connections",
            "Deletes users and ends their connections.",
        ),
        sub(
            "dryrun",
            -4,
            ADMINS,
            dryrun,
            "7.0.0",
            "O(1).",
            "Tells whether a user may execute a command.",
        ),
        sub("genpass", -2, PLAIN, genpass, "6.0.0", "O(1)", "Draws a password at random."),
        sub(
            "getuser",
            3,
            ADMINS,
            getuser,
            "6.0.0",
            "O(N). Where N is the number of rules of the user.",
            "Returns a user's rules.",
        ),
        sub("list", 2, ADMINS, list, "6.0.0", PER_USER, "Returns all users with their rules."),
        sub("load", 2, ADMINS, load, "6.0.0", PER_USER, "Reads the ACL file again."),
        sub(
            "log",
            -2,
            ADMINS,
            log,
            "6.0.0",
            "O(N) with N being the number of entries shown.",
            "Tells what was denied.",
        ),
        sub("save", 2, ADMINS, save, "6.0.0", PER_USER, "Writes the users into the ACL file."),
        sub(
            "setuser",
            -3,
            ADMINS,
            setuser,
            "6.0.0",
            "O(N). Where N is the number of rules provided.",
            "Makes a user or changes one's rules.",
        ),
        sub("users", 2, ADMINS, users, "6.0.0", PER_USER, "Returns the names of all users."),
        sub("whoami", 2, PLAIN, whoami, "6.0.0", "O(1)", "Returns the connection's user."),
        sub("help", 2, LOADING | STALE, help, "6.0.0", "O(1)", "Says what the subcommands do."),
    ])];

fn setuser(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let server = cx.server;
    let rules: Vec<Vec<u8>> = args.iter_from(3).map(<[u8]>::to_vec).collect();
    let revoked = server.users.set(args.bytes(2), &rules).map_err(one_line)?;
    if let Some(revoked) = revoked {
        server.end_subscribers(&revoked, cx.client()?);
    }
    out.w().ok();
    Ok(())
}

/// An error in words, as a reply: it may quote what a client sent.
fn one_line(text: impl AsRef<[u8]>) -> Error {
    let breaks = |byte: u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
    Error::from(b"ERR ".iter().chain(text.as_ref()).map(|&byte| breaks(byte)).collect::<Vec<u8>>())
}

fn deluser(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let server = cx.server;
    if args.iter_from(2).any(|name| name == auth::DEFAULT) {
        return Err(Error::new("ERR The 'default' user cannot be removed").into());
    }
    let mut deleted = 0;
    for name in args.iter_from(2) {
        if server.users.delete(name) {
            server.end_clients_of(name, cx.client()?);
            deleted += 1;
        }
    }
    out.w().integer(deleted);
    Ok(())
}

fn getuser(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let users = &cx.server.users;
    let Some(user) = users.get(args.bytes(2)) else {
        out.w().null();
        return Ok(());
    };
    let rules = user.rules();
    let mut w = out.w();
    w.map(6);
    w.bulk(b"flags");
    let flags = rules.flags();
    w.set(flags.len());
    flags.iter().for_each(|flag| w.bulk(flag.as_bytes()));
    w.bulk(b"passwords");
    w.array(rules.passwords().len());
    rules.passwords().iter().for_each(|hash| w.bulk(hash.as_bytes()));
    let mut selectors = rules.selectors();
    selectors.next().into_iter().for_each(|root| describe(cx, root, out));
    let others: Vec<&Selector> = selectors.collect();
    let mut w = out.w();
    w.bulk(b"selectors");
    w.array(others.len());
    for selector in others {
        out.w().map(3);
        describe(cx, selector, out);
    }
    Ok(())
}

/// Writes the three fields of a selector.
fn describe(cx: &Context<'_>, selector: &Selector, out: &mut Out) {
    let mut w = out.w();
    w.bulk(b"commands");
    w.bulk(&selector.describe_commands(cx.server.users.catalog()));
    w.bulk(b"keys");
    w.bulk(&selector.describe_keys());
    w.bulk(b"channels");
    w.bulk(&selector.describe_channels());
}

fn list(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = cx.server.users.lines();
    out.w().array(lines.len());
    lines.iter().for_each(|line| out.w().bulk(line));
    Ok(())
}

fn users(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let users = cx.server.users.all();
    out.w().array(users.len());
    users.iter().for_each(|user| out.w().bulk(&user.name));
    Ok(())
}

fn whoami(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    out.w().bulk(cx.client()?.account.name());
    Ok(())
}

fn cat(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    match args.len() {
        2 => {
            out.w().array(Categories::NAMES.len());
            Categories::NAMES.iter().for_each(|name| out.w().bulk(name.as_bytes()));
        }
        3 => {
            let category = Categories::named(args.bytes(2)).ok_or_else(|| {
                let name = quoted(args.bytes(2), 128);
                one_line([b"Unknown category '", name, b"'"].concat())
            })?;
            let names: Vec<&str> = cx.server.users.catalog().of_category(category).collect();
            out.w().array(names.len());
            names.iter().for_each(|name| out.w().bulk(name.as_bytes()));
        }
        _ => return Err(misused("acl", args.bytes(1)).into()),
    }
    Ok(())
}

/// The longest password that is drawn, in bits.
const PASSWORD_BITS_MAX: i64 = 4096;

fn genpass(_: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let bits = match args.len() {
        2 => 256,
        3 => args.int(2)?,
        _ => return Err(misused("acl", args.bytes(1)).into()),
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(Error::from(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to {PASSWORD_BITS_MAX}"
        ))
        .into());
    }
    out.w().bulk(random_digits((bits as usize).div_ceil(4)).as_bytes());
    Ok(())
}

fn log(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let log = &cx.server.users.log;
    let count = match args.len() {
        2 => 10,
        3 if args.is(2, "reset") => {
            log.reset();
            out.w().ok();
            return Ok(());
        }
        3 => usize::try_from(args.int(2)?).unwrap_or(0),
        _ => return Err(misused("acl", args.bytes(1)).into()),
    };
    let (entries, now) = (log.latest(count), unix_ms());
    let mut w = out.w();
    w.array(entries.len());
    for entry in entries {
        w.map(10);
        w.bulk(b"count");
        w.integer(entry.count as i64);
        for (name, value) in [
            ("reason", entry.reason.name().as_bytes()),
            ("context", entry.place.name().as_bytes()),
            ("object", &entry.object),
            ("username", &entry.user),
        ] {
            w.bulk(name.as_bytes());
            w.bulk(value);
        }
        w.bulk(b"age-seconds");
        w.double(now.saturating_sub(entry.updated_ms) as f64 / 1000.0);
        w.bulk(b"client-info");
        w.bulk(&entry.client);
        for (name, value) in [
            ("entry-id", entry.id),
            ("timestamp-created", entry.created_ms),
            ("timestamp-last-updated", entry.updated_ms),
        ] {
            w.bulk(name.as_bytes());
            w.integer(value as i64);
        }
    }
    Ok(())
}

fn dryrun(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let shown = |name: &[u8]| String::from_utf8_lossy(quoted(name, name.len())).into_owned();
    let user = cx
        .server
        .users
        .get(args.bytes(2))
        .ok_or_else(|| one_line(format!("User '{}' not found", shown(args.bytes(2)))))?;
    let args = Args { spans: &args.spans[3..], ..args };
    let command = commands::find(args)
        .map_err(|_| one_line(format!("Command '{}' not found", shown(args.bytes(0)))))?;
    if !command.arity_fits(args.len()) {
        return Err(Error::wrong_arity(&command.full_name()).into());
    }
    let checked = accounts::wanting(command, args, |wanted| user.rules().check(wanted));
    let what = match checked {
        Ok(()) => {
            out.w().ok();
            return Ok(());
        }
        Err(Denied::Command) => format!("run the '{}' command", command.full_name()).into_bytes(),
        Err(Denied::Key(at)) => [b"access the '", args.bytes(at), b"' key"].concat(),
        Err(Denied::Channel(at)) => [b"access the '", args.bytes(at), b"' channel"].concat(),
    };
    out.w().bulk(&[b"This user has no permissions to ".as_slice(), &what].concat());
    Ok(())
}

const NO_FILE: Error = Error::new(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.",
);

fn load(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let server = cx.server;
    if server.config.is_empty(Param::Aclfile) {
        return Err(NO_FILE.into());
    }
    let loaded = server.load_users().map_err(one_line)?;
    server.heed_loaded(&loaded, cx.client()?);
    out.w().ok();
    Ok(())
}

fn save(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let config = &cx.server.config;
    if config.is_empty(Param::Aclfile) {
        return Err(NO_FILE.into());
    }
    let mut text = Vec::new();
    for line in cx.server.users.lines() {
        text.extend(line);
        text.push(b'\n');
    }
    config::replace(&config.path(Param::Aclfile), &text).map_err(|error| {
        tracing::warn!(%error, "ACL SAVE failed");
        Error::new("ERR There was an error trying to save the ACLs. Please check the server logs for more information")
    })?;
    out.w().ok();
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = [
        ("CAT [<category>]", "List the categories, or the commands of one."),
        ("DELUSER <username> [<username> ...]", "Delete users and end their connections."),
        ("DRYRUN <username> <command> [<arg> ...]", "Tell whether a user may execute a command."),
        ("GETUSER <username>", "Return a user's rules."),
        ("GENPASS [<bits>]", "Draw a password at random, of 256 bits or as many as given."),
        ("LIST", "Return all users with their rules."),
        ("LOAD", "Read the ACL file again."),
        ("LOG [<count> | RESET]", "Tell what was denied, the latest first, or forget it."),
        ("SAVE", "Write the users into the ACL file."),
        ("SETUSER <username> <attribute> [<attribute> ...]", "Make a user or change one's rules."),
        ("USERS", "Return the names of all users."),
        ("WHOAMI", "Return the connection's user."),
    ];
    commands::help(out, "ACL", &lines);
    Ok(())
}
