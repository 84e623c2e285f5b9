//! `CLIENT PAUSE`: a time until which clients' commands wait.
//!
//! A command is read and checked as ever: what is refused is told at once. One
//! that the pause concerns is then held back, and its client counts as blocked
//! until the pause ends or the client goes. Its further requests are read ahead a
//! little and not looked at.

use crate::follow::clients::Shared;
use crate::outside::clock::unix_ms;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Whether and until when clients are paused.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until_ms: AtomicU64,
    /// Only what writes waits; reads go on.
    writes_only: AtomicBool,
    held: Mutex<Held>,
}

/// Clients whose command is held back, by ID, each with the place in which it came.
#[derive(Debug, Default)]
struct Held {
    clients: HashMap<u64, (u64, Arc<Shared>)>,
    came: u64,
}

impl Pause {
    /// Pauses until a Unix time in milliseconds. A pause of everything is not
    /// weakened by a later one of writes, nor shortened.
    pub(crate) fn pause(&self, until_ms: u64, writes_only: bool) {
        let running = self.until_ms.load(Relaxed) > unix_ms();
        let all = running && !self.writes_only.load(Relaxed);
        self.writes_only.store(writes_only && !all, Relaxed);
        self.until_ms.fetch_max(until_ms, Relaxed);
    }

    /// Ends the pause. Who waited is woken in the order in which they came.
    pub(crate) fn unpause(&self) {
        self.until_ms.store(0, Relaxed);
        let clients = std::mem::take(&mut self.held.lock().clients);
        let mut in_order: Vec<_> = clients.into_values().collect();
        in_order.sort_unstable_by_key(|(place, _)| *place);
        for (_, client) in in_order {
            client.figures.blocked.store(false, Relaxed);
            client.wake();
        }
    }

    /// Whether writes are paused at this time.
    #[inline]
    pub(crate) fn writes_paused(&self, now: u64) -> bool {
        self.until_ms.load(Relaxed) > now
    }

    /// Whether a pause is of all commands and not only of those that write.
    pub(crate) fn is_of_all(&self) -> bool {
        !self.writes_only.load(Relaxed)
    }

    /// Has a client wait for the end of the pause; false if that has come. The
    /// lock lets no end of it pass between the look and the entry.
    pub(crate) fn hold(&self, client: &Arc<Shared>) -> bool {
        let mut held = self.held.lock();
        let paused = self.writes_paused(unix_ms());
        if paused {
            client.figures.blocked.store(true, Relaxed);
            held.came += 1;
            let place = held.came;
            held.clients.insert(client.id, (place, Arc::clone(client)));
        }
        paused
    }

    /// Whether a client that was held back still is.
    pub(crate) fn holds(&self, client: u64) -> bool {
        self.held.lock().clients.contains_key(&client)
    }

    /// A client that is held back goes.
    pub(crate) fn leave(&self, client: u64) {
        self.held.lock().clients.remove(&client);
    }

    /// Clients that are held back.
    pub(crate) fn clients(&self) -> usize {
        self.held.lock().clients.len()
    }

    /// Ends the pause if its time is over. Called by the clock.
    pub(crate) fn tick(&self, now: u64) {
        let until = self.until_ms.load(Relaxed);
        if until != 0 && until <= now {
            self.unpause();
        }
    }
}
