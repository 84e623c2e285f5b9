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
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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

/// A [`Pace`] as a trait's object: made by [`any_pace`](crate::any_pace).
pub trait AnyPace: Send + Sync {
    /// [`Pace::now_ns`].
    fn now(&self) -> u64;

    /// [`Pace::pause`].
    fn rest(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// [`Pace::sliced`].
    fn worked(&self, took_ns: u64);
}

/// Makes [`AnyPace`]s of types that are [`Pace`]s whose pauses are [`Send`].
#[macro_export]
macro_rules! any_pace {
    ($($pace:ty),*) => {$(
        impl $crate::stream::AnyPace for $pace {
            fn now(&self) -> u64 {
                $crate::stream::Pace::now_ns(self)
            }

            fn rest(
                &self,
            ) -> std::pin::Pin<Box<dyn std::future::Future<Output = ()> + Send + '_>> {
                Box::pin($crate::stream::Pace::pause(self))
            }

            fn worked(&self, took_ns: u64) {
                $crate::stream::Pace::sliced(self, took_ns);
            }
        }
    )*};
}

any_pace!(AtOnce, Turns);

/// Some pace, for work that is itself known only as a trait's object. A pause costs an
/// allocation: nothing beside the slice before it.
#[derive(Clone)]
pub struct SomePace(Arc<dyn AnyPace>);

impl std::fmt::Debug for SomePace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SomePace").finish_non_exhaustive()
    }
}

impl SomePace {
    /// Keeps to this one.
    pub fn of(pace: impl AnyPace + 'static) -> Self {
        Self(Arc::new(pace))
    }
}

impl Pace for SomePace {
    fn now_ns(&self) -> u64 {
        self.0.now()
    }

    async fn pause(&self) {
        self.0.rest().await;
    }

    fn sliced(&self, took_ns: u64) {
        self.0.worked(took_ns);
    }
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
pub struct Turns(AtomicU64);

impl Pace for Turns {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
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
