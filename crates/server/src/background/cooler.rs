//! The walk over this worker's slots that finds what has cooled, at the pace that
//! `pack-cold-after` asks for. What it finds, the driver packs (`packer`).
//!
//! A pass takes half of `pack-cold-after`, spread evenly over that time; two passes
//! make a value that nobody uses cold. What the sweeper's [`Allowance`] leaves undone
//! makes the pass longer.
//!
//! Near `maxmemory` it works ahead of need: the closer the limit
//! ([`Server::pressure`]), the shorter the passes, and what is packed stays so
//! however often it is read. What is read between two of the shorter passes stays
//! raw, and writes wait for none of it.

use crate::background::allowance::Allowance;
use crate::config::Param;
use crate::engine::server::Server;
use crate::measure::passes::PASSES;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use snug_store::{Cooling, Fate, Job, MEET_ONE_IN, Names, Outcome, PieceParams, Session, memory};
use std::time::Duration;

/// Families are tidied no more often than this, and when every worker's passes have met
/// each string since ...
const TIDY_EVERY: Duration = Duration::from_mins(2);
/// ... and one without values is let go of after so many times.
const TIDY_TURNS: u32 = 2;

/// Whether values are cold as soon as they are written.
fn packs_at_once(server: &Server) -> bool {
    server.config.number(Param::PackColdAfter) == 0
}

/// One worker's walk over its values.
#[derive(Debug)]
pub(crate) struct Cooler {
    worker: usize,
    cooling: Cooling,
    /// When this pass began, and the time that its walk alone has taken.
    began: Instant,
    walked: Duration,
    /// Values that wait for the first dictionary of their family, and whether any are to.
    awaiting: u64,
    awaits: bool,
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
    pub(crate) fn new(worker: usize, workers: usize) -> Self {
        Self {
            worker,
            cooling: Cooling::new(worker, workers),
            began: Instant::now(),
            walked: Duration::ZERO,
            awaiting: 0,
            awaits: false,
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
        self.awaits = self.pressure == 0.0 && !packs_at_once(server);
        // However short memory is: a walk that finds nothing is not to take more of
        // the time than packing usually does.
        let percent = server.config.number(Param::PackCpuPercent).max(1) as u32;
        let shortest = self.walked * 100 / percent;
        let period = self.period(server);
        if self.cooling.is_done() && self.began.elapsed() >= period.max(shortest) {
            // Whether the pass took longer than it should have, for want of time.
            self.cooling.leave_mixed(self.began.elapsed() > period + period / 4 + since);
            (self.began, self.walked) = (Instant::now(), Duration::ZERO);
            self.cooling.begin(session, &server.config.piece_params());
            self.awaiting = 0;
            server.timings.of(self.worker).passes.begin(server.uptime_ms());
            if self.worker == 0 {
                let params = server.config.piece_params();
                for family in server.store.families().stalled() {
                    server.trainer.ask(&server.store, &family, &params);
                }
            }
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

    /// Walks on a little, if the walk is not as far as the time that has passed: finds
    /// values in their entries that have cooled, and names of large ones; whether it did.
    pub(crate) fn walk(
        &mut self,
        server: &Server,
        session: &mut Session,
        params: &PieceParams,
        jobs: &mut Vec<Job>,
        names: &mut Names,
    ) -> bool {
        if self.cooling.is_done() || !self.is_behind(self.period(server)) {
            return false;
        }
        let started = Instant::now();
        let batch = session.enter(unix_ms());
        self.cooling.step(&batch, params, packs_at_once(server), jobs, names);
        if self.cooling.is_done() {
            memory::settle_packed();
        }
        self.walked += started.elapsed();
        true
    }

    /// Takes note of what came of one that it has found.
    pub(crate) fn came_of(&mut self, outcome: &Outcome) {
        self.awaiting += u64::from(outcome.fate == Fate::Awaits);
    }

    /// Says how far it is; so many that it has found wait to be packed.
    pub(crate) fn is_at(&self, server: &Server, waiting: usize) {
        let (progress, left) = (self.cooling.progress(), self.cooling.left() + self.awaiting);
        let passes = &server.timings.of(self.worker).passes;
        passes.is_at(server.uptime_ms(), progress, left, waiting);
    }

    /// Nothing is packed any more.
    pub(crate) fn abandon(&self, server: &Server) {
        server.timings.of(self.worker).passes.abandon();
    }

    /// Whether values stay raw while a dictionary for them is being trained.
    pub(crate) fn awaits(&self) -> bool {
        self.awaits
    }

    /// How short memory is, 0 to 1.
    pub(crate) fn pressure(&self) -> f64 {
        self.pressure
    }

    /// Whether the walk is not as far as the time that has passed.
    fn is_behind(&self, period: Duration) -> bool {
        let elapsed = self.began.elapsed().as_secs_f64();
        period.is_zero() || self.cooling.progress() <= elapsed / period.as_secs_f64()
    }
}
