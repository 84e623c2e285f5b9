//! The trainer's way to the memory that a training takes: it waits for room below
//! `maxmemory`, and has some reserved meanwhile (`work/learning.rs`).

use crate::config::Param;
use crate::engine::server::Server;
use crate::outside::clock::Instant;
use crate::work::learning::RESERVED_FOR;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What of the limit may be reserved: one in so many of its bytes.
const RESERVED_ONE_IN: usize = 4;

/// For how long nothing is reserved after a training was given up.
const PAUSE: Duration = Duration::from_mins(1);

/// How often the trainer looks whether there is room.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The trainer's way to the memory for a training.
#[derive(Debug)]
pub(crate) struct WayToRoom {
    server: Weak<Server>,
    /// Until when nothing is reserved.
    pause_until: Option<Instant>,
}

/// A training runs. Its end gives back what is reserved for it.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Arc<Server>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.learning.give_back();
    }
}

impl WayToRoom {
    pub(crate) fn new(server: Weak<Server>) -> Self {
        Self { server, pause_until: None }
    }

    /// Waits until there is room for as many bytes as `wanted` says at each look, but
    /// not if it `may_fail`. `Err` if there is none: with the server, or with nothing if
    /// that ends.
    pub(crate) fn wait(
        &mut self,
        may_fail: bool,
        wanted: impl Fn() -> usize,
    ) -> Result<Running, Option<Arc<Server>>> {
        let began = Instant::now();
        let reserves = !may_fail && self.pause_until.is_none_or(|until| began >= until);
        loop {
            let server = Weak::upgrade(&self.server).ok_or(None)?;
            if server.ending.load(Relaxed) {
                return Err(None);
            }
            let bytes = wanted();
            let limit = server.config.number(Param::MaxMemory) as usize;
            let (now_us, reserved) = (server.uptime_us(), bytes.min(limit / RESERVED_ONE_IN));
            if may_fail && !server.has_room(2 * bytes) {
                return Err(Some(server));
            }
            if server.has_room(bytes) {
                // Keys make room for it as it comes to need it.
                let evicts = server.evicts() && !server.learning.is_refusing();
                server.learning.reserve(if evicts { 0 } else { reserved }, now_us);
                return Ok(Running(server));
            }
            if began.elapsed() >= RESERVED_FOR || bytes > limit {
                server.learning.reserve(0, now_us);
                if reserves {
                    self.pause_until = Some(Instant::now() + PAUSE);
                }
                return Err(Some(server));
            }
            if reserves && server.learning.reserved_at(now_us) != reserved {
                server.learning.reserve(reserved, now_us);
            }
            drop(server);
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
