"""What is drawn at random: SPOP, SRANDMEMBER, HRANDFIELD, ZRANDMEMBER. Two
servers draw differently, so each is held to what must hold of any draw."""

import collections

import pytest

KINDS = ["set", "integers", "hash", "sorted set"]
#: Small enough for one piece, and large enough for any other form.
SIZES = [1, 5, 100, 2000]


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def connection(pairs, request):
    server = pairs.get().tested
    with server.connect(request.param) as connection:
        connection.call("FLUSHALL")
        yield connection
        connection.call("FLUSHALL")


def fill(connection, kind, size):
    """Makes `k`; what it holds, and the command that samples it."""
    if kind == "hash":
        held = {b"f%d" % n: b"v%d" % n for n in range(size)}
        connection.call("HSET", "k", *[part for pair in held.items() for part in pair])
        return held, "HRANDFIELD", "WITHVALUES"
    if kind == "sorted set":
        held = {b"m%d" % n: b"%d" % n for n in range(size)}
        connection.call("ZADD", "k", *[part for member, score in held.items() for part in (score, member)])
        return held, "ZRANDMEMBER", "WITHSCORES"
    held = {(b"%d" if kind == "integers" else b"m%d") % n: None for n in range(size)}
    connection.call("SADD", "k", *held)
    return held, "SRANDMEMBER", None


def elements(reply):
    assert reply[0] in "*~", reply
    return [element[1] for element in reply[1]]


def rows(reply):
    """Pairs: nested in RESP3, flat in RESP2."""
    values = reply[1]
    if values and values[0][0] == "*":
        return [(a[1], b[1]) for _, (a, b) in values]
    return [(a[1], b[1]) for a, b in zip(values[::2], values[1::2])]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_positive_count_draws_each_once(connection, kind, size):
    held, command, _ = fill(connection, kind, size)
    for count in {0, 1, 2, size // 3, size // 2, size - 1, size, size + 1, 10 * size}:
        drawn = elements(connection.call(command, "k", count))
        assert len(drawn) == len(set(drawn)) == min(count, size)
        assert set(drawn) <= set(held)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_negative_count_draws_with_repetition(connection, kind, size):
    held, command, _ = fill(connection, kind, size)
    for count in (1, 3, 50, size, 2 * size):
        drawn = elements(connection.call(command, "k", -count))
        assert len(drawn) == count and set(drawn) <= set(held)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["hash", "sorted set"])
def test_what_belongs_to_it_comes_with_it(connection, kind, size):
    held, command, option = fill(connection, kind, size)
    for count in (1, -1, size // 2, -size // 2, size, -3 * size, 2 * size):
        drawn = rows(connection.call(command, "k", count, option))
        assert len(drawn) == (-count if count < 0 else min(count, size))
        assert all(held[name] == value for name, value in drawn)


@pytest.mark.parametrize("size", [5, 100, 2000])
@pytest.mark.parametrize("kind", KINDS)
def test_every_one_is_drawn_about_as_often(connection, kind, size):
    """After 40 draws for each, none is missing and none came five times as often
    as it should: chances of less than one in a billion."""
    held, command, _ = fill(connection, kind, size)
    one_by_one = [reply[1] for reply in connection.pipeline([(command, "k")] * (20 * min(size, 200)))]
    assert set(one_by_one) <= set(held)
    if size <= 200:
        assert set(one_by_one) == set(held)
    drawn = collections.Counter()
    for _ in range(4):
        drawn.update(elements(connection.call(command, "k", -10 * size)))
    assert set(drawn) == set(held)
    assert max(drawn.values()) < 200


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sampled_after_most_was_removed(connection, kind):
    """Holes must not make a draw rare, wrong or endless."""
    held, command, _ = fill(connection, kind, 2000)
    remove = {"hash": "HDEL", "sorted set": "ZREM"}.get(kind, "SREM")
    names = list(held)
    connection.call(remove, "k", *names[:1990])
    assert set(elements(connection.call(command, "k", -1000))) == set(names[1990:])
    assert set(elements(connection.call(command, "k", 10))) == set(names[1990:])
    connection.call(remove, "k", *names[1990:1999])
    assert connection.call(command, "k")[1] == names[1999]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["set", "integers"])
def test_spop_takes_what_it_answers(connection, kind, size):
    held = set(fill(connection, kind, size)[0])
    while held:
        for count in (None, 0, 1, 3, max(1, len(held) // 3), max(1, len(held) - 1)):
            reply = connection.call("SPOP", "k", *([] if count is None else [count]))
            if count is None:
                taken = [] if reply[1] is None else [reply[1]]
                assert len(taken) == min(1, len(held))
            else:
                taken = elements(reply)
                assert len(taken) == len(set(taken)) == min(count, len(held))
            assert set(taken) <= held
            held -= set(taken)
            assert connection.call("SCARD", "k") == (":", len(held))
            assert set(elements(connection.call("SMEMBERS", "k"))) == held
    assert connection.call("EXISTS", "k") == (":", 0)


@pytest.mark.parametrize("kind", ["set", "integers"])
def test_spop_chooses(connection, kind):
    """The first that goes differs from set to set."""
    first = set()
    for _ in range(60):
        fill(connection, kind, 20)
        first.add(connection.call("SPOP", "k")[1])
        connection.call("DEL", "k")
    assert len(first) > 5


def test_what_spop_takes_is_told_as_it_happened(connection):
    """WATCH sees a pop, and not one of nothing."""
    connection.call("SADD", "k", "a", "b", "c")
    connection.call("WATCH", "k")
    connection.call("SPOP", "k", "0")
    assert connection.pipeline([("MULTI",), ("PING",), ("EXEC",)])[-1] == ("*", [("+", b"PONG")])
    connection.call("WATCH", "k")
    connection.call("SPOP", "k", "2")
    assert connection.pipeline([("MULTI",), ("PING",), ("EXEC",)])[-1][1] is None
