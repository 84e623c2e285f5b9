//! Any bytes under a streamed header unpack over segments or fail, within the
//! bound; whatever is packed as a stream comes back, abandoned ones before it
//! or not.
#![no_main]

use std::cell::RefCell;

use snug_codec::stream::{self, Turns, drive};
use snug_codec::{Codec, NoDictionaries, Segments, Workspace, WorkspaceConfig};

const RAW_LEN_MAX: usize = 1 << 19;

thread_local! {
    static WS: RefCell<Workspace> = RefCell::new(Workspace::new(WorkspaceConfig::default()));
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| WS.with_borrow_mut(|ws| {
    let Some((first, rest)) = input.split_first() else { return };
    let Some(codec) = Codec::from_number(first & 7) else { return };
    let mut packed = vec![0x18 | codec.number()];
    packed.extend_from_slice(rest);
    let packed = Segments::from(&packed[..]);
    let pace = &Turns::default();
    let unpacked = drive(stream::unpack(ws, &packed, &NoDictionaries, RAW_LEN_MAX, pace, 0), 1000);
    if let Some(Ok(out)) = unpacked {
        assert!(out.len() <= RAW_LEN_MAX);
    }
    let raw = Segments::from(&rest.repeat(1 + usize::from(first >> 3) * 8)[..]);
    let _ = drive(stream::pack(ws, codec, 3, &raw, pace, 0), usize::from(first >> 3) % 4);
    let packed = drive(stream::pack(ws, codec, 3, &raw, pace, 0), usize::MAX);
    let packed = packed.expect("ends").expect("packs");
    let back = drive(stream::unpack(ws, &packed, &NoDictionaries, raw.len(), pace, 0), usize::MAX);
    assert!(back.expect("ends").expect("unpacks") == raw);
}));
