//! How far commits have come on their way to disk, and who waits for that.
//!
//! ```text
//!  commit ──> written: the system has it       ──> synced: it is on disk
//!             everysec and no: replies wait        always: replies wait
//!             for this                             for this
//! ```
//!
//! The reply of a command that reads or writes keys goes out when the commits that were
//! made until then have come as far as `appendfsync` says, whoever made them: what is read
//! may be another's write. No worker waits: the replies stay in the connection's queue, and
//! it is woken when the write or the sync is done that covers them, with all of its worker's
//! (see [`Herd`]).

use crate::follow::clients::Shared;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};
use std::task::Waker;
use tokio::sync::oneshot;

/// All whose replies wait on one worker: its task is woken for them, once for each write or
/// sync, and wakes them on its own thread. To wake each from another thread would take a
/// system call each.
#[derive(Debug)]
pub(crate) struct Herd {
    task: Waker,
    /// Whether the task will be woken for the least commit that one of them waits for.
    is_registered: AtomicBool,
    size: AtomicUsize,
}

impl Herd {
    pub(crate) fn new(task: Waker) -> Arc<Self> {
        Arc::new(Self { task, is_registered: AtomicBool::new(false), size: AtomicUsize::new(0) })
    }

    /// How many clients wait now.
    pub(crate) fn set_size(&self, clients: usize) {
        self.size.store(clients, Relaxed);
    }

    /// Wakes the task; how many clients it is for, at most.
    fn wake(&self) -> usize {
        self.is_registered.store(false, SeqCst);
        self.task.wake_by_ref();
        self.size.load(Relaxed)
    }
}

/// Who is told when a commit has come so far.
#[derive(Debug)]
enum Waiting {
    /// One client, on a thread that has no herd.
    Client(Arc<Shared>),
    Herd(Arc<Herd>),
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

/// What replies wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Until {
    #[default]
    Nothing,
    /// That the system has the commits: they survive the end of the process.
    Written,
    /// That they are on disk: they survive the end of the machine.
    Synced,
}

/// How far commits have come in one respect, and who waits for them.
#[derive(Debug, Default)]
struct Line {
    /// Every commit up to this one has.
    reached: AtomicU64,
    waiting: Mutex<BinaryHeap<Reverse<Entry>>>,
}

impl Line {
    #[inline]
    fn has(&self, commit: u64) -> bool {
        commit <= self.reached.load(SeqCst)
    }

    fn tell(&self, commit: u64) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if self.has(commit) {
            let _ = sender.send(());
        } else {
            waiting.push(Reverse(Entry(commit, Waiting::Command(sender))));
        }
        receiver
    }

    /// Every commit up to this one has; how many have waited for that.
    fn reach(&self, commit: u64) -> usize {
        let mut told = 0;
        if self.reached.fetch_max(commit, SeqCst) >= commit {
            return told;
        }
        let mut waiting = self.waiting.lock();
        while let Some(Reverse(Entry(least, _))) = waiting.peek()
            && *least <= commit
        {
            told += match waiting.pop() {
                Some(Reverse(Entry(_, Waiting::Herd(herd)))) => herd.wake(),
                Some(Reverse(Entry(_, Waiting::Client(client)))) => {
                    client.wake();
                    1
                }
                Some(Reverse(Entry(_, Waiting::Command(sender)))) => {
                    let _ = sender.send(());
                    1
                }
                None => 0,
            };
        }
        told
    }

    /// Replies may no longer wait for this. `all`: and nobody else either.
    fn release(&self, all: bool) {
        let mut waiting = self.waiting.lock();
        for Reverse(Entry(commit, one)) in std::mem::take(&mut *waiting) {
            match one {
                Waiting::Client(client) => client.wake(),
                Waiting::Herd(herd) => _ = herd.wake(),
                Waiting::Command(_) if all => {}
                command @ Waiting::Command(_) => waiting.push(Reverse(Entry(commit, command))),
            }
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// An [`Until`].
    until: AtomicU8,
    written: Line,
    synced: Line,
}

impl Durable {
    /// What replies wait for.
    #[inline]
    pub(crate) fn until(&self) -> Until {
        match self.until.load(SeqCst) {
            0 => Until::Nothing,
            1 => Until::Written,
            _ => Until::Synced,
        }
    }

    fn line(&self, until: Until) -> Option<&Line> {
        match until {
            Until::Nothing => None,
            Until::Written => Some(&self.written),
            Until::Synced => Some(&self.synced),
        }
    }

    /// Whether replies wait for anything.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.until.load(Relaxed) != Until::Nothing as u8
    }

    /// Whether a commit has not come as far as replies wait for.
    #[inline]
    pub(crate) fn lacks(&self, commit: u64) -> bool {
        self.line(self.until()).is_some_and(|line| !line.has(commit))
    }

    /// Whether the system has a commit.
    #[inline]
    pub(crate) fn has_written(&self, commit: u64) -> bool {
        self.written.has(commit)
    }

    /// Whether a commit is on disk.
    #[inline]
    pub(crate) fn has(&self, commit: u64) -> bool {
        self.synced.has(commit)
    }

    /// Has a client woken when a commit has come as far as replies wait for; false if it
    /// has.
    pub(crate) fn hold(&self, commit: u64, client: &Arc<Shared>) -> bool {
        self.wait(commit, || Some(Waiting::Client(Arc::clone(client))))
    }

    /// The same for the first client of a herd.
    pub(crate) fn hold_herd(&self, commit: u64, herd: &Arc<Herd>) -> bool {
        self.wait(commit, || {
            let is_registered = herd.is_registered.swap(true, SeqCst);
            (!is_registered).then(|| Waiting::Herd(Arc::clone(herd)))
        })
    }

    fn wait(&self, commit: u64, who: impl FnOnce() -> Option<Waiting>) -> bool {
        loop {
            let until = self.until();
            let Some(line) = self.line(until) else { return false };
            if line.has(commit) {
                return false;
            }
            let mut waiting = line.waiting.lock();
            // Who changes these looks at who waits, afterwards.
            if self.until() != until {
                continue;
            }
            let lacks = !line.has(commit);
            if lacks {
                waiting.extend(who().map(|who| Reverse(Entry(commit, who))));
            }
            return lacks;
        }
    }

    /// Is told when a commit is on disk.
    pub(crate) fn when_on_disk(&self, commit: u64) -> oneshot::Receiver<()> {
        self.synced.tell(commit)
    }

    /// Is told when the system has a commit, or nobody is to wait for that any more.
    pub(crate) fn when_written(&self, commit: u64) -> oneshot::Receiver<()> {
        self.written.tell(commit)
    }

    /// Whether somebody waits for commits to be written.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.written.waiting.lock().is_empty()
    }

    /// The system has everything up to the first of these commits, and up to the second it
    /// is on disk; how many have waited for that.
    pub(crate) fn reached(&self, (written, synced): (u64, u64)) -> usize {
        self.written.reach(written) + self.synced.reach(synced)
    }

    /// What replies wait for from now on.
    pub(crate) fn set_until(&self, until: Until) {
        if self.until.swap(until as u8, SeqCst) == until as u8 {
            return;
        }
        // Whoever is woken looks again.
        self.written.release(true);
        self.synced.release(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    impl Woken {
        fn take(&self) -> usize {
            self.0.swap(0, SeqCst)
        }
    }

    fn herd() -> (Arc<Herd>, Arc<Woken>) {
        let woken = Arc::<Woken>::default();
        (Herd::new(Arc::clone(&woken).into()), woken)
    }

    #[test]
    fn a_herd_is_woken_once_for_each_sync_that_reaches_its_first() {
        let durable = Durable::default();
        durable.set_until(Until::Synced);
        let (herd, woken) = herd();
        herd.set_size(3);
        assert!(durable.hold_herd(5, &herd) && durable.hold_herd(5, &herd));
        assert_eq!((durable.reached((9, 4)), woken.take()), (0, 0));
        assert_eq!((durable.reached((9, 7)), woken.take()), (3, 1));
        // What was reached holds nobody; the next one is waited for anew.
        assert!(!durable.hold_herd(7, &herd) && durable.hold_herd(8, &herd));
        assert_eq!((durable.reached((9, 7)), woken.take()), (0, 0));
        assert_eq!((durable.reached((9, 9)), woken.take()), (3, 1));
    }

    #[test]
    fn a_herd_is_woken_when_replies_wait_for_something_else() {
        let durable = Durable::default();
        durable.set_until(Until::Written);
        let (herd, woken) = herd();
        assert!(durable.hold_herd(5, &herd));
        durable.set_until(Until::Synced);
        assert_eq!(woken.take(), 1);
        assert!(durable.hold_herd(5, &herd));
        durable.set_until(Until::Written);
        assert_eq!(woken.take(), 1);
        assert!(durable.hold_herd(5, &herd));
        durable.reached((5, 0));
        assert_eq!(woken.take(), 1);
        durable.set_until(Until::Synced);
        assert_eq!((woken.take(), durable.hold_herd(6, &herd)), (0, true));
        durable.set_until(Until::Nothing);
        assert_eq!((woken.take(), durable.hold_herd(6, &herd)), (1, false));
    }
}
