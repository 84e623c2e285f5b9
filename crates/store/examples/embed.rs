//! The keyspace without a server: `cargo run -p snug-store --example embed`.

use snug_store::types::stream::ops::AddEntry;
use snug_store::types::stream::{Shape, StreamId};
use snug_store::{Event, NewStr, Set, SetExpiry, Store, StoreConfig, Str, Type, Unobserved};

#[global_allocator]
static ALLOCATOR: snug_store::memory::Allocator = snug_store::memory::Allocator;

fn main() {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let mut session = store.session();
    let now = 1_700_000_000_000;

    // A million short strings, in batches: a batch is to be short.
    let before = snug_store::memory::used();
    for thousand in 0..1000 {
        let batch = session.enter(now);
        for n in thousand * 1000..(thousand + 1) * 1000 {
            let (name, value) = (format!("key:{n}"), format!("value:{n}"));
            let key = batch.key(name.as_bytes());
            let mut slot = batch.lock(0, &key);
            let found = slot.find(&key);
            slot.apply(&key, found, Set::to(NewStr::Bytes(value.as_bytes())), Event::NONE);
        }
    }
    let bytes = snug_store::memory::used() - before;
    println!("{} keys, {:.1} bytes each", store.keys(0), bytes as f64 / 1e6);

    // A key that lives for a second.
    let batch = session.enter(now);
    let key = batch.key(b"session:1");
    let ann = Set { value: NewStr::Bytes(b"ann"), expiry: SetExpiry::At(now + 1000) };
    batch.lock(0, &key).apply(&key, None, ann, Event::NONE);
    batch.set_now(now + 999);
    assert!(batch.lock(0, &key).find(&key).is_some());
    batch.set_now(now + 1000);
    assert!(batch.lock(0, &key).find(&key).is_none());

    // Two keys changed in one atomic step.
    let (a, b) = (batch.key(b"a"), batch.key(b"b"));
    {
        let _held = batch.hold([(0, a), (0, b)]);
        batch.lock(0, &a).apply(&a, None, Set::to(NewStr::Int(1)), Event::NONE);
        batch.lock(0, &b).apply(&b, None, Set::to(NewStr::Int(2)), Event::NONE);
    }
    let mut slot = batch.lock(0, &b);
    let found = slot.find(&b).expect("it was just set");
    assert!(matches!(slot.string(found), Some(Str::Int(2))));
    drop(slot);

    // A stream.
    let key = batch.key(b"events");
    let mut slot = batch.lock(0, &key);
    let mut found = None;
    for n in 1..=1000 {
        let fields: [(&[u8], &[u8]); 2] = [(b"kind", b"read"), (b"region", b"eu-west")];
        let id = StreamId { ms: now + n, seq: 0 };
        let entry = AddEntry { id, fields: fields.into_iter(), shape: &Shape::default() };
        found = slot.apply(&key, found, entry, Event::NONE).ok();
        assert!(found.is_some());
    }
    drop(slot);
    println!("streams take {} bytes", store.type_memory(Type::Stream).allocated);
}
