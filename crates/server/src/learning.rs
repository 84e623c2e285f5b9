//! Room for what Snug learns from: samples of values, and the memory that a
//! dictionary's training takes, a few MiB at a time, count as all memory does, so
//! under `maxmemory` they have to fit as well.
//!
//! ```text
//!  the policy ...          a training begins when what it takes at most ...
//!  evicts, and finds keys  (at once: keys make room for it)
//!  evicts nothing, or      fits below the limit, or within 1/128 above it
//!  finds none
//! ```
//!
//! Where nothing can be evicted writes take whatever comes free, and a training
//! would wait for as long as they come. So once a write was refused, what comes free
//! is left to the training that waits, for [`RESERVED_FOR`] at most, and to the one
//! that runs until it ends: writes are refused meanwhile, though less than the limit
//! is used.

use crate::config::Param;
use crate::server::Server;
use snug_store::memory;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// What the limit may be exceeded by while a dictionary is trained: one in so many of
/// its bytes. Where the limit is large, training need not wait.
const BEYOND_ONE_IN: usize = 128;

/// For how long a training that waits for memory keeps writes from taking it.
const RESERVED_FOR: Duration = Duration::from_secs(5);

/// The training that wants memory; there is one at a time.
#[derive(Debug, Default)]
pub(crate) struct Learning {
    /// Nothing could be evicted when the limit was last found exceeded.
    refusing: AtomicBool,
    /// What the training that waits takes, 0 for none, and since when it waits, in
    /// microseconds since the server started.
    waiting: AtomicUsize,
    waiting_since_us: AtomicU64,
    /// What of the limit writes leave to it, or to the one that runs.
    reserved: AtomicUsize,
}

impl Learning {
    /// Bytes of the limit that are not for writes.
    #[inline]
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Relaxed)
    }

    /// The limit is exceeded and nothing can be evicted: writes are refused.
    pub(crate) fn nothing_evicted(&self, now_us: u64) {
        self.refusing.store(true, Relaxed);
        let bytes = self.waiting.load(Relaxed);
        if bytes > 0 && self.may_reserve(now_us) {
            self.reserved.store(bytes, Relaxed);
        }
    }

    /// Keys were evicted.
    pub(crate) fn keys_evicted(&self) {
        self.refusing.store(false, Relaxed);
    }

    /// A training waits for so much memory. What writes have left to it is theirs
    /// again when it has waited for long.
    fn waits(&self, bytes: usize, now_us: u64) {
        if self.waiting.swap(bytes, Relaxed) == 0 {
            self.waiting_since_us.store(now_us, Relaxed);
        }
        if !self.may_reserve(now_us) {
            self.reserved.store(0, Relaxed);
        }
    }

    /// It runs, with so much of the limit left to it.
    fn runs(&self, reserved: usize) {
        self.waiting.store(0, Relaxed);
        self.reserved.store(reserved, Relaxed);
    }

    fn may_reserve(&self, now_us: u64) -> bool {
        let since = self.waiting_since_us.load(Relaxed);
        now_us.saturating_sub(since) < RESERVED_FOR.as_micros() as u64
    }
}

impl Server {
    /// Whether a training that takes so many bytes at most may begin now. If so, it
    /// has, and [`Server::training_ends`] is to be called; if not, it waits, and this
    /// is to be called again soon.
    pub(crate) fn training_begins(&self, bytes: usize) -> bool {
        let evicts = self.evicts() && !self.learning.refusing.load(Relaxed);
        let begins = evicts || self.has_room(bytes);
        if begins {
            self.learning.runs(if evicts { 0 } else { bytes });
        } else {
            self.learning.waits(bytes, self.uptime_us());
        }
        begins
    }

    pub(crate) fn training_ends(&self) {
        self.learning.runs(0);
    }

    /// Whether there is room for so many bytes to learn with.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let limit = self.config.number(Param::MaxMemory) as usize;
        limit == 0 || memory::used() + bytes <= limit + limit / BEYOND_ONE_IN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_free_is_reserved_for_training_once_a_write_was_refused() {
        let learning = Learning::default();
        learning.nothing_evicted(1);
        assert_eq!(learning.reserved(), 0, "nothing is to be learnt");
        learning.waits(500, 10);
        assert_eq!(learning.reserved(), 0, "nobody was refused since");
        learning.nothing_evicted(20);
        learning.waits(500, 30);
        assert_eq!(learning.reserved(), 500);
        let late = 10 + RESERVED_FOR.as_micros() as u64;
        learning.waits(500, late);
        learning.nothing_evicted(late);
        assert_eq!(learning.reserved(), 0, "for too long already");
        learning.runs(500);
        learning.nothing_evicted(late);
        assert_eq!(learning.reserved(), 500, "it is about to take it");
        learning.runs(0);
        assert_eq!(learning.reserved(), 0);
        learning.waits(700, late);
        learning.nothing_evicted(late);
        assert_eq!(learning.reserved(), 700, "another one");
    }
}
