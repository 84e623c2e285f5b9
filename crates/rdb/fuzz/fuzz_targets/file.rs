//! Any bytes as an RDB file: an error, or a store that is written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use snug_rdb::{Loading, Meta, Options, ReadOptions, Reader, Writer, load};
use snug_store::types::stream::StreamScratch;
use snug_store::{Store, StoreConfig, Unobserved};

fuzz_target!(|bytes: &[u8]| {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let read = ReadOptions { checksum: false };
    let Ok(mut reader) = Reader::new(bytes, read) else { return };
    if load(&mut reader, &store, &Loading { read, ..Loading::default() }, |_| true).is_err() {
        return;
    }
    let (mut session, with) = (store.session(), store.session());
    let mut writer = Writer::new(Vec::new(), Options::DEFAULT);
    let mut scratch = StreamScratch::new();
    writer.header(&[]).expect("memory takes all");
    let mut keys = 0;
    for db in 0..store.databases() {
        let batch = session.enter(0);
        let mut names = Vec::new();
        batch.scan(db, 0, usize::MAX, |name, _| names.push(name.to_vec()));
        for name in names {
            let key = batch.key(&name);
            let mut slot = batch.lock(db, &key);
            let Some(found) = slot.find_untouched(&key) else { continue };
            let value = slot.duplicate(found);
            drop(slot);
            writer.entry(db, &value, Meta::default(), (&with, &mut scratch)).expect("it is written");
            keys += 1;
        }
    }
    let file = writer.end().expect("memory takes all");
    let again = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let mut reader = Reader::new(&file[..], ReadOptions::DEFAULT).expect("a header");
    let loaded = load(&mut reader, &again, &Loading::default(), |_| true).expect("it is read");
    assert_eq!(loaded.keys, keys);
});
