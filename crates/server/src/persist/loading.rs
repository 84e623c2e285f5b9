//! Loading what was saved, at the start: from where, on what, and how far it is.

use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::persist::past::Past;
use crate::request::args::Args;
use parking_lot::Mutex;
use snug_rdb::{Loading as RdbLoading, ReadOptions, Reader};
use snug_store::image::{self, Loading as ImageLoading, Trust};
use snug_store::{Batch, Session, Store};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How often the log tells how far loading is.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// How far loading is: `INFO`'s `loading_*`.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Commands are answered with `-LOADING`.
    pub(crate) active: AtomicBool,
    /// What is loaded is packed already: nothing else is packed meanwhile.
    pub(crate) is_packed: AtomicBool,
    pub(crate) began_unix: AtomicU64,
    pub(crate) total: AtomicU64,
    /// Bytes of files that are loaded, and of the one that is being loaded.
    files: AtomicU64,
    file: AtomicU64,
    told: Mutex<Option<Instant>>,
    /// Keys that were loaded and that were left out, of a snapshot.
    pub(crate) keys: AtomicU64,
    pub(crate) expired: AtomicU64,
}

impl Progress {
    /// So many bytes are to be loaded.
    pub(crate) fn begin(&self, total: u64) {
        self.began_unix.store(unix_ms() / 1000, Relaxed);
        self.total.store(total, Relaxed);
        self.files.store(0, Relaxed);
        self.file.store(0, Relaxed);
        *self.told.lock() = Some(Instant::now());
    }

    /// So many bytes of a file are.
    pub(crate) fn at(&self, bytes: u64) {
        self.file.store(bytes, Relaxed);
    }

    /// Tells the log, now and then.
    pub(crate) fn tell(&self) {
        let mut told = self.told.lock();
        if told.is_some_and(|told| told.elapsed() > TOLD_EVERY) {
            *told = Some(Instant::now());
            let (loaded, total) = (self.loaded(), self.total.load(Relaxed));
            tracing::info!(loaded, total, "loading");
        }
    }

    /// All of a file is.
    pub(crate) fn add_file(&self, len: u64) {
        self.file.store(0, Relaxed);
        self.files.fetch_add(len, Relaxed);
    }

    /// Bytes that are loaded.
    pub(crate) fn loaded(&self) -> u64 {
        self.files.load(Relaxed) + self.file.load(Relaxed)
    }
}

/// A file that is loaded.
pub(crate) type Input = Box<dyn Read + Send>;
/// What of a file follows a snapshot: the file, what was read of it, and where that begins.
pub(crate) type Rest = (Input, Vec<u8>, u64);

/// By so many bytes formats are told apart.
const MAGIC_BYTES: u64 = 8;

/// Executes a command of an append-only file; what is wrong with it, if something is.
pub(crate) type Replay<'r> = dyn FnMut(&Batch<'_>, Args<'_>) -> Result<(), String> + 'r;

/// What files are loaded into, and by whom.
pub(crate) struct Source<'s> {
    pub(crate) store: &'s Arc<Store>,
    pub(crate) session: Session,
    pub(crate) progress: &'s Progress,
    pub(crate) replay: &'s mut Replay<'s>,
    pub(crate) checksum: bool,
    /// Values are looked through as they are loaded: `sanitize-dump-payload`.
    pub(crate) sanitizes: bool,
    /// How many threads load.
    pub(crate) threads: usize,
    pub(crate) databases: usize,
    /// Names of keys stay out of errors, which are logged.
    pub(crate) hides_keys: bool,
    /// Whoever has libraries of functions takes one.
    pub(crate) library: &'s dyn Fn(&[u8]) -> Result<(), String>,
    pub(crate) stopped: &'s AtomicBool,
    /// Where the stream of replication was, if the file tells. Then nothing is left out:
    /// what has expired goes as commits tell it, to replicas too.
    pub(crate) past: Option<Past>,
    /// Waits until there is room for more.
    pub(crate) room: Option<&'s (dyn Fn() + Send + Sync)>,
}

impl Source<'_> {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Executes something on the store.
    pub(crate) fn batch<R>(&mut self, work: impl FnOnce(&Batch<'_>, &mut Replay<'_>) -> R) -> R {
        let batch = self.session.enter(unix_ms());
        work(&batch, &mut *self.replay)
    }

    /// Loads a snapshot, by how it begins, or what of a file is one; what follows it in the
    /// file, and where that begins. Nothing was loaded, and all of it follows, if it begins
    /// like neither. Of a part of an append-only file, `is_part`, nothing is left out: what has
    /// expired is told by what follows.
    pub(crate) fn snapshot(&mut self, mut file: Input, is_part: bool) -> Result<Rest, String> {
        let mut first = Vec::new();
        file.by_ref().take(MAGIC_BYTES).read_to_end(&mut first).map_err(|e| e.to_string())?;
        if first.starts_with(image::MAGIC) {
            self.image(std::io::Cursor::new(first).chain(file), is_part)?;
            return Ok((Box::new(std::io::empty()), Vec::new(), 0));
        }
        if first.starts_with(b"REDIS") || !is_part {
            return self.rdb(Box::new(std::io::Cursor::new(first).chain(file)), is_part);
        }
        Ok((file, first, 0))
    }

    /// Loads a file of Snug's format. Nothing is packed meanwhile: all is, and what is new
    /// would take the place of dictionaries that are still to come.
    fn image(&mut self, file: impl Read, is_part: bool) -> Result<(), String> {
        let loading = ImageLoading {
            trust: if self.sanitizes { Trust::Nobody } else { Trust::Own },
            limits: RdbLoading::default().limits,
            databases: self.databases,
            now: if is_part || self.past.is_some() { 0 } else { unix_ms() },
            threads: self.threads,
        };
        let (progress, stopped, room) = (self.progress, self.stopped, self.room);
        progress.is_packed.store(true, Relaxed);
        let loaded = image::load(file, self.store, &loading, |loaded| {
            progress.at(loaded.bytes);
            progress.tell();
            if let Some(wait) = room {
                wait();
            }
            !stopped.load(Relaxed)
        });
        progress.is_packed.store(false, Relaxed);
        let loaded = loaded.map_err(|e| e.to_string())?;
        progress.keys.store(loaded.keys, Relaxed);
        progress.expired.store(loaded.expired, Relaxed);
        loaded.functions.iter().try_for_each(|code| (self.library)(code))
    }

    fn rdb(&mut self, file: Input, is_part: bool) -> Result<Rest, String> {
        let read = ReadOptions { checksum: self.checksum };
        let mut reader = Reader::new(file, read).map_err(|e| e.to_string())?;
        let now = if is_part || self.past.is_some() { 0 } else { unix_ms() };
        let loading = RdbLoading { read, databases: self.databases, now, ..RdbLoading::default() };
        let (progress, stopped, room) = (self.progress, self.stopped, self.room);
        let loaded = snug_rdb::load(&mut reader, self.store, &loading, |loaded| {
            progress.at(loaded.bytes);
            progress.tell();
            if let Some(wait) = room {
                wait();
            }
            !stopped.load(Relaxed)
        });
        let hides = self.hides_keys;
        let loaded = loaded.map_err(|e| if hides { e.without_key() } else { e }.to_string())?;
        progress.keys.store(loaded.keys, Relaxed);
        progress.expired.store(loaded.expired, Relaxed);
        for code in &loaded.functions {
            (self.library)(code)?;
        }
        if !loaded.modules.is_empty() {
            tracing::warn!(modules = ?loaded.modules, "data of modules was passed over");
        }
        let read = reader.offset();
        let (file, unread) = reader.into_parts();
        Ok((file, unread, read))
    }
}
