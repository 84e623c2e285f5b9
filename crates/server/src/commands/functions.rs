//! `FUNCTION`, `FCALL`, `FCALL_RO`.

use super::scripting::counted;
use super::{find, help};
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group, Handler};
use crate::engine::context::{Context, Origin};
use crate::engine::keys::{Begin, Find, KeySpec, uses};
use crate::engine::libraries::{Libraries, Library, Policy};
use crate::engine::out::Out;
use crate::engine::scripts::ScriptFlags;
use crate::request::args::Args;
use crate::request::error::Error;
use crate::script::library;
use crate::script::run::{Program, Source, run};
use crate::text::glob;
use std::sync::Arc;

const COUNTED: &[KeySpec] =
    &[KeySpec { used: uses::RW_ACCESS_UPDATE, begin: Begin::Index(2), find: Find::Counted }];
const COUNTED_RO: &[KeySpec] =
    &[KeySpec { used: uses::RO_ACCESS, begin: Begin::Index(2), find: Find::Counted }];

const RUNS: u32 = NOSCRIPT | STALE | SKIP_MONITOR | MAY_REPLICATE | NO_MANDATORY_KEYS | WIDE;
const READS: u32 = NOSCRIPT | STALE | SKIP_MONITOR | READONLY | NO_MANDATORY_KEYS | WIDE;
const CHANGES: u32 = NOSCRIPT | WRITE | WIDE;

const SLOW: &str = "Depends on the function that is executed.";

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("fcall", -3, fcall).flags(RUNS).movable(keys).specs(COUNTED).about(
        Group::Scripting,
        "7.0.0",
        SLOW,
        "Calls a function.",
    ),
    Command::new("fcall_ro", -3, fcall).flags(READS).movable(keys).specs(COUNTED_RO).about(
        Group::Scripting,
        "7.0.0",
        SLOW,
        "Calls a function that writes nothing.",
    ),
    Command::new("function", -2, super::container)
        .about(Group::Scripting, "7.0.0", SLOW, "A container of commands about functions.")
        .subcommands(&[
            sub("delete", 3, delete, CHANGES, "O(1)", "Deletes a library and its functions."),
            sub(
                "dump",
                2,
                dump,
                NOSCRIPT,
                "O(N) where N is the number of functions",
                "Returns all libraries as one payload.",
            ),
            sub(
                "flush",
                -2,
                flush,
                CHANGES,
                "O(N) where N is the number of functions deleted",
                "Deletes all libraries.",
            ),
            sub("help", 2, function_help, LOADING | STALE, "O(1)", "Describes the subcommands."),
            sub(
                "kill",
                2,
                kill,
                NOSCRIPT | ALLOW_BUSY,
                "O(1)",
                "Ends the function that runs, if it has not written.",
            ),
            sub(
                "list",
                -2,
                list,
                NOSCRIPT,
                "O(N) where N is the number of functions",
                "Tells of all libraries.",
            ),
            sub(
                "load",
                -3,
                load,
                CHANGES | DENYOOM,
                "O(1) (considering compilation time is redundant)",
                "Loads a library.",
            ),
            sub(
                "restore",
                -3,
                restore,
                CHANGES | DENYOOM,
                "O(N) where N is the number of functions on the payload",
                "Loads the libraries of a payload.",
            ),
            sub(
                "stats",
                2,
                stats,
                NOSCRIPT | ALLOW_BUSY,
                "O(1)",
                "Tells of the function that runs.",
            ),
        ]),
];

const fn sub(
    name: &'static str,
    arity: i32,
    handler: Handler,
    flags: u32,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).of("function").flags(flags).about(
        Group::Scripting,
        "7.0.0",
        complexity,
        summary,
    )
}

fn keys(args: Args<'_>) -> Result<Vec<usize>, Error> {
    Ok(counted(args)?.0.collect())
}

fn fcall(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let found = cx.server.libraries.function(args.bytes(1));
    let (library, place) = found.ok_or(Error::new("ERR Function not found"))?;
    if args.int(2).is_err() {
        return Err(Error::new("ERR Bad number of keys provided").into());
    }
    let (keys, rest) = counted(args)?;
    let function = &library.functions[place];
    let program = Program {
        name: &function.name,
        flags: function.flags,
        habits: &function.habits,
        read_only: cx.command.has(READONLY),
        source: Source::Function(Arc::clone(&library), place),
        args,
        keys,
        rest,
    };
    run(cx, &program, find, out)
}

/// Makes a change of libraries, and tells of it as this command.
fn change<T>(
    cx: &Context<'_>,
    command: &[&[u8]],
    change: impl FnOnce(&Libraries) -> Result<T, String>,
) -> Result<T, Error> {
    cx.store.change_beside(command, || change(&cx.server.libraries)).map_err(Error::from)
}

fn load(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let mut replace = false;
    for at in 2..args.len() - 1 {
        if !args.is(at, "replace") {
            let what = b"ERR Unknown option given: ";
            return Err(Error::from([&what[..], args.bytes(at)].concat()).into());
        }
        replace = true;
    }
    let code = args.bytes(args.len() - 1);
    let (name, _) = library::head(code)?;
    if !replace && cx.server.libraries.has(&name) {
        return Err(Error::from(format!("ERR Library '{name}' already exists")).into());
    }
    let library = library::make(cx.server, code)?;
    let told: [&[u8]; 4] = [b"FUNCTION", b"LOAD", b"REPLACE", code];
    change(cx, &told, |libraries| libraries.load(library, replace))?;
    out.w().bulk(name.as_bytes());
    Ok(())
}

fn delete(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let name = args.bytes(2);
    // A snapshot that was taken a moment ago may know that it is gone.
    let may_be_gone = matches!(cx.origin, Origin::Replay);
    change(cx, &[b"FUNCTION", b"DELETE", name], |libraries| {
        match libraries.delete(name) || may_be_gone {
            true => Ok(()),
            false => Err("ERR Library not found".into()),
        }
    })?;
    out.w().ok();
    Ok(())
}

fn flush(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    if args.len() > 3 {
        return Err(super::misused("function", args.bytes(1)).into());
    }
    let mode = args.len() == 3 && (args.is(2, "sync") || args.is(2, "async"));
    if args.len() != 2 && !mode {
        return Err(Error::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option").into());
    }
    change(cx, &[b"FUNCTION", b"FLUSH"], |libraries| {
        libraries.flush();
        Ok(())
    })?;
    out.w().ok();
    Ok(())
}

fn kill(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    cx.server.aside.kill(true)?;
    out.w().ok();
    Ok(())
}

fn list(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let (mut with_code, mut pattern, mut at) = (false, None, 2);
    while at < args.len() {
        if !with_code && args.is(at, "withcode") {
            with_code = true;
        } else if pattern.is_none() && args.is(at, "libraryname") {
            at += 1;
            let name = args.get(at);
            pattern = Some(name.ok_or(Error::new("ERR library name argument was not given"))?);
        } else {
            let what = b"ERR Unknown argument ";
            return Err(Error::from([&what[..], args.bytes(at)].concat()).into());
        }
        at += 1;
    }
    let mut libraries = cx.server.libraries.all();
    if let Some(pattern) = pattern {
        libraries.retain(|library| glob::matches(pattern, library.name.as_bytes(), true));
    }
    out.w().array(libraries.len());
    libraries.iter().for_each(|library| tell(library, with_code, out));
    Ok(())
}

fn tell(library: &Library, with_code: bool, out: &mut Out) {
    out.w().map(if with_code { 4 } else { 3 });
    out.w().bulk(b"library_name");
    out.w().bulk(library.name.as_bytes());
    out.w().bulk(b"engine");
    out.w().bulk(b"LUA");
    out.w().bulk(b"functions");
    out.w().array(library.functions.len());
    for function in &library.functions {
        out.w().map(3);
        out.w().bulk(b"name");
        out.w().bulk(function.name.as_bytes());
        out.w().bulk(b"description");
        match &function.description {
            Some(text) => out.w().bulk(text),
            None => out.w().null(),
        }
        out.w().bulk(b"flags");
        tell_flags(function.flags, out);
    }
    if with_code {
        out.w().bulk(b"library_code");
        out.w().bulk(&library.code);
    }
}

fn tell_flags(flags: ScriptFlags, out: &mut Out) {
    out.w().set(flags.names().count());
    flags.names().for_each(|name| out.w().simple(name));
}

fn stats(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let running = cx.server.aside.running();
    if running.as_ref().is_some_and(|running| !running.is_function()) {
        return Err(cx.server.aside.busy().into());
    }
    out.w().map(2);
    out.w().bulk(b"running_script");
    match running {
        None => out.w().null(),
        Some(running) => {
            out.w().map(3);
            out.w().bulk(b"name");
            out.w().bulk(running.name.as_bytes());
            out.w().bulk(b"command");
            out.w().array(running.command.len());
            running.command.iter().for_each(|word| out.w().bulk(word));
            out.w().bulk(b"duration_ms");
            out.w().integer(running.began.elapsed().as_millis() as i64);
        }
    }
    let (libraries, functions, _) = cx.server.libraries.count();
    out.w().bulk(b"engines");
    out.w().map(1);
    out.w().bulk(b"LUA");
    out.w().map(2);
    out.w().bulk(b"libraries_count");
    out.w().integer(libraries as i64);
    out.w().bulk(b"functions_count");
    out.w().integer(functions as i64);
    Ok(())
}

fn dump(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let libraries = cx.server.libraries.all();
    let codes = libraries.iter().map(|library| &library.code[..]);
    let payload =
        snug_rdb::dump_functions(codes).map_err(|error| Error::from(format!("ERR {error}")))?;
    out.w().bulk(&payload);
    Ok(())
}

fn restore(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let policy = match args.len() {
        3 => Policy::Append,
        4 if args.is(3, "append") => Policy::Append,
        4 if args.is(3, "replace") => Policy::Replace,
        4 if args.is(3, "flush") => Policy::Flush,
        4 => {
            return Err(Error::new(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            )
            .into());
        }
        _ => return Err(super::misused("function", args.bytes(1)).into()),
    };
    let codes = snug_rdb::restore_functions(args.bytes(2)).map_err(|wrong| match wrong {
        snug_rdb::Wrong::NoDump(none) => Error::from(format!("ERR {none}")),
        snug_rdb::Wrong::Damaged(_) => Error::new("ERR failed loading the given functions payload"),
    })?;
    let made: Result<Vec<_>, _> = codes.iter().map(|code| library::make(cx.server, code)).collect();
    let made = made?;
    // What was appended takes its own place where it is made again.
    let how: &[u8] = if policy == Policy::Flush { b"FLUSH" } else { b"REPLACE" };
    let told: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", args.bytes(2), how];
    change(cx, &told, |libraries| libraries.restore(made, policy))?;
    out.w().ok();
    Ok(())
}

fn function_help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    help(
        out,
        "function",
        &[
            (
                "LOAD [REPLACE] <FUNCTION CODE>",
                "Load a library, in the place of one of its name if so.",
            ),
            ("DELETE <LIBRARY NAME>", "Delete a library."),
            ("LIST [LIBRARYNAME PATTERN] [WITHCODE]", "Tell of libraries and their functions."),
            ("STATS", "Tell of the function that runs, and how many there are."),
            ("KILL", "End the function that runs, if it has not written."),
            ("FLUSH [ASYNC|SYNC]", "Delete all libraries."),
            ("DUMP", "Return all libraries as one payload."),
            ("RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]", "Load the libraries of a payload."),
        ],
    );
    Ok(())
}
