//! A Redis-compatible server over [`snug_store`].
//!
//! The rooms and their order are in `rooms.txt`; arrows point down, and CI looks.
//!
//! The way of a request: `net::connection` (bytes in) -> `dispatch` (which
//! command, may it run) -> `commands` (one file per group) -> the store ->
//! `engine::out` -> `net::connection` (bytes out). `engine::server` is what all workers
//! share; `net::worker` is the thread around it all, `admin` the HTTP port beside it.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod admin;
mod auth;
mod background;
mod cluster;
mod commands;
mod config;
mod content;
mod dispatch;
mod engine;
mod follow;
mod journal;
mod measure;
mod net;
mod outside;
mod peers;
mod persist;
mod replication;
mod request;
mod script;
mod serve;
mod sockets;
mod text;
mod work;

#[cfg(fuzzing)]
pub use commands::fuzzed::rules_lead_back;
pub use commands::is_command;
pub use persist::aof::commands::{AofCommands, Next as AofNext};
pub use serve::{Parameter, parameters, sample_configuration, serve};
