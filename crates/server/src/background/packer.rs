//! The driver of packing: takes jobs in turn, runs them in slices, installs what came of
//! them, and counts and times them by what they were about. It knows no type.
//!
//! ```text
//!  from the walk (`cooler`)  values cooled in their entries   done at once, one after another
//!                            names of large ones              one at a time, in slices
//!  from the slots            pieces that await packing        one at a time, in slices
//! ```
//!
//! What has cooled and pieces take turns, and of what has cooled, short and large values:
//! none waits for the others. A turn is a slice of `pack-slice-us`, between which clients
//! have theirs, for as long as the sweeper's allowance lasts.
//!
//! A job is worked on with no lock held, and takes effect only if its piece is still the
//! same: a codec never keeps a client waiting for a slot, and nobody waits for this worker
//! longer than a slice takes. Whole values of any length are worked on with workspaces of
//! the worker's pool, which commands use as well, so that there are never more than
//! `pack-workspaces`; all else with two of the driver's own.

use crate::background::cooler::Cooler;
use crate::config::Param;
use crate::engine::large::{self, Done, Finished, Work};
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::outside::clock::{Instant, thread_cpu, unix_ms};
use crate::work::slices::{self, InSlices, InTurns};
use snug_codec::pool::Pool;
use snug_codec::stream::SomePace;
use snug_codec::{Workspace, WorkspaceConfig};
use snug_store::{Batch, Extent, Fate, Job, Names, Outcome, PieceParams, Session};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What a job is worked on with.
#[derive(Debug)]
struct Tools {
    workspace: Workspace,
    room: Vec<u8>,
}

impl Default for Tools {
    fn default() -> Self {
        Self { workspace: Workspace::new(WorkspaceConfig::default()), room: Vec::new() }
    }
}

/// After so many ticks with nothing to pack, what it packs with is let go of: a megabyte,
/// which is much beside a small store. Where memory is limited it is kept, for then
/// packing must not wait for room.
const REST_TICKS: u32 = 5;

/// A piece that is being packed.
struct InHand {
    /// Worked on it so far.
    took: Duration,
    work: InTurns<(Job, Tools)>,
}

impl std::fmt::Debug for InHand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InHand").field("took", &self.took).finish_non_exhaustive()
    }
}

/// One worker's share of packing. It takes every `workers`-th page of slots.
#[derive(Debug)]
pub(crate) struct Packer {
    worker: usize,
    workers: usize,
    pool: Pool,
    /// Values that have cooled in their entries, and what they are packed with; made for
    /// the first of them.
    cooled: Vec<Job>,
    short: Option<Tools>,
    /// Large values to be worked on, and the work on one of them.
    names: Names,
    whole: Option<Work>,
    /// A piece in hand; what pieces are packed with while none is.
    part: Option<InHand>,
    long: Option<Tools>,
    /// Whose turn it is first: what has cooled, or pieces; and of what has cooled, whether
    /// short ones have had the turn before.
    cooled_first: bool,
    whole_next: bool,
    /// Whether there may be pieces that wait. A look at all slots that finds none is not
    /// repeated until the clock ticks.
    may_have_parts: bool,
    /// Whether what it packs with has been reserved.
    is_ready: bool,
    /// Ticks since it last packed something.
    rested: u32,
}

impl Packer {
    pub(crate) fn new(worker: usize, workers: usize, pool: Pool) -> Self {
        Self {
            worker,
            workers,
            pool,
            cooled: Vec::new(),
            short: None,
            names: Names::default(),
            whole: None,
            part: None,
            long: None,
            cooled_first: false,
            whole_next: false,
            may_have_parts: true,
            is_ready: false,
            rested: 0,
        }
    }

    /// The clock ticks.
    pub(crate) fn tick(&mut self, server: &Server) {
        self.may_have_parts = true;
        self.rested += 1;
        let is_limited = server.config.number(Param::MaxMemory) > 0;
        if self.rested > REST_TICKS && !is_limited && self.cooled.is_empty() && self.part.is_none()
        {
            (self.short, self.long) = (None, None);
        }
        if server.config.is_on(Param::Pack) && server.is_to_pack_soon() {
            self.short.get_or_insert_default();
            if self.part.is_none() {
                self.long.get_or_insert_default();
            }
        }
        let is_ready = self.long.is_some() || self.part.is_some();
        match (std::mem::replace(&mut self.is_ready, is_ready), is_ready) {
            (false, true) => _ = server.ready_to_pack.fetch_add(1, Relaxed),
            (true, false) => _ = server.ready_to_pack.fetch_sub(1, Relaxed),
            _ => {}
        }
    }

    /// Lets go of what is being worked on, and of what it takes: nobody is to wait for a
    /// workspace that work never to be done holds.
    pub(crate) fn abandon(&mut self) {
        (self.whole, self.part, self.short, self.long) = (None, None, None, None);
    }

    /// Works for a slice; whether there is more to do right now.
    pub(crate) fn turn(
        &mut self,
        server: &Server,
        session: &mut Session,
        cooler: &mut Cooler,
        slice: Duration,
    ) -> bool {
        self.cooled_first = !self.cooled_first;
        let cooled_first = self.cooled_first;
        let mut turn_of = |cooled: bool| match cooled {
            true => self.cooled(server, session, cooler, slice),
            false => self.parts(server, session, slice),
        };
        turn_of(cooled_first) || turn_of(!cooled_first)
    }

    /// Works for a slice on what has cooled, and on finding it; whether there is more.
    fn cooled(
        &mut self,
        server: &Server,
        session: &mut Session,
        cooler: &mut Cooler,
        slice: Duration,
    ) -> bool {
        let began = Instant::now();
        let params =
            PieceParams { awaits_dictionaries: cooler.awaits(), ..server.config.piece_params() };
        let mut packed_for = Duration::ZERO;
        // When packing began, by the clock and by this thread's CPU time.
        let mut first = None;
        let more = loop {
            let has_whole = self.whole.is_some() || !self.names.is_empty();
            if has_whole && std::mem::replace(&mut self.whole_next, false) {
                let started = Instant::now();
                first.get_or_insert_with(|| (started, thread_cpu()));
                self.work_on_whole(server, session, cooler, &params);
                packed_for += started.elapsed();
                break true;
            } else if let Some(job) = self.cooled.pop() {
                let started = Instant::now();
                first.get_or_insert_with(|| (started, thread_cpu()));
                self.pack_short(server, session, cooler, job, &params);
                packed_for += started.elapsed();
            } else if !cooler.walk(server, session, &params, &mut self.cooled, &mut self.names) {
                self.whole_next = true;
                break has_whole;
            }
            if began.elapsed() >= slice {
                self.whole_next = true;
                break true;
            }
        };
        if let Some((started, cpu)) = first {
            // Walking and packing take turns too short to read this clock at each:
            // its time is divided among them as the time that passed is.
            let used = thread_cpu().saturating_sub(cpu);
            let share = packed_for.div_duration_f64(started.elapsed()).min(1.0);
            let used = used.mul_f64(share);
            server.stats.add(Stat::pack_microseconds, used.as_micros() as u64);
        }
        cooler.is_at(server, self.cooled.len());
        more
    }

    /// Packs a value in its entry, in one piece however long that takes.
    fn pack_short(
        &mut self,
        server: &Server,
        session: &mut Session,
        cooler: &mut Cooler,
        mut job: Job,
        params: &PieceParams,
    ) {
        // No lock is held, nor the gate.
        let began = Instant::now();
        self.rested = 0;
        let tools = self.short.get_or_insert_default();
        session.enter(unix_ms()).declare(&mut job);
        job.prepare(session, params, Some(&mut tools.workspace));
        job.run_at_once(&mut tools.workspace, &mut tools.room);
        let took = began.elapsed();
        server.slices.took(took.as_nanos() as u64);
        self.install(
            server,
            session,
            cooler.pressure(),
            params,
            Finished::new(job, took),
            |outcome| {
                cooler.came_of(outcome);
            },
        );
    }

    /// Works for a slice on a large value.
    fn work_on_whole(
        &mut self,
        server: &Server,
        session: &mut Session,
        cooler: &Cooler,
        params: &PieceParams,
    ) {
        let Some(work) = &mut self.whole else {
            while let Some(name) = self.names.pop() {
                let job = session.enter(unix_ms()).named_job(&name, params);
                if let Some(job) = job.filter(|job| job.packs() || has_room(server, job)) {
                    self.whole = Some(large::begin(server, &self.pool, job));
                    return;
                }
            }
            return;
        };
        let Some(done) = slices::slice(&mut work.0) else { return };
        self.whole = None;
        let Done::Job(finished) = done else { return };
        self.install(server, session, cooler.pressure(), params, *finished, |_| ());
    }

    /// Packs pieces that wait for a slice; whether there are more.
    fn parts(&mut self, server: &Server, session: &mut Session, slice: Duration) -> bool {
        if self.part.is_none() && !self.may_have_parts {
            return false;
        }
        let (began, cpu) = (Instant::now(), thread_cpu());
        let params = server.config.piece_params();
        let more = loop {
            if self.part.is_none() {
                if !self.may_have_parts {
                    break false;
                }
                let batch = session.enter(unix_ms());
                let Some((db, key)) = batch.next_unpacked(self.worker, self.workers) else {
                    self.may_have_parts = false;
                    break false;
                };
                self.part = self.begin(server, &batch, (db, &key), &params);
            }
            if let Some(part) = &mut self.part {
                let started = Instant::now();
                let done = slices::slice(&mut part.work);
                part.took += started.elapsed();
                let took = part.took;
                if let Some((job, tools)) = done {
                    (self.part, self.long) = (None, Some(tools));
                    self.install(server, session, 0.0, &params, Finished::new(job, took), |_| ());
                }
            }
            if began.elapsed() >= slice {
                break true;
            }
        };
        let used = thread_cpu().saturating_sub(cpu);
        server.stats.add(Stat::pack_microseconds, used.as_micros() as u64);
        more
    }

    /// Takes the next piece out of a value to pack it, and has a dictionary trained for
    /// that if it wants one.
    fn begin(
        &mut self,
        server: &Server,
        batch: &Batch<'_>,
        (db, name): (usize, &[u8]),
        params: &PieceParams,
    ) -> Option<InHand> {
        let mut job = batch.job(db, name, params)?;
        self.rested = 0;
        if job.wants_dictionary() && server.has_room(0) {
            server.trainer.ask_own(batch, &job, params);
        }
        let (pace, slice_ns) =
            (SomePace::of(InSlices::new(&server.slices)), slices::slice_ns(&server.config));
        let mut tools = self.long.take().unwrap_or_default();
        let work = Box::pin(async move {
            let Tools { workspace, room } = &mut tools;
            job.run(workspace, room, pace, slice_ns).await;
            (job, tools)
        });
        Some(InHand { took: Duration::ZERO, work })
    }

    /// Puts what came of a job in its place, counts it, and has its family trained if that
    /// is due. `pressure` says how short memory is for what is packed ahead of need.
    fn install(
        &self,
        server: &Server,
        session: &mut Session,
        pressure: f64,
        params: &PieceParams,
        finished: Finished,
        came_of: impl FnOnce(&Outcome),
    ) {
        let packs = finished.packs();
        let outcome = finished.install(server, &session.enter(unix_ms()), self.worker);
        came_of(&outcome);
        let stat = match (outcome.piece.extent, outcome.fate) {
            (Extent::Part, Fate::Packed(_)) => Some(Stat::packed_blocks),
            (Extent::Part, Fate::NotWorth) => Some(Stat::pack_rejected),
            (Extent::Part, _) => None,
            (_, Fate::Packed(_)) => Some(Stat::packed_strings),
            _ => packs.then_some(Stat::strings_left_raw),
        };
        if let Some(stat) = stat {
            server.stats.add(stat, 1);
        }
        if pressure > 0.0 && matches!(outcome.fate, Fate::Packed(_)) {
            server.stats.add(Stat::strings_packed_ahead, 1);
            server.stats.add(Stat::bytes_saved_ahead, outcome.saved() as u64);
        }
        if let Some(family) = &outcome.family {
            server.trainer.ask(&server.store, family, params);
        }
    }
}

/// Whether memory allows that a large value is raw again.
fn has_room(server: &Server, job: &Job) -> bool {
    let limit = server.config.number(Param::MaxMemory) as usize;
    limit == 0 || snug_store::memory::used() + job.raw_bytes() <= limit
}
