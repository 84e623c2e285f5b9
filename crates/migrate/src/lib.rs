//! `snug migrate redis://old`: moves from a Redis or Valkey server to Snug while clients
//! write all the time.
//!
//! ```text
//!  check      versions, commands in use, memory, what Snug does not have
//!  follow     the new server becomes a replica of the old one: bytes, keys, lag
//!  compare    a sample of keys on both sides, by digest
//!  switch     FAILOVER: the new one leads, the old one becomes its replica
//!  back       the same the other way round, for nothing that is written is lost there
//! ```
//!
//! Nothing is changed on the old server before the switch, and nothing on the new one if
//! a check fails. Each step can be left and taken up again: what there is is looked at
//! first. It speaks only what any client can, so it works from any machine.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod checks;
mod client;
mod sample;
mod steps;

use clap::Args;
use snug_bench::tls::TlsOptions;
use std::process::ExitCode;

/// Flags of `snug migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The server to move from: redis://[[user]:password@]host[:port], rediss:// inside TLS
    pub from: String,
    /// The Snug server to move to, which is to be empty
    #[arg(long, default_value = "redis://127.0.0.1:6379")]
    pub to: String,
    /// Check and say what was found; change nothing
    #[arg(long)]
    pub check: bool,
    /// Go on although checks have warned
    #[arg(long)]
    pub despite_warnings: bool,
    /// Replace what the new server holds
    #[arg(long)]
    pub replace: bool,
    /// Keys to compare
    #[arg(long, default_value_t = 1000)]
    pub sample: usize,
    /// Switch when everything is there: the new server leads, the old one becomes its
    /// replica, so that there is a way back
    #[arg(long)]
    pub switch: bool,
    /// Seconds that the switch may hold up writes before it is given up
    #[arg(long, default_value_t = 10)]
    pub switch_timeout: u64,
    /// How to trust servers that speak TLS
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// What went wrong, in one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A server cannot be reached, or ended the connection.
    #[error("{server}: {why}")]
    Unreachable {
        /// Which.
        server: String,
        /// What the system says.
        why: String,
    },
    /// A server answered with an error.
    #[error("{server} answered {command} with: {text}")]
    Refused {
        /// Which.
        server: String,
        /// To what.
        command: String,
        /// The error.
        text: String,
    },
    /// Something else is in the way.
    #[error("{0}")]
    Other(String),
}

/// Runs the migration; what it does is said on standard output.
pub fn migrate(args: &MigrateArgs) -> ExitCode {
    match steps::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("snug migrate: {failure}");
            ExitCode::FAILURE
        }
    }
}
