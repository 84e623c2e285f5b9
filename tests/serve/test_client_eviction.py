"""`maxmemory-clients`, `CLIENT NO-EVICT` and what `CLIENT LIST` tells of a client's
memory, with Redis's bounds for those who have not given a password."""

import re
import time

import pytest

from harness.resp import Closed, Silent, encode
from harness.servers import info_fields

LIMIT = 3_000_000
OK = ("+", b"OK")


@pytest.fixture
def limited(target):
    server = target.start("--maxmemory-clients", str(LIMIT))
    yield server
    server.stop()


@pytest.fixture
def admin(limited):
    with limited.connect() as connection:
        assert connection.call("CLIENT", "NO-EVICT", "ON") == OK
        assert connection.call("CLIENT", "SETNAME", "admin") == OK
        yield connection


def named(server, name="victim"):
    connection = server.connect()
    assert connection.call("CLIENT", "SETNAME", name) == OK
    return connection


def fields(admin, name="victim"):
    """What CLIENT LIST tells of a client; nothing if it is not there."""
    for line in admin.call("CLIENT", "LIST")[1].decode().splitlines():
        found = dict(re.findall(r"(\S+)=(\S*)", line))
        if found["name"] == name:
            return found
    return None


def until(condition):
    """Waits for what must come."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    return condition()


def evicted(admin):
    return int(info_fields(admin.call("INFO", "stats")[1].decode())["evicted_clients"])


def end(connection):
    """Reads until the server ends the connection."""
    while True:
        try:
            connection.frame(60)
        except (Closed, ConnectionError):
            return


@pytest.mark.snug_only  # redis-server counts what was announced, not what has come
def test_a_large_request(limited, admin):
    victim = named(limited)
    victim.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (2 * LIMIT) + b"v" * (LIMIT // 2))
    told = until(lambda: (f := fields(admin)) and int(f["tot-mem"]) >= int(f["qbuf"]) >= LIMIT // 2 and f)
    assert int(told["tot-mem"]) < LIMIT
    assert evicted(admin) == 0
    try:
        victim.send_raw(b"v" * LIMIT)
    except (Closed, ConnectionError):
        pass
    end(victim)
    assert until(lambda: fields(admin) is None)
    assert evicted(admin) == 1
    assert "victing client" in limited.log()


def test_a_large_transaction(limited, admin):
    victim = named(limited)
    assert victim.call("MULTI") == OK
    value = b"v" * (LIMIT // 4)
    for _ in range(2):
        assert victim.call("SET", "k", value) == ("+", b"QUEUED")
    assert until(lambda: int(fields(admin)["tot-mem"]) >= int(fields(admin)["multi-mem"]) >= LIMIT // 2)
    with pytest.raises((Closed, ConnectionError)):
        for _ in range(5):
            victim.call("SET", "k", value)
    assert fields(admin) is None


def test_replies_that_are_not_read(limited, admin):
    admin.call("SET", "k", b"v" * 200_000)
    victim = limited.connect(receive_buffer=4096)
    victim.call("CLIENT", "SETNAME", "victim")
    victim.call("GET", "k")
    with pytest.raises((Closed, ConnectionError)):
        while True:
            victim.send("GET", "k")
            told = fields(admin)
            if told is None:
                raise Closed
            assert int(told["tot-mem"]) < LIMIT + 200_000
    end(victim)


@pytest.mark.parametrize("command", ["WATCH", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"])
def test_many_small_things(limited, admin, command):
    assert admin.call("CONFIG", "SET", "maxmemory-clients", 200_000) == OK
    victim = named(limited)
    with pytest.raises((Closed, ConnectionError)):
        for number in range(0, 100_000, 100):
            victim.send(command, *range(number, number + 100))
            for _ in range(1 if command == "WATCH" else 100):
                victim.frame()
    assert until(lambda: fields(admin) is None)


def test_many_prefixes_that_are_tracked(limited, admin):
    assert admin.call("CONFIG", "SET", "maxmemory-clients", 200_000) == OK
    victim = named(limited)
    with pytest.raises((Closed, ConnectionError)):
        for number in range(0, 100_000, 100):
            prefixes = [word for n in range(number, number + 100) for word in ("PREFIX", b"%012d" % n)]
            assert victim.call("CLIENT", "TRACKING", "ON", "BCAST", *prefixes) == OK
    assert until(lambda: fields(admin) is None)


@pytest.mark.snug_only  # redis-server counts what was announced, not what has come
def test_who_is_spared(limited, admin):
    """And the largest of the others goes first."""
    assert admin.call("CONFIG", "SET", "maxmemory-clients", 0) == OK
    kept = []
    for name, size, spared in (("spared", LIMIT, True), ("small", LIMIT // 4, False), ("large", LIMIT // 2, False)):
        connection = named(limited, name)
        kept.append(connection)
        if spared:
            assert connection.call("CLIENT", "NO-EVICT", "ON") == OK
        connection.send_raw(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (2 * LIMIT) + b"v" * size)
        told = until(lambda: (f := fields(admin, name)) and int(f["qbuf"]) >= size and f)
        assert ("e" in told["flags"]) == spared
    assert admin.call("CONFIG", "SET", "maxmemory-clients", LIMIT + LIMIT // 2) == OK
    assert until(lambda: fields(admin, "large") is None)
    assert fields(admin, "small") and fields(admin, "spared")
    assert admin.call("CONFIG", "SET", "maxmemory-clients", LIMIT // 2) == OK
    assert until(lambda: fields(admin, "small") is None)
    assert fields(admin, "spared")
    assert evicted(admin) == 2


@pytest.mark.snug_only  # redis-server counts what was announced, not what has come
def test_a_percentage_of_maxmemory(limited, admin):
    assert admin.call("CONFIG", "SET", "maxmemory", 100_000_000, "maxmemory-clients", "2%") == OK
    assert admin.call("CONFIG", "GET", "maxmemory-clients") == ("*", [("$", b"maxmemory-clients"), ("$", b"2%")])
    victim = named(limited)
    victim.send_raw(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % LIMIT + b"v" * 1_000_000)
    assert until(lambda: int(fields(admin)["qbuf"]) >= 1_000_000)
    try:
        victim.send_raw(b"v" * 1_200_000)
    except (Closed, ConnectionError):
        pass
    end(victim)
    assert fields(admin) is None


@pytest.mark.snug_only  # redis-server counts what was announced, not what has come
def test_memory_of_clients_is_told(limited, admin):
    def told():
        return int(info_fields(admin.call("INFO", "memory")[1].decode())["mem_clients_normal"])

    before = told()
    victim = named(limited)
    victim.send_raw(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % LIMIT + b"v" * 1_000_000)
    assert until(lambda: told() >= before + 1_000_000)
    victim.close()
    assert until(lambda: told() <= before + 100_000)


@pytest.mark.parametrize(
    "request_, error",
    [
        (b"*11\r\n", b"ERR Protocol error: unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", b"ERR Protocol error: unauthenticated bulk length"),
    ],
)
def test_before_the_password(target, request_, error):
    server = target.start("--requirepass", "secret")
    try:
        with server.connect() as stranger:
            stranger.send_raw(request_)
            assert stranger.reply() == ("-", error)
            end(stranger)
        with server.connect() as stranger:
            stranger.send_raw(encode(("AUTH", "secret")))
            assert stranger.reply() == OK
            assert stranger.call("ECHO", b"v" * 20_000) == ("$", b"v" * 20_000)
    finally:
        server.stop()


def test_many_strangers_with_much_to_say_take_little(target):
    """A hundred connections, each with as much as it may send before the password."""
    server = target.start("--requirepass", "secret")
    try:
        with server.connect() as admin:
            admin.call("AUTH", "secret")
            before = server.rss_bytes()
            strangers = [server.connect() for _ in range(100)]
            for stranger in strangers:
                try:
                    stranger.send_raw(b"*10\r\n" + b"$16384\r\n%s\r\n" % (b"x" * 16384) * 9)
                except (Closed, ConnectionError):
                    pass
            for stranger in strangers:
                with pytest.raises(Silent):
                    stranger.frame(0.01)
            assert server.rss_bytes() - before < 64_000_000
            assert admin.call("PING") == ("+", b"PONG")
    finally:
        server.stop()
