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

/// Who wants a pause. Each ends only its own: `CLIENT UNPAUSE` lets no write into a
/// failover.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// `CLIENT PAUSE`.
    Client,
    /// `FAILOVER`.
    Failover,
    /// The end of the server, before which all is saved and replicated.
    End,
}

/// Whether and until when clients are paused.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// The end of the last of the pauses that run, and whether all of them are of writes.
    until_ms: AtomicU64,
    writes_only: AtomicBool,
    wanted: Mutex<[Wanted; 3]>,
    held: Mutex<Held>,
}

/// A pause that somebody wants; one that has ended ends at 0.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    until_ms: u64,
    of_all: bool,
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
    pub(crate) fn pause(&self, by: By, until_ms: u64, writes_only: bool) {
        let now = unix_ms();
        let mut wanted = self.wanted.lock();
        let own = &mut wanted[by as usize];
        let runs = own.until_ms > now;
        own.of_all = !writes_only || runs && own.of_all;
        own.until_ms = own.until_ms.max(until_ms);
        self.take_effect(&mut wanted, now);
    }

    /// Ends a pause, if it runs.
    pub(crate) fn unpause(&self, by: By) {
        let mut wanted = self.wanted.lock();
        wanted[by as usize] = Wanted::default();
        self.take_effect(&mut wanted, unix_ms());
        drop(wanted);
        self.wake();
    }

    /// Ends the pauses whose time is over. Called by the clock.
    pub(crate) fn tick(&self, now: u64) {
        if self.until_ms.load(Relaxed) == 0 {
            return;
        }
        let mut wanted = self.wanted.lock();
        if wanted.iter().any(|one| one.until_ms != 0 && one.until_ms <= now) {
            self.take_effect(&mut wanted, now);
            drop(wanted);
            self.wake();
        }
    }

    fn take_effect(&self, wanted: &mut [Wanted; 3], now: u64) {
        for one in wanted.iter_mut().filter(|one| one.until_ms <= now) {
            *one = Wanted::default();
        }
        self.writes_only.store(!wanted.iter().any(|one| one.of_all), Relaxed);
        self.until_ms.store(wanted.iter().map(|one| one.until_ms).max().unwrap_or(0), Relaxed);
    }

    /// Wakes who waits, in the order in which they came: whom another pause concerns
    /// waits anew.
    fn wake(&self) {
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
}
