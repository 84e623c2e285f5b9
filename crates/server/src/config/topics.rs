//! Topics of parameters, as the help and the sample configuration show them.
//!
//! A topic has names and beginnings of names. A parameter belongs to the topic that has
//! its name, else to the one with the longest beginning of it, else to the last topic. So
//! a new parameter needs a line here only where its name does not say enough.

use super::table::Declaration;
use super::{PARAMETERS, Param};

/// A topic.
#[derive(Debug)]
pub(crate) struct Topic {
    /// One word, to ask for it with.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// Names of its parameters, and beginnings of names, with a star.
    patterns: &'static [&'static str],
    /// Those that most people need first.
    pub first: &'static [Param],
}

/// All topics, in the order in which they are shown.
pub(crate) static TOPICS: &[Topic] = &[
    Topic {
        name: "network",
        about: "Where clients come in, and what each of them may take.",
        patterns: &[
            "port",
            "bind*",
            "unixsocket*",
            "tcp-*",
            "timeout",
            "client-*",
            "maxclients",
            "maxmemory-clients",
            "proto-max-bulk-len",
            "tracking-table-max-keys",
            "socket-mark-id",
        ],
        first: &[Param::Port, Param::Bind, Param::Unixsocket, Param::MaxClients],
    },
    Topic {
        name: "accounts",
        about: "Who may come in, and what each of them may do.",
        patterns: &["requirepass", "acl*", "protected-mode", "enable-*"],
        first: &[Param::RequirePass, Param::Aclfile, Param::ProtectedMode],
    },
    Topic {
        name: "tls",
        about: "Encrypted connections, and certificates.",
        patterns: &["tls-*"],
        first: &[Param::TlsPort, Param::TlsCertFile, Param::TlsKeyFile],
    },
    Topic {
        name: "memory",
        about: "How much memory may be used, and what happens at the limit.",
        patterns: &[
            "maxmemory*",
            "lfu-*",
            "lazyfree-*",
            "disable-thp",
            "lua-memory-limit",
            "active*",
            "jemalloc-*",
        ],
        first: &[Param::MaxMemory, Param::MaxMemoryPolicy],
    },
    Topic {
        name: "packing",
        about: "What is packed, when, and how much work that may be.",
        patterns: &["pack*"],
        first: &[Param::Pack, Param::PackColdAfter, Param::PackCpuPercent],
    },
    Topic {
        name: "disk",
        about: "Snapshots and the append-only file.",
        patterns: &[
            "dir",
            "save*",
            "dbfilename",
            "rdb*",
            "append*",
            "aof*",
            "auto-aof-*",
            "no-appendfsync-on-rewrite",
            "stop-writes-on-bgsave-error",
            "shutdown-*",
            "sanitize-*",
        ],
        first: &[Param::Dir, Param::Save, Param::AppendOnly, Param::Appendfsync],
    },
    Topic {
        name: "replication",
        about: "Whose replica this server is, and what its own replicas get.",
        patterns: &["repl*", "master*", "min-replicas-*"],
        first: &[Param::Replicaof, Param::Masterauth, Param::ReplBacklogSize],
    },
    Topic {
        name: "cluster",
        about: "Being a node of a cluster.",
        patterns: &["cluster-*"],
        first: &[Param::ClusterEnabled],
    },
    Topic {
        name: "watching",
        about: "The log, slow commands, latency, metrics.",
        patterns: &[
            "log*",
            "slowlog-*",
            "latency-*",
            "admin-*",
            "notify-keyspace-events",
            "syslog-*",
            "crash-*",
            "ignore-warnings",
        ],
        first: &[Param::LogFile, Param::LogLevel, Param::AdminPort, Param::SlowlogLogSlowerThan],
    },
    Topic {
        name: "types",
        about: "What OBJECT ENCODING tells of collections, and how streams are trimmed.",
        patterns: &["hash-*", "list-*", "set-max-*", "zset-*", "stream-*", "hll-*"],
        first: &[Param::StreamNodeMaxEntries],
    },
    Topic {
        name: "process",
        about: "Threads, the background, supervisors; and whatever else there is.",
        patterns: &["workers", "daemonize", "pidfile", "supervised", "databases", "hz"],
        first: &[Param::Workers, Param::Daemonize, Param::Supervised],
    },
];

/// The topic of a parameter.
pub(crate) fn topic_of(name: &str) -> &'static Topic {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) if name.starts_with(beginning) => Some(beginning.len()),
        None if name == pattern => Some(usize::MAX),
        _ => None,
    };
    let length = |topic: &Topic| topic.patterns.iter().filter_map(|pattern| fits(pattern)).max();
    let best = TOPICS.iter().filter_map(|topic| Some((length(topic)?, topic)));
    // Of equals the first, and the last topic if there is none.
    best.rev().max_by_key(|(length, _)| *length).map_or(&TOPICS[TOPICS.len() - 1], |best| best.1)
}

impl Topic {
    /// Its parameters that have an effect: those that most people need, then the rest in
    /// the table's order.
    pub(crate) fn parameters(&'static self) -> impl Iterator<Item = &'static Declaration> {
        let first = self.first.iter().map(|id| id.declaration());
        let rest = PARAMETERS.iter().filter(|declaration| {
            declaration.help.is_some()
                && std::ptr::eq(topic_of(declaration.name), self)
                && !self.first.iter().any(|id| id.declaration().name == declaration.name)
        });
        first.chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_is_in_one_topic() {
        let mut shown: Vec<&str> =
            TOPICS.iter().flat_map(Topic::parameters).map(|declaration| declaration.name).collect();
        let mut there: Vec<&str> = PARAMETERS
            .iter()
            .filter(|declaration| declaration.help.is_some())
            .map(|declaration| declaration.name)
            .collect();
        shown.sort_unstable();
        there.sort_unstable();
        assert_eq!(shown, there);
    }

    #[test]
    fn a_topic_names_what_is_there() {
        for topic in TOPICS {
            for pattern in topic.patterns {
                let of_it = |declaration: &&Declaration| {
                    std::ptr::eq(topic_of(declaration.name), topic)
                        && match pattern.strip_suffix('*') {
                            Some(beginning) => declaration.name.starts_with(beginning),
                            None => declaration.name == *pattern,
                        }
                };
                assert!(PARAMETERS.iter().any(|d| of_it(&d)), "{} {pattern}", topic.name);
            }
        }
    }
}
