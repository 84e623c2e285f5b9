//! Freeing what is large on a thread of its own, so that `UNLINK` of a value
//! with millions of parts costs a worker no more than that of a small one.
//!
//! The thread starts with the first large value. What waits for it is memory
//! that was allocated anyway, so its queue is bounded by what the store held.

use snug_store::{Detached, LargeJob};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

/// Values of at least this many bytes are freed in the background.
const LARGE: usize = 64 * 1024;

static RECLAIMER: LazyLock<Sender<Box<dyn Send>>> = LazyLock::new(|| {
    let (sender, values) = channel::<Box<dyn Send>>();
    let thread = std::thread::Builder::new().name("reclaimer".into());
    let thread = thread.spawn(move || values.into_iter().for_each(drop));
    if let Err(error) = thread {
        tracing::warn!(%error, "could not start the reclaimer, values are freed at once");
    }
    sender
});

/// Frees a value, in the background if it is large.
pub(crate) fn reclaim(value: Detached) {
    if value.allocated() >= LARGE {
        // Without its thread, the channel gives the value back to be dropped.
        drop(RECLAIMER.send(Box::new(value)));
    }
}

/// Lets go of a large string, which may be the last reference to it, in the
/// background.
pub(crate) fn reclaim_job(job: LargeJob) {
    drop(RECLAIMER.send(Box::new(job)));
}
