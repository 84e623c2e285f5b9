//! `snug top redis://...`: what a server is doing, live in the terminal. A Snug tells most;
//! of Redis and Valkey there is what `INFO` has.
//!
//! ```text
//!  sample.rs    INFO and SNUG FAMILIES, as they are
//!     |
//!  view.rs      two samples make rates; what is shown, as figures and texts
//!     |
//!  screen.rs  text.rs      what fits a terminal, which terminal.rs draws; or lines, where
//!                          there is none
//! ```
//!
//! It asks once a second by default, which costs a server well under a millisecond. The
//! terminal is as it was before when this ends: by `q`, by a signal, by an error.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod sample;
mod screen;
mod terminal;
mod text;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use snug_bench::endpoint::{Control, ControlError, Endpoint};
use snug_bench::interrupt;
use snug_bench::tls::TlsOptions;
use snug_bench::url::{self, UrlError};

use sample::Sample;
use terminal::{Key, Terminal};
use view::{Order, View};

/// What a server is doing, live.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// redis://[[user]:password@]host[:port], rediss:// for TLS
    #[arg(default_value = "redis://127.0.0.1:6379")]
    pub server: String,
    /// Seconds between two looks
    #[arg(long, short, default_value_t = 1.0, value_parser = seconds)]
    pub interval: f64,
    /// Print one look as text, and end
    #[arg(long)]
    pub once: bool,
    /// Print looks as text, one after the other; so it is where there is no terminal
    #[arg(long)]
    pub plain: bool,
    /// How to trust a server that speaks TLS
    #[command(flatten)]
    pub tls: TlsOptions,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it is to be from 0.1 to 3600".into()),
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("the terminal: {0}")]
    Terminal(#[from] std::io::Error),
}

/// How often keys and signals are looked for.
const LOOK: Duration = Duration::from_millis(50);
/// The longest that a look may wait for the server.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the command.
pub fn top(args: &TopArgs) -> ExitCode {
    interrupt::watch();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("snug top: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &TopArgs) -> Result<(), Failure> {
    let endpoint = url::parse(&args.server, &args.tls)?;
    let mut control = open(&endpoint)?;
    let first = Sample::take(&mut control)?;
    let interval = Duration::from_secs_f64(args.interval);
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.once || args.plain || !is_terminal {
        return print(args, &endpoint, control, first, interval);
    }
    watch(&endpoint, control, first, interval)
}

fn open(endpoint: &Endpoint) -> Result<Control, ControlError> {
    let mut control = endpoint.open()?;
    control.set_patience(PATIENCE);
    control.send(&["CLIENT", "SETNAME", "snug-top"])?;
    Ok(control)
}

/// Text, for scripts and files.
fn print(
    args: &TopArgs,
    endpoint: &Endpoint,
    mut control: Control,
    mut last: Sample,
    interval: Duration,
) -> Result<(), Failure> {
    loop {
        let due = Instant::now() + interval;
        while Instant::now() < due && !interrupt::requested() {
            sleep(LOOK.min(due.saturating_duration_since(Instant::now())));
        }
        if interrupt::requested() {
            return Ok(());
        }
        let next = Sample::take(&mut control)?;
        let view = View::of(&endpoint.address(), &last, &next, Order::default());
        // Whoever reads may have read enough.
        if !text::print(&view) || args.once {
            return Ok(());
        }
        last = next;
    }
}

/// The terminal, until somebody wants an end.
fn watch(
    endpoint: &Endpoint,
    control: Control,
    first: Sample,
    interval: Duration,
) -> Result<(), Failure> {
    let _terminal = Terminal::enter()?;
    let mut control = Some(control);
    let mut screen = screen::Screen::default();
    let address = endpoint.address();
    let (mut last, mut order) = (first, Order::default());
    let mut view = View::of(&address, &last, &last, order);
    loop {
        let due = Instant::now() + interval;
        let mut drawn = None;
        while Instant::now() < due {
            let size = Terminal::size();
            if drawn != Some(size) {
                Terminal::draw(&screen.lines(&view, size))?;
                drawn = Some(size);
            }
            let key = Terminal::key()?;
            if interrupt::requested() || key == Some(Key::Quit) {
                return Ok(());
            }
            match key {
                Some(Key::Sort) => {
                    order = order.next();
                    view.sort(order);
                }
                Some(Key::Up) => screen.scroll(-1),
                Some(Key::Down) => screen.scroll(1),
                _ => continue,
            }
            drawn = None;
        }
        // A server that is gone may come back: it is tried again at every look.
        let taken = match control.as_mut() {
            Some(control) => Sample::take(control),
            None => open(endpoint).and_then(|mut opened| {
                let taken = Sample::take(&mut opened);
                control = Some(opened);
                taken
            }),
        };
        match taken {
            Ok(next) => {
                view = View::of(&address, &last, &next, order);
                screen.note(&view);
                last = next;
            }
            Err(_) if interrupt::requested() => return Ok(()),
            Err(error) => {
                control = None;
                view.trouble = Some(format!("{error}; trying again"));
            }
        }
    }
}
