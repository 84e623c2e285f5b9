//! The lock protocol under many threads: single slots, many slots in ascending
//! order, and the whole store. Run it under ThreadSanitizer too:
//! `RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std --target
//! x86_64-unknown-linux-gnu -p snug-store --test locks`.

use snug_store::{
    Batch, Delete, Event, NewStr, Set, SetExpiry, Store, StoreConfig, Str, Unobserved,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// Miri is a thousand times slower, and sees every interleaving's races anyway.
const ACCOUNTS: u64 = if cfg!(miri) { 4 } else { 64 };
const ROUNDS: u64 = if cfg!(miri) { 10 } else { 3000 };
const EACH: i64 = 1000;
/// One in so many operations is a flush, one a swap, one a scan: in the few rounds
/// that Miri takes, each thread comes to each of them.
const KINDS: u64 = if cfg!(miri) { 7 } else { 97 };

fn name(n: u64) -> Vec<u8> {
    format!("account:{n}").into_bytes()
}

fn read(batch: &Batch<'_>, n: u64) -> i64 {
    let name = name(n);
    let key = batch.key(&name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key).expect("no account is ever missing");
    match slot.string(found) {
        Some(Str::Int(value)) => value,
        other => panic!("{other:?} is no balance"),
    }
}

fn add(batch: &Batch<'_>, n: u64, amount: i64) {
    let name = name(n);
    let key = batch.key(&name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key).expect("no account is ever missing");
    let Some(Str::Int(value)) = slot.string(found) else { panic!("no balance") };
    let set = Set { value: NewStr::Int(value + amount), expiry: SetExpiry::Keep };
    slot.apply(&key, Some(found), set, Event::NONE);
}

/// Money moves between accounts under every kind of scope; whoever looks at
/// all accounts at once finds all of it.
#[test]
fn no_transfer_is_ever_half_seen() {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    {
        let mut session = store.session();
        let batch = session.enter(1);
        for n in 0..ACCOUNTS {
            let name = name(n);
            let key = batch.key(&name);
            batch.lock(0, &key).apply(&key, None, Set::to(NewStr::Int(EACH)), Event::NONE);
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..3u64)
            .map(|seed| {
                let store = &store;
                scope.spawn(move || {
                    let mut session = store.session();
                    let mut random = seed * 7919 + 1;
                    let mut next = |below: u64| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (random >> 33) % below
                    };
                    for round in 0..ROUNDS {
                        let batch = session.enter(1);
                        let (from, to, amount) = (next(ACCOUNTS), next(ACCOUNTS), next(50) as i64);
                        let (from_name, to_name) = (name(from), name(to));
                        if round % 50 == 0 {
                            let _alone = batch.exclusive();
                            add(&batch, from, -amount);
                            add(&batch, to, amount);
                        } else {
                            let keys = [batch.key(&from_name), batch.key(&to_name)];
                            let _held = batch.hold(keys.map(|key| (0, key)));
                            add(&batch, from, -amount);
                            add(&batch, to, amount);
                        }
                    }
                })
            })
            .collect();
        let (watched, finished) = (&store, &done);
        scope.spawn(move || {
            let mut session = watched.session();
            let names: Vec<_> = (0..ACCOUNTS).map(name).collect();
            let mut look = 0;
            while !finished.load(Ordering::Relaxed) {
                let batch = session.enter(1);
                let total: i64 = if look % 2 == 0 {
                    let _held = batch.hold(names.iter().map(|name| (0, batch.key(name))));
                    (0..ACCOUNTS).map(|n| read(&batch, n)).sum()
                } else {
                    let _alone = batch.exclusive();
                    (0..ACCOUNTS).map(|n| read(&batch, n)).sum()
                };
                assert_eq!(total, ACCOUNTS as i64 * EACH);
                look += 1;
            }
        });
        for mover in movers {
            mover.join().expect("no mover fails");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Databases are flushed and swapped while others write into them.
#[test]
fn whole_database_operations_disturb_nobody() {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    std::thread::scope(|scope| {
        for seed in 0..3u64 {
            let store = &store;
            scope.spawn(move || {
                let mut session = store.session();
                for round in 0..ROUNDS * 2 / 3 {
                    let batch = session.enter(1);
                    match (round + seed * 13) % KINDS {
                        0 => drop(batch.flush((round % 2) as usize)),
                        1 => batch.swap(0, 1),
                        2 => {
                            let mut keys = 0;
                            batch.scan(0, 0, usize::MAX, |_, _| keys += 1);
                            assert!(keys <= 400);
                        }
                        _ => {
                            let name = format!("key:{}", round % 400);
                            let key = batch.key(name.as_bytes());
                            let mut slot = batch.lock(0, &key);
                            let found = slot.find(&key);
                            slot.apply(&key, found, Set::to(NewStr::Int(1)), Event::NONE);
                        }
                    }
                }
            });
        }
    });
    let mut session = store.session();
    let batch = session.enter(1);
    let mut keys = 0;
    batch.scan(0, 0, usize::MAX, |_, _| keys += 1);
    assert_eq!(store.keys(0), keys);
}

/// `warm` reads slots that others are changing; it must neither wait for them
/// nor read what they are in the middle of.
#[test]
fn keys_are_warmed_while_others_change_their_slots() {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut session = store.session();
            for round in 0..ROUNDS / 10 {
                let batch = session.enter(1);
                for n in 0..ACCOUNTS * 8 {
                    let name = name(n);
                    let key = batch.key(&name);
                    let mut slot = batch.lock(0, &key);
                    let found = slot.find(&key);
                    match found {
                        Some(found) if (n + round) % 3 == 0 => {
                            slot.apply(&key, Some(found), Delete, Event::NONE);
                        }
                        found => {
                            slot.apply(&key, found, Set::to(NewStr::Int(1)), Event::NONE);
                        }
                    }
                }
            }
            done.store(true, Ordering::Release);
        });
        let mut session = store.session();
        let names: Vec<Vec<u8>> = (0..ACCOUNTS * 8).map(name).collect();
        while !done.load(Ordering::Acquire) {
            let batch = session.enter(1);
            let keys: Vec<_> = names.iter().map(|name| batch.key(name)).collect();
            batch.warm(0, keys.iter());
            let mut slot = batch.lock(0, &keys[0]);
            // Its own slot, which it holds, is passed by.
            batch.warm(0, keys[..1].iter());
            if let Some(found) = slot.find(&keys[0]) {
                assert!(matches!(slot.string(found), Some(Str::Int(1))));
            }
        }
        writer.join().expect("the writer ends well");
    });
}
