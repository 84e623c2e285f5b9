//! The schedule of an open loop.
//!
//! Request `i` is due at `start + i / rate`, whether or not the server has kept
//! up. Its latency is counted from when it was *due*: a server that stalls for a
//! second is charged with what all the requests of that second waited, and not
//! only with the one that it held (coordinated omission, as Gil Tene named it). What
//! was due and could not even be sent by the end has waited at least until then.

use std::time::{Duration, Instant};

/// Requests that were never sent are recorded in at most so many groups: there may
/// be millions.
const GROUPS_MAX: u64 = 1000;

/// When requests are due.
#[derive(Debug, Clone)]
pub struct Pace {
    start: Instant,
    interval_ns: f64,
    issued: u64,
    /// How many there are in all.
    most: u64,
}

impl Pace {
    /// `per_second` requests from `start` on, evenly spaced, for so long.
    pub fn new(start: Instant, per_second: f64, duration: Option<Duration>) -> Self {
        assert!(per_second > 0.0, "a rate is positive");
        let endless = Self { start, interval_ns: 1e9 / per_second, issued: 0, most: u64::MAX };
        let most = duration.map_or(u64::MAX, |duration| endless.due_before(duration));
        Self { most, ..endless }
    }

    /// How many are due in that time, its end excluded.
    fn due_before(&self, time: Duration) -> u64 {
        // What floating point makes of a whole number is not to count as one more.
        const ROUNDING: f64 = 1e-6;
        let due = (time.as_nanos() as f64 / self.interval_ns - ROUNDING).ceil();
        (due.max(0.0) as u64).min(self.most)
    }

    /// When request `index` is due.
    fn due_at(&self, index: u64) -> Instant {
        self.start + Duration::from_nanos((index as f64 * self.interval_ns) as u64)
    }

    /// Takes the next request if it is due by `now`, and says when it was.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due_at(self.issued);
        (due <= now && self.issued < self.most).then(|| {
            self.issued += 1;
            due
        })
    }

    /// How many were due before `end` and have not been taken.
    pub fn overdue(&self, end: Instant) -> u64 {
        self.due_before(end.saturating_duration_since(self.start)).saturating_sub(self.issued)
    }

    /// Calls `each` with how long so many have waited at `now`, for `count` requests
    /// spread evenly over the next `all`: in at most [`GROUPS_MAX`] calls, the
    /// middle of a group standing for all of it.
    pub fn waits(&self, count: u64, all: u64, now: Instant, mut each: impl FnMut(Duration, u64)) {
        let groups = count.min(GROUPS_MAX);
        let share = |of: u64, parts: u64| {
            (u128::from(of) * u128::from(parts) / u128::from(2 * groups)) as u64
        };
        for group in 0..groups {
            let due = self.due_at(self.issued + share(all, 2 * group + 1));
            let (from, to) = (share(count, 2 * group), share(count, 2 * group + 2));
            each(now.saturating_duration_since(due), to - from);
        }
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
        let mut pace = Pace::new(start, 1000.0, None);
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
        for (rate, seconds) in [(3000.0, 6), (7.0, 10), (1e9 / 3.0, 3), (123_457.0, 1000)] {
            let pace = Pace::new(start, rate, Some(Duration::from_secs(seconds)));
            assert_eq!(pace.most, (rate * seconds as f64).round() as u64);
        }
    }

    #[test]
    fn what_was_due_and_not_taken_is_counted_with_its_wait() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::new(start, 1000.0, Some(Duration::from_secs(3)));
        assert_eq!((pace.overdue(start), pace.overdue(at(1))), (0, 1));
        while pace.take(at(2000)).is_some() {}
        assert_eq!((pace.overdue(at(2000)), pace.overdue(at(2500))), (0, 499));
        assert_eq!((pace.overdue(at(3000)), pace.overdue(at(9000))), (999, 999));
        // The server stood still from 2 s to 4 s, and the load ended at 3 s.
        let mut latency = Latency::new();
        pace.waits(999, 999, at(4000), |wait, count| latency.record(wait, count));
        let summary = latency.summary();
        assert_eq!(summary.count, 999);
        assert!((summary.min_us - 1_001_000.0).abs() < 3000.0, "{}", summary.min_us);
        assert!((summary.p50_us - 1_500_000.0).abs() < 5000.0, "{}", summary.p50_us);
        assert!((summary.max_us - 1_999_000.0).abs() < 3000.0, "{}", summary.max_us);
        let mut groups = 0;
        let mut all = 0;
        pace.waits(1_000_000_007, 2_000_000_000, at(4000), |_, count| {
            (groups, all) = (groups + 1, all + count);
        });
        assert_eq!((groups, all), (GROUPS_MAX, 1_000_000_007));
        pace.waits(0, 9, at(4000), |_, _| panic!("nothing waited"));
    }

    /// A server that answers in 1 ms and stands still for one second out of ten:
    /// a tenth of the requests waited, on average half a second. A closed loop
    /// would have seen one slow request in nine thousand.
    #[test]
    fn a_stall_is_charged_to_everyone_who_waited() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 1000.0, None);
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
