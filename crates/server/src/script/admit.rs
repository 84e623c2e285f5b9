//! Whether a script may have a command executed: all that is asked of a client's
//! commands, and what is asked of scripts besides. One function, through which every
//! command of every script goes.

use super::host::Run;
use crate::auth::{Denied, Place};
use crate::engine::accounts;
use crate::engine::command::{Command, flags};
use crate::peers::limits;
use crate::request::args::Args;
use std::sync::atomic::Ordering::Relaxed;

const UNDECLARED: &[u8] = b"ERR Script attempted to access a key that it did not declare, which \
    'lua-undeclared-keys' denies";

/// Whether the command may be executed; else what the script is told.
pub(super) fn admit(
    run: &mut Run<'_, '_>,
    command: &'static Command,
    args: Args<'_>,
) -> Result<(), Vec<u8>> {
    if !command.arity_fits(args.len()) {
        return Err(b"ERR Wrong number of args calling Redis command from script".to_vec());
    }
    if command.has(flags::NOSCRIPT) && !run.cx.server.scripts.allow_all.load(Relaxed) {
        return Err(b"ERR This Redis command is not allowed from script".to_vec());
    }
    let is_stale = run.cx.server.peers.limits() & limits::STALE != 0;
    if is_stale && !command.has(flags::STALE) {
        return Err(b"ERR Can not execute the command on a stale replica".to_vec());
    }
    let who = match (&mut run.who, &mut run.cx.client) {
        (Some(who), _) => Some((&who.client, &mut who.account)),
        (None, Some(client)) => Some((&client.shared, &mut client.account)),
        (None, None) => None,
    };
    if let Some((client, account)) = who
        && let Err(denied) = accounts::check(account, command, args)
    {
        let within = (Place::Script, run.cx.command);
        let who = (&**client, account.name());
        accounts::log_denied(run.cx.server, who, within, (command, args), denied);
        let what = match denied {
            Denied::Command => "run this command or subcommand",
            Denied::Key(_) => "access at least one of the keys mentioned in the command arguments",
            Denied::Channel(_) => "publish to the channel mentioned in the command",
        };
        return Err(format!("ERR The user executing the script can't {what}").into_bytes());
    }
    if !run.declares(command, args) {
        return Err(UNDECLARED.to_vec());
    }
    if run.read_only && command.has(flags::WRITE | flags::MAY_REPLICATE) {
        return Err(b"ERR Write commands are not allowed from read-only scripts.".to_vec());
    }
    // What has begun to write goes on.
    if !run.wrote && command.has(flags::WRITE) {
        run.cx.server.may_write().map_err(|error| error.text().to_vec())?;
    }
    if !run.wrote && run.short_of_memory && !run.flags.allow_oom && command.has(flags::DENYOOM) {
        return Err(crate::request::error::Error::OOM.text().to_vec());
    }
    if run.cx.server.cluster.enabled {
        route(run, command, args)?;
    }
    Ok(())
}

/// Whether this node of a cluster serves the keys, and they are of one slot.
fn route(run: &mut Run<'_, '_>, command: &Command, args: Args<'_>) -> Result<(), Vec<u8>> {
    let cluster = &run.cx.server.cluster;
    let keys = command.key_indices(args).unwrap_or_default();
    if keys.is_empty() {
        return Ok(());
    }
    if !cluster.is_up(&run.cx.server.config) {
        return Err(b"ERR Script attempted to execute a command while the cluster is down".to_vec());
    }
    let mut first = None;
    for index in keys {
        let slot = run.cx.store.key(args.bytes(index)).slot();
        let same = *first.get_or_insert(slot) == slot;
        if !same || !cluster.serves(slot) {
            return Err(
                b"ERR Script attempted to access a non local key in a cluster node".to_vec()
            );
        }
    }
    if run.flags.compat || run.flags.allow_cross_slot {
        return Ok(());
    }
    if run.slot.is_some() && run.slot != first {
        return Err(
            b"ERR Script attempted to access keys that do not hash to the same slot".to_vec()
        );
    }
    run.slot = first;
    Ok(())
}
