//! The OBJECT command.

use crate::command::Command;

pub(crate) const COMMANDS: &[Command] = &[];
