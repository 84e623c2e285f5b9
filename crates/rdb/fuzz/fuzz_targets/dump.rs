//! Any bytes as the value of a dump: an error, or a value that is dumped and restored again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use snug_rdb::{Options, dump, restore, seal};
use snug_store::types::stream::StreamScratch;
use snug_store::{Limits, Store, StoreConfig, Unobserved};

fuzz_target!(|bytes: &[u8]| {
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let (session, limits) = (store.session(), Limits::DEFAULT);
    let mut making = session.making(&limits);
    let _ = restore(std::iter::once(bytes), &mut making);
    let payload = seal(bytes, 12);
    if restore(payload.chunks(7), &mut making).is_err() {
        return;
    }
    let Some(value) = making.finish(&store.key(b"k"), None, None) else { return };
    let options = Options { version: 12, ..Options::DEFAULT };
    let payload = dump(&value, options, (&session, &mut StreamScratch::new())).expect("a dump");
    restore(payload.chunks(1000), &mut making).expect("it is restored");
});
