//! How much of its time a worker may pack for.
//!
//! All packing of a worker draws on one allowance. How large it is depends on how much
//! of the worker's time clients take:
//!
//! - Nothing: packing may take all of the time.
//! - Half or more: packing gets `pack-cpu-percent`. Half is busy already, for what is
//!   packed in the other half makes clients wait.
//! - All of it: packing gets a tenth of `pack-cpu-percent`. It could not keep up in such
//!   a storm with more either. What waits to be packed takes the memory that it would
//!   take without packing, and the storm passes.
//!
//! Each tick of the clock decides on the share. The time is granted bit by bit as it
//! passes: so few clients meet a slice of packing, and none meets a series of them.
//!
//! ```text
//!  share granted
//!  100 % |\
//!        | \              100 - 2 * busy
//!        |  \
//!        |   \______      pack-cpu-percent, or more if memory is short
//!        |          \__   falls to a tenth between 80 and 95 percent of what
//!        |                the sweeper leaves (100 is never measured)
//!        +---------------> busy: percent of the time spent on clients
//! ```
//!
//! Near `maxmemory` packing works ahead of need: the closer the limit
//! ([`Server::pressure`]), the larger its share.

use crate::config::Param;
use crate::engine::server::Server;
use crate::outside::clock::{self, Instant};
use std::time::Duration;

/// Percent of the time that packing is granted when memory is shortest. It is granted
/// `pack-cpu-percent` if that is more.
const HARDEST_PERCENT: f64 = 50.0;

/// Time that was not used is granted later, but not for longer than this.
const GRANTED_FOR_MAX: Duration = Duration::from_millis(2);

/// The part of the time left by the sweeper from which on clients count as taking too
/// much for packing to keep its whole share.
const SATURATED_FROM: f64 = 0.8;

/// The part from which on clients count as taking all of the time. It is below 1 because
/// a moment passes between two events that no client has taken.
const SATURATED_AT: f64 = 0.95;

/// The part of `pack-cpu-percent` that packing keeps where clients take all of the time.
const SATURATED_PART: f64 = 0.1;

/// The part of the time that packing is granted, when clients have taken `busy` and the
/// sweeper `swept` of it: `percent` is `pack-cpu-percent`, the others are from 0 to 1.
fn share(busy: f64, swept: f64, percent: f64, pressure: f64) -> f64 {
    let of_rest = busy / (1.0 - swept).max(f64::MIN_POSITIVE);
    let beyond = (of_rest - SATURATED_FROM) / (SATURATED_AT - SATURATED_FROM);
    let saturated = beyond.clamp(0.0, 1.0);
    let while_busy = percent * (1.0 - saturated * (1.0 - SATURATED_PART));
    let least = while_busy.max(pressure * HARDEST_PERCENT);
    (100.0 - 200.0 * busy).clamp(least, 100.0) / 100.0
}

/// What is left of one worker's allowance.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Nanoseconds; below 0 when a turn took longer than it was granted.
    left_ns: i64,
    /// The part of the time that is granted, and since when it has not been.
    share: f64,
    granted: Instant,
    /// When the clock last ticked, and for how long the worker had run by then.
    ticked: Instant,
    ran: Duration,
    /// What the sweeper itself has taken since.
    swept: Duration,
    /// How short memory was then, 0 to 1.
    pressure: f64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            left_ns: 0,
            share: 0.0,
            granted: Instant::now(),
            ticked: Instant::now(),
            ran: Duration::ZERO,
            swept: Duration::ZERO,
            pressure: 0.0,
        }
    }
}

impl Allowance {
    /// Decides how much of the time is granted until the clock ticks again; the
    /// time since it last did. To be called on the worker's runtime.
    pub(crate) fn tick(&mut self, server: &Server) -> Duration {
        let since = self.ticked.elapsed();
        let ran = clock::busy();
        let for_clients = ran.saturating_sub(self.ran).saturating_sub(self.swept);
        let of_time = |part: Duration| part.as_secs_f64() / since.as_secs_f64().max(1e-9);
        let (busy, swept) = (of_time(for_clients), of_time(self.swept));
        (self.ticked, self.ran, self.swept) = (Instant::now(), ran, Duration::ZERO);
        self.pressure = server.pressure();
        let percent = server.config.number(Param::PackCpuPercent) as f64;
        self.share = share(busy, swept, percent, self.pressure);
        since
    }

    /// The time that may be worked now.
    pub(crate) fn grant(&mut self) -> Duration {
        let now = Instant::now();
        let granted_for = |time: Duration| time.mul_f64(self.share).as_nanos() as i64;
        let since = (now - self.granted).min(GRANTED_FOR_MAX);
        self.left_ns = (self.left_ns + granted_for(since)).min(granted_for(GRANTED_FOR_MAX));
        self.granted = now;
        Duration::from_nanos(self.left_ns.max(0) as u64)
    }

    /// Whether there is time left of what was granted.
    pub(crate) fn is_left(&self) -> bool {
        self.left_ns > 0
    }

    /// Takes note of a turn of the sweeper, and of the part of it that packed.
    pub(crate) fn spend(&mut self, turn: Duration, packing: Duration) {
        self.swept += turn;
        self.left_ns -= packing.as_nanos() as i64;
    }

    /// How short memory was when the clock last ticked, 0 to 1.
    pub(crate) fn pressure(&self) -> f64 {
        self.pressure
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn clients_and_memory_say_what_packing_gets() {
        let share = |busy, swept, pressure| share(busy, swept, 10.0, pressure);
        let percent = |busy, pressure| (100.0 * share(busy, 0.0, pressure)).round() as i32;
        assert_eq!(percent(0.0, 0.0), 100);
        assert_eq!(percent(0.3, 0.0), 40);
        assert_eq!(percent(0.5, 0.0), 10);
        assert_eq!(percent(0.8, 0.0), 10);
        assert_eq!(percent(0.875, 0.0), 6);
        assert_eq!(percent(0.95, 0.0), 1);
        assert_eq!(percent(1.0, 0.0), 1);
        // A clock that ran ahead.
        assert_eq!(percent(1.2, 0.0), 1);
        assert_eq!(percent(1.0, 0.5), 25);
        assert_eq!(percent(1.0, 1.0), 50);
        // What the sweeper takes is not there for clients to take.
        assert!((share(0.95, 0.05, 0.0) - share(1.0, 0.0, 0.0)).abs() < 1e-9);
        assert!(share(0.8, 0.05, 0.0) < share(0.8, 0.0, 0.0));
        // It may have taken all that there was.
        assert!((share(0.0, 1.0, 0.0) - 1.0).abs() < 1e-9);
        // All of the time may have been asked for.
        assert!((super::share(0.6, 0.1, 100.0, 1.0) - 1.0).abs() < 1e-9);
    }
}
