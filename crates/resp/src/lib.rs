//! The Redis serialization protocol, versions 2 and 3: requests parsed in
//! place, replies written.
//!
//! ```text
//!  bytes of a connection                                    bytes to a connection
//!  -> request::Parser  (spans of the read buffer)  ...  reply::Writer ->
//!     inline   the older, quoted one-line form          double: how Redis prints one
//!     integer  what Redis takes for a number
//!                                   value::ValueParser reads replies, as a client does
//! ```
//!
//! The crate knows nothing of commands, sockets or values: it works on byte
//! slices that the caller received, and appends to byte vectors that the caller
//! sends. Nothing here blocks, panics on any input, or allocates in proportion
//! to what a client merely *claims* to send.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod double;
mod inline;
mod integer;
mod reply;
mod request;
mod value;

pub use double::append_double;
pub use inline::{UnbalancedQuotes, split_args};
pub use integer::parse_integer;
pub use reply::{Deferred, Protocol, Writer};
pub use request::{
    Argument, LARGE_BULK, Limits, Parsed, Parser, ProtocolError, Span, append_command,
};
pub use value::{ReplyError, Value, ValueParser};
