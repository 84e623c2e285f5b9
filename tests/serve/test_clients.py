"""What happens to clients, and between them, that no case of two servers shows:
who goes while paused, who has more replies than it may, what a transaction that
waits for its values may meet, and what is freed in the background."""

import time

import pytest

from harness.packing import about
from harness.resp import Closed
from harness.servers import info_fields

OK = ("+", b"OK")
PATIENCE_SECONDS = 30
LARGE = b"a line that comes again and again\n" * 120_000


def figure(connection, section, name):
    return int(info_fields(connection.call("INFO", section)[1].decode())[name])


def until(wanted, ask):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (got := ask()) != wanted:
        assert time.monotonic() < deadline, f"still {got}, not {wanted}"
        time.sleep(0.002)


def waits(admin, count):
    until(count, lambda: figure(admin, "clients", "blocked_clients"))


def test_a_client_that_goes_during_a_pause_takes_its_command_with_it(server):
    with server.connect() as admin:
        admin.call("SET", "k", "before")
        assert admin.call("CLIENT", "PAUSE", 100_000, "WRITE") == OK
        with server.connect() as goes:
            goes.send("SET", "k", "after")
            waits(admin, 1)
            flags = [line.split(b" flags=")[1].split()[0] for line in admin.call("CLIENT", "LIST")[1].splitlines()]
            assert sorted(flags) == [b"N", b"b"]
        waits(admin, 0)
        assert admin.call("CLIENT", "UNPAUSE") == OK
        assert admin.call("GET", "k")[1] == b"before"


def is_closed_unanswered(server, *commands):
    """Whether a client that sends these is sent nothing at all, and its connection ends."""
    with server.connect() as c:
        with pytest.raises(Closed):
            c.pipeline(commands)
        return True


def test_replies_count_for_the_hard_limit_when_they_are_made(server):
    with server.connect() as admin:
        for n in range(30):
            admin.call("SET", f"part{n}", "x" * 100_000)
        admin.call("SET", "ten", "y" * 10_000_000)
        assert admin.call("CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 0 0") == OK
        parts = [f"part{n}" for n in range(30)]
        assert is_closed_unanswered(server, ("MGET", *parts))
        assert is_closed_unanswered(server, ("GET", "ten"))
        assert is_closed_unanswered(server, ("GETRANGE", "ten", 0, 2_000_000))
        assert is_closed_unanswered(server, *[("GET", part) for part in parts])
        # What came before it is done, what comes after it is not.
        assert is_closed_unanswered(server, ("SET", "did", 1), ("GET", "ten"), ("SET", "did-not", 1))
        assert [admin.call("EXISTS", key)[1] for key in ("did", "did-not")] == [1, 0]
        assert is_closed_unanswered(server, ("MULTI",), ("GET", "ten"), ("SET", "within", 1), ("EXEC",))
        assert admin.call("EXISTS", "within")[1] == 1
        # A client that is served while it waits.
        with server.connect() as reader:
            reader.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
            waits(admin, 1)
            admin.call("XADD", "s", "*", "f", "x" * 2_000_000)
            with pytest.raises(Closed):
                reader.reply()
        with server.connect() as c:
            assert len(c.call("MGET", *parts[:8])[1]) == 8
            assert len(c.call("GETRANGE", "ten", 0, 799_999)[1]) == 800_000


@pytest.mark.snug_only
@pytest.mark.parametrize("change", [("SETRANGE", "big", 5, "X"), ("APPEND", "big", "X"), ("SETBIT", "big", 7, 1)])
def test_a_transaction_waits_for_large_packed_values_before_it_begins(server, change):
    with server.connect() as c, server.connect() as other:
        for key in ("big", "second", "untouched"):
            c.call("SET", key, LARGE)
            assert c.call("SNUG", "PACK", key) == (":", 1)
        before = figure(c, "packing", "pack_slices")
        replies = c.pipeline([("MULTI",), change, ("SETRANGE", "second", 0, "Y"), ("STRLEN", "untouched"), ("EXEC",)])
        assert replies[-1][1][1:] == [(":", len(LARGE)), (":", len(LARGE))]
        # Both were unpacked in slices, which work within EXEC would not be.
        assert figure(c, "packing", "pack_slices") > before + 1
        assert [about(c, key)[b"codec"] != b"none" for key in ("big", "second", "untouched")] == [False, False, True]
        assert c.call("GET", "second")[1] == b"Y" + LARGE[1:]
        # A watched key that changes while EXEC waits breaks it as ever.
        assert c.call("SNUG", "PACK", "big") == (":", 1)
        c.call("WATCH", "watched")
        c.pipeline([("MULTI",), change, ("SET", "watched", "mine")])
        other.call("SET", "watched", "theirs")
        assert c.call("EXEC") == ("*", None)
        assert (c.call("GET", "watched")[1], about(c, "big")[b"codec"] != b"none") == (b"theirs", True)


def test_what_is_freed_in_the_background_is_counted_by_its_effort(server):
    with server.connect() as c:

        def freed():
            until(0, lambda: figure(c, "memory", "lazyfree_pending_objects"))
            return figure(c, "memory", "lazyfreed_objects")

        def stream(key, entries):
            c.pipeline([("XADD", key, f"{1_700_000_000_000 + n * 37}-0", "f", "v") for n in range(entries)])

        def after(*commands):
            assert c.call("CONFIG", "RESETSTAT") == OK
            assert freed() == 0
            c.pipeline(commands)
            return freed()

        stream("short", 1000)
        stream("long", 8000)
        c.call("SET", "string", "x" * 1_000_000)
        assert after(("UNLINK", "short", "string")) == 0
        assert after(("UNLINK", "long")) == 1
        stream("long", 8000)
        assert after(("DEL", "long")) == 0
        stream("long", 8000)
        c.call("CONFIG", "SET", "lazyfree-lazy-user-del", "yes")
        assert after(("DEL", "long")) == 1
        c.call("CONFIG", "SET", "lazyfree-lazy-expire", "yes")
        stream("long", 8000)
        assert after(("TTL", "long")) == 0
        assert c.call("PEXPIRE", "long", 1) == (":", 1)
        until(1, freed)
        assert c.call("EXISTS", "long") == (":", 0)
        c.pipeline([("SET", f"k{n}", n) for n in range(50)])
        assert after(("FLUSHALL", "SYNC")) == 0
        c.pipeline([("SET", f"k{n}", n) for n in range(50)])
        assert after(("FLUSHALL", "ASYNC")) == 50


@pytest.mark.snug_only
@pytest.mark.parametrize("read", [("GET", "k"), ("EVAL_RO", "return redis.call('get', KEYS[1])", 1, "k")])
def test_a_key_that_expired_as_its_reader_came_is_told_when_it_changes(target, read):
    """`NOLOOP` is about what the client changes itself, and no reader expires a key. In
    redis-server the key is remembered after it has expired, which comes to the same."""
    server = target.start("--enable-debug-command", "yes")
    with server.connect(3) as client, server.connect() as other:
        assert other.call("DEBUG", "SET-ACTIVE-EXPIRE", 0) == OK
        assert client.call("CLIENT", "TRACKING", "ON", "NOLOOP") == OK
        for value in range(10):
            assert other.call("SET", "k", value, "PX", 1) == OK
            time.sleep(0.003)
            client.send(*read)
            while (frame := client.frame())[0] == ">":
                pass
            assert frame[0] == "_"
            # Of its expiry, or of this: what it must not do is miss both.
            assert other.call("SET", "k", "new") == OK
            assert client.frame() == (">", [("$", b"invalidate"), ("*", [("$", b"k")])])
            assert other.call("DEL", "k") == (":", 1)
    server.stop()
