//! Counters that many threads write and few read: one row of counters per
//! thread, summed when asked.
//!
//! A thread is given a row of its own the first time it counts, so an addition
//! is a plain load, add and store on a cache line nobody else writes. Threads
//! beyond the last row share it with atomic additions. A row outlives its
//! thread: what it counted stays counted.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

const ROWS: usize = 64;

/// `N` counters in one row per thread.
#[derive(Debug)]
pub struct Sharded<const N: usize> {
    rows: [Row<N>; ROWS],
}

#[derive(Debug)]
#[repr(align(64))]
struct Row<const N: usize>([AtomicI64; N]);

static ROWS_TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ROW: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[inline]
fn row() -> usize {
    ROW.with(|row| match row.get() {
        usize::MAX => {
            row.set(ROWS_TAKEN.fetch_add(1, Relaxed).min(ROWS - 1));
            row.get()
        }
        taken => taken,
    })
}

impl<const N: usize> Default for Sharded<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Sharded<N> {
    /// All counters at zero.
    pub const fn new() -> Self {
        Self { rows: [const { Row([const { AtomicI64::new(0) }; N]) }; ROWS] }
    }

    /// Adds `delta` to counter `index`.
    #[inline]
    pub fn add(&self, index: usize, delta: i64) {
        let row = row();
        let counter = &self.rows[row].0[index];
        if row < ROWS - 1 {
            counter.store(counter.load(Relaxed).wrapping_add(delta), Relaxed);
        } else {
            counter.fetch_add(delta, Relaxed);
        }
    }

    /// The sum over all threads of counter `index`: exact when nobody is
    /// counting, else some moment's value per thread.
    pub fn sum(&self, index: usize) -> i64 {
        let taken = ROWS_TAKEN.load(Relaxed).min(ROWS);
        self.rows[..taken].iter().map(|row| row.0[index].load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_rows_lose_nothing() {
        let counters = Sharded::<2>::new();
        std::thread::scope(|scope| {
            for _ in 0..ROWS + 20 {
                scope.spawn(|| (0..100).for_each(|_| counters.add(1, 1)));
            }
        });
        assert_eq!((counters.sum(0), counters.sum(1)), (0, (ROWS as i64 + 20) * 100));
    }
}
