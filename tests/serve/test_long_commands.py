"""Commands that go through many items run aside: who uses their keys waits, all others are
served, and the reply is that of one moment."""

import select
import threading
import time

import pytest

from harness.nodes import eventually
from harness.resp import Closed, encode

WAIT_SECONDS = 60
#: `LCS` of these goes through 144 million steps.
HALF = 6000
LONG = ("LCS", "long:a", "long:b", "LEN")
LENGTH = (":", 2 * HALF - 1)

pytestmark = pytest.mark.snug_only


@pytest.fixture(params=[1, 2], ids=["1 worker", "2 workers"])
def running(target, request):
    server = target.start("--proto-max-bulk-len", "1gb", workers=request.param)
    with server.connect() as client:
        client.call("MSET", "long:a", "ab" * HALF, "long:b", "ba" * HALF, "k", "x")
    yield server
    assert server.alive()
    server.stop()


def has_reply(client):
    return bool(select.select([client.socket], [], [], 0)[0])


class Looping(threading.Thread):
    """A client that runs a long command again and again."""

    def __init__(self, server):
        super().__init__()
        self.server, self.done, self.ends, self.replies = server, 0, threading.Event(), set()

    def run(self):
        with self.server.connect() as client:
            while not self.ends.is_set():
                self.replies.add(client.call(*LONG))
                self.done += 1

    def __enter__(self):
        self.start()
        eventually("its first reply", lambda: self.done > 0)
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.join()
        assert self.replies == {LENGTH}


def test_others_are_served_meanwhile(running):
    with running.connect() as one, running.connect() as two:
        one.send(*LONG)
        served = 0
        while not has_reply(one):
            assert two.call("GET", "k") == ("$", b"x")
            served += 1
        assert one.reply() == LENGTH
        assert served > 5


def test_what_is_pipelined_behind_it_waits_and_has_its_own_reply(running):
    with running.connect() as one:
        commands = [("SET", "k", "1"), LONG, ("INCR", "k"), LONG, ("GET", "k")]
        assert one.pipeline(commands) == [("+", b"OK"), LENGTH, (":", 2), LENGTH, ("$", b"2")]


def test_who_writes_one_of_its_keys_comes_before_or_behind(running):
    with running.connect() as one, running.connect() as two:
        for _ in range(5):
            two.call("SET", "long:a", "ab" * HALF)
            one.send(*LONG)
            two.call("GET", "k")
            assert two.call("SET", "long:a", "z") == ("+", b"OK")
            assert one.reply() in (LENGTH, (":", 0))
            assert one.call(*LONG) == (":", 0)


def test_it_was_admitted_before_and_is_not_refused_then(running):
    with running.connect() as one, running.connect() as two:
        one.send(*LONG)
        two.call("GET", "k")
        two.call("ACL", "SETUSER", "default", "-lcs")
        came = one.reply()
        assert came == LENGTH or came[1].startswith(b"NOPERM")
        assert one.call("GET", "k") == ("$", b"x")
        assert one.call(*LONG)[1].startswith(b"NOPERM")


def test_the_slow_log_tells_how_long_it_took(running):
    with running.connect() as one:
        one.call("CONFIG", "SET", "slowlog-log-slower-than", "5000")
        assert one.call(*LONG) == LENGTH
        entry = one.call("SLOWLOG", "GET", "1")[1][0][1]
        assert entry[3][1][0][1] == b"LCS"
        assert entry[2][1] >= 5000
        stats = one.call("INFO", "commandstats")[1].decode()
        calls, usec = stats.split("cmdstat_lcs:calls=")[1].split(",")[:2]
        assert (calls, int(usec.split("=")[1]) >= 5000) == ("1", True)


def test_transactions_and_scripts_have_it_as_one_of_their_steps(running):
    with running.connect() as one, Looping(running):
        for _ in range(3):
            one.pipeline([("MULTI",), ("SET", "k", "1"), LONG, ("GET", "k")])
            assert one.call("EXEC") == ("*", [("+", b"OK"), LENGTH, ("$", b"1")])
            script = "redis.call('incr', KEYS[3]) return redis.call('lcs', KEYS[1], KEYS[2], 'len')"
            assert one.call("EVAL", script, "3", "long:a", "long:b", "k") == LENGTH


def test_keys_expire_and_others_run_scripts_while_long_commands_follow_each_other(running):
    with running.connect() as one, Looping(running):
        one.pipeline([("SET", f"short:{n}", "x", "PX", "20") for n in range(1000)])
        eventually("the end of keys", lambda: one.call("DBSIZE") == (":", 3))
        assert one.call("EVAL", "return redis.call('get', KEYS[1])", "1", "k") == ("$", b"x")


def test_memory_stays_below_its_limit_while_long_commands_follow_each_other(target):
    server = target.start("--proto-max-bulk-len", "1gb", "--maxmemory", "40mb", "--maxmemory-policy", "allkeys-lru", "--pack", "no", workers=1)
    with server.connect() as one:
        one.call("MSET", "long:a", "ab" * HALF, "long:b", "ba" * HALF)
        with Looping(server) as other:
            before, most = other.done, 0
            for n in range(150):
                one.pipeline([("SET", f"{n}:{m}", "x" * 10_000) for m in range(100)])
                # What the long command reads is in use, and stays.
                one.pipeline([("GET", "long:a"), ("GET", "long:b")])
                most = max(most, int(server.info()["used_memory"]))
            eventually("another reply", lambda: other.done > before)
        assert most < 44 << 20, f"{most >> 20} MB"
        assert int(server.info()["evicted_keys"]) > 10_000
    server.stop()


def test_a_client_that_goes_away_leaves_nothing_behind(running):
    for _ in range(3):
        with running.connect() as one:
            one.send(*LONG)
    with running.connect() as two:
        eventually("the end of clients", lambda: "connected_clients:1\r\n" in two.call("INFO", "clients")[1].decode())
        assert two.call(*LONG) == LENGTH


def test_who_waits_for_what_it_stores_is_served(target):
    server = target.start("--long-command-items", "1", workers=1)
    with server.connect() as one, server.connect() as two:
        two.call("RPUSH", "numbers", "3", "1", "2")
        one.send("BLPOP", "sorted", "0")
        eventually("a client that waits", lambda: "blocked_clients:1\r\n" in two.call("INFO", "clients")[1].decode())
        assert two.call("SORT", "numbers", "STORE", "sorted") == (":", 3)
        assert one.reply() == ("*", [("$", b"sorted"), ("$", b"1")])
    server.stop()


def test_one_of_many_words_is_one_step_too(running):
    words = [word for n in range(30_000) for word in (f"m{n}", str(n))]
    with running.connect() as one, running.connect() as two:
        one.send("MSET", *words)
        while not has_reply(one):
            seen = two.call("MGET", "m0", "m15000", "m29999")[1]
            assert [value is None for _, value in seen] in ([True] * 3, [False] * 3)
        assert one.reply() == ("+", b"OK")
        assert one.call("DEL", *words[::2]) == (":", 30_000)
        assert one.call("DBSIZE") == (":", 3)


def test_it_is_not_run_aside_if_it_is_not_to(running):
    with running.connect() as one:
        one.call("CONFIG", "SET", "long-command-items", "0")
        assert one.call(*LONG) == LENGTH


ITEMS = 60_000


def fill(client, key, count=ITEMS):
    for first in range(0, count, 10_000):
        client.call("SADD", key, *range(first, first + 10_000))


def test_a_pause_of_writes_is_one_for_those_that_wait_for_their_turn(running):
    with running.connect() as one, running.connect() as two, running.connect() as three:
        fill(one, "source")
        for _ in range(3):
            one.call("DEL", "d1", "d2")
            one.send("SUNIONSTORE", "d1", "source")
            two.send("SUNIONSTORE", "d2", "source")
            three.call("GET", "k")
            assert three.call("CLIENT", "PAUSE", "60000", "WRITE") == ("+", b"OK")
            there, until_then = three.call("EXISTS", "d1", "d2"), time.monotonic() + 0.3
            while time.monotonic() < until_then:
                assert three.call("EXISTS", "d1", "d2") == there
            assert three.call("CLIENT", "UNPAUSE") == ("+", b"OK")
            assert one.reply() == two.reply() == (":", ITEMS)


def test_one_that_waits_is_refused_when_its_server_has_become_a_replica(running):
    with running.connect() as one, running.connect() as two:
        fill(one, "source")
        one.send_raw(b"".join(encode(("SUNIONSTORE", f"d{n}", "source")) for n in range(20)))
        two.call("GET", "k")
        # Nobody is there: what is here stays as it is.
        assert two.call("REPLICAOF", "127.0.0.1", "1") == ("+", b"OK")
        before = two.call("DBSIZE")
        replies = [one.reply() for _ in range(20)]
        assert two.call("DBSIZE") == before
        assert {kind for kind, _ in replies} <= {":", "-"}
        assert all(text == ITEMS for kind, text in replies if kind == ":")
        assert all(text.startswith(b"READONLY") for kind, text in replies if kind == "-")


@pytest.mark.parametrize("flags", [["--save", "3600 1"], ["--appendonly", "yes"], ["--appendonly", "yes", "--appendfsync", "always"]], ids=" ".join)
@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_that_was_answered_is_lost_when_the_server_ends(target, flags, workers):
    server = target.start("--long-command-items", "1", *flags, workers=workers)
    acknowledged = [0] * 6

    def count(number):
        try:
            with server.connect() as client:
                while True:
                    client.call("SADD", f"t{number}", acknowledged[number] + 1)
                    kind, stored = client.call("SUNIONSTORE", f"k{number}", f"k{number}", f"t{number}")
                    if kind != ":":
                        return
                    acknowledged[number] = stored
        except (Closed, OSError):
            pass

    threads = [threading.Thread(target=count, args=(n,)) for n in range(len(acknowledged))]
    for thread in threads:
        thread.start()
    eventually("writes", lambda: min(acknowledged) > 20)
    server.process.terminate()
    for thread in threads:
        thread.join()
    assert server.process.wait(WAIT_SECONDS) == 0
    server.launch()
    server.wait_until_ready()
    with server.connect() as client:
        eventually("what was saved", lambda: client.call("DBSIZE")[0] == ":")
        kept = [client.call("SCARD", f"k{n}")[1] for n in range(len(acknowledged))]
        assert all(k >= a for k, a in zip(kept, acknowledged)), (kept, acknowledged)
    server.stop()


def test_a_group_is_given_many_entries_at_once(running):
    """Without COUNT, and what is pending once more; all of it is pending for one consumer."""
    count = 30_000
    with running.connect() as one, running.connect() as two:
        for first in range(0, count, 10_000):
            one.pipeline([("XADD", "s", f"{n}-1", "n", n) for n in range(first + 1, first + 10_001)])
        one.call("XGROUP", "CREATE", "s", "g", "0")
        for after in (">", "0"):
            one.send("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", after)
            while not has_reply(one):
                assert two.call("GET", "k") == ("$", b"x")
            ((_, (_, entries)),) = [stream[1] for stream in one.reply()[1]]
            assert [entry[1][0][1] for entry in entries] == [b"%d-1" % n for n in range(1, count + 1)]
        assert one.call("XPENDING", "s", "g")[1][0] == (":", count)
        assert two.call("XREADGROUP", "GROUP", "g", "d", "STREAMS", "s", ">")[0] in "$*_"
        commands = two.call("INFO", "commandstats")[1].decode()
        assert "cmdstat_xreadgroup:calls=3," in commands
