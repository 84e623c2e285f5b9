//! `disk-blobs`: JSON blobs around random hex, written one thousand at a time and read at
//! random, over each engine of this build; the log with what packs them in the server.
//!
//! ```text
//!  write     all blobs, in order, 1,000 at once, until the engine is at rest
//!  read      some at random, after the page cache was emptied
//!  replace   half of the blobs, at random, 1,000 at once, until the engine is at rest
//! ```
//!
//! What the device wrote and read is what the kernel counts for this process
//! (`/proc/self/io`), threads of the engines included.
#![allow(missing_docs)]

use clap::Parser;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng};
use rustix::time::ClockId;
use snug_codec::{Codec, NoDictionaries, Workspace, WorkspaceConfig};
use snug_tier::{ENGINES, Engine, Place, Purpose, open};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Blobs of one write.
const BATCH: usize = 1000;
/// The engine is at rest when nothing was written for so long.
const REST: Duration = Duration::from_millis(600);
/// What the log's records are packed with before they come to it: codec and level.
const PACKED: [(&str, Codec, i32); 3] = [
    ("", Codec::None, 0),
    (", packed with lz4", Codec::Lz4, 0),
    (", packed with zstd 3", Codec::Zstd, 3),
];

/// Disk engines beside each other on JSON blobs; prints tables in Markdown.
#[derive(Parser)]
struct Options {
    /// How many blobs there are.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000])]
    blobs: Vec<usize>,
    /// Bytes of a blob.
    #[arg(long, value_delimiter = ',', default_values_t = [512, 4096, 16_384])]
    sizes: Vec<usize>,
    /// Random reads.
    #[arg(long, default_value_t = 5000)]
    reads: usize,
    /// Rounds, of which medians are told.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// A folder on the disk that is measured.
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// Only engines whose name has this in it.
    #[arg(long, default_value = "")]
    engine: String,
    /// What Cargo passes to all benchmarks.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What one engine did with one size.
const HEADS: [&str; 10] = [
    "engine",
    "MB/s written",
    "CPU us a write",
    "device bytes a byte",
    "disk a byte",
    "read us",
    "p99",
    "CPU us a read",
    "device bytes a read",
    "replacing: device bytes a byte; disk a byte",
];

fn main() -> io::Result<()> {
    let options = Options::parse();
    for &count in &options.blobs {
        for &size in &options.sizes {
            println!("\n{count} blobs of {size} bytes\n");
            println!("| {} |\n| --- |{}", HEADS.join(" | "), " ---: |".repeat(HEADS.len() - 1));
            for &engine in ENGINES.iter().filter(|name| name.contains(&options.engine)) {
                let packed = if engine == "log" { &PACKED[..] } else { &PACKED[..1] };
                for &(how, codec, level) in packed {
                    let rounds = (0..options.rounds).map(|round| {
                        let seed = round as u64;
                        let run = Run::open(engine, codec, level, &options, count, size, seed)?;
                        run.measure(options.reads)
                    });
                    let rounds = rounds.collect::<io::Result<Vec<_>>>()?;
                    println!("| {engine}{how} | {} |", told(&rounds));
                }
            }
        }
    }
    Ok(())
}

/// The medians of the rounds.
fn told(rounds: &[[f64; 10]]) -> String {
    let median = |at: usize| {
        let mut all: Vec<f64> = rounds.iter().map(|round| round[at]).collect();
        quantile(&mut all, 0.5)
    };
    let digits = [0, 1, 2, 2, 0, 0, 1, 0];
    let mut cells: Vec<String> =
        digits.iter().enumerate().map(|(at, &digits)| format!("{:.digits$}", median(at))).collect();
    cells.push(format!("{:.2}; {:.2}", median(8), median(9)));
    cells.join(" | ")
}

fn quantile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    let index = ((samples.len() as f64 * share).ceil() as usize).clamp(1, samples.len());
    samples[index - 1]
}

/// A JSON document around random hex, `len` bytes long. The same number and seed make
/// the same document, so that none has to be kept.
fn blob(seed: u64, number: usize, len: usize) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed << 40 | number as u64);
    let head = format!(r#"{{"id":{number},"type":"blob","created":1700000000,"payload":""#);
    let mut json = head.into_bytes();
    while json.len() + 2 < len {
        json.extend_from_slice(format!("{:016x}", random.random::<u64>()).as_bytes());
    }
    json.truncate(len - 2);
    json.extend_from_slice(b"\"}");
    json
}

/// CPU seconds of this process, all threads, or of one.
fn cpu_seconds(clock: ClockId) -> f64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes that the device has written or read for this process.
fn device(what: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok()).unwrap_or(0)
}

fn files(folder: &Path, then: &mut dyn FnMut(&Path)) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        match entry.file_type()?.is_dir() {
            true => files(&entry.path(), then)?,
            false => then(&entry.path()),
        }
    }
    Ok(())
}

/// What files take of the disk, which may be less than they are long.
fn disk_bytes(folder: &Path) -> io::Result<f64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    files(folder, &mut |path| bytes += fs::metadata(path).map_or(0, |file| file.blocks() * 512))?;
    Ok(bytes as f64)
}

/// A blob as the engine has it.
#[derive(Clone, Copy)]
struct Held {
    place: Place,
    len: usize,
    /// It is the blob of this number.
    number: usize,
}

struct Run {
    folder: PathBuf,
    engine: Arc<dyn Engine>,
    codec: Codec,
    level: i32,
    ws: Workspace,
    count: usize,
    size: usize,
    seed: u64,
    held: Vec<Held>,
}

impl Run {
    fn open(
        engine: &str,
        codec: Codec,
        level: i32,
        options: &Options,
        count: usize,
        size: usize,
        seed: u64,
    ) -> io::Result<Self> {
        let folder = options.folder.join(format!("snug-disk-blobs-{}", std::process::id()));
        let engine = open(engine, &folder, 0)?;
        let ws = Workspace::new(WorkspaceConfig::default());
        Ok(Self { folder, engine, codec, level, ws, count, size, seed, held: Vec::new() })
    }

    /// The figures of [`HEADS`], those of the last column apart.
    fn measure(mut self, reads: usize) -> io::Result<[f64; 10]> {
        let raw = (self.count * self.size) as f64;
        let (begun, cpu, wrote) =
            (Instant::now(), cpu_seconds(ClockId::ProcessCPUTime), device("write_bytes"));
        let (mut making, mut making_cpu) = (Duration::ZERO, 0.0);
        let mut numbers: Vec<usize> = (0..self.count).collect();
        for batch in numbers.chunks(BATCH) {
            let made = (Instant::now(), cpu_seconds(ClockId::ThreadCPUTime));
            let blobs = self.blobs(batch);
            making += made.0.elapsed();
            making_cpu += cpu_seconds(ClockId::ThreadCPUTime) - made.1;
            let held = self.write(batch, blobs)?;
            self.held.extend(held);
        }
        let seconds = begun.elapsed().saturating_sub(making).as_secs_f64();
        self.rest()?;
        let write_cpu = cpu_seconds(ClockId::ProcessCPUTime) - cpu - making_cpu;
        let written = (device("write_bytes") - wrote) as f64;
        let space = disk_bytes(&self.folder)?;

        rustix::fs::sync();
        files(&self.folder, &mut |path| {
            if let Ok(file) = File::open(path) {
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            }
        })?;
        let mut random = StdRng::seed_from_u64(self.seed);
        let (mut samples, mut read_cpu) = (Vec::new(), 0.0);
        let read = device("read_bytes");
        for _ in 0..reads {
            let held = self.held[random.random_range(0..self.held.len())];
            let (begun, cpu) = (Instant::now(), cpu_seconds(ClockId::ProcessCPUTime));
            let blob = self.read(held)?;
            samples.push(begun.elapsed().as_secs_f64() * 1e6);
            read_cpu += cpu_seconds(ClockId::ProcessCPUTime) - cpu;
            if blob != self::blob(self.seed, held.number, self.size) {
                return Err(io::Error::other("a blob came back changed"));
            }
        }
        let device_read = (device("read_bytes") - read) as f64;

        numbers.shuffle(&mut random);
        numbers.truncate(self.count / 2);
        let wrote = device("write_bytes");
        for batch in numbers.chunks(BATCH) {
            // Of another number, so that it is another blob.
            let fresh: Vec<usize> = batch.iter().map(|number| number + self.count).collect();
            let blobs = self.blobs(&fresh);
            let fresh = self.write(&fresh, blobs)?;
            for (&number, fresh) in batch.iter().zip(fresh) {
                let old = std::mem::replace(&mut self.held[number], fresh);
                self.engine.release(old.place, old.len);
            }
            self.tidy()?;
        }
        self.rest()?;
        let replaced = (device("write_bytes") - wrote) as f64;
        let count = self.count as f64;
        Ok([
            raw / 1e6 / seconds,
            write_cpu / count * 1e6,
            written / raw,
            space / raw,
            quantile(&mut samples, 0.5),
            quantile(&mut samples, 0.99),
            read_cpu / reads as f64 * 1e6,
            device_read / reads as f64,
            replaced / (raw / 2.0),
            disk_bytes(&self.folder)? / raw,
        ])
    }

    fn blobs(&self, numbers: &[usize]) -> Vec<Vec<u8>> {
        numbers.iter().map(|&number| blob(self.seed, number, self.size)).collect()
    }

    /// Packs and writes blobs of these numbers; where they are.
    fn write(&mut self, numbers: &[usize], blobs: Vec<Vec<u8>>) -> io::Result<Vec<Held>> {
        let mut packed = Vec::with_capacity(blobs.len());
        for blob in blobs {
            if self.codec == Codec::None {
                packed.push(blob);
                continue;
            }
            let mut out = Vec::new();
            self.ws
                .pack(self.codec, self.level, None, &blob, &mut out)
                .map_err(io::Error::other)?;
            packed.push(out);
        }
        let records: Vec<&[u8]> = packed.iter().map(|record| &record[..]).collect();
        let places = self.engine.write(&records, Purpose::Leave)?;
        let lens = records.iter().map(|record| record.len());
        let held = places.into_iter().zip(lens).zip(numbers);
        Ok(held.map(|((place, len), &number)| Held { place, len, number }).collect())
    }

    fn read(&mut self, held: Held) -> io::Result<Vec<u8>> {
        let record = self.engine.read(held.place, held.len)?;
        if self.codec == Codec::None {
            return Ok(record);
        }
        let mut blob = Vec::with_capacity(self.size);
        self.ws.unpack(&record, &NoDictionaries, &mut blob, self.size).map_err(io::Error::other)?;
        Ok(blob)
    }

    /// Gives back room, as the server does: what is sparse is written again.
    fn tidy(&mut self) -> io::Result<()> {
        if !self.engine.tidy() {
            return Ok(());
        }
        let sparse = self.held.iter_mut().filter(|held| self.engine.is_sparse(held.place));
        for batch in sparse.collect::<Vec<_>>().chunks_mut(BATCH) {
            let records = batch.iter().map(|held| self.engine.read(held.place, held.len));
            let records = records.collect::<io::Result<Vec<_>>>()?;
            let records: Vec<&[u8]> = records.iter().map(|record| &record[..]).collect();
            let places = self.engine.write(&records, Purpose::Move)?;
            for (held, place) in batch.iter_mut().zip(places) {
                self.engine.release(held.place, held.len);
                held.place = place;
            }
        }
        Ok(())
    }

    /// Waits until the engine has written what it has to.
    fn rest(&mut self) -> io::Result<()> {
        let mut written = None;
        loop {
            self.tidy()?;
            rustix::fs::sync();
            let now = device("write_bytes");
            if written == Some(now) {
                return Ok(());
            }
            written = Some(now);
            sleep(REST);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
