//! The one table of parameters: name, type, default, whether `CONFIG SET` may
//! change it, a line of help. It has two parts. The parameters of the second are
//! accepted, checked and shown, because configuration files of Redis hold them, and
//! change nothing else.

use super::values::Kind;

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
    /// One line of help; none for a parameter that is accepted and has no effect.
    pub help: Option<&'static str>,
}

macro_rules! parameters {
    (
        with effect {$($id:ident $name:literal $kind:expr, $default:literal, $change:ident, $help:literal;)*}
        without effect {$($idle:ident $idle_name:literal $idle_kind:expr, $idle_default:literal, $idle_change:ident;)*}
    ) => {
        /// Each parameter, as an index into [`PARAMETERS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::enum_variant_names)]
        pub(crate) enum Param { $($id,)* $($idle),* }

        /// Every parameter there is: first those with effect, then those without.
        pub(crate) const PARAMETERS: &[Declaration] = &[
            $(Declaration {
                name: $name, kind: $kind, default: $default, change: $change, help: Some($help),
            },)*
            $(Declaration {
                name: $idle_name, kind: $idle_kind, default: $idle_default, change: $idle_change, help: None,
            }),*
        ];

        const IDS: &[Param] = &[$(Param::$id,)* $(Param::$idle),*];
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
    with effect {
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
        ContentPort "content-port" PORT, "0", FIXED, "TCP port of content over HTTP; 0 for none.";
        ContentBind "content-bind" Kind::Text, "127.0.0.1", FIXED, "Addresses that the content port listens on.";
        ContentTls "content-tls" Kind::Bool, "no", FIXED, "Have the content port speak TLS, with the certificates of the tls- parameters.";
        ContentCacheBytes "content-cache-bytes" BYTES, "4194304", MUTABLE, "Most bytes of encoded bodies that a worker keeps for the next client; 0 for none.";
        MaxClients "maxclients" Kind::Int { min: 1, max: 1_000_000 }, "10000", MUTABLE, "Most clients connected at once.";
        Databases "databases" Kind::Int { min: 1, max: snug_store::DATABASES_MAX as i64 }, "16", FIXED, "Logical databases.";
        RequirePass "requirepass" Kind::Text, "", MUTABLE, "Password of the default user; empty for none.";
        ProtoMaxBulkLen "proto-max-bulk-len" Kind::Memory { min: 1_048_576, max: i64::MAX }, "536870912", MUTABLE, "Longest string, in bytes.";
        ClientQueryBufferLimit "client-query-buffer-limit" Kind::Memory { min: 1_048_576, max: i64::MAX }, "1073741824", MUTABLE, "Most bytes of requests buffered for one client.";
        ClientOutputBufferLimit "client-output-buffer-limit" Kind::OutputLimits, "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", MUTABLE, "Most bytes of replies waiting for a client, by class: hard, soft, seconds.";
        MaxMemory "maxmemory" BYTES, "0", MUTABLE, "Most bytes of memory to use; 0 for no limit.";
        MaxMemoryPolicy "maxmemory-policy" Kind::Enum(&["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction"]), "noeviction", MUTABLE, "What is evicted at the limit.";
        TierPath "tier-path" Kind::Text, "", FIXED, "Folder of the disk tier, where the coldest values go when memory is short; empty for none. What is in it is of use to one process only, and removed at its start.";
        TierEngine "tier-engine" Kind::Enum(snug_store::tier::ENGINES), "log", FIXED, "What keeps the disk tier's records: log, and in builds that have them rocksdb, rocksdb-lz4, rocksdb-zstd, rocksdb-hybrid, fjall, fjall-lz4.";
        TierMaxBytes "tier-max-bytes" BYTES, "0", MUTABLE, "Most bytes of files in the disk tier; 0 for as many as the disk has room for.";
        MaxmemoryClients "maxmemory-clients" Kind::MemoryOrPercent, "0", MUTABLE, "Most bytes that clients may take together, or a percentage of maxmemory, before the largest are ended; 0 for no limit.";
        NotifyKeyspaceEvents "notify-keyspace-events" Kind::Events, "", MUTABLE, "Classes of keyspace events to publish.";
        SlowlogLogSlowerThan "slowlog-log-slower-than" Kind::Int { min: -1, max: i64::MAX }, "10000", MUTABLE, "Microseconds from which on a command is logged as slow; -1 for never.";
        SlowlogMaxLen "slowlog-max-len" ANY, "128", MUTABLE, "Entries kept in the slow log.";
        LatencyMonitorThreshold "latency-monitor-threshold" ANY, "0", MUTABLE, "Milliseconds from which on an event is recorded; 0 for never.";
        LatencyTracking "latency-tracking" Kind::Bool, "yes", MUTABLE, "Keep a latency histogram per command.";
        EnableDebugCommand "enable-debug-command" ACCESS, "no", FIXED, "Who may use DEBUG.";
        EnableModuleCommand "enable-module-command" ACCESS, "no", FIXED, "Who may use MODULE LOAD, LOADEX and UNLOAD, which then say that there are no modules.";
        EnableProtectedConfigs "enable-protected-configs" ACCESS, "no", FIXED, "Who may set dir and dbfilename at run time: they say where files are written.";
        ClusterEnabled "cluster-enabled" Kind::Bool, "no", FIXED, "Be a node of a cluster.";
        ClusterRequireFullCoverage "cluster-require-full-coverage" Kind::Bool, "yes", MUTABLE, "Refuse all keys while a slot has no owner.";
        ClusterAllowReadsWhenDown "cluster-allow-reads-when-down" Kind::Bool, "no", MUTABLE, "Answer reads while the cluster is down.";
        ClusterAllowPubsubshardWhenDown "cluster-allow-pubsubshard-when-down" Kind::Bool, "yes", MUTABLE, "Serve shard channels while the cluster is down.";
        ClusterAnnounceIp "cluster-announce-ip" Kind::Text, "", MUTABLE, "Address to tell cluster clients.";
        ClusterConfigFile "cluster-config-file" Kind::Text, "nodes.conf", FIXED, "Where cluster state is kept.";
        SweepBudget "sweep-budget-us" Kind::Int { min: 50, max: 100_000 }, "1000", MUTABLE, "Microseconds that one turn of the sweeper may spend on expired keys.";
        Hz "hz" Kind::Clamped { min: 1, max: 500 }, "10", MUTABLE, "Turns of background work per second.";
        StreamNodeMaxEntries "stream-node-max-entries" ANY, "100", MUTABLE, "Granularity of approximate trimming, in entries; 0 for no limit.";
        HashMaxListpackEntries "hash-max-listpack-entries" ANY, "512", MUTABLE, "Fields of a hash up to which OBJECT ENCODING tells listpack.";
        HashMaxListpackValue "hash-max-listpack-value" BYTES, "64", MUTABLE, "Bytes of a hash's fields and values up to which OBJECT ENCODING tells listpack.";
        SetMaxIntsetEntries "set-max-intset-entries" ANY, "512", MUTABLE, "Members of a set of integers up to which OBJECT ENCODING tells intset.";
        HllSparseMaxBytes "hll-sparse-max-bytes" BYTES, "3000", MUTABLE, "Bytes above which a HyperLogLog goes from its sparse form to the dense one.";
        ZsetMaxListpackEntries "zset-max-listpack-entries" ANY, "128", MUTABLE, "Members of a sorted set up to which OBJECT ENCODING tells listpack.";
        ZsetMaxListpackValue "zset-max-listpack-value" BYTES, "64", MUTABLE, "Bytes of a sorted set's members up to which OBJECT ENCODING tells listpack.";
        StreamNodeMaxBytes "stream-node-max-bytes" BYTES, "4096", MUTABLE, "Granularity of approximate trimming of large entries, in bytes; 0 for no limit.";
        Save "save" Kind::Save, "3600 1 300 100 60 10000", MUTABLE, "When to save a snapshot: seconds and changes, any number of pairs; empty for never.";
        Dbfilename "dbfilename" Kind::FileName("filename"), "dump.rdb", PROTECTED, "File of the snapshot, in dir.";
        SaveFormat "save-format" Kind::Enum(&["rdb", "snug"]), "rdb", MUTABLE, "What snapshots are written as: rdb, which Redis loads, or snug, packed as in memory, in a file whose name ends in .snug.";
        StopWritesOnBgsaveError "stop-writes-on-bgsave-error" Kind::Bool, "yes", MUTABLE, "Refuse writes while the last snapshot could not be saved, if there are moments to save at.";
        Rdbcompression "rdbcompression" Kind::Bool, "yes", MUTABLE, "Compress strings in snapshots, and blocks of files in Snug's format and of data sets for replicas.";
        RdbKeySaveDelay "rdb-key-save-delay" Kind::Int { min: i32::MIN as i64, max: i32::MAX as i64 }, "0", MUTABLE, "Microseconds to wait after each key that is saved or sent to a replica, for tests that want to see it happen; -N for one microsecond after one key in N.";
        SanitizeDumpPayload "sanitize-dump-payload" Kind::Enum(&["no", "yes", "clients"]), "no", MUTABLE, "yes to look through every value of files in Snug's format as they are loaded; values of RDB and RESTORE always are.";
        Rdbchecksum "rdbchecksum" Kind::Bool, "yes", FIXED, "Write a checksum at the end of snapshots, and check it.";
        RdbSaveIncrementalFsync "rdb-save-incremental-fsync" Kind::Bool, "yes", MUTABLE, "Sync a snapshot as it grows, every 32 MiB.";
        AppendOnly "appendonly" Kind::Bool, "no", MUTABLE, "Keep an append-only file of all changes.";
        Appendfilename "appendfilename" Kind::FileName("filename"), "appendonly.aof", FIXED, "What the names of the append-only file's files begin with.";
        Appenddirname "appenddirname" Kind::FileName("dirname"), "appendonlydir", FIXED, "Folder of the append-only file, in dir.";
        Appendfsync "appendfsync" Kind::Enum(&["everysec", "always", "no"]), "everysec", MUTABLE, "When the append-only file is synced: once a second, before any reply that tells of a change, or when the system sees fit.";
        NoAppendfsyncOnRewrite "no-appendfsync-on-rewrite" Kind::Bool, "no", MUTABLE, "Do not sync the append-only file while a snapshot is written.";
        AutoAofRewritePercentage "auto-aof-rewrite-percentage" NATURAL, "100", MUTABLE, "Growth of the append-only file, in percent, at which it is rewritten; 0 for never.";
        AutoAofRewriteMinSize "auto-aof-rewrite-min-size" BYTES, "67108864", MUTABLE, "Size of the append-only file below which it is not rewritten by itself, in bytes.";
        AofLoadTruncated "aof-load-truncated" Kind::Bool, "yes", MUTABLE, "Load an append-only file that was cut off within its last commit, up to there.";
        AofTimestampEnabled "aof-timestamp-enabled" Kind::Bool, "no", MUTABLE, "Note the time in the append-only file.";
        AofUseRdbPreamble "aof-use-rdb-preamble" Kind::Enum(&["snug", "yes", "no"]), "snug", MUTABLE, "What the append-only file's base is written as: snug, packed as in memory; yes for RDB, no for commands, which Redis loads.";
        AofRewriteIncrementalFsync "aof-rewrite-incremental-fsync" Kind::Bool, "yes", MUTABLE, "Sync the append-only file's base as it grows, every 32 MiB.";
        AofDisableAutoGc "aof-disable-auto-gc" Kind::Bool, "no", MUTABLE, "Keep the append-only file's files that a rewrite made superfluous.";
        ShutdownOnSigterm "shutdown-on-sigterm" Kind::Words(&["default", "save", "nosave", "now", "force"]), "default", MUTABLE, "What SIGTERM does: end as SHUTDOWN with these options does.";
        ShutdownOnSigint "shutdown-on-sigint" Kind::Words(&["default", "save", "nosave", "now", "force"]), "default", MUTABLE, "What SIGINT does: end as SHUTDOWN with these options does.";
        ShutdownTimeout "shutdown-timeout" NATURAL, "10", MUTABLE, "For how many seconds the end waits for replicas that lack what was written; 0: it does not.";
        LogFormat "log-format" Kind::Enum(&["human", "json"]), "human", FIXED, "Form of the log.";
        LogLevel "loglevel" Kind::Enum(&["debug", "verbose", "notice", "warning", "nothing"]), "notice", MUTABLE, "How much is logged.";
        HideUserDataFromLog "hide-user-data-from-log" Kind::Bool, "no", MUTABLE, "Keep names of keys, arguments of commands and names in certificates out of the log.";
        LogFile "logfile" Kind::Text, "", FIXED, "File to log to, in dir if its name is relative; empty for standard output.";
        LazyfreeLazyUserFlush "lazyfree-lazy-user-flush" Kind::Bool, "no", MUTABLE, "FLUSHALL and FLUSHDB free in the background unless told SYNC.";
        LazyfreeLazyUserDel "lazyfree-lazy-user-del" Kind::Bool, "no", MUTABLE, "DEL frees as UNLINK does.";
        ProtectedMode "protected-mode" Kind::Bool, "yes", MUTABLE, "Refuse other machines while there is no password.";
        Daemonize "daemonize" Kind::Bool, "no", FIXED, "Run in the background: the command ends when the server is ready, or says why it is not.";
        Pidfile "pidfile" Kind::Text, "", FIXED, "File to write the process's id to; empty for none.";
        Supervised "supervised" Kind::Enum(&["upstart", "systemd", "auto", "no"]), "no", FIXED, "Whom to tell when the server is ready: systemd, upstart, or whichever of them started it. The server stays in the foreground then.";
        LazyfreeLazyEviction "lazyfree-lazy-eviction" Kind::Bool, "no", MUTABLE, "What is evicted is freed as UNLINK does.";
        LazyfreeLazyExpire "lazyfree-lazy-expire" Kind::Bool, "no", MUTABLE, "What expires is freed as UNLINK does.";
        LuaMemoryLimit "lua-memory-limit" Kind::Memory { min: 1_048_576, max: i64::MAX }, "268435456", MUTABLE, "Most bytes that a script may allocate for its own values.";
        BusyReplyThreshold "busy-reply-threshold" ANY, "5000", MUTABLE, "Milliseconds from which on a script counts as slow, and clients that it keeps waiting are told BUSY; 0 for never.";
        LongCommandItems "long-command-items" NATURAL, "10000", MUTABLE, "Items from which on a command that goes through them (unions, ranges, sorting, whole collections) runs aside, so that it keeps only those waiting who use its keys; 0 for never.";
        LuaUndeclaredKeys "lua-undeclared-keys" Kind::Enum(&["allow", "deny"]), "allow", MUTABLE, "What becomes of a script's command that names a key which the script was not given, or that concerns the whole keyspace: allow, it works as in Redis; deny, it is an error.";
        DisableThp "disable-thp" Kind::Bool, "yes", FIXED, "Memory in pages of 4 KiB: clearing a huge one would stop a worker for milliseconds.";
        MinReplicasToWrite "min-replicas-to-write" NATURAL, "0", MUTABLE, "Replicas without which writes are refused; 0 for none.";
        MinReplicasMaxLag "min-replicas-max-lag" NATURAL, "10", MUTABLE, "Seconds after which a replica that was not heard of does not count; 0 to write without replicas.";
        MaxmemorySamples "maxmemory-samples" Kind::Int { min: 1, max: i32::MAX as i64 }, "5", MUTABLE, "Keys looked at for each that is evicted.";
        MaxmemoryEvictionTenacity "maxmemory-eviction-tenacity" Kind::Int { min: 0, max: 100 }, "10", MUTABLE, "How long one command may evict: 50 microseconds each up to 10, each above 15 % longer, 100 without end.";
        LfuLogFactor "lfu-log-factor" NATURAL, "10", MUTABLE, "How much less likely each read of a key is counted than the one before, with an LFU policy.";
        Replicaof "replicaof" Kind::Primary, "", FIXED, "Whose replica to be: host and port; empty for nobody's.";
        Masterauth "masterauth" Kind::Text, "", MUTABLE, "Password for the primary.";
        Masteruser "masteruser" Kind::Text, "", MUTABLE, "User for the primary; empty for its default one.";
        ReplicaServeStaleData "replica-serve-stale-data" Kind::Bool, "yes", MUTABLE, "Serve what there is while the link to the primary is down.";
        ReplicaReadOnly "replica-read-only" Kind::Bool, "yes", MUTABLE, "Refuse clients' writes on a replica.";
        ReplicaIgnoreMaxmemory "replica-ignore-maxmemory" Kind::Bool, "yes", MUTABLE, "Evict nothing on a replica: its primary does.";
        ReplicaLazyFlush "replica-lazy-flush" Kind::Bool, "no", MUTABLE, "Free in the background what a replica held before a full synchronisation.";
        ReplDisklessSync "repl-diskless-sync" Kind::Bool, "yes", MUTABLE, "Send replicas a data set as it is made, its end marked; else by way of a file, its length first.";
        ReplDisklessSyncDelay "repl-diskless-sync-delay" NATURAL, "5", MUTABLE, "Seconds that a full synchronisation waits for more replicas to come.";
        ReplDisklessSyncMaxReplicas "repl-diskless-sync-max-replicas" NATURAL, "0", MUTABLE, "Replicas for which a full synchronisation waits no longer; 0 for any number.";
        ReplDisklessLoad "repl-diskless-load" Kind::Enum(&["disabled", "on-empty-db", "swapdb"]), "disabled", MUTABLE, "How a replica takes a data set in: disabled, by way of a file; on-empty-db, as it streams if there are no keys; swapdb, as it streams beside the old one, which is served until the new one is whole.";
        ReplicaPriority "replica-priority" NATURAL, "100", MUTABLE, "Tells Sentinel which replica to promote: the lowest first, 0 never.";
        ReplPingReplicaPeriod "repl-ping-replica-period" Kind::Int { min: 1, max: i32::MAX as i64 }, "10", MUTABLE, "Seconds between pings to replicas.";
        ReplTimeout "repl-timeout" Kind::Int { min: 1, max: i32::MAX as i64 }, "60", MUTABLE, "Seconds of silence after which a primary or a replica counts as gone.";
        ReplBacklogSize "repl-backlog-size" BYTES, "1048576", MUTABLE, "Bytes of the stream kept for replicas that come back.";
        ReplBacklogTtl "repl-backlog-ttl" ANY, "3600", MUTABLE, "Seconds without a replica after which they are kept no longer; 0 for ever.";
        ReplicaAnnounceIp "replica-announce-ip" Kind::Text, "", MUTABLE, "Address under which a replica is to be known; empty for that of its connection.";
        ReplicaAnnouncePort "replica-announce-port" PORT, "0", MUTABLE, "Port under which a replica is to be known; 0 for that of port.";
        ReplicaAnnounced "replica-announced" Kind::Bool, "yes", MUTABLE, "Tell Sentinel of this replica.";
        Aclfile "aclfile" Kind::Text, "", FIXED, "File of users, which ACL LOAD reads and ACL SAVE writes; empty for none.";
        AclPubsubDefault "acl-pubsub-default" Kind::Enum(&["allchannels", "resetchannels"]), "resetchannels", MUTABLE, "Channels that a new user may use: all or none.";
        TrackingTableMaxKeys "tracking-table-max-keys" ANY, "1000000", MUTABLE, "Keys that clients have read and are to be told of when they change; 0 for any number.";
        AcllogMaxLen "acllog-max-len" ANY, "128", MUTABLE, "Entries kept in the log of what was denied, ACL LOG.";
        Unixsocket "unixsocket" Kind::Text, "", FIXED, "Unix socket to listen on; empty for none. Its file is made anew at each start.";
        Unixsocketperm "unixsocketperm" Kind::Octal { max: 0o777 }, "0", FIXED, "Permissions of the Unix socket's file, in octal; 0 for what the umask leaves.";
        LatencyTrackingInfoPercentiles "latency-tracking-info-percentiles" Kind::Percentiles, "50 99 99.9", MUTABLE, "Percentiles that INFO latencystats shows.";
        TlsPort "tls-port" PORT, "0", MUTABLE, "TCP port to listen on for TLS; 0 for none. With port 0 there is no other.";
        TlsCertFile "tls-cert-file" Kind::Text, "", MUTABLE, "The server's certificate and those that vouch for it, in PEM.";
        TlsKeyFile "tls-key-file" Kind::Text, "", MUTABLE, "Private key of the server's certificate, in PEM.";
        TlsKeyFilePass "tls-key-file-pass" Kind::Text, "", MUTABLE, "Pass phrase of the private key, if that is encrypted (PKCS#8).";
        TlsCaCertFile "tls-ca-cert-file" Kind::Text, "", MUTABLE, "Certificates of authorities that vouch for clients, in PEM.";
        TlsCaCertDir "tls-ca-cert-dir" Kind::Text, "", MUTABLE, "Folder of such certificates: every file in it that holds one.";
        TlsAuthClients "tls-auth-clients" Kind::Enum(&["no", "yes", "optional"]), "yes", MUTABLE, "Whether a client on a TLS port must show a certificate.";
        TlsAuthClientsUser "tls-auth-clients-user" Kind::Enum(&["off", "CN"]), "off", MUTABLE, "CN: a client whose certificate has a user's name for its common name is logged in as that user.";
        TlsProtocols "tls-protocols" Kind::Text, "", MUTABLE, "Versions of TLS to speak, of TLSv1.2 and TLSv1.3; empty for both.";
        TlsCiphers "tls-ciphers" Kind::Text, "", MUTABLE, "Ciphers of TLS 1.2 by OpenSSL's names, between colons; empty for all there are.";
        TlsCiphersuites "tls-ciphersuites" Kind::Text, "", MUTABLE, "Ciphers of TLS 1.3, between colons; empty for all there are.";
        TlsPreferServerCiphers "tls-prefer-server-ciphers" Kind::Bool, "no", MUTABLE, "Choose ciphers in the server's order, not in the client's.";
        TlsSessionCaching "tls-session-caching" Kind::Bool, "yes", MUTABLE, "Let clients resume their sessions, which spares most of a handshake.";
        TlsSessionCacheSize "tls-session-cache-size" NATURAL, "20480", MUTABLE, "Most sessions remembered to be resumed; 0 for 1048576.";
        TlsSessionCacheTimeout "tls-session-cache-timeout" NATURAL, "300", MUTABLE, "Seconds for which a session can be resumed; 0 for as long as it is remembered.";
        TlsReplication "tls-replication" Kind::Bool, "no", MUTABLE, "Speak TLS with the primary. Its certificate must be of one of the authorities; its name is not compared.";
        TlsCluster "tls-cluster" Kind::Bool, "no", MUTABLE, "Speak TLS with the targets of MIGRATE, as tls-replication has it with the primary.";
        TlsClientCertFile "tls-client-cert-file" Kind::Text, "", MUTABLE, "Certificate to show to the primary, in PEM; empty for the server's.";
        TlsClientKeyFile "tls-client-key-file" Kind::Text, "", MUTABLE, "Private key of that certificate, in PEM.";
        TlsClientKeyFilePass "tls-client-key-file-pass" Kind::Text, "", MUTABLE, "Pass phrase of that key, if it is encrypted (PKCS#8).";
        AdminTls "admin-tls" Kind::Bool, "no", FIXED, "Have the admin port speak TLS, with the certificates of the tls- parameters.";
        Pack "pack" Kind::Bool, "yes", MUTABLE, "Keep data packed.";
        PackMinSize "pack-min-size" BYTES, "12", MUTABLE, "Smallest value worth packing, in bytes.";
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
    without effect {
        ClusterNodeTimeout "cluster-node-timeout" ANY, "15000", MUTABLE;
        ActiveExpire "active-expire-effort" Kind::Int { min: 1, max: 10 }, "1", MUTABLE;
        AlwaysShowLogo "always-show-logo" Kind::Bool, "no", FIXED;
        SetProcTitle "set-proc-title" Kind::Bool, "yes", FIXED;
        CrashLogEnabled "crash-log-enabled" Kind::Bool, "yes", MUTABLE;
        DynamicHz "dynamic-hz" Kind::Bool, "yes", MUTABLE;
        Activerehashing "activerehashing" Kind::Bool, "yes", MUTABLE;
        Activedefrag "activedefrag" Kind::Bool, "no", MUTABLE;
        LazyfreeLazyServerDel "lazyfree-lazy-server-del" Kind::Bool, "no", MUTABLE;
        ReplDisableTcpNodelay "repl-disable-tcp-nodelay" Kind::Bool, "no", MUTABLE;
        JemallocBgThread "jemalloc-bg-thread" Kind::Bool, "yes", MUTABLE;
        IoThreadsDoReads "io-threads-do-reads" Kind::Bool, "no", FIXED;
        ListMaxListpackSize "list-max-listpack-size" Kind::Int { min: i32::MIN as i64, max: i32::MAX as i64 }, "-2", MUTABLE;
        ListCompressDepth "list-compress-depth" NATURAL, "0", MUTABLE;
        SetMaxListpackEntries "set-max-listpack-entries" ANY, "128", MUTABLE;
        SetMaxListpackValue "set-max-listpack-value" ANY, "64", MUTABLE;
        LfuDecayTime "lfu-decay-time" NATURAL, "1", MUTABLE;
        IoThreads "io-threads" Kind::Int { min: 1, max: 128 }, "1", FIXED;
        ActiveDefragThresholdLower "active-defrag-threshold-lower" Kind::Int { min: 0, max: 1000 }, "10", MUTABLE;
        ActiveDefragThresholdUpper "active-defrag-threshold-upper" Kind::Int { min: 0, max: 1000 }, "100", MUTABLE;
        ActiveDefragCycleMin "active-defrag-cycle-min" Kind::Int { min: 1, max: 99 }, "1", MUTABLE;
        ActiveDefragCycleMax "active-defrag-cycle-max" Kind::Int { min: 1, max: 99 }, "25", MUTABLE;
        ClusterMigrationBarrier "cluster-migration-barrier" NATURAL, "1", MUTABLE;
        ClusterReplicaValidityFactor "cluster-replica-validity-factor" NATURAL, "10", MUTABLE;
        ClusterAnnouncePort "cluster-announce-port" PORT, "0", MUTABLE;
        ClusterAnnounceBusPort "cluster-announce-bus-port" PORT, "0", MUTABLE;
        ActiveDefragIgnoreBytes "active-defrag-ignore-bytes" BYTES, "104857600", MUTABLE;
        ProcTitleTemplate "proc-title-template" Kind::Text, "{title} {listen-addr} {server-mode}", MUTABLE;
        OomScoreAdj "oom-score-adj" Kind::Enum(&["no", "yes", "relative", "absolute"]), "no", MUTABLE;
        ClusterAnnounceHostname "cluster-announce-hostname" Kind::Text, "", MUTABLE;
        ClusterPreferredEndpointType "cluster-preferred-endpoint-type" Kind::Enum(&["ip", "hostname", "unknown-endpoint"]), "ip", MUTABLE;
        RdbDelSyncFiles "rdb-del-sync-files" Kind::Bool, "no", MUTABLE;
        OomScoreAdjValues "oom-score-adj-values" Kind::OomScores, "0 200 800", MUTABLE;
        TlsDhParamsFile "tls-dh-params-file" Kind::Text, "", MUTABLE;
        SyslogEnabled "syslog-enabled" Kind::Bool, "no", FIXED;
        SyslogIdent "syslog-ident" Kind::Text, "redis", FIXED;
        SyslogFacility "syslog-facility" Kind::Enum(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]), "local0", FIXED;
        ServerCpulist "server_cpulist" Kind::Text, "", FIXED;
        BioCpulist "bio_cpulist" Kind::Text, "", FIXED;
        AofRewriteCpulist "aof_rewrite_cpulist" Kind::Text, "", FIXED;
        BgsaveCpulist "bgsave_cpulist" Kind::Text, "", FIXED;
        BindSourceAddr "bind-source-addr" Kind::Text, "", MUTABLE;
        SocketMarkId "socket-mark-id" Kind::Int { min: 0, max: u32::MAX as i64 }, "0", FIXED;
        ClusterPort "cluster-port" PORT, "0", FIXED;
        ClusterAllowReplicaMigration "cluster-allow-replica-migration" Kind::Bool, "yes", MUTABLE;
        ClusterReplicaNoFailover "cluster-replica-no-failover" Kind::Bool, "no", MUTABLE;
        ClusterLinkSendbufLimit "cluster-link-sendbuf-limit" BYTES, "0", MUTABLE;
        ClusterAnnounceTlsPort "cluster-announce-tls-port" PORT, "0", MUTABLE;
        ActiveDefragMaxScanFields "active-defrag-max-scan-fields" Kind::Int { min: 1, max: i64::MAX }, "1000", MUTABLE;
        CrashMemcheckEnabled "crash-memcheck-enabled" Kind::Bool, "yes", MUTABLE;
        IgnoreWarnings "ignore-warnings" Kind::Text, "", MUTABLE;
        PropagationErrorBehavior "propagation-error-behavior" Kind::Enum(&["ignore", "panic", "panic-on-replicas"]), "ignore", MUTABLE;
        ReplicaIgnoreDiskWriteErrors "replica-ignore-disk-write-errors" Kind::Bool, "no", MUTABLE;
    }
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
        matches!(
            self,
            Self::RequirePass
                | Self::Masterauth
                | Self::AdminToken
                | Self::TlsKeyFilePass
                | Self::TlsClientKeyFilePass
        )
    }

    /// Whether its value is several words, which may be given as one or as many.
    pub(super) fn takes_words(self) -> bool {
        matches!(
            self.declaration().kind,
            Kind::OutputLimits | Kind::Percentiles | Kind::Save | Kind::OomScores | Kind::Words(_)
        ) || matches!(self, Self::Bind | Self::AdminBind | Self::Replicaof)
    }

    pub(crate) fn declaration(self) -> &'static Declaration {
        &PARAMETERS[self as usize]
    }

    /// Every parameter.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        IDS.iter().copied()
    }
}
