//! From arguments to a handler: lookup, arity, authentication, state of the
//! connection, cluster routing, limits; then the call, and its figures.

use crate::client::ReplyMode;
use crate::command::{Command, flags};
use crate::commands;
use crate::config::Param;
use crate::context::{Args, Context, OwnedArgs};
use crate::error::Error;
use crate::out::Out;
use crate::stats::Stat;
use std::time::Instant;

/// Executes one command of a client and writes its reply; false, and nothing
/// done, if it has to wait for a pause of writes to end.
pub(crate) fn execute(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> bool {
    let mark = out.mark();
    match admit(cx, args) {
        Ok(command) if waits(cx, command) => {
            cx.client.waits_to_write = true;
            return false;
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
                call(cx, command, args, out);
            }
        }
    }
    match cx.client.reply {
        ReplyMode::On => {}
        ReplyMode::Off => out.truncate(mark),
        ReplyMode::SkipNext => {
            cx.client.reply = ReplyMode::Skip;
            out.truncate(mark);
        }
        ReplyMode::Skip => {
            cx.client.reply = ReplyMode::On;
            out.truncate(mark);
        }
    }
    true
}

/// Whether a pause of writes keeps this command waiting.
fn waits(cx: &Context<'_>, command: &'static Command) -> bool {
    if !cx.server.pause.writes_paused(cx.store.now()) {
        return false;
    }
    let writes = |command: &Command| command.has(flags::WRITE | flags::MAY_REPLICATE);
    match &cx.client.multi {
        Some(multi) => command.name == "exec" && multi.queue.iter().any(|(c, _)| writes(c)),
        None => writes(command),
    }
}

/// Finds the command and checks that this client may call it now.
fn admit(cx: &mut Context<'_>, args: Args<'_>) -> Result<&'static Command, Error> {
    let command = commands::find(args)?;
    if !command.arity_fits(args.len()) {
        cx.server.monitor.rejected(cx.worker, command);
        return Err(Error::wrong_arity(&command.full_name()));
    }
    let client = &cx.client;
    if !client.authenticated && !command.has(flags::NO_AUTH) {
        return Err(Error::NO_AUTH);
    }
    if command.has(flags::NO_MULTI) && client.multi.is_some() {
        return Err(Error::from(format!(
            "ERR Command '{}' not allowed inside a transaction",
            command.full_name()
        )));
    }
    if client.in_pubsub_mode() && !passes_pubsub(command) {
        return Err(Error::from(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            command.full_name()
        )));
    }
    if cx.server.cluster.enabled && command.names_keys() {
        cx.server.cluster.route(cx, command, args)?;
    }
    let limit = cx.server.config.number(Param::MaxMemory) as usize;
    if limit > 0 && command.has(flags::DENYOOM) && snug_store::memory::used() > limit {
        return Err(Error::OOM);
    }
    Ok(command)
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
    let Some(multi) = &mut cx.client.multi else { return };
    let owned = OwnedArgs::new(args);
    multi.bytes += owned.args().buf.len() + size_of::<OwnedArgs>();
    multi.queue.push((command, owned));
    out.w().simple("QUEUED");
}

/// Calls a command's handler, answers its error if it fails, and counts it.
pub(crate) fn call(cx: &mut Context<'_>, command: &'static Command, args: Args<'_>, out: &mut Out) {
    cx.command = command;
    let mark = out.mark();
    let began = Instant::now();
    let result = (command.handler)(cx, args, out);
    let failed = result.is_err();
    if let Err(error) = result {
        out.truncate(mark);
        fail(cx, &error, out);
    }
    cx.server.stats.add(Stat::total_commands_processed, 1);
    cx.server.monitor.called(cx, args, began.elapsed(), failed);
}

/// Sends an error and counts it.
fn fail(cx: &mut Context<'_>, error: &Error, out: &mut Out) {
    cx.server.stats.add(Stat::total_error_replies, 1);
    cx.server.monitor.error(error.code());
    out.w().error(error.text());
}
