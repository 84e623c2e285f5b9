//! Whether this node of a cluster may execute a command on its keys: they are of one
//! slot, which this node serves, and the cluster is up.
//!
//! What it costs: while all slots are served, one load for a command of one key, and a
//! comparison of slots for one of several; else a bit of the map as well.

use super::Asked;
use crate::cluster::{DOWN_TEXT, NOT_SERVED_TEXT};
use crate::config::Param;
use crate::engine::command::{Command, flags};
use crate::request::args::Args;
use crate::request::error::Error;

const NOT_SERVED: Error = Error::new(NOT_SERVED_TEXT);
const DOWN: Error = Error::new(DOWN_TEXT);
const DOWN_FOR_WRITES: Error =
    Error::new("CLUSTERDOWN The cluster is down and only accepts read commands");

/// Whether this node may execute a command on its keys.
#[inline]
pub(super) fn route(asked: &Asked<'_>, command: &Command, args: Args<'_>) -> Result<(), Error> {
    if !command.names_keys() {
        return if command.name == "exec" { route_transaction(asked) } else { Ok(()) };
    }
    let one_key = command.keys.first == command.keys.last && command.find_keys.is_none();
    if one_key && asked.server.cluster.is_complete() {
        return Ok(());
    }
    let mut slot = None;
    follow(&mut slot, asked, command, args)?;
    match slot {
        Some(_) => admit(asked, command.has(flags::WRITE), command.has(flags::PUBSUB)),
        None => Ok(()),
    }
}

fn route_transaction(asked: &Asked<'_>) -> Result<(), Error> {
    let Some(multi) = &asked.client.multi else { return Ok(()) };
    let mut slot = None;
    for (command, args) in &multi.queue {
        follow(&mut slot, asked, command, args.args())?;
    }
    let writes = multi.queue.iter().any(|(command, _)| command.has(flags::WRITE));
    if slot.is_some() { admit(asked, writes, false) } else { Ok(()) }
}

/// Checks that all keys are of one slot, which is served.
fn follow(
    slot: &mut Option<usize>,
    asked: &Asked<'_>,
    command: &Command,
    args: Args<'_>,
) -> Result<(), Error> {
    let mut see = |index: usize| {
        let here = asked.key(args.bytes(index)).slot();
        match *slot {
            None if !asked.server.cluster.serves(here) => return Err(NOT_SERVED),
            Some(first) if first != here => return Err(Error::CROSS_SLOT),
            _ => *slot = Some(here),
        }
        Ok(())
    };
    if command.find_keys.is_some() {
        // Arguments that name no keys are an error the handler will tell.
        return command.key_indices(args).unwrap_or_default().into_iter().try_for_each(see);
    }
    let keys = command.keys;
    let last = if keys.last < 0 { args.len() as i32 + keys.last } else { keys.last };
    let mut index = keys.first;
    while keys.first > 0 && index <= last.min(args.len() as i32 - 1) {
        see(index as usize)?;
        index += keys.step.max(1);
    }
    Ok(())
}

/// Whether the state of the cluster allows a command on keys.
fn admit(asked: &Asked<'_>, writes: bool, shard_pubsub: bool) -> Result<(), Error> {
    let config = &asked.server.config;
    if asked.server.cluster.is_up(config) {
        return Ok(());
    }
    let (allowed, unless) = if shard_pubsub {
        (config.is_on(Param::ClusterAllowPubsubshardWhenDown), DOWN)
    } else if config.is_on(Param::ClusterAllowReadsWhenDown) {
        (!writes, DOWN_FOR_WRITES)
    } else {
        (false, DOWN)
    };
    if allowed { Ok(()) } else { Err(unless) }
}
