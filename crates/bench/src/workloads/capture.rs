//! `capture`: a packet-capture pipeline that keeps its last seconds in memory.
//!
//! Every second, at full scale: 6,000 packets of 8 KiB base64, mostly of bodies
//! that were compressed before, kept 10 s; 800 TCP sessions of 13 KiB JSON, each
//! written three times, kept 30 s; 700 HTTP exchanges, whose metadata, body and
//! parsing log are kept apart for 30 s. The rate scales, the kinds do not.
//! Afterwards a sample of each kind says what a payload byte costs in memory.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::{Rng, RngExt};

use super::streams::pick;
use super::{Options, WorkloadError};
use crate::endpoint::{Control, ControlError, Value};
use crate::payload::push_text;
use crate::report::Figure;
use crate::request::write_request;
use crate::run::{Items, Step, StepSettings, Work};
use crate::source::{Random, Source, random};

/// Kinds: name of the kind and prefix of its keys, writes a second, seconds kept.
const KINDS: [(&str, u32, &str); 5] = [
    ("packet", 6000, "10"),
    ("session", 3 * 800, "30"),
    ("http-meta", 700, "30"),
    ("http-body", 700, "30"),
    ("http-log", 700, "30"),
];
const WRITES_PER_SECOND: u32 = 6000 + 3 * 800 + 3 * 700;
const DURATION: Duration = Duration::from_secs(45);
/// 8 KiB of base64.
const PACKET_BYTES: usize = 6144;
const SESSION_BYTES: usize = 13 * 1024;
/// Sessions of one connection between their first and last write.
const SESSIONS_OPEN: usize = 64;
/// Keys of each kind that are looked at afterwards, and steps of the scan for them.
const SAMPLE: usize = 200;
const SCANS_MAX: usize = 2000;

pub(super) fn plan(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let seed = options.seed;
    let source = Arc::new(move |connection: usize| {
        Box::new(Capture {
            rng: random(seed, connection as u64),
            prefix: connection as u64,
            count: 0,
            open: VecDeque::new(),
        }) as Box<dyn Source>
    });
    let duration = options.duration.or(options.requests.is_none().then_some(DURATION));
    Ok(vec![Step {
        name: "capture".into(),
        settings: StepSettings::from([("scale".into(), options.scale.to_string())]),
        work: Work::Load {
            kinds: KINDS.map(|(name, ..)| name.to_owned()).to_vec(),
            connections: options.connections.unwrap_or(20),
            pipeline: options.pipeline_or(4),
            requests: options.requests,
            duration,
            rate: options.rate.or(Some(f64::from(WRITES_PER_SECOND) * options.scale)),
            source,
        },
        items: Items::Keys,
        rest: None,
        inspect: Some(Arc::new(cost_by_kind)),
    }])
}

struct Capture {
    rng: Random,
    prefix: u64,
    count: u64,
    /// Sessions that will be written again: number and writes so far.
    open: VecDeque<(u64, u32)>,
}

impl Source for Capture {
    fn next(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let mut at = self.rng.random_range(0..WRITES_PER_SECOND);
        let kind = KINDS.iter().position(|&(_, weight, _)| {
            let here = at < weight;
            at = at.saturating_sub(weight);
            here
        })?;
        self.count += 1;
        let mut number = self.count;
        let value = match kind {
            0 => packet(&mut self.rng),
            1 => {
                let (session, writes) = self.session();
                number = session;
                session_json(session, writes, &mut self.rng)
            }
            2 => http_metadata(number, &mut self.rng),
            3 => http_body(&mut self.rng),
            _ => http_log(&mut self.rng),
        };
        let (name, _, kept) = KINDS[kind];
        let key = format!("{name}:{}:{number}", self.prefix);
        write_request(out, &[b"SET", key.as_bytes(), &value, b"EX", kept.as_bytes()]);
        Some(kind)
    }
}

impl Capture {
    /// The session to write now, and how often it was written before.
    fn session(&mut self) -> (u64, u32) {
        let (session, writes) = match self.open.pop_front() {
            Some(oldest) if self.open.len() >= SESSIONS_OPEN => oldest,
            Some(oldest) => {
                self.open.push_front(oldest);
                (self.count, 0)
            }
            None => (self.count, 0),
        };
        if writes < 2 {
            self.open.push_back((session, writes + 1));
        }
        (session, writes)
    }
}

/// Headers, then a body: three times out of four one that was compressed.
fn packet(rng: &mut impl Rng) -> Vec<u8> {
    let mut packet = Vec::with_capacity(PACKET_BYTES);
    // Ethernet and IPv4 between a few hosts; ports, sequence numbers, checksums.
    packet.extend_from_slice(&[0x02, 0x42, 0xac, 0x11, 0, rng.random_range(2..9)]);
    packet.extend_from_slice(&[0x02, 0x42, 0xac, 0x11, 0, 1, 8, 0, 0x45, 0]);
    let mut varying = [0_u8; 38];
    rng.fill_bytes(&mut varying);
    packet.extend_from_slice(&varying);
    if rng.random_ratio(3, 4) {
        let from = packet.len();
        packet.resize(PACKET_BYTES, 0);
        rng.fill_bytes(&mut packet[from..]);
    } else {
        let left = PACKET_BYTES - packet.len();
        push_text(rng, &mut packet, left);
    }
    STANDARD.encode(packet).into_bytes()
}

fn address(rng: &mut impl Rng) -> String {
    format!("10.{}.{}.{}", rng.random_range(0..4), rng.random_range(0..32), rng.random::<u8>())
}

/// A TCP session: its ends, then its packets one by one.
fn session_json(session: u64, writes: u32, rng: &mut impl Rng) -> Vec<u8> {
    let mut json = format!(
        "{{\"session\":{session},\"revision\":{writes},\"client\":\"{}\",\"server\":\"{}\",\"packets\":[",
        address(rng),
        address(rng)
    );
    let mut at = 1_700_000_000_000_000_u64 + rng.random_range(0..1 << 40);
    let mut sequence = rng.random::<u32>();
    while json.len() < SESSION_BYTES - 128 {
        at += rng.random_range(20..5000);
        let length = rng.random_range(0..1460_u32);
        sequence = sequence.wrapping_add(length);
        let _ = write!(
            json,
            "{{\"ts_us\":{at},\"from\":\"{}\",\"flags\":\"{}\",\"seq\":{sequence},\"len\":{length},\"window\":{}}},",
            pick(&["client", "server"], rng),
            pick(&["ACK", "ACK", "ACK", "PSH,ACK", "SYN", "FIN,ACK"], rng),
            rng.random_range(1..512) * 128,
        );
    }
    json.pop();
    json.push_str("]}");
    json.into_bytes()
}

fn http_metadata(number: u64, rng: &mut impl Rng) -> Vec<u8> {
    let mut json = format!(
        "{{\"exchange\":{number},\"method\":\"{}\",\"status\":{},\"host\":\"{}.example.com\",\"path\":\"/",
        pick(&["GET", "GET", "GET", "POST", "PUT"], rng),
        pick(&["200", "200", "200", "204", "301", "304", "404", "500"], rng),
        pick(&["api", "www", "static", "login"], rng),
    )
    .into_bytes();
    push_text(rng, &mut json, 60);
    json.extend_from_slice(b"\",\"headers\":{");
    let names = [
        "accept",
        "accept-encoding",
        "cache-control",
        "content-type",
        "cookie",
        "referer",
        "user-agent",
        "x-request-id",
        "etag",
        "date",
        "server",
        "vary",
    ];
    for name in names {
        json.extend_from_slice(format!("\"{name}\":\"").as_bytes());
        let length = rng.random_range(20..200);
        push_text(rng, &mut json, length);
        json.extend_from_slice(b"\",");
    }
    json.pop();
    json.extend_from_slice(b"}}");
    json
}

/// 8 to 32 KiB: two thirds compressed already (images, gzip), the rest text.
fn http_body(rng: &mut impl Rng) -> Vec<u8> {
    let length = rng.random_range(8 * 1024..32 * 1024);
    let mut body = Vec::new();
    if rng.random_ratio(2, 3) {
        body.resize(length, 0);
        rng.fill_bytes(&mut body);
    } else {
        push_text(rng, &mut body, length);
    }
    body
}

/// 4 to 12 KiB of log lines.
fn http_log(rng: &mut impl Rng) -> Vec<u8> {
    let length = rng.random_range(4 * 1024..12 * 1024);
    let mut log = String::new();
    let mut at = rng.random_range(0..86_400_000_u32);
    while log.len() < length {
        at += rng.random_range(0..40);
        let _ = writeln!(
            log,
            "[{:02}:{:02}:{:02}.{:03}] {} parser.http: {} at offset {} ({} bytes)",
            at / 3_600_000 % 24,
            at / 60_000 % 60,
            at / 1000 % 60,
            at % 1000,
            pick(&["DEBUG", "DEBUG", "INFO", "WARN"], rng),
            pick(
                &[
                    "header complete",
                    "chunk begins",
                    "chunk ends",
                    "body complete",
                    "retransmission ignored"
                ],
                rng
            ),
            rng.random_range(0..100_000),
            rng.random_range(0..16_384),
        );
    }
    log.into_bytes()
}

/// What a byte of each kind costs, by `MEMORY USAGE` over `STRLEN` of a sample.
fn cost_by_kind(control: &mut Control) -> Result<Vec<Figure>, ControlError> {
    let mut figures = Vec::new();
    for (name, ..) in KINDS {
        let (mut held, mut payload) = (0, 0);
        for key in sample(control, &format!("{name}:*"))? {
            let usage = control.call(&["MEMORY", "USAGE", &key])?.as_u64();
            let length = control.call(&["STRLEN", &key])?.as_u64();
            // A key may expire between the two.
            if let (Some(usage), Some(length @ 1..)) = (usage, length) {
                held += usage;
                payload += length;
            }
        }
        if payload > 0 {
            let value = held as f64 / payload as f64;
            figures.push(Figure { name: format!("{name}: bytes held per payload byte"), value });
        }
    }
    Ok(figures)
}

/// Up to [`SAMPLE`] keys that match.
fn sample(control: &mut Control, pattern: &str) -> Result<Vec<String>, ControlError> {
    let mut keys = Vec::new();
    let mut cursor = "0".to_owned();
    for _ in 0..SCANS_MAX {
        let reply = control.call(&["SCAN", &cursor, "MATCH", pattern, "COUNT", "500"])?;
        let Value::List(parts) = reply else { break };
        let [next, Value::List(found)] = parts.as_slice() else { break };
        keys.extend(found.iter().map(Value::text));
        cursor = next.text();
        if cursor == "0" || keys.len() >= SAMPLE {
            break;
        }
    }
    keys.truncate(SAMPLE);
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_their_sizes_and_shapes() {
        let mut rng = random(5, 5);
        for number in 0..50 {
            assert_eq!(packet(&mut rng).len(), 8192);
            let session = session_json(number, 0, &mut rng);
            assert!(session.len().abs_diff(SESSION_BYTES) < 200, "{}", session.len());
            for json in [session, http_metadata(number, &mut rng)] {
                assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok());
            }
            assert!(http_body(&mut rng).len() >= 8192 && http_log(&mut rng).len() >= 4096);
        }
    }

    #[test]
    fn a_session_is_written_three_times() {
        let mut capture = Capture { rng: random(1, 1), prefix: 0, count: 0, open: VecDeque::new() };
        let mut writes = std::collections::HashMap::new();
        for _ in 0..3000 {
            capture.count += 1;
            *writes.entry(capture.session().0).or_insert(0) += 1;
        }
        assert!(writes.values().all(|&times| times <= 3));
        let thrice = writes.values().filter(|&&times| times == 3).count();
        assert!(thrice > 900 && writes.len() - thrice <= 2 * SESSIONS_OPEN);
        assert!(capture.open.len() <= 2 * SESSIONS_OPEN);
    }
}
