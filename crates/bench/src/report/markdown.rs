//! The report as `benchmarks.md` with its plots beside it, for the repository.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use super::Report;
use super::plot::plots;
use super::table::number;
use crate::compare::Comparison;

/// Folder of the plots, beside the page.
const PLOTS: &str = "benchmarks";

/// Writes `benchmarks.md` and `benchmarks/*.svg` into `folder`, in place of those
/// of an earlier run.
pub fn write(report: &Report, folder: &Path) -> io::Result<()> {
    let pictures = folder.join(PLOTS);
    if pictures.is_dir() {
        for entry in fs::read_dir(&pictures)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "svg") {
                fs::remove_file(path)?;
            }
        }
    }
    fs::create_dir_all(&pictures)?;
    let mut links = String::new();
    for plot in plots(report) {
        let name = format!("{}.svg", plot.slug);
        fs::write(pictures.join(&name), &plot.svg)?;
        let _ = writeln!(links, "![{}]({PLOTS}/{name})\n", plot.title);
    }
    fs::write(folder.join("benchmarks.md"), render(report) + &links)
}

fn render(report: &Report) -> String {
    let machine = &report.machine;
    let comparison = Comparison::of(report);
    let mut page = String::from("# Benchmarks\n\n");
    let _ = writeln!(
        page,
        "{}, {}, {} cores, {:.1} GiB, Linux {}. Servers: {}. Written by\n\n```\n{}\n```\n",
        report.date,
        machine.cpu,
        machine.cores,
        machine.memory as f64 / f64::from(1 << 30),
        machine.kernel,
        servers(report),
        report.command
    );
    page.push_str(
        "Medians over the rounds, with half their range in percent. Every round starts each \
         server afresh on the same core, the load on the other. A ratio is the first target \
         over the other.\n",
    );
    let mut workload = "";
    for row in &comparison.rows {
        if row.workload != workload {
            workload = &row.workload;
            push_table_head(&mut page, workload, &comparison);
        }
        let _ = write!(page, "| {} | {} |", row.label(), row.metric.title);
        for cell in &row.cells {
            let text = cell.as_ref().map_or("-".into(), |samples| {
                format!("{} ±{:.0} %", number(samples.median()), samples.spread() * 100.0)
            });
            let _ = write!(page, " {text} |");
        }
        for other in 1..comparison.targets.len() {
            let ratio = row.ratio(other).map_or("-".into(), |ratio| format!("{ratio:.2}"));
            let _ = write!(page, " {ratio} {} |", row.verdict(other));
        }
        page.push('\n');
    }
    push_figures(&mut page, report);
    let troubles = report.troubles();
    if !troubles.is_empty() {
        page.push_str("\n## Not measured, or with errors\n\n");
        for line in troubles {
            let _ = writeln!(page, "- {line}");
        }
    }
    page.push('\n');
    page
}

fn servers(report: &Report) -> String {
    let mut servers: Vec<&str> = Vec::new();
    for result in &report.results {
        if !result.server.is_empty() && !servers.contains(&result.server.as_str()) {
            servers.push(&result.server);
        }
    }
    servers.join(", ")
}

fn push_table_head(page: &mut String, workload: &str, comparison: &Comparison) {
    let _ = write!(page, "\n## {workload}\n\n| step | metric |");
    for target in &comparison.targets {
        let _ = write!(page, " {target} |");
    }
    for other in comparison.targets.iter().skip(1) {
        let _ = write!(page, " {}/{other} |", comparison.targets[0]);
    }
    page.push_str("\n| --- | --- |");
    let columns = 2 * comparison.targets.len() - 1;
    page.push_str(&" ---: |".repeat(columns));
    page.push('\n');
}

fn push_figures(page: &mut String, report: &Report) {
    let mut headed = false;
    for result in &report.results {
        for figure in &result.figures {
            if !headed {
                page.push_str("\n## Figures of single workloads\n\n| step | target | figure | value |\n| --- | --- | --- | ---: |\n");
                headed = true;
            }
            let value = number(figure.value);
            let _ = writeln!(
                page,
                "| {} | {} | {} | {value} |",
                result.step, result.target, figure.name
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::plot::tests::sample_report;

    #[test]
    fn the_page_and_its_plots_are_written_together() {
        let folder = std::env::temp_dir().join(format!("snug-markdown-{}", std::process::id()));
        fs::create_dir_all(folder.join(PLOTS)).unwrap();
        fs::write(folder.join(PLOTS).join("stale.svg"), "old").unwrap();
        write(&sample_report(), &folder).unwrap();
        let page = fs::read_to_string(folder.join("benchmarks.md")).unwrap();
        assert!(
            page.contains("| set/P16 | ops/s | 200,000 ±0 % | 100,000 ±0 % | 2.00 better |"),
            "{page}"
        );
        let links: Vec<&str> =
            page.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        assert!(links.len() >= 5);
        for link in links {
            assert!(folder.join(link).exists(), "{link}");
        }
        assert!(!folder.join(PLOTS).join("stale.svg").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
