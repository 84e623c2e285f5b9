//! `disk-blobs`: JSON blobs around random hex, 512 B, 4 KiB and 16 KiB, written one
//! after the other and read at random, kept raw, as lz4 and as zstd.
//!
//! A plain file stands in for a storage engine: it is what packing alone does to
//! the disk. What a log-structured engine adds (levels, compaction, a codec for
//! each level) is not in it.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use snug_codec::{Codec, NoDictionaries, Workspace, WorkspaceConfig};

use super::Line;
use super::data::Random;
use super::timing::{cpu_seconds, quantile};

const SIZES: [usize; 3] = [512, 4096, 16 * 1024];
const CODECS: [(Codec, i32); 3] = [(Codec::None, 0), (Codec::Lz4, 0), (Codec::Zstd, 3)];
/// Blobs of one iteration, and iterations.
const BLOBS: usize = 1000;
const ITERATIONS: usize = 4;

/// One size kept in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlobLine {
    /// Raw bytes of a blob.
    pub raw_bytes: usize,
    /// How it is kept.
    pub codec: String,
    /// Bytes in the file, a blob.
    pub stored_bytes: f64,
    /// Raw MB a second, packing, writing and syncing.
    pub mb_per_second_write: f64,
    /// CPU microseconds to pack and write a blob.
    pub write_cpu_us: f64,
    /// Median microseconds to read and unpack a blob, from a file of which nothing is
    /// in memory at first; small blobs share pages.
    pub read_median_us: f64,
    /// 99th percentile.
    pub read_p99_us: f64,
    /// CPU microseconds of it.
    pub read_cpu_us: f64,
}

impl Line for BlobLine {
    const HEADS: &[&str] = &[
        "bytes",
        "codec",
        "stored",
        "MB/s written",
        "write CPU us",
        "read us",
        "p99",
        "read CPU us",
    ];

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.raw_bytes.to_string(), self.codec.clone()];
        cells.push(format!("{:.0}", self.stored_bytes));
        cells.push(format!("{:.0}", self.mb_per_second_write));
        let figures = [self.write_cpu_us, self.read_median_us, self.read_p99_us, self.read_cpu_us];
        cells.extend(figures.map(|us| format!("{us:.1}")));
        cells
    }
}

/// A JSON document around random hex, `len` bytes long.
fn blob(random: &mut Random, number: usize, len: usize) -> Vec<u8> {
    let head = format!(r#"{{"id":{number},"type":"blob","created":1700000000,"payload":""#);
    let mut json = head.into_bytes();
    while json.len() + 2 < len {
        json.extend_from_slice(format!("{:016x}", random.next_u64()).as_bytes());
    }
    json.truncate(len - 2);
    json.extend_from_slice(b"\"}");
    json
}

/// Measures in a file of `folder`, which is removed afterwards.
pub(super) fn measure(seed: u64, folder: &Path, lines: &mut Vec<BlobLine>) -> io::Result<()> {
    let path = folder.join(format!("snug-disk-blobs-{}", std::process::id()));
    let mut all = || {
        for raw_bytes in SIZES {
            for (codec, level) in CODECS {
                lines.push(line(seed, &path, codec, level, raw_bytes)?);
            }
        }
        Ok(())
    };
    let measured = all();
    let _ = std::fs::remove_file(&path);
    measured
}

fn line(
    seed: u64,
    path: &Path,
    codec: Codec,
    level: i32,
    raw_bytes: usize,
) -> io::Result<BlobLine> {
    let mut random = Random::new(seed);
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let count = BLOBS * ITERATIONS;
    let blobs: Vec<Vec<u8>> = (0..count).map(|i| blob(&mut random, i, raw_bytes)).collect();
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;

    let mut places = Vec::with_capacity(count);
    let mut packed = Vec::new();
    let mut stored = 0_u64;
    let (started, cpu) = (Instant::now(), cpu_seconds());
    for iteration in blobs.chunks(BLOBS) {
        packed.clear();
        for blob in iteration {
            let from = packed.len();
            ws.pack(codec, level, None, blob, &mut packed).map_err(io::Error::other)?;
            places.push((stored + from as u64, packed.len() - from));
        }
        stored += packed.len() as u64;
        file.write_all(&packed)?;
        file.sync_data()?;
    }
    let (seconds, write_cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);

    // Without these, what was just written would be read from memory, and then what
    // the kernel read ahead. A file system that takes no advice shows its cache.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    let mut samples = Vec::with_capacity(count);
    let (mut bytes, mut out) = (Vec::new(), Vec::new());
    let cpu = cpu_seconds();
    for index in order {
        let (at, len) = places[index];
        let begun = Instant::now();
        bytes.resize(len, 0);
        file.read_exact_at(&mut bytes, at)?;
        out.clear();
        ws.unpack(&bytes, &NoDictionaries, &mut out, raw_bytes).map_err(io::Error::other)?;
        samples.push(begun.elapsed().as_secs_f64() * 1e6);
        if out != blobs[index] {
            return Err(io::Error::other("a blob came back changed"));
        }
    }
    let read_cpu = cpu_seconds() - cpu;
    Ok(BlobLine {
        raw_bytes,
        codec: codec.to_string(),
        stored_bytes: stored as f64 / count as f64,
        mb_per_second_write: (raw_bytes * count) as f64 / 1e6 / seconds,
        write_cpu_us: write_cpu / count as f64 * 1e6,
        read_median_us: quantile(&mut samples, 0.5),
        read_p99_us: quantile(&mut samples, 0.99),
        read_cpu_us: read_cpu / count as f64 * 1e6,
    })
}

#[cfg(test)]
mod tests {
    // The codec crate's own report includes this file and has no test harness.
    #[allow(unused_imports)]
    use super::*;

    #[test]
    fn blobs_are_json_of_their_size() {
        let mut random = Random::new(1);
        for len in SIZES {
            let blob = blob(&mut random, 7, len);
            assert_eq!(blob.len(), len);
            let json: serde_json::Value = serde_json::from_slice(&blob).unwrap();
            assert!(json["payload"].as_str().unwrap().bytes().all(|b| b.is_ascii_hexdigit()));
        }
    }
}
