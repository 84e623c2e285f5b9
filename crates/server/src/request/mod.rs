//! A request as handlers see it: its arguments, and the errors it is answered with.

pub(crate) mod ahead;
pub(crate) mod args;
pub(crate) mod error;
pub(crate) mod stream;
