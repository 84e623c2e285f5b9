//! `WATCH`: who watches which key.
//!
//! ```text
//!  (database, slot) -> [ key, broken | key, broken | ... ]
//! ```
//!
//! A slot in which a key is watched is marked *observed*; a write there looks
//! its key up here, and nobody else's write does. A watch is broken for good
//! by the first change. Watching and its end cost a search among the watches
//! of one slot.

use foldhash::HashMap;
use parking_lot::Mutex;
use snug_store::{Batch, Interest};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// One client's watch of one key.
#[derive(Clone, Debug)]
struct Watch {
    key: Vec<u8>,
    broken: Arc<AtomicBool>,
    /// It is broken by changes too that `WATCH` does not follow.
    by_any: bool,
}

/// All watched keys, by database and slot.
///
/// Locked after a slot, never before one.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<HashMap<(usize, usize), Vec<Watch>>>);

impl Watches {
    /// Watches a key: `broken` is set when it changes.
    pub(crate) fn add(&self, store: &Batch<'_>, db: usize, key: &[u8], broken: &Arc<AtomicBool>) {
        self.insert(store, db, key, (broken, false));
    }

    /// The same, for a copy of what the key holds: any change sets it, also of a stream's
    /// groups.
    pub(crate) fn add_any(
        &self,
        store: &Batch<'_>,
        db: usize,
        key: &[u8],
        broken: &Arc<AtomicBool>,
    ) {
        self.insert(store, db, key, (broken, true));
    }

    fn insert(
        &self,
        store: &Batch<'_>,
        db: usize,
        key: &[u8],
        (broken, by_any): (&Arc<AtomicBool>, bool),
    ) {
        let hashed = store.key(key);
        let mut slot = store.lock(db, &hashed);
        // An expired key is gone before the watch begins, not broken by going.
        slot.find_entry(&hashed);
        slot.observe(Interest::Watch, true);
        let watch = Watch { key: key.to_vec(), broken: Arc::clone(broken), by_any };
        self.0.lock().entry((db, hashed.slot())).or_default().push(watch);
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
        let slot = store.lock(db, &hashed);
        let mut watched = self.0.lock();
        let place = (db, hashed.slot());
        let Some(watches) = watched.get_mut(&place) else { return };
        let ours = |watch: &Watch| Arc::ptr_eq(&watch.broken, broken) && watch.key == key;
        if let Some(at) = watches.iter().position(ours) {
            watches.swap_remove(at);
        }
        if watches.is_empty() {
            watched.remove(&place);
            if !slot.covered(&hashed).any(|slot| watched.contains_key(&(db, slot))) {
                slot.observe(Interest::Watch, false);
            }
        }
    }

    /// A key in this slot changed; whether any is watched there. To be called with the
    /// slot locked. `quietly` if it is a change that `WATCH` does not follow.
    pub(crate) fn touch(&self, db: usize, slot: usize, key: &[u8], quietly: bool) -> bool {
        let watched = self.0.lock();
        let watches = watched.get(&(db, slot));
        let breaks = |watch: &&Watch| watch.key == key && (watch.by_any || !quietly);
        let of_key = watches.into_iter().flatten().filter(breaks);
        of_key.for_each(|watch| watch.broken.store(true, Relaxed));
        watches.is_some()
    }

    /// A database is about to be emptied, or two are about to be swapped: the
    /// watches of their keys that exist in any of them are broken. Needs the
    /// store to itself.
    pub(crate) fn touch_existing(&self, store: &Batch<'_>, dbs: &[usize]) {
        // Copied, for looking a key up may expire it, which comes back here.
        let watched = self.0.lock();
        let in_dbs = watched.iter().filter(|((db, _), _)| dbs.contains(db));
        let copies: Vec<Watch> = in_dbs.flat_map(|(_, watches)| watches).cloned().collect();
        drop(watched);
        for Watch { key, broken, .. } in copies {
            let key = store.key(&key);
            let in_db = |&db: &usize| store.lock(db, &key).find_entry(&key).is_some();
            if dbs.iter().any(in_db) {
                broken.store(true, Relaxed);
            }
        }
    }

    /// Databases were emptied or swapped: marks the slots of their watched keys
    /// again. Needs the store to itself.
    pub(crate) fn observe_again(&self, store: &Batch<'_>, dbs: &[usize]) {
        for (db, slot) in self.0.lock().keys().filter(|(db, _)| dbs.contains(db)) {
            store.lock_slot(*db, *slot).observe(Interest::Watch, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_store::{Event, NewStr, Set, SetExpiry, Store, StoreConfig, Unobserved};

    fn set(store: &Batch<'_>, db: usize, key: &[u8]) {
        let key = store.key(key);
        let mut slot = store.lock(db, &key);
        let found = slot.find(&key);
        slot.apply(
            &key,
            found,
            Set { value: NewStr::Int(1), expiry: SetExpiry::Clear },
            Event::NONE,
        );
    }

    #[test]
    fn what_breaks_a_watch() {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let mut session = store.session();
        let batch = session.enter(1);
        let watches = Watches::default();
        let watch = |db, key: &[u8]| {
            let broken = Arc::new(AtomicBool::new(false));
            watches.add(&batch, db, key, &broken);
            move || broken.load(Relaxed)
        };
        set(&batch, 0, b"here");
        set(&batch, 1, b"there");
        let (here, none, other) = (watch(0, b"here"), watch(0, b"none"), watch(1, b"here"));
        watches.touch_existing(&batch, &[0]);
        watches.touch_existing(&batch, &[1]);
        assert_eq!((here(), none(), other()), (true, false, false));

        let (there, none) = (watch(0, b"there"), watch(0, b"none"));
        watches.touch_existing(&batch, &[0]);
        assert!(!there());
        watches.touch_existing(&batch, &[0, 1]);
        assert_eq!((there(), none()), (true, false));

        let (one, two) = (watch(0, b"k"), watch(1, b"k"));
        watches.touch(0, batch.key(b"k").slot(), b"k", false);
        assert_eq!((one(), two()), (true, false));
    }

    #[test]
    fn a_slot_is_observed_while_one_of_its_keys_is_watched() {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let mut session = store.session();
        let batch = session.enter(1);
        let watches = Watches::default();
        let key = batch.key(b"k");
        let observed = || batch.lock(0, &key).is_observed();
        let [a, b] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        watches.add(&batch, 0, b"k", &a);
        watches.add(&batch, 0, b"k", &b);
        watches.remove(&batch, 0, b"k", &a);
        assert!(observed());
        watches.remove(&batch, 0, b"k", &b);
        assert!(!observed());
        watches.remove(&batch, 0, b"k", &b);
        assert!(watches.0.lock().is_empty());
    }
}
