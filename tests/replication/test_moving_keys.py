"""`MIGRATE`: single keys that move to another server, Snug's or Redis's; what is told of
what fails, beside redis-server; and that nothing is lost which changes meanwhile."""

import socket
import threading

import pytest

from harness import servers
from harness.nodes import Proxy, call, eventually, follow, refusal, wait_until_same

pytestmark = pytest.mark.snug_only

FLAGS = ["--enable-debug-command", "local"]


def fill(node):
    with node.connect() as connection:
        for command in [
            ("SET", "s", "value"),
            ("SET", "number", 12345),
            ("SET", "large", b"x" * 3_000_000),
            ("RPUSH", "l", *range(500)),
            ("HSET", "h", *[word for n in range(300) for word in (f"f{n}", f"v{n}" * 9)]),
            ("SADD", "set", *range(1000), "word"),
            ("ZADD", "z", *[word for n in range(300) for word in (n, f"m{n}")]),
            ("XADD", "x", "1-1", "a", "b"),
            ("XGROUP", "CREATE", "x", "g", "0"),
            ("SET", "expires", "v", "EX", 1000),
        ]:
            assert connection.call(*command)[0] != "-", command
    return ["s", "number", "large", "l", "h", "set", "z", "x", "expires"]


@pytest.mark.parametrize("kinds", [("snug", "redis"), ("redis", "snug"), ("snug", "snug")])
def test_values_of_all_types_move(nodes, kinds):
    here, there = (nodes.start(kind, *FLAGS) for kind in kinds)
    keys = fill(here)
    wanted = call(here, "DEBUG", "DIGEST")
    assert call(here, "MIGRATE", "127.0.0.1", there.port, "s", 0, 5000, "COPY") == b"OK"
    assert call(here, "DBSIZE") == len(keys)
    # What is there already is in the way, unless it is to be replaced.
    error = refusal(here, "MIGRATE", "127.0.0.1", there.port, "s", 0, 5000)
    assert error == "ERR Target instance replied with error: BUSYKEY Target key name already exists."
    assert call(here, "MIGRATE", "127.0.0.1", there.port, "", 0, 5000, "REPLACE", "KEYS", *keys, "nosuch") == b"OK"
    assert (call(here, "DBSIZE"), call(there, "DBSIZE")) == (0, len(keys))
    assert call(there, "DEBUG", "DIGEST") == wanted
    assert 900_000 < call(there, "PTTL", "expires") <= 1_000_000
    assert call(here, "MIGRATE", "127.0.0.1", there.port, "s", 0, 5000) == b"NOKEY"
    # Another database.
    call(there, "MIGRATE", "127.0.0.1", here.port, "s", 3, 5000)
    assert call(here, "GET", "s", db=3) == b"value"


def test_what_is_wrong_is_said_as_redis_says_it(nodes):
    """Beside redis-server: arguments, a target that is not there or says no, a login."""
    ours, theirs = nodes.start("snug"), nodes.start("redis")
    target = nodes.start("redis", "--requirepass", "secret")
    with target.connect() as connection:
        connection.call("AUTH", "secret")
        connection.call("ACL", "SETUSER", "mover", "on", ">word", "~*", "+@all")
    closed = servers.free_port()
    # Takes connections and says nothing.
    silent = socket.create_server(("127.0.0.1", 0))
    quiet = silent.getsockname()[1]
    for node in (ours, theirs):
        call(node, "SET", "k", "v")
        call(node, "SET", "k2", "v")
    at = ("127.0.0.1", target.port)
    commands = [
        ("MIGRATE", *at, "k", 0),
        ("MIGRATE", *at, "k", "x", 100),
        ("MIGRATE", *at, "k", 0, "x"),
        ("MIGRATE", *at, "k", 0, 100, "NOSUCH"),
        ("MIGRATE", *at, "k", 0, 100, "AUTH"),
        ("MIGRATE", *at, "k", 0, 100, "AUTH2", "a"),
        ("MIGRATE", *at, "k", 0, 100, "KEYS", "k"),
        ("MIGRATE", *at, "", 0, 100, "KEYS"),
        ("MIGRATE", *at, "nosuch", 0, 100),
        ("MIGRATE", *at, "", 0, 100, "KEYS", "nosuch", "nosuch2"),
        ("MIGRATE", *at, "k", 0, 5000),
        ("MIGRATE", *at, "k", 0, 5000, "AUTH", "wrong"),
        ("MIGRATE", *at, "k", 0, 5000, "AUTH2", "mover", "wrong"),
        ("MIGRATE", *at, "k", 99, 5000, "AUTH", "secret"),
        ("MIGRATE", "127.0.0.1", closed, "k", 0, 5000),
        ("MIGRATE", "host.invalid", 1, "k", 0, 5000),
        ("MIGRATE", "127.0.0.1", quiet, "k", 0, 50),
        ("EXISTS", "k", "k2"),
        ("MIGRATE", *at, "k", 0, 5000, "AUTH", "secret", "REPLACE"),
        ("MIGRATE", *at, "", 0, 5000, "AUTH2", "mover", "word", "REPLACE", "KEYS", "k2", "k"),
        ("EXISTS", "k", "k2"),
        ("COMMAND", "GETKEYS", "MIGRATE", *at, "", 0, 100, "COPY", "KEYS", "a", "b"),
        ("COMMAND", "GETKEYSANDFLAGS", "MIGRATE", *at, "a", 0, 100, "COPY"),
    ]
    with ours.connect() as mine, theirs.connect() as other:
        for command in commands:
            assert mine.call(*command) == other.call(*command), command
    silent.close()


def test_passwords_are_shown_to_nobody(nodes):
    ours = nodes.start("snug", "--slowlog-log-slower-than", "0")
    with ours.connect() as watcher, ours.connect() as client:
        watcher.call("MONITOR")
        client.call("MIGRATE", "127.0.0.1", 1, "k", 0, 10, "AUTH2", "someone", "secret", "KEYS", "auth", "shown")
        client.call("MIGRATE", "127.0.0.1", 1, "", 0, 10, "AUTH", "secret", "KEYS", "auth", "shown")
        lines = [watcher.frame()[1] for _ in range(2)]
        log = repr(client.call("SLOWLOG", "GET"))
    assert b'"AUTH2" "(redacted)" "(redacted)" "KEYS" "auth" "shown"' in lines[0]
    assert b'"AUTH" "(redacted)" "KEYS" "auth" "shown"' in lines[1]
    assert "secret" not in log and "someone" not in log and "shown" in log


def test_nobody_waits_for_the_target(nodes):
    """A worker goes on while a target does not answer; a client that leaves takes its
    key with it nowhere."""
    here = nodes.start("snug", workers=1)
    silent = socket.create_server(("127.0.0.1", 0))
    with here.connect() as mover, here.connect() as other:
        other.call("SET", "k", "v")
        mover.send("MIGRATE", "127.0.0.1", silent.getsockname()[1], "k", 0, 60_000)
        accepted, _ = silent.accept()
        assert accepted.recv(10)
        for n in range(100):
            assert other.call("SET", "k", n) == ("+", b"OK")
        mover.close()
        assert other.call("GET", "k") == ("$", b"99")
    accepted.close()
    silent.close()


def test_what_changes_on_its_way_is_sent_again(nodes):
    """Between the copy and the target's word, held up by a proxy, the value changes: by
    commands that WATCH follows, and by one that it does not."""
    here, there = nodes.start("snug"), nodes.start("redis")
    proxy = Proxy(there.port)
    with here.connect() as mover, here.connect() as other:
        for setup, change, check in [
            (("SET", "k", "old"), ("APPEND", "k", "er"), ("GET", "k")),
            (("XADD", "x", "1-1", "a", "b"), ("XGROUP", "CREATE", "x", "g", "0"), ("XINFO", "GROUPS", "x")),
            (("SADD", "set", "a"), ("SADD", "set", "b"), ("SCARD", "set")),
        ]:
            key = setup[1]
            other.call(*setup)
            proxy.pause_after = 0
            mover.send("MIGRATE", "127.0.0.1", proxy.port, key, 0, 30_000)
            # The copy is at the target, which says so when the proxy lets it.
            with there.connect() as target:
                eventually("the copy", lambda: target.call("EXISTS", key) == (":", 1))
            assert other.call(*change)[0] != "-"
            wanted = other.call(*check)[1]
            proxy.pause_after = None
            assert mover.reply(30) == ("+", b"OK"), setup
            assert other.call("EXISTS", key) == (":", 0)
            with there.connect() as target:
                found = target.call(*check)[1]
                # Redis 7.0 tells less of a group.
                assert len(found) == len(wanted) if key == "x" else found == wanted
    proxy.stop()


def test_keys_under_writes_lose_none(nodes):
    """Counters that others increment while they move there and back: every increment is
    in the end in one place."""
    here, there = nodes.start("snug"), nodes.start("snug")
    done = threading.Event()
    counts = []

    def write():
        count = 0
        with here.connect() as connection:
            while not done.is_set():
                assert connection.call("INCRBY", f"n{count % 20}", 1)[0] == ":"
                count += 1
        counts.append(count)

    writers = [threading.Thread(target=write) for _ in range(2)]
    [writer.start() for writer in writers]
    total = 0
    with here.connect() as mover, there.connect() as target:
        for turn in range(100):
            key = f"n{turn % 20}"
            moved = mover.call("MIGRATE", "127.0.0.1", there.port, key, 0, 5000)
            if moved == ("+", b"OK"):
                # What was incremented since began anew here.
                total += int(target.call("GETDEL", key)[1])
            elif moved[0] == "-":
                # It has changed whenever it was sent, and what came there is old.
                assert b"changed" in moved[1]
                target.call("DEL", key)
        done.set()
        [writer.join() for writer in writers]
        left = [mover.call("GET", f"n{n}")[1] for n in range(20)]
    assert total > 0
    assert total + sum(int(value or 0) for value in left) == sum(counts)


def test_a_replica_and_the_log_see_keys_go(nodes):
    here, there = nodes.start("snug", *FLAGS, "--appendonly", "yes", "--repl-diskless-sync-delay", "0"), nodes.start("redis")
    replica = nodes.start("redis", *FLAGS)
    follow(replica, here)
    fill(here)
    wait_until_same(here, replica)
    call(here, "MIGRATE", "127.0.0.1", there.port, "", 0, 5000, "KEYS", "s", "large", "h")
    wait_until_same(here, replica)
    assert call(replica, "EXISTS", "s", "large", "h", "l") == 1
    wanted = call(here, "DEBUG", "DIGEST")
    nodes.restart(here)
    assert call(here, "DEBUG", "DIGEST") == wanted


def test_not_within_a_transaction_or_a_script(nodes):
    here = nodes.start("snug")
    text = "ERR MIGRATE waits for another server, which a transaction or a script may not"
    with here.connect() as connection:
        connection.call("MULTI")
        connection.call("MIGRATE", "127.0.0.1", 1, "k", 0, 10)
        assert connection.call("EXEC") == ("*", [("-", text.encode())])
        assert text.encode() in connection.call("EVAL", "return redis.call('migrate', '127.0.0.1', 1, 'k', 0, 10)", 0)[1]
