//! The sweeper: each worker's background walk over the slots, in turns of
//! bounded length. It removes expired keys and packs what has been sealed.

use crate::config::Param;
use crate::server::{Server, unix_ms};
use crate::stats::Stat;
use snug_store::Session;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// One worker's sweeper. It takes every `workers`-th slot.
#[derive(Debug)]
pub(crate) struct Sweeper {
    worker: usize,
    workers: usize,
}

impl Sweeper {
    pub(crate) fn new(worker: usize, workers: usize) -> Self {
        Self { worker, workers }
    }

    /// One turn, of `sweep-budget-us` at most; whether there is more to do
    /// right now.
    pub(crate) fn turn(&mut self, server: &Server, session: &mut Session) -> bool {
        if !server.active_expire.load(Relaxed) {
            return false;
        }
        let began = Instant::now();
        let budget = Duration::from_micros(server.config.number(Param::SweepBudget) as u64);
        let batch = session.enter(unix_ms());
        let more = batch.expire_due(self.worker, self.workers, &mut || began.elapsed() > budget);
        server.stats.add(Stat::sweeper_microseconds, began.elapsed().as_micros() as u64);
        more
    }
}
