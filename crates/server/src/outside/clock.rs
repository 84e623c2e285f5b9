//! The time: the day's, and that of a clock that only goes on.
//!
//! Both are the runtime's, so that a test may stop it and have hours pass in an instant
//! (`net/simulated.rs`). There the processor works in no time, since what it takes for
//! the same work is never the same, and how much is packed when goes by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;

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

/// The CPU time that this thread has used so far, waiting left out. A system call:
/// half a microsecond, so for what takes a slice and not for single values.
pub(crate) fn thread_cpu() -> Duration {
    #[cfg(test)]
    if simulated::here().is_some() {
        return Duration::ZERO;
    }
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

/// How long this worker's runtime has had something to do so far.
pub(crate) fn busy() -> Duration {
    #[cfg(test)]
    if simulated::here().is_some() {
        return Duration::ZERO;
    }
    Handle::current().metrics().worker_total_busy_duration(0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_takes_no_cpu_time_and_working_does() {
        let (before, began) = (thread_cpu(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let used = || thread_cpu().saturating_sub(before);
        let slept = used();
        assert!(slept < began.elapsed() / 2, "{slept:?}");
        while used() < Duration::from_millis(20) {
            std::hint::black_box(0);
        }
        assert!(began.elapsed() >= Duration::from_millis(60));
    }
}
