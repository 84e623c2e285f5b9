//! The disk tier's engine: it keeps records that somebody in memory refers to, and
//! knows nothing else of them.
//!
//! ```text
//!  write(records) ──> places, each with one reference; none of it lost from then on
//!  read(place, length) ──> the record
//!  retain, release        a record without references is gone
//! ```
//!
//! What is kept lives as long as the process: whoever refers to a record is in memory,
//! so what an engine finds at its start it removes. A record's length and checksum are
//! kept by whoever refers to it too ([`sum`]): an engine that gives back other bytes is
//! found out.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
mod keyed;
mod log;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod simulated;
mod sparse;
#[cfg(test)]
mod tests;

pub use log::Log;
#[doc(hidden)]
pub use simulated::Simulated;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The engines that this build has, by name: the log, which is always there, and those of
/// the features `rocksdb` and `fjall`. What stands behind a dash is how the engine itself
/// compresses what it is given: `hybrid` is lz4 for what is new and zstd for what has
/// sunk to the lowest level.
pub const ENGINES: &[&str] = &[
    "log",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    #[cfg(feature = "rocksdb")]
    "rocksdb-lz4",
    #[cfg(feature = "rocksdb")]
    "rocksdb-zstd",
    #[cfg(feature = "rocksdb")]
    "rocksdb-hybrid",
    #[cfg(feature = "fjall")]
    "fjall",
    #[cfg(feature = "fjall")]
    "fjall-lz4",
];

/// Opens an engine of [`ENGINES`] in a folder, which is made if it is not there; what any
/// engine left there earlier is removed. `limit` is the most bytes of files, 0 for no
/// limit. `Unsupported` says that this build has no engine of that name.
pub fn open(name: &str, folder: &Path, limit: u64) -> io::Result<Arc<dyn Engine>> {
    if !ENGINES.contains(&name) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    std::fs::create_dir_all(folder)?;
    for other in [ROCKSDB, FJALL].map(|other| folder.join(other)) {
        if other.exists() {
            std::fs::remove_dir_all(other)?;
        }
    }
    if name == "log" {
        return Ok(Arc::new(Log::open(folder, limit)?));
    }
    log::remove_left(folder)?;
    #[cfg(any(feature = "fjall", feature = "rocksdb"))]
    let range = keyed::range_bytes(limit);
    match name.split_once('-').unwrap_or((name, "")) {
        #[cfg(feature = "rocksdb")]
        ("rocksdb", compression) => {
            let store = rocksdb::Rocks::open(&folder.join(ROCKSDB), compression, range as usize)?;
            Ok(Arc::new(keyed::Keyed::new(store, range, limit)))
        }
        #[cfg(feature = "fjall")]
        ("fjall", compression) => {
            let store = fjall::Fjall::open(&folder.join(FJALL), compression)?;
            Ok(Arc::new(keyed::Keyed::new(store, range, limit)))
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Folders that engines have to themselves within that of the tier.
const ROCKSDB: &str = "tier-rocksdb";
const FJALL: &str = "tier-fjall";

pub(crate) fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the tier is full")
}

/// Where a record is: a number that only its engine understands.
pub type Place = u64;

/// Who writes, which decides how much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Records that come from memory.
    Leave,
    /// Records of the engine's own, written again so that the room that they leave
    /// behind is free: some room is kept for these.
    Move,
}

/// What an engine holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of records that somebody refers to.
    pub live: u64,
    /// Bytes of files.
    pub files_bytes: u64,
    /// How many files.
    pub files: u64,
    /// Bytes written since the start, of these by moving records ...
    pub written: u64,
    /// ... so many.
    pub moved: u64,
    /// Bytes read since the start.
    pub read: u64,
    /// Syncs since the start.
    pub syncs: u64,
    /// Bytes of memory for buffers, indexes and caches of the engine's own.
    pub memory: u64,
}

/// Keeps records on disk. All of it may be called by several threads at once.
pub trait Engine: Send + Sync + Debug {
    /// Writes records, which can be read from then on, whatever becomes of the disk: they
    /// are synced, or in a buffer that is kept until they are. Where each is. Each has one
    /// reference, which is the caller's to release. With an error none of them is kept.
    /// `StorageFull` says that the engine's own limit is reached.
    fn write(&self, records: &[&[u8]], purpose: Purpose) -> io::Result<Vec<Place>>;

    /// Reads a record of this length. May block for as long as the disk takes.
    fn read(&self, place: Place, len: usize) -> io::Result<Vec<u8>>;

    /// One more refers to a record. O(1), no system call.
    fn retain(&self, place: Place, len: usize);

    /// One fewer refers to a record, which is gone if it was the last. O(1), no system
    /// call.
    fn release(&self, place: Place, len: usize);

    /// Whether the record had better be written again: it lies among much that is gone.
    fn is_sparse(&self, place: Place) -> bool;

    /// Gives back the room of what is gone; whether some records are
    /// [sparse](Self::is_sparse) now, and had better be moved. To be called now and
    /// then, by one thread.
    fn tidy(&self) -> bool;

    /// Sets the most bytes of files, 0 for no limit.
    fn limit(&self, bytes: u64);

    /// Whether so many more bytes fit.
    fn has_room(&self, bytes: u64) -> bool;

    /// What it holds and has done.
    fn figures(&self) -> Figures;
}

/// The checksum of a record: the low half of XXH3.
pub fn sum(record: &[u8]) -> u32 {
    twox_hash::XxHash3_64::oneshot(record) as u32
}
