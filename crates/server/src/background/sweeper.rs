//! The sweeper: each worker's background walk over the slots, in turns of bounded
//! length. It removes expired keys, for `sweep-budget-us` a turn, and packs the
//! stream blocks that have been sealed, and strings that have cooled (`cooler`).
//!
//! Strings and blocks take turns, and both draw on one [`Allowance`] of the worker's
//! time: what it leaves undone is the backlog that INFO shows.
//!
//! Packing takes a block out by reference, works on it with no lock held, in
//! slices of `pack-slice-us`, and puts the result back only if the block is still
//! the same: a codec never keeps a client waiting for a slot, and nobody waits for
//! this worker longer than a slice takes. Dictionaries are trained elsewhere
//! (`trainer`).

use crate::background::allowance::Allowance;
use crate::background::cooler::Cooler;
use crate::commands::streams;
use crate::config::Param;
use crate::engine::blocked;
use crate::engine::server::Server;
use crate::measure::stats::Stat;
use crate::outside::clock::unix_ms;
use crate::request::error::Error;
use crate::work::slices::{self, InSlices, InTurns};
use snug_codec::pool::Pool;
use snug_codec::{Codec, Workspace, WorkspaceConfig};
use snug_store::types::stream::{PackOutcome, PackParams};
use snug_store::{Batch, Session, Type};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

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
    /// What blocks are packed with, while none is; made for the first of them.
    tools: Option<Tools>,
    packing: Option<Packing>,
    cooler: Cooler,
    allowance: Allowance,
    /// When memory for reading streams that nobody read was last given back.
    released: Instant,
    /// Whose turn it is first: streams and strings alternate.
    strings_first: bool,
    /// Whether there may be keys whose time has come, and blocks to pack. A walk over
    /// all slots that finds none is not repeated until the clock ticks.
    may_expire: bool,
    may_have_blocks: bool,
    /// Whether there was something left to pack after the last turn.
    is_left: bool,
    /// Whether what it packs with has been reserved.
    is_ready: bool,
}

/// What a block is packed with.
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

/// A block that is being packed.
struct Packing {
    db: usize,
    key: Vec<u8>,
    params: PackParams,
    /// The generation of dictionaries when it was begun.
    generation: u64,
    /// Worked on it so far.
    took: Duration,
    work: InTurns<(PackOutcome, Tools)>,
}

impl std::fmt::Debug for Packing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packing").field("db", &self.db).finish_non_exhaustive()
    }
}

impl Sweeper {
    pub(crate) fn new(worker: usize, workers: usize, pool: Pool) -> Self {
        Self {
            worker,
            workers,
            tools: None,
            packing: None,
            cooler: Cooler::new(worker, workers, pool),
            allowance: Allowance::default(),
            released: Instant::now(),
            strings_first: false,
            may_expire: true,
            may_have_blocks: true,
            is_left: true,
            is_ready: false,
        }
    }

    /// The clock ticks, `hz` times a second.
    pub(crate) fn tick(&mut self, server: &Server, session: &Session) {
        (self.may_expire, self.may_have_blocks, self.is_left) = (true, true, true);
        let since = self.allowance.tick(server);
        self.cooler.tick(server, session, &self.allowance, since);
        if server.config.is_on(Param::Pack) && server.is_to_pack_soon() {
            self.cooler.reserve();
            if self.packing.is_none() {
                self.tools.get_or_insert_default();
            }
        }
        let is_ready = self.tools.is_some() || self.packing.is_some();
        if is_ready && !std::mem::replace(&mut self.is_ready, true) {
            server.ready_to_pack.fetch_add(1, Relaxed);
        }
        // What is unpacked twice costs less than what is evicted.
        let short = self.allowance.pressure() > 0.0;
        if short || self.released.elapsed() >= RELEASE_EVERY {
            self.released = Instant::now();
            streams::release_unused();
        }
    }

    /// One turn; when the next is due.
    pub(crate) fn turn(&mut self, server: &Server, session: &mut Session) -> Next {
        let began = Instant::now();
        self.may_expire = self.may_expire && self.expire(server, session, began);
        let packing = Instant::now();
        let slice =
            Duration::from_nanos(slices::slice_ns(&server.config)).min(self.allowance.grant());
        if !server.config.is_on(Param::Pack) || !server.has_room_to_pack() {
            // Nobody is to wait for a workspace that work never to be done holds.
            (self.packing, self.tools) = (None, None);
            self.cooler.abandon(server);
            self.is_left = false;
        } else if !slice.is_zero() {
            self.strings_first = !self.strings_first;
            self.is_left = self.slice_of(self.strings_first, server, session, slice)
                || self.slice_of(!self.strings_first, server, session, slice);
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

    /// Works for a slice on strings or on streams; whether there is more of them.
    fn slice_of(
        &mut self,
        strings: bool,
        server: &Server,
        session: &mut Session,
        slice: Duration,
    ) -> bool {
        if strings {
            self.cooler.turn(server, session, slice)
        } else {
            self.pack(server, session, slice)
        }
    }

    /// Removes keys whose time has come; whether some may be left.
    fn expire(&mut self, server: &Server, session: &mut Session, began: Instant) -> bool {
        let now = unix_ms();
        if !server.active_expire.load(Relaxed) || server.pause.writes_paused(now) {
            return false;
        }
        let budget = Duration::from_micros(server.config.number(Param::SweepBudget) as u64);
        let batch = session.enter(now);
        let more = batch.expire_due(self.worker, self.workers, &mut || began.elapsed() > budget);
        if self.worker == 0 {
            server.blocked.take_over();
            batch.tidy();
        }
        if blocked::any_ready() {
            server.serve(&batch, self.worker);
        }
        server.stats.add(Stat::expired_time_cap_reached, u64::from(more));
        more
    }

    /// Packs sealed blocks for a slice; whether there are more.
    fn pack(&mut self, server: &Server, session: &mut Session, slice: Duration) -> bool {
        if self.packing.is_none() && !self.may_have_blocks {
            return false;
        }
        let (began, cpu) = (Instant::now(), slices::thread_cpu());
        let more = loop {
            if self.packing.is_none() {
                if !self.may_have_blocks {
                    break false;
                }
                let batch = session.enter(unix_ms());
                let Some((db, key)) = batch.next_unpacked(self.worker, self.workers) else {
                    self.may_have_blocks = false;
                    break false;
                };
                self.packing = self.begin(server, &batch, db, key);
            }
            if let Some(packing) = &mut self.packing {
                let started = Instant::now();
                let done = slices::slice(&mut packing.work);
                packing.took += started.elapsed();
                if let Some((outcome, tools)) = done {
                    server.timings.of(self.worker).blocks.record(packing.took);
                    self.tools = Some(tools);
                    install(server, session, packing, outcome);
                    self.packing = None;
                }
            }
            if began.elapsed() >= slice {
                break true;
            }
        };
        let used = slices::thread_cpu().saturating_sub(cpu);
        server.stats.add(Stat::pack_microseconds, used.as_micros() as u64);
        more
    }

    /// Takes the oldest sealed block out of a stream to pack it, and has a
    /// dictionary trained when there is enough to train one on.
    fn begin(
        &mut self,
        server: &Server,
        batch: &Batch<'_>,
        db: usize,
        name: Vec<u8>,
    ) -> Option<Packing> {
        let mut params = PackParams {
            min_saving: server.config.min_saving(),
            codec: Codec::Zstd,
            level: server.config.number(Param::PackLevel) as i32,
            dictionary_bytes: server.config.number(Param::PackDictionarySize) as usize,
        };
        let edition = server.store.families().policy();
        let generation = server.store.families().generation();
        let key = batch.key(&name);
        let mut slot = batch.lock(db, &key);
        let found = slot.find_untouched(&key)?;
        let stream = slot.stream(found)?;
        let len = stream.memory().raw;
        let choice = edition.choose(Type::Stream, &name, (&[], &[]), len, params.level);
        (params.codec, params.level) = (choice.codec, choice.level);
        let trains = params.dictionary_bytes > 0 && params.codec == Codec::Zstd;
        if trains && stream.wants_dictionary() && server.has_room(0) {
            server.trainer.ask(stream, params, db, &name);
        }
        let mut job = slot.pack_job(found, &streams::shape(server))?;
        drop(slot);
        if params.dictionary_bytes > 0 {
            let families = server.store.families();
            job.share(families, &families.of(Type::Stream, &name), choice);
        }
        let (pace, slice_ns) = (InSlices::new(&server.slices), slices::slice_ns(&server.config));
        let mut tools = self.tools.take().unwrap_or_default();
        let work = Box::pin(async move {
            let Tools { workspace, room } = &mut tools;
            let outcome = job.run_in_slices(workspace, &params, room, &pace, slice_ns).await;
            (outcome, tools)
        });
        Some(Packing { db, key: name, params, generation, took: Duration::ZERO, work })
    }
}

/// Puts a packed block into its stream, if that is still there and has it.
fn install(server: &Server, session: &mut Session, packing: &Packing, mut outcome: PackOutcome) {
    if let Some(family) = outcome.teach(server.store.families()) {
        server.trainer.ask_family(&server.config, &family);
    }
    if outcome.is_damaged() {
        server.damaged(&Error::DAMAGED_BLOCK);
    }
    let (raw, packed_bytes) = (outcome.raw_bytes(), outcome.packed_bytes());
    let stat = if packed_bytes.is_some() { Stat::packed_blocks } else { Stat::pack_rejected };
    let batch = session.enter(unix_ms());
    let key = batch.key(&packing.key);
    let mut slot = batch.lock(packing.db, &key);
    let Some(found) = slot.find_untouched(&key) else { return };
    let installed = slot.install_block(found, outcome);
    let families = server.store.families();
    if installed && families.generation() != packing.generation {
        let family = families.of(Type::Stream, &packing.key).dictionary_id();
        if family > 0 {
            slot.share_anew(found, family);
        }
    }
    if installed {
        server.stats.add(stat, 1);
        let (codec, level) = (packing.params.codec, packing.params.level);
        match packed_bytes {
            Some(packed) => {
                server.timings.packed(Type::Stream, codec, level, "unknown", raw, packed);
            }
            None => server.timings.left_raw(Type::Stream, "unknown", raw),
        }
    }
}
