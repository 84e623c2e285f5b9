//! From arguments to a handler: lookup, arity, authentication, state of the
//! connection, cluster routing, limits; then the call.

use crate::commands;
use crate::config::Param;
use crate::engine::call::{Halt, call, fail};
use crate::engine::client::ReplyMode;
use crate::engine::command::{Command, flags};
use crate::engine::context::Context;
use crate::engine::eviction::Room;
use crate::engine::out::Out;
use crate::follow::pubsub::{self, Caller};
use crate::measure::stats::Stat;
use crate::request::args::{Args, OwnedArgs};
use crate::request::error::Error;
use std::sync::atomic::Ordering::Relaxed;

/// Executes one command of a client and writes its reply, or tells why there is none
/// yet.
pub(crate) fn execute(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Halt> {
    let mark = out.mark();
    let _caller = Caller::enter(cx.client);
    // Whether what is written here is to be sent even if replies are off.
    let mut kept = false;
    let mut waits = Ok(());
    match admit(cx, args) {
        Ok(command) if is_paused(cx, command) => {
            cx.client.shared.figures.last_command.store(u32::from(command.index) + 1, Relaxed);
            // Work that was done for it is lost: the pause may be long.
            return Err(Halt::Pause);
        }
        Err(_) if is_http(args) => {
            tracing::warn!(peer = %cx.client.shared.peer, "possible attack: an HTTP request; connection closed");
            out.clear();
            cx.client.close = true;
        }
        Err(refusal) => {
            if let Some(multi) = &mut cx.client.multi {
                multi.failed = true;
            }
            fail(cx, &refusal, out);
        }
        Ok(command) => {
            cx.command = command;
            if cx.client.multi.is_some() && !passes_multi(command) {
                queue(cx, command, args, out);
            } else {
                let exec = command.name == "exec" && cx.client.reply == ReplyMode::On;
                kept = exec || command.only_pushes();
                match call(cx, command, args, out) {
                    Err(Halt::Work(work)) => return Err(Halt::Work(work)),
                    called => waits = called,
                }
            }
        }
    }
    let silent = match cx.client.reply {
        ReplyMode::On => {
            push_own(out);
            return waits;
        }
        ReplyMode::Off => true,
        ReplyMode::SkipNext => {
            cx.client.reply = ReplyMode::Skip;
            true
        }
        ReplyMode::Skip => {
            cx.client.reply = ReplyMode::On;
            true
        }
    };
    if silent && !kept {
        out.truncate(mark);
    }
    push_own(out);
    waits
}

/// Appends what the command published to its own caller: after the whole reply,
/// that of a transaction too.
fn push_own(out: &mut Out) {
    if pubsub::has_own() {
        out.bytes.extend_from_slice(&pubsub::take_own());
    }
}

/// Whether a pause keeps this command waiting; one of writes does what is only to
/// be queued, too.
fn is_paused(cx: &Context<'_>, command: &'static Command) -> bool {
    let pause = &cx.server.pause;
    pause.writes_paused(cx.store.now())
        && (pause.is_of_all() || does(cx, command, flags::WRITE | flags::MAY_REPLICATE))
        && pause.hold(&cx.client.shared)
}

const NO_REPLICAS: Error = Error::new("NOREPLICAS Not enough good replicas to write.");

/// Whether the command would write, alone or as a transaction, and may not for
/// want of replicas: there are none.
fn lacks_replicas(cx: &Context<'_>, command: &Command) -> bool {
    let config = &cx.server.config;
    if config.number(Param::MinReplicasToWrite) == 0 || config.number(Param::MinReplicasMaxLag) == 0
    {
        return false;
    }
    does(cx, command, flags::WRITE)
}

/// Whether the command reads or writes keys, alone or as a transaction. Who
/// monitors may not, like a replica, for the server does not wait for either.
fn uses_keyspace(cx: &Context<'_>, command: &Command) -> bool {
    does(cx, command, flags::READONLY | flags::WRITE | flags::MAY_REPLICATE)
}

/// Whether the command has one of these flags, or is an `EXEC` of one that has.
fn does(cx: &Context<'_>, command: &Command, flags: u32) -> bool {
    let queue = cx.client.multi.as_ref().filter(|_| command.name == "exec");
    command.has(flags)
        || queue.is_some_and(|multi| multi.queue.iter().any(|(queued, _)| queued.has(flags)))
}

/// Finds the command and checks that this client may call it now. `EXEC` that
/// may not be called ends the transaction and says why.
fn admit(cx: &mut Context<'_>, args: Args<'_>) -> Result<&'static Command, Error> {
    let command = commands::find(args)?;
    let mut refused = may_call(cx, command, args);
    if refused.is_ok() && cx.server.cluster.enabled {
        refused = cx.server.cluster.route(cx, command, args).map_err(|error| (error, false));
    }
    if refused.is_ok() {
        refused = has_room(cx, command).map_err(|error| (error, true));
    }
    if refused.is_ok() && lacks_replicas(cx, command) {
        refused = Err((NO_REPLICAS, true));
    }
    if refused.is_ok() && cx.client.in_pubsub_mode() && !passes_pubsub(command) {
        let error = format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            command.full_name()
        );
        refused = Err((Error::from(error), true));
    }
    if refused.is_ok()
        && cx.client.shared.figures.monitoring.load(Relaxed)
        && uses_keyspace(cx, command)
    {
        refused = Err((Error::new("ERR Replica can't interact with the keyspace"), true));
    }
    let Err((error, explained)) = refused else { return Ok(command) };
    cx.server.monitor.rejected(cx.worker, command);
    if command.name != "exec" {
        return Err(error);
    }
    commands::transactions::forget(cx);
    if !explained {
        return Err(error);
    }
    let whole = error.to_string();
    let reason = whole.strip_prefix("ERR ").unwrap_or(&whole);
    Err(Error::from(format!("EXECABORT Transaction discarded because of: {reason}")))
}

/// A refusal, and whether `EXEC` is to explain it as the reason of its own.
type Refusal = (Error, bool);

fn may_call(cx: &Context<'_>, command: &Command, args: Args<'_>) -> Result<(), Refusal> {
    if !command.arity_fits(args.len()) {
        return Err((Error::wrong_arity(&command.full_name()), true));
    }
    if !cx.client.authenticated && !command.has(flags::NO_AUTH) {
        return Err((Error::NO_AUTH, true));
    }
    if command.has(flags::NO_MULTI) && cx.client.multi.is_some() {
        return Err((Error::new("ERR Command not allowed inside a transaction"), true));
    }
    Ok(())
}

/// Whether there is memory for the command, made if need be; while a transaction
/// is queued, for anything that would make the queue longer.
fn has_room(cx: &Context<'_>, command: &Command) -> Result<(), Error> {
    if cx.server.make_room(cx.store) != Room::None {
        return Ok(());
    }
    let needs_room = match (&cx.client.multi, command.name) {
        (Some(multi), "exec") => multi.queue.iter().any(|(c, _)| c.has(flags::DENYOOM)),
        (Some(_), "discard" | "quit" | "reset") => false,
        (Some(_), _) => true,
        (None, _) => command.has(flags::DENYOOM),
    };
    if needs_room { Err(Error::OOM) } else { Ok(()) }
}

/// Whether a browser was made to send an HTTP request here, most likely: what
/// stands in its body must not be executed, so the connection ends unanswered.
fn is_http(args: Args<'_>) -> bool {
    args.is(0, "post") || args.is(0, "host:")
}

/// Commands that act at once within `MULTI`.
fn passes_multi(command: &Command) -> bool {
    matches!(command.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
        && command.container.is_none()
}

/// Commands that a subscribed client may use in RESP2.
fn passes_pubsub(command: &Command) -> bool {
    command.container.is_none()
        && matches!(
            command.name,
            "subscribe"
                | "psubscribe"
                | "ssubscribe"
                | "unsubscribe"
                | "punsubscribe"
                | "sunsubscribe"
                | "ping"
                | "quit"
                | "reset"
        )
}

fn queue(cx: &mut Context<'_>, command: &'static Command, args: Args<'_>, out: &mut Out) {
    let doomed = cx.client.watch.is_broken();
    cx.client.shared.figures.last_command.store(u32::from(command.index) + 1, Relaxed);
    let limit = cx.server.config.number(Param::ClientQueryBufferLimit) as usize;
    let Some(multi) = &mut cx.client.multi else { return };
    // Whatever `EXEC` will not execute need not be kept.
    if !multi.failed && !doomed {
        let owned = OwnedArgs::new(args);
        multi.bytes += owned.bytes();
        multi.queue.push((command, owned));
    }
    if multi.bytes > limit {
        cx.server.stats.add(Stat::client_query_buffer_limit_disconnections, 1);
        tracing::warn!(client = cx.client.id(), "closing client whose transaction is too large");
        cx.client.close = true;
        return;
    }
    out.w().simple("QUEUED");
}
