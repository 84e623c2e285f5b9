//! SLOWLOG: the commands that took longer than `slowlog-log-slower-than`.

use crate::commands::{self, container};
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::request::args::Args;
use crate::request::error::Error;
use snug_resp::parse_integer;

const FLAGS: u32 = ADMIN | LOADING | STALE;

pub(crate) const COMMANDS: &[Command] = &[Command::new("slowlog", -2, container)
    .about(Group::Server, "2.2.12", "Depends on subcommand.", "Shows slow commands.")
    .subcommands(&[
        Command::new("get", -2, get).of("slowlog").flags(FLAGS).about(
            Group::Server,
            "2.2.12",
            "O(N) where N is the number of entries returned",
            "Returns the latest slow commands.",
        ),
        Command::new("len", 2, len).of("slowlog").flags(FLAGS).about(
            Group::Server,
            "2.2.12",
            "O(1)",
            "Returns how many slow commands are kept.",
        ),
        Command::new("reset", 2, reset).of("slowlog").flags(FLAGS).about(
            Group::Server,
            "2.2.12",
            "O(N) where N is the number of entries in the slowlog",
            "Forgets slow commands.",
        ),
        Command::new("help", 2, help).of("slowlog").flags(LOADING | STALE).about(
            Group::Server,
            "6.2.0",
            "O(1)",
            "Says what the subcommands do.",
        ),
    ])];

/// Entries returned unless told.
const COUNT: usize = 10;

fn get(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let count = match args.len() {
        2 => COUNT,
        3 => match parse_integer(args.bytes(2)) {
            Some(-1) => usize::MAX,
            Some(count @ 0..) => count as usize,
            _ => return Err(Error::new("ERR count should be greater than or equal to -1").into()),
        },
        _ => {
            return Err(super::misused("slowlog", args.bytes(1)).into());
        }
    };
    let slow = cx.server.monitor.slow(count);
    out.w().array(slow.len());
    for entry in slow {
        let mut w = out.w();
        w.array(6);
        w.integer(entry.id as i64);
        w.integer(entry.unix_seconds as i64);
        w.integer(entry.microseconds as i64);
        w.array(entry.args.len());
        entry.args.iter().for_each(|arg| w.bulk(arg));
        w.bulk(entry.peer.as_bytes());
        w.bulk(&entry.name);
    }
    Ok(())
}

fn len(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    out.w().integer(cx.server.monitor.slow_len() as i64);
    Ok(())
}

fn reset(cx: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    cx.server.monitor.slow_reset();
    out.w().ok();
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Answer {
    let lines = [
        (
            "GET [<count>]",
            "Return the latest <count> slow commands (10 unless told, -1 for all): id, Unix seconds, microseconds, arguments, address and name of the client.",
        ),
        ("LEN", "Return how many slow commands are kept."),
        ("RESET", "Forget slow commands."),
    ];
    commands::help(out, "SLOWLOG", &lines);
    Ok(())
}
