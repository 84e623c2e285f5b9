//! What accounts know of the commands: their names, which belong together, and their
//! categories. Made from the one command table when the server starts, with the names
//! that commands have by themselves: `rename-command` changes nothing here.

use super::Categories;

/// A command or subcommand.
#[derive(Debug)]
pub(crate) struct Entry {
    /// `get`, `config|set`.
    pub full_name: String,
    /// Of a subcommand: its container's index.
    pub container: Option<u16>,
    pub categories: Categories,
}

/// All commands, each at its index in the command table.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    entries: Vec<Entry>,
    /// Indices of those that are no subcommands, in the order of their names: rules
    /// are told in this order.
    top: Vec<u16>,
    /// Each container's subcommands, by its index; nothing for others.
    subcommands: Vec<Vec<u16>>,
}

impl Catalog {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        let tops = (0..entries.len()).filter(|&at| entries[at].container.is_none());
        let mut top: Vec<u16> = tops.map(|at| at as u16).collect();
        top.sort_by_key(|&at| &entries[at as usize].full_name);
        let mut subcommands = vec![Vec::new(); entries.len()];
        for (at, entry) in entries.iter().enumerate() {
            if let Some(container) = entry.container {
                subcommands[usize::from(container)].push(at as u16);
            }
        }
        Self { entries, top, subcommands }
    }

    /// How many commands and subcommands there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entry(&self, command: u16) -> &Entry {
        &self.entries[command as usize]
    }

    /// Commands that are no subcommands.
    pub(super) fn top(&self) -> impl Iterator<Item = u16> + '_ {
        self.top.iter().copied()
    }

    /// A container's subcommands.
    pub(super) fn subcommands(&self, container: u16) -> impl Iterator<Item = u16> + '_ {
        self.subcommands[usize::from(container)].iter().copied()
    }

    /// A command by its full name, in any case.
    pub(super) fn find(&self, name: &[u8]) -> Option<u16> {
        let is = |entry: &Entry| entry.full_name.as_bytes().eq_ignore_ascii_case(name);
        self.entries.iter().position(is).map(|at| at as u16)
    }

    /// The full names of the commands of a category.
    pub(crate) fn of_category(&self, category: Categories) -> impl Iterator<Item = &str> {
        let of = move |entry: &&Entry| entry.categories.has(category);
        self.entries.iter().filter(of).map(|entry| entry.full_name.as_str())
    }
}
