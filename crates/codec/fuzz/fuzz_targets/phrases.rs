//! Any bytes as a table of phrases are one that packs, or are refused; any body
//! unpacks with a table or fails, within the bound; the input, packed, comes back.
#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use snug_codec::{Codec, Dictionary, Workspace, WorkspaceConfig};

const RAW_LEN_MAX: usize = 1 << 18;

thread_local! {
    static KEPT: RefCell<(Workspace, Arc<Dictionary>)> = RefCell::new({
        let texts: Vec<String> = (0..500).map(|i| format!("{{\"user\":{i},\"ok\":{}}}", i % 3)).collect();
        let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let dictionary = Dictionary::train_phrases(&samples, 4096, 3).expect("trains").with_id(1);
        (Workspace::new(WorkspaceConfig::default()), Arc::new(dictionary))
    });
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| KEPT.with_borrow_mut(|(ws, dictionary)| {
    let Some((first, rest)) = input.split_first() else { return };
    // The table: the input, or the trained one with the input written into it.
    let bytes = if first & 1 == 0 {
        [b"SPH1", rest].concat()
    } else {
        let mut bytes = dictionary.bytes().to_vec();
        let at = usize::from(*first) * bytes.len() / 256;
        let len = rest.len().min(bytes.len() - at);
        bytes[at..at + len].copy_from_slice(&rest[..len]);
        bytes
    };
    let other = Dictionary::from_bytes(1, &bytes, 3).ok().map(Arc::new);
    for dictionary in other.iter().chain([&*dictionary]) {
        let mut out = Vec::new();
        // Codec 0 with a dictionary, its id and the length in three bytes.
        let mut form = vec![0x08, *first, 0x10, 0];
        form.extend_from_slice(rest);
        match ws.unpack(&form, dictionary, &mut out, RAW_LEN_MAX) {
            Ok(()) => assert_eq!(out.len(), usize::from(*first)),
            Err(_) => assert!(out.is_empty()),
        }
        let mut form = Vec::new();
        ws.pack(Codec::Zstd, 3, Some(dictionary), input, &mut form).expect("packs");
        out.clear();
        ws.unpack(&form, dictionary, &mut out, RAW_LEN_MAX).expect("comes back");
        assert!(out == input);
    }
}));
