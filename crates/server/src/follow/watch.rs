//! `WATCH`: who watches which key.
//!
//! ```text
//!  (database, slot) -> key -> [ broken | broken | ... ]
//! ```
//!
//! A slot in which a key is watched is marked *observed*; a write there looks
//! its key up here, and nobody else's write does. A watch is broken for good
//! by the first change. Watching costs O(1); its end, and a change, cost a search among
//! the watches of one key. Keys of one slot are as many as somebody makes them, by a
//! hash tag, so they are not searched.

use foldhash::HashMap;
use parking_lot::Mutex;
use snug_store::{Batch, Interest};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// One client's watch of one key.
#[derive(Clone, Debug)]
struct Watch {
    broken: Arc<AtomicBool>,
    /// It is broken by changes too that `WATCH` does not follow.
    by_any: bool,
}

/// The watches of a slot's keys.
type OfSlot = HashMap<Vec<u8>, Vec<Watch>>;

/// All watched keys, by database and slot.
///
/// Locked after a slot, never before one.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<HashMap<(usize, usize), OfSlot>>);

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
        let watch = Watch { broken: Arc::clone(broken), by_any };
        let mut watched = self.0.lock();
        watched
            .entry((db, hashed.slot()))
            .or_default()
            .entry(key.to_vec())
            .or_default()
            .push(watch);
    }

    /// Watches a key no longer. Waits for nobody: a script may have the slot for long. Then
    /// the slot stays marked, and is looked up here once more by the next write or the end
    /// of the next watch there.
    pub(crate) fn remove(
        &self,
        store: &Batch<'_>,
        db: usize,
        key: &[u8],
        broken: &Arc<AtomicBool>,
    ) {
        let hashed = store.key(key);
        let slot = store.try_lock(db, &hashed);
        let mut watched = self.0.lock();
        let place = (db, hashed.slot());
        let Some(keys) = watched.get_mut(&place) else { return };
        let Some(watches) = keys.get_mut(key) else { return };
        let ours = |watch: &Watch| Arc::ptr_eq(&watch.broken, broken);
        if let Some(at) = watches.iter().position(ours) {
            watches.swap_remove(at);
        }
        if watches.is_empty() {
            keys.remove(key);
        }
        if keys.is_empty() {
            watched.remove(&place);
            if let Some(slot) = slot
                && !slot.covered(&hashed).any(|slot| watched.contains_key(&(db, slot)))
            {
                slot.observe(Interest::Watch, false);
            }
        }
    }

    /// A key in this slot changed; whether any is watched there. To be called with the
    /// slot locked. `quietly` if it is a change that `WATCH` does not follow.
    pub(crate) fn touch(&self, db: usize, slot: usize, key: &[u8], quietly: bool) -> bool {
        let watched = self.0.lock();
        let keys = watched.get(&(db, slot));
        let watches = keys.and_then(|keys| keys.get(key)).into_iter().flatten();
        let breaks = |watch: &&Watch| watch.by_any || !quietly;
        watches.filter(breaks).for_each(|watch| watch.broken.store(true, Relaxed));
        keys.is_some()
    }

    /// A database is about to be emptied, or two are about to be swapped: the
    /// watches of their keys that exist in any of them are broken. Needs the
    /// store to itself.
    pub(crate) fn touch_existing(&self, store: &Batch<'_>, dbs: &[usize]) {
        // Copied, for looking a key up may expire it, which comes back here.
        let watched = self.0.lock();
        let in_dbs = watched.iter().filter(|((db, _), _)| dbs.contains(db));
        let copies: Vec<(Vec<u8>, Vec<Watch>)> = in_dbs
            .flat_map(|(_, keys)| keys)
            .map(|(key, watches)| (key.clone(), watches.clone()))
            .collect();
        drop(watched);
        for (key, watches) in copies {
            let key = store.key(&key);
            let in_db = |&db: &usize| store.lock(db, &key).find_entry(&key).is_some();
            if dbs.iter().any(in_db) {
                watches.iter().for_each(|watch| watch.broken.store(true, Relaxed));
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
