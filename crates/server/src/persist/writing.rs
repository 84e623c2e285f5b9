//! A snapshot as bytes, in each of the formats that files are in.
//!
//! | format | names end in | who reads it |
//! | --- | --- | --- |
//! | RDB | `.rdb` | Redis, and Snug |
//! | Snug's own | `.snug` | Snug, without packing or unpacking anything |
//! | commands | `.aof` | Redis, Snug, and people |
//!
//! The snapshot is read slot by slot; nothing is held but what one step takes.

use super::Persist;
use super::as_commands::CommandsWriter;
use crate::config::{Config, Param};
use crate::outside::REDIS_VERSION;
use crate::outside::chance;
use crate::outside::clock::unix_ms;
use crate::outside::threads::GivesWay;
use rand::RngExt as _;
use snug_rdb::{FieldTimes, Meta, Options, Writer};
use snug_store::image::ImageWriter;
use snug_store::types::stream::StreamScratch;
use snug_store::{Detached, Session, Snapshot, Step};
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What a file is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Redis's.
    Rdb,
    /// Snug's own.
    Snug,
    /// Commands, of which an append-only file's base may be made.
    Commands,
}

impl Format {
    /// What the names of files end in.
    pub(crate) fn ending(self) -> &'static str {
        match self {
            Self::Rdb => "rdb",
            Self::Snug => "snug",
            Self::Commands => "aof",
        }
    }
}

fn told(error: impl Display) -> String {
    error.to_string()
}

/// Where keys with their values go.
trait Keys {
    fn put(&mut self, db: usize, value: &Detached, with: &mut With) -> Result<(), String>;
}

/// What values are read with.
struct With {
    session: Session,
    scratch: StreamScratch,
}

impl<W: Write> Keys for Writer<W> {
    fn put(&mut self, db: usize, value: &Detached, with: &mut With) -> Result<(), String> {
        let with = (&with.session, &mut with.scratch);
        self.entry(db, value, Meta::default(), with).map_err(told)
    }
}

impl<W: Write> Keys for ImageWriter<'_, W> {
    fn put(&mut self, db: usize, value: &Detached, _: &mut With) -> Result<(), String> {
        self.entry(db, value).map_err(told)
    }
}

impl<W: Write> Keys for CommandsWriter<W> {
    fn put(&mut self, db: usize, value: &Detached, with: &mut With) -> Result<(), String> {
        self.entry(db, value, (&with.session, &mut with.scratch)).map_err(told)
    }
}

impl Persist {
    fn options(&self) -> Options {
        Options {
            compress: self.config.is_on(Param::Rdbcompression),
            checksum: self.config.is_on(Param::Rdbchecksum),
            field_times: FieldTimes::Aux,
            ..Options::DEFAULT
        }
    }

    fn all_libraries(&self) -> Vec<Vec<u8>> {
        self.libraries.get().map(|all| all.all()).unwrap_or_default()
    }

    /// Writes all of a snapshot; the output, when all has been given to it.
    pub(crate) fn write_snapshot<W: Write>(
        &self,
        snapshot: &mut Snapshot,
        out: W,
        format: Format,
        is_base: bool,
    ) -> Result<W, String> {
        let (time, memory) = (unix_ms() / 1000, snug_store::memory::used());
        let (time, memory) = (time.to_string(), memory.to_string());
        let mut facts = vec![
            ("redis-ver", REDIS_VERSION),
            ("redis-bits", "64"),
            ("ctime", &time),
            ("used-mem", &memory),
            ("aof-base", if is_base { "1" } else { "0" }),
            ("snug-ver", env!("CARGO_PKG_VERSION")),
        ];
        let past = self.past.lock().clone().filter(|_| !is_base).map(|past| past.facts());
        facts.extend(past.iter().flatten().map(|(name, value)| (*name, &**value)));
        match format {
            Format::Rdb => {
                let mut writer = Writer::new(out, self.options());
                writer.header(&facts).map_err(told)?;
                for code in self.all_libraries() {
                    writer.function(&code).map_err(told)?;
                }
                for (db, keys, expiring) in snapshot.databases() {
                    writer.database(db, keys, expiring).map_err(told)?;
                }
                self.walk(snapshot, &mut writer)?;
                writer.end().map_err(told)
            }
            Format::Snug => {
                let mut writer = ImageWriter::new(out, &self.store).map_err(told)?;
                if self.config.is_on(Param::Rdbcompression) {
                    writer.frame(self.file_threads()).map_err(told)?;
                }
                for (name, value) in facts {
                    writer.aux(name.as_bytes(), value.as_bytes()).map_err(told)?;
                }
                for code in self.all_libraries() {
                    writer.function(&code).map_err(told)?;
                }
                writer.families().map_err(told)?;
                self.walk(snapshot, &mut writer)?;
                writer.end().map_err(told)
            }
            Format::Commands => {
                let mut writer = CommandsWriter::new(out);
                for code in self.all_libraries() {
                    writer.command(&[b"FUNCTION", b"LOAD", &code]).map_err(told)?;
                }
                self.walk(snapshot, &mut writer)?;
                writer.end().map_err(told)
            }
        }
    }

    /// Reads a snapshot and writes what it has.
    fn walk(&self, snapshot: &mut Snapshot, keys: &mut dyn Keys) -> Result<(), String> {
        let mut reader = self.store.session();
        let mut with = With { session: self.store.session(), scratch: StreamScratch::default() };
        let mut taken = Vec::new();
        let mut gives_way = GivesWay::new();
        loop {
            let batch = reader.enter(unix_ms());
            let was_behind = self.store.is_snapshot_behind();
            let step = snapshot.step(&batch, &mut taken);
            drop(batch);
            if was_behind {
                self.journal.held.release();
            }
            for (db, value) in taken.drain(..) {
                if self.stop.load(Relaxed) {
                    return Err("stopped: the server ends".into());
                }
                let put = keys.put(db, &value, &mut with);
                put.map_err(|e| match self.config.is_on(Param::HideUserDataFromLog) {
                    true => format!("a key: {e}"),
                    false => format!("key '{}': {e}", value.key().escape_ascii()),
                })?;
                self.figures.keys_saved.fetch_add(1, Relaxed);
                linger(&self.config);
                gives_way.now_and_then();
            }
            if step == Step::Done {
                return Ok(());
            }
        }
    }
}

/// Waits after a key as `rdb-key-save-delay` has it.
pub(crate) fn linger(config: &Config) {
    let delay = config.number(Param::RdbKeySaveDelay);
    let one_in = delay.min(0).unsigned_abs();
    if delay > 0 {
        std::thread::sleep(Duration::from_micros(delay as u64));
    } else if one_in > 0 && chance::rng().random_range(0..one_in) == 0 {
        std::thread::sleep(Duration::from_micros(1));
    }
}
