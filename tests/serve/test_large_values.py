"""Strings above 64 KiB, packed: read whole and in parts, changed, streamed to
clients that are slow, gone or in a hurry, replaced and deleted meanwhile. What
they are is what redis-server says they are."""

import random

import pytest

from harness import servers
from harness.bystander import MB, Bystanders
from harness.packing import NEVER, about, until
from harness.resp import Closed, encode

pytestmark = pytest.mark.snug_only

#: Cut into values: making text anew for each would take longer than the test.
MADE = {}

KIB = 1024
SEGMENT = 128 * KIB
#: Packs whatever can be packed at once, also where that makes it longer.
AT_ONCE = ["--pack-cold-after", "0", "--pack-min-saving", "-100000", "--hz", "500"]


def text(size, seed=0):
    """Words in an order that does not repeat: about a third of it is information."""
    if not MADE:
        rng = random.Random(7)
        words = [b"packed ", b"raw ", b"segment ", b"chain ", b"slot ", b"a ", b"the ", b"of\n"]
        MADE["text"] = b"".join(rng.choices(words, k=300_000))
    made = MADE["text"]
    at = seed * 7919 % (len(made) // 2)
    return (made[at:] + made * (size // len(made) + 1))[:size]


def mixed(size, seed=0):
    """Segments of text and of noise in turn."""
    rng, parts = random.Random(seed), []
    for at in range(0, size, SEGMENT):
        length = min(SEGMENT, size - at)
        parts.append(text(length, seed + at) if at // SEGMENT % 2 == 0 else rng.randbytes(length))
    return b"".join(parts)


def is_packed(connection, key):
    return about(connection, key)[b"packed-bytes"] > 0


def pack(connection, key):
    assert connection.call("SNUG", "PACK", key) == (":", 1)
    assert is_packed(connection, key)


def packing(server):
    names = ("raw_bytes_string", "packed_from_bytes_string", "packed_bytes_string")
    figures = server.info()
    return tuple(int(figures[name]) for name in names)


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_figures_of_a_large_value_are_exact(server):
    value = text(3_000_000)
    with server.connect() as c:
        c.call("SET", "doc", value)
        c.call("SET", "noise", random.Random(1).randbytes(1_000_000))
        pack(c, "doc")
        held = about(c, "doc")
        assert held[b"codec"] == b"zstd" and held[b"encoding"] == b"raw"
        assert held[b"raw-bytes"] == held[b"packed-from-bytes"] == len(value)
        assert held[b"packed-bytes"] < len(value) * 2 // 3
        # What does not shrink stays as it is.
        assert c.call("SNUG", "PACK", "noise") == (":", 0)
        assert packing(server) == (4_000_000, 3_000_000, held[b"packed-bytes"])
        used = c.call("MEMORY", "USAGE", "doc")[1]
        assert held[b"packed-bytes"] <= used <= held[b"packed-bytes"] * 1.2
        would = c.call("MEMORY", "USAGE", "doc", "RAW")[1]
        assert c.call("SNUG", "PACK", "doc") == (":", 1), "it is packed"
        assert b"packed:%d " % held[b"packed-bytes"] in c.call("DEBUG", "OBJECT", "doc")[1]
        assert c.call("GET", "doc") == ("$", value)
        assert is_packed(c, "doc"), "reading once does not unpack"
        assert c.call("SNUG", "UNPACK", "doc") == (":", 1)
        assert c.call("SNUG", "UNPACK", "doc") == (":", 0)
        assert c.call("MEMORY", "USAGE", "doc") == (":", would)
        assert packing(server) == (4_000_000, 0, 0)
        assert c.call("GET", "doc") == ("$", value)
        c.call("DEL", "doc", "noise")
        assert packing(server) == (0, 0, 0)


def fields_anywhere(rng, size):
    """What BITFIELD_RO is to read, in no order, many across a border of segments."""
    borders = range(0, 8 * (size + 2 * SEGMENT), 8 * SEGMENT)
    offsets = [rng.choice([rng.randrange(8 * size), max(0, rng.choice(borders) - rng.randrange(64))]) for _ in range(12)]
    return [word for offset in offsets for word in ("GET", rng.choice(["u1", "u8", "i17", "u63", "i64"]), offset)]


def random_command(rng, size):
    at = rng.choice([rng.randrange(size), SEGMENT, 2 * SEGMENT - 1, size - 1])
    to = rng.choice([at, at + 40, at + SEGMENT, size, -1, -20])
    bit = 8 * at + rng.randrange(8)
    command = rng.choice([
        ("GET", "k"), ("STRLEN", "k"), ("GETRANGE", "k", at, to), ("GETRANGE", "k", -SEGMENT, -5),
        ("SUBSTR", "k", 0, 10), ("GETBIT", "k", bit), ("GETBIT", "k", 8 * size + 9),
        ("BITCOUNT", "k"), ("BITCOUNT", "k", at, to), ("BITCOUNT", "k", bit, bit + 3 * SEGMENT, "BIT"),
        ("BITPOS", "k", 1, at), ("BITPOS", "k", 0), ("BITPOS", "k", 1, bit, -1, "BIT"),
        ("BITFIELD_RO", "k", "GET", "u8", bit, "GET", "i63", 8 * SEGMENT - 5),
        ("BITFIELD_RO", "k", *fields_anywhere(rng, size)),
        ("BITFIELD", "k", "GET", "u16", bit), ("BITFIELD", "k", "SET", "u16", bit, 700, "INCRBY", "i8", 3, 9),
        ("BITOP", "NOT", "other", "k"), ("BITOP", "XOR", "other", "k", "other", "small"),
        ("BITOP", "AND", "third", "k", "small"), ("BITCOUNT", "third"),
        ("APPEND", "k", "more" * rng.randrange(1, 50)), ("SETRANGE", "k", at, b"#" * rng.randrange(1, 300)),
        ("SETBIT", "k", bit, rng.randrange(2)), ("INCR", "k"), ("INCRBYFLOAT", "k", "1.5"),
        ("GETSET", "k", mixed), ("MGET", "k", "small", "k", "nosuch"),
        ("COPY", "k", "third", "REPLACE"), ("GET", "third"), ("RENAME", "k", "k"), ("LCS", "small", "empty"),
        ("GETEX", "k", "PERSIST"), ("OBJECT", "ENCODING", "k"), ("TYPE", "k"),
        ("SET", "k", mixed), ("SET", "k", text, "GET"),
        ("EXPIRE", "k", 1000), ("PERSIST", "k"), ("GETDEL", "third"), ("EXISTS", "k", "third"),
    ])
    length = rng.randrange(64 * KIB, 700 * KIB)
    return [word(length, at) if callable(word) else word for word in command]


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("how", ["on demand", "at once", "in transactions"])
def test_packed_or_not_it_is_what_redis_says(target, protocol, how):
    reference = servers.redis()
    tested = target.start(*(AT_ONCE if how == "at once" else NEVER))
    try:
        with reference.connect(protocol) as expected, tested.connect(protocol) as got, tested.connect() as packer:
            rng = random.Random(protocol * 10 + len(how))
            for both in (expected, got):
                both.call("SET", "k", mixed(700 * KIB))
                both.call("SET", "small", "not large")
            for step in range(120):
                if how != "at once" and rng.random() < 0.7:
                    packer.call("SNUG", "PACK", "k")
                size = max(1, expected.call("STRLEN", "k")[1])
                commands = [random_command(rng, size) for _ in range(3)]
                if how == "in transactions":
                    commands = [("MULTI",), *commands, ("EXEC",)]
                answers = []
                for both in (expected, got):
                    answers.append(both.pipeline(commands))
                for command, wanted, answer in zip(commands, *answers):
                    assert wanted == answer, f"step {step}: {str(command)[:200]}"
            assert expected.call("GET", "k") == got.call("GET", "k")
            for both in (expected, got):
                both.call("FLUSHALL")
            assert packing(tested) == (0, 0, 0)
    finally:
        reference.stop()
        assert tested.stop() in (0, None)


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_a_pipeline_of_large_and_small(server):
    large, other = text(5_000_000), mixed(2_000_000)
    with server.connect() as c:
        c.call("SET", "large", large)
        c.call("SET", "other", other)
        pack(c, "large")
        pack(c, "other")
        commands = [
            ("GET", "large"), ("PING",), ("GET", "other"), ("SET", "small", "1"), ("INCR", "small"),
            ("MGET", "other", "small", "large"), ("GETRANGE", "large", SEGMENT - 1, SEGMENT), ("GET", "small"),
            ("MULTI",), ("GET", "other"), ("APPEND", "other", "!"), ("STRLEN", "other"), ("EXEC",), ("PING",),
        ]
        expected = [
            ("$", large), ("+", b"PONG"), ("$", other), ("+", b"OK"), (":", 2),
            ("*", [("$", other), ("$", b"2"), ("$", large)]), ("$", large[SEGMENT - 1 : SEGMENT + 1]), ("$", b"2"),
            ("+", b"OK"), *[("+", b"QUEUED")] * 3,
            ("*", [("$", other), (":", len(other) + 1), (":", len(other) + 1)]), ("+", b"PONG"),
        ]
        for _ in range(3):
            assert c.pipeline(commands) == expected
            c.call("SET", "other", other)
            pack(c, "other")


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_a_command_that_waits_for_a_value_keeps_its_place(server):
    value = text(8_000_000)
    with server.connect() as c, server.connect() as other:
        for last in ("APPEND", "SETRANGE", "SETBIT", "BITFIELD"):
            c.call("SET", "k", value)
            pack(c, "k")
            hits = int(server.info()["keyspace_hits"])
            write = {
                "APPEND": ("APPEND", "k", "!"), "SETRANGE": ("SETRANGE", "k", 5, "!"),
                "SETBIT": ("SETBIT", "k", 1, 1), "BITFIELD": ("BITFIELD", "k", "SET", "u8", 0, 1),
            }[last]
            c.send_raw(encode(["PING"]) + encode(write) + encode(["STRLEN", "k"]) + encode(["PING"]))
            # Meanwhile others change it, or not.
            changed = other.call("SETRANGE", "k", 100, "changed")
            answers = [c.reply() for _ in range(4)]
            assert answers[0] == answers[3] == ("+", b"PONG")
            assert answers[2] == (":", len(value) + (last == "APPEND")), last
            assert changed[0] == ":"
            assert c.call("GETRANGE", "k", 100, 106) == ("$", b"changed")
            assert int(server.info()["keyspace_hits"]) - hits == 2, "STRLEN and GETRANGE, once each"
    with server.connect() as c:
        # The client goes while its command waits.
        c.call("SET", "k", value)
        pack(c, "k")
        c.send("APPEND", "k", "!")
    assert server.connect().call("PING") == ("+", b"PONG")


SIZE = 100_000_000


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_clients_that_read_slowly_or_never_cost_little(server):
    value = text(1_000_000) * (SIZE // 1_000_000)
    with server.connect() as c:
        c.call("SET", "huge", value)
        pack(c, "huge")
        readers = []
        # Each may hold a segment and what the socket has taken, which is not the
        # server's; Python takes what the kernel's buffers take.
        with Bystanders(server, growth_bytes=40 * MB) as bystanders:
            for n in range(20):
                reader = server.connect(receive_buffer=16 * KIB)
                reader.send("GET", "huge")
                readers.append(reader)
            for reader in readers[:5]:
                # The head, and a little of the body.
                assert reader.socket.recv(5) == b"$1000"
            taken = sum(len(readers[0].socket.recv(4096)) for _ in range(200))
            # Others read, change and pack large values as ever, for no reader
            # keeps what they need.
            c.call("SET", "mine", text(1_000_000))
            pack(c, "mine")
            assert c.call("APPEND", "mine", "!") == (":", 1_000_001)
            before = bystanders.answered
            until(lambda: bystanders.answered > before + 100, "nobody else is served")
        for reader in readers[1:]:
            reader.close()
        # What is left of the one that reads slowly is what it was.
        c.call("DEL", "huge")
        rest = bytearray()
        while len(rest) < len(b"$100000000\r\n\r\n") + SIZE - 5 - taken:
            data = readers[0].socket.recv(1 << 20)
            assert data, "the connection was closed"
            rest += data
        assert bytes(rest[-1_000_002:]) == value[-1_000_000:] + b"\r\n"
        assert readers[0].call("PING") == ("+", b"PONG")
        until(lambda: int(server.info()["used_memory"]) < 30 * MB, "the value was not freed")


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("change", ["SET", "DEL", "UNLINK", "APPEND", "FLUSHALL", "UNPACK", "RENAME"])
@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_a_value_on_its_way_out_is_what_it_was(server, change, protocol):
    value = text(500_000, 5) * 40
    with server.connect() as c, server.connect(protocol, receive_buffer=16 * KIB) as reader:
        c.call("SET", "k", value)
        pack(c, "k")
        reader.send("GET", "k")
        assert reader.socket.recv(8) == b"$2000000"
        c.call(*{
            "SET": ("SET", "k", "other"), "DEL": ("DEL", "k"), "UNLINK": ("UNLINK", "k"),
            "APPEND": ("APPEND", "k", "!"), "FLUSHALL": ("FLUSHALL",), "UNPACK": ("SNUG", "UNPACK", "k"),
            "RENAME": ("RENAME", "k", "elsewhere"),
        }[change])
        reader.buffer += b"$2000000"
        assert reader.reply() == ("$", value)
        assert reader.call("PING") == ("+", b"PONG")


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_readers_that_go_away_leave_nothing_behind(server):
    value = text(500_000) * 60
    with server.connect() as c:
        c.call("SET", "k", value)
        pack(c, "k")
        before = int(server.info()["used_memory"])
        for n in range(60):
            reader = server.connect(receive_buffer=16 * KIB)
            reader.send_raw(encode(["GET", "k"]) * 3)
            reader.socket.recv(1000 * n + 1)
            reader.close()
        until(lambda: server.info()["connected_clients"] == "2", "a connection was kept")
        until(lambda: int(server.info()["used_memory"]) < before + 2 * MB, "memory was kept")
        assert c.call("GET", "k") == ("$", value)


@pytest.mark.parametrize("server", [["--pack-cold-after", "0", "--hz", "100"]], indirect=True)
def test_large_values_are_packed_by_themselves(server):
    with server.connect() as c:
        for n in range(6):
            c.call("SET", f"doc:{n}", text(4_000_000, n))
        c.call("SET", "noise", random.Random(2).randbytes(4_000_000))
        until(lambda: packing(server)[1] == 24_000_000, "not all was packed")
        assert not is_packed(c, "noise")
        for n in range(6):
            assert c.call("GET", f"doc:{n}") == ("$", text(4_000_000, n))
        # Replaced, deleted and flushed while they are worked on.
        for n in range(60):
            c.call("SET", f"doc:{n % 6}", text(2_000_000, n))
            if n % 7 == 0:
                c.call("DEL", f"doc:{(n + 3) % 6}")
            if n % 20 == 0:
                c.call("FLUSHALL")
        for n in range(6):
            value = c.call("GET", f"doc:{n}")[1]
            assert value is None or value in (text(2_000_000, at) for at in range(n, 60, 6))
        c.call("FLUSHALL")
        assert packing(server) == (0, 0, 0)
        until(lambda: int(server.info()["used_memory"]) < 40 * MB, "memory was kept")


@pytest.mark.parametrize("server", [["--pack-cold-after", "3", "--hz", "100"]], indirect=True)
def test_what_is_read_often_is_raw_again(server):
    value = text(2_000_000)
    with server.connect() as c:
        c.call("SET", "k", value)
        pack(c, "k")

        def read():
            for _ in range(3):
                assert c.call("GET", "k") == ("$", value)
            return not is_packed(c, "k")

        until(read, "it stays packed")


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_what_was_made_ready_for_a_command_that_is_refused_goes(server):
    size = 20 * MB
    used = lambda: int(server.info()["used_memory"])
    with server.connect() as c:
        for n in range(4):
            c.call("SET", f"zeros:{n}", bytes(size))
            pack(c, f"zeros:{n}")
        c.call("CONFIG", "SET", "maxmemory", used() + size // 2)
        clients = [server.connect() for _ in range(4)]
        for n, client in enumerate(clients):
            client.send("APPEND", f"zeros:{n}", "x")
        replies = [client.reply() for client in clients]
        assert any(kind == "-" and text.startswith(b"OOM ") for kind, text in replies)
        until(lambda: used() < int(c.call("CONFIG", "GET", "maxmemory")[1][1][1]) + size + size // 2)
        for client in clients:
            client.close()


@pytest.mark.parametrize("server", [[*NEVER, "--pack-workspaces", "1", "--pack-cpu-percent", "1"]], indirect=True)
def test_packing_that_is_switched_off_leaves_its_workspace_to_others(server):
    with server.connect() as c:
        c.call("SET", "other", text(300 * KIB))
        pack(c, "other")
        c.call("SNUG", "POLICY", "SET", '{"rules": [{"key": "big", "codec": "brotli", "level": 11}]}')
        c.call("SET", "big", text(20 * MB))
        c.call("CONFIG", "SET", "pack-cold-after", "0")
        until(lambda: int(server.info()["workspaces_in_use"]) == 1)
        c.call("CONFIG", "SET", "pack", "no")
        assert c.call("APPEND", "other", "x") == (":", 300 * KIB + 1)


def test_a_server_ends_while_it_packs(target):
    server = target.start("--pack-cold-after", "0", "--hz", "500")
    with server.connect() as c:
        for n in range(4):
            c.call("SET", f"doc:{n}", text(1_000_000, n) * 30)
        c.send("APPEND", "doc:0", "!")
        assert server.stop() == 0
        with pytest.raises(Closed):
            while True:
                c.frame()
