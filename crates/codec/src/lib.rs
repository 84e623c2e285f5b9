//! Packing: turns bytes into fewer bytes and back, decides whether it is worth
//! it, and never stalls its caller.
//!
//! Knows nothing of keys, sockets, clocks or threads.

pub mod segments;

pub use segments::{SEGMENT_BYTES, Segments, SegmentsFiller};
