//! What the store counts of its entries, and what it tells of one.

pub mod anatomy;
pub(crate) mod weight;
