//! Any bytes as a file of Snug's format, with its sums put right: an error, or values that
//! can be read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use snug_rdb::{Options, dump};
use snug_store::image::{ImageReader, Part, Trust, sum_anew};
use snug_store::types::stream::StreamScratch;
use snug_store::{Limits, Store, StoreConfig, Unobserved};

fuzz_target!(|bytes: &[u8]| {
    let mut file = bytes.to_vec();
    sum_anew(&mut file);
    let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
    let (session, limits) = (store.session(), Limits::DEFAULT);
    let Ok(mut reader) = ImageReader::new(&file[..], &session, &limits, Trust::Nobody) else {
        return;
    };
    while let Ok(part) = reader.next() {
        match part {
            Part::Entry(_, value) => {
                let with = (&session, &mut StreamScratch::new());
                dump(&value, Options::DEFAULT, with).expect("what was checked can be read");
            }
            Part::End => break,
            Part::Aux(..) | Part::Function(_) => {}
        }
    }
});
