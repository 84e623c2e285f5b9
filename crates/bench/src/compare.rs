//! Results of several targets side by side: medians, spread, ratios, verdicts.
//!
//! Rounds are interleaved A B A B, so that whatever drifts (heat, other work on
//! the machine) drifts for all. A ratio is the first target's median over the
//! other's, for every metric; which direction is better, the table says.

use std::fmt;

use crate::report::sections;
use crate::report::table::number;
use crate::report::{Report, StepResult};

/// Differences below this share are noise however small the spread.
const NOISE_MIN: f64 = 0.02;
/// The noise to assume of what was measured only once.
const NOISE_OF_ONE: f64 = 0.10;

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

/// Memory is a result only where a step is about it.
fn memory(result: &StepResult, pick: fn(&crate::report::Memory) -> f64) -> Option<f64> {
    result.memory.as_ref().filter(|memory| memory.bytes_per_item.is_some()).map(pick)
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
        name: "bytes",
        title: "bytes per item",
        better: Better::Lower,
        by_kind: false,
        read: |result, _| result.memory?.bytes_per_item,
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
    /// Kind of request, where a step has several and the metric tells them apart.
    pub kind: Option<String>,
    /// Which metric.
    pub metric: &'static Metric,
    /// By target, in the order of [`Comparison::targets`].
    pub cells: Vec<Option<Samples>>,
}

impl Row {
    /// The step, and the kind if there are several.
    pub fn label(&self) -> String {
        match &self.kind {
            Some(kind) => format!("{} {kind}", self.step),
            None => self.step.clone(),
        }
    }

    /// First target's median over that of target `other`.
    pub fn ratio(&self, other: usize) -> Option<f64> {
        let first = self.cells.first()?.as_ref()?.median();
        let other = self.cells.get(other)?.as_ref()?.median();
        (other != 0.0).then(|| first / other)
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
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Level => "",
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
            if !steps.iter().any(|known| same_step(known, result)) {
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
                    .filter(|result| result.target == *target && same_step(result, step))
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
            kind: several.then(|| step.kinds[kind].name.clone()),
            metric,
            cells,
        });
    }

    /// The tables: a row for each metric of each step.
    pub fn render(&self) -> String {
        let sections = sections::comparison(self);
        sections.iter().map(sections::Section::text).collect::<Vec<_>>().join("\n")
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

fn same_step(one: &StepResult, other: &StepResult) -> bool {
    one.workload == other.workload && one.step == other.step
}

/// Two reports as one, so that `new` is compared with `old` like two targets.
/// Reports of several targets are told apart in the steps' names.
pub fn merge_for_comparison(old: &Report, new: &Report) -> Report {
    let several = |report: &Report| {
        report.results.iter().any(|result| result.target != report.results[0].target)
    };
    let several = several(old) || several(new);
    let renamed = |report: &Report, target: &str| {
        let mut results = report.results.clone();
        for result in &mut results {
            if several {
                result.step = format!("{}: {}", result.target, result.step);
            }
            target.clone_into(&mut result.target);
        }
        results
    };
    let mut results = renamed(new, "new");
    results.extend(renamed(old, "old"));
    Report { results, ..new.clone() }
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
        let bound = digits.trim().parse().map_err(|_| format!("'{digits}' is no number"))?;
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
        let first_word = row.step.split('/').next().unwrap_or("");
        let names = [row.workload.as_str(), row.step.as_str(), first_word];
        row.metric.name == self.metric
            && (names.contains(&self.selector.as_str())
                || row.kind.as_deref() == Some(self.selector.as_str()))
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
    use crate::report::{Cpu, KindResult};

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
        for bad in ["", "set.throughput", "throughput<1", "set.nonsense<1", "set.cpu<x"] {
            assert!(FailIf::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn old_and_new_reports_compare_as_targets() {
        let old = report(vec![result("server", "set", 100.0, 2.0)]);
        let new = report(vec![result("server", "set", 150.0, 2.0)]);
        let comparison = Comparison::of(&merge_for_comparison(&old, &new));
        assert_eq!(comparison.targets, ["new", "old"]);
        assert_eq!(row(&comparison, "throughput").verdict(1), Verdict::Better);
        let comparison = Comparison::of(&merge_for_comparison(&two(), &two()));
        let steps: Vec<&str> = comparison.rows.iter().map(|row| row.step.as_str()).collect();
        assert!(steps.contains(&"a: set/P1") && steps.contains(&"b: set/P1"));
    }

    #[test]
    fn failed_steps_are_left_out() {
        let mut failed = result("a", "set", 1.0, 1.0);
        failed.failure = Some("died".into());
        let comparison = Comparison::of(&report(vec![failed, result("b", "set", 50.0, 2.0)]));
        assert!(row(&comparison, "throughput").cells[0].is_none());
    }
}
