//! Sockets: workers that accept connections, and connections that a request enters and
//! its reply leaves.

pub(crate) mod accept;
pub(crate) mod connection;
pub(crate) mod evictor;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod worker;
