//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`.
//!
//! `EXEC` holds the slots of all keys that are queued or watched, then looks
//! whether a watch is broken, then executes: other workers see all of it or
//! nothing. A transaction with a command whose keys cannot be told beforehand
//! (`KEYS`, `SORT`, `COPY` to another database; flag `WIDE`) has the whole
//! store to itself instead. One with scripts takes the slots of keys that they did not
//! declare as it comes to them, if it is the only one that does so. Before all that, large packed values that it will
//! change in place are unpacked in slices ([`make_raw`]).

use crate::auth::Place;
use crate::engine::accounts;
use crate::engine::call::{call, fail};
use crate::engine::client::{Client, Multi, ReplyMode, Watching};
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group, Unanswered};
use crate::engine::context::{Context, Origin};
use crate::engine::errands;
use crate::engine::keys::uses::*;
use crate::engine::large::changes_in_place;
use crate::engine::out::Out;
use crate::engine::scripts::Needs;
use crate::engine::server::Server;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_store::{Batch, Key};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const ANYTIME: u32 = NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY;

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("multi", 1, multi).flags(ANYTIME).about(
        Group::Transactions,
        "1.2.0",
        "O(1)",
        "Begins a transaction.",
    ),
    Command::new("exec", 1, exec).flags(NOSCRIPT | LOADING | STALE | SKIP_SLOWLOG).about(
        Group::Transactions,
        "1.2.0",
        "Depends on commands in the transaction",
        "Executes the queued commands in one atomic step.",
    ),
    Command::new("discard", 1, discard).flags(ANYTIME).about(
        Group::Transactions,
        "2.0.0",
        "O(N), when N is the number of queued commands",
        "Drops the queued commands.",
    ),
    Command::new("watch", -2, watch).flags(ANYTIME).keys(1, -1, 1).used(RO).about(
        Group::Transactions,
        "2.2.0",
        "O(1) for every key.",
        "Makes the next EXEC depend on keys staying as they are.",
    ),
    Command::new("unwatch", 1, unwatch).flags(ANYTIME).about(
        Group::Transactions,
        "2.2.0",
        "O(1)",
        "Forgets all watched keys.",
    ),
];

fn multi(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let client = cx.client()?;
    if client.multi.is_some() {
        return Err(Error::new("ERR MULTI calls can not be nested").into());
    }
    client.multi = Some(Multi::default());
    out.w().ok();
    Ok(())
}

fn discard(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let (server, store) = (cx.server, cx.store);
    let client = cx.client()?;
    if client.multi.is_none() {
        return Err(Error::new("ERR DISCARD without MULTI").into());
    }
    forget(server, store, client);
    out.w().ok();
    Ok(())
}

/// Ends a transaction without executing it, and all watches.
pub(crate) fn forget(server: &Server, store: &Batch<'_>, client: &mut Client) {
    client.multi = None;
    unwatch_all(server, store, client);
}

/// What watching a key takes beside the key itself, about.
const WATCH_BYTES: usize = 96;

fn watch(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (server, store, db) = (cx.server, cx.store, cx.db());
    let client = cx.client()?;
    if client.multi.is_some() {
        return Err(Error::new("ERR WATCH inside MULTI is not allowed").into());
    }
    // All at once: whoever gives one up, which a script has for long, has watched none.
    let held = store.hold(args.iter_from(1).map(|key| (db, store.key(key))));
    let watching = &mut client.watch;
    for key in args.iter_from(1) {
        // Broken for good: one more key cannot change what EXEC will do.
        if watching.is_broken() {
            break;
        }
        if watching.keys.insert((db, key.to_vec())) {
            server.watches.add(store, db, key, &watching.broken);
            watching.bytes += WATCH_BYTES + key.len();
        }
    }
    drop(held);
    out.w().ok();
    Ok(())
}

fn unwatch(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let (server, store) = (cx.server, cx.store);
    unwatch_all(server, store, cx.client()?);
    out.w().ok();
    Ok(())
}

/// Ends all watches of a client.
pub(crate) fn unwatch_all(server: &Server, store: &Batch<'_>, client: &mut Client) {
    if !client.watch.keys.is_empty() {
        unwatch_these(server, store, std::mem::take(&mut client.watch));
    }
}

fn unwatch_these(server: &Server, store: &Batch<'_>, Watching { keys, broken, .. }: Watching) {
    for (db, key) in keys {
        server.watches.remove(store, db, &key, &broken);
    }
}

fn exec(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let (server, store) = (cx.server, cx.store);
    let client = cx.client()?;
    let Some(mut multi) = client.multi.take() else {
        return Err(Error::new("ERR EXEC without MULTI").into());
    };
    if multi.failed {
        forget(server, store, client);
        return Err(
            Error::new("EXECABORT Transaction discarded because of previous errors.").into()
        );
    }
    if !client.watch.is_broken()
        && let Err(later) = make_ready(cx, &mut multi)
    {
        cx.client()?.multi = Some(multi);
        return Err(later);
    }
    let watch = std::mem::take(&mut cx.client()?.watch);
    let this = cx.command;
    // Locked first and looked at then: whether a watch is broken must not
    // change between the two.
    let needs = script_needs(server, &multi);
    let wide = |command: &Command| command.has(WIDE) && !super::scripting::is_script(command);
    let wide = needs == Needs::Everything || multi.queue.iter().any(|(command, _)| wide(command));
    let undeclared = &server.scripts.undeclared;
    let turn = match needs {
        Needs::Unknown | Needs::Undeclared if !wide => {
            let Some(turn) = undeclared.try_lock_for(PATIENCE) else {
                let client = cx.client()?;
                (client.multi, client.watch) = (Some(multi), watch);
                return Err(Unanswered::Later(errands::later(server)));
            };
            Some(turn)
        }
        _ => None,
    };
    let scopes = catch_unwind(AssertUnwindSafe(|| {
        let alone = wide.then(|| store.exclusive());
        let watched = watch.keys.iter().map(|(db, key)| (*db, store.key(key)));
        (alone, store.hold(keys(cx, &multi, |_| true).into_iter().chain(watched)))
    }));
    let (alone, held) = match scopes {
        Ok(scopes) => scopes,
        // It is put off, as it came: somebody has the slots for long.
        Err(payload) => {
            let client = cx.client()?;
            (client.multi, client.watch) = (Some(multi), watch);
            resume_unwind(payload)
        }
    };
    if turn.is_some() {
        store.hold_on_demand();
    }
    let mut broken = false;
    for (db, key) in &watch.keys {
        let key = store.key(key);
        let mut slot = store.lock(*db, &key);
        slot.find_entry(&key);
        // Its time has come, though nothing removes it while writes are paused.
        broken |= slot.hides(&key);
    }
    let broken = broken || watch.is_broken();
    if !broken {
        out.w().array(multi.queue.len());
        let origin = std::mem::replace(&mut cx.origin, Origin::Exec);
        for (command, args) in &multi.queue {
            let (mark, reply) = (out.mark(), reply_mode(cx));
            match is_allowed(cx, (this, &multi), command, args.args()) {
                Ok(()) => {
                    let called = call(cx, command, args.args(), out);
                    debug_assert!(called.is_ok(), "nothing waits within a transaction");
                }
                Err(error) => fail(server, &error, out),
            }
            if turned_off(reply, reply_mode(cx)) && !command.only_pushes() {
                out.truncate(mark);
            }
            out.protocol = cx.caller.protocol;
        }
        cx.origin = origin;
    }
    drop(held);
    drop(turn);
    drop(alone);
    cx.command = this;
    unwatch_these(server, store, watch);
    if broken {
        out.w().null_array();
    }
    Ok(())
}

/// How long a transaction with scripts waits for its turn, with its worker, before it is
/// put off.
const PATIENCE: Duration = Duration::from_millis(5);

/// What the scripts of a transaction need, the one that needs most.
fn script_needs(server: &Server, multi: &Multi) -> Needs {
    let scripts = multi.queue.iter().filter(|(command, _)| super::scripting::is_script(command));
    let needs = scripts.map(|(command, args)| {
        match super::scripting::habits(server, command, args.args()) {
            Some(habits) => habits.needs(),
            // There is none: an error will tell.
            None => Needs::Declared,
        }
    });
    needs.max().unwrap_or(Needs::Declared)
}

/// Whether the client may still execute what it has queued.
fn is_allowed(
    cx: &mut Context<'_>,
    (exec, multi): (&Command, &Multi),
    command: &Command,
    args: Args<'_>,
) -> Result<(), Error> {
    let Some(client) = cx.client.as_deref_mut() else { return Ok(()) };
    accounts::check(&mut client.account, command, args).map_err(|denied| {
        client.publish_figures(cx.caller);
        client.shared.figures.multi.store(multi.queue.len() as i64, Relaxed);
        let who = (&*client.shared, client.account.name());
        accounts::log_denied(cx.server, who, (Place::Multi, exec), (command, args), denied);
        denied.refusal_in_exec()
    })
}

fn reply_mode(cx: &Context<'_>) -> ReplyMode {
    cx.client.as_deref().map_or(ReplyMode::On, |client| client.reply)
}

/// Whether a command within `EXEC` is not answered, by the modes before and
/// after it.
fn turned_off(before: ReplyMode, after: ReplyMode) -> bool {
    after == ReplyMode::Off || (after == ReplyMode::SkipNext && before != ReplyMode::SkipNext)
}

/// Has brought what is on disk of what queued commands want, and unpacked what is large.
fn make_ready(cx: &mut Context<'_>, multi: &mut Multi) -> Answer {
    let wanted = keys(cx, multi, |_| true);
    cx.bring(wanted.iter().map(|(db, key)| (*db, key.bytes)))?;
    make_raw(cx, multi)
}

/// Has the large packed values unpacked that queued commands will change in place,
/// in slices: `EXEC` is put off until each is. Nothing is executed before that, and
/// each key is waited for once: what is packed again, or put there since, is unpacked
/// when its command comes to it.
fn make_raw(cx: &mut Context<'_>, multi: &mut Multi) -> Answer {
    cx.install_finished();
    let mut looked_at = multi.looked_at;
    let mut raw = Ok(());
    for (db, key) in keys(cx, multi, changes_in_place).into_iter().skip(looked_at) {
        looked_at += 1;
        raw = cx.unpack_beforehand(db, &key);
        if raw.is_err() {
            break;
        }
    }
    multi.looked_at = looked_at;
    raw
}

/// The keys that these of the queued commands name, each with the database that
/// will be selected by then.
fn keys<'m>(
    cx: &Context<'_>,
    multi: &'m Multi,
    wanted: impl Fn(&Command) -> bool,
) -> Vec<(usize, Key<'m>)> {
    let databases = cx.store.store().databases();
    let mut db = cx.db();
    let mut keys = Vec::new();
    for (command, args) in &multi.queue {
        let args = args.args();
        if command.name == "select" && command.container.is_none() {
            // One that will fail changes nothing.
            let selected = args.int(1).ok().and_then(|n| usize::try_from(n).ok());
            let valid = |&n: &usize| n < databases && (n == 0 || !cx.server.cluster.enabled);
            db = selected.filter(valid).unwrap_or(db);
        }
        if !wanted(command) {
            continue;
        }
        // Arguments that name no keys are an error the handler will tell.
        for index in command.key_indices(args).unwrap_or_default() {
            keys.push((db, cx.key(args.bytes(index))));
        }
    }
    keys
}
