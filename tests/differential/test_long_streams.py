"""Streams long enough to be sealed and packed, read back against redis-server.

Entries are compared as they come from XRANGE; exact figures (XLEN, IDs) word
for word. Approximate trimming keeps its promise instead: never fewer than asked.
"""

import random
import time

import pytest

from conftest import VARIANTS
from harness.resp import encode

ENTRIES = 1500


def fields_of(kind, rng, number):
    """Entries that compress in different ways, or not at all."""
    if kind == "sensor":
        return ["temp", f"{20 + rng.random() * 5:.2f}", "hum", str(rng.randint(30, 60)), "id", str(number % 7)]
    if kind == "text":
        return ["event", rng.choice(["opened", "closed", "moved"]), "text", " ".join(rng.choices(WORDS, k=12))]
    if kind == "random":
        return ["blob", rng.randbytes(rng.randint(0, 60))]
    if kind == "changing":
        return [part for n in range(rng.randint(1, 6)) for part in (f"f{rng.randint(0, 9)}", str(number))]
    return ["uuid", "%08x-0000-4000-8000-%012x" % (rng.getrandbits(32), rng.getrandbits(48)), "big", "b" * rng.choice([0, 5, 9000])]


WORDS = "the quick brown fox jumps over a lazy dog and then some more of it".split()
KINDS = ["sensor", "text", "random", "changing", "uuid"]


class Both:
    """The same commands to both servers; the replies must be equal."""

    def __init__(self, pair):
        self.pair = pair
        self.connections = [pair.reference.connect(), pair.tested.connect()]

    def close(self):
        for connection in self.connections:
            connection.close()

    def same(self, *commands):
        """Sends all as one pipeline to each; the replies of the reference."""
        data = b"".join(encode(c) for c in commands)
        for connection in self.connections:
            connection.send_raw(data)
        for command in commands:
            wanted, got = (c.reply() for c in self.connections)
            assert got == wanted, f"{command[:8]}: {str(wanted)[:500]} here {str(got)[:500]}"
        return wanted

    def each(self, *command):
        return [c.call(*command) for c in self.connections]


@pytest.fixture(params=VARIANTS)
def both(pairs, request):
    if request.param != "usual" and pairs.target.is_redis:
        pytest.skip("the server under test is a redis-server")
    pair = pairs.get(request.param)
    pair.clean()
    both = Both(pair)
    yield both
    both.close()
    pair.clean()


def fill(both, kind, entries=ENTRIES, key="s"):
    rng = random.Random(kind)
    ids, at = [], 1_700_000_000_000
    commands = []
    for number in range(entries):
        at += rng.choice([0, 1, 1, 2, 1000])
        ids.append(f"{at}-{number}")
        commands.append(("XADD", key, ids[-1], *fields_of(kind, rng, number)))
    for start in range(0, entries, 200):
        both.same(*commands[start : start + 200])
    return ids


def let_it_pack():
    """Time for the sweeper to come by; nothing depends on whether it did."""
    time.sleep(0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_reads_of_all_kinds(both, kind):
    ids = fill(both, kind)
    let_it_pack()
    rng = random.Random(kind + "reads")
    both.same(("XLEN", "s"), ("XRANGE", "s", "-", "+"), ("XREVRANGE", "s", "+", "-"))
    both.same(("DEBUG", "DIGEST-VALUE", "s"), ("DEBUG", "DIGEST"))
    reads = []
    for _ in range(25):
        a, b = sorted(rng.choices(range(len(ids)), k=2))
        a, b = rng.choice(["", "("]) + ids[a], rng.choice(["", "("]) + ids[b]
        count = ["COUNT", rng.choice([1, 3, 50, 1000])] if rng.random() < 0.9 else []
        reads += [("XRANGE", "s", a, b, *count), ("XREVRANGE", "s", b, a, *count)]
        reads += [("XREAD", *count, "STREAMS", "s", ids[rng.randrange(len(ids))])]
        reads += [("XRANGE", "s", one, one) for one in rng.choices(ids, k=2)]
        reads += [("XRANGE", "s", rng.choice(ids).split("-")[0], "+", "COUNT", "2")]
    for start in range(0, len(reads), 20):
        both.same(*reads[start : start + 20])


@pytest.mark.parametrize("kind", KINDS)
def test_deleting_and_trimming(both, kind):
    ids = fill(both, kind)
    let_it_pack()
    rng = random.Random(kind + "deletes")
    gone = rng.sample(ids, 400)
    for start in range(0, 400, 50):
        both.same(("XDEL", "s", *gone[start : start + 50]), ("XDEL", "s", gone[start]), ("XLEN", "s"))
    both.same(("XRANGE", "s", "-", "+"), ("DEBUG", "DIGEST-VALUE", "s"))
    let_it_pack()
    both.same(("DEBUG", "DIGEST-VALUE", "s"))
    both.same(("XTRIM", "s", "MAXLEN", 800), ("XRANGE", "s", "-", "+"))
    both.same(("XTRIM", "s", "MINID", ids[1000]), ("XRANGE", "s", "-", "+"))
    first = both.same(("XRANGE", "s", "-", "+", "COUNT", "1"))
    both.same(("XDEL", "s", first[1][0][1][0][1]), ("XREVRANGE", "s", "+", "-"))
    last = ids[-1].split("-")[0]
    both.same(("XADD", "s", f"{int(last) + 1}-0", "f", "v"), ("XTRIM", "s", "MAXLEN", 0), ("XLEN", "s"))
    both.same(("XADD", "s", f"{int(last) + 1}-1", "f", "v"), ("XRANGE", "s", "-", "+"))


def test_deleting_a_whole_run_of_entries(both):
    ids = fill(both, "sensor", 1000)
    let_it_pack()
    both.same(("XDEL", "s", *ids[100:600]), ("XLEN", "s"), ("XRANGE", "s", ids[50], ids[650]), ("XREVRANGE", "s", "+", "-", "COUNT", "450"))
    both.same(("XDEL", "s", *ids), ("XLEN", "s"), ("EXISTS", "s"), ("XRANGE", "s", "-", "+"))


def test_copies_and_renames_of_packed_streams(both):
    ids = fill(both, "text", 1000)
    let_it_pack()
    both.same(("COPY", "s", "t"), ("XDEL", "s", *ids[:500]), ("XLEN", "t"), ("XRANGE", "t", "-", "+"))
    both.same(("RENAME", "t", "u"), ("XTRIM", "u", "MAXLEN", 10), ("XRANGE", "u", "-", "+"), ("XRANGE", "s", "-", "+"))
    both.same(("MOVE", "u", "2"), ("SELECT", "2"), ("XRANGE", "u", "-", "+"), ("SELECT", "0"))


@pytest.mark.parametrize("trim", [("MAXLEN", 600), ("MAXLEN", 0), ("MAXLEN", 5000)])
def test_approximate_trimming_keeps_at_least_what_was_asked(both, trim):
    fill(both, "sensor")
    let_it_pack()
    by, keep = trim
    for connection in both.connections:
        removed = connection.call("XTRIM", "s", by, "~", keep)[1]
        left = connection.call("XLEN", "s")[1]
        assert removed + left == ENTRIES and left >= min(keep, ENTRIES)
        entries = connection.call("XRANGE", "s", "-", "+")[1]
        assert len(entries) == left


def test_approximate_trimming_by_id_removes_nothing_at_or_above_it(both):
    ids = fill(both, "sensor")
    for connection in both.connections:
        connection.call("XTRIM", "s", "MINID", "~", ids[800])
        left = [e[1][0][1].decode() for e in connection.call("XRANGE", "s", "-", "+")[1]]
        assert left[-700:] == ids[800:]
        assert left == ids[-len(left) :]


def test_approximate_trimming_with_a_limit_removes_no_more(both):
    fill(both, "sensor")
    for connection in both.connections:
        assert connection.call("XTRIM", "s", "MAXLEN", "~", "10", "LIMIT", "250")[1] <= 250
        assert connection.call("XTRIM", "s", "MAXLEN", "~", "10", "LIMIT", "0")[1] >= 1000


@pytest.mark.parametrize("size", [800, 2500, 20_000, 100_000])
def test_approximate_trimming_of_large_entries_keeps_few(both, size):
    """By bytes too: what both keep at most is the same but for an entry."""
    rng, longest = random.Random(size), [0, 0]
    for number in range(1, 121):
        value = rng.randbytes(size)
        for n, connection in enumerate(both.connections):
            connection.call("XADD", "s", "MAXLEN", "~", 10, f"{number}-1", "v", value)
            longest[n] = max(longest[n], connection.call("XLEN", "s")[1])
    wanted, got = longest
    assert wanted <= 14 and 10 <= got <= wanted + 1
    # How many go to leave eight differs by as much.
    for connection in both.connections:
        connection.call("XTRIM", "s", "MAXLEN", 8)
    both.same(("XRANGE", "s", "-", "+"))
    if size > 5000:
        for limit in (1, 2, 3):
            both.same(("XTRIM", "s", "MAXLEN", "~", 1, "LIMIT", limit), ("XLEN", "s"))
        both.same(("XTRIM", "s", "MINID", "~", "120-1"), ("XRANGE", "s", "-", "+"))


def test_many_streams_at_once(both):
    rng = random.Random(5)
    commands, last = [], {}
    for number in range(6000):
        key = f"s{rng.randrange(12)}"
        roll = rng.random()
        last[key] = last.get(key, 0) + 1
        if roll < 0.9:
            commands.append(("XADD", key, f"{last[key]}-1", *fields_of(rng.choice(KINDS[:4]), rng, number)))
        elif roll < 0.95:
            commands.append(("XDEL", key, f"{rng.randint(1, last[key])}-1"))
        elif roll < 0.98:
            commands.append(("XRANGE", key, f"{rng.randint(1, last[key])}", "+", "COUNT", "20"))
        else:
            commands.append(("XTRIM", key, "MAXLEN", rng.randint(50, 400)))
    for start in range(0, len(commands), 200):
        both.same(*commands[start : start + 200])
    let_it_pack()
    for key in sorted(last):
        both.same(("XLEN", key), ("XRANGE", key, "-", "+"))
