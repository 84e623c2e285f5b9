"""Fields of hashes that expire, as Redis 8.0 has them: what redis-server 7.0 cannot say."""

import pytest

from harness.nodes import Nodes, eventually, wait_until_same

pytestmark = pytest.mark.snug_only


@pytest.fixture
def nodes(target):
    nodes = Nodes(target)
    yield nodes
    nodes.stop()


def ask(connection, line):
    """What a command is answered, without the kinds of frames."""
    kind, payload = connection.call(*line.split())
    return [value for _, value in payload] if kind == "*" else payload


#: More fields than are compared each with each.
MANY = [f"m{n}" for n in range(40)]


@pytest.mark.parametrize("command, answer", [
    ("HEXPIRE h 100 NX FIELDS 3 a a a", [1, 0, 0]),
    ("HEXPIRE h 100 XX FIELDS 2 a a", [0, 0]),
    ("HEXPIRE h 100 XX FIELDS 3 a t t", [0, 1, 1]),
    ("HPEXPIREAT h 9999999999999 GT FIELDS 2 t t", [1, 0]),
    ("HEXPIRE h 100 LT FIELDS 3 a none a", [1, -2, 0]),
    ("HEXPIRE h 100 FIELDS 4 none a a none", [-2, 1, 1, -2]),
    ("HPERSIST h FIELDS 4 t a t none", [1, -1, -1, -2]),
    ("HPEXPIREAT h 1 FIELDS 3 a a none", [2, -2, -2]),
    ("HPEXPIREAT h 1 NX FIELDS 4 t a t a", [0, 2, 0, -2]),
    ("HGETDEL h FIELDS 4 a b a none", [b"1", b"2", None, None]),
    ("HGETEX h PXAT 1 FIELDS 3 a a b", [b"1", None, b"2"]),
    ("HGETEX h PXAT 9999999999999 FIELDS 2 a a", [b"1", b"1"]),
    ("HGETEX h PERSIST FIELDS 2 t t", [b"3", b"3"]),
    (f"HGETDEL h FIELDS 42 {' '.join(MANY)} m3 m7", [b"x"] * 40 + [None] * 2),
    (f"HEXPIRE h 9 NX FIELDS 42 m3 {' '.join(MANY)} m7", [1] * 4 + [0] + [1] * 36 + [0]),
])
def test_a_field_that_is_named_twice_is_met_as_the_first_naming_left_it(server, command, answer):
    with server.connect() as c:
        c.call("HSET", "h", "a", 1, "b", 2, "t", 3, *[word for name in MANY for word in (name, "x")])
        c.call("HEXPIRE", "h", 1000, "FIELDS", 1, "t")
        assert ask(c, command) == answer


ARITY = b"ERR wrong number of arguments for 'hsetex' command"
CONDITIONS = b"ERR Only one of FXX or FNX arguments can be specified"
TIMES = b"ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"
NEGATIVE = b"ERR invalid expire time, must be >= 0"
NO_COUNT = b"ERR Number of fields must be a positive integer"
MISPLACED = b"ERR Mandatory argument FIELDS is missing or not at the right position"
MISCOUNTED = b"ERR The `numfields` parameter must match the number of arguments"
WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"


@pytest.mark.parametrize("command, error", [
    ("HSETEX h FNX FXX FIELDS 1 a 1", CONDITIONS),
    ("HSETEX h FXX FXX FIELDS 1 a 1", CONDITIONS),
    ("HSETEX h EX 10 KEEPTTL FIELDS 1 a 1", TIMES),
    ("HSETEX h KEEPTTL PX x FIELDS 1 a 1", TIMES),
    ("HSETEX h PERSIST FIELDS 1 a 1", b"ERR unknown argument: PERSIST"),
    ("HSETEX h FIELDS 2 a 1", ARITY),
    ("HSETEX h FIELDS 1 a 1 b 2", ARITY),
    ("HSETEX h EX 10 FIELDS 1", ARITY),
    ("HSETEX h FIELDS 0 a 1", b"ERR invalid number of fields"),
    ("HSETEX h FIELDS x a 1", b"ERR invalid number of fields"),
    ("HSETEX h EX -1 FIELDS 1 a 1", NEGATIVE),
    ("HSETEX h EX x FIELDS 1 a 1", b"ERR value is not an integer or out of range"),
    ("HSETEX h PX 99999999999999 FIELDS 1 a 1", b"ERR invalid expire time in 'hsetex' command"),
    ("HSETEX s FIELDS 1 a 1", WRONG_TYPE),
    ("HGETEX h PXAT -1 FIELDS 1 a", NEGATIVE),
    ("HGETEX h EX 10 PERSIST FIELDS 1 a", MISPLACED),
    ("HGETEX h FIELDS 0 a", NO_COUNT),
    ("HGETEX h FIELDS 2 a", MISCOUNTED),
    ("HGETEX s EX x FIELDS 1 a", WRONG_TYPE),
    ("HGETDEL h a b c", MISPLACED),
    ("HGETDEL h FIELDS x a", NO_COUNT),
    ("HGETDEL h FIELDS 1 a b", MISCOUNTED),
    ("HGETDEL s a b c", WRONG_TYPE),
    ("HTTL h FIELDS 0 a", NO_COUNT),
    ("HPERSIST h FIELDS 0 a", NO_COUNT),
    ("HEXPIRE h 10 FIELDS 0 a", b"ERR Parameter `numFields` should be greater than 0"),
])
def test_errors_are_those_of_redis(server, command, error):
    with server.connect() as c:
        c.call("SET", "s", "string")
        c.call("HSET", "h", "a", 1)
        assert c.call(*command.split()) == ("-", error)


@pytest.mark.parametrize("time", ["EX", "PX", "EXAT", "PXAT"])
def test_a_time_of_0_is_past(server, time):
    with server.connect() as c:
        c.call("HSET", "h", "a", 1, "b", 2, "c", 3)
        assert ask(c, f"HSETEX h {time} 0 FIELDS 2 a 9 new 1") == 1
        assert ask(c, "HKEYS h") == [b"b", b"c"]
        assert ask(c, f"HGETEX h {time} 0 FIELDS 1 b") == [b"2"]
        assert ask(c, f"HSETEX none {time} 0 FIELDS 1 a 1") == 1
        assert ask(c, "HKEYS h") == [b"c"]
        assert ask(c, "EXISTS none") == 0


def told(connection, listener, command):
    """The events that a command brings about, in order."""
    connection.call(*command.split())
    connection.call("PUBLISH", "end", "")
    events = []
    while (push := listener.reply())[1][-2][1] != b"end":
        events.append(push[1][-2][1].rpartition(b":")[2].decode())
    return events


@pytest.mark.parametrize("command, events", [
    ("HSETEX h PXAT 1 FIELDS 1 zz 1", ["hset", "hdel"]),
    ("HSETEX h PXAT 1 FIELDS 2 a 1 zz 1", ["hset", "hdel"]),
    ("HSETEX h PXAT 1 FIELDS 2 a 1 b 1", ["hset", "hdel", "del"]),
    ("HSETEX none PXAT 1 FIELDS 1 zz 1", ["new", "hset", "hdel", "del"]),
    ("HSETEX none FXX PXAT 1 FIELDS 1 zz 1", []),
    ("HSETEX h PXAT 9999999999999 FIELDS 1 zz 1", ["hset", "hexpire"]),
])
def test_events_of_fields_that_are_set_and_go_at_once(nodes, command, events):
    primary, replica = nodes.chain("snug", "snug")
    with primary.connect() as c, primary.connect() as listener:
        c.call("CONFIG", "SET", "notify-keyspace-events", "EAn")
        c.call("HSET", "h", "a", 1, "b", 2)
        listener.call("PSUBSCRIBE", "__keyevent*", "end")
        listener.reply()
        assert told(c, listener, command) == events
    wait_until_same(primary, replica)


def test_fields_of_one_hash_go_as_fast_as_they_come(server):
    """Many at once, and such as come in commands of many fields: what has expired is not left."""
    with server.connect() as c:

        def set_for(milliseconds, key, names):
            c.call("HSETEX", key, "PX", milliseconds, "FIELDS", len(names), *[word for name in names for word in (name, "v")])

        for thousand in range(100):
            set_for(2000, "many", [f"{thousand}:{n}" for n in range(1000)])
        eventually("all to be gone", lambda: c.call("EXISTS", "many") == (":", 0))
        c.call("HSET", "some", "stays", "v")
        for times in range(200):
            set_for(1, "some", [f"{times}:{n}" for n in range(500)])
        eventually("all but one to be gone", lambda: c.call("MEMORY", "USAGE", "some")[1] < 1000)
        assert c.call("HLEN", "some") == (":", 1)
