//! How much of its time a worker may pack for.
//!
//! Strings and stream blocks draw on one allowance, granted anew with each tick of
//! the clock: `pack-cpu-percent` of the time while clients keep the worker busy, and
//! more as they leave it idle. Half a worker's time spent on clients is already
//! busy: what is packed in the other half makes them wait.
//!
//! ```text
//!  share granted
//!  100 % |\
//!        | \            100 - 2 * busy
//!        |  \
//!        |   \_________ pack-cpu-percent, more the shorter memory is
//!        +---------------> busy: percent of the time spent on clients
//! ```
//!
//! Near `maxmemory` packing works ahead of need: the closer the limit
//! ([`Server::pressure`]), the larger its share.

use crate::config::Param;
use crate::server::Server;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// The percent of the time that packing takes when memory is shortest, unless
/// `pack-cpu-percent` grants more.
const HARDEST_PERCENT: f64 = 50.0;

/// No more is granted at once than this time calls for, however long nothing was.
const GRANTED_FOR_MAX: Duration = Duration::from_secs(1);

/// What is left of one worker's allowance.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: Duration,
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
            left: Duration::ZERO,
            ticked: Instant::now(),
            ran: Duration::ZERO,
            swept: Duration::ZERO,
            pressure: 0.0,
        }
    }
}

impl Allowance {
    /// Grants what may be worked until the clock ticks again; the time since it
    /// last did. To be called on the worker's runtime.
    pub(crate) fn tick(&mut self, server: &Server) -> Duration {
        let since = self.ticked.elapsed().min(GRANTED_FOR_MAX);
        let ran = Handle::current().metrics().worker_total_busy_duration(0);
        let for_clients = ran.saturating_sub(self.ran).saturating_sub(self.swept);
        (self.ticked, self.ran, self.swept) = (Instant::now(), ran, Duration::ZERO);
        self.pressure = server.pressure();
        let least = (server.config.number(Param::PackCpuPercent) as f64)
            .max(self.pressure * HARDEST_PERCENT);
        let busy = for_clients.as_secs_f64() / since.as_secs_f64().max(f64::MIN_POSITIVE);
        let share = (100.0 - 200.0 * busy).clamp(least, 100.0);
        self.left = since.mul_f64(share / 100.0);
        since
    }

    /// The time that may still be worked.
    pub(crate) fn left(&self) -> Duration {
        self.left
    }

    /// Takes note of a turn of the sweeper, and of the part of it that packed.
    pub(crate) fn spend(&mut self, turn: Duration, packing: Duration) {
        self.swept += turn;
        self.left = self.left.saturating_sub(packing);
    }

    /// How short memory was when the clock last ticked, 0 to 1.
    pub(crate) fn pressure(&self) -> f64 {
        self.pressure
    }
}
