//! Lua 5.1 that a server can run for anybody: what a script does ends with the script.
//!
//! ```text
//!  Machine   one interpreter, for one thread: allocator with a limit, hook, libraries
//!    |
//!    | gives to what runs in it
//!    v
//!  Stack     Lua's stack, as native functions and hosts see it: raw access only
//! ```
//!
//! What it promises, to whoever runs a script that they have not written:
//!
//! - **Memory** is bounded ([`Machine::set_limit`]): an allocation beyond it ends the
//!   script with `not enough memory`. Native functions never see an allocation fail;
//!   what they took too much is told when they return.
//! - **Time** is watched ([`Watch`]): every [`TICK`] instructions, more often while they
//!   take long, and in native functions that may take long. What a watch ends cannot be caught.
//! - **State** does not pass from script to script: globals and libraries are read-only
//!   ([`Machine::protect`]), nothing can be hung on the metatable of strings, and what
//!   `setfenv` did is undone.
//! - **The interpreter's known holes** are closed from outside: `libs` replaces the
//!   functions that can overflow, run for ever or recurse without bound, binary chunks
//!   and `newproxy` are refused, and the name of a chunk is anchored while it is parsed.
//!
//! PUC-Lua 5.1.5 is built from the `lua-src` crate by `mlua-sys`, which `mlua` stands
//! on. `mlua` itself was not taken: an error is to be a Lua table here, with the
//! position of the caller and no frame between; and a call is to cost nothing.

mod libs;
mod machine;

pub use libs::number::{format_g14, format_g17};
pub use machine::{
    Answer, Broken, Failed, Host, Kind, Machine, Native, Raise, Stack, TICK, Table, Watch,
};
