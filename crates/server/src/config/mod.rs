//! Configuration: every parameter declared once, in [`PARAMETERS`]. `CONFIG
//! GET` and `SET`, flags, the configuration file, `--help` and the
//! documentation all derive from that table.
//!
//! A value is kept as the text that `CONFIG GET` shows and, where it has one,
//! as a number that hot paths read with one relaxed load.
//!
//! | file | idea |
//! | --- | --- |
//! | `table.rs` | the declarations |
//! | `topics.rs`, `help.rs` | what they are about; help, and a configuration to begin with |
//! | `idle.rs` | those that do nothing here, and why |
//! | `values.rs`, `output_limits.rs`, `policy.rs` | types of values: what they take, how they are shown |
//! | `live.rs`, `packing.rs` | the values in force; those that go together |
//! | `flags.rs`, `file.rs` | where they come from: command line, configuration file |
//! | `rewrite.rs` | and where they go: `CONFIG REWRITE` |
//!
//! Nothing here knows the server: whoever follows a parameter reads it, or is told by
//! the handler of `CONFIG SET`.

mod file;
mod flags;
mod help;
mod idle;
mod live;
mod output_limits;
mod packing;
mod policy;
mod rewrite;
mod table;
mod topics;
mod values;

pub use help::Parameter;
pub(crate) use help::{all, one_screen, parameters, sample, topic_or_parameter};
pub(crate) use live::{Config, Rename, UserLine};
pub(crate) use output_limits::OutputLimits;
pub(crate) use policy::{POLICY_BYTES_MAX, parse_policy};
pub(crate) use rewrite::replace;
pub(crate) use table::{ACCESS_LOCAL, ACCESS_NO, ALIASES, Change, PARAMETERS, Param, find};
pub(crate) use values::Kind;
