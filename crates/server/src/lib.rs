//! A Redis-compatible server over [`snug_store`].
//!
//! The way of a request: `connection` (bytes in) -> `dispatch` (which command,
//! may it run) -> `commands` (one file per group) -> the store -> `out` ->
//! `connection` (bytes out). `server` is what all workers share; `worker` is
//! the thread around it all, `admin` the HTTP port beside it.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod admin;
mod ahead;
mod allowance;
mod blocked;
mod client;
mod cluster;
mod command;
mod commands;
mod config;
mod connection;
mod context;
mod cooler;
mod descriptors;
mod dispatch;
mod error;
mod eviction;
mod float;
mod glob;
mod large;
mod latency;
mod lcs;
mod learning;
mod listening;
mod log;
mod loops;
mod metrics;
mod mirror;
mod monitor;
mod notify;
mod out;
mod passes;
mod pause;
mod pubsub;
mod reclaim;
mod serve;
mod server;
mod slices;
mod stats;
mod sweeper;
mod timings;
mod trainer;
mod watch;
mod worker;
mod workspaces;

pub use serve::serve;
