//! The log: where `tracing`'s events go, in which form, from which level on.
//!
//! `loglevel` may change while the server runs; form and place may not. Values
//! that clients send are no part of the log.
//!
//! A log file that was moved away is made anew: at once when [`reopen`] is called, and
//! within a second of the next line otherwise, so that a rotation that tells nobody, as
//! is usual with Redis, loses nothing.

use crate::config::{Config, Param};
use crate::outside::clock::Instant;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

/// The log file, if there is one.
static FILE: OnceLock<Mutex<LogFile>> = OnceLock::new();

/// A file that may be moved away.
struct LogFile {
    path: PathBuf,
    file: File,
    looked: Instant,
}

/// How often it is looked at whether the file is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl LogFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        Ok(Self { path, file, looked: Instant::now() })
    }

    /// Opens the file again. If that fails, what is open stays so.
    fn reopen(&mut self) {
        if let Ok(new) = Self::open(self.path.clone()) {
            *self = new;
        }
    }

    /// Opens the file again if it is no longer what its name stands for.
    fn look(&mut self) {
        if self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        let place = |data: Metadata| (data.dev(), data.ino());
        let named = std::fs::metadata(&self.path).map(place).ok();
        if named.is_none() || named != self.file.metadata().map(place).ok() {
            self.reopen();
        }
    }
}

/// Writes lines to the log file.
struct InFile(&'static Mutex<LogFile>);

impl Write for InFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.look();
        log.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the log file again, for it may have been moved away.
pub(crate) fn reopen() {
    if let Some(file) = FILE.get() {
        file.lock().unwrap_or_else(PoisonError::into_inner).reopen();
        tracing::info!("the log file was opened again");
    }
}

/// What changes the level.
static LEVEL: OnceLock<Handle<LevelFilter, Registry>> = OnceLock::new();

/// The level that `loglevel` stands for.
fn level(config: &Config) -> LevelFilter {
    // In the order of the parameter's words: debug, verbose, notice, ...
    match config.number(Param::LogLevel) {
        0 => LevelFilter::TRACE,
        1 => LevelFilter::DEBUG,
        2 => LevelFilter::INFO,
        3 => LevelFilter::WARN,
        _ => LevelFilter::OFF,
    }
}

/// Begins to log as the configuration asks. Once in a process: later calls
/// only set the level.
pub(crate) fn begin(config: &Config) -> Result<(), String> {
    let (filter, handle) = reload::Layer::new(level(config));
    if LEVEL.set(handle).is_err() {
        set_level(config);
        return Ok(());
    }
    let path = config.path(Param::LogFile);
    let registry = tracing_subscriber::registry().with(filter);
    let begun = if path.as_os_str().is_empty() {
        let ansi = std::io::stdout().is_terminal();
        registry.with(form(config, ansi, std::io::stdout)).try_init()
    } else {
        let path = std::path::absolute(&path).unwrap_or(path);
        let failed = |e: io::Error| format!("can't open the log file '{}': {e}", path.display());
        let file = LogFile::open(path.clone()).map_err(failed)?;
        let file = FILE.get_or_init(|| Mutex::new(file));
        registry.with(form(config, false, || InFile(file))).try_init()
    };
    // Whoever embeds the server may log in a way of their own.
    drop(begun);
    Ok(())
}

type Filtered = tracing_subscriber::layer::Layered<reload::Layer<LevelFilter, Registry>, Registry>;

/// One line for an event, for people or as JSON.
fn form<W>(config: &Config, ansi: bool, writer: W) -> Box<dyn Layer<Filtered> + Send + Sync>
where
    W: for<'w> fmt::MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = fmt::layer().with_writer(writer).with_ansi(ansi).with_target(false);
    if config.text(Param::LogFormat) == "json" {
        layer.json().flatten_event(true).boxed()
    } else {
        layer.boxed()
    }
}

/// Logs from the level on that the configuration has now.
pub(crate) fn set_level(config: &Config) {
    if let Some(handle) = LEVEL.get() {
        // Fails only when logging has ended with the process.
        let _ = handle.reload(level(config));
    }
}

/// Says of each parameter that was given a value and has no effect why it has none, once.
pub(crate) fn tell_what_is_in_vain(config: &Config) {
    for (parameter, why) in config.given_in_vain() {
        tracing::warn!(parameter, why, "accepted for compatibility, without effect");
    }
}

/// The least milliseconds between two lines of what is said seldom.
const SELDOM_MS: u64 = 1000;

/// What may happen many times a second, and is said once in that time.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    /// When it may be said again, and how often it happened unsaid since it was.
    next_ms: AtomicU64,
    unsaid: AtomicU64,
}

impl Seldom {
    /// Nothing has happened yet.
    pub(crate) const fn new() -> Self {
        Self { next_ms: AtomicU64::new(0), unsaid: AtomicU64::new(0) }
    }

    /// It happened: how often it had before without being said, if it is to be said
    /// now.
    pub(crate) fn tell(&self, now_ms: u64) -> Option<u64> {
        let next = self.next_ms.load(Relaxed);
        // Of two threads at once, one says it.
        let says = now_ms >= next
            && self.next_ms.compare_exchange(next, now_ms + SELDOM_MS, Relaxed, Relaxed).is_ok();
        if says {
            return Some(self.unsaid.swap(0, Relaxed));
        }
        self.unsaid.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_seldom_says_how_often_it_happened() {
        let seldom = Seldom::default();
        assert_eq!(seldom.tell(5), Some(0));
        assert!((0..7).all(|_| seldom.tell(1004).is_none()));
        assert_eq!(seldom.tell(1005), Some(7));
        assert_eq!(seldom.tell(9000), Some(0));
    }
}
