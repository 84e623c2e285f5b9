//! The schedule of an open loop.
//!
//! Request `i` is due at `start + i / rate`, whether or not the server has kept
//! up. Its latency is counted from when it was *due*: a server that stalls for a
//! second is charged with what all the requests of that second waited, and not
//! only with the one that it held (coordinated omission, as Gil Tene named it).

use std::time::{Duration, Instant};

/// When requests are due.
#[derive(Debug, Clone)]
pub struct Pace {
    start: Instant,
    interval_ns: f64,
    issued: u64,
}

impl Pace {
    /// `per_second` requests from `start` on, evenly spaced.
    pub fn new(start: Instant, per_second: f64) -> Self {
        assert!(per_second > 0.0, "a rate is positive");
        Self { start, interval_ns: 1e9 / per_second, issued: 0 }
    }

    /// When request `index` is due.
    fn due_at(&self, index: u64) -> Instant {
        self.start + Duration::from_nanos((index as f64 * self.interval_ns) as u64)
    }

    /// Takes the next request if it is due by `now`, and says when it was.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due_at(self.issued);
        (due <= now).then(|| {
            self.issued += 1;
            due
        })
    }

    /// How long until the next one is due.
    pub fn wait(&self, now: Instant) -> Duration {
        self.due_at(self.issued).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;

    #[test]
    fn as_many_are_due_as_the_rate_says() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 1000.0);
        let due = |pace: &mut Pace, ms| {
            let now = start + Duration::from_millis(ms);
            std::iter::from_fn(|| pace.take(now)).count()
        };
        assert_eq!(due(&mut pace, 0), 1);
        assert_eq!(due(&mut pace, 10), 10);
        assert_eq!(due(&mut pace, 10), 0);
        assert_eq!(due(&mut pace, 1000), 990);
        assert_eq!(pace.wait(start + Duration::from_secs(1)), Duration::from_millis(1));
        assert_eq!(pace.wait(start + Duration::from_secs(9)), Duration::ZERO);
    }

    /// A server that answers in 1 ms and stands still for one second out of ten:
    /// a tenth of the requests waited, on average half a second. A closed loop
    /// would have seen one slow request in nine thousand.
    #[test]
    fn a_stall_is_charged_to_everyone_who_waited() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 1000.0);
        let mut latency = Latency::new();
        let stall = 4000..5000_u64;
        for ms in 0..10_000_u64 {
            if stall.contains(&ms) {
                continue;
            }
            let now = start + Duration::from_millis(ms);
            while let Some(due) = pace.take(now) {
                latency.record(now + Duration::from_millis(1) - due, 1);
            }
        }
        let summary = latency.summary();
        assert_eq!(summary.count, 10_000);
        assert!((summary.p50_us - 1000.0).abs() < 10.0);
        assert!((summary.p95_us - 501_000.0).abs() < 5000.0, "{}", summary.p95_us);
        assert!((summary.p99_us - 901_000.0).abs() < 9000.0, "{}", summary.p99_us);
        assert!((summary.max_us - 1_001_000.0).abs() < 10_000.0);
    }
}
