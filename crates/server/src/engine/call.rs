//! The call of a command's handler: its error answered if it fails, its figures taken.

use crate::config::Param;
use crate::engine::away;
use crate::engine::blocked::Waiter;
use crate::engine::command::{Answer, Command, Unanswered, flags};
use crate::engine::context::{Context, Origin};
use crate::engine::errands::{self, LONG};
use crate::engine::large::Work;
use crate::engine::out::Out;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::outside::clock::Instant;
use crate::request::args::Args;
use crate::request::error::Error;
use std::cell::Cell;
use std::sync::Arc;

/// Why a client's command has no reply yet: until it has one, its connection
/// executes nothing.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The client waits for a key: the command is executed on its behalf.
    Wait(Arc<Waiter>),
    /// The command is executed again when this is done. In a box, so that none of
    /// this takes more than two registers.
    Work(Box<Work>),
    /// The command is executed again when `CLIENT PAUSE` is over.
    Pause,
    /// The command is executed again when those who follow commits have caught up.
    Behind,
}

/// Calls a command's handler, answers its error if it fails, and counts it once it is
/// answered.
pub(crate) fn call(
    cx: &mut Context<'_>,
    command: &'static Command,
    args: Args<'_>,
    out: &mut Out,
) -> Result<(), Halt> {
    call_by(cx, command, args, out, command.handler)
}

/// The same with somebody else's handler: it does what the command does, and answers in
/// another way.
#[inline]
pub(crate) fn call_by(
    cx: &mut Context<'_>,
    command: &'static Command,
    args: Args<'_>,
    out: &mut Out,
    handler: impl FnOnce(&mut Context<'_>, Args<'_>, &mut Out) -> Answer,
) -> Result<(), Halt> {
    cx.command = command;
    let mark = out.mark();
    let clock = cx.client.as_deref_mut().and_then(|client| client.clock.take());
    let began = clock.unwrap_or_else(Instant::now);
    if cx.server.tracking.is_on() {
        remember_keys(cx, command, args);
    }
    let (answer, took) = match errands::came(cx) {
        None if cx.names_many(args) => (Err(LONG.into()), None),
        None => (handler(cx, args, out), None),
        Some(came) => {
            let answer = came.reply.map(|reply| out.append(reply)).map_err(Unanswered::Error);
            (answer, Some(came.took))
        }
    };
    let answer = if cx.store.store().tier().is_used() {
        match meets_away(cx, answer) {
            Some(answer) => answer,
            None => {
                out.truncate(mark);
                return Err(away::halt(cx.server, cx.store.take_met()));
            }
        }
    } else {
        answer
    };
    let failed = answer.is_err();
    if let Err(unanswered) = answer {
        out.truncate(mark);
        let unanswered = match unanswered {
            Unanswered::Error(error) if error == LONG => cx.aside(args),
            unanswered => unanswered,
        };
        match unanswered {
            Unanswered::Error(error) if take_counted() => out.w().error_bytes(error.text()),
            Unanswered::Error(error) => fail(cx.server, &error, out),
            Unanswered::Wait(waiter) => {
                // It is counted when it has been served.
                if cx.origin.may_wait() {
                    cx.server.monitor.seen(cx, args);
                }
                return Err(Halt::Wait(waiter));
            }
            Unanswered::Later(work) => return Err(Halt::Work(Box::new(work))),
        }
    }
    cx.server.stats.add(Stat::total_commands_processed, 1);
    let ended = Instant::now();
    if let Some(client) = &mut cx.client {
        client.clock = Some(ended);
    }
    let nanoseconds = took.unwrap_or(ended - began).as_nanos() as u64;
    cx.server.monitor.called(cx, args, nanoseconds, failed);
    Ok(())
}

thread_local! {
    /// The error that a handler returns was counted before.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// The error that this thread's handler is about to return was that of a command which a
/// script had called, and was counted then.
pub(crate) fn already_counted() {
    COUNTED.set(true);
}

/// Whether that was said, which is forgotten.
pub(crate) fn take_counted() -> bool {
    COUNTED.take()
}

/// What a command has answered that may have met values on disk; none if it is to be
/// executed again when they are in memory.
#[cold]
fn meets_away(cx: &mut Context<'_>, answer: Answer) -> Option<Answer> {
    if cx.store.has_met() {
        return None;
    }
    // Who only tells a length, or finds nothing to change, has not noticed; who needed the
    // bytes has failed, for they read as damaged.
    match cx.store.take_lost() {
        Some(lost) => Some(Err(Error::from(format!("ERR {lost}")).into())),
        None => Some(answer),
    }
}

/// Notes which keys a client is about to read that is to be told when they change.
#[cold]
fn remember_keys(cx: &Context<'_>, command: &Command, args: Args<'_>) {
    let (id, remembers) = match (cx.client.as_deref(), cx.origin) {
        (Some(client), _) => {
            (client.id(), client.tracking.as_ref().is_some_and(|mode| mode.remembers()))
        }
        (None, Origin::Aside(absent)) => (absent.shared.id, absent.remembers),
        _ => return,
    };
    if remembers && command.has(flags::READONLY) {
        // Arguments that name no keys are an error the handler will tell.
        let keys = command.used_keys(args).unwrap_or_default();
        let most = cx.server.config.number(Param::TrackingTableMaxKeys) as usize;
        let keys = keys.iter().map(|(at, _)| args.bytes(*at));
        cx.server.tracking.remember(id, keys, most);
    }
}

/// Sends an error and counts it.
pub(crate) fn fail(server: &Server, error: &Error, out: &mut Out) {
    server.stats.add(Stat::total_error_replies, 1);
    server.monitor.error(&error.code());
    if *error == Error::DAMAGED_BLOCK {
        server.damaged(error);
    }
    out.w().error_bytes(error.text());
}
