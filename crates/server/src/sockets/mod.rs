//! What sockets need before there are connections: where to listen and
//! which sockets to listen with are there already, how many descriptors there may be, what TLS is spoken with; and the stream of a connection.

pub(crate) mod certificate;
pub(crate) mod descriptors;
pub(crate) mod inherited;
pub(crate) mod listening;
pub(crate) mod outgoing;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod stream;
pub(crate) mod tls;
