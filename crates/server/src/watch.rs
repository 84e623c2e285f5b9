//! `WATCH`: who watches which key.
//!
//! A slot in which a key is watched is marked *observed*; a write there looks
//! its key up here, and nobody else's write does. A watch is broken for good
//! by the first change.

use foldhash::HashMap;
use parking_lot::Mutex;
use snug_store::Batch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// All watched keys, by database and key.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<HashMap<(usize, Vec<u8>), Vec<Arc<AtomicBool>>>>);

impl Watches {
    /// Watches a key: `broken` is set when it changes.
    pub(crate) fn add(&self, store: &Batch<'_>, db: usize, key: &[u8], broken: &Arc<AtomicBool>) {
        let hashed = store.key(key);
        let mut slot = store.lock(db, &hashed);
        // An expired key is gone before the watch begins, not broken by going.
        slot.find_untouched(&hashed);
        slot.observe(true);
        self.0.lock().entry((db, key.to_vec())).or_default().push(Arc::clone(broken));
    }

    /// Watches a key no longer.
    pub(crate) fn remove(
        &self,
        store: &Batch<'_>,
        db: usize,
        key: &[u8],
        broken: &Arc<AtomicBool>,
    ) {
        let hashed = store.key(key);
        let mut slot = store.lock(db, &hashed);
        let mut watched = self.0.lock();
        let id = (db, key.to_vec());
        if let Some(watchers) = watched.get_mut(&id) {
            watchers.retain(|other| !Arc::ptr_eq(other, broken));
            if watchers.is_empty() {
                watched.remove(&id);
            }
        }
        let in_slot = |other: &[u8]| store.key(other).slot() == hashed.slot();
        if !watched.keys().any(|(other_db, other)| *other_db == db && in_slot(other)) {
            slot.observe(false);
        }
    }

    /// A key changed.
    pub(crate) fn touch(&self, db: usize, key: &[u8]) {
        let watched = self.0.lock();
        // Looked up by borrowed parts would need a key type of its own; this
        // path is taken only in slots with a watched key.
        if let Some(watchers) = watched.get(&(db, key.to_vec())) {
            watchers.iter().for_each(|broken| broken.store(true, Relaxed));
        }
    }

    /// Databases are about to be emptied or swapped: the watches of all their
    /// keys that exist are broken. Needs the store to itself.
    pub(crate) fn touch_existing(&self, store: &Batch<'_>, dbs: &[usize]) {
        let watched = self.0.lock();
        for ((db, key), watchers) in watched.iter().filter(|((db, _), _)| dbs.contains(db)) {
            let hashed = store.key(key);
            let exists = dbs.iter().any(|&in_db| {
                (in_db == *db || dbs.len() == 2) && {
                    store.lock(in_db, &hashed).find_untouched(&hashed).is_some()
                }
            });
            if exists {
                watchers.iter().for_each(|broken| broken.store(true, Relaxed));
            }
        }
    }

    /// Databases were emptied or swapped: marks the slots of their watched keys
    /// again. Needs the store to itself.
    pub(crate) fn observe_again(&self, store: &Batch<'_>, dbs: &[usize]) {
        for (db, key) in self.0.lock().keys().filter(|(db, _)| dbs.contains(db)) {
            store.lock(*db, &store.key(key)).observe(true);
        }
    }
}
