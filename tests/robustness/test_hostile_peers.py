"""Peers that are broken or mean: each costs a bounded amount, disturbs nobody,
and leaves nothing behind. Bounds are in bytes and counts; nothing is timed.

    SNUG_ROBUSTNESS_SCALE   multiplies the sizes (1 is what is promised)
"""

import os
import random
import socket
import ssl
import struct
import time

import pytest

from harness.bystander import MB, Bystanders
from harness.resp import Closed, Connection, Silent, encode

SCALE = float(os.environ.get("SNUG_ROBUSTNESS_SCALE", "1"))
PATIENCE_SECONDS = 60


INVALID_COUNT = b"ERR Protocol error: invalid multibulk length"
INVALID_LENGTH = b"ERR Protocol error: invalid bulk length"


def scaled(number):
    return max(1, int(number * SCALE))


def eventually(condition):
    """Waits until it holds; whether it came to hold."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def ask(server, *args):
    with server.connect() as connection:
        return connection.call(*args)


def configure(server, *pairs):
    assert ask(server, "CONFIG", "SET", *pairs) == ("+", b"OK")


def reset_connection(connection):
    """Dies without a goodbye: the peer gets a reset."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def pour(connection, data, times=1):
    """Sends as much as the server takes; whether all of it was taken."""
    connection.socket.settimeout(2)
    try:
        for _ in range(times):
            connection.socket.sendall(data)
    except (TimeoutError, ConnectionError, ssl.SSLError):
        return False
    return True


def end_of(connection, wait=PATIENCE_SECONDS):
    """The frames that come until the server closes; must come to that."""
    frames = []
    while True:
        try:
            frames.append(connection.frame(wait))
        except Closed:
            return frames
        except Silent:
            raise AssertionError(f"the server does not close; it said {frames[-3:]}") from None


def test_connecting_ten_thousand_times(server):
    files = server.open_files()
    with Bystanders(server, 32 * MB):
        for number in range(scaled(10_000)):
            connection = server.connect()
            if number % 3 == 0:
                assert connection.call("PING") == ("+", b"PONG")
            elif number % 3 == 1:
                connection.send_raw(b"*2\r\n$4\r\nPI")
            if number % 2:
                reset_connection(connection)
            else:
                connection.close()
        assert eventually(lambda: server.open_files() <= files + 8), server.open_files()


def test_thousands_of_connections_at_once(server):
    number = scaled(3000)
    files = server.open_files()
    with Bystanders(server, 60 * MB):
        crowd = [server.connect() for _ in range(number)]
        for connection in crowd:
            connection.send("INCR", "n")
        assert sorted(c.reply()[1] for c in crowd) == list(range(1, number + 1))
        assert int(server.info()["connected_clients"]) >= number
        for connection in crowd:
            connection.close()
        assert eventually(lambda: server.open_files() <= files + 8)


def test_one_byte_at_a_time(server):
    """A hundred clients, each byte of a command in a segment of its own."""
    command = encode(("SET", "slow", "value")) + encode(("GET", "slow"))
    with Bystanders(server, 16 * MB):
        slow = [server.connect() for _ in range(scaled(100))]
        for at in range(len(command)):
            for connection in slow:
                connection.send_raw(command[at : at + 1])
        for connection in slow:
            assert connection.reply() == ("+", b"OK")
            assert connection.reply() == ("$", b"value")
            connection.close()


def test_one_byte_at_a_time_of_a_large_value(server):
    value = b"v" * scaled(100_000)
    command = encode(("SET", "slow", value))
    with Bystanders(server, 16 * MB), server.connect() as connection:
        for at in range(len(command)):
            connection.send_raw(command[at : at + 1])
        assert connection.reply() == ("+", b"OK")
        assert connection.call("GET", "slow") == ("$", value)


@pytest.mark.snug_only
def test_a_client_that_never_reads_at_the_default_limits(server):
    """redis-server sets ordinary clients no limit and grows; Snug stops
    reading from a client that does not take its replies."""
    ask(server, "SET", "big", b"x" * MB)
    with Bystanders(server, 256 * MB), server.connect(receive_buffer=4096) as deaf:
        pour(deaf, encode(("GET", "big")) * 50, times=40)
        time.sleep(1)


def test_a_client_that_never_reads_is_cut_at_its_limit(server):
    """Or, as it costs no more, is not read from until it reads."""
    configure(server, "client-output-buffer-limit", "normal 16mb 0 0")
    ask(server, "SET", "big", b"x" * MB)
    with Bystanders(server, 100 * MB), server.connect(receive_buffer=4096) as deaf:
        pour(deaf, encode(("GET", "big")) * 50, times=4)
        number = deaf.socket.getsockname()[1]
        assert eventually(lambda: b":%d " % number not in ask(server, "CLIENT", "LIST")[1])


def test_a_subscriber_that_never_reads_is_cut(server):
    """By the limit that redis-server has for pub/sub: 32 MB at once."""
    with Bystanders(server, 150 * MB), server.connect(receive_buffer=4096) as deaf:
        deaf.send("SUBSCRIBE", "ch")
        assert deaf.frame()[1][0] == ("$", b"subscribe")
        with server.connect() as loud:
            message = b"m" * MB
            for _ in range(100):
                loud.call("PUBLISH", "ch", message)
            assert eventually(lambda: loud.call("PUBLISH", "ch", "x") == (":", 0))
        assert eventually(lambda: ask(server, "PUBSUB", "NUMSUB", "ch")[1][1] == (":", 0))


def test_half_a_gigabyte_of_zeros(server):
    """Neither a newline nor RESP: refused after 64 KB, wherever it stops."""
    block = b"\x00" * MB
    with Bystanders(server, 16 * MB), server.connect() as connection:
        taken = pour(connection, block, times=scaled(512))
        assert not taken, "all of it was swallowed"


def test_half_a_gigabyte_of_zeros_as_a_value(server):
    """Legal, if only just: it may cost what it is, and half as much again."""
    count = scaled(512)
    size = min(count * 1_048_576, 512 * 1_048_576)
    block = b"\x00" * 1_048_576
    with Bystanders(server, size * 3 // 2 + 32 * MB), server.connect() as connection:
        connection.send_raw(b"*3\r\n$3\r\nSET\r\n$5\r\nzeros\r\n$%d\r\n" % size)
        for _ in range(size // len(block)):
            connection.send_raw(block)
        connection.send_raw(b"\r\n")
        assert connection.reply(PATIENCE_SECONDS) == ("+", b"OK")
        assert connection.call("STRLEN", "zeros") == (":", size)
        assert connection.call("GETRANGE", "zeros", size - 3, size + 3) == ("$", b"\x00" * 3)
        assert connection.call("DEL", "zeros") == (":", 1)


@pytest.mark.parametrize(
    "claim, error",
    [
        # redis-server 7.0 believes up to 2,147,483,647 arguments; 6.2 and Snug 1,048,576.
        pytest.param(b"*1000000000\r\n", INVALID_COUNT, id="a billion arguments", marks=pytest.mark.snug_only),
        pytest.param(b"*1048577\r\n", INVALID_COUNT, id="one argument too many", marks=pytest.mark.snug_only),
        pytest.param(b"*2147483648\r\n", INVALID_COUNT, id="more arguments than an int holds"),
        pytest.param(b"*-99999999999999999999999\r\n", INVALID_COUNT, id="minus infinity"),
        pytest.param(b"*2\r\n$4\r\nECHO\r\n$536870913\r\n", INVALID_LENGTH, id="one byte too long"),
        pytest.param(b"*2\r\n$4\r\nECHO\r\n$99999999999999\r\n", INVALID_LENGTH, id="a value of terabytes"),
    ],
)
def test_claims_past_a_limit_are_refused(server, claim, error):
    with Bystanders(server, 16 * MB):
        for _ in range(scaled(50)):
            with server.connect() as connection:
                connection.send_raw(claim)
                assert end_of(connection) == [("-", error)]


@pytest.mark.parametrize(
    "claim",
    [b"*1048576\r\n", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n", b"*1048576\r\n$4\r\nMGET\r\n"],
    ids=["a million arguments", "512 MB", "a million keys"],
)
def test_claims_within_the_limits_cost_nothing_until_sent(server, claim):
    with Bystanders(server, 32 * MB):
        liars = [server.connect() for _ in range(scaled(200))]
        for connection in liars:
            connection.send_raw(claim)
        assert eventually(lambda: int(server.info()["connected_clients"]) >= len(liars))
        time.sleep(0.2)
        for connection in liars:
            reset_connection(connection)
    assert ask(server, "EXISTS", "k") == (":", 0)


def test_a_claim_begun_costs_what_was_sent(server):
    """64 clients send 1 MB each of a claimed 512 MB."""
    number = scaled(64)
    with Bystanders(server, (2 * number + 32) * MB):
        liars = [server.connect() for _ in range(number)]
        for connection in liars:
            connection.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n" + b"x" * MB)
        time.sleep(0.5)
        for connection in liars:
            reset_connection(connection)
    assert ask(server, "EXISTS", "k") == (":", 0)


def test_dying_in_the_middle_of_a_command(server):
    command = encode(("SET", "half", "v" * 1000))
    rng = random.Random(1)
    files = server.open_files()
    with Bystanders(server, 32 * MB):
        for number in range(scaled(2000)):
            connection = server.connect()
            connection.send_raw(command[: rng.randrange(1, len(command))])
            reset_connection(connection) if number % 2 else connection.close()
        assert eventually(lambda: server.open_files() <= files + 8)
    assert ask(server, "EXISTS", "half") == (":", 0)


def test_dying_in_the_middle_of_a_transaction(server):
    with Bystanders(server, 32 * MB):
        for number in range(scaled(500)):
            connection = server.connect()
            connection.call("WATCH", "k")
            connection.call("MULTI")
            connection.call("SET", "k", "v")
            if number % 2:
                connection.send_raw(b"*1\r\n$4\r\nEXE")
            reset_connection(connection)
        assert eventually(lambda: int(server.info()["connected_clients"]) < 20)
    assert ask(server, "EXISTS", "k") == (":", 0)


def test_dying_while_a_large_reply_is_on_its_way(server):
    ask(server, "SET", "big", b"x" * (20 * MB))
    with Bystanders(server, 200 * MB):
        for _ in range(scaled(50)):
            connection = server.connect()
            connection.send("GET", "big")
            connection.socket.recv(1000)
            reset_connection(connection)
        assert eventually(lambda: int(server.info()["connected_clients"]) < 20)


def test_a_bulk_above_the_configured_limit(server):
    configure(server, "proto-max-bulk-len", "2mb")
    with Bystanders(server, 16 * MB):
        with server.connect() as connection:
            pour(connection, encode(("SET", "k", b"x" * 3_000_000)))
            assert end_of(connection) in ([("-", b"ERR Protocol error: invalid bulk length")], [])
        with server.connect() as connection:
            assert connection.call("SET", "k", b"x" * 2_000_000) == ("+", b"OK")
    configure(server, "proto-max-bulk-len", "512mb")


def test_a_query_buffer_above_the_configured_limit(server):
    configure(server, "client-query-buffer-limit", "1mb")
    with Bystanders(server, 32 * MB), server.connect() as connection:
        pour(connection, encode(("SET", "k", b"x" * 3_000_000)))
        assert end_of(connection) == []
    configure(server, "client-query-buffer-limit", "1gb")
    assert ask(server, "EXISTS", "k") == (":", 0)


@pytest.mark.parametrize("server", [["--maxclients", "50"]], indirect=True)
def test_more_clients_than_allowed(server):
    with Bystanders(server, 16 * MB):
        crowd = []
        refused = None
        while refused is None:
            connection = server.connect()
            crowd.append(connection)
            assert len(crowd) <= 50, "more clients than maxclients"
            try:
                reply = connection.call("PING")
                refused = reply if reply[0] == "-" else None
            except Closed:
                raise AssertionError("closed without a word") from None
        assert refused == ("-", b"ERR max number of clients reached")
        assert crowd[-1].at_end()
        for _ in range(scaled(200)):
            extra = server.connect()
            assert end_of(extra) == [("-", b"ERR max number of clients reached")]
        for connection in crowd:
            connection.close()

        def welcome():
            try:
                return ask(server, "PING") == ("+", b"PONG")
            except Closed:
                return False

        assert eventually(welcome)
        assert int(server.info()["rejected_connections"]) >= scaled(200)


def test_idle_clients_are_closed_but_subscribers_are_not(server):
    configure(server, "timeout", "1")
    idle, subscriber = server.connect(), server.connect()
    idle.call("PING")
    subscriber.send("SUBSCRIBE", "ch")
    subscriber.frame()
    with Bystanders(server, 16 * MB):
        assert idle.at_end(PATIENCE_SECONDS)
        assert ask(server, "PUBLISH", "ch", "still there") == (":", 1)
        assert subscriber.frame()[1][2] == ("$", b"still there")
    configure(server, "timeout", "0")


def test_a_pipeline_of_a_million_read_only_afterwards(server):
    number = scaled(1_000_000)
    configure(server, "client-output-buffer-limit", "normal 0 0 0")
    with Bystanders(server, 64 * MB), server.connect() as connection:
        connection.socket.setblocking(False)
        data, sent, received = memoryview(b"PING\r\n" * number), 0, 0
        deadline = time.monotonic() + 4 * PATIENCE_SECONDS
        while received < 7 * number:
            assert time.monotonic() < deadline
            progress = False
            try:
                sent += connection.socket.send(data[sent : sent + 1_000_000])
                progress = True
            except BlockingIOError:
                pass
            if sent == len(data) or not progress:
                try:
                    received += len(connection.socket.recv(1 << 20))
                except BlockingIOError:
                    time.sleep(0.001)


def test_closing_one_direction_still_brings_the_replies(server):
    with Bystanders(server, 16 * MB):
        for _ in range(scaled(200)):
            with server.connect() as connection:
                connection.send_raw(b"PING\r\n" * 10)
                connection.socket.shutdown(socket.SHUT_WR)
                assert end_of(connection) == [("+", b"PONG")] * 10


def test_garbage(server):
    rng = random.Random(2)
    pieces = [b"*", b"$", b"\r\n", b"3", b"SET", b"-1", b"\x00", b"\xff", b"%", b"~", b">", b"a" * 100, b'"', b"'", b"{", b":1\r\n", b"*1\r\n$4\r\nPING\r\n"]
    with Bystanders(server, 64 * MB):
        for number in range(scaled(1500)):
            connection = server.connect()
            if number % 2:
                data = rng.randbytes(rng.randint(1, 3000))
            else:
                data = b"".join(rng.choices(pieces, k=rng.randint(1, 60)))
            pour(connection, data)
            reset_connection(connection) if number % 3 else connection.close()


def test_very_many_subscriptions_are_forgotten(server):
    with Bystanders(server, 64 * MB):
        for _ in range(3):
            with server.connect() as connection:
                for start in range(0, scaled(30_000), 3000):
                    connection.send("SUBSCRIBE", *[f"channel:{n}" for n in range(start, start + 3000)])
                    for _ in range(3000):
                        connection.frame()
            assert eventually(lambda: ask(server, "PUBSUB", "CHANNELS") == ("*", []))


def test_very_many_watched_keys_are_forgotten(server):
    with Bystanders(server, 32 * MB):
        for _ in range(3):
            with server.connect() as connection:
                for start in range(0, scaled(6000), 1000):
                    connection.call("WATCH", *[f"key:{n}" for n in range(start, start + 1000)])
            assert eventually(lambda: int(server.info()["connected_clients"]) < 10)


def test_watches_of_one_slot_do_not_slow_down_its_writes(server):
    """Each was looked for among all of its slot, and each new one among all of its client."""
    with Bystanders(server, 128 * MB), server.connect() as connection, server.connect() as other:
        for _ in range(2):
            for start in range(0, scaled(100_000), 10_000):
                connection.call("WATCH", *[b"{t}%d" % n for n in range(start, start + 10_000)])
        other.send_raw(encode(["SET", "{t}x", "v"]) * 1000)
        assert all(other.reply() == ("+", b"OK") for _ in range(1000))
        assert connection.call("UNWATCH") == ("+", b"OK")


def test_very_many_prefixes_are_compared(server):
    """Each was compared with each."""
    with Bystanders(server, 256 * MB), server.connect() as connection:
        prefixes = [word for n in range(scaled(100_000)) for word in (b"PREFIX", b"%07d" % n)]
        tracking = ["CLIENT", "TRACKING", "ON", "BCAST"]
        assert connection.call(*tracking, *prefixes) == ("+", b"OK")
        assert b"overlaps with an existing prefix '0000000'" in connection.call(*tracking, *prefixes)[1]
        others = [word if word == b"PREFIX" else b"x" + word for word in prefixes]
        refused = connection.call(*tracking, *others, "PREFIX", "x")[1]
        assert b"overlaps with another provided prefix" in refused
        assert connection.call("CLIENT", "TRACKING", "OFF") == ("+", b"OK")


def test_keys_with_the_worst_patterns(server):
    """A pattern that would take a naive matcher longer than the sun has."""
    ask(server, "SET", b"a" * 100, "v")
    with Bystanders(server, 16 * MB):
        assert ask(server, "KEYS", "a*" * 30 + "b") == ("*", [])
        assert ask(server, "KEYS", "*" * 1000 + "b") == ("*", [])
        assert ask(server, "CONFIG", "GET", "*a" * 100)[1] == []


def test_commands_with_very_many_arguments(server):
    number = scaled(100_000)
    with Bystanders(server, 200 * MB), server.connect() as connection:
        keys = [b"k%d" % n for n in range(number)]
        assert connection.call("MSET", *[p for k in keys for p in (k, b"v")]) == ("+", b"OK")
        assert connection.call("EXISTS", *keys) == (":", number)
        assert len(connection.call("MGET", *keys)[1]) == number
        assert connection.call("DEL", *keys) == (":", number)


def test_memory_is_given_back_after_all(server):
    """What clients held is not held on to: used_memory returns to where it was."""
    before = int(server.info()["used_memory"])
    crowd = [server.connect() for _ in range(scaled(300))]
    for connection in crowd:
        connection.send_raw(b"*2\r\n$4\r\nECHO\r\n$200000\r\n" + b"x" * 100_000)
    time.sleep(0.3)
    for connection in crowd:
        connection.close()
    assert eventually(lambda: int(server.info()["used_memory"]) < before + 4 * MB), server.info()["used_memory"]
