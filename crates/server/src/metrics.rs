//! `/metrics`: what the server counts, for Prometheus.
//!
//! Two sets of names, each in one table. [`FROM_INFO`] are the fields of `INFO`
//! under the names that redis_exporter gives them (`redis_*`), so that its
//! dashboards and alerts work as they are; they are read from the text that
//! `INFO` answers and cannot say anything else. The rest is Snug's own
//! (`snug_*`), what packing does above all.
//!
//! Everything is gathered anew for each scrape and summed over the workers' own
//! counters then; counting itself knows nothing of it. What has a label from
//! outside is bounded: commands and error codes by their tables, families by
//! [`FAMILIES_SHOWN`].

use crate::commands::{self, info};
use crate::config::Param;
use crate::latency::Times;
use crate::passes::Backlog;
use crate::server::{Server, unix_ms};
use crate::stats::Stat;
use crate::timings::Sum;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use snug_codec::family::Verdict;
use snug_store::Type;
use snug_store::families::FamilyInfo;
use std::collections::BTreeMap;
use std::fmt;

/// Families with a label of their own; the others are added up.
const FAMILIES_SHOWN: usize = 64;

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
/// in its `TYPE` and `HELP` lines, and the text just ends.
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
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
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

/// How a field of `INFO` becomes a number.
#[derive(Clone, Copy, Debug)]
enum Field {
    Gauge,
    Counter,
    /// `ok` is 1, anything else 0.
    Status,
}
use Field::{Counter, Gauge, Status};

/// Fields of `INFO`, redis_exporter's names for them, and what they are. Names
/// of counters stand without their `_total`.
const FROM_INFO: &[(&str, &str, Field, &str)] = &[
    ("uptime_in_seconds", "redis_uptime_in_seconds", Gauge, "Seconds since the start."),
    ("process_id", "redis_process_id", Gauge, "The process's number."),
    (
        "io_threads_active",
        "redis_io_threads_active",
        Gauge,
        "Whether there is more than one worker.",
    ),
    ("connected_clients", "redis_connected_clients", Gauge, "Clients connected."),
    ("cluster_connections", "redis_cluster_connections", Gauge, "Connections of the cluster bus."),
    ("maxclients", "redis_max_clients", Gauge, "Most clients at once."),
    ("blocked_clients", "redis_blocked_clients", Gauge, "Clients that wait for a key."),
    ("tracking_clients", "redis_tracking_clients", Gauge, "Clients with server-assisted caching."),
    ("pubsub_clients", "redis_pubsub_clients", Gauge, "Clients that subscribe."),
    (
        "clients_in_timeout_table",
        "redis_clients_in_timeout_table",
        Gauge,
        "Clients that wait with a timeout.",
    ),
    ("total_blocking_keys", "redis_blocking_keys", Gauge, "Keys that clients wait for."),
    (
        "total_blocking_keys_on_nokey",
        "redis_blocking_keys_on_nokey",
        Gauge,
        "Of these, keys whose removal ends the wait.",
    ),
    (
        "client_recent_max_output_buffer",
        "redis_client_recent_max_output_buffer_bytes",
        Gauge,
        "The largest queue of replies.",
    ),
    (
        "client_recent_max_input_buffer",
        "redis_client_recent_max_input_buffer_bytes",
        Gauge,
        "The largest unfinished request.",
    ),
    ("used_memory", "redis_memory_used_bytes", Gauge, "Bytes allocated."),
    ("used_memory_rss", "redis_memory_used_rss_bytes", Gauge, "Bytes resident."),
    ("used_memory_peak", "redis_memory_used_peak_bytes", Gauge, "The most bytes ever allocated."),
    (
        "used_memory_overhead",
        "redis_memory_used_overhead_bytes",
        Gauge,
        "Bytes allocated for other than keys and values.",
    ),
    (
        "used_memory_startup",
        "redis_memory_used_startup_bytes",
        Gauge,
        "Bytes allocated at the start.",
    ),
    (
        "used_memory_dataset",
        "redis_memory_used_dataset_bytes",
        Gauge,
        "Bytes allocated for keys and values.",
    ),
    ("used_memory_lua", "redis_memory_used_lua_bytes", Gauge, "Bytes of the script engine."),
    ("used_memory_scripts", "redis_memory_used_scripts_bytes", Gauge, "Bytes of scripts."),
    ("total_system_memory", "redis_total_system_memory_bytes", Gauge, "Memory of the machine."),
    ("maxmemory", "redis_memory_max_bytes", Gauge, "The limit on memory; 0 for none."),
    ("allocator_active", "redis_allocator_active_bytes", Gauge, "Bytes in the allocator's pages."),
    ("allocator_allocated", "redis_allocator_allocated_bytes", Gauge, "Bytes allocated."),
    ("allocator_resident", "redis_allocator_resident_bytes", Gauge, "Bytes resident."),
    ("allocator_frag_ratio", "redis_allocator_frag_ratio", Gauge, "Active to allocated bytes."),
    ("allocator_frag_bytes", "redis_allocator_frag_bytes", Gauge, "Active less allocated bytes."),
    ("allocator_rss_ratio", "redis_allocator_rss_ratio", Gauge, "Resident to active bytes."),
    ("allocator_rss_bytes", "redis_allocator_rss_bytes", Gauge, "Resident less active bytes."),
    (
        "mem_fragmentation_ratio",
        "redis_mem_fragmentation_ratio",
        Gauge,
        "Resident to allocated bytes.",
    ),
    (
        "mem_fragmentation_bytes",
        "redis_mem_fragmentation_bytes",
        Gauge,
        "Resident less allocated bytes.",
    ),
    ("mem_clients_slaves", "redis_mem_clients_slaves", Gauge, "Bytes of replicas' buffers."),
    ("mem_clients_normal", "redis_mem_clients_normal", Gauge, "Bytes of clients' buffers."),
    (
        "mem_not_counted_for_evict",
        "redis_mem_not_counted_for_eviction_bytes",
        Gauge,
        "Bytes that eviction does not count.",
    ),
    (
        "lazyfree_pending_objects",
        "redis_lazyfree_pending_objects",
        Gauge,
        "Values that wait to be freed.",
    ),
    (
        "active_defrag_running",
        "redis_active_defrag_running",
        Gauge,
        "Whether memory is being defragmented.",
    ),
    ("loading", "redis_loading_dump_file", Gauge, "Whether data is being loaded."),
    (
        "rdb_changes_since_last_save",
        "redis_rdb_changes_since_last_save",
        Gauge,
        "Changes since the last save.",
    ),
    (
        "rdb_bgsave_in_progress",
        "redis_rdb_bgsave_in_progress",
        Gauge,
        "Whether a snapshot is being written.",
    ),
    (
        "rdb_last_save_time",
        "redis_rdb_last_save_timestamp_seconds",
        Gauge,
        "When the last snapshot was written.",
    ),
    (
        "rdb_last_bgsave_status",
        "redis_rdb_last_bgsave_status",
        Status,
        "Whether the last snapshot was a success.",
    ),
    (
        "rdb_last_bgsave_time_sec",
        "redis_rdb_last_bgsave_duration_sec",
        Gauge,
        "Seconds that the last snapshot took.",
    ),
    (
        "rdb_current_bgsave_time_sec",
        "redis_rdb_current_bgsave_duration_sec",
        Gauge,
        "Seconds that the snapshot has taken so far.",
    ),
    ("aof_enabled", "redis_aof_enabled", Gauge, "Whether there is an append-only file."),
    (
        "aof_rewrite_in_progress",
        "redis_aof_rewrite_in_progress",
        Gauge,
        "Whether it is being rewritten.",
    ),
    (
        "aof_rewrite_scheduled",
        "redis_aof_rewrite_scheduled",
        Gauge,
        "Whether it is to be rewritten.",
    ),
    (
        "aof_last_rewrite_time_sec",
        "redis_aof_last_rewrite_duration_sec",
        Gauge,
        "Seconds that its last rewrite took.",
    ),
    (
        "aof_current_rewrite_time_sec",
        "redis_aof_current_rewrite_duration_sec",
        Gauge,
        "Seconds that its rewrite has taken so far.",
    ),
    (
        "aof_last_bgrewrite_status",
        "redis_aof_last_bgrewrite_status",
        Status,
        "Whether its last rewrite was a success.",
    ),
    (
        "aof_last_write_status",
        "redis_aof_last_write_status",
        Status,
        "Whether its last write was a success.",
    ),
    ("total_connections_received", "redis_connections_received", Counter, "Connections accepted."),
    ("total_commands_processed", "redis_commands_processed", Counter, "Commands executed."),
    (
        "instantaneous_ops_per_sec",
        "redis_instantaneous_ops_per_sec",
        Gauge,
        "Commands a second just now.",
    ),
    ("total_net_input_bytes", "redis_net_input_bytes", Counter, "Bytes read."),
    ("total_net_output_bytes", "redis_net_output_bytes", Counter, "Bytes written."),
    (
        "instantaneous_input_kbps",
        "redis_instantaneous_input_kbps",
        Gauge,
        "KiB read a second just now.",
    ),
    (
        "instantaneous_output_kbps",
        "redis_instantaneous_output_kbps",
        Gauge,
        "KiB written a second just now.",
    ),
    ("rejected_connections", "redis_rejected_connections", Counter, "Connections refused."),
    ("sync_full", "redis_replica_resyncs_full", Gauge, "Full resynchronisations of replicas."),
    ("sync_partial_ok", "redis_replica_partial_resync_accepted", Gauge, "Partial ones."),
    (
        "sync_partial_err",
        "redis_replica_partial_resync_denied",
        Gauge,
        "Partial ones that had to be full.",
    ),
    ("expired_keys", "redis_expired_keys", Counter, "Keys removed because their time had come."),
    (
        "expired_stale_perc",
        "redis_expired_stale_percentage",
        Gauge,
        "Percent of keys that are expired and still there.",
    ),
    (
        "expired_time_cap_reached_count",
        "redis_expired_time_cap_reached",
        Counter,
        "Turns of the sweeper that ended before all expired keys were removed.",
    ),
    (
        "expire_cycle_cpu_milliseconds",
        "redis_expire_cycle_cpu_time_ms",
        Counter,
        "Milliseconds of the sweeper's work.",
    ),
    ("evicted_keys", "redis_evicted_keys", Counter, "Keys evicted at the limit on memory."),
    ("evicted_clients", "redis_evicted_clients", Counter, "Clients ended at the limit on memory."),
    ("keyspace_hits", "redis_keyspace_hits", Counter, "Reads that found their key."),
    ("keyspace_misses", "redis_keyspace_misses", Counter, "Reads that did not."),
    ("pubsub_channels", "redis_pubsub_channels", Gauge, "Channels with subscribers."),
    ("pubsub_patterns", "redis_pubsub_patterns", Gauge, "Patterns with subscribers."),
    (
        "pubsubshard_channels",
        "redis_pubsubshard_channels",
        Gauge,
        "Shard channels with subscribers.",
    ),
    (
        "latest_fork_usec",
        "redis_latest_fork_usec",
        Gauge,
        "Microseconds of the last fork; there are none.",
    ),
    (
        "unexpected_error_replies",
        "redis_unexpected_error_replies",
        Counter,
        "Errors to replicas and primaries.",
    ),
    ("total_error_replies", "redis_error_replies", Counter, "Errors sent."),
    ("total_reads_processed", "redis_reads_processed", Counter, "Reads from sockets."),
    ("total_writes_processed", "redis_writes_processed", Counter, "Writes to sockets."),
    ("acl_access_denied_auth", "redis_acl_access_denied_auth", Counter, "Wrong passwords."),
    ("connected_slaves", "redis_connected_slaves", Gauge, "Replicas connected."),
    (
        "repl_backlog_size",
        "redis_replication_backlog_bytes",
        Gauge,
        "Size of the replication backlog.",
    ),
    ("repl_backlog_active", "redis_repl_backlog_is_active", Gauge, "Whether there is one."),
    (
        "repl_backlog_first_byte_offset",
        "redis_repl_backlog_first_byte_offset",
        Gauge,
        "Where it begins.",
    ),
    ("repl_backlog_histlen", "redis_repl_backlog_history_bytes", Gauge, "Bytes in it."),
    ("master_repl_offset", "redis_master_repl_offset", Gauge, "Offset of replication."),
    (
        "second_repl_offset",
        "redis_second_repl_offset",
        Gauge,
        "Offset up to which the second replication ID is accepted.",
    ),
    ("used_cpu_sys", "redis_cpu_sys_seconds", Counter, "CPU seconds in the kernel."),
    ("used_cpu_user", "redis_cpu_user_seconds", Counter, "CPU seconds out of it."),
    (
        "used_cpu_sys_children",
        "redis_cpu_sys_children_seconds",
        Counter,
        "The same of child processes.",
    ),
    (
        "used_cpu_user_children",
        "redis_cpu_user_children_seconds",
        Counter,
        "The same of child processes.",
    ),
    ("cluster_enabled", "redis_cluster_enabled", Gauge, "Whether it is a node of a cluster."),
];

fn gather(server: &Server) -> Scrape {
    let mut session = server.store.session();
    let text = {
        let batch = session.enter(unix_ms());
        info::text(&info::View { server, store: &batch })
    };
    let fields: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(':')).collect();
    let mut scrape = Scrape::default();
    scrape.gauge("redis_up", "Whether the server answers.", 1.0);
    from_info(&mut scrape, &fields);
    of_databases(&mut scrape, &fields);
    of_commands(&mut scrape, server);
    of_values(&mut scrape, server);
    of_families(&mut scrape, server);
    of_dictionaries(&mut scrape, server);
    of_background(&mut scrape, server);
    of_workspaces(&mut scrape, server);
    scrape
}

fn from_info(scrape: &mut Scrape, fields: &BTreeMap<&str, &str>) {
    for &(field, name, kind, help) in FROM_INFO {
        let Some(text) = fields.get(field) else { continue };
        let value = match kind {
            Status => f64::from(u8::from(*text == "ok")),
            Gauge | Counter => match text.parse() {
                Ok(value) => value,
                Err(_) => continue,
            },
        };
        match kind {
            Counter => scrape.counter(name, help, value),
            Gauge | Status => scrape.gauge(name, help, value),
        }
    }
    let fact = |field: &'static str| (field, fields.get(field).copied().unwrap_or("").to_owned());
    let facts = [
        "role",
        "redis_version",
        "snug_version",
        "redis_build_id",
        "redis_mode",
        "os",
        "maxmemory_policy",
        "tcp_port",
        "run_id",
        "process_id",
    ];
    let facts = facts.map(fact).to_vec();
    scrape.gauges("redis_instance_info", "Facts about the server, in its labels.", [(facts, 1.0)]);
}

/// From lines such as `db0:keys=1,expires=0,avg_ttl=0`.
fn of_databases(scrape: &mut Scrape, fields: &BTreeMap<&str, &str>) {
    let part = |text: &str, name: &str| -> Option<f64> {
        let mut parts = text.split(',').filter_map(|part| part.split_once('='));
        parts.find(|(found, _)| *found == name)?.1.parse().ok()
    };
    let databases: Vec<(String, &str)> = fields
        .iter()
        .filter(|(name, text)| name.starts_with("db") && text.starts_with("keys="))
        .map(|(name, text)| ((*name).to_owned(), *text))
        .collect();
    let all = |of: &str, scale: f64| -> Vec<(Labels, f64)> {
        let one = |(name, text): &(String, &str)| {
            Some((label("db", name.clone()), part(text, of)? * scale))
        };
        databases.iter().filter_map(one).collect()
    };
    scrape.gauges("redis_db_keys", "Keys by database.", all("keys", 1.0));
    scrape.gauges("redis_db_keys_expiring", "Keys that expire, by database.", all("expires", 1.0));
    scrape.gauges("redis_db_avg_ttl_seconds", "Their mean time to live.", all("avg_ttl", 1e-3));
}

fn of_commands(scrape: &mut Scrape, server: &Server) {
    let used: Vec<_> = commands::all()
        .iter()
        .map(|command| {
            (label("cmd", command.full_name()), server.monitor.figures(command), command)
        })
        .filter(|(_, figures, _)| figures.calls + figures.rejected > 0)
        .collect();
    let each = |of: fn(&crate::monitor::CommandFigures) -> f64| -> Vec<(Labels, f64)> {
        used.iter().map(|(labels, figures, _)| (labels.clone(), of(figures))).collect()
    };
    scrape.counters("redis_commands", "Calls by command.", each(|f| f.calls as f64));
    scrape.counters(
        "redis_commands_duration_seconds",
        "Time by command.",
        each(|f| f.microseconds as f64 / 1e6),
    );
    scrape.counters(
        "redis_commands_rejected_calls",
        "Refused calls by command.",
        each(|f| f.rejected as f64),
    );
    scrape.counters(
        "redis_commands_failed_calls",
        "Failed calls by command.",
        each(|f| f.failed as f64),
    );
    let times = used.iter().filter_map(|(labels, figures, command)| {
        let times = server.monitor.times(command);
        let seconds = figures.microseconds as f64 / 1e6;
        (times.calls() > 0).then(|| (labels.clone(), histogram(&times, seconds)))
    });
    let (name, help) = ("snug_command_seconds", "How long calls took, by command.");
    scrape.add(MetricType::Histogram, name, help, times.collect());
    let errors = server.monitor.errors();
    let errors = errors.into_iter().map(|(code, count)| (label("err", code), count as f64));
    scrape.counters("redis_errors", "Errors sent, by code.", errors);
    let slow = server.monitor.slow(1);
    scrape.gauge(
        "redis_slowlog_length",
        "Entries in the slow log.",
        server.monitor.slow_len() as f64,
    );
    if let Some(last) = slow.first() {
        scrape.gauge("redis_slowlog_last_id", "Number of its last entry.", last.id as f64);
        let took = last.microseconds as f64 / 1e6;
        let help = "How long that command took.";
        scrape.gauge("redis_last_slow_execution_duration_seconds", help, took);
    }
}

fn of_values(scrape: &mut Scrape, server: &Server) {
    let types = Type::ALL.map(|kind| (kind.name(), server.store.type_memory(kind)));
    let each = |of: fn(&snug_store::TypeMemory) -> u64| {
        types.map(|(name, memory)| (label("type", name), of(&memory) as f64))
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
        "Of these, bytes that are held raw.",
        each(|m| m.raw.saturating_sub(m.packed_from)),
    );
    scrape.gauges(
        "snug_packed_from_bytes",
        "Of these, bytes that are held packed.",
        each(|m| m.packed_from),
    );
    scrape.gauges("snug_packed_bytes", "What those are packed into.", each(|m| m.packed));
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
    let each = |of: fn(&crate::timings::Outcome) -> u64| -> Vec<(Labels, f64)> {
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
        "Values and blocks packed since the start.",
        each(|o| o.values),
    );
    scrape.counters("snug_packing_raw_bytes", "Their bytes before packing.", each(|o| o.raw_bytes));
    scrape.counters(
        "snug_packing_packed_bytes",
        "Their bytes after packing.",
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
            "Times that a packed value or block was found damaged.",
        ),
    ] {
        scrape.counter(name, help, server.stats.get(stat) as f64);
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
    scrape.gauges("snug_families", "Families of strings, by verdict.", verdicts);
    let rows = server.family_sums.lock().rows(&families);
    for (n, name, help) in [
        (0, "snug_family_values", "Values packed, worth it or not, by family."),
        (1, "snug_family_raw_bytes", "Their bytes before packing."),
        (2, "snug_family_packed_bytes", "Their bytes after packing."),
        (3, "snug_family_left_by_policy", "Values that the policy left raw, by family."),
        (4, "snug_family_not_worth", "Values that did not save enough, by family."),
        (5, "snug_family_left_expiring", "Values left raw as they were soon to expire, by family."),
    ] {
        let values = rows.iter().map(|(name, row)| (label("family", name.clone()), row[n] as f64));
        scrape.counters(name, help, values.collect::<Vec<_>>());
    }
}

/// What a family has counted: of it, each metric of a family shows one.
type FamilyRow = [u64; 6];

/// What families have counted, so that their metrics never go down but by starting
/// anew. Which of them have a label of their own changes from scrape to scrape; the
/// others' sum therefore grows by what they count while they have none, and is not
/// what they have counted in all.
#[derive(Debug, Default)]
pub(crate) struct FamilySums {
    /// What each family that is there had counted at the last scrape.
    last: BTreeMap<Vec<u8>, FamilyRow>,
    others: FamilyRow,
}

impl FamilySums {
    /// The rows of families, those with most bytes first: the first of them by name,
    /// and the sum of the others if there are or were any.
    fn rows(&mut self, families: &[FamilyInfo]) -> BTreeMap<String, FamilyRow> {
        let last = std::mem::take(&mut self.last);
        let mut rows = BTreeMap::new();
        for (n, family) in families.iter().enumerate() {
            let stats = family.stats;
            let row = [
                stats.packed,
                stats.raw_bytes,
                stats.packed_bytes,
                family.skipped,
                family.not_worth,
                family.expiring,
            ];
            if n < FAMILIES_SHOWN {
                let name = String::from_utf8_lossy(&family.shape).into_owned();
                // Names that differ in bytes that are no UTF-8 share a row.
                let sum: &mut FamilyRow = rows.entry(name).or_default();
                sum.iter_mut().zip(row).for_each(|(sum, n)| *sum += n);
            } else {
                let before = last.get(&family.shape).copied().unwrap_or_default();
                for ((sum, now), before) in self.others.iter_mut().zip(row).zip(before) {
                    // One that was let go of begins anew.
                    *sum += now.checked_sub(before).unwrap_or(now);
                }
            }
            self.last.insert(family.shape.clone(), row);
        }
        if self.others != FamilyRow::default() {
            rows.insert("(others)".to_owned(), self.others);
        }
        rows
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
        "Dictionaries of strings: current, and replaced ones that values still need.",
        states,
    );
    scrape.gauge("snug_dictionaries_bytes", "What they weigh.", stats.memory_bytes as f64);
    scrape.counter(
        "snug_dictionaries_added",
        "Dictionaries of strings taken into use.",
        stats.added_total as f64,
    );
    scrape.counter(
        "snug_dictionaries_freed",
        "Dictionaries of strings freed.",
        stats.freed_total as f64,
    );
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
    let strings = server.timings.sum(|of| &of.strings);
    let large = server.timings.sum(|of| &of.large);
    let blocks = server.timings.sum(|of| &of.blocks);
    let times = [(STRING, strings), (LARGE_STRING, large), ("stream", blocks)];
    scrape.times(
        "snug_pack_seconds",
        "How long packing one value or block took.",
        times.map(|(of, times)| (label("type", of), times)),
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
    let turns = server.timings.sum(|of| &of.turns);
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
    let backlog = Backlog::of(server);
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
    use snug_codec::family::FamilyStats;

    #[test]
    fn the_older_format_names_counters_in_full() {
        let mut scrape = Scrape::default();
        scrape.counters("a", "What a is.", [(label("l", "x\"\\\n"), 2.0)]);
        scrape.gauge("b", "What b is.", 0.5);
        let (name, buckets) = ("c", vec![(0.5, 1), (f64::INFINITY, 2)]);
        let value = Value::Histogram(1.5, 3, buckets);
        scrape.add(MetricType::Histogram, name, "What c is.", vec![(Vec::new(), value)]);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(scrape));
        let mut open = String::new();
        text::encode(&mut open, &registry).unwrap();
        assert!(open.contains("# TYPE a counter\na_total{l=\"x\\\"\\\\\\n\"} 2"), "{open}");
        assert!(open.ends_with("# EOF\n"));
        let old = as_prometheus(&open);
        let expected =
            "# HELP a_total What a is.\n# TYPE a_total counter\na_total{l=\"x\\\"\\\\\\n\"} 2";
        assert!(old.starts_with(expected), "{old}");
        assert!(old.contains("# TYPE b gauge\nb{} 0.5\n") && !old.contains("EOF"));
        assert!(old.contains("c_bucket{le=\"0.5\"} 1\nc_bucket{le=\"+Inf\"} 3\n"), "{old}");
    }

    #[test]
    fn what_families_counted_never_goes_down() {
        let store = snug_store::Store::new(
            snug_store::StoreConfig::default(),
            Box::new(snug_store::Unobserved),
        );
        store.families().of(b"one:1");
        let one = store.families().all().remove(0);
        let family = |n: usize, packed: u64| FamilyInfo {
            shape: format!("f{n}").into_bytes(),
            stats: FamilyStats { packed, ..one.stats },
            ..one.clone()
        };
        let mut sums = FamilySums::default();
        let mut of = |counts: &[(usize, u64)]| {
            let families: Vec<_> = counts.iter().map(|&(n, packed)| family(n, packed)).collect();
            let rows = sums.rows(&families);
            let get = |name: &str| rows.get(name).map(|row| row[0]);
            (rows.len(), get("f0"), get("f99"), get("(others)"))
        };
        let mut all: Vec<(usize, u64)> = (0..FAMILIES_SHOWN).map(|n| (n, 10)).collect();
        assert_eq!(of(&all), (64, Some(10), None, None));
        all.push((99, 5));
        assert_eq!(of(&all), (65, Some(10), None, Some(5)));
        // They change places: what the one counted under its name is not told again.
        all[0].1 = 12;
        all[64].1 = 20;
        all.swap(0, 64);
        assert_eq!(of(&all), (65, None, Some(20), Some(7)));
        all[0].1 = 21;
        assert_eq!(of(&all), (65, None, Some(21), Some(7)));
        // One is let go of and comes again.
        all[64].1 = 3;
        assert_eq!(of(&all), (65, None, Some(21), Some(10)));
        all.pop();
        assert_eq!(of(&all), (65, None, Some(21), Some(10)));
    }

    #[test]
    fn names_are_told_once_and_are_of_the_form_that_is_asked() {
        let mut names: Vec<&str> = FROM_INFO.iter().map(|row| row.1).collect();
        assert!(names.iter().all(|name| name.starts_with("redis_") && !name.ends_with("_total")));
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
