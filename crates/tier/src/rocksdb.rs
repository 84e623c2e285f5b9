//! RocksDB as a store for [`Keyed`](crate::keyed::Keyed).
//!
//! What is in the tier need not outlive the process, so there is no write-ahead log: a
//! record is in a buffer in memory until that is full and is written out as a file, and it
//! can be read all the time. Buffers are small, since memory is what a tier is there to
//! save, and so is the cache: what is read often comes back to memory by itself. A key
//! that is asked for is always there, so that there are no filters either.

use crate::Place;
use crate::keyed::KeyValues;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB,
    DBCompressionType, Error, LogLevel, Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Bytes of a file, and of the cache, which holds indexes for the most part.
const FILE_BYTES: u64 = 64 << 20;
const CACHE_BYTES: usize = 16 << 20;

/// Levels that RocksDB has unless told otherwise.
const LEVELS: usize = 7;

pub(crate) struct Rocks {
    db: DB,
    writing: WriteOptions,
}

impl fmt::Debug for Rocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rocks").field("path", &self.db.path()).finish_non_exhaustive()
    }
}

fn told(error: Error) -> io::Error {
    let text = error.into_string();
    // Its kind says no more than that it is one of input and output.
    match text.contains("No space left on device") {
        true => io::Error::new(io::ErrorKind::StorageFull, text),
        false => io::Error::other(text),
    }
}

impl Rocks {
    /// An empty store in a folder that is not there. `compression` is that of
    /// [`ENGINES`](crate::ENGINES), `buffer` the bytes of a buffer, of which there are two.
    pub(crate) fn open(folder: &Path, compression: &str, buffer: usize) -> io::Result<Self> {
        let (new, lowest) = match compression {
            "lz4" => (DBCompressionType::Lz4, DBCompressionType::Lz4),
            "zstd" => (DBCompressionType::Zstd, DBCompressionType::Zstd),
            "hybrid" => (DBCompressionType::Lz4, DBCompressionType::Zstd),
            _ => (DBCompressionType::None, DBCompressionType::None),
        };
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES).map_err(told)?);
        blocks.set_cache_index_and_filter_blocks(true);
        // In parts: the index of a whole file is larger than what the cache keeps in one of
        // its shards, and would be read and unpacked again for every record.
        blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_error_if_exists(true);
        options.set_compression_type(new);
        options.set_bottommost_compression_type(lowest);
        options.set_block_based_table_factory(&blocks);
        options.set_write_buffer_size(buffer);
        options.set_max_write_buffer_number(2);
        options.set_target_file_size_base(FILE_BYTES);
        options.set_max_background_jobs(2);
        options.set_keep_log_file_num(1);
        options.set_log_level(LogLevel::Warn);
        let db = DB::open(&options, folder).map_err(told)?;
        let mut writing = WriteOptions::default();
        writing.disable_wal(true);
        Ok(Self { db, writing })
    }

    fn number(&self, property: &str) -> u64 {
        self.db.property_int_value(property).ok().flatten().unwrap_or(0)
    }

    /// Rewrites what is in a range, whatever level it is on.
    fn compact(&self, range: &Range<Place>) {
        let mut how = CompactOptions::default();
        how.set_exclusive_manual_compaction(false);
        how.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        let (from, to) = (range.start.to_be_bytes(), (range.end - 1).to_be_bytes());
        self.db.compact_range_opt(Some(from), Some(to), &how);
    }
}

impl KeyValues for Rocks {
    fn put(&self, records: &[(Place, &[u8])]) -> io::Result<()> {
        let mut batch = WriteBatch::default();
        records.iter().for_each(|(place, record)| batch.put(place.to_be_bytes(), record));
        self.db.write_opt(batch, &self.writing).map_err(told)
    }

    fn get(&self, place: Place) -> io::Result<Option<Vec<u8>>> {
        let mut reading = ReadOptions::default();
        // It is on its way to memory.
        reading.fill_cache(false);
        self.db.get_opt(place.to_be_bytes(), &reading).map_err(told)
    }

    fn rewrite(&self, range: Range<Place>, gone: &[Place]) -> io::Result<()> {
        let mut batch = WriteBatch::default();
        gone.iter().for_each(|place| batch.delete(place.to_be_bytes()));
        self.db.write_opt(batch, &self.writing).map_err(told)?;
        self.compact(&range);
        Ok(())
    }

    fn drop_range(&self, range: Range<Place>, _: &[Place]) -> io::Result<()> {
        let (from, to) = (range.start.to_be_bytes(), range.end.to_be_bytes());
        // Files that have nothing else go at once, ...
        self.db.delete_file_in_range(from, (range.end - 1).to_be_bytes()).map_err(told)?;
        // ... and what others have of it, with the next rewriting of these.
        let mut batch = WriteBatch::default();
        batch.delete_range(from, to);
        self.db.write_opt(batch, &self.writing).map_err(told)?;
        self.compact(&range);
        Ok(())
    }

    fn files(&self) -> (u64, u64) {
        let bytes = self.number("rocksdb.total-sst-files-size")
            + self.number("rocksdb.cur-size-all-mem-tables");
        let at = |level| self.db.property_value(&format!("rocksdb.num-files-at-level{level}"));
        let count = |level| at(level).ok().flatten().and_then(|text| text.parse::<u64>().ok());
        (bytes, (0..LEVELS).filter_map(count).sum())
    }

    fn memory(&self) -> u64 {
        self.number("rocksdb.size-all-mem-tables")
            + self.number("rocksdb.block-cache-usage")
            + self.number("rocksdb.estimate-table-readers-mem")
    }
}
