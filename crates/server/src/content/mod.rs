//! Content over HTTP: strings put and fetched by HTTP/1.1 and HTTP/2, on a port of their
//! own.
//!
//! | path | methods | |
//! | --- | --- | --- |
//! | `/content/{key}` | GET, HEAD, PUT, DELETE | the string at the key, percent-encoded |
//! | `/content` | POST | a new string at a key that is made up |
//! | `/content?prefix=&cursor=&count=` | GET | names of strings |
//! | `/content/config` | GET, PUT | the packing policy |
//!
//! ```text
//!  socket --> hyper --> route --> account ---> get, put, listing
//!   net/accept.rs     paths, methods  Authorization   |
//!                                                     v
//!                     ask.rs:  dispatch asks all that it asks of a client who sends
//!                              GET, SET, DEL or SCAN, then has a handler of this
//!                              room executed in the place of the command's own
//! ```
//!
//! So the rights are those of the commands, and so are `maxmemory`, the role of a replica,
//! pauses, `CLIENT LIST`, `MONITOR` and the slow log. What is changed is changed by ops, and
//! heard of by whoever hears of commands. A request is served by the worker that accepted
//! its connection, as a command is: no work goes to another thread.
//!
//! The body is the string and nothing else. What HTTP knows of it besides, its type and when
//! it was changed, lies beside it in a string of its own, its card (`card.rs`).
//!
//! Bodies come and go in pieces of at most a segment, 128 KiB, and after each piece whoever
//! else waits for the worker has a turn. A connection keeps what hyper's buffers hold and
//! a reference to the value; the value may be overwritten meanwhile.

mod answer;
mod ask;
mod body;
mod card;
mod conditions;
mod get;
mod kept;
mod link;
mod listing;
mod name;
mod policy;
mod put;
mod ranges;
mod receive;
mod route;
mod variant;

pub(crate) use link::HTTP;
