//! The call of a command's handler: its error answered if it fails, its figures taken.

use crate::engine::client::ReplyMode;
use crate::engine::command::{Command, Unanswered, flags};
use crate::engine::context::{Context, Origin};
use crate::engine::large::Awaited;
use crate::engine::out::Out;
use crate::measure::stats::Stat;
use crate::request::args::Args;
use crate::request::error::Error;
use std::time::Instant;

/// Calls a command's handler, answers its error if it fails, and counts it.
pub(crate) fn call(cx: &mut Context<'_>, command: &'static Command, args: Args<'_>, out: &mut Out) {
    cx.command = command;
    let mark = out.mark();
    let began = cx.client.clock.take().unwrap_or_else(Instant::now);
    let reply = cx.client.reply;
    let result = (command.handler)(cx, args, out);
    if is_put_off(cx) {
        out.truncate(mark);
        return;
    }
    cx.client.awaited = None;
    let failed = result.is_err();
    if let Err(Unanswered::Error(error)) = result {
        out.truncate(mark);
        fail(cx, &error, out);
    }
    if matches!(cx.origin, Origin::Exec)
        && turned_off(reply, cx.client.reply)
        && !only_pushes(command)
    {
        out.truncate(mark);
    }
    if cx.client.blocked.is_some() {
        // It is counted when it has been served.
        if cx.origin.may_wait() {
            cx.server.monitor.seen(cx, args);
        }
        return;
    }
    cx.server.stats.add(Stat::total_commands_processed, 1);
    let ended = Instant::now();
    cx.client.clock = Some(ended);
    cx.server.monitor.called(cx, args, ended - began, failed);
}

/// Whether the command waits for work on a large value, to be executed again.
pub(crate) fn is_put_off(cx: &Context<'_>) -> bool {
    matches!(cx.client.awaited, Some(Awaited::Running(_)))
}

/// Whether a command within `EXEC` is not answered, by the modes before and
/// after it.
fn turned_off(before: ReplyMode, after: ReplyMode) -> bool {
    after == ReplyMode::Off || (after == ReplyMode::SkipNext && before != ReplyMode::SkipNext)
}

/// Sends an error and counts it.
pub(crate) fn fail(cx: &mut Context<'_>, error: &Error, out: &mut Out) {
    cx.server.stats.add(Stat::total_error_replies, 1);
    cx.server.monitor.error(&error.code());
    if *error == Error::DAMAGED_BLOCK {
        cx.server.damaged(error);
    }
    out.w().error_bytes(error.text());
}

/// Commands that answer with pushes, which `CLIENT REPLY` does not stop.
pub(crate) fn only_pushes(command: &Command) -> bool {
    command.has(flags::PUBSUB) && command.has(flags::NOSCRIPT)
}
