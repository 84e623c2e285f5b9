//! The `snug` binary.

fn main() {}
