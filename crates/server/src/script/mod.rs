//! Scripts: programs in Lua that call commands as one step.
//!
//! ```text
//!  commands/scripting.rs   EVAL, FCALL ...: which program, with what
//!        |
//!        v
//!  run.rs     holds what the program needs, lets it run, learns, answers
//!        |  \
//!        |   machine.rs   the worker's interpreter, with what it has compiled
//!        v
//!  host.rs    redis.call and the like: a command is admitted (`admit.rs`), executed by
//!             its handler, and its reply made a value (`convert.rs`)
//! ```

mod admit;
mod aside;
mod convert;
mod host;
pub(crate) mod library;
mod machine;
pub(crate) mod run;

pub(crate) use machine::check;
