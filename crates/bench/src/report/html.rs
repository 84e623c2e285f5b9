//! The report as one self-contained HTML file: tables and inlined plots, no
//! script, nothing to fetch.

use std::fmt::Write as _;

use super::Report;
use super::plot::plots;
use super::sections::{self, Section, escape};
use crate::compare::Comparison;

/// Colours by day and by night. Plots take the page's: their own black is its text.
pub const STYLE: &str = "\
:root{color-scheme:light dark;--text:#222;--page:#fff;--line:#ddd;--code:#f4f4f4;\
--better:#00664a;--worse:#a83200;--unsure:#6a5a00}\
@media(prefers-color-scheme:dark){:root{--text:#ddd;--page:#181a1b;--line:#444;--code:#2a2d2e;\
--better:#4fd1a5;--worse:#ff9466;--unsure:#e0c860}}\
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;\
color:var(--text);background:var(--page)}\
.table,figure{overflow-x:auto;margin:1em 0}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
td,th{padding:.25em .6em;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th{white-space:normal;vertical-align:bottom}\
.name{text-align:left}\
.better{color:var(--better)}.worse,.trouble{color:var(--worse)}.unsure{color:var(--unsure)}\
.summary{font-size:1.1em}code{background:var(--code);padding:.1em .3em;overflow-wrap:anywhere}";

/// The whole file.
pub fn render(report: &Report) -> String {
    let mut page =
        String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">");
    let comparison = Comparison::of(report);
    let title = escape(&title(report, &comparison));
    let _ = write!(page, "<link rel=\"icon\" href=\"data:,\"><title>{title}</title>");
    let _ = write!(page, "<style>{STYLE}</style></head><body><h1>{title}</h1>");
    for line in comparison.summary() {
        let _ = write!(page, "<p class=\"summary\">{}</p>", escape(&line));
    }
    push_head(&mut page, report);
    match comparison.rounds() {
        0 => {}
        1 => page.push_str("<h2>Figures of one round</h2>"),
        rounds => {
            let _ = write!(page, "<h2>Medians of {rounds} rounds</h2>");
        }
    }
    push_sections(&mut page, &sections::comparison(&comparison));
    push_plots(&mut page, report);
    if !report.results.is_empty() {
        page.push_str("<h2>Every step</h2>");
    }
    let facts = [sections::steps(report), sections::memory(report), sections::figures(report)];
    push_sections(&mut page, &facts);
    push_sections(&mut page, &[sections::packing(report)]);
    push_sections(&mut page, &sections::codec(report));
    push_sections(&mut page, &[sections::agreement(report)]);
    page.push_str("</body></html>\n");
    page
}

fn push_sections(page: &mut String, sections: &[Section]) {
    for section in sections.iter().filter(|section| !section.is_empty()) {
        page.push_str(&section.html());
    }
}

/// What was measured: the workload, or which servers were compared.
fn title(report: &Report, comparison: &Comparison) -> String {
    let mut workloads: Vec<&str> = Vec::new();
    for result in &report.results {
        if !workloads.contains(&result.workload.as_str()) {
            workloads.push(&result.workload);
        }
    }
    let of = match workloads.as_slice() {
        [] => "Snug bench".into(),
        [one] => (*one).to_owned(),
        several => format!("{} workloads", several.len()),
    };
    match comparison.targets.as_slice() {
        [] | [_] => of,
        [first, others @ ..] => format!("{first} beside {}: {of}", others.join(", ")),
    }
}

fn push_plots(page: &mut String, report: &Report) {
    for plot in plots(report) {
        let _ = write!(page, "<figure id=\"{}\">{}</figure>", plot.slug, plot.in_page());
    }
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::report::plot::tests::sample_report;

    #[test]
    fn the_page_is_whole_and_escaped() {
        let page = render(&sample_report());
        assert!(page.contains("snug compare &lt;sample&gt; &amp; &quot;quotes&quot;"));
        assert!(page.contains("<title>snug beside redis: set-get</title>"));
        assert!(page.contains("<h2>Medians of 2 rounds</h2>"));
        assert!(page.contains("snug is better than redis in "), "a sentence says what came of it");
        assert!(page.contains("Only 2 rounds were measured"));
        assert!(page.contains("prefers-color-scheme:dark") && !page.contains("#000000"));
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
