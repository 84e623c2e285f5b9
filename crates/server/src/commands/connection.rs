//! Connection commands: `HELLO`, `AUTH`, `PING`, `ECHO`, `SELECT`, `QUIT`,
//! `RESET`.

use crate::auth::DEFAULT;
use crate::commands::transactions;
use crate::engine::accounts;
use crate::engine::client::{Caller, ReplyMode};
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_resp::{Protocol, parse_integer};

const ANYTIME: u32 = NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY;

pub(crate) use crate::outside::REDIS_VERSION;

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("hello", -1, hello).flags(ANYTIME | NO_AUTH).about(
        Group::Connection,
        "6.0.0",
        "O(1)",
        "Chooses the protocol, and authenticates and names the connection.",
    ),
    Command::new("auth", -2, auth).flags(ANYTIME | NO_AUTH).about(
        Group::Connection,
        "1.0.0",
        "O(N) where N is the number of passwords defined for the user",
        "Authenticates the connection.",
    ),
    Command::new("ping", -1, ping).flags(FAST).about(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Answers, to show that the server is there.",
    ),
    Command::new("echo", 2, echo).flags(LOADING | STALE | FAST).about(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Returns its argument.",
    ),
    Command::new("select", 2, select).flags(LOADING | STALE | FAST).about(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Changes the connection's database.",
    ),
    Command::new("quit", -1, quit).flags(ANYTIME | NO_AUTH).about(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Ends the connection.",
    ),
    Command::new("reset", 1, reset).flags(ANYTIME | NO_AUTH).about(
        Group::Connection,
        "6.2.0",
        "O(1)",
        "Brings the connection back to the state of a new one.",
    ),
];

fn ping(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() > 2 {
        return Err(Error::wrong_arity("ping").into());
    }
    if cx.client.as_deref().is_some_and(|client| client.in_pubsub_mode(cx.caller)) {
        out.w().array(2);
        out.w().bulk(b"pong");
        out.w().bulk(args.get(1).unwrap_or_default());
        return Ok(());
    }
    match args.get(1) {
        Some(message) => out.w().bulk(message),
        None => out.w().simple("PONG"),
    }
    Ok(())
}

fn echo(_: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    out.w().bulk(args.bytes(1));
    Ok(())
}

fn select(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let db = args.int(1)?;
    if i32::try_from(db).is_err() {
        return Err(Error::new(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        )
        .into());
    }
    if cx.server.cluster.enabled && db != 0 {
        return Err(Error::new("ERR SELECT is not allowed in cluster mode").into());
    }
    cx.caller.db = database(cx, db)?;
    out.w().ok();
    Ok(())
}

/// A database's number, checked.
pub(crate) fn database(cx: &Context<'_>, number: i64) -> Result<usize, Error> {
    let db = usize::try_from(number).ok().filter(|&db| db < cx.store.store().databases());
    db.ok_or(Error::new("ERR DB index is out of range"))
}

fn quit(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    cx.client()?.close = true;
    out.w().ok();
    Ok(())
}

fn reset(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let (server, store) = (cx.server, cx.store);
    let client = cx.client()?;
    client.multi = None;
    transactions::unwatch_all(server, store, client);
    server.pubsub.leave(&client.shared, &mut client.subscriptions);
    server.monitor.unfollow(&client.shared);
    server.end_tracking(client);
    client.shared.figures.monitoring.store(false, std::sync::atomic::Ordering::Relaxed);
    client.reply = ReplyMode::On;
    client.readonly = false;
    (client.account, client.authenticated) = server.first_account();
    let mut names = client.shared.names.lock();
    names.user = client.account.name().to_vec();
    names.name.clear();
    drop(names);
    *cx.caller = Caller::default();
    out.protocol = Protocol::Resp2;
    out.w().simple("RESET");
    Ok(())
}

fn auth(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    match args.len() {
        2 => {
            if cx.server.users.default_user().rules().flags().contains(&"nopass") {
                return Err(Error::new(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
                ).into());
            }
            authenticate(cx, args, DEFAULT, args.bytes(1))?;
        }
        3 => authenticate(cx, args, args.bytes(1), args.bytes(2))?,
        _ => return Err(Error::SYNTAX.into()),
    }
    out.w().ok();
    Ok(())
}

/// Logs in, or writes down who could not.
fn authenticate(
    cx: &mut Context<'_>,
    args: Args<'_>,
    user: &[u8],
    password: &[u8],
) -> Result<(), Error> {
    let server = cx.server;
    if server.log_in(cx.client()?, user, password) {
        return Ok(());
    }
    accounts::log_wrong_password(cx, args, user);
    Err(Error::new("WRONGPASS invalid username-password pair or user is disabled."))
}

fn hello(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let mut protocol = cx.caller.protocol;
    if let Some(version) = args.get(1) {
        protocol = match parse_integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(Error::new("NOPROTO unsupported protocol version").into()),
            None => {
                return Err(
                    Error::new("ERR Protocol version is not an integer or out of range").into()
                );
            }
        };
    }
    let (mut credentials, mut name) = (None, None);
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        if args.is(at, "auth") && more >= 2 {
            credentials = Some((args.bytes(at + 1), args.bytes(at + 2)));
            at += 3;
        } else if args.is(at, "setname") && more >= 1 {
            name = Some(valid_name(args.bytes(at + 1))?);
            at += 2;
        } else {
            let option = String::from_utf8_lossy(args.bytes(at));
            return Err(Error::from(format!("ERR Syntax error in HELLO option '{option}'")).into());
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(cx, args, user, password)?;
    }
    let server = cx.server;
    let client = cx.client()?;
    if server.must_log_in(client) {
        return Err(Error::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ).into());
    }
    if let Some(name) = name {
        client.shared.names.lock().name = name.to_vec();
    }
    let id = client.id();
    cx.caller.protocol = protocol;
    out.protocol = protocol;
    let mode = if cx.server.cluster.enabled { "cluster" } else { "standalone" };
    let mut w = out.w();
    w.map(7);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        w.bulk(field.as_bytes());
        w.bulk(value.as_bytes());
    }
    w.bulk(b"proto");
    w.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
    w.bulk(b"id");
    w.integer(id as i64);
    w.bulk(b"mode");
    w.bulk(mode.as_bytes());
    w.bulk(b"role");
    w.bulk(if cx.server.peers.is_replica() { b"replica" } else { b"master" });
    w.bulk(b"modules");
    w.array(0);
    Ok(())
}

/// A client's name: visible characters only, so that `CLIENT LIST` stays a list.
pub(crate) fn valid_name(name: &[u8]) -> Result<&[u8], Error> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok(name)
    } else {
        Err(Error::new("ERR Client names cannot contain spaces, newlines or special characters."))
    }
}
