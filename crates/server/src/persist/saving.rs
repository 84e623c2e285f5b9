//! Snapshots to disk: `dump.rdb` or `dump.snug`, and the bases of the append-only file.
//!
//! A thread reads the snapshot slot by slot and writes it ([`writing`](super::writing)) into
//! a temporary file, which is synced and renamed, and then the folder is synced: whenever the
//! machine stops, the file is the old one or the new one. No worker waits for any of it.

use super::aof::writer::Rewritten;
use super::writing::Format;
use super::{Persist, Running};
use crate::config::Param;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::outside::files::Output;
use snug_store::{Batch, Snapshot};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;

/// What a snapshot is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `dump.rdb`, or `dump.snug`.
    Save,
    /// The base of the append-only file.
    Rewrite,
}

/// How it went last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) failed: bool,
    /// Failures in a row.
    pub(crate) failures: u64,
    pub(crate) took: Option<Duration>,
    /// How often it succeeded, or was tried.
    pub(crate) count: u64,
}

impl Outcome {
    fn note(&mut self, succeeded: bool, took: Duration) {
        self.failed = !succeeded;
        self.failures = if succeeded { 0 } else { self.failures + 1 };
        self.took = Some(took);
        self.count += u64::from(succeeded);
    }

    /// For how long it is not tried again after failures: a second more for each in a row,
    /// five at most, so that it goes on soon where the disk is well again; and what takes long
    /// to fail is tried a tenth of the time at most, a minute apart at most.
    pub(crate) fn pause_seconds(&self) -> u64 {
        const LONGEST: u64 = 60;
        if !self.failed {
            return 0;
        }
        let took = self.took.map_or(0, |took| took.as_secs() * 10);
        self.failures.min(5).max(took).min(LONGEST)
    }
}

/// Who is told what came of it.
pub(crate) type Told = oneshot::Sender<Result<(), String>>;

/// Bytes after which what was written is synced, so that the last sync is short.
const SYNC_EVERY: u64 = 32 * 1024 * 1024;

/// A file that is synced as it grows.
pub(crate) struct Growing {
    file: Box<dyn Output>,
    unsynced: u64,
    incremental: bool,
}

impl Growing {
    pub(crate) fn new(file: Box<dyn Output>, incremental: bool) -> Self {
        Self { file, unsynced: 0, incremental }
    }
}

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written as u64;
        if self.incremental && self.unsynced >= SYNC_EVERY {
            self.file.sync()?;
            self.unsynced = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Persist {
    /// Writes a snapshot into a file that is there, synced, when this returns.
    pub(super) fn write_file(
        &self,
        snapshot: &mut Snapshot,
        path: &Path,
        format: Format,
        is_base: bool,
    ) -> Result<(), String> {
        let param = if is_base {
            Param::AofRewriteIncrementalFsync
        } else {
            Param::RdbSaveIncrementalFsync
        };
        let told = |e: io::Error| format!("{}: {e}", path.display());
        let file = self.files.create(path).map_err(told)?;
        let file = Growing::new(file, self.config.is_on(param));
        let written = self.write_snapshot(snapshot, file, format, is_base);
        let synced = written.and_then(|file| file.file.sync().map_err(told));
        if synced.is_err() {
            let _ = self.files.remove(path);
        }
        synced
    }

    /// Begins a snapshot on a thread of its own. Why not, if not; else `told` is told what
    /// came of it.
    pub(crate) fn begin(self: &Arc<Self>, kind: Kind, told: Option<Told>) -> Result<(), String> {
        let mut jobs = self.jobs.lock();
        if jobs.running.is_some() {
            return Err("another snapshot is being written".into());
        }
        let now = unix_ms() / 1000;
        match kind {
            Kind::Save => jobs.tried_at = now,
            Kind::Rewrite => jobs.rewrite_tried_at = now,
        }
        let keys_total = self.store.keys_of_all();
        jobs.running = Some(Running { kind, began: Instant::now(), keys_total });
        self.figures.keys_saved.store(0, Relaxed);
        drop(jobs);
        let persist = Arc::clone(self);
        let thread = std::thread::Builder::new().name("saver".into()).spawn(move || {
            let done = persist.run(kind);
            if let Some(told) = told {
                let _ = told.send(done);
            }
        });
        if let Err(error) = thread {
            self.jobs.lock().running = None;
            return Err(format!("no thread to write it: {error}"));
        }
        Ok(())
    }

    /// Writes a snapshot, on this thread, and notes how it went.
    pub(super) fn run(self: &Arc<Self>, kind: Kind) -> Result<(), String> {
        let began = Instant::now();
        let done = match kind {
            Kind::Save => self.save_now(),
            Kind::Rewrite => self.rewrite_now(),
        };
        snug_store::memory::purge();
        let took = began.elapsed();
        let mut jobs = self.jobs.lock();
        jobs.running = None;
        match (kind, &done) {
            (Kind::Save, Ok((changes, _))) => {
                jobs.save.note(true, took);
                jobs.saved_changes = *changes;
                jobs.saved_at = unix_ms() / 1000;
            }
            (Kind::Save, Err(_)) => jobs.save.note(false, took),
            (Kind::Rewrite, result) => jobs.rewrite.note(result.is_ok(), took),
        }
        drop(jobs);
        self.judge();
        let seconds = took.as_secs_f64();
        match &done {
            Ok((_, path)) => tracing::info!(file = %path.display(), seconds, "snapshot written"),
            Err(error) => tracing::error!(error, ?kind, "a snapshot could not be written"),
        }
        done.map(drop)
    }

    /// Begins a snapshot, and does something else at the same moment. Waits until there is
    /// no other: a replica may be reading one.
    fn snapshot<R>(&self, also: impl Fn(&Batch<'_>) -> R) -> Result<(Snapshot, R), String> {
        let mut session = self.store.session();
        while !self.stop.load(Relaxed) {
            let batch = session.enter(unix_ms());
            let alone = batch.exclusive();
            if let Some(snapshot) = batch.begin_snapshot() {
                *self.past.lock() = self.tells_past.get().and_then(|tell| tell(&batch));
                return Ok((snapshot, also(&batch)));
            }
            drop(alone);
            drop(batch);
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("stopped: the server ends".into())
    }

    /// Writes the snapshot's file; the changes of the store that are in it. It takes the
    /// place of one in another format.
    fn save_now(&self) -> Result<(u64, PathBuf), String> {
        self.return_to_dir();
        self.lock_dump()?;
        let format = self.save_format();
        let path = self.dump_path(format);
        let temporary = PathBuf::from(format!("temp-{}.{}", std::process::id(), format.ending()));
        let (mut snapshot, changes) = self.snapshot(|_| self.store.changes())?;
        self.write_file(&mut snapshot, &temporary, format, false)?;
        drop(snapshot);
        let told = |e: io::Error| format!("{}: {e}", path.display());
        self.files.rename(&temporary, &path).map_err(told)?;
        self.files.sync_dir(Path::new("")).map_err(told)?;
        for old in self.dumps().into_iter().filter(|old| *old != path) {
            if let Err(error) = self.files.remove(&old) {
                tracing::warn!(%error, file = %old.display(), "an older snapshot cannot be removed");
            }
        }
        Ok((changes, path))
    }

    /// Writes a base for the append-only file and hands it to its writer.
    fn rewrite_now(self: &Arc<Self>) -> Result<(u64, PathBuf), String> {
        self.return_to_dir();
        let (place, format) = (self.aof_place(), self.base_format());
        self.files.make_dir(&place.dir).map_err(|e| format!("{}: {e}", place.dir.display()))?;
        let path = place.temporary();
        let (mut snapshot, (mark, turned_on)) =
            self.snapshot(|batch| (self.journal.mark(batch), self.turned_on.load(Relaxed)))?;
        self.write_file(&mut snapshot, &path, format, true)?;
        drop(snapshot);
        self.hand_over(Rewritten { path: path.clone(), mark, format }, turned_on)?;
        Ok((0, path))
    }
}
