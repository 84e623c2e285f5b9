//! Results of several targets side by side: medians, spread, ratios, verdicts.
//!
//! Rounds are interleaved A B A B, so that whatever drifts (heat, other work on
//! the machine) drifts for all. A ratio is the first target's median over the
//! other's, for every metric; which direction is better, the table says.

use std::fmt;

use crate::report::sections;
use crate::report::table::number;
use crate::report::{Report, StepResult};
use crate::run::{Step, StepSettings, Work};

/// Differences below this share are noise however small the spread.
pub const NOISE_MIN: f64 = 0.02;
/// The noise to assume of what was measured only once.
const NOISE_OF_ONE: f64 = 0.10;
/// A spread from which on a figure says too little for a verdict.
const SPREAD_MAX: f64 = 0.5;
/// Fewer rounds say little: one that was disturbed cannot be told from the others.
const ROUNDS_MIN: usize = 3;

/// Whether more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// As for throughput.
    Higher,
    /// As for time and memory.
    Lower,
}

/// A figure that every step has.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name in `--fail-if`.
    pub name: &'static str,
    /// Its name with its unit.
    pub title: &'static str,
    /// Which way is up.
    pub better: Better,
    /// Whether each kind of request has its own.
    by_kind: bool,
    read: fn(&StepResult, usize) -> Option<f64>,
}

fn latency(
    result: &StepResult,
    kind: usize,
    pick: fn(&crate::latency::LatencySummary) -> f64,
) -> Option<f64> {
    result.kinds.get(kind).filter(|kind| kind.latency.count > 0).map(|kind| pick(&kind.latency))
}

/// Memory is a result only where a step is about it and added enough to tell.
fn memory(result: &StepResult, pick: fn(&crate::report::Memory) -> f64) -> Option<f64> {
    result.memory.as_ref().filter(|memory| memory.has_many_items()).map(pick)
}

/// All metrics, in the order of the table.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "throughput",
        title: "ops/s",
        better: Better::Higher,
        by_kind: true,
        read: |result, kind| match result.kinds.get(kind) {
            Some(kind) => Some(kind.throughput),
            None => Some(result.throughput),
        },
    },
    Metric {
        name: "cpu",
        title: "CPU s per M ops",
        better: Better::Lower,
        by_kind: false,
        read: |result, _| result.cpu?.per_million,
    },
    Metric {
        name: "p50",
        title: "p50 us",
        better: Better::Lower,
        by_kind: true,
        read: |result, kind| latency(result, kind, |latency| latency.p50_us),
    },
    Metric {
        name: "p95",
        title: "p95 us",
        better: Better::Lower,
        by_kind: true,
        read: |result, kind| latency(result, kind, |latency| latency.p95_us),
    },
    Metric {
        name: "p99",
        title: "p99 us",
        better: Better::Lower,
        by_kind: true,
        read: |result, kind| latency(result, kind, |latency| latency.p99_us),
    },
    Metric {
        name: "p999",
        title: "p99.9 us",
        better: Better::Lower,
        by_kind: true,
        read: |result, kind| latency(result, kind, |latency| latency.p999_us),
    },
    Metric {
        name: "bytes_hot",
        title: "bytes per item, hot",
        better: Better::Lower,
        by_kind: false,
        read: |result, _| result.memory?.bytes_per_item_hot,
    },
    Metric {
        name: "bytes",
        title: "bytes per item",
        better: Better::Lower,
        by_kind: false,
        read: |result, _| {
            memory(result, |_| 0.0)?;
            result.memory?.bytes_per_item
        },
    },
    Metric {
        name: "memory",
        title: "used MB grown",
        better: Better::Lower,
        by_kind: false,
        read: |result, _| {
            memory(result, |memory| (memory.rested.used as f64 - memory.before.used as f64) / 1e6)
        },
    },
    Metric {
        name: "rss",
        title: "RSS MB",
        better: Better::Lower,
        by_kind: false,
        read: |result, _| memory(result, |memory| memory.rested.resident as f64 / 1e6),
    },
    Metric {
        name: "cpu_rested",
        title: "CPU s, packing included",
        better: Better::Lower,
        by_kind: false,
        read: |result, _| {
            memory(result, |_| 0.0)?;
            Some(result.cpu?.rested_seconds)
        },
    },
];

/// One metric of one target over the rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// The samples of one target; none would have no median.
    pub fn of(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "a figure without samples");
        Self(values.to_vec())
    }

    /// The middle one, or the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        }
    }

    /// Half the range over the median.
    pub fn spread(&self) -> f64 {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let median = self.median();
        if median == 0.0 { 0.0 } else { (most - least) / 2.0 / median.abs() }
    }

    fn noise(&self) -> f64 {
        if self.0.len() < 2 { NOISE_OF_ONE } else { self.spread() }
    }
}

/// One metric of one step, for all targets.
#[derive(Debug, Clone)]
pub struct Row {
    /// Workload.
    pub workload: String,
    /// Step.
    pub step: String,
    /// The target within two reports of several.
    pub source: Option<String>,
    /// Kind of request, where a step has several and the metric tells them apart.
    pub kind: Option<String>,
    /// Which metric.
    pub metric: &'static Metric,
    /// By target, in the order of [`Comparison::targets`].
    pub cells: Vec<Option<Samples>>,
}

impl Row {
    /// The step, with its source and its kind if there are several.
    pub fn label(&self) -> String {
        let mut label = self.step.clone();
        if let Some(source) = &self.source {
            label = format!("{source}: {label}");
        }
        if let Some(kind) = &self.kind {
            label = format!("{label} {kind}");
        }
        label
    }

    /// First target's median over that of target `other`.
    pub fn ratio(&self, other: usize) -> Option<f64> {
        let first = self.cells.first()?.as_ref()?.median();
        let other = self.cells.get(other)?.as_ref()?.median();
        // A ratio over what is nothing, or less, says nothing.
        (other > 0.0 && first >= 0.0).then(|| first / other)
    }

    /// What the first target is against target `other`, beyond noise.
    pub fn verdict(&self, other: usize) -> Verdict {
        let (Some(Some(first)), Some(Some(second)), Some(ratio)) =
            (self.cells.first(), self.cells.get(other), self.ratio(other))
        else {
            return Verdict::Level;
        };
        let noise = (first.noise() + second.noise()).max(NOISE_MIN);
        if (ratio - 1.0).abs() <= noise {
            return Verdict::Level;
        }
        if first.spread().max(second.spread()) > SPREAD_MAX {
            return Verdict::Unsure;
        }
        match (self.metric.better, ratio > 1.0) {
            (Better::Higher, true) | (Better::Lower, false) => Verdict::Better,
            _ => Verdict::Worse,
        }
    }
}

/// How two targets stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The first is better.
    Better,
    /// The first is worse.
    Worse,
    /// Within noise.
    Level,
    /// The rounds differ too much among themselves.
    Unsure,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Level => "",
            Self::Unsure => "unsure",
        })
    }
}

/// All rows.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// Targets in the order of their first results.
    pub targets: Vec<String>,
    /// Rows in the order of the steps.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Gathers the results of a report by step, metric and target.
    pub fn of(report: &Report) -> Self {
        let mut comparison = Self::default();
        let mut steps: Vec<&StepResult> = Vec::new();
        for result in &report.results {
            if !comparison.targets.contains(&result.target) {
                comparison.targets.push(result.target.clone());
            }
            if !steps.iter().any(|known| known.is_same_step(result)) {
                steps.push(result);
            }
        }
        for step in steps {
            for metric in METRICS {
                let kinds = if metric.by_kind { step.kinds.len().max(1) } else { 1 };
                for kind in 0..kinds {
                    comparison.push_row(report, step, metric, kind);
                }
            }
        }
        comparison
    }

    fn push_row(
        &mut self,
        report: &Report,
        step: &StepResult,
        metric: &'static Metric,
        kind: usize,
    ) {
        let cells: Vec<Option<Samples>> = self
            .targets
            .iter()
            .map(|target| {
                let samples: Vec<f64> = report
                    .results
                    .iter()
                    .filter(|result| result.target == *target && result.is_same_step(step))
                    .filter(|result| result.failure.is_none())
                    .filter_map(|result| (metric.read)(result, kind))
                    .collect();
                (!samples.is_empty()).then_some(Samples(samples))
            })
            .collect();
        if cells.iter().all(Option::is_none) {
            return;
        }
        let several = metric.by_kind && step.kinds.len() > 1;
        self.rows.push(Row {
            workload: step.workload.clone(),
            step: step.step.clone(),
            source: step.source.clone(),
            kind: several.then(|| step.kinds[kind].name.clone()),
            metric,
            cells,
        });
    }

    /// The tables, a row for each metric of each step, and what they come to.
    pub fn render(&self) -> String {
        let sections = sections::comparison(self);
        let tables = sections.iter().map(sections::Section::text);
        let lines = self.summary().into_iter().map(|line| line + "\n");
        tables.chain(lines).collect::<Vec<_>>().join("\n")
    }

    /// The most rounds that a figure has.
    pub fn rounds(&self) -> usize {
        let cells = self.rows.iter().flat_map(|row| row.cells.iter().flatten());
        cells.map(|samples| samples.0.len()).max().unwrap_or_default()
    }

    /// What the tables come to: a sentence for each target that the first was compared
    /// with, and a warning where there were too few rounds.
    pub fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (other, name) in self.targets.iter().enumerate().skip(1) {
            let ratios = self.rows.iter().filter(|row| row.ratio(other).is_some());
            let verdicts: Vec<Verdict> = ratios.map(|row| row.verdict(other)).collect();
            let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
            if verdicts.is_empty() {
                continue;
            }
            let unsure = match count(Verdict::Unsure) {
                0 => String::new(),
                unsure => format!(", and {unsure} cannot be told"),
            };
            lines.push(format!(
                "Of {} figures, {} is better than {name} in {}, worse in {}, level in {}{unsure}.",
                verdicts.len(),
                self.targets[0],
                count(Verdict::Better),
                count(Verdict::Worse),
                count(Verdict::Level),
            ));
        }
        let rounds = self.rounds();
        if !lines.is_empty() && rounds < ROUNDS_MIN {
            let was =
                if rounds == 1 { "one round was".into() } else { format!("{rounds} rounds were") };
            lines.push(format!(
                "Only {was} measured: a difference may be chance. Use --rounds {ROUNDS_MIN} or more."
            ));
        }
        lines
    }
}

impl fmt::Display for Samples {
    /// The median, and the spread if there are several.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let median = number(self.median());
        match self.0.len() {
            1 => formatter.write_str(&median),
            _ => write!(formatter, "{median} ±{:.0}%", self.spread() * 100.0),
        }
    }
}

/// Two reports as one, so that `new` is compared with `old` like two targets. Where
/// one has several targets, each is compared with its own. An error if no step is
/// in both.
pub fn merge_for_comparison(old: &Report, new: &Report) -> Result<Report, String> {
    for (report, which) in [(old, "old"), (new, "new")] {
        if report.results.is_empty() {
            return Err(format!("the {which} report has no results"));
        }
    }
    let several = |report: &Report| {
        report.results.iter().any(|result| result.target != report.results[0].target)
    };
    let several = several(old) || several(new);
    let renamed = |report: &Report, target: &str| {
        let mut results = report.results.clone();
        for result in &mut results {
            let source = std::mem::replace(&mut result.target, target.to_owned());
            result.source = several.then_some(source);
        }
        results
    };
    let mut results = renamed(new, "new");
    let old_results = renamed(old, "old");
    let in_both =
        |old: &StepResult| results.iter().any(|new| new.is_same_step(old) && is_measured(new));
    if !old_results.iter().any(|old| is_measured(old) && in_both(old)) {
        let (old, new) = (labels(&old_results), labels(&results));
        return Err(format!("no step was measured in both reports: old has {old}; new has {new}"));
    }
    results.extend(old_results);
    Ok(Report { results, ..new.clone() })
}

fn is_measured(result: &StepResult) -> bool {
    result.failure.is_none()
}

/// The first few steps, for an error's line.
fn labels(results: &[StepResult]) -> String {
    const SHOWN_MAX: usize = 5;
    let mut labels: Vec<String> = Vec::new();
    for result in results {
        let label = result.label();
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let more = labels.len().saturating_sub(SHOWN_MAX);
    labels.truncate(SHOWN_MAX);
    if more > 0 {
        labels.push(format!("{more} more"));
    }
    labels.join(", ")
}

/// What steps of the same name were asked for differently in two reports that were
/// merged: a line for each difference, with all the steps that have it. A ratio of
/// such figures says little of the servers.
pub fn differing_settings(merged: &Report) -> Vec<String> {
    let mut differences: Vec<(String, Vec<String>)> = Vec::new();
    let mut seen: Vec<&StepResult> = Vec::new();
    for new in merged.results.iter().filter(|result| result.target == "new") {
        let known = seen.iter().any(|known| known.is_same_step(new));
        let same = |old: &&StepResult| old.target == "old" && old.is_same_step(new);
        let Some(old) = merged.results.iter().find(same).filter(|_| !known) else { continue };
        seen.push(new);
        let (asked_new, asked_old) = (settings_of(new), settings_of(old));
        for (name, new_value) in &asked_new {
            let Some(old_value) = asked_old.get(name).filter(|&old| old != new_value) else {
                continue;
            };
            let text = format!("{name} is {new_value} in the new report, {old_value} in the old");
            match differences.iter_mut().find(|(known, _)| *known == text) {
                Some((_, steps)) => steps.push(new.label()),
                None => differences.push((text, vec![new.label()])),
            }
        }
    }
    let line = |(text, steps): (String, Vec<String>)| format!("{}: {text}", steps.join(", "));
    differences.into_iter().map(line).collect()
}

/// All that a step was asked for. What a report of an earlier version does not say
/// is not there.
fn settings_of(result: &StepResult) -> StepSettings {
    let mut settings = result.settings.clone();
    if settings.contains_key("requests") || settings.contains_key("duration") {
        // Which of the two ends a step is a setting too.
        for name in ["requests", "duration"] {
            settings.entry(name.into()).or_insert_with(|| "not given".into());
        }
    }
    let rate = result.rate.map_or("not given".into(), |rate| rate.to_string());
    settings.extend([
        ("clients".into(), result.connections.to_string()),
        ("pipeline".into(), result.pipeline.to_string()),
        ("threads".into(), result.threads.to_string()),
        ("rate".into(), rate),
    ]);
    settings
}

/// A bound on a ratio, such as `xadd.throughput<0.95`.
#[derive(Debug, Clone, PartialEq)]
pub struct FailIf {
    selector: String,
    metric: String,
    below: bool,
    or_equal: bool,
    bound: f64,
    text: String,
}

impl FailIf {
    /// Reads `SELECTOR.METRIC<NUMBER` (also `>`, `<=`, `>=`). The selector is a
    /// workload, a step, a step's first word, or a kind of request.
    pub fn parse(text: &str) -> Result<Self, String> {
        let at = text.find(['<', '>']).ok_or("expected SELECTOR.METRIC<NUMBER")?;
        let (left, right) = text.split_at(at);
        let below = right.starts_with('<');
        let (or_equal, digits) = match right[1..].strip_prefix('=') {
            Some(digits) => (true, digits),
            None => (false, &right[1..]),
        };
        let (selector, metric) =
            left.trim().rsplit_once('.').ok_or("expected SELECTOR.METRIC before the sign")?;
        if !METRICS.iter().any(|known| known.name == metric) {
            let names: Vec<&str> = METRICS.iter().map(|known| known.name).collect();
            return Err(format!("no metric is called '{metric}'; there are {}", names.join(", ")));
        }
        let digits = digits.trim();
        let bound = digits.parse().ok().filter(|bound: &f64| bound.is_finite());
        let bound = bound.ok_or_else(|| format!("'{digits}' is no number"))?;
        Ok(Self {
            selector: selector.to_owned(),
            metric: metric.to_owned(),
            below,
            or_equal,
            bound,
            text: text.to_owned(),
        })
    }

    fn selects(&self, row: &Row) -> bool {
        row.metric.name == self.metric
            && (self.names_step(&row.workload, &row.step)
                || row.kind.as_deref() == Some(self.selector.as_str()))
    }

    fn names_step(&self, workload: &str, step: &str) -> bool {
        let first_word = step.split('/').next().unwrap_or("");
        [workload, step, first_word].contains(&self.selector.as_str())
    }

    /// Whether a row for this bound can come of a step that is still to be run.
    pub fn may_select(&self, workload: &str, step: &Step) -> bool {
        // A kind has rows of its own only where a step has several.
        let is_kind = match &step.work {
            Work::Load { kinds, .. } => kinds.len() > 1 && kinds.contains(&self.selector),
            Work::Call { .. } => false,
        };
        is_kind || self.names_step(workload, &step.name)
    }

    /// The name before the dot.
    pub fn selector(&self) -> &str {
        &self.selector
    }

    /// One line for each row that breaks the bound. A bound that no row answers
    /// to is broken too: it would guard nothing.
    pub fn breaches(&self, comparison: &Comparison) -> Vec<String> {
        let mut lines = Vec::new();
        let mut answered = false;
        for row in comparison.rows.iter().filter(|row| self.selects(row)) {
            for other in 1..comparison.targets.len() {
                let Some(ratio) = row.ratio(other) else { continue };
                answered = true;
                let broken = match (self.below, self.or_equal) {
                    (true, false) => ratio < self.bound,
                    (true, true) => ratio <= self.bound,
                    (false, false) => ratio > self.bound,
                    (false, true) => ratio >= self.bound,
                };
                if broken {
                    let label = row.label();
                    let (first, second) = (&comparison.targets[0], &comparison.targets[other]);
                    let metric = row.metric.title;
                    lines.push(format!(
                        "{}: {label} {metric} {first}/{second} is {ratio:.3}",
                        self.text
                    ));
                }
            }
        }
        if !answered {
            lines.push(format!("{}: nothing was measured that this could be said of", self.text));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Cpu, KindResult, Memory};
    use crate::server_facts::MemoryReading;

    fn result(target: &str, step: &str, throughput: f64, cpu: f64) -> StepResult {
        StepResult {
            target: target.into(),
            workload: "set-get".into(),
            step: step.into(),
            kinds: vec![KindResult { name: "set".into(), throughput, ..KindResult::default() }],
            cpu: Some(Cpu { per_million: Some(cpu), ..Cpu::default() }),
            ..StepResult::default()
        }
    }

    fn report(results: Vec<StepResult>) -> Report {
        Report { results, ..Report::default() }
    }

    fn two() -> Report {
        report(vec![
            result("a", "set/P1", 100.0, 2.0),
            result("b", "set/P1", 80.0, 2.02),
            result("a", "set/P1", 110.0, 2.0),
            result("b", "set/P1", 90.0, 2.02),
            result("a", "set/P1", 300.0, 2.0),
            result("b", "set/P1", 70.0, 2.02),
        ])
    }

    fn row<'a>(comparison: &'a Comparison, metric: &str) -> &'a Row {
        comparison.rows.iter().find(|row| row.metric.name == metric).unwrap()
    }

    #[test]
    fn medians_spreads_ratios() {
        let comparison = Comparison::of(&two());
        assert_eq!(comparison.targets, ["a", "b"]);
        let throughput = row(&comparison, "throughput");
        let medians: Vec<f64> = throughput.cells.iter().flatten().map(Samples::median).collect();
        assert_eq!(medians, [110.0, 80.0]);
        assert!((throughput.ratio(1).unwrap() - 1.375).abs() < 1e-9);
        assert!((throughput.cells[1].as_ref().unwrap().spread() - 0.125).abs() < 1e-9);
        // A spread of 91 % drowns a difference of 37 %.
        assert_eq!(throughput.verdict(1), Verdict::Level);
        assert_eq!(row(&comparison, "cpu").verdict(1), Verdict::Level);
        let table = comparison.render();
        assert!(table.contains("110 ±91%") && table.contains("1.38"), "{table}");
    }

    #[test]
    fn better_depends_on_the_metric() {
        let comparison = Comparison::of(&report(vec![
            result("a", "set", 100.0, 1.0),
            result("b", "set", 50.0, 2.0),
        ]));
        assert_eq!(row(&comparison, "throughput").verdict(1), Verdict::Better);
        assert_eq!(row(&comparison, "cpu").verdict(1), Verdict::Better);
        let turned = Comparison::of(&report(vec![
            result("b", "set", 50.0, 2.0),
            result("a", "set", 100.0, 1.0),
        ]));
        assert_eq!(row(&turned, "throughput").verdict(1), Verdict::Worse);
        assert_eq!(row(&turned, "cpu").verdict(1), Verdict::Worse);
    }

    #[test]
    fn bounds_are_read_and_kept() {
        let comparison = Comparison::of(&two());
        let breaches = |text: &str| FailIf::parse(text).unwrap().breaches(&comparison).len();
        assert_eq!(breaches("set.throughput<0.95"), 0);
        assert_eq!(breaches("set.throughput<1.4"), 1);
        assert_eq!(breaches("set/P1.throughput>=1.375"), 1);
        assert_eq!(breaches("set-get.cpu > 0.9"), 1);
        assert_eq!(breaches("xadd.throughput<0.95"), 1, "a bound on nothing is broken");
        let no_bounds = ["set.cpu<x", "set.cpu<nan", "set.cpu>inf", "set.cpu<", "set.cpu<-inf"];
        let no_names = ["", "set.throughput", "throughput<1", "set.nonsense<1"];
        for bad in no_bounds.into_iter().chain(no_names) {
            assert!(FailIf::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn old_and_new_reports_compare_as_targets() {
        let old = report(vec![result("server", "set", 100.0, 2.0)]);
        let new = report(vec![result("server", "set", 150.0, 2.0)]);
        let comparison = Comparison::of(&merge_for_comparison(&old, &new).unwrap());
        assert_eq!(comparison.targets, ["new", "old"]);
        assert_eq!(row(&comparison, "throughput").verdict(1), Verdict::Better);
        let comparison = Comparison::of(&merge_for_comparison(&two(), &two()).unwrap());
        let steps: Vec<String> = comparison.rows.iter().map(Row::label).collect();
        assert!(steps.contains(&"a: set/P1".into()) && steps.contains(&"b: set/P1".into()));
    }

    #[test]
    fn a_bound_finds_its_step_in_reports_of_several_targets() {
        let slower =
            report(vec![result("a", "set/P1", 55.0, 2.0), result("b", "set/P1", 80.0, 2.0)]);
        let comparison = Comparison::of(&merge_for_comparison(&two(), &slower).unwrap());
        let breaches = |text: &str| FailIf::parse(text).unwrap().breaches(&comparison);
        assert_eq!(breaches("set.throughput<0.3"), [""; 0]);
        let line = "set.throughput<0.9: a: set/P1 ops/s new/old is 0.500";
        for selector in ["set", "set/P1", "set-get"] {
            let line = line.replacen("set", selector, 1);
            assert_eq!(breaches(&format!("{selector}.throughput<0.9")), [line]);
        }
    }

    #[test]
    fn reports_without_a_step_in_common_are_refused() {
        let of = |step: &str| report(vec![result("server", step, 100.0, 2.0)]);
        let refusal = |old: &Report, new: &Report| merge_for_comparison(old, new).unwrap_err();
        let line = "no step was measured in both reports: old has get; new has set";
        assert_eq!(refusal(&of("get"), &of("set")), line);
        assert_eq!(refusal(&report(Vec::new()), &of("set")), "the old report has no results");
        assert_eq!(refusal(&of("set"), &report(Vec::new())), "the new report has no results");
        let mut failed = of("set");
        failed.results[0].failure = Some("died".into());
        assert!(merge_for_comparison(&failed, &of("set")).is_err());
    }

    #[test]
    fn differing_settings_are_told_once_for_all_steps() {
        let with = |data: &str, pipeline| {
            let settings = StepSettings::from([("data-size".into(), data.to_owned())]);
            let step = |name| StepResult {
                settings: settings.clone(),
                pipeline,
                ..result("server", name, 100.0, 2.0)
            };
            report(vec![step("set"), step("get"), step("set")])
        };
        let lines = |old: &Report, new: &Report| {
            differing_settings(&merge_for_comparison(old, new).unwrap())
        };
        assert_eq!(lines(&with("3", 1), &with("3", 1)), [""; 0]);
        assert_eq!(
            lines(&with("3", 1), &with("2000", 50)),
            [
                "set, get: data-size is 2000 in the new report, 3 in the old",
                "set, get: pipeline is 50 in the new report, 1 in the old",
            ]
        );
        let unsaid = report(vec![StepResult { pipeline: 1, ..result("server", "set", 1.0, 1.0) }]);
        assert_eq!(lines(&unsaid, &with("3", 1)), [""; 0], "an earlier version's report");
    }

    #[test]
    fn memory_that_says_nothing_gets_no_verdict() {
        let with = |target: &str, used, items, bytes| {
            let rested = MemoryReading { used, ..MemoryReading::default() };
            let memory = Memory { rested, items, bytes_per_item: Some(bytes), ..Memory::default() };
            StepResult { memory: Some(memory), ..result(target, "xadd", 1.0, 1.0) }
        };
        let shrunk = [with("a", 10, 50_000, -8.0), with("b", 20, 50_000, 77.0)];
        let comparison = Comparison::of(&report(shrunk.to_vec()));
        let bytes = row(&comparison, "bytes");
        assert_eq!((bytes.ratio(1), bytes.verdict(1)), (None, Verdict::Level));
        let few = [with("a", 12_192, 1, 12_192.0), with("b", 49_504, 1, 49_504.0)];
        let comparison = Comparison::of(&report(few.to_vec()));
        assert!(!comparison.rows.iter().any(|row| ["bytes", "memory"].contains(&row.metric.name)));
    }

    #[test]
    fn failed_steps_are_left_out() {
        let mut failed = result("a", "set", 1.0, 1.0);
        failed.failure = Some("died".into());
        let comparison = Comparison::of(&report(vec![failed, result("b", "set", 50.0, 2.0)]));
        assert!(row(&comparison, "throughput").cells[0].is_none());
    }
}
