//! Workloads that fill streams: `stream-events` and `stream-identical`.
//!
//! Entry `i` is a function of the seed and `i`, so that the same stream results
//! however many connections share the work. With one connection (the default of
//! `stream-events`) entries also arrive in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use rand_distr::{Distribution, Exp1};

use super::{Options, WorkloadError};
use crate::payload::{fill_alphanumeric, push_alphanumeric};
use crate::request::{write_header, write_number, write_request};
use crate::run::{Items, Step, StepSettings, Work};
use crate::source::{Source, random};

const EVENTS: u64 = 1_000_000;
const IDENTICAL: u64 = 16_000_000;
const IDENTICAL_STREAMS: u64 = 10;
/// 2025-01-01 00:00:00 UTC, in tenths of a microsecond.
const EPOCH: u64 = 17_356_896_000_000_000;
/// 80 microseconds, in tenths of one.
const EVENT_INTERVAL: u64 = 800;

const ACTIONS: [&str; 7] = ["read", "write", "update", "delete", "list", "create", "process"];
/// `ok` with weight 3.
const STATUSES: [&str; 5] = ["ok", "ok", "ok", "error", "pending"];
const REGIONS: [&str; 4] = ["us-east", "us-west", "eu-west", "ap-south"];

/// Numbers handed out to whichever connection asks next.
pub(super) struct Sequence {
    next: AtomicU64,
    count: u64,
}

impl Sequence {
    /// 0 up to `count`.
    pub(super) fn new(count: u64) -> Arc<Self> {
        Arc::new(Self { next: AtomicU64::new(0), count })
    }

    /// The next number, if any is left.
    pub(super) fn take(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.count).then_some(number)
    }
}

/// A source that is a function of a shared sequence number.
struct Numbered<F> {
    sequence: Arc<Sequence>,
    write: F,
}

impl<F: FnMut(u64, &mut Vec<u8>) + Send> Source for Numbered<F> {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let number = self.sequence.take()?;
        (self.write)(number, out);
        Some(0)
    }
}

/// A step that adds entry 0 up to `count`, each written by `write`, and measures
/// what they weigh.
pub(super) fn numbered_step(
    options: &Options,
    name: &str,
    kind: &str,
    count: u64,
    connections: usize,
    pipeline: usize,
    write: impl Fn(u64, &mut Vec<u8>) + Clone + Send + Sync + 'static,
) -> Step {
    let kind = kind.to_owned();
    // A step may run in many rounds, each from 0; connection 0 is made first.
    let current = std::sync::Mutex::new(Sequence::new(count));
    let source = Arc::new(move |connection: usize| {
        let mut current = current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if connection == 0 {
            *current = Sequence::new(count);
        }
        let sequence = Arc::clone(&current);
        Box::new(Numbered { sequence, write: write.clone() }) as Box<dyn Source>
    });
    Step {
        name: name.to_owned(),
        settings: StepSettings::new(),
        work: Work::Load {
            kinds: vec![kind],
            connections: options.connections.unwrap_or(connections),
            pipeline: options.pipeline_or(pipeline),
            requests: Some(count),
            duration: options.duration,
            rate: options.rate,
            source,
        },
        items: Items::Requests,
        rest: Some(Duration::from_secs(1)),
        inspect: None,
    }
}

pub(super) fn plan_events(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let seed = options.seed;
    let count = options.requests.unwrap_or_else(|| options.scaled(EVENTS));
    let write = move |number, out: &mut Vec<u8>| write_event(seed, number, "*", out);
    Ok(vec![numbered_step(options, "stream-events", "xadd", count, 1, 100, write)])
}

/// One event: the seven fields of WORKLOADS.
pub(super) fn write_event(seed: u64, number: u64, id: &str, out: &mut Vec<u8>) {
    let mut rng = random(seed, number);
    let jitter = rng.random_range(0..EVENT_INTERVAL);
    let at = EPOCH + number * EVENT_INTERVAL + jitter;
    let seconds = format!("{}.{:07}", at / 10_000_000, at % 10_000_000);
    let user = rng.random_range(1..=100_000_u32).to_string();
    let tail: f64 = Exp1.sample(&mut rng);
    let length = (16.0 + 16.0 * tail).clamp(8.0, 64.0) as usize;
    let mut data = [0_u8; 64];
    fill_alphanumeric(&mut rng, &mut data[..length]);
    let sequence = number.to_string();
    write_request(
        out,
        &[
            b"XADD",
            b"events",
            id.as_bytes(),
            b"seq",
            sequence.as_bytes(),
            b"ts",
            seconds.as_bytes(),
            b"user_id",
            user.as_bytes(),
            b"action",
            pick(&ACTIONS, &mut rng).as_bytes(),
            b"status",
            pick(&STATUSES, &mut rng).as_bytes(),
            b"region",
            pick(&REGIONS, &mut rng).as_bytes(),
            b"data",
            &data[..length],
        ],
    );
}

pub(super) fn pick<'a>(of: &[&'a str], rng: &mut impl rand::Rng) -> &'a str {
    of[rng.random_range(0..of.len())]
}

pub(super) fn plan_identical(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let count = options.requests.unwrap_or_else(|| options.scaled(IDENTICAL));
    let mut value = Vec::new();
    push_alphanumeric(&mut random(options.seed, 0), &mut value, 64);
    let write = move |number: u64, out: &mut Vec<u8>| {
        out.extend_from_slice(b"*5\r\n$4\r\nXADD\r\n$8\r\nstream:");
        write_number(out, number % IDENTICAL_STREAMS);
        out.extend_from_slice(b"\r\n$1\r\n*\r\n$1\r\nd\r\n");
        write_header(out, b'$', value.len());
        out.extend_from_slice(&value);
        out.extend_from_slice(b"\r\n");
    };
    Ok(vec![numbered_step(options, "stream-identical", "xadd", count, 50, 5, write)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments of a request, as text.
    fn arguments(request: &[u8]) -> Vec<String> {
        let text = String::from_utf8(request.to_vec()).unwrap();
        let lines: Vec<&str> = text.split("\r\n").collect();
        lines[1..].chunks(2).filter(|pair| pair.len() == 2).map(|pair| pair[1].to_owned()).collect()
    }

    #[test]
    fn events_have_their_shape() {
        let mut lengths = 0;
        let mut ok = 0;
        let mut before = 0.0;
        let count = 20_000;
        for number in 0..count {
            let mut out = Vec::new();
            write_event(7, number, "*", &mut out);
            let words = arguments(&out);
            assert_eq!(words.len(), 17);
            assert_eq!(words[4], number.to_string());
            let at: f64 = words[6].parse().unwrap();
            assert!(at > before && words[6].split('.').nth(1).unwrap().len() == 7);
            before = at;
            ok += u64::from(words[12] == "ok");
            assert!((8..=64).contains(&words[16].len()));
            lengths += words[16].len() as u64;
        }
        assert!((ok as f64 / count as f64 - 0.6).abs() < 0.02);
        let mean = lengths as f64 / count as f64;
        // 16 + 16 (1 - e^-3) less half a letter of truncation.
        assert!((mean - 30.7).abs() < 0.4, "{mean}");
    }

    #[test]
    fn the_same_seed_gives_the_same_events() {
        let one = |seed| {
            let mut out = Vec::new();
            write_event(seed, 3, "*", &mut out);
            out
        };
        assert_eq!(one(1), one(1));
        assert_ne!(one(1), one(2));
    }

    #[test]
    fn a_sequence_is_handed_out_once() {
        let sequence = Sequence::new(3);
        let taken: Vec<u64> = std::iter::from_fn(|| sequence.take()).collect();
        assert_eq!(taken, [0, 1, 2]);
    }
}
