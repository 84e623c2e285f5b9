//! Who follows commits for others than this server's clients.

pub(crate) mod mirror;
