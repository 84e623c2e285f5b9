"""SCAN's promise: a key there from beginning to end is returned at least once,
a key never there is never returned, and the iteration ends."""

import random

import pytest


def scan_all(connection, *options, between=lambda: None):
    """Every element of a whole iteration, in the order it came."""
    cursor, found, calls = b"0", [], 0
    while True:
        reply = connection.call("SCAN", cursor, *options)
        assert reply[0] == "*" and len(reply[1]) == 2, reply
        (kind, cursor), (_, keys) = reply[1]
        assert kind == "$" and cursor.isdigit(), "a cursor is a number in a bulk string"
        found += [k[1] for k in keys]
        calls += 1
        assert calls < 200_000, "the iteration does not end"
        if cursor == b"0":
            return found
        between()


@pytest.fixture
def connection(pairs):
    with pairs.get().tested.connect() as connection:
        connection.call("FLUSHALL")
        yield connection
        connection.call("FLUSHALL")


@pytest.mark.parametrize("count", [1, 2, 10, 100, 5000])
def test_a_still_database_is_returned_whole(connection, count):
    keys = {b"key:%d" % n for n in range(1000)}
    connection.call("MSET", *[part for k in keys for part in (k, b"v")])
    found = scan_all(connection, "COUNT", count)
    assert set(found) == keys


def test_nothing_is_returned_of_nothing(connection):
    assert scan_all(connection) == []


def test_match_and_type_choose(connection):
    for number in range(300):
        connection.call("SET", f"str:{number}", "v")
    for number in range(50):
        connection.call("XADD", f"str:x{number}", "1-1", "f", "v")
    assert set(scan_all(connection, "MATCH", "str:1?")) == {b"str:1%d" % n for n in range(10)}
    streams = {b"str:x%d" % n for n in range(50)}
    assert set(scan_all(connection, "TYPE", "stream")) == streams
    assert set(scan_all(connection, "TYPE", "stream", "MATCH", "*x1*", "COUNT", "3")) == {k for k in streams if b"x1" in k}
    assert scan_all(connection, "TYPE", "hash") == []


@pytest.mark.parametrize("seed", range(4))
def test_keys_that_stay_are_returned_while_others_come_and_go(connection, seed):
    rng = random.Random(seed)
    stay = {b"stay:%d" % n for n in range(500)}
    connection.call("MSET", *[part for k in stay for part in (k, b"v")])
    ever = set(stay)
    there = []

    def churn():
        for _ in range(rng.randint(0, 60)):
            if there and rng.random() < 0.45:
                connection.call("DEL", there.pop(rng.randrange(len(there))))
            else:
                key = b"come:%d" % rng.randrange(100_000)
                ever.add(key)
                there.append(key)
                connection.call("SET", key, "v")

    found = scan_all(connection, "COUNT", rng.choice([1, 7, 20]), between=churn)
    assert stay <= set(found)
    assert set(found) <= ever


def test_a_database_that_shrinks_and_grows_a_lot(connection):
    stay = {b"stay:%d" % n for n in range(50)}
    connection.call("MSET", *[part for k in stay for part in (k, b"v")])
    connection.call("DEBUG", "POPULATE", "50000", "bulk")
    round_number = [0]

    def upheaval():
        round_number[0] += 1
        if round_number[0] == 5:
            for start in range(0, 50000, 1000):
                connection.call("DEL", *[f"bulk:{n}" for n in range(start, start + 1000)])
        if round_number[0] == 8:
            connection.call("DEBUG", "POPULATE", "20000", "again")

    found = scan_all(connection, "COUNT", "100", between=upheaval)
    assert stay <= set(found)


def test_expired_keys_are_not_returned(connection):
    connection.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    try:
        for number in range(100):
            connection.call("SET", f"gone:{number}", "v", "PX", "1")
            connection.call("SET", f"here:{number}", "v")
        connection.call("DEBUG", "SLEEP", "0.01")
        assert set(scan_all(connection)) == {b"here:%d" % n for n in range(100)}
    finally:
        connection.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")


def test_each_database_is_scanned_alone(connection):
    connection.call("SET", "zero", "v")
    connection.call("SELECT", "5")
    connection.call("SET", "five", "v")
    assert scan_all(connection) == [b"five"]


@pytest.mark.parametrize("cursor", ["1", "12345", "4294967296", "18446744073709551615", "9223372036854775807"])
def test_any_cursor_is_harmless(connection, cursor):
    connection.call("MSET", *[part for n in range(200) for part in (f"k{n}", "v")])
    reply = connection.call("SCAN", cursor)
    assert reply[0] == "*", reply
    assert set(k[1] for k in reply[1][1][1]) <= {b"k%d" % n for n in range(200)}
