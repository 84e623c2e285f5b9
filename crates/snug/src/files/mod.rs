//! Files that servers leave behind, without a server: what is in them, what is wrong with
//! them, and from one format to another.
//!
//! Nothing is held in memory but the value that is being read.

pub(crate) mod append_only;
pub(crate) mod check;
pub(crate) mod convert;

use indicatif::{ProgressBar, ProgressStyle};
use snug_store::{DATABASES_MAX, Store, StoreConfig, Unobserved};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::Path;
use std::sync::Arc;

/// What a file is, by how it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// RDB; perhaps the beginning of an append-only file.
    Rdb,
    /// Snug's own format.
    Snug,
    /// Commands.
    AppendOnly,
    /// Names of the files that an append-only file consists of.
    Manifest,
    /// Something else.
    Unknown,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rdb => "RDB",
            Self::Snug => "Snug's format",
            Self::AppendOnly => "append-only file",
            Self::Manifest => "manifest of an append-only file",
            Self::Unknown => "unknown",
        }
    }

    /// Looks at the first bytes.
    pub(crate) fn of(file: &mut impl BufRead) -> io::Result<Self> {
        let begin = file.fill_buf()?;
        Ok(match begin {
            _ if begin.starts_with(b"REDIS") => Self::Rdb,
            _ if begin.starts_with(b"SNUGIMG\n") => Self::Snug,
            [] | [b'*', ..] => Self::AppendOnly,
            _ if begin.starts_with(b"#TS:") => Self::AppendOnly,
            [b'#', ..] => Self::Manifest,
            _ if begin.starts_with(b"file ") => Self::Manifest,
            _ => Self::Unknown,
        })
    }
}

/// Opens a file to be read from the front; also its length.
pub(crate) fn open(path: &Path) -> io::Result<(BufReader<File>, u64)> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    Ok((BufReader::with_capacity(256 * 1024, file), len))
}

/// A store for values on their way; it holds none.
pub(crate) fn store() -> Arc<Store> {
    Store::new(
        StoreConfig { databases: DATABASES_MAX, ..StoreConfig::default() },
        Box::new(Unobserved),
    )
}

/// A bar over the bytes of a file, on a terminal.
pub(crate) fn bar(label: &str, bytes: u64) -> ProgressBar {
    if !io::stderr().is_terminal() || bytes == 0 {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    let template = "{prefix} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(label.to_string());
    bar
}
