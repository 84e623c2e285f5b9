//! Any body under a lz4 header unpacks or fails, within the bound asked for; and
//! whatever bytes are packed with lz4 come back.
#![no_main]

use snug_codec::Codec;

#[path = "../unpack.rs"]
mod unpack;

libfuzzer_sys::fuzz_target!(|input: &[u8]| unpack::check(Codec::Lz4, input));
