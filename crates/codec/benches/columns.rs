//! What columns make of the workloads: bytes an entry, MB per CPU second in
//! and out.
//! `SNUG_FLIGHTS_CSV` names the flights' CSV; without it they are left out.
#![allow(missing_docs, unreachable_pub)]

#[allow(dead_code)] // Other measurements use the rest.
mod data;

use snug_codec::columns::{Reader, RowBlock, pack_rows};
use snug_codec::{NoDictionaries, Workspace, WorkspaceConfig};

/// This thread's time on the processor, whatever else the machine does.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanoseconds = stat.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    nanoseconds.expect("the first number") / 1e9
}

fn measure(name: &str, entries: &[data::Entry], block_rows: usize) {
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
            pack_rows(&mut ws, 3, None, block, &mut out).expect("packs");
            out
        })
        .collect();
    let seconds_in = cpu_seconds() - start;
    let total: usize = packed.iter().map(Vec::len).sum();
    let start = cpu_seconds();
    let mut bytes_out = 0;
    for block in &packed {
        let mut reader = Reader::open(&mut ws, block, &NoDictionaries, 1 << 24).expect("opens");
        reader
            .visit(0..block_rows, |row| {
                bytes_out += 16 + row.fields().map(|(n, v)| n.len() + v.len()).sum::<usize>();
            })
            .expect("reads");
    }
    let seconds_out = cpu_seconds() - start;
    assert_eq!(bytes_out, raw);
    let mb = raw as f64 / 1e6;
    println!(
        "{name:>10} blocks of {block_rows:>4}: {:>6.2} bytes an entry of {:>6.1}, {:>5.0} MB/s in, {:>5.0} MB/s out",
        total as f64 / entries.len() as f64,
        raw as f64 / entries.len() as f64,
        mb / seconds_in,
        mb / seconds_out,
    );
}

fn main() {
    measure("events", &data::events(200_000, 1), 1024);
    measure("events", &data::events(50_000, 1), 100);
    let messages = data::celery(20_000, 1);
    let entries: Vec<data::Entry> = messages
        .into_iter()
        .enumerate()
        .map(|(i, m)| (1_700_000_000_000 + i as u64 / 3, i as u64 % 3, vec![("value".into(), m)]))
        .collect();
    measure("celery", &entries, 256);
    measure("celery", &entries, 100);
    let same: Vec<data::Entry> = (0..200_000u64)
        .map(|i| (1_700_000_000_000 + i / 5, i % 5, vec![("d".into(), "x".repeat(64))]))
        .collect();
    measure("identical", &same, 1024);
    if let Some(path) = std::env::var_os("SNUG_FLIGHTS_CSV") {
        let csv = std::fs::read_to_string(path).expect("the CSV can be read");
        measure("flights", &data::flights(&csv), 1024);
    }
}
