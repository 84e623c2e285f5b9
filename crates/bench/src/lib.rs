//! The yardstick: a load generator, workloads and a comparison for any server
//! that speaks RESP.
//!
//! ```text
//! workloads/  what to send            target.rs   a server: given, or started and pinned
//!     |                                   |
//! source.rs   a connection's requests     |
//!     |                                   |
//! load.rs ----------- socket -------> endpoint.rs
//!     |  reply.rs, pace.rs, latency.rs    |  INFO, process.rs
//!     +---------- run.rs: one measured step ----------+
//!                     |
//!        report/: table, CSV, JSON, HTML      compare.rs: A B A B, medians, ratios
//! ```
//!
//! It knows nothing of any server's insides.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod affinity;
pub mod agreement;
pub mod cli;
pub mod cluster;
pub mod codec;
pub mod compare;
pub mod corpus;
pub mod death_signal;
pub mod endpoint;
pub mod interrupt;
pub mod keys;
pub mod latency;
pub mod load;
pub mod pace;
pub mod payload;
pub mod process;
pub mod progress;
pub mod reply;
pub mod report;
pub mod request;
pub mod run;
pub mod server_facts;
pub mod side_by_side;
pub mod source;
pub mod suite;
pub mod target;
pub mod tls;
pub mod transport;
pub mod url;
pub mod workloads;
