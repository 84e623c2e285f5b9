//! What the workers' event loops have done, as `INFO` tells it since Redis 7.2
//! (`eventloop_*`): how often they slept, and for how long they were awake. The
//! runtimes count it themselves; reading costs a few loads for each worker.

use crate::outside::clock::Instant;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::runtime::Handle;

/// Turns of event loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turns {
    pub cycles: u64,
    pub microseconds: u64,
}

impl Turns {
    fn since(self, before: Self) -> Self {
        Self {
            cycles: self.cycles.saturating_sub(before.cycles),
            microseconds: self.microseconds.saturating_sub(before.microseconds),
        }
    }
}

/// The event loops of all workers.
#[derive(Debug, Default)]
pub(crate) struct Loops(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    runtimes: Vec<Handle>,
    /// What is not to be told any more, since `CONFIG RESETSTAT`.
    base: Turns,
    /// The last second: when it ended, what had been done by then, and in it.
    sampled: Option<(Instant, Turns)>,
    in_a_second: Turns,
}

impl State {
    fn done(&self) -> Turns {
        let mut done = Turns::default();
        for metrics in self.runtimes.iter().map(Handle::metrics) {
            done.cycles += metrics.worker_park_count(0);
            done.microseconds += metrics.worker_total_busy_duration(0).as_micros() as u64;
        }
        done
    }
}

impl Loops {
    /// A worker's loop begins: to be called on its runtime.
    pub(crate) fn join(&self) {
        self.0.lock().runtimes.push(Handle::current());
    }

    /// Since the start, or since it was last reset.
    pub(crate) fn total(&self) -> Turns {
        let state = self.0.lock();
        state.done().since(state.base)
    }

    /// Cycles in the last full second, and microseconds for each of them.
    pub(crate) fn recent(&self) -> (u64, u64) {
        let Turns { cycles, microseconds } = self.0.lock().in_a_second;
        (cycles, microseconds / cycles.max(1))
    }

    /// Brings the last second up to date, once a second or less often.
    pub(crate) fn tick(&self) {
        let mut state = self.0.lock();
        let (now, done) = (Instant::now(), state.done());
        let Some((then, before)) = state.sampled else {
            state.sampled = Some((now, done));
            return;
        };
        let took = now - then;
        if took < Duration::from_secs(1) {
            return;
        }
        let turns = done.since(before);
        let rate = |n: u64| (n as f64 / took.as_secs_f64()) as u64;
        state.in_a_second =
            Turns { cycles: rate(turns.cycles), microseconds: rate(turns.microseconds) };
        state.sampled = Some((now, done));
    }

    /// Tells only what comes from now on.
    pub(crate) fn reset(&self) {
        let mut state = self.0.lock();
        state.base = state.done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_sleeps_and_works_is_counted_until_it_is_reset() {
        let loops = Loops::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            loops.join();
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let total = loops.total();
        assert!(total.cycles >= 3, "{total:?}");
        loops.reset();
        assert!(loops.total().cycles < total.cycles);
    }
}
