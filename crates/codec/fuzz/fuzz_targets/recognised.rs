//! Any bytes as a value whose runs were decoded come back or fail, within the
//! bound; the input, its runs recognised, comes back.
#![no_main]

use std::cell::RefCell;

use snug_codec::{NoDictionaries, Workspace, WorkspaceConfig, decode_runs, packed};

const RAW_LEN_MAX: usize = 1 << 18;

thread_local! {
    static WS: RefCell<Workspace> = RefCell::new(Workspace::new(WorkspaceConfig::default()));
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| WS.with_borrow_mut(|ws| {
    // The input as what a frame unpacks to: a block stored in a frame of one
    // segment, behind the head of a recognised value.
    if let Some((len, decoded)) = input.split_first_chunk::<2>() {
        let raw_len = usize::from(u16::from_le_bytes(*len));
        let mut form = vec![0x18 | 7];
        form.extend([raw_len as u8 | 0x80, (raw_len >> 7) as u8 | 0x80, (raw_len >> 14) as u8]);
        assert_eq!(packed::raw_len(&form), Ok(raw_len));
        form.extend([0x00, 0x38]);
        let last_stored = 1 | (decoded.len() as u32) << 3;
        form.extend_from_slice(&last_stored.to_le_bytes()[..3]);
        form.extend_from_slice(decoded);
        let mut out = Vec::new();
        match ws.unpack(&form, &NoDictionaries, &mut out, RAW_LEN_MAX) {
            Ok(()) => assert_eq!(out.len(), raw_len),
            Err(_) => assert!(out.is_empty()),
        }
    }
    let (mut form, mut out) = (Vec::new(), Vec::new());
    ws.pack_recognised(1, None, input, &mut form).expect("packs");
    ws.unpack(&form, &NoDictionaries, &mut out, RAW_LEN_MAX).expect("comes back");
    assert!(out == input);
    out.clear();
    if !decode_runs(input, &mut out) {
        assert!(out.is_empty());
    }
}));
