//! From arguments to a handler: lookup, arity, authentication, state of the
//! connection, cluster routing, limits; then the call.

mod open;
mod route;

use crate::auth::Place;
use crate::commands;
use crate::config::Param;
use crate::engine::accounts;
use crate::engine::aside::Meeting;
use crate::engine::away;
use crate::engine::call::{Halt, call_by, fail};
use crate::engine::client::{Caller, Client, ReplyMode};
use crate::engine::command::{Answer, Command, Group, flags};
use crate::engine::context::{Context, Origin};
use crate::engine::errands;
use crate::engine::eviction::Room;
use crate::engine::large::Done;
use crate::engine::out::Out;
use crate::engine::server::Server;
use crate::follow::pubsub::{self, OnBehalf};
use crate::follow::tracking;
use crate::measure::stats::Stat;
use crate::peers::{self, limits};
use crate::request::args::{Args, OwnedArgs};
use crate::request::error::Error;
use route::route;
use snug_codec::pool::Pool;
use snug_store::{Batch, GaveUp, GivesUp, Key};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;

/// A client that asks to have a command executed, and where that is done: what the
/// command's context is made of.
#[derive(Debug)]
pub(crate) struct Asked<'c> {
    pub caller: &'c mut Caller,
    pub client: &'c mut Client,
    /// The keyspace, for the length of this batch.
    pub store: &'c Batch<'c>,
    pub server: &'c Server,
    /// The worker, counted from 0, and its workspaces for large values.
    pub worker: usize,
    pub pool: Option<&'c Pool>,
    /// The key that is most likely the command's, if it was hashed already.
    pub hashed: Option<&'c Key<'c>>,
    /// Work that the command was put off for, done.
    pub finished: Option<Box<Done>>,
}

impl Asked<'_> {
    /// A key's hash and slot.
    fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        let same = self.hashed.and_then(|key| key.of_same(bytes));
        same.unwrap_or_else(|| self.store.key(bytes))
    }
}

/// Executes one command of a client and writes its reply, or tells why there is none
/// yet.
pub(crate) fn execute(asked: &mut Asked<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Halt> {
    execute_by(asked, args, out, |cx, args, out| (cx.command.handler)(cx, args, out))
}

/// The same with a handler of the caller's: whatever is asked of a client before that
/// command is executed is asked, and then the handler does it, in its own way. That is how
/// those who do not speak Redis's protocol read and write keys.
#[inline]
pub(crate) fn execute_by(
    asked: &mut Asked<'_>,
    args: Args<'_>,
    out: &mut Out,
    handler: impl FnOnce(&mut Context<'_>, Args<'_>, &mut Out) -> Answer,
) -> Result<(), Halt> {
    out.protocol = asked.caller.protocol;
    let _on_behalf = OnBehalf::of(&asked.client.shared);
    match commands::find(args) {
        Ok(command)
            if open::is_open(asked, command)
                && command.arity_fits(args.len())
                && asked.server.make_room(asked.store).is_there() =>
        {
            let called = perform_noting(asked, command, args, out, handler);
            push_own(out);
            called
        }
        found => execute_with_care(asked, found, args, out, handler),
    }
}

/// The same where something may be in the way of the command, or it changes what its
/// client is.
#[inline(never)]
fn execute_with_care(
    asked: &mut Asked<'_>,
    found: Result<&'static Command, Error>,
    args: Args<'_>,
    out: &mut Out,
    handler: impl FnOnce(&mut Context<'_>, Args<'_>, &mut Out) -> Answer,
) -> Result<(), Halt> {
    // What ran aside was admitted, and has happened.
    let ran = errands::has_run(asked.client);
    let admitted = found.and_then(|command| match ran {
        true => Ok(command),
        false => admit(asked, command, args),
    });
    // What was evicted to make room for the command is told before its reply.
    push_own(out);
    let mark = out.mark();
    // Whether what is written here is to be sent even if replies are off.
    let mut kept = false;
    let mut waits = Ok(());
    match admitted {
        Ok(command) if ran => {
            waits = perform(asked, command, args, out, handler);
            end_tracking(asked, command);
        }
        Ok(command) if is_paused(asked, command) => {
            asked.client.shared.figures.last_command.store(u32::from(command.index) + 1, Relaxed);
            // Work that was done for it is lost: the pause may be long.
            return Err(Halt::Pause);
        }
        Ok(command) if is_behind(asked, command) => return Err(Halt::Behind),
        Ok(command) if asked.server.tiering.makes_room() && waits_for_room(asked, command) => {
            return Err(away::wait_for_room(asked.server));
        }
        Ok(command)
            if asked.server.aside.is_active()
                && let Some(meeting) = meets_long(asked, command, args) =>
        {
            match meeting {
                Meeting::Wait => return Err(Halt::Work(Box::new(errands::later(asked.server)))),
                Meeting::Busy(busy) => {
                    asked.server.monitor.rejected(asked.worker, command);
                    let refusal = match &mut asked.client.multi {
                        Some(_) if command.name == "exec" => discarded(asked, &busy),
                        Some(multi) => {
                            multi.failed = true;
                            busy
                        }
                        None => busy,
                    };
                    fail(asked.server, &refusal, out);
                }
            }
        }
        // A transaction is executed: each of its commands says what it cannot read.
        Ok(command)
            if command.name != "exec"
                && let Some(Done::Lost(error)) = asked.finished.as_deref() =>
        {
            fail(asked.server, error, out);
        }
        Ok(command)
            if asked.server.store.tier().is_used()
                && let Some(halt) = meets_away(asked, command, args) =>
        {
            return Err(halt);
        }
        Err(_) if is_http(args) => {
            tracing::warn!(peer = %asked.client.shared.peer, "possible attack: an HTTP request; connection closed");
            out.clear();
            asked.client.close = true;
        }
        Err(refusal) => {
            if let Some(multi) = &mut asked.client.multi {
                multi.failed = true;
            }
            fail(asked.server, &refusal, out);
        }
        Ok(command) => {
            if asked.client.multi.is_some() && !passes_multi(command) {
                queue(asked, command, args, out);
            } else {
                let exec = command.name == "exec" && asked.client.reply == ReplyMode::On;
                kept = exec || command.only_pushes();
                let called = perform_noting(asked, command, args, out, handler);
                end_tracking(asked, command);
                match called {
                    Err(Halt::Work(work)) => return Err(Halt::Work(work)),
                    called => waits = called,
                }
            }
        }
    }
    let silent = match asked.client.reply {
        ReplyMode::On => {
            push_own(out);
            return waits;
        }
        ReplyMode::Off => true,
        ReplyMode::SkipNext => {
            asked.client.reply = ReplyMode::Skip;
            true
        }
        ReplyMode::Skip => {
            asked.client.reply = ReplyMode::On;
            true
        }
    };
    if silent && !kept {
        out.truncate(mark);
    }
    push_own(out);
    waits
}

/// Calls a command that nothing is in the way of, and notes what its reply may tell of.
#[inline]
fn perform(
    asked: &mut Asked<'_>,
    command: &'static Command,
    args: Args<'_>,
    out: &mut Out,
    handler: impl FnOnce(&mut Context<'_>, Args<'_>, &mut Out) -> Answer,
) -> Result<(), Halt> {
    let may_write = command.has(flags::WRITE | flags::MAY_REPLICATE) || command.name == "exec";
    asked.client.tells_of_keys |= may_write || command.has(flags::READONLY);
    let called = call_or_give_up(asked, command, args, out, handler);
    if may_write && asked.server.store.is_followed() && !matches!(called, Err(Halt::Work(_))) {
        asked.client.wrote = asked.server.store.commits();
    }
    called
}

/// The same where values may be on disk: a command that only reads notes which of those it
/// wants.
#[inline]
fn perform_noting(
    asked: &mut Asked<'_>,
    command: &'static Command,
    args: Args<'_>,
    out: &mut Out,
    handler: impl FnOnce(&mut Context<'_>, Args<'_>, &mut Out) -> Answer,
) -> Result<(), Halt> {
    if !notes_away(asked, command) {
        return perform(asked, command, args, out, handler);
    }
    asked.store.note_away(true);
    let called = perform(asked, command, args, out, handler);
    asked.store.note_away(false);
    // Of a command that was given up half-way.
    asked.store.take_met();
    called
}

/// What is to become of a command that may meet what takes long, if it may.
#[cold]
fn meets_long(asked: &Asked<'_>, command: &Command, args: Args<'_>) -> Option<Meeting> {
    let Server { aside, config, store, .. } = asked.server;
    let meeting = aside.meets(config, store, command, args);
    match &asked.client.multi {
        None => meeting,
        Some(multi) if command.name == "exec" => meeting.or_else(|| {
            multi.queue.iter().find_map(|(c, args)| aside.meets(config, store, c, args.args()))
        }),
        // It is queued at most.
        Some(_) => meeting.filter(|meeting| matches!(meeting, Meeting::Busy(_))),
    }
}

/// Calls a command. One that waits for the keys of a script which turns out to take long
/// is put off, if it can have changed nothing yet.
#[inline]
fn call_or_give_up(
    asked: &mut Asked<'_>,
    command: &'static Command,
    args: Args<'_>,
    out: &mut Out,
    handler: impl FnOnce(&mut Context<'_>, Args<'_>, &mut Out) -> Answer,
) -> Result<(), Halt> {
    let (server, store, mark) = (asked.server, asked.store, out.mark());
    store.may_give_up(match command {
        _ if matches!(command.group, Group::Scripting | Group::Transactions) => GivesUp::AtFirst,
        _ if command.has(flags::WRITE) => GivesUp::AtFirst,
        _ if command.has(flags::READONLY) => GivesUp::Ever,
        _ => GivesUp::Never,
    });
    let cx = &mut context(asked, command);
    let called = catch_unwind(AssertUnwindSafe(|| call_by(cx, command, args, out, handler)));
    store.may_give_up(GivesUp::Never);
    match called {
        Ok(called) => called,
        Err(payload) if payload.is::<GaveUp>() => {
            out.truncate(mark);
            Err(Halt::Work(Box::new(errands::later(server))))
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Whether the command is to note which of the values that it wants are on disk.
#[inline]
fn notes_away(asked: &Asked<'_>, command: &Command) -> bool {
    asked.server.store.tier().is_used()
        && asked.server.tiering.is_on()
        && away::notes(command)
        && !matches!(asked.finished.as_deref(), Some(Done::Brought))
}

/// Why a command waits that wants values on disk and cannot be given up half-way.
#[cold]
fn meets_away(asked: &Asked<'_>, command: &'static Command, args: Args<'_>) -> Option<Halt> {
    let is_queued = asked.client.multi.is_some() && !passes_multi(command);
    let was_put_off = matches!(asked.finished.as_deref(), Some(Done::Brought | Done::Lost(_)));
    if is_queued || was_put_off || away::notes(command) || !asked.server.tiering.is_on() {
        return None;
    }
    let wanted = away::wanted(asked.store, asked.caller.db, command, args);
    (!wanted.is_empty()).then(|| away::halt(asked.server, wanted))
}

/// What the handler of a command is given.
#[inline]
fn context<'c>(asked: &'c mut Asked<'_>, command: &'static Command) -> Context<'c> {
    let is_done = |done: &Done| matches!(done, Done::Brought | Done::Lost(_));
    let (brought, finished) = match asked.finished.take() {
        Some(done) if is_done(&done) => (true, None),
        finished => (false, finished.filter(|done| !matches!(**done, Done::Nothing))),
    };
    Context {
        caller: asked.caller,
        client: Some(asked.client),
        store: asked.store,
        server: asked.server,
        command,
        worker: asked.worker,
        origin: Origin::Client,
        hashed: asked.hashed,
        pool: asked.pool,
        finished,
        brought,
    }
}

/// What is to be done when a command of a client is done, whatever came of it: those
/// who track prefixes are told what it has changed, and what `CLIENT CACHING` said has
/// been heeded.
#[inline]
fn end_tracking(asked: &mut Asked<'_>, command: &Command) {
    if tracking::any_changed() {
        asked.server.tracking.tell_changed();
    }
    if let Some(mode) = &mut asked.client.tracking
        && asked.client.multi.is_none()
        && command.container != Some("client")
    {
        mode.caching = false;
    }
}

/// Appends what the command published to its own caller: after the whole reply,
/// that of a transaction too.
#[inline]
fn push_own(out: &mut Out) {
    if pubsub::has_own() {
        append_own(out);
    }
}

#[cold]
fn append_own(out: &mut Out) {
    out.bytes.extend_from_slice(&pubsub::take_own());
}

/// Whether a pause keeps this command waiting; one of writes does what is only to
/// be queued, too.
fn is_paused(asked: &Asked<'_>, command: &'static Command) -> bool {
    let pause = &asked.server.pause;
    pause.writes_paused(asked.store.now())
        && (pause.is_of_all() || does(asked, command, flags::WRITE | flags::MAY_REPLICATE))
        && pause.hold(&asked.client.shared)
}

/// Whether the command writes and those who follow commits have too much before them.
#[inline]
fn is_behind(asked: &Asked<'_>, command: &'static Command) -> bool {
    let server = asked.server;
    server.is_behind()
        && does(asked, command, flags::WRITE)
        && server.journal.held.hold(&asked.client.shared, || server.is_behind())
}

/// Whether the command may be executed while the server loads what was saved.
fn is_for_loading(asked: &Asked<'_>, command: &Command) -> bool {
    let queue = asked.client.multi.as_ref().filter(|_| command.name == "exec");
    command.has(flags::LOADING)
        && queue.is_none_or(|multi| multi.queue.iter().all(|(c, _)| c.has(flags::LOADING)))
}

/// What the link to the primary forbids of the command. One load where it forbids
/// nothing.
#[inline]
fn forbidden(asked: &Asked<'_>, command: &Command) -> Option<Error> {
    match asked.server.peers.limits() & (limits::STALE | limits::LOADING) {
        0 => None,
        limits => forbidden_now(asked, command, limits),
    }
}

#[cold]
fn forbidden_now(asked: &Asked<'_>, command: &Command, limits: u8) -> Option<Error> {
    let is = |limit| limits & limit != 0;
    if is(limits::STALE) && lacks(asked, command, flags::STALE) {
        return Some(peers::STALE);
    }
    if is(limits::LOADING) && lacks(asked, command, flags::LOADING) {
        return Some(peers::LOADING);
    }
    None
}

/// Whether the command is without this flag, or is an `EXEC` of one that is.
fn lacks(asked: &Asked<'_>, command: &Command, flag: u32) -> bool {
    let queue = asked.client.multi.as_ref().filter(|_| command.name == "exec");
    !command.has(flag)
        || queue.is_some_and(|multi| multi.queue.iter().any(|(queued, _)| !queued.has(flag)))
}

/// Whether the command reads or writes keys, alone or as a transaction. Who
/// monitors may not, like a replica, for the server does not wait for either.
fn uses_keyspace(asked: &Asked<'_>, command: &Command) -> bool {
    does(asked, command, flags::READONLY | flags::WRITE | flags::MAY_REPLICATE)
}

/// Whether the command has one of these flags, or is an `EXEC` of one that has.
fn does(asked: &Asked<'_>, command: &Command, flags: u32) -> bool {
    let queue = asked.client.multi.as_ref().filter(|_| command.name == "exec");
    command.has(flags)
        || queue.is_some_and(|multi| multi.queue.iter().any(|(queued, _)| queued.has(flags)))
}

/// Checks that this client may call the command now. `EXEC` that may not be called ends
/// the transaction and says why.
fn admit(
    asked: &mut Asked<'_>,
    command: &'static Command,
    args: Args<'_>,
) -> Result<&'static Command, Error> {
    let mut refused = may_call(asked, command, args);
    if refused.is_ok() && asked.server.cluster.enabled {
        refused = route(asked, command, args).map_err(|error| (error, false));
    }
    if refused.is_ok() {
        refused = has_room(asked, command).map_err(|error| (error, true));
    }
    if refused.is_ok()
        && let Err(error) = asked.server.may_write()
        && does(asked, command, flags::WRITE)
    {
        refused = Err((error, true));
    }
    if refused.is_ok()
        && let Some(refusal) = asked.server.persist.refusal()
        && command.name == "ping"
    {
        refused = Err((refusal.error(), true));
    }
    if refused.is_ok() && asked.client.in_pubsub_mode(asked.caller) && !passes_pubsub(command) {
        let error = format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            command.full_name()
        );
        refused = Err((Error::from(error), true));
    }
    if refused.is_ok()
        && asked.client.shared.figures.monitoring.load(Relaxed)
        && uses_keyspace(asked, command)
    {
        refused = Err((Error::new("ERR Replica can't interact with the keyspace"), true));
    }
    if refused.is_ok()
        && let Some(error) = forbidden(asked, command)
    {
        refused = Err((error, true));
    }
    if refused.is_ok() && asked.server.persist.is_loading() && !is_for_loading(asked, command) {
        refused = Err((peers::LOADING, true));
    }
    let Err((error, explained)) = refused else { return Ok(command) };
    asked.server.monitor.rejected(asked.worker, command);
    if command.name != "exec" {
        return Err(error);
    }
    let told = discarded(asked, &error);
    Err(if explained { told } else { error })
}

/// Ends a client's transaction whose `EXEC` was refused; what it is told.
fn discarded(asked: &mut Asked<'_>, why: &Error) -> Error {
    commands::transactions::forget(asked.server, asked.store, asked.client);
    let whole = why.to_string();
    let reason = whole.strip_prefix("ERR ").unwrap_or(&whole);
    Error::from(format!("EXECABORT Transaction discarded because of: {reason}"))
}

/// A refusal, and whether `EXEC` is to explain it as the reason of its own.
type Refusal = (Error, bool);

fn may_call(asked: &mut Asked<'_>, command: &Command, args: Args<'_>) -> Result<(), Refusal> {
    if !command.arity_fits(args.len()) {
        return Err((Error::wrong_arity(&command.full_name()), true));
    }
    if asked.server.must_log_in(asked.client) && !command.has(flags::NO_AUTH) {
        return Err((Error::NO_AUTH, true));
    }
    if command.has(flags::NO_MULTI) && asked.client.multi.is_some() {
        return Err((Error::new("ERR Command not allowed inside a transaction"), true));
    }
    accounts::check(&mut asked.client.account, command, args).map_err(|denied| {
        let place = if asked.client.multi.is_some() { Place::Multi } else { Place::TopLevel };
        asked.client.publish_figures(asked.caller);
        let whence = (place, command);
        let who = (&*asked.client.shared, asked.client.account.name());
        accounts::log_denied(asked.server, who, whence, (command, args), denied);
        (denied.refusal(command), true)
    })
}

/// Whether there is memory for the command, made if need be; while a transaction
/// is queued, for anything that would make the queue longer.
fn has_room(asked: &Asked<'_>, command: &Command) -> Result<(), Error> {
    let room = asked.server.make_room(asked.store);
    if asked.server.persist.is_loading() || room != Room::None || !needs_room(asked, command) {
        return Ok(());
    }
    Err(Error::OOM)
}

/// Whether the command is executed when values have gone to disk: it may take memory, and
/// there is none. What it was put off for before is not lost.
#[cold]
fn waits_for_room(asked: &Asked<'_>, command: &Command) -> bool {
    let may_need = needs_room(asked, command)
        || (command.group == Group::Scripting && !command.has(flags::READONLY));
    let is_new = asked.finished.as_deref().is_none_or(|done| matches!(done, Done::Nothing));
    may_need && is_new && asked.server.make_room(asked.store) == Room::Later
}

/// Whether the command is not executed without memory.
fn needs_room(asked: &Asked<'_>, command: &Command) -> bool {
    match (&asked.client.multi, command.name) {
        (Some(multi), "exec") => multi.queue.iter().any(|(c, _)| c.has(flags::DENYOOM)),
        (Some(_), "discard" | "quit" | "reset") => false,
        (Some(_), _) => true,
        (None, _) => command.has(flags::DENYOOM),
    }
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

fn queue(asked: &mut Asked<'_>, command: &'static Command, args: Args<'_>, out: &mut Out) {
    let doomed = asked.client.watch.is_broken();
    asked.client.shared.figures.last_command.store(u32::from(command.index) + 1, Relaxed);
    let limit = asked.server.config.number(Param::ClientQueryBufferLimit) as usize;
    let Some(multi) = &mut asked.client.multi else { return };
    // Whatever `EXEC` will not execute need not be kept.
    if !multi.failed && !doomed {
        let owned = OwnedArgs::new(args);
        multi.bytes += owned.bytes();
        multi.queue.push((command, owned));
    }
    if multi.bytes > limit {
        asked.server.stats.add(Stat::client_query_buffer_limit_disconnections, 1);
        tracing::warn!(client = asked.client.id(), "closing client whose transaction is too large");
        asked.client.close = true;
        return;
    }
    out.w().simple("QUEUED");
}
