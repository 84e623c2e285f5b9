//! The report as a page: one file, no script, nothing to fetch, by day and by night.

use std::fmt::Write as _;

use snug_bench::report::html::STYLE;
use snug_bench::report::plot::pairs;
use snug_bench::report::sections::escape;

use crate::report::Report;

const SHAPES_TOLD: usize = 100;
const BARS: usize = 12;

pub(crate) fn render(report: &Report) -> String {
    let title = escape(&format!("What Snug would take of {}", report.source));
    let mut page =
        String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">");
    let _ = write!(page, "<link rel=\"icon\" href=\"data:,\"><title>{title}</title>");
    let _ = write!(page, "<style>{STYLE}</style></head><body><h1>{title}</h1>");
    for line in report.summary() {
        let _ = write!(page, "<p class=\"summary\">{}</p>", escape(&line));
    }
    for plot in plots(report) {
        let _ = write!(page, "<figure>{plot}</figure>");
    }
    page.push_str("<h2>By shape of key</h2>");
    push_table(&mut page, &report.shape_rows(SHAPES_TOLD));
    page.push_str("<h2>Packing</h2><ul>");
    for verdict in &report.advice.packing {
        let class = if verdict.worth { "better" } else { "unsure" };
        let _ = write!(
            page,
            "<li>{} <code>{}</code>: <span class=\"{class}\">{}</span></li>",
            escape(&verdict.kind),
            escape(&verdict.shape),
            escape(&verdict.why)
        );
    }
    page.push_str("</ul><h2>Commands and types</h2>");
    for line in report.lacking().lines() {
        let class = if line.starts_with("Snug lacks") { " class=\"trouble\"" } else { "" };
        let _ = write!(page, "<p{class}>{}</p>", escape(line));
    }
    let _ = write!(page, "<p>In use: {}</p>", escape(&report.commands()));
    if !report.advice.large.is_empty() {
        page.push_str("<h2>Large keys</h2>");
        let heads = ["key", "type", "database", "bytes", "elements"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(report.advice.large.iter().map(|large| {
            let elements = large.elements.map_or_else(|| "-".into(), |count| count.to_string());
            let (db, bytes) = (large.db.to_string(), large.bytes.to_string());
            vec![large.key.clone(), large.kind.clone(), db, bytes, elements]
        }));
        push_table(&mut page, &rows);
    }
    push_list(&mut page, "Where Redis stays", &report.advice.staying);
    push_list(&mut page, "How it was found", &report.remarks());
    page.push_str("</body></html>\n");
    page
}

fn push_list(page: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = write!(page, "<h2>{title}</h2><ul>");
    for line in lines {
        let _ = write!(page, "<li>{}</li>", escape(line));
    }
    page.push_str("</ul>");
}

fn push_table(page: &mut String, rows: &[Vec<String>]) {
    page.push_str("<div class=\"table\"><table>");
    for (at, row) in rows.iter().enumerate() {
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let tag = if at == 0 { "th" } else { "td" };
            let class = if column < 2 { " class=\"name\"" } else { "" };
            let _ = write!(page, "<{tag}{class}>{}</{tag}>", escape(cell));
        }
        page.push_str("</tr>");
    }
    page.push_str("</table></div>");
}

/// Memory in all, and by shape: now beside Snug.
fn plots(report: &Report) -> Vec<String> {
    let mut svgs = Vec::new();
    if report.values_read == 0 {
        return svgs;
    }
    let mb = |bytes: f64| bytes / 1e6;
    let mut all = Vec::new();
    if let Some(bytes) = report.source_bytes {
        all.push((report.facts.name.clone(), [mb(bytes as f64), 0.0]));
    }
    all.push(("Snug, hot".to_owned(), [0.0, mb(report.snug.hot)]));
    all.push(("Snug, cooled".to_owned(), [0.0, mb(report.snug.cooled.value)]));
    svgs.extend(pairs("Memory of all keys, MB", ["now", "Snug"], &all));
    if !report.facts.is_file {
        let short = |text: &str| text.chars().take(40).collect::<String>();
        let read = report.snug.shapes.iter().filter(|shape| shape.read > 0).take(BARS);
        let by_shape: Vec<_> = read
            .map(|shape| (short(&shape.shape), [mb(shape.source), mb(shape.cooled.value)]))
            .collect();
        svgs.extend(pairs("By shape of key, MB", ["now", "Snug, cooled"], &by_shape));
    }
    svgs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_escaped() {
        let page = render(&crate::report::tests::sample());
        assert!(page.contains("user:#:&lt;mail&gt;") && !page.contains("<mail>"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("prefers-color-scheme:dark") && !page.contains("#000000"));
        assert!(!page.contains("<script") && !page.contains("src="), "nothing is fetched");
    }
}
