//! Freeing what is large on a thread of its own, so that `UNLINK` of a value
//! with millions of parts costs a worker no more than that of a small one.
//!
//! The thread starts with the first large value. What waits for it is memory
//! that was allocated anyway, so its queue is bounded by what the store held.
//!
//! What `INFO` calls `lazyfreed_objects` goes by Redis's rule, which is about the
//! effort of freeing and not about bytes: a stream counts from some 3,200 entries
//! on, a string never, though a large one is freed here too. A database that is
//! flushed in the background counts with all its keys.

use snug_store::{Detached, Extent, Job};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};

/// Values of at least this many bytes are freed in the background ...
const LARGE: usize = 64 * 1024;
/// ... and those with more effort than this, which then count: Redis's threshold.
const EFFORT: usize = 64;

static PENDING: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

static RECLAIMER: LazyLock<Sender<Box<dyn Send>>> = LazyLock::new(|| {
    let (sender, values) = channel::<Box<dyn Send>>();
    let thread = std::thread::Builder::new().name("reclaimer".into());
    let thread = thread.spawn(move || values.into_iter().for_each(drop));
    if let Err(error) = thread {
        tracing::warn!(%error, "could not start the reclaimer, values are freed at once");
    }
    sender
});

/// Objects that wait to be freed, and from its end on have been. To be dropped
/// after them.
#[derive(Debug)]
pub(crate) struct Lazily(u64);

impl Lazily {
    /// Counts so many objects as waiting.
    pub(crate) fn new(objects: u64) -> Self {
        PENDING.fetch_add(objects, Relaxed);
        Self(objects)
    }
}

impl Drop for Lazily {
    fn drop(&mut self) {
        PENDING.fetch_sub(self.0, Relaxed);
        FREED.fetch_add(self.0, Relaxed);
    }
}

/// Objects that wait to be freed in the background, and those that were.
pub(crate) fn lazy_objects() -> (u64, u64) {
    (PENDING.load(Relaxed), FREED.load(Relaxed))
}

/// Forgets how many were freed, as `CONFIG RESETSTAT` does.
pub(crate) fn reset() {
    FREED.store(0, Relaxed);
}

/// Frees a value, in the background if that is much work.
pub(crate) fn reclaim(value: Detached) {
    if value.effort() > EFFORT {
        // In a tuple the first is dropped first.
        let counted = Lazily::new(1);
        // Without its thread, the channel gives the value back to be dropped.
        drop(RECLAIMER.send(Box::new((value, counted))));
    } else if value.allocated() >= LARGE {
        drop(RECLAIMER.send(Box::new(value)));
    }
}

/// Lets go of a job: what is a whole value of any length in the background, for it may
/// be the last reference to that.
pub(crate) fn reclaim_job(job: Job) {
    if job.piece().extent == Extent::Whole {
        drop(RECLAIMER.send(Box::new(job)));
    }
}
