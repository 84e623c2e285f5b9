//! Keys that cool: packed with their values, found under whatever form they have.

use snug_codec::{Workspace, WorkspaceConfig};
use snug_store::{
    Batch, Cooling, Delete, Event, MinSaving, Names, NewStr, PieceParams, Set, Store, StoreConfig,
    Type, Unobserved,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;
const PARAMS: PieceParams =
    PieceParams { min_size: 16, min_saving: MinSaving(30), level: 3, ..PieceParams::DEFAULT };
const KEYS: usize = if cfg!(miri) { 200 } else { 3000 };

fn set(batch: &Batch<'_>, name: &[u8], value: &[u8]) {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key);
    slot.apply(&key, found, Set::to(NewStr::Bytes(value)), Event::NONE);
}

/// Keys as applications have them, and some that nobody has.
fn name(n: usize) -> Vec<u8> {
    let mixed = (n as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let hex = format!("{mixed:032x}");
    let text = match n % 6 {
        0 => format!(
            "session:{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        ),
        1 => format!(":1:views.decorators.cache.cache_page.{hex}"),
        2 => format!("user:{:09}:profile", mixed % 1_000_000_000),
        3 => format!("{{order:{n}}}:lines:{}", hex.to_ascii_uppercase()),
        4 => format!("counter/{}/{}", ["ada", "bob", "cleo"][n / 6 % 3], mixed >> 64),
        _ => {
            return mixed
                .to_le_bytes()
                .iter()
                .copied()
                .cycle()
                .take(n % 300)
                .chain(n.to_le_bytes())
                .collect();
        }
    };
    text.into_bytes()
}

fn value(n: usize) -> Vec<u8> {
    match n % 3 {
        0 => n.to_string().into_bytes(),
        1 => format!(r#"{{"id":{n},"name":"somebody","plan":"free","visits":{}}}"#, n * 7)
            .into_bytes(),
        _ => b"raw".repeat(n % 4),
    }
}

fn pass(store: &Arc<Store>, batch: &Batch<'_>, cooling: &mut Cooling) {
    let (beside, mut jobs, mut room) = (store.session(), Vec::new(), Vec::new());
    let mut workspace = Workspace::new(WorkspaceConfig::default());
    cooling.begin(&beside, &PARAMS);
    while !cooling.is_done() {
        cooling.step(batch, &PARAMS, false, &mut jobs, &mut Names::default());
        for mut job in jobs.drain(..) {
            job.prepare(&beside, &PARAMS, Some(&mut workspace));
            job.run_at_once(&mut workspace, &mut room);
            batch.install(&mut job);
        }
    }
}

/// Bytes of a key as it lies, and bytes allocated for it and its value.
fn weight(batch: &Batch<'_>, name: &[u8]) -> (usize, usize) {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find_untouched(&key).expect("the key is there");
    assert_eq!(&*slot.key(found), name);
    let anatomy = slot.anatomy(found);
    assert!(anatomy.allocated <= anatomy.allocated_raw, "{anatomy:?}");
    (anatomy.key, anatomy.allocated)
}

/// All that walks over the store find.
fn walked(batch: &Batch<'_>) -> usize {
    let (mut found, mut cursor) = (0, 0);
    loop {
        cursor = batch.scan(0, cursor, 100, |_, _| found += 1);
        if cursor == 0 {
            return found;
        }
    }
}

#[test]
fn keys_are_packed_when_they_cool_and_found_all_the_while() {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let mut session = store.session();
    let batch = session.enter(NOW);
    let all: BTreeMap<Vec<u8>, usize> = (0..KEYS).map(|n| (name(n), n)).collect();
    for (name, &n) in &all {
        set(&batch, name, &value(n));
    }
    let hot: Vec<_> = all.keys().map(|name| weight(&batch, name)).collect();
    let mut cooling = Cooling::new(0, 1);
    // Three passes to cool, and one more after the last text was learnt.
    (0..6).for_each(|_| pass(&store, &batch, &mut cooling));

    let mut packed = 0;
    for ((name, &n), (plain, before)) in all.iter().zip(hot) {
        let (len, allocated) = weight(&batch, name);
        assert_eq!(plain, name.len());
        assert!(len <= plain && allocated <= before, "{}", name.escape_ascii());
        packed += usize::from(len < plain);
        let key = batch.key(name);
        let mut slot = batch.lock(0, &key);
        let found = slot.find(&key).expect("the key is there");
        let bytes = slot.string(found).expect("a string").to_bytes().expect("whole").into_owned();
        assert_eq!(bytes, value(n));
        drop(slot);
        // Nobody else is found in its place.
        let (last, rest) = name.split_last().expect("a key has a byte");
        for other in [rest.to_vec(), [rest, &[last ^ 1]].concat(), [name, &b"0"[..]].concat()] {
            let key = batch.key(&other);
            let found = batch.lock(0, &key).find_untouched(&key).is_some();
            assert_eq!(found, all.contains_key(&other));
        }
    }
    assert!(packed > KEYS / 2, "{packed}");
    assert_eq!(walked(&batch), all.len());

    // What is written lies plain again.
    for (name, &n) in &all {
        if n % 3 == 2 {
            set(&batch, name, b"written anew");
            assert_eq!(weight(&batch, name).0, name.len());
        }
    }

    // Nothing of it is counted any more when all are gone.
    for name in all.keys() {
        let key = batch.key(name);
        let mut slot = batch.lock(0, &key);
        let found = slot.find(&key);
        slot.apply(&key, found, Delete, Event::NONE);
    }
    let memory = store.type_memory(Type::String);
    assert_eq!((memory.allocated, memory.raw_values, memory.packed_values), (0, 0, 0));
}
