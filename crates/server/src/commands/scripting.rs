//! `EVAL`, `EVALSHA`, `EVAL_RO`, `EVALSHA_RO`, `SCRIPT`.

use super::{find, help};
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group, Unanswered};
use crate::engine::context::Context;
use crate::engine::keys::{Begin, Find, KeySpec, uses};
use crate::engine::out::Out;
use crate::engine::scripts::{Habits, Script};
use crate::engine::server::Server;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::script::run::{CHUNK, NO_PROGRAM, Program, Source, run};
use std::ops::Range;
use std::sync::Arc;

/// In a transaction its keys, and what else it will use, are not told beforehand.
const RUNS: u32 = NOSCRIPT | STALE | SKIP_MONITOR | MAY_REPLICATE | NO_MANDATORY_KEYS | WIDE;
const READS: u32 = NOSCRIPT | STALE | SKIP_MONITOR | READONLY | NO_MANDATORY_KEYS | WIDE;

const COUNTED: &[KeySpec] =
    &[KeySpec { used: uses::RW_ACCESS_UPDATE, begin: Begin::Index(2), find: Find::Counted }];
const COUNTED_RO: &[KeySpec] =
    &[KeySpec { used: uses::RO_ACCESS, begin: Begin::Index(2), find: Find::Counted }];

const SLOW: &str = "Depends on the script that is executed.";

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("eval", -3, eval).flags(RUNS).movable(keys).specs(COUNTED).about(
        Group::Scripting,
        "2.6.0",
        SLOW,
        "Runs a script.",
    ),
    Command::new("evalsha", -3, evalsha).flags(RUNS).movable(keys).specs(COUNTED).about(
        Group::Scripting,
        "2.6.0",
        SLOW,
        "Runs a script that is known, by its SHA-1.",
    ),
    Command::new("eval_ro", -3, eval).flags(READS).movable(keys).specs(COUNTED_RO).about(
        Group::Scripting,
        "7.0.0",
        SLOW,
        "Runs a script that writes nothing.",
    ),
    Command::new("evalsha_ro", -3, evalsha).flags(READS).movable(keys).specs(COUNTED_RO).about(
        Group::Scripting,
        "7.0.0",
        SLOW,
        "Runs a script that is known and writes nothing, by its SHA-1.",
    ),
    Command::new("script", -2, super::container)
        .about(Group::Scripting, "2.6.0", SLOW, "A container of commands about scripts.")
        .subcommands(&[
            sub("debug", 3, debug, NOSCRIPT, "3.2.0", "O(1)", "Sets the mode of debugging."),
            sub(
                "exists",
                -3,
                exists,
                NOSCRIPT,
                "2.6.0",
                "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
                "Tells which scripts are known.",
            ),
            sub(
                "flush",
                -2,
                flush,
                NOSCRIPT,
                "2.6.0",
                "O(N) with N being the number of scripts in cache",
                "Forgets all scripts.",
            ),
            sub("help", 2, script_help, LOADING | STALE, "5.0.0", "O(1)", "Describes the subcommands."),
            sub(
                "kill",
                2,
                kill,
                NOSCRIPT | ALLOW_BUSY,
                "2.6.0",
                "O(1)",
                "Ends the script that runs, if it has not written.",
            ),
            sub(
                "load",
                3,
                load,
                NOSCRIPT | STALE,
                "2.6.0",
                "O(N) with N being the length in bytes of the script body.",
                "Makes a script known.",
            ),
        ]),
];

const fn sub(
    name: &'static str,
    arity: i32,
    handler: crate::engine::command::Handler,
    flags: u32,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).of("script").flags(flags).about(
        Group::Scripting,
        since,
        complexity,
        summary,
    )
}

/// The keys that are told after their number.
fn keys(args: Args<'_>) -> Result<Vec<usize>, Error> {
    Ok(counted(args)?.0.collect())
}

/// The keys that a program is given, and its other arguments.
pub(super) fn counted(args: Args<'_>) -> Result<(Range<usize>, Range<usize>), Error> {
    let count = args.int(2)?;
    let most = args.len() - 3;
    if count > most as i64 {
        return Err(Error::new("ERR Number of keys can't be greater than number of args"));
    }
    let count =
        usize::try_from(count).map_err(|_| Error::new("ERR Number of keys can't be negative"))?;
    Ok((3..3 + count, 3 + count..args.len()))
}

/// Whether the command runs a script, or a function.
pub(super) fn is_script(command: &Command) -> bool {
    command.group == Group::Scripting && command.container.is_none() && command.has(WIDE)
}

/// What is known of the script that the command runs, if there is one.
pub(super) fn habits(server: &Server, command: &Command, args: Args<'_>) -> Option<Arc<Habits>> {
    let name = args.get(1)?;
    if command.name.starts_with("fcall") {
        let (library, place) = server.libraries.function(name)?;
        return Some(Arc::clone(&library.functions[place].habits));
    }
    let script = match command.name.starts_with("evalsha") {
        true => server.scripts.of_sha(name)?,
        false => server.scripts.of_text(name).ok()?,
    };
    Some(Arc::clone(&script.habits))
}

fn eval(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    counted(args)?;
    let script = cx.server.scripts.of_text(args.bytes(1))?;
    let ran = run_script(cx, &script, args, out);
    // What is no program is not kept; what fails, or is still to come, is.
    let is_none =
        matches!(&ran, Err(Unanswered::Error(error)) if error.text().starts_with(NO_PROGRAM));
    if !is_none {
        cx.server.scripts.keep(&script, false);
    }
    ran
}

fn evalsha(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    counted(args)?;
    let script = cx
        .server
        .scripts
        .of_sha(args.bytes(1))
        .ok_or(Error::new("NOSCRIPT No matching script. Please use EVAL."))?;
    run_script(cx, &script, args, out)?;
    Ok(())
}

fn run_script(cx: &mut Context<'_>, script: &Arc<Script>, args: Args<'_>, out: &mut Out) -> Answer {
    let (keys, rest) = counted(args)?;
    let program = Program {
        name: &script.sha,
        flags: script.flags,
        habits: &script.habits,
        read_only: cx.command.has(READONLY),
        source: Source::Script(Arc::clone(script)),
        args,
        keys,
        rest,
    };
    run(cx, &program, find, out)
}

fn load(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let script = cx.server.scripts.of_text(args.bytes(2))?;
    compiles(cx, &script)?;
    cx.server.scripts.keep(&script, true);
    out.w().bulk(script.sha.as_bytes());
    Ok(())
}

fn compiles(cx: &Context<'_>, script: &Script) -> Result<(), Error> {
    crate::script::check(cx.server, script.program(), CHUNK)
        .map_err(|why| Error::from([NO_PROGRAM, &why].concat()))
}

fn exists(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    out.w().array(args.len() - 2);
    for sha in args.iter_from(2) {
        out.w().integer(cx.server.scripts.of_sha(sha).is_some().into());
    }
    Ok(())
}

fn flush(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let mode = args.len() == 3 && (args.is(2, "sync") || args.is(2, "async"));
    if args.len() != 2 && !mode {
        return Err(Error::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option").into());
    }
    cx.server.scripts.flush();
    out.w().ok();
    Ok(())
}

fn kill(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    cx.server.aside.kill(false)?;
    out.w().ok();
    Ok(())
}

/// There is no debugger: only what Redis answers without one.
fn debug(_: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.is(2, "no") {
        out.w().ok();
        return Ok(());
    }
    if args.is(2, "yes") || args.is(2, "sync") {
        return Err(Error::new("ERR this server has no debugger for scripts").into());
    }
    Err(Error::new("ERR Use SCRIPT DEBUG YES/SYNC/NO").into())
}

fn script_help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    help(
        out,
        "script",
        &[
            ("DEBUG (YES|SYNC|NO)", "Set the mode of debugging of scripts that follow."),
            ("EXISTS <sha1> [<sha1> ...]", "Tell which scripts are known."),
            ("FLUSH [ASYNC|SYNC]", "Forget all scripts."),
            ("KILL", "End the script that runs, if it has not written."),
            ("LOAD <script>", "Make a script known without running it."),
        ],
    );
    Ok(())
}
