//! `stream-mixed`: producers and consumer groups on the same streams, each kind
//! of command with its own latency.
//!
//! Half of the connections add entries, a quarter reads as members of a group
//! (`XREADGROUP`, then one `XACK` for all that came), a quarter reads ranges of
//! ten entries. Streams are trimmed to 100,000 entries.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;

use super::{Options, WorkloadError};
use crate::payload::push_alphanumeric;
use crate::request::write_request;
use crate::run::{Items, Step, StepSettings, Work};
use crate::source::{Random, Source, random};

const STREAMS: u64 = 4;
const REQUESTS: u64 = 1_000_000;
const READ_COUNT: &[u8] = b"10";

const XADD: usize = 0;
const XREADGROUP: usize = 1;
const XACK: usize = 2;
const XRANGE: usize = 3;

pub(super) fn plan(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let groups = (0..STREAMS).map(|stream| {
        let words = ["XGROUP", "CREATE", &key(stream), "workers", "$", "MKSTREAM"];
        Step {
            name: format!("stream-mixed/group-{stream}"),
            settings: StepSettings::new(),
            work: Work::Call { words: words.map(str::to_owned).to_vec(), items: 1 },
            items: Items::Uncounted,
            rest: None,
            inspect: None,
        }
    });
    let seed = options.seed;
    let data_bytes = options.data_bytes.first().copied().unwrap_or(64);
    let source = Arc::new(move |connection: usize| {
        let rng = random(seed, connection as u64);
        let stream = key(connection as u64 / 4 % STREAMS);
        match connection % 4 {
            0 | 1 => Box::new(Producer { stream, rng, data_bytes }) as Box<dyn Source>,
            2 => Box::new(Consumer {
                stream,
                name: format!("consumer-{connection}"),
                unacknowledged: Vec::new(),
            }),
            _ => Box::new(Ranger { stream }),
        }
    });
    let load = Step {
        name: "stream-mixed".into(),
        settings: StepSettings::new(),
        work: Work::Load {
            kinds: ["xadd", "xreadgroup", "xack", "xrange"].map(String::from).to_vec(),
            connections: options.connections.unwrap_or(16),
            pipeline: options.pipeline_or(1),
            requests: options.requests_or(REQUESTS),
            duration: options.duration,
            rate: options.rate,
            source,
        },
        items: Items::Uncounted,
        rest: Some(Duration::from_secs(1)),
        inspect: None,
    };
    Ok(groups.chain([load]).collect())
}

fn key(stream: u64) -> String {
    format!("mixed:{stream}")
}

struct Producer {
    stream: String,
    rng: Random,
    data_bytes: usize,
}

impl Source for Producer {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let mut data = Vec::new();
        push_alphanumeric(&mut self.rng, &mut data, self.data_bytes);
        let job = self.rng.random_range(0..1_000_000_u32).to_string();
        write_request(
            out,
            &[
                b"XADD",
                self.stream.as_bytes(),
                b"MAXLEN",
                b"~",
                b"100000",
                b"*",
                b"job",
                job.as_bytes(),
                b"data",
                &data,
            ],
        );
        Some(XADD)
    }
}

struct Consumer {
    stream: String,
    name: String,
    unacknowledged: Vec<Vec<u8>>,
}

impl Source for Consumer {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let stream = self.stream.as_bytes();
        if self.unacknowledged.is_empty() {
            let name = self.name.as_bytes();
            let words: [&[u8]; 9] = [
                b"XREADGROUP",
                b"GROUP",
                b"workers",
                name,
                b"COUNT",
                READ_COUNT,
                b"STREAMS",
                stream,
                b">",
            ];
            write_request(out, &words);
            return Some(XREADGROUP);
        }
        let mut words: Vec<&[u8]> = vec![b"XACK", stream, b"workers"];
        words.extend(self.unacknowledged.iter().map(Vec::as_slice));
        write_request(out, &words);
        self.unacknowledged.clear();
        Some(XACK)
    }

    fn wants_replies(&self) -> bool {
        true
    }

    fn reply(&mut self, kind: usize, reply: &[u8]) {
        if kind == XREADGROUP {
            self.unacknowledged.extend(entry_ids(reply));
        }
    }
}

/// Entry IDs in a reply: the bulk strings that are digits, a dash and digits and
/// begin an entry (`*2`). No field of this workload looks like that.
fn entry_ids(reply: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    reply.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end).filter_map(|line| {
        let dash = line.iter().position(|&byte| byte == b'-')?;
        let (ms, seq) = (&line[..dash], &line[dash + 1..]);
        let number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        (number(ms) && number(seq)).then(|| line.to_vec())
    })
}

struct Ranger {
    stream: String,
}

impl Source for Ranger {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let stream = self.stream.as_bytes();
        write_request(out, &[b"XRANGE", stream, b"-", b"+", b"COUNT", READ_COUNT]);
        Some(XRANGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_in_a_reply() {
        let reply =
            b"*1\r\n*2\r\n$7\r\nmixed:0\r\n*2\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nf\r\n$2\r\nv-\r\n\
*2\r\n$4\r\n12-5\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n";
        let ids: Vec<Vec<u8>> = entry_ids(reply).collect();
        assert_eq!(ids, [b"1-0".to_vec(), b"12-5".to_vec()]);
        assert_eq!(entry_ids(b"*-1\r\n").count(), 0);
    }

    #[test]
    fn what_was_read_is_acknowledged() {
        let mut consumer =
            Consumer { stream: "s".into(), name: "c".into(), unacknowledged: Vec::new() };
        let mut out = Vec::new();
        assert_eq!(consumer.next(&mut out), Some(XREADGROUP));
        consumer.reply(XREADGROUP, b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n7-1\r\n*0\r\n");
        out.clear();
        assert_eq!(consumer.next(&mut out), Some(XACK));
        assert_eq!(out, b"*4\r\n$4\r\nXACK\r\n$1\r\ns\r\n$7\r\nworkers\r\n$3\r\n7-1\r\n");
        assert_eq!(consumer.next(&mut out), Some(XREADGROUP));
    }
}
