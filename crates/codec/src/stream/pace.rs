//! Work in slices: what it asks of whoever drives it, and how it keeps to its time.
//!
//! ```text
//!  work    [ piece ][ piece ][ piece ]  pause  [ piece ][ piece ]  pause ...
//!          └──────── slice_ns ───────┘         └──── slice_ns ───┘
//! ```
//!
//! Whoever works tells [`Pieces`] of each piece done. Where pieces can be of any
//! size, they grow and shrink with the time that the last one took, so that a slice
//! keeps to its time at any level and on any data; the least is
//! [`PIECE_BYTES_MIN`]. A piece costs one look at the clock.

use crate::SEGMENT_BYTES;
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The smallest piece that is given to a codec at once.
pub const PIECE_BYTES_MIN: usize = 4096;

/// What work in slices asks of the runtime that drives it.
pub trait Pace {
    /// A clock that never goes back, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Lets others have their turn.
    fn pause(&self) -> impl Future<Output = ()>;

    /// Told how long each slice took, for those who keep count.
    fn sliced(&self, _took_ns: u64) {}
}

/// The pace of one slice, however long it is: never pauses.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtOnce;

impl Pace for AtOnce {
    fn now_ns(&self) -> u64 {
        0
    }

    async fn pause(&self) {}
}

impl AtOnce {
    /// The output of what was begun at this pace. Panics if it waits for anything
    /// but its pace.
    pub fn run<T>(work: impl Future<Output = T>) -> T {
        drive(work, 1).unwrap_or_else(|| unreachable!("work at this pace waits for nothing"))
    }
}

/// The pace of work that takes turns with whoever [drives](drive) it: a clock that
/// goes on by 1 when it is asked, so that slices of no time end after each piece,
/// and a pause that ends at the next poll. For those who have no runtime.
#[derive(Debug, Default)]
pub struct Turns(Cell<u64>);

impl Pace for Turns {
    fn now_ns(&self) -> u64 {
        self.0.replace(self.0.get() + 1)
    }

    async fn pause(&self) {
        let mut paused = false;
        let turn = |_: &mut Context<'_>| {
            if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }
        };
        std::future::poll_fn(turn).await;
    }
}

/// Polls `work` at most so many times, and then drops it; its output, if that was
/// enough.
pub fn drive<T>(work: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match work.as_mut().poll(&mut context) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    })
}

/// Keeps slices to their time: whoever works calls [`stepped`](Self::stepped)
/// after each piece of it.
#[derive(Debug)]
pub struct Pieces<'p, P> {
    pace: &'p P,
    slice_ns: u64,
    /// The next piece's size.
    pub(super) bytes: usize,
    slice_began: u64,
    piece_began: u64,
}

impl<'p, P: Pace> Pieces<'p, P> {
    /// Begins the first slice.
    pub fn new(pace: &'p P, slice_ns: u64) -> Self {
        let now = pace.now_ns();
        let bytes = 4 * PIECE_BYTES_MIN;
        Self { pace, slice_ns, bytes, slice_began: now, piece_began: now }
    }

    /// After each piece: pauses if the next one might not fit the slice.
    pub async fn stepped(&mut self) {
        let now = self.pace.now_ns();
        let took = now.saturating_sub(self.piece_began);
        // Half a slice a piece at most; doubled when four would fit.
        if took > self.slice_ns / 2 {
            self.bytes = (self.bytes / 2).max(PIECE_BYTES_MIN);
        } else if took < self.slice_ns / 8 {
            self.bytes = (self.bytes * 2).min(SEGMENT_BYTES);
        }
        self.piece_began = now;
        if now.saturating_sub(self.slice_began) + 2 * took > self.slice_ns {
            self.pace.sliced(now.saturating_sub(self.slice_began));
            self.pace.pause().await;
            self.slice_began = self.pace.now_ns();
            self.piece_began = self.slice_began;
        }
    }

    /// Tells of the last slice.
    pub fn finished(&self) {
        self.pace.sliced(self.pace.now_ns().saturating_sub(self.slice_began));
    }
}
