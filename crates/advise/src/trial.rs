//! A Snug server that takes the sample: this same program, in a process of its own so that
//! its memory is nobody else's, reached on loopback with a password that nobody else knows.
//! It packs nothing until all is there; then it learns and packs as in service, only sooner.

use std::collections::{BTreeMap, HashMap};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use snug_bench::affinity::Cores;
use snug_bench::endpoint::{Control, Endpoint, Value};
use snug_bench::process::Process;
use snug_bench::request::write_request;
use snug_bench::target::{Server, Target};
use snug_bench::{interrupt, server_facts};

use crate::Failure;
use crate::sample::{Detail, Frame, Progress, Seen};

/// Bytes of requests that are sent before their answers are read.
const SEND: usize = 64 << 10;
/// Elements in one command.
const OF_COMMAND: usize = 500;
/// Keys weighed at once. What the answers of 200 take is kept by the server's worker as a
/// buffer of 90 KB; those of 16 fit in what it has anyway.
const WEIGH: usize = 16;
/// Databases of a Snug.
const DATABASES: u32 = 16;
/// It rests when for so long its memory has hardly changed and its threads have waited:
/// longer than it keeps what it packs with, and than a family waits to learn anew.
const REST: Duration = Duration::from_secs(5);
const REST_MIN: Duration = Duration::from_secs(8);
const REST_MAX: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(100);
/// What expires sooner is not packed, here or in service.
pub(crate) const SHORT_LIVED_MS: u64 = 10_000;
/// What the sample must not expire before.
const KEEP_MS: u64 = 24 * 3600 * 1000;

/// What was read of a value at once, in the form that its type is written in.
#[derive(Debug)]
pub(crate) enum Part {
    /// Bytes; items; fields and values; members; members and scores.
    Plain(Vec<Vec<u8>>),
    /// Entries of a stream: an ID, fields and values.
    Entries(Vec<Vec<Vec<u8>>>),
    /// What `RESTORE` takes.
    Dump(Vec<u8>, u64),
}

fn texts(values: Vec<Value>) -> Vec<Vec<u8>> {
    let text = |value| match value {
        Value::Text(text) => Some(text),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        _ => None,
    };
    values.into_iter().filter_map(text).collect()
}

impl Part {
    pub(crate) fn of(kind: &str, values: Vec<Value>) -> Self {
        if kind != "stream" {
            return Self::Plain(texts(values));
        }
        let entry = |value| {
            let Value::List(mut parts) = value else { return None };
            let (Value::List(fields), Value::Text(id)) = (parts.pop()?, parts.pop()?) else {
                return None;
            };
            let mut words = vec![id];
            words.extend(texts(fields));
            Some(words)
        };
        Self::Entries(values.into_iter().filter_map(entry).collect())
    }

    /// Elements, or bytes of a string.
    pub(crate) fn elements(&self, kind: &str) -> u64 {
        match self {
            Self::Plain(words) => match kind {
                "string" => words.iter().map(Vec::len).sum::<usize>() as u64,
                "hash" | "zset" => words.len() as u64 / 2,
                _ => words.len() as u64,
            },
            Self::Entries(entries) => entries.len() as u64,
            Self::Dump(_, elements) => *elements,
        }
    }

    pub(crate) fn longest(&self) -> u64 {
        match self {
            Self::Plain(words) => words.iter().map(Vec::len).max().unwrap_or(0) as u64,
            Self::Entries(_) | Self::Dump(..) => 0,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Plain(words) => words.iter().map(Vec::len).sum::<usize>() as u64,
            Self::Entries(entries) => {
                entries.iter().flat_map(|words| &words[1..]).map(Vec::len).sum::<usize>() as u64
            }
            Self::Dump(dump, _) => dump.len() as u64,
        }
    }

    pub(crate) fn last_id(&self) -> Option<Vec<u8>> {
        match self {
            Self::Entries(entries) => entries.last()?.first().cloned(),
            _ => None,
        }
    }
}

/// What a value weighs in the trial, in bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weight {
    /// Entry and value as they were written, and when they had cooled; without the cell.
    pub(crate) hot: u64,
    pub(crate) cooled: u64,
    /// Of the value: as a client sees it, what of that is packed, and into what.
    pub(crate) raw: u64,
    pub(crate) packed_from: u64,
    pub(crate) packed: u64,
    pub(crate) codec: String,
}

/// What all values weigh, and what is there besides.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// In the order of the details.
    pub(crate) values: Vec<Weight>,
    /// Dictionaries and what families know: what packing has added besides entries. It does
    /// not grow with the number of keys.
    pub(crate) fixed: u64,
    /// What an empty server uses.
    pub(crate) startup: u64,
}

/// What the trial says of a family.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) shape: String,
    pub(crate) verdict: String,
    pub(crate) dictionary: bool,
    pub(crate) judged: u64,
    pub(crate) not_worth: u64,
}

#[derive(Debug)]
pub(crate) struct Trial {
    control: Control,
    process: Option<Process>,
    db: u32,
    requests: Vec<u8>,
    count: usize,
    refused: Option<String>,
    /// Unless the user wants to know what it takes without.
    packs: bool,
    _server: Server,
}

/// The bytes of an 8-byte cell, which the table of a slot holds and the estimate counts.
const CELL: u64 = 8;

impl Trial {
    pub(crate) fn start(program: &str, flags: &str) -> Result<Self, Failure> {
        let say = |error: &dyn std::fmt::Display| {
            Failure::Other(format!("the Snug that tries the sample: {error}"))
        };
        let cores = Cores::allowed().map_err(|error| say(&error))?;
        // What flags say later counts. Loading a value in parts reads it, and what was read
        // cools by chance, in one pass of eight: the last of many would keep everybody
        // waiting. Under an LFU policy it cools at every pass. Nothing is evicted.
        let program = format!(
            "{program} --workers 1 --maxclients 16 --pack no --pack-cold-after 1 {flags} \
             --appendonly no --save '' --maxmemory 0 --maxmemory-policy allkeys-lfu"
        );
        let target = Target::parse(&program).map_err(|error| say(&error))?;
        let server = target.start(&cores, &cores, None, &Endpoint::local(0));
        let server = server.map_err(|error| say(&error))?;
        let mut control = server.endpoint.open()?;
        let mut rng = rand::rng();
        let password: String =
            (0..32).map(|_| char::from(b'a' + rng.random_range(0..26u8))).collect();
        control.call(&["CONFIG", "SET", "requirepass", &password])?;
        let process = server_facts::identify(&mut control, &server.endpoint)?.process;
        let (requests, count) = (Vec::new(), 0);
        let packs = !flags.contains("--pack no");
        let (db, refused) = (0, None);
        Ok(Self { control, process, db, requests, count, refused, packs, _server: server })
    }

    /// The connection, for questions.
    pub(crate) fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    fn command(&mut self, words: &[&[u8]]) -> Result<(), Failure> {
        write_request(&mut self.requests, words);
        self.count += 1;
        if self.requests.len() >= SEND { self.flush() } else { Ok(()) }
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let requests = std::mem::take(&mut self.requests);
        let count = std::mem::take(&mut self.count);
        if count > 0 {
            for reply in self.control.pipeline(&requests, count)? {
                if let Value::Error(reply) = reply {
                    self.refused.get_or_insert(reply);
                }
            }
        }
        Ok(())
    }

    fn select(&mut self, db: u32) -> Result<(), Failure> {
        let db = db % DATABASES;
        if self.db != db {
            self.command(&[b"SELECT", db.to_string().as_bytes()])?;
            self.db = db;
        }
        Ok(())
    }

    /// Takes a value, or a part of one; what was refused, if anything was.
    pub(crate) fn put(
        &mut self,
        seen: &Seen,
        detail: &Detail,
        parts: Vec<Part>,
        groups: &[(Vec<u8>, u64)],
    ) -> Result<Option<String>, Failure> {
        self.select(seen.db)?;
        let key = &seen.key[..];
        let (command, step): (&[u8], usize) = match &*seen.kind {
            "string" => (b"SET", 1),
            "list" => (b"RPUSH", 1),
            "hash" => (b"HSET", 2),
            "set" => (b"SADD", 1),
            _ => (b"ZADD", 2),
        };
        let share = detail.read as f64 / detail.length.max(1) as f64;
        let parts = match detail.read < detail.length && matches!(&*seen.kind, "set" | "hash") {
            true => vec![Part::Plain(closer(parts, step, share))],
            false => parts,
        };
        for part in parts {
            match part {
                Part::Plain(words) => {
                    for words in words.chunks(OF_COMMAND * step) {
                        let mut all: Vec<&[u8]> = vec![command, key];
                        match &*seen.kind {
                            // Members come before their scores, and are written after them.
                            "zset" => all.extend(
                                words
                                    .chunks(2)
                                    .filter(|p| p.len() == 2)
                                    .flat_map(|pair| [&pair[1][..], &pair[0][..]]),
                            ),
                            _ => all.extend(words.iter().map(|word| &word[..])),
                        }
                        self.command(&all)?;
                    }
                }
                Part::Entries(entries) => {
                    for entry in entries {
                        let mut all: Vec<&[u8]> = vec![b"XADD", key];
                        all.extend(entry.iter().map(|word| &word[..]));
                        self.command(&all)?;
                    }
                }
                Part::Dump(dump, _) => self.command(&[b"RESTORE", key, b"0", &dump, b"REPLACE"])?,
            }
        }
        for (group, pending) in groups {
            self.command(&[b"XGROUP", b"CREATE", key, group, b"0"])?;
            let pending = (*pending as f64 * share).round() as u64;
            if pending > 0 {
                self.flush()?;
                let count = pending.to_string();
                let mut request = Vec::new();
                write_request(
                    &mut request,
                    &[
                        b"XREADGROUP",
                        b"GROUP",
                        group,
                        b"consumer",
                        b"COUNT",
                        count.as_bytes(),
                        b"STREAMS",
                        key,
                        b">",
                    ],
                );
                self.control.pipeline(&request, 1)?;
            }
        }
        if let Some(ttl) = detail.ttl {
            let ttl = ttl.max(KEEP_MS).to_string();
            self.command(&[b"PEXPIRE", key, ttl.as_bytes()])?;
        }
        Ok(self.refused.take())
    }

    /// What values take before and after they have been packed.
    pub(crate) fn weigh(
        &mut self,
        frame: &Frame,
        details: &[Detail],
        progress: &mut Progress,
    ) -> Result<Weights, Failure> {
        self.flush()?;
        if details.is_empty() {
            return Ok(Weights::default());
        }
        let keys: Vec<&Seen> = details.iter().map(|detail| &frame.seen[detail.at]).collect();
        let hot = self.objects(&keys)?;
        let memory = self.memory()?;
        let number = |name: &str| -> u64 {
            memory.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        // Nothing was learnt yet: what is there besides entries are buffers.
        let sum = |values: &[Weight]| values.iter().map(|value| value.cooled).sum::<u64>();
        let buffers = number("used_memory_dataset").saturating_sub(sum(&hot));
        if self.packs {
            self.control.call(&["CONFIG", "SET", "pack", "yes"])?;
        }
        progress.begin("packing", 100);
        // Before keys are asked for: what answers take is no data.
        let dataset = self.rest(progress)?;
        let mut values = self.objects(&keys)?;
        let fixed = dataset.saturating_sub(sum(&values) + buffers);
        for (value, hot) in values.iter_mut().zip(hot) {
            value.hot = hot.cooled;
        }
        Ok(Weights { values, fixed, startup: number("used_memory_startup") })
    }

    fn memory(&mut self) -> Result<BTreeMap<String, String>, Failure> {
        Ok(server_facts::fields(&self.control.call(&["INFO", "memory"])?.text()))
    }

    /// What is in memory for each of these keys; nothing for one that is not there.
    fn objects(&mut self, keys: &[&Seen]) -> Result<Vec<Weight>, Failure> {
        let mut weights = Vec::with_capacity(keys.len());
        for some in keys.chunks(WEIGH) {
            let (mut requests, mut count, mut asked) = (Vec::new(), 0, Vec::new());
            for seen in some {
                let db = seen.db % DATABASES;
                if db != self.db {
                    write_request(&mut requests, &[b"SELECT", db.to_string().as_bytes()]);
                    self.db = db;
                    count += 1;
                }
                asked.push(count);
                write_request(&mut requests, &[b"SNUG", b"OBJECT", &seen.key]);
                count += 1;
            }
            let replies = self.control.pipeline(&requests, count)?;
            weights.extend(asked.iter().map(|&at| Self::weight(&replies[at])));
        }
        Ok(weights)
    }

    fn weight(reply: &Value) -> Weight {
        let fields = map_of(reply);
        let number = |name: &str| fields.get(name).copied().and_then(Value::as_u64).unwrap_or(0);
        Weight {
            hot: 0,
            cooled: number("allocated-bytes").saturating_sub(CELL),
            raw: number("raw-bytes"),
            packed_from: number("packed-from-bytes"),
            packed: number("packed-bytes"),
            codec: fields.get("codec").map(|value| value.text()).unwrap_or_default(),
        }
    }

    /// Waits until nothing is packed any more. Returns the least that was in use for data:
    /// what it packs with, a megabyte, is taken and given back as values turn up.
    fn rest(&mut self, progress: &Progress) -> Result<u64, Failure> {
        let mut least = u64::MAX;
        let (began, mut changed, mut last) = (Instant::now(), Instant::now(), 0u64);
        let (mut looks, mut ran, mut spent, mut looked) = (0, 0, 0u64, began);
        while began.elapsed() < REST_MAX {
            if interrupt::requested() {
                return Err(Failure::Other("interrupted".into()));
            }
            sleep(LOOK);
            let facts = server_facts::fields(&self.control.call(&["INFO", "everything"])?.text());
            let fact = |name: &str| -> u64 {
                facts.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
            };
            let now = fact("used_memory");
            least = least.min(fact("used_memory_dataset"));
            // Looking for what has cooled takes a little, always.
            let cpu_ms = fact("pack_cpu_milliseconds");
            let took_ms = looked.elapsed().as_millis() as u64;
            let waits = fact("strings_pending") + fact("blocks_pending") > 0;
            let works = waits || cpu_ms.saturating_sub(spent) > took_ms / 20 + 2;
            (spent, looked) = (cpu_ms, Instant::now());
            sleep(LOOK / 8);
            let runs = self.process.is_some_and(Process::is_runnable);
            (looks, ran) = (looks + 1, ran + u32::from(runs));
            if works || last.abs_diff(now) > last / 500 {
                (changed, last) = (Instant::now(), now);
                (looks, ran) = (0, 0);
            }
            let quiet = changed.elapsed().as_secs_f64() / REST.as_secs_f64();
            progress.at((100.0 * quiet.min(1.0)) as u64, "the sample, as Snug would".into());
            if began.elapsed() >= REST_MIN && changed.elapsed() >= REST {
                if 4 * ran <= looks {
                    break;
                }
                (changed, looks, ran) = (Instant::now(), 0, 0);
            }
        }
        Ok(least)
    }

    /// What was learnt of families.
    pub(crate) fn families(&mut self) -> Result<Vec<Family>, Failure> {
        let Value::List(families) = self.control.call(&["SNUG", "FAMILIES"])? else {
            return Ok(Vec::new());
        };
        let family = |value: &Value| {
            let fields = map_of(value);
            let text = |name: &str| fields.get(name).map(|value| value.text()).unwrap_or_default();
            let number =
                |name: &str| fields.get(name).copied().and_then(Value::as_u64).unwrap_or(0);
            let shape = match fields.get("shape") {
                Some(Value::Text(shape)) => shape.escape_ascii().to_string(),
                _ => String::new(),
            };
            Family {
                kind: text("type"),
                shape,
                verdict: text("verdict"),
                dictionary: number("dictionary") != 0,
                judged: number("judged"),
                not_worth: number("not-worth"),
            }
        };
        Ok(families.iter().map(family).collect())
    }
}

fn map_of(reply: &Value) -> HashMap<String, &Value> {
    let Value::List(parts) = reply else { return HashMap::new() };
    let pairs = parts.chunks(2).filter(|pair| pair.len() == 2);
    pairs.map(|pair| (pair[0].text(), &pair[1])).collect()
}

/// Members or fields that are integers, of which only a share was read, as near to each
/// other as all of them are: what they take depends on their distances.
fn closer(parts: Vec<Part>, step: usize, share: f64) -> Vec<Vec<u8>> {
    let words: Vec<Vec<u8>> = parts
        .into_iter()
        .flat_map(|part| match part {
            Part::Plain(words) => words,
            _ => Vec::new(),
        })
        .collect();
    let integer = |word: &[u8]| -> Option<i64> {
        let number: i64 = std::str::from_utf8(word).ok()?.parse().ok()?;
        (number.to_string().as_bytes() == word).then_some(number)
    };
    let mut pairs: Vec<(i64, &[Vec<u8>])> = Vec::new();
    for pair in words.chunks(step) {
        match integer(&pair[0]) {
            Some(number) => pairs.push((number, &pair[1..])),
            None => return words,
        }
    }
    pairs.sort_by_key(|pair| pair.0);
    pairs.dedup_by_key(|pair| pair.0);
    let Some(&(first, _)) = pairs.first() else { return words };
    let (mut moves, mut last) = (Vec::new(), None);
    for (number, values) in pairs {
        let moved = first.saturating_add(((number as f64 - first as f64) * share) as i64);
        let moved = last.map_or(moved, |last: i64| moved.max(last.saturating_add(1)));
        last = Some(moved);
        moves.push((moved, values));
    }
    // In order they would fill their pages as they seldom do where they come at random.
    moves.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(0));
    let mut out = Vec::new();
    for (moved, values) in moves {
        out.push(moved.to_string().into_bytes());
        out.extend(values.iter().cloned());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_a_part_are_as_near_as_in_the_whole() {
        let words = |numbers: &[i64]| -> Vec<Vec<u8>> {
            numbers.iter().map(|number| number.to_string().into_bytes()).collect()
        };
        let part = |numbers: &[i64]| vec![Part::Plain(words(numbers))];
        let moved = |numbers: &[i64]| {
            let mut moved = closer(part(numbers), 1, 0.1);
            moved.sort();
            moved
        };
        assert_eq!(moved(&[1000, 3000, 2000]), words(&[1000, 1100, 1200]));
        assert_eq!(moved(&[5, 6, 7]), words(&[5, 6, 7]), "all stay apart");
        let mixed = vec![b"1".to_vec(), b"x".to_vec()];
        assert_eq!(closer(vec![Part::Plain(mixed.clone())], 1, 0.1), mixed);
        assert_eq!(closer(part(&[i64::MIN, i64::MAX]), 1, 0.5).len(), 2);
    }

    #[test]
    fn parts_tell_what_they_hold() {
        let text = |text: &str| Value::Text(text.into());
        let hash = Part::of("hash", vec![text("name"), text("ann"), text("mail"), text("a@b.c")]);
        assert_eq!((hash.elements("hash"), hash.longest(), hash.bytes()), (2, 5, 16));
        let fields = Value::List(vec![text("a"), text("1")]);
        let entry = Value::List(vec![text("5-1"), fields]);
        let stream = Part::of("stream", vec![entry, Value::Nil]);
        assert_eq!((stream.elements("stream"), stream.last_id()), (1, Some(b"5-1".to_vec())));
    }
}
