//! Snug's own format: values as they lie in memory, with the dictionaries that they are
//! packed with and the families that these are of. `docs/format.md` is the specification.
//!
//! ```text
//!  "SNUGIMG\n" version: 4 zeros: 4
//!  block ...
//!  block    | kind: 1 | flags: 1 | zeros: 2 | length: 4 | XXH3 of kind to length, and body: 8 | body |
//! ```
//!
//! A block is at most some 256 KiB. One of keys begins with a key, and only the blocks of
//! a value that is longer follow each other: so blocks may be written and read side by
//! side. A dictionary stands before the first block that needs it.
//!
//! Loading unpacks nothing and packs nothing: what is in a block is copied to where it
//! stays. Pages of hashes and sets lie in the order of hashes whose seed is the process's
//! own; a process that has another seed when it loads a file makes these anew, element by
//! element.
//!
//! On its way to a replica a block may be a frame of zstd, where that is worth it
//! ([`ImageWriter::frame`]).
//!
//! Bytes from elsewhere are not trusted ([`Trust`]): then every value is also read once as
//! it is loaded, and what does not fit together is an error. Memory is taken for what has
//! come, never for what is announced.

mod check;
mod framing;
mod loader;
mod pen;
mod reader;
mod writer;

pub use loader::{Loaded, Loading, Refused, load};
pub(crate) use pen::{Pen, Source};
pub use reader::{ImageError, ImageReader, Part, Trust};
pub use wire::MAGIC;
pub use writer::ImageWriter;

pub(crate) mod wire {
    //! The numbers of the format.

    /// How a file begins.
    pub const MAGIC: &[u8; 8] = b"SNUGIMG\n";
    pub(crate) const VERSION: u32 = 1;
    pub(crate) const FILE_HEAD: usize = 16;
    pub(crate) const BLOCK_HEAD: usize = 16;
    /// A block is given on when it has so many bytes, ...
    pub(crate) const KEYS_BYTES: usize = 64 * 1024;
    /// ... within a value when it has so many, ...
    pub(crate) const BODY_BYTES: usize = 256 * 1024;
    /// ... and has never more than these.
    pub(crate) const BODY_MAX: usize = 1 << 20;

    /// The value at the end of the block goes on in the next.
    pub(crate) const GOES_ON: u8 = 1;
    /// The body is a frame of zstd.
    pub(crate) const FRAMED: u8 = 2;

    pub(crate) mod block {
        pub(crate) const START: u8 = 1;
        pub(crate) const AUX: u8 = 2;
        pub(crate) const FUNCTION: u8 = 3;
        pub(crate) const DICTIONARY: u8 = 4;
        pub(crate) const FAMILY: u8 = 5;
        pub(crate) const KEYS: u8 = 6;
        pub(crate) const MORE: u8 = 7;
        pub(crate) const END: u8 = 8;
    }

    /// Of a key: it expires.
    pub(crate) const EXPIRES: u8 = 1;
    /// Its access bits.
    pub(crate) const ACCESS_SHIFT: u8 = 1;
}

/// The sum of a block.
fn sum(head: &[u8], body: &[u8]) -> u64 {
    let mut hasher = twox_hash::XxHash3_64::new();
    std::hash::Hasher::write(&mut hasher, head);
    std::hash::Hasher::write(&mut hasher, body);
    std::hash::Hasher::finish(&hasher)
}

/// What ends a file of so many keys.
pub fn end_of(keys: u64) -> Vec<u8> {
    block(wire::block::END, 0, &keys.to_le_bytes())
}

/// A block.
fn block(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut block = vec![kind, flags, 0, 0];
    block.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let sum = sum(&block, body);
    block.extend_from_slice(&sum.to_le_bytes());
    block.extend_from_slice(body);
    block
}

/// Sums the blocks of a file anew, as far as they can be told apart: so that tests and
/// fuzzers get past the sums.
#[doc(hidden)]
pub fn sum_anew(file: &mut [u8]) {
    let Some(mut rest) = file.get_mut(wire::FILE_HEAD..) else { return };
    while let Some((head, behind)) = rest.split_at_mut_checked(wire::BLOCK_HEAD) {
        let len = u32::from_le_bytes(head[4..8].try_into().unwrap_or_default()) as usize;
        let Some((body, next)) = behind.split_at_mut_checked(len) else { return };
        let sum = sum(&head[..8], body);
        head[8..].copy_from_slice(&sum.to_le_bytes());
        rest = next;
    }
}
