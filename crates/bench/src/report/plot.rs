//! Plots of a report, as SVG: ratio bars, latency curves, memory over time.

use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::table::number;
use super::{Report, StepResult};
use crate::compare::{Better, Comparison, METRICS, Metric, Row};

/// A picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// A file name for it, without extension.
    pub slug: String,
    /// The SVG document.
    pub svg: String,
}

impl Plot {
    /// The picture in a page's own colours: by its own it is black on white.
    pub fn in_page(&self) -> String {
        self.svg.replace("#000000", "currentColor").replace("#FFFFFF", "none")
    }
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Colour-blind safe (Okabe and Ito).
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];
const HEIGHT: u32 = 360;
const WIDTH: u32 = 760;
const BAR_HEIGHT: u32 = 26;
/// What stands above and below bars.
const HEAD_HEIGHT: u32 = 80;
const AXIS_WIDTH: u32 = 90;
/// Of small letters, the widest.
const LETTER_WIDTH: u32 = 8;
/// Most lines across a plot: more would have labels one over the other where the axis is
/// logarithmic.
const LINES: usize = 6;
/// Of a line of the legend.
const LEGEND_HEIGHT: u32 = 20;

/// Every plot that the report has data for. A plot that cannot be drawn is left
/// out: the tables hold the same figures.
pub fn plots(report: &Report) -> Vec<Plot> {
    let mut comparison = Comparison::of(report);
    let some_plain = comparison.rows.iter().any(|row| !is_sized(&row.step));
    let left_out = |step: &str| some_plain && is_sized(step);
    comparison.rows.retain(|row| !left_out(&row.step));
    let mut plots = Vec::new();
    for metric in METRICS {
        plots.extend(bar_plots(&comparison, metric));
    }
    let mut seen: Vec<&StepResult> = Vec::new();
    for result in &report.results {
        if seen.iter().any(|known| known.is_same_step(result)) || left_out(&result.step) {
            continue;
        }
        seen.push(result);
        let of_step: Vec<&StepResult> = last_rounds(report, result);
        plots.extend(latency_plot(result, &of_step));
        plots.extend(memory_plot(result, &of_step));
    }
    plots
}

/// Whether a step is one of a matrix of pipelines, sizes and keyspaces
/// (`set/P16/d64/r1000`): dozens of them beside others would bury those.
fn is_sized(step: &str) -> bool {
    step.matches('/').count() >= 3
}

/// The last result of each target for the same step.
fn last_rounds<'a>(report: &'a Report, step: &StepResult) -> Vec<&'a StepResult> {
    let mut last: Vec<&StepResult> = Vec::new();
    for result in &report.results {
        if !result.is_same_step(step) {
            continue;
        }
        match last.iter_mut().find(|known| known.target == result.target) {
            Some(known) => *known = result,
            None => last.push(result),
        }
    }
    last
}

fn slug(text: &str) -> String {
    let mut slug: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    while slug.contains("--") {
        slug = slug.replace("--", "-");
    }
    slug.trim_matches('-').to_owned()
}

fn plot(
    title: String,
    (width, height): (u32, u32),
    draw: impl FnOnce(&Area<'_>, &str) -> Drawn,
) -> Option<Plot> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        area.fill(&WHITE).ok()?;
        draw(&area, &title).ok()?;
        area.present().ok()?;
    }
    Some(Plot { slug: slug(&title), title, svg })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// A bar for each step: ratios where there are several targets, else values.
fn bar_plots(comparison: &Comparison, metric: &Metric) -> Vec<Plot> {
    let rows: Vec<&Row> =
        comparison.rows.iter().filter(|row| row.metric.name == metric.name).collect();
    let bars_of = |value: &dyn Fn(&Row) -> Option<f64>| -> Vec<(String, f64)> {
        rows.iter().filter_map(|row| Some((row.label(), value(row)?))).collect()
    };
    let Some(first) = comparison.targets.first() else { return Vec::new() };
    let mut plots = Vec::new();
    // One bar beside nothing shows nothing.
    if comparison.targets.len() == 1 && rows.len() > 1 {
        let bars = bars_of(&|row| Some(row.cells[0].as_ref()?.median()));
        plots.extend(bar_plot(metric.title.to_owned(), &bars, None, metric.better));
    }
    for (other, name) in comparison.targets.iter().enumerate().skip(1) {
        let bars = bars_of(&|row| row.ratio(other));
        let title = format!("{}: {first} over {name}", metric.title);
        plots.extend(bar_plot(title, &bars, Some(1.0), metric.better));
    }
    plots
}

/// Bars that stand on the worse side of `level` have another colour.
fn bar_plot(
    title: String,
    bars: &[(String, f64)],
    level: Option<f64>,
    better: Better,
) -> Option<Plot> {
    let tallest = bars.iter().map(|(_, value)| *value).fold(level.unwrap_or(0.0), f64::max);
    if bars.is_empty() || !tallest.is_finite() || tallest <= 0.0 {
        return None;
    }
    let count = bars.len();
    // They lie, so that each has a line of text in front of it.
    let longest = bars.iter().map(|(label, _)| label.chars().count()).max().unwrap_or_default();
    let labels = AXIS_WIDTH.max(longest as u32 * LETTER_WIDTH);
    let size = (WIDTH + labels, BAR_HEIGHT * count as u32 + HEAD_HEIGHT);
    plot(title, size, |area, title| {
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(24)
            .y_label_area_size(labels)
            .build_cartesian_2d(0.0..tallest * 1.1, (0..count).into_segmented())?;
        // The first is at the top.
        let place = |index: usize| count - 1 - index;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .max_light_lines(1)
            .x_label_formatter(&|value| number(*value))
            .y_labels(count)
            .y_label_formatter(&|at| match at {
                SegmentValue::CenterOf(index) if *index < count => bars[place(*index)].0.clone(),
                _ => String::new(),
            })
            .draw()?;
        chart.draw_series(bars.iter().enumerate().map(|(index, (_, value))| {
            let worse = level.is_some_and(|level| match better {
                Better::Higher => *value < level,
                Better::Lower => *value > level,
            });
            let color = if worse { COLORS[1] } else { COLORS[0] };
            let (from, to) = (place(index), place(index) + 1);
            let mut bar = Rectangle::new(
                [(0.0, SegmentValue::Exact(from)), (*value, SegmentValue::Exact(to))],
                color.filled(),
            );
            bar.set_margin(4, 4, 0, 0);
            bar
        }))?;
        if let Some(level) = level {
            let ends = [(level, SegmentValue::Exact(0)), (level, SegmentValue::Exact(count))];
            chart.draw_series(LineSeries::new(ends, BLACK.mix(0.6)))?;
        }
        Ok(())
    })
}

/// Two bars for each label, one under the other, for a page; a bar of 0 is left out, and
/// where all are of one kind the legend too.
pub fn pairs(title: &str, names: [&str; 2], rows: &[(String, [f64; 2])]) -> Option<String> {
    let tallest = rows.iter().flat_map(|(_, pair)| *pair).fold(0.0, f64::max);
    if rows.is_empty() || !tallest.is_finite() || tallest <= 0.0 {
        return None;
    }
    let count = rows.len();
    let longest = rows.iter().map(|(label, _)| label.chars().count()).max().unwrap_or_default();
    let labels = AXIS_WIDTH.max(longest as u32 * LETTER_WIDTH);
    let height = 3 * BAR_HEIGHT / 2 * count as u32 + HEAD_HEIGHT;
    let places = [(labels, 0), (labels + 200, 0)];
    let size = (WIDTH + labels, height + LEGEND_HEIGHT);
    let plot = plot(title.to_owned(), size, |area, title| {
        let (bars, below) = area.split_vertically(height);
        let mut chart = ChartBuilder::on(&bars)
            .caption(title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(24)
            .y_label_area_size(labels)
            .build_cartesian_2d(0.0..tallest * 1.1, 0.0..count as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .max_light_lines(1)
            .x_label_formatter(&|value| number(*value))
            .y_labels(0)
            .draw()?;
        for (row, (label, pair)) in rows.iter().enumerate() {
            let top = (count - row) as f64;
            for (side, value) in pair.iter().enumerate().filter(|(_, value)| **value > 0.0) {
                let from = top - 0.1 - 0.4 * side as f64;
                let corners = [(0.0, from), (*value, from - 0.38)];
                chart.draw_series([Rectangle::new(corners, COLORS[side].filled())])?;
            }
            let place = chart.backend_coord(&(0.0, top - 0.5));
            let style = ("sans-serif", 12).into_text_style(area);
            let style = style.pos(Pos::new(HPos::Right, VPos::Center));
            area.draw_text(label, &style, (place.0 - 6, place.1))?;
        }
        draw_legend(&below, &names, &places)
    })?;
    Some(plot.in_page())
}

/// Latency by percentile; the axis is the number of nines, so that the tail has
/// room.
fn latency_plot(step: &StepResult, results: &[&StepResult]) -> Option<Plot> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for result in results {
        for kind in &result.kinds {
            let name = match result.kinds.len() {
                1 => result.target.clone(),
                _ => format!("{} {}", result.target, kind.name),
            };
            let points = kind.latency.curve.iter().filter(|(percentile, _)| *percentile < 100.0);
            let points: Vec<(f64, f64)> = points
                .map(|&(percentile, us)| (100.0 / (100.0 - percentile), us.max(0.1)))
                .collect();
            if points.len() > 1 {
                lines.push((name, points));
            }
        }
    }
    let title = format!("{}: latency by percentile, microseconds", step.label());
    line_plot(title, &lines, true, &|nines| {
        format!("{:.4}", 100.0 - 100.0 / nines)
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    })
}

fn memory_plot(step: &StepResult, results: &[&StepResult]) -> Option<Plot> {
    let mut lines = Vec::new();
    for result in results {
        let line = |pick: fn(&super::Sample) -> u64| {
            result.series.iter().map(move |sample| (sample.seconds, pick(sample) as f64 / 1e6))
        };
        let used: Vec<(f64, f64)> = line(|sample| sample.used).collect();
        let resident: Vec<(f64, f64)> = line(|sample| sample.resident).collect();
        if used.len() < 2 {
            continue;
        }
        if resident.iter().any(|&(_, megabytes)| megabytes > 0.0) {
            lines.push((format!("{} resident", result.target), resident));
        }
        lines.push((format!("{} used", result.target), used));
    }
    let title = format!("{}: memory over time, MB by seconds", step.label());
    line_plot(title, &lines, false, &|seconds| number(*seconds))
}

/// Where each name of the legend stands, which lies below the plot: one behind the other,
/// in as many lines as it takes.
fn legend(names: &[&str]) -> Vec<(u32, u32)> {
    let (mut x, mut y) = (AXIS_WIDTH, 0);
    let mut places = Vec::new();
    for name in names {
        let width = 32 + name.chars().count() as u32 * LETTER_WIDTH;
        if x > AXIS_WIDTH && x + width > WIDTH {
            (x, y) = (AXIS_WIDTH, y + LEGEND_HEIGHT);
        }
        places.push((x, y));
        x += width;
    }
    places
}

fn draw_legend(area: &Area<'_>, names: &[&str], places: &[(u32, u32)]) -> Drawn {
    for (index, (name, &(x, y))) in names.iter().zip(places).enumerate() {
        let (x, y) = (x as i32, y as i32);
        let color = COLORS[index % COLORS.len()];
        area.draw(&PathElement::new([(x, y + 8), (x + 18, y + 8)], color.stroke_width(3)))?;
        area.draw(&Text::new((*name).to_owned(), (x + 24, y + 2), ("sans-serif", 13)))?;
    }
    Ok(())
}

fn line_plot(
    title: String,
    lines: &[(String, Vec<(f64, f64)>)],
    logarithmic: bool,
    label: &dyn Fn(&f64) -> String,
) -> Option<Plot> {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let extent = |pick: fn(&(f64, f64)) -> f64| {
        let least = all().map(pick).fold(f64::INFINITY, f64::min);
        let most = all().map(pick).fold(f64::NEG_INFINITY, f64::max);
        (least, most)
    };
    let (left, right) = extent(|point| point.0);
    let (low, high) = extent(|point| point.1);
    if !(left < right && low.is_finite() && high.is_finite() && high > 0.0) {
        return None;
    }
    let names: Vec<&str> = lines.iter().map(|(name, _)| name.as_str()).collect();
    let legend = legend(&names);
    let legend_height = legend.iter().map(|(_, y)| y + LEGEND_HEIGHT).max().unwrap_or_default();
    plot(title, (WIDTH, HEIGHT + legend_height), |area, title| {
        let (area, below) = area.split_vertically(HEIGHT);
        draw_legend(&below, &names, &legend)?;
        let mut builder = ChartBuilder::on(&area);
        builder
            .caption(title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(AXIS_WIDTH - 20);
        // The two kinds of axes are of different types; what is drawn is the same.
        macro_rules! draw {
            ($chart:expr) => {{
                let mut chart = $chart;
                chart
                    .configure_mesh()
                    .max_light_lines(1)
                    .y_labels(LINES)
                    .x_label_formatter(label)
                    .y_label_formatter(&|value| number(*value))
                    .draw()?;
                for (index, (_, points)) in lines.iter().enumerate() {
                    let color = COLORS[index % COLORS.len()];
                    chart.draw_series(LineSeries::new(
                        points.iter().copied(),
                        color.stroke_width(2),
                    ))?;
                }
            }};
        }
        if logarithmic {
            let x = (left..right * 1.1).log_scale();
            let y = (low * 0.9..high * 1.2).log_scale();
            draw!(builder.build_cartesian_2d(x, y)?);
        } else {
            draw!(builder.build_cartesian_2d(left..right, 0.0..high * 1.1)?);
        }
        Ok(())
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::latency::Latency;
    use crate::report::{Cpu, KindResult, Memory, Sample};

    /// Two targets, two rounds, latencies, memory and a series.
    pub(in crate::report) fn sample_report() -> Report {
        let mut report = Report::begin("snug compare <sample> & \"quotes\"".into());
        for round in 1..=2 {
            for (target, speed) in [("snug", 2.0), ("redis", 1.0)] {
                let mut latency = Latency::new();
                for us in 1..1000 {
                    latency.record(Duration::from_nanos((us as f64 * 1000.0 / speed) as u64), 1);
                }
                report.results.push(StepResult {
                    target: target.into(),
                    server: format!("{target} 1.0"),
                    round,
                    workload: "set-get".into(),
                    step: "set/P16".into(),
                    throughput: 1e5 * speed,
                    operations: 999,
                    kinds: vec![KindResult {
                        name: "set".into(),
                        throughput: 1e5 * speed,
                        latency: latency.summary(),
                        ..KindResult::default()
                    }],
                    cpu: Some(Cpu { per_million: Some(2.0 / speed), ..Cpu::default() }),
                    memory: Some(Memory {
                        bytes_per_item: Some(80.0 / speed),
                        items: 99_900,
                        ..Memory::default()
                    }),
                    series: (0..20)
                        .map(|at| Sample {
                            seconds: f64::from(at) / 10.0,
                            operations: 50 * at as u64,
                            used: 1_000_000 * at as u64,
                            resident: 1_500_000 * at as u64,
                        })
                        .collect(),
                    ..StepResult::default()
                });
            }
        }
        report
    }

    #[test]
    fn every_kind_of_plot_is_drawn() {
        let plots = plots(&sample_report());
        let titles: Vec<&str> = plots.iter().map(|plot| plot.title.as_str()).collect();
        for expected in [
            "ops/s: snug over redis",
            "CPU s per M ops: snug over redis",
            "bytes per item: snug over redis",
            "set/P16: latency by percentile, microseconds",
            "set/P16: memory over time, MB by seconds",
        ] {
            assert!(titles.contains(&expected), "{expected} in {titles:?}");
        }
        for plot in &plots {
            assert!(plot.svg.starts_with("<svg") && plot.svg.trim_end().ends_with("</svg>"));
            assert!(plot.svg.contains(
                if plot.title.contains("over") && !plot.title.contains("time") {
                    "<rect"
                } else {
                    "<polyline"
                }
            ));
        }
    }

    #[test]
    fn an_empty_report_has_no_plots() {
        assert!(plots(&Report::default()).is_empty());
        let mut report = Report::default();
        report.results.push(StepResult::default());
        assert!(plots(&report).is_empty());
    }

    #[test]
    fn a_matrix_of_sizes_is_drawn_only_when_alone() {
        let mut sized = sample_report();
        for result in &mut sized.results {
            result.step = "set/P16/d64/r1000".into();
        }
        let drawn = |report: &Report| {
            plots(report).iter().filter(|plot| plot.title.contains("r1000")).count()
        };
        assert_eq!(drawn(&sized), 2);
        sized.results.extend(sample_report().results);
        assert_eq!(drawn(&sized), 0);
    }

    #[test]
    fn file_names_are_plain() {
        assert_eq!(slug("CPU s per M ops: snug over redis"), "cpu-s-per-m-ops-snug-over-redis");
    }
}
