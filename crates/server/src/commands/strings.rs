//! String commands.

use crate::command::flags::*;
use crate::command::{Command, Group};
use crate::context::{Args, Context};
use crate::error::Error;
use crate::notify::Class;
use crate::out::Out;
use snug_store::SetExpiry;

pub(crate) const COMMANDS: &[Command] = &[
    Command::new("get", 2, get).flags(READONLY | FAST).key(1).about(
        Group::String,
        "1.0.0",
        "O(1)",
        "Returns the string at a key.",
    ),
    Command::new("set", -3, set).flags(WRITE | DENYOOM).key(1).about(
        Group::String,
        "1.0.0",
        "O(1)",
        "Sets a key to a string, whatever it held.",
    ),
];

fn get(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    match cx.find_string(&mut slot, &key)? {
        Some(found) => slot.string(found).map_or((), |string| out.string(string)),
        None => out.w().null(),
    }
    Ok(())
}

fn set(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Result<(), Error> {
    let key = cx.key(args.bytes(1));
    let mut slot = cx.lock(&key);
    let found = slot.find(&key);
    slot.set_string(&key, found, args.value(2), SetExpiry::Clear);
    cx.changed(&slot, key.bytes, Class::STRING, "set");
    out.w().ok();
    Ok(())
}
