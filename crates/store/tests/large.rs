//! Large strings: packed and unpacked in slices at random moments, read and
//! written whole and in parts, they are the bytes that a plain vector has.

mod strings;

use proptest::prelude::*;
use snug_codec::stream::{SomePace, Turns, drive};
use snug_codec::{Workspace, WorkspaceConfig};
use snug_store::{
    Append, Batch, Cooling, Delete, Event, Expire, Extent, Fate, Found, Job, Key, MinSaving, Names,
    NewStr, PieceParams, Set, SetExpiry, SlotGuard, Store, StoreConfig, Str, Type, Unobserved,
    Write,
};
use std::sync::Arc;
use strings::{assert_none_are_held, is_packed, set};

const NOW: u64 = 1_700_000_000_000;
const KIB: usize = 1024;
const PARAMS: PieceParams =
    PieceParams { min_size: 64, min_saving: MinSaving(30), level: 1, ..PieceParams::DEFAULT };

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed | 1;
    let next = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn text(seed: u64, len: usize) -> Vec<u8> {
    let words = ["packed", "raw", "segment", "chain", "slot", "a", "the", "of"];
    let choices = random(seed, len / 2);
    let words = choices.iter().flat_map(|&n| words[n as usize % words.len()].bytes().chain([b' ']));
    words.chain(std::iter::repeat(b'.')).take(len).collect()
}

/// Text, random bytes, or segments of either in turn.
fn value(kind: u8, seed: u64, len: usize) -> Vec<u8> {
    let mixed = |n: usize| {
        let make = if n.is_multiple_of(2) { text } else { random };
        make(seed + n as u64, (len - n * 128 * KIB).min(128 * KIB))
    };
    match kind % 4 {
        0 => random(seed, len),
        1 => (0..len.div_ceil(128 * KIB)).flat_map(mixed).collect(),
        _ => text(seed, len),
    }
}

/// Lengths around where something changes, and some between.
fn len() -> impl Strategy<Value = usize> {
    let base = prop_oneof![
        8 => Just(64 * KIB), 8 => Just(128 * KIB), 4 => Just(256 * KIB),
        3 => Just(1024 * KIB), 1 => Just(10 * 1024 * KIB),
    ];
    prop_oneof![
        6 => (base, -2i64..3).prop_map(|(base, off)| (base as i64 + off) as usize),
        2 => 60 * KIB..700 * KIB,
        1 => 0usize..100,
    ]
}

#[derive(Clone, Debug)]
enum Op {
    Set(u8, u64, usize),
    Append(usize),
    WriteAt(usize, usize),
    /// Take the value by reference; its work is done so many operations later.
    Take(u8),
    /// Begin the work and drop it after so many slices.
    Abandon(u8),
    PackNow,
    UnpackNow,
    Read(usize, usize),
    Expire,
    Copy,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (any::<u8>(), any::<u64>(), len()).prop_map(|(kind, seed, len)| Op::Set(kind, seed, len)),
        2 => (1usize..200_000).prop_map(Op::Append),
        2 => (0usize..400_000, 1usize..150_000).prop_map(|(at, len)| Op::WriteAt(at, len)),
        3 => (0u8..4).prop_map(Op::Take),
        2 => (0u8..8).prop_map(Op::Abandon),
        5 => Just(Op::PackNow),
        1 => Just(Op::UnpackNow),
        3 => (0usize..500_000, 0usize..300_000).prop_map(|(at, len)| Op::Read(at, len)),
        1 => Just(Op::Expire),
        1 => Just(Op::Copy),
    ]
}

/// A key with its value, and what works on it.
struct One<'b> {
    batch: &'b Batch<'b>,
    key: Key<'static>,
    workspace: Workspace,
    plain: Vec<u8>,
    taken: Vec<(u8, Job)>,
}

impl One<'_> {
    fn slot(&self) -> (SlotGuard<'_>, Option<Found>) {
        let mut slot = self.batch.lock(0, &self.key);
        let found = slot.find(&self.key);
        (slot, found)
    }

    fn job(&self) -> Option<Job> {
        let (mut slot, found) = self.slot();
        let params = PieceParams { min_saving: MinSaving(-100), ..PARAMS };
        let job = slot.job(found?, &params, true)?;
        drop(slot);
        (job.piece().extent == Extent::Whole).then(|| self.batch.prepared(job, &params))
    }

    fn run(&mut self, job: &mut Job, polls: usize) -> Option<()> {
        let (turns, mut room) = (SomePace::of(Turns::default()), Vec::new());
        drive(job.run(&mut self.workspace, &mut room, turns, 3), polls)
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Set(kind, seed, len) => {
                self.plain = value(kind, seed, len);
                let (mut slot, found) = self.slot();
                let set = Set { value: NewStr::Bytes(&self.plain), expiry: SetExpiry::Keep };
                slot.apply(&self.key, found, set, Event::NONE);
            }
            Op::Append(len) => {
                if self.slot().1.is_none() {
                    return;
                }
                let more = text(len as u64, len);
                self.plain.extend_from_slice(&more);
                let (mut slot, found) = self.slot();
                slot.unpack(found.unwrap()).unwrap();
                let append = Append(NewStr::Bytes(&more));
                let len = slot.apply(&self.key, found, append, Event::NONE);
                assert_eq!(len, self.plain.len());
            }
            Op::WriteAt(at, len) => {
                if self.slot().1.is_none() {
                    return;
                }
                let bytes = text(at as u64, len);
                self.plain.resize(self.plain.len().max(at + len), 0);
                self.plain[at..at + len].copy_from_slice(&bytes);
                let (mut slot, found) = self.slot();
                slot.unpack(found.unwrap()).unwrap();
                let write = Write { offset: at, value: NewStr::Bytes(&bytes) };
                let len = slot.apply(&self.key, found, write, Event::NONE);
                assert_eq!(len, self.plain.len());
            }
            Op::Take(after) => {
                let job = self.job();
                self.taken.extend(job.map(|job| (after, job)));
            }
            Op::Abandon(polls) => {
                if let Some(mut job) = self.job() {
                    let _ = self.run(&mut job, polls as usize);
                }
            }
            Op::PackNow => {
                let Some(mut job) = self.job().filter(Job::packs) else { return };
                assert_eq!(job.raw_bytes(), self.plain.len());
                self.run(&mut job, usize::MAX).unwrap();
                let outcome = self.batch.install(&mut job);
                assert_ne!(outcome.fate, Fate::Nothing);
                let packed = matches!(outcome.fate, Fate::Packed(_));
                let (slot, found) = self.slot();
                let anatomy = slot.anatomy(found.unwrap());
                assert_eq!(
                    anatomy.packed.map(|packed| packed.raw),
                    packed.then_some(self.plain.len())
                );
            }
            Op::UnpackNow => {
                let (mut slot, found) = self.slot();
                if let Some(found) = found {
                    let said = slot.anatomy(found).allocated_raw;
                    if slot.unpack(found).unwrap() {
                        assert_eq!(slot.anatomy(found).allocated, said);
                    }
                }
            }
            Op::Read(at, len) => self.read(at, len),
            Op::Expire => {
                let (mut slot, found) = self.slot();
                slot.apply(&self.key, found, Expire(Some(NOW * 2)), Event::NONE);
            }
            Op::Copy => {
                let to = self.batch.key(b"copy");
                if self.slot().1.is_none() {
                    return;
                }
                let _held = self.batch.hold([(0, self.key), (0, to)]);
                self.batch.copy((0, &self.key), (0, &to));
            }
        }
    }

    /// The part of a value that a reader of a few segments sees.
    fn read(&self, at: usize, len: usize) {
        let (slot, found) = self.slot();
        let Some(string) = found.and_then(|found| slot.string(found)) else { return };
        assert_eq!(string.len(), self.plain.len());
        let Str::PackedLarge(packed) = string else { return };
        let chain = packed.share();
        drop(slot);
        chain.check().unwrap();
        let (at, end) = (at.min(chain.len()), (at + len).min(chain.len()));
        let mut seen = Vec::new();
        for index in at / (128 * KIB)..end.div_ceil(128 * KIB) {
            seen.extend_from_slice(&self.batch.segment(&chain, index).unwrap());
        }
        let skipped = at % (128 * KIB);
        assert!(seen[skipped..][..end - at] == self.plain[at..end]);
    }

    /// What was taken so many operations ago is done now.
    fn finish(&mut self) {
        self.taken.iter_mut().for_each(|(after, _)| *after = after.saturating_sub(1));
        let (due, later) = std::mem::take(&mut self.taken).into_iter().partition(|(n, _)| *n == 0);
        self.taken = later;
        for (_, mut job) in due {
            self.run(&mut job, usize::MAX).unwrap();
            self.batch.install(&mut job);
        }
    }

    fn check(&self) {
        let (slot, found) = self.slot();
        let Some(string) = found.and_then(|found| slot.string(found)) else {
            assert!(self.plain.is_empty());
            return;
        };
        assert!(*string.to_bytes().unwrap() == *self.plain, "other bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_large_string_is_a_vector(ops in prop::collection::vec(op(), 1..30)) {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let mut session = store.session();
        let batch = session.enter(NOW);
        let workspace = Workspace::new(WorkspaceConfig::default());
        let key = batch.key(b"large");
        let mut one = One { batch: &batch, key, workspace, plain: Vec::new(), taken: Vec::new() };
        for op in ops {
            one.apply(op);
            one.finish();
            one.check();
        }
        drop(one);
        drop(batch.flush(0));
        assert_none_are_held(&store);
    }
}

/// One pass of a sweeper; how many large values it met.
fn pass(
    store: &Arc<Store>,
    batch: &Batch<'_>,
    cooling: &mut Cooling,
    params: &PieceParams,
) -> usize {
    let beside = store.session();
    let (mut met, mut names) = (0, Names::default());
    let mut workspace = Workspace::new(WorkspaceConfig::default());
    cooling.begin(&beside, params);
    while !cooling.is_done() {
        cooling.step(batch, params, false, &mut Vec::new(), &mut names);
    }
    while let Some(name) = names.pop() {
        let mut job = batch.named_job(&name, params).expect("still there");
        let (turns, mut room) = (SomePace::of(Turns::default()), Vec::new());
        drive(job.run(&mut workspace, &mut room, turns, 3), usize::MAX).unwrap();
        batch.install(&mut job);
        met += 1;
    }
    met
}

#[test]
fn large_values_cool_are_packed_and_become_raw_when_they_are_read_often() {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let mut session = store.session();
    let batch = session.enter(NOW);
    let mut cooling = Cooling::new(0, 1);
    let (words, noise) = (text(1, 900_000), random(2, 900_000));
    set(&batch, b"words", &words);
    set(&batch, b"noise", &noise);
    assert_eq!(pass(&store, &batch, &mut cooling, &PARAMS), 0);
    assert!(!is_packed(&batch, b"words"), "warm is not cold");
    assert_eq!(pass(&store, &batch, &mut cooling, &PARAMS), 2);
    assert!(is_packed(&batch, b"words") && !is_packed(&batch, b"noise"));
    assert_eq!(pass(&store, &batch, &mut cooling, &PARAMS), 0, "what was tried is settled");
    let memory = store.type_memory(Type::String);
    assert_eq!((memory.raw, memory.packed_from), (1_800_000, 900_000));
    assert_eq!((memory.raw_values, memory.packed_values), (1, 1));
    assert!(memory.packed * 2 < memory.packed_from);

    // Other rules: what was left raw is looked at again.
    let all = PieceParams { min_saving: MinSaving(-100), ..PARAMS };
    assert_eq!(pass(&store, &batch, &mut cooling, &all), 1);
    assert!(!is_packed(&batch, b"noise"), "it does not look worth the work");

    let read = || {
        let key = batch.key(b"words");
        let mut slot = batch.lock(0, &key);
        let found = slot.find(&key).unwrap();
        slot.string(found).unwrap().len()
    };
    (0..3).for_each(|_| assert_eq!(read(), 900_000));
    assert!(is_packed(&batch, b"words"), "reading alone does not unpack");
    assert_eq!(pass(&store, &batch, &mut cooling, &all), 1);
    assert!(!is_packed(&batch, b"words"));
}

#[test]
fn what_changed_or_was_used_meanwhile_is_not_replaced() {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let mut session = store.session();
    let batch = session.enter(NOW);
    let mut workspace = Workspace::new(WorkspaceConfig::default());
    let words = text(3, 300_000);
    let changes: [fn(&mut SlotGuard<'_>, &Key<'_>, Found); 3] = [
        |slot, key, found| {
            let write = Write { offset: 5, value: NewStr::Bytes(b"!") };
            slot.apply(key, Some(found), write, Event::NONE);
        },
        |slot, key, found| {
            slot.apply(key, Some(found), Append(NewStr::Bytes(b"!")), Event::NONE);
        },
        |slot, key, found| drop(slot.apply(key, Some(found), Delete, Event::NONE)),
    ];
    for change in changes {
        set(&batch, b"key", &words);
        let key = batch.key(b"key");
        let job = {
            let mut slot = batch.lock(0, &key);
            let found = slot.find(&key).unwrap();
            slot.job(found, &PARAMS, true).unwrap()
        };
        let mut job = batch.prepared(job, &PARAMS);
        job.run_at_once(&mut workspace, &mut Vec::new());
        let mut slot = batch.lock(0, &key);
        let found = slot.find(&key).unwrap();
        change(&mut slot, &key, found);
        drop(slot);
        assert_eq!(batch.install(&mut job).fate, Fate::Nothing);
    }
}

/// More of them than names can wait: those without room are met again later, as if
/// they had been read.
#[test]
fn another_policy_comes_to_all_large_strings_however_many() {
    const VALUES: usize = 150;
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let mut session = store.session();
    let batch = session.enter(NOW);
    let mut cooling = Cooling::new(0, 1);
    let name = |n: usize| format!("key:{n}").into_bytes();
    (0..VALUES).for_each(|n| set(&batch, &name(n), &text(n as u64, 66 * KIB)));
    let none = PieceParams { min_size: KIB * KIB, ..PARAMS };
    let mut passes = |params: &PieceParams| -> usize {
        (0..100).map(|_| pass(&store, &batch, &mut cooling, params)).sum()
    };
    let packed_with =
        |codec| (0..VALUES).filter(|n| strings::codec(&batch, &name(*n)) == codec).count();
    assert_eq!((passes(&none), packed_with("none")), (0, VALUES), "too short, and settled");
    assert_eq!((passes(&PARAMS), packed_with("zstd")), (VALUES, VALUES));
    let policy = serde_json::from_str(r#"{"rules": [{"codec": "lz4"}]}"#).unwrap();
    store.families().set_policy(policy);
    assert_eq!((passes(&PARAMS), packed_with("lz4")), (2 * VALUES, VALUES), "and anew");
}
