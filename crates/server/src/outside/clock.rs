//! The time: the day's, and that of a clock that only goes on.
//!
//! Both are the runtime's, so that a test may stop it and have hours pass in an instant
//! (`net/simulated.rs`). What the processor did meanwhile (`work/slices.rs`) is the
//! machine's always.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment of a clock that only goes on: the runtime's.
pub(crate) use tokio::time::Instant;

/// The time, in Unix milliseconds.
#[inline]
pub(crate) fn unix_ms() -> u64 {
    #[cfg(test)]
    if let Some(simulated) = simulated::unix_ms() {
        return simulated;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A day's time that goes with the runtime's clock, for this thread.
#[cfg(test)]
pub(crate) mod simulated {
    use super::Instant;
    use std::cell::Cell;

    thread_local! {
        static SINCE: Cell<Option<(Instant, u64)>> = const { Cell::new(None) };
    }

    /// From now on it is `unix_ms`, and time passes as the runtime has it pass.
    pub(crate) fn begin(unix_ms: u64) {
        SINCE.set(Some((Instant::now(), unix_ms)));
    }

    /// How it is on this thread, for another one.
    pub(crate) fn here() -> Option<(Instant, u64)> {
        SINCE.get()
    }

    /// Has this thread's time be another's.
    pub(crate) fn join(since: Option<(Instant, u64)>) {
        SINCE.set(since);
    }

    /// From now on it is the machine's again.
    pub(crate) fn end() {
        SINCE.set(None);
    }

    pub(super) fn unix_ms() -> Option<u64> {
        SINCE.get().map(|(began, unix_ms)| unix_ms + began.elapsed().as_millis() as u64)
    }
}
