//! Whether an account may execute a command: what is wanted, and what is wrong.

use super::Access;
use crate::request::args::Args;
use smallvec::SmallVec;
use std::cell::OnceCell;

/// Keys among the arguments, and what is wanted of each.
pub(crate) type Keys = SmallVec<[(usize, Access); 4]>;

/// A command that somebody wants to execute.
pub(crate) struct Wanted<'a> {
    /// Its index in the command table.
    pub command: u16,
    /// `AUTH` and the like, which everybody may call.
    pub is_for_everybody: bool,
    /// Its first argument stands behind its container's name and its own.
    pub is_subcommand: bool,
    /// The arguments, the command's name first.
    pub args: Args<'a>,
    /// Finds the keys among the arguments: called once, by the first who asks.
    pub find_keys: &'a dyn Fn() -> Keys,
    found: OnceCell<Keys>,
    /// How many arguments behind the name are channels.
    pub channels: usize,
    /// They are patterns of channels.
    pub of_patterns: bool,
}

impl<'a> Wanted<'a> {
    /// A command that uses no channels.
    pub(crate) fn new(
        command: u16,
        is_for_everybody: bool,
        args: Args<'a>,
        find_keys: &'a dyn Fn() -> Keys,
    ) -> Self {
        Self {
            command,
            is_for_everybody,
            is_subcommand: false,
            args,
            find_keys,
            found: OnceCell::new(),
            channels: 0,
            of_patterns: false,
        }
    }

    pub(super) fn keys(&self) -> &Keys {
        self.found.get_or_init(self.find_keys)
    }

    pub(super) fn arg(&self, at: usize) -> &'a [u8] {
        self.args.get(at).unwrap_or_default()
    }
}

/// What an account may not do, in the order in which one of several selectors'
/// reasons is chosen: the greatest is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denied {
    /// The command or subcommand.
    Command,
    /// To use the key at this index so.
    Key(usize),
    /// To use the channel at this index.
    Channel(usize),
}
