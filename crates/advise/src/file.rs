//! An RDB file as a source. It is read twice: once for the names, types and sizes of all
//! keys, and once for the values that were chosen. Nothing is held but what is chosen.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use snug_bench::interrupt;
use snug_rdb::{Event, Head, Options, ReadOptions, Reader, dump};
use snug_store::types::stream::StreamScratch;
use snug_store::{Limits, Store, StoreConfig, Unobserved};

use crate::Failure;
use crate::sample::{Budget, Detail, Facts, Frame, Progress, Seen, Source};
use crate::trial::{Part, Trial};

/// Of larger values nothing is read: others of the type stand for them.
const VALUE_MAX: u64 = 256 << 20;
/// Keys between two looks at the clock.
const LOOK: u64 = 1024;

#[derive(Debug)]
pub(crate) struct RdbFile {
    path: PathBuf,
    facts: Facts,
    bytes: u64,
    /// The number of each key of the frame, in the order of the file.
    numbers: Vec<u64>,
    now_ms: u64,
}

type Rdb = Reader<BufReader<File>>;

fn kind_of(head: &Head) -> &'static str {
    // RDB's numbers of types; of each, the forms that it had over the years.
    match head.kind {
        0 => "string",
        1 | 10 | 14 | 18 => "list",
        2 | 11 | 20 => "set",
        3 | 5 | 12 | 17 => "zset",
        4 | 9 | 13 | 16 | 22..=25 => "hash",
        15 | 19 | 21 => "stream",
        _ => "module",
    }
}

impl RdbFile {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut file = Self {
            path: path.to_owned(),
            facts: Facts { is_file: true, ..Facts::default() },
            bytes: std::fs::metadata(path).map_or(0, |metadata| metadata.len()),
            numbers: Vec::new(),
            now_ms: now.map_or(0, |now| now.as_millis() as u64),
        };
        let reader = file.reader()?;
        file.facts.name = format!("RDB file of version {}", reader.version());
        Ok(file)
    }

    fn wrong(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::Other(format!("{}: {error}", self.path.display()))
    }

    fn reader(&self) -> Result<Rdb, Failure> {
        let file = File::open(&self.path).map_err(|error| self.wrong(&error))?;
        let buffered = BufReader::with_capacity(256 * 1024, file);
        Reader::new(buffered, ReadOptions::DEFAULT).map_err(|error| self.wrong(&error))
    }

    /// Goes through all keys that have not expired. `each` is told their number, database
    /// and head, and reads or skips the value.
    fn walk(
        &self,
        progress: &Progress,
        mut other: impl FnMut(&Event),
        mut each: impl FnMut(&mut Rdb, u64, u32, Head) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut reader = self.reader()?;
        let (mut db, mut number) = (0, 0u64);
        loop {
            match reader.next().map_err(|error| self.wrong(&error))? {
                Event::Key(head) if head.expiry.is_some_and(|at| at <= self.now_ms) => {
                    reader.skip(&head).map_err(|error| self.wrong(&error))?;
                }
                Event::Key(head) => {
                    if number.is_multiple_of(LOOK) {
                        progress.at(reader.offset(), format!("{number} keys"));
                        if interrupt::requested() {
                            return Err(Failure::Other("interrupted".into()));
                        }
                    }
                    each(&mut reader, number, db, head)?;
                    number += 1;
                }
                Event::Database(which) => db = u32::try_from(which).unwrap_or(u32::MAX),
                Event::End => return Ok(()),
                event => other(&event),
            }
        }
    }
}

impl Source for RdbFile {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn frame(&mut self, most: u64, progress: &mut Progress) -> Result<Frame, Failure> {
        progress.begin("looking", self.bytes);
        let mut frame = Frame { whole: true, ..Frame::default() };
        let mut numbers: Vec<u64> = Vec::new();
        let mut by_db: HashMap<u32, u64> = HashMap::new();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        let (mut aux, mut functions, mut expiring) = (Vec::new(), 0, 0);
        self.walk(
            progress,
            |event| match event {
                Event::Aux(name, value) => aux.push((name.clone(), value.clone())),
                Event::Function(_) => functions += 1,
                _ => {}
            },
            |reader, number, db, head| {
                let begin = reader.offset();
                reader.skip(&head).map_err(|error| self.wrong(&error))?;
                let bytes = reader.offset() - begin + head.key.len() as u64;
                *by_db.entry(db).or_default() += 1;
                expiring += u64::from(head.expiry.is_some());
                let kind = kind_of(&head).into();
                let seen = Seen { db, key: head.key, kind, bytes };
                if number < most {
                    frame.seen.push(seen);
                    numbers.push(number);
                    return Ok(());
                }
                // A reservoir: all keys so far have the same chance to be in it.
                frame.whole = false;
                let place = rng.random_range(0..=number);
                if place < most {
                    frame.seen[place as usize] = seen;
                    numbers[place as usize] = number;
                }
                Ok(())
            },
        )?;
        for (name, value) in aux {
            let text = String::from_utf8_lossy(&value).into_owned();
            match &name[..] {
                b"used-mem" => self.facts.used = text.parse().ok(),
                b"redis-ver" => self.facts.name += &format!(", by redis {text}"),
                b"valkey-ver" => self.facts.name += &format!(", by valkey {text}"),
                _ => {}
            }
        }
        self.facts.functions = functions;
        self.facts.expiring = Some(expiring);
        self.numbers = numbers;
        frame.keys = by_db.values().sum();
        frame.by_db = by_db.into_iter().collect();
        frame.by_db.sort_unstable();
        Ok(frame)
    }

    fn read(
        &mut self,
        frame: &Frame,
        chosen: &[usize],
        _: Budget,
        trial: &mut Trial,
        progress: &mut Progress,
    ) -> Result<Vec<Detail>, Failure> {
        progress.begin("reading", self.bytes);
        let wanted: HashMap<u64, usize> = chosen.iter().map(|&at| (self.numbers[at], at)).collect();
        let store = Store::new(StoreConfig::default(), Box::new(Unobserved));
        let session = store.session();
        let limits = Limits::DEFAULT;
        let mut making = session.making(&limits);
        let mut scratch = StreamScratch::default();
        let (mut details, mut refused) = (Vec::new(), None);
        self.walk(
            progress,
            |_| {},
            |reader, number, _, head| {
                let at = wanted.get(&number).copied();
                let Some(at) = at.filter(|&at| {
                    frame.seen[at].bytes <= VALUE_MAX && frame.seen[at].kind != "module"
                }) else {
                    return reader.skip(&head).map_err(|error| self.wrong(&error));
                };
                reader.value(&head, &mut making).map_err(|error| self.wrong(&error))?;
                let Some(value) = making.finish(&store.key(&head.key), None, None) else {
                    return Ok(());
                };
                let dump = dump(&value, Options::DEFAULT, (&session, &mut scratch));
                let dump = dump.map_err(|error| self.wrong(&error))?;
                let seen = &frame.seen[at];
                let detail = Detail {
                    at,
                    ttl: head.expiry.map(|at| at - self.now_ms),
                    idle: head.idle,
                    length: 1,
                    read: 1,
                    ..Detail::default()
                };
                let part = Part::Dump(dump, 1);
                match trial.put(seen, &detail, vec![part], &[])? {
                    None => details.push(detail),
                    Some(reply) => refused = Some(reply),
                }
                Ok(())
            },
        )?;
        trial.flush()?;
        if let Some(reply) = refused {
            self.facts.notes.push(format!("some values were not taken by Snug: {reply}"));
        }
        Ok(details)
    }
}
