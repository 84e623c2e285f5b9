//! What is done with texts alone, as Redis does it: patterns, long doubles, the
//! longest common subsequence; and what content over HTTP writes down of strings. Knows
//! nothing of a server.

pub(crate) mod accepted;
pub(crate) mod card;
pub(crate) mod double;
pub(crate) mod float;
pub(crate) mod glob;
pub(crate) mod lcs;
pub(crate) mod tag;
