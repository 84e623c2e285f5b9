//! `large-values`: one client writes and reads values of 10 MB while 50 others
//! `GET` small ones; what matters is how long the small ones take.
//!
//! The large client's values are text and noise in turn, 16 keys of each. They
//! are written before the load and left to rest, so that a server that packs has
//! packed what it will; then one request in four of that client's overwrites one,
//! the others read any. With `-d` values are of another size.
//!
//! Where it comes from: a Redis-compatible server has one thread for all, and a
//! large value holds it for milliseconds.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;

use super::{COOL, Options, WorkloadError};
use crate::payload::{Payload, fill};
use crate::request::{write_argument, write_header, write_request};
use crate::run::{Items, Step, StepSettings, Work};
use crate::source::{Random, Source, random};

/// Connections that read small values, beside the one of the large.
const SMALL_CONNECTIONS: usize = 50;
const SMALL_KEYS: u64 = 10_000;
const SMALL_BYTES: usize = 64;
const LARGE_BYTES: usize = 10_000_000;
/// Of each kind.
const LARGE_KEYS: usize = 16;
/// One request in so many of the large client's writes.
const WRITE_EVERY: u32 = 4;
const DURATION: Duration = Duration::from_secs(20);

const SMALL: usize = 0;
const LARGE_GET: usize = 1;
const LARGE_SET: usize = 2;

pub(super) fn plan(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let seed = options.seed;
    let bytes = options.data_bytes.first().copied().unwrap_or(LARGE_BYTES);
    let values = Arc::new(values(seed, bytes));
    let connections = options.connections.unwrap_or(SMALL_CONNECTIONS);
    let written = Arc::clone(&values);
    let fill = Step {
        name: "large-values/fill".into(),
        settings: StepSettings::new(),
        work: Work::Load {
            kinds: ["set", "large set"].map(String::from).to_vec(),
            connections: 1,
            pipeline: 1,
            requests: Some(SMALL_KEYS + 2 * LARGE_KEYS as u64),
            duration: None,
            rate: None,
            source: Arc::new(move |_| {
                Box::new(Filler { at: 0, values: Arc::clone(&written), rest: None })
            }),
        },
        items: Items::Keys,
        rest: Some(COOL),
        inspect: None,
    };
    let load = Step {
        name: "large-values/load".into(),
        settings: StepSettings::new(),
        work: Work::Load {
            kinds: ["get", "large get", "large set"].map(String::from).to_vec(),
            connections: connections + 1,
            pipeline: 1,
            requests: options.requests,
            duration: match options.requests {
                Some(_) => options.duration,
                None => Some(options.duration.unwrap_or(DURATION.mul_f64(options.scale))),
            },
            rate: options.rate,
            source: Arc::new(move |connection| {
                let rng = random(seed, connection as u64);
                match connection {
                    0 => Box::new(Large { rng, values: Arc::clone(&values), rest: None })
                        as Box<dyn Source>,
                    _ => Box::new(Small { rng }),
                }
            }),
        },
        items: Items::Uncounted,
        rest: Some(Duration::from_secs(1)),
        inspect: None,
    };
    Ok(vec![fill, load])
}

/// A text and as much noise, each as it ends a request.
fn values(seed: u64, bytes: usize) -> [Arc<[u8]>; 2] {
    let mut rng = random(seed, u64::MAX);
    let (mut text, mut noise) = (vec![0; bytes], vec![0; bytes]);
    fill(Payload::Text, &mut rng, &mut text);
    rng.fill(&mut noise[..]);
    [text, noise].map(|value| [&value[..], b"\r\n"].concat().into())
}

fn small_key(n: u64) -> String {
    format!("small:{n}")
}

fn large_key(n: usize) -> String {
    format!("{}:{n}", ["text", "noise"][n % 2])
}

/// Begins a request that writes a large value; gives what comes behind it.
fn write_large(out: &mut Vec<u8>, n: usize, values: &[Arc<[u8]>; 2]) -> Arc<[u8]> {
    let (key, value) = (large_key(n), &values[n % 2]);
    write_header(out, b'*', 3);
    write_argument(out, b"SET");
    write_argument(out, key.as_bytes());
    write_header(out, b'$', value.len() - 2);
    Arc::clone(value)
}

struct Filler {
    at: u64,
    values: Arc<[Arc<[u8]>; 2]>,
    rest: Option<Arc<[u8]>>,
}

impl Source for Filler {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let at = self.at;
        self.at += 1;
        if at < SMALL_KEYS {
            write_request(out, &[b"SET", small_key(at).as_bytes(), &[b's'; SMALL_BYTES]]);
            return Some(0);
        }
        let large = (at - SMALL_KEYS) as usize;
        (large < 2 * LARGE_KEYS).then(|| {
            self.rest = Some(write_large(out, large, &self.values));
            1
        })
    }

    fn rest(&self) -> Option<Arc<[u8]>> {
        self.rest.clone()
    }
}

struct Large {
    rng: Random,
    values: Arc<[Arc<[u8]>; 2]>,
    rest: Option<Arc<[u8]>>,
}

impl Source for Large {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let n = self.rng.random_range(0..2 * LARGE_KEYS);
        if self.rng.random_ratio(1, WRITE_EVERY) {
            self.rest = Some(write_large(out, n, &self.values));
            return Some(LARGE_SET);
        }
        self.rest = None;
        write_request(out, &[b"GET", large_key(n).as_bytes()]);
        Some(LARGE_GET)
    }

    fn rest(&self) -> Option<Arc<[u8]>> {
        self.rest.clone()
    }
}

struct Small {
    rng: Random,
}

impl Source for Small {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let key = small_key(self.rng.random_range(0..SMALL_KEYS));
        write_request(out, &[b"GET", key.as_bytes()]);
        Some(SMALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_written_once_before_it_is_read() {
        let values = Arc::new(values(1, 10));
        let mut filler = Filler { at: 0, values, rest: None };
        let mut out = Vec::new();
        let kinds: Vec<usize> = std::iter::from_fn(|| filler.next(&mut out)).collect();
        let large = kinds.iter().filter(|&&kind| kind == 1).count();
        assert_eq!((kinds.len() - large, large), (SMALL_KEYS as usize, 2 * LARGE_KEYS));
        let text = String::from_utf8_lossy(&out);
        for key in [small_key(0), small_key(SMALL_KEYS - 1), large_key(0), large_key(31)] {
            assert_eq!(text.matches(&format!("\r\n{key}\r\n")).count(), 1, "{key}");
        }
        assert!(text.ends_with("\r\n$10\r\n"), "{text:?}");
        assert_eq!(filler.rest().map(|rest| rest.len()), Some(12), "the value and its end");
    }
}
