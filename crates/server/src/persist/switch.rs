//! The append-only file while it is on: its thread, and how it is turned on and off.

use super::aof::writer::{Manner, Policy, Rewritten, Writer};
use super::aof::{Aof, Place, Syncing};
use super::durable::Until;
use super::loading::{Replay, Source};
use super::past::Past;
use super::saving::Kind;
use super::{Persist, rounds, since};
use crate::config::Param;
use crate::outside::clock::{Instant, unix_ms};
use crate::request::args::Args;
use parking_lot::{Mutex, MutexGuard};
use snug_rdb::manifest::{Manifest, Names};
use snug_store::Batch;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;

/// The longest that the thread sleeps, and how long it waits after a failure.
const SLEEP_MAX: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(100);
/// Where a snapshot tells its facts, most likely: within so many bytes at its beginning.
const HEAD_BYTES: u64 = 16 * 1024;
/// For how long commits are gathered where no reply waits for them, ...
const GATHER: Duration = Duration::from_millis(1);
/// ... and where some do, in parts of how long the last turn took.
const GATHER_PART: u32 = 8;

/// A snapshot on its way to the writer, and who is told what became of it.
type Handed = (Rewritten, mpsc::Sender<Result<(), String>>);

#[derive(Debug, Default)]
struct Inbox {
    rewritten: Mutex<Option<Handed>>,
    end: Mutex<Option<End>>,
}

/// What is to become of the append-only file if what was committed cannot be written and
/// synced when it is turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfNotWhole {
    /// It stays on.
    Stay,
    /// The server ends all the same: who waits for the disk is told nothing.
    End,
    /// It is turned off, and nobody waits for the disk any more.
    TurnOff,
}

/// Asks the thread that writes to end.
#[derive(Debug)]
struct End {
    otherwise: IfNotWhole,
    told: mpsc::Sender<Result<(), String>>,
}

/// The threads of the append-only file.
#[derive(Debug)]
pub(crate) struct Writing {
    inbox: Arc<Inbox>,
    waker: Arc<Waker>,
    thread: Thread,
    handle: JoinHandle<()>,
}

/// Has what was committed written: by the worker that did, or by the thread, once it is
/// known which.
#[derive(Debug, Default)]
struct Waker {
    thread: Mutex<Option<Thread>>,
    by_workers: AtomicBool,
}

impl Waker {
    fn wake(&self) {
        if self.by_workers.load(Relaxed) && rounds::be_due() {
            return;
        }
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }
}

/// How often a worker looks again, for others, before the thread is to.
const PUSHES: usize = 3;

impl Persist {
    fn manner(&self) -> Manner {
        let rewriting = || self.jobs.lock().running.is_some();
        Manner {
            policy: self.policy(),
            no_sync: self.config.is_on(Param::NoAppendfsyncOnRewrite) && rewriting(),
            sync_apart: true,
            timestamps: self.config.is_on(Param::AofTimestampEnabled),
            now: unix_ms(),
        }
    }

    /// Turns the append-only file on: with the files that were loaded, or, `anew`, with
    /// new ones that count from when their base is there.
    fn turn_on(
        self: &Arc<Self>,
        batch: &Batch<'_>,
        open: impl FnOnce() -> Result<Aof, String>,
    ) -> Result<(), String> {
        let switching = self.switching.try_lock();
        let _switching = switching.ok_or("the append-only file is being turned on or off")?;
        if self.is_aof_on() {
            return Ok(());
        }
        let aof = open()?;
        let waker = Arc::<Waker>::default();
        let wake = Arc::clone(&waker);
        let follower = {
            // A snapshot whose mark it does not see is of a time before it was turned on.
            let _alone = batch.exclusive();
            self.turned_on.fetch_add(1, Relaxed);
            self.journal.join(batch, false, Box::new(move || wake.wake()))
        };
        let writer = Writer::new(aof, follower, unix_ms());
        self.publish(&writer);
        self.durable.reached(writer.reached());
        *self.writer.lock() = Some(writer);
        let inbox = Arc::<Inbox>::default();
        let (persist, theirs) = (Arc::clone(self), Arc::clone(&inbox));
        let thread = thread::Builder::new().name("aof".into());
        let handle = thread.spawn(move || persist.write_on(&theirs)).map_err(|error| {
            *self.writer.lock() = None;
            format!("no thread for the append-only file: {error}")
        })?;
        *waker.thread.lock() = Some(handle.thread().clone());
        let thread = handle.thread().clone();
        // It may have been woken before it could be.
        thread.unpark();
        *self.aof.lock() = Some(Writing { inbox, waker, thread, handle });
        self.aof_on.store(true, Relaxed);
        self.sync_holds();
        Ok(())
    }

    /// Has replies wait for what the policy says, if there is a file.
    pub(crate) fn sync_holds(&self) {
        let until = match self.policy() {
            _ if !self.is_aof_on() => Until::Nothing,
            Policy::Always => Until::Synced,
            // As Redis does: what cannot be written now is written when it can be.
            _ if self.aof_error().is_some() => Until::Nothing,
            _ if since(&self.figures.turn_began) >= super::SLOW_MS => Until::Nothing,
            Policy::EverySecond | Policy::Never => Until::Written,
        };
        if until == self.durable.until() {
            return;
        }
        if let Some(writing) = &*self.aof.lock() {
            writing.waker.by_workers.store(until == Until::Written, Relaxed);
        }
        self.durable.set_until(until);
        self.wake_aof();
    }

    /// Gives what was committed to the system, at the end of a worker's round: takes no
    /// time, and leaves what would to the thread.
    pub(crate) fn push(&self) {
        if self.durable.until() != Until::Written || self.durable.has_written(self.store.commits())
        {
            return;
        }
        for _ in 0..PUSHES {
            let Some(mut writer) = self.try_writer() else { return };
            self.left.store(false, SeqCst);
            let Some(one) = &mut *writer else { return };
            let manner = self.manner();
            self.figures.turn_began.store(manner.now, Relaxed);
            let is_done = one.push(manner);
            self.figures.turn_began.store(0, Relaxed);
            self.publish(one);
            let reached = one.reached();
            drop(writer);
            self.durable.reached(reached);
            if !is_done {
                break;
            }
            if !self.left.load(SeqCst) {
                return;
            }
        }
        self.wake_aof();
    }

    /// Waits until a commit has come as far as replies wait for.
    pub(crate) async fn until_durable(&self, commit: u64) {
        match self.durable.until() {
            Until::Nothing => {}
            Until::Written => {
                self.push();
                let written = self.durable.when_written(commit);
                // Else it was said before that nobody waits any more.
                if self.durable.until() == Until::Written {
                    let _ = written.await;
                }
            }
            Until::Synced => _ = self.durable.when_on_disk(commit).await,
        }
    }

    /// The writer, if nobody has it; else whoever does looks again.
    fn try_writer(&self) -> Option<MutexGuard<'_, Option<Writer>>> {
        self.writer.try_lock().or_else(|| {
            self.left.store(true, SeqCst);
            self.writer.try_lock()
        })
    }

    fn wake_aof(&self) {
        if let Some(writing) = &*self.aof.lock() {
            writing.thread.unpark();
        }
    }

    fn publish(&self, writer: &Writer) {
        let (base, size) = writer.aof.sizes();
        self.figures.aof_base_size.store(base, Relaxed);
        self.figures.aof_size.store(size, Relaxed);
        self.figures.aof_wants_rewrite.store(!writer.aof.is_valid(), Relaxed);
    }

    /// The work of the thread that writes.
    fn write_on(self: &Arc<Self>, inbox: &Inbox) {
        let mut syncs = self.begin_to_sync();
        let mut telling: Option<mpsc::Sender<Result<(), String>>> = None;
        let mut failing = false;
        loop {
            let end = inbox.end.lock().take();
            if end.is_some()
                && let Some((asks, thread)) = syncs.take()
            {
                drop(asks);
                let _ = thread.join();
            }
            let mut guard = self.writer.lock();
            let Some(writer) = &mut *guard else { return };
            self.left.store(false, SeqCst);
            if let Some((rewritten, told)) = inbox.rewritten.lock().take() {
                writer.rewritten(rewritten);
                telling = Some(told);
            }
            let manner = Manner { sync_apart: syncs.is_some(), ..self.manner() };
            self.figures.turn_began.store(manner.now, Relaxed);
            let began = Instant::now();
            let mut turn = writer.turn(manner);
            if end.is_some() && turn.failed.is_none() {
                turn.failed = writer.finish(manner).err();
            }
            let stays = |end: &End| end.otherwise == IfNotWhole::Stay && turn.failed.is_some();
            let ends = end.as_ref().is_some_and(|end| !stays(end));
            let took = began.elapsed();
            let slow = took.as_millis() as u64 >= super::SLOW_MS;
            self.figures.slow_turns.fetch_add(u64::from(slow), Relaxed);
            self.figures.turn_began.store(0, Relaxed);
            if let Some((asks, _)) = &syncs
                && let Some(syncing) = writer.begin_sync(manner)
            {
                let _ = asks.send(syncing);
            }
            self.publish(writer);
            if let Some(done) = turn.rewritten {
                self.rewrite_handed_in(writer, &done);
                if let Some(told) = telling.take() {
                    let _ = told.send(done.map_err(|e| e.to_string()));
                }
            }
            let (reached, is_valid) = (writer.reached(), writer.aof.is_valid());
            let due = writer.due_in(manner).map(Duration::from_millis);
            if ends {
                *guard = None;
            }
            drop(guard);
            // What is not valid is as bad as what cannot be written, unless it is only
            // being begun.
            let failed = turn.failed.is_some() || (failing && !is_valid);
            let was_stalled =
                self.stalled_ms() < super::SLOW_MS && self.figures.is_stalled.swap(false, Relaxed);
            if let Some(error) = &turn.failed {
                self.figures.write_failures.fetch_add(1, Relaxed);
                let told = in_systems_words(error);
                if !failing {
                    tracing::error!(%error, "the append-only file could not be written: it is tried again");
                }
                self.set_aof_error(Some(told));
            } else if (failing || was_stalled) && !failed {
                tracing::info!("the append-only file is written again");
                self.set_aof_error(None);
            }
            failing = failed;
            let told = self.durable.reached(reached);
            if let Some(End { told, .. }) = end {
                let whole = turn.failed.as_ref().map_or(Ok(()), |error| Err(error.to_string()));
                let _ = told.send(whole);
            }
            if ends {
                return;
            }
            syncs = syncs.or_else(|| self.begin_to_sync());
            if turn.failed.is_some() {
                thread::park_timeout(RETRY);
            } else if self.left.load(SeqCst) {
                // A worker found the writer taken.
            } else if turn.busy && manner.policy != Policy::Always && !self.durable.is_awaited() {
                // Nobody waits for it: it is not woken for each commit.
                thread::sleep(GATHER);
            } else if told > 1 && manner.policy == Policy::Always {
                // Clients that were told just now send something more, and the next sync is
                // for all of them.
                thread::sleep((took / GATHER_PART).min(GATHER));
            } else {
                thread::park_timeout(due.map_or(SLEEP_MAX, |due| due.min(SLEEP_MAX)));
            }
        }
    }

    /// The thread that syncs what is to be synced once a second, and what it is asked with.
    /// Without one, the thread that writes does it.
    fn begin_to_sync(self: &Arc<Self>) -> Option<(mpsc::Sender<Syncing>, JoinHandle<()>)> {
        let (asks, asked) = mpsc::channel();
        let persist = Arc::clone(self);
        let thread = thread::Builder::new().name("aof-sync".into());
        Some((asks, thread.spawn(move || persist.sync_on(&asked)).ok()?))
    }

    fn sync_on(&self, asked: &mpsc::Receiver<Syncing>) {
        for syncing in asked {
            self.figures.sync_began.store(unix_ms(), Relaxed);
            let done = syncing.run();
            let slow = since(&self.figures.sync_began) >= super::SLOW_MS;
            self.figures.slow_turns.fetch_add(u64::from(slow), Relaxed);
            self.figures.sync_began.store(0, Relaxed);
            let mut guard = self.writer.lock();
            let Some(writer) = &mut *guard else { return };
            writer.end_sync(&syncing, done);
            self.publish(writer);
            let reached = writer.reached();
            drop(guard);
            self.durable.reached(reached);
            self.wake_aof();
        }
    }

    /// A snapshot became the base, or did not.
    fn rewrite_handed_in(&self, writer: &mut Writer, done: &std::io::Result<()>) {
        if done.is_err() {
            return;
        }
        let (base, size) = writer.aof.sizes();
        tracing::info!(base, size, "the append-only file was rewritten");
        self.figures.aof_rewritten_size.store(size, Relaxed);
        self.publish(writer);
        if self.config.is_on(Param::AofDisableAutoGc) {
            return;
        }
        // Large files take a while to be removed: that is another thread's.
        let (history, files) = (writer.aof.history(), Arc::clone(&self.files));
        let removing = thread::Builder::new().name("aof-history".into()).spawn(move || {
            for path in history {
                if let Err(error) = files.remove(&path) {
                    tracing::warn!(%error, file = %path.display(), "cannot be removed");
                }
            }
        });
        if removing.is_ok()
            && let Err(error) = writer.aof.tidy()
        {
            tracing::warn!(%error, "the manifest still names files of no use");
        }
    }

    /// Hands a snapshot that is on disk to the writer, and waits until it is the base. It is
    /// of no use to a file that was turned on since, whose writer has not seen its mark.
    pub(super) fn hand_over(&self, rewritten: Rewritten, turned_on: u64) -> Result<(), String> {
        let (sender, receiver) = mpsc::channel();
        let path = rewritten.path.clone();
        {
            let writing = self.aof.lock();
            let same = self.turned_on.load(Relaxed) == turned_on;
            let Some(writing) = writing.as_ref().filter(|_| same) else {
                let _ = self.files.remove(&path);
                return Err("the append-only file was turned on or off meanwhile".into());
            };
            *writing.inbox.rewritten.lock() = Some((rewritten, sender));
            writing.thread.unpark();
        }
        let done =
            receiver.recv().unwrap_or_else(|_| Err("the append-only file was turned off".into()));
        if done.is_err() {
            let _ = self.files.remove(&path);
        }
        done
    }

    /// `CONFIG SET appendonly`.
    pub(crate) fn set_aof(self: &Arc<Self>, batch: &Batch<'_>, on: bool) -> Result<(), String> {
        if !on {
            if let Err(error) = self.turn_off(IfNotWhole::TurnOff) {
                tracing::warn!(error, "the append-only file is turned off and not whole on disk");
            }
            return Ok(());
        }
        if self.is_aof_on() || self.is_loading() {
            return Ok(());
        }
        let place = self.aof_place();
        self.lock_aof(&place)?;
        self.turn_on(batch, || {
            let old = place.manifest()?;
            Aof::anew(place.clone(), old).map_err(|e| format!("{}: {e}", place.dir.display()))
        })?;
        // If something else is being saved, this comes next: a tick sees to it.
        let _ = self.begin(Kind::Rewrite, None);
        Ok(())
    }

    /// Turns the append-only file off. What was committed before is on disk then, if the
    /// disk takes it.
    pub(crate) fn turn_off(&self, otherwise: IfNotWhole) -> Result<(), String> {
        let switching = self.switching.try_lock();
        let _switching = switching.ok_or("the append-only file is being turned on or off")?;
        let ended = self.aof.lock().as_ref().map(|writing| {
            let (told, ended) = mpsc::channel();
            *writing.inbox.end.lock() = Some(End { otherwise, told });
            writing.thread.unpark();
            ended
        });
        let done = ended.and_then(|ended| ended.recv().ok()).unwrap_or(Ok(()));
        if done.is_err() && otherwise != IfNotWhole::TurnOff {
            return done;
        }
        self.aof_on.store(false, Relaxed);
        if let Some(writing) = self.aof.lock().take() {
            let _ = writing.handle.join();
        }
        self.figures.aof_wants_rewrite.store(false, Relaxed);
        self.set_aof_error(None);
        done
    }

    fn lock_aof(&self, place: &Place) -> Result<(), String> {
        self.files.make_dir(&place.dir).map_err(|e| format!("{}: {e}", place.dir.display()))?;
        let dir = std::env::current_dir().unwrap_or_default();
        self.lock(&dir.join(&place.dir).join(format!("{}.lock", place.name)))
    }

    /// Whether there is anything to be loaded, and locks what is.
    pub(crate) fn prepare(&self) -> Result<bool, String> {
        if self.config.is_on(Param::AppendOnly) {
            let place = self.aof_place();
            self.lock_aof(&place)?;
            place.upgrade()?;
            return Ok(place.manifest()?.is_some());
        }
        let is_there = self.find_dump()?.is_some();
        if is_there || !self.config.is_empty(Param::Save) {
            self.lock_dump()?;
        }
        Ok(is_there)
    }

    /// Loads what was saved, and turns the append-only file on if it is to be. `replay`
    /// executes a command.
    pub(crate) fn load(self: &Arc<Self>, replay: &mut Replay<'_>) -> Result<(), String> {
        let began = Instant::now();
        let append_only = self.config.is_on(Param::AppendOnly);
        let was_loaded = self.load_files(append_only, replay)?;
        let keys = self.store.keys_of_all();
        if was_loaded {
            let seconds = began.elapsed().as_secs_f64();
            tracing::info!(keys, seconds, append_only, "DB loaded from disk");
        }
        self.jobs.lock().saved_changes = self.store.changes();
        if append_only {
            // Before the batch begins: a first base is a snapshot, which closes all gates.
            let aof = self.open_aof(was_loaded)?;
            let mut session = self.store.session();
            let batch = session.enter(unix_ms());
            self.turn_on(&batch, || Ok(aof))?;
            drop(batch);
            let size = self.figures.aof_size.load(Relaxed);
            self.figures.aof_rewritten_size.store(size, Relaxed);
        }
        Ok(())
    }

    /// Loads the append-only file or the snapshot; whether there is one.
    pub(super) fn load_files(
        self: &Arc<Self>,
        append_only: bool,
        replay: &mut Replay<'_>,
    ) -> Result<bool, String> {
        let place = self.aof_place();
        let manifest = if append_only { place.manifest()? } else { None };
        let library = |code: &[u8]| self.take_library(code);
        let mut replay = |batch: &Batch<'_>, args: Args<'_>| replay(batch, args);
        let mut source = self.source(&mut replay, &library);
        match &manifest {
            Some(manifest) => {
                let cut = self.config.is_on(Param::AofLoadTruncated);
                super::aof::load::load(&place, manifest, cut, &mut source)?;
                Ok(true)
            }
            None => Ok(!append_only && self.load_dump(&mut source)?),
        }
    }

    /// The append-only file, to go on with: one that was loaded, or a new one.
    pub(super) fn open_aof(&self, exists: bool) -> Result<Aof, String> {
        let place = self.aof_place();
        if !exists {
            // What there is, which is nothing, is the first base.
            self.write_first_base(&place)?;
        }
        let manifest = place.manifest()?.unwrap_or_default();
        Aof::resume(place.clone(), manifest).map_err(|e| format!("{}: {e}", place.dir.display()))
    }

    /// `DEBUG RELOAD`: saves everything if it is to, and loads it again, on a thread of its
    /// own.
    pub(crate) fn reload(
        self: &Arc<Self>,
        save: bool,
        flush: bool,
    ) -> oneshot::Receiver<Result<(), String>> {
        let (told, done) = oneshot::channel();
        let persist = Arc::clone(self);
        let thread = thread::Builder::new().name("reload".into()).spawn(move || {
            persist.loading.active.store(true, Relaxed);
            let done = persist.reload_now(save, flush);
            persist.loading.active.store(false, Relaxed);
            if let Err(error) = &done {
                tracing::error!(error, "DEBUG RELOAD failed");
            }
            let _ = told.send(done);
        });
        if let Err(error) = thread {
            tracing::error!(%error, "no thread to load what was saved");
        }
        done
    }

    fn reload_now(self: &Arc<Self>, save: bool, flush: bool) -> Result<(), String> {
        if save {
            self.run(Kind::Save)?;
        }
        if flush {
            let mut session = self.store.session();
            let batch = session.enter(unix_ms());
            let _alone = batch.exclusive();
            self.store.databases_used().for_each(|db| drop(batch.unload(db)));
        }
        let mut no_commands = |_: &Batch<'_>, _: Args<'_>| Err("no commands here".to_owned());
        let library = |code: &[u8]| self.take_library(code);
        let mut source = self.source(&mut no_commands, &library);
        self.load_dump(&mut source).map(drop)
    }

    fn take_library(&self, code: &[u8]) -> Result<(), String> {
        match self.libraries.get() {
            Some(libraries) => libraries.load(code),
            None => Err("it holds a library of functions, which this server does not know".into()),
        }
    }

    fn source<'s>(
        &'s self,
        replay: &'s mut Replay<'s>,
        library: &'s dyn Fn(&[u8]) -> Result<(), String>,
    ) -> Source<'s> {
        Source {
            store: &self.store,
            session: self.store.session(),
            progress: &self.loading,
            replay,
            checksum: self.config.is_on(Param::Rdbchecksum),
            sanitizes: self.config.number(Param::SanitizeDumpPayload) == 1,
            threads: self.file_threads(),
            databases: self.store.databases(),
            hides_keys: self.config.is_on(Param::HideUserDataFromLog),
            library,
            stopped: &self.stop,
            past: None,
            room: self.wait_for_room.get().map(|wait| &**wait),
        }
    }

    /// The snapshot that is to be loaded: the newer one, if there is one in each format.
    /// That is so if it ended between writing one and removing the other.
    fn find_dump(&self) -> Result<Option<PathBuf>, String> {
        let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
        for path in self.dumps() {
            let changed = self.files.changed(&path);
            let changed = changed.map_err(|e| format!("{}: {e}", path.display()))?;
            found.extend(changed.map(|at| (at, path)));
        }
        found.sort();
        if let [(_, older), (_, newer)] = &found[..] {
            tracing::warn!(newer = %newer.display(), older = %older.display(), "there are two snapshots: the newer one counts");
        }
        Ok(found.pop().map(|(_, path)| path))
    }

    /// Loads the snapshot; whether there is one.
    fn load_dump(&self, source: &mut Source<'_>) -> Result<bool, String> {
        let Some(path) = self.find_dump()? else { return Ok(false) };
        let told = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let len = self.files.len(&path).map_err(|e| told(&e))?;
        source.progress.begin(len.unwrap_or_default());
        let mut file = self.files.open(&path).map_err(|e| told(&e))?;
        // It may be a pipe: it is read once.
        let mut head = Vec::new();
        file.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(|e| told(&e))?;
        source.past = Past::find(&head[..], &source.session);
        let file = Box::new(Cursor::new(head).chain(file));
        source.snapshot(file, false).map_err(|e| told(&e))?;
        *self.past.lock() = source.past.take();
        Ok(true)
    }

    fn write_first_base(&self, place: &Place) -> Result<(), String> {
        let mut session = self.store.session();
        let snapshot = session.enter(unix_ms()).begin_snapshot();
        let mut snapshot = snapshot.ok_or("another snapshot is being read")?;
        let mut manifest = Manifest::default();
        let format = self.base_format();
        let base = Names::behind(&manifest, &place.name).base(format.ending());
        let path = place.path(&base);
        self.write_file(&mut snapshot, &path, format, true)?;
        manifest.base = Some(base);
        place.put_manifest(&manifest).map_err(|e| format!("{}: {e}", place.dir.display()))?;
        self.files.sync_dir(Path::new("")).map_err(|e| e.to_string())
    }
}

/// An error of the system as Redis tells it: in the system's words alone.
fn in_systems_words(error: &std::io::Error) -> String {
    let why = error.to_string();
    why.split(" (os error").next().unwrap_or_default().to_owned()
}
