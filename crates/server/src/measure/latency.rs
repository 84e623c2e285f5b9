//! How long commands take: a histogram for each, and a record of the slow.
//!
//! A [`Histogram`] has four buckets per doubling, from 256 ns to a second:
//!
//! ```text
//!  bucket   0          1       2       3       4       5      ...   92
//!  from ns  0 .. 256   256     320     384     448     512    ...   1.9 * 2^30, and above
//! ```
//!
//! So a percentile read from it is at most a quarter too high, and recording
//! costs a load and a store. It is written by one worker and takes 744 bytes,
//! from a command's first call there on.
//!
//! The `hdrhistogram` crate, with which `snug bench` measures, would not do here: to
//! record it wants `&mut`, so a lock around each while `LATENCY` and `/metrics` read,
//! which makes a record three to four times as slow; and the coarsest that it can be
//! over the same range is 464 buckets, 3.7 KB for each command and worker.
//! `LATENCY HISTOGRAM` and `/metrics` tell doublings anyway.
//!
//! [`Events`] keeps the last 160 samples of each event at or above
//! `latency-monitor-threshold`, one per second at most, as Redis does.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The smallest time that is told from nothing: 256 ns, as a power of two.
const FIRST: u32 = 8;
/// The largest octave told apart: 2^30 ns, about a second.
const LAST: u32 = 30;
const BUCKETS: usize = ((LAST - FIRST + 1) * 4 + 1) as usize;

/// Times of one command on one worker.
#[derive(Debug)]
pub(crate) struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let Some(octave) = nanoseconds.checked_ilog2().filter(|&octave| octave >= FIRST) else {
        return 0;
    };
    if octave > LAST {
        return BUCKETS - 1;
    }
    let quarter = nanoseconds >> (octave - 2) & 3;
    ((octave - FIRST) * 4) as usize + quarter as usize + 1
}

/// Where a bucket ends: the first time that is not in it, in nanoseconds.
fn end(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / 4, bucket % 4);
    (4 + quarter as u64) << (octave as u32 + FIRST - 2)
}

impl Histogram {
    /// Records a time. To be called by one thread only.
    #[inline]
    pub(crate) fn record(&self, nanoseconds: u64) {
        let counter = &self.0[bucket(nanoseconds)];
        counter.store(counter.load(Relaxed) + 1, Relaxed);
    }

    /// Forgets everything.
    pub(crate) fn reset(&self) {
        self.0.iter().for_each(|counter| counter.store(0, Relaxed));
    }
}

/// Times of one command, over all workers.
#[derive(Clone, Debug)]
pub(crate) struct Times([u64; BUCKETS]);

impl Default for Times {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Times {
    /// Adds what one worker recorded.
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        for (sum, counter) in self.0.iter_mut().zip(&histogram.0) {
            *sum += counter.load(Relaxed);
        }
    }

    /// How many there are.
    pub(crate) fn calls(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The time that so many percent do not exceed, in microseconds.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let calls = self.calls();
        let wanted = ((calls as f64 * percent / 100.0).ceil() as u64).clamp(1, calls.max(1));
        let mut seen = 0;
        let found = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0.0, |bucket| end(bucket) as f64 / 1000.0)
    }

    /// How many took so long, by doublings from 1,024 ns on: the end of each step
    /// in seconds, the last one infinite, and the calls within it.
    pub(crate) fn by_doubling(&self) -> Vec<(f64, u64)> {
        let mut steps = Vec::new();
        let mut within = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            within += count;
            let end = end(bucket);
            if bucket == BUCKETS - 1 {
                steps.push((f64::INFINITY, within));
            } else if end >= 1024 && end.is_power_of_two() {
                steps.push((end as f64 / 1e9, std::mem::take(&mut within)));
            }
        }
        steps
    }

    /// Calls that took less than 1, 2, 4 ... times 1,024 ns: the limit in
    /// microseconds and the calls below it, where there are more of them than
    /// below the limit before.
    pub(crate) fn cumulative(&self) -> Vec<(u64, u64)> {
        let mut steps = Vec::new();
        let (mut seen, mut told) = (0, 0);
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            let end = end(bucket);
            if end >= 1024 && end.is_power_of_two() && seen > told {
                steps.push((end / 1000, seen));
                told = seen;
            }
        }
        steps
    }
}

/// Samples kept of each event.
const SAMPLES: usize = 160;

/// What is known of one event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Event {
    /// Unix seconds and milliseconds taken, oldest first.
    pub samples: VecDeque<(u64, u64)>,
    /// The longest ever, in milliseconds.
    pub max_ms: u64,
}

/// Events that took long.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<BTreeMap<&'static str, Event>>);

impl Events {
    /// Records that an event took so long. Of two within a second the longer
    /// is kept.
    pub(crate) fn record(&self, name: &'static str, unix_seconds: u64, took_ms: u64) {
        let mut events = self.0.lock();
        let event = events.entry(name).or_default();
        event.max_ms = event.max_ms.max(took_ms);
        match event.samples.back_mut() {
            Some((second, longest)) if *second == unix_seconds => {
                *longest = took_ms.max(*longest);
            }
            _ => {
                if event.samples.len() == SAMPLES {
                    event.samples.pop_front();
                }
                event.samples.push_back((unix_seconds, took_ms));
            }
        }
    }

    /// Every event and what is known of it.
    pub(crate) fn all(&self) -> BTreeMap<&'static str, Event> {
        self.0.lock().clone()
    }

    /// Forgets the events that `wanted` picks; how many those were.
    pub(crate) fn forget(&self, wanted: impl Fn(&str) -> bool) -> usize {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|name, _| !wanted(name));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_time_is_in_the_bucket_that_ends_behind_it(nanoseconds in 0u64..1 << 31) {
            let bucket = bucket(nanoseconds);
            prop_assert!(nanoseconds < end(bucket));
            prop_assert!(bucket == 0 || nanoseconds >= end(bucket - 1));
        }

        #[test]
        fn percentiles_and_steps_agree_with_the_times(
            mut times in prop::collection::vec(0u64..1 << 31, 1..200),
            percent in 0.0f64..100.0,
        ) {
            let histogram = Histogram::default();
            times.iter().for_each(|&time| histogram.record(time));
            let mut sum = Times::default();
            sum.add(&histogram);
            prop_assert_eq!(sum.calls(), times.len() as u64);
            times.sort_unstable();
            let rank = ((times.len() as f64 * percent / 100.0).ceil() as usize).max(1);
            let exact = times[rank - 1];
            let told = sum.percentile(percent) * 1000.0;
            prop_assert!(told > exact as f64 - 1.0);
            prop_assert!(told <= (exact as f64 * 1.26).max(256.0) + 1.0);
            let mut from = 0.0;
            for (end, within) in sum.by_doubling() {
                let counted = times.iter().map(|&time| time as f64 / 1e9);
                let counted = counted.filter(|&time| time >= from && time < end).count() as u64;
                // The last bucket begins a quarter before its doubling ends.
                prop_assert!(within == counted || from > 0.9 || end > 1.0);
                from = end;
            }
            prop_assert_eq!(sum.by_doubling().iter().map(|(_, n)| n).sum::<u64>(), sum.calls());
            for (limit, below) in sum.cumulative() {
                let limit = (limit * 1000).next_power_of_two();
                let counted = times.iter().filter(|&&time| time < limit).count() as u64;
                prop_assert_eq!(below, counted);
            }
        }
    }

    #[test]
    fn events_keep_the_worst_of_a_second_and_no_more_than_fit() {
        let events = Events::default();
        for second in 0..200 {
            events.record("command", second, 5);
            events.record("command", second, 9);
            events.record("command", second, 7);
        }
        let event = &events.all()["command"];
        assert_eq!(event.samples.len(), SAMPLES);
        assert_eq!(event.samples.back(), Some(&(199, 9)));
        assert_eq!(event.max_ms, 9);
        assert_eq!(events.forget(|name| name == "command"), 1);
    }
}
