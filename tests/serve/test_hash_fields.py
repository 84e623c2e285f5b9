"""Fields of hashes that expire, as Redis 8.0 has them: what redis-server 7.0 cannot say."""

import pytest

pytestmark = pytest.mark.snug_only


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
