//! A snapshot: what the store held at one moment, read while it goes on changing.
//!
//! ```text
//!  moment     all gates closed for an instant: nobody is half-way through anything
//!  walk       slot by slot, ascending by (keyspace, slot): under a slot's lock its
//!             entries are copied, large values by reference
//!  a change   of a key that the walk has not come to: what it held is kept first,
//!             once, and the walk passes it by
//! ```
//!
//! So what is taken is of the moment whatever happens meanwhile, and nobody waits for
//! more than a slot's copy. What is kept goes to whoever reads the snapshot at its
//! next step, out of order; only names stay until the walk has passed them. A database
//! that is emptied before the walk has come to its end is not freed but given to the
//! snapshot, which takes what it wants of it and frees the rest, slot by slot.
//!
//! Costs: a change of a key pays a branch while there is no snapshot; while there is
//! one, a comparison behind the walk, and before it a look-up among the names and, at
//! the first change, a copy. Memory: the names of keys that were changed or added
//! before the walk came to them, the copies of one step, and pages of large collections
//! that were changed and are still held by a copy. When the copies that wait for a step
//! come to [`KEPT_MAX`] bytes, the snapshot says so ([`Store::is_snapshot_behind`]) and
//! whoever can wait with writing had better do so.

use crate::hash::{Key, SLOTS};
use crate::slot::{Detached, SlotGuard};
use crate::store::{Batch, Flushed, Store};
use crate::sync::{AtomicBool, AtomicUsize, Mutex};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Locks among which the names of kept keys are divided.
const SHARDS: usize = 64;

/// A slot among those of all keyspaces.
fn place(keyspace: usize, slot: usize) -> usize {
    keyspace * SLOTS + slot
}

/// Bytes of copies that wait for the reader's next step, above which it is behind.
const KEPT_MAX: usize = 8 * 1024 * 1024;
/// The most that one copy counts for: what is larger is shared, not copied.
const KEPT_EACH: usize = 128 * 1024;

/// What a name takes beside its bytes, about: its place among the others, its allocation.
const NAME_BYTES: usize = 64;

/// A value that a snapshot has: its database at the moment, and a copy.
pub type Taken = (usize, Detached);

/// Keys of one slot.
type Names = HashSet<Box<[u8]>>;

/// What those who change keys know of a snapshot.
#[derive(Debug)]
pub(crate) struct Moment {
    /// The database that each keyspace was.
    databases: Box<[usize]>,
    /// The walk has passed every place below. Changed under the slot's lock.
    passed: AtomicUsize,
    /// By place: names of keys that were changed before the walk came to them.
    names: [Mutex<HashMap<usize, Names>>; SHARDS],
    /// What they held.
    kept: Mutex<Vec<Taken>>,
    kept_bytes: AtomicUsize,
    /// Bytes of copies that the reader's last step gave it, which it may not be done with.
    in_hand: AtomicUsize,
    /// About what the names take.
    named_bytes: AtomicUsize,
    /// By keyspace: it was emptied, and what it holds now is of no interest.
    emptied: Box<[AtomicBool]>,
    /// What was in them, with the keyspace and how far the walk was then.
    flushed: Mutex<Vec<(usize, usize, Flushed)>>,
}

impl Moment {
    /// Whether a key of this place was changed since, or is new; from now on it counts
    /// as changed.
    fn note(&self, place: usize, key: &[u8]) -> bool {
        let mut names = self.names[place % SHARDS].lock();
        let names = names.entry(place).or_default();
        let is_known = names.contains(key) || !names.insert(key.into());
        if !is_known {
            self.named_bytes.fetch_add(key.len() + NAME_BYTES, Relaxed);
        }
        is_known
    }

    /// Some names are not needed any more.
    fn unnamed(&self, names: &Names) {
        let bytes: usize = names.iter().map(|name| name.len() + NAME_BYTES).sum();
        self.named_bytes.fetch_sub(bytes, Relaxed);
    }

    /// About what the snapshot takes beside what the store would hold without it.
    pub(crate) fn extra_bytes(&self) -> usize {
        let parts = [&self.kept_bytes, &self.in_hand, &self.named_bytes];
        parts.iter().map(|bytes| bytes.load(Relaxed)).sum()
    }

    /// Whether a key was changed since.
    fn is_noted(&self, place: usize, key: &[u8]) -> bool {
        let names = self.names[place % SHARDS].lock();
        names.get(&place).is_some_and(|names| names.contains(key))
    }

    fn is_emptied(&self, keyspace: usize) -> bool {
        self.emptied[keyspace].load(Relaxed)
    }

    /// Whether more waits for the reader's next step than should.
    pub(crate) fn is_behind(&self) -> bool {
        self.kept_bytes.load(Relaxed) > KEPT_MAX
    }

    /// Keeps what a key holds, if it is about to be changed for the first time since
    /// the moment and before the walk has come to it.
    pub(crate) fn keep(&self, slot: &SlotGuard<'_>, key: &Key<'_>) {
        let keyspace = slot.keyspace();
        let place = place(keyspace, key.slot());
        let is_passed = place < self.passed.load(Relaxed) || self.is_emptied(keyspace);
        if is_passed || self.note(place, key.bytes) {
            return;
        }
        if let Some(value) = slot.duplicate_key(key) {
            self.kept_bytes.fetch_add(value.allocated().min(KEPT_EACH), Relaxed);
            self.kept.lock().push((self.databases[keyspace], value));
        }
    }

    /// A keyspace was emptied, with the gates closed: what is left to be freed.
    pub(crate) fn flushed(&self, keyspace: usize, flushed: Flushed) -> Flushed {
        let passed = self.passed.load(Relaxed);
        if place(keyspace + 1, 0) <= passed || self.is_emptied(keyspace) {
            return flushed;
        }
        self.emptied[keyspace].store(true, Relaxed);
        let nothing = Flushed::nothing(flushed.store());
        self.flushed.lock().push((keyspace, passed, flushed));
        nothing
    }

    fn take_kept(&self, taken: &mut Vec<Taken>) {
        let mut kept = self.kept.lock();
        self.kept_bytes.store(0, Relaxed);
        taken.append(&mut kept);
    }

    /// Takes what belongs to the moment from one slot of a database that was emptied;
    /// whether there was one.
    fn take_flushed(&self, store: &Store, taken: &mut Vec<Taken>) -> bool {
        let mut all = self.flushed.lock();
        let Some((keyspace, passed, flushed)) = all.last_mut() else { return false };
        let (keyspace, passed) = (*keyspace, *passed);
        let Some(slot) = flushed.pop_slot() else {
            all.pop();
            drop(all);
            self.forget(place(keyspace, 0)..place(keyspace + 1, 0));
            return true;
        };
        drop(all);
        for cell in slot.into_cells().into_each() {
            let value = Detached::of_flushed(cell, store);
            let key = value.key();
            let place = place(keyspace, store.key(&key).slot());
            let is_taken = place >= passed && !self.is_noted(place, &key);
            drop(key);
            if is_taken {
                taken.push((self.databases[keyspace], value));
            }
        }
        true
    }

    /// Forgets the names of keys that nobody will ask about.
    fn forget(&self, places: Range<usize>) {
        for names in &self.names {
            names.lock().retain(|place, names| {
                let stays = !places.contains(place);
                if !stays {
                    self.unnamed(names);
                }
                stays
            });
        }
    }
}

/// What the store held at one moment. One at a time; what it costs others ends with
/// it.
#[derive(Debug)]
pub struct Snapshot {
    store: Arc<Store>,
    moment: Arc<Moment>,
    /// Keys, and of them those that expire, by database at the moment.
    keys: Box<[(u64, u64)]>,
    commit: u64,
}

/// How far the reading of a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more.
    More,
    /// This was the last.
    Done,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.store.end_snapshot();
    }
}

impl Batch<'_> {
    /// Begins a snapshot of this moment; `None` while there is another. Within an
    /// [`exclusive`](Self::exclusive) scope it is of what there is then, and whatever
    /// else is done in that scope belongs to the same moment.
    pub fn begin_snapshot(&self) -> Option<Snapshot> {
        let _alone = self.exclusive();
        let store = self.session().store();
        let mut databases = vec![0; store.databases()].into_boxed_slice();
        for db in 0..store.databases() {
            databases[store.keyspace_of(db)] = db;
        }
        let emptied = (0..store.databases()).map(|_| AtomicBool::new(false)).collect();
        let moment = Arc::new(Moment {
            databases,
            passed: AtomicUsize::new(0),
            names: std::array::from_fn(|_| Mutex::default()),
            kept: Mutex::default(),
            kept_bytes: AtomicUsize::new(0),
            in_hand: AtomicUsize::new(0),
            named_bytes: AtomicUsize::new(0),
            emptied,
            flushed: Mutex::default(),
        });
        store.set_snapshot(&moment).then(|| Snapshot {
            keys: (0..store.databases()).map(|db| (store.keys(db), store.expiring(db))).collect(),
            commit: store.commits(),
            store: Arc::clone(store),
            moment,
        })
    }
}

impl Snapshot {
    /// Keys that a database had, and how many of them expire.
    pub fn keys(&self, db: usize) -> (u64, u64) {
        self.keys[db]
    }

    /// The number of the last commit before it, if commits were followed.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// The databases of which there are keys, with their numbers ([`keys`](Self::keys)).
    pub fn databases(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        let all = self.keys.iter().enumerate().map(|(db, &(keys, expiring))| (db, keys, expiring));
        all.filter(|&(_, keys, _)| keys > 0)
    }

    /// Where there is nothing more to walk.
    fn end(&self) -> usize {
        place(self.keys.len(), 0)
    }

    /// How far the reading is, from 0 to 1: by places, not by keys.
    pub fn progress(&self) -> f64 {
        self.moment.passed.load(Relaxed) as f64 / self.end() as f64
    }

    /// Takes the next slot that has keys, and what was kept since the last step, in no
    /// order; of that there is nothing left in `taken`. O(keys of a slot).
    pub fn step(&mut self, store: &Batch<'_>, taken: &mut Vec<Taken>) -> Step {
        let step = self.advance(store, taken);
        let bytes = taken.iter().map(|(_, value)| value.allocated().min(KEPT_EACH)).sum();
        self.moment.in_hand.store(bytes, Relaxed);
        step
    }

    fn advance(&self, store: &Batch<'_>, taken: &mut Vec<Taken>) -> Step {
        self.moment.take_kept(taken);
        if self.moment.take_flushed(&self.store, taken) {
            return Step::More;
        }
        let mut next = self.moment.passed.load(Relaxed);
        while next < self.end() {
            let (keyspace, first) = (next / SLOTS, next % SLOTS);
            let slots = &self.store.keyspaces[keyspace];
            let found = slots.made(first).find(|(_, slot)| slot.keys() > 0);
            match found.filter(|_| !self.moment.is_emptied(keyspace)) {
                Some((slot, _)) => {
                    self.take(store, place(keyspace, slot.max(first)), taken);
                    self.moment.take_kept(taken);
                    return Step::More;
                }
                None => next = place(keyspace + 1, 0),
            }
        }
        self.moment.passed.store(self.end(), Relaxed);
        // Nobody keeps anything from here on; but somebody may have just now.
        self.moment.take_kept(taken);
        Step::Done
    }

    /// Takes what lies under the lock of the slot at `at` and was not passed yet.
    fn take(&self, store: &Batch<'_>, at: usize, taken: &mut Vec<Taken>) {
        let (keyspace, slot) = (at / SLOTS, at % SLOTS);
        let db = self.moment.databases[keyspace];
        let guard = store.lock_in(keyspace, db, slot);
        let covered = self.store.keyspaces[keyspace].covered(slot);
        let passed = self.moment.passed.load(Relaxed);
        let mut names: HashMap<usize, Names> = HashMap::new();
        for slot in covered.clone() {
            let place = place(keyspace, slot);
            if let Some(of_slot) = self.moment.names[place % SHARDS].lock().remove(&place) {
                names.insert(place, of_slot);
            }
        }
        guard.duplicate_each(&mut |key: &Key<'_>, copy: &dyn Fn() -> Detached| {
            let place = place(keyspace, key.slot());
            let is_changed = || names.get(&place).is_some_and(|names| names.contains(key.bytes));
            if place >= passed && !is_changed() {
                taken.push((db, copy()));
            }
        });
        self.moment.passed.store(place(keyspace, covered.end), Relaxed);
        // The names are freed when the slot is free.
        drop(guard);
        names.values().for_each(|names| self.moment.unnamed(names));
        drop(names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::string::Str;
    use crate::{Event, NewStr, Session, SetExpiry, StoreConfig, Unobserved};
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng};
    use std::collections::BTreeMap;

    type Content = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

    fn set(batch: &Batch<'_>, db: usize, name: &[u8], value: &[u8]) {
        let key = batch.key(name);
        let mut slot = batch.lock(db, &key);
        let found = slot.find(&key);
        let op = crate::Set { value: NewStr::Bytes(value), expiry: SetExpiry::Clear };
        slot.apply(&key, found, op, Event::NONE);
    }

    fn delete(batch: &Batch<'_>, db: usize, name: &[u8]) {
        let key = batch.key(name);
        let mut slot = batch.lock(db, &key);
        let found = slot.find(&key);
        slot.apply(&key, found, crate::effect::Delete, Event::NONE);
    }

    impl Detached {
        fn string_bytes(&self, session: &Session) -> Vec<u8> {
            let string = Str::of(self.value(), session).unwrap();
            string.to_bytes().unwrap().into_owned()
        }
    }

    fn content(batch: &Batch<'_>) -> Content {
        let mut content = Content::new();
        for db in 0..batch.store().databases() {
            let mut names = Vec::new();
            batch.scan(db, 0, usize::MAX, |name, _| names.push(name.to_vec()));
            for name in names {
                let key = batch.key(&name);
                let mut slot = batch.lock(db, &key);
                let found = slot.find_untouched(&key).unwrap();
                let value = slot.duplicate(found).string_bytes(batch.session());
                content.insert((db, name), value);
            }
        }
        content
    }

    /// Changes of all kinds between the steps: what is taken is what there was.
    #[test]
    fn what_is_taken_is_of_the_moment() {
        for seed in 0..6 {
            let mut random = StdRng::seed_from_u64(seed);
            let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
            let (mut session, mut reader) = (store.session(), store.session());
            let keys = [300u32, 3000, 40_000][seed as usize % 3];
            let name = |random: &mut StdRng| format!("k{}", random.random_range(0..keys * 2));
            let batch = session.enter(1);
            for _ in 0..keys {
                let (db, name) = (random.random_range(0..3) * 7, name(&mut random));
                set(&batch, db, name.as_bytes(), &random.random::<u64>().to_le_bytes());
            }
            let expected = content(&batch);
            let mut snapshot = batch.begin_snapshot().unwrap();
            assert!(batch.begin_snapshot().is_none(), "one at a time");
            drop(batch);
            let (mut got, mut taken) = (Content::new(), Vec::new());
            loop {
                let batch = reader.enter(2);
                let step = snapshot.step(&batch, &mut taken);
                for (db, value) in taken.drain(..) {
                    let before =
                        got.insert((db, value.key().to_vec()), value.string_bytes(batch.session()));
                    assert!(before.is_none(), "taken twice");
                }
                drop(batch);
                if step == Step::Done {
                    break;
                }
                let batch = session.enter(2);
                for _ in 0..random.random_range(0..20) {
                    let (db, name) = (random.random_range(0..3) * 7, name(&mut random));
                    match random.random_range(0..8) {
                        0..4 => set(&batch, db, name.as_bytes(), b"changed"),
                        4..6 => delete(&batch, db, name.as_bytes()),
                        6 => {
                            let (from, to) = (batch.key(name.as_bytes()), batch.key(b"there"));
                            let _held = batch.hold([(db, from), (db, to)]);
                            let is_there = batch.lock(db, &from).find(&from).is_some();
                            if is_there {
                                drop(batch.rename(db, &from, &to));
                            }
                        }
                        _ => batch.swap(0, 7),
                    }
                    if random.random_range(0..2000) == 0 {
                        drop(batch.flush(random.random_range(0..3) * 7));
                    }
                }
                if random.random_range(0..10) == 0 {
                    batch.tidy();
                }
                // Slots unfold and fold meanwhile.
                let shape = random.random_range(0..200);
                for n in 0..9000 {
                    match shape {
                        0 => set(&batch, 0, format!("new{n}").as_bytes(), b"new"),
                        1 => delete(&batch, 0, format!("new{n}").as_bytes()),
                        _ => break,
                    }
                }
            }
            drop(snapshot);
            assert!(got == expected, "{} taken, {} there were", got.len(), expected.len());
            assert!(session.enter(3).begin_snapshot().is_some());
        }
    }

    #[test]
    fn it_is_behind_until_what_is_kept_is_taken() {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let mut session = store.session();
        let batch = session.enter(1);
        let value = vec![b'x'; 60_000];
        let names: Vec<_> = (0..KEPT_MAX / value.len() + 2).map(|n| n.to_string()).collect();
        names.iter().for_each(|name| set(&batch, 0, name.as_bytes(), &value));
        let mut snapshot = batch.begin_snapshot().unwrap();
        assert!(!store.is_snapshot_behind());
        names.iter().for_each(|name| set(&batch, 0, name.as_bytes(), b"new"));
        assert!(store.is_snapshot_behind());
        let mut taken = Vec::new();
        snapshot.step(&batch, &mut taken);
        assert_eq!(taken.len(), names.len());
        assert!(!store.is_snapshot_behind());
    }
}
