//! What redis_exporter makes of `INFO`, under its names (`redis_*`), so that its
//! dashboards and alerts work as they are.
//!
//! Fields that are one number are in [`FROM_INFO`]. They are read from the text
//! that `INFO` answers and cannot say anything else.

use super::{Labels, SUMMARY_PART, Scrape, Value, label};
use crate::commands::{self, info};
use crate::config::Param;
use crate::engine::command::Command;
use crate::engine::monitor::CommandFigures;
use crate::engine::server::Server;
use crate::outside::clock::unix_ms;
use snug_store::DATABASES;
use std::collections::{BTreeMap, BTreeSet};

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
    ("process_id", "redis_process_id", Gauge, "Id of the server's process."),
    ("hz", "redis_hz", Gauge, "Rounds of background work a second."),
    (
        "configured_hz",
        "redis_configured_hz",
        Gauge,
        "Rounds of background work a second, as configured by hz.",
    ),
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
        "Keys that clients wait for and whose removal ends the wait.",
    ),
    (
        "client_recent_max_output_buffer",
        "redis_client_recent_max_output_buffer_bytes",
        Gauge,
        "Bytes of the longest queue of replies that waits for one client.",
    ),
    (
        "client_recent_max_input_buffer",
        "redis_client_recent_max_input_buffer_bytes",
        Gauge,
        "Bytes of the largest unfinished request of one client.",
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
    (
        "total_system_memory",
        "redis_total_system_memory_bytes",
        Gauge,
        "Bytes of memory that the machine has.",
    ),
    ("maxmemory", "redis_memory_max_bytes", Gauge, "Bytes that maxmemory allows; 0 for no limit."),
    (
        "allocator_active",
        "redis_allocator_active_bytes",
        Gauge,
        "Bytes of the pages that the allocator holds.",
    ),
    ("allocator_allocated", "redis_allocator_allocated_bytes", Gauge, "Bytes allocated."),
    ("allocator_resident", "redis_allocator_resident_bytes", Gauge, "Bytes resident."),
    (
        "allocator_frag_ratio",
        "redis_allocator_frag_ratio",
        Gauge,
        "Bytes of the allocator's pages for each byte allocated.",
    ),
    (
        "allocator_frag_bytes",
        "redis_allocator_frag_bytes",
        Gauge,
        "Bytes of the allocator's pages that are not allocated.",
    ),
    (
        "allocator_rss_ratio",
        "redis_allocator_rss_ratio",
        Gauge,
        "Resident bytes for each byte of the allocator's pages.",
    ),
    (
        "allocator_rss_bytes",
        "redis_allocator_rss_bytes",
        Gauge,
        "Resident bytes less the bytes of the allocator's pages.",
    ),
    (
        "mem_fragmentation_ratio",
        "redis_mem_fragmentation_ratio",
        Gauge,
        "Resident bytes for each byte allocated.",
    ),
    (
        "mem_fragmentation_bytes",
        "redis_mem_fragmentation_bytes",
        Gauge,
        "Resident bytes less the bytes allocated.",
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
    ("active_defrag_hits", "redis_defrag_hits", Gauge, "Values that defragmentation moved."),
    (
        "active_defrag_misses",
        "redis_defrag_misses",
        Gauge,
        "Values that defragmentation left in place.",
    ),
    (
        "active_defrag_key_hits",
        "redis_defrag_key_hits",
        Gauge,
        "Keys of which defragmentation moved something.",
    ),
    (
        "active_defrag_key_misses",
        "redis_defrag_key_misses",
        Gauge,
        "Keys of which defragmentation moved nothing.",
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
    (
        "rdb_last_cow_size",
        "redis_rdb_last_cow_size_bytes",
        Gauge,
        "Bytes that the last snapshot copied because they changed meanwhile.",
    ),
    ("aof_enabled", "redis_aof_enabled", Gauge, "Whether there is an append-only file."),
    (
        "aof_rewrite_in_progress",
        "redis_aof_rewrite_in_progress",
        Gauge,
        "Whether the append-only file is being rewritten.",
    ),
    (
        "aof_rewrite_scheduled",
        "redis_aof_rewrite_scheduled",
        Gauge,
        "Whether a rewrite of the append-only file is due.",
    ),
    (
        "aof_last_rewrite_time_sec",
        "redis_aof_last_rewrite_duration_sec",
        Gauge,
        "Seconds that the last rewrite of the append-only file took.",
    ),
    (
        "aof_current_rewrite_time_sec",
        "redis_aof_current_rewrite_duration_sec",
        Gauge,
        "Seconds that the running rewrite of the append-only file has taken so far.",
    ),
    (
        "aof_last_cow_size",
        "redis_aof_last_cow_size_bytes",
        Gauge,
        "Bytes that the last rewrite of the append-only file copied because they changed meanwhile.",
    ),
    (
        "aof_last_bgrewrite_status",
        "redis_aof_last_bgrewrite_status",
        Status,
        "Whether the last rewrite of the append-only file was a success.",
    ),
    (
        "aof_last_write_status",
        "redis_aof_last_write_status",
        Status,
        "Whether the last write to the append-only file was a success.",
    ),
    (
        "snug_aof_stalled_seconds",
        "snug_aof_stalled_seconds",
        Gauge,
        "Seconds for which the disk has not answered the append-only file; there while it is on.",
    ),
    (
        "aof_delayed_fsync",
        "snug_aof_slow_writes",
        Counter,
        "Writes and syncs of the append-only file that took more than two seconds.",
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
    (
        "sync_partial_ok",
        "redis_replica_partial_resync_accepted",
        Gauge,
        "Partial resynchronisations of replicas.",
    ),
    (
        "sync_partial_err",
        "redis_replica_partial_resync_denied",
        Gauge,
        "Requests of replicas for a partial resynchronisation that had to be a full one.",
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
    ("keyspace_misses", "redis_keyspace_misses", Counter, "Reads that found no key."),
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
        "migrate_cached_sockets",
        "redis_migrate_cached_sockets",
        Counter,
        "Connections kept for MIGRATE.",
    ),
    (
        "slave_expires_tracked_keys",
        "redis_slave_expires_tracked_keys",
        Gauge,
        "Keys whose expiry a writable replica follows.",
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
    (
        "repl_backlog_active",
        "redis_repl_backlog_is_active",
        Gauge,
        "Whether there is a replication backlog.",
    ),
    (
        "repl_backlog_first_byte_offset",
        "redis_repl_backlog_first_byte_offset",
        Gauge,
        "Offset of the first byte in the replication backlog.",
    ),
    (
        "repl_backlog_histlen",
        "redis_repl_backlog_history_bytes",
        Gauge,
        "Bytes in the replication backlog.",
    ),
    ("master_repl_offset", "redis_master_repl_offset", Gauge, "Offset of replication."),
    (
        "second_repl_offset",
        "redis_second_repl_offset",
        Gauge,
        "Offset up to which the second replication ID is accepted.",
    ),
    ("used_cpu_sys", "redis_cpu_sys_seconds", Counter, "CPU seconds in the kernel."),
    ("used_cpu_user", "redis_cpu_user_seconds", Counter, "CPU seconds outside of the kernel."),
    (
        "used_cpu_sys_children",
        "redis_cpu_sys_children_seconds",
        Counter,
        "CPU seconds of child processes in the kernel.",
    ),
    (
        "used_cpu_user_children",
        "redis_cpu_user_children_seconds",
        Counter,
        "CPU seconds of child processes outside of the kernel.",
    ),
    (
        "cluster_enabled",
        "redis_cluster_enabled",
        Gauge,
        "Whether the server is a node of a cluster.",
    ),
];

pub(super) fn gather(scrape: &mut Scrape, server: &Server) {
    let mut session = server.store.session();
    let text = {
        let batch = session.enter(unix_ms());
        info::text(&info::View { server, store: &batch })
    };
    let fields: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(':')).collect();
    scrape.gauge("redis_up", "Whether the server answers.", 1.0);
    let help = "When the server was started, Unix seconds.";
    scrape.gauge("redis_start_time_seconds", help, server.started_unix as f64);
    from_info(scrape, &fields);
    of_databases(scrape, &fields);
    of_commands(scrape, server);
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

/// From lines such as `db0:keys=1,expires=0,avg_ttl=0`. `INFO` has none for an empty
/// database: it has no keys here, and no time to live.
fn of_databases(scrape: &mut Scrape, fields: &BTreeMap<&str, &str>) {
    let part = |text: &str, name: &str| -> Option<f64> {
        let mut parts = text.split(',').filter_map(|part| part.split_once('='));
        parts.find(|(found, _)| *found == name)?.1.parse().ok()
    };
    let all = |of: &str, scale: f64, empty: Option<f64>| -> Vec<(Labels, f64)> {
        let one = |db| {
            let name = format!("db{db}");
            let value = match fields.get(&name[..]) {
                Some(text) => part(text, of).map(|value| value * scale),
                None => empty,
            };
            Some((label("db", name), value?))
        };
        let used = fields.keys().filter_map(|name| name.strip_prefix("db")?.parse().ok());
        let more: BTreeSet<usize> = used.filter(|&db| db >= DATABASES).collect();
        (0..DATABASES).chain(more).filter_map(one).collect()
    };
    let none = Some(0.0);
    scrape.gauges("redis_db_keys", "Keys by database.", all("keys", 1.0, none));
    let help = "Keys that expire, by database.";
    scrape.gauges("redis_db_keys_expiring", help, all("expires", 1.0, none));
    let help = "Mean seconds that keys with a time to live have left, by database.";
    scrape.gauges("redis_db_avg_ttl_seconds", help, all("avg_ttl", 1e-3, None));
}

/// A command that was called, or would have been.
struct Used {
    command: &'static Command,
    figures: CommandFigures,
}

impl Used {
    fn labels(&self) -> Labels {
        label("cmd", self.command.full_name())
    }
}

fn of_commands(scrape: &mut Scrape, server: &Server) {
    let used: Vec<_> = commands::all()
        .iter()
        .map(|command| Used { command, figures: server.monitor.figures(command) })
        .filter(|used| used.figures.calls + used.figures.rejected > 0)
        .collect();
    let each = |of: fn(&CommandFigures) -> f64| -> Vec<(Labels, f64)> {
        used.iter().map(|used| (used.labels(), of(&used.figures))).collect()
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
    of_latencies(scrape, server, &used);
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
        scrape.gauge(
            "redis_slowlog_last_id",
            "Number of the last entry in the slow log.",
            last.id as f64,
        );
        let took = last.microseconds as f64 / 1e6;
        let help = "Time that the last command in the slow log took.";
        scrape.gauge("redis_last_slow_execution_duration_seconds", help, took);
    }
}

/// What `INFO latencystats` tells, with counts and sums from `commandstats`.
fn of_latencies(scrape: &mut Scrape, server: &Server, used: &[Used]) {
    let percents = server.config.text(Param::LatencyTrackingInfoPercentiles);
    let (mut quantiles, mut sums, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for used in used {
        let times = server.monitor.times(used.command);
        if times.calls() == 0 {
            continue;
        }
        for (percent, microseconds) in info::percentiles(&times, &percents) {
            let mut labels = used.labels();
            labels.push(("quantile", percent.to_owned()));
            quantiles.push((labels, Value::Number(microseconds)));
        }
        sums.push((used.labels(), Value::Number(used.figures.microseconds as f64)));
        counts.push((used.labels(), Value::Number(used.figures.calls as f64)));
    }
    let help = "Microseconds that so many percent of calls do not exceed, by command.";
    scrape.add(SUMMARY_PART, "redis_latency_percentiles_usec", help, quantiles);
    let help = "Microseconds of all calls, by command.";
    scrape.add(SUMMARY_PART, "redis_latency_percentiles_usec_sum", help, sums);
    let help = "Calls, by command.";
    scrape.add(SUMMARY_PART, "redis_latency_percentiles_usec_count", help, counts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_once_and_are_of_the_form_that_is_asked() {
        let mut names: Vec<&str> = FROM_INFO.iter().map(|row| row.1).collect();
        let is_ours = |name: &str| name.starts_with("redis_") || name.starts_with("snug_");
        assert!(names.iter().all(|name| is_ours(name) && !name.ends_with("_total")));
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
