"""Strings are packed as they cool: what the SNUG commands say and do, and that
many clients at once read what they wrote while everything is packed under them."""

import os
import random
import threading
import uuid

import pytest

from harness.packing import NEVER, about, families, record, until

pytestmark = pytest.mark.snug_only

VALUE = b'{"name":"alice","roles":["reader","writer"]}' * 8
#: Packs whatever can be packed within milliseconds, and trains early.
AT_ONCE = ["--pack-cold-after", "0", "--pack-min-size", "1", "--hz", "500", "--pack-dictionary-size", "2048"]


@pytest.mark.parametrize("in_transaction", [False, True], ids=["alone", "in MULTI"])
@pytest.mark.parametrize("adds", ["HSET", "RPUSH", "SADD", "ZADD"])
@pytest.mark.parametrize("server", [[*NEVER, "--pack-slice-us", "50"]], indirect=True)
def test_a_large_collection_is_packed_and_unpacked_on_demand(server, adds, in_transaction):
    def ask(c, *command):
        if not in_transaction:
            return c.call(*command)
        return c.pipeline([("MULTI",), command, ("EXEC",)])[2][1][0]

    with server.connect() as c:
        for n in range(5000):
            words = {"HSET": [f"field:{n}", f"value of {n}"], "ZADD": [n % 70, f"member:{n}"]}
            c.call(adds, "large", *words.get(adds, [f"item number {n}"]))
        raw, digest = c.call("MEMORY", "USAGE", "large")[1], c.call("DEBUG", "DIGEST-VALUE", "large")
        assert about(c, "large")[b"packed-bytes"] == 0
        assert ask(c, "SNUG", "PACK", "large") == (":", 1)
        packed = about(c, "large")
        assert 0 < packed[b"packed-bytes"] < packed[b"packed-from-bytes"]
        assert c.call("MEMORY", "USAGE", "large")[1] < raw * 2 / 3
        assert ask(c, "SNUG", "PACK", "large") == (":", 1)
        assert ask(c, "SNUG", "UNPACK", "large") == (":", 1)
        assert about(c, "large")[b"packed-bytes"] == 0
        assert ask(c, "SNUG", "UNPACK", "large") == (":", 0)
        assert c.call("DEBUG", "DIGEST-VALUE", "large") == digest


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_a_string_is_packed_and_unpacked_on_demand(server):
    with server.connect() as c:
        c.call("SET", "user:7:profile", VALUE)
        raw = c.call("MEMORY", "USAGE", "user:7:profile")[1]
        assert about(c, "user:7:profile")[b"codec"] == b"none"
        assert c.call("SNUG", "PACK", "user:7:profile") == (":", 1)
        packed = about(c, "user:7:profile")
        assert (packed[b"codec"], packed[b"family"]) == (b"zstd", b"user:#:profile")
        assert packed[b"raw-bytes"] == packed[b"packed-from-bytes"] == len(VALUE)
        assert packed[b"packed-bytes"] < len(VALUE) // 2
        assert c.call("MEMORY", "USAGE", "user:7:profile")[1] < raw // 2
        assert c.call("MEMORY", "USAGE", "user:7:profile", "RAW") == (":", raw)
        assert c.call("COPY", "user:7:profile", "copy") == (":", 1)
        assert about(c, "copy")[b"codec"] == b"zstd"
        assert c.call("GET", "copy") == ("$", VALUE)
        assert about(c, "copy")[b"codec"] == b"zstd"
        assert c.call("SNUG", "UNPACK", "copy") == (":", 1)
        assert c.call("SNUG", "UNPACK", "copy") == (":", 0)
        assert about(c, "copy")[b"codec"] == b"none"
        assert c.call("STRLEN", "user:7:profile") == (":", len(VALUE))
        assert about(c, "user:7:profile")[b"codec"] == b"zstd"
        assert c.call("SNUG", "PACK", "nosuch")[0] == "-"
        c.call("XADD", "stream", "1-1", "field", "value")
        assert c.call("SNUG", "PACK", "stream")[1].startswith(b"WRONGTYPE")
        assert b"user:#:profile" in families(c)
        assert c.call("SNUG", "DICTIONARIES") == ("*", [])


@pytest.mark.parametrize("server", [AT_ONCE], indirect=True)
def test_keys_of_a_kind_are_a_family_whatever_came_before_them(server):
    letters = "abcdefghijklmnopqrstuvwxyz"
    with server.connect() as c:
        for a in letters:
            for b in letters:
                for d in "abc":
                    c.call("SET", f"{a}{b}{d}:x", os.urandom(40))
        # Names of one value each take no place.
        until(lambda: len(families(c)) >= 16, "some were to be met")
        assert len(families(c)) < 100
        for n in range(2000):
            c.call("SET", f"user:{n}:profile", VALUE + b"%d" % n)
        until(lambda: b"user:#:profile" in families(c))
        for n in range(0, 2000, 100):
            until(lambda: about(c, f"user:{n}:profile")[b"codec"] != b"none", f"{n} stayed raw")
            assert about(c, f"user:{n}:profile")[b"family"] == b"user:#:profile"


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_its_digest_is_that_of_what_was_packed_and_no_read(server, large):
    with server.connect() as c:
        value = VALUE * (300 if large else 1)
        c.call("SET", "key", value)
        raw = c.call("DEBUG", "DIGEST"), c.call("DEBUG", "DIGEST-VALUE", "key")
        assert c.call("SNUG", "PACK", "key") == (":", 1)
        before = about(c, "key")
        assert before[b"packed-bytes"] < len(value)
        for _ in range(5):
            assert (c.call("DEBUG", "DIGEST"), c.call("DEBUG", "DIGEST-VALUE", "key")) == raw
        assert about(c, "key") == before
        c.call("APPEND", "key", "x")
        assert c.call("DEBUG", "DIGEST") != raw[0]


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_the_third_read_makes_it_raw(server):
    with server.connect() as c:
        c.call("SET", "key", VALUE)
        c.call("SNUG", "PACK", "key")
        for codec in (b"zstd", b"zstd", b"none"):
            assert c.call("GET", "key") == ("$", VALUE)
            assert about(c, "key")[b"codec"] == codec


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_what_does_not_shrink_stays_raw(server):
    with server.connect() as c:
        c.call("SET", "noise", random.Random(1).randbytes(1000))
        c.call("SET", "number", "1234567890")
        assert c.call("SNUG", "PACK", "noise") == (":", 0)
        assert c.call("SNUG", "PACK", "number") == (":", 0)


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_a_new_age_counts_at_once(server):
    with server.connect() as c:
        c.call("SET", "key", VALUE)
        c.call("CONFIG", "SET", "pack-cold-after", "0")
        # A pass that began under the old age is to be gone through first.
        until(lambda: about(c, "key")[b"codec"] == b"zstd", "the value was not packed")


def document(rng):
    words = " ".join(rng.choice(["the", "quick", "brown", "fox", "jumps"]) for _ in range(rng.randrange(4, 30)))
    return f'{{"id":{rng.randrange(1000)},"tags":["alpha","beta"],"text":"{words}"}}'.encode()


def work(connection, who, steps):
    """Random commands on keys of its own, each answer compared with a dict's."""
    rng, held = random.Random(who), {}

    def expect(wanted, *command):
        got = connection.call(*command)[1]
        assert got == wanted, f"{command}: {got} is not {wanted}"

    for _ in range(steps):
        key = f"{'abcdef'[who]}:{rng.choice(['doc', 'obj'])}:{rng.randrange(200)}"
        kind = rng.randrange(7)
        if kind <= 1:
            held[key] = document(rng)
            expect(b"OK", "SET", key, held[key])
        elif kind == 2:
            expect(held.get(key), "GET", key)
        elif kind == 3:
            held[key] = held.get(key, b"") + b"+more"
            expect(len(held[key]), "APPEND", key, "+more")
        elif kind == 4:
            expect(held.get(key, b"")[3:41], "GETRANGE", key, 3, 40)
            expect(len(held.get(key, b"")), "STRLEN", key)
        elif kind == 5 and key in held:
            held[key + "c"] = held[key]
            expect(1, "COPY", key, key + "c", "REPLACE")
        else:
            expect(int(held.pop(key, None) is not None), "DEL", key)
    for key, value in held.items():
        expect(value, "GET", key)
        expect(1, "DEL", key)


@pytest.mark.parametrize("server", [AT_ONCE], indirect=True)
def test_clients_read_what_they_wrote_while_it_is_packed(server):
    failures = []

    def run(who):
        try:
            with server.connect() as connection:
                work(connection, who, 4000)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    figures = server.info()
    with server.connect() as c:
        assert int(figures["strings_packed"]) > 0
        left = {name: figures[name + "_string"] for name in ("raw_bytes", "packed_from_bytes", "packed_bytes")}
        assert set(left.values()) == {"0"}, left
        for dictionary in c.call("SNUG", "DICTIONARIES")[1]:
            assert record(dictionary)[b"references"] == 0


@pytest.mark.parametrize("server", [["--pack-cold-after", "3"]], indirect=True)
def test_idle_time_grows_until_the_key_is_read(server):
    with server.connect() as c:
        c.call("SET", "k", "v")
        assert c.call("OBJECT", "IDLETIME", "k") == (":", 0)
        until(lambda: c.call("OBJECT", "IDLETIME", "k")[1] > 0)
        c.call("GET", "k")
        assert c.call("OBJECT", "IDLETIME", "k") == (":", 0)


def prose(rng):
    """What gives texts of some hundred to some thousand bytes."""
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randrange(2, 9))) for _ in range(3000)]
    text = " ".join(rng.choices(words, k=1 << 18))

    def value():
        length = min(max(int(rng.lognormvariate(6.9, 0.7)), 250), 8000)
        begin = rng.randrange(len(text) - length)
        return text[begin : begin + length]

    return value


def figures(server):
    """The memory in use and the memory that is resident, in bytes."""
    info = server.info()
    return int(info["used_memory"]), int(info["used_memory_rss"])


def since(server, before):
    """How much the figures have grown."""
    return (now - then for now, then in zip(figures(server), before, strict=True))


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_what_packing_frees_is_given_back(server):
    """No page stays for a packed value that took the place of a raw one, or that has since
    been packed again with a better dictionary."""
    value, count = prose(random.Random(1)), 80_000
    with server.connect() as c:
        before = figures(server)
        for begin in range(0, count, 1000):
            c.pipeline([("SET", f"doc:{n}", value()) for n in range(begin, begin + 1000)])
        raw, _ = figures(server)
        c.call("CONFIG", "SET", "pack-cold-after", 1)
        until(lambda: server.info()["values_packed_string"] == str(count), "not all of them were packed")

        def is_given_back():
            used, resident = since(server, before)
            return used < (raw - before[0]) * 0.6 and resident < 1.4 * used

        # Each worker gives back its own, a little later.
        until(is_given_back, "pages stay")


@pytest.mark.parametrize("server", [["--pack-cold-after", "1"]], indirect=True)
def test_holes_between_packed_values_are_closed(server):
    """Of packed values three in four are deleted, wherever they lie."""
    rng, count = random.Random(2), 60_000
    value = prose(rng)
    with server.connect() as c:
        before = figures(server)
        for begin in range(0, count, 1000):
            c.pipeline([("SET", f"doc:{n}", value()) for n in range(begin, begin + 1000)])
        until(lambda: int(server.info()["values_packed_string"]) > count * 9 // 10, "not all of them were packed")
        gone = [n for n in range(count) if rng.random() < 3 / 4]
        for begin in range(0, len(gone), 1000):
            c.pipeline([("DEL", f"doc:{n}") for n in gone[begin : begin + 1000]])

        def is_given_back():
            # Training and the raw values leave some megabytes elsewhere. The holes were 30.
            used, resident = since(server, before)
            return resident < used + (16 << 20)

        until(is_given_back, "holes stay")
        assert server.info()["values_damaged"] == "0"


@pytest.mark.parametrize("server", [[*AT_ONCE, "--enable-debug-command", "yes", "--save-format", "snug"]], indirect=True)
def test_keys_are_packed_again_after_a_restart(server):
    """What a file says has cooled is not met cooling again."""
    names = [f"session:{n * 7919:08x}-1b7e-4e6a-9d5b-0c2f7a91e344" for n in range(1000)]

    def packed(c):
        return sum(about(c, name)[b"key-bytes"] < 20 for name in names[::50])

    with server.connect() as c:
        for name in names:
            c.call("SET", name, "v")
        until(lambda: packed(c) == 20, "keys are packed")
        assert c.call("SAVE") == ("+", b"OK")
    server.process.kill()
    server.process.wait()
    server.start()
    with server.connect() as c:
        until(lambda: c.call("DBSIZE") == (":", 1000), "it has loaded")
        until(lambda: packed(c) == 20, "and again")
        assert all(c.call("GET", name) == ("$", b"v") for name in names)


@pytest.mark.parametrize("server", [[*AT_ONCE, "--pack-min-saving", "-100"]], indirect=True)
def test_what_waits_and_how_long_it_takes_is_told(server):
    with server.connect() as c:
        for n in range(300):
            c.call("SET", f"doc:{n}", document(random.Random(n)))
        until(lambda: all(about(c, f"doc:{n}")[b"packed-bytes"] > 0 for n in range(300)))
        until(lambda: server.info()["strings_pending"] == "0")
        # What is packed meanwhile may be in one of both and not yet in the other.
        packed = int(server.info()["strings_packed"])
        info = server.info()
        assert int(info["pack_slices"]) >= packed >= 300, "each is a slice"
        assert 0 < int(info["pack_slice_longest_usec"]) and 0 <= float(info["pack_pass_seconds"]) < 60
        assert 0 <= float(info["pack_pass_progress"]) <= 1
        assert info["values_damaged"] == "0"


def test_what_packing_waits_for_a_processor_is_no_cpu_time(target):
    """Four workers that pack on one processor mostly wait for it, within their slices."""
    server = target.start(*AT_ONCE, "--pack-level", "19", "--pack-cpu-percent", "100", workers=4)
    try:
        for thread in os.listdir(f"/proc/{server.pid}/task"):
            os.sched_setaffinity(int(thread), [min(os.sched_getaffinity(0))])
        with server.connect() as c:
            c.pipeline([("SET", f"doc:{n}", document(random.Random(n)) * 100) for n in range(5000)])
            until(lambda: int(server.info()["strings_packed"]) >= 5000)
        info = server.info()
        packed, used = int(info["pack_cpu_milliseconds"]), (float(info["used_cpu_user"]) + float(info["used_cpu_sys"])) * 1000
        assert 0.1 * used < packed <= used
    finally:
        server.stop()


@pytest.mark.parametrize("server", [AT_ONCE], indirect=True)
def test_streams_of_a_kind_share_a_dictionary(server):
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(200)]
    streams = {f"device:{n}:events": [" ".join(chance.choices(words, k=12)).encode() for _ in range(50)] for n in range(80)}
    with server.connect() as c:
        for name, texts in streams.items():
            for text in texts:
                c.call("XADD", name, "*", "text", text)
        shape = b"device:#:events"
        until(lambda: families(c).get(shape, {}).get(b"dictionary"), "no dictionary was trained")
        family = families(c)[shape]
        assert (family[b"type"], family[b"dictionary-kind"]) == (b"stream", b"phrases")
        shares = lambda name: about(c, name)[b"dictionary"] == families(c)[shape][b"dictionary"]
        until(lambda: all(map(shares, streams)), "streams were to be packed anew")
        assert about(c, "device:7:events")[b"family"] == shape
        for name, texts in streams.items():
            entries = c.call("XRANGE", name, "-", "+")[1]
            assert [entry[1][1][1][1][1] for entry in entries] == texts
        c.call("FLUSHALL")
        referred = lambda: [d for d in map(record, c.call("SNUG", "DICTIONARIES")[1]) if d[b"references"]]
        until(lambda: not referred(), "something refers to a dictionary")


@pytest.mark.parametrize("server", [AT_ONCE], indirect=True)
@pytest.mark.parametrize("way", ["copy", "rename", "swapdb"])
def test_a_copy_that_takes_a_streams_place_keeps_its_entries(server, way):
    with server.connect() as c:
        for n in range(1, 6001):
            c.call("XADD", "A", f"{n}-0", "sensor", f"s{n % 7}", "value", f"{n * 7919 % 99991:08x}")
        until(lambda: about(c, "A")[b"packed-bytes"] > 0)
        c.call("COPY", "A", "backup")
        c.call("XDEL", "A", *[f"{n}-0" for n in range(1, 6001) if n % 10])
        if way == "copy":
            assert c.call("COPY", "backup", "A", "REPLACE") == (":", 1)
        elif way == "rename":
            c.call("RENAME", "backup", "A")
        else:
            assert c.call("COPY", "backup", "A", "DB", "1") == (":", 1)
            c.call("SWAPDB", "0", "1")
        # What was under way has its place by then, or none.
        until(lambda: server.info()["blocks_pending"] == "0")
        assert c.call("XLEN", "A") == (":", 6000)
        assert len(c.call("XRANGE", "A", "-", "+")[1]) == 6000


def message(rng, queue):
    """As a task queue's: the same but for two identifiers and the queue's name."""
    names = "shadow eta expires group group_index retries root parent arguments keywords origin ignore_result nesting headers stamps lang task errbacks callbacks chain chord"
    constant = ", ".join(f'"{name}_{part}": null' for name in names.split() for part in ("first", "of_next", "at_last", "since"))
    identifier, tag = (uuid.UUID(int=rng.getrandbits(128)) for _ in range(2))
    return f'{{"queue": "queue{queue}", {constant}, "id": "{identifier}", "delivery_tag": "{tag}"}}'


@pytest.mark.parametrize("server", [["--pack-cold-after", "0"]], indirect=True)
def test_pages_of_texts_share_what_is_the_same_in_all_lists(server):
    """What the messages of a page have in common is their family's, and what was trained
    from one queue's messages serves those of the others."""
    rng = random.Random(5)
    with server.connect() as c:
        def push(queue, count):
            items = [message(rng, queue) for _ in range(count)]
            for at in range(0, count, 500):
                c.call("RPUSH", f"queue{queue}", *items[at : at + 500])
            return items

        push(0, 6000)
        until(lambda: families(c).get(b"queue#", {}).get(b"dictionary"), "no dictionary was trained")
        queues = {queue: push(queue, 1000) for queue in range(1, 6)}
        packed = lambda queue: int(about(c, f"queue{queue}")[b"packed-bytes"])
        is_packed = lambda what: what[b"raw-bytes"] == what[b"packed-from-bytes"]
        until(lambda: all(is_packed(about(c, f"queue{queue}")) for queue in queues), "all is packed")
        # Two identifiers are 32 bytes; what is the same in all would be ten more.
        assert sum(map(packed, queues)) < 5 * 1000 * 40
        for queue, items in queues.items():
            assert c.call("LRANGE", f"queue{queue}", "0", "-1") == ("*", [("$", item.encode()) for item in items])
