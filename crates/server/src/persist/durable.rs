//! How far commits are on disk, and who waits for that.
//!
//! With `appendfsync always` the reply of a command that reads or writes keys goes out when
//! the commits that were made until then are on disk, whoever made them: what is read may
//! be another's write. No worker waits: the replies stay in the connection's queue, and it
//! is woken when the sync is done that covers them.

use crate::follow::clients::Shared;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use tokio::sync::oneshot;

/// What is done when a commit is on disk.
#[derive(Debug)]
enum Waiting {
    Client(Arc<Shared>),
    Command(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Entry(u64, Waiting);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// Replies wait for the disk.
    holds: AtomicBool,
    /// Every commit up to this one is on disk.
    synced: AtomicU64,
    waiting: Mutex<BinaryHeap<Reverse<Entry>>>,
}

impl Durable {
    /// Whether replies wait for the disk.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Relaxed)
    }

    /// Whether a commit is not on disk, while replies wait for that.
    #[inline]
    pub(crate) fn lacks(&self, commit: u64) -> bool {
        self.holds() && !self.has(commit)
    }

    /// Whether a commit is on disk.
    #[inline]
    pub(crate) fn has(&self, commit: u64) -> bool {
        commit <= self.synced.load(SeqCst)
    }

    /// Has a client woken when a commit is on disk; false if it is.
    pub(crate) fn hold(&self, commit: u64, client: &Arc<Shared>) -> bool {
        let mut waiting = self.waiting.lock();
        let lacks = self.lacks(commit);
        if lacks {
            waiting.push(Reverse(Entry(commit, Waiting::Client(Arc::clone(client)))));
        }
        lacks
    }

    /// Is told when a commit is on disk.
    pub(crate) fn when_on_disk(&self, commit: u64) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if self.has(commit) {
            let _ = sender.send(());
        } else {
            waiting.push(Reverse(Entry(commit, Waiting::Command(sender))));
        }
        receiver
    }

    /// Everything up to this commit is on disk.
    pub(crate) fn reached(&self, commit: u64) {
        if self.synced.load(SeqCst) >= commit {
            return;
        }
        self.synced.store(commit, SeqCst);
        let mut waiting = self.waiting.lock();
        while let Some(Reverse(Entry(least, _))) = waiting.peek()
            && *least <= commit
        {
            match waiting.pop() {
                Some(Reverse(Entry(_, Waiting::Client(client)))) => client.wake(),
                Some(Reverse(Entry(_, Waiting::Command(sender)))) => _ = sender.send(()),
                None => {}
            }
        }
    }

    /// Has replies wait for the disk from now on, or no longer.
    pub(crate) fn set_holds(&self, holds: bool) {
        if self.holds.swap(holds, Relaxed) == holds || holds {
            return;
        }
        let mut waiting = self.waiting.lock();
        for Reverse(Entry(commit, one)) in std::mem::take(&mut *waiting) {
            match one {
                Waiting::Client(client) => client.wake(),
                command @ Waiting::Command(_) => waiting.push(Reverse(Entry(commit, command))),
            }
        }
    }
}
