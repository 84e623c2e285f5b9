//! Replication: `REPLICAOF`, `ROLE`, `WAIT`, `FAILOVER`; and what replicas say to their
//! primary: `REPLCONF`, `PSYNC`, `SYNC`.
//!
//! `PSYNC` has no reply here: it turns the client into a replica, whose connection the
//! room `replication` takes over.

use crate::auth::Categories;
use crate::commands::clients::timeout_ms;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::engine::waits::Behind;
use crate::outside::clock::unix_ms;
use crate::peers::replica::{CAPA_IMAGE, LeftOut, Psync};
use crate::peers::{Failover, Link};
use crate::replication::failover::is_at;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_resp::parse_integer;

const REPLICATION: u32 = ADMIN | NOSCRIPT | STALE | NO_ASYNC_LOADING;
const SYNC: u32 = ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI;

const fn one(
    name: &'static str,
    arity: i32,
    flags: u32,
    handler: crate::engine::command::Handler,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    let server = Group::Server;
    Command::new(name, arity, handler).flags(flags).about(server, since, complexity, summary)
}

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("wait", 3, wait).flags(NOSCRIPT).acl(Categories::CONNECTION).about(
        Group::Generic,
        "3.0.0",
        "O(1)",
        "Returns how many replicas have acknowledged the connection's writes.",
    ),
    Command::new("role", 1, role)
        .flags(NOSCRIPT | LOADING | STALE | FAST)
        .acl(Categories::ADMIN.and(Categories::DANGEROUS))
        .about(Group::Server, "2.8.12", "O(1)", "Returns the server's role in replication."),
    one(
        "replicaof",
        3,
        REPLICATION | WIDE,
        replicaof,
        "5.0.0",
        "O(1)",
        "Chooses whose replica the server is.",
    ),
    one(
        "slaveof",
        3,
        REPLICATION | WIDE,
        replicaof,
        "1.0.0",
        "O(1)",
        "Chooses whose replica the server is.",
    ),
    one(
        "failover",
        -1,
        ADMIN | NOSCRIPT | STALE | WIDE,
        failover,
        "6.2.0",
        "O(1)",
        "Changes places with a replica.",
    ),
    one(
        "replconf",
        -1,
        ADMIN | NOSCRIPT | LOADING | STALE | ALLOW_BUSY,
        replconf,
        "3.0.0",
        "O(1)",
        "Tells the primary about a replica.",
    ),
    one("psync", -3, SYNC, psync, "2.8.0", "", "Turns the connection into a replica's."),
    one("sync", 1, SYNC, sync, "1.0.0", "", "Turns the connection into a replica's."),
];

fn replicaof(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if cx.server.cluster.enabled {
        return Err(Error::new("ERR REPLICAOF not allowed in cluster mode.").into());
    }
    if *cx.server.peers.failover.lock() != Failover::None {
        return Err(Error::new("ERR REPLICAOF not allowed while failing over.").into());
    }
    let (server, peers) = (cx.server, &cx.server.peers);
    if args.is(1, "no") && args.is(2, "one") {
        if peers.primary().is_some() {
            server.lead(cx.store);
            tracing::info!("this node is a primary now, by REPLICAOF NO ONE");
        }
        out.w().ok();
        return Ok(());
    }
    let port = parse_integer(args.bytes(2)).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(Error::new("ERR Invalid master port"))?;
    let host = String::from_utf8_lossy(args.bytes(1)).into_owned();
    let same = |primary: crate::peers::Primary| {
        primary.host.eq_ignore_ascii_case(&host) && primary.port == port
    };
    if peers.primary().is_some_and(same) {
        out.w().simple("OK Already connected to specified master");
        return Ok(());
    }
    server.follow(cx.store, &host, port, false);
    tracing::info!(host, port, "this node is a replica now, by REPLICAOF");
    out.w().ok();
    Ok(())
}

fn role(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let peers = &cx.server.peers;
    let offset = peers.stream().backlog.end() as i64;
    let mut w = out.w();
    if let Some(primary) = peers.primary() {
        w.array(5);
        w.bulk(b"slave");
        w.bulk(primary.host.as_bytes());
        w.integer(i64::from(primary.port));
        w.bulk(primary.link.name().as_bytes());
        let knows = primary.link == Link::Connected;
        w.integer(if knows { offset } else { -1 });
        return Ok(());
    }
    let online: Vec<_> = peers.replicas().into_iter().filter(|r| r.is_online()).collect();
    w.array(3);
    w.bulk(b"master");
    w.integer(offset);
    w.array(online.len());
    for replica in online {
        w.array(3);
        w.bulk(replica.address().as_bytes());
        w.bulk_integer(i64::from(replica.introduction.port));
        w.bulk_integer(replica.acknowledged() as i64);
    }
    Ok(())
}

fn wait(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if cx.server.peers.is_replica() {
        return Err(Error::new(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be writable (which is not the default) writes to replicas are just local and are not propagated.",
        ).into());
    }
    let replicas = args.int(1)?;
    let timeout = timeout_ms(args.bytes(2))?;
    let wrote = cx.client.as_deref().map_or(0, |client| client.wrote);
    let behind = Behind::commit(wrote);
    let reached = behind.acknowledged(cx.server);
    if reached as i64 >= replicas || !cx.origin.may_block() {
        out.w().integer(reached as i64);
        return Ok(());
    }
    cx.server.peers.ask_how_far();
    Err(cx.wait_for_replicas(args, replicas as usize, behind, timeout))
}

fn failover(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let fail = |text: &'static str| Err(Error::new(text).into());
    if cx.server.cluster.enabled {
        return fail("ERR FAILOVER not allowed in cluster mode.");
    }
    let peers = &cx.server.peers;
    let under_way = *peers.failover.lock() != Failover::None;
    if args.len() == 2 && args.is(1, "abort") {
        if !under_way {
            return fail("ERR No failover in progress.");
        }
        cx.server.abort_failover(cx.store, "FAILOVER ABORT");
        out.w().ok();
        return Ok(());
    }
    let (mut to, mut force, mut timeout) = (None, false, None);
    let mut at = 1;
    while at < args.len() {
        let more = args.len() - at - 1;
        if args.is(at, "timeout") && more >= 1 && timeout.is_none() {
            let ms = args.int(at + 1)?;
            if ms <= 0 {
                return fail("ERR FAILOVER timeout must be greater than 0");
            }
            timeout = Some(ms as u64);
            at += 1;
        } else if args.is(at, "to") && more >= 2 && to.is_none() {
            let port = u16::try_from(args.int(at + 2)?).map_err(|_| Error::NOT_INTEGER)?;
            to = Some((String::from_utf8_lossy(args.bytes(at + 1)).into_owned(), port));
            at += 2;
        } else if args.is(at, "force") && !force {
            force = true;
        } else {
            return Err(Error::SYNTAX.into());
        }
        at += 1;
    }
    if under_way {
        return fail("ERR FAILOVER already in progress.");
    }
    if peers.primary().is_some() {
        return fail("ERR FAILOVER is not valid when server is a replica.");
    }
    let replicas = peers.replicas();
    if replicas.is_empty() {
        return fail("ERR FAILOVER requires connected replicas.");
    }
    if force && (to.is_none() || timeout.is_none()) {
        return fail(
            "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
        );
    }
    if let Some((host, port)) = &to {
        match replicas.iter().find(|replica| is_at(replica, host, *port)) {
            None => return fail("ERR FAILOVER target HOST and PORT is not a replica."),
            Some(replica) if !replica.is_online() => {
                return fail("ERR FAILOVER target replica is not online.");
            }
            Some(_) => {}
        }
    }
    let until = timeout.map(|timeout| unix_ms().saturating_add(timeout));
    cx.server.begin_failover(Failover::Waits { to, until, force });
    out.w().ok();
    Ok(())
}

fn replconf(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len().is_multiple_of(2) {
        return Err(Error::SYNTAX.into());
    }
    for at in (1..args.len()).step_by(2) {
        let value = args.bytes(at + 1);
        let introduction = &mut cx.client()?.introduction;
        if args.is(at, "listening-port") {
            let port = parse_integer(value).ok_or(Error::NOT_INTEGER)?;
            introduction.port = u16::try_from(port).map_err(|_| Error::NOT_INTEGER)?;
        } else if args.is(at, "ip-address") {
            if value.len() > 255 {
                let len = value.len();
                return Err(Error::from(format!(
                    "ERR REPLCONF ip-address provided by replica instance is too long: {len} bytes"
                ))
                .into());
            }
            introduction.address =
                (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned());
        } else if args.is(at, "capa") {
            // Those that are not known are passed over.
            introduction.eof |= value.eq_ignore_ascii_case(b"eof");
            introduction.psync2 |= value.eq_ignore_ascii_case(b"psync2");
            introduction.image |= value.eq_ignore_ascii_case(CAPA_IMAGE.as_bytes());
        } else if args.is(at, "ack") || args.is(at, "getack") {
            // Of replicas and primaries alone, which have links of their own.
            return Ok(());
        } else if args.is(at, "rdb-only") {
            introduction.rdb_only = args.int(at + 1)? == 1;
        } else if args.is(at, "rdb-filter-only") {
            introduction.without = LeftOut { keys: true, functions: true };
            for part in value.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty()) {
                if !part.eq_ignore_ascii_case(b"functions") {
                    let part = String::from_utf8_lossy(part);
                    return Err(Error::from(format!(
                        "ERR Unsupported rdb-filter-only option: {part}"
                    ))
                    .into());
                }
                introduction.without.functions = false;
            }
        } else {
            let option = String::from_utf8_lossy(args.bytes(at)).into_owned();
            return Err(Error::from(format!("ERR Unrecognized REPLCONF option: {option}")).into());
        }
    }
    out.w().ok();
    Ok(())
}

fn psync(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (server, peers) = (cx.server, &cx.server.peers);
    if args.len() > 3 {
        promoted(cx, args)?;
    }
    if peers.primary().is_some_and(|primary| primary.link != Link::Connected) {
        return Err(Error::new("NOMASTERLINK Can't SYNC while not connected with my master").into());
    }
    let id = String::from_utf8_lossy(args.bytes(1)).into_owned();
    let wanted = args.int(2)?;
    // The replica asks for the byte behind those that it has.
    let offset = u64::try_from(wanted).ok().and_then(|wanted| wanted.checked_sub(1));
    let resume = offset.filter(|_| id != "?").map(|offset| (id, offset));
    let client = cx.client()?;
    if !out.is_empty() {
        return Err(Error::new("ERR SYNC and PSYNC are invalid with pending output").into());
    }
    client.psync = Some(Psync { resume, silent: false });
    // The stream is kept from now on, if it was not.
    peers.begin_stream(cx.store, &server.journal);
    Ok(())
}

/// The primary asks this replica to take its place.
fn promoted(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if !args.is(3, "failover") {
        return Err(Error::SYNTAX);
    }
    let (server, peers) = (cx.server, &cx.server.peers);
    if peers.primary().is_none() {
        return Err(Error::new("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    if !args.bytes(1).eq_ignore_ascii_case(peers.stream().backlog.id.as_bytes()) {
        return Err(Error::new("ERR PSYNC FAILOVER replid must match my replid."));
    }
    server.lead(cx.store);
    tracing::info!("this node is a primary now, for its primary failed over to it");
    Ok(())
}

fn sync(cx: &mut Context<'_>, _: Args<'_>, _: &mut Out) -> Answer {
    let (server, peers) = (cx.server, &cx.server.peers);
    if peers.primary().is_some_and(|primary| primary.link != Link::Connected) {
        return Err(Error::new("NOMASTERLINK Can't SYNC while not connected with my master").into());
    }
    cx.client()?.psync = Some(Psync { resume: None, silent: true });
    peers.begin_stream(cx.store, &server.journal);
    Ok(())
}
