//! `MIGRATE`: keys that move to another server.
//!
//! No worker waits for the target. The values are copied, large parts by reference, at
//! one moment; they are sent (`replication/parcels.rs`) while the client waits and
//! everybody else goes on. Then the command is executed again, and removes what the target
//! has acknowledged: of each key what was copied, for a key that has changed meanwhile is
//! sent again, in the place of what the target has of it. One that keeps changing stays
//! here, and its client is told so.
//!
//! Whatever fails, a key is here, or there, or at both: it is removed here when the
//! target has said that it has it, and never before.

use crate::auth::Categories;
use crate::config::Param;
use crate::engine::client::Client;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::keys::KeySpec;
use crate::engine::keys::uses::*;
use crate::engine::large::Done;
use crate::engine::out::Out;
use crate::engine::server::Server;
use crate::replication::parcels::{Delivered, Parcel, Target, deliver};
use crate::request::args::Args;
use crate::request::error::Error;
use crate::work::reclaim::reclaim;
use parking_lot::Mutex;
use snug_rdb::Options;
use snug_store::{Batch, Delete, Event};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How often keys are sent that change while they are on their way.
const TRIES: u32 = 16;

pub(crate) const COMMANDS: &[Command] = &[Command::new("migrate", -6, migrate)
    .flags(WRITE)
    .acl(Categories::KEYSPACE.and(Categories::DANGEROUS))
    .key(3)
    .movable(keys)
    .specs(&[
        KeySpec::at(RW_ACCESS_DELETE, 3),
        KeySpec::all_behind(RW_ACCESS_DELETE_INCOMPLETE, "KEYS", -2),
    ])
    .about(
        Group::Generic,
        "2.6.0",
        "O(N) where N is the size of the values, here and at the target.",
        "Moves keys to another server.",
    )];

/// What is asked for.
struct Asked {
    copies: bool,
    replaces: bool,
    login: Vec<Vec<u8>>,
    /// Where the keys begin, and behind their last.
    keys: std::ops::Range<usize>,
}

impl Asked {
    fn parse(args: Args<'_>) -> Result<Self, Error> {
        let mut asked = Self { copies: false, replaces: false, login: Vec::new(), keys: 3..4 };
        let mut at = 6;
        while at < args.len() {
            let more = args.len() - 1 - at;
            let words = |count: usize| (1..=count).map(|n| args.bytes(at + n).to_vec()).collect();
            if args.is(at, "copy") {
                asked.copies = true;
            } else if args.is(at, "replace") {
                asked.replaces = true;
            } else if args.is(at, "auth") && more >= 1 {
                asked.login = words(1);
                at += 1;
            } else if args.is(at, "auth2") && more >= 2 {
                asked.login = words(2);
                at += 2;
            } else if args.is(at, "keys") {
                if !args.bytes(3).is_empty() {
                    return Err(Error::new(
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                    ));
                }
                asked.keys = at + 1..args.len();
                break;
            } else {
                return Err(Error::SYNTAX);
            }
            at += 1;
        }
        Ok(asked)
    }
}

/// The keys, for whoever asks which they are.
fn keys(args: Args<'_>) -> Result<Vec<usize>, Error> {
    let mut at = 6;
    while at < args.len() {
        if args.is(at, "keys") && args.bytes(3).is_empty() {
            return Ok((at + 1..args.len()).collect());
        }
        at += if args.is(at, "auth") {
            2
        } else if args.is(at, "auth2") {
            3
        } else {
            1
        };
    }
    Ok(vec![3])
}

/// Keys of a client's command that are on their way.
struct Moving {
    /// The command's arguments.
    args: Vec<Vec<u8>>,
    db: usize,
    /// Each with a watch, which is broken when it changes.
    watched: HashMap<Vec<u8>, Arc<AtomicBool>>,
    try_number: u32,
    delivered: Arc<Mutex<Option<Delivered>>>,
}

impl Moving {
    fn unwatch(&mut self, server: &Server, store: &Batch<'_>) {
        for (key, broken) in self.watched.drain() {
            server.watches.remove(store, self.db, &key, &broken);
        }
    }
}

/// The client's command is done, or never will be: what it has watched is watched no
/// more.
pub(crate) fn give_up(server: &Server, store: &Batch<'_>, client: &mut Client) {
    if let Some(mut moving) = take(client) {
        moving.unwatch(server, store);
    }
}

fn take(client: &mut Client) -> Option<Box<Moving>> {
    client.moving.take()?.downcast::<Moving>().ok()
}

fn migrate(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let asked = Asked::parse(args)?;
    let (timeout, db) = (args.int(5)?, args.int(4)?);
    if !cx.origin.may_wait() {
        return Err(Error::new(
            "ERR MIGRATE waits for another server, which a transaction or a script may not",
        )
        .into());
    }
    let names: Vec<&[u8]> = asked.keys.clone().map(|at| args.bytes(at)).collect();
    let (server, store) = (cx.server, cx.store);
    let mut moving = match take(cx.client()?) {
        Some(moving) if moving.args.iter().map(Vec::as_slice).eq(args.iter_from(0)) => moving,
        other => {
            if let Some(mut other) = other {
                other.unwatch(server, store);
            }
            Box::new(Moving {
                args: args.iter_from(0).map(<[u8]>::to_vec).collect(),
                db: cx.db(),
                watched: HashMap::new(),
                try_number: 0,
                delivered: Arc::default(),
            })
        }
    };
    cx.finished = None;
    let mut again: Vec<Vec<u8>> = Vec::new();
    if moving.try_number > 0 {
        let delivered = moving.delivered.lock().take().unwrap_or_default();
        if !asked.copies {
            again = remove(cx, &moving, &delivered.keys);
        }
        moving.unwatch(server, store);
        if let Some(error) = delivered.error {
            return Err(Error::from(error).into());
        }
        if again.is_empty() {
            out.w().ok();
            return Ok(());
        }
        if moving.try_number == TRIES {
            return Err(Error::new(
                "ERR The keys that are left here have changed whenever they were sent",
            )
            .into());
        }
    }
    let wanted: Vec<&[u8]> =
        if again.is_empty() { names } else { again.iter().map(Vec::as_slice).collect() };
    let replaces = asked.replaces || !again.is_empty();
    let parcels = copy(cx, &mut moving, &wanted, asked.copies, replaces);
    if parcels.is_empty() {
        moving.unwatch(server, store);
        // What was sent and is gone since needs nothing more.
        if again.is_empty() {
            out.w().simple("NOKEY");
        } else {
            out.w().ok();
        }
        return Ok(());
    }
    let target = Target {
        host: String::from_utf8_lossy(args.bytes(1)).into_owned(),
        // One that is no port is one where nobody listens.
        port: args.int(2).ok().and_then(|port| u16::try_from(port).ok()).unwrap_or(0),
        db,
        timeout: Duration::from_millis(if timeout > 0 { timeout as u64 } else { 1000 }),
        login: asked.login,
        restore: if server.cluster.enabled { b"RESTORE-ASKING" } else { b"RESTORE" },
    };
    let options =
        Options { compress: server.config.is_on(Param::Rdbcompression), ..Options::DEFAULT };
    moving.try_number += 1;
    let delivered = Arc::clone(&moving.delivered);
    let me = server.me.upgrade().ok_or(Error::new("ERR the server ends"))?;
    let waits = cx.work(async move {
        *delivered.lock() = Some(deliver(me, target, parcels, options).await);
        Done::Nothing
    });
    cx.client()?.moving = Some(moving as Box<dyn Any + Send>);
    Err(waits)
}

/// Copies what keys hold at one moment; keys that are to be removed are watched from
/// then on.
fn copy(
    cx: &Context<'_>,
    moving: &mut Moving,
    names: &[&[u8]],
    copies: bool,
    replaces: bool,
) -> Vec<Parcel> {
    let held = cx.hold(names.iter().map(|name| cx.key(name)));
    let mut parcels = Vec::new();
    for name in names {
        if !copies && !moving.watched.contains_key(*name) {
            let broken = Arc::default();
            cx.server.watches.add_any(cx.store, moving.db, name, &broken);
            moving.watched.insert(name.to_vec(), broken);
        }
        let key = cx.key(name);
        let mut slot = cx.lock(&key);
        if let Some(found) = cx.find_to_read(&mut slot, &key) {
            parcels.push(Parcel { value: slot.duplicate(found), replaces });
        }
    }
    drop(held);
    parcels
}

/// Removes keys that the target has, in one step; those that have changed since they
/// were sent stay, and are told.
fn remove(cx: &Context<'_>, moving: &Moving, names: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let held = cx.hold(names.iter().map(|name| cx.key(name)));
    let (mut changed, mut removed) = (Vec::new(), Vec::new());
    for name in names {
        let key = cx.key(name);
        let mut slot = cx.lock(&key);
        if moving.watched.get(name).is_none_or(|broken| broken.load(Relaxed)) {
            changed.push(name.clone());
        } else if let Some(found) = slot.find_untouched(&key) {
            removed.extend(slot.apply(&key, Some(found), Delete, Event::DEL));
        }
    }
    drop(held);
    removed.into_iter().for_each(reclaim);
    changed
}
