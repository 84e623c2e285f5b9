//! Who hears of what others do: publish and subscribe, watches, waiting clients,
//! keyspace events, pauses.

pub(crate) mod client_memory;
pub(crate) mod clients;
pub(crate) mod held;
pub(crate) mod listing;
pub(crate) mod pause;
pub(crate) mod pubsub;
pub(crate) mod tracking;
pub(crate) mod watch;
