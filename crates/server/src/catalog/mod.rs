//! What a command declares, and the errors it answers.

pub(crate) mod command;
pub(crate) mod error;
