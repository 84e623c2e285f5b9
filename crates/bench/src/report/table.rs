//! The report as text: what a terminal shows. Numbers and columns as all forms of
//! a report write them.

use std::fmt::Write as _;

use super::Report;
use super::sections;

/// Rows of cells with aligned columns; the first `names` of them to the left.
pub fn align(rows: &[Vec<String>], names: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = match column < names {
                true => write!(line, "{gap}{cell:<width$}"),
                false => write!(line, "{gap}{cell:>width$}"),
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

/// A number of things: whole, with thousands in groups.
pub fn count(things: f64) -> String {
    if things.abs() < 1000.0 { format!("{things:.0}") } else { number(things) }
}

/// Bytes in MB of 10^6.
pub fn megabytes(bytes: u64) -> String {
    number(bytes as f64 / 1e6)
}

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut sections = vec![sections::steps(report), sections::memory(report)];
    sections.push(sections::figures(report));
    sections.push(sections::packing(report));
    sections.extend(sections::codec(report));
    let shown = sections.iter().filter(|section| !section.is_empty());
    shown.map(sections::Section::text).collect::<Vec<_>>().join("\n")
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
    fn counts_are_whole() {
        assert_eq!([0.0, 7.0, 999.0, 1234.0].map(count), ["0", "7", "999", "1,234"]);
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "10".into()], vec!["long".into(), "5".into()]];
        assert_eq!(align(&rows, 1), "a     10\nlong   5\n");
    }
}
