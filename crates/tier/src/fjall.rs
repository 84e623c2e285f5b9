//! Fjall as a store for [`Keyed`](crate::keyed::Keyed), with values apart from keys.
//!
//! It is here to be compared with. Its journal cannot be left out, so that everything is
//! written twice; it has no deletion of ranges.

use crate::Place;
use crate::keyed::KeyValues;
use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, Database, Error, Keyspace, KeyspaceCreateOptions, KvSeparationOptions,
};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Bytes of the buffer of what is new, and of the cache.
const BUFFER_BYTES: u64 = 16 << 20;
const CACHE_BYTES: u64 = 16 << 20;

pub(crate) struct Fjall {
    database: Database,
    records: Keyspace,
}

impl fmt::Debug for Fjall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fjall").field("path", &self.records.path()).finish_non_exhaustive()
    }
}

fn told(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::other(other),
    }
}

impl Fjall {
    /// An empty store in a folder that is not there. `compression` is that of
    /// [`ENGINES`](crate::ENGINES).
    pub(crate) fn open(folder: &Path, compression: &str) -> io::Result<Self> {
        let compression = match compression {
            "lz4" => CompressionType::Lz4,
            _ => CompressionType::None,
        };
        let apart = KvSeparationOptions::default().compression(compression);
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(BUFFER_BYTES)
                .manual_journal_persist(true)
                .data_block_compression_policy(CompressionPolicy::all(compression))
                .with_kv_separation(Some(apart))
        };
        let builder =
            Database::builder(folder).cache_size(CACHE_BYTES).manual_journal_persist(true);
        let database = builder.open().map_err(told)?;
        let records = database.keyspace("records", options).map_err(told)?;
        Ok(Self { database, records })
    }
}

impl KeyValues for Fjall {
    fn put(&self, records: &[(Place, &[u8])]) -> io::Result<()> {
        let mut batch = self.database.batch();
        records.iter().for_each(|(place, record)| {
            batch.insert(&self.records, place.to_be_bytes(), *record);
        });
        batch.commit().map_err(told)
    }

    fn get(&self, place: Place) -> io::Result<Option<Vec<u8>>> {
        let record = self.records.get(place.to_be_bytes()).map_err(told)?;
        Ok(record.map(|record| record.to_vec()))
    }

    fn rewrite(&self, _: Range<Place>, gone: &[Place]) -> io::Result<()> {
        let mut batch = self.database.batch();
        gone.iter().for_each(|place| batch.remove_weak(&self.records, place.to_be_bytes()));
        batch.commit().map_err(told)
    }

    fn drop_range(&self, range: Range<Place>, gone: &[Place]) -> io::Result<()> {
        self.rewrite(range, gone)
    }

    fn files(&self) -> (u64, u64) {
        let files = self.records.table_count() + self.records.blob_file_count();
        let bytes = self.database.disk_space().unwrap_or(0) + self.database.write_buffer_size();
        (bytes, files as u64)
    }

    fn memory(&self) -> u64 {
        self.database.write_buffer_size() + self.database.cache_size()
    }
}
