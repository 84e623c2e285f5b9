//! Results as text: what a terminal shows.

use std::fmt::Write as _;

use super::{Report, StepResult};

/// Rows of cells with aligned columns; the first column to the left.
pub fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A number with three to four significant digits and thousands in groups.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        let mut digits = format!("{size:.0}");
        let mut at = digits.len();
        while at > 3 {
            at -= 3;
            digits.insert(at, ',');
        }
        return if value < 0.0 { format!("-{digits}") } else { digits };
    }
    let places = if size >= 100.0 || size == 0.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 1.0 {
        2
    } else {
        3
    };
    format!("{value:.places$}")
}

/// Bytes in MB of 10^6.
pub fn megabytes(bytes: u64) -> String {
    number(bytes as f64 / 1e6)
}

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    text.push_str(&align(&throughput_rows(report)));
    let memory = memory_rows(report);
    if memory.len() > 1 {
        text.push('\n');
        text.push_str(&align(&memory));
    }
    for result in &report.results {
        push_details(&mut text, result);
    }
    text
}

fn throughput_rows(report: &Report) -> Vec<Vec<String>> {
    let heads = [
        "step", "target", "conns", "ops/s", "min us", "avg", "p50", "p95", "p99", "p99.9", "max",
        "CPU s/M", "client %",
    ];
    let mut rows = vec![heads.map(String::from).to_vec()];
    for result in &report.results {
        let server_cpu = result.cpu.and_then(|cpu| cpu.per_million);
        let client = result.cpu.map(|cpu| cpu.client_seconds / result.seconds.max(1e-9) * 100.0);
        for (index, kind) in result.kinds.iter().enumerate() {
            let name = match result.kinds.len() {
                1 => result.step.clone(),
                _ => format!("{} {}", result.step, kind.name),
            };
            let latency = &kind.latency;
            let mut row = vec![name, result.target.clone(), result.connections.to_string()];
            row.push(number(kind.throughput));
            let figures = [
                latency.min_us,
                latency.avg_us,
                latency.p50_us,
                latency.p95_us,
                latency.p99_us,
                latency.p999_us,
                latency.max_us,
            ];
            row.extend(figures.map(number));
            // A step's CPU time cannot be told apart by kind: shown once.
            if index == 0 {
                row.push(server_cpu.map_or("-".into(), number));
                row.push(client.map_or("-".into(), |percent| format!("{percent:.0}")));
            }
            rows.push(row);
        }
    }
    rows
}

fn memory_rows(report: &Report) -> Vec<Vec<String>> {
    let heads = [
        "step",
        "target",
        "items",
        "used MB before",
        "after",
        "at rest",
        "bytes/item",
        "RSS MB before",
        "at rest",
        "CPU s",
        "with packing",
    ];
    let mut rows = vec![heads.map(String::from).to_vec()];
    for result in &report.results {
        let Some(memory) = result.memory else { continue };
        // A preparing call, such as the creation of a group.
        if result.kinds.is_empty() && memory.items == 0 {
            continue;
        }
        rows.push(vec![
            result.step.clone(),
            result.target.clone(),
            memory.items.to_string(),
            megabytes(memory.before.used),
            megabytes(memory.ended.used),
            megabytes(memory.rested.used),
            memory.bytes_per_item.map_or("-".into(), number),
            megabytes(memory.before.resident),
            megabytes(memory.rested.resident),
            result.cpu.map_or("-".into(), |cpu| number(cpu.seconds)),
            result.cpu.map_or("-".into(), |cpu| number(cpu.rested_seconds)),
        ]);
    }
    rows
}

fn push_details(text: &mut String, result: &StepResult) {
    if result.packing.is_empty() && result.figures.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{} {}", result.target, result.step);
    for figure in &result.figures {
        let _ = writeln!(text, "  {}: {}", figure.name, number(figure.value));
    }
    for (name, value) in &result.packing {
        let _ = writeln!(text, "  {name}:{value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        let shown = [0.0, 0.1234, 1.234, 12.34, 123.4, 1234.5, 1_234_567.0, -4321.0].map(number);
        assert_eq!(shown, ["0", "0.123", "1.23", "12.3", "123", "1,234", "1,234,567", "-4,321"]);
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "10".into()], vec!["long".into(), "5".into()]];
        assert_eq!(align(&rows), "a     10\nlong   5\n");
    }
}
