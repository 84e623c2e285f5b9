//! DUMP and RESTORE: a key's value as bytes, in Redis's format (`snug_rdb`).
//!
//! What Snug dumps, redis-server 7.0 restores, and the other way round; a hash of which
//! fields expire only Redis 7.4 and later, for none before knows of that. A payload is
//! checked whole before anything is changed, whatever `sanitize-dump-payload` says.
//!
//! A value is dumped from a copy that shares its large parts, with its slot unlocked. What
//! is large is dumped, or made of its payload, on a thread aside, while the client's
//! connection waits and its worker serves others.

use crate::auth::Categories;
use crate::commands::streams::with_scratch;
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::uses::*;
use crate::engine::large::Done;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::work::reclaim::reclaim;
use snug_codec::Segments;
use snug_rdb::{Options, Wrong};
use snug_store::types::stream::StreamScratch;
use snug_store::{Class, Delete, Detached, Event, Key, Limits, Making, NewStr, Restore};

const RESTORE: Event = Event::new(Class::GENERIC, "restore");

const DANGEROUS: Categories = Categories::KEYSPACE.and(Categories::DANGEROUS);

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("dump", 2, dump).flags(READONLY).key(1).used(RO_ACCESS).about(
        Group::Generic,
        "2.6.0",
        "O(N) where N is the size of the value.",
        "Returns a key's value in the format that RESTORE takes.",
    ),
    Command::new("restore", -4, restore)
        .flags(WRITE | DENYOOM)
        .key(1)
        .used(OW_UPDATE)
        .acl(DANGEROUS)
        .about(
            Group::Generic,
            "2.6.0",
            "O(N) where N is the size of the value; O(N*log(N)) for sorted sets.",
            "Gives a key a value that DUMP returned.",
        ),
    Command::new("restore-asking", -4, restore)
        .flags(WRITE | DENYOOM | ASKS)
        .key(1)
        .used(OW_UPDATE)
        .acl(DANGEROUS)
        .about(
            Group::Server,
            "3.0.0",
            "O(N) where N is the size of the value; O(N*log(N)) for sorted sets.",
            "The same while the key's slot moves to this node: for nodes of a cluster.",
        ),
];

/// How dumps are written.
fn options(cx: &Context<'_>) -> Options {
    Options { compress: cx.server.config.is_on(Param::Rdbcompression), ..Options::DEFAULT }
}

/// A value or payload of more bytes than this is worked on aside.
const ASIDE_FROM: usize = 64 * 1024;

fn dump(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if let Some(Done::Dumped(payload)) = cx.done_aside() {
        out.chain(&payload?);
        return Ok(());
    }
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let value = cx.find(&mut slot, &key).map(|found| slot.duplicate(found));
    drop(slot);
    let Some(value) = value else {
        out.w().null();
        return Ok(());
    };
    let options = options(cx);
    if value.allocated() > ASIDE_FROM && cx.origin.may_wait() {
        return Err(cx.work_aside(move |server| {
            let session = server.store.session();
            let with = (&session, &mut StreamScratch::new());
            let payload = snug_rdb::dump(&value, options, with);
            Done::Dumped(payload.map(|payload| Segments::from(&payload[..])).map_err(unsaved))
        }));
    }
    let payload = with_scratch(|scratch| {
        cx.store.with_session(|session| snug_rdb::dump(&value, options, (session, scratch)))
    });
    out.w().bulk(&payload.map_err(unsaved)?);
    Ok(())
}

fn unsaved(why: snug_store::Unsaved) -> Error {
    match why {
        snug_store::Unsaved::Unreadable(why) => why.into(),
        snug_store::Unsaved::Taken(why) => Error::from(format!("ERR {why}")),
    }
}

/// What `RESTORE` is asked for besides key and value.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    replace: bool,
    absolute: bool,
    idle: Option<i64>,
    freq: Option<i64>,
}

impl Asked {
    fn parse(args: Args<'_>) -> Result<Self, Error> {
        let mut asked = Self::default();
        let mut at = 4;
        while at < args.len() {
            let has_more = at + 1 < args.len();
            if args.is(at, "replace") {
                asked.replace = true;
            } else if args.is(at, "absttl") {
                asked.absolute = true;
            } else if args.is(at, "idletime") && has_more && asked.freq.is_none() {
                at += 1;
                let idle = args.int(at)?;
                if idle < 0 {
                    return Err(Error::new("ERR Invalid IDLETIME value, must be >= 0"));
                }
                asked.idle = Some(idle);
            } else if args.is(at, "freq") && has_more && asked.idle.is_none() {
                at += 1;
                let freq = args.int(at)?;
                if !(0..=255).contains(&freq) {
                    return Err(Error::new("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                }
                asked.freq = Some(freq);
            } else {
                return Err(Error::SYNTAX);
            }
            at += 1;
        }
        Ok(asked)
    }
}

fn restore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let asked = Asked::parse(args)?;
    let key = cx.key(args.bytes(1));
    if !asked.replace && cx.lock(&key).find_entry(&key).is_some() {
        return Err(Error::new("BUSYKEY Target key name already exists.").into());
    }
    let ttl = args.int(2)?;
    if ttl < 0 {
        return Err(Error::new("ERR Invalid TTL value, must be >= 0").into());
    }
    let now = cx.store.now();
    let at = if asked.absolute { ttl as u64 } else { (ttl as u64).saturating_add(now) };
    let expiry = (ttl > 0).then_some(at);
    let payload = args.value(3);
    let how = How {
        expiry,
        access: snug_rdb::access(
            asked.idle.map(|seconds| seconds as u64),
            asked.freq.map(|freq| freq as u8),
        ),
        limits: cx.server.config.value_limits(),
    };
    let value = match (cx.done_aside(), &payload) {
        (Some(Done::Made(made)), _) => made?,
        (_, NewStr::Chain(chain)) if cx.origin.may_wait() => {
            let (name, chain) = (args.bytes(1).to_vec(), chain.clone());
            return Err(cx.work_aside(move |server| {
                let session = server.store.session();
                let making = session.making(&how.limits);
                let key = server.store.key(&name);
                Done::Made(value_of(&key, &NewStr::Chain(chain), &how, making))
            }));
        }
        _ => value_of(&key, &payload, &how, cx.store.making(&how.limits))?,
    };
    let mut slot = cx.lock(&key);
    let found = slot.find_entry(&key);
    let before = if expiry.is_some_and(|at| at <= now) && cx.origin.minds_time() {
        // It would be gone at once.
        found.and_then(|found| slot.apply(&key, Some(found), Delete, Event::DEL))
    } else {
        slot.apply(&key, found, Restore::new(value, &payload), RESTORE)
    };
    drop(slot);
    if let Some(before) = before {
        reclaim(before);
    }
    out.w().ok();
    Ok(())
}

/// What a value is to be like that is made of a payload.
struct How {
    expiry: Option<u64>,
    access: Option<u8>,
    limits: Limits,
}

/// The value in a payload.
fn value_of(
    key: &Key<'_>,
    payload: &NewStr<'_>,
    how: &How,
    mut making: Making<'_>,
) -> Result<Detached, Error> {
    const BAD: Error = Error::new("ERR Bad data format");
    let restored = match payload {
        NewStr::Bytes(bytes) => snug_rdb::restore(std::iter::once(*bytes), &mut making),
        NewStr::Chain(chain) => {
            snug_rdb::restore(chain.parts().iter().map(|part| &part[..]), &mut making)
        }
        _ => return Err(BAD),
    };
    restored.map_err(|wrong| match wrong {
        Wrong::NoDump(wrong) => Error::from(format!("ERR {wrong}")),
        Wrong::Damaged(_) => BAD,
    })?;
    making.finish(key, how.expiry, how.access).ok_or(BAD)
}
