//! The workloads, by name. Each turns options into the steps to run; its file
//! says what it sends and where its shape comes from.

// All plans have one signature, those that cannot fail too.
#![allow(clippy::unnecessary_wraps)]

use std::path::PathBuf;
use std::time::Duration;

use crate::keys::KeyDistribution;
use crate::payload::Payload;
use crate::run::Step;

mod capture;
mod collections;
mod json_zipf;
mod large_values;
mod lookup;
mod mixed;
mod populate;
mod real;
mod set_get;
mod streams;

pub use set_get::{FILL_KEYS_MAX, TESTS};

/// Time in which what was written becomes cold and begins to be packed, by a
/// server that waits 5 seconds for that.
const COOL: Duration = Duration::from_secs(8);

/// What the user asked for; `None` leaves a choice to the workload.
#[derive(Debug, Clone)]
pub struct Options {
    /// Share of the full size.
    pub scale: f64,
    /// Seed of every random choice.
    pub seed: u64,
    /// Connections.
    pub connections: Option<usize>,
    /// Pipelines to run one after the other.
    pub pipelines: Vec<usize>,
    /// Payload sizes to run one after the other.
    pub data_bytes: Vec<usize>,
    /// Keyspaces to run one after the other.
    pub keyspaces: Vec<u64>,
    /// Requests instead of the scaled number.
    pub requests: Option<u64>,
    /// Time instead of a number of requests.
    pub duration: Option<Duration>,
    /// Requests a second.
    pub rate: Option<f64>,
    /// How keys are drawn.
    pub keys: KeyDistribution,
    /// Exponent of the Zipf distribution.
    pub zipf_exponent: f64,
    /// What `__data__` is made of.
    pub payload: Payload,
    /// `-t`: tests of `set-get`.
    pub tests: Vec<String>,
    /// Write every key once before the tests of `set-get`.
    pub fill: bool,
    /// `--command`: a template instead of tests.
    pub command: Option<String>,
    /// Where real data is kept once it was fetched or made.
    pub data_dir: PathBuf,
}

/// Why a workload cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No such name.
    #[error("no workload is called '{0}'; `snug bench list` names them")]
    Unknown(String),
    /// No such test.
    #[error("no test is called '{0}'; there are {1}")]
    UnknownTest(String, String),
    /// A template that cannot be read.
    #[error(transparent)]
    Template(#[from] crate::request::TemplateError),
    /// Real data that could not be had.
    #[error("{what}: {cause}")]
    Data {
        /// What was wanted.
        what: String,
        /// Why it is not there.
        cause: String,
    },
}

impl WorkloadError {
    /// Whether it lies in what was typed.
    pub fn is_misuse(&self) -> bool {
        !matches!(self, Self::Data { .. })
    }
}

/// A named workload.
pub struct Workload {
    /// Its name in WORKLOADS.
    pub name: &'static str,
    /// One line for `snug bench list`.
    pub summary: &'static str,
    /// Makes its steps.
    pub plan: fn(&Options) -> Result<Vec<Step>, WorkloadError>,
}

/// All of them.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "set-get",
        summary: "SET and GET, or any of -t, or --command, by -P, -d and -r",
        plan: set_get::plan,
    },
    Workload {
        name: "populate",
        summary: "DEBUG POPULATE of 1 M keys: what an entry costs",
        plan: populate::plan,
    },
    Workload {
        name: "stream-events",
        summary: "1 M entries of seven fields into one stream",
        plan: streams::plan_events,
    },
    Workload {
        name: "stream-identical",
        summary: "16 M entries of one and the same 64-byte value into ten streams",
        plan: streams::plan_identical,
    },
    Workload {
        name: "stream-celery",
        summary: "200,000 messages of a real Celery in ten streams (needs Python, redis-server)",
        plan: real::plan_stream_celery,
    },
    Workload {
        name: "list-celery",
        summary: "the same messages in ten lists",
        plan: real::plan_list_celery,
    },
    Workload {
        name: "hash-profiles",
        summary: "200,000 hashes of ten fields, as of a user table",
        plan: collections::plan_profiles,
    },
    Workload {
        name: "hash-jobs",
        summary: "100,000 hashes that BullMQ leaves of finished jobs",
        plan: collections::plan_jobs,
    },
    Workload {
        name: "hash-sessions",
        summary: "100,000 hashes of web sessions",
        plan: collections::plan_sessions,
    },
    Workload {
        name: "hash-big",
        summary: "one hash of 1 M fields, 100 with each HSET",
        plan: collections::plan_big,
    },
    Workload {
        name: "set-ints",
        summary: "one set of 1 M draws from 10 M integers",
        plan: collections::plan_ints,
    },
    Workload { name: "set-uuids", summary: "one set of 1 M UUIDs", plan: collections::plan_uuids },
    Workload {
        name: "zset-board",
        summary: "one sorted set of 1 M players and their scores",
        plan: collections::plan_board,
    },
    Workload {
        name: "zset-uuids",
        summary: "one sorted set of 1 M UUIDs by time",
        plan: collections::plan_zset_uuids,
    },
    Workload {
        name: "zset-recent",
        summary: "100,000 sorted sets of 20 members by time",
        plan: collections::plan_recent,
    },
    Workload {
        name: "list-feed",
        summary: "200,000 lists of ten items",
        plan: collections::plan_feed,
    },
    Workload {
        name: "set-tags",
        summary: "200,000 sets of up to 8 of 1,000 tags",
        plan: collections::plan_tags,
    },
    Workload {
        name: "stream-flights",
        summary: "336,776 real flights, one entry each (needs Python)",
        plan: real::plan_flights,
    },
    Workload {
        name: "stream-lookup",
        summary: "XRANGE of single entries at random, of 1 M events and of 100,000 documents",
        plan: lookup::plan,
    },
    Workload {
        name: "stream-mixed",
        summary: "XADD, XREADGROUP, XACK and XRANGE at once",
        plan: mixed::plan,
    },
    Workload {
        name: "json-zipf",
        summary: "1 M JSON documents, left to cool, then 90 % Zipf reads",
        plan: json_zipf::plan,
    },
    Workload {
        name: "capture",
        summary: "a packet-capture pipeline at 10,500 writes a second, with expiry",
        plan: capture::plan,
    },
    Workload {
        name: "large-values",
        summary: "10 MB values written and read by one client while 50 others GET small ones",
        plan: large_values::plan,
    },
];

/// Finds a workload by name.
pub fn find(name: &str) -> Result<&'static Workload, WorkloadError> {
    WORKLOADS
        .iter()
        .find(|workload| workload.name == name)
        .ok_or_else(|| WorkloadError::Unknown(name.to_owned()))
}

impl Options {
    /// `full` at this scale, at least 1.
    pub fn scaled(&self, full: u64) -> u64 {
        ((full as f64 * self.scale).round() as u64).max(1)
    }

    /// The number of requests: as asked, else the scaled full size, else none
    /// where time limits the run.
    pub fn requests_or(&self, full: u64) -> Option<u64> {
        match (self.requests, self.duration) {
            (Some(requests), _) => Some(requests),
            (None, Some(_)) => None,
            (None, None) => Some(self.scaled(full)),
        }
    }

    /// The one pipeline of a workload that takes no list of them.
    pub fn pipeline_or(&self, default: usize) -> usize {
        self.pipelines.first().copied().unwrap_or(default)
    }
}
