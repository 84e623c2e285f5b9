//! What blocks of columns cost and save: bytes an entry, speed both ways, and
//! reading one row at random.
//!
//! `cargo bench -p snug-codec --bench columns [-- WORKLOAD]`; `SNUG_FLIGHTS_CSV`
//! names the flights' CSV, without it they are left out. Times are this
//! thread's on the processor, the best of several rounds: a busy machine
//! distorts them little. MB are 10^6 bytes of ids, names and values.
#![allow(missing_docs, unreachable_pub)]

#[path = "../../bench/src/codec/data.rs"]
#[allow(dead_code, reason = "the codec report uses the rest")]
mod data;

use snug_codec::columns::{Reader, RowBlock, pack_rows};
use snug_codec::{NoDictionaries, Workspace, WorkspaceConfig};

const LEVEL: i32 = 3;
const ROUNDS: usize = 40;
const RAW_LEN_MAX: usize = 1 << 24;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    println!(
        "| rows | a block | raw bytes | packed | MB/s in | MB/s out | open and ids us | one row us |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    if wants("events") {
        measure("stream-events", &data::events(12_800, 1), &[256, 640, 1024]);
    }
    if wants("celery") {
        measure("stream-celery", &celery(4096), &[64, 256, 1024]);
    }
    let csv = std::env::var_os("SNUG_FLIGHTS_CSV").and_then(|at| std::fs::read_to_string(at).ok());
    if let Some(csv) = csv.filter(|_| wants("flights")) {
        let head: String = csv.lines().take(12_801).flat_map(|line| [line, "\n"]).collect();
        measure("stream-flights", &data::flights(&head), &[256, 640, 1024]);
    }
}

fn celery(count: usize) -> Vec<data::Entry> {
    let entry = |(i, message): (usize, String)| {
        let i = i as u64;
        (1_700_000_000_000 + i / 3, i % 3, vec![("value".to_owned(), message)])
    };
    data::celery(count, 1).into_iter().enumerate().map(entry).collect()
}

/// This thread's seconds on the processor.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The least CPU seconds that `work` took in several rounds.
fn best(mut work: impl FnMut()) -> f64 {
    let once = |_| {
        let start = cpu_seconds();
        work();
        cpu_seconds() - start
    };
    (0..ROUNDS).map(once).fold(f64::INFINITY, f64::min)
}

fn measure(name: &str, entries: &[data::Entry], block_rows: &[usize]) {
    for &rows in block_rows {
        let whole = entries.len() / rows * rows;
        let tails: Vec<Vec<u8>> = entries[..whole].chunks(rows).map(tail).collect();
        let chunks = entries[..whole].chunks(rows).zip(&tails);
        let blocks: Vec<_> = chunks.map(|(entries, tail)| block(entries, tail)).collect();
        line(name, rows, &blocks);
    }
}

/// Names and values end to end, as they lie in the tail of a stream.
fn tail(entries: &[data::Entry]) -> Vec<u8> {
    let strings = entries.iter().flat_map(|(_, _, fields)| fields).flat_map(|(n, v)| [n, v]);
    strings.flat_map(|string| string.bytes()).collect()
}

fn block<'t>(entries: &[data::Entry], mut tail: &'t [u8]) -> RowBlock<'t> {
    let mut take = |string: &str| -> &'t [u8] {
        let (taken, rest) = tail.split_at(string.len());
        tail = rest;
        taken
    };
    let mut block = RowBlock::new();
    for (ms, seq, fields) in entries {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (take(name), take(value))).collect();
        block.push(*ms, *seq, fields);
    }
    block
}

fn line(name: &str, rows: usize, blocks: &[RowBlock<'_>]) {
    let mut ws = Workspace::new(WorkspaceConfig::default());
    let raw: usize = blocks.iter().map(RowBlock::raw_len).sum();
    let mut packed = vec![Vec::new(); blocks.len()];
    let into = best(|| {
        for (block, out) in blocks.iter().zip(&mut packed) {
            out.clear();
            pack_rows(&mut ws, LEVEL, None, block, out).expect("a block of few rows");
        }
    });
    let mut seen = 0;
    let out = best(|| {
        seen = 0;
        for block in &packed {
            let reader = Reader::open(&mut ws, block, &NoDictionaries, RAW_LEN_MAX).expect("opens");
            reader
                .visit(0..rows, |row| {
                    seen += 16 + row.fields().map(|(n, v)| n.len() + v.len()).sum::<usize>();
                })
                .expect("reads");
        }
    });
    assert_eq!(seen, raw, "every row came back");
    let opening = best(|| {
        for block in &packed {
            let reader = Reader::open(&mut ws, block, &NoDictionaries, RAW_LEN_MAX).expect("opens");
            std::hint::black_box(reader.ids().len());
        }
    });
    let mut random = data::Random::new(7);
    let one_row = best(|| {
        for block in &packed {
            let reader = Reader::open(&mut ws, block, &NoDictionaries, RAW_LEN_MAX).expect("opens");
            let row = random.below(rows as u64) as usize;
            let mut fields = 0;
            reader.visit(row..row + 1, |row| fields += row.len()).expect("reads");
            assert!(fields > 0);
        }
    });
    let each = 1e6 / blocks.len() as f64;
    let count = (blocks.len() * rows) as f64;
    println!(
        "| {name} | {rows} | {:.1} | {:.2} | {:.0} | {:.0} | {:.1} | {:.1} |",
        raw as f64 / count,
        packed.iter().map(Vec::len).sum::<usize>() as f64 / count,
        raw as f64 / 1e6 / into,
        raw as f64 / 1e6 / out,
        opening * each,
        one_row * each,
    );
}
