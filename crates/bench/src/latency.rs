//! Latencies: a histogram while they come in, a summary and a curve afterwards.
//!
//! HDR histogram, three significant digits, 1 ns to 1 hour: 0.2 MB each, 5 ns a
//! record. What is longer than an hour counts as an hour.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

const LONGEST_NS: u64 = 3_600_000_000_000;

/// The latencies of one kind of request.
#[derive(Debug, Clone)]
pub struct Latency {
    histogram: Histogram<u64>,
}

/// What a report says of them. Microseconds throughout.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Requests answered.
    pub count: u64,
    /// Shortest.
    pub min_us: f64,
    /// Mean.
    pub avg_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest.
    pub max_us: f64,
    /// The curve: (percentile, microseconds), denser towards 100.
    pub curve: Vec<(f64, f64)>,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// None recorded yet.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Self { histogram: histogram.expect("constant bounds are valid") }
    }

    /// `count` requests took `each`.
    pub fn record(&mut self, each: Duration, count: u64) {
        let ns = u64::try_from(each.as_nanos()).unwrap_or(LONGEST_NS);
        self.histogram.saturating_record_n(ns.max(1), count);
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("equal bounds always add");
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The figures of a report.
    pub fn summary(&self) -> LatencySummary {
        if self.histogram.is_empty() {
            return LatencySummary::default();
        }
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |percentile: f64| us(self.histogram.value_at_percentile(percentile));
        LatencySummary {
            count: self.histogram.len(),
            min_us: us(self.histogram.min()),
            avg_us: self.histogram.mean() / 1000.0,
            p50_us: at(50.0),
            p95_us: at(95.0),
            p99_us: at(99.0),
            p999_us: at(99.9),
            max_us: us(self.histogram.max()),
            curve: self
                .histogram
                .iter_quantiles(5)
                .map(|step| (step.quantile_iterated_to() * 100.0, us(step.value_iterated_to())))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_distribution_comes_back() {
        let mut latency = Latency::new();
        for us in 1..=10_000 {
            latency.record(Duration::from_micros(us), 1);
        }
        let summary = latency.summary();
        let near = |got: f64, expected: f64| (got / expected - 1.0).abs() < 0.002;
        assert_eq!(summary.count, 10_000);
        assert!(near(summary.min_us, 1.0) && near(summary.max_us, 10_000.0));
        assert!(near(summary.avg_us, 5000.5) && near(summary.p50_us, 5000.0));
        assert!(near(summary.p95_us, 9500.0) && near(summary.p99_us, 9900.0));
        assert!(near(summary.p999_us, 9990.0));
        let rising =
            summary.curve.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1);
        assert!(rising && summary.curve.len() > 20);
    }

    #[test]
    fn an_exponential_distribution_has_its_quantiles() {
        let mut latency = Latency::new();
        let n = 100_000;
        for i in 0..n {
            let quantile = (f64::from(i) + 0.5) / f64::from(n);
            latency.record(Duration::from_secs_f64(-0.001 * (1.0 - quantile).ln()), 1);
        }
        let summary = latency.summary();
        for (got, quantile) in
            [(summary.p50_us, 0.5), (summary.p99_us, 0.99), (summary.p999_us, 0.999)]
        {
            let expected = -1000.0 * (1.0_f64 - quantile).ln();
            assert!((got / expected - 1.0).abs() < 0.005, "{quantile}: {got} for {expected}");
        }
    }

    #[test]
    fn threads_add_up_and_extremes_saturate() {
        let mut one = Latency::new();
        let mut other = Latency::new();
        one.record(Duration::ZERO, 3);
        other.record(Duration::from_secs(1_000_000), 2);
        one.merge(&other);
        assert_eq!(one.count(), 5);
        assert!(one.summary().max_us > 3.5e9);
        assert_eq!(Latency::new().summary(), LatencySummary::default());
    }
}
