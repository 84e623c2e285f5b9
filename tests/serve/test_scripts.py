"""Scripts that take long, and what others see of them meanwhile."""

import threading
import time

import pytest
from harness.resp import Silent

WAIT_SECONDS = 30
FOREVER = "while true do end"
CAUGHT = "while true do pcall(function() while true do end end) end"
SORTING = "local t = {} for i = 1, 200000 do t[i] = i % 977 end while true do table.sort(t) end"
MATCHING = "return string.rep('a', 50000):find(string.rep('a-', 30) .. 'b')"
REPEATING = "while true do local s = string.rep('x', 1000000) end"
REPEATING_MORE = "while true do pcall(string.rep, 'x', 5e7) end"
REPLACING = "local s = string.rep('x', 1e6) while true do s:gsub('x', 'y') end"
PARSING = "local s = string.rep('x=1 ', 1e5) while true do loadstring(s) end"
HASHING = "local s = string.rep('x', 1e6) while true do redis.sha1hex(s) end"
ENCODING = "local t = {} for i = 1, 1e5 do t[i] = i + 0.5 end while true do cjson.decode(cjson.encode(t)) end"
WRITING = "redis.call('set', KEYS[1], 'x') while true do end"


@pytest.fixture(params=[1, 2], ids=["1 worker", "2 workers"])
def running(target, request):
    server = target.start("--busy-reply-threshold", "20", workers=request.param)
    yield server
    server.stop()


def until(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.002)


def is_busy(connection):
    return connection.call("PING")[1].startswith(b"BUSY")


@pytest.mark.snug_only
@pytest.mark.parametrize("script", [FOREVER, CAUGHT, SORTING, MATCHING, REPEATING, REPEATING_MORE, REPLACING, PARSING, HASHING, ENCODING])
def test_a_script_that_does_not_end_is_killed(running, script):
    with running.connect() as one, running.connect() as two:
        one.send("EVAL", script, "0")
        until(lambda: is_busy(two))
        assert two.call("GET", "k")[1].startswith(b"BUSY")
        assert two.call("SCRIPT", "KILL") == ("+", b"OK")
        kind, text = one.reply()
        assert kind == "-" and b"Script killed by user with SCRIPT KILL" in text
        assert two.call("GET", "k") == ("$", None)
        assert two.call("SCRIPT", "KILL")[1].startswith(b"NOTBUSY")


@pytest.mark.snug_only
def test_a_script_that_has_written_is_not_killed(target):
    server = target.start("--busy-reply-threshold", "20", workers=2)
    with server.connect() as one, server.connect() as two:
        one.send("EVAL", WRITING, "1", "k")
        until(lambda: is_busy(two))
        assert two.call("SCRIPT", "KILL")[1].startswith(b"UNKILLABLE")
        two.send("SHUTDOWN", "NOSAVE")
        until(lambda: not server.alive())


@pytest.mark.snug_only
def test_who_uses_other_keys_is_served_meanwhile(running):
    loop = "local n = 0 while redis.call('get', KEYS[1]) do n = n + 1 end return n"
    with running.connect() as one, running.connect() as two:
        # It is known to use the key that it declares.
        assert one.call("EVAL", loop, "1", "k") == (":", 0)
        two.call("SET", "k", "x")
        one.send("EVAL", loop, "1", "k")
        until(lambda: is_busy(two))
        assert two.call("GET", "k")[1].startswith(b"BUSY")
        served = [two.call("SET", f"other:{n}", "x") for n in range(100)]
        assert served.count(("+", b"OK")) > 50
        assert two.call("SCRIPT", "KILL") == ("+", b"OK")
        assert one.reply()[0] == "-"
        assert two.call("GET", "k") == ("$", b"x")


@pytest.mark.snug_only
def test_who_waits_for_a_script_is_served_when_it_ends(target):
    server = target.start(workers=2)
    count = "for i = 1, 3000000 do end return redis.call('incr', KEYS[1])"
    with server.connect() as one, server.connect() as two:
        for n in range(1, 4):
            one.send("EVAL", count, "1", "n")
            assert two.call("INCRBY", "other", "1")[0] == ":"
            assert one.reply() == (":", n)
        one.send("EVAL", count, "1", "n")
        two.send("GET", "n")
        assert one.reply() == (":", 4)
        assert two.reply()[0] == "$"
    server.stop()


@pytest.mark.snug_only
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
def test_scripts_of_several_workers_lose_nothing(target, declared):
    server = target.start(workers=2)
    script = (
        "local n = redis.call('incr', KEYS[1]) redis.call('incrby', KEYS[2], n) return n"
        if declared
        else "local n = redis.call('incr', KEYS[1]) redis.call('incr', 'sum:' .. n % 50) return n"
    )
    each = 400

    def work(n):
        with server.connect() as connection:
            for i in range(each):
                keys = [f"a{i % 7}", f"b{(i * n) % 11}"]
                assert connection.call("EVAL", script, "2", *keys)[0] == ":"

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    with server.connect() as connection:
        total = sum(int(connection.call("GET", f"a{n}")[1]) for n in range(7))
        assert total == 4 * each
        if not declared:
            sums = [connection.call("GET", f"sum:{n}")[1] for n in range(50)]
            assert sum(int(value or 0) for value in sums) == 4 * each
    server.stop()


#: Writes, and then goes on for as long as it is told.
TAIL = "redis.call('set', KEYS[1], ARGV[1]) local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i % 7 end return n"
FOR_EVER = "1e15"


def on_other_workers(server, count):
    """Connections that are answered while one worker is busy, of so many."""
    connections = [server.connect() for _ in range(count)]
    [connection.send("PING") for connection in connections]
    answered = []
    for connection in connections:
        try:
            connection.reply(wait=0.5)
            answered.append(connection)
        except Silent:
            pass
    return answered


@pytest.mark.snug_only
@pytest.mark.parametrize("within", ["alone", "in a transaction"])
def test_others_know_of_a_script_that_was_short_has_written_and_is_long(target, within):
    server = target.start("--busy-reply-threshold", "50", workers=4)
    with server.connect() as one:
        for _ in range(3):
            assert one.call("EVAL", TAIL, "1", "k", "10")[0] == ":"
        waiting = [server.connect() for _ in range(8)]
        if within == "alone":
            one.send("EVAL", TAIL, "1", "k", FOR_EVER)
        else:
            one.pipeline([["MULTI"], ["SET", "a", "1"], ["EVAL", TAIL, "1", "k", FOR_EVER]])
            one.send("EXEC")
        # Some are about to wait for its key before it is known to be long.
        [connection.send("GET", "k") for connection in waiting]
        others = on_other_workers(server, 16)
        assert others, "none was on another worker"
        for other in others:
            until(lambda: other.call("GET", "k")[1].startswith(b"BUSY"))
            assert other.call("INCR", "k")[1].startswith(b"BUSY")
            assert other.call("SCRIPT", "KILL")[1].startswith(b"UNKILLABLE")
            # One that happens to be under a lock with the script's keys waits as they do.
            served = [other.call("SET", f"other:{n}", "x") for n in range(10)]
            assert ("+", b"OK") in served
            assert other.call("FLUSHALL")[1].startswith(b"BUSY")
        others[0].send("SHUTDOWN", "NOSAVE")
        until(lambda: not server.alive())


@pytest.mark.snug_only
def test_watches_and_waits_for_keys_of_a_long_script_keep_no_worker(target):
    server = target.start("--busy-reply-threshold", "50", workers=4)
    with server.connect() as one:
        for _ in range(3):
            assert one.call("EVAL", TAIL, "2", "k", "list", "10")[0] == ":"
        early = [server.connect() for _ in range(24)]
        ends = (["UNWATCH"], ["DISCARD"], ["RESET"], None)
        for n, connection in enumerate(early):
            assert connection.call("WATCH", "k", "other") == ("+", b"OK")
            if n % 4 == 1:
                assert connection.call("MULTI") == ("+", b"OK")
        waiting = [server.connect() for _ in range(16)]
        for connection in waiting:
            connection.send("BLPOP", "far", "list", "0")
        until(lambda: int(server.info()["blocked_clients"]) == 16)
        one.send("EVAL", TAIL, "2", "k", "list", FOR_EVER)
        others = on_other_workers(server, 16)
        assert others, "none was on another worker"
        until(lambda: others[0].call("GET", "k")[1].startswith(b"BUSY"))
        # One that watches now is told; nothing of what it names is watched then.
        assert others[0].call("WATCH", "far", "k")[1].startswith(b"BUSY")
        for n, connection in enumerate(early):
            if ends[n % 4]:
                connection.send(*ends[n % 4])
            else:
                connection.close()
        [connection.close() for connection in waiting]
        for other in others:
            assert other.call("GET", "k")[1].startswith(b"BUSY")
        others[0].send("SHUTDOWN", "NOSAVE")
        until(lambda: not server.alive())


@pytest.mark.snug_only
def test_a_script_that_was_long_once_is_run_aside_from_then_on(target):
    server = target.start("--busy-reply-threshold", "20", workers=1)
    with server.connect() as one, server.connect() as two:
        for steps in ("10", "10", "3e6", "10", "10"):
            assert one.call("EVAL", TAIL, "1", "k", steps)[0] == ":"
        one.send("EVAL", TAIL, "1", "k", FOR_EVER)
        until(lambda: is_busy(two))
        assert two.call("SCRIPT", "KILL")[1].startswith(b"UNKILLABLE")
        two.send("SHUTDOWN", "NOSAVE")
        until(lambda: not server.alive())


@pytest.mark.snug_only
@pytest.mark.parametrize(
    "ends",
    ["return t", "return {map = {a = t}}", "redis.call('rpush', 'l', unpack(t))", "return cmsgpack.pack(t)", "return cjson.encode(t)"],
)
def test_a_large_value_named_many_times_takes_no_more_than_a_script_may_have(target, ends):
    server = target.start("--lua-memory-limit", "32mb", workers=2)
    with server.connect() as one:
        script = "local s, t = string.rep('x', 1e6), {} for i = 1, 5000 do t[i] = s end "
        kind, text = one.call("EVAL", script + ends, "0")
        assert kind == "-" and b"not enough memory" in text
        assert one.call("EXISTS", "l") == (":", 0)
    assert server.peak_rss_bytes() < 400 << 20
    server.stop()


@pytest.mark.snug_only
def test_a_script_in_a_transaction_that_has_not_written_is_killed(target):
    server = target.start("--busy-reply-threshold", "50", workers=4)
    with server.connect() as one:
        one.pipeline([["MULTI"], ["SET", "a", "1"], ["EVAL", FOREVER, "1", "k"]])
        one.send("EXEC")
        others = on_other_workers(server, 16)
        until(lambda: others[0].call("SCRIPT", "KILL") == ("+", b"OK"))
        kind, (first, second) = one.reply()
        assert kind == "*" and first == ("+", b"OK")
        assert b"Script killed by user with SCRIPT KILL" in second[1]
        assert others[0].call("GET", "a") == ("$", b"1")
    server.stop()


@pytest.mark.snug_only
def test_undeclared_keys_may_be_denied(target):
    server = target.start(workers=2)
    with server.connect() as one:
        get = "return redis.call('get', 'other')"
        assert one.call("EVAL", get, "0") == ("$", None)
        assert one.call("CONFIG", "SET", "lua-undeclared-keys", "deny") == ("+", b"OK")
        for script in (get, "return redis.call('keys', '*')", "return redis.call('mget', KEYS[1], '{k}2')"):
            kind, text = one.call("EVAL", script, "1", "{k}1")
            assert kind == "-" and b"a key that it did not declare" in text
        declared = "redis.call('set', KEYS[1], 1) redis.call('ping') return redis.call('mget', KEYS[1], KEYS[2])"
        assert one.call("EVAL", declared, "2", "a", "b") == ("*", [("$", b"1"), ("$", None)])
        assert one.call("CONFIG", "SET", "lua-undeclared-keys", "some")[0] == "-"
    server.stop()


@pytest.mark.snug_only
@pytest.mark.parametrize("times", [1, 3], ids=["aside", "on its worker"])
def test_what_a_script_was_denied_is_logged(target, times):
    server = target.start(workers=2)
    with server.connect() as one, server.connect() as two:
        one.call("ACL", "SETUSER", "bob", "on", "nopass", "~mine*", "+@all", "-get")
        two.call("CLIENT", "SETNAME", "bobs")
        two.call("AUTH", "bob", "x")
        script = "redis.pcall('set', KEYS[2], 1) return redis.call('get', KEYS[1])"
        for _ in range(times):
            assert two.call("EVAL", script, "2", "mine", "mine2")[0] == "-"
            assert two.call("EVAL", "return redis.call('set', 'yours', 1)", "0")[0] == "-"
        entries = [dict(zip([k[1] for k in e[::2]], [v[1] for v in e[1::2]])) for _, e in one.call("ACL", "LOG")[1]]
        told = {(e[b"reason"], e[b"context"], e[b"object"], e[b"username"], e[b"count"]) for e in entries}
        assert told == {(b"command", b"lua", b"get", b"bob", times), (b"key", b"lua", b"yours", b"bob", times)}
        assert all(b"name=bobs" in e[b"client-info"] and b"cmd=eval" in e[b"client-info"] for e in entries)
    server.stop()


@pytest.mark.snug_only
def test_a_broadcast_does_not_tell_a_client_what_its_own_script_changed(target):
    """In redis-server it does, with `BCAST` only."""
    server = target.start()
    with server.connect(3) as client, server.connect(3) as other:
        client.call("CLIENT", "TRACKING", "ON", "BCAST", "NOLOOP")
        other.call("CLIENT", "TRACKING", "ON", "BCAST")
        script = ("EVAL", "return redis.call('set', KEYS[1], 1)", 1, "k")
        for commands in [[script], [("MULTI",), script, ("EXEC",)]]:
            for command in commands:
                client.send(*command)
                assert client.frame()[0] != ">"
            client.send("PING")
            assert client.frame() == ("+", b"PONG")
            assert other.frame() == (">", [("$", b"invalidate"), ("*", [("$", b"k")])])
    server.stop()


def test_a_script_that_runs_aside_does_so_for_its_client(target):
    """A script that is new runs in another thread: what its client is told and not told,
    and what others are told of it, is the same."""
    server = target.start()
    with server.connect(3) as client, server.connect() as other, server.connect() as monitor:
        client.call("SET", "k", 1)
        client.call("CLIENT", "TRACKING", "ON", "NOLOOP")
        monitor.call("MONITOR")
        assert client.call("GET", "k") == ("$", b"1")
        # Its own change is not told, what the script read is remembered.
        client.send("EVAL", "return redis.call('set', KEYS[1], 2)", 1, "k")
        assert client.frame() == ("+", b"OK")
        client.send("EVAL", "return redis.call('get', KEYS[1])", 1, "k")
        assert client.frame() == ("$", b"2")
        client.send("PING")
        assert client.frame() == ("+", b"PONG")
        other.call("SET", "k", 3)
        assert client.frame() == (">", [("$", b"invalidate"), ("*", [("$", b"k")])])
        lines = [monitor.frame()[1].split(b" ", 1)[1] for _ in range(6)]
        assert [line.split(b"] ")[1] for line in lines] == [
            b'"GET" "k"',
            b'"EVAL" "return redis.call(\'set\', KEYS[1], 2)" "1" "k"',
            b'"set" "k" "2"',
            b'"EVAL" "return redis.call(\'get\', KEYS[1])" "1" "k"',
            b'"get" "k"',
            b'"PING"',
        ]
        assert [line.startswith(b"[0 lua] ") for line in lines] == [False, False, True, False, True, False]
        # Who tracks prefixes is told of all that it changed, its own client too.
        client.call("CLIENT", "TRACKING", "OFF")
        client.call("CLIENT", "TRACKING", "ON", "BCAST")
        assert client.call("EVAL", "return redis.call('mset', KEYS[1], 5, KEYS[2], 6)", 2, "a", "b") == ("+", b"OK")
        assert client.frame() == (">", [("$", b"invalidate"), ("*", [("$", b"a"), ("$", b"b")])])
        # What it publishes to itself comes after its reply.
        client.send("SUBSCRIBE", "news")
        assert client.frame() == (">", [("$", b"subscribe"), ("$", b"news"), (":", 1)])
        assert client.call("EVAL", "return redis.call('publish', 'news', 'x')", 0) == (":", 1)
        assert client.frame() == (">", [("$", b"message"), ("$", b"news"), ("$", b"x")])
        # What was denied is written down.
        other.call("ACL", "SETUSER", "few", "on", "nopass", "~*", "+eval", "+get")
        client.call("AUTH", "few", "")
        assert client.call("EVAL", "return redis.call('incr', KEYS[1])", 1, "k")[0] == "-"
        entry = other.call("ACL", "LOG")[1][0][1]
        fields = {entry[n][1]: entry[n + 1][1] for n in range(0, len(entry), 2)}
        assert (fields[b"context"], fields[b"object"], fields[b"username"]) == (b"lua", b"incr", b"few")
    server.stop()


@pytest.mark.snug_only
def test_a_transaction_that_meets_a_slow_script_is_discarded(running):
    with running.connect() as one, running.connect() as two:
        assert two.call("MULTI") == ("+", b"OK")
        assert two.call("GET", "k") == ("+", b"QUEUED")
        one.send("EVAL", FOREVER, "0")
        with running.connect() as three:
            until(lambda: is_busy(three))
        kind, text = two.call("EXEC")
        assert kind == "-" and text.startswith(b"EXECABORT Transaction discarded because of: BUSY")
        assert two.call("SCRIPT", "KILL") == ("+", b"OK")
        assert one.reply()[0] == "-"
        assert two.call("EXEC")[1] == b"ERR EXEC without MULTI"
