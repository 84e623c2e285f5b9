//! `CLIENT PAUSE`: a time until which clients' requests are left unread.

use crate::client::Client;
use crate::server::{Server, unix_ms};
use parking_lot::Mutex;
use snug_store::{Batch, Expired, Session};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Waker;

/// Whether and until when clients are paused.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until_ms: AtomicU64,
    /// Only what writes waits; reads go on.
    writes_only: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
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

    /// Ends the pause.
    pub(crate) fn unpause(&self) {
        self.until_ms.store(0, Relaxed);
        self.wake();
    }

    /// Whether writes are paused at this time.
    #[inline]
    pub(crate) fn writes_paused(&self, now: u64) -> bool {
        self.until_ms.load(Relaxed) > now
    }

    /// Wakes the waiting if the pause is over. Called by the clock.
    pub(crate) fn tick(&self, now: u64) {
        let until = self.until_ms.load(Relaxed);
        if until != 0 && until <= now {
            self.unpause();
        }
    }

    fn wake(&self) {
        std::mem::take(&mut *self.waiting.lock()).into_iter().for_each(Waker::wake);
    }
}

impl Server {
    /// Begins a batch of work for clients. While writes are paused nothing changes,
    /// not even for a key whose time has come: it is hidden and stays.
    pub(crate) fn enter<'s>(&self, session: &'s mut Session, now: u64) -> Batch<'s> {
        let batch = session.enter(now);
        if self.pause.writes_paused(now) {
            batch.expired_keys(Expired::Hidden);
        }
        batch
    }

    /// Whether this client's requests are to wait. (A pause of writes only is
    /// looked at when a command is known to write.)
    #[inline]
    pub(crate) fn is_paused(&self, client: &Client) -> bool {
        let pause = &self.pause;
        let until = pause.until_ms.load(Relaxed);
        until != 0
            && until > unix_ms()
            && (!pause.writes_only.load(Relaxed) || client.waits_to_write)
    }

    /// Has this client looked at again when the pause is over.
    pub(crate) fn wait_for_unpause(&self, waker: &Waker) {
        self.pause.waiting.lock().push(waker.clone());
    }
}
