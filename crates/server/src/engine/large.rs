//! Work on large strings on a worker: packing and unpacking in slices of
//! `pack-slice-us`, between which the worker's clients have their turn.
//!
//! Two kinds of users drive such [`Work`]: the worker's `packer`, a slice in each
//! of its turns, and a connection whose command needs a packed string's bytes,
//! which executes nothing until it has them ([`Context::make_raw`]; `EXEC` waits
//! before it begins for what its commands will need). All of a worker share one
//! pool of workspaces for it, so that so many values are worked on at once, and no
//! more memory is taken than they need raw and packed. Work that is dropped, finished
//! or not, leaves nothing behind.

use crate::engine::command::{Answer, Command, Unanswered};
use crate::engine::context::Context;
use crate::engine::server::Server;
use crate::outside::clock::Instant;
use crate::request::error::Error;
use crate::work::reclaim::reclaim_job;
use crate::work::slices::{self, InSlices, InTurns};
use snug_codec::pool::Pool;
use snug_codec::stream::SomePace;
use snug_codec::{Segments, Workspace, WorkspaceConfig};
use snug_store::{Batch, Detached, Extent, Fate, Found, Job, Key, Outcome, PackedChain, SlotGuard};
use std::time::Duration;

/// Strings of so many segments are unpacked at once: two take about a slice.
pub(crate) const SEGMENTS_AT_ONCE: usize = 2;

/// A job that is done, and how long it was worked on.
#[derive(Debug)]
pub(crate) struct Finished {
    job: Job,
    took: Duration,
}

impl Finished {
    pub(crate) fn new(job: Job, took: Duration) -> Self {
        Self { job, took }
    }

    /// Whether it was about packing, and not unpacking.
    pub(crate) fn packs(&self) -> bool {
        self.job.packs()
    }

    /// Puts what came of it in the place of its piece, if that is still there and
    /// the same, times and counts it; what became of it.
    pub(crate) fn install(self, server: &Server, store: &Batch<'_>, worker: usize) -> Outcome {
        let Self { mut job, took } = self;
        let outcome = store.install(&mut job);
        if job.packs() {
            server.timings.of(worker).packed(outcome.piece, took);
        }
        server.timings.came_of(&outcome);
        // What it is about may be nobody else's by now.
        reclaim_job(job);
        outcome
    }
}

/// What a command was put off for, done.
#[derive(Debug)]
pub(crate) enum Done {
    /// A job about a value.
    Job(Box<Finished>),
    /// Nothing that it is told of: it is executed as if for the first time.
    Nothing,
    /// What the command wants was on disk, and is in memory now.
    Brought,
    /// It was, and cannot be brought: the error.
    Lost(Error),
    /// Something that others did: [`Context::wait_until`].
    Waited(Waited),
    /// A payload of `DUMP`, made aside.
    Dumped(Result<Segments, Error>),
    /// A value made aside of a payload.
    Made(Result<Detached, Error>),
}

/// What others have done, or why they could not.
pub(crate) type Waited = Result<i64, String>;

/// What a command is put off for.
pub(crate) struct Work(pub InTurns<Done>);

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}

/// Begins a job, as soon as a workspace is free.
pub(crate) fn begin(server: &Server, pool: &Pool, mut job: Job) -> Work {
    let lease = server.workspaces.clock().lease(pool.long());
    let (pace, slice_ns) = (InSlices::new(&server.slices), slices::slice_ns(&server.config));
    Work(Box::pin(async move {
        let (mut workspace, mut room) = (lease.await, Vec::new());
        job.run(&mut workspace, &mut room, SomePace::of(pace.clone()), slice_ns).await;
        Done::Job(Box::new(Finished { job, took: pace.worked() }))
    }))
}

/// Does a job at once, whoever waits meanwhile.
fn at_once(pool: Option<&Pool>, mut job: Job) -> Finished {
    let (began, mut room) = (Instant::now(), Vec::new());
    match pool.and_then(Pool::try_small) {
        Some(mut workspace) => job.run_at_once(&mut workspace, &mut room),
        None => job.run_at_once(&mut Workspace::new(WorkspaceConfig::default()), &mut room),
    }
    Finished { job, took: began.elapsed() }
}

impl Context<'_> {
    /// Whether the command may be put off until work in slices is done: not
    /// within a transaction, whose commands are one step.
    fn may_wait(&self) -> bool {
        self.origin.may_wait() && self.pool.is_some()
    }

    /// What a job came to, or why the handler is to return: its command is executed
    /// again when that is known. A short one is done at once; within a transaction every
    /// job is, and so it is if the key has another value by the time its work was done: no
    /// command waits twice.
    pub(crate) fn finish(&mut self, job: Job) -> Result<Finished, Unanswered> {
        let finished = match self.finished.take().map(|done| *done) {
            Some(Done::Job(finished)) => Some(finished),
            _ => None,
        };
        match (finished, self.pool) {
            (Some(finished), _) if finished.job.is_same(&job) => Ok(*finished),
            (None, Some(pool)) if self.may_wait() && job.piece().extent != Extent::Entry => {
                Err(Unanswered::Later(begin(self.server, pool, job)))
            }
            (_, pool) => Ok(at_once(pool, job)),
        }
    }

    /// Does jobs about the pieces of a large collection, one after the other: `next` gives
    /// them, and moves on the place that it is told, where it begins. After a slice the
    /// worker's clients have their turn, and the command is executed again and goes on
    /// where it was; within a transaction it does all at once. Whether any job came to what
    /// `is_success` says.
    pub(crate) fn finish_all(
        &mut self,
        mut next: impl FnMut(&Self, &mut usize) -> Option<Job>,
        is_success: impl Fn(Fate) -> bool,
    ) -> Result<bool, Unanswered> {
        // The place in a number twice as large, and whether there was success before.
        let state = self.waited().and_then(Result::ok).unwrap_or(0);
        let (mut at, mut success) = ((state / 2) as usize, state % 2 == 1);
        let (began, slice_ns) = (Instant::now(), slices::slice_ns(&self.server.config));
        while let Some(job) = next(self, &mut at) {
            let outcome = at_once(self.pool, job).install(self.server, self.store, self.worker);
            success |= is_success(outcome.fate);
            if self.may_wait() && began.elapsed().as_nanos() as u64 >= slice_ns {
                return Err(self.wait_until(async move {
                    tokio::task::yield_now().await;
                    Ok(2 * at as i64 + i64::from(success))
                }));
            }
        }
        Ok(success)
    }

    /// Puts in its place what work that was waited for has come to, if it has.
    pub(crate) fn install_finished(&mut self) {
        if let Some(Done::Job(finished)) = self.finished.take().map(|done| *done) {
            finished.install(self.server, self.store, self.worker);
        }
    }

    /// What the command waited for, if it did: it is executed for the second time.
    pub(crate) fn waited(&mut self) -> Option<Waited> {
        match self.finished.take().map(|done| *done) {
            Some(Done::Waited(waited)) => Some(waited),
            _ => None,
        }
    }

    /// Has the command executed again when something is done that takes a while and that
    /// others do, with what came of it ([`waited`](Self::waited)). Only for commands that
    /// are never part of a transaction or a script.
    pub(crate) fn wait_until(
        &self,
        done: impl Future<Output = Waited> + Send + 'static,
    ) -> Unanswered {
        if !self.origin.may_wait() {
            return Error::new("ERR this command must wait, and may not here").into();
        }
        Unanswered::Later(Work(Box::pin(async { Done::Waited(done.await) })))
    }

    /// Has the command executed again when this is done. Only for commands that
    /// [may wait](Origin::may_wait).
    ///
    /// [`Origin::may_wait`]: crate::engine::context::Origin::may_wait
    pub(crate) fn work(&self, work: impl Future<Output = Done> + Send + 'static) -> Unanswered {
        debug_assert!(self.origin.may_wait());
        Unanswered::Later(Work(Box::pin(work)))
    }

    /// Has the command executed again when this is done, on a thread where it keeps nobody
    /// waiting. Only for commands that [may wait](Origin::may_wait).
    ///
    /// [`Origin::may_wait`]: crate::engine::context::Origin::may_wait
    pub(crate) fn work_aside(
        &self,
        work: impl FnOnce(&Server) -> Done + Send + 'static,
    ) -> Unanswered {
        let server = self.server.me.clone();
        let aside = move || server.upgrade().map_or(Done::Nothing, |server| work(&server));
        self.work(async {
            let done = tokio::task::spawn_blocking(aside).await;
            done.unwrap_or_else(|_| Done::Lost(Error::new("ERR the value could not be read")))
        })
    }

    /// What a command that was put off until [`work_aside`](Self::work_aside) was done is
    /// to go on with.
    pub(crate) fn done_aside(&mut self) -> Option<Done> {
        self.finished.take().map(|done| *done)
    }

    /// Begins to unpack a string that commands which must not wait will change, if
    /// it is large and packed: the command is then to be executed again when that is
    /// done.
    pub(crate) fn unpack_beforehand(&self, db: usize, key: &Key<'_>) -> Answer {
        let Some(pool) = self.pool.filter(|_| self.may_wait()) else { return Ok(()) };
        let mut slot = self.store.lock(db, key);
        let Some(found) = slot.find_entry(key) else { return Ok(()) };
        let is_large = |chain: PackedChain| chain.segments() > SEGMENTS_AT_ONCE;
        if !packed(&slot, found).is_some_and(is_large) {
            return Ok(());
        }
        let params = self.server.config.piece_params();
        let Some(job) = slot.job(found, &params, true) else { return Ok(()) };
        drop(slot);
        Err(Unanswered::Later(begin(self.server, pool, self.store.prepared(job, &params))))
    }

    /// Sees to it that a string which is about to be changed in place is not packed.
    /// With a large one this takes a while: the handler is then to return, and its
    /// command is executed again.
    pub(crate) fn make_raw(&mut self, slot: &mut SlotGuard<'_>, found: Found) -> Answer {
        let is_large = |chain: PackedChain| chain.segments() > SEGMENTS_AT_ONCE;
        if !packed(slot, found).is_some_and(is_large) || !self.may_wait() {
            slot.unpack(found)?;
            return Ok(());
        }
        let params = self.server.config.piece_params();
        let Some(job) = slot.job(found, &params, true) else { return Ok(()) };
        let mut finished = self.finish(self.store.prepared(job, &params))?;
        if !slot.give_back(found, &mut finished.job) {
            // It is damaged: say how.
            slot.unpack(found)?;
        }
        Ok(())
    }
}

/// Commands that need the bytes of a string to change some of them: those that
/// call [`Context::make_raw`].
pub(crate) fn changes_in_place(command: &Command) -> bool {
    command.container.is_none()
        && matches!(command.name, "append" | "setrange" | "setbit" | "bitfield")
}

/// The chain, if the string is large and packed.
pub(crate) fn packed(slot: &SlotGuard<'_>, found: Found) -> Option<PackedChain> {
    match slot.string(found) {
        Some(snug_store::Str::PackedLarge(packed)) => Some(packed.share()),
        _ => None,
    }
}
