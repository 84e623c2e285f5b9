//! A sorted set under random changes is a plain ordered set of scores and members.

#![allow(clippy::float_cmp)]

use super::ops::{ZAdd, ZLimits, ZPop, ZRemove, ZRemoveRange, ZWhen};
use super::{Limit, View, ZSet};
use crate::{Event, NewStr, Store, StoreConfig, Unobserved};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

#[derive(Clone, Debug)]
enum Step {
    Add(u16, i16, u8),
    Many(u16, i16),
    Remove(u16),
    Pop(bool, u8),
    RemoveRange(u16, u8),
    Look(u16, i16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (any::<u16>(), -20..20i16, any::<u8>()).prop_map(|(m, s, w)| Step::Add(m, s, w)),
        2 => (any::<u16>(), -20..20i16).prop_map(|(m, s)| Step::Many(m, s)),
        4 => any::<u16>().prop_map(Step::Remove),
        1 => (any::<bool>(), 0..40u8).prop_map(|(last, n)| Step::Pop(last, n)),
        1 => (any::<u16>(), 0..60u8).prop_map(|(at, n)| Step::RemoveRange(at, n)),
        2 => (any::<u16>(), -20..20i16).prop_map(|(m, s)| Step::Look(m, s)),
    ];
    prop::collection::vec(step, 1..200)
}

/// Members of many kinds, large ones that begin alike among them.
fn member(seed: u16) -> Vec<u8> {
    let n = seed / 8 % 300;
    match seed % 8 {
        0 | 1 => format!("member:{n}").into_bytes(),
        2 => n.to_string().into_bytes(),
        3 => format!("{n:08x}-54f3-4c59-9f5e-0123456789ab").into_bytes(),
        4 => format!("{n:016x}").into_bytes(),
        5 => format!("{n}.25").into_bytes(),
        6 => vec![b'x'; usize::from(n)],
        _ => [&vec![b'y'; 9_000][..], &n.to_be_bytes()].concat(),
    }
}

fn score(seed: i16) -> f64 {
    match seed {
        -20 => f64::NEG_INFINITY,
        19 => f64::INFINITY,
        -5..5 => 0.0,
        seed => f64::from(seed) / 3.0,
    }
}

type Model = BTreeMap<Vec<u8>, f64>;

fn ranked(model: &Model) -> Vec<(f64, Vec<u8>)> {
    let mut all: Vec<_> = model.iter().map(|(member, &score)| (score, member.clone())).collect();
    all.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap().then_with(|| a.1.cmp(&b.1)));
    all
}

fn all(zset: &ZSet<'_>, back: bool) -> Vec<(f64, Vec<u8>)> {
    let mut all = Vec::new();
    zset.visit(0, usize::MAX, back, |member, score| {
        all.push((score, member.bytes().into_owned()));
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

const LIMITS: ZLimits = ZLimits { entries: 128, value: 64 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn a_sorted_set_is_a_map_and_an_order(steps in steps(), pool in 4..2000u16) {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let mut session = store.session();
        let batch = session.enter(1_700_000_000_000);
        let key = batch.key(b"z");
        let mut slot = batch.lock(0, &key);
        let mut model = Model::new();
        for step in steps {
            let found = slot.find(&key);
            match step {
                Step::Add(seed, to, when) => {
                    let (member, score) = (member(seed % pool), score(to));
                    let increase = when / 16 % 2 == 1 && score.is_finite();
                    let old = model.get(&member).copied();
                    let when = ZWhen { nx: when / 4 % 4 == 3, xx: when / 4 % 4 == 2,
                        gt: when % 8 == 1, lt: when % 8 == 2 };
                    let when = ZWhen { gt: when.gt && !when.nx, lt: when.lt && !when.nx, ..when };
                    let items = std::iter::once((score, NewStr::Bytes(&member)));
                    let op = ZAdd { items, when, increase, limits: LIMITS };
                    let added = slot.apply(&key, found, op, Event::NONE).unwrap().outcome;
                    let new = if increase { old.unwrap_or(0.0) + score } else { score };
                    let takes = match old {
                        None => !when.xx,
                        Some(old) => !(when.nx || when.gt && new <= old || when.lt && new >= old),
                    };
                    prop_assert_eq!(added.added, usize::from(old.is_none() && takes));
                    prop_assert_eq!(added.changed,
                        usize::from(takes && old.is_some_and(|old| old != new)));
                    prop_assert_eq!(added.score, takes.then_some(new));
                    if takes {
                        model.insert(member, new);
                    }
                }
                Step::Many(seed, to) => {
                    let members: Vec<_> = (0..40u16).map(|n| (
                        score(to) + f64::from(n / 3),
                        member(seed.wrapping_add(n * 8) % pool),
                    )).collect();
                    let items = members.iter().map(|(score, member)| (*score, NewStr::Bytes(member)));
                    let op = ZAdd { items, when: ZWhen::default(), increase: false, limits: LIMITS };
                    slot.apply(&key, found, op, Event::NONE).unwrap();
                    model.extend(members.into_iter().map(|(score, member)| (member, score)));
                }
                Step::Remove(seed) => {
                    let member = member(seed % pool);
                    if found.is_some() {
                        let op = ZRemove { members: std::iter::once(NewStr::Bytes(&member)) };
                        let removed = slot.apply(&key, found, op, Event::NONE).unwrap();
                        prop_assert_eq!(removed.outcome, usize::from(model.remove(&member).is_some()));
                        prop_assert_eq!(removed.is_gone, model.is_empty());
                    }
                }
                Step::Pop(highest, count) if found.is_some() => {
                    let mut expected = ranked(&model);
                    if highest {
                        expected.reverse();
                    }
                    expected.truncate(usize::from(count));
                    let mut popped = Vec::new();
                    let taken = |member: crate::types::pages::paged::Item<'_>, score| {
                        popped.push((score, member.bytes().into_owned()));
                    };
                    let op = ZPop { highest, count: usize::from(count), taken };
                    slot.apply(&key, found, op, Event::NONE).unwrap();
                    prop_assert_eq!(&popped, &expected);
                    popped.iter().for_each(|(_, member)| {
                        model.remove(member);
                    });
                }
                Step::RemoveRange(at, count) if found.is_some() => {
                    let from = usize::from(at) % model.len();
                    let op = ZRemoveRange { from, count: usize::from(count) };
                    slot.apply(&key, found, op, Event::NONE).unwrap();
                    for (_, member) in ranked(&model).iter().skip(from).take(usize::from(count)) {
                        model.remove(member);
                    }
                }
                Step::Look(seed, to) if found.is_some() => {
                    let mut room = Vec::new();
                    let zset = slot.zset(found.unwrap(), &mut room).unwrap().unwrap();
                    let (member, to, all) = (member(seed % pool), score(to), ranked(&model));
                    let rank = all.iter().position(|(_, other)| *other == member);
                    let expected = rank.map(|rank| (rank, all[rank].0));
                    prop_assert_eq!(zset.rank(&NewStr::Bytes(&member)).unwrap(), expected);
                    prop_assert_eq!(zset.score(&NewStr::Bytes(&member)).unwrap(), model.get(&member).copied());
                    for behind in [false, true] {
                        let before = all.iter().filter(|(s, _)| *s < to || behind && *s == to).count();
                        prop_assert_eq!(zset.rank_at(&Limit::Score(to, behind)).unwrap(), before);
                    }
                    let mut scanned = Vec::new();
                    let mut cursor = 0;
                    loop {
                        cursor = zset.scan(cursor, 5, |member, _| scanned.push(member.bytes().into_owned())).unwrap();
                        if cursor == 0 {
                            break;
                        }
                    }
                    scanned.sort();
                    prop_assert!(scanned.iter().eq(model.keys()));
                }
                _ => {}
            }
            let Some(found) = slot.find(&key) else {
                prop_assert!(model.is_empty());
                continue;
            };
            let mut room = Vec::new();
            let zset = slot.zset(found, &mut room).unwrap().unwrap();
            prop_assert_eq!(zset.len(), model.len());
            if let View::Large(large) = zset.view {
                large.check(zset.session);
            }
            let mut expected = ranked(&model);
            prop_assert_eq!(&all(&zset, false), &expected);
            expected.reverse();
            prop_assert_eq!(&all(&zset, true), &expected);
        }
    }

    #[test]
    fn members_of_one_score_are_found_by_their_bytes(seeds in prop::collection::vec(any::<u16>(), 1..300), probe: u16) {
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let mut session = store.session();
        let batch = session.enter(1_700_000_000_000);
        let key = batch.key(b"z");
        let mut slot = batch.lock(0, &key);
        let model: Model = seeds.iter().map(|&seed| (member(seed), 0.0)).collect();
        let items = model.keys().map(|member| (0.0, NewStr::Bytes(member)));
        let op = ZAdd { items, when: ZWhen::default(), increase: false, limits: LIMITS };
        slot.apply(&key, None, op, Event::NONE).unwrap();
        let found = slot.find(&key).unwrap();
        let mut room = Vec::new();
        let zset = slot.zset(found, &mut room).unwrap().unwrap();
        let probe = member(probe);
        for behind in [false, true] {
            let before = model.keys().filter(|m| **m < probe || behind && **m == probe).count();
            prop_assert_eq!(zset.rank_at(&Limit::Lex(&probe, behind)).unwrap(), before);
        }
    }
}
