//! Scenarios: several workloads with their sizes, run by one name.

use std::time::Duration;

use crate::codec;
use crate::keys::KeyDistribution;
use crate::payload::Payload;
use crate::run::Step;
use crate::workloads::{FILL_KEYS_MAX, Options, WorkloadError, find};

/// A named list of parts.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// One line for `snug bench list`.
    pub summary: &'static str,
    parts: &'static [Part],
    /// What needs no server.
    codec: &'static [codec::Part],
}

/// One workload of a scenario.
struct Part {
    workload: &'static str,
    /// Share of the workload's full size, times the scale asked for.
    scale: f64,
    /// At most so many rounds: what is deterministic needs one.
    rounds_max: u32,
    /// What `set-get` is asked for.
    set_get: Option<SetGet>,
    seconds: Option<u64>,
}

/// A choice of tests and sizes for `set-get`, at pipelines 1, 16 and 100.
#[derive(Debug, Clone, Copy)]
struct SetGet {
    tests: &'static [&'static str],
    keyspaces: &'static [u64],
    data_bytes: &'static [usize],
    /// Over a cluster of several nodes.
    cluster: bool,
    /// Every key is written first.
    fill: bool,
}

const fn part(workload: &'static str, scale: f64, rounds_max: u32) -> Part {
    Part { workload, scale, rounds_max, set_get: None, seconds: None }
}

const fn set_get(scale: f64, rounds_max: u32, choice: SetGet) -> Part {
    Part { workload: "set-get", scale, rounds_max, set_get: Some(choice), seconds: None }
}

const CLASSIC: SetGet = SetGet {
    tests: &["set", "get", "xadd"],
    keyspaces: &[1_000_000],
    data_bytes: &[64],
    cluster: false,
    fill: true,
};
/// The whole shape of `set-get` in WORKLOADS.
const SIZES: SetGet = SetGet {
    tests: &["set", "get"],
    keyspaces: &[1000, 1_000_000, 1_000_000_000],
    data_bytes: &[64, 1024],
    cluster: false,
    fill: true,
};
/// redis-benchmark's tests of collections, in its order: what is popped was pushed.
const OTHERS: SetGet = SetGet {
    tests: &[
        "lpush",
        "rpush",
        "lpop",
        "rpop",
        "sadd",
        "hset",
        "spop",
        "zadd",
        "zpopmin",
        "lrange_100",
        "lrange_300",
        "lrange_500",
        "lrange_600",
    ],
    keyspaces: &[1_000_000],
    data_bytes: &[3],
    cluster: false,
    fill: false,
};
const CLUSTER: SetGet = SetGet { cluster: true, tests: &["set", "get"], ..CLASSIC };

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "classic",
        summary: "SET, GET, XADD at pipelines 1, 16, 100 over 1 M keys, and populate",
        parts: &[set_get(0.3, u32::MAX, CLASSIC), part("populate", 1.0, 1)],
        codec: &[],
    },
    Scenario {
        name: "set-get-sizes",
        summary: "SET and GET over keyspaces 1 K, 1 M, 1 G, of 64 B and 1 KiB, at pipelines 1, 16, 100",
        parts: &[set_get(1.0, u32::MAX, SIZES)],
        codec: &[],
    },
    Scenario {
        name: "set-get-cluster",
        summary: "SET and GET over a cluster of --nodes nodes, at pipelines 1, 16, 100",
        parts: &[set_get(1.0, u32::MAX, CLUSTER)],
        codec: &[],
    },
    Scenario {
        name: "collections",
        summary: "hashes, lists, sets and sorted sets: what they weigh hot and cooled",
        parts: &[
            part("hash-profiles", 1.0, 1),
            part("hash-jobs", 1.0, 1),
            part("hash-sessions", 1.0, 1),
            part("hash-big", 1.0, 1),
            part("set-ints", 1.0, 1),
            part("set-uuids", 1.0, 1),
            part("zset-board", 1.0, 1),
            part("zset-uuids", 1.0, 1),
            part("zset-recent", 1.0, 1),
            part("list-feed", 1.0, 1),
            part("set-tags", 1.0, 1),
            part("list-celery", 1.0, 1),
        ],
        codec: &[],
    },
    Scenario {
        name: "collection-tests",
        summary: "redis-benchmark's tests of collections at pipelines 1, 16, 100",
        parts: &[set_get(0.1, u32::MAX, OTHERS)],
        codec: &[],
    },
    Scenario {
        name: "agreement",
        summary: "this generator and redis-benchmark in turns on one redis-server",
        parts: &[],
        codec: &[],
    },
    Scenario {
        name: "suite",
        summary: "classic, and every workload at a scale for half an hour on two cores",
        parts: &[
            set_get(0.3, u32::MAX, CLASSIC),
            set_get(0.1, 1, SIZES),
            set_get(0.1, 2, CLUSTER),
            part("populate", 1.0, 1),
            part("stream-events", 1.0, 2),
            part("stream-identical", 0.125, 2),
            part("stream-flights", 1.0, 2),
            part("stream-celery", 1.0, 1),
            part("list-celery", 1.0, 1),
            part("hash-profiles", 0.5, 1),
            part("hash-jobs", 0.5, 1),
            part("hash-sessions", 0.5, 1),
            part("hash-big", 0.5, 1),
            part("set-ints", 0.5, 1),
            part("set-uuids", 0.5, 1),
            part("zset-board", 0.5, 1),
            part("zset-uuids", 0.5, 1),
            part("zset-recent", 0.5, 1),
            part("list-feed", 0.5, 1),
            part("set-tags", 0.5, 1),
            set_get(0.02, 1, OTHERS),
            part("stream-lookup", 0.3, 2),
            part("stream-mixed", 0.3, 2),
            part("json-zipf", 0.2, 2),
            part("large-values", 0.4, 2),
            Part {
                workload: "capture",
                scale: 0.2,
                rounds_max: 1,
                set_get: None,
                seconds: Some(35),
            },
        ],
        codec: &[codec::Part::Streams, codec::Part::Levels, codec::Part::Blobs],
    },
];

/// A workload ready to be run for some rounds.
pub struct Planned {
    /// The workload's name, with what sets it apart from the plain one.
    pub workload: String,
    /// Whether it is to run over a cluster.
    pub cluster: bool,
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
    let of_part = |part: &Part| {
        let planned = plan_one(part.workload, &part.options(options), rounds.min(part.rounds_max));
        planned.map(|planned| part.named(planned))
    };
    scenario.parts.iter().map(of_part).collect()
}

/// What a scenario has measured without a server.
pub fn codec_parts(name: &str) -> &'static [codec::Part] {
    SCENARIOS.iter().find(|scenario| scenario.name == name).map_or(&[], |known| known.codec)
}

/// Whether a scenario checks the generator against redis-benchmark.
pub fn checks_agreement(name: &str) -> bool {
    matches!(name, "suite" | "agreement")
}

fn plan_one(
    name: &str,
    options: &Options,
    rounds: u32,
) -> Result<Planned, (String, WorkloadError)> {
    let steps = find(name).and_then(|workload| (workload.plan)(options));
    match steps {
        Ok(steps) => Ok(Planned { workload: name.to_owned(), cluster: false, steps, rounds }),
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
        // A smaller suite is a shorter one where time and not size sets the length.
        let seconds = |seconds| (seconds as f64 * asked.scale.min(1.0)).max(5.0);
        options.duration = self.seconds.map(|full| Duration::from_secs_f64(seconds(full)));
        if let Some(choice) = self.set_get {
            options.tests = choice.tests.iter().map(|&test| test.to_owned()).collect();
            options.command = None;
            options.fill = choice.fill;
            options.pipelines = vec![1, 16, 100];
            options.data_bytes = choice.data_bytes.to_vec();
            options.keyspaces = choice.keyspaces.to_vec();
            // What is filled shrinks with the suite; the huge one costs nothing.
            for keys in &mut options.keyspaces {
                if (1001..=FILL_KEYS_MAX).contains(keys) {
                    *keys = ((*keys as f64 * asked.scale.min(1.0)) as u64).max(1001);
                }
            }
            options.connections = Some(asked.connections.unwrap_or(50));
            options.keys = KeyDistribution::Uniform;
            options.payload = Payload::Fixed;
        } else {
            options.pipelines.clear();
            options.connections = None;
        }
        options
    }
    /// A cluster's steps are not the same as those of one server.
    fn named(&self, mut planned: Planned) -> Planned {
        if self.set_get.is_some_and(|choice| choice.cluster) {
            planned.cluster = true;
            planned.workload.push_str("-cluster");
            for step in &mut planned.steps {
                step.name.insert_str(0, "cluster-");
            }
        }
        planned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        #[derive(clap::Parser)]
        struct Program {
            #[command(flatten)]
            load: crate::cli::LoadArgs,
        }
        let program: Program = clap::Parser::try_parse_from(["x", "--scale", "0.01"]).unwrap();
        program.load.options()
    }

    #[test]
    fn set_get_has_the_shape_of_the_workload() {
        let names = |name: &str| -> Vec<String> {
            let plans = plan(name, &options(), 3).into_iter().map(|plan| plan.ok().unwrap());
            plans.flat_map(|plan| plan.steps.into_iter().map(|step| step.name)).collect()
        };
        let sizes = names("set-get-sizes");
        // Three keyspaces, two sizes, three pipelines, two tests; two are filled.
        assert_eq!(sizes.iter().filter(|name| !name.starts_with("fill")).count(), 36);
        assert_eq!(sizes.iter().filter(|name| name.starts_with("fill")).count(), 4);
        assert!(sizes.contains(&"get/P100/d1024/r1000000000".to_owned()));
        let cluster = plan("set-get-cluster", &options(), 3).remove(0).ok().unwrap();
        assert!(cluster.cluster && cluster.workload == "set-get-cluster");
        assert!(cluster.steps.iter().all(|step| step.name.starts_with("cluster-")));
    }
}
