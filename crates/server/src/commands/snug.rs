//! The `SNUG` command: what packing does.

use crate::command::flags::*;
use crate::command::{Command, Group};
use crate::commands::container;
use crate::context::{Args, Context};
use crate::error::Error;
use crate::out::Out;

pub(crate) const COMMANDS: &[Command] = &[Command::new("snug", -2, container)
    .about(Group::Server, "7.2.0", "Depends on subcommand.", "Shows what packing does.")
    .subcommands(&[
        Command::new("object", 3, object).of("snug").flags(READONLY).key(2).about(
            Group::Generic,
            "7.2.0",
            "O(1)",
            "Returns what a value is made of: encoding, codec, raw and packed bytes.",
        ),
        Command::new("help", 2, help).of("snug").flags(LOADING | STALE).about(
            Group::Server,
            "7.2.0",
            "O(1)",
            "Says what the subcommands do.",
        ),
    ])];

fn object(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let key = cx.key(args.bytes(2));
    let mut slot = cx.lock(&key);
    let Some(found) = slot.find_untouched(&key) else { return Err(Error::NO_SUCH_KEY) };
    let anatomy = slot.anatomy(found);
    let kind = slot.type_of(found);
    let packed = anatomy.packed.unwrap_or_default();
    let codec = if anatomy.packed.is_some() { "zstd" } else { "none" };
    let w = &mut out.w();
    w.map(9);
    for (field, value) in [("type", kind.name()), ("encoding", anatomy.encoding), ("codec", codec)]
    {
        w.bulk(field.as_bytes());
        w.bulk(value.as_bytes());
    }
    let dictionary = anatomy.dictionary.unwrap_or(0);
    for (field, value) in [
        ("allocated-bytes", anatomy.allocated),
        ("raw-bytes", anatomy.raw),
        ("packed-from-bytes", packed.raw),
        ("packed-bytes", packed.packed),
        ("dictionary-bytes", dictionary),
        ("access", usize::from(anatomy.access)),
    ] {
        w.bulk(field.as_bytes());
        w.integer(value as i64);
    }
    Ok(())
}

fn help(_: &mut Context<'_>, _: Args<'_>, out: &mut Out) -> Result<(), Error> {
    super::help(
        out,
        "SNUG",
        &[(
            "OBJECT <key>",
            "Show what the value of <key> is made of: encoding, codec, raw and packed bytes.",
        )],
    );
    Ok(())
}
