//! The order in which threads may come, explored: each test runs hundreds of times, and
//! at every lock and atomic of the store (`sync.rs`) a scheduler decides from a seed who
//! goes on. A failure prints its schedule, which `shuttle::replay` takes.
//!
//! `cargo test -p snug-store --features shuttle interleavings`; `ITERATIONS` says how many
//! orders of each.

use crate::hash::SLOTS;
use crate::keyspace::{CROWDED, PAGE_SLOTS};
use crate::sync::point;
use crate::types::string::Str;
use crate::{
    Batch, Cooling, Delete, Event, Job, MinSaving, Names, NewStr, PieceParams, Session, Set,
    SetExpiry, Step, Store, StoreConfig, Type, Unobserved,
};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread::{JoinHandle, spawn, yield_now};
use shuttle::{Config, Runner};
use snug_codec::{Dictionary, Workspace, WorkspaceConfig};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

const NOW: u64 = 1_700_000_000_000;

/// Runs a test in many orders: half with somebody drawn at each step, half with priorities
/// that change at a few steps, which finds what takes few switches at the right places.
///
/// One test at a time: Shuttle's atomics are cells that only its own threads may share,
/// and what the store has once for the whole process, all tests would.
fn explore(test: impl Fn() + Copy + Send + Sync + 'static) {
    static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _alone = ALONE.lock();
    let iterations = std::env::var("ITERATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let config = || {
        let mut config = Config::new();
        // More than coroutines usually have: codecs want it, and a store that is built.
        config.stack_size = 16 << 20;
        config.max_steps = shuttle::MaxSteps::FailAfter(1 << 20);
        config
    };
    Runner::new(RandomScheduler::new(iterations / 2), config()).run(test);
    Runner::new(PctScheduler::new(3, iterations / 2), config()).run(test);
}

fn new_store() -> Arc<Store> {
    Store::new(StoreConfig::default(), Box::new(Unobserved))
}

/// A thread with a session of its own.
fn thread(store: &Arc<Store>, work: impl FnOnce(&mut Session) + Send + 'static) -> JoinHandle<()> {
    let store = Arc::clone(store);
    spawn(move || work(&mut store.session()))
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
}

fn set(batch: &Batch<'_>, name: &[u8], value: NewStr<'_>) {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key);
    slot.apply(&key, found, Set { value, expiry: SetExpiry::Clear }, Event::NONE);
}

fn get(batch: &Batch<'_>, name: &[u8]) -> Option<Vec<u8>> {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key)?;
    let string = slot.string(found).expect("a string");
    Some(string.to_bytes().expect("no form is damaged").into_owned())
}

/// Whether the value is packed, and with which dictionary; looked at by nobody's reading.
fn lies(batch: &Batch<'_>, name: &[u8]) -> Option<(bool, u32)> {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find_untouched(&key)?;
    let anatomy = slot.anatomy(found);
    Some((anatomy.codec != "none", anatomy.dictionary_id.map_or(0, |(id, _)| id)))
}

const ACCOUNTS: i64 = 3;
const EACH: i64 = 100;

fn account(n: i64) -> Vec<u8> {
    format!("account:{n}").into_bytes()
}

fn number(text: Vec<u8>) -> i64 {
    String::from_utf8(text).ok().and_then(|text| text.parse().ok()).expect("a balance")
}

fn balance(batch: &Batch<'_>, n: i64) -> i64 {
    number(get(batch, &account(n)).expect("no account is ever missing"))
}

fn transfer(batch: &Batch<'_>, from: i64, to: i64) {
    set(batch, &account(from), NewStr::Int(balance(batch, from) - 1));
    set(batch, &account(to), NewStr::Int(balance(batch, to) + 1));
}

fn new_bank() -> Arc<Store> {
    let store = new_store();
    let mut session = store.session();
    let batch = session.enter(NOW);
    (0..ACCOUNTS).for_each(|n| set(&batch, &account(n), NewStr::Int(EACH)));
    drop(batch);
    store
}

/// Under which scope money is moved.
#[derive(Clone, Copy)]
enum Scope {
    Alone,
    Both,
    /// The slot of the first account, and that of the other when it is come to.
    OnDemand,
}

/// Each pair of accounts in both orders, under each kind of scope: whoever looks at all
/// of them finds all the money, and nobody waits for ever.
#[test]
fn no_transfer_is_ever_half_seen() {
    explore(|| {
        let store = new_bank();
        let transfers = [
            (Scope::Alone, 1, 2),
            (Scope::Both, 0, 1),
            (Scope::Both, 1, 0),
            (Scope::OnDemand, 2, 0),
        ];
        let movers = transfers.map(|(scope, from, to)| {
            thread(&store, move |session| {
                let names = [account(from), account(to)];
                let batch = session.enter(NOW);
                let keys = names.iter().map(|name| (0, batch.key(name)));
                match scope {
                    Scope::Alone => {
                        let _alone = batch.exclusive();
                        transfer(&batch, from, to);
                    }
                    Scope::Both => {
                        let _held = batch.hold(keys);
                        transfer(&batch, from, to);
                    }
                    Scope::OnDemand => {
                        let _held = batch.hold(keys.take(1));
                        batch.hold_on_demand();
                        transfer(&batch, from, to);
                    }
                }
            })
        });
        let looker = thread(&store, |session| {
            let names: Vec<_> = (0..ACCOUNTS).map(account).collect();
            let batch = session.enter(NOW);
            let _held = batch.hold(names.iter().map(|name| (0, batch.key(name))));
            let total: i64 = (0..ACCOUNTS).map(|n| balance(&batch, n)).sum();
            assert_eq!(total, ACCOUNTS * EACH);
        });
        join(movers.into_iter().chain([looker]));
    });
}

/// A snapshot is of one moment, whoever writes while it is read.
#[test]
fn a_snapshot_sees_no_half_of_a_transfer() {
    explore(|| {
        let store = new_bank();
        let writers = [(0, 1), (1, 2)].map(|(from, to)| {
            thread(&store, move |session| {
                let names = [account(from), account(to)];
                for _ in 0..2 {
                    let batch = session.enter(NOW);
                    let _held = batch.hold(names.iter().map(|name| (0, batch.key(name))));
                    transfer(&batch, from, to);
                }
            })
        });
        let mut session = store.session();
        let mut snapshot = session.enter(NOW).begin_snapshot().expect("there is no other");
        let (mut found, mut taken, mut step) = (BTreeMap::new(), Vec::new(), Step::More);
        while step != Step::Done {
            let batch = session.enter(NOW);
            step = snapshot.step(&batch, &mut taken);
            for (_, value) in taken.drain(..) {
                let text = Str::of(value.value(), batch.session()).expect("a string");
                let money = number(text.to_bytes().expect("whole").into_owned());
                assert!(found.insert(value.key().to_vec(), money).is_none(), "taken twice");
            }
        }
        assert_eq!(found.len(), ACCOUNTS as usize);
        assert_eq!(found.values().sum::<i64>(), ACCOUNTS * EACH);
        drop(snapshot);
        join(writers);
    });
}

/// Pages of slots fold and unfold while others add keys to them and take keys out.
#[test]
fn keys_stay_while_their_pages_are_reshaped() {
    explore(|| {
        let store = new_store();
        // One page's keys: more than one folded page holds.
        let all = (0..).map(|n| format!("k{n}").into_bytes());
        let of_first = all.filter(|name| store.key(name).slot() < PAGE_SLOTS);
        let names: Vec<Vec<u8>> = of_first.take(3 * CROWDED).collect();
        let names = Arc::new(names);
        let threads = [0, 1].map(|half| {
            let names = Arc::clone(&names);
            thread(&store, move |session| {
                let mine = || names.iter().skip(half).step_by(2);
                for name in mine() {
                    set(&session.enter(NOW), name, NewStr::Int(1));
                }
                for name in mine().skip(1) {
                    let batch = session.enter(NOW);
                    let key = batch.key(name);
                    let mut slot = batch.lock(0, &key);
                    let found = slot.find(&key);
                    assert!(found.is_some(), "a key is lost");
                    slot.apply(&key, found, Delete, Event::NONE);
                }
            })
        });
        let tidier = thread(&store, |session| (0..6).for_each(|_| session.enter(NOW).tidy()));
        let parter =
            thread(&store, |session| (0..2).for_each(|_| session.enter(NOW).part(0, &[5])));
        join(threads.into_iter().chain([tidier, parter]));
        assert_eq!(store.keys(0), 2);
        let mut session = store.session();
        let batch = session.enter(NOW);
        assert!(names.iter().take(2).all(|name| get(&batch, name).is_some()));
    });
}

/// A database is emptied and swapped while others write: what is counted is what is there.
#[test]
fn what_is_counted_is_what_is_there() {
    explore(|| {
        let store = new_store();
        let writers = [0, 1].map(|n| {
            thread(&store, move |session| {
                for round in 0..3 {
                    let name = format!("{n}:{round}").into_bytes();
                    set(&session.enter(NOW), &name, NewStr::Bytes(&[b'x'; 100]));
                }
            })
        });
        let other = thread(&store, |session| {
            drop(session.enter(NOW).flush(0));
            session.enter(NOW).swap(0, 1);
        });
        join(writers.into_iter().chain([other]));
        let mut session = store.session();
        let batch = session.enter(NOW);
        for db in 0..2 {
            let mut there = 0;
            batch.scan(db, 0, usize::MAX, |_, _| there += 1);
            assert_eq!(store.keys(db), there);
            drop(batch.flush(db));
        }
        assert_eq!(store.type_memory(Type::String).allocated, 0);
    });
}

/// Whatever can be packed is, at once.
const PARAMS: PieceParams =
    PieceParams { min_size: 1, min_saving: MinSaving(-100), level: 1, ..PieceParams::DEFAULT };

fn document(n: usize) -> Vec<u8> {
    let name = ["ada", "grace", "barbara"][n % 3];
    format!(r#"{{"id":{n},"name":"{name}","mail":"{name}{n}@example.org","visits":{}}}"#, n * 7919)
        .into_bytes()
}

/// A dictionary for documents; which one of several.
fn dictionary(which: usize) -> Dictionary {
    static TRAINED: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
        [0, 1, 2].map(|which| {
            let texts: Vec<Vec<u8>> = (0..300).map(|n| document(1000 * which + n)).collect();
            let samples: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
            Dictionary::train_with(&samples, 1024, 1, 1).expect("they are alike").bytes().to_vec()
        })
    });
    Dictionary::from_bytes(0, &TRAINED[which], 1).expect("it was one")
}

fn workspace() -> Workspace {
    Workspace::new(WorkspaceConfig::default())
}

const NAME: &[u8] = b"user:1:profile";

/// A walk over nothing but the page of [`NAME`]'s slot: the fewer steps there are, the
/// more orders of them are tried.
fn cooling(store: &Store) -> Cooling {
    Cooling::new(store.key(NAME).slot() / PAGE_SLOTS, SLOTS / PAGE_SLOTS)
}

/// One pass, as a worker does it; jobs met.
fn pass(cooling: &mut Cooling, session: &mut Session, beside: &Session) -> usize {
    let (mut met, mut jobs, mut workspace) = (0, Vec::<Job>::new(), workspace());
    cooling.begin(beside, &PARAMS);
    while !cooling.is_done() {
        let batch = session.enter(NOW);
        cooling.step(&batch, &PARAMS, true, &mut jobs, &mut Names::default());
        met += jobs.len();
        for mut job in jobs.drain(..) {
            job.prepare(beside, &PARAMS, Some(&mut workspace));
            job.run_at_once(&mut workspace, &mut Vec::new());
            batch.install(&mut job);
        }
    }
    met
}

/// A family gets its dictionary while a pass goes over its values: the pass after that
/// looks at them once more, if this one did not. (The generation of dictionaries once
/// advanced before the family said that it had changed: a pass that began in between went
/// by, and none after it came back.)
#[test]
fn no_pass_misses_a_new_dictionary() {
    LazyLock::force(&TRAINED_FIRST);
    explore(|| {
        let store = new_store();
        let (mut session, beside) = (store.session(), store.session());
        let (value, mut cooling) = (document(7), cooling(&store));
        set(&session.enter(NOW), NAME, NewStr::Bytes(&value));
        // It settles without one.
        for _ in 0..2 {
            pass(&mut cooling, &mut session, &beside);
        }
        let trainer = thread(&store, |session| {
            let families = session.store().families();
            families.adopt(&families.of(Type::String, NAME), Some(dictionary(0)));
        });
        for _ in 0..8 {
            pass(&mut cooling, &mut session, &beside);
        }
        join([trainer]);
        pass(&mut cooling, &mut session, &beside);
        let batch = session.enter(NOW);
        let (is_packed, dictionary) = lies(&batch, NAME).expect("it is there");
        assert!(is_packed && dictionary != 0, "packed {is_packed}, with {dictionary}");
        assert_eq!(get(&batch, NAME), Some(value));
    });
}

/// Made before any test explores: training takes a while.
static TRAINED_FIRST: LazyLock<()> = LazyLock::new(|| drop(dictionary(0)));

/// A dictionary is replaced while values are packed with it, copied, overwritten and
/// deleted: whatever is there can be read, and when nothing is left nothing refers to any.
/// (Ids are given again, lowest first: a form that outlived its dictionary would be read
/// with another.)
#[test]
fn no_form_outlives_its_dictionary() {
    LazyLock::force(&TRAINED_FIRST);
    explore(|| {
        let store = new_store();
        let family = store.families().of(Type::String, NAME);
        store.families().adopt(&family, Some(dictionary(0)));
        let value = document(7);
        set(&store.session().enter(NOW), NAME, NewStr::Bytes(&value));
        let packer = thread(&store, |session| {
            let store = Arc::clone(session.store());
            let (beside, mut cooling) = (store.session(), cooling(&store));
            for _ in 0..3 {
                pass(&mut cooling, session, &beside);
            }
        });
        let trainer = thread(&store, |session| {
            let families = session.store().families();
            let family = families.of(Type::String, NAME);
            families.adopt(&family, Some(dictionary(1)));
            point();
            families.adopt(&family, Some(dictionary(2)));
        });
        let (first, second) = (value.clone(), document(8));
        let client = thread(&store, move |session| {
            for copy in [b"user:2:profile", b"user:3:profile"] {
                {
                    let batch = session.enter(NOW);
                    let (from, to) = (batch.key(NAME), batch.key(copy));
                    let _held = batch.hold([(0, from), (0, to)]);
                    drop(batch.copy((0, &from), (0, &to)));
                }
                yield_now();
                let batch = session.enter(NOW);
                assert!([&first, &second].contains(&&get(&batch, copy).expect("it is there")));
                set(&batch, NAME, NewStr::Bytes(&second));
            }
        });
        join([packer, trainer, client]);
        let mut session = store.session();
        let batch = session.enter(NOW);
        assert!(get(&batch, NAME).is_some());
        drop(batch.flush(0));
        drop(batch);
        let all = store.families().dictionaries();
        assert!(all.iter().all(|dictionary| dictionary.references == 0), "{all:?}");
        assert_eq!(all.len(), 1, "the family's own");
    });
}
