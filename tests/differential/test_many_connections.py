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


def is_nothing(reply):
    return reply[1] is None


def test_every_pushed_element_is_popped_once(server):
    """Half push, half wait for any of three lists: nothing is lost, nothing
    comes twice, and no one waits beside a list that has elements."""
    lists = ["l0", "l1", "l2"]
    pushed = {b"%d:%d" % (n, i) for n in range(0, CLIENTS, 2) for i in range(150)}

    def work(number, connection):
        if number % 2 == 0:
            for i in range(150):
                connection.call("RPUSH" if i % 2 else "LPUSH", lists[(number + i) % 3], f"{number}:{i}")
            return []
        popped = []
        pop = "BLPOP" if number % 4 == 1 else "BRPOP"
        keys = lists[number % 3 :] + lists[: number % 3]
        while True:
            reply = connection.call(pop, *keys, "2")
            if is_nothing(reply):
                return popped
            assert reply[1][0][1].decode() in lists
            popped.append(reply[1][1][1])

    popped = [e for own in at_once(server, work) for e in own]
    assert len(popped) == len(pushed) and set(popped) == pushed
    assert ask(server, "EXISTS", *lists) == (":", 0)


def test_a_queue_with_one_writer_keeps_its_order(server):
    """What one consumer gets of one writer comes in the order it was pushed."""

    def work(number, connection):
        if number == 0:
            for i in range(0, 900, 3):
                connection.call("RPUSH", "q", i, i + 1, i + 2)
            return []
        popped = []
        while not is_nothing(reply := connection.call("BLPOP", "q", "2")):
            popped.append(int(reply[1][1][1]))
        return popped

    results = at_once(server, work, clients=6)
    assert all(own == sorted(own) for own in results)
    assert sorted(e for own in results for e in own) == list(range(900))


def test_blmove_along_a_chain_loses_nothing(server):
    """Three stages move what comes; the last list holds all of it, in order."""
    stages, count = ["s0", "s1", "s2", "s3"], 300

    def work(number, connection):
        if number == 0:
            for i in range(count):
                connection.call("RPUSH", stages[0], i)
            return None
        source, destination = stages[number - 1], stages[number]
        return [int(connection.call("BLMOVE", source, destination, "LEFT", "RIGHT", "20")[1]) for _ in range(count)]

    results = at_once(server, work, clients=4)
    assert all(own == list(range(count)) for own in results[1:])
    assert [int(e[1]) for e in ask(server, "LRANGE", stages[-1], "0", "-1")[1]] == list(range(count))
    assert ask(server, "EXISTS", *stages[:-1]) == (":", 0)


def test_blmpop_in_bunches_takes_each_once(server):
    pushed = set(range(1600))

    def work(number, connection):
        if number < 4:
            for i in range(number, 1600, 40):
                connection.call("LPUSH", f"b{i % 2}", *range(i, min(i + 40, 1600), 4))
            return []
        popped = []
        while True:
            reply = connection.call("BLMPOP", "2", "2", "b0", "b1", "RIGHT", "COUNT", number)
            if is_nothing(reply):
                return popped
            bunch = reply[1][1][1]
            assert 1 <= len(bunch) <= number
            popped += [int(e[1]) for e in bunch]

    popped = [e for own in at_once(server, work, clients=10) for e in own]
    assert sorted(popped) == sorted(pushed)


def test_every_member_is_popped_once(server):
    added = {b"%d:%d" % (n, i): i for n in range(0, CLIENTS, 2) for i in range(100)}

    def work(number, connection):
        if number % 2 == 0:
            for i in range(100):
                connection.call("ZADD", f"z{i % 2}", i, f"{number}:{i}")
            return []
        popped = []
        while True:
            if number % 4 == 1:
                reply = connection.call("BZPOPMIN" if number % 8 == 1 else "BZPOPMAX", "z0", "z1", "2")
                if is_nothing(reply):
                    return popped
                popped.append((reply[1][1][1], int(reply[1][2][1])))
            else:
                reply = connection.call("BZMPOP", "2", "2", "z1", "z0", "MIN", "COUNT", "3")
                if is_nothing(reply):
                    return popped
                popped += [(row[1][0][1], int(row[1][1][1])) for row in reply[1][1][1]]

    popped = [e for own in at_once(server, work) for e in own]
    assert len(popped) == len(added) and dict(popped) == added
    assert ask(server, "EXISTS", "z0", "z1") == (":", 0)


def test_who_is_unblocked_or_times_out_takes_nothing(server):
    """Waiting ends in four ways at once; each element goes to one client only."""
    over = threading.Event()

    def work(number, connection):
        if number == 0:
            for i in range(400):
                connection.call("RPUSH", "l", i)
            over.set()
            return []
        if number == 1:
            while not over.is_set():
                for line in connection.call("CLIENT", "LIST")[1].splitlines():
                    if b" cmd=blpop" in line and b" flags=b" in line:
                        connection.call("CLIENT", "UNBLOCK", line.split(b" ")[0].split(b"=")[1])
            return []
        popped = []
        while not over.is_set() or connection.call("EXISTS", "l") == (":", 1):
            reply = connection.call("BLPOP", "l", "0.002")
            if not is_nothing(reply):
                popped.append(int(reply[1][1][1]))
        return popped

    results = at_once(server, work, clients=CLIENTS)
    popped = [e for own in results for e in own]
    assert sorted(popped) == list(range(400))


def test_pops_and_transactions_share_a_list(server):
    """A transaction that pushes and takes back shows nothing to who waits."""

    def work(number, connection):
        if number < 4:
            for i in range(100):
                connection.pipeline([("MULTI",), ("RPUSH", "l", "never"), ("RPOP", "l"), ("EXEC",)])
                connection.pipeline([("MULTI",), ("RPUSH", "l", f"{number}:{i}"), ("LLEN", "l"), ("EXEC",)])
            return []
        popped = []
        while not is_nothing(reply := connection.call("BLPOP", "l", "2")):
            popped.append(reply[1][1][1])
        return popped

    popped = [e for own in at_once(server, work, clients=8) for e in own]
    assert sorted(popped) == sorted(b"%d:%d" % (n, i) for n in range(4) for i in range(100))


def test_moves_between_collections_are_seen_whole(server):
    """A member moved by SMOVE, an element by LMOVE is always in exactly one place."""
    ask(server, "SADD", "s0", "token")
    ask(server, "RPUSH", "l0", "token")

    def work(number, connection):
        if number < 4:
            for i in range(200):
                a, b = (i + number) % 3, (i * 2 + 1) % 3
                connection.pipeline([("SMOVE", f"s{a}", f"s{b}", "token"), ("LMOVE", f"l{a}", f"l{b}", "LEFT", "RIGHT")])
            return set()
        seen = set()
        for _ in range(200):
            seen.add(len(connection.call("SUNION", "s0", "s1", "s2")[1]))
            seen.add(connection.call("EXISTS", "l0", "l1", "l2")[1])
        return seen

    for seen in at_once(server, work, clients=8)[4:]:
        assert seen == {1}


def test_no_increment_of_a_field_or_score_is_lost(server):
    def work(number, connection):
        connection.pipeline([("HINCRBY", "h", f"f{i % 3}", "1") for i in range(600)])
        connection.pipeline([("ZINCRBY", "z", "1", f"m{i % 3}") for i in range(600)])
        connection.pipeline([("SADD", "s", i) for i in range(number, 600, CLIENTS)])

    at_once(server, work)
    assert ask(server, "HMGET", "h", "f0", "f1", "f2")[1] == [("$", b"%d" % (200 * CLIENTS))] * 3
    assert ask(server, "ZMSCORE", "z", "m0", "m1", "m2")[1] == [("$", b"%d" % (200 * CLIENTS))] * 3
    assert ask(server, "SCARD", "s") == (":", 600)
