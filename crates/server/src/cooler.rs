//! The part of the sweeper that packs strings: walks this worker's slots at the
//! pace that `pack-cold-after` asks for, and packs what it finds cold.
//!
//! A pass takes a third of `pack-cold-after`, spread evenly over that time; three
//! passes make a value that nobody uses cold. Work is done in slices of
//! `pack-slice-us`, between which clients have their turn, and takes at most
//! `pack-cpu-percent` of the time while there are clients to serve. What the
//! limit leaves undone makes the pass longer.
//!
//! Near `maxmemory` it works ahead of need: the closer the limit
//! ([`Server::pressure`]), the shorter the passes and the larger the share of time,
//! and what is packed stays so however often it is read. What is read between two
//! of the shorter passes stays raw, and writes wait for none of it.

use crate::config::Param;
use crate::server::{Server, unix_ms};
use crate::stats::Stat;
use crate::timings::mime_group;
use snug_store::{Candidate, Cooling, Packer, Ready, Session, StringParams, Type};
use std::time::{Duration, Instant};

/// Passes that a value must stay unused to be cold.
pub(crate) const PASSES: u32 = 3;

/// Below so many commands a second nobody is kept waiting.
const IDLE_COMMANDS: f64 = 1000.0;

/// The percent of the time that packing takes when memory is shortest, unless
/// `pack-cpu-percent` grants more.
const HARDEST_PERCENT: f64 = 50.0;

/// Families are tidied no more often than this, between passes ...
const TIDY_EVERY: Duration = Duration::from_secs(30);
/// ... and one without values is let go of after so many times.
const TIDY_TURNS: u32 = 8;

/// What strings are packed by, from the configuration.
pub(crate) fn params(server: &Server) -> StringParams {
    StringParams {
        min_size: server.config.number(Param::PackMinSize) as usize,
        min_saving_percent: server.config.number(Param::PackMinSaving) as i32,
        level: server.config.number(Param::PackLevel) as i32,
    }
}

/// One worker's share of packing strings.
#[derive(Debug)]
pub(crate) struct Cooler {
    worker: usize,
    cooling: Cooling,
    packer: Packer,
    waiting: Vec<Candidate>,
    /// When this pass began, and the time that its walk alone has taken.
    began: Instant,
    walked: Duration,
    tidied: Instant,
    /// When the clock last ticked, and what had been served by then.
    ticked: Instant,
    commands: u64,
    /// What may be worked until the clock ticks again.
    allowance: Duration,
    /// How short memory was then, 0 to 1.
    pressure: f64,
}

impl Cooler {
    pub(crate) fn new(worker: usize, workers: usize) -> Self {
        Self {
            worker,
            cooling: Cooling::new(worker, workers),
            packer: Packer::default(),
            waiting: Vec::new(),
            began: Instant::now(),
            walked: Duration::ZERO,
            tidied: Instant::now(),
            ticked: Instant::now(),
            commands: 0,
            allowance: Duration::ZERO,
            pressure: 0.0,
        }
    }

    /// The length of a pass: of no length when memory is shortest.
    fn period(&self, server: &Server) -> Duration {
        let cold_after = Duration::from_secs(server.config.number(Param::PackColdAfter) as u64);
        (cold_after / PASSES).mul_f64((1.0 - self.pressure).powi(3))
    }

    /// The clock ticks: there is more to be worked with, and a pass may be due.
    pub(crate) fn tick(&mut self, server: &Server, session: &Session) {
        let since = self.ticked.elapsed().min(Duration::from_secs(1));
        self.ticked = Instant::now();
        let commands = server.stats.get(Stat::total_commands_processed);
        let served = commands.saturating_sub(self.commands);
        self.commands = commands;
        let is_idle = (served as f64) < IDLE_COMMANDS * since.as_secs_f64();
        self.pressure = server.pressure();
        let ahead = (self.pressure * HARDEST_PERCENT) as u32;
        let share = (server.config.number(Param::PackCpuPercent) as u32).max(ahead);
        self.allowance = since * if is_idle { 100 } else { share } / 100;
        self.cooling.keep_packed(self.pressure > 0.0);
        // However short memory is: a walk that finds nothing is not to take more of
        // the time than packing usually does.
        let percent = server.config.number(Param::PackCpuPercent).max(1) as u32;
        let shortest = self.walked * 100 / percent;
        if self.cooling.is_done() && self.began.elapsed() >= self.period(server).max(shortest) {
            (self.began, self.walked) = (Instant::now(), Duration::ZERO);
            self.cooling.begin(session, &params(server));
            if self.worker == 0 && self.tidied.elapsed() >= TIDY_EVERY {
                self.tidied = Instant::now();
                server.store.families().tidy(TIDY_TURNS);
            }
        }
    }

    /// Works for a slice; whether there is more to do right now.
    pub(crate) fn turn(&mut self, server: &Server, session: &mut Session) -> bool {
        let began = Instant::now();
        let slice = Duration::from_micros(server.config.number(Param::PackSliceUs) as u64);
        let (params, period) = (params(server), self.period(server));
        let at_once = server.config.number(Param::PackColdAfter) == 0;
        let mut packed_for = Duration::ZERO;
        let more = loop {
            if let Some(candidate) = self.waiting.pop() {
                let started = Instant::now();
                self.pack(server, session, &candidate, &params);
                packed_for += started.elapsed();
            } else if !self.cooling.is_done() && self.is_behind(period) {
                let started = Instant::now();
                let batch = session.enter(unix_ms());
                self.cooling.step(&batch, &params, at_once, &mut self.waiting);
                self.walked += started.elapsed();
            } else {
                break false;
            }
            let worked = began.elapsed();
            if worked >= self.allowance {
                break false;
            }
            if worked >= slice {
                break true;
            }
        };
        self.allowance = self.allowance.saturating_sub(began.elapsed());
        server.stats.add(Stat::pack_microseconds, packed_for.as_micros() as u64);
        more
    }

    /// Whether the walk is not as far as the time that has passed.
    fn is_behind(&self, period: Duration) -> bool {
        let elapsed = self.began.elapsed().as_secs_f64();
        period.is_zero() || self.cooling.progress() <= elapsed / period.as_secs_f64()
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
        server.timings.of(self.worker).strings.record(began.elapsed());
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
            server.trainer.ask_family(server, family);
        }
    }

    /// Counts a string that was packed.
    fn count(&self, server: &Server, candidate: &Candidate, ready: &Ready) {
        let (raw, choice) = (self.packer.raw(candidate), ready.choice());
        let (group, to) = (mime_group(raw), ready.packed_len());
        server.timings.packed(Type::String, choice.codec, choice.level, group, raw.len(), to);
        if self.pressure > 0.0 {
            let saved = candidate.held_len().saturating_sub(ready.packed_len());
            server.stats.add(Stat::strings_packed_ahead, 1);
            server.stats.add(Stat::bytes_saved_ahead, saved as u64);
        }
    }
}
