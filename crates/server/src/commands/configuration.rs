//! The CONFIG command.

use crate::command::Command;

pub(crate) const COMMANDS: &[Command] = &[];
