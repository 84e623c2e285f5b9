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

use super::host::{Find, Run, as_script, chosen_protocol};
use super::machine::{self, Interpreter};
use crate::config::Param;
use crate::engine::context::Context;
use crate::engine::eviction::Room;
use crate::engine::out::Out;
use crate::engine::scripts::{Habits, Needs, Script, ScriptFlags};
use crate::request::args::Args;
use crate::request::error::Error;
use snug_lua::{Answer, Kind, Stack};
use std::ops::Range;

/// A program that is to run, and on what.
pub(crate) struct Program<'p> {
    /// Its name in errors.
    pub name: &'p str,
    pub flags: ScriptFlags,
    pub habits: &'p Habits,
    pub read_only: bool,
    /// What is compiled: number, text, name of the chunk.
    pub source: Source<'p>,
    pub args: Args<'p>,
    /// Which of the arguments are keys, and which follow.
    pub keys: Range<usize>,
    pub rest: Range<usize>,
}

/// Where a program's function comes from.
pub(crate) enum Source<'p> {
    Script(&'p Script),
}

/// The name of scripts in Lua's errors.
pub(crate) const CHUNK: &[u8] = b"@user_script";

/// Runs a program and writes its reply.
pub(crate) fn run(
    cx: &mut Context<'_>,
    program: &Program<'_>,
    find: Find,
    out: &mut Out,
) -> Result<(), Error> {
    may_run(cx, program)?;
    let short = cx.server.config.number(Param::MaxMemory) != 0
        && cx.server.make_room(cx.store) == Room::None;
    let flags = program.flags;
    if short && !flags.compat && !flags.allow_oom && !flags.no_writes {
        return Err(Error::new(
            "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
        ));
    }
    loop {
        match as_script(cx, |cx| attempt(cx, program, find, short, out)) {
            Ok(()) => return Ok(()),
            Err(Ended::Error(error)) => return Err(error),
            Err(Ended::NeedsMore(needs)) => program.habits.learn(needs),
        }
    }
}

/// What a script's flags say of where and when it may run.
fn may_run(cx: &Context<'_>, program: &Program<'_>) -> Result<(), Error> {
    let flags = program.flags;
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
}

/// Runs a program with what it is known to need.
fn attempt(
    cx: &mut Context<'_>,
    program: &Program<'_>,
    find: Find,
    short: bool,
    out: &mut Out,
) -> Result<(), Ended> {
    let (store, server) = (cx.store, cx.server);
    let needs = program.habits.needs();
    let keys = || {
        let keys = program.keys.clone().map(|n| (cx.caller.db, store.key(program.args.bytes(n))));
        keys.collect::<Vec<_>>()
    };
    let turn = matches!(needs, Needs::Unknown | Needs::Undeclared)
        .then(|| server.scripts.undeclared.lock());
    let alone = (needs == Needs::Everything).then(|| store.exclusive());
    let held = if needs == Needs::Everything { None } else { Some(store.hold(keys())) };
    let mut run = Run::new(cx, find, program.flags);
    run.read_only = program.read_only || (program.flags.no_writes && !program.flags.compat);
    run.short_of_memory = short;
    if let Some(turn) = turn
        && !store.is_exclusive()
    {
        store.hold_on_demand();
        run.may_take_slots(turn);
    }
    let mut interpreter = Interpreter::take(server);
    interpreter.machine.set_limit(server.config.number(Param::LuaMemoryLimit) as usize);
    let result = execute(&mut interpreter, &mut run, program, out);
    let (needs_more, undeclared, wrote) = (run.needs_more, run.undeclared, run.wrote);
    drop(run);
    drop(held);
    drop(alone);
    let _ = wrote;
    match result {
        Ok(result) => {
            interpreter.give_back();
            if let Some(needs) = needs_more {
                return Err(Ended::NeedsMore(needs));
            }
            match undeclared {
                true => program.habits.learn(Needs::Undeclared),
                false => program.habits.kept_to_declared(),
            }
            result.map_err(Ended::Error)
        }
        // The interpreter is not to be trusted any more.
        Err(broken) => std::panic::resume_unwind(broken.0),
    }
}

type Executed = Result<Result<(), Error>, snug_lua::Broken>;

fn execute(
    interpreter: &mut Interpreter,
    run: &mut Run<'_, '_>,
    program: &Program<'_>,
    out: &mut Out,
) -> Executed {
    let mark = out.mark();
    let mut compiled = false;
    let work = |stack: &mut Stack<'_>| {
        stack.push_native(on_error);
        let Source::Script(script) = program.source;
        match machine::push_function(stack, script.number, script.program(), CHUNK) {
            Ok(new) => compiled = new,
            Err(_) => {
                let why = stack.bytes(-1).unwrap_or_default();
                let head = b"ERR Error compiling script (new function): ";
                return Err(Error::from([&head[..], why].concat()));
            }
        }
        machine::fresh_globals(stack);
        for (name, range) in [("KEYS", &program.keys), ("ARGV", &program.rest)] {
            push_arguments(stack, program.args, range);
            machine::set_global(stack, name);
        }
        let handler = stack.top() - 1;
        match stack.call_with(0, Some(1), handler) {
            Ok(()) => {
                let protocol = chosen_protocol(stack);
                super::convert::write(stack, protocol, out, 0);
                Ok(())
            }
            Err(_) => Err(failure(stack, program.name)),
        }
    };
    let result = interpreter.machine.run(machine::unwatched(), run, work)?;
    if compiled {
        interpreter.compiled();
    }
    if result.is_err() {
        out.truncate(mark);
    }
    Ok(result)
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
fn on_error(stack: &mut Stack<'_>) -> Answer {
    stack.set_top(1);
    let position = match stack.position(1) {
        Some((_, _, true)) => stack.position(2),
        other => other,
    };
    if stack.kind(1) != Kind::Table {
        let text = match (stack.kind(1), stack.bytes(1)) {
            (_, Some(text)) => text.to_vec(),
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
        let text = stack.bytes(-1).map(<[u8]>::to_vec);
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
