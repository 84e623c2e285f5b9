//! The log: where `tracing`'s events go, in which form, from which level on.
//!
//! `loglevel` may change while the server runs; form and place may not. Values
//! that clients send are no part of the log.

use crate::config::{Config, Param};
use std::io::IsTerminal;
use std::sync::{Mutex, OnceLock};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

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
    let path = config.text(Param::LogFile);
    let registry = tracing_subscriber::registry().with(filter);
    let begun = if path.is_empty() {
        let ansi = std::io::stdout().is_terminal();
        registry.with(form(config, ansi, std::io::stdout)).try_init()
    } else {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|e| format!("can't open the log file '{path}': {e}"))?;
        registry.with(form(config, false, Mutex::new(file))).try_init()
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
