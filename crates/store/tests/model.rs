//! A store under random operations is sixteen maps with expiries, whatever of
//! it is packed, unpacked or packed anew meanwhile, or goes to disk and comes back.

use proptest::prelude::*;
use snug_codec::stream::{SomePace, Turns, drive};
use snug_codec::{Workspace, WorkspaceConfig};
use snug_store::tier::{Engine, Purpose, Simulated};
use snug_store::{
    Append, Batch, Cooling, Delete, Event, Expire, Fate, Job, Leaving, Lengthen, MinSaving, Moving,
    Names, NewStr, PieceParams, Session, Set, SetExpiry, Store, StoreConfig, Str, Type, Unobserved,
    Write,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const START: u64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
enum Op {
    Set(u8, Vec<u8>, Expiry),
    Append(u8, Vec<u8>),
    WriteAt(u8, u32, Vec<u8>),
    Expire(u8, Option<u16>),
    Remove(u8),
    Rename(u8, u8),
    Copy(u8, u8),
    Swap(u8, u8),
    Flush(u8),
    Sweep,
    Pass(u16),
    /// Pack one value, whatever its age.
    Pack(u8),
    Unpack(u8),
    /// Take a large value by reference, to pack or unpack it ...
    Take(u8),
    /// ... which is done now, whatever has become of the key.
    Finish,
    /// Walk all slots, so often, and pack what has cooled.
    Cool(u8),
    /// Train a dictionary for every family that has the samples.
    Train,
    /// Copy a value that is to go to disk ...
    Gather(u8),
    /// ... or all that have cooled, so often colder than before ...
    GatherCold(u8),
    /// ... and write what was copied, whatever has become of the keys.
    Leave,
    /// Bring one back, as a thread does that knows its key alone.
    Bring(u8),
    /// Move all records, as if they lay among much that is gone.
    Move,
}

/// Whatever can be packed is, also where that makes it longer.
const PACK_ALL: PieceParams =
    PieceParams { min_size: 1, min_saving: MinSaving(-100_000), level: 1, ..PieceParams::DEFAULT };

#[derive(Clone, Copy, Debug)]
enum Expiry {
    Clear,
    Keep,
    In(u16),
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        4 => prop::collection::vec(any::<u8>(), 0..80),
        2 => (200usize..300, any::<u8>()).prop_map(|(n, b)| vec![b; n]),
        1 => (65_000usize..140_000, any::<u8>()).prop_map(|(n, b)| vec![b; n]),
        1 => Just(b"007".to_vec()),
        1 => Just(b"-0".to_vec()),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let expiry =
        prop_oneof![Just(Expiry::Clear), Just(Expiry::Keep), (0u16..5000).prop_map(Expiry::In)];
    prop_oneof![
        8 => (any::<u8>(), value(), expiry).prop_map(|(k, v, e)| Op::Set(k, v, e)),
        4 => (any::<u8>(), value()).prop_map(|(k, v)| Op::Append(k, v)),
        4 => (any::<u8>(), 0u32..70_000, value()).prop_map(|(k, o, v)| Op::WriteAt(k, o, v)),
        4 => (any::<u8>(), prop::option::of(1u16..5000)).prop_map(|(k, e)| Op::Expire(k, e)),
        4 => any::<u8>().prop_map(Op::Remove),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Op::Rename(a, b)),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Op::Copy(a, b)),
        1 => (0u8..3, 0u8..3).prop_map(|(a, b)| Op::Swap(a, b)),
        1 => (0u8..3).prop_map(Op::Flush),
        2 => Just(Op::Sweep),
        4 => (0u16..2000).prop_map(Op::Pass),
        8 => any::<u8>().prop_map(Op::Pack),
        2 => any::<u8>().prop_map(Op::Unpack),
        6 => any::<u8>().prop_map(Op::Take),
        2 => Just(Op::Finish),
        3 => (1u8..4).prop_map(Op::Cool),
        2 => Just(Op::Train),
        8 => any::<u8>().prop_map(Op::Gather),
        2 => (1u8..5).prop_map(Op::GatherCold),
        6 => Just(Op::Leave),
        2 => any::<u8>().prop_map(Op::Bring),
        2 => Just(Op::Move),
    ]
}

type Model = [BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>; 3];

/// Which database and key a number stands for: three databases, some keys
/// sharing a hash tag, some long.
fn place(n: u8) -> (usize, Vec<u8>) {
    let key = match n % 7 {
        0 => format!("{{same}}{n}"),
        1 => format!("{n}-{}", "long".repeat(80)),
        _ => format!("key:{n}"),
    };
    (n as usize % 3, key.into_bytes())
}

fn check(batch: &Batch<'_>, model: &mut Model) {
    let now = batch.now();
    for (db, keys) in model.iter_mut().enumerate() {
        keys.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > now));
        let mut scanned = Vec::new();
        let mut cursor = 0;
        loop {
            cursor = batch.scan(db, cursor, 3, |key, _| scanned.push(key.to_vec()));
            if cursor == 0 {
                break;
            }
        }
        scanned.sort();
        scanned.dedup();
        assert!(scanned.iter().eq(keys.keys()), "database {db} holds other keys");
        for (name, (expected, expiry)) in keys.iter() {
            let key = batch.key(name);
            let mut slot = batch.lock(db, &key);
            let found = slot.find(&key).expect("a live key is found");
            let string = slot.string(found).expect("all values are strings");
            assert_eq!(string.len(), expected.len());
            assert!(*string.to_bytes().unwrap() == **expected, "another value");
            let mut room = b"old".to_vec();
            match string.unpacked(&mut room).unwrap() {
                Str::Bytes(bytes) => assert!(bytes == expected),
                other => assert!(!matches!(other, Str::Packed(_))),
            }
            assert_eq!(slot.expiry(found), *expiry);
            if let Str::Int(n) = string {
                assert_eq!(n.to_string().as_bytes(), expected);
            }
        }
    }
}

/// What packs: a walk over the slots, and a workspace.
struct Sweeper {
    cooling: Cooling,
    workspace: Workspace,
    taken: Vec<Job>,
    engine: Arc<Simulated>,
    leaving: Vec<Leaving>,
}

impl Sweeper {
    fn new(store: &Store) -> Self {
        let engine = Arc::<Simulated>::default();
        store.tier().set_engine(Arc::clone(&engine) as Arc<dyn Engine>);
        Self {
            engine,
            leaving: Vec::new(),
            cooling: Cooling::new(0, 1),
            workspace: Workspace::new(WorkspaceConfig::default()),
            taken: Vec::new(),
        }
    }

    /// Does what a job is about; whether the key still held the value.
    fn run(&mut self, batch: &Batch<'_>, job: &mut Job) -> bool {
        let (turns, mut room) = (SomePace::of(Turns::default()), Vec::new());
        let work = job.run(&mut self.workspace, &mut room, turns, 2);
        drive(work, usize::MAX).expect("driven to its end");
        matches!(batch.install(job).fate, Fate::Packed(_) | Fate::Unpacked)
    }

    fn pass(&mut self, session: &Session, batch: &Batch<'_>) {
        self.cooling.begin(session, &PACK_ALL);
        let (mut jobs, mut names) = (Vec::new(), Names::default());
        while !self.cooling.is_done() {
            self.cooling.step(batch, &PACK_ALL, false, &mut jobs, &mut names);
            while let Some(name) = names.pop() {
                // It may have expired without having been swept yet.
                let Some(mut job) = batch.named_job(&name, &PACK_ALL) else { continue };
                assert!(self.run(batch, &mut job), "nothing has changed meanwhile");
            }
            for job in jobs.drain(..) {
                self.run(batch, &mut batch.prepared(job, &PACK_ALL));
            }
        }
    }
}

/// The counters of strings are the sums over the strings.
fn check_counters(batch: &Batch<'_>) {
    let (mut raw, mut from, mut packed, mut allocated) = (0, 0, 0, 0);
    let (mut raw_values, mut packed_values) = (0, 0);
    let mut references = std::collections::BTreeMap::new();
    let mut away = (0, 0, 0);
    for db in 0..3 {
        let mut names = Vec::new();
        batch.scan(db, 0, usize::MAX, |key, _| names.push(key.to_vec()));
        for name in names {
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            let found = slot.find_entry(&key).expect("a scanned key is there");
            let anatomy = slot.anatomy(found);
            allocated += anatomy.allocated - 8;
            raw_values += u64::from(anatomy.packed.is_none());
            packed_values += u64::from(anatomy.packed.is_some());
            if let Some((id, _)) = anatomy.dictionary_id {
                *references.entry(id).or_insert(0) += 1;
            }
            if let Some(len) = anatomy.away {
                away = (away.0 + 1, away.1 + len as u64, away.2 + anatomy.raw as u64);
                continue;
            }
            raw += if anatomy.encoding == "int" { 0 } else { anatomy.raw };
            from += anatomy.packed.unwrap_or_default().raw;
            packed += anatomy.packed.unwrap_or_default().packed;
        }
    }
    let memory = batch.store().type_memory(Type::String);
    assert_eq!(memory.allocated, allocated as u64);
    assert_eq!(memory.raw, raw as u64);
    assert_eq!((memory.packed_from, memory.packed), (from as u64, packed as u64));
    assert_eq!((memory.raw_values, memory.packed_values), (raw_values, packed_values));
    assert_eq!(batch.store().away(), away);
    for dictionary in batch.store().families().dictionaries() {
        assert_eq!(dictionary.references, references.remove(&dictionary.id).unwrap_or(0));
    }
    assert!(references.is_empty(), "a value refers to a dictionary that is gone");
}

/// A dictionary for each family, from its own shape: what is in it matters to no
/// reader, only that values refer to it.
fn train(batch: &Batch<'_>) {
    let families = batch.store().families();
    for info in families.all() {
        let family = families.of(info.kind, &info.shape);
        let texts: Vec<String> =
            (0..100).map(|n| format!("{n} of {:?}: {}", info.shape, n * 7)).collect();
        let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let dictionary = snug_codec::Dictionary::train_with(&samples, 1024, 1, 1).unwrap();
        families.adopt(&family, Some(dictionary));
    }
}

fn apply(session: &Session, batch: &Batch<'_>, sweeper: &mut Sweeper, model: &mut Model, op: Op) {
    let now = batch.now();
    for keys in model.iter_mut() {
        keys.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > now));
    }
    match op {
        Op::Set(n, value, expiry) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            let found = slot.find(&key);
            let kept = model[db].get(&name).and_then(|(_, expiry)| *expiry);
            let (set, at) = match expiry {
                Expiry::Clear => (SetExpiry::Clear, None),
                Expiry::Keep => (SetExpiry::Keep, kept),
                Expiry::In(ms) => {
                    let at = now + 1 + u64::from(ms);
                    (SetExpiry::At(at), Some(at))
                }
            };
            let set = Set { value: NewStr::Bytes(&value), expiry: set };
            slot.apply(&key, found, set, Event::NONE);
            model[db].insert(name, (value, at));
        }
        Op::Append(n, value) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                let kept = model[db].get_mut(&name).expect("the model has it");
                kept.0.extend_from_slice(&value);
                slot.unpack(found).unwrap();
                let append = Append(NewStr::Bytes(&value));
                assert_eq!(slot.apply(&key, Some(found), append, Event::NONE), kept.0.len());
            }
        }
        Op::WriteAt(n, offset, value) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                let kept = &mut model[db].get_mut(&name).expect("the model has it").0;
                let offset = offset as usize;
                slot.unpack(found).unwrap();
                if value.is_empty() {
                    if offset > kept.len() {
                        kept.resize(offset, 0);
                        slot.apply(&key, Some(found), Lengthen { len: offset }, Event::NONE);
                    }
                    assert_eq!(slot.string_len(found), kept.len());
                    return;
                }
                if kept.len() < offset + value.len() {
                    kept.resize(offset + value.len(), 0);
                }
                kept[offset..offset + value.len()].copy_from_slice(&value);
                let write = Write { offset, value: NewStr::Bytes(&value) };
                assert_eq!(slot.apply(&key, Some(found), write, Event::NONE), kept.len());
            }
        }
        Op::Expire(n, ms) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                let at = ms.map(|ms| now + u64::from(ms));
                slot.apply(&key, Some(found), Expire(at), Event::NONE);
                model[db].get_mut(&name).expect("the model has it").1 = at;
            }
        }
        Op::Remove(n) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            let found = slot.find(&key);
            let removed = slot.apply(&key, found, Delete, Event::NONE);
            assert_eq!(removed.is_some(), model[db].remove(&name).is_some());
        }
        Op::Rename(a, b) | Op::Copy(a, b) => {
            let ((from_db, from), (to_db, to)) = (place(a), place(b));
            if (from_db, &from) == (to_db, &to) {
                return;
            }
            let (from_key, to_key) = (batch.key(&from), batch.key(&to));
            let _held = batch.hold([(from_db, from_key), (to_db, to_key)]);
            let copy = matches!(op, Op::Copy(..));
            if batch.lock(from_db, &from_key).find(&from_key).is_none() {
                return;
            }
            if !copy && from_db == to_db {
                batch.rename(from_db, &from_key, &to_key);
            } else {
                batch.copy((from_db, &from_key), (to_db, &to_key));
                if !copy {
                    let mut slot = batch.lock(from_db, &from_key);
                    let found = slot.find(&from_key);
                    slot.apply(&from_key, found, Delete, Event::NONE);
                }
            }
            let moved = model[from_db][&from].clone();
            if !copy {
                model[from_db].remove(&from);
            }
            model[to_db].insert(to, moved);
        }
        Op::Swap(a, b) => {
            batch.swap(a as usize, b as usize);
            model.swap(a as usize, b as usize);
        }
        Op::Flush(db) => {
            drop(batch.flush(db as usize));
            model[db as usize].clear();
        }
        Op::Sweep => while batch.expire_due(0, 1, &mut || false) {},
        Op::Pass(ms) => batch.set_now(now + u64::from(ms)),
        Op::Pack(n) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            let Some(found) = slot.find(&key) else { return };
            let raw = slot.string(found).map(|string| !matches!(string, Str::Packed(_)));
            let Some(job) = slot.job(found, &PACK_ALL, true) else { return };
            drop(slot);
            assert!(!job.packs() || raw == Some(true));
            let mut job = batch.prepared(job, &PACK_ALL);
            if sweeper.run(batch, &mut job) {
                assert!(!sweeper.run(batch, &mut job), "it is another form now");
            }
        }
        Op::Unpack(n) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                slot.unpack(found).unwrap();
                assert!(!matches!(slot.string(found), Some(Str::Packed(_) | Str::PackedLarge(_))));
            }
        }
        Op::Take(n) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                sweeper.taken.extend(slot.job(found, &PACK_ALL, true));
            }
        }
        Op::Finish => {
            for job in std::mem::take(&mut sweeper.taken) {
                let mut job = batch.prepared(job, &PACK_ALL);
                if sweeper.run(batch, &mut job) {
                    assert!(!sweeper.run(batch, &mut job), "it is another form now");
                }
            }
        }
        Op::Cool(passes) => (0..passes).for_each(|_| sweeper.pass(session, batch)),
        Op::Train => train(batch),
        Op::Gather(n) => {
            let (db, name) = place(n);
            batch.gather_key(db, &name, &mut sweeper.leaving);
        }
        Op::GatherCold(times) => {
            (0..times).for_each(|_| batch.gather(times > 2, 10_000, &mut sweeper.leaving));
        }
        Op::Leave => {
            let mut leaving = std::mem::take(&mut sweeper.leaving);
            assert!(leaving.iter_mut().all(|value| value.write_out(batch.store())));
            let records: Vec<&[u8]> = leaving.iter().map(Leaving::bytes).collect();
            let places = sweeper.engine.write(&records, Purpose::Leave).unwrap();
            batch.put_away(&mut leaving, &places);
        }
        Op::Bring(n) => {
            let (db, name) = place(n);
            let (was_away, mut other) = (batch.is_away(db, &name), batch.store().session());
            other.bring(now, db, &name).unwrap();
            assert!(!batch.is_away(db, &name), "it was away: {was_away}");
        }
        Op::Move => {
            sweeper.engine.is_sparse.store(true, Relaxed);
            let (mut moving, mut other) = (Moving::default(), batch.store().session());
            while moving.step(&mut other, now, 100).unwrap() {}
            sweeper.engine.is_sparse.store(false, Relaxed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_store_is_a_few_maps(
        ops in prop::collection::vec(op(), 1..120),
        cluster in any::<bool>(),
    ) {
        let store = Store::new(StoreConfig { cluster, ..StoreConfig::default() }, Box::new(Unobserved));
        let mut session = store.session();
        let beside = store.session();
        let mut sweeper = Sweeper::new(&store);
        let mut model = Model::default();
        let batch = session.enter(START);
        for op in ops {
            apply(&beside, &batch, &mut sweeper, &mut model, op);
        }
        check(&batch, &mut model);
        // The books agree once everything due has been swept.
        while batch.expire_due(0, 1, &mut || false) {}
        for (db, keys) in model.iter().enumerate() {
            prop_assert_eq!(store.keys(db), keys.len() as u64);
            let expiring = keys.values().filter(|(_, expiry)| expiry.is_some()).count();
            prop_assert_eq!(store.expiring(db), expiring as u64);
        }
        // What is about to go holds a dictionary, too.
        sweeper.leaving.clear();
        check_counters(&batch);
        (0..3).for_each(|db| drop(batch.flush(db)));
        let memory = store.type_memory(Type::String);
        prop_assert_eq!((memory.allocated, memory.raw, memory.packed), (0, 0, 0));
        prop_assert_eq!((memory.raw_values, memory.packed_values), (0, 0));
        prop_assert!(store.families().dictionaries().iter().all(|d| d.references == 0));
        prop_assert!(sweeper.engine.is_empty(), "what nobody refers to is gone");
        prop_assert_eq!(store.away(), (0, 0, 0));
    }
}
