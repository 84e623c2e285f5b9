//! The sweeper: each worker's background walk over the slots, in turns of bounded
//! length. It removes expired keys, for `sweep-budget-us` a turn, and then packs for a
//! slice (`packer`): what has cooled (`cooler`), and pieces that wait.
//!
//! All packing draws on one [`Allowance`] of the worker's time: what it leaves undone is
//! the backlog that INFO shows. Dictionaries are trained elsewhere (`trainer`).

use crate::background::allowance::Allowance;
use crate::background::cooler::Cooler;
use crate::background::packer::Packer;
use crate::commands::streams;
use crate::config::Param;
use crate::engine::blocked;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::work::slices;
use snug_codec::pool::Pool;
use snug_store::Session;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Unpacked blocks that nobody has read for as long are let go of.
const RELEASE_EVERY: Duration = Duration::from_secs(5);

/// When the sweeper is to have its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// As soon as the clients have had theirs.
    Now,
    /// There is work, but no allowance for it yet.
    Soon,
    /// When the clock ticks.
    Tick,
}

/// One worker's sweeper. It takes every `workers`-th page of slots.
#[derive(Debug)]
pub(crate) struct Sweeper {
    worker: usize,
    workers: usize,
    packer: Packer,
    cooler: Cooler,
    allowance: Allowance,
    /// When memory for reading streams that nobody read was last given back.
    released: Instant,
    /// Whether there may be keys whose time has come. A walk over all slots that finds
    /// none is not repeated until the clock ticks.
    may_expire: bool,
    /// Whether there was something left to pack after the last turn.
    is_left: bool,
}

impl Sweeper {
    pub(crate) fn new(worker: usize, workers: usize, pool: Pool) -> Self {
        Self {
            worker,
            workers,
            packer: Packer::new(worker, workers, pool),
            cooler: Cooler::new(worker, workers),
            allowance: Allowance::default(),
            released: Instant::now(),
            may_expire: true,
            is_left: true,
        }
    }

    /// The clock ticks, `hz` times a second.
    pub(crate) fn tick(&mut self, server: &Server, session: &Session) {
        (self.may_expire, self.is_left) = (true, true);
        // It may hold slots for long, and would hold up the worker.
        if server.aside.is_active() {
            return;
        }
        let since = self.allowance.tick(server);
        self.cooler.tick(server, session, &self.allowance, since);
        self.packer.tick(server);
        // What is unpacked twice costs less than what is evicted.
        let short = self.allowance.pressure() > 0.0;
        if short || self.released.elapsed() >= RELEASE_EVERY {
            self.released = Instant::now();
            streams::release_unused();
        }
    }

    /// One turn; when the next is due.
    pub(crate) fn turn(&mut self, server: &Server, session: &mut Session) -> Next {
        if server.aside.is_active() {
            return Next::Soon;
        }
        let began = Instant::now();
        self.may_expire = self.may_expire && self.expire(server, session, began);
        let packing = Instant::now();
        let slice =
            Duration::from_nanos(slices::slice_ns(&server.config)).min(self.allowance.grant());
        let rests = server.persist.loading.is_packed.load(Relaxed);
        if rests || !server.config.is_on(Param::Pack) || !server.has_room_to_pack() {
            self.packer.abandon();
            self.cooler.abandon(server);
            self.is_left = false;
        } else if !slice.is_zero() {
            self.is_left = self.packer.turn(server, session, &mut self.cooler, slice);
        }
        let took = began.elapsed();
        self.allowance.spend(took, packing.elapsed());
        server.timings.of(self.worker).turns.record(took);
        server.stats.add(Stat::sweeper_microseconds, took.as_micros() as u64);
        match self.is_left {
            _ if self.may_expire => Next::Now,
            true if self.allowance.is_left() => Next::Now,
            true => Next::Soon,
            false => Next::Tick,
        }
    }

    /// Removes keys whose time has come; whether some may be left.
    fn expire(&mut self, server: &Server, session: &mut Session, began: Instant) -> bool {
        let now = unix_ms();
        let waits =
            server.pause.writes_paused(now) || server.is_behind() || server.persist.is_loading();
        if !server.active_expire.load(Relaxed) || waits {
            return false;
        }
        let budget = Duration::from_micros(server.config.number(Param::SweepBudget) as u64);
        let batch = session.enter(now);
        // A replica's primary says when a key goes. The role does not change in a batch.
        let mut left = false;
        let more = !server.peers.is_replica()
            && batch.expire_due(self.worker, self.workers, &mut || began.elapsed() > budget);
        if self.worker == 0 {
            server.blocked.take_over();
            batch.tidy();
            left = server.tidy_cards(&batch, budget);
        }
        if blocked::any_ready() {
            server.serve(&batch, self.worker);
        }
        let is_capped = more && began.elapsed() > budget;
        server.stats.add(Stat::expired_time_cap_reached, u64::from(is_capped));
        more || left
    }
}
