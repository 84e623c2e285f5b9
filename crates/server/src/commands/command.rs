//! The COMMAND command.

use crate::command::Command;

pub(crate) const COMMANDS: &[Command] = &[];
