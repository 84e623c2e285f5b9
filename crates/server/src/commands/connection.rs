//! Connection commands: `PING`, `ECHO`, `SELECT`, `QUIT`, ...

use crate::command::flags::*;
use crate::command::{Command, Group};
use crate::context::{Args, Context};
use crate::error::Error;
use crate::out::Out;

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("ping", -1, ping).flags(FAST).about(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Answers, to show that the server is there.",
    ),
    Command::new("echo", 2, echo).flags(LOADING | STALE | FAST).about(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Returns its argument.",
    ),
];

fn ping(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    if args.len() > 2 {
        return Err(Error::wrong_arity("ping"));
    }
    if cx.client.in_pubsub_mode() {
        out.w().array(2);
        out.w().bulk(b"pong");
        out.w().bulk(args.get(1).unwrap_or_default());
        return Ok(());
    }
    match args.get(1) {
        Some(message) => out.w().bulk(message),
        None => out.w().simple("PONG"),
    }
    Ok(())
}

fn echo(_: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    out.w().bulk(args.bytes(1));
    Ok(())
}
