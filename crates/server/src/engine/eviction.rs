//! `maxmemory`: room is made before each command, as Redis does, and memory is
//! watched so that packing can work ahead of need.
//!
//! ```text
//!  used_memory / maxmemory
//!    0 ......... 75 % ............ 95 % .. 100 % ....
//!                 |  packing works   |       |  each command evicts until there is
//!                 |  ahead: values   |       |  room, for 500 us at most; what is left
//!                 |  cool faster,    |       |  then, a task of the worker's evicts in
//!                 |  more CPU time   |       |  slices of as long
//! ```
//!
//! With no limit this costs a command one relaxed load and a branch, below the
//! limit the sum of a few counters. What is evicted is deleted by an op like any
//! other: `WATCH`, waiting clients and keyspace events hear of it.
//!
//! Several workers evict at once, each until the limit holds, and look after each
//! key: what they evict too much is at most one key each. No buffer is left out of
//! what counts: Redis leaves out those of replicas and of the append-only file,
//! and there are none.

use crate::config::{Kind, Param};
use crate::engine::server::Server;
use crate::follow::pubsub::OnBehalf;
use crate::measure::stats::Stat;
use crate::outside::clock::Instant;
use crate::outside::clock::unix_ms;
use crate::work::reclaim::reclaim;
use snug_store::{Batch, Eviction, Lying, Order, memory};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;

/// Keys evicted between two looks at the clock.
const KEYS_AT_ONCE: usize = 16;

/// Shares of `maxmemory` from which on packing works ahead, and from which on as
/// hard as it can.
const PACK_AHEAD_FROM: f64 = 0.75;
const PACK_HARDEST_FROM: f64 = 0.95;

/// The same where a disk tier makes room. It has memory stay above the first of the others
/// for good, which is no reason to hurry; from here on it takes what is not packed.
const PACK_AHEAD_OF_TIER_FROM: f64 = 0.97;

/// What the limit may be exceeded by while a dictionary is trained: one in so many of
/// its bytes. Where the limit is large, training need not wait.
const BEYOND_ONE_IN: usize = 128;

/// What the limit may be exceeded by while the disk tier makes room, for what was read from
/// disk and what waiting clients have sent: one in so many of its bytes, and some megabytes.
/// Beyond it keys are evicted.
const AHEAD_OF_TIER_ONE_IN: usize = 32;
const AHEAD_OF_TIER: usize = 4 << 20;

/// What a worker reserves to pack strings and blocks: a workspace of some 1 MB for
/// either, made for the first of them.
const PACKING_BYTES: usize = 2 << 20;

/// Whether there is memory for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The limit is kept.
    Enough,
    /// It is not yet, but there is more to evict: the command may go ahead.
    Soon,
    /// It is not yet, but values are going to disk: who needs memory waits.
    Later,
    /// It is not, and nothing may be evicted.
    None,
}

impl Room {
    /// Whether a command may go ahead that needs memory.
    #[inline]
    pub(crate) fn is_there(self) -> bool {
        matches!(self, Self::Enough | Self::Soon)
    }
}

/// What is known of the limit being exceeded.
#[derive(Debug, Default)]
pub(crate) struct Exceeded {
    /// Since when, in microseconds since the server started; 0 for not now.
    since_us: AtomicU64,
    /// For how long it was before that.
    total_us: AtomicU64,
    /// Somebody is to evict in the background.
    pub(crate) wanted: Notify,
}

impl Exceeded {
    /// Microseconds over all, and those since the limit was last kept.
    pub(crate) fn times_us(&self, now_us: u64) -> (u64, u64) {
        let current = match self.since_us.load(Relaxed) {
            0 => 0,
            since => now_us.saturating_sub(since),
        };
        (self.total_us.load(Relaxed) + current, current)
    }

    /// Forgets the past.
    pub(crate) fn reset(&self) {
        self.since_us.store(0, Relaxed);
        self.total_us.store(0, Relaxed);
    }

    fn begin(&self, now_us: u64) {
        // Whoever comes second finds it begun.
        let _ = self.since_us.compare_exchange(0, now_us.max(1), Relaxed, Relaxed);
    }

    fn end(&self, now_us: u64) {
        let since = self.since_us.swap(0, Relaxed);
        if since != 0 {
            self.total_us.fetch_add(now_us.saturating_sub(since), Relaxed);
        }
    }
}

/// `maxmemory-policy` as the store takes it; `None` for `noeviction`.
fn policy(server: &Server) -> Option<Eviction> {
    let Kind::Enum(words) = Param::MaxMemoryPolicy.declaration().kind else { return None };
    let word = words.get(server.config.number(Param::MaxMemoryPolicy) as usize)?;
    let (keys, order) = word.split_once('-')?;
    let order = match order {
        "lru" => Order::Recency,
        "lfu" => Order::Frequency,
        "ttl" => Order::Expiry,
        _ => Order::Random,
    };
    let samples = server.config.number(Param::MaxmemorySamples) as usize;
    Some(Eviction { order, volatile: keys == "volatile", samples, lying: Lying::Anywhere })
}

/// For how long one command may evict. Redis's scale of `maxmemory-eviction-tenacity`:
/// steps of 50 microseconds up to 10, each above 15 % longer, 100 without end.
fn budget(tenacity: i64) -> Duration {
    match tenacity {
        ..=10 => Duration::from_micros(50 * tenacity.max(0) as u64),
        11..100 => Duration::from_micros((500.0 * 1.15f64.powi(tenacity as i32 - 10)) as u64),
        _ => Duration::MAX,
    }
}

impl Server {
    /// Whether there is room for so many bytes to learn with.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let limit = self.config.number(Param::MaxMemory) as usize;
        limit == 0 || memory::used() + bytes <= limit + limit / BEYOND_ONE_IN
    }
    /// Whether `maxmemory` leaves room for the workspaces of all workers beside what is
    /// to be packed: not if they would take more than half of it.
    pub(crate) fn has_room_to_pack(&self) -> bool {
        let limit = self.config.number(Param::MaxMemory) as usize;
        limit == 0 || self.workers * PACKING_BYTES <= limit / 2
    }

    /// Whether workspaces are to be made before there is anything to pack: a quarter of
    /// `maxmemory` is used. Made at the limit, they would exceed it.
    pub(crate) fn is_to_pack_soon(&self) -> bool {
        let limit = self.config.number(Param::MaxMemory) as usize;
        limit > 0 && self.has_room_to_pack() && memory::used() > limit / 4
    }

    /// What workers will yet reserve to pack with, which they do as soon as their
    /// sweepers find a quarter of `maxmemory` used: writes must not take it before.
    #[inline]
    fn packing_to_come(&self) -> usize {
        let to_come = self.workers.saturating_sub(self.ready_to_pack.load(Relaxed));
        let packs = to_come > 0 && self.config.is_on(Param::Pack) && self.has_room_to_pack();
        if packs { to_come * PACKING_BYTES } else { 0 }
    }

    /// Whether the policy lets any key go.
    pub(crate) fn evicts(&self) -> bool {
        policy(self).is_some()
    }

    /// Microseconds since the server started.
    pub(crate) fn uptime_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Memory that evicting cannot bring back, and that is bounded by other means: what waits
    /// for replicas that are behind (`client-output-buffer-limit replica`) or for the
    /// append-only file, and what a snapshot keeps. Keys that go while that grows would only
    /// add to it.
    pub(crate) fn uncounted_memory(&self) -> usize {
        let stream = self.peers.for_replicas.load(Relaxed) as usize;
        // They share what neither has dealt with.
        stream.max(self.journal.waited()) + self.store.snapshot_bytes()
    }

    /// The memory that `maxmemory` is about.
    pub(crate) fn counted_memory(&self) -> usize {
        memory::used().saturating_sub(self.uncounted_memory())
    }

    /// Makes room if `maxmemory` is exceeded, by evicting what the policy lets go.
    /// To be called between commands, with no slot held.
    #[inline]
    pub(crate) fn make_room(&self, store: &Batch<'_>) -> Room {
        let limit = self.config.number(Param::MaxMemory) as usize;
        if limit == 0 {
            return Room::Enough;
        }
        let for_writes = limit.saturating_sub(self.learning.reserved() + self.packing_to_come());
        if memory::used() <= for_writes || self.counted_memory() <= for_writes {
            if self.exceeded.since_us.load(Relaxed) != 0 {
                self.exceeded.end(self.uptime_us());
            }
            return Room::Enough;
        }
        self.evict(store, limit)
    }

    /// Whether memory is above the limit and the last attempt to make room found none.
    /// Evicts nothing, so it may be called with slots held.
    pub(crate) fn lacks_room(&self) -> bool {
        let limit = self.config.number(Param::MaxMemory) as usize;
        limit != 0 && self.counted_memory() > limit && self.learning.is_refusing()
    }

    /// Whether nothing is to be evicted now, whatever memory there is.
    fn spares_all(&self, store: &Batch<'_>) -> bool {
        // A replica's primary evicts.
        let is_replica =
            self.peers.is_replica() && self.config.is_on(Param::ReplicaIgnoreMaxmemory);
        // What it reads is not to go in the middle of a script.
        let waits = self.aside.touches_everything();
        is_replica || waits || self.pause.writes_paused(store.now())
    }

    /// Evicts keys whose values are on disk, if the disk has no room for those that are to
    /// leave memory; whether there is more to do. To be called as [`make_room`](Self::make_room).
    pub(crate) fn make_room_on_disk(&self, store: &Batch<'_>) -> bool {
        let Some(most) = self.tiering.live_most() else { return false };
        let is_enough =
            || self.store.tier().engine().is_none_or(|engine| engine.figures().live <= most);
        let how = policy(self).filter(|_| !self.spares_all(store));
        let _nobody = OnBehalf::nobody();
        let began = Instant::now();
        let budget = budget(self.config.number(Param::MaxmemoryEvictionTenacity));
        while let Some(how) = how
            && !is_enough()
        {
            for _ in 0..KEYS_AT_ONCE {
                let Some((_, value)) = store.evict(&Eviction { lying: Lying::OnDisk, ..how })
                else {
                    self.tiering.gave_up();
                    return false;
                };
                reclaim(value);
                self.stats.add(Stat::evicted_keys, 1);
            }
            if began.elapsed() > budget {
                return true;
            }
        }
        self.tiering.gave_up();
        false
    }

    /// Whether memory is further beyond the limit than the tier may be behind.
    fn is_ahead_of_tier(&self, limit: usize) -> bool {
        self.counted_memory() > limit + limit / AHEAD_OF_TIER_ONE_IN + AHEAD_OF_TIER
    }

    /// Whether what is read from disk could not leave memory again, which is beyond its limit.
    pub(crate) fn cannot_hold_more(&self) -> bool {
        let limit = self.config.number(Param::MaxMemory) as usize;
        limit > 0 && !self.tiering.takes() && self.is_ahead_of_tier(limit)
    }

    #[cold]
    fn evict(&self, store: &Batch<'_>, limit: usize) -> Room {
        if self.spares_all(store) {
            return Room::Enough;
        }
        let reserved = self.learning.reserved_at(self.uptime_us());
        let for_writes = limit.saturating_sub(reserved + self.packing_to_come());
        let found = match policy(self) {
            _ if self.counted_memory() <= for_writes => Room::Enough,
            _ if self.tiering.makes_room() && !self.is_ahead_of_tier(limit) => Room::Later,
            Some(how) => self.evict_by(&how, store, for_writes),
            None => Room::None,
        };
        let is_kept = self.counted_memory() <= limit;
        let room = match found {
            // What is reserved is no reason to begin to refuse writes.
            Room::None if is_kept && !self.learning.is_refusing() => Room::Enough,
            found => found,
        };
        self.learning.set_refusing(room == Room::None);
        if is_kept {
            self.exceeded.end(self.uptime_us());
        } else {
            self.exceeded.begin(self.uptime_us());
        }
        room
    }

    fn evict_by(&self, how: &Eviction, store: &Batch<'_>, limit: usize) -> Room {
        // Whose command this is does not matter: what is published on the way
        // must not wait for its reply, for there may be none.
        let _nobody = OnBehalf::nobody();
        let budget = budget(self.config.number(Param::MaxmemoryEvictionTenacity));
        let lazy = self.config.is_on(Param::LazyfreeLazyEviction);
        let began = Instant::now();
        let mut evicted = 0;
        let room = loop {
            // What is on disk has hardly any memory to give.
            let evicted_value = match self.tiering.is_on() {
                true => store.evict(&Eviction { lying: Lying::InMemory, ..*how }),
                false => None,
            };
            let evicted_value = evicted_value.or_else(|| store.evict(how));
            let Some((_, value)) = evicted_value else { break Room::None };
            if lazy {
                reclaim(value);
            } else {
                drop(value);
            }
            self.stats.add(Stat::evicted_keys, 1);
            evicted += 1;
            if self.counted_memory() <= limit {
                break Room::Enough;
            }
            if evicted % KEYS_AT_ONCE == 0 && began.elapsed() > budget {
                self.exceeded.wanted.notify_one();
                break Room::Soon;
            }
        };
        let threshold = self.config.number(Param::LatencyMonitorThreshold) as u64;
        let took = began.elapsed().as_millis() as u64;
        if threshold > 0 && took >= threshold {
            self.monitor.events.record("eviction-cycle", unix_ms() / 1000, took);
        }
        room
    }

    /// What `maxmemory` leaves for values beside what is reserved; none without a limit.
    pub(crate) fn memory_for_values(&self) -> Option<usize> {
        let limit = self.config.number(Param::MaxMemory) as usize;
        let reserved = self.learning.reserved() + self.packing_to_come();
        (limit > 0).then(|| limit.saturating_sub(reserved))
    }

    /// How short memory is: 0 while packing may take its time, 1 when it is to
    /// work as hard as it can.
    pub(crate) fn pressure(&self) -> f64 {
        let limit = self.config.number(Param::MaxMemory) as f64;
        if limit <= 0.0 {
            return 0.0;
        }
        let share = self.counted_memory() as f64 / limit;
        let (from, to) = match self.tiering.makes_room() {
            true => (PACK_AHEAD_OF_TIER_FROM, 1.0),
            false => (PACK_AHEAD_FROM, PACK_HARDEST_FROM),
        };
        ((share - from) / (to - from)).clamp(0.0, 1.0)
    }

    /// What follows from the parameters of eviction, at the start and whenever
    /// one of them is set.
    pub(crate) fn eviction_configured(&self) {
        let by_frequency = policy(self).is_some_and(|how| how.order == Order::Frequency);
        let factor = self.config.number(Param::LfuLogFactor) as u32;
        self.store.count_reads(by_frequency.then_some(factor));
        let limit = self.config.number(Param::MaxMemory) as usize;
        if limit == 0 {
            self.exceeded.end(self.uptime_us());
        } else if self.counted_memory() > limit {
            tracing::warn!(
                used = self.counted_memory(),
                limit,
                "more memory is used than maxmemory allows: keys will be evicted, or writes refused"
            );
            self.exceeded.wanted.notify_one();
        }
        self.learning.set_refusing(false);
        self.store.families().limit_samples((limit > 0).then_some(limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenacity_is_redis_scale() {
        let micros = |tenacity| budget(tenacity).as_micros();
        assert_eq!((micros(0), micros(1), micros(10), micros(11)), (0, 50, 500, 575));
        assert!((120_000_000..150_000_000).contains(&micros(99)));
        assert_eq!(budget(100), Duration::MAX);
    }

    #[test]
    fn time_over_the_limit_is_counted_once() {
        let exceeded = Exceeded::default();
        exceeded.begin(100);
        exceeded.begin(200);
        assert_eq!(exceeded.times_us(350), (250, 250));
        exceeded.end(400);
        exceeded.end(500);
        assert_eq!(exceeded.times_us(900), (300, 0));
        exceeded.begin(1000);
        assert_eq!(exceeded.times_us(1100), (400, 100));
        exceeded.reset();
        assert_eq!(exceeded.times_us(1200), (0, 0));
    }
}
