"""SCAN's promise: a key there from beginning to end is returned at least once,
a key never there is never returned, and the iteration ends. HSCAN, SSCAN and
ZSCAN promise the same of the elements of one key."""

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


#: How each collection is scanned: what puts an element in and takes it out, and
#: how many parts of a reply stand for one element.
COLLECTIONS = {
    "hash": ("HSCAN", lambda e: ("HSET", "k", e, "v"), lambda e: ("HDEL", "k", e), 2),
    "set": ("SSCAN", lambda e: ("SADD", "k", e), lambda e: ("SREM", "k", e), 1),
    "sorted set": ("ZSCAN", lambda e: ("ZADD", "k", len(e), e), lambda e: ("ZREM", "k", e), 2),
}


def scan_collection(connection, kind, *options, between=lambda: None):
    """Every element of a whole iteration of `k`."""
    command, _add, _remove, parts = COLLECTIONS[kind]
    cursor, found, calls = b"0", [], 0
    while True:
        reply = connection.call(command, "k", cursor, *options)
        assert reply[0] == "*" and len(reply[1]) == 2, reply
        (form, cursor), (_, elements) = reply[1]
        assert form == "$" and cursor.isdigit(), "a cursor is a number in a bulk string"
        assert len(elements) % parts == 0
        found += [e[1] for e in elements[::parts]]
        calls += 1
        assert calls < 200_000, "the iteration does not end"
        if cursor == b"0":
            return found
        between()


def fill(connection, kind, elements):
    command = {"hash": "HSET", "set": "SADD", "sorted set": "ZADD"}[kind]
    words = {"hash": lambda e: (e, b"v"), "set": lambda e: (e,), "sorted set": lambda e: (b"1", e)}[kind]
    elements = list(elements)
    for start in range(0, len(elements), 1000):
        connection.call(command, "k", *[w for e in elements[start : start + 1000] for w in words(e)])


@pytest.mark.parametrize("size", [1, 10, 100, 513, 5000])
@pytest.mark.parametrize("count", [1, 10, 100, 100_000])
@pytest.mark.parametrize("kind", COLLECTIONS)
def test_a_still_collection_is_returned_whole(connection, kind, count, size):
    elements = {b"e%d" % n for n in range(size)}
    fill(connection, kind, elements)
    found = scan_collection(connection, kind, "COUNT", count)
    assert set(found) == elements
    assert len(found) == size, "a collection that does not change returns each once"


def test_a_still_set_of_integers_is_returned_whole(connection):
    for size in (1, 100, 512, 513, 5000):
        connection.call("DEL", "k")
        elements = {b"%d" % (n * 7919 - 10_000_000) for n in range(size)}
        fill(connection, "set", elements)
        assert set(scan_collection(connection, "set", "COUNT", "7")) == elements
    assert set(scan_collection(connection, "set", "MATCH", "-9*")) == {e for e in elements if e.startswith(b"-9")}


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_match_chooses_elements(connection, kind):
    elements = {b"e:%d" % n for n in range(3000)}
    fill(connection, kind, elements)
    assert set(scan_collection(connection, kind, "MATCH", "e:1?")) == {b"e:1%d" % n for n in range(10)}
    assert scan_collection(connection, kind, "MATCH", "none*", "COUNT", "50") == []
    assert set(scan_collection(connection, kind, "MATCH", "*", "COUNT", "3000")) == elements


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("start", [20, 2000])
@pytest.mark.parametrize("kind", COLLECTIONS)
def test_elements_that_stay_are_returned_while_others_come_and_go(connection, kind, start, seed):
    """From small forms into large ones as well."""
    _, add, remove, _ = COLLECTIONS[kind]
    rng = random.Random(seed)
    stay = {b"stay:%d" % n for n in range(start)}
    fill(connection, kind, stay)
    ever, there = set(stay), []

    def churn():
        commands = []
        for _ in range(rng.randint(0, 60)):
            if there and rng.random() < 0.45:
                commands.append(remove(there.pop(rng.randrange(len(there)))))
            else:
                element = b"come:%d" % rng.randrange(100_000)
                if element not in ever:
                    ever.add(element)
                    there.append(element)
                    commands.append(add(element))
        connection.pipeline(commands)

    for _ in range(2):
        found = scan_collection(connection, kind, "COUNT", rng.choice([1, 7, 20]), between=churn)
        assert stay <= set(found)
        assert set(found) <= ever


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_a_collection_that_shrinks_and_grows_a_lot(connection, kind):
    removal = {"hash": "HDEL", "set": "SREM", "sorted set": "ZREM"}[kind]
    stay = {b"stay:%d" % n for n in range(50)}
    bulk = [b"bulk:%d" % n for n in range(20_000)]
    fill(connection, kind, stay)
    fill(connection, kind, bulk)
    round_number = [0]

    def upheaval():
        round_number[0] += 1
        if round_number[0] == 5:
            for at in range(0, len(bulk), 1000):
                connection.call(removal, "k", *bulk[at : at + 1000])
        if round_number[0] == 8:
            fill(connection, kind, [b"again:%d" % n for n in range(20_000)])

    found = scan_collection(connection, kind, "COUNT", "100", between=upheaval)
    assert stay <= set(found)


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_a_collection_that_goes_ends_its_iteration(connection, kind):
    fill(connection, kind, [b"e%d" % n for n in range(3000)])
    rounds = [0]

    def delete():
        rounds[0] += 1
        if rounds[0] == 3:
            connection.call("DEL", "k")

    scan_collection(connection, kind, between=delete)
    assert rounds[0] <= 10_000


@pytest.mark.parametrize("kind", COLLECTIONS)
@pytest.mark.parametrize("cursor", ["1", "12345", "4294967296", "18446744073709551615", "9223372036854775807"])
def test_any_cursor_of_a_collection_is_harmless(connection, kind, cursor):
    elements = {b"e%d" % n for n in range(1000)}
    fill(connection, kind, elements)
    command, _, _, parts = COLLECTIONS[kind]
    reply = connection.call(command, "k", cursor)
    assert reply[0] == "*", reply
    assert {e[1] for e in reply[1][1][1][::parts]} <= elements
