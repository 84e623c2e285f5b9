//! A bounded number of workspaces, lent to one user at a time.
//!
//! ```text
//!  Pool ── small set   for synchronous work: lent for one call, never waited for
//!       └─ long set    for streams: waited for in order, cancellable
//! ```
//!
//! The two sets share nothing, so that a small value never waits for a large
//! one. A workspace is made when it is first needed and kept; each set makes at
//! most as many as it was told. Runtime-agnostic: waiting is a plain future,
//! dropped without a trace.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::{Workspace, WorkspaceConfig};

/// How many workspaces a pool may make, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// For synchronous work.
    pub small: usize,
    /// For streams.
    pub long: usize,
    /// What each of them is.
    pub workspace: WorkspaceConfig,
}

impl Default for PoolConfig {
    /// Two for synchronous work (a value may need its dictionary's family
    /// looked at meanwhile), four for streams.
    fn default() -> Self {
        Self { small: 2, long: 4, workspace: WorkspaceConfig::default() }
    }
}

/// What a pool has made and lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Workspaces made, of both sets.
    pub made: usize,
    /// Workspaces lent now.
    pub lent: usize,
    /// Streams waiting now.
    pub waiting: usize,
    /// Streams that have had to wait, ever.
    pub waited_total: u64,
    /// Synchronous calls that found none free, ever.
    pub refused_total: u64,
    /// Bytes reserved by those made.
    pub memory_bytes: usize,
}

/// The workspaces of one worker. Cheap to clone: all clones are the same pool.
#[derive(Clone, Debug)]
pub struct Pool {
    small: Arc<Set>,
    long: Arc<Set>,
}

/// A lent workspace; goes back when dropped.
#[derive(Debug)]
pub struct Lease {
    set: Arc<Set>,
    /// Taken only when dropped.
    workspace: Option<Workspace>,
}

#[derive(Debug)]
struct Set {
    config: WorkspaceConfig,
    made_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<Workspace>,
    made: usize,
    memory_bytes: usize,
    waiters: VecDeque<Waiter>,
    tickets: u64,
    waited_total: u64,
    refused_total: u64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    waker: Waker,
    granted: Option<Workspace>,
}

impl Pool {
    /// A pool that has made nothing yet.
    pub fn new(config: PoolConfig) -> Self {
        let set = |made_max: usize| {
            let made_max = made_max.max(1);
            Arc::new(Set { config: config.workspace, made_max, state: Mutex::default() })
        };
        Self { small: set(config.small), long: set(config.long) }
    }

    /// A workspace for synchronous work, if one is free: on a worker that gives
    /// each back before it takes the next, always.
    pub fn try_small(&self) -> Option<Lease> {
        let workspace = {
            let mut state = self.small.lock();
            let taken = state.take(&self.small);
            state.refused_total += u64::from(taken.is_none());
            taken
        };
        workspace.map(|workspace| self.small.lease(workspace))
    }

    /// A workspace for a stream: at once if one is free and nobody waits, else
    /// in the order of asking. Dropping the future gives up the place.
    pub fn long(&self) -> LongLease {
        LongLease { set: Arc::clone(&self.long), ticket: None }
    }

    /// What both sets have made and lent.
    pub fn stats(&self) -> PoolStats {
        let mut stats = PoolStats::default();
        for set in [&self.small, &self.long] {
            let state = set.lock();
            let granted = state.waiters.iter().filter(|w| w.granted.is_some()).count();
            stats.made += state.made;
            stats.lent += state.made - state.free.len() - granted;
            stats.waiting += state.waiters.len();
            stats.waited_total += state.waited_total;
            stats.refused_total += state.refused_total;
            stats.memory_bytes += state.memory_bytes;
        }
        stats
    }
}

impl Set {
    /// The state, also after a panic elsewhere: it is whole between any two
    /// statements.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn lease(self: &Arc<Self>, workspace: Workspace) -> Lease {
        Lease { set: Arc::clone(self), workspace: Some(workspace) }
    }
}

impl State {
    /// A free workspace, or a new one while there may be more.
    fn take(&mut self, set: &Set) -> Option<Workspace> {
        self.free.pop().or_else(|| {
            (self.made < set.made_max).then(|| {
                let workspace = Workspace::new(set.config);
                self.made += 1;
                self.memory_bytes += workspace.memory_bytes();
                workspace
            })
        })
    }

    /// Gives a workspace to the first who waits, or keeps it.
    fn give_back(&mut self, workspace: Workspace) -> Option<Waker> {
        match self.waiters.iter_mut().find(|waiter| waiter.granted.is_none()) {
            Some(waiter) => {
                waiter.granted = Some(workspace);
                Some(waiter.waker.clone())
            }
            None => {
                self.free.push(workspace);
                None
            }
        }
    }
}

impl Deref for Lease {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        self.workspace.as_ref().expect("present until dropped")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Workspace {
        self.workspace.as_mut().expect("present until dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(workspace) = self.workspace.take() {
            let waker = self.set.lock().give_back(workspace);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// The wait for a workspace of the long set.
#[derive(Debug)]
#[must_use = "a future does nothing unless awaited"]
pub struct LongLease {
    set: Arc<Set>,
    ticket: Option<u64>,
}

impl Future for LongLease {
    type Output = Lease;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lease> {
        let set = Arc::clone(&self.set);
        let mut state = set.lock();
        if let Some(ticket) = self.ticket {
            let at = state.waiters.iter().position(|waiter| waiter.ticket == ticket);
            let Some(at) = at else { return Poll::Pending };
            if state.waiters[at].granted.is_none() {
                state.waiters[at].waker.clone_from(context.waker());
                return Poll::Pending;
            }
            let granted = state.waiters.remove(at).and_then(|waiter| waiter.granted);
            self.ticket = None;
            drop(state);
            return match granted {
                Some(workspace) => Poll::Ready(set.lease(workspace)),
                None => Poll::Pending,
            };
        }
        if state.waiters.is_empty()
            && let Some(workspace) = state.take(&set)
        {
            drop(state);
            return Poll::Ready(set.lease(workspace));
        }
        let ticket = state.tickets;
        state.tickets += 1;
        state.waited_total += 1;
        state.waiters.push_back(Waiter { ticket, waker: context.waker().clone(), granted: None });
        self.ticket = Some(ticket);
        Poll::Pending
    }
}

impl Drop for LongLease {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let waker = {
            let mut state = self.set.lock();
            let at = state.waiters.iter().position(|waiter| waiter.ticket == ticket);
            let waiter = at.and_then(|at| state.waiters.remove(at));
            waiter.and_then(|w| w.granted).and_then(|workspace| state.give_back(workspace))
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{self, Turns};
    use proptest::prelude::*;
    use std::pin::pin;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        }
    }

    fn pool(long: usize) -> Pool {
        let workspace = WorkspaceConfig { pack_bytes: 1, checksum: false };
        Pool::new(PoolConfig { small: 1, long, workspace })
    }

    #[test]
    fn small_work_never_waits_for_streams() {
        let pool = pool(1);
        let _stream = poll(pin!(pool.long())).unwrap();
        let small = pool.try_small().unwrap();
        assert!(pool.try_small().is_none());
        drop(small);
        assert!(pool.try_small().is_some());
        assert_eq!(pool.stats().refused_total, 1);
    }

    #[test]
    fn a_place_given_up_after_the_grant_passes_on() {
        let pool = pool(1);
        let first = poll(pin!(pool.long())).unwrap();
        let mut second = Box::pin(pool.long());
        let mut third = Box::pin(pool.long());
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        drop(first);
        drop(second);
        assert!(poll(third.as_mut()).is_some());
        assert_eq!((pool.stats().made, pool.stats().lent), (1, 0));
    }

    proptest! {
        /// A stream that is dropped while it waits, packs, unpacks or after:
        /// its workspace is back, and as good as new.
        #[test]
        fn a_stream_dropped_at_any_point_leaks_nothing(polls in 0usize..40, others in 0usize..3) {
            let pool = pool(1);
            let raw = crate::Segments::from(&b"some text, and again some text ".repeat(9000)[..]);
            let round_trip = async || {
                let (codec, none) = (crate::Codec::Zstd, &crate::NoDictionaries);
                let mut ws = pool.long().await;
                let packed = stream::pack(&mut ws, codec, 3, &raw, &Turns::default(), 0).await.unwrap();
                stream::unpack(&mut ws, &packed, none, raw.len(), &Turns::default(), 0).await.unwrap()
            };
            {
                let mut one = pin!(round_trip());
                if others > 0 {
                    let held = poll(pin!(pool.long())).unwrap();
                    for _ in 0..others {
                        prop_assert!(poll(one.as_mut()).is_none(), "another has the workspace");
                    }
                    drop(held);
                }
                let _ = (0..polls).any(|_| poll(one.as_mut()).is_some());
            }
            let stats = pool.stats();
            prop_assert_eq!((stats.lent, stats.waiting), (0, 0));
            prop_assert!(stats.made <= 1);
            let mut again = pin!(round_trip());
            let back = (0..10_000).find_map(|_| poll(again.as_mut()));
            prop_assert!(back == Some(raw.clone()));
        }

        /// Any order of asking, giving back and giving up: nobody overtakes,
        /// nothing leaks.
        #[test]
        fn in_order_and_whole(max in 1usize..4, ops in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 0..60)) {
            let pool = pool(max);
            let mut lent: Vec<Lease> = Vec::new();
            let mut waiting: VecDeque<Pin<Box<LongLease>>> = VecDeque::new();
            for (op, at) in ops {
                match op {
                    0 | 1 => {
                        let mut ask = Box::pin(pool.long());
                        match poll(ask.as_mut()) {
                            Some(lease) => {
                                prop_assert!(waiting.is_empty());
                                lent.push(lease);
                            }
                            None => waiting.push_back(ask),
                        }
                    }
                    2 if !lent.is_empty() => {
                        drop(lent.swap_remove(at.index(lent.len())));
                        if let Some(mut first) = waiting.pop_front() {
                            let lease = poll(first.as_mut());
                            prop_assert!(lease.is_some(), "the first in line is served");
                            lent.extend(lease);
                        }
                    }
                    3 if !waiting.is_empty() => drop(waiting.remove(at.index(waiting.len()))),
                    _ => {}
                }
                prop_assert!(lent.len() <= max);
                prop_assert_eq!(pool.stats().lent, lent.len());
                prop_assert_eq!(pool.stats().waiting, waiting.len());
                prop_assert!(waiting.is_empty() || lent.len() == max);
            }
            drop(lent);
            drop(waiting);
            prop_assert_eq!(pool.stats().lent, 0);
            prop_assert!(pool.stats().made <= max);
        }
    }
}
