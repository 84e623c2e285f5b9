//! Any bytes as an array that was taken apart, or as strings of a block, come back or fail,
//! within the bound; the input, packed by its looks and as strings, comes back.
#![no_main]

use std::cell::RefCell;

use snug_codec::{NoDictionaries, Workspace, WorkspaceConfig, packed};

const RAW_LEN_MAX: usize = 1 << 16;

thread_local! {
    static WS: RefCell<Workspace> = RefCell::new(Workspace::new(WorkspaceConfig::default()));
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| WS.with_borrow_mut(|ws| {
    let mut out = Vec::new();
    if let Some((kind, rest)) = input.split_first() {
        let form = [&[0x80 | kind >> 2], rest].concat();
        match ws.unpack(&form, &NoDictionaries, &mut out, RAW_LEN_MAX) {
            Ok(()) => assert_eq!(Ok(out.len()), packed::raw_len(&form)),
            Err(_) => assert!(out.is_empty()),
        }
    }
    let raw = input.repeat(1 + 200 / (input.len() + 1));
    let (mut form, mut out) = (Vec::new(), Vec::new());
    ws.pack_by_looks(1, None, &raw, &mut form).expect("packs");
    ws.unpack(&form, &NoDictionaries, &mut out, 1 << 20).expect("comes back");
    assert!(out == raw);
    let strings: Vec<&[u8]> = input.split(|&byte| byte == b'\n').collect();
    // Below 128 a length is one byte.
    if strings.iter().all(|string| string.len() < 128) {
        let mut counted = vec![packed::STRINGS_MARK];
        for string in &strings {
            counted.push(string.len() as u8);
            counted.extend_from_slice(string);
        }
        (form, out) = (Vec::new(), Vec::new());
        ws.pack_strings(1, None, &strings, &counted, &mut form).expect("packs");
        ws.unpack(&form, &NoDictionaries, &mut out, counted.len()).expect("comes back");
        assert!(out == counted);
    }
}));
