//! `snug compare`: runs targets in turn, and shows how they stand.
//!
//! Every round of a workload starts each program afresh, so that none inherits
//! another's memory or heat: round 1 of A, round 1 of B, round 2 of A, ...
//!
//! Whatever can be found wrong with the arguments is found before the first round:
//! names of programs, cores, workloads, reports and of what bounds are on.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use crate::affinity::Cores;
use crate::agreement;
use crate::cli::{AccessArgs, LoadArgs, OutputArgs, command_line, flush, refuse};
use crate::codec;
use crate::compare::{Comparison, FailIf, differing_settings, merge_for_comparison};
use crate::endpoint::Endpoint;
use crate::interrupt;
use crate::progress::Overall;
use crate::report::{self, Report, StepResult};
use crate::run::{Settings, Subject, run_step};
use crate::suite::{Planned, SCENARIOS, checks_agreement, codec_parts, plan};
use crate::target::Target;
use crate::workloads::{self, WorkloadError};

/// Exit code when something failed.
const FAILED: u8 = 1;
/// Exit code of wrong arguments, which is clap's.
const WRONG: u8 = 2;
/// Exit code when a `--fail-if` holds.
const BROKEN: u8 = 3;
/// Requests of a run beside redis-benchmark, and how often.
const AGREEMENT_REQUESTS: u64 = 40_000;
const AGREEMENT_ROUNDS: u32 = 15;

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
#[command(after_help = EXAMPLES)]
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
}

/// Why nothing is compared, in one line.
#[derive(Debug)]
struct Refusal {
    code: u8,
    line: String,
}

/// The arguments are to blame.
fn wrong(error: impl Display) -> Refusal {
    Refusal { code: WRONG, line: error.to_string() }
}

/// The arguments are not to blame.
fn failed(error: impl Display) -> Refusal {
    Refusal { code: FAILED, line: error.to_string() }
}

/// `snug compare`.
pub fn compare(args: &CompareArgs) -> ExitCode {
    if let Err(code) = args.output.check() {
        return code;
    }
    let report = match reports(&args.targets) {
        Ok(Some((old, new))) => merge_reports(old, new),
        Ok(None) => run(args),
        Err(refusal) => Err(refusal),
    };
    let report = match report {
        Ok(report) => report,
        Err(refusal) => {
            refuse(&refusal.line);
            return ExitCode::from(refusal.code);
        }
    };
    let comparison = Comparison::of(&report);
    let mut shown = comparison.render();
    let figures = std::iter::once(report::sections::figures(&report));
    let more = figures.chain(report::sections::codec(&report));
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
    if interrupt::requested() {
        return ExitCode::from(interrupt::INTERRUPTED);
    }
    if breaches.is_empty() { code } else { ExitCode::from(BROKEN) }
}

/// Two files in place of targets: old and new.
fn reports(targets: &[String]) -> Result<Option<(&Path, &Path)>, Refusal> {
    match targets {
        [old, new] if is_report(old) && is_report(new) => {
            Ok(Some((Path::new(old), Path::new(new))))
        }
        _ => match targets.iter().find(|word| is_report(word)) {
            Some(report) => Err(wrong(format!(
                "'{report}' is a report, which is compared with one other: OLD.json NEW.json"
            ))),
            None => Ok(None),
        },
    }
}

/// Whether a word means a report rather than a target: by its name, or by how the
/// file begins.
fn is_report(word: &str) -> bool {
    let path = Path::new(word);
    let named = path.extension().is_some_and(|extension| extension == "json");
    let mut first = [0];
    match path.is_file() {
        true => {
            let begins = File::open(path).and_then(|mut file| file.read_exact(&mut first));
            named || (begins.is_ok() && first == *b"{")
        }
        // `NAME=PROGRAM settings.json` is a program with an argument.
        false => named && !word.contains(['=', ' ']),
    }
}

/// Two reports as one. What makes them hard to compare is said at once.
fn merge_reports(old: &Path, new: &Path) -> Result<Report, Refusal> {
    let read = |path: &Path| {
        let named = |error| failed(format!("cannot read {}: {error}", path.display()));
        Report::read(path).map_err(named)
    };
    let (old, new) = (read(old)?, read(new)?);
    let merged = merge_for_comparison(&old, &new).map_err(failed)?;
    for line in differing_settings(&merged) {
        eprintln!("snug: {line}");
    }
    if (&old.machine.cpu, old.machine.cores) != (&new.machine.cpu, new.machine.cores) {
        let place =
            |report: &Report| format!("{}, {} cores", report.machine.cpu, report.machine.cores);
        eprintln!("snug: the new report is of {}; the old of {}", place(&new), place(&old));
    }
    Ok(merged)
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

/// Reads the targets and looks whether their programs and all cores are there.
fn layout(args: &CompareArgs) -> Result<Layout, Refusal> {
    let allowed = Cores::allowed().map_err(failed)?;
    let (first, others) = allowed.share();
    let server = args.server_cores.clone().unwrap_or(first);
    let load = args.load_cores.clone().unwrap_or(others);
    let texts = match args.targets.as_slice() {
        [] => vec!["snug".to_owned(), "redis=redis-server".to_owned()],
        given => given.to_vec(),
    };
    let mut targets: Vec<Placed> = Vec::new();
    for text in &texts {
        let (text, cores) = split_cores(text).map_err(wrong)?;
        let target = Target::parse(&text).map_err(wrong)?;
        target.check().map_err(wrong)?;
        if targets.iter().any(|known| known.target.name == target.name) {
            return Err(wrong(format!("two targets are called '{}'", target.name)));
        }
        targets.push(Placed { target, cores: cores.unwrap_or_else(|| server.clone()) });
    }
    for cores in targets.iter().map(|placed| &placed.cores).chain([&server, &load]) {
        if let Some(core) = cores.first_outside(&allowed) {
            return Err(wrong(format!("core {core} cannot be had: there are {allowed}")));
        }
    }
    Ok(Layout {
        targets,
        load,
        access: args.access.endpoint().map_err(failed)?,
        nodes: usize::from(args.nodes),
        flush: args.flush,
    })
}

/// A workload ready to be run, or its name and why it cannot be had.
type Plan = Result<Planned, (String, WorkloadError)>;

/// Prepares all that the workloads of `--workload` consist of. Real data that is
/// not here yet is fetched now.
fn plans(args: &CompareArgs) -> Result<Vec<(&str, Vec<Plan>)>, Refusal> {
    for name in &args.workload {
        if !SCENARIOS.iter().any(|scenario| scenario.name == name) {
            workloads::find(name).map_err(wrong)?;
        }
    }
    let options = args.load.options();
    let mut plans = Vec::new();
    for name in &args.workload {
        let mut planned = plan(name, &options, args.rounds);
        for part in &mut planned {
            match part {
                Ok(part) => part.cluster |= args.access.cluster,
                // Of several workloads, the others are measured.
                Err((_, WorkloadError::Data { .. })) => {}
                Err((_, error)) => return Err(wrong(error)),
            }
        }
        plans.push((name.as_str(), planned));
    }
    for bound in &args.fail_if {
        check_bound(bound, plans.iter().flat_map(|(_, parts)| parts))?;
    }
    Ok(plans)
}

/// An error if a bound is on what none of the steps is called.
fn check_bound<'a>(bound: &FailIf, plans: impl Iterator<Item = &'a Plan>) -> Result<(), Refusal> {
    let mut steps = Vec::new();
    for plan in plans {
        // What it would have measured is not known.
        let Ok(planned) = plan else { return Ok(()) };
        for step in &planned.steps {
            if bound.may_select(&planned.workload, step) {
                return Ok(());
            }
            steps.push(step.name.as_str());
        }
    }
    let selector = bound.selector();
    Err(wrong(format!(
        "--fail-if: nothing here is called '{selector}'; the steps are {}",
        steps.join(", ")
    )))
}

fn run(args: &CompareArgs) -> Result<Report, Refusal> {
    interrupt::watch();
    let layout = layout(args)?;
    let plans = plans(args)?;
    if layout.targets.iter().any(|placed| placed.cores.overlaps(&layout.load)) {
        eprintln!("snug: server and load share a core: throughput and latency are both of theirs");
    }
    // The machine is described before this program confines itself to a part.
    let mut report = Report::begin(command_line());
    layout.load.confine().map_err(failed)?;
    let mut settings = args.load.settings(args.output.is_quiet());
    if settings.progress {
        let planned = plans.iter().flat_map(|(_, parts)| parts.iter().flatten());
        let steps: usize = planned.map(|part| part.steps.len() * part.rounds as usize).sum();
        settings.overall = Some(Arc::new(Overall::new(steps * layout.targets.len())));
    }
    let options = args.load.options();
    for (name, parts) in plans {
        for planned in parts {
            match planned {
                Ok(planned) => run_rounds(&planned, &layout, &settings, &mut report),
                // One name alone that cannot be had is the whole answer.
                Err((_, error)) if args.workload.len() == 1 && report.results.is_empty() => {
                    return Err(failed(error));
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
                // A terminal's Ctrl-C ends redis-benchmark too.
                Err(_) if interrupt::requested() => {}
                Err(line) => report.notes.push(line),
            }
        }
    }
    report.interrupted = interrupt::requested();
    Ok(report)
}

fn run_rounds(planned: &Planned, layout: &Layout, settings: &Settings, report: &mut Report) {
    for round in 1..=planned.rounds {
        for placed in &layout.targets {
            if interrupt::requested() {
                return;
            }
            let name = &placed.target.name;
            let before = report.results.len();
            let ran = run_round(planned, placed, layout, settings, round, report);
            if let Some(overall) = &settings.overall {
                // What comes after a step that failed is left out.
                overall.add(planned.steps.len() - (report.results.len() - before));
            }
            if let Err(error) = ran
                && !interrupt::requested()
            {
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
        if let Some(overall) = &settings.overall {
            overall.add(1);
        }
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
        let code = |given: &[&str]| {
            reports(&words(given)).map(|two| two.is_some()).map_err(|error| error.code)
        };
        assert_eq!(code(&["snug", "redis=redis-server"]), Ok(false));
        assert_eq!(code(&["x=server settings.json", "y=settings.json"]), Ok(false));
        assert_eq!(code(&["/nonexistent.json", "b.json"]), Ok(true));
        for mistyped in [&["a.json"][..], &["a.json", "b.json", "c.json"], &["snug", "b.json"]] {
            assert_eq!(code(mistyped), Err(WRONG), "{mistyped:?}");
        }
        let path = std::env::temp_dir().join(format!("snug-{}.report", std::process::id()));
        std::fs::write(&path, "{}").unwrap();
        let report = path.to_str().unwrap();
        assert_eq!(code(&[report, "old.json"]), Ok(true), "another name, the same beginning");
        assert_eq!(code(&[report]), Err(WRONG));
        std::fs::write(&path, "#!/bin/sh").unwrap();
        assert_eq!(code(&[report]), Ok(false));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn arguments_that_are_wrong_are_found_before_anything_is_measured() {
        #[derive(clap::Parser)]
        struct Program {
            #[command(flatten)]
            compare: CompareArgs,
        }
        let line = |words: &[&str]| {
            let words = ["compare"].iter().chain(words);
            let args = <Program as clap::Parser>::try_parse_from(words).unwrap().compare;
            let prepared = layout(&args).and_then(|_| plans(&args).map(|_| ()));
            prepared.map_err(|refusal| (refusal.code, refusal.line))
        };
        let set_get = ["snug", "--workload", "set-get", "-t", "set,get", "-P", "1,16"];
        let with = |more: &[&'static str]| line(&[&set_get[..], more].concat());
        let refused = |text: &str| Err((WRONG, text.to_owned()));
        for selector in ["set-get", "set", "get/P16"] {
            assert_eq!(with(&["--fail-if", &*format!("{selector}.cpu>2").leak()]), Ok(()));
        }
        let steps = "the steps are set/P1, get/P1, set/P16, get/P16";
        let unknown = format!("--fail-if: nothing here is called 'xadd'; {steps}");
        assert_eq!(with(&["--fail-if", "xadd.cpu>2"]), refused(&unknown));
        let kinds = ["snug", "--workload", "json-zipf", "--scale", "0.01", "--fail-if"];
        assert_eq!(line(&[&kinds[..], &["get.p99>2"]].concat()), Ok(()), "a kind of request");
        let missing = "cannot start /nonexistent/x: No such file or directory (os error 2)";
        assert_eq!(with(&["x=/nonexistent/x"]), refused(missing));
        assert_eq!(with(&["snug"]), refused("two targets are called 'snug'"));
        for words in [["--server-cores", "999"], ["--load-cores", "999"]] {
            let (code, text) = with(&words).unwrap_err();
            assert!(code == WRONG && text.starts_with("core 999 cannot be had: there are "));
        }
        assert!(with(&["y@999=sh"]).is_err() && with(&["y@x=sh"]).is_err());
        assert!(with(&["--workload", "nonsense"]).is_err());
        assert!(line(&["snug", "--workload", "set-get", "-t", "nonsense"]).is_err());
    }
}
