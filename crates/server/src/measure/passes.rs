//! How far a worker's walk over its strings has come, and what waits: the backlog
//! of strings, as far as it is known without a walk of its own.
//!
//! Each worker alone writes its own figures, some stores a turn; who asks adds
//! them up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Passes after which a value that was written and not read is cold.
pub(crate) const PASSES: u32 = 2;

/// The passes of one worker.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    /// How many are done.
    done: AtomicU64,
    /// Whether one is under way, since when by the server's clock in milliseconds, and
    /// how much of it is done in thousandths.
    is_under_way: AtomicBool,
    began_ms: AtomicU64,
    progress: AtomicU64,
    /// How long the last one took.
    took_ms: AtomicU64,
    /// Strings that it found cold and left for later; and those of the one under way.
    left: AtomicU64,
    left_now: AtomicU64,
    /// Copied out to be packed next.
    waiting: AtomicU64,
}

impl Passes {
    /// A pass begins.
    pub(crate) fn begin(&self, now_ms: u64) {
        self.left_now.store(0, Relaxed);
        self.began_ms.store(now_ms, Relaxed);
        self.progress.store(0, Relaxed);
        self.is_under_way.store(true, Relaxed);
    }

    /// Takes note of how far it is, 0 to 1, of the strings that it has left for later,
    /// and of how many wait to be packed next.
    pub(crate) fn is_at(&self, now_ms: u64, progress: f64, left: u64, waiting: usize) {
        self.waiting.store(waiting as u64, Relaxed);
        if !self.is_under_way.load(Relaxed) {
            return;
        }
        self.left_now.store(left, Relaxed);
        self.progress.store((progress * 1000.0) as u64, Relaxed);
        if progress >= 1.0 && waiting == 0 {
            self.left.store(left, Relaxed);
            self.took_ms.store(now_ms.saturating_sub(self.began_ms.load(Relaxed)), Relaxed);
            self.is_under_way.store(false, Relaxed);
            self.done.fetch_add(1, Relaxed);
        }
    }

    /// The one under way is given up: nothing is packed any more.
    pub(crate) fn abandon(&self) {
        self.is_under_way.store(false, Relaxed);
        self.left.store(0, Relaxed);
        self.waiting.store(0, Relaxed);
    }

    /// How many are done.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}

/// The backlog of strings, of all workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backlog {
    /// Strings found cold and not packed yet: in the last whole pass, or in the one
    /// under way if those are more.
    pub strings: u64,
    /// How long a pass takes: the longest of the workers' last ones, and of those under
    /// way so far.
    pub pass_seconds: f64,
    /// How much of the passes under way is done, 0 to 1: the least of all workers.
    pub progress: f64,
}

impl Backlog {
    /// Of all workers, at that time of the server's clock in milliseconds.
    pub(crate) fn sum<'p>(passes: impl Iterator<Item = &'p Passes>, now_ms: u64) -> Self {
        let mut sum = Self { strings: 0, pass_seconds: 0.0, progress: 1.0 };
        for of in passes {
            let (mut left, mut ms) = (of.left.load(Relaxed), of.took_ms.load(Relaxed));
            if of.is_under_way.load(Relaxed) {
                left = left.max(of.left_now.load(Relaxed));
                ms = ms.max(now_ms.saturating_sub(of.began_ms.load(Relaxed)));
                sum.progress = sum.progress.min(of.progress.load(Relaxed) as f64 / 1000.0);
            }
            sum.strings += left + of.waiting.load(Relaxed);
            sum.pass_seconds = sum.pass_seconds.max(ms as f64 / 1000.0);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_is_that_of_the_last_whole_pass_or_of_a_longer_one() {
        let passes = [Passes::default(), Passes::default()];
        let at = |now_ms| Backlog::sum(passes.iter(), now_ms);
        assert_eq!(at(9), Backlog { strings: 0, pass_seconds: 0.0, progress: 1.0 });
        passes[0].begin(1000);
        passes[0].is_at(2000, 0.5, 7, 3);
        assert_eq!(at(3000), Backlog { strings: 10, pass_seconds: 2.0, progress: 0.5 });
        passes[0].is_at(4000, 1.0, 9, 1);
        assert_eq!((at(4000).strings, passes[0].done()), (10, 0), "one is still to be packed");
        passes[0].is_at(5000, 1.0, 9, 0);
        assert_eq!(at(99_000), Backlog { strings: 9, pass_seconds: 4.0, progress: 1.0 });
        passes[1].begin(99_000);
        passes[1].is_at(99_500, 0.25, 1, 0);
        assert_eq!(at(100_000), Backlog { strings: 10, pass_seconds: 4.0, progress: 0.25 });
        passes[0].begin(100_000);
        passes[0].is_at(100_001, 1.0, 0, 0);
        assert_eq!((at(100_001).strings, passes[0].done()), (1, 2));
        passes[1].abandon();
        assert_eq!((at(200_000).strings, at(200_000).progress), (0, 1.0));
    }
}
