//! What comes from outside the process besides requests: the time, chance, files, and who
//! runs when.

pub(crate) mod chance;
pub(crate) mod clock;
pub(crate) mod files;
#[cfg(test)]
pub(crate) mod network;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod threads;

/// The version of Redis whose behaviour this server has.
pub(crate) const REDIS_VERSION: &str = "7.4.2";
