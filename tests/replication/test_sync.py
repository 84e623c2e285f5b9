"""Whole data sets, each way in which they can be sent and taken in; and links that break
in the middle of one."""

import contextlib
import random
import time

import pytest

from harness.faults import Disk
from harness.nodes import call, digest, eventually, follow, is_up, lead, refusal, wait_until_same, wait_until_up
from harness.resp import Connection, encode
from replication.workload import write

pytestmark = pytest.mark.snug_only
LOADS = ["disabled", "on-empty-db", "swapdb"]


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("diskless", ["yes", "no"])
@pytest.mark.parametrize("primary", ["redis", "snug"])
def test_snug_takes_in_what_a_primary_sends(nodes, primary, diskless, load):
    primary = nodes.start(primary, "--repl-diskless-sync", diskless)
    replica = nodes.start("snug", "--repl-diskless-load", load)
    write(primary, f"{load} {diskless}", 600)
    call(primary, "DEBUG", "POPULATE", 3000)
    call(primary, "SET", "large", b"x" * 3_000_000)
    follow(replica, primary)
    wait_until_up(replica)
    # Once more, in the place of what is there now, with something of its own.
    call(replica, "REPLICAOF", "NO", "ONE")
    call(replica, "SET", "own", "goes", db=5)
    call(replica, "CONFIG", "SET", "repl-backlog-ttl", 1)
    call(primary, "SET", "new", "value")
    follow(replica, primary)
    wait_until_up(replica)
    wait_until_same(primary, replica)


@pytest.mark.parametrize("kind", ["redis", "snug"])
def test_what_is_here_is_served_until_all_has_come(nodes, kind):
    """With `swapdb`: the old data set while the new one comes, and after it has not."""
    primary = nodes.start(kind, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--rdbcompression", "no")
    replica = nodes.start("snug", "--repl-diskless-load", "swapdb")
    call(primary, "DEBUG", "POPULATE", 2000, "key", 10_000)
    call(replica, "SET", "own", "stays")
    call(primary, "CONFIG", "SET", "rdb-key-save-delay", 20_000)
    follow(replica, primary)
    eventually("the data set to come", lambda: replica.info()["async_loading"] == "1")
    assert (call(replica, "GET", "own"), replica.info()["loading"]) == (b"stays", "0")
    # The link breaks half-way.
    call(primary, "CONFIG", "SET", "rdb-key-save-delay", 0)
    call(replica, "REPLICAOF", "NO", "ONE")
    eventually("it to be given up", lambda: replica.info()["async_loading"] == "0")
    assert (call(replica, "GET", "own"), call(replica, "DBSIZE")) == (b"stays", 1)
    follow(replica, primary)
    wait_until_up(replica)
    assert (call(replica, "EXISTS", "own"), call(replica, "DBSIZE")) == (0, 2000)
    assert replica.info()["async_loading"] == "0"


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_redis_takes_in_what_snug_sends(nodes, diskless):
    primary = nodes.start("snug", "--repl-diskless-sync", diskless)
    replicas = [nodes.start("redis") for _ in range(2)]
    call(primary, "DEBUG", "POPULATE", 10000)
    call(primary, "SET", "large", b"x" * 3_000_000)
    write(primary, diskless, 600)
    for replica in replicas:
        follow(replica, primary)
    write(primary, f"meanwhile {diskless}", 600)
    wait_until_up(*replicas)
    wait_until_same(primary, *replicas)


@pytest.mark.parametrize("load", LOADS)
def test_a_link_that_breaks_in_the_middle(nodes, proxy, load):
    primary = nodes.start("redis")
    replica = nodes.start("snug", "--repl-diskless-load", load)
    call(replica, "SET", "old", "data")
    if load == "on-empty-db":
        call(replica, "FLUSHALL")
    old = digest(replica)
    call(primary, "DEBUG", "POPULATE", 30000, "key", 100)
    link = proxy(primary)
    link.allow(400_000)
    follow(replica, primary, link.port)
    eventually("the cut", lambda: link.left == 0)
    link.refuse = True
    eventually("the loss to be noticed", lambda: call(replica, "INFO", "replication").find(b"master_sync_in_progress:1") < 0)
    assert not is_up(replica)
    if load != "on-empty-db":
        assert digest(replica) == old, "what was there is there"
        assert call(replica, "GET", "old") == b"data"
    link.refuse = False
    link.allow(None)
    wait_until_up(replica)
    wait_until_same(primary, replica)
    assert call(replica, "EXISTS", "old") == 0


def test_clients_are_told_while_the_data_set_is_taken_in(nodes, proxy):
    """Held up in the middle, the replica answers only what needs no keys."""
    primary = nodes.start("redis")
    replica = nodes.start("snug", "--repl-diskless-load", "on-empty-db")
    call(primary, "DEBUG", "POPULATE", 30000, "key", 100)
    link = proxy(primary)
    link.pause_after = 300_000
    follow(replica, primary, link.port)
    eventually("the pause", lambda: link.passed >= 300_000)
    told = eventually("LOADING", lambda: said(replica, "GET", "key:1"))
    assert told == "LOADING Redis is loading the dataset in memory"
    assert refusal(replica, "SET", "a", "b").startswith(("LOADING", "READONLY"))
    with replica.connect() as connection:
        connection.call("MULTI")
        assert connection.call("INFO", "server")[0] in "+$"
    info = replica.info()
    assert info["master_sync_in_progress"] == "1" and int(info["master_sync_read_bytes"]) > 0
    assert info["loading"] == "1"
    link.pause_after = None
    wait_until_up(replica)
    wait_until_same(primary, replica)


def said(node, *args):
    with node.connect() as connection:
        kind, payload = connection.call(*args)
        return payload.decode() if kind == "-" else None


def test_a_replica_of_a_replica_begins_in_the_right_database(nodes):
    first, second = nodes.chain("redis", "snug")
    # The stream goes on in database 7, without another SELECT.
    with first.connect() as connection:
        connection.call("SELECT", 7)
        connection.call("SET", "a", 1)
        wait_until_same(first, second)
        third, fourth = nodes.start("snug"), nodes.start("redis")
        follow(third, second)
        follow(fourth, second)
        wait_until_up(third, fourth)
        connection.call("SET", "b", 2)
    wait_until_same(first, second, third, fourth)
    assert call(third, "GET", "b", db=7) == call(fourth, "GET", "b", db=7) == b"2"


def test_a_replica_that_reads_nothing_costs_bounded_memory(nodes, proxy):
    primary = nodes.start("snug", "--client-output-buffer-limit", "replica 20000000 0 0", "--repl-timeout", "300")
    replica = nodes.start("redis")
    link = proxy(primary)
    follow(replica, primary, link.port)
    wait_until_up(replica)
    link.pause_after = 0
    before = int(primary.info()["used_memory"])
    value = b"v" * 1_000_000
    with primary.connect() as connection:
        for n in range(120):
            connection.call("SET", f"k{n % 3}", value)
    eventually("the replica to be closed", lambda: primary.info()["connected_slaves"] == "0")
    eventually("memory to be given back", lambda: int(primary.info()["used_memory"]) - before < 40_000_000)
    assert int(primary.info()["client_output_buffer_limit_disconnections"]) == 1
    link.pause_after = None
    wait_until_up(replica)
    wait_until_same(primary, replica)


@pytest.mark.parametrize("asks", [("QUIT",), ("GET", "key"), ("REPLCONF", "ACK"), ("UNKNOWN",)])
@pytest.mark.parametrize("kind", ["redis", "snug"])
def test_what_a_replica_asks_ends_its_connection(nodes, kind, asks):
    primary = nodes.start(kind, "--repl-diskless-sync-delay", "0")
    with Connection(primary.port) as replica:
        replica.socket.sendall(encode(["PSYNC", "?", -1]))
        assert replica.socket.recv(11) == b"+FULLRESYNC"
        # None of this is answered.
        replica.socket.sendall(encode(["REPLCONF", "ACK", 0]) + b"\n" + encode(["REPLCONF", "GETACK", "*"]))
        replica.socket.sendall(encode(["REPLCONF", "ACK", "none"]))
        eventually("the replica", lambda: b"state=online" in call(primary, "INFO", "replication"))
        replica.socket.sendall(encode(asks))
        with contextlib.suppress(ConnectionResetError):
            while replica.socket.recv(65536):
                pass
    eventually("its end", lambda: b"connected_slaves:0" in call(primary, "INFO", "replication"))


def test_the_append_only_file_of_a_replica_has_what_came(nodes):
    primary = nodes.start("redis")
    replica = nodes.start("snug", "--appendonly", "yes")
    call(replica, "SET", "old", "goes")
    write(primary, "append", 600)
    follow(replica, primary)
    wait_until_up(replica)
    write(primary, "appended", 600)
    wait_until_same(primary, replica)
    eventually("its base", lambda: replica.info()["aof_rewrite_in_progress"] == "0" and replica.info()["aof_rewrite_scheduled"] == "0")
    lead(replica)
    call(replica, "SET", "new", "stays")
    before = digest(replica)
    eventually("the disk", lambda: int(replica.info()["aof_pending_bio_fsync"] or 0) == 0)
    replica.process.terminate()
    replica.process.wait()
    nodes.restart(replica)
    eventually("what was loaded", lambda: digest(replica) == before)


def test_a_load_that_takes_longer_than_repl_timeout(nodes, shim, tmp_path, monkeypatch):
    # The primary takes a replica for gone that says nothing while it loads.
    primary = nodes.start("redis", "--repl-timeout", "2", "--repl-diskless-sync", "no")
    call(primary, "SET", "large", random.Random(1).randbytes(800_000))
    disk = Disk(tmp_path / "faults")
    with monkeypatch.context() as environment:
        for name, value in disk.environment(shim).items():
            environment.setenv(name, value)
        replica = nodes.start("snug", "--repl-diskless-load", "disabled")
    disk.set(slow=700)
    began = time.monotonic()
    follow(replica, primary)
    eventually("the load", lambda: replica.info()["loading"] == "1")
    wait_until_up(replica)
    assert time.monotonic() - began > 5, "the load was not slow"
    wait_until_same(primary, replica)
    assert "timedout replica" not in primary.log(1000)
    disk.heal()
