//! Work on large strings on a worker: packing and unpacking in slices of
//! `pack-slice-us`, between which the worker's clients have their turn.
//!
//! Two kinds of users drive such [`Work`]: the worker's `cooler`, a slice in each
//! of its turns, and a connection whose command needs a packed string's bytes,
//! which executes nothing until it has them ([`Context::make_raw`]; `EXEC` waits
//! before it begins for what its commands will need). All of a worker share one
//! pool of workspaces for it, so that so many values are worked on at once, and no
//! more memory is taken than they need raw and packed. Work that is dropped, finished
//! or not, leaves nothing behind.

use crate::engine::command::{Answer, Command, Unanswered};
use crate::engine::context::Context;
use crate::engine::server::Server;
use crate::measure::timings::mime_group;
use crate::work::reclaim::reclaim_job;
use crate::work::slices::{self, InSlices, InTurns};
use snug_codec::pool::Pool;
use snug_codec::stream::AtOnce;
use snug_codec::{Workspace, WorkspaceConfig};
use snug_store::{Batch, Found, Key, LargeJob, LargeOutcome, PackedChain, SlotGuard, Type};
use std::time::{Duration, Instant};

/// Strings of so many segments are unpacked at once: two take about a slice.
pub(crate) const SEGMENTS_AT_ONCE: usize = 2;

/// A job, what it came to, and how long that was worked on.
#[derive(Debug)]
pub(crate) struct Finished {
    job: LargeJob,
    outcome: LargeOutcome,
    took: Duration,
}

impl Finished {
    /// Whether it was about packing, and not unpacking.
    pub(crate) fn packs(&self) -> bool {
        self.job.packs()
    }

    /// Bytes that it saves, if it is packed.
    pub(crate) fn saved(&self) -> usize {
        match &self.outcome {
            LargeOutcome::Packed(chain, _) => chain.len().saturating_sub(chain.packed_len()),
            LargeOutcome::Raw(_) | LargeOutcome::Left | LargeOutcome::Damaged(_) => 0,
        }
    }

    /// Puts what came of it in the place of the value, if that is still there and
    /// the same, and counts it; whether it did.
    pub(crate) fn install(self, server: &Server, store: &Batch<'_>, worker: usize) -> bool {
        let Self { job, outcome, took } = self;
        if job.packs() {
            server.timings.of(worker).large.record(took);
        }
        let is_left = matches!(outcome, LargeOutcome::Left) && job.packs();
        let packed = match &outcome {
            LargeOutcome::Packed(chain, choice) => Some((chain.packed_len(), *choice)),
            LargeOutcome::Raw(_) | LargeOutcome::Left | LargeOutcome::Damaged(_) => None,
        };
        let installed = store.install_large(&job, outcome);
        let (group, raw) = (mime_group(job.ends()), job.raw_len());
        if is_left {
            server.timings.left_raw(Type::String, group, raw);
        } else if let Some((to, choice)) = packed.filter(|_| installed) {
            server.timings.packed(Type::String, choice.codec, choice.level, group, raw, to);
        }
        // Its segments may be nobody else's by now.
        reclaim_job(job);
        installed
    }
}

/// A job being done.
pub(crate) struct Work(pub InTurns<Finished>);

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}

/// Begins a job, as soon as a workspace is free.
pub(crate) fn begin(server: &Server, pool: &Pool, job: LargeJob) -> Work {
    let lease = server.workspaces.clock().lease(pool.long());
    let params = server.config.string_params();
    let (pace, slice_ns) = (InSlices::new(&server.slices), slices::slice_ns(&server.config));
    Work(Box::pin(async move {
        let mut workspace = lease.await;
        let outcome = job.run(&mut workspace, &params, &pace, slice_ns).await;
        Finished { job, outcome, took: pace.worked() }
    }))
}

/// Does a job at once, whoever waits meanwhile.
fn at_once(server: &Server, pool: Option<&Pool>, job: LargeJob) -> Finished {
    let params = server.config.string_params();
    let began = Instant::now();
    let run =
        |workspace: &mut Workspace| AtOnce::run(job.run(workspace, &params, &AtOnce, u64::MAX));
    let outcome = match pool.and_then(Pool::try_small) {
        Some(mut workspace) => run(&mut workspace),
        None => run(&mut Workspace::new(WorkspaceConfig::default())),
    };
    Finished { job, outcome, took: began.elapsed() }
}

impl Context<'_> {
    /// Whether the command may be put off until work in slices is done: not
    /// within a transaction, whose commands are one step.
    fn may_wait(&self) -> bool {
        self.origin.may_wait() && self.pool.is_some()
    }

    /// What a job came to, or why the handler is to return: its command is executed
    /// again when that is known. Within a transaction the job is done at once, and so
    /// it is if the key has another value by the time its work was done: no command
    /// waits twice.
    pub(crate) fn finish(&mut self, job: LargeJob) -> Result<Finished, Unanswered> {
        match (self.finished.take(), self.pool) {
            (Some(finished), _) if finished.job.is_same(&job) => Ok(*finished),
            (None, Some(pool)) if self.may_wait() => {
                Err(Unanswered::Later(begin(self.server, pool, job)))
            }
            (_, pool) => Ok(at_once(self.server, pool, job)),
        }
    }

    /// Puts in its place what work that was waited for has come to, if it has.
    pub(crate) fn install_finished(&mut self) {
        if let Some(finished) = self.finished.take() {
            finished.install(self.server, self.store, self.worker);
        }
    }

    /// Begins to unpack a string that commands which must not wait will change, if
    /// it is large and packed: the command is then to be executed again when that is
    /// done.
    pub(crate) fn unpack_beforehand(&self, db: usize, key: &Key<'_>) -> Answer {
        let Some(pool) = self.pool.filter(|_| self.may_wait()) else { return Ok(()) };
        let mut slot = self.store.lock(db, key);
        let Some(found) = slot.find_untouched(key) else { return Ok(()) };
        let is_large = |chain: PackedChain| chain.segments() > SEGMENTS_AT_ONCE;
        if !packed(&slot, found).is_some_and(is_large) {
            return Ok(());
        }
        let Some(job) = slot.large_job(found, true) else { return Ok(()) };
        Err(Unanswered::Later(begin(self.server, pool, job)))
    }

    /// Sees to it that a string which is about to be changed in place is not packed.
    /// With a large one this takes a while: the handler is then to return, and its
    /// command is executed again.
    pub(crate) fn make_raw(&mut self, slot: &mut SlotGuard<'_>, found: Found) -> Answer {
        let large = packed(slot, found)
            .filter(|chain| chain.segments() > SEGMENTS_AT_ONCE && self.may_wait());
        let Some(chain) = large else {
            slot.unpack(found)?;
            return Ok(());
        };
        let Some(job) = slot.large_job(found, true) else { return Ok(()) };
        match self.finish(job)?.outcome {
            LargeOutcome::Raw(raw) => {
                slot.put_unpacked(found, &chain, raw);
            }
            // It is damaged: say how.
            _ => {
                slot.unpack(found)?;
            }
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
