//! What executes a command: the server that all workers share, the client that asks,
//! the context a handler is given, the way from arguments to a handler, its reply, and
//! room in memory for it.

pub(crate) mod accounts;
pub(crate) mod aside;
pub(crate) mod away;
pub(crate) mod blocked;
pub(crate) mod call;
pub(crate) mod cards;
pub(crate) mod client;
pub(crate) mod client_eviction;
pub(crate) mod command;
pub(crate) mod context;
pub(crate) mod ending;
pub(crate) mod errands;
pub(crate) mod eviction;
pub(crate) mod keys;
pub(crate) mod large;
pub(crate) mod libraries;
pub(crate) mod monitor;
pub(crate) mod out;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod waits;
