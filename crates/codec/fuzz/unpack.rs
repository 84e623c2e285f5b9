//! What every codec's fuzz target checks.

use std::cell::RefCell;
use std::sync::Arc;

use snug_codec::{Codec, Dictionary, Workspace, WorkspaceConfig};

const RAW_LEN_MAX: usize = 1 << 18;

thread_local! {
    static KEPT: RefCell<(Workspace, Arc<Dictionary>)> = RefCell::new({
        let texts: Vec<String> = (0..500).map(|i| format!("{{\"user\":{i},\"ok\":{}}}", i % 3)).collect();
        let samples: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let dictionary = Dictionary::train_with(&samples, 4096, 3, 1).expect("trains").with_id(1);
        (Workspace::new(WorkspaceConfig::default()), Arc::new(dictionary))
    });
}

/// The input is a packed form's header fields and body; its tail, packed, comes back.
pub fn check(codec: Codec, input: &[u8]) {
    KEPT.with_borrow_mut(|(ws, dictionary)| {
        let mut out = Vec::new();
        if let Some((first, rest)) = input.split_first() {
            let mut packed = vec![(first & 0x38) | codec.number()];
            packed.extend_from_slice(rest);
            match ws.unpack(&packed, dictionary, &mut out, RAW_LEN_MAX) {
                Ok(()) => assert!(out.len() <= RAW_LEN_MAX),
                Err(_) => assert!(out.is_empty()),
            }
        }
        let with = (codec == Codec::Zstd && input.len() % 2 == 1).then_some(&**dictionary);
        let mut packed = Vec::new();
        ws.pack(codec, 3, with, input, &mut packed).expect("packs");
        out.clear();
        ws.unpack(&packed, dictionary, &mut out, RAW_LEN_MAX).expect("comes back");
        assert!(out == input);
    });
}
