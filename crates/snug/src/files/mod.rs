//! Files that servers leave behind, without a server: what is in them, what is wrong with
//! them, and from one format to another.
//!
//! What is held in memory is the value that is being read, and 16 bytes for each key that
//! was read, to know one that is there twice.

pub(crate) mod check;
pub(crate) mod convert;
pub(crate) mod rewind;

use indicatif::{ProgressBar, ProgressStyle};
use snug_rdb::Refused;
use snug_rdb::manifest::Manifest;
use snug_store::image::MAGIC;
use snug_store::{DATABASES_MAX, Store, StoreConfig, Unobserved};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file is, by how it begins, and a manifest also by its name.
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

    /// Looks at the first bytes. A manifest may begin in as many ways as its reader takes, and
    /// with nothing, so that it is known by its name, too.
    pub(crate) fn of(path: &Path, file: &mut impl BufRead) -> io::Result<Self> {
        let begin = file.fill_buf()?;
        let is_named_manifest = path.extension().is_some_and(|ending| ending == "manifest");
        Ok(match begin {
            _ if begin.starts_with(b"REDIS") => Self::Rdb,
            _ if begin.starts_with(MAGIC) => Self::Snug,
            _ if is_named_manifest => Self::Manifest,
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

/// The keys of a snapshot that were read, by hashes of 128 bits: two keys are not taken for
/// one in practice.
#[derive(Default)]
pub(crate) struct Keys {
    seen: HashSet<(u64, u64)>,
    states: [RandomState; 2],
}

impl Keys {
    /// Notes a key; refused if it is there twice, as a server refuses it.
    pub(crate) fn add(&mut self, db: usize, key: &[u8]) -> Result<(), Refused> {
        let [one, two] = &self.states;
        if self.seen.insert((one.hash_one((db, key)), two.hash_one((db, key)))) {
            return Ok(());
        }
        Err(Refused::Twice { db, key: key.to_vec() })
    }
}

/// Reads a manifest.
fn read_manifest(file: impl Read) -> io::Result<Manifest> {
    const MANIFEST_MAX: u64 = 16 << 20;
    let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut text = String::new();
    if file.take(MANIFEST_MAX).read_to_string(&mut text)? as u64 == MANIFEST_MAX {
        return Err(wrong("it is too long for a manifest".to_owned()));
    }
    Manifest::parse(&text).map_err(|bad| wrong(bad.to_string()))
}

/// Cuts a file and puts an end there. What it was is kept beside it under its name and
/// another ending, which is given back.
fn cut(path: &Path, at: u64, end: &[u8], ending: &str) -> io::Result<PathBuf> {
    let name = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if n == 0 { format!(".{ending}") } else { format!(".{ending}-{n}") });
        PathBuf::from(name)
    };
    let free = (0..10_000).map(name).find(|name| !name.exists());
    let kept = free.ok_or_else(|| io::Error::other("no name is free for a copy"))?;
    fs::copy(path, &kept)?;
    File::open(&kept)?.sync_all()?;
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(at)?;
    io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    file.write_all(end)?;
    file.sync_all()?;
    Ok(kept)
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
