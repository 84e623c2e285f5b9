//! `snug compare`: runs targets in turn, and shows how they stand.
//!
//! Every round of a workload starts each program afresh, so that none inherits
//! another's memory or heat: round 1 of A, round 1 of B, round 2 of A, ...

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Args};

use crate::affinity::Cores;
use crate::agreement;
use crate::cli::{AccessArgs, LoadArgs, OutputArgs, command_line, flush, refuse};
use crate::codec;
use crate::compare::{Comparison, FailIf, merge_for_comparison};
use crate::endpoint::Endpoint;
use crate::interrupt;
use crate::report::{self, Report, StepResult};
use crate::run::{Settings, Subject, run_step};
use crate::suite::{Planned, checks_agreement, codec_parts, plan};
use crate::target::Target;

/// Exit code when a `--fail-if` holds.
const BROKEN: u8 = 3;
/// Requests of a run beside redis-benchmark, and how often.
const AGREEMENT_REQUESTS: u64 = 100_000;
const AGREEMENT_ROUNDS: u32 = 5;

const EXAMPLES: &str = "\
Examples:
  snug compare                                    Snug and redis-server, the whole suite
  snug compare --workload classic --rounds 5
  snug compare snug valkey=/opt/valkey/bin/valkey-server --workload stream-events
  snug compare snug redis=redis-server --workload set-get -t set,xadd -P 16 -n 1m \\
      --fail-if 'xadd.throughput<0.95' --fail-if 'set.cpu>0.6'
  snug compare two@0-1='snug --workers 2' one='snug --workers 1' --workload set-get -P 100
  snug compare a=10.0.0.1:6379 b=10.0.0.2:6379 --workload set-get -a secret --tls
  snug compare redis=redis-server valkey=valkey-server --workload set-get-cluster
  snug compare old.json new.json                  what two --json reports differ in

A target is `snug`, NAME=PROGRAM [ARGUMENTS] or NAME=HOST:PORT; NAME@CORES=... pins
a program to cores of its own. Passwords and TLS are for running servers. A ratio
is the first target over the other.";

/// Compares servers on the same work, started, pinned and interleaved, or two
/// reports.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub struct CompareArgs {
    /// Targets, or two reports [default: snug redis=redis-server]
    targets: Vec<String>,
    /// Workload or scenario (see `snug bench list`); may be repeated
    #[arg(long, value_name = "NAME", default_value = "suite")]
    workload: Vec<String>,
    /// Rounds of each workload
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Cores of the servers [default: the first]
    #[arg(long, value_name = "CORES", value_parser = Cores::parse)]
    server_cores: Option<Cores>,
    /// Cores of the load [default: all others]
    #[arg(long, value_name = "CORES", value_parser = Cores::parse)]
    load_cores: Option<Cores>,
    /// Exit with 3 if a ratio breaks this bound, as 'xadd.throughput<0.95'; may be
    /// repeated
    #[arg(long, value_name = "BOUND", value_parser = FailIf::parse)]
    fail_if: Vec<FailIf>,
    /// Empty running servers (FLUSHALL) before each round
    #[arg(long)]
    flush: bool,
    /// Nodes of the cluster that a program is started as, with --cluster or by the
    /// workload set-get-cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    nodes: u16,
    /// Write benchmarks.md and its plots into this folder
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
    /// Write the main figures between the marks of this README
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// `snug compare`.
pub fn compare(args: &CompareArgs) -> ExitCode {
    let report = match reports(&args.targets) {
        Some(Ok(report)) => report,
        Some(Err(error)) => return refuse(&error),
        None => match run(args) {
            Ok(report) => report,
            Err(error) => return refuse(&*error),
        },
    };
    let comparison = Comparison::of(&report);
    let mut shown = comparison.render();
    let more = report::sections::codec(&report).into_iter();
    for section in more.chain([report::sections::agreement(&report)]) {
        if !section.is_empty() {
            shown.push('\n');
            shown.push_str(&section.text());
        }
    }
    let code = args.output.deliver(&report, &shown);
    if let Some(folder) = &args.docs
        && let Err(error) = crate::report::markdown::write(&report, folder)
    {
        return refuse(&format!("cannot write {}: {error}", folder.display()));
    }
    if let Some(readme) = &args.readme
        && let Err(error) = crate::report::markdown::write_readme(&report, readme)
    {
        return refuse(&format!("cannot write {}: {error}", readme.display()));
    }
    let breaches: Vec<String> =
        args.fail_if.iter().flat_map(|bound| bound.breaches(&comparison)).collect();
    for line in &breaches {
        eprintln!("snug: {line}");
    }
    if breaches.is_empty() { code } else { ExitCode::from(BROKEN) }
}

/// Two files in place of targets: old and new.
fn reports(targets: &[String]) -> Option<Result<Report, String>> {
    let [old, new] = targets else { return None };
    let is_report = |path: &str| Path::new(path).extension().is_some_and(|ext| ext == "json");
    if !is_report(old) || !is_report(new) {
        return None;
    }
    let read = |path: &str| {
        Report::read(Path::new(path)).map_err(|error| format!("cannot read {path}: {error}"))
    };
    Some(read(old).and_then(|old| Ok(merge_for_comparison(&old, &read(new)?))))
}

struct Placed {
    target: Target,
    cores: Cores,
}

struct Layout {
    targets: Vec<Placed>,
    load: Cores,
    access: Endpoint,
    nodes: usize,
    flush: bool,
}

/// Splits `name@cores=rest` into `name=rest` and the cores.
fn split_cores(text: &str) -> Result<(String, Option<Cores>), String> {
    match text.split_once('=').and_then(|(name, rest)| Some((name.split_once('@')?, rest))) {
        Some(((name, cores), rest)) => Ok((format!("{name}={rest}"), Some(Cores::parse(cores)?))),
        None => Ok((text.to_owned(), None)),
    }
}

fn layout(args: &CompareArgs) -> Result<Layout, Box<dyn std::error::Error>> {
    let (first, others) = Cores::allowed()?.share();
    let server = args.server_cores.clone().unwrap_or(first);
    let load = args.load_cores.clone().unwrap_or(others);
    let texts = match args.targets.as_slice() {
        [] => vec!["snug".to_owned(), "redis=redis-server".to_owned()],
        given => given.to_vec(),
    };
    let mut targets: Vec<Placed> = Vec::new();
    for text in &texts {
        let (text, cores) = split_cores(text)?;
        let target = Target::parse(&text)?;
        if targets.iter().any(|known| known.target.name == target.name) {
            return Err(format!("two targets are called '{}'", target.name).into());
        }
        targets.push(Placed { target, cores: cores.unwrap_or_else(|| server.clone()) });
    }
    Ok(Layout {
        targets,
        load,
        access: args.access.endpoint()?,
        nodes: usize::from(args.nodes),
        flush: args.flush,
    })
}

fn run(args: &CompareArgs) -> Result<Report, Box<dyn std::error::Error>> {
    interrupt::watch();
    let layout = layout(args)?;
    if layout.targets.iter().any(|placed| placed.cores.overlaps(&layout.load)) {
        eprintln!("snug: server and load share a core: throughput and latency are both of theirs");
    }
    // The machine is described before this program confines itself to a part.
    let mut report = Report::begin(command_line());
    layout.load.confine()?;
    let settings = args.load.settings(args.output.is_quiet());
    let options = args.load.options();
    for name in &args.workload {
        for planned in plan(name, &options, args.rounds) {
            match planned {
                Ok(mut planned) => {
                    planned.cluster |= args.access.cluster;
                    run_rounds(&planned, &layout, &settings, &mut report);
                }
                // One name alone that cannot be had is the whole answer.
                Err((_, error)) if args.workload.len() == 1 && report.results.is_empty() => {
                    return Err(error.into());
                }
                Err((workload, error)) => report.results.push(StepResult {
                    workload: workload.clone(),
                    step: workload,
                    failure: Some(error.to_string()),
                    ..StepResult::default()
                }),
            }
        }
        let parts = codec_parts(name);
        if !parts.is_empty() && !interrupt::requested() {
            let defaults = codec::Options::default();
            let cell_seconds = defaults.cell_seconds * options.scale.min(1.0);
            let wanted = codec::Options { seed: options.seed, cell_seconds, parts, ..defaults };
            report.codec = Some(codec::run(&wanted, |_| {}));
        }
        if checks_agreement(name) && !interrupt::requested() {
            let plan = agreement::Plan {
                server: &layout.targets[0].cores,
                load: &layout.load,
                requests: options.scaled(AGREEMENT_REQUESTS),
                rounds: AGREEMENT_ROUNDS,
                options: &options,
                settings: &settings,
            };
            match agreement::measure(&plan) {
                Ok(lines) => report.agreement = lines,
                Err(line) => report.notes.push(line),
            }
        }
    }
    Ok(report)
}

fn run_rounds(planned: &Planned, layout: &Layout, settings: &Settings, report: &mut Report) {
    for round in 1..=planned.rounds {
        for placed in &layout.targets {
            if interrupt::requested() {
                return;
            }
            let name = &placed.target.name;
            if let Err(error) = run_round(planned, placed, layout, settings, round, report) {
                report.results.push(StepResult {
                    target: name.clone(),
                    round,
                    workload: planned.workload.clone(),
                    step: planned.workload.clone(),
                    failure: Some(error.to_string()),
                    ..StepResult::default()
                });
            }
        }
    }
}

fn run_round(
    planned: &Planned,
    placed: &Placed,
    layout: &Layout,
    settings: &Settings,
    round: u32,
    report: &mut Report,
) -> Result<(), Box<dyn std::error::Error>> {
    let cluster = planned.cluster;
    let nodes = cluster.then_some(layout.nodes);
    let server = placed.target.start(&placed.cores, &layout.load, nodes, &layout.access)?;
    if layout.flush && !placed.target.is_program() {
        flush(&server.endpoint, cluster)?;
    }
    let endpoint = server.endpoint.clone();
    let subject = Subject { name: placed.target.name.clone(), endpoint, cluster, round };
    for step in &planned.steps {
        if interrupt::requested() {
            break;
        }
        let result = run_step(&planned.workload, step, &subject, settings)?;
        let failed = result.failure.is_some();
        report.results.push(result);
        if failed {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_may_name_its_cores() {
        let (text, cores) = split_cores("two@0-1=snug --workers 2").unwrap();
        assert_eq!(text, "two=snug --workers 2");
        assert_eq!(cores, Some(Cores::parse("0,1").unwrap()));
        assert_eq!(split_cores("snug").unwrap(), ("snug".into(), None));
        assert!(split_cores("a@x=snug").is_err());
    }

    #[test]
    fn reports_are_told_from_targets() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert!(reports(&words(&["snug", "redis=redis-server"])).is_none());
        assert!(reports(&words(&["a.json"])).is_none());
        assert!(matches!(reports(&words(&["/nonexistent.json", "b.json"])), Some(Err(_))));
    }
}
