//! The report as one self-contained HTML file: tables and inlined plots, no
//! script, nothing to fetch.

use std::fmt::Write as _;

use super::Report;
use super::plot::plots;
use super::table::number;
use crate::compare::Comparison;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}\
td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}\
td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}\
.better{color:#00664a}.worse{color:#a83200}figure{margin:1.5em 0;overflow-x:auto}\
code{background:#f4f4f4;padding:.1em .3em}.trouble{color:#a83200}";

/// The whole file.
pub fn render(report: &Report) -> String {
    let mut page =
        String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str("<link rel=\"icon\" href=\"data:,\"><title>Snug bench</title>");
    let _ = write!(page, "<style>{STYLE}</style></head><body><h1>Snug bench</h1>");
    push_head(&mut page, report);
    push_comparison(&mut page, &Comparison::of(report));
    push_latencies(&mut page, report);
    push_facts(&mut page, report);
    for plot in plots(report) {
        let _ = write!(page, "<figure id=\"{}\">{}</figure>", plot.slug, plot.svg);
    }
    page.push_str("</body></html>\n");
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn push_head(page: &mut String, report: &Report) {
    let machine = &report.machine;
    let gib = machine.memory as f64 / f64::from(1 << 30);
    let _ = write!(
        page,
        "<p>{}; {}, {} cores, {gib:.1} GiB, Linux {}</p><p><code>{}</code></p>",
        escape(&report.date),
        escape(&machine.cpu),
        machine.cores,
        escape(&machine.kernel),
        escape(&report.command)
    );
    let mut servers: Vec<(&str, &str)> = Vec::new();
    for result in &report.results {
        let server = (result.target.as_str(), result.server.as_str());
        if !servers.contains(&server) && !server.1.is_empty() {
            servers.push(server);
        }
    }
    page.push_str("<ul>");
    for (target, server) in servers {
        let _ = write!(page, "<li>{}: {}</li>", escape(target), escape(server));
    }
    page.push_str("</ul>");
    for line in report.troubles() {
        let _ = write!(page, "<p class=\"trouble\">{}</p>", escape(&line));
    }
}

fn push_row(page: &mut String, cell: &str, cells: &[String]) {
    page.push_str("<tr>");
    for text in cells {
        let _ = write!(page, "<{cell}>{text}</{cell}>");
    }
    page.push_str("</tr>");
}

fn push_comparison(page: &mut String, comparison: &Comparison) {
    page.push_str("<h2>Medians</h2><table>");
    let mut head = vec!["step".to_owned(), "metric".into()];
    head.extend(comparison.targets.iter().map(|target| escape(target)));
    for other in comparison.targets.iter().skip(1) {
        head.push(escape(&format!("{}/{other}", comparison.targets[0])));
    }
    push_row(page, "th", &head);
    for row in &comparison.rows {
        let mut cells = vec![escape(&row.label()), row.metric.title.to_owned()];
        for samples in &row.cells {
            cells.push(samples.as_ref().map_or("-".into(), |samples| {
                let percent = samples.spread() * 100.0;
                format!("{} <small>±{percent:.0} %</small>", number(samples.median()))
            }));
        }
        for other in 1..comparison.targets.len() {
            let verdict = row.verdict(other);
            let ratio = row.ratio(other).map_or("-".into(), |ratio| format!("{ratio:.2}"));
            cells.push(format!("<span class=\"{verdict}\">{ratio} {verdict}</span>"));
        }
        push_row(page, "td", &cells);
    }
    page.push_str("</table>");
}

fn push_latencies(page: &mut String, report: &Report) {
    page.push_str("<h2>Latencies, microseconds</h2><table>");
    let head = [
        "step", "target", "kind", "round", "replies", "errors", "min", "avg", "p50", "p95", "p99",
        "p99.9", "max",
    ];
    push_row(page, "th", &head.map(String::from));
    for result in &report.results {
        for kind in &result.kinds {
            let latency = &kind.latency;
            let mut cells = vec![
                escape(&result.step),
                escape(&result.target),
                escape(&kind.name),
                result.round.to_string(),
                latency.count.to_string(),
                kind.errors.to_string(),
            ];
            let figures = [
                latency.min_us,
                latency.avg_us,
                latency.p50_us,
                latency.p95_us,
                latency.p99_us,
                latency.p999_us,
                latency.max_us,
            ];
            cells.extend(figures.map(number));
            push_row(page, "td", &cells);
        }
    }
    page.push_str("</table>");
}

/// What only some servers or workloads tell: packing, and figures of their own.
fn push_facts(page: &mut String, report: &Report) {
    for result in &report.results {
        if result.figures.is_empty() && result.packing.is_empty() {
            continue;
        }
        let title = format!("{} {}, round {}", result.target, result.step, result.round);
        let _ = write!(page, "<details><summary>{}</summary><table>", escape(&title));
        for figure in &result.figures {
            push_row(page, "td", &[escape(&figure.name), number(figure.value)]);
        }
        for (name, value) in &result.packing {
            push_row(page, "td", &[escape(name), escape(value)]);
        }
        page.push_str("</table></details>");
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::report::plot::tests::sample_report;

    #[test]
    fn the_page_is_whole_and_escaped() {
        let page = render(&sample_report());
        assert!(page.contains("snug compare &lt;sample&gt; &amp; &quot;quotes&quot;"));
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.matches("<svg").count() >= 5);
        assert!(!page.contains("http://") || !page.contains("src="), "nothing is fetched");
    }

    /// Opens the page in headless Chromium where there is one: plots present, the
    /// console silent.
    #[test]
    fn a_browser_shows_the_plots_without_complaint() {
        let browsers = ["chromium", "chromium-browser", "google-chrome"];
        let runs = |name: &&str| {
            Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success())
        };
        let Some(browser) = browsers.into_iter().find(runs) else {
            eprintln!("no Chromium here: the page was checked as text only");
            return;
        };
        let folder = std::env::temp_dir().join(format!("snug-html-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("report.html");
        std::fs::write(&file, render(&sample_report())).unwrap();
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg("--dump-dom")
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let page = String::from_utf8_lossy(&output.stdout);
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(page.matches("<svg").count() >= 5, "{page}");
        assert!(page.contains("<polyline") && page.contains("<rect"));
        assert!(!log.contains("CONSOLE"), "{log}");
    }
}
