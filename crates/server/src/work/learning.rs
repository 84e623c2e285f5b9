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
//! Once it runs, nothing is evicted for what it may still take, and no write is the first to
//! be refused. Where writes have its room before it comes to need it, memory is above the
//! limit by as much, until commands evict or it ends.
//!
//! Neither lasts longer than [`RESERVED_FOR`]. A training that has waited as long is
//! given up, to be asked for again when another value is packed; nothing is reserved
//! for a minute after that. A training that only betters what there is keeps nobody
//! waiting: it begins at once, where there is room for two, or not at all. Who waits is
//! `background/room.rs`.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// For how long a training that waits, and then one that runs, keeps writes from its
/// memory.
pub(crate) const RESERVED_FOR: Duration = Duration::from_secs(5);

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

    /// Reserves so many bytes from now on, in place of what was.
    pub(crate) fn reserve(&self, bytes: usize, now_us: u64) {
        self.until_us.store(now_us + RESERVED_FOR.as_micros() as u64, Relaxed);
        self.reserved.store(bytes, Relaxed);
    }

    /// A training is over: nothing is reserved any more.
    pub(crate) fn give_back(&self) {
        self.reserved.store(0, Relaxed);
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
