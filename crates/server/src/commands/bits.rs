//! Commands on strings as bits: SETBIT, BITCOUNT, BITFIELD, ...

use crate::command::Command;

pub(crate) const COMMANDS: &[Command] = &[];
