//! Parameters that do nothing here: why, in words for the log and the help.
//!
//! Two kinds of them. Those of Redis 7.0 stand in the table: they are checked, and `CONFIG
//! GET` shows them. Those that came to Redis or Valkey later are passed over where a file
//! or a flag has them, so that a newer server's file can be taken as it is.

/// Beginnings of names, and why a parameter so called does nothing. The longest counts.
const REASONS: &[(&str, &str)] = &[
    ("activedefrag", "memory is not moved about: packing makes room"),
    ("active-defrag-", "memory is not moved about: packing makes room"),
    ("active-expire-effort", "the sweeper's time is set by sweep-budget-us"),
    ("activerehashing", "no table is ever rehashed as a whole"),
    ("always-show-logo", "there is no logo"),
    (
        "bind-source-addr",
        "connections to other servers leave from the address that the system picks",
    ),
    ("cluster-", "there is no bus between nodes of a cluster yet"),
    ("crash-", "a crash is logged in a line, without a report"),
    ("dynamic-hz", "the background's pace follows its work"),
    ("ignore-warnings", "nothing warns at the start that could be ignored"),
    ("io-threads", "commands run on all workers: see workers"),
    ("jemalloc-bg-thread", "the allocator is mimalloc"),
    ("lazyfree-lazy-server-del", "large values are always freed in the background"),
    ("lfu-decay-time", "counts decay as the sweeper passes"),
    ("list-", "lists are packed by pack, and have no other layout"),
    ("oom-score-adj", "the score is left as it was: set it in the unit"),
    ("proc-title-template", "the process keeps its name"),
    ("propagation-error-behavior", "a change that cannot be passed on ends the link"),
    ("rdb-del-sync-files", "data sets on their way leave no files"),
    ("repl-disable-tcp-nodelay", "links never wait to fill a packet"),
    ("replica-ignore-disk-write-errors", "a replica whose disk fails says so in INFO and goes on"),
    (
        "set-max-listpack-",
        "Redis 7.0 has no such encoding, and OBJECT ENCODING tells what 7.0 would",
    ),
    ("set-proc-title", "the process keeps its name"),
    ("socket-mark-id", "sockets are not marked"),
    ("syslog-", "the log goes to standard output or to logfile"),
    ("tls-dh-params-file", "only elliptic curves are used"),
    ("server_cpulist", "threads run where the system puts them: see taskset"),
    ("bio_cpulist", "threads run where the system puts them: see taskset"),
    ("aof_rewrite_cpulist", "threads run where the system puts them: see taskset"),
    ("bgsave_cpulist", "threads run where the system puts them: see taskset"),
];

/// Why a parameter of the table that has no effect has none.
pub(crate) fn reason(name: &str) -> &'static str {
    let fitting = REASONS.iter().filter(|(beginning, _)| name.starts_with(beginning));
    fitting.max_by_key(|(beginning, _)| beginning.len()).map_or("not done here", |(_, why)| why)
}

/// Parameters that came after Redis 7.0, to Redis or to Valkey, and do nothing here.
const LATER: &[&str] = &[
    "aof-rewrite-cpulist",
    "availability-zone",
    "bgsave-cpulist",
    "bio-cpulist",
    "cluster-announce-human-nodename",
    "cluster-blacklist-ttl",
    "cluster-ping-interval",
    "cluster-slot-stats-enabled",
    "dual-channel-replication-enabled",
    "events-per-io-thread",
    "extended-redis-compatibility",
    "locale-collate",
    "log-timestamp-format",
    "max-new-connections-per-cycle",
    "max-new-tls-connections-per-cycle",
    "prefetch-batch-max-size",
    "server-cpulist",
    "unixsocketgroup",
];

/// The parameter of a later server that has this name, if there is one.
pub(crate) fn of_later_servers(name: &[u8]) -> Option<&'static str> {
    LATER.iter().copied().find(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Why a line is refused that asks for what is not there.
pub(crate) fn refusal(name: &str) -> Option<&'static str> {
    match name {
        "loadmodule" => Some("modules cannot be loaded: Snug has none (take the line out)"),
        "sentinel" => Some(
            "that is for Sentinel, which Snug is not: run redis-sentinel, which watches Snug too",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{PARAMETERS, find};

    #[test]
    fn each_idle_parameter_says_why() {
        for declaration in PARAMETERS.iter().filter(|declaration| declaration.help.is_none()) {
            assert_ne!(
                reason(declaration.name),
                reason("nothing so called"),
                "{}",
                declaration.name
            );
        }
        for name in LATER {
            assert!(find(name.as_bytes()).is_none(), "{name} is in the table");
        }
    }
}
