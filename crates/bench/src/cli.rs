//! `snug bench`: its flags, and what it does with them.
//!
//! Flags that mean what redis-benchmark's or memtier's mean have their names.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args, Subcommand};

use crate::cluster::Topology;
use crate::codec::{self, Part};
use crate::corpus::CorpusArgs;
use crate::endpoint::{ControlError, Endpoint};
use crate::interrupt;
use crate::keys::KeyDistribution;
use crate::payload::Payload;
use crate::report::{Report, check_writable, csv, html, show, table, write_to};
use crate::run::{Settings, Step, Subject, run_step};
use crate::suite::SCENARIOS;
use crate::tls::{Tls, TlsError, TlsOptions};
use crate::workloads::{Options, TESTS, WORKLOADS, WorkloadError, find};

/// Exit codes of a run in which something failed; that cannot be, as it was asked for
/// (clap's own for wrong flags); and that the user ended.
const FAILED: u8 = 1;
const MISUSED: u8 = 2;
const INTERRUPTED: u8 = 130;
/// The largest value that Redis takes.
const DATA_BYTES_MAX: usize = 512 << 20;

const EXAMPLES: &str = "\
Examples:
  snug bench                                      SET and GET on 127.0.0.1:6379
  snug bench -t set,get,xadd -P 1,16,100 -d 64 -r 1000000 -n 5000000
  snug bench --command 'xadd __key__ * d __data__' -r 100 -d 64 -P 16
  snug bench stream-events --scale 0.1 --json events.json
  snug bench -t get -r 1000000 --key-distribution zipf --rate 50000 --duration 30
  snug bench -h db.example -p 6380 -a secret --csv - -n 100000
  snug bench -h db.example --tls --cacert ca.crt --cert client.crt --key client.key
  snug bench --cluster -p 7000 -r 1m -P 16 -n 1m  a cluster, by any of its nodes
  snug bench codec-stream                         packing alone, without a server

In templates, __key__ is `key:` and 12 digits, __rand_int__ and __seq__ are 12
digits, __data__ is -d bytes of payload.";

/// Drives a server with a workload and measures throughput, latency, memory and
/// CPU time.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    args_conflicts_with_subcommands = true,
    after_help = EXAMPLES,
)]
pub struct BenchArgs {
    #[command(subcommand)]
    other: Option<BenchCommand>,
    /// Workload by name (see `snug bench list`)
    #[arg(default_value = "set-get")]
    workload: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Print help
    #[arg(long, global = true, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Name every workload and every test of -t
    List,
    /// Packing alone: every codec, columns, streams, levels, blobs, dictionaries
    Codec(CodecArgs),
    /// One-shot zstd, blocking slices and preemptible streams, one and eight at once
    CodecStream(CodecArgs),
    /// zstd levels 3, 9 and 19 on text of 16 KiB and 128 KiB
    CodecLevels(CodecArgs),
    /// JSON blobs in a plain file: raw, lz4 and zstd
    DiskBlobs(CodecArgs),
    /// Memory of many kinds of values, generated and real, in Snug and in redis-server
    Corpus(CorpusArgs),
}

/// What needs no server.
#[derive(Debug, Args)]
struct CodecArgs {
    /// Seed of all data
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Seconds for each way, in and out, of each cell of the codec tables
    #[arg(long, default_value = "0.01", value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    cell_time: Duration,
    /// Where the flights are, and where blobs are written
    #[arg(long, value_name = "DIR", env = "SNUG_BENCH_DATA")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
struct ServerArgs {
    /// Host name or address
    #[arg(short = 'h', long, default_value = "127.0.0.1")]
    host: String,
    /// Port
    #[arg(short, long, default_value_t = 6379, allow_negative_numbers = true)]
    port: u16,
    /// host:port in one
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port, conflicts_with_all = ["host", "port"])]
    target: Option<(String, u16)>,
    /// Empty the whole server first (FLUSHALL)
    #[arg(long)]
    flush: bool,
}

/// How to enter a server that runs, shared by `bench` and `compare`; names as
/// redis-cli and redis-benchmark have them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// Password
    #[arg(short = 'a', long, env = "REDISCLI_AUTH", hide_env_values = true)]
    password: Option<String>,
    /// User of the password
    #[arg(long, requires = "password")]
    user: Option<String>,
    /// Logical database
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    dbnum: u32,
    /// Protocol: 2 or 3
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=3))]
    resp: u8,
    /// Protocol 3
    #[arg(short = '3', conflicts_with = "resp")]
    resp3: bool,
    /// The server is a cluster: send each request to the node that has its key
    #[arg(long, conflicts_with = "dbnum")]
    pub cluster: bool,
    /// Talk TLS
    #[arg(long)]
    tls: bool,
    /// Authorities to trust [default: the system's]
    #[arg(long, value_name = "FILE", requires = "tls")]
    cacert: Option<PathBuf>,
    /// Certificate to show
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires_all = ["tls", "cert"])]
    key: Option<PathBuf>,
    /// Take any certificate
    #[arg(long, requires = "tls")]
    insecure: bool,
    /// Name to ask for and to verify [default: the host]
    #[arg(long, value_name = "NAME", requires = "tls")]
    sni: Option<String>,
}

/// What to send, shared by `bench` and `compare`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Requests of each step
    #[arg(short = 'n', long, alias = "ops", value_name = "N", value_parser = count, allow_negative_numbers = true)]
    requests: Option<u64>,
    /// Seconds of each step; with -n, whichever ends first
    #[arg(long, alias = "test-time", value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    duration: Option<Duration>,
    /// Connections
    #[arg(short = 'c', long = "clients", value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    connections: Option<usize>,
    /// Requests in flight on each connection; several: one step each
    #[arg(short = 'P', long, value_name = "N,..", value_delimiter = ',', value_parser = at_least_one, allow_negative_numbers = true)]
    pipeline: Vec<usize>,
    /// Payload bytes; several: one step each
    #[arg(short = 'd', long, value_name = "BYTES,..", value_delimiter = ',', value_parser = bytes, allow_negative_numbers = true)]
    data_size: Vec<usize>,
    /// Keys; several: one step each
    #[arg(short = 'r', long = "keyspace", value_name = "KEYS,..", value_delimiter = ',', value_parser = count, allow_negative_numbers = true)]
    keyspace: Vec<u64>,
    /// Tests of set-get
    #[arg(
        short = 't',
        long,
        value_name = "TEST,..",
        value_delimiter = ',',
        default_value = "set,get"
    )]
    tests: Vec<String>,
    /// Send this template instead of tests
    #[arg(long, value_name = "TEMPLATE")]
    command: Option<String>,
    /// Write every key once before the tests of set-get (keyspaces up to 10 M)
    #[arg(long)]
    fill: bool,
    /// Load threads
    #[arg(long, default_value_t = 1, value_parser = at_least_one, allow_negative_numbers = true)]
    threads: usize,
    /// Requests a second over all connections: open loop, latency from when a
    /// request was due
    #[arg(long, alias = "rps", value_name = "PER_SECOND", value_parser = positive, allow_negative_numbers = true)]
    rate: Option<f64>,
    /// How keys are drawn
    #[arg(long, value_enum, default_value = "uniform")]
    key_distribution: KeyDistribution,
    /// Exponent of the Zipf distribution
    #[arg(long, default_value_t = 0.99, value_parser = positive, allow_negative_numbers = true)]
    zipf_exponent: f64,
    /// What payloads are made of
    #[arg(long, value_enum, default_value = "fixed")]
    payload: Payload,
    /// Share of the workload's full size
    #[arg(long, default_value_t = 1.0, value_parser = positive, allow_negative_numbers = true)]
    scale: f64,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// The longest to wait for memory to come to rest after a step
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    rest: Duration,
    /// Where real data is kept once fetched
    #[arg(long, value_name = "DIR", env = "SNUG_BENCH_DATA")]
    data_dir: Option<PathBuf>,
}

/// Where results go, shared by `bench` and `compare`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Write results as CSV; - for standard output
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the whole report as JSON; - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report with plots as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// No table, no progress
    #[arg(short = 'q', long)]
    quiet: bool,
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = text.rsplit_once(':').ok_or("expected HOST:PORT")?;
    let port = port.parse().map_err(|_| format!("'{port}' is no port"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() { Err("expected HOST:PORT".into()) } else { Ok((host.into(), port)) }
}

/// A whole number, as `1000000`, `1m` or `1e6`.
fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.to_lowercase().strip_suffix(['k', 'm', 'g']) {
        Some(digits) => {
            let factor = match text.as_bytes()[text.len() - 1].to_ascii_lowercase() {
                b'k' => 1e3,
                b'm' => 1e6,
                _ => 1e9,
            };
            (digits.to_owned(), factor)
        }
        None => (text.to_owned(), 1.0),
    };
    let number: f64 = digits.parse().map_err(|_| format!("'{text}' is no number"))?;
    let number = number * factor;
    if (1.0..=1e18).contains(&number) && number.fract() == 0.0 {
        return Ok(number as u64);
    }
    Err(format!("'{text}' is not a whole number above 0"))
}

/// Bytes, as `64` or `1k`, which is 1,024 here.
fn bytes(text: &str) -> Result<usize, String> {
    let lower = text.to_lowercase();
    let (digits, factor) = match lower.strip_suffix('k') {
        Some(digits) => (digits, 1 << 10),
        None => lower.strip_suffix('m').map_or((lower.as_str(), 1), |digits| (digits, 1 << 20)),
    };
    let number: usize = digits.parse().map_err(|_| format!("'{text}' is no number of bytes"))?;
    number
        .checked_mul(factor)
        .filter(|&bytes| bytes <= DATA_BYTES_MAX)
        .ok_or_else(|| format!("'{text}' is more than the 512 MiB that a value may have"))
}

fn at_least_one(text: &str) -> Result<usize, String> {
    count(text).map(|number| number as usize)
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err(format!("'{text}' is not a number above 0")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=1e6).contains(&number) => Ok(Duration::from_secs_f64(number)),
        _ => Err(format!("'{text}' is not a number of seconds")),
    }
}

impl AccessArgs {
    /// How to enter; the place is still to be filled in.
    pub fn endpoint(&self) -> Result<Endpoint, TlsError> {
        let tls = TlsOptions {
            cacert: self.cacert.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            insecure: self.insecure,
            sni: self.sni.clone(),
        };
        Ok(Endpoint {
            user: self.user.clone(),
            password: self.password.clone(),
            database: self.dbnum,
            resp: if self.resp3 { 3 } else { self.resp },
            tls: if self.tls { Some(Tls::new(&tls)?) } else { None },
            ..Endpoint::local(0)
        })
    }
}

impl BenchArgs {
    fn endpoint(&self) -> Result<Endpoint, TlsError> {
        let server = &self.server;
        let (host, port) = server.target.clone().unwrap_or((server.host.clone(), server.port));
        Ok(Endpoint { host, port, ..self.access.endpoint()? })
    }
}

impl CodecArgs {
    fn run(&self, parts: &'static [Part]) -> ExitCode {
        if let Err(code) = self.output.check() {
            return code;
        }
        let data = self.data_dir.clone().unwrap_or_else(default_data_dir);
        let flights = data.join("flights.csv");
        let options = codec::Options {
            seed: self.seed,
            cell_seconds: self.cell_time.as_secs_f64(),
            flights_csv: flights.exists().then_some(flights),
            folder: self.data_dir.clone().unwrap_or_else(std::env::temp_dir),
            parts,
            ..codec::Options::default()
        };
        let mut report = Report::begin(command_line());
        let quiet = self.output.quiet || !std::io::stderr().is_terminal();
        report.codec = Some(codec::run(&options, |what| {
            if !quiet {
                eprintln!("snug: measuring {what}");
            }
        }));
        self.output.deliver(&report, &table::render(&report))
    }
}

impl LoadArgs {
    /// As options of a workload.
    pub fn options(&self) -> Options {
        Options {
            scale: self.scale,
            seed: self.seed,
            connections: self.connections,
            pipelines: self.pipeline.clone(),
            data_bytes: self.data_size.clone(),
            keyspaces: self.keyspace.clone(),
            requests: self.requests,
            duration: self.duration,
            rate: self.rate,
            keys: self.key_distribution,
            zipf_exponent: self.zipf_exponent,
            payload: self.payload,
            tests: self.tests.clone(),
            command: self.command.clone(),
            fill: self.fill,
            data_dir: self.data_dir.clone().unwrap_or_else(default_data_dir),
        }
    }

    /// As settings of the runner.
    pub fn settings(&self, quiet: bool) -> Settings {
        Settings { threads: self.threads, rest_max: self.rest, progress: !quiet, overall: None }
    }
}

fn default_data_dir() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    cache.or_else(home).unwrap_or_else(std::env::temp_dir).join("snug-bench")
}

impl OutputArgs {
    /// How many of the reports are for standard output.
    fn to_stdout(&self) -> usize {
        let files = [&self.csv, &self.json, &self.html].into_iter().flatten();
        files.filter(|path| path.as_os_str() == "-").count()
    }

    /// Looks whether the reports can be written, before anything is measured. Says
    /// what is wrong, and returns the exit code.
    pub fn check(&self) -> Result<(), ExitCode> {
        if self.to_stdout() > 1 {
            return Err(misuse(&"only one report can go to standard output"));
        }
        for path in [&self.csv, &self.json, &self.html].into_iter().flatten() {
            check_writable(path)
                .map_err(|error| refuse(&format!("cannot write {}: {error}", path.display())))?;
        }
        Ok(())
    }

    /// Writes the report where it was asked for, the files first, and what went
    /// wrong to standard error. Returns the exit code.
    pub fn deliver(&self, report: &Report, shown: &str) -> ExitCode {
        let mut failed = false;
        let files = [
            (&self.csv, csv::render as fn(&Report) -> String),
            (&self.json, Report::to_json),
            (&self.html, html::render),
        ];
        for (path, render) in files {
            let Some(path) = path else { continue };
            if let Err(error) = write_to(path, &render(report)) {
                eprintln!("snug: cannot write {}: {error}", path.display());
                failed = true;
            }
        }
        // What went wrong comes first: whoever reads the figures should know it.
        for line in report.troubles() {
            eprintln!("snug: {line}");
        }
        if !self.quiet
            && self.to_stdout() == 0
            && let Err(error) = show(shown)
        {
            eprintln!("snug: cannot write to standard output: {error}");
            failed = true;
        }
        match failed || report.has_failed() {
            _ if report.interrupted => ExitCode::from(INTERRUPTED),
            true => ExitCode::from(FAILED),
            false => ExitCode::SUCCESS,
        }
    }

    /// Whether to keep silent.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }
}

/// `snug bench`.
pub fn bench(args: &BenchArgs) -> ExitCode {
    match &args.other {
        Some(BenchCommand::List) => {
            return match show(&list()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => refuse(&format!("cannot write to standard output: {error}")),
            };
        }
        Some(BenchCommand::Codec(codec)) => return codec.run(Part::ALL),
        Some(BenchCommand::CodecStream(codec)) => return codec.run(&[Part::Streams]),
        Some(BenchCommand::CodecLevels(codec)) => return codec.run(&[Part::Levels]),
        Some(BenchCommand::DiskBlobs(codec)) => return codec.run(&[Part::Blobs]),
        Some(BenchCommand::Corpus(corpus)) => return corpus.run(default_data_dir()),
        None => {}
    }
    if let Err(code) = args.output.check() {
        return code;
    }
    interrupt::watch();
    let options = args.load.options();
    let steps = match find(&args.workload).and_then(|workload| (workload.plan)(&options)) {
        Ok(steps) => steps,
        Err(error) => return refuse_error(&error),
    };
    let endpoint = match args.endpoint() {
        Ok(endpoint) => endpoint,
        Err(error) => return refuse(&error),
    };
    let cluster = args.access.cluster;
    if args.server.flush
        && let Err(error) = flush(&endpoint, cluster)
    {
        return refuse(&error);
    }
    let subject = Subject { name: "server".into(), endpoint, cluster, round: 1 };
    let settings = args.load.settings(args.output.quiet);
    let mut report = Report::begin(command_line());
    let begun = run_steps(&args.workload, &steps, &subject, &settings, &mut report);
    report.interrupted = interrupt::requested();
    if let Err(error) = begun {
        return refuse(&error);
    }
    args.output.deliver(&report, &table::render(&report))
}

/// Empties a server, or every node of a cluster.
pub fn flush(endpoint: &Endpoint, cluster: bool) -> Result<(), ControlError> {
    let nodes = match cluster {
        true => Topology::discover(endpoint)?.nodes,
        false => vec![endpoint.clone()],
    };
    nodes.iter().try_for_each(|node| node.open()?.call(&["FLUSHALL"]).map(|_| ()))
}

/// Runs steps one after the other until one fails or the user wants an end. What
/// was measured until then is in the report; an error means that nothing was.
pub fn run_steps(
    workload: &str,
    steps: &[Step],
    subject: &Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), ControlError> {
    for step in steps {
        if interrupt::requested() {
            break;
        }
        let result = match run_step(workload, step, subject, settings) {
            Ok(result) => result,
            Err(_) if interrupt::requested() => break,
            Err(error) if report.results.is_empty() => return Err(error),
            Err(error) => {
                report.notes.push(format!("{} {}: {error}", subject.name, step.name));
                break;
            }
        };
        let failed = result.failure.is_some();
        report.results.push(result);
        if failed {
            break;
        }
    }
    Ok(())
}

/// The command line as it was typed, for the report. Passwords stay out of it.
pub fn command_line() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut()
        && let Some(name) = program.rsplit('/').next()
    {
        *program = name.to_owned();
    }
    for at in 1..words.len() {
        if matches!(words[at - 1].as_str(), "-a" | "--password") {
            words[at] = "***".into();
        } else if words[at].starts_with("--password=") {
            words[at] = "--password=***".into();
        } else if words[at].len() > 2 && words[at].starts_with("-a") {
            words[at].truncate(2);
            words[at].push_str("***");
        }
    }
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
}

/// One clear line, and the exit code that goes with it.
pub fn refuse(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("snug: {error}");
    ExitCode::from(FAILED)
}

/// The same for what was typed and cannot be.
fn misuse(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("snug: {error}");
    ExitCode::from(MISUSED)
}

/// One of the two, by what the error is.
pub fn refuse_error(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    match error.downcast_ref::<WorkloadError>() {
        Some(wrong) if wrong.is_misuse() => misuse(wrong),
        _ => refuse(&error),
    }
}

/// What there is to run.
fn list() -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for workload in WORKLOADS {
        rows.push(vec![format!("{:<16}  {}", workload.name, workload.summary)]);
    }
    for (name, summary) in [
        ("codec", "packing alone, without a server: all that follows and more"),
        ("codec-stream", "one-shot zstd, blocking and preemptible streams of 1 and 10 MiB"),
        ("codec-levels", "zstd levels 3, 9 and 19 on text of 16 and 128 KiB"),
        ("disk-blobs", "JSON blobs in a plain file, raw, lz4 and zstd"),
        ("corpus", "memory of many kinds of values, in Snug and in redis-server"),
    ] {
        rows.push(vec![format!("{name:<16}  {summary}")]);
    }
    for scenario in SCENARIOS {
        rows.push(vec![format!("{:<16}  compare: {}", scenario.name, scenario.summary)]);
    }
    let tests: Vec<&str> = TESTS.iter().map(|(name, _)| *name).collect();
    rows.push(vec![format!("\ntests of -t: {}", tests.join(", "))]);
    table::align(&rows, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_people_write_them() {
        assert_eq!(count("1000"), Ok(1000));
        assert_eq!(count("2k"), Ok(2000));
        assert_eq!(count("1.5M"), Ok(1_500_000));
        assert_eq!(count("1e6"), Ok(1_000_000));
        for bad in ["0", "-1", "1.5", "x", "", "k", "1e30", "nan"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn targets_are_read() {
        assert_eq!(host_and_port("db:6380"), Ok(("db".into(), 6380)));
        assert_eq!(host_and_port("[::1]:6380"), Ok(("::1".into(), 6380)));
        for bad in ["db", ":1", "db:x", "db:99999"] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_read_as_redis_benchmarks() {
        #[derive(Debug, clap::Parser)]
        struct Program {
            #[command(flatten)]
            bench: BenchArgs,
        }
        let parsed = <Program as clap::Parser>::try_parse_from(
            "bench -h db -p 7 -a pw -n 10 -c 5 -P 1,16 -d 64 -r 1000 -t set,xadd --threads 2 -q"
                .split(' '),
        )
        .unwrap()
        .bench;
        assert_eq!(parsed.endpoint().unwrap().address(), "db:7");
        let options = parsed.load.options();
        assert_eq!(options.pipelines, [1, 16]);
        assert_eq!(options.tests, ["set", "xadd"]);
        assert_eq!(options.requests, Some(10));
        let listed = <Program as clap::Parser>::try_parse_from(["bench", "list"]).unwrap();
        assert!(matches!(listed.bench.other, Some(BenchCommand::List)));
        for bad in [
            "-c 0",
            "--cacert ca.crt",
            "--tls --cert c.crt",
            "-d 1g",
            "codec-stream -c 1",
            "-3 --resp 2",
        ] {
            let words = std::iter::once("bench").chain(bad.split(' '));
            assert!(<Program as clap::Parser>::try_parse_from(words).is_err(), "{bad}");
        }
        let endpoint = |words: &str| {
            let words = std::iter::once("bench").chain(words.split(' '));
            let parsed = <Program as clap::Parser>::try_parse_from(words).unwrap();
            parsed.bench.endpoint().unwrap()
        };
        assert_eq!((endpoint("-3").resp, endpoint("-q").resp), (3, 2));
        for (flag, why) in
            [("-n", "above 0"), ("-c", "above 0"), ("-d", "bytes"), ("-p", "0..=65535")]
        {
            let parsed = <Program as clap::Parser>::try_parse_from(["bench", flag, "-5"]);
            let error = parsed.unwrap_err().to_string();
            assert!(
                error.contains("'-5'") && error.contains(why) && !error.contains("tip"),
                "{error}"
            );
        }
        assert_eq!((bytes("64"), bytes("1k")), (Ok(64), Ok(1024)));
    }
}
