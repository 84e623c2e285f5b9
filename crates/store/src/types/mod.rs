//! The data types that an entry boxes, one file or folder each.

pub mod stream;
