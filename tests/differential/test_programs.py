"""Lua programs drawn at random, run by both servers, as scripts and as functions; and
payloads of functions that were damaged.

    SNUG_PROGRAMS       programs (default 1,500); `make programs` takes more
    SNUG_RANDOM_SEED    first seed (default 1)
"""

import contextlib
import os
import random
import re
import sys

import pytest

from differential.programs import KEYS, Program
from harness.resp import Closed, Silent

PROGRAMS = int(os.environ.get("SNUG_PROGRAMS", 1500))
SEED = int(os.environ.get("SNUG_RANDOM_SEED", 1))
#: How deep replies are compared. A table that holds itself is one that ends a thousand deep
#: here, and eight thousand deep there, with the same error.
DEEPEST = 900
sys.setrecursionlimit(20_000)
#: What differs by nature: addresses.
ADDRESS = re.compile(rb"(table|function|thread|userdata|builtin): (0x)?[0-9a-fA-F]+")
NUMBER = re.compile(rb"-?\d+(\.\d+|(\.\d+)?e[+-]?\d+)")


@pytest.fixture
def pairs(pairs):
    """The servers, without the libraries that a test here leaves: others test on them too."""
    yield pairs
    pair = pairs.get()
    for side in (pair.reference, pair.tested):
        with side.connect() as connection:
            assert connection.call("FUNCTION", "FLUSH") == ("+", b"OK")


def plain(reply, depth=0):
    """A reply without what differs by nature; members of sets and maps in one order."""
    kind, value = reply
    if depth == DEEPEST:
        return kind, "deep"
    if isinstance(value, bytes):
        # As many digits as it takes here, 17 there.
        return kind, float(value) if NUMBER.fullmatch(value) else ADDRESS.sub(rb"\1", value)
    if kind == "%":
        return kind, sorted(((plain(k, depth + 1), plain(v, depth + 1)) for k, v in value), key=repr)
    if isinstance(value, list):
        items = [plain(item, depth + 1) for item in value]
        return kind, sorted(items, key=repr) if kind == "~" else items
    return kind, value


def same(one, two):
    if one == two:
        return True
    # Of two errors the words of Lua's own libraries may differ, not that there is one.
    return one[0] == two[0] == "-" and code(one) == code(two)


def code(reply):
    return reply[1].split(b" ")[0]


@pytest.mark.parametrize("protocol", [2, 3], ids=["resp2", "resp3"])
def test_programs_are_answered_as_by_redis(pairs, protocol):
    number, died = 0, 0
    while number < PROGRAMS // 2:
        number, survived = run_from(number, pairs.get(), protocol)
        # redis-server 7.0 has holes that a program may find; Snug has to live.
        died += not survived
    print(f"redis-server died {died} times")
    assert died <= PROGRAMS // 100


def run_from(first, pair, protocol):
    """Runs programs until all have run or redis-server has died; which is next, and
    whether it lives."""
    with pair.reference.connect(protocol=protocol) as reference, pair.tested.connect(protocol=protocol) as tested:
        both = (reference, tested)
        assert both[0].call("FLUSHALL") == both[1].call("FLUSHALL")
        for number in range(first, PROGRAMS // 2):
            seed = f"programs-{protocol}-{SEED + number}"
            draws = random.Random(seed)
            program = Program(draws).text()
            told = f"seed {seed}\n{program}"
            if number % 10 == 0:
                assert both[0].call("FLUSHALL") == both[1].call("FLUSHALL")
            command = ["EVAL", program, str(len(KEYS)), *KEYS, "x", "2"]
            if draws.random() < 0.2:
                code = f"#!lua name=drawn\nredis.register_function('drawn', function(KEYS, ARGV)\n{program}\nend)"
                loaded = [plain(c.call("FUNCTION", "LOAD", "REPLACE", code)) for c in both]
                assert same(*loaded), f"{told}\n{loaded}"
                command = ["FCALL", "drawn", str(len(KEYS)), *KEYS, "x", "2"]
            for _ in range(2):
                got = plain(tested.call(*command))
                try:
                    wanted = plain(reference.call(*command))
                except (Closed, Silent):
                    print(f"redis-server died of {told}\nSnug: {got}")
                    pair.reference.stop()
                    return number + 1, False
                assert same(wanted, got), f"{told}\nredis {wanted}\nsnug {got}"
            digests = [c.call("DEBUG", "DIGEST") for c in both]
            assert digests[0] == digests[1], f"{told}\nkeys differ"
    return PROGRAMS, True


@pytest.mark.parametrize("protocol", [2, 3], ids=["resp2", "resp3"])
def test_programs_in_transactions_with_watch_are_answered_as_by_redis(pairs, protocol):
    """A client watches keys, another runs a program that may change them, and the first
    runs one in a transaction: it takes place on both servers, or on neither."""
    number, died, gone = 0, 0, 0
    while number < PROGRAMS // 4:
        number, survived, without = watch_from(number, pairs.get(), protocol)
        died, gone = died + (not survived), gone + without
    print(f"redis-server died {died} times, {gone} transactions did not take place")
    assert died <= PROGRAMS // 100
    assert 0 < gone < PROGRAMS // 4


def watch_from(first, pair, protocol):
    """As `run_from`, and how many transactions did not take place."""
    gone = 0
    sides = (pair.reference, pair.tested)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(side.connect(protocol=protocol)) for side in sides]
        others = [stack.enter_context(side.connect()) for side in sides]
        for number in range(first, PROGRAMS // 4):
            seed = f"watch-{protocol}-{SEED + number}"
            draws = random.Random(seed)
            if number % 10 == 0:
                [other.call("FLUSHALL") for other in others]
            run = [["EVAL", Program(draws).text(), str(len(KEYS)), *KEYS, "x", "2"] for _ in range(3)]
            steps = [(clients, ["WATCH", *draws.sample(KEYS, draws.randint(1, 3))])]
            if draws.random() < 0.3:
                steps.append((clients, run[0]))
            if draws.random() < 0.7:
                steps.append((others, run[1]))
            if draws.random() < 0.1:
                steps.append((clients, ["UNWATCH"]))
            steps += [(clients, ["MULTI"]), (clients, ["GET", KEYS[0]]), (clients, run[2])]
            if draws.random() < 0.2:
                steps.append((clients, run[0]))
            if draws.random() < 0.2:
                # While it is queued.
                steps.append((others, run[1]))
            steps.append((clients, ["EXEC"]))
            for connections, command in steps:
                told = f"seed {seed}\n{steps}\n{command}"
                got = plain(connections[1].call(*command))
                try:
                    wanted = plain(connections[0].call(*command))
                except (Closed, Silent):
                    print(f"redis-server died of {told}\nSnug: {got}")
                    pair.reference.stop()
                    return number + 1, False, gone
                assert same_in_all(wanted, got), f"{told}\nredis {wanted}\nsnug {got}"
            gone += got[1] is None
            digests = [other.call("DEBUG", "DIGEST") for other in others]
            assert digests[0] == digests[1], f"{told}\nkeys differ"
    return PROGRAMS, True, gone


def same_in_all(one, two):
    """As `same`, for each reply of a transaction."""
    if one[0] == two[0] == "*" and one[1] and two[1]:
        return len(one[1]) == len(two[1]) and all(map(same, one[1], two[1]))
    return same(one, two)


def test_damaged_payloads_of_functions_are_refused(pairs):
    pair = pairs.get()
    draws = random.Random(SEED)
    code = "#!lua name=lib%d\nredis.register_function('f%d', function() return %d end)"
    with pair.reference.connect() as reference, pair.tested.connect() as tested:
        for connection in (reference, tested):
            connection.call("FUNCTION", "FLUSH")
            for n in range(3):
                assert connection.call("FUNCTION", "LOAD", code % (n, n, n))[0] == "$"
        payload = tested.call("FUNCTION", "DUMP")[1]
        for connection in (reference, tested):
            assert connection.call("FUNCTION", "RESTORE", payload, "FLUSH") == ("+", b"OK")
        before = tested.call("FUNCTION", "LIST", "WITHCODE")
        for _ in range(400):
            damaged = bytearray(payload)
            for _ in range(draws.randint(1, 4)):
                match draws.randint(0, 3):
                    case 0:
                        damaged[draws.randrange(len(damaged))] ^= 1 << draws.randrange(8)
                    case 1:
                        del damaged[draws.randrange(len(damaged)) :]
                    case 2:
                        at = draws.randrange(len(damaged) + 1)
                        damaged[at:at] = draws.randbytes(draws.randint(1, 20))
                    case 3:
                        at = draws.randrange(len(damaged) + 1)
                        damaged[at : at + 9] = b"\x81" + b"\xff" * 8
                if not damaged:
                    damaged = bytearray(b"\0")
            if bytes(damaged) == payload:
                continue
            policy = draws.choice(["APPEND", "REPLACE", "FLUSH"])
            wanted, got = (c.call("FUNCTION", "RESTORE", bytes(damaged), policy) for c in (reference, tested))
            assert got[0] == wanted[0] == "-" and got[1] == wanted[1]
        assert tested.call("FUNCTION", "LIST", "WITHCODE") == before


@pytest.mark.snug_only
def test_payloads_of_functions_with_good_checksums_and_bad_contents_are_refused(server):
    """What the checksum lets through is judged by the reader."""
    draws = random.Random(SEED)
    with server.connect() as connection:
        connection.call("FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('f', function() return 1 end)")
        payload = connection.call("FUNCTION", "DUMP")[1]
        before = connection.call("FUNCTION", "LIST", "WITHCODE")
        for _ in range(600):
            body = bytearray(payload[:-8])
            for _ in range(draws.randint(1, 3)):
                match draws.randint(0, 2):
                    case 0:
                        body[draws.randrange(len(body) - 2)] = draws.randrange(256)
                    case 1:
                        del body[draws.randrange(len(body) - 2)]
                    case 2:
                        at = draws.randrange(len(body) - 1)
                        body[at:at] = draws.choice([b"\x80\xff\xff\xff\xff", b"\x81" + b"\xff" * 8, b"\xc3\x10\x80\x40\x00\x00", b"\xf5", b"\xf6", b"\xff"])
            body = bytes(body)
            kind, text = connection.call("FUNCTION", "RESTORE", body + crc64(body), "REPLACE")
            assert kind == "-" or connection.call("FUNCTION", "LIST")[0] == "*", text
            connection.call("FUNCTION", "FLUSH")
            assert connection.call("FUNCTION", "RESTORE", payload) == ("+", b"OK")
        assert connection.call("FUNCTION", "LIST", "WITHCODE") == before


def crc64(data):
    """The CRC-64 of Jones, as dumps end with it."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x95AC9329AC4BC9B5 if crc & 1 else 0)
    return crc.to_bytes(8, "little")
