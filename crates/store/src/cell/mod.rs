//! Cells: a key and its value in one allocation, and the sorted tables of them that
//! a slot is made of.

pub(crate) mod entry;
pub(crate) mod table;
