//! Packing: turns bytes into fewer bytes and back, decides whether it is worth
//! it, and never stalls its caller.
//!
//! Knows nothing of keys, sockets, clocks or threads.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod codec;
pub mod coding;
pub mod columns;
mod dictionary;
mod elements;
pub mod estimate;
pub mod family;
pub mod frames;
pub mod mime;
pub mod packed;
mod phrases;
mod planes;
pub mod policy;
pub mod pool;
mod rans;
mod recognise;
mod registry;
pub mod rice;
mod runs;
pub mod segments;
pub mod stream;
pub mod varint;
mod workspace;
mod zstd_static;

pub use codec::Codec;
pub use dictionary::{
    DICTIONARY_BYTES, Dictionary, DictionaryError, DictionaryKind, DictionarySource, NoDictionaries,
};
pub use registry::{Registry, RegistryStats};
pub use runs::decode_runs;
pub use segments::{SEGMENT_BYTES, Segments, SegmentsFiller};
pub use workspace::{PackError, UnpackError, Workspace, WorkspaceConfig};
pub use zstd_static::ZstdError;
