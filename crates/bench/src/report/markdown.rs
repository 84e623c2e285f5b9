//! The report as `benchmarks.md` with its plots beside it, for the repository.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use super::Report;
use super::plot::plots;
use super::sections::{self, Section};
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
        "{}, {}, {} cores, {:.1} GiB, Linux {}. Servers: {}. Written by\n\n\
         <!-- not run: it takes twenty minutes of all cores -->\n```sh\n{}\n```\n",
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
    let mut all = sections::comparison(&comparison);
    all.push(sections::figures(report));
    all.extend(sections::codec(report));
    all.push(sections::agreement(report));
    for section in all.iter().filter(|section| !section.is_empty()) {
        page.push('\n');
        page.push_str(&section.markdown());
    }
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

/// Marks in a README between which the table stands.
const README_BEGIN: &str = "<!-- benchmarks: written by make bench -->";
const README_END: &str = "<!-- end of benchmarks -->";

/// Puts the figures that matter most between the marks of a README, those that are lost
/// with those that are won: what an item weighs; what packing costs; requests a second and
/// their cost; latency where the pipeline is 1, of reads beside other work, of single
/// entries and of large values.
pub fn write_readme(report: &Report, readme: &Path) -> io::Result<()> {
    let text = fs::read_to_string(readme)?;
    let marks = text
        .split_once(README_BEGIN)
        .and_then(|(before, rest)| rest.split_once(README_END).map(|(_, after)| (before, after)));
    let Some((before, after)) = marks else {
        let missing = format!("it has no lines '{README_BEGIN}' and '{README_END}'");
        return Err(io::Error::new(io::ErrorKind::InvalidData, missing));
    };
    let mut comparison = Comparison::of(report);
    comparison.rows.retain(|row| {
        let kind = row.kind.as_deref();
        let one_by_one = ["set/P1", "get/P1"].contains(&row.step.as_str());
        let together = ["set/P16", "get/P16", "xadd/P16"].contains(&row.step.as_str());
        let is_classic = row.workload == "set-get" && (one_by_one || together);
        let is_lookup = row.workload == "stream-lookup" && !row.step.ends_with("-load");
        match row.metric.name {
            "bytes" => !row.workload.starts_with("set-get"),
            "cpu_rested" => {
                ["stream-events", "stream-celery", "json-zipf", "large-values"]
                    .contains(&row.workload.as_str())
                    && row.kind.is_none()
            }
            "throughput" => is_classic || kind == Some("large get"),
            "cpu" => is_classic && together,
            "p99" => {
                (is_classic && one_by_one)
                    || is_lookup
                    || matches!(kind, Some("get" | "xrange" | "large get"))
            }
            _ => false,
        }
    });
    for row in &mut comparison.rows {
        row.workload = String::new();
    }
    let tables: String = sections::comparison(&comparison).iter().map(Section::markdown).collect();
    let (date, machine) = (&report.date, &report.machine);
    let place = format!("{date}, {}, {} cores, {}", machine.cpu, machine.cores, servers(report));
    fs::write(readme, format!("{before}{README_BEGIN}\n{tables}\n{place}\n{README_END}{after}"))
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
            page.contains("| set/P16 | ops/s | 200,000 ±0% | 100,000 ±0% | 2.00 better |"),
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
    #[test]
    fn a_readme_keeps_everything_but_its_table() {
        let path = std::env::temp_dir().join(format!("snug-readme-{}.md", std::process::id()));
        fs::write(&path, "no marks").unwrap();
        assert!(write_readme(&sample_report(), &path).is_err());
        let mut report = sample_report();
        let mut one_by_one = report.results.clone();
        for result in &mut one_by_one {
            result.step = "set/P1".into();
        }
        report.results.extend(one_by_one);
        fs::write(&path, format!("# A\n{README_BEGIN}\nold\n{README_END}\nrest\n")).unwrap();
        for _ in 0..2 {
            write_readme(&report, &path).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("# A\n") && text.ends_with("\nrest\n"), "{text}");
            assert_eq!(text.matches("| set/P16 | CPU s per M ops | 1.00 ±0% |").count(), 1);
            assert_eq!(text.matches("| set/P16 | ops/s | 200,000 ±0% | 100,000 ±0% |").count(), 1);
            assert_eq!(text.matches("| set/P1 | p99 us |").count(), 1);
            assert!(!text.contains("set/P16 | p99") && !text.contains("| p50 us |"), "{text}");
            assert!(!text.contains("old"));
        }
        fs::remove_file(&path).unwrap();
    }
}
