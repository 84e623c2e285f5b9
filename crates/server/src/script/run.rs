//! One run of a script: what it holds, what it is given, and what its client is told.
//!
//! A script is one step and one commit. While it runs it holds, by what is known of it
//! ([`Needs`]):
//!
//! | the script | holds | beside it run |
//! | --- | --- | --- |
//! | has run, and used the keys it declares | the slots of these | all that use other slots |
//! | is new, or uses other keys too | these, and others as it comes to them | commands and scripts of the first kind that use other slots; none of its own kind |
//! | calls `KEYS`, `SCAN`, `FLUSHALL` and the like | the whole store | nothing |
//!
//! One that turns out to be of a later kind than was thought is given up and run again
//! as such, if it has not written; nothing of it was seen. If it has written, it takes
//! what it needs when nobody else does so (`host.rs`).

use super::aside;
use super::convert::{TooLarge, c_string};
use super::host::{Find, PATIENCE, Run, Who, as_script, chosen_protocol};
use super::library;
use super::machine::{self, Interpreter, SHORT, kept};
use crate::config::Param;
use crate::engine::aside::Running;
use crate::engine::call;
use crate::engine::command::{Answer, Unanswered};
use crate::engine::context::{Context, Origin};
use crate::engine::errands;
use crate::engine::eviction::Room;
use crate::engine::libraries::Library;
use crate::engine::out::Out;
use crate::engine::scripts::{Habits, Needs, Script, ScriptFlags};
use crate::peers::{self, limits};
use crate::request::args::Args;
use crate::request::error::Error;
use snug_lua::{Kind, Stack};
use snug_store::Hold;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// A program that is to run, and on what.
pub(crate) struct Program<'p> {
    /// Its name in errors.
    pub name: &'p str,
    pub flags: ScriptFlags,
    pub habits: &'p Arc<Habits>,
    pub read_only: bool,
    /// What is compiled: number, text, name of the chunk.
    pub source: Source,
    pub args: Args<'p>,
    /// Which of the arguments are keys, and which follow.
    pub keys: Range<usize>,
    pub rest: Range<usize>,
}

/// Where a program's function comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Script(Arc<Script>),
    /// The function at that place of a library.
    Function(Arc<Library>, usize),
}

/// What is said of a script that is no program, and then why.
pub(crate) const NO_PROGRAM: &[u8] = b"ERR Error compiling script (new function): ";

/// The name of scripts in Lua's errors.
pub(crate) const CHUNK: &[u8] = b"@user_script";

/// Runs a program and writes its reply; or sends it aside, and its command is to be
/// executed again.
pub(crate) fn run(
    cx: &mut Context<'_>,
    program: &Program<'_>,
    find: Find,
    out: &mut Out,
) -> Answer {
    cx.server.monitor.script_begins(cx, program.args);
    let short_of_memory = match cx.origin {
        // Slots are held, so nothing can be evicted: EXEC has made what room there was.
        Origin::Exec => cx.server.lacks_room(),
        _ => cx.server.make_room(cx.store) == Room::None,
    };
    let flags = program.flags;
    if short_of_memory && !flags.compat && !flags.allow_oom && !flags.no_writes {
        let within = matches!(cx.origin, Origin::Exec);
        return Err(if within { NO_ROOM } else { Error::OOM }.into());
    }
    may_run(cx, program)?;
    let may_go = cx.origin.may_wait() && cx.pool.is_some() && cx.client.is_some();
    loop {
        if may_go && program.habits.is_for_aside() {
            return Err(aside::send(cx, program, find, short_of_memory)?);
        }
        let ended = as_script(cx, |cx| attempt(cx, program, find, short_of_memory, may_go, out));
        match ended {
            Ok(()) => return Ok(()),
            Err(Ended::Error(error)) => return Err(error.into()),
            Err(Ended::NeedsMore(needs)) => program.habits.learn(needs),
            Err(Ended::TooLong) => program.habits.ran_long(),
            Err(Ended::Waits) => return Err(Unanswered::Later(errands::later(cx.server))),
        }
    }
}

const NO_ROOM: Error = Error::new(
    "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
);

/// The error of a script within `EXEC` that cannot take slots on demand.
const NO_TURN: Error =
    Error::new("ERR The script used a key that it did not declare while another did so too");

/// What a script's flags say of where and when it may run.
fn may_run(cx: &Context<'_>, program: &Program<'_>) -> Result<(), Error> {
    let flags = program.flags;
    if !flags.compat && !flags.no_writes {
        cx.server.may_write()?;
    }
    let limits = cx.server.peers.limits();
    if limits & limits::STALE != 0 && !flags.allow_stale {
        return Err(peers::STALE);
    }
    if flags.compat {
        return Ok(());
    }
    if flags.no_cluster && cx.server.cluster.enabled {
        return Err(Error::new("ERR Can not run script on cluster, 'no-cluster' flag is set."));
    }
    if !flags.no_writes && program.read_only {
        return Err(Error::new("ERR Can not execute a script with write flag using *_ro command."));
    }
    Ok(())
}

/// Why a script has no reply.
enum Ended {
    Error(Error),
    /// It holds too little, and has not written.
    NeedsMore(Needs),
    /// It has held its worker up for long, and has not written.
    TooLong,
    /// It has not begun: another takes slots on demand, and takes long.
    Waits,
}

/// Runs a program on its client's worker, with what it is known to need.
fn attempt(
    cx: &mut Context<'_>,
    program: &Program<'_>,
    find: Find,
    short_of_memory: bool,
    is_short: bool,
    out: &mut Out,
) -> Result<(), Ended> {
    let (store, server) = (cx.store, cx.server);
    let needs = program.habits.needs();
    let undeclared = &server.scripts.undeclared;
    // Within `EXEC` the scope is the transaction's, and it may have the turn.
    let (within, on_demand) = (store.is_held(), store.takes_on_demand());
    let turn = match needs {
        Needs::Declared => None,
        Needs::Everything if !within => None,
        _ if on_demand || store.is_exclusive() => None,
        // Who has the turn may have it for long.
        _ if within => Some(undeclared.try_lock_for(PATIENCE).ok_or(Ended::Error(NO_TURN))?),
        _ if is_short => Some(undeclared.try_lock_for(SHORT).ok_or(Ended::Waits)?),
        _ => Some(undeclared.lock()),
    };
    let alone = (needs == Needs::Everything && !within).then(|| store.exclusive());
    let held = alone.is_none().then(|| hold(cx, program));
    let interpreter = Interpreter::take(server);
    let watcher = Rc::clone(&interpreter.watcher);
    let everything = turn.is_some() || on_demand || store.is_exclusive();
    let watching = watcher.begin(server, is_short, |about| {
        about.name.clear();
        about.name.push_str(program.name);
        about.is_function = matches!(program.source, Source::Function(..));
        about.command = Some(cx.command);
        about.slots.clear();
        store.held_slots(&mut about.slots);
        about.everything = everything;
    });
    let mut run = Run::new(cx, find, program.flags, Rc::clone(&watcher));
    run.short_of_memory = short_of_memory;
    run.held = held;
    run.within = within;
    if turn.is_some() || on_demand {
        run.may_take_slots(turn);
    }
    let result = execute(interpreter, &mut run, program, out);
    let (needs_more, needed) = (run.needs_more, run.needed_in_all());
    drop(run);
    drop(alone);
    drop(watching);
    if let Some(needs) = needs_more {
        return Err(Ended::NeedsMore(needs));
    }
    if watcher.gave_up() {
        return Err(Ended::TooLong);
    }
    program.habits.ran(needed);
    if watcher.was_long() {
        program.habits.ran_long();
    }
    result.map_err(Ended::Error)
}

/// Holds the slots of a program's keys.
fn hold<'c>(cx: &Context<'c>, program: &Program<'_>) -> Hold<'c> {
    let (store, db) = (cx.store, cx.caller.db);
    store.hold(program.keys.clone().map(|n| (db, store.key(program.args.bytes(n)))))
}

/// Runs a program aside, where it may take as long as it likes; none if it needs more
/// than it was to touch, and has not written.
pub(super) fn aside(
    cx: &mut Context<'_>,
    program: &Program<'_>,
    find: Find,
    short_of_memory: bool,
    (running, who): (&Arc<Running>, &Who),
    out: &mut Out,
) -> Option<Result<(), Error>> {
    let server = cx.server;
    let everything = program.habits.needs() != Needs::Declared;
    let held = hold(cx, program);
    let interpreter = Interpreter::take(server);
    let watcher = Rc::clone(&interpreter.watcher);
    watcher.begin_aside(server, running);
    let mut run = Run::new(cx, find, program.flags, Rc::clone(&watcher));
    run.short_of_memory = short_of_memory;
    run.held = Some(held);
    run.who = Some(who.clone());
    if everything {
        run.alone = true;
        run.may_take_slots(None);
    }
    let result = execute(interpreter, &mut run, program, out);
    let (needs_more, needed) = (run.needs_more, run.needed_in_all());
    drop(run);
    if let Some(needs) = needs_more {
        program.habits.learn(needs);
        return None;
    }
    program.habits.ran(needed);
    match watcher.was_long() {
        true => program.habits.ran_long(),
        false => program.habits.was_short_aside(),
    }
    Some(result)
}

/// Of `lua-undeclared-keys`: other keys than those it was given are an error.
const DENY: i64 = 1;

/// Lets a program run, and writes its reply.
fn execute<'p>(
    mut interpreter: Interpreter,
    run: &mut Run<'p, '_>,
    program: &Program<'p>,
    out: &mut Out,
) -> Result<(), Error> {
    if run.cx.server.config.number(Param::LuaUndeclaredKeys) == DENY {
        run.only = Some((program.args, program.keys.clone()));
    }
    run.read_only = program.read_only || (program.flags.no_writes && !program.flags.compat);
    let limit = run.cx.server.config.number(Param::LuaMemoryLimit) as usize;
    interpreter.machine.set_limit(limit);
    if let Source::Function(library, place) = &program.source {
        let name = &library.functions[*place].name;
        let there = |stack: &mut Stack<'_>| machine::push_registered(stack, library.number, name);
        if !interpreter.machine.with(there)
            && let Err(error) =
                library::register(&mut interpreter, library.number, library.program())
        {
            interpreter.give_back();
            return Err(error);
        }
    }
    run.buffers = interpreter.buffers.take();
    let watcher = Rc::clone(&interpreter.watcher);
    let mark = out.mark();
    // An error was counted when a command had it for its reply.
    let (mut compiled, mut counted) = (false, false);
    let work = |stack: &mut Stack<'_>| {
        stack.push_kept(kept::HANDLER);
        let handler = stack.top();
        let arguments = match &program.source {
            Source::Script(script) => {
                match machine::push_function(stack, script.number, script.program(), CHUNK) {
                    Ok(new) => compiled = new,
                    Err(_) => {
                        let why = stack.bytes(-1).unwrap_or_default();
                        return Err(Error::from([NO_PROGRAM, why].concat()));
                    }
                }
                machine::fresh_globals(stack);
                for (name, range) in [("KEYS", &program.keys), ("ARGV", &program.rest)] {
                    push_arguments(stack, program.args, range);
                    machine::set_global(stack, name);
                }
                0
            }
            Source::Function(library, place) => {
                machine::library_globals(stack);
                let name = &library.functions[*place].name;
                if !machine::push_registered(stack, library.number, name) {
                    return Err(Error::new("ERR Function not found"));
                }
                push_arguments(stack, program.args, &program.keys);
                push_arguments(stack, program.args, &program.rest);
                2
            }
        };
        match stack.call_with(arguments, Some(1), handler) {
            Ok(()) => {
                if let Some((text, is_counted)) = super::convert::error(stack) {
                    counted = is_counted;
                    return Err(Error::from(text));
                }
                let protocol = chosen_protocol(stack);
                super::convert::write(stack, protocol, out)
                    .map_err(|TooLarge| Error::new("ERR not enough memory for the script's reply"))
            }
            Err(_) => {
                counted = super::convert::error(stack).is_some_and(|(_, is_counted)| is_counted);
                Err(failure(stack, program.name))
            }
        }
    };
    let result = match interpreter.machine.run(Rc::clone(&watcher) as _, run, work) {
        Ok(result) => result,
        // The interpreter is not to be trusted any more.
        Err(broken) => std::panic::resume_unwind(broken.0),
    };
    if compiled {
        interpreter.compiled();
    }
    let killed = interpreter.machine.was_ended() && watcher.was_killed();
    interpreter.buffers = run.buffers.take();
    interpreter.give_back();
    if result.is_err() {
        out.truncate(mark);
    }
    if killed {
        let name = program.name;
        return Err(Error::from(format!(
            "ERR Error running script {name}, Script killed by user with SCRIPT KILL."
        )));
    }
    if counted {
        call::already_counted();
    }
    result
}

fn push_arguments(stack: &mut Stack<'_>, args: Args<'_>, range: &Range<usize>) {
    stack.push_table(range.len(), 0);
    for (n, index) in range.clone().enumerate() {
        stack.push_bytes(args.bytes(index));
        stack.raw_set_item(-2, n as i32 + 1);
    }
}

/// The handler of errors: makes a table of an error that is none yet, and notes where it
/// was raised.
#[allow(clippy::unnecessary_wraps)]
pub(super) fn on_error(stack: &mut Stack<'_>) -> snug_lua::Answer {
    stack.set_top(1);
    let position = match stack.position(1) {
        Some((_, _, true)) => stack.position(2),
        other => other,
    };
    if stack.kind(1) != Kind::Table {
        let text = match (stack.kind(1), stack.bytes(1)) {
            (_, Some(text)) => c_string(text).to_vec(),
            (Kind::Boolean, _) => stack.boolean(1).to_string().into_bytes(),
            _ => stack.type_name(1).as_bytes().to_vec(),
        };
        stack.push_table(0, 3);
        stack.push_bytes([b"ERR ", &text[..]].concat());
        stack.raw_set_field(-2, "err");
    }
    if let Some((source, line, _)) = position {
        stack.push_bytes(source);
        stack.raw_set_field(-2, "source");
        stack.push_number(line as f64);
        stack.raw_set_field(-2, "line");
    }
    Ok(1)
}

/// The text of the error on top of the stack.
pub(super) fn failure_text(stack: &mut Stack<'_>) -> Vec<u8> {
    if stack.kind(-1) == Kind::Table {
        stack.raw_get_field(-1, "err");
    }
    stack.bytes(-1).unwrap_or(b"ERR unknown error").to_vec()
}

/// What the client is told of the error on top of the stack.
fn failure(stack: &mut Stack<'_>, name: &str) -> Error {
    if stack.kind(-1) != Kind::Table {
        let text = stack.bytes(-1).unwrap_or(b"execution failure");
        let text = &text[..text.len().min(100)];
        return Error::from(
            [format!("ERR Error running script {name}, ").as_bytes(), text].concat(),
        );
    }
    let mut field = |name| {
        stack.raw_get_field(-1, name);
        let text = stack.bytes(-1).map(|text| c_string(text).to_vec());
        stack.pop(1);
        text
    };
    let mut text = field("err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    if let (Some(source), Some(line)) = (field("source"), field("line")) {
        text.extend_from_slice(format!(" script: {name}, on ").as_bytes());
        text.extend_from_slice(&[&source[..], b":", &line, b"."].concat());
    }
    text.iter_mut().filter(|byte| matches!(**byte, b'\r' | b'\n')).for_each(|byte| *byte = b' ');
    Error::from(text)
}
