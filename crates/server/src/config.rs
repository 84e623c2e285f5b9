//! Configuration: every parameter declared once, in [`PARAMETERS`]. `CONFIG
//! GET` and `SET`, flags, the configuration file, `--help` and the
//! documentation all derive from that table.
//!
//! A value is kept as the text that `CONFIG GET` shows and, where it has one,
//! as a number that hot paths read with one relaxed load.

use crate::glob;
use crate::notify::Class;
use parking_lot::RwLock;
use snug_codec::policy::Policy;
use snug_resp::split_args;
use std::io::Read as _;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// What values a parameter takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A whole number within bounds.
    Int { min: i64, max: i64 },
    /// A whole number; what lies beyond these is brought to the nearer of them.
    Clamped { min: i64, max: i64 },
    /// A number in octal, as permissions of files are written.
    Octal { max: i64 },
    /// A number of bytes, with `k`, `kb`, `m`, `mb`, `g`, `gb` understood.
    Memory { min: i64, max: i64 },
    /// A number of bytes, or a percentage of `maxmemory`, kept as a negative number.
    MemoryOrPercent,
    /// One of these words.
    Enum(&'static [&'static str]),
    /// One or more of these words.
    Words(&'static [&'static str]),
    /// Any text.
    Text,
    /// What a client can send in an HTTP header.
    Token,
    /// The name of a file in `dir`, or of what the text says: no path.
    FileName(&'static str),
    /// `seconds changes` for any number of moments to save at.
    Save,
    /// Three scores for the system's killer when memory is out.
    OomScores,
    /// Letters of keyspace notifications.
    Events,
    /// `class hard soft seconds` for one or more classes of clients.
    OutputLimits,
    /// Percentiles, each from 0 to 100.
    Percentiles,
    /// A packing policy in JSON.
    Policy,
}

/// Whether a parameter can be set while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// By any client that may use `CONFIG`.
    Allowed,
    /// By whom `enable-protected-configs` lets: it says where files are written.
    Protected,
    Never,
}

/// A parameter's declaration.
#[derive(Debug)]
pub(crate) struct Declaration {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    /// Whether `CONFIG SET` may change it.
    pub change: Change,
    /// One line of help.
    pub help: &'static str,
}

macro_rules! parameters {
    ($($id:ident $name:literal $kind:expr, $default:literal, $change:ident, $help:literal;)*) => {
        /// Each parameter, as an index into [`PARAMETERS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::enum_variant_names)]
        pub(crate) enum Param { $($id),* }

        /// Every parameter there is.
        pub(crate) const PARAMETERS: &[Declaration] = &[$(Declaration {
            name: $name, kind: $kind, default: $default, change: $change, help: $help,
        }),*];

        const IDS: &[Param] = &[$(Param::$id),*];
    };
}

const MUTABLE: Change = Change::Allowed;
const PROTECTED: Change = Change::Protected;
const FIXED: Change = Change::Never;
const ANY: Kind = Kind::Int { min: 0, max: i64::MAX };
/// What a C `int` that is not negative holds.
const NATURAL: Kind = Kind::Int { min: 0, max: i32::MAX as i64 };
const PORT: Kind = Kind::Int { min: 0, max: 65_535 };
const BYTES: Kind = Kind::Memory { min: 0, max: i64::MAX };
const ACCESS: Kind = Kind::Enum(&["no", "yes", "local"]);
/// Places among the values of [`ACCESS`].
pub(crate) const ACCESS_NO: i64 = 0;
pub(crate) const ACCESS_LOCAL: i64 = 2;

parameters! {
    Port "port" PORT, "6379", MUTABLE, "TCP port to listen on; 0 for none.";
    Bind "bind" Kind::Text, "127.0.0.1", MUTABLE, "Addresses to listen on.";
    Dir "dir" Kind::Text, ".", PROTECTED, "Directory to work in.";
    Workers "workers" Kind::Int { min: 0, max: 64 }, "0", FIXED, "Worker threads; 0 for one per core.";
    TcpBacklog "tcp-backlog" PORT, "511", FIXED, "Length of the queue of connections to be accepted.";
    TcpKeepalive "tcp-keepalive" NATURAL, "300", MUTABLE, "Seconds between TCP keepalive probes; 0 for none.";
    Timeout "timeout" NATURAL, "0", MUTABLE, "Seconds after which an idle client is disconnected; 0 for never.";
    AdminPort "admin-port" PORT, "0", FIXED, "TCP port of metrics, health and policy over HTTP; 0 for none.";
    AdminBind "admin-bind" Kind::Text, "127.0.0.1", FIXED, "Addresses that the admin port listens on.";
    AdminToken "admin-token" Kind::Token, "", MUTABLE, "Bearer token that the admin port asks for; empty for that of admin-token-file.";
    AdminTokenFile "admin-token-file" Kind::Text, "snug-admin.token", FIXED, "File of the admin port's token, made with a new one if it is not there.";
    MaxClients "maxclients" Kind::Int { min: 1, max: 1_000_000 }, "10000", MUTABLE, "Most clients connected at once.";
    Databases "databases" Kind::Int { min: 1, max: 16 }, "16", FIXED, "Logical databases.";
    RequirePass "requirepass" Kind::Text, "", MUTABLE, "Password of the default user; empty for none.";
    ProtoMaxBulkLen "proto-max-bulk-len" Kind::Memory { min: 1_048_576, max: i64::MAX }, "536870912", MUTABLE, "Longest string, in bytes.";
    ClientQueryBufferLimit "client-query-buffer-limit" Kind::Memory { min: 1_048_576, max: i64::MAX }, "1073741824", MUTABLE, "Most bytes of requests buffered for one client.";
    ClientOutputBufferLimit "client-output-buffer-limit" Kind::OutputLimits, "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", MUTABLE, "Most bytes of replies waiting for a client, by class: hard, soft, seconds.";
    MaxMemory "maxmemory" BYTES, "0", MUTABLE, "Most bytes of memory to use; 0 for no limit.";
    MaxMemoryPolicy "maxmemory-policy" Kind::Enum(&["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction"]), "noeviction", MUTABLE, "What is evicted at the limit.";
    NotifyKeyspaceEvents "notify-keyspace-events" Kind::Events, "", MUTABLE, "Classes of keyspace events to publish.";
    SlowlogLogSlowerThan "slowlog-log-slower-than" Kind::Int { min: -1, max: i64::MAX }, "10000", MUTABLE, "Microseconds from which on a command is logged as slow; -1 for never.";
    SlowlogMaxLen "slowlog-max-len" ANY, "128", MUTABLE, "Entries kept in the slow log.";
    LatencyMonitorThreshold "latency-monitor-threshold" ANY, "0", MUTABLE, "Milliseconds from which on an event is recorded; 0 for never.";
    LatencyTracking "latency-tracking" Kind::Bool, "yes", MUTABLE, "Keep a latency histogram per command.";
    EnableDebugCommand "enable-debug-command" ACCESS, "local", FIXED, "Who may use DEBUG.";
    EnableProtectedConfigs "enable-protected-configs" ACCESS, "no", FIXED, "Who may set dir and dbfilename at run time: they say where files are written.";
    ClusterEnabled "cluster-enabled" Kind::Bool, "no", FIXED, "Be a node of a cluster.";
    ClusterRequireFullCoverage "cluster-require-full-coverage" Kind::Bool, "yes", MUTABLE, "Refuse all keys while a slot has no owner.";
    ClusterAllowReadsWhenDown "cluster-allow-reads-when-down" Kind::Bool, "no", MUTABLE, "Answer reads while the cluster is down.";
    ClusterAllowPubsubshardWhenDown "cluster-allow-pubsubshard-when-down" Kind::Bool, "yes", MUTABLE, "Serve shard channels while the cluster is down.";
    ClusterAnnounceIp "cluster-announce-ip" Kind::Text, "", MUTABLE, "Address to tell cluster clients.";
    ClusterConfigFile "cluster-config-file" Kind::Text, "nodes.conf", FIXED, "Where cluster state is kept.";
    ClusterNodeTimeout "cluster-node-timeout" ANY, "15000", MUTABLE, "Milliseconds until a node counts as failing.";
    ActiveExpire "active-expire-effort" Kind::Int { min: 1, max: 10 }, "1", MUTABLE, "How hard the sweeper looks for expired keys.";
    SweepBudget "sweep-budget-us" Kind::Int { min: 50, max: 100_000 }, "1000", MUTABLE, "Microseconds that one turn of the sweeper may spend on expired keys.";
    Hz "hz" Kind::Clamped { min: 1, max: 500 }, "10", MUTABLE, "Turns of background work per second.";
    StreamNodeMaxEntries "stream-node-max-entries" ANY, "100", MUTABLE, "Granularity of approximate trimming, in entries; 0 for no limit.";
    StreamNodeMaxBytes "stream-node-max-bytes" BYTES, "4096", MUTABLE, "Granularity of approximate trimming of large entries, in bytes; 0 for no limit.";
    Save "save" Kind::Save, "", MUTABLE, "Kept for compatibility until snapshots arrive.";
    AppendOnly "appendonly" Kind::Enum(&["no"]), "no", MUTABLE, "Kept for compatibility until the append-only file arrives.";
    LogFormat "log-format" Kind::Enum(&["human", "json"]), "human", FIXED, "Form of the log.";
    LogLevel "loglevel" Kind::Enum(&["debug", "verbose", "notice", "warning", "nothing"]), "notice", MUTABLE, "How much is logged.";
    LogFile "logfile" Kind::Text, "", FIXED, "File to log to; empty for standard output.";
    LazyfreeLazyUserFlush "lazyfree-lazy-user-flush" Kind::Bool, "no", MUTABLE, "FLUSHALL and FLUSHDB free in the background unless told SYNC.";
    LazyfreeLazyUserDel "lazyfree-lazy-user-del" Kind::Bool, "no", MUTABLE, "DEL frees as UNLINK does.";
    ProtectedMode "protected-mode" Kind::Bool, "yes", MUTABLE, "Refuse other machines while there is no password.";
    Daemonize "daemonize" Kind::Enum(&["no"]), "no", FIXED, "Always no: whoever starts the server runs it in the background.";
    AlwaysShowLogo "always-show-logo" Kind::Bool, "no", FIXED, "Accepted for compatibility, without effect.";
    SetProcTitle "set-proc-title" Kind::Bool, "yes", FIXED, "Accepted for compatibility, without effect.";
    CrashLogEnabled "crash-log-enabled" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    DynamicHz "dynamic-hz" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    Activerehashing "activerehashing" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    Activedefrag "activedefrag" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    LazyfreeLazyEviction "lazyfree-lazy-eviction" Kind::Bool, "no", MUTABLE, "What is evicted is freed as UNLINK does.";
    LazyfreeLazyExpire "lazyfree-lazy-expire" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    LazyfreeLazyServerDel "lazyfree-lazy-server-del" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    ReplicaLazyFlush "replica-lazy-flush" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    StopWritesOnBgsaveError "stop-writes-on-bgsave-error" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    Rdbcompression "rdbcompression" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    Rdbchecksum "rdbchecksum" Kind::Bool, "yes", FIXED, "Accepted for compatibility, without effect.";
    AofUseRdbPreamble "aof-use-rdb-preamble" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    AofLoadTruncated "aof-load-truncated" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    NoAppendfsyncOnRewrite "no-appendfsync-on-rewrite" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    ReplicaServeStaleData "replica-serve-stale-data" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    ReplicaReadOnly "replica-read-only" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    ReplicaIgnoreMaxmemory "replica-ignore-maxmemory" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    ReplDisklessSync "repl-diskless-sync" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    ReplDisableTcpNodelay "repl-disable-tcp-nodelay" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    JemallocBgThread "jemalloc-bg-thread" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    DisableThp "disable-thp" Kind::Bool, "yes", FIXED, "Memory in pages of 4 KiB: clearing a huge one would stop a worker for milliseconds.";
    IoThreadsDoReads "io-threads-do-reads" Kind::Bool, "no", FIXED, "Accepted for compatibility, without effect.";
    ReplicaPriority "replica-priority" NATURAL, "100", MUTABLE, "Accepted for compatibility, without effect.";
    MinReplicasToWrite "min-replicas-to-write" NATURAL, "0", MUTABLE, "Replicas without which writes are refused; 0 for none. There are no replicas yet.";
    MinReplicasMaxLag "min-replicas-max-lag" NATURAL, "10", MUTABLE, "Seconds after which a replica that was not heard of does not count; 0 to write without replicas.";
    ReplPingReplicaPeriod "repl-ping-replica-period" Kind::Int { min: 1, max: i32::MAX as i64 }, "10", MUTABLE, "Accepted for compatibility, without effect.";
    ReplTimeout "repl-timeout" Kind::Int { min: 1, max: i32::MAX as i64 }, "60", MUTABLE, "Accepted for compatibility, without effect.";
    ReplBacklogTtl "repl-backlog-ttl" ANY, "3600", MUTABLE, "Accepted for compatibility, without effect.";
    ReplDisklessSyncDelay "repl-diskless-sync-delay" NATURAL, "5", MUTABLE, "Accepted for compatibility, without effect.";
    BusyReplyThreshold "busy-reply-threshold" ANY, "5000", MUTABLE, "Accepted for compatibility, without effect.";
    HashMaxListpackEntries "hash-max-listpack-entries" ANY, "512", MUTABLE, "Accepted for compatibility, without effect.";
    HashMaxListpackValue "hash-max-listpack-value" BYTES, "64", MUTABLE, "Accepted for compatibility, without effect.";
    ListMaxListpackSize "list-max-listpack-size" Kind::Int { min: i32::MIN as i64, max: i32::MAX as i64 }, "-2", MUTABLE, "Accepted for compatibility, without effect.";
    ListCompressDepth "list-compress-depth" NATURAL, "0", MUTABLE, "Accepted for compatibility, without effect.";
    SetMaxIntsetEntries "set-max-intset-entries" ANY, "512", MUTABLE, "Accepted for compatibility, without effect.";
    SetMaxListpackEntries "set-max-listpack-entries" ANY, "128", MUTABLE, "Accepted for compatibility, without effect.";
    SetMaxListpackValue "set-max-listpack-value" ANY, "64", MUTABLE, "Accepted for compatibility, without effect.";
    ZsetMaxListpackEntries "zset-max-listpack-entries" ANY, "128", MUTABLE, "Accepted for compatibility, without effect.";
    ZsetMaxListpackValue "zset-max-listpack-value" BYTES, "64", MUTABLE, "Accepted for compatibility, without effect.";
    MaxmemorySamples "maxmemory-samples" Kind::Int { min: 1, max: i32::MAX as i64 }, "5", MUTABLE, "Keys looked at for each that is evicted.";
    MaxmemoryEvictionTenacity "maxmemory-eviction-tenacity" Kind::Int { min: 0, max: 100 }, "10", MUTABLE, "How long one command may evict: 50 microseconds each up to 10, each above 15 % longer, 100 without end.";
    LfuLogFactor "lfu-log-factor" NATURAL, "10", MUTABLE, "How much less likely each read of a key is counted than the one before, with an LFU policy.";
    LfuDecayTime "lfu-decay-time" NATURAL, "1", MUTABLE, "Accepted for compatibility, without effect.";
    AutoAofRewritePercentage "auto-aof-rewrite-percentage" NATURAL, "100", MUTABLE, "Accepted for compatibility, without effect.";
    TrackingTableMaxKeys "tracking-table-max-keys" ANY, "1000000", MUTABLE, "Accepted for compatibility, without effect.";
    AcllogMaxLen "acllog-max-len" ANY, "128", MUTABLE, "Accepted for compatibility, without effect.";
    IoThreads "io-threads" Kind::Int { min: 1, max: 128 }, "1", FIXED, "Accepted for compatibility, without effect.";
    ShutdownTimeout "shutdown-timeout" NATURAL, "10", MUTABLE, "Accepted for compatibility, without effect.";
    ActiveDefragThresholdLower "active-defrag-threshold-lower" Kind::Int { min: 0, max: 1000 }, "10", MUTABLE, "Accepted for compatibility, without effect.";
    ActiveDefragThresholdUpper "active-defrag-threshold-upper" Kind::Int { min: 0, max: 1000 }, "100", MUTABLE, "Accepted for compatibility, without effect.";
    ActiveDefragCycleMin "active-defrag-cycle-min" Kind::Int { min: 1, max: 99 }, "1", MUTABLE, "Accepted for compatibility, without effect.";
    ActiveDefragCycleMax "active-defrag-cycle-max" Kind::Int { min: 1, max: 99 }, "25", MUTABLE, "Accepted for compatibility, without effect.";
    ClusterMigrationBarrier "cluster-migration-barrier" NATURAL, "1", MUTABLE, "Accepted for compatibility, without effect.";
    ClusterReplicaValidityFactor "cluster-replica-validity-factor" NATURAL, "10", MUTABLE, "Accepted for compatibility, without effect.";
    ClusterAnnouncePort "cluster-announce-port" PORT, "0", MUTABLE, "Accepted for compatibility, without effect.";
    ClusterAnnounceBusPort "cluster-announce-bus-port" PORT, "0", MUTABLE, "Accepted for compatibility, without effect.";
    ReplBacklogSize "repl-backlog-size" BYTES, "1048576", MUTABLE, "Accepted for compatibility, without effect.";
    AutoAofRewriteMinSize "auto-aof-rewrite-min-size" BYTES, "67108864", MUTABLE, "Accepted for compatibility, without effect.";
    HllSparseMaxBytes "hll-sparse-max-bytes" BYTES, "3000", MUTABLE, "Accepted for compatibility, without effect.";
    ActiveDefragIgnoreBytes "active-defrag-ignore-bytes" BYTES, "104857600", MUTABLE, "Accepted for compatibility, without effect.";
    MaxmemoryClients "maxmemory-clients" Kind::MemoryOrPercent, "0", MUTABLE, "Accepted for compatibility, without effect.";
    Dbfilename "dbfilename" Kind::FileName("filename"), "dump.rdb", PROTECTED, "Accepted for compatibility, without effect.";
    Appendfilename "appendfilename" Kind::FileName("filename"), "appendonly.aof", FIXED, "Accepted for compatibility, without effect.";
    Appenddirname "appenddirname" Kind::FileName("dirname"), "appendonlydir", FIXED, "Accepted for compatibility, without effect.";
    Pidfile "pidfile" Kind::Text, "", FIXED, "Accepted for compatibility, without effect.";
    Appendfsync "appendfsync" Kind::Enum(&["everysec", "always", "no"]), "everysec", MUTABLE, "Accepted for compatibility, without effect.";
    Masterauth "masterauth" Kind::Text, "", MUTABLE, "Accepted for compatibility, without effect.";
    Masteruser "masteruser" Kind::Text, "", MUTABLE, "Accepted for compatibility, without effect.";
    Replicaof "replicaof" Kind::Enum(&[""]), "", FIXED, "Whose replica to be; replication is not supported yet, so only empty.";
    Aclfile "aclfile" Kind::Enum(&[""]), "", FIXED, "File of users; not supported yet, so only empty.";
    Unixsocket "unixsocket" Kind::Enum(&[""]), "", FIXED, "Unix socket to listen on; not supported yet, so only empty.";
    ProcTitleTemplate "proc-title-template" Kind::Text, "{title} {listen-addr} {server-mode}", MUTABLE, "Accepted for compatibility, without effect.";
    OomScoreAdj "oom-score-adj" Kind::Enum(&["no", "yes", "relative", "absolute"]), "no", MUTABLE, "Accepted for compatibility, without effect.";
    Supervised "supervised" Kind::Enum(&["upstart", "systemd", "auto", "no"]), "no", FIXED, "Accepted for compatibility, without effect.";
    LatencyTrackingInfoPercentiles "latency-tracking-info-percentiles" Kind::Percentiles, "50 99 99.9", MUTABLE, "Percentiles that INFO latencystats shows.";
    ClusterAnnounceHostname "cluster-announce-hostname" Kind::Text, "", MUTABLE, "Accepted for compatibility, without effect.";
    ClusterPreferredEndpointType "cluster-preferred-endpoint-type" Kind::Enum(&["ip", "hostname", "unknown-endpoint"]), "ip", MUTABLE, "Accepted for compatibility, without effect.";
    RdbDelSyncFiles "rdb-del-sync-files" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    ReplDisklessSyncMaxReplicas "repl-diskless-sync-max-replicas" NATURAL, "0", MUTABLE, "Accepted for compatibility, without effect.";
    ReplDisklessLoad "repl-diskless-load" Kind::Enum(&["disabled", "on-empty-db", "swapdb"]), "disabled", MUTABLE, "Accepted for compatibility, without effect.";
    OomScoreAdjValues "oom-score-adj-values" Kind::OomScores, "0 200 800", MUTABLE, "Accepted for compatibility, without effect.";
    AofTimestampEnabled "aof-timestamp-enabled" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    AofRewriteIncrementalFsync "aof-rewrite-incremental-fsync" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    RdbSaveIncrementalFsync "rdb-save-incremental-fsync" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    EnableModuleCommand "enable-module-command" ACCESS, "no", FIXED, "Accepted for compatibility, without effect.";
    Unixsocketperm "unixsocketperm" Kind::Octal { max: 0o777 }, "0", FIXED, "Accepted for compatibility, without effect.";
    SyslogEnabled "syslog-enabled" Kind::Bool, "no", FIXED, "Accepted for compatibility, without effect.";
    SyslogIdent "syslog-ident" Kind::Text, "redis", FIXED, "Accepted for compatibility, without effect.";
    SyslogFacility "syslog-facility" Kind::Enum(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]), "local0", FIXED, "Accepted for compatibility, without effect.";
    ServerCpulist "server_cpulist" Kind::Text, "", FIXED, "Accepted for compatibility, without effect.";
    BioCpulist "bio_cpulist" Kind::Text, "", FIXED, "Accepted for compatibility, without effect.";
    AofRewriteCpulist "aof_rewrite_cpulist" Kind::Text, "", FIXED, "Accepted for compatibility, without effect.";
    BgsaveCpulist "bgsave_cpulist" Kind::Text, "", FIXED, "Accepted for compatibility, without effect.";
    ShutdownOnSigterm "shutdown-on-sigterm" Kind::Words(&["default", "save", "nosave", "now", "force"]), "default", MUTABLE, "Accepted for compatibility, without effect.";
    ShutdownOnSigint "shutdown-on-sigint" Kind::Words(&["default", "save", "nosave", "now", "force"]), "default", MUTABLE, "Accepted for compatibility, without effect.";
    BindSourceAddr "bind-source-addr" Kind::Text, "", MUTABLE, "Accepted for compatibility, without effect.";
    SocketMarkId "socket-mark-id" Kind::Int { min: 0, max: u32::MAX as i64 }, "0", FIXED, "Accepted for compatibility, without effect.";
    AclPubsubDefault "acl-pubsub-default" Kind::Enum(&["allchannels", "resetchannels"]), "resetchannels", MUTABLE, "Accepted for compatibility, without effect.";
    ReplicaAnnounceIp "replica-announce-ip" Kind::Text, "", MUTABLE, "Accepted for compatibility, without effect.";
    ReplicaAnnouncePort "replica-announce-port" PORT, "0", MUTABLE, "Accepted for compatibility, without effect.";
    ReplicaAnnounced "replica-announced" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    ClusterPort "cluster-port" PORT, "0", FIXED, "Accepted for compatibility, without effect.";
    ClusterAllowReplicaMigration "cluster-allow-replica-migration" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    ClusterReplicaNoFailover "cluster-replica-no-failover" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    ClusterLinkSendbufLimit "cluster-link-sendbuf-limit" BYTES, "0", MUTABLE, "Accepted for compatibility, without effect.";
    ClusterAnnounceTlsPort "cluster-announce-tls-port" PORT, "0", MUTABLE, "Accepted for compatibility, without effect.";
    SanitizeDumpPayload "sanitize-dump-payload" Kind::Enum(&["no", "yes", "clients"]), "no", MUTABLE, "Accepted for compatibility, without effect.";
    ActiveDefragMaxScanFields "active-defrag-max-scan-fields" Kind::Int { min: 1, max: i64::MAX }, "1000", MUTABLE, "Accepted for compatibility, without effect.";
    AofDisableAutoGc "aof-disable-auto-gc" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    CrashMemcheckEnabled "crash-memcheck-enabled" Kind::Bool, "yes", MUTABLE, "Accepted for compatibility, without effect.";
    IgnoreWarnings "ignore-warnings" Kind::Text, "", MUTABLE, "Accepted for compatibility, without effect.";
    PropagationErrorBehavior "propagation-error-behavior" Kind::Enum(&["ignore", "panic", "panic-on-replicas"]), "ignore", MUTABLE, "Accepted for compatibility, without effect.";
    ReplicaIgnoreDiskWriteErrors "replica-ignore-disk-write-errors" Kind::Bool, "no", MUTABLE, "Accepted for compatibility, without effect.";
    TlsPort "tls-port" Kind::Enum(&["0"]), "0", MUTABLE, "TCP port for TLS; not supported yet, so only 0.";
    Pack "pack" Kind::Bool, "yes", MUTABLE, "Keep data packed.";
    PackMinSize "pack-min-size" BYTES, "64", MUTABLE, "Smallest value worth packing, in bytes.";
    PackMinSaving "pack-min-saving" Kind::Int { min: -100_000, max: 99 }, "30", MUTABLE, "Percent that packing must save, or a value stays raw; below 0 for tests.";
    PackColdAfter "pack-cold-after" Kind::Int { min: 0, max: 1_000_000_000 }, "5", MUTABLE, "Seconds without access after which a value is cold.";
    PackCpuPercent "pack-cpu-percent" Kind::Int { min: 1, max: 100 }, "10", MUTABLE, "Percent of each worker's time that packing may take while clients keep it busy; a tenth of that where they take all of it.";
    PackLevel "pack-level" Kind::Int { min: -7, max: 22 }, "1", MUTABLE, "zstd level of packing.";
    PackDictionarySize "pack-dictionary-size" Kind::Memory { min: 0, max: 112_640 }, "16384", MUTABLE, "Size of a trained dictionary, in bytes, of streams of long texts four times that; 0 for none.";
    PackPolicy "pack-policy" Kind::Policy, "{}", MUTABLE, "Which values are packed, and with what: a policy in JSON.";
    PackPolicyFile "pack-policy-file" Kind::Text, "", FIXED, "File of the policy to begin with, unless pack-policy is given.";
    PackSliceUs "pack-slice-us" Kind::Int { min: 20, max: 10_000 }, "50", MUTABLE, "Longest uninterrupted codec work on a worker, in microseconds.";
    PackWorkspaces "pack-workspaces" Kind::Int { min: 1, max: 64 }, "2", FIXED, "Values above 64 KiB that each worker packs or unpacks at once, each in a workspace of its own.";
}

/// The live configuration.
pub(crate) struct Config {
    texts: RwLock<Vec<String>>,
    numbers: [AtomicI64; PARAMETERS.len()],
    /// `client-output-buffer-limit`, parsed: every message published needs it.
    output_limits: RwLock<OutputLimits>,
    /// The configuration file, if one was given.
    pub file: Option<std::path::PathBuf>,
    /// The policy as `pack-policy-file` has it, in the form of `pack-policy`.
    policy_of_file: RwLock<Option<String>>,
}

/// One parameter by the name clients use.
pub(crate) fn find(name: &[u8]) -> Option<Param> {
    let name = std::str::from_utf8(name).ok()?;
    let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
    let name = alias.map_or(name, |(_, name)| name);
    IDS.iter().copied().find(|id| id.declaration().name.eq_ignore_ascii_case(name))
}

/// Other names of parameters, which `CONFIG` knows too.
pub(crate) const ALIASES: &[(&str, &str)] = &[
    ("slave-serve-stale-data", "replica-serve-stale-data"),
    ("slave-read-only", "replica-read-only"),
    ("slave-ignore-maxmemory", "replica-ignore-maxmemory"),
    ("slave-priority", "replica-priority"),
    ("slave-lazy-flush", "replica-lazy-flush"),
    ("slave-announce-ip", "replica-announce-ip"),
    ("slave-announce-port", "replica-announce-port"),
    ("slaveof", "replicaof"),
    ("cluster-slave-no-failover", "cluster-replica-no-failover"),
    ("cluster-slave-validity-factor", "cluster-replica-validity-factor"),
    ("min-slaves-to-write", "min-replicas-to-write"),
    ("min-slaves-max-lag", "min-replicas-max-lag"),
    ("repl-ping-slave-period", "repl-ping-replica-period"),
    ("lua-time-limit", "busy-reply-threshold"),
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
];

impl Param {
    /// Whether its value is a secret, to be kept out of logs.
    pub(crate) fn is_secret(self) -> bool {
        matches!(self, Self::RequirePass | Self::Masterauth | Self::AdminToken)
    }

    pub(crate) fn declaration(self) -> &'static Declaration {
        &PARAMETERS[self as usize]
    }

    /// Every parameter.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        IDS.iter().copied()
    }

    /// Checks a value: the text to show for it and its number.
    pub(crate) fn check(self, value: &str) -> Result<(String, i64), String> {
        let within = |n: i64, min: i64, max: i64, shown: String| {
            if n < min || n > max {
                Err(format!("argument must be between {min} and {max} inclusive"))
            } else {
                Ok((shown, n))
            }
        };
        match self.declaration().kind {
            Kind::Bool => match value.to_ascii_lowercase().as_str() {
                "yes" => Ok(("yes".into(), 1)),
                "no" => Ok(("no".into(), 0)),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            Kind::Int { min, max } => {
                let n = value.parse().map_err(|_| "argument couldn't be parsed into an integer")?;
                within(n, min, max, value.into())
            }
            Kind::Clamped { min, max } => {
                let n = value.parse().map_err(|_| "argument couldn't be parsed into an integer")?;
                let (_, n) = within(n, 0, i64::from(i32::MAX), String::new())?;
                let n = n.clamp(min, max);
                Ok((n.to_string(), n))
            }
            Kind::Octal { max } => {
                let n = i64::from_str_radix(value, 8)
                    .map_err(|_| "argument couldn't be parsed as an octal number")?;
                if (0..=max).contains(&n) {
                    Ok((format!("{n:o}"), n))
                } else {
                    Err(format!("argument must be between 0 and {max:o} inclusive"))
                }
            }
            Kind::Memory { min, max } => {
                let n = parse_memory(value).ok_or("argument must be a memory value")?;
                within(n, min, max, n.to_string())
            }
            Kind::MemoryOrPercent => {
                let percent = value.strip_suffix('%').and_then(|n| n.parse::<i64>().ok());
                match percent.filter(|&percent| percent >= 0) {
                    Some(percent @ 0..=100) => Ok((format!("{percent}%"), -percent)),
                    Some(_) => Err("percentage argument must be less or equal to 100".into()),
                    None => {
                        let n = parse_memory(value);
                        let n = n.ok_or("argument must be a memory or percent value")?;
                        within(n, 0, i64::MAX, n.to_string())
                    }
                }
            }
            Kind::Enum(words) => {
                let n = place(words, value)?;
                Ok((words[n].into(), n as i64))
            }
            Kind::Words(words) => {
                let places = value.split_ascii_whitespace().map(|word| place(words, word));
                let places = places.collect::<Result<Vec<usize>, String>>()?;
                // No word at all is not one of them.
                let Some(&first) = places.first() else { return Err(one_of(words)) };
                let shown: Vec<&str> = places.iter().map(|&place| words[place]).collect();
                Ok((shown.join(" "), first as i64))
            }
            Kind::FileName(what) if value.contains('/') => {
                Err(format!("{} can't be a path, just a {what}", self.declaration().name))
            }
            Kind::FileName(_) => Ok((value.into(), 0)),
            Kind::Save => Ok((save_points(value)?, 0)),
            Kind::OomScores => Ok((oom_scores(value)?, 0)),
            Kind::Text => Ok((value.into(), 0)),
            Kind::Token => {
                let cannot = value != value.trim() || value.chars().any(char::is_control);
                if cannot {
                    return Err("argument must be what an HTTP header can carry: no control characters, and no spaces at its ends".into());
                }
                Ok((value.into(), 0))
            }
            Kind::Events => {
                let class = Class::parse(value)
                    .ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
                Ok((class.letters(), i64::from(class.0)))
            }
            Kind::OutputLimits => {
                let limits = OutputLimits::default().parse(value)?;
                Ok((limits.to_string(), 0))
            }
            Kind::Percentiles => {
                let name = self.declaration().name;
                let one = |word: &str| match word.parse::<f64>() {
                    Err(_) => Err(format!("Invalid {name} parameters")),
                    Ok(n) if (0.0..=100.0).contains(&n) => Ok(percentile(n)),
                    Ok(_) => Err(format!("{name} parameters should sit between [0.0,100.0]")),
                };
                let shown = value.split_ascii_whitespace().map(one);
                Ok((shown.collect::<Result<Vec<String>, String>>()?.join(" "), 0))
            }
            Kind::Policy => Ok((policy_text(&parse_policy(value)?), 0)),
        }
    }
}

fn one_of(words: &[&str]) -> String {
    if words == [""] {
        return "not supported yet, so it must be empty".into();
    }
    format!("argument(s) must be one of the following: {}", words.join(", "))
}

/// The place of a word among those there are.
fn place(words: &[&str], word: &str) -> Result<usize, String> {
    words.iter().position(|known| known.eq_ignore_ascii_case(word)).ok_or_else(|| one_of(words))
}

/// Moments to save at, `seconds changes` each; none at all for an empty text.
fn save_points(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let fits = |(place, word): (usize, &&str)| {
        let least = i64::from(place.is_multiple_of(2));
        word.parse::<i64>().is_ok_and(|n| n >= least)
    };
    // Spaces alone say nothing, which is not the same as an empty text.
    let blank = words.is_empty() && !text.is_empty();
    if blank || !words.len().is_multiple_of(2) || !words.iter().enumerate().all(fits) {
        return Err("Invalid save parameters".into());
    }
    Ok(words.join(" "))
}

/// Scores of the main process, of a replica and of children.
fn oom_scores(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.len() != 3 {
        return Err("wrong number of arguments".into());
    }
    let fits = |word: &&str| word.parse::<i64>().is_ok_and(|n| (-2000..=2000).contains(&n));
    if !words.iter().all(fits) {
        let why = "Invalid oom-score-adj-values, elements must be between -2000 and 2000.";
        return Err(why.into());
    }
    Ok(words.join(" "))
}

/// A percentile as it is shown: `50`, `99.9`.
fn percentile(percentile: f64) -> String {
    format!("{percentile:.6}").trim_end_matches('0').trim_end_matches('.').into()
}

/// The longest policy that is read, in bytes.
pub(crate) const POLICY_BYTES_MAX: usize = 256 * 1024;

/// Reads a policy; nothing at all is the policy without opinions. The error says
/// what is wrong and where.
pub(crate) fn parse_policy(json: &str) -> Result<Policy, String> {
    if json.len() > POLICY_BYTES_MAX {
        return Err(format!("the policy is longer than {POLICY_BYTES_MAX} bytes"));
    }
    match json.trim() {
        "" => Ok(Policy::default()),
        // The library would take a list for the fields in their order.
        json if !json.starts_with('{') => Err("a policy is a JSON object".into()),
        json => serde_json::from_str(json).map_err(|e| e.to_string()),
    }
}

/// A policy as `CONFIG GET` shows it.
pub(crate) fn policy_text(policy: &Policy) -> String {
    // A map of strings and numbers always is JSON.
    serde_json::to_string(policy).unwrap_or_default()
}

/// A number of bytes as Redis reads it: `100`, `1k` (1,000), `1kb` (1,024) ...
pub(crate) fn parse_memory(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit: i64 = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    if text.is_empty() {
        return Some(0);
    }
    text[..digits].parse::<i64>().ok()?.checked_mul(unit)
}

/// Limits on replies that wait for a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    pub hard: u64,
    pub soft: u64,
    pub soft_seconds: u64,
}

/// Those of each class of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputLimits {
    pub normal: OutputLimit,
    pub replica: OutputLimit,
    pub pubsub: OutputLimit,
}

impl Default for OutputLimits {
    fn default() -> Self {
        let limit = |hard, soft, soft_seconds| OutputLimit { hard, soft, soft_seconds };
        Self {
            normal: limit(0, 0, 0),
            replica: limit(256 << 20, 64 << 20, 60),
            pubsub: limit(32 << 20, 8 << 20, 60),
        }
    }
}

impl OutputLimits {
    /// These limits with the classes named in `text` changed.
    pub(crate) fn parse(mut self, text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if words.is_empty() || !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.".into());
        }
        for four in words.chunks(4) {
            let class = match four[0].to_ascii_lowercase().as_str() {
                "normal" => &mut self.normal,
                "slave" | "replica" => &mut self.replica,
                "pubsub" => &mut self.pubsub,
                _ => {
                    return Err(
                        "Invalid client class specified in buffer limit configuration.".into()
                    );
                }
            };
            let bytes = |word| parse_memory(word).and_then(|n| u64::try_from(n).ok());
            let limit = bytes(four[1]).zip(bytes(four[2])).zip(four[3].parse().ok());
            let ((hard, soft), soft_seconds) = limit.ok_or(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            )?;
            *class = OutputLimit { hard, soft, soft_seconds };
        }
        Ok(self)
    }
}

impl std::fmt::Display for OutputLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let one = |l: OutputLimit| format!("{} {} {}", l.hard, l.soft, l.soft_seconds);
        let (normal, replica, pubsub) = (one(self.normal), one(self.replica), one(self.pubsub));
        write!(f, "normal {normal} slave {replica} pubsub {pubsub}")
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        let checked = Param::all().map(|id| {
            let default = id.declaration().default;
            id.check(default)
                .unwrap_or_else(|e| panic!("default of {}: {e}", id.declaration().name))
        });
        let (texts, numbers): (Vec<_>, Vec<_>) = checked.unzip();
        Self {
            texts: RwLock::new(texts),
            numbers: std::array::from_fn(|i| AtomicI64::new(numbers[i])),
            output_limits: RwLock::default(),
            file: None,
            policy_of_file: RwLock::default(),
        }
    }
}

impl Config {
    /// The number of a parameter: of a `Bool` 0 or 1, of an `Enum` its index.
    #[inline]
    pub(crate) fn number(&self, id: Param) -> i64 {
        self.numbers[id as usize].load(Relaxed)
    }

    /// Whether a `Bool` is on.
    #[inline]
    pub(crate) fn is_on(&self, id: Param) -> bool {
        self.number(id) != 0
    }

    /// The text of a parameter, as `CONFIG GET` shows it.
    pub(crate) fn text(&self, id: Param) -> String {
        self.texts.read()[id as usize].clone()
    }

    /// Sets a parameter to a value, checked.
    pub(crate) fn set(&self, id: Param, value: &str) -> Result<(), String> {
        let (text, number) = match id.declaration().kind {
            // Classes that are not named keep their limits.
            Kind::OutputLimits => {
                let limits = self.output_limits().parse(value)?;
                *self.output_limits.write() = limits;
                (limits.to_string(), 0)
            }
            _ => id.check(value)?,
        };
        self.texts.write()[id as usize] = text;
        self.numbers[id as usize].store(number, Relaxed);
        Ok(())
    }

    /// The output-buffer limits.
    pub(crate) fn output_limits(&self) -> OutputLimits {
        *self.output_limits.read()
    }

    /// Reads `pack-policy-file`, if one is named: its policy holds unless
    /// `pack-policy` says another. The error is one line for a person.
    pub(crate) fn read_policy_file(&self) -> Result<(), String> {
        let file = self.text(Param::PackPolicyFile);
        if file.is_empty() {
            return Ok(());
        }
        let context = |e: &dyn std::fmt::Display| format!("pack-policy-file '{file}': {e}");
        let text = std::fs::File::open(&file).and_then(|open| {
            let mut text = String::new();
            open.take(POLICY_BYTES_MAX as u64 + 1).read_to_string(&mut text).map(|_| text)
        });
        let policy = parse_policy(&text.map_err(|e| context(&e))?).map_err(|e| context(&e))?;
        let text = policy_text(&policy);
        if self.text(Param::PackPolicy) == Param::PackPolicy.declaration().default {
            self.set(Param::PackPolicy, &text).map_err(|e| context(&e))?;
        }
        *self.policy_of_file.write() = Some(text);
        Ok(())
    }

    /// Whether the policy in force is what `pack-policy-file` says.
    fn policy_is_of_file(&self) -> bool {
        self.policy_of_file.read().as_ref() == Some(&self.text(Param::PackPolicy))
    }

    /// Whether a parameter need not stand in the configuration file: it has its
    /// default, or what another file says.
    fn goes_without_saying(&self, id: Param) -> bool {
        let text = self.text(id);
        match id {
            Param::PackPolicy if self.policy_of_file.read().is_some() => self.policy_is_of_file(),
            _ => text == Self::default().text(id),
        }
    }

    /// Reads flags as `redis-server` takes them: an optional configuration
    /// file, then `--name value ...` pairs; a `-` before or behind all of them
    /// has more of the file read from standard input. The error is one line for
    /// a person.
    pub(crate) fn from_flags(flags: &[String]) -> Result<Self, String> {
        let mut config = Self::default();
        let (mut flags, mut input) = (flags, false);
        if let [rest @ .., last] = flags
            && last == "-"
        {
            (flags, input) = (rest, true);
        }
        if let [first, rest @ ..] = flags
            && first == "-"
        {
            (flags, input) = (rest, true);
        }
        if let Some((file, rest)) =
            flags.split_first().filter(|(first, _)| !first.starts_with("--"))
        {
            config.read_file(file, 0)?;
            // The server changes into `dir`, where a relative name means another file.
            let absolute = std::path::absolute(file);
            config.file =
                Some(absolute.map_err(|e| format!("can't open config file '{file}': {e}"))?);
            flags = rest;
        }
        if input {
            let mut text = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut text);
            read.map_err(|e| format!("can't read standard input: {e}"))?;
            config.read_lines(&text, "standard input", 0)?;
        }
        let mut at = 0;
        while at < flags.len() {
            let Some(name) = flags[at].strip_prefix("--") else {
                return Err(format!("'{}' is not a parameter: they begin with --", flags[at]));
            };
            let values = flags[at + 1..].iter().take_while(|word| !word.starts_with("--"));
            let values: Vec<&str> = values.map(String::as_str).collect();
            // `--save` alone is an empty one.
            let missing = values.is_empty() && find(name.as_bytes()) != Some(Param::Save);
            config.set_named(name, &values.join(" "), missing)?;
            at += 1 + values.len();
        }
        Ok(config)
    }

    /// Writes the values in force into the configuration file: lines that
    /// name a parameter are brought up to date, everything else stays as it
    /// is, and what differs from its default is added at the end. The file is
    /// replaced in one step or not at all.
    pub(crate) fn rewrite(&self, file: &std::path::Path) -> std::io::Result<()> {
        let old = std::fs::read_to_string(file).unwrap_or_default();
        let mut written = Vec::new();
        let mut new = String::new();
        for line in old.lines() {
            let name = line.split_ascii_whitespace().next().unwrap_or_default();
            match find(name.as_bytes()) {
                Some(id) if written.contains(&id) => continue,
                // Another file says it, and may say something else by and by.
                Some(Param::PackPolicy) if self.policy_is_of_file() => continue,
                Some(id) => {
                    written.push(id);
                    new += &self.line(id);
                }
                None => new += line,
            }
            new.push('\n');
        }
        for id in Param::all().filter(|id| !written.contains(id)) {
            if !self.goes_without_saying(id) {
                new += &self.line(id);
                new.push('\n');
            }
        }
        let beside = file.with_extension("rewriting");
        std::fs::write(&beside, new)?;
        std::fs::rename(beside, file)
    }

    /// A parameter as a line of the configuration file.
    fn line(&self, id: Param) -> String {
        let (name, value) = (id.declaration().name, self.text(id));
        let kind = id.declaration().kind;
        let words = matches!(
            kind,
            Kind::OutputLimits | Kind::Percentiles | Kind::Save | Kind::OomScores | Kind::Words(_)
        ) || matches!(id, Param::Bind | Param::AdminBind);
        let plain = !value.is_empty()
            && value.bytes().all(|b| b.is_ascii_graphic() && !b"\"'\\#".contains(&b));
        if plain || (words && !value.is_empty()) {
            return format!("{name} {value}");
        }
        let mut line = format!("{name} \"");
        for byte in value.bytes() {
            match byte {
                b'"' | b'\\' => line.extend(['\\', char::from(byte)]),
                b' '..=b'~' => line.push(char::from(byte)),
                _ => line += &format!("\\x{byte:02x}"),
            }
        }
        line.push('"');
        line
    }

    fn set_named(&self, name: &str, value: &str, missing: bool) -> Result<(), String> {
        let id = find(name.as_bytes()).ok_or_else(|| format!("unknown parameter '{name}'"))?;
        // A flag alone turns a switch on.
        let switch = matches!(id.declaration().kind, Kind::Bool) && missing;
        if missing && !switch {
            return Err(format!("'{name}': wrong number of arguments"));
        }
        let value = if switch { "yes" } else { value };
        let shown = if id.is_secret() { "(hidden)" } else { value };
        if id == Param::Save && !value.is_empty() {
            // Each line adds to those before; an empty one takes them all back.
            let points = save_points(value).map_err(|e| format!("'{name} {shown}': {e}"))?;
            let all = format!("{} {points}", self.text(id));
            return self.set(id, all.trim_ascii());
        }
        self.set(id, value).map_err(|e| format!("'{name} {shown}': {e}"))
    }

    /// Reads a configuration file, and those it includes where it does so.
    fn read_file(&self, file: &str, depth: usize) -> Result<(), String> {
        if depth > INCLUDE_DEPTH_MAX {
            return Err(format!("'{file}': included too deep"));
        }
        let text =
            std::fs::read(file).map_err(|e| format!("can't open config file '{file}': {e}"))?;
        self.read_lines(&text, file, depth)
    }

    /// Reads the lines of a configuration file.
    fn read_lines(&self, text: &[u8], file: &str, depth: usize) -> Result<(), String> {
        for (number, line) in text.split(|&b| b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let context = |e: String| format!("{file}, line {}: {e}", number + 1);
            let words = split_args(line).ok_or_else(|| context("unbalanced quotes".into()))?;
            let words: Vec<String> =
                words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let Some((name, values)) = words.split_first() else { continue };
            if name.eq_ignore_ascii_case("include") {
                for included in values.iter().flat_map(|pattern| files(pattern)) {
                    self.read_file(&included, depth + 1).map_err(context)?;
                }
            } else {
                self.set_named(name, &values.join(" "), values.is_empty()).map_err(context)?;
            }
        }
        Ok(())
    }
}

/// How deep configuration files may include each other.
const INCLUDE_DEPTH_MAX: usize = 16;

/// The files that an `include` names: one, there or not, or those that fit a
/// pattern, in the order of their names, which may be none.
fn files(pattern: &str) -> Vec<String> {
    let is_pattern = |text: &str| text.contains(['*', '?', '[']);
    if !is_pattern(pattern) {
        return vec![pattern.into()];
    }
    let root = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![root.to_owned()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut deeper = Vec::new();
        for folder in found {
            if !is_pattern(part) {
                deeper.push(format!("{folder}{part}/"));
                continue;
            }
            let entries = std::fs::read_dir(if folder.is_empty() { "." } else { &folder });
            let names = entries.into_iter().flatten().flatten();
            let names = names.filter_map(|entry| entry.file_name().into_string().ok());
            // A name that begins with a dot is hidden from a pattern that does not.
            let fits = |name: &String| {
                (!name.starts_with('.') || part.starts_with('.'))
                    && glob::matches(part.as_bytes(), name.as_bytes(), false)
            };
            deeper.extend(names.filter(fits).map(|name| format!("{folder}{name}/")));
        }
        found = deeper;
    }
    found.sort();
    let files = found.into_iter().map(|path| path.trim_end_matches('/').to_owned());
    files.filter(|path| std::fs::exists(path).unwrap_or(false)).collect()
}
