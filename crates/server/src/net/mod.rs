//! Sockets: workers that accept connections, and connections that a request enters and
//! its reply leaves.

pub(crate) mod accept;
pub(crate) mod connection;
pub(crate) mod evictor;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod simulated;
pub(crate) mod worker;
