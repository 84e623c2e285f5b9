//! Drives futures without a runtime, for tests of work in slices.

use snug_codec::stream::Pace;
use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A clock that ticks when it is asked, so that slices end after a piece or two,
/// and a pause that goes back to whoever polls.
#[derive(Default)]
pub(crate) struct Turns(Cell<u64>);

impl Pace for Turns {
    fn now_ns(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    async fn pause(&self) {
        let mut paused = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Polls a future at most `polls` times.
pub(crate) fn drive<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    })
}
