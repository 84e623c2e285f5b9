//! The workspaces of all workers for large values, and how long was waited for
//! them. Each worker has a pool of its own, of which nobody else takes; this is
//! for whoever wants to know of all, `INFO` and `/metrics`.
//!
//! A pool makes at most `pack-workspaces` for work in slices, each when it is
//! first needed, and one for work done at once.

use crate::config::{Config, Param};
use crate::outside::clock::Instant;
use snug_codec::WorkspaceConfig;
use snug_codec::pool::{Lease, LongLease, Pool, PoolConfig, PoolStats};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The pools of all workers.
#[derive(Debug)]
pub(crate) struct Workspaces {
    pools: Vec<Pool>,
    waited_ns: Arc<AtomicU64>,
    /// Waits before statistics were last reset.
    waits_base: AtomicU64,
}

impl Workspaces {
    pub(crate) fn new(config: &Config, workers: usize) -> Self {
        let long = config.number(Param::PackWorkspaces) as usize;
        let config = PoolConfig { small: 1, long, workspace: WorkspaceConfig::default() };
        Self {
            pools: (0..workers).map(|_| Pool::new(config)).collect(),
            waited_ns: Arc::default(),
            waits_base: AtomicU64::new(0),
        }
    }

    /// A worker's own.
    pub(crate) fn of(&self, worker: usize) -> Pool {
        self.pools[worker].clone()
    }

    /// What all pools have made and lent; waits since statistics were reset.
    pub(crate) fn stats(&self) -> PoolStats {
        let mut sum = self.sum();
        sum.waited_total = sum.waited_total.saturating_sub(self.waits_base.load(Relaxed));
        sum
    }

    fn sum(&self) -> PoolStats {
        let all = self.pools.iter().map(Pool::stats);
        all.fold(PoolStats::default(), |sum, one| PoolStats {
            made: sum.made + one.made,
            lent: sum.lent + one.lent,
            waiting: sum.waiting + one.waiting,
            waited_total: sum.waited_total + one.waited_total,
            refused_total: sum.refused_total + one.refused_total,
            memory_bytes: sum.memory_bytes + one.memory_bytes,
        })
    }

    /// How long those waited whose wait has ended.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns.load(Relaxed))
    }

    /// Where a wait is to be added.
    pub(crate) fn clock(&self) -> WaitClock {
        WaitClock(Arc::clone(&self.waited_ns))
    }

    /// Back to zero, as `CONFIG RESETSTAT` does.
    pub(crate) fn reset(&self) {
        self.waits_base.store(self.sum().waited_total, Relaxed);
        self.waited_ns.store(0, Relaxed);
    }
}

/// Measures waits.
#[derive(Debug)]
pub(crate) struct WaitClock(Arc<AtomicU64>);

/// A wait that is not over; adds itself up when it is, also if it was given up.
struct Wait<'c>(&'c AtomicU64, Instant);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(self.1.elapsed().as_nanos() as u64, Relaxed);
    }
}

impl WaitClock {
    /// The workspace, as soon as it is there.
    pub(crate) async fn lease(self, lease: LongLease) -> Lease {
        let mut lease = pin!(lease);
        let mut wait = None;
        std::future::poll_fn(|context| {
            let lease = lease.as_mut().poll(context);
            if lease.is_pending() {
                wait.get_or_insert_with(|| Wait(&self.0, Instant::now()));
            }
            lease
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        }
    }

    #[test]
    fn waits_are_timed_whether_they_are_served_or_given_up() {
        let config = Config::from_flags(&["--pack-workspaces".into(), "1".into()]).unwrap();
        let workspaces = Workspaces::new(&config, 2);
        let ask = |worker: usize| workspaces.clock().lease(workspaces.of(worker).long());
        let first = poll(pin!(ask(0))).unwrap();
        let other = poll(pin!(ask(1))).unwrap();
        assert_eq!(workspaces.waited(), Duration::ZERO);
        let stats = workspaces.stats();
        assert_eq!((stats.made, stats.lent, stats.waited_total), (2, 2, 0));

        let (mut second, mut third) = (Box::pin(ask(0)), Box::pin(ask(0)));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        assert_eq!((workspaces.stats().waiting, workspaces.stats().waited_total), (2, 2));
        drop(third);
        let given_up = workspaces.waited();
        assert!(given_up > Duration::ZERO);
        drop(first);
        assert!(poll(second.as_mut()).is_some());
        drop(second);
        assert!(workspaces.waited() > given_up);

        workspaces.reset();
        assert_eq!((workspaces.waited(), workspaces.stats().waited_total), (Duration::ZERO, 0));
        drop(other);
        assert_eq!((workspaces.stats().made, workspaces.stats().lent), (2, 0));
    }
}
