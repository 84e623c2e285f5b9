//! Hashes and sets against plain maps and sets: random changes of a few keys, while small
//! ones are packed, copied and grow.

use proptest::prelude::*;
use snug_codec::{Segments, Workspace, WorkspaceConfig};
use snug_store::{
    AddMembers, Batch, Cooling, Delete, Elements, Event, ExpireFields, FieldExpiry, Gathered,
    HashLimits, MinSaving, Names, NewStr, PieceParams, PutSet, RemoveElements, RemoveFields,
    RemoveMembers, Session, SetFields, SetLimits, Store, StoreConfig, Type, Unobserved,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;
const PARAMS: PieceParams =
    PieceParams { min_size: 32, min_saving: MinSaving(1), level: 1, ..PieceParams::DEFAULT };
const HASH_LIMITS: HashLimits = HashLimits { entries: 512, value: 64 };
const SET_LIMITS: SetLimits = SetLimits { intset_entries: 512 };
const KEYS: usize = 3;

/// A string by number: integers, words, what is kept in its own way, and large ones.
fn string(n: u64) -> Vec<u8> {
    match n % 8 {
        0..4 => (n as i64 / 8 - 20).to_string().into_bytes(),
        4 => format!("word:{n}").into_bytes(),
        5 => format!("{n:032x}").into_bytes(),
        6 if n % 64 == 6 => format!("{n}-").repeat(4000).into_bytes(),
        6 => format!("{n} and some more of the same").repeat(1 + n as usize % 5).into_bytes(),
        _ => format!("{n:08x}-1234-4abc-8def-0123456789ab").into_bytes(),
    }
}

/// A large one may come in segments.
fn new(bytes: &[u8]) -> NewStr<'_> {
    match bytes.len() {
        20_000.. => NewStr::Chain(Segments::from(bytes)),
        _ => NewStr::Bytes(bytes),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, Vec<(u64, u64)>),
    Remove(usize, Vec<u64>),
    Delete(usize),
    Copy(usize, usize),
    Draw(usize, usize),
    Combine(usize, usize, usize, bool),
    Pack,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (key, n) = (0..KEYS, 0..2000u64);
    let step = prop_oneof![
        20 => (key.clone(), prop::collection::vec((n.clone(), n.clone()), 1..60))
            .prop_map(|(key, all)| Step::Put(key, all)),
        8 => (key.clone(), prop::collection::vec(n, 1..60))
            .prop_map(|(key, all)| Step::Remove(key, all)),
        1 => key.clone().prop_map(Step::Delete),
        1 => (key.clone(), key.clone()).prop_map(|(from, to)| Step::Copy(from, to)),
        3 => (key.clone(), 0..200usize).prop_map(|(key, count)| Step::Draw(key, count)),
        3 => (key.clone(), key.clone(), key, any::<bool>())
            .prop_map(|(a, b, to, is_union)| Step::Combine(a, b, to, is_union)),
        3 => Just(Step::Pack),
    ];
    prop::collection::vec(step, 1..60)
}

struct World {
    store: Arc<Store>,
    beside: Session,
    workspace: Workspace,
}

impl World {
    fn new() -> Self {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let beside = store.session();
        Self { store, beside, workspace: Workspace::new(WorkspaceConfig::default()) }
    }

    /// Packs all that can be packed: small ones as they are met, large ones page by page.
    fn pack(&mut self, batch: &Batch<'_>, names: &[Vec<u8>]) {
        let mut cooling = Cooling::new(0, 1);
        let mut room = Vec::new();
        for _ in 0..3 {
            let mut jobs = Vec::new();
            cooling.begin(&self.beside, &PARAMS);
            while !cooling.is_done() {
                cooling.step(batch, &PARAMS, true, &mut jobs, &mut Names::default());
            }
            for name in names {
                while let Some(job) = batch.job(0, name, &PARAMS) {
                    jobs.push(job);
                    if jobs.len() > 100 {
                        break;
                    }
                }
            }
            for mut job in jobs {
                job.prepare(&self.beside, &PARAMS, Some(&mut self.workspace));
                job.run_at_once(&mut self.workspace, &mut room);
                batch.install(&mut job);
            }
        }
    }

    fn assert_empty(&self, kind: Type) {
        let memory = self.store.type_memory(kind);
        assert_eq!((memory.allocated, memory.raw, memory.packed_from, memory.packed), (0, 0, 0, 0));
    }
}

fn delete(batch: &Batch<'_>, name: &[u8]) {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    if let Some(found) = slot.find(&key) {
        drop(slot.apply(&key, Some(found), Delete, Event::NONE));
    }
}

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

fn check_hash(batch: &Batch<'_>, name: &[u8], model: &Fields) {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let Some(found) = slot.find_untouched(&key) else { return assert!(model.is_empty()) };
    let mut room = Vec::new();
    let hash = slot.hash(found, &mut room).unwrap().expect("a hash");
    assert_eq!(hash.len(), model.len());
    let mut all = Fields::new();
    hash.visit(|field, value| {
        assert!(all.insert(field.bytes().into(), value.bytes().into()).is_none());
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(all == *model);
    for n in 0..40 {
        let name = string(n * 37);
        let value = hash.get(&new(&name), |value| value.bytes().into_owned()).unwrap();
        assert_eq!(value.as_ref(), model.get(&name));
    }
    let (mut cursor, mut met) = (0, Fields::new());
    loop {
        cursor = hash
            .scan(cursor, 10, |field, value| {
                assert!(met.insert(field.bytes().into(), value.bytes().into()).is_none());
            })
            .unwrap();
        if cursor == 0 {
            break;
        }
    }
    assert!(met == *model);
}

/// Fields that expire are hidden at their time, and go with the walk that removes what is
/// due, a bounded number at a time; the hash goes with its last.
#[test]
fn fields_expire() {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let mut session = store.session();
    let names: Vec<Vec<u8>> = (0..300).map(string).collect::<BTreeSet<_>>().into_iter().collect();
    let fields = || names.iter().map(|name| new(name));
    let len = |batch: &Batch<'_>| {
        let key = batch.key(b"h");
        let mut slot = batch.lock(0, &key);
        let found = slot.find(&key)?;
        let mut room = Vec::new();
        Some(slot.hash(found, &mut room).unwrap().unwrap().len())
    };
    {
        let batch = session.enter(NOW);
        let key = batch.key(b"h");
        let mut slot = batch.lock(0, &key);
        let pairs = fields().map(|name| (name, NewStr::Int(1)));
        let op = SetFields::new(pairs, FieldExpiry::Clear, HASH_LIMITS);
        slot.apply(&key, None, op, Event::NONE).unwrap();
        for (n, name) in names.iter().enumerate() {
            let found = slot.find(&key);
            let at = Some(NOW + n as u64 / 3 % 60);
            let op = ExpireFields { fields: std::iter::once(new(name)), at };
            slot.apply(&key, found, op, Event::NONE).unwrap();
        }
    }
    let left = |ms: u64| (0..names.len() as u64).filter(|n| n / 3 % 60 > ms).count();
    {
        let batch = session.enter(NOW + 20);
        assert_eq!(len(&batch), Some(left(20)));
        while batch.expire_due(0, 1, &mut || true) {}
        assert_eq!(len(&batch), Some(left(20)));
    }
    {
        let batch = session.enter(NOW + 60);
        assert_eq!(len(&batch), Some(0));
        for _ in 0..names.len().div_ceil(64) {
            batch.expire_due(0, 1, &mut || false);
        }
        assert_eq!((len(&batch), store.keys(0)), (None, 0));
    }
    let memory = store.type_memory(Type::Hash);
    assert_eq!((memory.allocated, memory.raw), (0, 0));
}

type Members = BTreeSet<Vec<u8>>;

fn check_set(batch: &Batch<'_>, name: &[u8], model: &Members) {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let Some(found) = slot.find_untouched(&key) else { return assert!(model.is_empty()) };
    let is_intset = slot.anatomy(found).encoding == "intset";
    let mut room = Vec::new();
    let set = slot.set(found, &mut room).unwrap().expect("a set");
    assert_eq!(set.len(), model.len());
    let mut all = Vec::new();
    set.visit(|member| {
        all.push(member.bytes().into_owned());
        ControlFlow::Continue(())
    })
    .unwrap();
    if is_intset {
        let number = |text: &Vec<u8>| std::str::from_utf8(text).unwrap().parse::<i64>().unwrap();
        assert!(all.is_sorted_by_key(number));
    }
    assert_eq!(all.len(), model.len());
    assert!(all.into_iter().collect::<Members>() == *model);
    for n in 0..40 {
        let name = string(n * 37);
        assert_eq!(set.contains(&new(&name)).unwrap(), model.contains(&name));
    }
}

/// All members, taken out.
fn taken(batch: &Batch<'_>, name: &[u8]) -> Elements {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let mut all = Elements::default();
    if let Some(found) = slot.find(&key) {
        let mut room = Vec::new();
        let set = slot.set(found, &mut room).unwrap().unwrap();
        let mut next = Some(0);
        while let Some(rank) = next {
            next = set.some(rank, &mut all).unwrap();
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]

    #[test]
    #[cfg_attr(miri, ignore = "calls into C")]
    fn a_hash_is_a_map(steps in steps()) {
        let mut world = World::new();
        let mut session = world.store.session();
        let batch = session.enter(NOW);
        let mut models: [Fields; KEYS] = Default::default();
        let names: Vec<Vec<u8>> = (0..KEYS).map(|n| format!("h{n}").into_bytes()).collect();
        for step in steps {
            match step {
                Step::Put(at, fields) => {
                    let key = batch.key(&names[at]);
                    let mut slot = batch.lock(0, &key);
                    let found = slot.find(&key);
                    let fields: Vec<_> =
                        fields.iter().map(|(f, v)| (string(*f), string(*v))).collect();
                    let before = models[at].len();
                    models[at].extend(fields.iter().cloned());
                    let pairs = fields.iter().map(|(f, v)| (new(f), new(v)));
                    let op = SetFields::new(pairs, FieldExpiry::Clear, HASH_LIMITS);
                    let added = slot.apply(&key, found, op, Event::NONE).unwrap().outcome;
                    prop_assert_eq!(added, models[at].len() - before);
                }
                Step::Remove(at, fields) => {
                    let key = batch.key(&names[at]);
                    let mut slot = batch.lock(0, &key);
                    let Some(found) = slot.find(&key) else { continue };
                    let fields: Vec<_> = fields.iter().map(|f| string(*f)).collect();
                    let before = models[at].len();
                    fields.iter().for_each(|field| _ = models[at].remove(field));
                    let op = RemoveFields { fields: fields.iter().map(|f| new(f)) };
                    let edited = slot.apply(&key, Some(found), op, Event::NONE).unwrap();
                    prop_assert_eq!(edited.outcome, before - models[at].len());
                    prop_assert_eq!(edited.is_gone, models[at].is_empty());
                }
                Step::Delete(at) => {
                    delete(&batch, &names[at]);
                    models[at].clear();
                }
                Step::Copy(from, to) if from != to && !models[from].is_empty() => {
                    let (a, b) = (batch.key(&names[from]), batch.key(&names[to]));
                    let _held = batch.hold([(0, a), (0, b)]);
                    batch.copy((0, &a), (0, &b));
                    models[to] = models[from].clone();
                }
                Step::Draw(at, count) if !models[at].is_empty() => {
                    let key = batch.key(&names[at]);
                    let mut slot = batch.lock(0, &key);
                    let found = slot.find(&key).unwrap();
                    let (mut room, mut drawn) = (Vec::new(), Fields::new());
                    let hash = slot.hash(found, &mut room).unwrap().unwrap();
                    hash.draw(count, |field, value| {
                        drawn.insert(field.bytes().into(), value.bytes().into());
                    }).unwrap();
                    prop_assert_eq!(drawn.len(), count.min(models[at].len()));
                    prop_assert!(drawn.iter().all(|(f, v)| models[at].get(f) == Some(v)));
                }
                Step::Pack => world.pack(&batch, &names),
                _ => {}
            }
        }
        for (name, model) in names.iter().zip(&models) {
            check_hash(&batch, name, model);
            delete(&batch, name);
        }
        world.assert_empty(Type::Hash);
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls into C")]
    fn a_set_is_a_set(steps in steps(), ints in any::<bool>()) {
        let string = |n: u64| string(if ints { n & !7 } else { n });
        let mut world = World::new();
        let mut session = world.store.session();
        let batch = session.enter(NOW);
        let mut models: [Members; KEYS] = Default::default();
        let names: Vec<Vec<u8>> = (0..KEYS).map(|n| format!("s{n}").into_bytes()).collect();
        for step in steps {
            match step {
                Step::Put(at, members) => {
                    let key = batch.key(&names[at]);
                    let mut slot = batch.lock(0, &key);
                    let found = slot.find(&key);
                    let members: Vec<_> = members.iter().map(|(m, _)| string(*m)).collect();
                    let before = models[at].len();
                    models[at].extend(members.iter().cloned());
                    let members = members.iter().map(|m| new(m));
                    let op = AddMembers { members, limits: SET_LIMITS };
                    let added = slot.apply(&key, found, op, Event::NONE).unwrap().outcome;
                    prop_assert_eq!(added, models[at].len() - before);
                }
                Step::Remove(at, members) => {
                    let key = batch.key(&names[at]);
                    let mut slot = batch.lock(0, &key);
                    let Some(found) = slot.find(&key) else { continue };
                    let members: Vec<_> = members.iter().map(|m| string(*m)).collect();
                    let before = models[at].len();
                    members.iter().for_each(|member| _ = models[at].remove(member));
                    let op = RemoveMembers { members: members.iter().map(|m| new(m)) };
                    let edited = slot.apply(&key, Some(found), op, Event::NONE).unwrap();
                    prop_assert_eq!(edited.outcome, before - models[at].len());
                    prop_assert_eq!(edited.is_gone, models[at].is_empty());
                }
                Step::Delete(at) => {
                    delete(&batch, &names[at]);
                    models[at].clear();
                }
                Step::Copy(from, to) if from != to && !models[from].is_empty() => {
                    let (a, b) = (batch.key(&names[from]), batch.key(&names[to]));
                    let _held = batch.hold([(0, a), (0, b)]);
                    batch.copy((0, &a), (0, &b));
                    models[to] = models[from].clone();
                }
                Step::Draw(at, count) if !models[at].is_empty() => {
                    let key = batch.key(&names[at]);
                    let mut slot = batch.lock(0, &key);
                    let found = slot.find(&key).unwrap();
                    let mut room = Vec::new();
                    let set = slot.set(found, &mut room).unwrap().unwrap();
                    let drawn = set.take_drawn(count).unwrap();
                    let all: Members = drawn.each().map(|member| member.bytes().into()).collect();
                    prop_assert_eq!(all.len(), count.min(models[at].len()));
                    prop_assert!(all.is_subset(&models[at]));
                    let op = RemoveElements { elements: &drawn };
                    slot.apply(&key, Some(found), op, Event::NONE).unwrap();
                    models[at].retain(|member| !all.contains(member));
                }
                Step::Combine(a, b, to, is_union) => {
                    let (first, second) = (taken(&batch, &names[a]), taken(&batch, &names[b]));
                    let mut gathered = Gathered::new(SET_LIMITS);
                    gathered.add(&first);
                    if is_union {
                        gathered.add(&second);
                        models[to] = models[a].union(&models[b]).cloned().collect();
                    } else {
                        gathered.remove(&second);
                        models[to] = models[a].difference(&models[b]).cloned().collect();
                    }
                    prop_assert_eq!(gathered.len(), models[to].len());
                    delete(&batch, &names[to]);
                    if !gathered.is_empty() {
                        let key = batch.key(&names[to]);
                        let mut slot = batch.lock(0, &key);
                        slot.apply(&key, None, PutSet(gathered), Event::NONE).unwrap();
                    }
                }
                Step::Pack => world.pack(&batch, &names),
                _ => {}
            }
        }
        for (name, model) in names.iter().zip(&models) {
            check_set(&batch, name, model);
            delete(&batch, name);
        }
        world.assert_empty(Type::Set);
    }
}
