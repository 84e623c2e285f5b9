//! Any bytes as a packed form of elements come back or fail, within the bound; the input,
//! packed as elements, comes back.
#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use snug_codec::family::TrainingJob;
use snug_codec::{Codec, Dictionary, Workspace, WorkspaceConfig};

const RAW_LEN_MAX: usize = 1 << 16;

thread_local! {
    static KEPT: RefCell<(Workspace, Arc<Dictionary>)> = RefCell::new({
        let mut ws = Workspace::new(WorkspaceConfig::default());
        let sample = |n: u64| -> Box<[u8]> {
            let time = |n: u64| 1_735_689_600 + n * n * 7919 % 100_000;
            let words = [b"one", b"two", b"six", b"ten"];
            let mut raw = vec![0, 10];
            for k in 0..10 {
                raw.push(0xcb);
                raw.extend_from_slice(&(time(n) + k * (n % 90)).to_le_bytes()[..4]);
                raw.push(0x83);
                raw.extend_from_slice(words[(n * 31 / (k + 1)) as usize % 4]);
            }
            raw.into()
        };
        let job = TrainingJob::new((1..500).map(sample).collect());
        let dictionary = job.run(&mut ws, 4096, 3, 1).expect("trains").dictionary;
        assert!(dictionary.bytes().starts_with(b"SPE1"));
        (ws, Arc::new(dictionary.with_id(1)))
    });
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| KEPT.with_borrow_mut(|(ws, dictionary)| {
    let mut out = Vec::new();
    // Version 2, kind 62, the input from the raw length on but for the dictionary's id.
    if let Some((len, rest)) = input.split_first() {
        for head in [vec![0xbe, len & 0x7f, 1], vec![0xbe, 0x80 | len, 0x03, 1]] {
            match ws.unpack(&[&head, rest].concat(), dictionary, &mut out, RAW_LEN_MAX) {
                Ok(()) => assert!(out.len() <= 0x1ff),
                Err(_) => assert!(out.is_empty()),
            }
            out.clear();
        }
    }
    let mut form = Vec::new();
    ws.pack(Codec::Zstd, 3, Some(dictionary), input, &mut form).expect("packs");
    ws.unpack(&form, dictionary, &mut out, input.len()).expect("comes back");
    assert!(out == input);
}));
