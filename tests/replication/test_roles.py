"""What clients of primaries and replicas are told, and what they can ask for."""

import signal
import subprocess

import pytest

from harness.nodes import call, digest, eventually, follow, is_up, lead, offset, refusal, wait_until_same, wait_until_up
from harness.resp import Closed

pytestmark = pytest.mark.snug_only


def test_a_replica_refuses_writes_in_redis_words(nodes):
    _, ours = nodes.chain("redis", "snug")
    theirs = nodes.start("redis")
    follow(theirs, ours)
    wait_until_up(theirs)
    for node in (ours, theirs):
        assert refusal(node, "SET", "a", "b") == "READONLY You can't write against a read only replica."
        with node.connect() as connection:
            connection.call("MULTI")
            assert connection.call("SET", "a", "b")[0] == "-"
            assert connection.call("EXEC") == ("-", b"EXECABORT Transaction discarded because of previous errors.")
        assert refusal(node, "WAIT", 1, 1).startswith("ERR WAIT cannot be used with replica instances.")
        with node.connect(3) as connection:
            hello = dict((k[1], v[1]) for k, v in connection.call("HELLO", 3)[1])
            assert hello[b"role"] == b"replica"
    call(ours, "CONFIG", "SET", "replica-read-only", "no")
    assert call(ours, "SET", "mine", "b") == b"OK"


def test_stale_data_is_not_served_if_so_configured(nodes):
    primary, replica = nodes.chain("redis", "snug")
    call(primary, "SET", "a", "b")
    wait_until_same(primary, replica)
    nodes.kill(primary)
    eventually("the link to be down", lambda: not is_up(replica))
    assert call(replica, "GET", "a") == b"b"
    call(replica, "CONFIG", "SET", "replica-serve-stale-data", "no")
    assert refusal(replica, "GET", "a") == "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
    assert call(replica, "INFO", "replication")
    assert int(replica.info()["master_link_down_since_seconds"]) >= 0
    lead(replica)
    assert call(replica, "GET", "a") == b"b"


def test_writes_are_refused_without_enough_replicas(nodes):
    primary = nodes.start("snug", "--min-replicas-to-write", "1")
    text = "NOREPLICAS Not enough good replicas to write."
    assert refusal(primary, "SET", "a", "b") == text
    replica = nodes.start("redis")
    follow(replica, primary)
    wait_until_up(replica)
    eventually("a good replica", lambda: primary.info().get("min_slaves_good_slaves") == "1")
    assert call(primary, "SET", "a", "b") == b"OK"
    lead(replica)
    eventually("none", lambda: primary.info().get("min_slaves_good_slaves") == "0")
    assert refusal(primary, "SET", "a", "b") == text
    call(primary, "CONFIG", "SET", "min-replicas-to-write", 0)
    assert call(primary, "SET", "a", "b") == b"OK"


@pytest.mark.parametrize("replica", ["redis", "snug"])
def test_wait_waits_for_replicas(nodes, replica):
    primary, replica = nodes.chain("snug", replica)
    with primary.connect() as connection:
        for n in range(20):
            connection.call("SET", "a", n)
            assert connection.call("WAIT", 1, 0) == (":", 1), call(primary, "INFO", "replication")
            assert call(replica, "GET", "a") == str(n).encode()
        # There is one: the time goes by, and others are served meanwhile.
        connection.call("SET", "a", "b")
        connection.send("WAIT", 2, 300)
        assert call(primary, "PING") == b"PONG"
        assert connection.reply() == (":", 1)
        # Within a transaction nothing waits.
        connection.call("MULTI")
        connection.call("WAIT", 9, 0)
        assert connection.call("EXEC")[1][0][0] == ":"
        # A client that waits can be unblocked, or go.
        identity = connection.call("CLIENT", "ID")[1]
        connection.call("SET", "a", "c")
        connection.send("WAIT", 9, 0)
        eventually("it to wait", lambda: primary.info()["blocked_clients"] == "1")
        assert call(primary, "CLIENT", "UNBLOCK", identity) == 1
        assert connection.reply()[0] == ":"
        connection.send("WAIT", 9, 0)
        eventually("it to wait", lambda: primary.info()["blocked_clients"] == "1")
    eventually("nobody to wait", lambda: primary.info()["blocked_clients"] == "0")


def test_keys_whose_time_has_come_wait_for_the_primary(nodes):
    primary, replica = nodes.chain("redis", "snug")
    call(primary, "DEBUG", "SET-ACTIVE-EXPIRE", 0)
    with primary.connect() as connection:
        for n in range(100):
            connection.call("SET", f"k{n}", "v", "PX", 30)
        connection.call("SET", "stays", "v")
    eventually("the keys", lambda: call(replica, "DBSIZE") == 101)
    eventually("time to pass", lambda: call(replica, "GET", "k7") is None)
    # Hidden, not removed, whoever asks.
    assert call(replica, "EXISTS", "k1", "k2", "stays") == 1
    assert call(replica, "TTL", "k3") == -2
    assert call(replica, "DBSIZE") == 101
    assert call(primary, "DBSIZE") == 101
    # The primary notices: the replica is told.
    assert call(primary, "GET", "k7") is None
    eventually("the DEL", lambda: call(replica, "DBSIZE") == 100)
    # When it leads, it is the replica's own to remove.
    lead(replica)
    eventually("their removal", lambda: call(replica, "DBSIZE") == 1)


def test_transactions_arrive_as_one(nodes):
    primary, replica = nodes.chain("snug", "snug")
    with primary.connect() as writer, replica.connect() as reader:
        for n in range(200):
            # That copy's place cannot be told from the command's keys.
            copied = [("COPY", "a", "d", "DB", 5, "REPLACE")] if n % 3 == 0 else []
            writer.pipeline([("MULTI",), ("SET", "a", n), ("SET", "b", n), ("SELECT", 3), ("SET", "c", n), ("SELECT", 0), *copied, ("EXEC",)])
            a, b = reader.call("MGET", "a", "b")[1]
            assert a == b
    wait_until_same(primary, replica)


def test_messages_reach_subscribers_of_replicas(nodes):
    primary, middle, last = nodes.chain("snug", "redis", "snug")
    with middle.connect() as one, last.connect() as two:
        for connection in (one, two):
            connection.call("SUBSCRIBE", "news")
        eventually("the link", lambda: call(primary, "PUBLISH", "news", "hello") == 0)
        for connection in (one, two):
            assert connection.frame()[1][2] == ("$", b"hello")


def test_roles_and_info_are_as_redis_tells_them(nodes):
    """A primary and a replica of each kind; what differs by nature is left out."""
    ours = nodes.chain("snug", "redis")
    theirs = nodes.chain("redis", "snug")
    for place in range(2):
        a, b = ours[place], theirs[place]
        fields = [[line.split(b":")[0] for line in call(n, "INFO", "replication").split(b"\r\n")] for n in (a, b)]
        assert fields[0] == fields[1]
        role_a, role_b = (call(n, "ROLE") for n in (a, b))
        assert [kind for kind, _ in role_a] == [kind for kind, _ in role_b]
        assert role_a[0] == role_b[0]
    eventually("an acknowledgement", lambda: b"state=online,offset=" in call(ours[0], "INFO", "replication"))
    assert call(theirs[1], "ROLE")[3] == ("$", b"connected")
    lines = call(ours[0], "CLIENT", "LIST", "TYPE", "replica").splitlines()
    assert len(lines) == 1 and b"flags=S" in lines[0]
    lines = call(theirs[1], "CLIENT", "LIST", "TYPE", "master").splitlines()
    assert len(lines) == 1 and b"flags=M" in lines[0]
    assert refusal(ours[0], "REPLICAOF", "a", "b") == refusal(theirs[0], "REPLICAOF", "a", "b") == "ERR Invalid master port"
    port = theirs[0].port
    assert call(theirs[1], "REPLICAOF", "127.0.0.1", port) == b"OK Already connected to specified master"


def test_links_that_clients_end_are_made_again(nodes):
    primary, replica = nodes.chain("snug", "snug")
    for node, kind in ((primary, "replica"), (replica, "master")):
        assert call(node, "CLIENT", "KILL", "TYPE", kind) == 1
        eventually("the end of the link", lambda: int(primary.info()["sync_partial_ok"]) > (kind == "master"))
        wait_until_up(replica)
    # Others are not what is meant.
    assert call(primary, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") >= 0
    assert primary.info()["connected_slaves"] == "1"


def test_who_waits_is_told_when_the_role_changes(nodes):
    primary, other = nodes.start("snug"), nodes.start("snug")
    with other.connect() as waiting:
        waiting.send("BLPOP", "nothing", 0)
        eventually("it to wait", lambda: other.info()["blocked_clients"] == "1")
        follow(other, primary)
        kind, text = waiting.reply()
        assert kind == "-" and text.startswith(b"UNBLOCKED force unblock")


def test_passwords_and_wrong_ones(nodes):
    primary = nodes.start("redis", "--requirepass", "secret")
    replica = nodes.start("snug", "--masterauth", "wrong")
    follow(replica, primary)
    eventually("the refusal", lambda: "WRONGPASS" in replica.log())
    assert not is_up(replica)
    call(replica, "CONFIG", "SET", "masterauth", "secret")
    wait_until_up(replica)
    # And the other way round.
    ours = nodes.start("snug", "--requirepass", "secret")
    theirs = nodes.start("redis", "--masterauth", "secret")
    follow(theirs, ours)
    wait_until_up(theirs)


def test_the_role_is_kept_in_the_configuration_file(nodes):
    primary = nodes.start("redis")
    replica = nodes.start("snug", config_lines=["# whose"])
    follow(replica, primary)
    wait_until_up(replica)
    assert call(replica, "CONFIG", "GET", "replicaof")[1][1] == f"127.0.0.1 {primary.port}".encode()
    call(replica, "CONFIG", "REWRITE")
    call(primary, "SET", "a", "b")
    nodes.kill(replica)
    nodes.restart(replica)
    wait_until_up(replica)
    wait_until_same(primary, replica)
    lead(replica)
    call(replica, "CONFIG", "REWRITE")
    nodes.kill(replica)
    nodes.restart(replica)
    assert replica.info()["role"] == "master"


def test_old_SYNC_is_answered(nodes):
    primary = nodes.start("snug")
    call(primary, "SET", "a", "b")
    with primary.connect() as connection:
        connection.send("SYNC")
        # The frame is a bulk without the line's end behind it, then the stream.
        connection.socket.settimeout(30)
        data = b""
        while b"REDIS" not in data:
            data += connection.socket.recv(1 << 16)
        assert data.lstrip(b"\n").startswith(b"$")
    eventually("its end", lambda: primary.info()["connected_slaves"] == "0")


def test_the_backlog_is_given_back(nodes):
    primary, replica = nodes.chain("snug", "redis")
    call(primary, "CONFIG", "SET", "repl-backlog-ttl", 1)
    assert primary.info()["repl_backlog_active"] == "1"
    identity = primary.info()["master_replid"]
    lead(replica)
    eventually("its end", lambda: primary.info()["repl_backlog_active"] == "0")
    assert primary.info()["master_replid"] != identity


@pytest.mark.parametrize("replica", ["redis", "snug"])
def test_failover_changes_places(nodes, replica):
    primary, replica = nodes.chain("snug", replica)
    assert refusal(replica, "FAILOVER") == "ERR FAILOVER is not valid when server is a replica."
    assert refusal(primary, "FAILOVER", "ABORT") == "ERR No failover in progress."
    assert refusal(primary, "FAILOVER", "TO", "127.0.0.1", 1) == "ERR FAILOVER target HOST and PORT is not a replica."
    assert refusal(primary, "FAILOVER", "FORCE") in ("ERR syntax error", "ERR FAILOVER with force option requires both a timeout and target HOST and IP.")
    call(primary, "SET", "a", "b")
    call(primary, "FAILOVER", "TO", "127.0.0.1", replica.port)
    eventually("the new primary", lambda: replica.info()["role"] == "master")
    wait_until_up(primary)
    assert primary.info()["master_failover_state"] == "no-failover"
    call(replica, "SET", "c", "d")
    wait_until_same(replica, primary)
    assert int(primary.info()["sync_full"]) == 1 and int(replica.info()["sync_full"]) == 0, "nothing is sent anew"


def test_failover_of_redis_to_snug(nodes):
    primary, replica = nodes.chain("redis", "snug")
    call(primary, "SET", "a", "b")
    call(primary, "FAILOVER")
    eventually("the new primary", lambda: replica.info()["role"] == "master")
    wait_until_up(primary)
    call(replica, "SET", "c", "d")
    wait_until_same(replica, primary)


def test_failover_is_given_up(nodes, proxy):
    primary, replica = nodes.start("snug"), nodes.start("redis")
    link = proxy(primary)
    follow(replica, primary, link.port)
    wait_until_up(replica)
    link.pause_after = 0
    call(primary, "SET", "a", "b")
    with primary.connect() as writer:
        call(primary, "FAILOVER")
        assert primary.info()["master_failover_state"] == "waiting-for-sync"
        writer.send("SET", "paused", "yes")
        eventually("it to wait", lambda: primary.info()["blocked_clients"] == "1")
        assert refusal(primary, "REPLICAOF", "127.0.0.1", 1) == "ERR REPLICAOF not allowed while failing over."
        call(primary, "FAILOVER", "ABORT")
        assert writer.reply() == ("+", b"OK")
        call(primary, "FAILOVER", "TIMEOUT", 50)
        eventually("the end of its time", lambda: primary.info()["master_failover_state"] == "no-failover")
    assert primary.info()["role"] == "master"
    link.pause_after = None
    wait_until_same(primary, replica)


def test_scripts_may_do_no_more_than_commands(nodes):
    """On a replica, while what it has may be stale, and with too few replicas: the same
    words as redis-server's, and nothing is written."""
    primary = nodes.start("redis")
    replicas = [nodes.start("redis"), nodes.start("snug")]
    for replica in replicas:
        follow(replica, primary)
    wait_until_up(*replicas)
    scripts = [
        ("return redis.call('SET', 'x', '1')", "0"),
        ("return redis.call('SET', KEYS[1], '1')", "1", "y"),
        ("redis.pcall('DEL', 'x') return redis.pcall('FLUSHALL')", "0"),
        ("#!lua\nreturn redis.call('GET', 'x')", "0"),
        ("#!lua flags=no-writes\nreturn redis.call('SET', 'x', '1')", "0"),
    ]
    # What may run on stale data may not read them.
    stale = [(f"#!lua flags=no-writes,allow-stale\nreturn redis.call({call})", "0") for call in ("'GET', 'x'", "'PING'", "'SET', 'x', '1'")]

    def compare():
        for script in scripts:
            theirs, ours = (refusal(replica, "EVAL", *script) for replica in replicas)
            assert theirs and ours == theirs, script

    compare()
    for replica in replicas:
        lead(replica)
        call(replica, "CONFIG", "SET", "min-replicas-to-write", "1")
    compare()
    assert [call(replica, "DBSIZE") for replica in replicas] == [0, 0]
    for replica in replicas:
        call(replica, "CONFIG", "SET", "min-replicas-to-write", "0", "replica-serve-stale-data", "no")
        follow(replica, primary, 1)
    scripts += [("return redis.call('GET', 'x')", "0"), *stale]
    compare()


@pytest.mark.parametrize("kind", ["redis", "snug"])
def test_clients_that_wait_are_told_that_the_role_has_changed(nodes, kind):
    primary, _ = nodes.chain(kind, "snug")
    text = b"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
    with primary.connect() as one, primary.connect() as other:
        one.send("BLPOP", "nothing", 0)
        other.send("WAIT", 9, 0)
        eventually("them to wait", lambda: primary.info()["blocked_clients"] == "2")
        assert call(primary, "FAILOVER") == b"OK"
        assert one.reply() == other.reply() == ("-", text)


@pytest.mark.parametrize("kind", ["redis", "snug"])
def test_client_unpause_lets_no_write_into_a_failover(nodes, kind):
    primary, replica = nodes.chain(kind, "snug")
    replica.process.send_signal(signal.SIGSTOP)
    try:
        # Something that the replica does not have.
        call(primary, "SET", "a", 1)
        assert call(primary, "FAILOVER") == b"OK"
        assert call(primary, "CLIENT", "PAUSE", 1, "WRITE") == b"OK"
        assert call(primary, "CLIENT", "UNPAUSE") == b"OK"
        with primary.connect() as writer:
            writer.send("SET", "a", 2)
            eventually("it to wait", lambda: primary.info()["blocked_clients"] == "1")
            assert call(primary, "GET", "a") == b"1"
            # The end of a failover ends no pause of a client's.
            assert call(primary, "CLIENT", "PAUSE", 100_000, "WRITE") == b"OK"
            assert call(primary, "FAILOVER", "ABORT") == b"OK"
            assert call(primary, "GET", "a") == b"1"
            assert call(primary, "CLIENT", "UNPAUSE") == b"OK"
            assert writer.reply() == ("+", b"OK")
    finally:
        replica.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_redis_cli_takes_copies(nodes, diskless):
    primary = nodes.start("snug", "--repl-diskless-sync", diskless)
    call(primary, "FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
    call(primary, "SET", "a", "x" * 1000)
    found = {}
    for option in ("--rdb", "--functions-rdb"):
        path = primary.directory / f"{option}.rdb"
        subprocess.run(["redis-cli", "-p", str(primary.port), option, str(path)], check=True, timeout=60, capture_output=True)
        copy = nodes.start("redis", "--dir", str(primary.directory), "--dbfilename", path.name)
        found[option] = call(copy, "DBSIZE"), len(call(copy, "FUNCTION", "LIST"))
    assert found == {"--rdb": (1, 1), "--functions-rdb": (0, 1)}
    eventually("nobody to be left", lambda: primary.info()["connected_slaves"] == "0")
