//! Room for what Snug learns from: samples of values, and the memory that a
//! dictionary's training takes, a few MiB at a time, count as all memory does, so
//! under `maxmemory` they have to fit as well.
//!
//! A training begins when what it takes at most fits below the limit, or within 1/128
//! above it. So that writes do not take what comes free before it does, as much is
//! reserved:
//!
//! ```text
//!  the policy ...          while it waits ...         while it runs ...
//!  evicts, and finds keys  commands evict as much     they evict to the limit as ever
//!  evicts nothing, or      writes are refused, once   so they are
//!  finds none              some were for want of
//!                          memory: not for this alone
//! ```
//!
//! Neither lasts longer than [`RESERVED_FOR`]. A training that has waited as long is
//! given up, to be asked for again when another value is packed; nothing is reserved
//! for [`PAUSE`] after that. A training that only betters what there is keeps nobody
//! waiting: it begins at once, where there is room for two, or not at all.

use crate::config::Param;
use crate::engine::server::Server;
use snug_store::memory;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// What the limit may be exceeded by while a dictionary is trained: one in so many of
/// its bytes. Where the limit is large, training need not wait.
const BEYOND_ONE_IN: usize = 128;

/// What of the limit may be reserved: one in so many of its bytes.
const RESERVED_ONE_IN: usize = 4;

/// For how long a training that waits, and then one that runs, keeps writes from its
/// memory.
const RESERVED_FOR: Duration = Duration::from_secs(5);

/// For how long none does after one was given up.
const PAUSE: Duration = Duration::from_mins(1);

/// How often the trainer looks whether there is room.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What writes know of the training that wants memory; there is one at a time.
#[derive(Debug, Default)]
pub(crate) struct Learning {
    /// Bytes of the limit that are not for writes, and until when, in microseconds
    /// since the server started. Only the trainer says so.
    reserved: AtomicUsize,
    until_us: AtomicU64,
    /// Nothing could be evicted when the limit was last found exceeded: writes were
    /// refused.
    refusing: AtomicBool,
}

impl Learning {
    /// Bytes of the limit that are not for writes, perhaps still.
    #[inline]
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Relaxed)
    }

    /// The same, now.
    pub(crate) fn reserved_at(&self, now_us: u64) -> usize {
        if now_us < self.until_us.load(Relaxed) { self.reserved() } else { 0 }
    }

    /// Whether writes are refused for want of memory.
    pub(crate) fn is_refusing(&self) -> bool {
        self.refusing.load(Relaxed)
    }

    /// Writes were refused for want of memory, or are not any more.
    pub(crate) fn set_refusing(&self, refusing: bool) {
        if self.is_refusing() != refusing {
            self.refusing.store(refusing, Relaxed);
        }
    }

    fn reserve(&self, bytes: usize, now_us: u64) {
        self.until_us.store(now_us + RESERVED_FOR.as_micros() as u64, Relaxed);
        self.reserved.store(bytes, Relaxed);
    }
}

impl Server {
    /// Whether there is room for so many bytes to learn with.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let limit = self.config.number(Param::MaxMemory) as usize;
        limit == 0 || memory::used() + bytes <= limit + limit / BEYOND_ONE_IN
    }
}

/// The trainer's way to the memory for a training.
#[derive(Debug)]
pub(crate) struct WayToRoom {
    server: Weak<Server>,
    /// Until when nothing is reserved.
    pause_until: Option<Instant>,
}

/// A training runs. Its end gives back what is reserved for it.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Arc<Server>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.learning.reserved.store(0, Relaxed);
    }
}

impl WayToRoom {
    pub(crate) fn new(server: Weak<Server>) -> Self {
        Self { server, pause_until: None }
    }

    /// Waits until there is room for as many bytes as `wanted` says at each look, but
    /// not if it `may_fail`. `Err` if there is none: with the server, or with nothing if
    /// that ends.
    pub(crate) fn wait(
        &mut self,
        may_fail: bool,
        wanted: impl Fn() -> usize,
    ) -> Result<Running, Option<Arc<Server>>> {
        let began = Instant::now();
        let reserves = !may_fail && self.pause_until.is_none_or(|until| began >= until);
        loop {
            let server = Weak::upgrade(&self.server).ok_or(None)?;
            if server.ending.load(Relaxed) {
                return Err(None);
            }
            let bytes = wanted();
            let limit = server.config.number(Param::MaxMemory) as usize;
            let (now_us, reserved) = (server.uptime_us(), bytes.min(limit / RESERVED_ONE_IN));
            if may_fail && !server.has_room(2 * bytes) {
                return Err(Some(server));
            }
            if server.has_room(bytes) {
                // Keys make room for it as it comes to need it.
                let evicts = server.evicts() && !server.learning.is_refusing();
                server.learning.reserve(if evicts { 0 } else { reserved }, now_us);
                return Ok(Running(server));
            }
            if began.elapsed() >= RESERVED_FOR || bytes > limit {
                server.learning.reserve(0, now_us);
                if reserves {
                    self.pause_until = Some(Instant::now() + PAUSE);
                }
                return Err(Some(server));
            }
            if reserves && server.learning.reserved_at(now_us) != reserved {
                server.learning.reserve(reserved, now_us);
            }
            drop(server);
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_for_a_while() {
        let learning = Learning::default();
        assert_eq!(learning.reserved_at(0), 0);
        learning.reserve(500, 10);
        let until = 10 + RESERVED_FOR.as_micros() as u64;
        assert_eq!((learning.reserved_at(10), learning.reserved_at(until - 1)), (500, 500));
        assert_eq!((learning.reserved_at(until), learning.reserved()), (0, 500));
        learning.reserve(0, until);
        assert_eq!((learning.reserved_at(until), learning.reserved()), (0, 0));
    }
}
