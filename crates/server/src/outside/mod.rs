//! What comes from outside the process besides requests: the time, and chance.

pub(crate) mod chance;
pub(crate) mod clock;
pub(crate) mod files;
