//! The shortest ways through the store, so often, for counting their instructions:
//!
//! ```text
//!  cargo build --release -p snug-store --example paths
//!  valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!      target/release/examples/paths set 100000
//! ```
//!
//! What one operation takes is the difference between two counts, divided by the
//! difference between their operations. `set` replaces strings of 64 bytes, `get`
//! reads them, `incr` adds to integers, `xadd` appends entries of two fields to one
//! stream.

use snug_store::types::stream::ops::AddEntry;
use snug_store::types::stream::{Shape, StreamId};
use snug_store::{Batch, Event, NewStr, Set, SetExpiry, Store, StoreConfig, Str, Unobserved};
use std::hint::black_box;

#[global_allocator]
static ALLOCATOR: snug_store::memory::Allocator = snug_store::memory::Allocator;

const NOW: u64 = 1_700_000_000_000;
const KEYS: u64 = 1000;

fn set(batch: &Batch<'_>, name: &[u8], value: NewStr<'_>) {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find_replaced(&key);
    slot.apply(&key, found, Set::to(value), Event::NONE);
}

fn get(batch: &Batch<'_>, name: &[u8]) -> usize {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key).expect("all keys are there");
    match slot.string(found) {
        Some(Str::Bytes(bytes)) => black_box(bytes).len(),
        other => panic!("{other:?}"),
    }
}

fn incr(batch: &Batch<'_>, name: &[u8]) {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key).expect("all keys are there");
    let Some(Str::Int(value)) = slot.string(found) else { panic!("no integer") };
    let set = Set { value: NewStr::Int(value + 1), expiry: SetExpiry::Keep };
    slot.apply(&key, Some(found), set, Event::NONE);
}

fn xadd(batch: &Batch<'_>, name: &[u8], ms: u64) {
    let key = batch.key(name);
    let mut slot = batch.lock(0, &key);
    let found = slot.find(&key);
    let fields = [(&b"sensor"[..], &b"seventeen"[..]), (b"value", b"20.5")];
    let id = StreamId::new(ms, 0);
    let entry = AddEntry { id, fields: fields.into_iter(), shape: &Shape::default() };
    assert!(slot.apply(&key, found, entry, Event::NONE).is_ok());
}

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let times: u64 = args.next().and_then(|times| times.parse().ok()).unwrap_or(0);
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let mut session = store.session();
    let batch = session.enter(NOW);
    let names: Vec<Vec<u8>> = (0..KEYS).map(|n| format!("key:{n:06}").into_bytes()).collect();
    for name in &names {
        match what.as_str() {
            "incr" => set(&batch, name, NewStr::Int(1 << 40)),
            _ => set(&batch, name, NewStr::Bytes(&[b'x'; 64])),
        }
    }
    for n in 0..times {
        let name = &names[(n % KEYS) as usize];
        match what.as_str() {
            "set" => set(&batch, name, NewStr::Bytes(&[b'y'; 64])),
            "get" => drop(black_box(get(&batch, name))),
            "incr" => incr(&batch, name),
            "xadd" => xadd(&batch, b"stream", n + 1),
            other => panic!("{other:?} is none of set, get, incr, xadd"),
        }
    }
}
