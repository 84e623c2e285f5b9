//! What is evicted: drawn fairly, only what may go, the least wanted first, and
//! the books are right whatever others do meanwhile.

use snug_store::{
    Batch, Event, Eviction, Lying, NewStr, Order, Set, SetExpiry, Store, StoreConfig, Type,
    Unobserved,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

const NOW: u64 = 1_700_000_000_000;

fn store(cluster: bool) -> Arc<Store> {
    Store::new(StoreConfig { cluster, ..StoreConfig::default() }, Box::new(Unobserved))
}

fn set(batch: &Batch<'_>, db: usize, name: &str, expiry: Option<u64>) {
    let key = batch.key(name.as_bytes());
    let mut slot = batch.lock(db, &key);
    let found = slot.find(&key);
    let expiry = expiry.map_or(SetExpiry::Clear, SetExpiry::At);
    slot.apply(&key, found, Set { value: NewStr::Bytes(b"some value"), expiry }, Event::NONE);
}

fn read(batch: &Batch<'_>, name: &str) -> bool {
    let key = batch.key(name.as_bytes());
    batch.lock(0, &key).find(&key).is_some()
}

fn evict(batch: &Batch<'_>, how: &Eviction) -> Option<String> {
    let (db, value) = batch.evict(how)?;
    assert_eq!(db, 0);
    Some(String::from_utf8(value.key().to_vec()).expect("as it was set"))
}

fn any(order: Order, samples: usize) -> Eviction {
    Eviction { order, volatile: false, samples, lying: Lying::Anywhere }
}

/// The sum of squared deviations by what chance makes of it: about 1 for a fair
/// draw, and above 1.3 one time in a million for fifty keys or more.
fn unfairness(counts: &HashMap<String, u32>, keys: usize, draws: u32) -> f64 {
    let expected = f64::from(draws) / keys as f64;
    let missing = (keys - counts.len()) as f64 * expected;
    let deviation = |&count: &u32| (f64::from(count) - expected).powi(2) / expected;
    (counts.values().map(deviation).sum::<f64>() + missing) / (keys as f64 - 1.0)
}

#[test]
fn every_key_is_drawn_as_often() {
    // Few keys in many slots, some in each, and all in one slot of many tables.
    for (cluster, keys) in [(false, 60), (false, 700), (false, 40_000), (true, 3000)] {
        let store = store(cluster);
        let mut session = store.session();
        let batch = session.enter(NOW);
        let name = |n| if cluster { format!("{{tag}}:{n}") } else { format!("key:{n}") };
        (0..keys).for_each(|n| set(&batch, 0, &name(n), None));
        let draws = keys as u32 * 10;
        let (mut drawn, mut evicted) = (HashMap::new(), HashMap::new());
        for _ in 0..draws {
            let key = batch.random_key(0).expect("there are keys");
            *drawn.entry(String::from_utf8(key).expect("a name")).or_default() += 1;
            let key = evict(&batch, &any(Order::Random, 5)).expect("there are keys");
            set(&batch, 0, &key, None);
            *evicted.entry(key).or_default() += 1;
        }
        for (what, counts) in [("drawn", &drawn), ("evicted", &evicted)] {
            let unfairness = unfairness(counts, keys, draws);
            let most = if keys < 500 { 2.2 } else { 1.3 };
            assert!(unfairness < most, "{keys} keys {what}: {unfairness}");
        }
    }
}

#[test]
fn only_keys_that_expire_go_when_only_they_may() {
    for order in [Order::Recency, Order::Frequency, Order::Expiry, Order::Random] {
        let store = store(false);
        let mut session = store.session();
        let batch = session.enter(NOW);
        (0..20_000).for_each(|n| set(&batch, 0, &format!("stays:{n}"), None));
        (0..300).for_each(|n| set(&batch, 0, &format!("goes:{n}"), Some(NOW + 1000 + n)));
        // These leave slots behind that seem to have something that expires.
        for n in 0..2000 {
            set(&batch, 0, &format!("stays:{n}"), Some(NOW + 5));
            set(&batch, 0, &format!("stays:{n}"), None);
        }
        let how = Eviction { order, volatile: true, samples: 5, lying: Lying::Anywhere };
        for _ in 0..300 {
            let key = evict(&batch, &how).expect("some may still go");
            assert!(key.starts_with("goes:"), "{order:?} evicted {key}");
        }
        assert_eq!(evict(&batch, &how), None);
        assert_eq!((store.keys(0), store.expiring(0)), (20_000, 0));
    }
}

#[test]
fn every_database_is_drawn_from() {
    let store = store(false);
    let mut session = store.session();
    let batch = session.enter(NOW);
    (0..100).for_each(|n| set(&batch, 3, &format!("a:{n}"), None));
    (0..300).for_each(|n| set(&batch, 9, &format!("b:{n}"), None));
    let mut gone = [0; 16];
    for _ in 0..200 {
        let (db, _) = batch.evict(&any(Order::Random, 1)).expect("there are keys");
        gone[db] += 1;
    }
    assert!((20..80).contains(&gone[3]) && gone[3] + gone[9] == 200, "{gone:?}");
    for _ in 0..200 {
        assert!(batch.evict(&any(Order::Recency, 5)).is_some());
    }
    assert!(batch.evict(&any(Order::Recency, 5)).is_none());
    assert_eq!(store.type_memory(Type::String).allocated, 0);
}

/// A storm of new keys passes through a store of as many; `hot` ones among them
/// are read in between. How many of those are left in the end.
fn hot_left(order: Order, reads_of_each: usize) -> usize {
    const KEYS: usize = 4000;
    const HOT: usize = 400;
    let store = store(false);
    if order == Order::Frequency {
        store.count_reads(Some(1));
    }
    let mut session = store.session();
    let batch = session.enter(NOW);
    (0..KEYS).for_each(|n| set(&batch, 0, &format!("key:{n}"), None));
    let reads_at_once = HOT * reads_of_each / 100;
    let mut next_read = 0;
    for n in KEYS..4 * KEYS {
        // A hundred rounds of reads for as many turnovers of the store.
        if n.is_multiple_of(3 * KEYS / 100) {
            for _ in 0..reads_at_once {
                read(&batch, &format!("key:{}", next_read % HOT));
                next_read += 1;
            }
        }
        assert!(evict(&batch, &any(order, 5)).is_some());
        set(&batch, 0, &format!("key:{n}"), None);
    }
    (0..HOT).filter(|n| read(&batch, &format!("key:{n}"))).count()
}

#[test]
fn what_is_used_outlives_what_is_not() {
    // By chance alone, 20 of 400 would be left.
    let (random, unread) = (hot_left(Order::Random, 100), hot_left(Order::Recency, 0));
    assert!(random < 60 && unread < 60, "{random} and {unread} of 400");
    let recency = hot_left(Order::Recency, 100);
    assert!(recency > 200, "{recency} of 400 by recency");
    let frequency = hot_left(Order::Frequency, 100);
    assert!(frequency > 200, "{frequency} of 400 by frequency");
}

#[test]
fn what_is_read_often_outlives_what_was_read_once() {
    let store = store(false);
    store.count_reads(Some(10));
    let mut session = store.session();
    let batch = session.enter(NOW);
    for n in 0..1000 {
        set(&batch, 0, &format!("often:{n}"), None);
        set(&batch, 0, &format!("once:{n}"), None);
    }
    (0..1000).for_each(|n| {
        (0..120).for_each(|_| assert!(read(&batch, &format!("often:{n}"))));
        assert!(read(&batch, &format!("once:{n}")));
    });
    let evicted: Vec<_> =
        (0..600).filter_map(|_| evict(&batch, &any(Order::Frequency, 10))).collect();
    let often = evicted.iter().filter(|key| key.starts_with("often:")).count();
    // By chance, half of them.
    assert!(evicted.len() == 600 && often < 180, "{often} of 600 had been read often");
}

#[test]
fn what_expires_soonest_goes_first() {
    let store = store(false);
    let mut session = store.session();
    let batch = session.enter(NOW);
    for n in 0..10_000 {
        // Neighbours in name are not neighbours in time.
        let rank = n * 7919 % 10_000;
        set(&batch, 0, &format!("{rank}"), Some(NOW + 1 + rank));
    }
    let how =
        Eviction { order: Order::Expiry, volatile: true, samples: 10, lying: Lying::Anywhere };
    let ranks = (0..1000).map(|_| evict(&batch, &how).expect("all may go"));
    let sum: u64 = ranks.map(|key| key.parse::<u64>().expect("a rank")).sum();
    // Of ten, the first is at an eleventh of them all on average.
    assert!(sum / 1000 < 2000, "the mean rank is {}", sum / 1000);
}

#[test]
fn threads_that_write_and_evict_keep_the_books() {
    const THREADS: i64 = 4;
    const ROUNDS: i64 = 20_000;
    let store = store(false);
    let evicted = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, evicted) = (&store, &evicted);
            scope.spawn(move || {
                let mut session = store.session();
                for n in 0..ROUNDS {
                    let batch = session.enter(NOW);
                    set(&batch, 0, &format!("{thread}:{n}"), (n % 3 == 0).then_some(NOW + 1000));
                    let order = [Order::Recency, Order::Random, Order::Expiry][n as usize % 3];
                    let volatile = order == Order::Expiry;
                    let how = Eviction { order, volatile, samples: 5, lying: Lying::Anywhere };
                    if n > 500 && batch.evict(&how).is_some() {
                        evicted.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    let left = THREADS * ROUNDS - evicted.load(Relaxed);
    assert_eq!(store.keys(0) as i64, left);
    let mut session = store.session();
    let batch = session.enter(NOW);
    let (mut seen, mut cursor) = (0, 0);
    loop {
        cursor = batch.scan(0, cursor, 1000, |_, _| seen += 1);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen, left);
    while batch.evict(&any(Order::Recency, 5)).is_some() {}
    assert_eq!((store.keys(0), store.expiring(0)), (0, 0));
    assert_eq!(store.type_memory(Type::String).allocated, 0);
}

#[test]
fn nobody_waits_for_slots_that_somebody_has_for_long() {
    let store = store(false);
    let (mut session, mut other) = (store.session(), store.session());
    let batch = session.enter(NOW);
    (0..1000).for_each(|n| set(&batch, 0, &format!("key:{n}"), None));
    let taken = store.key(b"key:1").slot();
    store.rest(true);
    batch.part(0, &[taken]);
    assert!(!store.is_one(store.place(0, taken), taken ^ 1), "its neighbour is under its lock");
    let held = batch.hold([(0, store.key(b"key:1"))]);
    let others = other.enter(NOW);
    // All go but those that are held.
    let stay = (0..1000).filter(|n| store.key(format!("key:{n}").as_bytes()).slot() == taken);
    let stay = stay.count() as u64;
    while store.keys(0) > stay {
        assert_ne!(evict(&others, &any(Order::Recency, 5)).as_deref(), Some("key:1"));
    }
    assert!(others.evict(&any(Order::Random, 1)).is_none());
    drop((others, held));
    store.rest(false);
    // Sparse pages are folded again.
    (0..100).for_each(|_| batch.tidy());
    assert!(store.is_one(store.place(0, taken), taken ^ 1));
    assert!(read(&batch, "key:1"));
}

#[test]
fn a_key_that_may_go_is_found_among_expired_ones_of_other_databases() {
    for _ in 0..20 {
        let store = store(false);
        let mut session = store.session();
        let batch = session.enter(NOW);
        (0..9).for_each(|n| set(&batch, 1, &format!("expired:{n}"), Some(NOW + 1)));
        set(&batch, 0, "goes", Some(NOW + 1000));
        batch.set_now(NOW + 2);
        let how =
            Eviction { order: Order::Expiry, volatile: true, samples: 3, lying: Lying::Anywhere };
        let key = batch.key(b"goes");
        while batch.lock(0, &key).find(&key).is_some() {
            // An expired one may go first.
            assert!(batch.evict(&how).is_some());
        }
    }
}
