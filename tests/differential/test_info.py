"""INFO: redis-server's sections, fields and formats, and counters that count
the same things."""

import re

import pytest

from harness.servers import info_fields

#: Fields of redis-server that say nothing about Snug, each with its reason.
NOT_OURS = {
    "gcc_version": "the compiler of another language",
    "atomicvar_api": "of redis-server's C sources",
    "redis_build_id": "of redis-server's build",
    "io_threads_active": "Snug has workers",
    "lru_clock": "Snug keeps access bits",
    "latest_fork_usec": "Snug does not fork",
    "total_forks": "Snug does not fork",
    "module_fork_in_progress": "Snug does not fork",
    "module_fork_last_cow_size": "Snug does not fork",
    "client_recent_max_input_buffer": "of redis-server's buffers",
    "client_recent_max_output_buffer": "of redis-server's buffers",
}
#: Whole families of fields that belong to parts still to come.
NOT_OURS_PREFIXES = {
    "repl_": "replication comes later",
}
#: Read by redis-cli --stat, redis_exporter and redis-py: must be there whatever the rest.
READ_BY_OTHERS = """
redis_version redis_mode os arch_bits process_id run_id tcp_port uptime_in_seconds uptime_in_days hz
connected_clients blocked_clients maxclients
used_memory used_memory_human used_memory_rss used_memory_peak used_memory_overhead used_memory_dataset
maxmemory maxmemory_policy mem_fragmentation_ratio mem_allocator total_system_memory
loading rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time rdb_last_bgsave_status aof_enabled
total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes
total_net_output_bytes rejected_connections expired_keys evicted_keys keyspace_hits keyspace_misses
pubsub_channels pubsub_patterns total_error_replies
role connected_slaves master_repl_offset master_replid
used_cpu_sys used_cpu_user cluster_enabled
""".split()

FORMATS = [
    ("whole number", r"-?\d+"),
    ("number", r"-?\d+\.\d+"),
    ("percentage", r"-?\d+\.\d+%"),
    ("size for people", r"\d+(\.\d+)?[BKMGT]"),
    ("40 hex digits", r"[0-9a-f]{40}"),
    ("text", r".*"),
]


def info(server, *sections):
    with server.connect() as connection:
        return connection.call("INFO", *sections)[1].decode()


def headings(text):
    return [line[2:] for line in text.split("\r\n") if line.startswith("# ")]


def format_of(value):
    return next(name for name, pattern in FORMATS if re.fullmatch(pattern, value))


def ours(name):
    return name not in NOT_OURS and not name.startswith(tuple(NOT_OURS_PREFIXES))


@pytest.mark.parametrize("section", [(), ("everything",), ("all",), ("default",)], ids=str)
def test_sections_come_in_redis_servers_order(pairs, section):
    pair = pairs.get()
    wanted = [h for h in headings(info(pair.reference, *section)) if h != "Modules"]
    got = headings(info(pair.tested, *section))
    assert [h for h in got if h in wanted] == wanted


@pytest.mark.parametrize("section", ["memory", "stats", "persistence", "cpu"])
def test_fields_come_in_redis_servers_order(pairs, section):
    pair = pairs.get()
    wanted, got = (list(info_fields(info(s, section))) for s in (pair.reference, pair.tested))
    assert [name for name in got if name in wanted] == [name for name in wanted if name in got]


@pytest.mark.parametrize("section", ["server", "clients", "memory", "stats", "replication", "persistence", "cluster", "cpu"])
def test_fields_and_formats(pairs, section):
    pair = pairs.get()
    wanted, got = (info_fields(info(s, section)) for s in (pair.reference, pair.tested))
    missing = [name for name in wanted if ours(name) and name not in got]
    assert not missing, f"INFO {section} lacks {missing}"
    formats = {n: (format_of(v), format_of(got[n])) for n, v in wanted.items() if n in got}
    free_text = {"executable", "config_file", "mem_allocator", "monotonic_clock", "redis_git_sha1"}
    odd = {n: f for n, f in formats.items() if f[0] != f[1] and n not in free_text}
    assert not odd, odd


def test_what_exporters_read(pairs):
    got = info_fields(info(pairs.get().tested, "everything"))
    missing = [name for name in READ_BY_OTHERS if name not in got]
    assert not missing


@pytest.mark.snug_only
def test_own_fields(pairs):
    text = info(pairs.get().tested, "everything")
    assert "Packing" in headings(text)
    got = info_fields(text)
    assert got["redis_version"].startswith("7.4.")
    assert "snug_version" in got


def test_every_line_is_a_heading_a_field_or_empty(pairs):
    for line in info(pairs.get().tested, "everything").split("\r\n"):
        assert line == "" or line.startswith("# ") or re.fullmatch(r"[A-Za-z0-9_.|\-]+:.*", line), line


def test_asking_for_several_sections_and_unknown_ones(pairs):
    tested = pairs.get().tested
    assert headings(info(tested, "server", "clients")) == ["Server", "Clients"]
    assert headings(info(tested, "SERVER", "server")) == ["Server"]
    assert info(tested, "nosuchsection") == ""


WORK = [
    ("set", "k", "v"), ("get", "k"), ("get", "none"), ("mget", "k", "none", "k"), ("exists", "none"),
    ("incr", "k"), ("incr", "k"), ("get",), ("nosuch", "x"), ("xadd", "s", "1-1", "f", "v"), ("get", "s"),
    ("set", "gone", "v", "px", "1"), ("config", "get", "maxmemory"), ("client", "id"), ("xlen", "s"),
    ("strlen", "k"), ("touch", "k", "none"), ("type", "k"), ("ttl", "k"), ("getex", "k"), ("rename", "none", "x"),
]  # fmt: skip
COUNTED = ["keyspace_hits", "keyspace_misses", "total_commands_processed", "total_error_replies", "expired_keys"]


def test_counters_count_what_redis_server_counts(pairs):
    pair = pairs.get()
    pair.clean()
    counts = []
    for server in (pair.reference, pair.tested):
        with server.connect() as connection:
            connection.call("CONFIG", "RESETSTAT")
            for args in WORK:
                connection.call(*args)
            connection.call("DEBUG", "SLEEP", "0.01")
            connection.call("GET", "gone")
            got = info_fields(connection.call("INFO", "everything")[1].decode())
        stats = {name: got.get(name) for name in COUNTED}
        for name, value in got.items():
            if name.startswith("cmdstat_"):
                stats[name] = re.sub(r"usec[a-z_]*=[0-9.]+,?", "", value)
            elif name.startswith("errorstat_") or re.fullmatch(r"db\d+", name):
                stats[name] = re.sub(r",avg_ttl=.*", "", value)
        counts.append(stats)
    wanted, got = counts
    differences = {n: (v, got.get(n)) for n, v in wanted.items() if got.get(n) != v}
    assert not differences


def test_keyspace_section(pairs):
    pair = pairs.get()
    pair.clean()
    lines = []
    for server in (pair.reference, pair.tested):
        with server.connect() as connection:
            connection.call("SET", "a", "1")
            connection.call("SET", "b", "1", "EX", "1000")
            connection.call("SELECT", "3")
            connection.call("SET", "c", "1")
            lines.append(re.sub(r"avg_ttl=\d+", "avg_ttl=?", connection.call("INFO", "keyspace")[1].decode()))
    # Later versions add fields at the end of a line.
    wanted, got = (text.split("\r\n") for text in lines)
    assert len(wanted) == len(got) and all(g.startswith(w) for w, g in zip(wanted, got)), (wanted, got)
    pair.clean()


def test_what_memory_is_used_for(pairs):
    """INFO and MEMORY STATS agree: overhead is the start, clients and tables; what is not overhead is data."""
    server = pairs.get().tested
    with server.connect() as connection:
        connection.call("FLUSHALL")
        told = connection.call("MEMORY", "STATS")[1]
        before = {told[i][1]: told[i + 1][1] for i in range(0, len(told), 2)}
        for i in range(1000):
            connection.call("SET", f"k{i}", "v" * 1000 + str(i))
        told = connection.call("MEMORY", "STATS")[1]
        stats = {told[i][1]: told[i + 1][1] for i in range(0, len(told), 2)}
        fields = {name: int(value) for name, value in info_fields(info(server, "memory")).items() if value.isdecimal()}
        connection.call("FLUSHALL")
    assert fields["used_memory_startup"] == stats[b"startup.allocated"] > 0
    assert abs(fields["mem_clients_normal"] - stats[b"clients.normal"]) < 100_000
    assert fields["used_memory_overhead"] + fields["used_memory_dataset"] == fields["used_memory"]
    assert stats[b"overhead.total"] + stats[b"dataset.bytes"] == stats[b"total.allocated"]
    assert stats[b"overhead.total"] >= stats[b"startup.allocated"] + stats[b"clients.normal"]
    assert b"fragmentation.bytes" in stats
    assert 900_000 < stats[b"dataset.bytes"] - before[b"dataset.bytes"] < 2_000_000
