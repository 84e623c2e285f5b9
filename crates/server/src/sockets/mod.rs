//! What sockets need before there are connections: where to listen, and how many
//! descriptors there may be.

pub(crate) mod descriptors;
pub(crate) mod listening;
