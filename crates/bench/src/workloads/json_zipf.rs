//! `json-zipf`: a million JSON documents of English words, 256 B to 8 KiB
//! (lognormal), written once, left to cool, then read by a Zipf law: 90 % reads,
//! 10 % rewrites. From Valkey's issue 3423.

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, RngExt};
use rand_distr::{Distribution, LogNormal};

use super::streams::numbered_step;
use super::{COOL, Options, WorkloadError};
use crate::keys::{KeyDistribution, KeyPicker, Keys};
use crate::payload::{push_text, random_word};
use crate::request::write_request;
use crate::run::{Items, Step, StepSettings, Work};
use crate::source::{Random, Source, random};

const DOCUMENTS: u64 = 1_000_000;
const READS: u64 = 2_000_000;
const SIZE_MIN: f64 = 256.0;
const SIZE_MAX: f64 = 8192.0;
/// ln of the median size, 1 KiB, and the spread of the logarithm.
const SIZE_LN: f64 = 6.931;
const SIZE_SIGMA: f64 = 0.7;
/// Documents are read when so many a second could have been packed.
const PACKED_A_SECOND: u64 = 20_000;

pub(super) fn plan(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let seed = options.seed;
    let documents = options.scaled(DOCUMENTS);
    let write = move |number: u64, out: &mut Vec<u8>| write_set(seed, number, 0, out);
    let mut load = numbered_step(options, "json-zipf/load", "set", documents, 10, 20, write);
    // The rate and the time asked for are those of the mixed step.
    if let Work::Load { rate, duration, .. } = &mut load.work {
        (*rate, *duration) = (None, None);
    }
    load.items = Items::Keys;
    load.rest = Some(COOL + Duration::from_secs(documents / PACKED_A_SECOND));
    let exponent = options.zipf_exponent;
    let source = Arc::new(move |connection: usize| {
        Box::new(Mixed {
            seed,
            keys: Keys::new(KeyDistribution::Zipf, documents, exponent),
            rng: random(seed, 1 << 32 | connection as u64),
            writes: 0,
        }) as Box<dyn Source>
    });
    let mixed = Step {
        name: "json-zipf/mixed".into(),
        settings: StepSettings::new(),
        work: Work::Load {
            kinds: vec!["get".into(), "set".into()],
            connections: options.connections.unwrap_or(50),
            pipeline: options.pipeline_or(1),
            requests: options.requests_or(READS),
            duration: options.duration,
            rate: options.rate,
            source,
        },
        items: Items::Uncounted,
        rest: None,
        inspect: None,
    };
    Ok(vec![load, mixed])
}

struct Mixed {
    seed: u64,
    keys: Keys,
    rng: Random,
    writes: u64,
}

impl Source for Mixed {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let number = self.keys.next(&mut self.rng);
        if self.rng.random_ratio(9, 10) {
            let key = format!("doc:{number}");
            write_request(out, &[b"GET", key.as_bytes()]);
            return Some(0);
        }
        self.writes += 1;
        write_set(self.seed, number, self.writes, out);
        Some(1)
    }
}

fn write_set(seed: u64, number: u64, version: u64, out: &mut Vec<u8>) {
    let mut rng = random(seed.wrapping_add(version), number);
    let key = format!("doc:{number}");
    let document = document(number, &mut rng);
    write_request(out, &[b"SET", key.as_bytes(), &document]);
}

/// A document whose fields are words, numbers and sentences.
pub(super) fn document(number: u64, rng: &mut impl Rng) -> Vec<u8> {
    let sizes = LogNormal::new(SIZE_LN, SIZE_SIGMA).expect("a constant, positive sigma");
    let size = sizes.sample(rng).clamp(SIZE_MIN, SIZE_MAX) as usize;
    let mut json =
        format!("{{\"id\":{number},\"version\":{}", rng.random_range(1..20)).into_bytes();
    while json.len() + 3 < size {
        let left = size - json.len() - 3;
        json.extend_from_slice(format!(",\"{}\":", random_word(rng)).as_bytes());
        match rng.random_range(0..6) {
            0 => json.extend_from_slice(rng.random_range(0..100_000).to_string().as_bytes()),
            1 => json.extend_from_slice(if rng.random() { b"true" } else { b"false" }),
            _ => {
                json.push(b'"');
                push_text(rng, &mut json, rng_length(left));
                json.push(b'"');
            }
        }
    }
    json.push(b'}');
    json
}

/// Sentences fill at most a third of what is left, so that there are several.
fn rng_length(left: usize) -> usize {
    (left / 3).clamp(8, 400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_json_of_the_sizes_asked_for() {
        let mut sizes: Vec<usize> = (0..2000)
            .map(|number| {
                let document = document(number, &mut random(1, number));
                assert!(serde_json::from_slice::<serde_json::Value>(&document).is_ok());
                document.len()
            })
            .collect();
        sizes.sort_unstable();
        assert!(sizes[0] >= 250 && sizes[1999] <= 8300, "{} {}", sizes[0], sizes[1999]);
        assert!((900..1150).contains(&sizes[1000]), "{}", sizes[1000]);
    }
}
