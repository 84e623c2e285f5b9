//! The data types, one file or folder each.

pub mod stream;
pub mod string;
