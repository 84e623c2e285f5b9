//! What is done with texts alone, as Redis does it: patterns, long doubles, the
//! longest common subsequence. Knows nothing of a server.

pub(crate) mod accepted;
pub(crate) mod double;
pub(crate) mod float;
pub(crate) mod glob;
pub(crate) mod lcs;
