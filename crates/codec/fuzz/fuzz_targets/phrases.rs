//! Any bytes as a table of phrases are one that packs, or are refused; any body
//! unpacks with a table or fails, within the bound; the input, packed, comes back,
//! with what makes the longest phrases behind it too.
#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use snug_codec::{Codec, Dictionary, Workspace, WorkspaceConfig};

const RAW_LEN_MAX: usize = 1 << 18;

thread_local! {
    static KEPT: RefCell<(Workspace, Arc<Dictionary>, String)> = RefCell::new({
        // Short phrases, and some of the greatest length.
        let notice: String = (0..40u32).map(|n| format!("{:x} ", n.wrapping_mul(0x9E37_79B1))).collect();
        let text = |i: u32| match i % 4 {
            0 => format!("{i} {notice}"),
            _ => format!("{{\"user\":{i},\"ok\":{}}}", i % 3),
        };
        let texts: Vec<String> = (0..500).map(text).collect();
        let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let dictionary = Dictionary::train_phrases(&samples, 4096, 3).expect("trains").with_id(1);
        (Workspace::new(WorkspaceConfig::default()), Arc::new(dictionary), notice)
    });
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| KEPT.with_borrow_mut(|(ws, dictionary, notice)| {
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
        // The input, and with long phrases behind it.
        let notice = &notice.as_bytes()[..usize::from(*first).min(notice.len())];
        for raw in [input, &[rest, notice].concat()] {
            form.clear();
            ws.pack(Codec::Zstd, 3, Some(dictionary), raw, &mut form).expect("packs");
            out.clear();
            ws.unpack(&form, dictionary, &mut out, RAW_LEN_MAX).expect("comes back");
            assert!(out == *raw);
        }
    }
}));
