//! What is counted and timed, and what is written to the log: for `INFO`, the slow
//! log, latency events and metrics, which are told elsewhere.

pub(crate) mod families;
pub(crate) mod latency;
pub(crate) mod log;
pub(crate) mod loops;
pub(crate) mod passes;
pub(crate) mod stats;
pub(crate) mod timings;
