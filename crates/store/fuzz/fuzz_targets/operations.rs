//! Any operations on a store leave what they leave in plain maps, whatever is packed,
//! evicted, folded or unfolded in between.
//!
//! ```text
//!  [mode] [operation][its bytes] [operation][its bytes] ...
//! ```
//!
//! An operation whose bytes are missing is the last.

#![no_main]

use libfuzzer_sys::fuzz_target;
use snug_codec::stream::{SomePace, Turns, drive};
use snug_codec::{Workspace, WorkspaceConfig};
use snug_store::{
    Batch, Cooling, Delete, Event, Eviction, Lying, Expire, Job, Names, Lengthen, MinSaving, NewStr, Order,
    Session, Set, SetExpiry, Store, StoreConfig, PieceParams, Type, Unobserved, Write,
};
use std::cell::RefCell;
use std::collections::BTreeMap;

const START: u64 = 1_700_000_000_000;
const DATABASES: usize = 2;
/// Operations of one batch: between two, pages of slots are unfolded.
const BATCH: usize = 4;

/// Whatever can be packed is, also where that makes it longer.
const PACK_ALL: PieceParams = PieceParams { min_size: 1, min_saving: MinSaving(-100_000), level: 1, ..PieceParams::DEFAULT };

/// Each database's keys, with their values and expiries.
type Model = [BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>; DATABASES];

/// What packs: made once, for it costs more than a run.
struct Tools {
    workspace: Workspace,
}

thread_local! {
    static TOOLS: RefCell<Tools> = RefCell::new(Tools {
        workspace: Workspace::new(WorkspaceConfig::default()),
    });
}

/// The input, taken bit by bit.
struct Input<'i>(&'i [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    fn number(&mut self) -> Option<usize> {
        Some(usize::from(self.byte()?) << 8 | usize::from(self.byte()?))
    }

    /// One of 32 keys, and the database that it is in.
    fn place(&mut self) -> Option<(usize, Vec<u8>)> {
        let n = usize::from(self.byte()? % 64);
        let name = match n % 5 {
            0 => format!("{{tag}}{}", n / 2),
            1 => format!("{}:{}", n / 2, "long".repeat(80)),
            _ => format!("key:{}", n / 2),
        };
        Some((n % DATABASES, name.into_bytes()))
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let (kind, length) = (self.byte()?, self.number()?);
        Some(match kind % 4 {
            0 => (length as i64 - 1000).to_string().into_bytes(),
            1 => self.0.split_off(..length.min(self.0.len()))?.to_vec(),
            2 => {
                b"some text, and more of it; ".iter().copied().cycle().take(length % 600).collect()
            }
            // In segments, most of them.
            _ => vec![kind; 3 * length],
        })
    }
}

fuzz_target!(|input: &[u8]| {
    TOOLS.with_borrow_mut(|tools| run(tools, Input(input)));
});

fn run(tools: &mut Tools, mut input: Input<'_>) {
    let Some(mode) = input.byte() else { return };
    let store = Store::new(StoreConfig { cluster: mode & 1 == 1, ..StoreConfig::default() }, Box::new(Unobserved));
    store.count_reads((mode & 2 == 2).then_some(10));
    let (mut session, beside) = (store.session(), store.session());
    let mut cooling = Cooling::new(0, 1);
    let mut model = Model::default();
    let mut jobs = Vec::new();
    let mut now = START;
    let mut more = true;
    while more {
        let batch = session.enter(now);
        for _ in 0..BATCH {
            more = step(tools, &batch, &beside, &mut cooling, &mut jobs, &mut model, &mut input)
                .is_some();
        }
        now = batch.now();
    }
    let batch = session.enter(now);
    check(&batch, &mut model);
    while batch.expire_due(0, 1, &mut || false) {}
    for (db, keys) in model.iter().enumerate() {
        assert_eq!(store.keys(db), keys.len() as u64);
        let expiring = keys.values().filter(|(_, expiry)| expiry.is_some()).count();
        assert_eq!(store.expiring(db), expiring as u64);
        assert_eq!(batch.slot_sizes(db).sum::<usize>(), keys.len());
    }
    (0..DATABASES).for_each(|db| drop(batch.flush(db)));
    let memory = store.type_memory(Type::String);
    assert_eq!((memory.allocated, memory.raw, memory.packed), (0, 0, 0));
    assert_eq!((memory.raw_values, memory.packed_values), (0, 0));
}

/// One operation; `None` at the input's end.
fn step(
    tools: &mut Tools,
    batch: &Batch<'_>,
    session: &Session,
    cooling: &mut Cooling,
    jobs: &mut Vec<Job>,
    model: &mut Model,
    input: &mut Input<'_>,
) -> Option<()> {
    let now = batch.now();
    model.iter_mut().for_each(|keys| keys.retain(|_, (_, at)| at.is_none_or(|at| at > now)));
    match input.byte()? % 16 {
        0 | 1 => {
            let ((db, name), value) = (input.place()?, input.value()?);
            let expiry = input.byte()?;
            let kept = model[db].get(&name).and_then(|(_, at)| *at);
            let at = now + 1 + u64::from(expiry);
            let (set, at) = match expiry % 3 {
                0 => (SetExpiry::Clear, None),
                1 => (SetExpiry::Keep, kept),
                _ => (SetExpiry::At(at), Some(at)),
            };
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            let found = slot.find(&key);
            let set = Set { value: NewStr::Bytes(&value), expiry: set };
            slot.apply(&key, found, set, Event::NONE);
            model[db].insert(name, (value, at));
        }
        2 => {
            let ((db, name), offset, value) = (input.place()?, input.number()?, input.value()?);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                let kept = &mut model[db].get_mut(&name).expect("the model has it").0;
                slot.unpack(found).expect("whole");
                if !value.is_empty() {
                    kept.resize(kept.len().max(offset + value.len()), 0);
                    kept[offset..offset + value.len()].copy_from_slice(&value);
                    let write = Write { offset, value: NewStr::Bytes(&value) };
                    assert_eq!(slot.apply(&key, Some(found), write, Event::NONE), kept.len());
                } else if offset > kept.len() {
                    kept.resize(offset, 0);
                    slot.apply(&key, Some(found), Lengthen { len: offset }, Event::NONE);
                }
            }
        }
        3 => {
            let ((db, name), in_ms) = (input.place()?, input.number()?);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                let at = (in_ms > 0).then_some(now + in_ms as u64);
                slot.apply(&key, Some(found), Expire(at), Event::NONE);
                model[db].get_mut(&name).expect("the model has it").1 = at;
            }
        }
        4 => {
            let (db, name) = input.place()?;
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            let found = slot.find(&key);
            let removed = slot.apply(&key, found, Delete, Event::NONE);
            assert_eq!(removed.is_some(), model[db].remove(&name).is_some());
        }
        operation @ (5 | 6) => {
            let (from, to) = (input.place()?, input.place()?);
            if from != to {
                carry(batch, model, from, to, operation == 5);
            }
        }
        7 => {
            batch.swap(0, 1);
            model.swap(0, 1);
        }
        8 => batch.set_now(now + input.number()? as u64),
        9 => while batch.expire_due(0, 1, &mut || false) {},
        operation @ (10 | 11) => {
            // So many keys that pages are unfolded, or so few that they are folded.
            let (first, count) = (input.number()? % 512, input.number()? % 2048);
            for n in first..first + count {
                let name = format!("{{tag}}:many:{n}").into_bytes();
                let key = batch.key(&name);
                let mut slot = batch.lock(0, &key);
                let found = slot.find(&key);
                if operation == 10 {
                    slot.apply(&key, found, Set::to(NewStr::Int(1)), Event::NONE);
                    model[0].insert(name, (b"1".to_vec(), None));
                } else {
                    let removed = slot.apply(&key, found, Delete, Event::NONE);
                    assert_eq!(removed.is_some(), model[0].remove(&name).is_some());
                }
            }
            batch.tidy();
        }
        12 => {
            let how =
                Eviction { order: Order::Recency, volatile: input.byte()? & 1 == 1, samples: 3, lying: Lying::Anywhere };
            let evicted = batch.evict(&how);
            if let Some((db, value)) = &evicted {
                // What has expired is in the store until somebody looks for it.
                let gone = model[*db].remove(&value.key()[..]);
                assert!(gone.is_none_or(|(_, expiry)| expiry.is_some() || !how.volatile));
            }
            let may_go = |(_, at): &(_, Option<u64>)| at.is_some() || !how.volatile;
            let left = model.iter().flat_map(BTreeMap::values).any(may_go);
            assert!(evicted.is_some() || !left);
        }
        13 => {
            // Taken now, to be worked on by another operation, whatever becomes of it.
            let (db, name) = input.place()?;
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                let job = slot.job(found, &PACK_ALL, true);
                drop(slot);
                jobs.extend(job.map(|job| batch.prepared(job, &PACK_ALL)));
            }
        }
        14 => {
            for mut job in jobs.drain(..) {
                work(tools, batch, &mut job);
            }
            if input.byte()? == 0 {
                drop(batch.flush(1));
                model[1].clear();
            }
        }
        _ => {
            cooling.begin(session, &PACK_ALL);
            let (mut cold, mut names) = (Vec::new(), Names::default());
            while !cooling.is_done() {
                cooling.step(batch, &PACK_ALL, true, &mut cold, &mut names);
                while let Some(name) = names.pop() {
                    let mut job = batch.named_job(&name, &PACK_ALL);
                    job.iter_mut().for_each(|job| work(tools, batch, job));
                }
                for job in cold.drain(..) {
                    work(tools, batch, &mut batch.prepared(job, &PACK_ALL));
                }
            }
        }
    }
    Some(())
}

/// Packs or unpacks a string, and installs what comes of it if it is the same.
fn work(tools: &mut Tools, batch: &Batch<'_>, job: &mut Job) {
    let (turns, mut room) = (SomePace::of(Turns::default()), Vec::new());
    let work = job.run(&mut tools.workspace, &mut room, turns, 2);
    drive(work, usize::MAX).expect("driven to its end");
    batch.install(job);
}

/// Renames a key, or copies it.
fn carry(
    batch: &Batch<'_>,
    model: &mut Model,
    (from_db, from): (usize, Vec<u8>),
    (to_db, to): (usize, Vec<u8>),
    copy: bool,
) {
    let (from_key, to_key) = (batch.key(&from), batch.key(&to));
    let _held = batch.hold([(from_db, from_key), (to_db, to_key)]);
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
    let moved =
        if copy { model[from_db].get(&from).cloned() } else { model[from_db].remove(&from) };
    model[to_db].insert(to, moved.expect("the model has it"));
}

/// Every key that is to be there is, with its value, and no other.
fn check(batch: &Batch<'_>, model: &mut Model) {
    let now = batch.now();
    for (db, keys) in model.iter_mut().enumerate() {
        keys.retain(|_, (_, at)| at.is_none_or(|at| at > now));
        let (mut scanned, mut cursor) = (Vec::new(), 0);
        loop {
            cursor = batch.scan(db, cursor, 7, |key, _| scanned.push(key.to_vec()));
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
            assert!(*string.to_bytes().expect("whole") == **expected, "another value");
            assert_eq!(slot.expiry(found), *expiry);
        }
    }
}
