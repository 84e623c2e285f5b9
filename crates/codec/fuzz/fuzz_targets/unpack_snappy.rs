//! Any body under a snappy header unpacks or fails, within the bound asked for; and
//! whatever bytes are packed with snappy come back.
#![no_main]

use snug_codec::Codec;

#[path = "../unpack.rs"]
mod unpack;

libfuzzer_sys::fuzz_target!(|input: &[u8]| unpack::check(Codec::Snappy, input));
