//! A store under random operations is sixteen maps with expiries.

use proptest::prelude::*;
use snug_store::{Batch, NewStr, SetExpiry, Store, StoreConfig, Str, Unobserved};
use std::collections::BTreeMap;

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
}

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
            assert!(*string.to_bytes() == **expected, "another value");
            assert_eq!(slot.expiry(found), *expiry);
            if let Str::Int(n) = string {
                assert_eq!(n.to_string().as_bytes(), expected);
            }
        }
    }
}

fn apply(batch: &Batch<'_>, model: &mut Model, op: Op) {
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
            slot.set_string(&key, found, NewStr::Bytes(&value), set);
            model[db].insert(name, (value, at));
        }
        Op::Append(n, value) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                let kept = model[db].get_mut(&name).expect("the model has it");
                kept.0.extend_from_slice(&value);
                assert_eq!(slot.append(found, &value), kept.0.len());
            }
        }
        Op::WriteAt(n, offset, value) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                let kept = &mut model[db].get_mut(&name).expect("the model has it").0;
                let offset = offset as usize;
                if kept.len() < offset + value.len() {
                    kept.resize(offset + value.len(), 0);
                }
                kept[offset..offset + value.len()].copy_from_slice(&value);
                assert_eq!(slot.write_at(found, offset, &value), kept.len());
            }
        }
        Op::Expire(n, ms) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            if let Some(found) = slot.find(&key) {
                let at = ms.map(|ms| now + u64::from(ms));
                slot.set_expiry(found, at);
                model[db].get_mut(&name).expect("the model has it").1 = at;
            }
        }
        Op::Remove(n) => {
            let (db, name) = place(n);
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            let found = slot.find(&key);
            assert_eq!(found.is_some(), model[db].remove(&name).is_some());
            if let Some(found) = found {
                slot.remove(found);
            }
        }
        Op::Rename(a, b) | Op::Copy(a, b) => {
            let ((from_db, from), (to_db, to)) = (place(a), place(b));
            if (from_db, &from) == (to_db, &to) {
                return;
            }
            let (from_key, to_key) = (batch.key(&from), batch.key(&to));
            let _held = batch.hold([(from_db, from_key), (to_db, to_key)]);
            let copy = matches!(op, Op::Copy(..));
            let mut slot = batch.lock(from_db, &from_key);
            let Some(found) = slot.find(&from_key) else { return };
            let value = if copy { slot.duplicate(found) } else { slot.detach(found) };
            drop(slot);
            let mut slot = batch.lock(to_db, &to_key);
            if let Some(found) = slot.find(&to_key) {
                slot.remove(found);
            }
            slot.attach(&to_key, value);
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
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_store_is_a_few_maps(
        ops in prop::collection::vec(op(), 1..120),
        cluster in any::<bool>(),
    ) {
        let store = Store::new(StoreConfig { cluster }, Box::new(Unobserved));
        let mut session = store.session();
        let mut model = Model::default();
        let batch = session.enter(START);
        for op in ops {
            apply(&batch, &mut model, op);
        }
        check(&batch, &mut model);
        // The books agree once everything due has been swept.
        while batch.expire_due(0, 1, &mut || false) {}
        for (db, keys) in model.iter().enumerate() {
            prop_assert_eq!(store.keys(db), keys.len() as u64);
            let expiring = keys.values().filter(|(_, expiry)| expiry.is_some()).count();
            prop_assert_eq!(store.expiring(db), expiring as u64);
        }
        (0..3).for_each(|db| drop(batch.flush(db)));
        prop_assert_eq!(store.type_memory(snug_store::Type::String).allocated, 0);
    }
}
