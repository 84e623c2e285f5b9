//! The `snug` program: a thin shell over the crates.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod files;
mod ping;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// One allocator under everything, so that `used_memory` is its own count.
#[global_allocator]
static ALLOCATOR: snug_store::memory::Allocator = snug_store::memory::Allocator;

/// Snug: a Redis-compatible in-memory data store that keeps its data packed.
#[derive(Debug, Parser)]
#[command(name = "snug", version, about)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(ServeArgs),
    /// Drive a server with a workload and measure it
    Bench(Box<snug_bench::cli::BenchArgs>),
    /// Compare servers on the same work, or two reports
    Compare(Box<snug_bench::side_by_side::CompareArgs>),
    /// Move from a Redis or Valkey server without downtime
    Migrate(snug_migrate::MigrateArgs),
    /// Predict what a Redis server's data would take in Snug, from a sample
    Advise(Box<snug_advise::AdviseArgs>),
    /// Show what a server is doing, live in the terminal
    Top(snug_top::TopArgs),
    /// Tell what is in a file of data, and what is wrong with it
    Check(files::check::CheckArgs),
    /// Convert a file of data between RDB and Snug's format
    Convert(files::convert::ConvertArgs),
    /// Tell by the exit code whether a server answers
    Ping(ping::PingArgs),
    /// Print a configuration file with every parameter, commented
    Config,
    /// Print completions for a shell
    Completions(terminal::CompletionsArgs),
    /// Write man pages
    #[command(hide = true)]
    Man(terminal::ManArgs),
}

/// The server reads its own flags, as redis-server does: they are its
/// configuration parameters.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
struct ServeArgs {
    /// [FILE] [--NAME VALUE]...
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<OsString>,
}

fn main() -> ExitCode {
    match Program::parse().command {
        Command::Serve(args) => snug_server::serve(&args.flags),
        Command::Bench(args) => snug_bench::cli::bench(&args),
        Command::Compare(args) => snug_bench::side_by_side::compare(&args),
        Command::Migrate(args) => snug_migrate::migrate(&args),
        Command::Advise(args) => snug_advise::advise(&args),
        Command::Top(args) => snug_top::top(&args),
        Command::Check(args) => files::check::check(&args),
        Command::Convert(args) => files::convert::convert(&args),
        Command::Ping(args) => ping::ping(&args),
        Command::Config => terminal::config(),
        Command::Completions(args) => terminal::completions(&args),
        Command::Man(args) => terminal::man(&args),
    }
}
