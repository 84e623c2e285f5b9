//! What clients take, each and all together: bytes of requests that are not whole, of
//! replies that wait, of transactions, of keys watched and channels subscribed to.
//!
//! A client's worker counts it anew when a turn of its connection has changed that, and
//! adds the difference to the sum; so the sum is exact but for turns that go on. A client
//! that was told to go counts for nothing from then on.

use crate::follow::clients::Shared;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// The sum over all clients.
#[derive(Debug, Default)]
pub(crate) struct ClientMemory(AtomicUsize);

impl ClientMemory {
    /// A client takes so many bytes now.
    pub(crate) fn count(&self, client: &Shared, bytes: usize) {
        self.put(client, if client.is_killed() { 0 } else { bytes });
    }

    /// A client is gone, or as good as gone; what it took until now.
    pub(crate) fn forget(&self, client: &Shared) -> usize {
        self.put(client, 0)
    }

    fn put(&self, client: &Shared, bytes: usize) -> usize {
        let before = client.figures.memory.swap(bytes, AcqRel);
        // One addition, which wraps for a difference below zero.
        self.0.fetch_add(bytes.wrapping_sub(before), Relaxed);
        before
    }

    /// What all take together.
    pub(crate) fn sum(&self) -> usize {
        self.0.load(Relaxed)
    }
}
