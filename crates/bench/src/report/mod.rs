//! What was measured, as data: one [`Report`] holds the results of any number of
//! steps, targets and rounds, and is what `--json` writes and `snug compare`
//! reads back. The other files of this folder show it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::latency::LatencySummary;
use crate::server_facts::MemoryReading;

pub mod csv;
pub mod html;
pub mod markdown;
pub mod plot;
pub mod sections;
pub mod table;

/// Everything of one invocation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When it began, in UTC.
    pub date: String,
    /// What it ran on.
    pub machine: Machine,
    /// The command line that asked for it.
    pub command: String,
    /// Step by step, in the order in which they ran.
    pub results: Vec<StepResult>,
    /// What was not measured, and why, beside what the steps say themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The user ended it early: steps are missing, or cut short.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// The generator beside redis-benchmark, if that was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agreement: Vec<crate::agreement::AgreementLine>,
    /// What packing costs and saves, if that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<crate::codec::Report>,
}

/// The machine under the servers and the load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// CPU model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// Kernel release.
    pub kernel: String,
}

/// One step against one target, once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// The target's name.
    pub target: String,
    /// In a comparison of two reports, where `target` is the report: the target
    /// that the report names, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Product and version behind it.
    pub server: String,
    /// Repetition, from 1.
    pub round: u32,
    /// Workload.
    pub workload: String,
    /// Step within it: `set/P16`.
    pub step: String,
    /// Load threads.
    pub threads: usize,
    /// Connections.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub pipeline: usize,
    /// Requests a second asked for, if the loop was open.
    pub rate: Option<f64>,
    /// What else was asked for that decides what the figures say, by the names of
    /// its flags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// From the first request to the last reply.
    pub seconds: f64,
    /// Replies.
    pub operations: u64,
    /// Replies a second.
    pub throughput: f64,
    /// Bytes of requests.
    pub sent_bytes: u64,
    /// Bytes of replies.
    pub received_bytes: u64,
    /// By kind of request.
    pub kinds: Vec<KindResult>,
    /// CPU time, where the server is on this machine.
    pub cpu: Option<Cpu>,
    /// Memory before and after.
    pub memory: Option<Memory>,
    /// `INFO packing`, from servers that have it.
    pub packing: BTreeMap<String, String>,
    /// What else the workload found.
    pub figures: Vec<Figure>,
    /// Samples over time.
    pub series: Vec<Sample>,
    /// The first error reply.
    pub first_error: Option<String>,
    /// Why the step ended early.
    pub failure: Option<String>,
    /// The user ended it early: it has fewer requests or less time than asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Why the server's memory is not known: its answer to `INFO`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<String>,
}

impl StepResult {
    /// The step, behind the target it came from in a comparison of reports.
    pub fn label(&self) -> String {
        match &self.source {
            Some(source) => format!("{source}: {}", self.step),
            None => self.step.clone(),
        }
    }

    /// Whether both are rounds of one step, of whatever target.
    pub fn is_same_step(&self, other: &Self) -> bool {
        (&self.workload, &self.step, &self.source) == (&other.workload, &other.step, &other.source)
    }

    /// Whether the step ended because the server has no such command.
    fn lacks_command(&self) -> bool {
        let failure = self.failure.as_deref().unwrap_or("");
        ["ERR unknown command", "ERR unknown subcommand"].iter().any(|text| failure.contains(text))
    }
}

/// One kind of request within a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KindResult {
    /// The command, lower case.
    pub name: String,
    /// Replies a second.
    pub throughput: f64,
    /// Error replies.
    pub errors: u64,
    /// With a rate: requests that were due and were not sent before the time was
    /// over, because no connection was free. Their latencies count from when they
    /// were due to the end: they waited at least so long.
    #[serde(default)]
    pub unsent: u64,
    /// Its latencies.
    pub latency: LatencySummary,
}

impl KindResult {
    /// Replies.
    pub fn replies(&self) -> u64 {
        self.latency.count - self.unsent.min(self.latency.count)
    }
}

/// CPU seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Of the server, while the load ran.
    pub seconds: f64,
    /// Of the server, until its memory had come to rest.
    pub rested_seconds: f64,
    /// Of the server, a million operations, while the load ran.
    pub per_million: Option<f64>,
    /// Of this program, while the load ran.
    pub client_seconds: f64,
}

/// Memory around a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Before the first request.
    pub before: MemoryReading,
    /// After the last reply.
    pub ended: MemoryReading,
    /// Once it had come to rest; the same as `ended` where nothing was waited for.
    pub rested: MemoryReading,
    /// Items that the step added.
    pub items: u64,
    /// Growth of `used_memory` over them; none if it shrank or the items are few.
    pub bytes_per_item: Option<f64>,
    /// The same when the last reply had come, where there was a rest after it.
    #[serde(default)]
    pub bytes_per_item_hot: Option<f64>,
}

/// Fewer items say nothing about memory: what a server keeps for connections, some
/// tens of kilobytes that come and go, would be charged to them.
const ITEMS_MIN: u64 = 10_000;

impl Memory {
    /// Whether the step added enough items for its memory to be theirs.
    pub fn has_many_items(&self) -> bool {
        self.items >= ITEMS_MIN
    }

    /// The readings around a step, and what they come to for each item; `rested` where
    /// there was a rest.
    pub fn around(
        before: MemoryReading,
        ended: MemoryReading,
        rested: Option<MemoryReading>,
        items: u64,
    ) -> Self {
        let per_item = |then: MemoryReading| {
            let grown = then.used as f64 - before.used as f64;
            (items >= ITEMS_MIN && grown > 0.0).then(|| grown / items as f64)
        };
        let bytes_per_item_hot = rested.and_then(|_| per_item(ended));
        let rested = rested.unwrap_or(ended);
        let bytes_per_item = per_item(rested);
        Self { before, ended, rested, items, bytes_per_item, bytes_per_item_hot }
    }
}

/// A figure that only one workload knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is, its unit included.
    pub name: String,
    /// How much.
    pub value: f64,
}

/// One moment of a running step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the load began.
    pub seconds: f64,
    /// Replies so far.
    pub operations: u64,
    /// `used_memory`.
    pub used: u64,
    /// Resident bytes of the server's process; 0 where it cannot be seen.
    pub resident: u64,
}

impl Report {
    /// An empty report of now, here, for that command line.
    pub fn begin(command: String) -> Self {
        Self {
            date: now_utc(),
            machine: Machine::this(),
            command,
            results: Vec::new(),
            ..Self::default()
        }
    }

    /// Reads a report that `--json` wrote.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        serde_json::from_str(&text)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has no map keys but strings")
    }

    /// Whether anything went wrong. A command that one server lacks and another
    /// has been measured at is a result of the comparison, and nothing wrong.
    pub fn has_failed(&self) -> bool {
        let has_errors = |result: &StepResult| {
            result.failure.is_some() || result.kinds.iter().any(|kind| kind.errors > 0)
        };
        let measured_elsewhere = |lacking: &StepResult| {
            // What could not even begin has the workload's name for its step's.
            let whole = lacking.step == lacking.workload;
            let is_other = |other: &&StepResult| {
                other.target != lacking.target
                    && other.workload == lacking.workload
                    && (whole || other.step == lacking.step)
            };
            self.results.iter().filter(is_other).any(|other| !has_errors(other))
        };
        let failed = |result: &StepResult| {
            has_errors(result) && !(result.lacks_command() && measured_elsewhere(result))
        };
        let codec_failed = |codec: &crate::codec::Report| !codec.failures.is_empty();
        self.results.iter().any(failed)
            || !self.notes.is_empty()
            || self.codec.as_ref().is_some_and(codec_failed)
    }

    /// What went wrong, one line each, and what a server lacks.
    pub fn troubles(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for result in &self.results {
            let place = [result.target.as_str(), &result.label()].join(" ");
            let place = place.trim();
            // Where all replies were errors, the line that counts them says it.
            let told = result.failure.is_some() && result.failure == result.first_error;
            if let Some(failure) = result.failure.as_ref().filter(|_| !told) {
                lines.push(format!("{place}: {failure}"));
            }
            let unsent: u64 = result.kinds.iter().map(|kind| kind.unsent).sum();
            if unsent > 0 {
                let due = result.operations + unsent;
                lines.push(format!(
                    "{place}: {unsent} of {due} requests that were due could not be sent in time; \
                     their latencies are what they had waited at the end"
                ));
            }
            let errors: u64 = result.kinds.iter().map(|kind| kind.errors).sum();
            if errors > 0 {
                let first = result.first_error.as_deref().unwrap_or("");
                let all = result.operations;
                lines.push(format!(
                    "{place}: {errors} of {all} replies were errors, first: {first}"
                ));
            }
        }
        for result in &self.results {
            let Some(unseen) = &result.unseen else { continue };
            let line =
                format!("{}: its memory and CPU time are not known: {unseen}", result.target);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines.extend(self.notes.iter().cloned());
        lines.extend(self.codec.iter().flat_map(|codec| codec.failures.iter().cloned()));
        if self.interrupted {
            lines.push("interrupted: only what was measured until then is reported".into());
        }
        lines
    }
}

/// Writes `text` to a file, or to standard output for `-`.
pub fn write_to(path: &Path, text: &str) -> io::Result<()> {
    if path.as_os_str() == "-" {
        return show(text);
    }
    fs::write(path, text)
}

/// Writes `text` to standard output. A reader that has seen enough and gone, such
/// as `head`, is no error.
pub fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Whether a report can be written there, so that a long run is not for nothing.
/// Leaves what is there as it is.
pub fn check_writable(path: &Path) -> io::Result<()> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let new = match fs::metadata(path) {
        // To open a pipe would be noticed at its other end.
        Ok(known) if !known.is_file() && !known.is_dir() => return Ok(()),
        known => known.is_err(),
    };
    fs::OpenOptions::new().append(true).create(true).open(path)?;
    if new { fs::remove_file(path) } else { Ok(()) }
}

impl Machine {
    /// The machine that this runs on; what cannot be read is left empty.
    pub fn this() -> Self {
        let line = |path: &str, name: &str| {
            let text = fs::read_to_string(path).ok()?;
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory_kib = line("/proc/meminfo", "MemTotal")
            .and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        Self {
            cpu: line("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory_kib.unwrap_or(0) * 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map(|text| text.trim().to_owned())
                .unwrap_or_default(),
        }
    }
}

/// `2026-11-21 20:37 UTC`.
fn now_utc() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let (year, month, day) = civil_date(seconds / 86_400);
    let minutes = seconds % 86_400 / 60;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// The Gregorian date `days` after 1970-01-01, counting years from March so that
/// the leap day comes last (Howard Hinnant, "chrono-compatible date algorithms").
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(20_778), (2026, 11, 21));
        assert_eq!(civil_date(47_540), (2100, 2, 28));
        assert_eq!(civil_date(47_541), (2100, 3, 1));
    }

    #[test]
    fn a_report_survives_json() {
        let mut report = Report::begin("snug bench".into());
        report.results.push(StepResult {
            step: "set/P16".into(),
            cpu: Some(Cpu { per_million: Some(1.5), ..Cpu::default() }),
            kinds: vec![KindResult { errors: 2, ..KindResult::default() }],
            operations: 9,
            first_error: Some("OOM".into()),
            ..StepResult::default()
        });
        let mut refused = report.clone();
        refused.results[0].failure = Some("OOM".into());
        assert_eq!(refused.troubles(), report.troubles(), "said once");
        let back: Report = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(back, report);
        assert_eq!(back.troubles(), ["set/P16: 2 of 9 replies were errors, first: OOM"]);
        assert!(back.has_failed());
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let kind = KindResult { unsent: 5, ..KindResult::default() };
        let result = StepResult {
            target: "a".into(),
            step: "set".into(),
            operations: 15,
            kinds: vec![kind],
            unseen: Some("NOPERM".into()),
            ..StepResult::default()
        };
        let report = Report {
            results: vec![result.clone(), result],
            interrupted: true,
            ..Report::default()
        };
        let lines = report.troubles();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[0].starts_with("a set: 5 of 20 requests that were due could not be sent"));
        assert_eq!(lines[2], "a: its memory and CPU time are not known: NOPERM");
        assert!(lines[3].starts_with("interrupted: "));
        assert!(!report.has_failed());
    }

    #[test]
    fn bytes_per_item_are_told_of_many_items_that_take_memory() {
        let reading = |used| MemoryReading { used, ..MemoryReading::default() };
        let told = |items, used| {
            Memory::around(reading(1000), reading(1000), Some(reading(used)), items).bytes_per_item
        };
        assert_eq!(told(ITEMS_MIN, 1000 + 80 * ITEMS_MIN), Some(80.0));
        assert_eq!(told(ITEMS_MIN, 999), None, "it shrank");
        assert_eq!(told(ITEMS_MIN - 1, 2_000_000), None, "too few");
        assert_eq!(told(0, 2_000_000), None);
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = std::env::temp_dir().join(format!("snug-report-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("report.json");
        check_writable(&file).unwrap();
        assert!(!file.exists(), "nothing is left of a look");
        fs::write(&file, "old").unwrap();
        check_writable(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert!(check_writable(&folder).is_err());
        assert!(check_writable(&folder.join("none/report.json")).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_server_lacks_is_no_failure_if_another_has_it() {
        let result = |target: &str, failure: Option<&str>| StepResult {
            target: target.into(),
            workload: "set-get".into(),
            step: "lpush".into(),
            failure: failure.map(str::to_owned),
            ..StepResult::default()
        };
        let failed =
            |results: Vec<StepResult>| Report { results, ..Report::default() }.has_failed();
        let lacking = || result("a", Some("ERR unknown command 'lpush', with args"));
        assert!(failed(vec![lacking()]), "nobody was measured");
        assert!(!failed(vec![lacking(), result("b", None)]));
        assert!(failed(vec![result("a", Some("died")), result("b", None)]));
        let error = KindResult { errors: 1, ..KindResult::default() };
        let half = StepResult { kinds: vec![error], ..result("b", None) };
        assert!(failed(vec![lacking(), half]));
        let whole = StepResult { step: "set-get".into(), ..lacking() };
        assert!(!failed(vec![whole, result("b", None)]), "none of its steps could begin");
        let another_step = |target| StepResult { step: "set".into(), ..result(target, None) };
        assert!(failed(vec![lacking(), another_step("a")]), "another step says nothing");
        assert!(failed(vec![lacking(), another_step("b")]), "nor that of another server");
    }
}
