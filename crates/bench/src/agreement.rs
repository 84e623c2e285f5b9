//! The generator checked against redis-benchmark: both drive one redis-server in
//! turns, with the same connections, pipeline, keys and payload.
//!
//! Each round is a pair, measured within seconds: the ratio of the two is free of
//! what drifts over minutes. Many short rounds say more of its median than a few long
//! ones. Where the two do not agree beyond the noise of that median, one of them
//! measures itself: docs/benchmarking.md says which, and where.

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::affinity::Cores;
use crate::compare::{NOISE_MIN, Samples};
use crate::death_signal::die_with_this;
use crate::endpoint::Endpoint;
use crate::run::{Settings, Subject, run_step};
use crate::target::Target;
use crate::workloads::{Options, find};

const PROGRAM: &str = "redis-benchmark";
const TESTS: [&str; 2] = ["set", "get"];
const CONNECTIONS: usize = 50;
const DATA_BYTES: usize = 64;
const KEYSPACE: u64 = 100_000;

/// One figure as both generators find it, round by round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgreementLine {
    /// `set/P16 ops/s`.
    pub what: String,
    /// `snug bench`'s.
    pub ours: Vec<f64>,
    /// redis-benchmark's.
    pub theirs: Vec<f64>,
}

impl AgreementLine {
    /// Ours over theirs, round by round, sorted.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.ours.iter().zip(&self.theirs);
        let mut ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs.max(1e-9)).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    /// Ours over theirs: the median of the rounds' ratios.
    pub fn ratio(&self) -> f64 {
        Samples::of(&self.ratios()).median()
    }

    /// Between which two the true median of the ratios is, with 95 % confidence:
    /// as many are left out at either end as fair coins would seldom leave. Below
    /// six rounds, all of them.
    pub fn interval(&self) -> (f64, f64) {
        let ratios = self.ratios();
        let rounds = ratios.len();
        let left_out = left_out(rounds);
        (ratios[left_out], ratios[rounds - 1 - left_out])
    }

    /// Whether both generators find the same, for all that these rounds can tell.
    pub fn agrees(&self) -> bool {
        let (low, high) = self.interval();
        low <= 1.0 + NOISE_MIN && high >= 1.0 - NOISE_MIN
    }
}

/// How many of so many sorted samples are to be left out at either end for what is
/// between the rest to have the true median with 95 % confidence: the most heads that
/// so many tosses of a coin show, those or fewer, in at most 2.5 % of all cases.
fn left_out(samples: usize) -> usize {
    let mut probability = 0.5_f64.powi(samples as i32);
    let mut sum = 0.0;
    for heads in 0..samples {
        sum += probability;
        if sum > 0.025 {
            return heads.saturating_sub(1);
        }
        probability *= (samples - heads) as f64 / (heads + 1) as f64;
    }
    0
}

/// How to measure.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Cores of the server.
    pub server: &'a Cores,
    /// Cores of both generators.
    pub load: &'a Cores,
    /// Requests of each run at pipeline 1; four times as many where pipelined.
    pub requests: u64,
    /// Rounds of both.
    pub rounds: u32,
    /// As for any workload.
    pub options: &'a Options,
    /// As for any workload.
    pub settings: &'a Settings,
}

/// Measures; an error is one line.
pub fn measure(plan: &Plan<'_>) -> Result<Vec<AgreementLine>, String> {
    let text = |error: &dyn std::fmt::Display| format!("agreement: {error}");
    let target = Target::parse("redis-server").map_err(|error| text(&error))?;
    let access = Endpoint::local(0);
    let server =
        target.start(plan.server, plan.load, None, &access).map_err(|error| text(&error))?;
    let mut lines: Vec<AgreementLine> = Vec::new();
    for pipeline in [1, 16, 100] {
        let requests = if pipeline == 1 { plan.requests } else { 4 * plan.requests };
        for round in 0..plan.rounds {
            if crate::interrupt::requested() {
                return Ok(lines);
            }
            // Whatever the first does to the second, each does to the other.
            let (ours, theirs) = if round % 2 == 0 {
                let theirs = theirs(server.endpoint.port, pipeline, requests)?;
                (ours(&server.endpoint, plan, pipeline, requests)?, theirs)
            } else {
                let ours = ours(&server.endpoint, plan, pipeline, requests)?;
                (ours, theirs(server.endpoint.port, pipeline, requests)?)
            };
            // An interrupted run is half a pair.
            if crate::interrupt::requested() {
                return Ok(lines);
            }
            for ((test, ours), theirs) in TESTS.iter().zip(ours).zip(theirs) {
                for (figure, index) in [("ops/s", 0), ("p50 us", 1)] {
                    let what = format!("{test}/P{pipeline} {figure}");
                    let at = lines.iter().position(|line| line.what == what);
                    let at = at.unwrap_or_else(|| {
                        lines.push(AgreementLine { what, ..AgreementLine::default() });
                        lines.len() - 1
                    });
                    lines[at].ours.push(ours[index]);
                    lines[at].theirs.push(theirs[index]);
                }
            }
        }
    }
    Ok(lines)
}

/// Throughput and median latency of each test.
type Figures = Vec<[f64; 2]>;

fn ours(
    endpoint: &Endpoint,
    plan: &Plan<'_>,
    pipeline: usize,
    requests: u64,
) -> Result<Figures, String> {
    let options = Options {
        tests: TESTS.map(str::to_owned).to_vec(),
        command: None,
        fill: false,
        connections: Some(CONNECTIONS),
        pipelines: vec![pipeline],
        data_bytes: vec![DATA_BYTES],
        keyspaces: vec![KEYSPACE],
        requests: Some(requests),
        duration: None,
        rate: None,
        ..plan.options.clone()
    };
    let text = |error: &dyn std::fmt::Display| format!("agreement: {error}");
    let workload = find("set-get").map_err(|error| text(&error))?;
    let steps = (workload.plan)(&options).map_err(|error| text(&error))?;
    let endpoint = endpoint.clone();
    let subject = Subject { name: "redis".into(), endpoint, cluster: false, round: 1 };
    let mut figures = Figures::new();
    for step in &steps {
        let result = run_step("agreement", step, &subject, plan.settings);
        let result = result.map_err(|error| text(&error))?;
        if let Some(failure) = &result.failure {
            return Err(text(failure));
        }
        let p50 = result.kinds.first().map_or(0.0, |kind| kind.latency.p50_us);
        figures.push([result.throughput, p50]);
    }
    Ok(figures)
}

fn theirs(port: u16, pipeline: usize, requests: u64) -> Result<Figures, String> {
    let mut command = Command::new(PROGRAM);
    command.args(["--csv", "-h", "127.0.0.1", "-t", &TESTS.join(",")]);
    for (flag, value) in [
        ("-p", u64::from(port)),
        ("-P", pipeline as u64),
        ("-n", requests),
        ("-c", CONNECTIONS as u64),
        ("-d", DATA_BYTES as u64),
        ("-r", KEYSPACE),
    ] {
        command.args([flag, &value.to_string()]);
    }
    die_with_this(&mut command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("agreement: cannot run {PROGRAM}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = read_csv(&text);
    if figures.len() == TESTS.len() {
        return Ok(figures);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(format!("agreement: {PROGRAM}: {}", last.unwrap_or("its CSV cannot be read")))
}

/// `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",...`
fn read_csv(text: &str) -> Figures {
    let number = |cell: Option<&&str>| cell?.parse::<f64>().ok();
    let line = |line: &str| {
        let cells: Vec<&str> = line.trim().trim_matches('"').split("\",\"").collect();
        Some([number(cells.get(1))?, number(cells.get(4))? * 1000.0])
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmarks_csv_is_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\"\n\
                    \"SET\",\"100200.40\",\"0.266\",\"0.096\",\"0.263\",\"0.359\"\n\
                    \"GET\",\"99.00\",\"1.5\",\"1\",\"1.250\",\"2\"\n";
        assert_eq!(read_csv(text), [[100_200.4, 263.0], [99.0, 1250.0]]);
        assert!(read_csv("Could not connect to Redis").is_empty());
    }

    fn line(ours: &[f64], theirs: &[f64]) -> AgreementLine {
        AgreementLine { what: "set/P1 ops/s".into(), ours: ours.into(), theirs: theirs.into() }
    }

    #[test]
    fn a_drift_of_both_leaves_the_ratio() {
        let drifting: Vec<f64> = (0..15).map(|round| 1e5 / f64::from(1 + round)).collect();
        let third_more: Vec<f64> = drifting.iter().map(|value| value * 1.33).collect();
        let gap = line(&third_more, &drifting);
        let (low, high) = gap.interval();
        assert!((gap.ratio() - 1.33).abs() < 1e-9 && (high - low) < 1e-9);
        assert!(!gap.agrees());
        assert!(line(&drifting, &drifting).agrees());
    }

    #[test]
    fn what_rounds_scatter_by_is_noise() {
        let scattered = line(&[80.0, 90.0, 105.0, 120.0, 130.0], &[100.0; 5]);
        assert_eq!(scattered.interval(), (0.8, 1.3), "too few to leave one out");
        assert!(scattered.agrees());
        assert!(!line(&[120.0, 130.0, 140.0], &[100.0; 3]).agrees());
        assert!(line(&[101.0, 101.5], &[100.0; 2]).agrees(), "less than can be told");
    }

    /// From tables of the sign test: with 95 % confidence, the median is between the
    /// k-th smallest and the k-th largest of so many samples.
    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        for (samples, kth) in [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8)] {
            assert_eq!(left_out(samples), kth - 1, "{samples}");
        }
    }
}
