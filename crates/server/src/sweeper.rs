//! The sweeper: each worker's background walk over the slots, in turns of
//! bounded length (`sweep-budget-us`). It removes expired keys and packs the
//! stream blocks that have been sealed, and strings that have cooled (`cooler`).
//!
//! Packing takes a block out by reference, works on it with no lock held, and
//! puts the result back only if the block is still the same: a codec never
//! keeps a client waiting for a slot, and nobody waits for this worker longer
//! than one block takes. Dictionaries are trained elsewhere (`trainer`).

use crate::blocked;
use crate::config::Param;
use crate::cooler::Cooler;
use crate::server::{Server, unix_ms};
use crate::stats::Stat;
use snug_codec::{Codec, Workspace, WorkspaceConfig};
use snug_store::Session;
use snug_store::types::stream::PackParams;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// One worker's sweeper. It takes every `workers`-th page of slots.
#[derive(Debug)]
pub(crate) struct Sweeper {
    worker: usize,
    workers: usize,
    workspace: Workspace,
    room: Vec<u8>,
    cooler: Cooler,
}

impl Sweeper {
    pub(crate) fn new(worker: usize, workers: usize) -> Self {
        Self {
            worker,
            workers,
            workspace: Workspace::new(WorkspaceConfig::default()),
            room: Vec::new(),
            cooler: Cooler::new(worker, workers),
        }
    }

    /// The clock ticks, `hz` times a second.
    pub(crate) fn tick(&mut self, server: &Server, session: &Session) {
        self.cooler.tick(server, session);
    }

    /// One turn; whether there is more to do right now.
    pub(crate) fn turn(&mut self, server: &Server, session: &mut Session) -> bool {
        let began = Instant::now();
        let budget = Duration::from_micros(server.config.number(Param::SweepBudget) as u64);
        let mut more = self.expire(server, session, began, budget);
        if server.config.is_on(Param::Pack) {
            more |= self.pack(server, session, began, budget);
            // Streams have had this turn, if they wanted it.
            more = more || self.cooler.turn(server, session);
        }
        server.stats.add(Stat::sweeper_microseconds, began.elapsed().as_micros() as u64);
        more
    }

    fn expire(
        &mut self,
        server: &Server,
        session: &mut Session,
        began: Instant,
        budget: Duration,
    ) -> bool {
        if !server.active_expire.load(Relaxed) {
            return false;
        }
        let batch = session.enter(unix_ms());
        let more = batch.expire_due(self.worker, self.workers, &mut || began.elapsed() > budget);
        if self.worker == 0 {
            server.blocked.take_over();
        }
        if blocked::any_ready() {
            server.serve(&batch, self.worker);
        }
        server.stats.add(Stat::expired_time_cap_reached, u64::from(more));
        more
    }

    /// Packs sealed blocks until the budget is used up; one at least.
    fn pack(
        &mut self,
        server: &Server,
        session: &mut Session,
        began: Instant,
        budget: Duration,
    ) -> bool {
        let params = PackParams {
            min_saving_percent: server.config.number(Param::PackMinSaving).max(0) as u8,
            codec: Codec::Zstd,
            level: server.config.number(Param::PackLevel) as i32,
            dictionary_bytes: server.config.number(Param::PackDictionarySize) as usize,
        };
        loop {
            let Some((db, key)) = session.enter(unix_ms()).next_unpacked(self.worker, self.workers)
            else {
                return false;
            };
            let started = Instant::now();
            self.pack_one(server, session, &params, db, &key);
            server.stats.add(Stat::pack_microseconds, started.elapsed().as_micros() as u64);
            if began.elapsed() > budget {
                return true;
            }
        }
    }

    /// Packs the oldest sealed block of a stream, and has a dictionary trained
    /// when there is enough to train one on.
    fn pack_one(
        &mut self,
        server: &Server,
        session: &mut Session,
        params: &PackParams,
        db: usize,
        name: &[u8],
    ) {
        let edition = server.store.families().policy();
        let mut params = *params;
        let job = {
            let batch = session.enter(unix_ms());
            let key = batch.key(name);
            let mut slot = batch.lock(db, &key);
            let found = slot.find_untouched(&key);
            let Some(found) = found else { return };
            slot.with_stream(found, |stream| {
                let choice = edition.of_stream(name, stream.memory().raw, params.level);
                (params.codec, params.level) = (choice.codec, choice.level);
                let trains = params.dictionary_bytes > 0 && params.codec == Codec::Zstd;
                if trains && stream.wants_dictionary() {
                    server.trainer.ask(stream, params, db, name);
                }
                stream.pack_job()
            })
        };
        let Some(job) = job.flatten() else { return };
        // No lock is held, nor the gate: this takes a good part of a millisecond.
        let outcome = job.run(&mut self.workspace, &params, &mut self.room);
        let stat = if outcome.is_packed() { Stat::packed_blocks } else { Stat::pack_rejected };
        let batch = session.enter(unix_ms());
        let key = batch.key(name);
        let mut slot = batch.lock(db, &key);
        let Some(found) = slot.find_untouched(&key) else { return };
        if slot.with_stream(found, |stream| stream.install(outcome)) == Some(true) {
            server.stats.add(stat, 1);
        }
    }
}
