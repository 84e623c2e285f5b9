//! The CLUSTER command, READONLY and READWRITE.

use crate::command::Command;

pub(crate) const COMMANDS: &[Command] = &[];
