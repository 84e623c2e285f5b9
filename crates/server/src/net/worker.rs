//! Workers: one thread per core, each with its own runtime, listening socket,
//! session on the store and buffers. A connection stays with the worker that
//! accepted it.

use crate::background::sweeper::{Next, Sweeper};
use crate::config::Param;
use crate::engine::out::Out;
use crate::engine::server::Server;
use crate::net::accept::{self, OtherDoor};
use crate::net::evictor::evict_in_background;
use crate::outside::clock::Instant;
use crate::persist::rounds;
use crate::request::ahead::Ahead;
use crate::sockets::listening::Doors;
use snug_codec::pool::Pool;
use snug_store::Session;
use snug_store::memory::HighWater;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What all connections of a worker share, one at a time: buffers that stay
/// warm in the cache, and the session on the store.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The same as its connections have.
    pub server: Arc<Server>,
    pub session: Session,
    pub input: Vec<u8>,
    pub out: Out,
    pub ahead: Ahead,
    pub worker: usize,
    /// Workspaces for large values.
    pub pool: Pool,
}

/// Bytes read at once.
const INPUT_BYTES: usize = 64 * 1024;

/// Threads for what blocks, at most: `MIGRATE` makes payloads and looks up names there.
const BLOCKING_THREADS: usize = 4;

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

/// Works with this worker's scratch.
///
/// # Panics
/// On a thread that is no worker, and when called within itself.
pub(crate) fn with<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        let scratch = scratch.as_mut().expect("a worker's thread");
        // A handler that panicked, which ends its connection and no other, may
        // have left the buffers as they were just then.
        scratch.out.clear();
        scratch.input.resize(INPUT_BYTES, 0);
        work(scratch)
    })
}

/// Makes this thread a worker's.
pub(super) fn equip(server: &Arc<Server>, worker: usize) {
    SCRATCH.set(Some(Scratch {
        server: Arc::clone(server),
        session: server.store.session(),
        input: vec![0; INPUT_BYTES],
        out: Out::default(),
        ahead: Ahead::default(),
        worker,
        pool: server.workspaces.of(worker),
    }));
}

/// Runs a worker until the server ends: it serves clients who come through `doors`, and
/// those who speak another language through `others`.
pub(crate) fn run(
    server: Arc<Server>,
    worker: usize,
    doors: Doors,
    others: Vec<OtherDoor>,
) -> io::Result<()> {
    equip(&server, worker);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .event_interval(31)
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    runtime.block_on(async {
        server.loops.join();
        tokio::spawn(clock(Arc::clone(&server), worker));
        tokio::spawn(let_in(Arc::clone(&server), doors, others));
        tokio::spawn(rounds::end_rounds(Arc::clone(&server.persist)));
        tokio::spawn(evict_in_background(Arc::clone(&server)));
        while !server.ending.load(Relaxed) {
            let ended = server.shutdown.notified();
            if !server.ending.load(Relaxed) {
                ended.await;
            }
        }
        Ok(())
    })
    // Dropping the runtime drops every connection, whose replies have been
    // written.
}

/// Lets clients in, when all workers can serve them.
async fn let_in(server: Arc<Server>, doors: Doors, others: Vec<OtherDoor>) {
    server.all_equipped().await;
    accept::listen_elsewhere(&server, others);
    accept::listen(server, doors).await;
}

/// How long the sweeper waits for more of its allowance: the least that the
/// runtime's timer can.
const SOON: Duration = Duration::from_millis(1);

/// The worker's background work, `hz` times a second: sweeping, and on the
/// first worker what concerns all.
pub(super) async fn clock(server: Arc<Server>, worker: usize) {
    let pool = with(|scratch| scratch.pool.clone());
    let mut sweeper = Sweeper::new(worker, server.workers, pool);
    server.worker_equipped();
    let mut high_water = HighWater::default();
    let mut ticked = Instant::now();
    loop {
        let hz = server.config.number(Param::Hz).max(1) as u64;
        let every = Duration::from_millis(1000 / hz);
        tokio::time::sleep_until(ticked + every).await;
        ticked = Instant::now();
        let now = crate::outside::clock::unix_ms();
        if worker == 0 {
            server.pause.tick(now);
            server.rates.lock().tick(&server.stats);
            server.loops.tick();
            server.peak_memory.fetch_max(snug_store::memory::used(), Relaxed);
            server.store.families().thin_samples();
            disconnect_idle(&server, now);
            check_soft_limits(&server);
            server.refuse_waiters(worker);
        }
        if worker == 0 {
            with(|scratch| server.persist.tick(&mut scratch.session));
        }
        with(|scratch| sweeper.tick(&server, &scratch.session));
        while ticked.elapsed() < every {
            match with(|scratch| sweeper.turn(&server, &mut scratch.session)) {
                Next::Now => tokio::task::yield_now().await,
                Next::Soon => tokio::time::sleep(SOON).await,
                Next::Tick => break,
            }
        }
        high_water.give_back();
    }
}

/// Has subscribers and others that do not read looked at again: how long their
/// replies have waited counts too, and nothing else might wake them.
fn check_soft_limits(server: &Server) {
    let limits = server.config.output_limits();
    let softs = [limits.normal.soft, limits.pubsub.soft];
    let Some(soft) = softs.into_iter().filter(|&soft| soft > 0).min() else { return };
    for client in server.clients.read().values() {
        if client.figures.output_bytes.load(Relaxed) as u64 > soft {
            client.wake();
        }
    }
}

/// Ends connections that have been idle for longer than `timeout`.
fn disconnect_idle(server: &Server, now: u64) {
    let timeout = server.config.number(Param::Timeout) as u64 * 1000;
    if timeout == 0 {
        return;
    }
    for client in server.clients.read().values() {
        let figures = &client.figures;
        let subscribed = figures.channels.load(Relaxed)
            + figures.patterns.load(Relaxed)
            + figures.shard_channels.load(Relaxed)
            > 0;
        let waits = figures.blocked.load(Relaxed)
            || figures.replica.load(Relaxed)
            || figures.primary.load(Relaxed);
        if !subscribed && !waits && now.saturating_sub(figures.last_active.load(Relaxed)) > timeout
        {
            client.kill();
        }
    }
}
