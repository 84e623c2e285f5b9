//! `INFO`: Redis's sections and formats, and `# Packing` beside them.

use crate::auth::Categories;
use crate::commands;
use crate::commands::connection::REDIS_VERSION;
use crate::commands::memory::Usage;
use crate::config::Param;
use crate::engine::command::flags::*;
use crate::engine::command::{Answer, Command, Group};
use crate::engine::context::Context;
use crate::engine::out::Out;
use crate::engine::server::Server;
use crate::measure::latency::Times;
use crate::measure::stats::Stat;
use crate::outside::clock::unix_ms;
use crate::peers::{Link, Transfer};
use crate::persist::Running;
use crate::persist::saving::Kind;
use crate::request::args::Args;
use snug_store::{Batch, Type};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(crate) const COMMANDS: &[Command] = &[Command::new("info", -1, info)
    .flags(LOADING | STALE)
    .acl(Categories::DANGEROUS)
    .about(Group::Server, "1.0.0", "O(1)", "Returns figures and facts about the server.")];

/// What the sections are written from.
pub(crate) struct View<'v> {
    pub server: &'v Server,
    pub store: &'v Batch<'v>,
}

type Section = (&'static str, fn(&View<'_>, &mut String));

/// The sections in Redis's order; those before `commandstats` are the default.
const SECTIONS: &[Section] = &[
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory_section),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Modules", |_, _| {}),
    ("Commandstats", command_stats),
    ("Errorstats", error_stats),
    ("Latencystats", latency_stats),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
    ("Packing", packing),
    ("Tier", tier),
];

/// Sections shown only when asked for, by name, `all` or `everything`.
const ASKED_FOR: [&str; 2] = ["Commandstats", "Latencystats"];

fn info(cx: &mut Context<'_>, args: Args<'_>, out: &mut Out) -> Answer {
    let asked = |name: &str| args.iter_from(1).any(|arg| arg.eq_ignore_ascii_case(name.as_bytes()));
    let everything = asked("all") || asked("everything");
    let default = args.len() == 1 || asked("default");
    let view = View { server: cx.server, store: cx.store };
    let text = sections(&view, |name| {
        let by_default = default && !ASKED_FOR.contains(&name);
        everything || by_default || asked(name)
    });
    out.w().verbatim("txt", text.as_bytes());
    Ok(())
}

/// The sections that are shown without being asked for.
pub(crate) fn text(view: &View<'_>) -> String {
    sections(view, |name| !ASKED_FOR.contains(&name))
}

fn sections(view: &View<'_>, wanted: impl Fn(&str) -> bool) -> String {
    let mut text = String::with_capacity(4096);
    for &(name, write) in SECTIONS.iter().filter(|(name, _)| wanted(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        line(&mut text, format_args!("# {name}"));
        write(view, &mut text);
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(line);
    text.push_str("\r\n");
}

macro_rules! fields {
    ($text:ident, $($name:literal: $value:expr),* $(,)?) => {
        $(line($text, format_args!("{}:{}", $name, $value));)*
    };
}

fn server(cx: &View<'_>, text: &mut String) {
    let server = cx.server;
    let uptime = server.uptime_ms() / 1000;
    let mode = if server.cluster.enabled { "cluster" } else { "standalone" };
    let os = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let executable = std::env::current_exe().unwrap_or_default();
    let file = server.config.file.as_ref().map(|file| file.display().to_string());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    fields!(text,
        "redis_version": REDIS_VERSION,
        "snug_version": env!("CARGO_PKG_VERSION"),
        "redis_git_sha1": "00000000",
        "redis_git_dirty": 0,
        "redis_build_id": "snug",
        "redis_mode": mode,
        "os": format_args!("Linux {} {}", os.trim(), std::env::consts::ARCH),
        "arch_bits": usize::BITS,
        "monotonic_clock": "POSIX clock_gettime",
        "multiplexing_api": "epoll",
        "atomicvar_api": "rust-atomics",
        "process_id": std::process::id(),
        "process_supervised": "no",
        "run_id": server.run_id,
        "tcp_port": server.config.number(Param::Port),
        "server_time_usec": now.map_or(0, |now| now.as_micros()),
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime / 86_400,
        "hz": server.config.number(Param::Hz),
        "configured_hz": server.config.number(Param::Hz),
        "lru_clock": (cx.store.now() / 1000) & 0xff_ffff,
        "executable": executable.display(),
        "config_file": file.unwrap_or_default(),
        "io_threads_active": i32::from(server.workers > 1),
        "workers": server.workers,
    );
}

fn clients(cx: &View<'_>, text: &mut String) {
    let clients = cx.server.clients.read();
    let pubsub = clients.values().filter(|client| {
        let figures = &client.figures;
        figures.channels.load(Relaxed) + figures.patterns.load(Relaxed) > 0
    });
    let most = |of: fn(&crate::follow::clients::Figures) -> usize| {
        clients.values().map(|client| of(&client.figures)).max().unwrap_or(0)
    };
    let replicas = cx.server.peers.replicas().len();
    let (blocking_keys, blocking_keys_gone) = cx.server.blocked.keys();
    fields!(text,
        "connected_clients": clients.len().saturating_sub(replicas),
        "cluster_connections": 0,
        "maxclients": cx.server.config.number(Param::MaxClients),
        "client_recent_max_input_buffer": most(|f| f.query_bytes.load(Relaxed)),
        "client_recent_max_output_buffer": most(|f| f.output_bytes.load(Relaxed)),
        "blocked_clients": cx.server.blocked.clients() + cx.server.pause.clients(),
        "tracking_clients": cx.server.tracking.clients(),
        "pubsub_clients": pubsub.count(),
        "clients_in_timeout_table": cx.server.blocked.clients_with_timeout(),
        "total_blocking_keys": blocking_keys,
        "total_blocking_keys_on_nokey": blocking_keys_gone,
    );
}

/// Bytes as people read them: `1.50M`.
pub(crate) fn human(bytes: usize) -> String {
    let (n, unit) = match bytes as f64 {
        b if b < 1024.0 => return format!("{bytes}B"),
        b if b < 1024.0 * 1024.0 => (b / 1024.0, "K"),
        b if b < 1024.0 * 1024.0 * 1024.0 => (b / 1024.0 / 1024.0, "M"),
        b => (b / 1024.0 / 1024.0 / 1024.0, "G"),
    };
    format!("{n:.2}{unit}")
}

/// Resident bytes of this process.
pub(crate) fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|statm| statm.split(' ').nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// Memory of the machine, in bytes.
fn system_memory() -> usize {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}

fn memory_section(cx: &View<'_>, text: &mut String) {
    let usage = Usage::measure(cx);
    let (used, resident, peak) = (usage.used, usage.resident, usage.peak);
    let system = system_memory();
    let (lazy_pending, lazy_freed) = crate::work::reclaim::lazy_objects();
    let limit = cx.server.config.number(Param::MaxMemory) as usize;
    let (backlog, for_replicas) = cx.server.peers.memory(&cx.server.config);
    let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
    let (scripts, script_bytes) = cx.server.scripts.count();
    let (libraries, functions, library_bytes) = cx.server.libraries.count();
    fields!(text,
        "used_memory": used,
        "used_memory_human": human(used),
        "used_memory_rss": resident,
        "used_memory_rss_human": human(resident),
        "used_memory_peak": peak,
        "used_memory_peak_human": human(peak),
        "used_memory_peak_perc": format_args!("{:.2}%", percent(used, peak)),
        "used_memory_overhead": usage.overhead,
        "used_memory_startup": usage.startup,
        "used_memory_dataset": usage.dataset,
        "used_memory_dataset_perc": format_args!("{:.2}%", usage.dataset_percent()),
        "allocator_allocated": used,
        "allocator_active": resident,
        "allocator_resident": resident,
        "total_system_memory": system,
        "total_system_memory_human": human(system),
        "used_memory_lua": 0,
        "used_memory_vm_eval": 0,
        "used_memory_lua_human": human(0),
        "used_memory_scripts_eval": script_bytes,
        "number_of_cached_scripts": scripts,
        "number_of_functions": functions,
        "number_of_libraries": libraries,
        "used_memory_vm_functions": 0,
        "used_memory_vm_total": 0,
        "used_memory_vm_total_human": human(0),
        "used_memory_functions": library_bytes,
        "used_memory_scripts": script_bytes,
        "used_memory_scripts_human": human(script_bytes),
        "maxmemory": limit,
        "maxmemory_human": human(limit),
        "maxmemory_policy": cx.server.config.text(Param::MaxMemoryPolicy),
        "allocator_frag_ratio": format_args!("{:.2}", resident as f64 / used.max(1) as f64),
        "allocator_frag_bytes": resident.saturating_sub(used),
        "allocator_rss_ratio": "1.00",
        "allocator_rss_bytes": 0,
        "rss_overhead_ratio": "1.00",
        "rss_overhead_bytes": 0,
        "mem_fragmentation_ratio": format_args!("{:.2}", resident as f64 / used.max(1) as f64),
        "mem_fragmentation_bytes": resident.saturating_sub(used),
        "mem_not_counted_for_evict": cx.server.uncounted_memory(),
        "mem_replication_backlog": backlog,
        "mem_total_replication_buffers": backlog + for_replicas,
        "mem_clients_slaves": for_replicas,
        "mem_clients_normal": usage.clients,
        "mem_cluster_links": 0,
        "mem_aof_buffer": 0,
        "mem_allocator": "mimalloc",
        "active_defrag_running": 0,
        "lazyfree_pending_objects": lazy_pending,
        "lazyfreed_objects": lazy_freed,
    );
    for &kind in Type::ALL {
        let allocated = cx.store.store().type_memory(kind).allocated;
        line(text, format_args!("type_used_memory_{}:{allocated}", kind.name()));
    }
}

fn persistence(cx: &View<'_>, text: &mut String) {
    let persist = &cx.server.persist;
    let (figures, loading) = (&persist.figures, &persist.loading);
    let jobs = persist.jobs.lock();
    let running = |kind| jobs.running.filter(|running| running.kind == kind);
    let (saving, rewriting) = (running(Kind::Save), running(Kind::Rewrite));
    let status = |failed| if failed { "err" } else { "ok" };
    let seconds = |time: Option<Duration>| time.map_or(-1, |time| time.as_secs() as i64);
    let since = |running: Option<Running>| seconds(running.map(|running| running.began.elapsed()));
    let processed = jobs.running.map_or(0, |_| figures.keys_saved.load(Relaxed));
    let total = jobs.running.map_or(0, |running| running.keys_total);
    let percent = processed as f64 * 100.0 / total.max(1) as f64;
    let changes = cx.server.store.changes().saturating_sub(jobs.saved_changes);
    fields!(text,
        "loading": u8::from(persist.is_loading() || cx.server.peers.is_loading()),
        "async_loading": u8::from(cx.server.peers.loads_beside.load(Relaxed)),
        "current_cow_peak": 0,
        "current_cow_size": 0,
        "current_cow_size_age": 0,
        "current_fork_perc": format_args!("{:.2}", percent.min(100.0)),
        "current_save_keys_processed": processed,
        "current_save_keys_total": total,
        "rdb_changes_since_last_save": changes,
        "rdb_bgsave_in_progress": u8::from(saving.is_some()),
        "rdb_last_save_time": jobs.saved_at,
        "rdb_last_bgsave_status": status(jobs.save.failed),
        "rdb_last_bgsave_time_sec": seconds(jobs.save.took),
        "rdb_current_bgsave_time_sec": since(saving),
        "rdb_saves": jobs.save.count,
        "rdb_last_cow_size": 0,
        "rdb_last_load_keys_expired": loading.expired.load(Relaxed),
        "rdb_last_load_keys_loaded": loading.keys.load(Relaxed),
        "aof_enabled": u8::from(persist.is_aof_on()),
        "aof_rewrite_in_progress": u8::from(rewriting.is_some()),
        "aof_rewrite_scheduled": u8::from(jobs.rewrite_scheduled),
        "aof_last_rewrite_time_sec": seconds(jobs.rewrite.took),
        "aof_current_rewrite_time_sec": since(rewriting),
        "aof_last_bgrewrite_status": status(jobs.rewrite.failed),
        "aof_rewrites": jobs.rewrite.count,
        "aof_rewrites_consecutive_failures": jobs.rewrite.failures,
        "aof_last_write_status": status(persist.aof_error().is_some()),
        "aof_last_cow_size": 0,
    );
    if persist.is_aof_on() {
        fields!(text,
            "aof_current_size": figures.aof_size.load(Relaxed),
            "aof_base_size": figures.aof_rewritten_size.load(Relaxed),
            "aof_pending_rewrite": u8::from(figures.aof_wants_rewrite.load(Relaxed)),
            "aof_buffer_length": cx.server.journal.waiting(),
            "aof_pending_bio_fsync": u8::from(persist.stalled_ms() > 0),
            "aof_delayed_fsync": figures.slow_turns.load(Relaxed),
            "snug_aof_stalled_seconds": persist.stalled_ms() / 1000,
            "snug_aof_write_failures": figures.write_failures.load(Relaxed),
        );
    }
    if persist.is_loading() {
        let (loaded, total) = (loading.loaded(), loading.total.load(Relaxed));
        let began = loading.began_unix.load(Relaxed);
        let took = (unix_ms() / 1000).saturating_sub(began);
        let eta = match loaded {
            0 => 1,
            loaded => took * total.saturating_sub(loaded) / loaded,
        };
        fields!(text,
            "loading_start_time": began,
            "loading_total_bytes": total,
            "loading_rdb_used_mem": 0,
            "loading_loaded_bytes": loaded,
            "loading_loaded_perc": format_args!("{:.2}", loaded as f64 * 100.0 / total.max(1) as f64),
            "loading_eta_seconds": eta,
        );
    }
}

fn stats(cx: &View<'_>, text: &mut String) {
    let stats = &cx.server.stats;
    let rates = cx.server.rates.lock();
    let tracked = cx.server.tracking.sizes();
    let turns = cx.server.loops.total();
    let (cycles, cycle_us) = cx.server.loops.recent();
    let (exceeded_us, exceeding_us) = cx.server.exceeded.times_us(cx.server.uptime_us());
    fields!(text,
        "total_connections_received": stats.get(Stat::total_connections_received),
        "total_commands_processed": stats.get(Stat::total_commands_processed),
        "instantaneous_ops_per_sec": rates.operations,
        "total_net_input_bytes": stats.get(Stat::total_net_input_bytes),
        "total_net_output_bytes": stats.get(Stat::total_net_output_bytes),
        "total_net_repl_input_bytes": stats.get(Stat::total_net_repl_input_bytes),
        "total_net_repl_output_bytes": stats.get(Stat::total_net_repl_output_bytes),
        "instantaneous_input_kbps": format_args!("{:.2}", rates.input as f64 / 1024.0),
        "instantaneous_output_kbps": format_args!("{:.2}", rates.output as f64 / 1024.0),
        "instantaneous_input_repl_kbps": "0.00",
        "instantaneous_output_repl_kbps": "0.00",
        "rejected_connections": stats.get(Stat::rejected_connections),
        "sync_full": stats.get(Stat::sync_full),
        "sync_partial_ok": stats.get(Stat::sync_partial_ok),
        "sync_partial_err": stats.get(Stat::sync_partial_err),
        "expired_keys": cx.store.store().expired().saturating_sub(cx.server.expired_base.load(Relaxed)),
        "expired_stale_perc": "0.00",
        "expired_time_cap_reached_count": stats.get(Stat::expired_time_cap_reached),
        "expire_cycle_cpu_milliseconds": stats.get(Stat::sweeper_microseconds) / 1000,
        "evicted_keys": stats.get(Stat::evicted_keys),
        "evicted_clients": stats.get(Stat::evicted_clients),
        "total_eviction_exceeded_time": exceeded_us / 1000,
        "current_eviction_exceeded_time": exceeding_us / 1000,
        "keyspace_hits": stats.get(Stat::keyspace_hits),
        "keyspace_misses": stats.get(Stat::keyspace_misses),
        "pubsub_channels": cx.server.pubsub.names(false, |_| true).len(),
        "pubsub_patterns": cx.server.pubsub.patterns(),
        "pubsubshard_channels": cx.server.pubsub.names(true, |_| true).len(),
        "latest_fork_usec": 0,
        "total_forks": 0,
        "migrate_cached_sockets": 0,
        "slave_expires_tracked_keys": 0,
        "active_defrag_hits": 0,
        "active_defrag_misses": 0,
        "active_defrag_key_hits": 0,
        "active_defrag_key_misses": 0,
        "total_active_defrag_time": 0,
        "current_active_defrag_time": 0,
        "tracking_total_keys": tracked.0,
        "tracking_total_items": tracked.1,
        "tracking_total_prefixes": tracked.2,
        "unexpected_error_replies": stats.get(Stat::unexpected_error_replies),
        "total_error_replies": stats.get(Stat::total_error_replies),
        "dump_payload_sanitizations": 0,
        "total_reads_processed": stats.get(Stat::total_reads_processed),
        "total_writes_processed": stats.get(Stat::total_writes_processed),
        "io_threaded_reads_processed": 0,
        "io_threaded_writes_processed": 0,
        "reply_buffer_shrinks": 0,
        "reply_buffer_expands": 0,
        "acl_access_denied_auth": stats.get(Stat::acl_access_denied_auth),
        "client_query_buffer_limit_disconnections": stats.get(Stat::client_query_buffer_limit_disconnections),
        "client_output_buffer_limit_disconnections": stats.get(Stat::client_output_buffer_limit_disconnections),
        "eventloop_cycles": turns.cycles,
        "eventloop_duration_sum": turns.microseconds,
        "eventloop_duration_cmd_sum": cx.server.monitor.microseconds(),
        "instantaneous_eventloop_cycles_per_sec": cycles,
        "instantaneous_eventloop_duration_usec": cycle_us,
    );
}

fn replication(cx: &View<'_>, text: &mut String) {
    let (peers, config) = (&cx.server.peers, &cx.server.config);
    let (primary, now) = (peers.primary(), unix_ms());
    let stream = peers.stream();
    let backlog = &stream.backlog;
    let (end, active) = (backlog.end(), backlog.is_active());
    let size = config.number(Param::ReplBacklogSize) as u64;
    let kept = if active { backlog.len().min(size) } else { 0 };
    let first = if active { end - kept + 1 } else { 0 };
    let id = backlog.id.clone();
    let (second, upto) = match &backlog.second {
        Some((second, upto)) => (second.clone(), *upto as i64 + 1),
        None => ("0".repeat(40), -1),
    };
    drop(stream);
    fields!(text, "role": if primary.is_some() { "slave" } else { "master" });
    if let Some(primary) = &primary {
        let up = primary.link == Link::Connected;
        let transfers = primary.link == Link::Transfer;
        let silent = if up { now.saturating_sub(primary.heard) as i64 / 1000 } else { -1 };
        fields!(text,
            "master_host": primary.host,
            "master_port": primary.port,
            "master_link_status": if up { "up" } else { "down" },
            "master_last_io_seconds_ago": silent,
            "master_sync_in_progress": i32::from(transfers),
            "slave_read_repl_offset": end,
            "slave_repl_offset": end,
        );
        if transfers {
            let Transfer { total, read, heard } = primary.transfer;
            let total = total.map_or(-1, |total| total as i64);
            let share = 100.0 * read as f64 / total.max(1) as f64;
            fields!(text,
                "master_sync_total_bytes": total,
                "master_sync_read_bytes": read,
                "master_sync_left_bytes": if total < 0 { -1 } else { total - read as i64 },
                "master_sync_perc": format_args!("{:.2}", if total < 0 { 0.0 } else { share }),
                "master_sync_last_io_seconds_ago": now.saturating_sub(heard) / 1000,
            );
        }
        if let Some(since) = primary.down_since {
            fields!(text, "master_link_down_since_seconds": now.saturating_sub(since) / 1000);
        }
        fields!(text,
            "slave_priority": config.number(Param::ReplicaPriority),
            "slave_read_only": i32::from(config.is_on(Param::ReplicaReadOnly)),
            "replica_announced": i32::from(config.is_on(Param::ReplicaAnnounced)),
        );
    }
    let replicas = peers.replicas();
    fields!(text, "connected_slaves": replicas.len());
    if config.number(Param::MinReplicasToWrite) > 0 && config.number(Param::MinReplicasMaxLag) > 0 {
        fields!(text, "min_slaves_good_slaves": peers.good_replicas(config));
    }
    for (number, replica) in replicas.iter().enumerate() {
        line(
            text,
            format_args!(
                "slave{number}:ip={},port={},state={},offset={},lag={}",
                replica.address(),
                replica.introduction.port,
                replica.state(),
                replica.acknowledged(),
                replica.lag_seconds(now)
            ),
        );
    }
    fields!(text,
        "master_failover_state": peers.failover.lock().name(),
        "master_replid": id,
        "master_replid2": second,
        "master_repl_offset": end,
        "second_repl_offset": upto,
        "repl_backlog_active": i32::from(active),
        "repl_backlog_size": size,
        "repl_backlog_first_byte_offset": first,
        "repl_backlog_histlen": kept,
    );
}

/// CPU seconds of this process, or of one task of it: in the kernel and out of it.
fn cpu_seconds(task: &str) -> (f64, f64) {
    let stat = std::fs::read_to_string(format!("/proc/self/{task}stat")).unwrap_or_default();
    // Behind the name, which may hold spaces and ends with the last `)`.
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: Vec<f64> =
        fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    match ticks[..] {
        [user, system] => (system / 100.0, user / 100.0),
        _ => (0.0, 0.0),
    }
}

fn cpu(_: &View<'_>, text: &mut String) {
    let (system, user) = cpu_seconds("");
    // The task whose number is the process's.
    let (main_system, main_user) = cpu_seconds(&format!("task/{}/", std::process::id()));
    fields!(text,
        "used_cpu_sys": format_args!("{system:.6}"),
        "used_cpu_user": format_args!("{user:.6}"),
        "used_cpu_sys_children": "0.000000",
        "used_cpu_user_children": "0.000000",
        "used_cpu_sys_main_thread": format_args!("{main_system:.6}"),
        "used_cpu_user_main_thread": format_args!("{main_user:.6}"),
    );
}

fn command_stats(cx: &View<'_>, text: &mut String) {
    for command in commands::all() {
        let figures = cx.server.monitor.figures(command);
        if figures.calls + figures.rejected == 0 {
            continue;
        }
        let per_call = figures.microseconds as f64 / figures.calls.max(1) as f64;
        let name = command.full_name();
        line(
            text,
            format_args!(
                "cmdstat_{name}:calls={},usec={},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                figures.calls, figures.microseconds, figures.rejected, figures.failed
            ),
        );
    }
}

fn error_stats(cx: &View<'_>, text: &mut String) {
    for (code, count) in cx.server.monitor.errors() {
        line(text, format_args!("errorstat_{code}:count={count}"));
    }
}

/// The percentiles of `latency-tracking-info-percentiles`, in microseconds.
pub(crate) fn percentiles<'p>(
    times: &Times,
    percents: &'p str,
) -> impl Iterator<Item = (&'p str, f64)> {
    percents.split_ascii_whitespace().map(|percent| {
        let number: f64 = percent.parse().unwrap_or(0.0);
        (percent, times.percentile(number))
    })
}

/// Percentiles by command, over the buckets of its histogram.
fn latency_stats(cx: &View<'_>, text: &mut String) {
    let percents = cx.server.config.text(Param::LatencyTrackingInfoPercentiles);
    for command in commands::all() {
        let times = cx.server.monitor.times(command);
        if times.calls() == 0 {
            continue;
        }
        let shown = percentiles(&times, &percents)
            .map(|(percent, microseconds)| format!("p{percent}={microseconds:.3}"));
        let shown: Vec<String> = shown.collect();
        let name = command.full_name();
        line(text, format_args!("latency_percentiles_usec_{name}:{}", shown.join(",")));
    }
}

fn cluster(cx: &View<'_>, text: &mut String) {
    fields!(text, "cluster_enabled": i32::from(cx.server.cluster.enabled));
}

fn keyspace(cx: &View<'_>, text: &mut String) {
    let store = cx.store.store();
    for db in store.databases_used().filter(|&db| store.keys(db) > 0) {
        line(
            text,
            format_args!(
                "db{db}:keys={},expires={},avg_ttl={}",
                store.keys(db),
                store.expiring(db),
                cx.store.average_ttl(db)
            ),
        );
    }
}

fn tier(cx: &View<'_>, text: &mut String) {
    let (tiering, store) = (&cx.server.tiering, cx.store.store());
    if !tiering.is_on() {
        fields!(text, "tier_enabled": 0);
        return;
    }
    let (values, bytes, raw) = store.away();
    let (left, brought, lost) = store.tier().counts();
    let figures = store.tier().engine().map(|engine| engine.figures()).unwrap_or_default();
    let (health, why) = tiering.health();
    let waits = tiering.waits.load(Relaxed);
    fields!(text,
        "tier_enabled": 1,
        "tier_engine": cx.server.config.text(Param::TierEngine),
        "tier_status": health.name(),
        "tier_error": why,
        "tier_values": values,
        "tier_value_bytes": bytes,
        "tier_raw_bytes": raw,
        "tier_live_bytes": figures.live,
        "tier_file_bytes": figures.files_bytes,
        "tier_files": figures.files,
        "tier_engine_bytes": figures.memory,
        "tier_max_bytes": cx.server.config.number(Param::TierMaxBytes),
        "tier_values_left": left,
        "tier_values_brought": brought,
        "tier_values_lost": lost,
        "tier_written_bytes": figures.written,
        "tier_moved_bytes": figures.moved,
        "tier_read_bytes": figures.read,
        "tier_syncs": figures.syncs,
        "tier_write_errors": tiering.write_errors.load(Relaxed),
        "tier_waits": waits,
        "tier_room_waits": tiering.room_waits.load(Relaxed),
        "tier_wait_usec": tiering.waited_us.load(Relaxed).checked_div(waits).unwrap_or(0),
    );
}

fn packing(cx: &View<'_>, text: &mut String) {
    let (config, stats) = (&cx.server.config, &cx.server.stats);
    fields!(text, "pack": if config.is_on(Param::Pack) { "yes" } else { "no" });
    let families = cx.store.store().families();
    let dictionaries = families.dictionary_stats();
    let (slices, longest_slice) = cx.server.slices.figures();
    let workspaces = cx.server.workspaces.stats();
    let backlog = cx.server.backlog();
    let (fragments, fragment_bytes) = snug_store::held_fragments();
    let (mut from, mut into, mut raw) = (0, 0, 0);
    for &kind in Type::ALL {
        let memory = cx.store.store().type_memory(kind);
        let name = kind.name();
        line(text, format_args!("raw_bytes_{name}:{}", memory.raw));
        line(text, format_args!("packed_from_bytes_{name}:{}", memory.packed_from));
        line(text, format_args!("packed_bytes_{name}:{}", memory.packed));
        line(text, format_args!("values_raw_{name}:{}", memory.raw_values));
        line(text, format_args!("values_packed_{name}:{}", memory.packed_values));
        from += memory.packed_from;
        into += memory.packed;
        raw += memory.raw;
    }
    fields!(text,
        "raw_bytes": raw,
        "packed_from_bytes": from,
        "packed_bytes": into,
        "packed_ratio": format_args!("{:.2}", if into == 0 { 1.0 } else { from as f64 / into as f64 }),
        "saved_bytes": from.saturating_sub(into),
        "blocks_pending": cx.store.store().pending_blocks(),
        "blocks_packed": stats.get(Stat::packed_blocks),
        "blocks_left_raw": stats.get(Stat::pack_rejected),
        "pack_slices": slices,
        "pack_slice_longest_usec": longest_slice,
        "workspaces": workspaces.made,
        "workspaces_in_use": workspaces.lent,
        "workspaces_waited_for": workspaces.waiting,
        "workspace_waits": workspaces.waited_total,
        "workspace_wait_usec": cx.server.workspaces.waited().as_micros(),
        "strings_packed": stats.get(Stat::packed_strings),
        "strings_left_raw": stats.get(Stat::strings_left_raw),
        "strings_pending": backlog.strings,
        "pack_pass_seconds": format_args!("{:.3}", backlog.pass_seconds),
        "pack_pass_progress": format_args!("{:.3}", backlog.progress),
        "memory_pressure": format_args!("{:.2}", cx.server.pressure()),
        "strings_packed_ahead": stats.get(Stat::strings_packed_ahead),
        "saved_bytes_ahead": stats.get(Stat::bytes_saved_ahead),
        "values_damaged": stats.get(Stat::values_damaged),
        "string_families": families.len(),
        "string_dictionaries": dictionaries.live,
        "string_dictionaries_retired": dictionaries.superseded,
        "string_dictionary_bytes": dictionaries.memory_bytes,
        "key_fragments": fragments,
        "key_fragment_bytes": fragment_bytes,
        "dictionaries_trained": stats.get(Stat::dictionaries_trained),
        "dictionaries_rejected": stats.get(Stat::dictionaries_rejected),
        "pack_cpu_milliseconds": stats.get(Stat::pack_microseconds) / 1000,
        "sweeper_cpu_milliseconds": stats.get(Stat::sweeper_microseconds) / 1000,
    );
}
