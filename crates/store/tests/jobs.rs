//! Packing jobs that are out while values are copied, moved, replaced and changed:
//! what comes of a job takes the place of what it was taken from, and of nothing else.
//!
//! Values of every kind, in two databases, against plain copies of them.

use proptest::prelude::*;
use snug_codec::stream::{SomePace, Turns, drive};
use snug_codec::{Dictionary, Workspace, WorkspaceConfig};
use snug_store::types::stream::ops::{AddEntry, DeleteEntries};
use snug_store::types::stream::{Shape, StreamId, StreamScratch};
use snug_store::{
    Batch, Delete, Event, Fate, Job, Key, MinSaving, NewStr, PieceParams, Set, Store, StoreConfig,
    Type, Unobserved,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

const NOW: u64 = 1_700_000_000_000;
const DATABASES: usize = 2;
const NAMES: [&[u8]; 2] = [b"one", b"another"];

/// Whatever can be packed is.
const PARAMS: PieceParams =
    PieceParams { min_size: 1, min_saving: MinSaving(-100), level: 1, ..PieceParams::DEFAULT };
const BLOCKS: PieceParams =
    PieceParams { min_saving: MinSaving(0), shape: SHAPE, ..PieceParams::DEFAULT };
const SHAPE: Shape = Shape {
    block_entries: 64,
    block_bytes: 64 * 1024,
    node_entries: 10,
    node_bytes: 4096,
    packs: true,
};

/// What a key should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Bytes(Vec<u8>),
    Entries(BTreeSet<u64>),
}

/// Some keys, and what they should hold.
struct World<'s> {
    batch: Batch<'s>,
    model: [BTreeMap<Vec<u8>, Value>; DATABASES],
    /// Jobs that are out.
    out: Vec<Job>,
    workspace: Workspace,
    scratch: StreamScratch,
}

impl<'s> World<'s> {
    /// Without keys. The families of streams have dictionaries, so that blocks refer to
    /// them.
    fn new(batch: Batch<'s>) -> Self {
        let families = batch.store().families();
        let texts: Vec<String> = (0..500).map(value_of).collect();
        let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        for name in NAMES {
            let dictionary = Dictionary::train_with(&samples, 1024, 1, 1).unwrap();
            families.adopt(&families.of(Type::Stream, name), Some(dictionary));
        }
        Self {
            batch,
            model: Default::default(),
            out: Vec::new(),
            workspace: Workspace::new(WorkspaceConfig::default()),
            scratch: StreamScratch::new(),
        }
    }

    fn set(&mut self, db: usize, name: &[u8], bytes: Vec<u8>) {
        let key = self.batch.key(name);
        let mut slot = self.batch.lock(db, &key);
        let found = slot.find(&key);
        slot.apply(&key, found, Set::to(NewStr::Bytes(&bytes)), Event::NONE);
        self.model[db].insert(name.to_vec(), Value::Bytes(bytes));
    }

    /// Adds entries behind those that there are, to a stream or in the place of a
    /// string.
    fn append(&mut self, db: usize, name: &[u8], entries: u64) {
        let key = self.batch.key(name);
        let mut slot = self.batch.lock(db, &key);
        let mut found = slot.find(&key);
        if found.is_none_or(|found| slot.type_of(found) != Type::Stream) {
            slot.apply(&key, found, Delete, Event::NONE);
            self.model[db].insert(name.to_vec(), Value::Entries(BTreeSet::new()));
            found = None;
        }
        let Some(Value::Entries(ids)) = self.model[db].get_mut(name) else {
            panic!("the model has another type");
        };
        let first = found.map_or(0, |found| slot.stream(found).unwrap().last_id().ms) + 1;
        for ms in first..first + entries {
            let value = value_of(ms);
            let fields = [(b"field".as_slice(), value.as_bytes())];
            let id = StreamId::new(ms, 0);
            let entry = AddEntry { id, fields: fields.into_iter(), shape: &SHAPE };
            found = Some(slot.apply(&key, found, entry, Event::NONE).unwrap());
            ids.insert(ms);
        }
    }

    /// Deletes all entries but one in so many.
    fn thin(&mut self, db: usize, name: &[u8], one_in: u64) {
        let key = self.batch.key(name);
        let mut slot = self.batch.lock(db, &key);
        let Some(Value::Entries(ids)) = self.model[db].get_mut(name) else { return };
        let found = slot.find(&key).unwrap();
        let goes: Vec<u64> = ids.iter().copied().filter(|ms| ms % one_in > 0).collect();
        ids.retain(|ms| ms % one_in == 0);
        let gone: Vec<StreamId> = goes.iter().map(|&ms| StreamId::new(ms, 0)).collect();
        let delete = DeleteEntries { ids: gone, shape: &SHAPE, scratch: &mut self.scratch };
        let deleted = slot.apply(&key, Some(found), delete, Event::NONE);
        assert_eq!(deleted, Ok(goes.len() as u64));
    }

    /// Gives a key the value of another, and takes it from that unless it is copied.
    fn give(&mut self, (from_db, from): (usize, &[u8]), to: (usize, &[u8]), copy: bool) {
        if (from_db, from) == to {
            return;
        }
        let (to_db, to) = to;
        let (from_key, to_key) = (self.batch.key(from), self.batch.key(to));
        let _held = self.batch.hold([(from_db, from_key), (to_db, to_key)]);
        if self.batch.lock(from_db, &from_key).find(&from_key).is_none() {
            return;
        }
        let delete = |db, key: &Key<'_>| {
            let mut slot = self.batch.lock(db, key);
            let found = slot.find(key);
            slot.apply(key, found, Delete, Event::NONE);
        };
        if !copy && from_db == to_db {
            self.batch.rename(from_db, &from_key, &to_key);
        } else if !copy && from == to {
            delete(to_db, &to_key);
            self.batch.move_key(&from_key, from_db, to_db);
        } else {
            self.batch.copy((from_db, &from_key), (to_db, &to_key));
            if !copy {
                delete(from_db, &from_key);
            }
        }
        let value = match copy {
            true => self.model[from_db].get(from).cloned(),
            false => self.model[from_db].remove(from),
        };
        self.model[to_db].insert(to.to_vec(), value.unwrap());
    }

    fn swap(&mut self) {
        self.batch.swap(0, 1);
        self.model.swap(0, 1);
    }

    fn flush(&mut self, db: usize) {
        drop(self.batch.flush(db));
        self.model[db].clear();
    }

    /// Takes a job about a key's value, if there is something to do.
    fn take(&mut self, db: usize, name: &[u8]) -> bool {
        let key = self.batch.key(name);
        let mut slot = self.batch.lock(db, &key);
        let Some(found) = slot.find(&key) else { return false };
        let params = if slot.type_of(found) == Type::Stream { &BLOCKS } else { &PARAMS };
        let job = slot.job(found, params, true);
        drop(slot);
        let taken = job.map(|job| self.out.push(self.batch.prepared(job, params)));
        taken.is_some()
    }

    /// Does what is out, and puts it where its key is now; how many had their place.
    fn finish(&mut self) -> usize {
        let out = std::mem::take(&mut self.out);
        out.into_iter().filter_map(|job| self.install(job)).count()
    }

    fn install(&mut self, mut job: Job) -> Option<Fate> {
        let (turns, mut room) = (SomePace::of(Turns::default()), Vec::new());
        drive(job.run(&mut self.workspace, &mut room, turns, 2), usize::MAX)?;
        let fate = self.batch.install(&mut job).fate;
        (fate != Fate::Nothing).then_some(fate)
    }

    /// Packs all that can be.
    fn pack(&mut self, db: usize, name: &[u8]) {
        while self.take(db, name) && self.finish() > 0 {
            // A large string that was packed could be unpacked again.
            if matches!(self.model[db].get(name), Some(Value::Bytes(_))) {
                return;
            }
        }
    }

    /// Every key holds what it should.
    fn check(&mut self) {
        for db in 0..DATABASES {
            assert_eq!(self.batch.store().keys(db), self.model[db].len() as u64);
            for (name, value) in &self.model[db] {
                let key = self.batch.key(name);
                let mut slot = self.batch.lock(db, &key);
                let found = slot.find(&key).expect("a key is there");
                match value {
                    Value::Bytes(bytes) => {
                        let string = slot.string(found).expect("a string");
                        assert!(*string.to_bytes().unwrap() == **bytes);
                    }
                    Value::Entries(ids) => {
                        let stream = slot.stream(found).expect("a stream");
                        assert_eq!(stream.len(), ids.len() as u64);
                        let mut read = BTreeSet::new();
                        let (min, max) = (StreamId::MIN, StreamId::MAX);
                        let whole =
                            stream.range(min, max, false, &mut self.scratch, |id, fields| {
                                let values: Vec<&[u8]> = fields.map(|(_, value)| value).collect();
                                assert_eq!(values, [value_of(id.ms).as_bytes()]);
                                read.insert(id.ms);
                                ControlFlow::Continue(())
                            });
                        let (has, should) = (read.len(), ids.len());
                        assert!(whole.is_ok() && read == *ids, "{has} entries of {should}");
                        assert_eq!(
                            stream.first_id(&mut self.scratch).unwrap().map(|id| id.ms),
                            ids.first().copied()
                        );
                    }
                }
            }
        }
    }
}

/// Words in no order, which are packed as text.
fn value_of(ms: u64) -> String {
    let words = ["alice", "bob", "carol", "dave"];
    let word = |n: u64| words[(ms.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * n)) as usize % 4];
    format!("{} and {} met {} {ms}", word(1), word(3), word(5))
}

fn text(seed: usize, len: usize) -> Vec<u8> {
    let words = ["a string ", "that packs ", "very well "];
    (seed..).flat_map(|n| words[n * n % 3].bytes()).take(len).collect()
}

/// How many blocks find their place again after this has happened to a stream,
/// `one`, while they were out to be packed anew. `another` is a copy of it from
/// before most of its entries were deleted. Every key holds what it should.
fn installed_after(what: impl FnOnce(&mut World<'_>)) -> usize {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let mut session = store.session();
    let mut world = World::new(session.enter(NOW));
    world.append(0, b"one", 2000);
    world.pack(0, b"one");
    assert!(store.families().dictionaries().iter().any(|d| d.references > 0));
    world.give((0, b"one"), (0, b"another"), true);
    world.thin(0, b"one", 10);
    while world.take(0, b"one") {}
    assert!(!world.out.is_empty());
    what(&mut world);
    let installed = world.finish();
    world.check();
    installed
}

#[test]
fn a_copy_that_takes_a_streams_place_keeps_its_entries() {
    assert!(installed_after(|_| {}) > 0);
    let replaced: [fn(&mut World<'_>); 6] = [
        // COPY another one REPLACE
        |world| world.give((0, b"another"), (0, b"one"), true),
        // RENAME another one
        |world| world.give((0, b"another"), (0, b"one"), false),
        // MOVE one 1, MOVE another 1, and the other back under its name
        |world| {
            world.give((0, b"one"), (1, b"one"), false);
            world.give((0, b"another"), (0, b"one"), false);
        },
        // COPY another one DB 1, SWAPDB 0 1
        |world| {
            world.give((0, b"another"), (1, b"one"), true);
            world.swap();
        },
        // FLUSHALL, and a stream with the same entries again
        |world| {
            world.flush(0);
            world.append(0, b"one", 2000);
            world.pack(0, b"one");
        },
        // A copy of the very state that was taken.
        |world| {
            world.give((0, b"one"), (1, b"one"), true);
            world.give((1, b"one"), (0, b"one"), false);
        },
    ];
    for what in replaced {
        assert_eq!(installed_after(what), 0);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Set(usize, usize, usize),
    Append(usize, u64),
    /// Append, pack and copy.
    Settle(usize, u64, usize),
    Thin(usize, u64),
    /// Delete most, and take what is then to be packed anew.
    ThinAndTake(usize, u64),
    Give(usize, usize, bool),
    Swap,
    Flush(usize),
    Pack(usize),
    Take(usize),
    Finish,
}

fn op() -> impl Strategy<Value = Op> {
    let at = || 0..DATABASES * NAMES.len();
    prop_oneof![
        2 => (at(), 0usize..3, prop_oneof![1usize..300, 65_000usize..200_000])
            .prop_map(|(at, seed, len)| Op::Set(at, seed, len)),
        4 => (at(), 1u64..400).prop_map(|(at, entries)| Op::Append(at, entries)),
        3 => (at(), 100u64..400, at())
            .prop_map(|(at, entries, copy)| Op::Settle(at, entries, copy)),
        3 => (at(), 2u64..12).prop_map(|(at, one_in)| Op::Thin(at, one_in)),
        3 => (at(), 3u64..12).prop_map(|(at, one_in)| Op::ThinAndTake(at, one_in)),
        4 => (at(), at(), any::<bool>()).prop_map(|(from, to, copy)| Op::Give(from, to, copy)),
        1 => Just(Op::Swap),
        1 => (0..DATABASES).prop_map(Op::Flush),
        2 => at().prop_map(Op::Pack),
        6 => at().prop_map(Op::Take),
        3 => Just(Op::Finish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_is_installed_changes_no_value(ops in prop::collection::vec(op(), 1..60)) {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let mut session = store.session();
        let mut world = World::new(session.enter(NOW));
        let place = |at: usize| (at % DATABASES, NAMES[at / DATABASES]);
        for op in ops {
            match op {
                Op::Set(at, seed, len) => world.set(place(at).0, place(at).1, text(seed, len)),
                Op::Append(at, entries) => world.append(place(at).0, place(at).1, entries),
                Op::Settle(at, entries, copy) => {
                    world.append(place(at).0, place(at).1, entries);
                    world.pack(place(at).0, place(at).1);
                    world.give(place(at), place(copy), true);
                }
                Op::ThinAndTake(at, one_in) => {
                    world.thin(place(at).0, place(at).1, one_in);
                    while world.take(place(at).0, place(at).1) && world.out.len() < 8 {}
                }
                Op::Thin(at, one_in) => world.thin(place(at).0, place(at).1, one_in),
                Op::Give(from, to, copy) => world.give(place(from), place(to), copy),
                Op::Swap => world.swap(),
                Op::Flush(db) => world.flush(db),
                Op::Pack(at) => world.pack(place(at).0, place(at).1),
                Op::Take(at) => { world.take(place(at).0, place(at).1); }
                Op::Finish => { world.finish(); }
            }
        }
        world.finish();
        world.check();
        // Nothing refers to a dictionary once the values are gone.
        (0..DATABASES).for_each(|db| world.flush(db));
        prop_assert!(store.families().dictionaries().iter().all(|d| d.references == 0));
    }
}
