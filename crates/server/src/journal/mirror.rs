//! What a mirror is fed with: the commits of the store since they were last replayed,
//! and the second store. Who replays and compares them is `commands/mirror.rs`.

use crate::request::args::OwnedArgs;
use parking_lot::Mutex;
use snug_store::{Commit, Store};
use std::sync::Arc;

/// A commit on its way: its number, its time, and its commands by database.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) number: u64,
    pub(crate) now: u64,
    pub(crate) ops: Vec<(usize, Option<OwnedArgs>)>,
}

/// The store that follows, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    pub(crate) store: Mutex<Option<Arc<Store>>>,
    pub(crate) waiting: Mutex<Vec<Waiting>>,
}

impl Mirror {
    /// A commit took effect. Under its locks.
    pub(crate) fn committed(&self, commit: Commit<'_>) {
        let ops = commit.ops().map(|op| (op.db, OwnedArgs::of_op(op))).collect();
        self.waiting.lock().push(Waiting { number: commit.number, now: commit.now, ops });
    }
}
