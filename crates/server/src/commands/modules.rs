//! `MODULE`: there are none, which tools that ask are told as Redis tells it.
//!
//! `LOAD` and its like are for whoever `enable-module-command` lets in, and refused then
//! too: a module is compiled against the inside of redis-server.

use super::{container, help as lines_of_help};
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group, Handler};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;

const CHANGES: u32 = ADMIN | NOSCRIPT | NO_ASYNC_LOADING;

const fn sub(
    name: &'static str,
    arity: i32,
    handler: Handler,
    flags: u32,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).of("module").flags(flags).about(
        Group::Server,
        since,
        complexity,
        summary,
    )
}

pub(crate) const COMMANDS: &[Command] = &[Command::new("module", -2, container)
    .about(Group::Server, "4.0.0", "Depends on subcommand.", "Tells of modules.")
    .subcommands(&[
        sub(
            "list",
            2,
            list,
            ADMIN | NOSCRIPT,
            "4.0.0",
            "O(N) where N is the number of loaded modules.",
            "Returns the modules that are loaded: none.",
        ),
        sub("load", -3, load, CHANGES, "4.0.0", "O(1)", "Loads a module: refused."),
        sub(
            "loadex",
            -3,
            load,
            CHANGES,
            "7.0.0",
            "O(1)",
            "Loads a module with parameters: refused.",
        ),
        sub("unload", 3, unload, CHANGES, "4.0.0", "O(1)", "Unloads a module: there is none."),
        sub("help", 2, help, LOADING | STALE, "5.0.0", "O(1)", "Says what the subcommands do."),
    ])];

fn list(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    out.w().array(0);
    Ok(())
}

fn load(cx: &mut Context<'_>, args: Args<'_>, _: &mut Out) -> Answer {
    cx.let_in("MODULE", Param::EnableModuleCommand)?;
    let path = String::from_utf8_lossy(args.bytes(2)).into_owned();
    tracing::warn!(path, "a module cannot be loaded: Snug has none");
    Err(Error::new("ERR Error loading the extension. Please check the server logs.").into())
}

fn unload(cx: &mut Context<'_>, _: Args<'_>, _: &mut Out) -> Answer {
    cx.let_in("MODULE", Param::EnableModuleCommand)?;
    Err(Error::new("ERR Error unloading module: no such module with that name").into())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = [
        ("LIST", "Return the modules that are loaded: none."),
        ("LOAD <path> [<arg> ...]", "Load a module: refused, Snug has none."),
        (
            "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
            "Load a module with parameters: refused, Snug has none.",
        ),
        ("UNLOAD <name>", "Unload a module: there is none."),
    ];
    lines_of_help(out, "MODULE", &lines);
    Ok(())
}
