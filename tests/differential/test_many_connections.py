"""What must hold while many connections work at once, on one worker and two."""

import threading

import pytest

from conftest import VARIANTS
from harness.resp import Connection

CLIENTS = 16


@pytest.fixture(params=VARIANTS)
def server(pairs, request):
    if request.param != "usual" and pairs.target.is_redis:
        pytest.skip("the server under test is a redis-server")
    pair = pairs.get(request.param)
    pair.clean()
    yield pair.tested
    pair.clean()


def at_once(server, work, clients=CLIENTS):
    """Runs `work(number, connection)` in so many threads; their results."""
    results, errors = [None] * clients, []

    def run(number):
        try:
            with Connection(server.port) as connection:
                results[number] = work(number, connection)
        except Exception as error:  # a thread's failure is the test's
            errors.append(repr(error))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[:3]
    return results


def ask(server, *args):
    with server.connect() as connection:
        return connection.call(*args)


def test_no_increment_is_lost(server):
    at_once(server, lambda n, c: c.pipeline([("INCR", f"n{i % 3}") for i in range(900)]))
    assert ask(server, "MGET", "n0", "n1", "n2")[1] == [("$", b"%d" % (300 * CLIENTS))] * 3


def test_appends_are_whole(server):
    at_once(server, lambda n, c: c.pipeline([("APPEND", "log", f"<{n:02}>")] * 200))
    log = ask(server, "GET", "log")[1]
    pieces = [log[i : i + 4] for i in range(0, len(log), 4)]
    assert sorted(pieces) == sorted([b"<%02d>" % n for n in range(CLIENTS)] * 200)


def test_mset_is_seen_whole(server):
    """Across slots and workers: nobody sees half of it."""
    keys = [f"k{i}" for i in range(8)]

    def work(number, connection):
        if number % 2:
            connection.pipeline([("MSET", *[p for k in keys for p in (k, f"{number}-{i}")]) for i in range(150)])
            return []
        return connection.pipeline([("MGET", *keys)] * 150)

    for replies in at_once(server, work):
        for reply in replies:
            assert len({v for v in reply[1]}) == 1, reply


def test_exec_is_seen_whole_and_moves_nothing_away(server):
    ask(server, "MSET", "x", "1000", "y", "1000")

    def work(number, connection):
        if number % 2:
            for _ in range(60):
                connection.pipeline([("MULTI",), ("DECR", "x"), ("INCR", "y"), ("EXEC",)])
            return []
        sums = []
        for _ in range(60):
            reply = connection.pipeline([("MULTI",), ("GET", "x"), ("GET", "y"), ("EXEC",)])[-1]
            sums.append(sum(int(v[1]) for v in reply[1]))
        return sums

    assert {s for sums in at_once(server, work) for s in sums} == {2000}


def test_watch_lets_one_win(server):
    """Optimistic increments: each success counts exactly once."""

    def work(number, connection):
        won = 0
        for _ in range(60):
            connection.call("WATCH", "counter")
            value = int(connection.call("GET", "counter")[1] or 0)
            replies = connection.pipeline([("MULTI",), ("SET", "counter", value + 1), ("EXEC",)])
            won += replies[-1] == ("*", [("+", b"OK")])
        return won

    won = sum(at_once(server, work))
    assert won > 0 and ask(server, "GET", "counter") == ("$", b"%d" % won)


def test_stream_ids_rise_for_all_writers(server):
    replies = at_once(server, lambda n, c: c.pipeline([("XADD", "s", "*", "w", str(n))] * 200))
    for own in replies:
        ids = [tuple(map(int, r[1].split(b"-"))) for r in own]
        assert ids == sorted(set(ids))
    everything = [e[1][0][1] for e in ask(server, "XRANGE", "s", "-", "+")[1]]
    assert len(everything) == 200 * CLIENTS
    order = [tuple(map(int, i.split(b"-"))) for i in everything]
    assert order == sorted(set(order))


def test_renames_lose_nothing(server):
    """A token is passed round among slots; there is always exactly one."""
    places = [f"place{i}" for i in range(6)]
    ask(server, "SET", places[0], "token")

    def work(number, connection):
        if number < 4:
            at_end = []
            for i in range(200):
                a, b = places[(i + number) % 6], places[(i * 5 + 1) % 6]
                if a != b:
                    at_end.append(connection.call("RENAMENX", a, b))
            return 0
        return {connection.call("EXISTS", *places)[1] for _ in range(200)}

    for seen in at_once(server, work, clients=8)[4:]:
        assert seen == {1}
    assert ask(server, "EXISTS", *places) == (":", 1)


def test_every_subscriber_gets_every_message_in_order(server):
    ready = threading.Barrier(CLIENTS)
    publishers = 4

    def work(number, connection):
        if number < publishers:
            ready.wait()
            return connection.pipeline([("PUBLISH", "ch", f"{number}:{i}") for i in range(100)])
        connection.send("SUBSCRIBE", "ch")
        connection.frame()
        ready.wait()
        return [connection.frame()[1][2][1] for _ in range(100 * publishers)]

    results = at_once(server, work)
    for replies in results[:publishers]:
        assert {r for r in replies} == {(":", CLIENTS - publishers)}
    for messages in results[publishers:]:
        for publisher in range(publishers):
            own = [m for m in messages if m.startswith(b"%d:" % publisher)]
            assert own == [b"%d:%d" % (publisher, i) for i in range(100)]


def test_flushall_amid_writes_leaves_a_sane_keyspace(server):
    def work(number, connection):
        if number == 0:
            return [connection.call("FLUSHALL") for _ in range(20)]
        connection.pipeline([("SET", f"{number}:{i}", "v") for i in range(500)])

    at_once(server, work)
    count = ask(server, "DBSIZE")[1]
    assert len(ask(server, "KEYS", "*")[1]) == count


def test_swapdb_amid_reads_shows_one_or_the_other(server):
    with server.connect() as connection:
        connection.pipeline([("SET", "k", "zero"), ("SELECT", "1"), ("SET", "k", "one")])

    def work(number, connection):
        if number == 0:
            return [connection.call("SWAPDB", "0", "1") for _ in range(100)]
        return [connection.call("GET", "k") for _ in range(200)]

    for replies in at_once(server, work)[1:]:
        assert set(replies) <= {("$", b"zero"), ("$", b"one")}
