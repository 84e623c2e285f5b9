//! Publish and subscribe.

use crate::command::Command;

pub(crate) const COMMANDS: &[Command] = &[];
