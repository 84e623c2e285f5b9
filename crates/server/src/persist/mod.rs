//! Durability: what of the store is on disk, how it gets there and back.
//!
//! ```text
//!  store ──snapshot──> saving ──> dump.rdb                  SAVE, BGSAVE, save points
//!    │        └──────> saving ──> the append-only file's base       a rewrite
//!    └─commits─> journal ──> aof/writer ──> its increments
//!
//!  at the start: loading <── the append-only file, or dump.rdb
//! ```
//!
//! [`Persist`] knows the store, the journal, the configuration and files, and nothing of
//! clients or commands: what executes a command that is loaded is handed in. One snapshot
//! is written at a time, by a thread of its own ([`saving`]). The append-only file has a
//! thread while it is on ([`aof`]). [`Durable`] says how far commits are on disk.
//!
//! **Files that are in use** are locked: `dbfilename.lock` beside the snapshot and a file
//! in the append-only file's folder. Two servers that shared them would each replace what
//! the other saved; so the second does not start. Redis lets them.

pub(crate) mod aof;
pub(crate) mod durable;
pub(crate) mod ending;
pub(crate) mod loading;
pub(crate) mod saving;
mod switch;

use crate::config::{Config, Param};
use crate::journal::Journal;
use crate::outside::clock::unix_ms;
use crate::outside::files::{Files, Lock};
use aof::Place;
use aof::writer::Policy;
use durable::Durable;
use loading::Progress;
use parking_lot::Mutex;
use saving::{Kind, Outcome};
use snug_store::{Session, Store};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Who has libraries of functions: they are saved with everything else.
pub(crate) trait Libraries: Send + Sync {
    /// The code of each.
    fn all(&self) -> Vec<Vec<u8>>;
    /// Takes one that was saved.
    fn load(&self, code: &[u8]) -> Result<(), String>;
}

/// What is being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) kind: Kind,
    pub(crate) began: Instant,
    pub(crate) keys_total: u64,
}

/// What runs and what is to run, and how it went last.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) running: Option<Running>,
    /// `BGSAVE SCHEDULE`, `BGREWRITEAOF` while something else runs.
    pub(crate) save_scheduled: bool,
    pub(crate) rewrite_scheduled: bool,
    pub(crate) save: Outcome,
    pub(crate) rewrite: Outcome,
    /// Changes of the store at the moment of the last snapshot that was saved.
    pub(crate) saved_changes: u64,
    /// When it was saved, in Unix seconds.
    pub(crate) saved_at: u64,
    /// When saving was tried last, in Unix seconds.
    pub(crate) tried_at: u64,
    pub(crate) rewrite_tried_at: u64,
}

/// See the [module](self).
pub(crate) struct Persist {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Arc<Store>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) durable: Durable,
    pub(crate) loading: Progress,
    pub(crate) jobs: Mutex<Jobs>,
    /// The append-only file's thread while it is on. Locked for moments.
    aof: Mutex<Option<switch::Writing>>,
    aof_on: AtomicBool,
    /// Held by whoever turns it on or off, and waited for by nobody.
    switching: Mutex<()>,
    pub(crate) figures: Figures,
    pub(crate) libraries: OnceLock<Box<dyn Libraries>>,
    /// Why the append-only file could not be written last, if it could not.
    aof_error: Mutex<Option<String>>,
    aof_failing: AtomicBool,
    /// What is written is of no use any more: the server ends without it.
    pub(crate) stop: AtomicBool,
    /// All is saved: nothing is begun any more.
    ended: AtomicBool,
    locks: Mutex<Vec<(PathBuf, Lock)>>,
}

/// What others read of what runs.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) keys_saved: AtomicU64,
    pub(crate) aof_size: AtomicU64,
    pub(crate) aof_base_size: AtomicU64,
    /// The size after the last rewrite or at the start: growth is reckoned from there.
    pub(crate) aof_rewritten_size: AtomicU64,
    /// A rewrite is needed for the file to be valid.
    pub(crate) aof_wants_rewrite: AtomicBool,
    pub(crate) write_failures: AtomicU64,
}

impl fmt::Debug for Persist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persist").finish_non_exhaustive()
    }
}

/// Why writes are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The last snapshot could not be saved.
    Snapshot,
    /// The append-only file cannot be written, and why.
    AppendOnly(String),
}

impl Persist {
    pub(crate) fn new(
        config: Arc<Config>,
        store: Arc<Store>,
        journal: Arc<Journal>,
        files: Arc<dyn Files>,
    ) -> Arc<Self> {
        let now = unix_ms() / 1000;
        let jobs = Jobs { saved_at: now, ..Jobs::default() };
        Arc::new(Self {
            config,
            store,
            journal,
            files,
            durable: Durable::default(),
            loading: Progress::default(),
            jobs: Mutex::new(jobs),
            aof: Mutex::default(),
            aof_on: AtomicBool::new(false),
            switching: Mutex::default(),
            figures: Figures::default(),
            libraries: OnceLock::new(),
            aof_error: Mutex::default(),
            aof_failing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            locks: Mutex::default(),
        })
    }

    /// The snapshot's file.
    pub(crate) fn dump_path(&self) -> PathBuf {
        self.config.path(Param::Dbfilename)
    }

    /// Where the append-only file is.
    pub(crate) fn aof_place(&self) -> Place {
        Place {
            files: Arc::clone(&self.files),
            dir: self.config.path(Param::Appenddirname),
            name: self.config.text(Param::Appendfilename),
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        match self.config.number(Param::Appendfsync) {
            0 => Policy::EverySecond,
            1 => Policy::Always,
            _ => Policy::Never,
        }
    }

    /// Whether the server is loading what was saved.
    #[inline]
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.active.load(Relaxed)
    }

    /// What is being written, if something is.
    pub(crate) fn runs(&self) -> Option<Kind> {
        self.jobs.lock().running.map(|running| running.kind)
    }

    /// Whether the append-only file is on.
    pub(crate) fn is_aof_on(&self) -> bool {
        self.aof_on.load(Relaxed)
    }

    /// Moments to save at: seconds and changes.
    pub(crate) fn save_points(&self) -> Vec<(u64, u64)> {
        let text = self.config.text(Param::Save);
        let mut numbers = text.split_ascii_whitespace().filter_map(|word| word.parse().ok());
        std::iter::from_fn(|| Some((numbers.next()?, numbers.next()?))).collect()
    }

    /// Why writes are refused, if they are: what they would change could not be put on
    /// disk.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        if !self.aof_failing.load(Relaxed) {
            return None;
        }
        self.why_refused()
    }

    #[cold]
    fn why_refused(&self) -> Option<Refusal> {
        if let Some(why) = &*self.aof_error.lock() {
            return Some(Refusal::AppendOnly(why.clone()));
        }
        let saving_failed = self.jobs.lock().save.failed;
        let stops =
            self.config.is_on(Param::StopWritesOnBgsaveError) && !self.config.is_empty(Param::Save);
        (saving_failed && stops).then_some(Refusal::Snapshot)
    }

    /// Why the append-only file could not be written last.
    pub(crate) fn aof_error(&self) -> Option<String> {
        self.aof_error.lock().clone()
    }

    fn set_aof_error(&self, error: Option<String>) {
        *self.aof_error.lock() = error;
        self.judge();
    }

    /// Notes whether anything is wrong, so that commands need only look at a flag.
    fn judge(&self) {
        let failing = self.aof_error.lock().is_some() || self.jobs.lock().save.failed;
        self.aof_failing.store(failing, Relaxed);
    }

    /// Locks a file that no other server may use.
    fn lock(&self, path: &Path) -> Result<(), String> {
        let mut locks = self.locks.lock();
        if locks.iter().any(|(locked, _)| locked == path) {
            return Ok(());
        }
        match self.files.lock(path) {
            Ok(Some(lock)) => {
                locks.push((path.to_owned(), lock));
                Ok(())
            }
            Ok(None) => {
                let dir = std::env::current_dir().unwrap_or_default();
                let path = dir.join(path);
                Err(format!("{} is locked: another server uses these files", path.display()))
            }
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Locks the snapshot's file, in the folder where the process is.
    pub(crate) fn lock_dump(&self) -> Result<(), String> {
        let dir = std::env::current_dir().unwrap_or_default();
        let mut name = self.config.text(Param::Dbfilename);
        name.push_str(".lock");
        self.lock(&dir.join(name))
    }

    /// What is done a few times a second: what is scheduled or due is begun.
    pub(crate) fn tick(self: &Arc<Self>, session: &mut Session) {
        if self.is_loading() || self.ended.load(Relaxed) {
            return;
        }
        let now = unix_ms() / 1000;
        self.sync_holds();
        // An end that failed has turned it off, or loading took until now.
        if self.config.is_on(Param::AppendOnly) && !self.is_aof_on() && self.runs().is_none() {
            let batch = session.enter(unix_ms());
            if let Err(why) = self.set_aof(&batch, true) {
                tracing::error!(why, "the append-only file cannot be turned on");
            }
        }
        let (save, rewrite) = {
            let mut jobs = self.jobs.lock();
            if jobs.running.is_some() {
                return;
            }
            let save = std::mem::take(&mut jobs.save_scheduled) || self.is_save_due(&jobs, now);
            let rewrite =
                std::mem::take(&mut jobs.rewrite_scheduled) || self.is_rewrite_due(&jobs, now);
            jobs.save_scheduled = save && rewrite;
            (save && !rewrite, rewrite)
        };
        let began = match (save, rewrite) {
            (_, true) => self.begin(Kind::Rewrite, None),
            (true, false) => self.begin(Kind::Save, None),
            (false, false) => Ok(()),
        };
        if let Err(why) = began {
            tracing::warn!(why, "a snapshot could not be begun");
        }
    }

    fn is_save_due(&self, jobs: &Jobs, now: u64) -> bool {
        /// Seconds between two attempts of which the first failed.
        const RETRY: u64 = 5;
        let changes = self.store.changes().saturating_sub(jobs.saved_changes);
        let may = !jobs.save.failed || now >= jobs.tried_at + RETRY;
        let since = now.saturating_sub(jobs.saved_at);
        let due = |(seconds, least): (u64, u64)| changes >= least && since > seconds;
        let point = self.save_points().into_iter().find(|&point| due(point));
        if let Some((seconds, least)) = point.filter(|_| may) {
            tracing::info!("{least} changes in {seconds} seconds. Saving...");
        }
        may && point.is_some()
    }

    fn is_rewrite_due(&self, jobs: &Jobs, now: u64) -> bool {
        if !self.is_aof_on() {
            return false;
        }
        // After failures in a row it is tried ever less often.
        let pause = [0, 1, 2, 5, 10, 30, 60][jobs.rewrite.failures.min(6) as usize];
        if now < jobs.rewrite_tried_at + pause {
            return false;
        }
        if self.figures.aof_wants_rewrite.load(Relaxed) {
            return true;
        }
        let percent = self.config.number(Param::AutoAofRewritePercentage) as u64;
        let least = self.config.number(Param::AutoAofRewriteMinSize) as u64;
        let size = self.figures.aof_size.load(Relaxed);
        let base = self.figures.aof_rewritten_size.load(Relaxed).max(1);
        let growth = (size.saturating_sub(base) as u128 * 100 / u128::from(base)) as u64;
        let due = percent > 0 && size > least && growth >= percent;
        if due {
            tracing::info!("Starting automatic rewriting of AOF on {growth}% growth");
        }
        due
    }
}
