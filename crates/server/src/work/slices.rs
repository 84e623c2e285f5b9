//! Codec work in slices of `pack-slice-us`, between which a worker's clients have
//! their turn.

use crate::config::{Config, Param};
use crate::outside::clock::Instant;
use snug_codec::stream::Pace;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long slices took, on all workers.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    count: AtomicU64,
    longest_us: AtomicU64,
}

impl Slices {
    /// Takes note of one.
    pub(crate) fn took(&self, ns: u64) {
        self.count.fetch_add(1, Relaxed);
        self.longest_us.fetch_max(ns / 1000, Relaxed);
    }

    /// How many there were, and the longest in microseconds.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.longest_us.load(Relaxed))
    }

    /// Back to zero, as `CONFIG RESETSTAT` does.
    pub(crate) fn reset(&self) {
        self.count.store(0, Relaxed);
        self.longest_us.store(0, Relaxed);
    }
}

/// The pace of a worker: slices, then everybody else's turn. Clones go on together.
#[derive(Clone)]
pub(crate) struct InSlices {
    began: Instant,
    slices: Arc<Slices>,
    worked_ns: Arc<AtomicU64>,
}

snug_codec::any_pace!(InSlices);

impl InSlices {
    /// What its slices take is noted there.
    pub(crate) fn new(slices: &Arc<Slices>) -> Self {
        let slices = Arc::clone(slices);
        Self { began: Instant::now(), slices, worked_ns: Arc::default() }
    }

    /// How long its slices took, without what was between them.
    pub(crate) fn worked(&self) -> Duration {
        Duration::from_nanos(self.worked_ns.load(Relaxed))
    }
}

impl Pace for InSlices {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    async fn pause(&self) {
        tokio::task::yield_now().await;
    }

    fn sliced(&self, took_ns: u64) {
        self.slices.took(took_ns);
        self.worked_ns.fetch_add(took_ns, Relaxed);
    }
}

/// How long a slice is to be, in nanoseconds.
pub(crate) fn slice_ns(config: &Config) -> u64 {
    config.number(Param::PackSliceUs) as u64 * 1000
}

/// Work that pauses after each slice.
pub(crate) type InTurns<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Works for one slice; what came of it if that was the last. Whoever asks comes
/// again by itself.
pub(crate) fn slice<T>(work: &mut InTurns<T>) -> Option<T> {
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}
