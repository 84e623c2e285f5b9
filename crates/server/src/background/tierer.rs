//! The disk tier's threads: one that has cold values go to disk, and some that bring back
//! what commands wait for.
//!
//! ```text
//!  used_memory, of what maxmemory leaves to values
//!    ... 88 % ............. 92 % ............ 97 % .. 100 %
//!         | the tierer       | it begins:       |       |
//!         | stops            | what has cooled  |       commands evict, or are refused
//!                                               | raw values, too, that packing has
//!                                               | not come to yet
//! ```
//!
//! Where writes outrun the disk, commands that need memory wait for it (`engine/away.rs`), and
//! so do the threads that bring values back; so the tier comes before eviction. Where it can
//! make no room, for the disk is full, failing or slow or all that is in memory is in use,
//! eviction and `OOM` go by their rules as without. What goes is drawn as eviction
//! draws: keys that are looked at and stay lose an access bit. A batch is written and
//! synced, and only then leaves memory; so a disk that is full or failing costs the
//! attempt, which is told, and made again after [`RETRY`].

use crate::config::Param;
use crate::engine::server::Server;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::outside::threads::GivesWay;
use crate::work::tier::{Health, Request};
use snug_store::memory::HighWater;
use snug_store::tier::{Engine, Purpose};
use snug_store::{Leaving, Moving, Session};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Shares of the memory for values, from which on the tierer works, down to which, and
/// from which on it takes raw values that have not cooled.
const FROM: f64 = 0.92;
const DOWN_TO: f64 = 0.88;
const HARD_FROM: f64 = 0.97;

/// Bytes that go in one batch.
const BATCH_MIN: usize = 64 << 10;
const BATCH_MAX: usize = 4 << 20;

/// Threads that read: so many reads a disk has to do at once.
const READERS: usize = 8;

/// How long one of them waits for something to read before it looks about.
const REST: Duration = Duration::from_millis(500);

/// After so many attempts in a row that freed nothing, nobody is to wait for room.
const IN_VAIN_MAX: u32 = 20;

/// The clock of the tierer.
const TICK: Duration = Duration::from_millis(10);
/// Where nothing has cooled it looks less and less often, down to this.
const REST_MAX: Duration = Duration::from_millis(500);
/// After a failure it tries again when this is over.
const RETRY: Duration = Duration::from_secs(2);
/// Of a full disk so much is given up where keys may be evicted: some segments.
const GIVE_UP_ONE_IN: u64 = 5;
/// How often it looks for room to give back, ...
const TIDY_EVERY: Duration = Duration::from_millis(200);
/// ... and slots that it walks at once to move what is left.
const SLOTS_AT_ONCE: usize = 64;

/// Opens the tier and starts its threads, if the configuration has one.
pub(crate) fn start(server: &Arc<Server>) -> Result<(), String> {
    let path = server.config.path(Param::TierPath);
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    let told = |error: io::Error| format!("tier-path {}: {error}", path.display());
    let limit = server.config.number(Param::TierMaxBytes) as u64;
    let name = server.config.text(Param::TierEngine);
    // What is found there is removed, which must not be what another server uses.
    std::fs::create_dir_all(&path).map_err(told)?;
    server.persist.lock_tier(Path::new(&path))?;
    let engine = snug_store::tier::open(&name, Path::new(&path), limit).map_err(told)?;
    server.store.tier().set_engine(Arc::clone(&engine));
    let spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name).spawn(work).map(drop).map_err(told)
    };
    for number in 0..READERS {
        let server = Arc::downgrade(server);
        spawn(format!("tier-{number}"), Box::new(move || read(&server)))?;
    }
    let weak = Arc::downgrade(server);
    spawn("tierer".into(), Box::new(move || Tierer::new(engine).run(&weak)))?;
    server.tiering.begin();
    tracing::info!(path = %path.display(), engine = %name, limit, "the disk tier is open");
    Ok(())
}

/// Brings values back, one after the other, until the server ends.
fn read(server: &Weak<Server>) {
    let Some(strong) = server.upgrade() else { return };
    let mut session = strong.store.session();
    drop(strong);
    let mut high_water = HighWater::default();
    while let Some(server) = server.upgrade().filter(|server| !server.ending.load(Relaxed)) {
        let tiering = &server.tiering;
        if let Some(request) = tiering.to_bring.next(REST) {
            server.wait_for_tier();
            let came = session.bring(unix_ms(), request.db, &request.key);
            tiering.waits.fetch_add(1, Relaxed);
            tiering.waited_us.fetch_add(request.waited().as_micros() as u64, Relaxed);
            request.done(came);
        }
        // What it has brought before, others may have freed.
        high_water.give_back();
    }
}

/// The thread that has values go.
struct Tierer {
    engine: Arc<dyn Engine>,
    /// When to try again, after a failure.
    retry: Option<Instant>,
    /// The failure was that `tier-max-bytes` is reached.
    is_full: bool,
    tidied: Instant,
    /// A walk that moves what is left of segments.
    moving: Option<Moving>,
    /// Times in a row that nothing went, though memory was short.
    in_vain: u32,
    /// It looks again when this is over, ...
    rests: Option<Instant>,
    /// ... and rests for as long as this.
    rest: Duration,
}

impl Tierer {
    fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            retry: None,
            is_full: false,
            tidied: Instant::now(),
            moving: None,
            in_vain: 0,
            rests: None,
            rest: TICK,
        }
    }

    fn run(mut self, server: &Weak<Server>) {
        let Some(strong) = server.upgrade() else { return };
        let mut session = strong.store.session();
        drop(strong);
        let (mut high_water, mut gives_way) = (HighWater::default(), GivesWay::new());
        while let Some(server) = server.upgrade().filter(|server| !server.ending.load(Relaxed)) {
            // A walk that moves what is left goes on at once: room comes at its end only.
            let is_moving = self.moving.is_some() && !server.aside.is_active();
            let asked = server.tiering.to_leave.next(if is_moving { Duration::ZERO } else { TICK });
            gives_way.now_and_then();
            if let Some(request) = asked {
                self.leave_now(&server, &mut session, request);
            }
            self.engine.limit(server.config.number(Param::TierMaxBytes) as u64);
            self.make_room(&server, &mut session);
            self.tidy(&server, &mut session);
            high_water.give_back();
        }
    }

    /// Has one value go that somebody asked for.
    fn leave_now(&mut self, server: &Server, session: &mut Session, request: Request<bool>) {
        let mut leaving = Vec::new();
        session.enter(unix_ms()).gather_key(request.db, &request.key, &mut leaving);
        let gone = self.leave(server, session, &mut leaving).is_some();
        let there = gone && session.enter(unix_ms()).is_away(request.db, &request.key);
        request.done(there);
    }

    /// Has what has cooled go while memory is short.
    fn make_room(&mut self, server: &Server, session: &mut Session) {
        let Some(limit) = server.memory_for_values() else { return };
        if server.counted_memory() as f64 <= limit as f64 * FROM {
            self.in_vain = 0;
            server.tiering.made_room();
            return;
        }
        if self.retry.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let is_hard = |used: usize| used as f64 > limit as f64 * HARD_FROM;
        if !is_hard(server.counted_memory()) && self.rests.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let mut leaving = Vec::new();
        let began = Instant::now();
        loop {
            let used = server.counted_memory();
            let over = used as f64 - limit as f64 * DOWN_TO;
            // Requests are not kept waiting, nor the end.
            if over <= 0.0 || began.elapsed() > TIDY_EVERY || server.aside.is_active() {
                return;
            }
            leaving.clear();
            let want = (over as usize).min(limit / 16).clamp(BATCH_MIN, BATCH_MAX);
            let hard = is_hard(used);
            session.enter(unix_ms()).gather(hard, want, &mut leaving);
            let freed = match leaving.is_empty() {
                // All is in use. What was looked at is colder now.
                true => 0,
                false => match self.leave(server, session, &mut leaving) {
                    Some(freed) => freed,
                    None => return,
                },
            };
            if freed > 0 {
                self.in_vain = 0;
                self.rest = TICK;
                server.tiering.made_room();
                continue;
            }
            self.rests = Some(Instant::now() + self.rest);
            self.rest = (self.rest * 2).min(REST_MAX);
            self.in_vain += u32::from(hard);
            if self.in_vain > IN_VAIN_MAX {
                server.tiering.make_no_room("all that is in memory is in use, or has to stay");
            }
            if leaving.is_empty() {
                return;
            }
        }
    }

    /// Writes values and has them leave memory; the bytes that came free, none if they
    /// could not be written.
    fn leave(
        &mut self,
        server: &Server,
        session: &mut Session,
        leaving: &mut Vec<Leaving>,
    ) -> Option<usize> {
        leaving.retain_mut(|value| value.write_out(&server.store));
        let bytes: usize = leaving.iter().map(|value| value.bytes().len()).sum();
        let records: Vec<&[u8]> = leaving.iter().map(Leaving::bytes).collect();
        self.is_full = !self.engine.has_room(bytes as u64);
        let written = match !self.is_full {
            true => self.engine.write(&records, Purpose::Leave),
            false => Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "tier-max-bytes is reached, or the disk is full",
            )),
        };
        self.note(server, written.as_ref().map(drop));
        let places = written.ok()?;
        Some(session.enter(unix_ms()).put_away(leaving, &places).1)
    }

    /// Notes how writing went, and says so in the log when that changes.
    fn note(&mut self, server: &Server, written: Result<(), &io::Error>) {
        let tiering = &server.tiering;
        self.retry = written.is_err().then(|| Instant::now() + RETRY);
        if written.is_err() {
            tiering.write_errors.fetch_add(1, Relaxed);
        }
        match (tiering.note(written), written) {
            (Some(_), Err(error)) => tracing::error!(
                %error,
                "values cannot go to the disk tier: they stay in memory, and maxmemory-policy applies"
            ),
            (Some(was), Ok(())) => {
                tracing::info!(was = was.name(), "values go to the disk tier again");
            }
            (None, _) => {}
        }
    }

    /// Where values are to leave memory and the disk has no room for them, has keys evicted
    /// whose values are there: so many that segments can be moved.
    fn give_up(&self, server: &Server) {
        let is_short = server
            .memory_for_values()
            .is_some_and(|limit| server.counted_memory() as f64 > limit as f64 * FROM);
        if is_short && server.evicts() && server.tiering.live_most().is_none() {
            let figures = self.engine.figures();
            let limit = server.config.number(Param::TierMaxBytes) as u64;
            let all = if limit == 0 { figures.files_bytes } else { limit };
            let most = all - all / GIVE_UP_ONE_IN;
            if figures.live > most {
                server.tiering.give_up(most);
                server.exceeded.wanted.notify_one();
            }
        }
    }

    /// Gives back the room of what is gone on disk, and moves what is left.
    fn tidy(&mut self, server: &Server, session: &mut Session) {
        if self.moving.is_none() && self.tidied.elapsed() >= TIDY_EVERY {
            self.tidied = Instant::now();
            self.moving = self.engine.tidy().then(Moving::default);
            if server.tiering.health().0 == Health::Full {
                // There may be room by now. Whether a disk has any, an attempt will show.
                if self.is_full && self.engine.has_room(BATCH_MAX as u64) {
                    self.note(server, Ok(()));
                } else {
                    self.give_up(server);
                }
            }
        }
        let Some(mut moving) = self.moving.take().filter(|_| !server.aside.is_active()) else {
            return;
        };
        match moving.step(session, unix_ms(), SLOTS_AT_ONCE) {
            Ok(true) => self.moving = Some(moving),
            Ok(false) => {}
            Err(error) => self.note(server, Err(&error)),
        }
    }
}
