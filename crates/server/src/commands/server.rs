//! Commands on the server itself: DBSIZE, FLUSHALL, SLOWLOG, SHUTDOWN, ...

use crate::command::Command;

pub(crate) const COMMANDS: &[Command] = &[];
