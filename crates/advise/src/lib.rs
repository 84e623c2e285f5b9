//! `snug advise redis://...`: what Snug would take of a server's memory, before anybody
//! moves. It only reads, and little.
//!
//! ```text
//!  server.rs  file.rs   a running server, paced by pace.rs; or an RDB file
//!        |    |
//!     sample.rs         which keys there are (a frame), and which of them are read
//!        |
//!     trial.rs          a Snug server of its own takes those, learns and packs them
//!        |
//!     estimate.rs       what they weigh there stands for all: totals, with intervals
//!     advice.rs         what is worth packing; what to change where Redis stays
//!        |
//!     report.rs  html.rs
//! ```
//!
//! Nothing is reckoned that can be tried: the values of the sample are given to a real
//! server, which is this same program, and that packs them as it would in service. Only
//! how many there are of each is reckoned, and the tables that keys are found in.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod advice;
mod estimate;
mod file;
mod html;
mod pace;
mod report;
mod sample;
mod server;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use snug_bench::endpoint::ControlError;
use snug_bench::interrupt;
use snug_bench::tls::TlsOptions;
use snug_bench::url::{self, UrlError};

use sample::Progress;

/// What a Redis server would take in Snug, predicted from a sample.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// redis://[[user]:password@]host[:port], rediss:// for TLS, or an RDB file
    pub source: String,
    /// Keys whose values are read
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub sample: u64,
    /// Elements of collections and streams that are read, at most
    #[arg(long, default_value_t = 2_000_000)]
    pub elements: u64,
    /// Elements that are read of one key, at most
    /// [default: its share of --elements, or 100,000 if that is more]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..))]
    pub elements_of_key: Option<u64>,
    /// Percent of one core's time that the server may spend on being asked
    #[arg(long, default_value_t = 1.0, value_parser = percent)]
    pub cpu_percent: f64,
    /// Seconds for reading the sample, at most
    #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Parameters of the Snug that is predicted: "--pack-level 3"
    #[arg(long, value_name = "FLAGS", default_value = "", allow_hyphen_values = true)]
    pub snug: String,
    /// The Snug that tries the sample [default: this program]
    #[arg(
        long = "with",
        value_name = "PROGRAM",
        default_value = "snug",
        hide_default_value = true
    )]
    pub program: String,
    /// Seed of what is drawn at random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How to trust a server that speaks TLS
    #[command(flatten)]
    pub tls: TlsOptions,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.01..=100.0).contains(&percent) => Ok(percent),
        _ => Err("it is to be from 0.01 to 100".into()),
    }
}

/// What went wrong, in one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("{0}")]
    Other(String),
}

/// Exit code where nothing could be said.
const FAILED: u8 = 1;

/// Runs the command.
pub fn advise(args: &AdviseArgs) -> ExitCode {
    interrupt::watch();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("snug advise: {failure}");
            ExitCode::from(if interrupt::requested() { interrupt::INTERRUPTED } else { FAILED })
        }
    }
}

fn run(args: &AdviseArgs) -> Result<(), Failure> {
    let began = Instant::now();
    let mut progress = Progress::new();
    // Written at the end, which is a bad time to learn that it cannot be.
    if let Some(path) = &args.html {
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        file.map_err(|error| Failure::Other(format!("{}: {error}", path.display())))?;
    }
    let until = began + Duration::from_secs(args.seconds);
    let mut source: Box<dyn sample::Source> = match Path::new(&args.source) {
        path if !url::is_url(&args.source) && path.exists() => Box::new(file::RdbFile::open(path)?),
        _ => {
            let endpoint = url::parse(&args.source, &args.tls)?;
            Box::new(server::Running::open(&endpoint, args.cpu_percent / 100.0, until)?)
        }
    };
    let mut trial = trial::Trial::start(&args.program, &args.snug)?;
    let frame = source.frame(args.sample.saturating_mul(sample::FRAME), &mut progress)?;
    let cells = sample::Cells::of(&frame);
    let chosen = cells.choose(&frame, args.sample as usize, args.seed);
    let collections = chosen.iter().filter(|&&at| frame.seen[at].kind != "string").count() as u64;
    let (elements, of_key) = (args.elements, args.elements_of_key);
    let budget = sample::Budget { elements, of_key, collections };
    let details = source.read(&frame, &chosen, budget, &mut trial, &mut progress)?;
    let weights = trial.weigh(&frame, &details, &mut progress)?;
    progress.finish();
    let facts = source.facts();
    let estimate = estimate::of(&frame, &cells, &details, &weights, args.seed);
    let found = advice::of(facts, &frame, &cells, &details, &estimate, &mut trial)?;
    let report =
        report::Report::new(args, facts, &frame, &details, estimate, found, began.elapsed());
    if args.json {
        let text = serde_json::to_string_pretty(&report);
        println!("{}", text.map_err(|error| Failure::Other(error.to_string()))?);
    } else {
        print!("{}", report.text());
    }
    if let Some(path) = &args.html {
        fs::write(path, html::render(&report))
            .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))?;
        eprintln!("snug advise: charts are in {}", path.display());
    }
    Ok(())
}
