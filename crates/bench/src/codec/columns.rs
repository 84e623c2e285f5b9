//! Blocks of columns: what entries of streams are packed into.

use super::timing::cpu_seconds;
use super::{Line, Options, data};
use serde::{Deserialize, Serialize};
use snug_codec::columns::{Reader, RowBlock, pack_rows};
use snug_codec::{NoDictionaries, Workspace, WorkspaceConfig};

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

impl Line for ColumnsLine {
    const HEADS: &[&str] =
        &["workload", "rows a block", "raw bytes", "packed bytes", "MB/s in", "MB/s out"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.workload.clone(),
            self.block_rows.to_string(),
            format!("{:.1}", self.raw_bytes_per_entry),
            format!("{:.2}", self.packed_bytes_per_entry),
            format!("{:.0}", self.mb_per_second_in),
            format!("{:.0}", self.mb_per_second_out),
        ]
    }
}

pub(super) fn columns(options: &Options, lines: &mut Vec<ColumnsLine>) {
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
