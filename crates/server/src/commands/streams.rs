//! Commands on streams.

use crate::command::Command;

pub(crate) const COMMANDS: &[Command] = &[];
