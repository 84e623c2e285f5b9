//! The generator checked against redis-benchmark: both drive one redis-server in
//! turns, with the same connections, pipeline, keys and payload.
//!
//! Throughput and median latency of the two must agree within what each differs by
//! from round to round; if they do not, one of them measures itself.

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::affinity::Cores;
use crate::compare::Samples;
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
    /// Ours over theirs, medians.
    pub fn ratio(&self) -> f64 {
        Samples::of(&self.ours).median() / Samples::of(&self.theirs).median().max(1e-9)
    }

    /// What both differ by from round to round, together.
    pub fn noise(&self) -> f64 {
        Samples::of(&self.ours).spread() + Samples::of(&self.theirs).spread()
    }
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
        for _ in 0..plan.rounds {
            if crate::interrupt::requested() {
                return Ok(lines);
            }
            let theirs = theirs(server.endpoint.port, pipeline, requests)?;
            let ours = ours(&server.endpoint, plan, pipeline, requests)?;
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

    #[test]
    fn noise_is_what_both_differ_by() {
        let line = AgreementLine {
            what: "set/P1 ops/s".into(),
            ours: vec![90.0, 100.0, 110.0],
            theirs: vec![50.0, 50.0, 50.0],
        };
        assert!((line.ratio() - 2.0).abs() < 1e-9);
        assert!((line.noise() - 0.1).abs() < 1e-9);
    }
}
