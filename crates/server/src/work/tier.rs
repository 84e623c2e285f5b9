//! The disk tier as the server uses it: what is asked of its threads, and how it fares.
//!
//! ```text
//!  a command that meets values on disk ──> bring ──> readers: Session::bring ──> told
//!  SNUG TIER key                       ──> leave ──> the tierer ──> told
//!  a command that needs memory         ──> waits until the tierer has moved values
//! ```
//!
//! The threads are in `background/tierer.rs`. Whoever asks is a connection, which executes
//! nothing until it is told; its worker goes on with others. So what waits is bounded by
//! the connections, each of which has one command under way.

use crate::outside::clock::Instant;
use parking_lot::{Condvar, Mutex};
use snug_store::Lost;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// A value that is to be brought back, or to go.
#[derive(Debug)]
pub(crate) struct Request<T> {
    pub(crate) db: usize,
    pub(crate) key: Vec<u8>,
    asked: Instant,
    told: oneshot::Sender<T>,
}

impl<T> Request<T> {
    /// Tells whoever asked what came of it.
    pub(crate) fn done(self, came: T) {
        // A client that has gone does not wait.
        let _ = self.told.send(came);
    }

    /// For how long it has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.asked.elapsed()
    }
}

/// Requests that wait for a thread.
#[derive(Debug)]
pub(crate) struct Requests<T> {
    waiting: Mutex<VecDeque<Request<T>>>,
    come: Condvar,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), come: Condvar::new() }
    }
}

impl<T> Requests<T> {
    fn ask(&self, db: usize, key: Vec<u8>) -> oneshot::Receiver<T> {
        let (told, hears) = oneshot::channel();
        self.waiting.lock().push_back(Request { db, key, asked: Instant::now(), told });
        self.come.notify_one();
        hears
    }

    /// The next request; none if there is none for so long.
    pub(crate) fn next(&self, patience: Duration) -> Option<Request<T>> {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            self.come.wait_for(&mut waiting, patience);
        }
        waiting.pop_front()
    }
}

/// How writing to the tier goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    #[default]
    Well,
    /// `tier-max-bytes` is reached, or the disk is full.
    Full,
    /// Writing or syncing failed.
    Failing,
}

impl Health {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Full => "full",
            Self::Failing => "failing",
        }
    }
}

/// The disk tier's threads, as others know them.
#[derive(Debug, Default)]
pub(crate) struct Tiering {
    /// Its threads run.
    is_on: AtomicBool,
    pub(crate) to_bring: Requests<Result<(), Lost>>,
    pub(crate) to_leave: Requests<bool>,
    health: Mutex<(Health, String)>,
    is_well: AtomicBool,
    /// It makes no room although it is well: all that is in memory is in use, or the disk
    /// takes long.
    is_helpless: AtomicBool,
    /// Bytes on disk down to which keys are to be evicted whose values are there.
    live_most: AtomicU64,
    /// Values have left memory, or will not.
    pub(crate) moved: Notify,
    /// Commands that have waited for room.
    pub(crate) room_waits: AtomicU64,
    /// Writes that failed.
    pub(crate) write_errors: AtomicU64,
    /// Microseconds that commands have waited for values, and how many values.
    pub(crate) waited_us: AtomicU64,
    pub(crate) waits: AtomicU64,
}

impl Tiering {
    pub(crate) fn begin(&self) {
        self.gave_up();
        self.is_well.store(true, Relaxed);
        self.is_on.store(true, Relaxed);
    }

    /// Whether there is a tier, and threads that bring values back.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Whether values can go to disk: there is a tier, and it is neither full nor failing.
    #[inline]
    pub(crate) fn takes(&self) -> bool {
        self.is_well.load(Relaxed)
    }

    /// Whether who needs memory may wait for values to go to disk.
    #[inline]
    pub(crate) fn makes_room(&self) -> bool {
        self.takes() && !self.is_helpless.load(Relaxed)
    }

    /// Values have left memory: those who wait for room look again.
    pub(crate) fn made_room(&self) {
        self.is_helpless.store(false, Relaxed);
        self.moved.notify_waiters();
    }

    /// Nobody is to wait for room until values have left memory again.
    pub(crate) fn make_no_room(&self, why: &str) {
        if !self.is_helpless.swap(true, Relaxed) {
            tracing::warn!(why, "the disk tier makes no room: maxmemory-policy applies");
        }
        self.moved.notify_waiters();
    }

    /// Has keys evicted whose values are on disk, until there are no more bytes of these.
    pub(crate) fn give_up(&self, live_most: u64) {
        self.live_most.store(live_most, Relaxed);
    }

    /// That is done, or there is none that may go.
    pub(crate) fn gave_up(&self) {
        self.live_most.store(u64::MAX, Relaxed);
    }

    /// How many bytes may stay on disk, if there are to be fewer.
    pub(crate) fn live_most(&self) -> Option<u64> {
        let most = self.live_most.load(Relaxed);
        (self.is_on() && most != u64::MAX).then_some(most)
    }

    /// How writing goes, and why.
    pub(crate) fn health(&self) -> (Health, String) {
        self.health.lock().clone()
    }

    /// Notes how writing went; how it went before, if that is new.
    pub(crate) fn note(&self, written: Result<(), &io::Error>) -> Option<Health> {
        let (is, why) = match written {
            Ok(()) => (Health::Well, String::new()),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                (Health::Full, error.to_string())
            }
            Err(error) => (Health::Failing, error.to_string()),
        };
        self.is_well.store(is == Health::Well, Relaxed);
        if is != Health::Well {
            self.moved.notify_waiters();
        }
        let mut health = self.health.lock();
        let was = std::mem::replace(&mut *health, (is, why)).0;
        (was != is).then_some(was)
    }

    /// Has values brought back; what came of it.
    pub(crate) fn bring(
        &self,
        keys: Vec<(usize, Vec<u8>)>,
    ) -> impl Future<Output = Result<(), Lost>> + Send + use<> {
        let told: Vec<_> = keys.into_iter().map(|(db, key)| self.to_bring.ask(db, key)).collect();
        async move {
            for told in told {
                // Threads that have ended have the command look for itself.
                told.await.unwrap_or(Ok(()))?;
            }
            Ok(())
        }
    }

    /// Has a value go to disk now; whether it did.
    pub(crate) fn leave(
        &self,
        db: usize,
        key: Vec<u8>,
    ) -> impl Future<Output = bool> + Send + use<> {
        let told = self.to_leave.ask(db, key);
        async move { told.await.unwrap_or(false) }
    }
}
