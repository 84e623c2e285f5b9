//! A running server as a source: Redis, Valkey or Snug.
//!
//! Keys come from `SCAN`, whose order is that of a seeded hash of their names: where there
//! are more keys than are wanted, its beginning is a sample at random, at a third of what
//! `RANDOMKEY` costs. Nodes of a cluster may scan slot by slot, where keys of one hash tag
//! lie together, so they are asked for `RANDOMKEY`.
//!
//! Values are read by the commands of their types. Of a long one runs of a thousand
//! neighbours are read where elements have an order (so that what lies together is seen
//! together), and what comes first by hash where they have none.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use snug_bench::endpoint::{Control, ControlError, Endpoint, Value};
use snug_bench::request::write_request;
use snug_bench::server_facts;

use crate::Failure;
use crate::pace::Pacer;
use crate::sample::{Budget, Detail, Facts, Frame, Progress, Seen, Source};
use crate::trial::{Part, Trial};

/// Keys that are asked for at once, and whose names are.
const KEYS_AT_ONCE: usize = 50;
const NAMES_AT_ONCE: usize = 200;
/// Bytes of values that are read at once.
const BYTES_AT_ONCE: u64 = 2 << 20;
/// Elements of a long value that are read at once.
const RUN: u64 = 1000;
/// Runs that a part of a long value has, at least.
const RUNS: u64 = 20;
/// Of a longer string, its beginning is read.
const STRING_MAX: u64 = 1 << 20;
const NODE_OF_CLUSTER: &str = "1";

#[derive(Debug)]
pub(crate) struct Running {
    control: Control,
    pacer: Pacer,
    facts: Facts,
    has_scan: bool,
    db: u32,
}

fn first_word(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// What an account needs, where one was refused.
fn hint(failure: Failure) -> Failure {
    match &failure {
        Failure::Control(ControlError::Reply { reply, .. }) if reply.starts_with("NOPERM") => {
            Failure::Other(format!(
                "{failure}; an account that may read is enough: ACL SETUSER advise on \
                 >PASSWORD ~* +@read +@connection +info +config|get"
            ))
        }
        _ => failure,
    }
}

impl Running {
    pub(crate) fn open(endpoint: &Endpoint, share: f64, until: Instant) -> Result<Self, Failure> {
        let mut control = endpoint.open()?;
        // Neither is needed, and old servers do not know the second: with it, reading a key
        // does not make it look used.
        control.send(&["CLIENT", "SETNAME", "snug-advise"])?;
        control.send(&["CLIENT", "NO-TOUCH", "ON"])?;
        let mut facts = Facts::default();
        look(&mut control, &mut facts)?;
        if facts.is_cluster {
            control.send(&["READONLY"])?;
        }
        let mut pacer = Pacer::new(share, until);
        pacer.watch(&mut control)?;
        Ok(Self { control, pacer, facts, has_scan: true, db: endpoint.database })
    }

    fn exchange(&mut self, requests: &[u8], replies: usize) -> Result<Vec<Value>, ControlError> {
        self.pacer.exchange(&mut self.control, requests, replies)
    }

    fn select(&mut self, db: u32) -> Result<(), Failure> {
        if self.db != db {
            self.control.call(&["SELECT", &db.to_string()])?;
            self.db = db;
        }
        Ok(())
    }

    fn note(&mut self, note: String) {
        if !self.facts.notes.contains(&note) && self.facts.notes.len() < 20 {
            self.facts.notes.push(note);
        }
    }

    /// Databases and how many keys they have.
    fn databases(&mut self) -> Result<Vec<(u32, u64)>, Failure> {
        if let Value::Text(text) = self.control.send(&["INFO", "keyspace"])? {
            let fields = server_facts::fields(&String::from_utf8_lossy(&text));
            let mut all: Vec<(u32, u64)> = fields
                .iter()
                .filter_map(|(db, text)| {
                    let keys = text.split(',').find_map(|field| field.strip_prefix("keys="))?;
                    Some((db.strip_prefix("db")?.parse().ok()?, keys.parse().ok()?))
                })
                .collect();
            all.sort_unstable();
            return Ok(all);
        }
        let size = self.control.call(&["DBSIZE"]).map_err(|error| hint(error.into()))?;
        Ok(vec![(self.db, size.as_u64().unwrap_or(0))].into_iter().filter(|db| db.1 > 0).collect())
    }

    /// Names by `SCAN`, up to `most`.
    fn scan(&mut self, db: u32, most: usize, progress: &Progress) -> Result<Vec<Vec<u8>>, Failure> {
        let (mut cursor, mut names) = (b"0".to_vec(), Vec::new());
        let mut known = HashSet::new();
        loop {
            let mut request = Vec::new();
            write_request(&mut request, &[b"SCAN", &cursor, b"COUNT", b"500"]);
            match self.exchange(&request, 1)?.pop() {
                Some(Value::List(parts)) => {
                    let mut parts = parts.into_iter();
                    let (Some(Value::Text(next)), Some(Value::List(keys))) =
                        (parts.next(), parts.next())
                    else {
                        return Err(Failure::Other("SCAN was answered with something else".into()));
                    };
                    cursor = next;
                    for key in keys {
                        if let Value::Text(key) = key
                            && known.insert(key.clone())
                        {
                            names.push(key);
                        }
                    }
                }
                Some(Value::Error(reply)) => {
                    let error = ControlError::Reply { command: "SCAN".into(), reply };
                    return Err(error.into());
                }
                _ => return Err(Failure::Other("SCAN was answered with something else".into())),
            }
            progress.at(names.len() as u64, format!("names of keys of database {db}"));
            if cursor == b"0" || names.len() >= most || self.pacer.is_over() {
                names.truncate(most);
                return Ok(names);
            }
        }
    }

    /// So many names by `RANDOMKEY`; some may be the same.
    fn draw(&mut self, most: usize, progress: &Progress) -> Result<Vec<Vec<u8>>, Failure> {
        let mut names = Vec::new();
        while names.len() < most && !self.pacer.is_over() {
            let wanted = NAMES_AT_ONCE.min(most - names.len());
            let mut requests = Vec::new();
            (0..wanted).for_each(|_| write_request(&mut requests, &[b"RANDOMKEY"]));
            for reply in self.exchange(&requests, wanted)? {
                match reply {
                    Value::Text(key) => names.push(key),
                    Value::Error(reply) => {
                        let error = ControlError::Reply { command: "RANDOMKEY".into(), reply };
                        return Err(hint(error.into()));
                    }
                    // It has become empty meanwhile.
                    _ => return Ok(names),
                }
            }
            progress.at(names.len() as u64, "names of keys, at random".into());
        }
        Ok(names)
    }

    /// Types and sizes of some keys; those that are gone are left out.
    fn meet(&mut self, db: u32, names: Vec<Vec<u8>>, frame: &mut Frame) -> Result<(), Failure> {
        let mut requests = Vec::new();
        for name in &names {
            write_request(&mut requests, &[b"TYPE", name]);
            write_request(&mut requests, &[b"MEMORY", b"USAGE", name]);
        }
        let count = 2 * names.len();
        let mut replies = self.exchange(&requests, count)?.into_iter();
        for key in names {
            let (kind, bytes) = (replies.next(), replies.next());
            let kind = match kind {
                Some(Value::Text(kind)) => String::from_utf8_lossy(&kind).into_owned(),
                Some(Value::Error(reply)) => {
                    self.note(format!("some keys may not be looked at: {reply}"));
                    continue;
                }
                _ => continue,
            };
            if kind == "none" {
                continue;
            }
            let bytes = match bytes {
                Some(Value::Error(reply)) => {
                    let denied = format!("MEMORY USAGE: {reply}");
                    if !self.facts.denied.contains(&denied) {
                        self.facts.denied.push(denied);
                    }
                    key.len() as u64
                }
                bytes => bytes.as_ref().and_then(Value::as_u64).unwrap_or(0),
            };
            frame.seen.push(Seen { db, key, kind, bytes });
        }
        Ok(())
    }

    /// How keys expire, when they were used, how they are encoded, how long they are.
    fn details(&mut self, frame: &Frame, some: &[usize]) -> Result<Vec<Option<Detail>>, Failure> {
        let mut requests = Vec::new();
        for &at in some {
            let seen = &frame.seen[at];
            write_request(&mut requests, &[b"PTTL", &seen.key]);
            write_request(&mut requests, &[b"OBJECT", b"IDLETIME", &seen.key]);
            write_request(&mut requests, &[b"OBJECT", b"ENCODING", &seen.key]);
            write_request(&mut requests, &[length_of(&seen.kind), &seen.key]);
        }
        let mut replies = self.exchange(&requests, 4 * some.len())?.into_iter();
        let mut details = Vec::new();
        for &at in some {
            let mut next = || replies.next().unwrap_or(Value::Nil);
            let (ttl, idle, encoding, length) = (next(), next(), next(), next());
            details.push(match length {
                Value::Integer(length) if length >= 0 => Some(Detail {
                    at,
                    ttl: ttl.as_u64(),
                    idle: idle.as_u64(),
                    encoding: match &encoding {
                        Value::Text(_) => encoding.text(),
                        _ => String::new(),
                    },
                    length: length as u64,
                    ..Detail::default()
                }),
                Value::Error(reply) if !reply.starts_with("WRONGTYPE") => {
                    self.note(format!("some values may not be read: {reply}"));
                    None
                }
                // Gone, or replaced by something else.
                _ => None,
            });
        }
        Ok(details)
    }

    /// Reads some values that are short, in one round.
    fn read_short(
        &mut self,
        frame: &Frame,
        some: Vec<Detail>,
        trial: &mut Trial,
        done: &mut Vec<Detail>,
    ) -> Result<(), Failure> {
        let mut requests = Vec::new();
        for detail in &some {
            let seen = &frame.seen[detail.at];
            let key = &seen.key[..];
            match &*seen.kind {
                "string" => write_request(&mut requests, &[b"GET", key]),
                "list" => write_request(&mut requests, &[b"LRANGE", key, b"0", b"-1"]),
                "hash" => write_request(&mut requests, &[b"HGETALL", key]),
                "set" => write_request(&mut requests, &[b"SMEMBERS", key]),
                "zset" => {
                    write_request(&mut requests, &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]);
                }
                _ => write_request(&mut requests, &[b"XRANGE", key, b"-", b"+"]),
            }
        }
        let replies = self.exchange(&requests, some.len())?;
        for (mut detail, reply) in some.into_iter().zip(replies) {
            let seen = &frame.seen[detail.at];
            let values = match reply {
                Value::List(values) => values,
                Value::Text(value) => vec![Value::Text(value)],
                Value::Error(reply) if !reply.starts_with("WRONGTYPE") => {
                    self.note(format!("some values may not be read: {reply}"));
                    continue;
                }
                _ => continue,
            };
            let part = Part::of(&seen.kind, values);
            detail.length = part.elements(&seen.kind);
            self.give(seen, detail, vec![part], trial, done)?;
        }
        Ok(())
    }

    /// Gives what was read of a value to the trial.
    fn give(
        &mut self,
        seen: &Seen,
        mut detail: Detail,
        parts: Vec<Part>,
        trial: &mut Trial,
        done: &mut Vec<Detail>,
    ) -> Result<(), Failure> {
        detail.read = parts.iter().map(|part| part.elements(&seen.kind)).sum();
        detail.longest = parts.iter().map(Part::longest).max().unwrap_or(0);
        detail.element_bytes = parts.iter().map(Part::bytes).sum();
        if detail.read == 0 && detail.length > 0 {
            return Ok(());
        }
        let groups = match &*seen.kind {
            "stream" => self.groups(&seen.key)?,
            _ => Vec::new(),
        };
        match trial.put(seen, &detail, parts, &groups)? {
            None => done.push(detail),
            Some(reply) => self.note(format!("some values were not taken by Snug: {reply}")),
        }
        Ok(())
    }

    /// A stream's groups, and how many entries are pending in each.
    fn groups(&mut self, key: &[u8]) -> Result<Vec<(Vec<u8>, u64)>, Failure> {
        let mut request = Vec::new();
        write_request(&mut request, &[b"XINFO", b"GROUPS", key]);
        let Some(Value::List(groups)) = self.exchange(&request, 1)?.pop() else {
            return Ok(Vec::new());
        };
        let group = |group: Value| {
            let Value::List(fields) = group else { return None };
            let mut found: HashMap<String, Value> = HashMap::new();
            let mut fields = fields.into_iter();
            while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
                found.insert(name.text(), value);
            }
            let Some(Value::Text(name)) = found.remove("name") else { return None };
            Some((name, found.get("pending").and_then(Value::as_u64).unwrap_or(0)))
        };
        Ok(groups.into_iter().filter_map(group).collect())
    }

    /// Reads a long value, or runs of it.
    fn read_long(
        &mut self,
        frame: &Frame,
        detail: Detail,
        most: u64,
        trial: &mut Trial,
        done: &mut Vec<Detail>,
    ) -> Result<(), Failure> {
        let seen = &frame.seen[detail.at];
        let mut parts: Vec<Part> = Vec::new();
        let mut read = 0;
        let whole = detail.length <= most;
        let step = |runs: u64| (detail.length / runs.max(1)).max(RUN);
        let mut cursor = b"0".to_vec();
        let mut place = 0u64;
        let runs = (most / RUN).max(RUNS.min(most.div_ceil(RUN)));
        let (first, last) = match &*seen.kind {
            "stream" => self.ends(&seen.key)?,
            _ => (0, 0),
        };
        let mut after: Option<Vec<u8>> = None;
        while read < most && !self.pacer.is_over() {
            let (mut request, key) = (Vec::new(), &seen.key[..]);
            let (from, to) = (place.to_string(), (place + RUN - 1).to_string());
            let (from, to) = (from.as_bytes(), to.as_bytes());
            let count = RUN.to_string();
            let count = count.as_bytes();
            match &*seen.kind {
                "string" => {
                    let end = (STRING_MAX - 1).to_string();
                    write_request(&mut request, &[b"GETRANGE", key, b"0", end.as_bytes()]);
                }
                "list" => write_request(&mut request, &[b"LRANGE", key, from, to]),
                "zset" => write_request(&mut request, &[b"ZRANGE", key, from, to, b"WITHSCORES"]),
                "hash" => write_request(&mut request, &[b"HSCAN", key, &cursor, b"COUNT", count]),
                "set" => write_request(&mut request, &[b"SSCAN", key, &cursor, b"COUNT", count]),
                _ => {
                    // Runs begin at times spread evenly from the first entry to the last.
                    let run = place / step(runs);
                    let start = first + ((last - first) as f64 * run as f64 / runs as f64) as u64;
                    let start = start.to_string().into_bytes();
                    let begin = match (&after, whole || run == 0) {
                        (Some(after), true) => [b"(", &after[..]].concat(),
                        (None, true) => b"-".to_vec(),
                        (Some(after), false) if ms_of(after) >= ms_of(&start) => {
                            [b"(", &after[..]].concat()
                        }
                        (_, false) => start,
                    };
                    write_request(&mut request, &[b"XRANGE", key, &begin, b"+", b"COUNT", count]);
                }
            }
            let reply = self.exchange(&request, 1)?.pop();
            let values = match reply {
                Some(Value::Text(text)) => vec![Value::Text(text)],
                Some(Value::List(mut values)) if matches!(&*seen.kind, "hash" | "set") => {
                    let (Some(Value::List(elements)), Some(Value::Text(next))) =
                        (values.pop(), values.pop())
                    else {
                        break;
                    };
                    cursor = next;
                    elements
                }
                Some(Value::List(values)) => values,
                Some(Value::Error(reply)) => {
                    self.note(format!("some values may not be read: {reply}"));
                    break;
                }
                _ => break,
            };
            let is_empty = values.is_empty();
            let part = Part::of(&seen.kind, values);
            read += part.elements(&seen.kind);
            after = part.last_id().or(after);
            parts.push(part);
            let is_scanned = matches!(&*seen.kind, "hash" | "set");
            let ends = seen.kind == "string" || is_scanned && cursor == b"0";
            place += if whole { RUN } else { step(runs) };
            let is_past = is_empty || place >= detail.length.max(1);
            if ends || (!is_scanned && is_past) {
                break;
            }
        }
        self.give(seen, detail, parts, trial, done)
    }

    /// When the first and the last entry of a stream were added.
    fn ends(&mut self, key: &[u8]) -> Result<(u64, u64), Failure> {
        let mut requests = Vec::new();
        write_request(&mut requests, &[b"XRANGE", key, b"-", b"+", b"COUNT", b"1"]);
        write_request(&mut requests, &[b"XREVRANGE", key, b"+", b"-", b"COUNT", b"1"]);
        let mut ms = self.exchange(&requests, 2)?.into_iter().map(|reply| match reply {
            Value::List(entries) => {
                Part::of("stream", entries).last_id().map_or(0, |id| ms_of(&id))
            }
            _ => 0,
        });
        let (first, last) = (ms.next().unwrap_or(0), ms.next().unwrap_or(0));
        Ok((first, last.max(first)))
    }
}

/// The milliseconds of an entry's ID.
fn ms_of(id: &[u8]) -> u64 {
    let digits = id.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |ms: u64, byte| ms.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')))
}

/// What tells the length of a value; of types that Snug lacks nothing is asked but `TYPE`.
fn length_of(kind: &str) -> &'static [u8] {
    match kind {
        "string" => b"STRLEN",
        "list" => b"LLEN",
        "hash" => b"HLEN",
        "set" => b"SCARD",
        "zset" => b"ZCARD",
        "stream" => b"XLEN",
        _ => b"TYPE",
    }
}

/// What the server tells of itself.
fn look(control: &mut Control, facts: &mut Facts) -> Result<(), Failure> {
    let mut fields = HashMap::new();
    for section in ["all", "keyspace"] {
        match control.send(&["INFO", section])? {
            Value::Text(text) => {
                fields.extend(server_facts::fields(&String::from_utf8_lossy(&text)));
            }
            Value::Error(reply) => {
                facts.denied.push(format!("INFO: {reply}"));
                break;
            }
            _ => break,
        }
    }
    let text = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let number = |name: &str| fields.get(name).and_then(|text| text.parse::<u64>().ok());
    let product = ["snug", "valkey", "dragonfly", "redis"].iter().find_map(|name| {
        fields.get(&format!("{name}_version")).map(|version| format!("{name} {version}"))
    });
    facts.name = product.unwrap_or_else(|| "a server that does not tell its version".into());
    facts.is_snug = first_word(&facts.name) == "snug";
    facts.used = number("used_memory");
    facts.startup = number("used_memory_startup");
    facts.dataset = number("used_memory_dataset");
    facts.resident = number("used_memory_rss");
    facts.maxmemory = number("maxmemory").unwrap_or(0);
    facts.policy = text("maxmemory_policy");
    facts.is_cluster = text("cluster_enabled") == NODE_OF_CLUSTER;
    facts.is_replica = text("role") == "slave";
    facts.functions = number("number_of_libraries").unwrap_or(0);
    if text("loading") == "1" {
        return Err(Failure::Other("the server is still loading its data: try again later".into()));
    }
    let mut expiring = 0;
    for (name, text) in &fields {
        if let Some(command) = name.strip_prefix("cmdstat_")
            && let Some(calls) = text.split(',').find_map(|part| part.strip_prefix("calls="))
        {
            facts.commands.push((command.to_lowercase(), calls.parse().unwrap_or(0)));
        }
        if name.starts_with("db") {
            let found = text.split(',').find_map(|part| part.strip_prefix("expires="));
            expiring += found.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        }
        if name == "module" || name.starts_with("module:") {
            facts.modules.push(text.clone());
        }
    }
    facts.expiring = Some(expiring).filter(|_| facts.denied.is_empty());
    facts.commands.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    match control.send(&["CONFIG", "GET", "*max*"])? {
        Value::List(pairs) => {
            for pair in pairs.chunks(2).filter(|pair| pair.len() == 2) {
                facts.params.insert(pair[0].text(), pair[1].text());
            }
        }
        Value::Error(reply) => facts.denied.push(format!("CONFIG GET: {reply}")),
        _ => {}
    }
    Ok(())
}

impl Source for Running {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn frame(&mut self, most: u64, progress: &mut Progress) -> Result<Frame, Failure> {
        let by_db = self.databases()?;
        let keys = by_db.iter().map(|(_, keys)| keys).sum::<u64>();
        let mut frame = Frame { keys, by_db: by_db.clone(), whole: true, ..Frame::default() };
        for (db, keys) in by_db {
            self.select(db).map_err(hint)?;
            let wanted = match frame.keys <= most {
                // Some may have come since they were counted.
                true => usize::MAX,
                false => (most as u128 * keys as u128 / frame.keys as u128).max(1) as usize,
            };
            progress.begin("looking", (wanted as u64).min(keys));
            let by_draw = self.facts.is_cluster && wanted != usize::MAX;
            let scanned = match by_draw || !self.has_scan {
                true => None,
                false => match self.scan(db, wanted, progress) {
                    Err(Failure::Control(ControlError::Reply { reply, .. }))
                        if reply.starts_with("NOPERM") =>
                    {
                        self.has_scan = false;
                        None
                    }
                    other => Some(other?),
                },
            };
            let names = match scanned {
                Some(names) => names,
                None => {
                    frame.whole = false;
                    self.draw((wanted as u64).min(keys) as usize, progress)?
                }
            };
            frame.whole &= wanted == usize::MAX && !self.pacer.is_over();
            let count = names.len() as u64;
            progress.begin("looking", count);
            for (round, some) in names.chunks(NAMES_AT_ONCE).enumerate() {
                if self.pacer.is_over() {
                    frame.whole = false;
                    break;
                }
                self.meet(db, some.to_vec(), &mut frame)?;
                let done = (round * NAMES_AT_ONCE) as u64;
                progress.at(done, format!("sizes of {count} keys of database {db}"));
            }
        }
        if frame.seen.is_empty() && frame.keys > 0 {
            let why = match (self.facts.notes.first(), self.pacer.is_over()) {
                (Some(note), _) => note.clone(),
                (_, true) => "there was no time to look at keys".into(),
                _ => "its keys were not to be seen".into(),
            };
            return Err(Failure::Other(why));
        }
        if frame.whole {
            frame.keys = frame.seen.len() as u64;
        }
        Ok(frame)
    }

    fn read(
        &mut self,
        frame: &Frame,
        chosen: &[usize],
        budget: Budget,
        trial: &mut Trial,
        progress: &mut Progress,
    ) -> Result<Vec<Detail>, Failure> {
        let mut done = Vec::new();
        let mut left = budget.elements;
        progress.begin("reading", chosen.len() as u64);
        // Each database by itself, and within it in the order that was drawn.
        let mut dbs: Vec<u32> = frame.by_db.iter().map(|(db, _)| *db).collect();
        dbs.dedup();
        let mut count = 0;
        for db in dbs {
            let of_db = |at: &&usize| {
                let seen = &frame.seen[**at];
                seen.db == db && length_of(&seen.kind) != b"TYPE"
            };
            let of_db: Vec<usize> = chosen.iter().filter(of_db).copied().collect();
            self.select(db)?;
            for some in of_db.chunks(KEYS_AT_ONCE) {
                if self.pacer.is_over() {
                    break;
                }
                let (mut short, mut bytes) = (Vec::new(), 0);
                for detail in self.details(frame, some)?.into_iter().flatten() {
                    let is_string = frame.seen[detail.at].kind == "string";
                    let weight = match is_string {
                        true => detail.length,
                        false => frame.seen[detail.at].bytes,
                    };
                    let is_long = match is_string {
                        true => detail.length > STRING_MAX,
                        false => detail.length > RUN,
                    };
                    if is_long {
                        let of_key = budget.of_key(detail.length, weight);
                        let most = if is_string { 1 } else { left.min(of_key) };
                        if most > 0 && !self.pacer.is_over() {
                            self.read_long(frame, detail, most, trial, &mut done)?;
                            let read = done.last().map_or(0, |last| last.read);
                            left = left.saturating_sub(if is_string { 0 } else { read });
                        }
                        continue;
                    }
                    bytes += weight;
                    short.push(detail);
                    if bytes >= BYTES_AT_ONCE {
                        let some = std::mem::take(&mut short);
                        self.read_short(frame, some, trial, &mut done)?;
                        bytes = 0;
                    }
                }
                self.read_short(frame, short, trial, &mut done)?;
                count += some.len() as u64;
                let spent = self.pacer.spent;
                progress.at(count, format!("values, {spent:.2} s of the server's CPU so far"));
            }
        }
        trial.flush()?;
        self.facts.cost_s = Some(self.pacer.spent);
        if self.pacer.is_over() {
            let (read, wanted) = (done.len(), chosen.len());
            self.note(format!("the time was up when {read} of {wanted} values had been read"));
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_their_times() {
        assert_eq!(ms_of(b"1700000000000-3"), 1_700_000_000_000);
        assert_eq!(ms_of(b"7"), 7);
    }
}
