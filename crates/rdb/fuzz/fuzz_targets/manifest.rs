//! Any text as the manifest of an append-only file: an error, or what is written as it was
//! read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use snug_rdb::manifest::Manifest;

fuzz_target!(|text: &str| {
    if let Ok(manifest) = Manifest::parse(text) {
        assert_eq!(Manifest::parse(&manifest.text()), Ok(manifest));
    }
});
