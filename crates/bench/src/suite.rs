//! Scenarios: several workloads with their sizes, run by one name.

use std::time::Duration;

use crate::keys::KeyDistribution;
use crate::payload::Payload;
use crate::run::Step;
use crate::workloads::{Options, WorkloadError, find};

/// A named list of parts.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// One line for `snug bench list`.
    pub summary: &'static str,
    parts: &'static [Part],
}

/// One workload of a scenario.
struct Part {
    workload: &'static str,
    /// Share of the workload's full size, times the scale asked for.
    scale: f64,
    /// At most so many rounds: what is deterministic needs one.
    rounds_max: u32,
    /// SET and GET of 64 bytes over a filled keyspace, XADD, by pipelines.
    classic: bool,
    seconds: Option<u64>,
}

const fn part(workload: &'static str, scale: f64, rounds_max: u32) -> Part {
    Part { workload, scale, rounds_max, classic: false, seconds: None }
}

const CLASSIC: Part =
    Part { workload: "set-get", scale: 0.3, rounds_max: u32::MAX, classic: true, seconds: None };

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "classic",
        summary: "SET, GET, XADD at pipelines 1, 16, 100 over 1 M keys, and populate",
        parts: &[CLASSIC, part("populate", 1.0, 1)],
    },
    Scenario {
        name: "suite",
        summary: "classic, and every workload at a scale for 20 minutes on two cores",
        parts: &[
            CLASSIC,
            part("populate", 1.0, 1),
            part("stream-events", 1.0, 2),
            part("stream-identical", 0.125, 2),
            part("stream-flights", 1.0, 2),
            part("stream-celery", 1.0, 1),
            part("list-celery", 1.0, 1),
            part("stream-mixed", 0.3, 2),
            part("json-zipf", 0.2, 2),
            Part {
                workload: "capture",
                scale: 0.2,
                rounds_max: 1,
                classic: false,
                seconds: Some(35),
            },
        ],
    },
];

/// A workload ready to be run for some rounds.
pub struct Planned {
    /// The workload's name.
    pub workload: String,
    /// Its steps.
    pub steps: Vec<Step>,
    /// How often.
    pub rounds: u32,
}

/// Plans a workload or a scenario by name. A part that cannot be prepared is
/// returned as its name and the reason, and the others are planned.
pub fn plan(
    name: &str,
    options: &Options,
    rounds: u32,
) -> Vec<Result<Planned, (String, WorkloadError)>> {
    let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name) else {
        return vec![plan_one(name, options, rounds)];
    };
    let of_part =
        |part: &Part| plan_one(part.workload, &part.options(options), rounds.min(part.rounds_max));
    scenario.parts.iter().map(of_part).collect()
}

fn plan_one(
    name: &str,
    options: &Options,
    rounds: u32,
) -> Result<Planned, (String, WorkloadError)> {
    let steps = find(name).and_then(|workload| (workload.plan)(options));
    match steps {
        Ok(steps) => Ok(Planned { workload: name.to_owned(), steps, rounds }),
        Err(error) => Err((name.to_owned(), error)),
    }
}

impl Part {
    /// The scenario's own choices over the scale and seed asked for.
    fn options(&self, asked: &Options) -> Options {
        let mut options = asked.clone();
        options.scale = asked.scale * self.scale;
        options.requests = None;
        options.rate = None;
        options.duration = self.seconds.map(Duration::from_secs);
        if self.classic {
            options.tests = ["set", "get", "xadd"].map(String::from).to_vec();
            options.command = None;
            options.fill = true;
            options.pipelines = vec![1, 16, 100];
            options.data_bytes = vec![64];
            options.keyspaces = vec![((1e6 * asked.scale) as u64).max(1)];
            options.connections = Some(asked.connections.unwrap_or(50));
            options.keys = KeyDistribution::Uniform;
            options.payload = Payload::Fixed;
        } else {
            options.pipelines.clear();
            options.connections = None;
        }
        options
    }
}
