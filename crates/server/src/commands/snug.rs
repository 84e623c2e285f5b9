//! The SNUG command: what packing does.

use crate::command::Command;

pub(crate) const COMMANDS: &[Command] = &[];
