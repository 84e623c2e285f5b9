//! The keys that this thread has made ready and not served yet.

use super::registry::Key;
use foldhash::{HashMap, HashSet};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Keys that are ready, each once, in the order in which they became so.
#[derive(Debug, Default)]
pub(super) struct ReadyKeys {
    pub(super) line: VecDeque<(usize, Key)>,
    /// By database.
    names: HashMap<usize, HashSet<Key>>,
}

impl ReadyKeys {
    pub(super) fn push(&mut self, db: usize, key: &[u8]) {
        let names = self.names.entry(db).or_default();
        if !names.contains(key) {
            names.insert(key.to_vec());
            self.line.push_back((db, key.to_vec()));
        }
    }

    pub(super) fn pop(&mut self) -> Option<(usize, Key)> {
        let (db, key) = self.line.pop_front()?;
        if let Some(names) = self.names.get_mut(&db) {
            names.remove(&key);
        }
        Some((db, key))
    }
}

thread_local! {
    /// Keys that what this thread executes has made ready.
    pub(super) static READY: RefCell<ReadyKeys> = RefCell::default();
    pub(super) static ANY_READY: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn make_ready(db: usize, key: &[u8]) {
    ANY_READY.set(true);
    READY.with_borrow_mut(|ready| ready.push(db, key));
}

/// Whether this thread has made keys ready and is to [`serve`](Server::serve).
#[inline]
pub(crate) fn any_ready() -> bool {
    ANY_READY.get()
}
