//! How long unpacking takes: counts by powers of two, one row per thread. Any thread
//! may unpack, so they are counters like all others of the store, and no `hdrhistogram`,
//! which would want a lock.
//!
//! Of values inside their entries one in [`ONE_IN`] is timed, so that a read of
//! one pays for the clock seldom: the shape is told exactly enough, the number is
//! a sample. Of large ones every segment is: it takes as long as thousands of
//! looks at the clock.

use crate::sharded::Sharded;
use std::time::Duration;

/// Of so many, one is timed.
pub(crate) const ONE_IN: u32 = 16;

/// The first bucket ends at 2^8 ns, the last but one at 2^28 ns, a quarter of a
/// second.
const FIRST: u32 = 8;
const BUCKETS: usize = 22;

/// Times, and behind their buckets the sum in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct UnpackTimes(Sharded<{ BUCKETS + 1 }>);

impl UnpackTimes {
    pub(crate) fn record(&self, took: Duration) {
        let nanoseconds = took.as_nanos() as u64;
        let bits = u64::BITS - nanoseconds.leading_zeros();
        let bucket = (bits.saturating_sub(FIRST) as usize).min(BUCKETS - 1);
        self.0.add(bucket, 1);
        self.0.add(BUCKETS, nanoseconds as i64);
    }

    /// The end of each bucket in seconds and how many are in it; and the sum in
    /// seconds.
    pub(crate) fn read(&self) -> (Vec<(f64, u64)>, f64) {
        let bucket = |n: usize| {
            let end = (1u64 << (FIRST as usize + n)) as f64 / 1e9;
            let end = if n == BUCKETS - 1 { f64::INFINITY } else { end };
            (end, self.0.sum(n).max(0) as u64)
        };
        ((0..BUCKETS).map(bucket).collect(), self.0.sum(BUCKETS) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_bucket_that_ends_behind_it() {
        for nanoseconds in [0, 255, 256, 1000, 1 << 27, 1 << 28, 1 << 40] {
            let times = UnpackTimes::default();
            times.record(Duration::from_nanos(nanoseconds));
            let (buckets, seconds) = times.read();
            let at = buckets.iter().position(|(_, n)| *n == 1).unwrap();
            let time = nanoseconds as f64 / 1e9;
            assert!(
                time < buckets[at].0 && (at == 0 || time >= buckets[at - 1].0),
                "{nanoseconds}"
            );
            assert!((seconds - time).abs() < 1e-12);
            assert_eq!(buckets.iter().map(|(_, n)| n).sum::<u64>(), 1);
        }
    }
}
