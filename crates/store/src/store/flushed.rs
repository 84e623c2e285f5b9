//! What a database held before it was flushed.

use super::Store;
use super::batch::Batch;
use super::session::Mode;
use crate::books::weight::Weight;
use crate::effect::Replaced;
use crate::keyspace::{Keys, Page};
use crate::slot::Slot;
use std::sync::Arc;

impl Batch<'_> {
    /// Takes everything out of a database. The store is the caller's alone. O(slots).
    pub(crate) fn take_all(&self, db: usize) -> Flushed {
        assert_eq!(self.session.mode.get(), Mode::Exclusive);
        assert_eq!(self.session.guards.get(), 0, "flushing with a guard in use");
        let store = &self.session.store;
        let keyspace = store.keyspace_of(db);
        for counter in [Keys::All, Keys::Expiring] {
            let keys = store.keyspaces[keyspace].count(counter) as i64;
            store.keyspaces.count(keyspace, counter, -keys);
        }
        // SAFETY: every gate is closed and this session has no guard in use.
        #[allow(unsafe_code)]
        let pages = unsafe { store.keyspaces[keyspace].take() };
        let flushed = Flushed { store: Arc::clone(store), pages };
        match store.moment() {
            // A snapshot that has not read it yet frees it when it has.
            Some(moment) => moment.flushed(keyspace, flushed),
            None => flushed,
        }
    }

    /// Empties a database and tells nobody who follows commits: for what is loaded again,
    /// so that it is in the end what it was. What was in it is given to be freed.
    pub fn unload(&self, db: usize) -> Flushed {
        let _alone = self.exclusive();
        self.store().observer().replacing(self, &[db]);
        let flushed = self.take_all(db);
        self.store().observer().replaced(self, &[db], Replaced::Flushed);
        flushed
    }
}

/// What a database held before it was flushed. Its memory is freed, and no
/// longer counted, when this is dropped: O(keys).
#[derive(Debug)]
pub struct Flushed {
    pub(super) store: Arc<Store>,
    pub(super) pages: Vec<Page>,
}

impl Flushed {
    pub(crate) fn nothing(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store), pages: Vec::new() }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Takes one of its slots out, whose entries stay counted.
    pub(crate) fn pop_slot(&mut self) -> Option<Slot> {
        let mut slots = self.pages.pop()?.into_vec();
        let slot = slots.pop();
        if !slots.is_empty() {
            self.pages.push(slots.into_boxed_slice());
        }
        slot
    }
}

impl Drop for Flushed {
    fn drop(&mut self) {
        for slot in self.pages.drain(..).flatten() {
            let cells = slot.into_cells();
            cells.iter().for_each(|cell| Weight::of(cell).count_gone(&self.store));
        }
    }
}
