//! The time.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time, in Unix milliseconds.
#[inline]
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
