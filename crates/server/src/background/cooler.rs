//! The part of the sweeper that packs strings: walks this worker's slots at the
//! pace that `pack-cold-after` asks for, and packs what it finds cold.
//!
//! A pass takes half of `pack-cold-after`, spread evenly over that time; two passes
//! make a value that nobody uses cold. Work is done in slices of
//! `pack-slice-us`, between which clients have their turn, for as long as the
//! sweeper's [`Allowance`] lasts. What that leaves undone makes the pass longer.
//!
//! Near `maxmemory` it works ahead of need: the closer the limit
//! ([`Server::pressure`]), the shorter the passes, and what is packed stays so
//! however often it is read. What is read between two of the shorter passes stays
//! raw, and writes wait for none of it.

use crate::background::allowance::Allowance;
use crate::config::Param;
use crate::engine::large::{self, Work};
use crate::engine::server::Server;
use crate::measure::passes::PASSES;
use crate::measure::stats::Stat;
use crate::measure::timings::mime_group;
use crate::outside::clock::unix_ms;
use crate::work::slices;
use snug_codec::pool::Pool;
use snug_store::{
    Candidate, Cooling, LargeJob, LargeNames, MEET_ONE_IN, Packer, Ready, Session, StringParams,
    Type,
};
use std::time::{Duration, Instant};

/// Families are tidied no more often than this, and when every worker's passes have met
/// each string since ...
const TIDY_EVERY: Duration = Duration::from_mins(2);
/// ... and one without values is let go of after so many times.
const TIDY_TURNS: u32 = 2;

/// Whether values are cold as soon as they are written.
fn packs_at_once(server: &Server) -> bool {
    server.config.number(Param::PackColdAfter) == 0
}

/// One worker's share of packing strings.
#[derive(Debug)]
pub(crate) struct Cooler {
    worker: usize,
    cooling: Cooling,
    packer: Packer,
    waiting: Vec<Candidate>,
    /// Large strings to be worked on, and the work on one of them.
    large: LargeNames,
    work: Option<Work>,
    /// Whether small strings have had the turn before.
    large_next: bool,
    pool: Pool,
    /// When this pass began, and the time that its walk alone has taken.
    began: Instant,
    walked: Duration,
    /// Strings that wait for the first dictionary of their family.
    awaiting: u64,
    /// When families were last tidied, and every worker's passes that were done then.
    tidied: Instant,
    tidied_at: Vec<u64>,
    /// How short memory is, 0 to 1.
    pressure: f64,
}

/// A value is to stay for so many times `pack-cold-after` once it is packed, unless
/// memory is short: else it is gone before that was worth the work.
const PACKED_AT_LEAST: u64 = 2;

impl Cooler {
    pub(crate) fn new(worker: usize, workers: usize, pool: Pool) -> Self {
        Self {
            worker,
            cooling: Cooling::new(worker, workers),
            packer: Packer::default(),
            waiting: Vec::new(),
            large: LargeNames::default(),
            work: None,
            large_next: false,
            pool,
            began: Instant::now(),
            walked: Duration::ZERO,
            awaiting: 0,
            tidied: Instant::now(),
            tidied_at: vec![0; workers],
            pressure: 0.0,
        }
    }

    /// The length of a pass: of no length when memory is shortest.
    fn period(&self, server: &Server) -> Duration {
        let cold_after = Duration::from_secs(server.config.number(Param::PackColdAfter) as u64);
        (cold_after / PASSES).mul_f64((1.0 - self.pressure).powi(3))
    }

    /// The clock ticks, `since` it last did, and a pass may be due.
    pub(crate) fn tick(
        &mut self,
        server: &Server,
        session: &Session,
        allowance: &Allowance,
        since: Duration,
    ) {
        self.pressure = allowance.pressure();
        server.store.keep_packed(self.pressure > 0.0);
        let stays = PACKED_AT_LEAST * server.config.number(Param::PackColdAfter) as u64 * 1000;
        self.cooling.leave_expiring(if self.pressure == 0.0 { stays } else { 0 });
        self.packer.wait_for_dictionaries(self.pressure == 0.0 && !packs_at_once(server));
        // However short memory is: a walk that finds nothing is not to take more of
        // the time than packing usually does.
        let percent = server.config.number(Param::PackCpuPercent).max(1) as u32;
        let shortest = self.walked * 100 / percent;
        let period = self.period(server);
        if self.cooling.is_done() && self.began.elapsed() >= period.max(shortest) {
            // Whether the pass took longer than it should have, for want of time.
            self.cooling.leave_mixed(self.began.elapsed() > period + period / 4 + since);
            (self.began, self.walked) = (Instant::now(), Duration::ZERO);
            self.cooling.begin(session, &server.config.string_params());
            self.awaiting = 0;
            server.timings.of(self.worker).passes.begin(server.uptime_ms());
            if self.worker == 0 && self.tidied.elapsed() >= TIDY_EVERY {
                self.tidy(server);
            }
        }
    }

    /// Tidies families, if every worker has met each string since that was last done.
    fn tidy(&mut self, server: &Server) {
        let done = |worker| server.timings.of(worker).passes.done();
        let done: Vec<u64> = (0..server.workers).map(done).collect();
        // One pass was under way, and may have been by most strings already.
        let met = |(now, then): (&u64, &u64)| now - then > MEET_ONE_IN;
        if done.iter().zip(&self.tidied_at).all(met) {
            (self.tidied, self.tidied_at) = (Instant::now(), done);
            server.store.families().tidy(TIDY_TURNS);
        }
    }

    /// Works for `limit`, a slice; whether there is more to do right now.
    pub(crate) fn turn(&mut self, server: &Server, session: &mut Session, limit: Duration) -> bool {
        let began = Instant::now();
        let (params, period) = (server.config.string_params(), self.period(server));
        let at_once = packs_at_once(server);
        let mut packed_for = Duration::ZERO;
        // When packing began, by the clock and by this thread's CPU time.
        let mut first = None;
        let more = loop {
            // Small and large strings take turns: neither waits for the other.
            let has_large = self.work.is_some() || !self.large.is_empty();
            if has_large && std::mem::replace(&mut self.large_next, false) {
                let started = Instant::now();
                first.get_or_insert_with(|| (started, slices::thread_cpu()));
                self.work_on_large(server, session);
                packed_for += started.elapsed();
                break true;
            } else if let Some(candidate) = self.waiting.pop() {
                let started = Instant::now();
                first.get_or_insert_with(|| (started, slices::thread_cpu()));
                self.pack(server, session, &candidate, &params);
                packed_for += started.elapsed();
            } else if !self.cooling.is_done() && self.is_behind(period) {
                let started = Instant::now();
                let batch = session.enter(unix_ms());
                let (small, large) = (&mut self.waiting, &mut self.large);
                self.cooling.step(&batch, &params, at_once, small, large);
                self.walked += started.elapsed();
            } else {
                self.large_next = true;
                break has_large;
            }
            if began.elapsed() >= limit {
                self.large_next = true;
                break true;
            }
        };
        if let Some((started, cpu)) = first {
            // Walking and packing take turns too short to read this clock at each:
            // its time is divided among them as the time that passed is.
            let used = slices::thread_cpu().saturating_sub(cpu);
            let share = packed_for.div_duration_f64(started.elapsed()).min(1.0);
            let used = used.mul_f64(share);
            server.stats.add(Stat::pack_microseconds, used.as_micros() as u64);
        }
        let (progress, left) = (self.cooling.progress(), self.cooling.left() + self.awaiting);
        let passes = &server.timings.of(self.worker).passes;
        passes.is_at(server.uptime_ms(), progress, left, self.waiting.len());
        more
    }

    /// Makes what it packs with ahead of need.
    pub(crate) fn reserve(&mut self) {
        self.packer.reserve();
    }

    /// Lets go of what is being worked on, and of what it takes.
    pub(crate) fn abandon(&mut self, server: &Server) {
        self.work = None;
        self.packer.release();
        server.timings.of(self.worker).passes.abandon();
    }

    /// Whether the walk is not as far as the time that has passed.
    fn is_behind(&self, period: Duration) -> bool {
        let elapsed = self.began.elapsed().as_secs_f64();
        period.is_zero() || self.cooling.progress() <= elapsed / period.as_secs_f64()
    }

    /// Works for a slice on a large string.
    fn work_on_large(&mut self, server: &Server, session: &mut Session) {
        let Some(work) = &mut self.work else {
            while let Some(name) = self.large.pop() {
                let job = session.enter(unix_ms()).large_job(&name);
                if let Some(job) = job.filter(|job| job.packs() || has_room(server, job)) {
                    self.work = Some(large::begin(server, &self.pool, job));
                    return;
                }
            }
            return;
        };
        let Some(finished) = slices::slice(&mut work.0) else { return };
        self.work = None;
        let (packs, saved) = (finished.packs(), finished.saved());
        let installed = finished.install(server, &session.enter(unix_ms()), self.worker);
        if packs {
            let stat = if installed { Stat::packed_strings } else { Stat::strings_left_raw };
            server.stats.add(stat, 1);
        }
        if packs && installed {
            self.count_ahead(server, saved);
        }
    }

    fn pack(
        &mut self,
        server: &Server,
        session: &mut Session,
        candidate: &Candidate,
        params: &StringParams,
    ) {
        // No lock is held, nor the gate.
        let began = Instant::now();
        let ready = self.packer.pack(&server.store, candidate, params);
        self.awaiting += u64::from(self.packer.awaits_dictionary());
        let took = began.elapsed();
        server.timings.of(self.worker).strings.record(took);
        // It is packed in one piece, however long that takes.
        server.slices.took(took.as_nanos() as u64);
        if ready.is_none() && !candidate.is_packed() && !self.packer.awaits_dictionary() {
            let raw = self.packer.raw(candidate);
            server.timings.left_raw(Type::String, mime_group((raw, raw)), raw.len());
        }
        let installed = ready.is_some_and(|ready| {
            let batch = session.enter(unix_ms());
            let installed = batch.install(candidate, &ready) && !ready.is_raw();
            drop(batch);
            if installed {
                self.count(server, candidate, &ready);
            }
            installed
        });
        let stat = if installed { Stat::packed_strings } else { Stat::strings_left_raw };
        server.stats.add(stat, 1);
        if let Some(family) = self.packer.family() {
            server.trainer.ask_family(&server.config, family);
        }
    }

    /// Counts a string that was packed.
    fn count(&self, server: &Server, candidate: &Candidate, ready: &Ready) {
        server.timings.packed_string(self.packer.raw(candidate), ready);
        self.count_ahead(server, candidate.held_len().saturating_sub(ready.packed_len()));
    }

    /// Counts a string that was packed, if memory is short.
    fn count_ahead(&self, server: &Server, saved: usize) {
        if self.pressure > 0.0 {
            server.stats.add(Stat::strings_packed_ahead, 1);
            server.stats.add(Stat::bytes_saved_ahead, saved as u64);
        }
    }
}

/// Whether memory allows that a large string is raw again.
fn has_room(server: &Server, job: &LargeJob) -> bool {
    let limit = server.config.number(Param::MaxMemory) as usize;
    limit == 0 || snug_store::memory::used() + job.raw_len() <= limit
}
