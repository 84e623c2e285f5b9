"""The disk tier: what is cold goes to disk when memory is short, and is there for every
command as if it had never gone; a disk that is full, failing or damaged costs no data."""

import contextlib
import errno
import os
import pathlib
import random
import subprocess
import threading

import pytest

from harness.bystander import MB
from harness.faults import Disk
from harness.packing import about, until
from harness.servers import info_fields

pytestmark = pytest.mark.snug_only

VALUE = b"0123456789abcdef" * 20
LIMIT = 12 * MB
LEN = 1000
#: The engine below the tier, which is to be in the build.
ENGINE = os.environ.get("SNUG_TIER_ENGINE", "log")
#: For what others do in another way: see docs/tier.md.
log_only = pytest.mark.skipif(ENGINE != "log", reason="the files, the memory and the errors of the log")
#: For what must come about.
WAIT_SECONDS = 60


@contextlib.contextmanager
def running(target, *flags, path="tier", workers=2):
    """A server with a tier in its own folder."""
    server = target.server("--tier-path", path, "--tier-engine", ENGINE, "--pack", "no", *flags, workers=workers).start()
    try:
        yield server
    finally:
        server.stop()


def tier(c):
    return info_fields(c.call("INFO", "tier")[1].decode())


def away(c, key):
    return about(c, key)[b"disk-bytes"] > 0


def leave(c, *keys):
    for key in keys:
        assert c.call("SNUG", "TIER", key) == (":", 1), key
        assert away(c, key)


def bytes_of_files(folder):
    """What all files take together, while some of them come and go."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def value(n):
    return random.Random(n).randbytes(LEN)


def fill(c, numbers, retry=True):
    """Sets keys to values that cannot be packed; where the tier has not kept up, again."""
    numbers = list(numbers)
    while numbers:
        some, numbers = numbers[:500], numbers[500:]
        replies = c.pipeline([("SET", f"key:{n}", value(n)) for n in some])
        refused = [n for n, reply in zip(some, replies) if reply[1] != b"OK"]
        assert retry or not refused
        numbers = refused + numbers


def test_every_command_finds_what_is_on_disk(target):
    with running(target, "--enable-debug-command", "yes") as server, server.connect() as c, server.connect() as other:
        c.call("SET", "s", VALUE)
        c.call("SET", "bits", b"\xff" * 100)
        c.call("RPUSH", "l", *[b"item" * 5] * 10)
        c.call("HSET", "h", "f", b"some words " * 10, "n", "5")
        c.call("SADD", "set", *[f"member number {n}" for n in range(10)])
        c.call("ZADD", "z", *[x for n in range(10) for x in (n, f"member number {n}")])
        keys = ["s", "bits", "l", "h", "set", "z"]
        digest = c.call("DEBUG", "DIGEST")
        encodings = [c.call("OBJECT", "ENCODING", key)[1] for key in keys]
        leave(c, *keys)
        assert (tier(c)["tier_values"], c.call("DEBUG", "DIGEST")) == ("6", digest)
        # Telling something of a key leaves it where it is.
        assert [c.call("TYPE", key)[1] for key in keys] == [b"string", b"string", b"list", b"hash", b"set", b"zset"]
        assert encodings == [c.call("OBJECT", "ENCODING", key)[1] for key in keys]
        assert c.call("EXISTS", *keys) == (":", 6)
        assert c.call("EXPIRE", "s", "1000") == (":", 1)
        assert c.call("PERSIST", "s") == (":", 1)
        assert len(c.call("SCAN", "0", "COUNT", "1000", "TYPE", "string")[1][1][1]) == 2
        assert c.call("MEMORY", "USAGE", "s")[1] < 80
        assert c.call("RENAME", "s", "t") == ("+", b"OK")
        assert c.call("MOVE", "t", "3") == (":", 1)
        assert c.call("SWAPDB", "0", "3") == ("+", b"OK")
        assert away(c, "t")
        assert c.call("SWAPDB", "0", "3") == ("+", b"OK")
        c.call("SELECT", "3")
        assert c.call("MOVE", "t", "0") == (":", 1)
        c.call("SELECT", "0")
        assert (tier(c)["tier_values"], c.call("DEBUG", "DIGEST") == digest) == ("6", False)
        assert c.call("RENAME", "t", "s") == ("+", b"OK")
        assert (tier(c)["tier_values"], c.call("DEBUG", "DIGEST")) == ("6", digest)
        # Reading brings it back, whoever reads.
        for read, expected in [
            (("GET", "s"), VALUE),
            (("STRLEN", "s"), len(VALUE)),
            (("GETRANGE", "s", "1", "3"), VALUE[1:4]),
            (("BITCOUNT", "bits"), 800),
            (("HGET", "h", "n"), b"5"),
            (("HLEN", "h"), 2),
            (("SISMEMBER", "set", "member number 3"), 1),
            (("ZSCORE", "z", "member number 7"), b"7"),
            (("LINDEX", "l", "3"), b"item" * 5),
            (("EVAL", "return redis.call('GET', KEYS[1])", "1", "s"), VALUE),
            (("EVAL", "return redis.call('GET', 's')", "0"), VALUE),
        ]:
            key = next(key for key in keys if key in read or f"'{key}'" in str(read))
            leave(c, key)
            assert c.call(*read)[1] == expected, read
            assert not away(c, key)
        leave(c, "s", "h")
        assert [reply[1] for reply in c.call("MGET", "s", "h", "nosuch", "s")[1]] == [VALUE, None, None, VALUE]
        # So does changing.
        leave(c, "s", "l", "h", "set", "z")
        assert c.call("APPEND", "s", "end") == (":", len(VALUE) + 3)
        assert c.call("HINCRBY", "h", "n", "2") == (":", 7)
        assert c.call("LPUSH", "l", "first") == (":", 11)
        assert c.call("SADD", "set", "member number 3", "more") == (":", 1)
        assert c.call("ZINCRBY", "z", "5", "member number 1")[1] == b"6"
        assert c.call("GET", "s") == ("$", VALUE + b"end")
        # A transaction waits before it begins; one client waits for nobody else's.
        leave(c, "s", "h")
        c.pipeline([("MULTI",), ("APPEND", "s", "!"), ("HGET", "h", "n"), ("SET", "s", "x")])
        assert c.call("EXEC") == ("*", [(":", len(VALUE) + 4), ("$", b"7"), ("+", b"OK")])
        c.call("SET", "s", VALUE)
        leave(c, "s", "set")
        assert c.call("SUNIONSTORE", "union", "set") == (":", 11)
        assert c.call("COPY", "s", "copy") == (":", 1)
        leave(c, "s", "copy")
        assert c.call("DEL", "s") == (":", 1)
        assert c.call("GET", "copy") == ("$", VALUE)
        # Another value in its place needs nothing of it.
        leave(c, "copy")
        before = tier(c)["tier_values_brought"]
        assert c.call("SET", "copy", "new") == ("+", b"OK")
        assert tier(c)["tier_values_brought"] == before
        # A client that waits for a key gets what is renamed to it.
        leave(c, "l")
        other.send("BLPOP", "waited", "0")
        until(lambda: server.info()["blocked_clients"] == "1", "it waits")
        assert c.call("RENAME", "l", "waited") == ("+", b"OK")
        assert other.reply() == ("*", [("$", b"waited"), ("$", b"first")])
        leave(c, "h", "set", "z")
        assert c.call("FLUSHALL") == ("+", b"OK")
        fields = tier(c)
        assert (fields["tier_values"], fields["tier_live_bytes"]) == ("0", "0")


def make_large(c):
    """A key of each type whose value lies in no entry; their names."""
    rng = random.Random(5)
    text = b"".join(b"line %d: some words that are packed, %d\n" % (n, rng.randrange(99)) for n in range(6000))
    c.call("SET", "text", text)
    c.call("SET", "blob", rng.randbytes(3_000_000))
    for n in range(2000):
        c.send("HSET", "hash", f"field:{n}", f"value {n} of many")
        c.send("RPUSH", "list", f"item {n} of many")
        c.send("SADD", "set", f"member {n} of many")
        c.send("SADD", "numbers", str(n * 7))
        c.send("ZADD", "zset", str(n / 8), f"member {n}")
        c.send("XADD", "stream", f"{n + 1}-0", "sensor", str(n % 7), "value", str(n * n))
    for _ in range(6 * 2000):
        assert c.reply()[0] != "-"
    c.call("HSET", "hash", "long", b"x" * 20_000)
    c.call("XGROUP", "CREATE", "stream", "group", "0")
    c.call("XREADGROUP", "GROUP", "group", "me", "COUNT", "50", "STREAMS", "stream", ">")
    c.call("XDEL", "stream", "7-0")
    return ["text", "blob", "hash", "list", "set", "numbers", "zset", "stream"]


@pytest.mark.parametrize("pack", ["no", "yes"])
def test_large_values_go_and_come_as_a_whole(target, pack):
    with running(target, "--enable-debug-command", "yes", "--pack", pack) as server, server.connect() as c:
        keys = make_large(c)
        if pack == "yes":
            c.call("SNUG", "PACK", "text")
            until(lambda: about(c, "stream")[b"packed-bytes"] > 0, "its blocks are packed")
            until(lambda: about(c, "text")[b"packed-bytes"] > 0, "it is packed")
        encodings = [c.call("OBJECT", "ENCODING", key)[1] for key in keys]
        digest = c.call("DEBUG", "DIGEST")
        leave(c, *keys)
        assert (tier(c)["tier_values"], c.call("DEBUG", "DIGEST")) == ("8", digest)
        brought = tier(c)["tier_values_brought"]
        assert encodings == [c.call("OBJECT", "ENCODING", key)[1] for key in keys]
        assert all(c.call("MEMORY", "USAGE", key)[1] < 80 for key in keys)
        # Telling something of a key leaves it where it is.
        assert [c.call("TYPE", key)[1] for key in keys[2:]] == [b"hash", b"list", b"set", b"set", b"zset", b"stream"]
        for key in keys:
            assert c.call("RENAME", key, "other") == ("+", b"OK")
            assert c.call("MOVE", "other", "3") == (":", 1)
            c.call("SELECT", "3")
            assert c.call("RENAME", "other", key) == ("+", b"OK")
            assert c.call("EXPIRE", key, "1000") == (":", 1)
            assert c.call("PERSIST", key) == (":", 1)
            c.call("SELECT", "0")
        assert c.call("SWAPDB", "0", "3") == ("+", b"OK")
        assert (tier(c)["tier_values"], c.call("DEBUG", "DIGEST")) == ("8", digest)
        assert c.call("DEBUG", "RELOAD") == ("+", b"OK")
        assert c.call("DEBUG", "DIGEST") == digest
        leave(c, *[key for key in keys if not away(c, key)])
        assert tier(c)["tier_values_brought"] == brought
        # Reading brings it back, and so does changing.
        for read, expected in [
            (("GETRANGE", "text", "0", "6"), b"line 0:"),
            (("STRLEN", "blob"), 3_000_000),
            (("HGET", "hash", "field:77"), b"value 77 of many"),
            (("HSTRLEN", "hash", "long"), 20_000),
            (("LINDEX", "list", "-1"), b"item 1999 of many"),
            (("SISMEMBER", "set", "member 5 of many"), 1),
            (("SCARD", "numbers"), 2000),
            (("ZSCORE", "zset", "member 80"), b"10"),
            (("XLEN", "stream"), 1999),
            (("EVAL", "return redis.call('XLEN', 'stream')", "0"), 1999),
            (("APPEND", "text", ""), len(c.call("GET", "text")[1])),
            (("HSET", "hash", "long", "x"), 0),
            (("LSET", "list", "3", "x"), b"OK"),
            (("SREM", "set", "member 5 of many"), 1),
            (("ZINCRBY", "zset", "1", "member 80"), b"11"),
            (("XADD", "stream", "9999-1", "a", "b"), b"9999-1"),
            (("XACK", "stream", "group", "1-0"), 1),
        ]:
            key = next(key for key in keys if key in read or f"'{key}'" in str(read))
            leave(c, key)
            assert c.call(*read)[1] == expected, read
            assert not away(c, key)
        digest = c.call("DEBUG", "DIGEST")
        leave(c, *keys)
        assert c.call("DEBUG", "DIGEST") == digest
        for key in keys:
            assert c.call("COPY", key, "copy", "REPLACE") == (":", 1)
        assert len(c.call("XRANGE", "copy", "-", "+")[1]) == 2000
        assert c.call("FLUSHALL") == ("+", b"OK")
        fields = tier(c)
        assert (fields["tier_values"], fields["tier_live_bytes"]) == ("0", "0")
        # Nothing is held for what is gone.
        dictionaries = c.call("SNUG", "DICTIONARIES")[1]
        assert all(reply[1] == 0 for d in dictionaries for name, reply in zip(d[1], d[1][1:]) if name[1] == b"references")


def test_a_value_that_is_changed_on_its_way_stays(target):
    """While one client has large values go again and again, others change them: nothing
    of that is lost."""
    rounds = 600
    with running(target) as server:
        with server.connect() as c:
            make_large(c)
        wrong, went = [], threading.Event()

        def change(command, *rest):
            with server.connect() as c:
                for n in range(rounds):
                    if n == rounds // 2:
                        went.wait(WAIT_SECONDS)
                    reply = c.call(*command, str(n), *rest)
                    if reply[0] == "-":
                        wrong.append(reply)

        with server.connect() as c:
            changes = [
                (("HSET", "hash"), "new"),
                (("RPUSH", "list"),),
                (("SREM", "numbers"),),
                (("APPEND", "text"),),
            ]
            threads = [threading.Thread(target=change, args=args) for args in changes]
            for thread in threads:
                thread.start()
            gone = 0
            while any(thread.is_alive() for thread in threads):
                gone += sum(c.call("SNUG", "TIER", key)[1] for key in ("hash", "list", "numbers", "text"))
                if gone > 0:
                    went.set()
            for thread in threads:
                thread.join()
            assert (wrong, gone > 0) == ([], True)
            leave(c, "hash", "list", "numbers", "text")
            assert c.call("HLEN", "hash") == (":", 2001 + rounds)
            assert c.call("LLEN", "list") == (":", 2000 + rounds)
            items = [item[1] for item in c.call("LRANGE", "list", str(-rounds), "-1")[1]]
            assert items == [b"%d" % n for n in range(rounds)]
            assert c.call("SCARD", "numbers") == (":", 2000 - (rounds + 6) // 7)
            assert c.call("GET", "text")[1].endswith(b"".join(b"%d" % n for n in range(rounds)))
            # A value that is gone and there again is not what was copied.
            assert int(tier(c)["tier_values_lost"]) == 0


@log_only
def test_large_values_that_are_damaged_are_errors(target):
    with running(target) as server, server.connect() as c:
        keys = make_large(c)
        leave(c, *keys)
        for segment in (server.directory / "tier").iterdir():
            data = bytearray(segment.read_bytes())
            data[100:-100:1000] = b"\x00" * len(range(100, len(data) - 100, 1000))
            data[101:-100:1000] = b"\xff" * len(range(101, len(data) - 100, 1000))
            segment.write_bytes(data)
        commands = [
            ("GET", "text"),
            ("APPEND", "text", "x"),
            ("SETRANGE", "blob", "5", "x"),
            ("HGET", "hash", "field:1"),
            ("HSET", "hash", "a", "b"),
            ("HINCRBY", "hash", "c", "1"),
            ("LPOP", "list"),
            ("LLEN", "list"),
            ("SADD", "set", "x"),
            ("SCARD", "numbers"),
            ("SINTER", "set", "numbers"),
            ("ZADD", "zset", "1", "x"),
            ("ZRANGE", "zset", "0", "1"),
            ("XADD", "stream", "*", "a", "b"),
            ("XLEN", "stream"),
            ("XRANGE", "stream", "-", "+"),
            ("XREAD", "STREAMS", "stream", "0"),
            ("XREADGROUP", "GROUP", "group", "me", "STREAMS", "stream", ">"),
            ("XACK", "stream", "group", "1-0"),
            ("XDEL", "stream", "1-0"),
            ("XTRIM", "stream", "MAXLEN", "1"),
            ("XINFO", "STREAM", "stream"),
            ("XGROUP", "CREATE", "stream", "other", "0"),
        ]
        for command in commands:
            assert b"cannot be read back from disk" in c.call(*command)[1], command
        c.pipeline([("MULTI",), *commands])
        replies = c.call("EXEC")[1]
        for command, reply in zip(commands, replies):
            assert reply[0] == "-" and b"cannot be read back from disk" in reply[1], (command, reply)
        assert c.call("SAVE")[0] == "-"
        assert c.call("DEL", *keys) == (":", 8)
        assert c.call("SAVE") == ("+", b"OK")


def test_ten_times_the_memory_is_kept_and_read(target):
    """Nothing may be evicted, and all that was written is there, while several clients
    read and write it at once."""
    count = 10 * LIMIT // LEN
    with running(target, "--maxmemory", str(LIMIT)) as server:
        with server.connect() as c:
            fill(c, range(count))
            assert c.call("DBSIZE") == (":", count)
            assert int(tier(c)["tier_values"]) > count * 7 // 10
        wrong = []

        def client(seed):
            rng = random.Random(seed)
            with server.connect() as c:
                for _ in range(8):
                    numbers = [min(int(rng.paretovariate(0.3)), count) - 1 for _ in range(40)]
                    numbers += [rng.randrange(count) for _ in range(10)]
                    replies = c.pipeline([("GET", f"key:{n}") for n in numbers])
                    wrong.extend(n for n, reply in zip(numbers, replies) if reply[1] != value(n))
                    mine = [f"own:{seed}:{rng.randrange(100)}" for _ in range(10)]
                    c.pipeline([("SET", name, name * 40) for name in mine])
                    replies = c.pipeline([("APPEND", name, "") for name in mine])
                    wrong.extend(name for name, reply in zip(mine, replies) if reply[0] == ":" and reply[1] % len(name))

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        with server.connect() as c:
            stats = info_fields(c.call("INFO", "everything")[1].decode())
            assert (stats["evicted_keys"], stats["tier_values_lost"], stats["tier_status"]) == ("0", "0", "ok")
            assert int(stats["tier_values_brought"]) > 100
            for at in range(0, count, 1000):
                replies = c.pipeline([("EXISTS", f"key:{n}") for n in range(at, min(at + 1000, count))])
                assert {reply[1] for reply in replies} == {1}


@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
def test_who_writes_faster_than_the_disk_waits_for_it(target, policy):
    """Nothing is evicted and nobody refused, whatever the clients' speed; others are served."""
    clients, each = 8, 4000
    with running(target, "--maxmemory", str(LIMIT), "--maxmemory-policy", policy) as server:
        failed, most = [], 0

        def write(client):
            with server.connect() as c:
                for first in range(client * each, (client + 1) * each, 200):
                    replies = c.pipeline([("SET", f"key:{n}", value(n)) for n in range(first, first + 200)])
                    failed.extend(reply for reply in replies if reply != ("+", b"OK"))

        threads = [threading.Thread(target=write, args=[client]) for client in range(clients)]
        for thread in threads:
            thread.start()
        with server.connect() as c:
            while any(thread.is_alive() for thread in threads):
                assert c.call("PING") == ("+", b"PONG")
                most = max(most, int(server.info()["used_memory"]))
        for thread in threads:
            thread.join()
        assert not failed
        with server.connect() as c:
            assert c.call("DBSIZE") == (":", clients * each)
            assert server.info()["evicted_keys"] == "0"
            assert int(tier(c)["tier_room_waits"]) > 0
            # Eight clients have 200 values on their way.
            assert most < LIMIT + 5 * MB
            for n in range(0, clients * each, 97):
                assert c.call("GET", f"key:{n}") == ("$", value(n))
            # A script, a transaction.
            for n in range(100_000, 101_000):
                assert c.call("EVAL", "return redis.call('set', KEYS[1], ARGV[1])", 1, f"key:{n}", value(n)) == ("+", b"OK")
            for n in range(101_000, 102_000):
                replies = c.pipeline([("MULTI",), ("SET", f"key:{n}", value(n)), ("EXEC",)])
                assert replies[2] == ("*", [("+", b"OK")])
            assert server.info()["evicted_keys"] == "0"


def test_nobody_waits_for_what_cannot_go(target):
    """Integers stay in memory: when it is full of them, writes are refused as without a tier."""
    with running(target, "--maxmemory", str(LIMIT)) as server, server.connect() as c:
        first, refused = 0, None
        while refused is None:
            replies = c.pipeline([("SET", f"number:{n}", n) for n in range(first, first + 5000)])
            refused = next((reply for reply in replies if reply[0] == "-"), None)
            first += 5000
        assert refused[1].startswith(b"OOM")
        assert int(server.info()["used_memory"]) < LIMIT + 5 * MB
        # And when there is room again, nobody is.
        c.call("FLUSHALL")
        fill(c, range(3 * LIMIT // LEN), retry=False)
        assert c.call("DBSIZE") == (":", 3 * LIMIT // LEN)


@pytest.mark.parametrize("append_only", ["yes", "no"])
def test_it_is_rebuilt_after_kill_9(target, append_only):
    """The tier itself is of no use to another process: it is removed at the start, and
    what was in it comes from the append-only file, or the snapshot."""
    count = 4 * LIMIT // LEN
    flags = ("--maxmemory", str(LIMIT), "--appendonly", append_only, "--appendfsync", "always")
    with running(target, *flags) as server:
        with server.connect() as c:
            fill(c, range(count))
            if append_only == "no":
                assert c.call("SAVE") == ("+", b"OK")
            assert int(tier(c)["tier_values"]) > count // 3
        folder = server.directory / "tier"
        old = set(folder.glob("*.seg"))
        server.process.kill()
        server.process.wait()
        server.start()
        until(lambda: server.info()["loading"] == "0", "it has loaded")
        files = set(folder.glob("*.seg"))
        assert ENGINE != "log" or files and not old & files
        with server.connect() as c:
            assert c.call("DBSIZE") == (":", count)
            assert int(tier(c)["tier_values"]) > count // 3
            numbers = random.sample(range(count), 1000)
            replies = c.pipeline([("GET", f"key:{n}") for n in numbers])
            assert all(reply[1] == value(n) for n, reply in zip(numbers, replies))


@log_only
def test_what_is_damaged_is_an_error_that_names_its_key(target):
    with running(target) as server, server.connect() as c:
        for key in ("good", "bad", "other"):
            c.call("SET", key, VALUE)
        c.call("HSET", "hash", "field", VALUE)
        leave(c, "good", "bad", "other", "hash")
        [segment] = (server.directory / "tier").glob("*.seg")
        data = bytearray(segment.read_bytes())
        at = len(VALUE) + 5
        data[at] ^= 1
        segment.write_bytes(data[: 3 * len(VALUE) + 20])
        error = ("-", b"ERR the value of 'bad' cannot be read back from disk: its bytes are not those that were written")
        assert c.call("GET", "bad") == error
        assert c.call("STRLEN", "bad") == error
        assert c.call("APPEND", "bad", "x") == error
        assert c.call("MGET", "good", "bad") == error
        assert c.call("GET", "good") == ("$", VALUE)
        assert c.call("HGET", "hash", "field")[1].startswith(b"ERR the value of 'hash' cannot be read back from disk")
        assert c.call("HSET", "hash", "other", "1")[0] == "-"
        c.pipeline([("MULTI",), ("GET", "bad"), ("STRLEN", "bad"), ("APPEND", "bad", "x"), ("GET", "other")])
        replies = c.call("EXEC")[1]
        assert replies == [error, error, error, ("$", VALUE)]
        assert c.call("EVAL", "return redis.call('STRLEN', 'bad')", "0")[0] == "-"
        assert int(tier(c)["tier_values_lost"]) >= 6
        # It is not saved as something else, and can be replaced and removed.
        assert c.call("SAVE")[0] == "-"
        assert c.call("SET", "bad", "new") == ("+", b"OK")
        assert c.call("DEL", "hash") == (":", 1)
        assert c.call("GET", "bad") == ("$", b"new")
        assert c.call("SAVE") == ("+", b"OK")


def test_a_tier_that_is_full_leaves_all_to_eviction(target):
    flags = ("--maxmemory", str(LIMIT), "--tier-max-bytes", str(6 * MB))
    with running(target, *flags, "--maxmemory-policy", "allkeys-lru") as server, server.connect() as c:
        files = lambda: bytes_of_files(server.directory / "tier")
        evicted = lambda: int(info_fields(c.call("INFO", "everything")[1].decode())["evicted_keys"])
        count = 0

        def more():
            """Sets a thousand keys more. How many of them a disk that is slow leaves to eviction, nobody knows."""
            nonlocal count
            fill(c, range(count, count + 1000), retry=False)
            count += 1000

        def is_full():
            more()
            return tier(c)["tier_status"] == "full" and evicted() > 0

        until(is_full, "the tier is full")
        assert int(tier(c)["tier_written_bytes"]) > 4 * MB
        assert files() <= 6 * MB
        # Some may still be evicted while these are read.
        until(lambda: c.call("DBSIZE")[1] + evicted() == count, "keys are gone that were not evicted")
        replies = c.pipeline([("GET", f"key:{n}") for n in range(count - 1000, count)])
        assert all(reply[1] in (None, value(n)) for n, reply in zip(range(count - 1000, count), replies))
        # More room is used at once.
        assert c.call("CONFIG", "SET", "tier-max-bytes", "0") == ("+", b"OK")

        def goes_on():
            more()
            return tier(c)["tier_status"] == "ok" and files() > 7 * MB

        until(goes_on, "it goes on")


#: Strings above 64 KiB, and collections that do not lie in their entries.
LARGE = {
    "strings": lambda n: ("SET", f"key:{n}", random.Random(n).randbytes(100_000)),
    "hashes": lambda n: ("HSET", f"key:{n}", *[x for f in range(200) for x in (f"f{f}", random.Random(f"{n} {f}").randbytes(400))]),
}


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru"])
@pytest.mark.parametrize("kind", LARGE)
def test_large_values_that_are_not_packed_go_when_memory_is_short(target, kind, policy):
    count = 400
    with running(target, "--maxmemory", str(24 * MB), "--maxmemory-policy", policy) as server, server.connect() as c:
        replies = [c.call(*LARGE[kind](n)) for n in range(count)]
        assert [reply for reply in replies if reply[0] == "-"] == []
        assert (int(server.info()["evicted_keys"]), c.call("DBSIZE")) == (0, (":", count))
        assert int(tier(c)["tier_values"]) > 0


@log_only
def test_a_full_tier_moves_what_is_left(target):
    """What is deleted lies everywhere, and there is room to move one segment only."""
    flags = ["--maxmemory", str(24 * MB), "--tier-max-bytes", str(40 * MB), "--pack", "no"]
    with running(target, *flags) as server, server.connect() as c:
        count = 0
        while c.call("SET", f"key:{count}", value(count))[0] == "+":
            count += 1
        # It tries again now and then: what is refused meanwhile may be so for want of time.
        until(lambda: tier(c)["tier_status"] == "full", "it is full")
        replies = c.pipeline([("DEL", f"key:{n}") for n in range(0, count, 2)])
        assert all(reply == (":", 1) for reply in replies)
        written = []

        def has_room():
            while len(written) <= count // 4 and c.call("SET", f"more:{len(written)}", value(len(written)))[0] == "+":
                written.append(len(written))
            return len(written) > count // 4

        until(has_room, "what was deleted leaves room for others")

        def is_read(n):
            reply = c.call("GET", f"key:{n}")
            # It comes to memory, and another has to go in its place: not while the tier moves what is left.
            assert reply[1] == value(n) or reply[1].startswith(b"OOM command not allowed")
            return reply[0] == "$"

        for n in range(1, count, 2):
            until(lambda n=n: is_read(n), "there is room to read it")


@log_only
def test_a_full_tier_gives_up_what_comes_in_place_of_it(target):
    """As much is evicted as comes, not all that lies on disk."""
    flags = ["--maxmemory", str(24 * MB), "--maxmemory-policy", "allkeys-lru", "--pack", "no"]
    with running(target, *flags, "--tier-max-bytes", str(60 * MB)) as server, server.connect() as c:
        count = 200 * MB // LEN
        least = None
        for at in range(0, count, 500):
            fill(c, range(at, at + 500))
            if int(server.info()["evicted_keys"]):
                keys = int(c.call("DBSIZE")[1])
                least = min(least or keys, keys)
        assert least and least > 40 * MB // LEN
        assert int(tier(c)["tier_values"]) > 20 * MB // LEN


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru"])
def test_reads_keep_within_memory_where_nothing_can_go(target, policy):
    """Of a tier that takes nothing more no read brings memory beyond its limit."""
    with running(target, "--maxmemory", str(LIMIT), "--pack", "no") as server, server.connect() as c:
        count = 3 * LIMIT // LEN
        fill(c, range(count))
        c.call("CONFIG", "SET", "tier-max-bytes", str(MB), "maxmemory-policy", policy)
        refused = 0
        for n in range(count):
            reply = c.call("GET", f"key:{n}")
            assert reply[1] is None or reply[1] == value(n) or reply[1].startswith(b"OOM command not allowed")
            refused += reply[0] == "-"
        assert int(server.info()["used_memory"]) < LIMIT + LIMIT // 16 + 8 * MB
        assert bool(refused) == (policy == "noeviction")


def test_a_tier_is_of_one_server(target):
    """What lies in the folder is removed at the start: not another server's."""
    with running(target, "--maxmemory", str(LIMIT)) as server, server.connect() as c:
        fill(c, range(10))
        leave(c, "key:0")
        second = target.server("--tier-path", str(server.directory / "tier"), "--tier-engine", ENGINE)
        second.launch()
        assert second.process.wait(WAIT_SECONDS) == 1
        assert "tier.lock is locked: another server uses these files" in second.log()
        second.stop()
        assert c.call("GET", "key:0")[1] == value(0)


def test_room_on_disk_is_given_back(target):
    with running(target, "--maxmemory", str(LIMIT), "--tier-max-bytes", str(30 * MB)) as server, server.connect() as c:
        count = 2 * LIMIT // LEN
        for turn in range(3):
            fill(c, range(turn * count, (turn + 1) * count))
            gone = [n for n in range(turn * count, (turn + 1) * count) if n % 10]
            for at in range(0, len(gone), 1000):
                c.call("DEL", *[f"key:{n}" for n in gone[at : at + 1000]])
        fields = tier(c)
        assert int(fields["tier_written_bytes"]) > 15 * MB
        until(lambda: int(tier(c)["tier_file_bytes"]) < 16 * MB, "room is given back")
        replies = c.pipeline([("GET", f"key:{n}") for n in range(0, 3 * count, 10)])
        assert all(reply[1] == value(10 * n) for n, reply in enumerate(replies))


@log_only
def test_memory_of_what_was_read_comes_back(target):
    """What the tier's threads have brought is given back to the system when others free it."""
    with running(target, "--maxmemory", "32mb") as server, server.connect() as c:
        before = server.rss_bytes()
        fill(c, range(60_000))
        for n in random.Random(1).sample(range(60_000), 20_000):
            assert c.call("GET", f"key:{n}")[1] == value(n)
        c.call("FLUSHALL")
        until(lambda: server.rss_bytes() < before + 9 * MB)


@log_only
def test_a_folder_that_goes_costs_no_data(target):
    with running(target) as server, server.connect() as c:
        c.call("SET", "a", VALUE)
        leave(c, "a")
        for file in (server.directory / "tier").iterdir():
            file.unlink()
        (server.directory / "tier").rmdir()
        assert c.call("GET", "a") == ("$", VALUE)


@pytest.fixture
def disk_of(tmp_path):
    """Mounts a file system of so many megabytes."""
    mounted = []

    def mount(megabytes):
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(tmp_path)], capture_output=True).returncode:
            pytest.skip("mounting is not allowed here")
        mounted.append(tmp_path)
        return tmp_path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_disk_that_is_full_costs_no_data(target, disk_of):
    path = str(disk_of(4) / "tier")
    with running(target, "--maxmemory", str(LIMIT), path=path) as server, server.connect() as c:
        count = 0
        while tier(c)["tier_status"] != "full":
            replies = c.pipeline([("SET", f"key:{n}", value(n)) for n in range(count, count + 500)])
            count += 500 if all(reply[1] == b"OK" for reply in replies) else 0
        assert "cannot go to the disk tier" in server.log()
        for at in range(0, count, 500):
            replies = c.pipeline([("GET", f"key:{n}") for n in range(at, at + 500)])
            assert all(reply[1] == value(n) for n, reply in zip(range(at, at + 500), replies))


@log_only
@pytest.mark.parametrize("limit", ["0", str(1000 * MB)], ids=["no-limit", "limit-beyond-disk"])
def test_a_small_disk_is_written_over_and_over(target, disk_of, limit):
    """Where nothing less is asked for, the limit is what the disk has room for: some of it
    stays free for what is moved."""
    path = str(disk_of(24) / "tier")
    with running(target, "--maxmemory", str(LIMIT), "--tier-max-bytes", limit, path=path) as server, server.connect() as c:

        def write(some):
            c.pipeline([("SET", f"key:{n}", value(n)) for n in some])
            return int(tier(c)["tier_written_bytes"])

        write(range(13_000))
        until(lambda: write(random.sample(range(13_000), 200)) > 48 * MB)


@log_only
def test_a_disk_with_errors_costs_no_data(target, shim, tmp_path, monkeypatch):
    """EIO: what cannot be written or synced stays in memory, what cannot be read is an error
    for as long as that lasts."""
    disk = Disk(tmp_path / "faults")
    for name, there in disk.environment(shim).items():
        monkeypatch.setenv(name, there)
    with running(target) as server, server.connect() as c:
        keys = make_large(c)
        c.call("SET", "short", VALUE)
        leave(c, "short", "blob")
        for fault in ({"write": errno.EIO}, {"sync": errno.EIO}, {"name": errno.EIO, "sync": errno.EIO}):
            c.call("SET", "other", VALUE)
            c.call("HSET", "hash", "more", "x")
            disk.set(**fault)
            assert c.call("SNUG", "TIER", "other") == c.call("SNUG", "TIER", "hash") == (":", 0)
            assert tier(c)["tier_status"] == "failing" and "Input/output error" in tier(c)["tier_error"]
            assert c.call("GET", "other") == ("$", VALUE) and not away(c, "other")
            # What was synced before is still there.
            assert c.call("STRLEN", "short") == (":", len(VALUE)) and c.call("GETRANGE", "short", "0", "3") == ("$", VALUE[:4])
            disk.heal()
            leave(c, "other", "short", "hash")
            assert tier(c)["tier_status"] == "ok"
        disk.set(place=errno.EIO)
        for command in (("GET", "short"), ("HGET", "hash", "field:1"), ("APPEND", "blob", "x")):
            reply = c.call(*command)
            assert reply[0] == "-" and b"cannot be read back from disk: Input/output error" in reply[1], command
        assert c.call("SAVE")[0] == "-"
        disk.heal()
        assert c.call("GET", "short") == ("$", VALUE)
        assert c.call("HGET", "hash", "field:1")[0] == "$"
        assert c.call("SAVE") == ("+", b"OK")
        assert c.call("DEL", *keys, "short", "other") == (":", len(keys) + 2)


@log_only
def test_a_disk_that_fails_under_load_costs_no_data(target, shim, tmp_path, monkeypatch):
    """Whenever the engine comes to write out what it was given, and whatever it had not."""
    disk = Disk(tmp_path / "faults")
    for name, there in disk.environment(shim).items():
        monkeypatch.setenv(name, there)
    with running(target, "--maxmemory", str(LIMIT)) as server, server.connect() as c:
        fill(c, range(LIMIT // LEN))
        until(lambda: int(tier(c)["tier_values"]) > 0, "values go to disk")
        disk.set(write=errno.EIO, sync=errno.EIO)
        count = LIMIT // LEN
        while tier(c)["tier_status"] != "failing":
            replies = c.pipeline([("SET", f"key:{n}", value(n)) for n in range(count, count + 500)])
            count += 500 if all(reply[1] == b"OK" for reply in replies) else 0
        for at in range(0, count, 500):
            replies = c.pipeline([("GET", f"key:{n}") for n in range(at, at + 500)])
            assert all(reply[1] == value(n) for n, reply in zip(range(at, at + 500), replies))


@log_only
def test_a_server_with_a_lost_value_does_not_end_without_its_last_snapshot(target):
    """As redis-server, which stays when the snapshot that is due at SIGTERM fails: whoever
    ends it is to choose what is given up."""
    with running(target, "--save", "3600", "1") as server, server.connect() as c:
        c.call("SET", "bad", VALUE)
        c.call("SET", "good", VALUE)
        leave(c, "bad")
        [segment] = (server.directory / "tier").glob("*.seg")
        segment.write_bytes(bytes(len(VALUE)))
        server.process.terminate()
        until(lambda: "bad" in server.log() and "SHUTDOWN" in server.log(), "it says which value, and what to do")
        assert c.call("GET", "good") == ("$", VALUE)
        assert c.call("SHUTDOWN")[0] == "-"
        # Without the value it ends: where writes are refused after a snapshot that failed,
        # that has to be allowed first.
        assert b"MISCONF" in c.call("DEL", "bad")[1]
        c.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        assert c.call("DEL", "bad") == (":", 1)
        server.process.terminate()
        assert server.process.wait(60) == 0


@log_only
@pytest.mark.parametrize("how", ["force", "nosave"])
def test_a_server_with_a_lost_value_ends_when_it_is_told_to(target, how):
    with running(target, "--save", "3600", "1", "--shutdown-on-sigterm", how) as server, server.connect() as c:
        c.call("SET", "bad", VALUE)
        leave(c, "bad")
        [segment] = (server.directory / "tier").glob("*.seg")
        segment.write_bytes(bytes(len(VALUE)))
        server.process.terminate()
        assert server.process.wait(60) == 0


def test_without_a_tier_there_is_none(server):
    with server.connect() as c:
        c.call("SET", "a", VALUE)
        assert c.call("SNUG", "TIER", "a") == ("-", b"ERR there is no disk tier: tier-path is not set")
        assert tier(c) == {"tier_enabled": "0"}
