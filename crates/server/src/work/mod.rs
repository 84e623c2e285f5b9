//! Work that takes a while: in slices, with workspaces that are reserved, with room in
//! memory; what is to be trained; and freeing what is large elsewhere.

pub(crate) mod learning;
pub(crate) mod reclaim;
pub(crate) mod slices;
pub(crate) mod tier;
pub(crate) mod training;
pub(crate) mod workspaces;
