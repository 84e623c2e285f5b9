//! Commands on keys of any type: DEL, EXPIRE, SCAN, RENAME, ...

use crate::command::Command;

pub(crate) const COMMANDS: &[Command] = &[];
