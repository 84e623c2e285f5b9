"""Values of all types that one server dumps and the other restores: Snug and redis-server
7.0, both ways, whatever encoding redis-server has them in."""

import random
import string

import pytest

from harness import servers

# redis-server alone has both ends in `test_dumps_are_restored_by_the_other`.


class Client:
    """Replies without their types; an error is one."""

    def __init__(self, server):
        self.connection = server.connect()

    def call(self, *args):
        return plain(self.connection.call(*args))


def plain(reply):
    kind, value = reply
    if kind == "-":
        return Exception(value)
    return [plain(part) for part in value] if kind == "*" and value is not None else value


@pytest.fixture(scope="module")
def clients(target):
    """One of each server."""
    flags = ("--enable-debug-command", "local")
    ours, theirs = target.start(*flags), servers.redis(*flags)
    yield Client(ours), Client(theirs)
    for server in (ours, theirs):
        print(server.log())
        server.stop()


def text(rng: random.Random) -> bytes:
    """A string of one of the kinds that are kept differently."""
    kind = rng.randrange(7)
    if kind == 0:
        return b"%d" % rng.randrange(-200, 200)
    if kind == 1:
        return b"%d" % (rng.randrange(-(2**63), 2**63) >> rng.randrange(64))
    if kind == 2:
        return rng.randbytes(rng.randrange(40))
    if kind == 3:
        return ("abc" * rng.randrange(1, 100)).encode()
    if kind == 4:
        return ("%x" % rng.randrange(2**64)).encode()
    return "".join(rng.choices(string.ascii_letters, k=rng.randrange(1, 70))).encode()


def score(rng: random.Random) -> str:
    return rng.choice(
        [
            lambda: str(rng.randrange(-1000, 1000)),
            lambda: repr(rng.random() * 10 ** rng.randrange(-20, 20)),
            lambda: str(rng.randrange(2**60)),
            lambda: rng.choice(["inf", "-inf", "0.5", "1e300", "-3.25"]),
        ]
    )()


def fill(client, rng: random.Random, key: str, kind: int, size: int) -> None:
    """Gives a key a value of a type, about so large."""
    call = client.call
    if kind == 0:
        call("SET", key, rng.choice([text(rng), rng.randbytes(size * 700), b"xyz" * (size * 500)]))
    elif kind == 1:
        call("RPUSH", key, *[text(rng) for _ in range(size)])
        if size > 50:
            call("RPUSH", key, b"large" * 5000)
    elif kind == 2:
        call("SADD", key, *[text(rng) for _ in range(size)])
    elif kind == 3:
        call("SADD", key, *[rng.randrange(-(10**6), 10**6) for _ in range(size)])
    elif kind == 4:
        call("HSET", key, *[text(rng) for _ in range(2 * size)])
    elif kind == 5:
        call("ZADD", key, *[part for _ in range(size) for part in (score(rng), text(rng))])
    else:
        names = [text(rng) for _ in range(3)]
        ids = []
        for n in range(size):
            fields = names if rng.random() < 0.7 else [text(rng) for _ in range(rng.randrange(1, 5))]
            pairs = [part for name in fields for part in (name, text(rng))]
            ids.append(f"{1700000000000 + n * rng.randrange(1, 500) + n}-{rng.randrange(5)}")
            if isinstance(call("XADD", key, ids[-1], *pairs), Exception):
                ids.pop()
        for entry in rng.sample(ids, len(ids) // 5):
            call("XDEL", key, entry)
        for group in range(rng.randrange(3)):
            call("XGROUP", "CREATE", key, f"g{group}", "0")
            for consumer in ("alice", "bob"):
                call("XREADGROUP", "GROUP", f"g{group}", consumer, "COUNT", rng.randrange(1, 20), "STREAMS", key, ">")


def facts(client, key: str):
    """What a digest does not tell."""
    kind = client.call("TYPE", key)
    told = [kind, client.call("DEBUG", "DIGEST-VALUE", key)]
    if str(kind) != "stream":
        return told
    info = client.call("XINFO", "STREAM", key)
    info = dict(zip(info[::2], info[1::2]))
    told += [info[name] for name in (b"length", b"last-generated-id", b"max-deleted-entry-id", b"entries-added", b"groups")]
    told.append(client.call("XINFO", "GROUPS", key))
    for group in ("g0", "g1"):
        pending = client.call("XPENDING", key, group, "-", "+", "1000")
        told.append([entry[:2] + entry[3:] for entry in pending] if isinstance(pending, list) else None)
    return told


ENCODINGS = {
    "compact": [
        "hash-max-listpack-entries", "512", "hash-max-listpack-value", "64",
        "zset-max-listpack-entries", "128", "zset-max-listpack-value", "64",
        "set-max-intset-entries", "512", "list-max-listpack-size", "-2",
        "stream-node-max-entries", "100", "rdbcompression", "yes",
    ],
    "spread": [
        "hash-max-listpack-entries", "0", "zset-max-listpack-entries", "0",
        "set-max-intset-entries", "0", "list-max-listpack-size", "3", "rdbcompression", "no",
    ],
    "large listpacks": [
        "hash-max-listpack-entries", "2000", "hash-max-listpack-value", "20000",
        "zset-max-listpack-entries", "2000", "zset-max-listpack-value", "20000",
        "set-max-intset-entries", "3000", "list-max-listpack-size", "-5",
        "stream-node-max-entries", "7",
    ],
}  # fmt: skip


@pytest.mark.parametrize("encodings", ENCODINGS)
@pytest.mark.parametrize("seed", [1, 2])
def test_dumps_are_restored_by_the_other(clients, encodings, seed):
    rng = random.Random(f"{encodings} {seed}")
    ours, theirs = clients
    for client in clients:
        client.call("FLUSHALL")
        for name in ("compact", encodings):
            assert client.call("CONFIG", "SET", *ENCODINGS[name]) == b"OK"
    for n in range(35):
        key, size = f"k{n}", rng.choice([1, 3, 20, 300])
        for source, target in ((ours, theirs), (theirs, ours)):
            source.call("DEL", key)
            fill(source, random.Random(f"{encodings} {seed} {n}"), key, n % 7, size)
            payload = source.call("DUMP", key)
            assert target.call("RESTORE", f"other{n}", 0, payload, "REPLACE") == b"OK", (n, size)
            assert facts(target, f"other{n}") == facts(source, key), (n, size)
            # And back again, with the time at which it expires.
            payload = target.call("DUMP", f"other{n}")
            assert source.call("RESTORE", f"back{n}", 9_999_999_999_999, payload, "ABSTTL") == b"OK"
            assert source.call("PEXPIRETIME", f"back{n}") == 9_999_999_999_999
            source.call("PERSIST", f"back{n}")
            assert facts(source, f"back{n}") == facts(source, key), (n, size)
        assert ours.call("OBJECT", "ENCODING", f"other{n}") == theirs.call("OBJECT", "ENCODING", key)


@pytest.mark.snug_only
def test_what_is_restored_is_told(server):
    """A second store that is fed with nothing but commits holds the same."""
    client = Client(server)
    rng = random.Random(3)
    payloads = []
    for n in range(14):
        fill(client, rng, f"k{n}", n % 7, 30)
        payloads.append(client.call("DUMP", f"k{n}"))
    client.call("FLUSHALL")
    assert client.call("DEBUG", "MIRROR", "START") == b"OK"
    for n, payload in enumerate(payloads):
        assert client.call("RESTORE", f"k{n % 10}", rng.choice([0, 10**6]), payload, "REPLACE") == b"OK"
        if n == 5:
            assert client.call("RESTORE", "k1", 1, payload, "REPLACE", "ABSTTL") == b"OK"
    assert client.call("DBSIZE") == 10
    assert client.call("DEBUG", "MIRROR", "CHECK") == b"OK"
