//! `set-get`: the classic one, by pipelines, payload sizes and keyspaces; also
//! the other tests of redis-benchmark by its names, and templates of the user's.
//!
//! Keys are `key:` and twelve digits, as redis-benchmark writes them. The full
//! size is a million requests for each test, four million where pipelined.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{Options, WorkloadError};
use crate::keys::{KeyDistribution, Keys};
use crate::payload::fill_alphanumeric;
use crate::request::Template;
use crate::run::{Items, Step, StepSettings, Work};
use crate::source::{TemplateSource, random};

const REQUESTS: u64 = 1_000_000;
/// A pipeline gets as much done in a quarter of the time.
const REQUESTS_PIPELINED: u64 = 4 * REQUESTS;
const CONNECTIONS: usize = 50;
const FILL_PIPELINE: usize = 100;
const LIST_ITEMS: u64 = 1000;
/// A larger keyspace is not filled: it would take minutes and the memory of the
/// machine. Reads of it find what the writes before them left.
pub const FILL_KEYS_MAX: u64 = 10_000_000;

/// redis-benchmark's tests: name and template.
pub const TESTS: &[(&str, &str)] = &[
    ("ping", "PING"),
    ("ping_inline", "PING"),
    ("ping_mbulk", "PING"),
    ("set", "SET __key__ __data__"),
    ("get", "GET __key__"),
    ("incr", "INCR counter:__rand_int__"),
    ("lpush", "LPUSH mylist __data__"),
    ("rpush", "RPUSH mylist __data__"),
    ("lpop", "LPOP mylist"),
    ("rpop", "RPOP mylist"),
    ("sadd", "SADD myset element:__rand_int__"),
    ("hset", "HSET myhash element:__rand_int__ __data__"),
    ("spop", "SPOP myset"),
    ("zadd", "ZADD myzset __rand_int__ element:__rand_int__"),
    ("zpopmin", "ZPOPMIN myzset"),
    ("lrange_100", "LRANGE mylist 0 99"),
    ("lrange_300", "LRANGE mylist 0 299"),
    ("lrange_500", "LRANGE mylist 0 499"),
    ("lrange_600", "LRANGE mylist 0 599"),
    ("mset", MSET),
    ("xadd", "XADD mystream * myfield __data__"),
];

/// Ten keys at once, each drawn anew.
const MSET: &str = "MSET key:__rand_int__ __data__ key:__rand_int__ __data__ \
key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
key:__rand_int__ __data__ key:__rand_int__ __data__";

/// A test by its name.
fn template_of(test: &str) -> Result<&'static str, WorkloadError> {
    TESTS.iter().find(|(name, _)| *name == test).map(|(_, template)| *template).ok_or_else(|| {
        let names: Vec<&str> = TESTS.iter().map(|(name, _)| *name).collect();
        WorkloadError::UnknownTest(test.to_owned(), names.join(", "))
    })
}

pub(super) fn plan(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let tests: Vec<(String, &str)> = match &options.command {
        Some(command) => {
            let name = command.split_whitespace().next().unwrap_or("command");
            vec![(name.to_lowercase(), command.as_str())]
        }
        None => options
            .tests
            .iter()
            .map(|test| Ok((test.to_lowercase(), template_of(&test.to_lowercase())?)))
            .collect::<Result<_, WorkloadError>>()?,
    };
    let mut steps = Vec::new();
    for &keyspace in or_one(&options.keyspaces, &1) {
        for &data_bytes in or_one(&options.data_bytes, &3) {
            if options.fill && keyspace <= FILL_KEYS_MAX {
                steps.push(fill_step(options, keyspace, data_bytes)?);
            }
            if options.command.is_none() && tests.iter().any(|(test, _)| test.starts_with("lrange"))
            {
                steps.push(list_step(options, keyspace, data_bytes)?);
            }
            for &pipeline in or_one(&options.pipelines, &1) {
                for (test, template) in &tests {
                    let name = step_name(options, test, keyspace, data_bytes, pipeline);
                    steps
                        .push(step(options, name, test, template, keyspace, data_bytes, pipeline)?);
                }
            }
        }
    }
    Ok(steps)
}

/// As it is written on the command line.
fn flag_value(choice: impl clap::ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn or_one<'a, T>(given: &'a [T], default: &'a T) -> &'a [T] {
    if given.is_empty() { std::slice::from_ref(default) } else { given }
}

/// The test, then whatever takes more than one value in this run.
fn step_name(options: &Options, test: &str, keyspace: u64, data: usize, pipeline: usize) -> String {
    let mut name = test.to_owned();
    if options.pipelines.len() > 1 {
        let _ = write!(name, "/P{pipeline}");
    }
    if options.data_bytes.len() > 1 {
        let _ = write!(name, "/d{data}");
    }
    if options.keyspaces.len() > 1 {
        let _ = write!(name, "/r{keyspace}");
    }
    name
}

/// Every key once, in order, so that reads find them and each has a known size.
fn fill_step(options: &Options, keyspace: u64, data_bytes: usize) -> Result<Step, WorkloadError> {
    let mut own = options.clone();
    own.keys = KeyDistribution::Sequential;
    own.requests = Some(keyspace);
    // One connection: each key exactly once.
    own.connections = Some(1);
    (own.duration, own.rate) = (None, None);
    own.pipelines.clear();
    let name = step_name(&own, "fill", keyspace, data_bytes, FILL_PIPELINE);
    let template = template_of("set")?;
    step(&own, name, "set", template, keyspace, data_bytes, FILL_PIPELINE)
}

/// Items for the tests of `LRANGE`, some more than the longest asks for.
fn list_step(options: &Options, keyspace: u64, data_bytes: usize) -> Result<Step, WorkloadError> {
    let mut own = options.clone();
    own.requests = Some(LIST_ITEMS);
    (own.duration, own.rate) = (None, None);
    own.pipelines.clear();
    let name = step_name(&own, "fill-list", keyspace, data_bytes, FILL_PIPELINE);
    let template = template_of("rpush")?;
    let mut step = step(&own, name, "rpush", template, keyspace, data_bytes, FILL_PIPELINE)?;
    step.items = Items::Uncounted;
    Ok(step)
}

fn step(
    options: &Options,
    name: String,
    test: &str,
    template: &str,
    keyspace: u64,
    data_bytes: usize,
    pipeline: usize,
) -> Result<Step, WorkloadError> {
    let seed = options.seed;
    let mut fixed = vec![0; data_bytes];
    fill_alphanumeric(&mut random(seed, u64::MAX), &mut fixed);
    let keys = Keys::new(options.keys, keyspace, options.zipf_exponent);
    let settings = StepSettings::from([
        ("command".into(), template.to_owned()),
        ("data-size".into(), data_bytes.to_string()),
        ("keyspace".into(), keyspace.to_string()),
        ("key-distribution".into(), flag_value(options.keys)),
        ("payload".into(), flag_value(options.payload)),
    ]);
    let template = match test {
        "ping_inline" if options.command.is_none() => Template::inline(template, keys),
        _ => Template::parse(template, keys, options.payload, data_bytes, &fixed)?,
    };
    let connections = options.connections.unwrap_or(CONNECTIONS);
    let source = Arc::new(move |connection| {
        Box::new(TemplateSource::new(&template, seed, connection, connections))
            as Box<dyn crate::source::Source>
    });
    Ok(Step {
        name,
        settings,
        work: Work::Load {
            kinds: vec![test.to_owned()],
            connections,
            pipeline,
            requests: options.requests_or(if pipeline == 1 {
                REQUESTS
            } else {
                REQUESTS_PIPELINED
            }),
            duration: options.duration,
            rate: options.rate,
            source,
        },
        items: match test {
            "set" => Items::Keys,
            "xadd" | "lpush" | "rpush" => Items::Requests,
            _ => Items::Uncounted,
        },
        rest: None,
        inspect: None,
    })
}
