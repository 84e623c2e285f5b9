//! `stream-lookup`: single entries of long streams, picked at random from more than
//! a server keeps unpacked: what `XRANGE key id id` costs on sealed history. One
//! stream is of the events of `stream-events`, one of the documents of `json-zipf`.

use std::sync::Arc;

use rand::RngExt;

use super::json_zipf::document;
use super::streams::{numbered_step, write_event};
use super::{COOL, Options, WorkloadError};
use crate::request::write_request;
use crate::run::{Items, Step, StepSettings, Work};
use crate::source::{Random, Source, random};

const EVENTS: u64 = 1_000_000;
const DOCUMENTS: u64 = 100_000;
const LOOKUPS: u64 = 20_000;

const STREAMS: [(&str, u64); 2] = [("events", EVENTS), ("documents", DOCUMENTS)];

pub(super) fn plan(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    Ok(STREAMS.into_iter().flat_map(|stream| steps(options, stream)).collect())
}

fn steps(options: &Options, (stream, entries): (&'static str, u64)) -> [Step; 2] {
    let seed = options.seed;
    let entries = options.scaled(entries);
    let write = move |number: u64, out: &mut Vec<u8>| {
        let id = entry_id(number);
        if stream == "events" {
            write_event(seed, number, &id, out);
        } else {
            let document = document(number, &mut random(seed, number));
            let id = id.as_bytes();
            write_request(out, &[b"XADD", stream.as_bytes(), id, b"document", &document]);
        }
    };
    let name = format!("stream-lookup/{stream}");
    let mut load = numbered_step(options, &format!("{name}-load"), "xadd", entries, 1, 100, write);
    // Entries must come in order; the rate and the time asked for are the lookups'.
    if let Work::Load { connections, pipeline, rate, duration, .. } = &mut load.work {
        (*connections, *pipeline, *rate, *duration) = (1, 100, None, None);
    }
    load.rest = Some(COOL);
    let source = Arc::new(move |connection: usize| {
        let rng = random(seed, 1 << 32 | connection as u64);
        Box::new(Lookups { stream, entries, rng }) as Box<dyn Source>
    });
    let lookups = Step {
        name,
        settings: StepSettings::new(),
        work: Work::Load {
            kinds: vec!["xrange".into()],
            connections: options.connections.unwrap_or(1),
            pipeline: options.pipeline_or(1),
            requests: options.requests_or(LOOKUPS),
            duration: options.duration,
            rate: options.rate,
            source,
        },
        items: Items::Uncounted,
        rest: None,
        inspect: None,
    };
    [load, lookups]
}

/// The ID of entry `number`, which may not be 0-0.
fn entry_id(number: u64) -> String {
    format!("{}-0", number + 1)
}

struct Lookups {
    stream: &'static str,
    entries: u64,
    rng: Random,
}

impl Source for Lookups {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let id = entry_id(self.rng.random_range(0..self.entries));
        let id = id.as_bytes();
        write_request(out, &[b"XRANGE", self.stream.as_bytes(), id, id]);
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_may_be_looked_up_and_no_other() {
        let mut lookups = Lookups { stream: "events", entries: 3, rng: random(1, 0) };
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let mut out = Vec::new();
            lookups.next(&mut out);
            seen.insert(String::from_utf8(out).unwrap());
        }
        let request =
            |id| format!("*4\r\n$6\r\nXRANGE\r\n$6\r\nevents\r\n$3\r\n{id}\r\n$3\r\n{id}\r\n");
        assert_eq!(seen, ["1-0", "2-0", "3-0"].map(request).into());
    }
}
