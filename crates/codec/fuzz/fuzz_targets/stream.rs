//! Any bytes under a streamed header unpack over segments or fail, within the
//! bound; whatever is packed as a stream comes back, abandoned ones before it
//! or not.
#![no_main]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use snug_codec::stream::{self, Pace};
use snug_codec::{Codec, NoDictionaries, Segments, Workspace, WorkspaceConfig};

const RAW_LEN_MAX: usize = 1 << 19;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
    static WS: RefCell<Workspace> = RefCell::new(Workspace::new(WorkspaceConfig::default()));
}

/// A clock that ticks when it is asked: with slices of no time, a pause after
/// each piece.
struct Always;

impl Pace for Always {
    fn now_ns(&self) -> u64 {
        NOW.with(|now| now.replace(now.get() + 1))
    }

    async fn pause(&self) {
        let mut paused = false;
        std::future::poll_fn(|_| match std::mem::replace(&mut paused, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

fn drive<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| WS.with_borrow_mut(|ws| {
    let Some((first, rest)) = input.split_first() else { return };
    let Some(codec) = Codec::from_number(first & 7) else { return };
    let mut packed = vec![0x18 | codec.number()];
    packed.extend_from_slice(rest);
    let packed = Segments::from(&packed[..]);
    let unpacked = drive(stream::unpack(ws, &packed, &NoDictionaries, RAW_LEN_MAX, &Always, 0), 1000);
    if let Some(Ok(out)) = unpacked {
        assert!(out.len() <= RAW_LEN_MAX);
    }
    let raw = Segments::from(&rest.repeat(1 + usize::from(first >> 3) * 8)[..]);
    let _ = drive(stream::pack(ws, codec, 3, &raw, &Always, 0), usize::from(first >> 3) % 4);
    let packed = drive(stream::pack(ws, codec, 3, &raw, &Always, 0), usize::MAX);
    let packed = packed.expect("ends").expect("packs");
    let back = drive(stream::unpack(ws, &packed, &NoDictionaries, raw.len(), &Always, 0), usize::MAX);
    assert!(back.expect("ends").expect("unpacks") == raw);
}));
