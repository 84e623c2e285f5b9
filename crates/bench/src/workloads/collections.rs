//! Workloads of hashes, lists, sets and sorted sets: many small ones, as applications
//! keep them, and large ones of a million members.
//!
//! | workload | a request | a unit |
//! | --- | --- | --- |
//! | `hash-profiles` | `HSET user:N`, ten fields | a hash |
//! | `hash-jobs` | `HSET bull:emails:N`, BullMQ's ten fields | a hash |
//! | `hash-sessions` | `HSET session:<UUID>`, six fields | a hash |
//! | `hash-big` | `HSET big`, 100 fields `field:N` | a field |
//! | `set-ints`, `set-uuids` | `SADD`, one member | a member |
//! | `zset-board`, `zset-uuids` | `ZADD`, one member | a member |
//! | `zset-recent` | `ZADD recent:N`, 20 members | a key |
//! | `list-feed` | `RPUSH feed:N`, 10 items | a key |
//! | `set-tags` | `SADD tags:N`, up to 8 members | a key |
//!
//! Request `i` is a function of the seed and `i`. Memory is read when the last reply has
//! come (*hot*) and once the server has had time to pack what nobody uses (*cooled*).
//! What Snug is to reach of both stands among the figures of each step.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;

use super::streams::{numbered_step, pick};
use super::{COOL, Options, WorkloadError};
use crate::report::Figure;
use crate::request::write_request;
use crate::run::{Items, Step};
use crate::source::{Random, random};

const CONNECTIONS: usize = 10;
const PIPELINE: usize = 16;
/// Units that could have been packed in a second: so much longer is waited.
const PACKED_A_SECOND: u64 = 20_000;
/// 2025-01-01 00:00:00 UTC, in seconds.
const EPOCH: u64 = 1_735_689_600;
const FIELDS_A_REQUEST: u64 = 100;
/// Integers from which the members of `set-ints` are drawn, for each draw.
const INTS_A_DRAW: u64 = 10;

/// What `used_memory` is to have grown by, in bytes for each unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// What a unit is.
    pub unit: &'static str,
    /// When the last has just been written.
    pub hot: f64,
    /// Once nobody has used them for a while.
    pub cooled: f64,
}

impl Reach {
    const fn of(unit: &'static str, hot: f64, cooled: f64) -> Self {
        Self { unit, hot, cooled }
    }

    fn figures(self) -> Vec<Figure> {
        [("hot", self.hot), ("cooled", self.cooled)]
            .map(|(when, value)| Figure {
                name: format!("to reach: bytes a {}, {when}", self.unit),
                value,
            })
            .into()
    }

    /// Makes a step one of memory, hot and cooled, of so many units.
    pub(super) fn measured(self, mut step: Step, items: Items, units: u64) -> Step {
        step.items = items;
        step.rest = Some(COOL + Duration::from_secs(units / PACKED_A_SECOND));
        step.inspect = Some(Arc::new(move |_| Ok(self.figures())));
        step
    }
}

/// A request in the making: words of which each may be put together of parts.
#[derive(Debug, Default)]
struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    fn push(&mut self, word: impl std::fmt::Display) -> &mut Self {
        // Writing to a Vec does not fail.
        let _ = write!(self.bytes, "{word}");
        self.ends.push(self.bytes.len());
        self
    }

    fn send(&self, out: &mut Vec<u8>) {
        let mut from = 0;
        let words = self.ends.iter().map(|&to| {
            let word = &self.bytes[from..to];
            from = to;
            word
        });
        write_request(out, &words.collect::<Vec<_>>());
    }
}

/// A step of `units` requests, or of `-n` of them; `write` makes request `number`.
fn load(
    options: &Options,
    name: &str,
    command: &'static str,
    units: u64,
    write: impl Fn(u64, &mut Random, &mut Words) + Clone + Send + Sync + 'static,
) -> Step {
    let seed = options.seed;
    let kind = command.to_lowercase();
    let write = move |number: u64, out: &mut Vec<u8>| {
        let mut words = Words::default();
        write(number, &mut random(seed, number), words.push(command));
        words.send(out);
    };
    numbered_step(options, name, &kind, units, CONNECTIONS, PIPELINE, write)
}

/// Many keys, one for each request.
fn keys(
    options: &Options,
    name: &str,
    command: &'static str,
    full: u64,
    reach: Reach,
    write: impl Fn(u64, &mut Random, &mut Words) + Clone + Send + Sync + 'static,
) -> Vec<Step> {
    let count = options.requests.unwrap_or_else(|| options.scaled(full));
    vec![reach.measured(load(options, name, command, count, write), Items::Keys, count)]
}

/// One large key, to which requests add `items` in all.
fn members(
    options: &Options,
    name: &str,
    command: &'static str,
    (requests, items): (u64, u64),
    reach: Reach,
    write: impl Fn(u64, &mut Random, &mut Words) + Clone + Send + Sync + 'static,
) -> Vec<Step> {
    let step = load(options, name, command, requests, write);
    vec![reach.measured(step, Items::Of { items, requests }, items / 10)]
}

/// Random, of version 4.
fn uuid(rng: &mut Random) -> String {
    let bits: u128 = rng.random();
    let bits = bits & !(0xf << 76 | 3 << 62) | 4 << 76 | 2 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

const FIRST_NAMES: [&str; 25] = [
    "James", "Mary", "John", "Linda", "Robert", "Susan", "Michael", "Karen", "David", "Lisa",
    "Wei", "Fatima", "Carlos", "Yuki", "Olga", "Ahmed", "Priya", "Lars", "Chiara", "Kwame",
    "Elena", "Hugo", "Amara", "Noah", "Zoe",
];
const LAST_NAMES: [&str; 25] = [
    "Smith", "Johnson", "Brown", "Garcia", "Miller", "Davis", "Wilson", "Anderson", "Thomas",
    "Moore", "Chen", "Khan", "Silva", "Tanaka", "Ivanova", "Hassan", "Patel", "Hansen", "Rossi",
    "Mensah", "Popov", "Dubois", "Okafor", "Meyer", "Novak",
];
const COUNTRIES: [&str; 15] =
    ["US", "GB", "DE", "FR", "IN", "CN", "BR", "JP", "RU", "EG", "SE", "IT", "GH", "ES", "NG"];
/// `free` with weight 3.
const PLANS: [&str; 5] = ["free", "free", "free", "pro", "team"];
const LOCALES: [&str; 4] = ["en_US", "de_DE", "fr_FR", "es_ES"];

pub(super) fn plan_profiles(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let reach = Reach::of("hash", 230.0, 70.0);
    Ok(keys(options, "hash-profiles", "HSET", 200_000, reach, |number, rng, words| {
        let (first, last) = (pick(&FIRST_NAMES, rng), pick(&LAST_NAMES, rng));
        let email = format!(
            "{}.{}{}@example.com",
            first.to_lowercase(),
            last.to_lowercase(),
            rng.random_range(0..1000)
        );
        let created = EPOCH - rng.random_range(0..94_608_000);
        let login = EPOCH + rng.random_range(0..25_920_000);
        let active = u8::from(rng.random_ratio(9, 10));
        let score = f64::from(rng.random_range(0..=10_000)) / 100.0;
        words.push(format_args!("user:{number}"));
        words.push("id").push(number);
        words.push("name").push(format_args!("{first} {last}"));
        words.push("email").push(email);
        words.push("country").push(pick(&COUNTRIES, rng));
        words.push("plan").push(pick(&PLANS, rng));
        words.push("created_at").push(created);
        words.push("last_login").push(login);
        words.push("is_active").push(active);
        words.push("score").push(format_args!("{score:.2}"));
        words.push("locale").push(pick(&LOCALES, rng));
    }))
}

const JOBS: [&str; 4] = ["welcome", "password-reset", "invoice", "newsletter"];
const JOB_OPTIONS: &str = "{\"attempts\":3,\"backoff\":{\"type\":\"exponential\",\"delay\":1000},\
\"removeOnComplete\":1000,\"removeOnFail\":5000}";

pub(super) fn plan_jobs(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let reach = Reach::of("hash", 950.0, 120.0);
    Ok(keys(options, "hash-jobs", "HSET", 100_000, reach, |number, rng, words| {
        let first = pick(&FIRST_NAMES, rng).to_lowercase();
        let last = pick(&LAST_NAMES, rng).to_lowercase();
        let data = format!(
            "{{\"to\":\"{first}.{last}{}@example.com\",\"template\":\"tpl-{}\",\
             \"locale\":\"{}\",\"id\":\"{}\"}}",
            rng.random_range(0..1000),
            rng.random_range(0..20),
            pick(&LOCALES, rng),
            uuid(rng)
        );
        let sent = milliseconds(number, rng);
        let begun = sent + rng.random_range(1..500);
        let done = begun + rng.random_range(20..900);
        let answer = format!("{{\"messageId\":\"{}\"}}", rng.random::<u32>());
        words.push(format_args!("bull:emails:{number}"));
        words.push("name").push(pick(&JOBS, rng));
        words.push("data").push(data);
        words.push("opts").push(JOB_OPTIONS);
        words.push("timestamp").push(sent);
        words.push("delay").push(0);
        words.push("priority").push(0);
        words.push("processedOn").push(begun);
        words.push("finishedOn").push(done);
        words.push("returnvalue").push(answer);
        words.push("atm").push(1);
    }))
}

/// Milliseconds since 1970, some 37 from one number to the next.
fn milliseconds(number: u64, rng: &mut Random) -> u64 {
    EPOCH * 1000 + number * 37 + rng.random_range(0..37)
}

const USER_AGENTS: [&str; 2] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:127.0) Gecko/20100101 Firefox/127.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Version/17.5 Safari/604.1",
];

pub(super) fn plan_sessions(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let reach = Reach::of("hash", 700.0, 120.0);
    Ok(keys(options, "hash-sessions", "HSET", 100_000, reach, |number, rng, words| {
        let mut ip = || rng.random_range(1..255_u8);
        let ip = format!("{}.{}.{}.{}", ip(), ip(), ip(), ip());
        words.push(format_args!("session:{}", uuid(rng)));
        words.push("user_id").push(rng.random_range(1..=1_000_000));
        words.push("ip").push(ip);
        words.push("ua").push(pick(&USER_AGENTS, rng));
        words.push("csrf").push(format_args!("{:032x}", rng.random::<u128>()));
        words.push("created").push(EPOCH + number / 20);
        let item = |_| {
            let (sku, count) = (rng.random_range(10_000..100_000), rng.random_range(1..5));
            let price = f64::from(rng.random_range(100..50_000)) / 100.0;
            format!("{{\"sku\":\"{sku}\",\"qty\":{count},\"price\":{price:.2}}}")
        };
        let count = (number % 4) as usize;
        let items: Vec<String> = (0..count).map(item).collect();
        words.push("cart").push(format_args!("[{}]", items.join(",")));
    }))
}

pub(super) fn plan_big(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let full = options.scaled(1_000_000).div_ceil(FIELDS_A_REQUEST);
    let requests = options.requests.unwrap_or(full);
    let reach = Reach::of("field", 34.0, 14.0);
    let count = (requests, requests * FIELDS_A_REQUEST);
    Ok(members(options, "hash-big", "HSET", count, reach, |number, _, words| {
        words.push("big");
        for field in number * FIELDS_A_REQUEST..(number + 1) * FIELDS_A_REQUEST {
            words.push(format_args!("field:{field}")).push(format_args!("value:{field}"));
        }
    }))
}

/// Requests of a workload that sends a member with each.
fn draws(options: &Options) -> u64 {
    options.requests.unwrap_or_else(|| options.scaled(1_000_000))
}

pub(super) fn plan_ints(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let draws = draws(options);
    let seed = options.seed;
    let draw = move |rng: &mut Random| rng.random_range(0..draws * INTS_A_DRAW);
    // What is drawn twice is one member.
    let distinct: HashSet<u64> = (0..draws).map(|number| draw(&mut random(seed, number))).collect();
    let count = (draws, distinct.len() as u64);
    let reach = Reach::of("member", 10.0, 2.0);
    Ok(members(options, "set-ints", "SADD", count, reach, move |_, rng, words| {
        words.push("ints").push(draw(rng));
    }))
}

pub(super) fn plan_uuids(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let draws = draws(options);
    let reach = Reach::of("member", 34.0, 22.0);
    Ok(members(options, "set-uuids", "SADD", (draws, draws), reach, |_, rng, words| {
        words.push("uuids").push(uuid(rng));
    }))
}

pub(super) fn plan_board(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let draws = draws(options);
    let reach = Reach::of("member", 44.0, 24.0);
    Ok(members(options, "zset-board", "ZADD", (draws, draws), reach, move |number, rng, words| {
        let score = rng.random_range(0..1_000_000);
        words.push("board").push(score).push(format_args!("player:{number}"));
    }))
}

pub(super) fn plan_zset_uuids(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let draws = draws(options);
    let reach = Reach::of("member", 52.0, 34.0);
    Ok(members(options, "zset-uuids", "ZADD", (draws, draws), reach, |number, rng, words| {
        words.push("completed").push(milliseconds(number, rng)).push(uuid(rng));
    }))
}

pub(super) fn plan_recent(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let reach = Reach::of("key", 440.0, 150.0);
    Ok(keys(options, "zset-recent", "ZADD", 100_000, reach, |number, rng, words| {
        words.push(format_args!("recent:{number}"));
        let mut at = EPOCH + rng.random_range(0..86_400);
        // Twenty different ones: each of a range of its own.
        for nth in 0..20 {
            let item = nth * 50_000 + rng.random_range(0..50_000);
            words.push(at).push(format_args!("item:{item}"));
            at += rng.random_range(1..60);
        }
    }))
}

pub(super) fn plan_feed(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let reach = Reach::of("key", 200.0, 80.0);
    Ok(keys(options, "list-feed", "RPUSH", 200_000, reach, |number, rng, words| {
        words.push(format_args!("feed:{number}"));
        for _ in 0..10 {
            words.push(format_args!("post:{}", rng.random_range(0..10_000_000)));
        }
    }))
}

pub(super) fn plan_tags(options: &Options) -> Result<Vec<Step>, WorkloadError> {
    let reach = Reach::of("key", 98.0, 60.0);
    Ok(keys(options, "set-tags", "SADD", 200_000, reach, |number, rng, words| {
        words.push(format_args!("tags:{number}"));
        for _ in 0..8 {
            words.push(format_args!("tag:{}", pareto(rng)));
        }
    }))
}

/// One of 1,000, by the Pareto law of shape 1.1: low ones come often.
fn pareto(rng: &mut Random) -> u64 {
    loop {
        let draw = (1.0 - rng.random::<f64>()).powf(-1.0 / 1.1);
        if draw < 1001.0 {
            return draw as u64 - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Work;
    use crate::workloads::find;

    const NAMES: [(&str, usize); 11] = [
        ("hash-profiles", 22),
        ("hash-jobs", 22),
        ("hash-sessions", 14),
        ("hash-big", 202),
        ("set-ints", 3),
        ("set-uuids", 3),
        ("zset-board", 4),
        ("zset-uuids", 4),
        ("zset-recent", 42),
        ("list-feed", 12),
        ("set-tags", 10),
    ];

    fn step(name: &str, seed: &str) -> Step {
        #[derive(clap::Parser)]
        struct Program {
            #[command(flatten)]
            load: crate::cli::LoadArgs,
        }
        let words = ["x", "--scale", "0.01", "--seed", seed];
        let program: Program = clap::Parser::try_parse_from(words).unwrap();
        (find(name).unwrap().plan)(&program.load.options()).unwrap().remove(0)
    }

    /// All that a step sends, as words.
    fn requests(step: &Step) -> Vec<Vec<String>> {
        let Work::Load { source, .. } = &step.work else { panic!("a load") };
        let mut source = source(0);
        let mut requests = Vec::new();
        let mut out = Vec::new();
        while source.next(&mut out).is_some() {
            let text = String::from_utf8(std::mem::take(&mut out)).unwrap();
            let lines: Vec<&str> = text.split("\r\n").collect();
            let pairs = lines[1..].chunks(2).filter(|pair| pair.len() == 2);
            let words = pairs.inspect(|pair| assert_eq!(pair[0], format!("${}", pair[1].len())));
            requests.push(words.map(|pair| pair[1].to_owned()).collect());
        }
        requests
    }

    #[test]
    fn requests_have_their_shape_and_follow_the_seed() {
        for (name, words) in NAMES {
            let sent = requests(&step(name, "1"));
            assert!(sent.len() >= 100 && sent.iter().all(|sent| sent.len() == words), "{name}");
            assert_eq!(sent, requests(&step(name, "1")), "{name}");
            // Nothing of `hash-big` is drawn.
            assert_eq!(sent == requests(&step(name, "2")), name == "hash-big", "{name}");
        }
    }

    #[test]
    fn units_are_what_the_server_will_have() {
        for (name, _) in NAMES {
            let step = step(name, "7");
            let sent = requests(&step);
            let keys: HashSet<&String> = sent.iter().map(|words| &words[1]).collect();
            let Items::Of { items, requests } = step.items else {
                assert_eq!((step.items, keys.len()), (Items::Keys, sent.len()), "{name}");
                continue;
            };
            let each = if sent[0][0] == "SADD" { 1 } else { 2 };
            let at = usize::from(sent[0][0] == "ZADD");
            let members = sent.iter().flat_map(|words| words[2 + at..].iter().step_by(each));
            let members: HashSet<&String> = members.collect();
            let count = (requests as usize, items as usize);
            assert_eq!((keys.len(), count), (1, (sent.len(), members.len())), "{name}");
        }
    }

    #[test]
    fn uuids_are_of_version_4_and_tags_of_a_thousand() {
        let mut rng = random(3, 0);
        let mut tags = vec![0; 1000];
        for _ in 0..20_000 {
            tags[pareto(&mut rng) as usize] += 1;
            let uuid = uuid(&mut rng);
            assert!(uuid.len() == 36 && &uuid[14..15] == "4" && "89ab".contains(&uuid[19..20]));
        }
        let share = f64::from(tags[0]) / 20_000.0;
        assert!((share - 0.533).abs() < 0.02, "{share}");
    }

    #[test]
    fn words_of_hashes_are_json_where_they_say_so() {
        for (name, at) in [("hash-jobs", [5, 7, 19]), ("hash-sessions", [13, 13, 13])] {
            for words in requests(&step(name, "1")) {
                for at in at {
                    assert!(serde_json::from_str::<serde_json::Value>(&words[at]).is_ok());
                }
            }
        }
    }
}
