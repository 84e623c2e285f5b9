//! The tables of a report, once for all its forms: a terminal, Markdown and HTML
//! show the same rows under the same titles.

use std::fmt::Write as _;

use super::table::{align, megabytes, number};
use super::{Report, StepResult};
use crate::compare::{Comparison, Samples};

/// A titled table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// Its title; empty for none.
    pub title: String,
    /// Rows of cells, the heads first.
    pub rows: Vec<Vec<String>>,
    /// How many of the first columns are names, which stand to the left.
    pub names: usize,
}

impl Section {
    fn new(title: &str, heads: &[&str], names: usize) -> Self {
        let heads = heads.iter().map(|&head| head.to_owned()).collect();
        Self { title: title.to_owned(), rows: vec![heads], names }
    }

    /// Whether there is anything under the heads.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let table = align(&self.rows, self.names);
        if self.title.is_empty() { table } else { format!("{}\n{table}", self.title) }
    }

    /// For a Markdown page.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        if !self.title.is_empty() {
            let _ = writeln!(text, "## {}\n", self.title);
        }
        for (index, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
            if index == 0 {
                let rule = |column| if column < self.names { "---" } else { "---:" };
                let rules: Vec<&str> = (0..row.len()).map(rule).collect();
                let _ = writeln!(text, "| {} |", rules.join(" | "));
            }
        }
        text
    }

    /// For an HTML page.
    pub fn html(&self) -> String {
        let mut text = String::new();
        if !self.title.is_empty() {
            let _ = write!(text, "<h2>{}</h2>", escape(&self.title));
        }
        text.push_str("<div class=\"table\"><table>");
        for (index, row) in self.rows.iter().enumerate() {
            let tag = if index == 0 { "th" } else { "td" };
            text.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let class = match cell.rsplit(' ').next() {
                    _ if column < self.names => " class=\"name\"",
                    Some("better") => " class=\"better\"",
                    Some("worse") => " class=\"worse\"",
                    Some("unsure") => " class=\"unsure\"",
                    _ => "",
                };
                let _ = write!(text, "<{tag}{class}>{}</{tag}>", escape(cell));
            }
            text.push_str("</tr>");
        }
        text.push_str("</table></div>");
        text
    }
}

/// Text that means itself in HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Medians, ratios and verdicts, a table for each workload.
pub fn comparison(comparison: &Comparison) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let targets = &comparison.targets;
    for row in &comparison.rows {
        if sections.last().is_none_or(|section| section.title != row.workload) {
            let mut section = Section::new(&row.workload, &["step", "metric"], 2);
            section.rows[0].extend(targets.iter().cloned());
            let ratios = targets.iter().skip(1).map(|other| format!("{}/{other}", targets[0]));
            section.rows[0].extend(ratios);
            sections.push(section);
        }
        let mut cells = vec![row.label(), row.metric.title.to_owned()];
        let shown = |samples: &Samples| samples.to_string();
        cells.extend(row.cells.iter().map(|cell| cell.as_ref().map_or("-".into(), shown)));
        for other in 1..targets.len() {
            let ratio = row.ratio(other).map_or("-".into(), |ratio| format!("{ratio:.2}"));
            cells.push(format!("{ratio} {}", row.verdict(other)).trim_end().to_owned());
        }
        if let Some(section) = sections.last_mut() {
            section.rows.push(cells);
        }
    }
    sections
}

/// Throughput, latencies and CPU time of every step.
pub fn steps(report: &Report) -> Section {
    let heads = [
        "step", "target", "conns", "replies", "errors", "ops/s", "min us", "avg", "p50", "p95",
        "p99", "p99.9", "max", "CPU s/M", "client %",
    ];
    let mut section = Section::new("", &heads, 2);
    for result in &report.results {
        let server_cpu = result.cpu.and_then(|cpu| cpu.per_million);
        let client = result.cpu.map(|cpu| cpu.client_seconds / result.seconds.max(1e-9) * 100.0);
        for (index, kind) in result.kinds.iter().enumerate() {
            let mut name = label(report, result);
            if result.kinds.len() > 1 {
                let _ = write!(name, " {}", kind.name);
            }
            let latency = &kind.latency;
            let mut row = vec![
                name,
                result.target.clone(),
                result.connections.to_string(),
                kind.replies().to_string(),
                kind.errors.to_string(),
            ];
            let figures = [
                kind.throughput,
                latency.min_us,
                latency.avg_us,
                latency.p50_us,
                latency.p95_us,
                latency.p99_us,
                latency.p999_us,
                latency.max_us,
            ];
            // Errors alone are quickly answered: no figure of theirs means anything.
            let is_measured = kind.errors == 0 || kind.errors < kind.replies();
            let shown = |figure| if is_measured { number(figure) } else { "-".into() };
            row.extend(figures.map(shown));
            // A step's CPU time cannot be told apart by kind: shown once.
            let of_step = |text: String| if index == 0 { text } else { String::new() };
            row.push(of_step(server_cpu.map_or("-".into(), number)));
            row.push(of_step(client.map_or("-".into(), |percent| format!("{percent:.0}"))));
            section.rows.push(row);
        }
    }
    section
}

/// Memory around every step that is about memory.
pub fn memory(report: &Report) -> Section {
    let heads = [
        "memory",
        "target",
        "items",
        "used MB before",
        "after",
        "at rest",
        "bytes/item hot",
        "at rest",
        "RSS MB before",
        "at rest",
        "CPU s",
        "with packing",
    ];
    let mut section = Section::new("", &heads, 2);
    for result in &report.results {
        let Some(memory) = result.memory else { continue };
        // A preparing call, such as the creation of a group.
        if result.kinds.is_empty() && memory.items == 0 {
            continue;
        }
        section.rows.push(vec![
            label(report, result),
            result.target.clone(),
            memory.items.to_string(),
            megabytes(memory.before.used),
            megabytes(memory.ended.used),
            megabytes(memory.rested.used),
            memory.bytes_per_item_hot.map_or("-".into(), number),
            memory.bytes_per_item.map_or("-".into(), number),
            megabytes(memory.before.resident),
            megabytes(memory.rested.resident),
            result.cpu.map_or("-".into(), |cpu| number(cpu.seconds)),
            result.cpu.map_or("-".into(), |cpu| number(cpu.rested_seconds)),
        ]);
    }
    section
}

/// What only one workload knows.
pub fn figures(report: &Report) -> Section {
    let mut section = Section::new("Figures", &["step", "target", "figure", "value"], 3);
    for result in &report.results {
        for figure in &result.figures {
            section.rows.push(vec![
                label(report, result),
                result.target.clone(),
                figure.name.clone(),
                number(figure.value),
            ]);
        }
    }
    section
}

/// What servers that pack say of it, after the last round of each step; what is
/// zero is left out.
pub fn packing(report: &Report) -> Section {
    let heads = ["step", "target", "INFO packing", "value"];
    let mut section = Section::new("Packing", &heads, 3);
    for (index, result) in report.results.iter().enumerate() {
        let same = |later: &StepResult| later.target == result.target && later.is_same_step(result);
        if report.results[index + 1..].iter().any(same) {
            continue;
        }
        let said = result.packing.iter().filter(|(_, value)| value.parse() != Ok(0.0));
        for (name, value) in said {
            section.rows.push(vec![
                result.label(),
                result.target.clone(),
                name.clone(),
                value.clone(),
            ]);
        }
    }
    section
}

/// `snug bench` and redis-benchmark on the same server.
pub fn agreement(report: &Report) -> Section {
    let heads = ["step", "snug bench", "redis-benchmark", "ratio", "95% between", "verdict"];
    let mut section = Section::new("snug bench and redis-benchmark, one redis-server", &heads, 1);
    for line in &report.agreement {
        let (low, high) = line.interval();
        section.rows.push(vec![
            line.what.clone(),
            Samples::of(&line.ours).to_string(),
            Samples::of(&line.theirs).to_string(),
            format!("{:.2}", line.ratio()),
            format!("{low:.2} and {high:.2}"),
            if line.agrees() { "within noise" } else { "outside" }.to_owned(),
        ]);
    }
    section
}

/// What `snug bench codec` and its parts measured.
pub fn codec(report: &Report) -> Vec<Section> {
    let Some(codec) = &report.codec else { return Vec::new() };
    let section = |(title, rows): (&str, Vec<Vec<String>>)| Section {
        title: title.to_owned(),
        rows,
        names: 1,
    };
    codec.tables().into_iter().map(section).collect()
}

/// The step, and its round where there are several.
fn label(report: &Report, result: &StepResult) -> String {
    match report.results.iter().any(|other| other.round > 1) {
        true => format!("{} #{}", result.label(), result.round),
        false => result.label(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_table_in_three_forms() {
        let mut section = Section::new("A <b>", &["step", "x"], 1);
        assert!(section.is_empty());
        section.rows.push(vec!["a|b".into(), "2.00 better".into()]);
        assert_eq!(section.text(), "A <b>\nstep            x\na|b   2.00 better\n");
        assert_eq!(
            section.markdown(),
            "## A <b>\n\n| step | x |\n| --- | ---: |\n| a\\|b | 2.00 better |\n"
        );
        let html = section.html();
        assert!(html.starts_with(
            "<h2>A &lt;b&gt;</h2><div class=\"table\"><table><tr><th class=\"name\">step</th>"
        ));
        assert!(html.contains("<td class=\"better\">2.00 better</td>"));
    }
}
