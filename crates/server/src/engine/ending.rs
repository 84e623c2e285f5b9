//! What comes before the end: writes are paused, replicas catch up with what was written,
//! and what is to be saved is.
//!
//! ```text
//!  SHUTDOWN, SIGTERM -> pause of writes -> replicas have it all, or `shutdown-timeout`
//!                                          -> saved, synced -> end
//!                                       `-> SHUTDOWN ABORT: writes go on
//! ```
//!
//! A primary that ends without waiting leaves replicas of which one may be promoted and
//! lack what clients were told is written. What is waited for is the last commit, so what
//! the stream says by itself (pings) delays nobody.

use crate::config::Param;
use crate::engine::server::Server;
use crate::engine::waits::Behind;
use crate::follow::pause::By;
use crate::outside::clock::Instant;
use crate::persist::ending::Ending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// How often it is looked whether replicas have everything.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// Those who wait for replicas before the end.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    waiting: AtomicUsize,
    /// How often those who waited were told not to end.
    aborts: AtomicU64,
}

/// Says that nobody waits any more, also where the waiting is dropped with its client.
struct Waiting<'e>(&'e Endings);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

impl Server {
    /// Pauses writes, waits for replicas unless they are not to be waited for, and saves what is to
    /// be saved. After an error, which tells why not to end, writes go on.
    pub(crate) async fn before_end(self: Arc<Self>, ending: Ending) -> Result<(), String> {
        self.pause.pause(By::End, u64::MAX, true);
        // What is under way on workers ends before anything is saved; a long command takes
        // its time, and replicas are to have what it writes.
        while self.aside.runs_command() {
            tokio::time::sleep(LOOKS_EVERY).await;
        }
        let patience = self.config.number(Param::ShutdownTimeout) as u64;
        let mut done = Ok(());
        if !ending.now && patience > 0 && !self.peers.replicas().is_empty() {
            done = self.replicas_caught_up(Duration::from_secs(patience)).await;
        }
        if done.is_ok() {
            let saved = self.persist.before_end(ending).await;
            done = saved.unwrap_or_else(|_| Err("it ended".into()));
        }
        if done.is_err() {
            self.pause.unpause(By::End);
        }
        done
    }

    /// Waits until all replicas have executed what was written, for so long at most; an error
    /// if somebody says that this server is not to end.
    async fn replicas_caught_up(&self, patience: Duration) -> Result<(), String> {
        // Read first: whoever sees that somebody waits is heard.
        let aborts = self.endings.aborts.load(SeqCst);
        self.endings.waiting.fetch_add(1, SeqCst);
        let _waiting = Waiting(&self.endings);
        let (began, mut commits, mut asked) = (Instant::now(), self.store.commits(), false);
        let mut behind = Behind::commit(commits);
        loop {
            if self.endings.aborts.load(SeqCst) != aborts {
                tracing::info!("SHUTDOWN aborted");
                return Err("aborted".into());
            }
            // A command that was under way when writes were paused may still have written.
            if self.store.commits() != commits {
                commits = self.store.commits();
                behind = Behind::commit(commits);
                asked = false;
            }
            let (replicas, reached) = (self.peers.replicas().len(), behind.acknowledged(self));
            if reached >= replicas {
                tracing::info!(replicas, "all replicas have what was written");
                return Ok(());
            }
            if began.elapsed() >= patience {
                tracing::warn!(replicas, reached, "not all replicas have what was written: ending");
                return Ok(());
            }
            if !asked {
                tracing::info!(replicas, reached, "waiting for replicas before the end");
                self.peers.ask_how_far();
                asked = true;
            }
            tokio::time::sleep(LOOKS_EVERY).await;
        }
    }

    /// Has everybody who waits for replicas before the end not end; whether anybody did.
    pub(crate) fn abort_end(&self) -> bool {
        let any = self.endings.waiting.load(SeqCst) > 0;
        self.endings.aborts.fetch_add(1, SeqCst);
        any
    }
}
