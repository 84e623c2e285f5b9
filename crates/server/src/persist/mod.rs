//! Durability: what of the store is on disk, how it gets there and back.
//!
//! ```text
//!  store ──snapshot──> saving ──> dump.rdb, dump.snug       SAVE, BGSAVE, save points
//!    │        └──────> saving ──> the append-only file's base       a rewrite
//!    └─commits─> journal ──> aof/writer ──> its increments
//!
//!  at the start: loading <── the append-only file, or dump.rdb, or dump.snug
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
mod as_commands;
pub(crate) mod durable;
pub(crate) mod ending;
pub(crate) mod loading;
pub(crate) mod past;
pub(crate) mod rounds;
pub(crate) mod saving;
pub(crate) mod switch;
pub(crate) mod writing;

use crate::config::{Config, Param};
use crate::journal::Journal;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::outside::files::{Files, Lock};
use crate::request::error::Error;
use aof::Place;
use aof::writer::{Policy, Writer};
use durable::Durable;
use loading::Progress;
use parking_lot::Mutex;
use past::Past;
use saving::{Kind, Outcome};
use snug_store::{Batch, Session, Store};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use writing::Format;

/// Who has libraries of functions: they are saved with everything else.
pub(crate) trait Libraries: Send + Sync {
    /// The code of each.
    fn all(&self) -> Vec<Vec<u8>>;
    /// Takes one that was saved, in the place of one of its name.
    fn load(&self, code: &[u8]) -> Result<(), String>;
    /// Forgets all of them.
    fn flush(&self);
}

/// Tells where the stream of replication is at this moment, if anybody could go on from
/// there.
pub(crate) type TellsPast = Box<dyn Fn(&Batch<'_>) -> Option<Past> + Send + Sync>;

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
    /// What writes it: for the thread, and for workers at the end of a round.
    writer: Mutex<Option<Writer>>,
    /// Somebody found the writer taken: whoever has it looks again afterwards.
    left: AtomicBool,
    aof_on: AtomicBool,
    /// How often it was turned on.
    turned_on: AtomicU64,
    /// Held by whoever turns it on or off, and waited for by nobody.
    switching: Mutex<()>,
    pub(crate) figures: Figures,
    pub(crate) libraries: OnceLock<Box<dyn Libraries>>,
    pub(crate) tells_past: OnceLock<TellsPast>,
    /// The place in the stream of the snapshot that is being written, or was loaded.
    past: Mutex<Option<Past>>,
    /// Waits until there is room for more, where room is being made: what is loaded may be
    /// more than memory holds.
    pub(crate) wait_for_room: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Why the append-only file could not be written last, if it could not.
    aof_error: Mutex<Option<String>>,
    refuses: AtomicBool,
    /// What is written is of no use any more: the server ends without it.
    pub(crate) stop: AtomicBool,
    /// All is saved: nothing is begun any more.
    ended: AtomicBool,
    locks: Mutex<Vec<(PathBuf, Lock)>>,
}

/// A turn of the append-only file's thread that takes as long counts as slow, ...
const SLOW_MS: u64 = 2000;
/// ... and writes are refused while one takes as long as this.
const STALLED_MS: u64 = 10_000;

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
    /// When whoever writes the append-only file began to, in Unix milliseconds; 0 if nobody
    /// does.
    pub(crate) turn_began: AtomicU64,
    /// The same of who syncs it.
    sync_began: AtomicU64,
    /// Turns and syncs in which the disk took longer than [`SLOW_MS`].
    pub(crate) slow_turns: AtomicU64,
    /// Writes are refused since the disk does not answer.
    is_stalled: AtomicBool,
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

impl Refusal {
    /// What a client is told.
    pub(crate) fn error(self) -> Error {
        match self {
            Self::Snapshot => Error::new(
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
            ),
            Self::AppendOnly(why) => {
                Error::from(format!("MISCONF Errors writing to the AOF file: {why}"))
            }
        }
    }
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
            writer: Mutex::default(),
            left: AtomicBool::new(false),
            aof_on: AtomicBool::new(false),
            turned_on: AtomicU64::new(0),
            switching: Mutex::default(),
            figures: Figures::default(),
            libraries: OnceLock::new(),
            tells_past: OnceLock::new(),
            past: Mutex::default(),
            wait_for_room: OnceLock::new(),
            aof_error: Mutex::default(),
            refuses: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            locks: Mutex::default(),
        })
    }

    /// The snapshot's file in a format: `dump.rdb`, or `dump.snug` beside it.
    pub(crate) fn dump_path(&self, format: Format) -> PathBuf {
        let path = self.config.path(Param::Dbfilename);
        match format {
            Format::Snug if path.extension().is_some_and(|ending| ending == "rdb") => {
                path.with_extension(format.ending())
            }
            Format::Snug => {
                let mut name = path.into_os_string();
                name.push(".snug");
                name.into()
            }
            Format::Rdb | Format::Commands => path,
        }
    }

    /// The names that a snapshot may have.
    pub(crate) fn dumps(&self) -> [PathBuf; 2] {
        [Format::Rdb, Format::Snug].map(|format| self.dump_path(format))
    }

    /// What snapshots are written as.
    pub(crate) fn save_format(&self) -> Format {
        match self.config.number(Param::SaveFormat) {
            0 => Format::Rdb,
            _ => Format::Snug,
        }
    }

    /// What the append-only file's base is written as.
    pub(crate) fn base_format(&self) -> Format {
        match self.config.number(Param::AofUseRdbPreamble) {
            0 => Format::Snug,
            1 => Format::Rdb,
            _ => Format::Commands,
        }
    }

    /// How many threads load a file, or make the frames of one.
    pub(crate) fn file_threads(&self) -> usize {
        match self.config.number(Param::Workers) as usize {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
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

    /// Where the stream of replication was, as the file tells that was loaded.
    pub(crate) fn take_past(&self) -> Option<Past> {
        self.past.lock().take()
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

    /// Whether there may be a [`refusal`](Self::refusal).
    #[inline]
    pub(crate) fn may_refuse(&self) -> bool {
        self.refuses.load(Relaxed)
    }

    /// Why writes are refused, if they are: what they would change could not be put on
    /// disk.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        if self.may_refuse() { self.why_refused() } else { None }
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

    /// For how long the disk has not answered who writes or syncs the append-only file, in
    /// milliseconds.
    pub(crate) fn stalled_ms(&self) -> u64 {
        since(&self.figures.turn_began).max(since(&self.figures.sync_began))
    }

    /// Refuses writes when the disk has not answered for long: what is acknowledged
    /// meanwhile is not on it.
    fn watch_disk(&self) {
        if self.stalled_ms() < STALLED_MS || self.figures.is_stalled.swap(true, Relaxed) {
            return;
        }
        tracing::error!("the disk does not answer: writes are refused until it does");
        if self.aof_error().is_none() {
            let seconds = STALLED_MS / 1000;
            self.set_aof_error(Some(format!("the disk has not answered for {seconds} seconds")));
        }
    }

    /// The process works in its folder; if that was removed and is there again, it goes to
    /// the new one.
    fn return_to_dir(&self) {
        if std::env::current_dir().is_err() {
            let dir = self.config.path(Param::Dir);
            match std::env::set_current_dir(&dir) {
                Ok(()) => tracing::info!(dir = %dir.display(), "the folder is there again"),
                Err(error) => tracing::error!(%error, dir = %dir.display(), "the folder is gone"),
            }
        }
    }

    fn set_aof_error(&self, error: Option<String>) {
        *self.aof_error.lock() = error;
        self.judge();
        self.sync_holds();
    }

    /// Notes whether anything is wrong, so that commands need only look at a flag.
    fn judge(&self) {
        let failing = self.aof_error.lock().is_some() || self.jobs.lock().save.failed;
        self.refuses.store(failing, Relaxed);
    }

    /// Locks the folder of the disk tier.
    pub(crate) fn lock_tier(&self, folder: &Path) -> Result<(), String> {
        self.lock(&folder.join("tier.lock"))
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
        self.watch_disk();
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
        let points = self.save_points();
        // Writes may be refused until one succeeds, whatever has changed since.
        let is_again = jobs.save.failed && !points.is_empty();
        let point = points.into_iter().find(|&point| due(point));
        if let Some((seconds, least)) = point.filter(|_| may) {
            tracing::info!("{least} changes in {seconds} seconds. Saving...");
        }
        may && (point.is_some() || is_again)
    }

    fn is_rewrite_due(&self, jobs: &Jobs, now: u64) -> bool {
        if !self.is_aof_on() {
            return false;
        }
        if now < jobs.rewrite_tried_at + jobs.rewrite.pause_seconds() {
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

/// Milliseconds since then; 0 if it is 0.
fn since(began: &AtomicU64) -> u64 {
    match began.load(Relaxed) {
        0 => 0,
        began => unix_ms().saturating_sub(began),
    }
}

#[cfg(test)]
mod tests {
    use super::aof::Syncing;
    use super::aof::writer::{Manner, Rewritten, Writer};
    use super::*;
    use crate::cluster::Cluster;
    use crate::commands;
    use crate::commands::replay::{Replayed, Replayer};
    use crate::engine::server::Server;
    use crate::outside::chance;
    use crate::outside::simulated::Machine;
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng};
    use snug_store::{Append, Batch, Delete, Event, NewStr, Session, Set, Snapshot};
    use std::collections::BTreeMap;

    const KEYS: u32 = 6;

    type Content = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

    /// One life of a server on a machine: from its start until the machine stops.
    struct Life {
        server: Arc<Server>,
        persist: Arc<Persist>,
        session: Session,
        /// What there was after each commit, from the start on.
        after: Vec<Content>,
    }

    fn content(session: &mut Session) -> Content {
        let batch = session.enter(1);
        let mut content = Content::new();
        for db in 0..2 {
            for n in 0..KEYS {
                let name = format!("k{n}");
                let key = batch.key(name.as_bytes());
                let mut slot = batch.lock(db, &key);
                let Some(found) = slot.find(&key) else { continue };
                let value = slot.string(found).unwrap().to_bytes().unwrap().into_owned();
                content.insert((db, name.into_bytes()), value);
            }
        }
        content
    }

    /// What a server was told to be on disk, and all that was ever there.
    fn begin(machine: &Machine, policy: &str, base: &str) -> (Life, Option<Writer>) {
        let config = Config::default();
        for (param, value) in [
            (Param::AppendOnly, "yes"),
            (Param::Appendfsync, policy),
            (Param::AofUseRdbPreamble, base),
            (Param::Workers, "1"),
        ] {
            config.set(param, value.as_bytes()).unwrap();
        }
        let cluster = Cluster::load(&config).unwrap();
        let server = Server::new(config, cluster, 1, commands::catalog());
        let files: Arc<dyn Files> = Arc::new(machine.clone());
        let persist = Persist::new(
            Arc::clone(&server.config),
            Arc::clone(&server.store),
            Arc::clone(&server.journal),
            files,
        );
        let mut replayer = Replayer::default();
        let replay = &mut |store: &Batch<'_>, args: crate::request::args::Args<'_>| {
            replayer.execute(Replayed { server: &server, store, worker: 0 }, args, None)
        };
        let loaded = persist.load_files(true, replay);
        let mut session = server.store.session();
        let opened = match &loaded {
            Ok(exists) => persist.open_aof(*exists).map_err(|why| (why, machine.has_stopped())),
            Err(why) => Err((why.clone(), machine.has_stopped())),
        };
        let writer = match opened {
            Ok(aof) => {
                let batch = session.enter(1);
                let follower = server.journal.join(&batch, false, Box::new(|| ()));
                drop(batch);
                Some(Writer::new(aof, follower, 0))
            }
            // The machine may stop while it starts, too.
            Err((_, true)) => None,
            Err((why, false)) => panic!("it does not start: {why}"),
        };
        let after = vec![content(&mut session)];
        (Life { server, persist, session, after }, writer)
    }

    impl Life {
        /// Changes something: one commit, or none.
        fn change(&mut self, random: &mut StdRng) {
            let commits = self.server.store.commits();
            let batch = self.session.enter(1);
            let mut pick =
                || (random.random_range(0..2), format!("k{}", random.random_range(0..KEYS)));
            let ((db, name), (other_db, other)) = (pick(), pick());
            let (key, other) = (batch.key(name.as_bytes()), batch.key(other.as_bytes()));
            let text = random.random_range(0..1000u32).to_string();
            match random.random_range(0..20) {
                0..8 => {
                    let mut slot = batch.lock(db, &key);
                    let found = slot.find(&key);
                    let value = "x".repeat(random.random_range(0..60));
                    slot.apply(&key, found, Set::to(NewStr::Text(value.as_bytes())), Event::NONE);
                }
                // Done twice, this is another thing.
                8..13 => {
                    let mut slot = batch.lock(db, &key);
                    let found = slot.find(&key);
                    slot.apply(&key, found, Append(NewStr::Text(text.as_bytes())), Event::NONE);
                }
                13..15 => {
                    let mut slot = batch.lock(db, &key);
                    if let found @ Some(_) = slot.find(&key) {
                        slot.apply(&key, found, Delete, Event::NONE);
                    }
                }
                15..18 => {
                    let _held = batch.hold([(db, key), (other_db, other)]);
                    for (db, key) in [(db, &key), (other_db, &other)] {
                        let mut slot = batch.lock(db, key);
                        let found = slot.find(key);
                        slot.apply(key, found, Append(NewStr::Text(b"+")), Event::NONE);
                    }
                }
                18 => batch.swap(0, 1),
                _ => drop(batch.flush(db)),
            }
            drop(batch);
            if self.server.store.commits() > commits {
                let content = content(&mut self.session);
                self.after.push(content);
            }
        }

        /// Lives until the machine stops; how many commits were on disk for certain.
        fn live(&mut self, machine: &Machine, mut writer: Writer, random: &mut StdRng) -> usize {
            let mut rewrite: Option<(Snapshot, u64)> = None;
            let (apart, mut syncing) = (random.random(), None::<Syncing>);
            let mut now = 0;
            while !machine.has_stopped() {
                for _ in 0..random.random_range(0..5) {
                    self.change(random);
                }
                now += random.random_range(0..700);
                let manner = Manner {
                    policy: self.persist.policy(),
                    no_sync: false,
                    sync_apart: apart,
                    timestamps: random.random_range(0..4) == 0,
                    now,
                };
                // As a worker, as the thread, and as the one that syncs.
                if random.random_range(0..3) == 0 {
                    writer.push(manner);
                }
                if let Some(begun) = syncing.take() {
                    let done = begun.run();
                    writer.end_sync(&begun, done);
                }
                let turn = writer.turn(manner);
                syncing = writer.begin_sync(manner);
                if turn.rewritten.is_some_and(|done| done.is_ok()) {
                    let files = &self.persist.files;
                    if writer.aof.history().iter().all(|path| files.remove(path).is_ok()) {
                        let _ = writer.aof.tidy();
                    }
                }
                match rewrite.take() {
                    None if random.random_range(0..12) == 0 || !writer.aof.is_valid() => {
                        let batch = self.session.enter(1);
                        let _alone = batch.exclusive();
                        let mark = self.server.journal.mark(&batch);
                        rewrite = batch.begin_snapshot().map(|snapshot| (snapshot, mark));
                    }
                    Some((mut snapshot, mark)) if random.random_range(0..3) == 0 => {
                        let path = self.persist.aof_place().temporary();
                        let format = self.persist.base_format();
                        if self.persist.write_file(&mut snapshot, &path, format, true).is_ok() {
                            writer.rewritten(Rewritten { path, mark, format });
                        }
                    }
                    goes_on => rewrite = goes_on,
                }
            }
            writer.reached().1 as usize
        }
    }

    /// The machine stops at any operation, again and again; some writes and syncs fail
    /// before that. What is there when it starts again is what was there after some commit,
    /// and after no earlier one than what had been on disk for certain.
    #[test]
    fn whenever_the_machine_stops_what_was_on_disk_is_there() {
        let number =
            |name: &str, default| std::env::var(name).map_or(default, |n| n.parse().unwrap());
        let (first, crashes) = (number("SNUG_CRASH_SEED", 0), number("SNUG_CRASHES", 20_000));
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let lost: usize = std::thread::scope(|scope| {
            let part = |n| move || stop_and_start(first + n, threads, crashes / threads);
            let parts: Vec<_> = (0..threads).map(|n| scope.spawn(part(n))).collect();
            parts.into_iter().map(|part| part.join().unwrap()).sum()
        });
        // The test would prove nothing if nothing were ever lost.
        assert!(lost > 0);
    }

    /// Stops machines of every so many seeds so often; how many commits were lost, none of
    /// which had been on disk for certain.
    fn stop_and_start(first: u64, step: u64, crashes: u64) -> usize {
        let (mut seed, mut seen, mut lost) = (first, 0, 0);
        while seen < crashes {
            // What the server draws too, so that a seed is the whole of a run.
            chance::simulated::begin(seed);
            let mut random = StdRng::seed_from_u64(seed);
            let machine = Machine::new(seed);
            // All that there was in the last life, and from which on it may be there.
            let (mut all, mut on_disk) = (vec![Content::new()], 0);
            for life_number in 0..12 {
                let policy = ["always", "everysec", "no"][random.random_range(0..3)];
                let fails = if random.random_range(0..3) == 0 { [40, 15] } else { [0, 0] };
                // It may stop while it starts, too.
                if random.random_range(0..6) == 0 {
                    machine.stop_after(random.random_range(1..12), [0, 0]);
                }
                let base = ["snug", "yes", "no"][random.random_range(0..3)];
                let (mut life, writer) = begin(&machine, policy, base);
                if let Some(writer) = writer {
                    let started = &life.after[0];
                    let at = all.iter().rposition(|content| content == started);
                    assert!(
                        at.is_some_and(|at| at >= on_disk),
                        "seed {seed}, life {life_number}: what was there after commit {at:?} of {} is there, and {on_disk} were on disk: {started:?}",
                        all.len() - 1
                    );
                    lost += all.len() - 1 - at.unwrap();
                    if !machine.has_stopped() {
                        let most = if random.random() { 30 } else { 400 };
                        machine.stop_after(random.random_range(1..most), fails);
                    }
                    on_disk = life.live(&machine, writer, &mut random);
                    all = std::mem::take(&mut life.after);
                }
                drop(life);
                machine.restart();
                seen += 1;
            }
            chance::simulated::end();
            seed += step;
        }
        lost
    }
}
