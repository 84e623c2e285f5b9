//! `/metrics`: what the server counts, for Prometheus.
//!
//! Two sets of names. [`exporter`] has those that redis_exporter makes of `INFO`
//! (`redis_*`); the rest, here, is Snug's own (`snug_*`), what packing does above
//! all.
//!
//! Everything is gathered anew for each scrape and summed over the workers' own
//! counters then; counting itself knows nothing of it. What has a label from
//! outside is bounded: commands and error codes by their tables, families by
//! [`FAMILIES_SHOWN`](crate::measure::families::FAMILIES_SHOWN).

use crate::commands;
use crate::config::Param;
use crate::engine::server::Server;
use crate::measure::latency::Times;
use crate::measure::stats::Stat;
use crate::measure::timings::Sum;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use snug_codec::family::Verdict;
use snug_store::Type;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

mod exporter;

/// What histograms are of: strings packed inside their entries, and those above
/// 64 KiB, which are packed in segments.
const STRING: &str = "string";
const LARGE_STRING: &str = "large_string";

type Labels = Vec<(&'static str, String)>;

/// One value of a metric.
#[derive(Debug)]
enum Value {
    Number(f64),
    /// Seconds in all, how many, and how many in each bucket, not cumulative.
    Histogram(f64, u64, Vec<(f64, u64)>),
}

/// The encoder has no summaries, and OpenMetrics none whose quantiles are percents,
/// as redis_exporter's are. So one is three metrics of this type, the second and
/// third with `_sum` and `_count` behind their names: the same series, and
/// [`as_prometheus`] says of the older format that they are one.
const SUMMARY_PART: MetricType = MetricType::Unknown;

#[derive(Debug)]
struct Metric {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: Vec<(Labels, Value)>,
}

/// What one scrape gathered.
#[derive(Debug, Default)]
struct Scrape(Vec<Metric>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in self.0.iter().filter(|metric| !metric.samples.is_empty()) {
            let descriptor = encoder.encode_descriptor(metric.name, metric.help, None, metric.kind);
            let mut descriptor = descriptor?;
            for (labels, value) in &metric.samples {
                let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, &v[..])).collect();
                let mut sample = descriptor.encode_family(&labels)?;
                match (value, metric.kind) {
                    (Value::Number(n), MetricType::Counter) => {
                        sample.encode_counter::<NoLabelSet, _, f64>(n, None)?;
                    }
                    (Value::Number(n), _) => sample.encode_gauge(n)?,
                    (Value::Histogram(sum, count, buckets), _) => {
                        sample.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Scrape {
    fn add(
        &mut self,
        kind: MetricType,
        name: &'static str,
        help: &'static str,
        samples: Vec<(Labels, Value)>,
    ) {
        self.0.push(Metric { name, help, kind, samples });
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.add(MetricType::Gauge, name, help, vec![(Vec::new(), Value::Number(value))]);
    }

    fn gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        let samples = values.into_iter().map(|(labels, n)| (labels, Value::Number(n)));
        self.add(MetricType::Gauge, name, help, samples.collect());
    }

    /// A counter; `_total` is put behind its name.
    fn counter(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.add(MetricType::Counter, name, help, vec![(Vec::new(), Value::Number(value))]);
    }

    fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        let samples = values.into_iter().map(|(labels, n)| (labels, Value::Number(n)));
        self.add(MetricType::Counter, name, help, samples.collect());
    }

    fn times(
        &mut self,
        name: &'static str,
        help: &'static str,
        sums: impl IntoIterator<Item = (Labels, Sum)>,
    ) {
        let samples =
            sums.into_iter().map(|(labels, sum)| (labels, histogram(&sum.times, sum.seconds)));
        self.add(MetricType::Histogram, name, help, samples.collect());
    }
}

fn histogram(times: &Times, seconds: f64) -> Value {
    Value::Histogram(seconds, times.calls(), times.by_doubling())
}

fn label(name: &'static str, value: impl Into<String>) -> Labels {
    vec![(name, value.into())]
}

/// The text of a scrape: of OpenMetrics, or of Prometheus's older format.
pub(crate) fn text(server: &Server, open_metrics: bool) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(gather(server)));
    let mut text = String::with_capacity(64 * 1024);
    text::encode(&mut text, &registry)?;
    Ok(if open_metrics { text } else { as_prometheus(&text) })
}

/// The same in the format before OpenMetrics: there a counter is named in full
/// in its `TYPE` and `HELP` lines, a summary is one metric, and the text just ends.
fn as_prometheus(text: &str) -> String {
    let mut old = String::with_capacity(text.len());
    // HELP comes before the TYPE that tells how to write it.
    let mut help: Option<(&str, &str)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            let help = help.take();
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "unknown" if name.ends_with("_sum") || name.ends_with("_count") => continue,
                "unknown" => ("", "summary"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help {
                old += &format!("# HELP {name}{suffix} {help}\n");
            }
            old += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            old += line;
            old.push('\n');
        }
    }
    old
}

fn gather(server: &Server) -> Scrape {
    let mut scrape = Scrape::default();
    exporter::gather(&mut scrape, server);
    of_commands(&mut scrape, server);
    of_values(&mut scrape, server);
    of_families(&mut scrape, server);
    of_dictionaries(&mut scrape, server);
    of_background(&mut scrape, server);
    of_content(&mut scrape, server);
    of_workspaces(&mut scrape, server);
    of_tier(&mut scrape, server);
    scrape
}

/// How long calls took.
fn of_commands(scrape: &mut Scrape, server: &Server) {
    let times = commands::all().iter().filter_map(|command| {
        let times = server.monitor.times(command);
        let seconds = server.monitor.figures(command).microseconds as f64 / 1e6;
        let labels = label("cmd", command.full_name());
        (times.calls() > 0).then(|| (labels, histogram(&times, seconds)))
    });
    let (name, help) = ("snug_command_seconds", "How long calls took, by command.");
    scrape.add(MetricType::Histogram, name, help, times.collect());
}

fn of_values(scrape: &mut Scrape, server: &Server) {
    let memory_of = |kind: &Type| (kind.name(), server.store.type_memory(*kind));
    let types: Vec<_> = Type::ALL.iter().map(memory_of).collect();
    let each = |of: fn(&snug_store::TypeMemory) -> u64| {
        types
            .iter()
            .map(|(name, memory)| (label("type", *name), of(memory) as f64))
            .collect::<Vec<_>>()
    };
    scrape.gauges(
        "snug_allocated_bytes",
        "Bytes allocated for keys and values, by type.",
        each(|m| m.allocated),
    );
    scrape.gauges(
        "snug_value_bytes",
        "Bytes of all values as clients see them, by type.",
        each(|m| m.raw),
    );
    scrape.gauges(
        "snug_raw_bytes",
        "Bytes of values that are held raw, by type.",
        each(|m| m.raw.saturating_sub(m.packed_from)),
    );
    scrape.gauges(
        "snug_packed_from_bytes",
        "Bytes of values that are held packed, as clients see them, by type.",
        each(|m| m.packed_from),
    );
    scrape.gauges(
        "snug_packed_bytes",
        "Bytes that packed values are packed into, by type.",
        each(|m| m.packed),
    );
    let by_state = types.iter().flat_map(|(name, memory)| {
        let labels = |state: &str| vec![("type", (*name).to_owned()), ("state", state.to_owned())];
        [(labels("raw"), memory.raw_values as f64), (labels("packed"), memory.packed_values as f64)]
    });
    let help = "Values by type: raw, or packed in whole or in part.";
    scrape.gauges("snug_values", help, by_state);
    let sum =
        |of: fn(&snug_store::TypeMemory) -> u64| -> u64 { types.iter().map(|(_, m)| of(m)).sum() };
    let (from, into) = (sum(|m| m.packed_from), sum(|m| m.packed));
    let ratio = if into == 0 { 1.0 } else { from as f64 / into as f64 };
    scrape.gauge(
        "snug_packed_ratio",
        "Bytes before packing to bytes after, over all that is packed.",
        ratio,
    );
    scrape.gauge(
        "snug_saved_bytes",
        "Bytes before packing less bytes after.",
        from.saturating_sub(into) as f64,
    );
    let outcomes = server.timings.outcomes();
    let each = |of: fn(&crate::measure::timings::Outcome) -> u64| -> Vec<(Labels, f64)> {
        let outcomes = outcomes.iter().map(|((kind, codec, level, group), outcome)| {
            let labels = vec![
                ("type", (*kind).to_owned()),
                ("codec", codec.name().to_owned()),
                ("level", level.to_string()),
                ("mime", (*group).to_owned()),
            ];
            (labels, of(outcome) as f64)
        });
        outcomes.collect()
    };
    scrape.counters(
        "snug_packing_values",
        "Values and blocks packed since the start, those left raw with codec none.",
        each(|o| o.values),
    );
    scrape.counters(
        "snug_packing_raw_bytes",
        "Bytes of packed values and blocks before packing, since the start.",
        each(|o| o.raw_bytes),
    );
    scrape.counters(
        "snug_packing_packed_bytes",
        "Bytes of packed values and blocks after packing, since the start.",
        each(|o| o.packed_bytes),
    );
    for (stat, name, help) in [
        (
            Stat::strings_left_raw,
            "snug_strings_left_raw",
            "Strings that were looked at and not packed.",
        ),
        (
            Stat::pack_rejected,
            "snug_blocks_left_raw",
            "Blocks of streams that were not worth packing.",
        ),
        (
            Stat::values_damaged,
            "snug_values_damaged",
            "Times that a value was found damaged, in memory or on disk.",
        ),
    ] {
        scrape.counter(name, help, server.stats.get(stat) as f64);
    }
}

/// The disk tier: zeros where there is none.
fn of_tier(scrape: &mut Scrape, server: &Server) {
    let (store, tiering) = (&server.store, &server.tiering);
    let (values, bytes, raw) = store.away();
    let (left, brought, lost) = store.tier().counts();
    let figures = store.tier().engine().map(|engine| engine.figures()).unwrap_or_default();
    let waited = tiering.waited_us.load(Relaxed) as f64 / 1e6;
    for (name, help, value) in [
        ("snug_tier_values", "Values on disk.", values),
        ("snug_tier_value_bytes", "Bytes on disk of values that keys refer to.", bytes),
        (
            "snug_tier_raw_bytes",
            "Bytes that the values on disk would have in memory, unpacked.",
            raw,
        ),
        ("snug_tier_file_bytes", "Bytes of the disk tier's files.", figures.files_bytes),
        (
            "snug_tier_healthy",
            "0 while the disk tier is full or failing, else 1.",
            u64::from(tiering.takes() || !tiering.is_on()),
        ),
    ] {
        scrape.gauge(name, help, value as f64);
    }
    for (name, help, value) in [
        ("snug_tier_left", "Values that have gone to disk.", left as f64),
        ("snug_tier_brought", "Values that have come back from disk.", brought as f64),
        ("snug_tier_lost", "Times that a value could not be read back from disk.", lost as f64),
        (
            "snug_tier_write_errors",
            "Writes to the disk tier that failed.",
            tiering.write_errors.load(Relaxed) as f64,
        ),
        (
            "snug_tier_written_bytes",
            "Bytes written to the disk tier, those that were moved included.",
            figures.written as f64,
        ),
        (
            "snug_tier_moved_bytes",
            "Bytes that were written again to give back room on disk.",
            figures.moved as f64,
        ),
        ("snug_tier_read_bytes", "Bytes read from the disk tier.", figures.read as f64),
        (
            "snug_tier_waits",
            "Values that commands have waited for.",
            tiering.waits.load(Relaxed) as f64,
        ),
        (
            "snug_tier_room_waits",
            "Commands that have waited for values to go to disk.",
            tiering.room_waits.load(Relaxed) as f64,
        ),
        (
            "snug_tier_wait_seconds",
            "Seconds that values were waited for by commands, in all.",
            waited,
        ),
    ] {
        scrape.counter(name, help, value);
    }
}

/// The families with most bytes, and the sum of the others.
fn of_families(scrape: &mut Scrape, server: &Server) {
    let mut families = server.store.families().all();
    families.sort_by(|a, b| {
        b.stats.raw_bytes.cmp(&a.stats.raw_bytes).then_with(|| a.shape.cmp(&b.shape))
    });
    let verdicts = [(Verdict::Raw, "raw"), (Verdict::Fast, "fast"), (Verdict::Full, "full")];
    let verdicts = verdicts.map(|(verdict, name)| {
        let count = families.iter().filter(|family| family.verdict == verdict).count();
        (label("verdict", name), count as f64)
    });
    scrape.gauges("snug_families", "Families of values, by verdict.", verdicts);
    let rows = server.family_sums.lock().rows(&families);
    for (n, name, help) in [
        (0, "snug_family_values", "Values packed, worth it or not, by family."),
        (1, "snug_family_raw_bytes", "Bytes of packed values before packing, by family."),
        (2, "snug_family_packed_bytes", "Bytes of packed values after packing, by family."),
        (3, "snug_family_left_by_policy", "Values that the policy left raw, by family."),
        (4, "snug_family_not_worth", "Values that did not save enough, by family."),
        (5, "snug_family_left_expiring", "Values left raw as they were soon to expire, by family."),
    ] {
        let values = rows.iter().map(|((kind, name), row)| {
            let labels = vec![("type", (*kind).to_owned()), ("family", name.clone())];
            (labels, row[n] as f64)
        });
        scrape.counters(name, help, values.collect::<Vec<_>>());
    }
}

fn of_dictionaries(scrape: &mut Scrape, server: &Server) {
    let stats = server.store.families().dictionary_stats();
    let count = |state: &str, n: usize| (label("state", state), n as f64);
    let states = [
        count("current", stats.live.saturating_sub(stats.superseded)),
        count("retired", stats.superseded),
    ];
    scrape.gauges(
        "snug_dictionaries",
        "Dictionaries: current for a family or a stream, and replaced ones that values still need.",
        states,
    );
    scrape.gauge(
        "snug_dictionaries_bytes",
        "Bytes that dictionaries weigh, their digests included.",
        stats.memory_bytes as f64,
    );
    scrape.counter(
        "snug_dictionaries_added",
        "Dictionaries taken into use.",
        stats.added_total as f64,
    );
    scrape.counter("snug_dictionaries_freed", "Dictionaries freed.", stats.freed_total as f64);
    for (stat, name, help) in [
        (
            Stat::dictionaries_trained,
            "snug_dictionaries_trained",
            "Trainings that gave a dictionary, of strings and streams.",
        ),
        (
            Stat::dictionaries_rejected,
            "snug_dictionaries_rejected",
            "Trainings that came to nothing.",
        ),
    ] {
        scrape.counter(name, help, server.stats.get(stat) as f64);
    }
}

fn of_background(scrape: &mut Scrape, server: &Server) {
    let is_on = f64::from(u8::from(server.config.is_on(Param::Pack)));
    scrape.gauge("snug_packing_enabled", "Whether values are packed.", is_on);
    scrape.gauge("snug_workers", "Worker threads.", server.workers as f64);
    scrape.times(
        "snug_pack_seconds",
        "How long packing one value or block took.",
        server.timings.pieces().map(|(name, times)| (label("type", name), times)),
    );
    let families = server.store.families();
    let times = [(STRING, families.unpack_times()), (LARGE_STRING, families.segment_times())];
    let times = times.map(|(of, (buckets, seconds))| {
        let count = buckets.iter().map(|(_, n)| n).sum();
        (label("type", of), Value::Histogram(seconds, count, buckets))
    });
    let help =
        "How long unpacking took: of a string, one in 16 timed; of a segment of a large string.";
    scrape.add(MetricType::Histogram, "snug_unpack_seconds", help, times.into());
    let (slices, longest_us) = server.slices.figures();
    scrape.counter(
        "snug_pack_slices",
        "Slices of codec work; a string of up to 64 KiB is one.",
        slices as f64,
    );
    let help = "The longest of them so far.";
    scrape.gauge("snug_pack_slice_longest_seconds", help, longest_us as f64 / 1e6);
    let turns = server.timings.turns();
    let help = "The longest turn of the sweeper so far.";
    scrape.gauge("snug_sweeper_turn_longest_seconds", help, turns.longest_seconds);
    let help = "How long turns of the sweeper took, which clients of the worker wait for.";
    scrape.times("snug_sweeper_turn_seconds", help, [(Vec::new(), turns)]);
    let seconds = |stat| server.stats.get(stat) as f64 / 1e6;
    scrape.counter(
        "snug_sweeper_seconds",
        "Time that the sweepers of all workers took.",
        seconds(Stat::sweeper_microseconds),
    );
    scrape.counter(
        "snug_pack_cpu_seconds",
        "CPU time that the sweepers took to pack and unpack; waiting left out, and training.",
        seconds(Stat::pack_microseconds),
    );
    let help = "How short memory is: 0 below 75 percent of the limit, 1 from 95 percent on.";
    scrape.gauge("snug_memory_pressure", help, server.pressure());
    for (stat, name, help) in [
        (
            Stat::strings_packed_ahead,
            "snug_strings_packed_ahead",
            "Strings packed while memory was short.",
        ),
        (Stat::bytes_saved_ahead, "snug_saved_ahead_bytes", "What that saved."),
    ] {
        scrape.counter(name, help, server.stats.get(stat) as f64);
    }
    let (exceeded_us, _) = server.exceeded.times_us(server.uptime_us());
    let help = "Time that memory was over its limit.";
    scrape.counter("snug_memory_exceeded_seconds", help, exceeded_us as f64 / 1e6);
    let up = server.started.elapsed().as_secs_f64() * server.workers as f64;
    let share = seconds(Stat::sweeper_microseconds) / up.max(1e-9);
    scrape.gauge(
        "snug_sweeper_share",
        "The sweepers' part of all workers' time, since statistics were reset.",
        share,
    );
    let pending = server.store.pending_blocks() as f64;
    scrape.gauge("snug_backlog_blocks", "Blocks of streams that wait to be packed.", pending);
    let backlog = server.backlog();
    let help = "Strings found cold and not packed yet, in the last pass of the sweepers.";
    scrape.gauge("snug_backlog_strings", help, backlog.strings as f64);
    let help = "How long a pass over all strings takes: the last one, or the one under way.";
    scrape.gauge("snug_pack_pass_seconds", help, backlog.pass_seconds);
    let help = "How much of the pass under way is done, 0 to 1.";
    scrape.gauge("snug_pack_pass_progress", help, backlog.progress);
    scrape.gauge(
        "snug_memory_peak_bytes",
        "The most bytes ever allocated.",
        server.peak_memory.load(std::sync::atomic::Ordering::Relaxed) as f64,
    );
}

/// Content over HTTP.
fn of_content(scrape: &mut Scrape, server: &Server) {
    let count = |stat| server.stats.get(stat) as f64;
    let help = "Requests for content over HTTP, refused ones too.";
    scrape.counter("snug_content_requests", help, count(Stat::content_requests));
    let sent = [
        ("raw", Stat::content_raw, Stat::content_raw_bytes),
        ("lying", Stat::content_lying, Stat::content_lying_bytes),
        ("encoded", Stat::content_encoded, Stat::content_encoded_bytes),
        ("kept", Stat::content_kept, Stat::content_kept_bytes),
    ];
    scrape.counters(
        "snug_content_bodies",
        "Whole bodies sent over HTTP: raw, as they lie packed, encoded, or as encoded before.",
        sent.map(|(how, bodies, _)| (label("sent", how), count(bodies))),
    );
    scrape.counters(
        "snug_content_body_bytes",
        "Bytes of the strings that these bodies stood for, whatever they were sent in.",
        sent.map(|(how, _, bytes)| (label("sent", how), count(bytes))),
    );
}

fn of_workspaces(scrape: &mut Scrape, server: &Server) {
    let stats = server.workspaces.stats();
    let free = stats.made.saturating_sub(stats.lent);
    let states = [("in_use", stats.lent), ("free", free)];
    scrape.gauges(
        "snug_workspaces",
        "Workspaces for large values that there are, by state.",
        states.map(|(state, n)| (label("state", state), n as f64)),
    );
    let help = "What they reserve.";
    scrape.gauge("snug_workspaces_bytes", help, stats.memory_bytes as f64);
    let help = "Who waits for one now: packing in the background, or a command.";
    scrape.gauge("snug_workspaces_waited_for", help, stats.waiting as f64);
    let help = "How often none was free, so that somebody had to wait.";
    scrape.counter("snug_workspace_waits", help, stats.waited_total as f64);
    let help = "How long was waited for one, of waits that are over.";
    scrape.counter("snug_workspace_wait_seconds", help, server.workspaces.waited().as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_names_counters_in_full() {
        let mut scrape = Scrape::default();
        scrape.counters("a", "What a is.", [(label("l", "x\"\\\n"), 2.0)]);
        scrape.gauge("b", "What b is.", 0.5);
        let (name, buckets) = ("c", vec![(0.5, 1), (f64::INFINITY, 2)]);
        let value = Value::Histogram(1.5, 3, buckets);
        scrape.add(MetricType::Histogram, name, "What c is.", vec![(Vec::new(), value)]);
        for (name, n) in [("d", 4.0), ("d_sum", 9.0), ("d_count", 2.0)] {
            scrape.add(SUMMARY_PART, name, "What d is.", vec![(Vec::new(), Value::Number(n))]);
        }
        let mut registry = Registry::default();
        registry.register_collector(Box::new(scrape));
        let mut open = String::new();
        text::encode(&mut open, &registry).unwrap();
        assert!(open.contains("# TYPE a counter\na_total{l=\"x\\\"\\\\\\n\"} 2"), "{open}");
        assert!(open.ends_with("# EOF\n"));
        assert!(open.contains("# TYPE d unknown\nd{} 4.0\n"), "{open}");
        let old = as_prometheus(&open);
        let expected =
            "# HELP a_total What a is.\n# TYPE a_total counter\na_total{l=\"x\\\"\\\\\\n\"} 2";
        assert!(old.starts_with(expected), "{old}");
        assert!(old.contains("# TYPE b gauge\nb{} 0.5\n") && !old.contains("EOF"));
        assert!(old.contains("c_bucket{le=\"0.5\"} 1\nc_bucket{le=\"+Inf\"} 3\n"), "{old}");
        let expected =
            "# HELP d What d is.\n# TYPE d summary\nd{} 4.0\nd_sum{} 9.0\nd_count{} 2.0\n";
        assert!(old.ends_with(expected), "{old}");
    }
}
