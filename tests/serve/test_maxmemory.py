"""maxmemory: the limit holds in a storm of writes, each policy evicts what it may
and nothing else, and what can be packed is packed before anything is evicted."""

import random
import threading
import time

import pytest

from harness.bystander import MB
from harness.servers import info_fields

LIMIT = 50 * MB
PATIENCE_SECONDS = 120
POLICIES = ["lru", "lfu", "random"]


def figures(connection, section):
    return info_fields(connection.call("INFO", section)[1].decode())


def used(connection):
    return int(figures(connection, "memory")["used_memory"])


def limit(connection, policy, more=0):
    """Allows `more` bytes beyond what is used now."""
    assert connection.call("CONFIG", "SET", "maxmemory-policy", policy)[1] == b"OK"
    assert connection.call("CONFIG", "SET", "maxmemory", used(connection) + more)[1] == b"OK"


def fill(connection, name, count, *options):
    for at in range(0, count, 500):
        commands = [("SET", f"{name}:{n}", random.randbytes(200), *options) for n in range(at, min(at + 500, count))]
        assert {reply[1] for reply in connection.pipeline(commands)} == {b"OK"}


def left(connection, name, count):
    replies = connection.pipeline([("EXISTS", f"{name}:{n}") for n in range(count)])
    return sum(reply[1] for reply in replies)


@pytest.mark.parametrize("policy", POLICIES + ["ttl"])
def test_volatile_policies_evict_only_what_expires(server, policy):
    with server.connect() as c:
        fill(c, "stays", 5000)
        fill(c, "goes", 5000, "EX", "100000")
        limit(c, f"volatile-{policy}", 100_000)
        replies = []
        for number in range(0, 20_000, 100):
            commands = [("SET", f"new:{n}", random.randbytes(200)) for n in range(number, number + 100)]
            replies += c.pipeline(commands)
        refused = [reply for reply in replies if reply[0] == "-"]
        assert {reply[1] for reply in refused} == {b"OOM command not allowed when used memory > 'maxmemory'."}
        c.call("CONFIG", "SET", "maxmemory", "0")
        written = len(replies) - len(refused)
        assert written > 5000
        # What is refused need not be all behind what is not: memory comes free in between.
        assert (left(c, "stays", 5000), left(c, "goes", 5000), left(c, "new", len(replies))) == (5000, 0, written)
        assert int(figures(c, "stats")["evicted_keys"]) == 5000


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_of_all_keys_refuse_nothing(server, policy):
    with server.connect() as c:
        fill(c, "plain", 3000)
        fill(c, "volatile", 3000, "EX", "100000")
        limit(c, f"allkeys-{policy}", 100_000)
        fill(c, "new", 6000)
        # Asking takes memory too.
        c.call("CONFIG", "SET", "maxmemory", "0")
        kept = [left(c, name, count) for name, count in [("plain", 3000), ("volatile", 3000), ("new", 6000)]]
        assert int(figures(c, "stats")["evicted_keys"]) == 12_000 - sum(kept) > 4000
        assert all(kept)


def test_what_is_read_outlives_what_is_not(server):
    with server.connect() as c:
        fill(c, "hot", 500)
        fill(c, "cold", 8000)
        limit(c, "allkeys-lru", 50_000)
        for part in range(40):
            c.pipeline([("GET", f"hot:{n}") for n in range(500)])
            fill(c, f"new:{part}", 500)
        c.call("CONFIG", "SET", "maxmemory", "0")
        assert left(c, "hot", 500) > 350
        assert left(c, "cold", 8000) < 2000


def test_reads_make_room_too_and_a_lower_limit_is_reached_without_commands(server):
    with server.connect() as c:
        fill(c, "key", 20_000)
        c.call("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
        c.call("CONFIG", "SET", "maxmemory", used(c) - 2 * MB)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            state = figures(c, "everything")
            # INFO itself takes a little after room was made for it.
            if int(state["used_memory"]) <= int(state["maxmemory"]) + 50_000:
                break
        assert int(state["used_memory"]) <= int(state["maxmemory"]) + 50_000
        assert int(state["evicted_keys"]) > 5000
        assert int(state["current_eviction_exceeded_time"]) == 0
        assert state["maxmemory_policy"] == "allkeys-random"


def test_a_script_within_a_transaction_evicts_nothing(server):
    """Its keys' slots are held then, and no others may be looked at."""
    script = ("EVAL", "return redis.call('GET', KEYS[1])", "1", "key")
    with server.connect() as c:
        fill(c, "key", 20_000)
        c.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        # From its second time on it is known to use the keys that it declares.
        assert [c.call(*script) for _ in range(2)] == [("$", None)] * 2
        for _ in range(5):
            c.call("CONFIG", "SET", "maxmemory", used(c))
            grow = ("SETRANGE", "grown", "200000", "x")
            replies = c.pipeline([("MULTI",), grow, script, ("EXEC",)])
            assert replies[-1] == ("*", [(":", 200_001), ("$", None)])
            c.call("DEL", "grown")
        assert c.call("PING") == ("+", b"PONG")


def test_time_over_the_limit_is_counted(server):
    with server.connect() as c:
        c.call("SET", "k", "v")
        c.call("CONFIG", "SET", "maxmemory", "1")
        assert c.call("SET", "k", "w")[0] == "-"
        time.sleep(0.05)
        state = figures(c, "stats")
        assert int(state["current_eviction_exceeded_time"]) >= 40
        c.call("CONFIG", "SET", "maxmemory", "100gb")
        state = figures(c, "stats")
        assert int(state["current_eviction_exceeded_time"]) == 0
        assert int(state["total_eviction_exceeded_time"]) >= 40
        memory = figures(c, "memory")
        assert (memory["maxmemory"], memory["maxmemory_human"]) == (str(100 << 30), "100.00G")
        c.call("CONFIG", "RESETSTAT")
        assert figures(c, "stats")["total_eviction_exceeded_time"] == "0"


@pytest.mark.snug_only
def test_who_waits_for_a_stream_hears_that_it_was_evicted(server):
    with server.connect() as waiting, server.connect() as c:
        c.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        waiting.send("XREADGROUP", "GROUP", "g", "me", "BLOCK", "0", "STREAMS", "s", ">")
        while figures(c, "clients")["blocked_clients"] != "1":
            time.sleep(0.01)
        c.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "1")
        c.call("PING")
        assert waiting.reply()[1].startswith(b"NOGROUP")


def strings(rng, who, number):
    """Some commands that write strings, and the bytes that they write."""
    size = rng.choice([10, 100, 1000, 1000, 4000])
    body = rng.randbytes(size)
    commands = [("SET", f"{who}:{number}:{n}", body) for n in range(60)]
    return commands, len(commands) * (size + 30)


def streams(rng, who, number):
    """Some commands that write a stream, and the bytes that they write."""
    body = rng.randbytes(500)
    commands = [("XADD", f"{who}:{number}", "*", "body", body, "n", n) for n in range(80)]
    return commands, len(commands) * 520


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("write", [strings, streams])
def test_the_limit_holds_in_a_storm_of_writes(target, write, workers):
    server = target.start("--maxmemory", str(LIMIT), "--maxmemory-policy", "allkeys-lru", workers=workers)
    failures, written, highest = [], [0] * 4, 0

    def storm(who):
        rng, number = random.Random(who), 0
        try:
            with server.connect() as connection:
                while written[who] < 10 * LIMIT // len(written):
                    commands, size = write(rng, who, number)
                    replies = connection.pipeline(commands)
                    assert not [reply for reply in replies if reply[0] == "-"]
                    written[who] += size
                    number += 1
        except BaseException as error:
            failures.append(error)

    try:
        threads = [threading.Thread(target=storm, args=(who,)) for who in range(len(written))]
        for thread in threads:
            thread.start()
        with server.connect() as c:
            samples = 0
            while any(thread.is_alive() for thread in threads):
                highest = max(highest, used(c))
                samples += 1
            state = figures(c, "everything")
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        assert samples > 20
        assert highest <= 1.01 * LIMIT, f"{highest / LIMIT:.4f} of the limit"
        if target.is_snug:
            # Taken by the clock, whatever commands do at that moment.
            assert int(state["used_memory_peak"]) <= 1.01 * LIMIT
        # It is used, too: the limit is no reason to throw away more than is needed.
        assert highest > 0.9 * LIMIT
        assert int(state["evicted_keys"]) > 0
    finally:
        server.stop()


def document(rng, number):
    words = " ".join(rng.choices(["invoice", "customer", "address", "reminder", "overdue"], k=100))
    return f'{{"id":{number},"state":"open","tags":["alpha","beta"],"text":"{words}"}}'.encode()


@pytest.mark.snug_only
@pytest.mark.parametrize("server", [["--pack-cold-after", "600"]], indirect=True)
def test_what_can_be_packed_is_packed_before_anything_is_evicted(server):
    rng = random.Random(1)
    documents = {}
    with server.connect() as c:
        c.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", LIMIT)
        deadline, size = time.monotonic() + PATIENCE_SECONDS, 0
        while size < 1.2 * LIMIT:
            commands = []
            for _ in range(100):
                name = f"doc:{len(documents)}"
                documents[name] = document(rng, len(documents))
                commands.append(("SET", name, documents[name]))
                size += len(documents[name])
            c.pipeline(commands)
            # No storm: there is time to pack what came. By itself none of it would
            # be cold yet.
            # It leaves room for a dictionary's training.
            while used(c) > 0.9 * LIMIT:
                assert time.monotonic() < deadline, figures(c, "packing")
                time.sleep(0.01)
        state = figures(c, "everything")
        assert state["evicted_keys"] == "0"
        assert int(state["raw_bytes_string"]) == size > LIMIT
        assert int(state["strings_packed_ahead"]) > 1000
        assert int(state["saved_bytes_ahead"]) > 5 * MB
        names = list(documents)
        for at in range(0, len(names), 500):
            replies = c.pipeline([("GET", name) for name in names[at : at + 500]])
            assert [reply[1] for reply in replies] == [documents[name] for name in names[at : at + 500]]


# Of samples of 256 KiB: ten times as much, and a workspace.
TRAINING_BYTES = 1280 * 1024 + 10 * 256 * 1024


@pytest.mark.snug_only
def test_the_limit_holds_while_families_learn(target):
    limit = 40 * MB
    server = target.start("--maxmemory", str(limit), "--pack-cold-after", "1", workers=2)
    failures = []

    def storm(who):
        rng = random.Random(who)
        words = [f"w{rng.randrange(10**6)}" for _ in range(2000)]
        try:
            with server.connect() as connection:
                for number in range(0, 30_000, 100):
                    family = "abcdefghij"[number % 1000 // 100]
                    values = [" ".join(rng.choices(words, k=130)) for _ in range(20)]
                    commands = [("SET", f"{family}{who}x:{number + n}", values[n % 20]) for n in range(100)]
                    replies = connection.pipeline(commands)
                    assert all(reply[0] == "+" or reply[1].startswith(b"OOM ") for reply in replies)
        except BaseException as error:
            failures.append(error)

    try:
        threads = [threading.Thread(target=storm, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        highest = 0
        with server.connect() as c:
            while any(thread.is_alive() for thread in threads):
                highest = max(highest, used(c))
            assert not failures, failures[0]
            # There is something to learn, and it is learnt.
            deadline = time.monotonic() + PATIENCE_SECONDS
            while figures(c, "packing")["dictionaries_trained"] == "0":
                assert time.monotonic() < deadline, figures(c, "packing")
                highest = max(highest, used(c))
                number = random.randrange(10**6)
                c.pipeline([("SET", f"a0x:{number + n}", " ".join(f"w{(number * n) % 977}" for _ in range(200))) for n in range(50)])
        # A training begins while there is room for what it takes. Writes that come before
        # it has taken that may have the room too.
        assert 0.9 * limit < highest <= 1.01 * limit + TRAINING_BYTES, f"{highest / limit:.4f} of the limit"
    finally:
        server.stop()


@pytest.mark.snug_only
def test_without_a_limit_there_is_no_pressure(server):
    with server.connect() as c:
        assert figures(c, "packing")["memory_pressure"] == "0.00"
        c.call("CONFIG", "SET", "maxmemory", used(c) + 10_000)
        assert figures(c, "packing")["memory_pressure"] == "1.00"


def write_and_count(connection, policy, more, count):
    """Writes so many one-byte values under a limit that is `more` bytes above what is
    used; how many keys are left, and the replies that were errors."""
    limit(connection, policy, more)
    options = ("EX", "100000") if policy.startswith("volatile") else ()
    replies = []
    for at in range(0, count, 100):
        replies += connection.pipeline([("SET", n, "x", *options) for n in range(at, at + 100)])
    return connection.call("DBSIZE")[1], [reply for reply in replies if reply[0] == "-"]


@pytest.mark.parametrize("mode", ["standalone", "cluster"])
@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-ttl"])
def test_a_small_limit_holds_as_many_keys_as_in_redis(target, policy, mode):
    server = target.start(*(["--cluster-enabled", "yes"] if mode == "cluster" else []))
    try:
        with server.connect() as c:
            if mode == "cluster":
                assert c.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)[1] == b"OK"
                while figures_of_cluster(c)["cluster_state"] != "ok":
                    time.sleep(0.05)
            # What redis-server holds, less a tenth: it has links to other nodes, too.
            for more, least in [(100 << 10, 180), (1 << 20, 6800)]:
                keys, errors = write_and_count(c, policy, more, 20_000)
                assert not errors
                assert keys > least
                c.call("CONFIG", "SET", "maxmemory", "0")
                c.call("FLUSHALL")
    finally:
        server.stop()


def figures_of_cluster(connection):
    return info_fields(connection.call("CLUSTER", "INFO")[1].decode())


@pytest.mark.snug_only
@pytest.mark.parametrize("server", [["--cluster-enabled", "no"], ["--cluster-enabled", "yes"]], indirect=True)
def test_small_stores_are_small_and_become_small_again(server):
    with server.connect() as c:
        c.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        c.call("PING")
        empty = used(c)
        assert empty < 2 * MB
        c.pipeline([("SET", n, "x") for n in range(500)])
        assert used(c) - empty < 100_000
        # Not by FLUSHALL: key by key.
        c.pipeline([("SET", n, "x") for n in range(200_000)])
        assert used(c) - empty > 3 * MB
        c.pipeline([("DEL", n) for n in range(500, 200_000)])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while used(c) - empty >= 250_000:
            assert time.monotonic() < deadline, used(c) - empty
            time.sleep(0.05)
        assert sum(reply[1] for reply in c.pipeline([("EXISTS", n) for n in range(500)])) == 500
        c.pipeline([("DEL", n) for n in range(500)])
        while used(c) - empty >= 50_000:
            assert time.monotonic() < deadline, used(c) - empty
            time.sleep(0.05)
