"""Clients that wait for a stream: what ends their waiting, in which order, and
that nothing is lost between workers. What redis-server 7.0 does the same way is
in `differential/cases/blocking.case`."""

import threading
import time

import pytest

from harness.resp import Closed

GONE = ("-", b"NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option")
WRONG_TYPE = ("-", b"WRONGTYPE Operation against a key holding the wrong kind of value")
WAIT_SECONDS = 30


@pytest.fixture(params=[1, 2], ids=["1 worker", "2 workers"])
def running(target, request):
    server = target.start("--enable-debug-command", "local", workers=request.param)
    yield server
    server.stop()


def until(wanted, ask):
    deadline = time.monotonic() + WAIT_SECONDS
    while (got := ask()) != wanted:
        assert time.monotonic() < deadline, f"still {got}, not {wanted}"
        time.sleep(0.002)


def blocked(connection):
    info = connection.call("INFO", "clients")[1].decode()
    return int(info.split("blocked_clients:")[1].split()[0])


def waits(admin, count):
    until(count, lambda: blocked(admin))


def entries(reply):
    """The IDs of the entries of one stream's reply."""
    assert reply[0] == "*" and reply[1] is not None, reply
    return [entry[1][0][1] for entry in reply[1][0][1][1][1]]


@pytest.fixture
def reader(running):
    """A consumer of group `g` that waits for stream `s`, and an admin."""
    admin, reader = running.connect(), running.connect()
    assert admin.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM") == ("+", b"OK")
    reader.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">")
    waits(admin, 1)
    return admin, reader


@pytest.mark.snug_only
@pytest.mark.parametrize(
    ("commands", "told"),
    [
        (["DEL s"], GONE),
        (["UNLINK s"], GONE),
        (["SET s v"], WRONG_TYPE),
        (["XGROUP DESTROY s g"], GONE),
        (["RENAME s t"], GONE),
        (["SET t v", "RENAME t s"], WRONG_TYPE),
        (["SET t v", "COPY t s REPLACE"], WRONG_TYPE),
        (["MOVE s 1"], GONE),
        (["FLUSHDB"], GONE),
        (["FLUSHALL ASYNC"], GONE),
        (["SWAPDB 0 1"], GONE),
        (["SELECT 1", "SET s v", "SWAPDB 1 0"], WRONG_TYPE),
        (["PEXPIRE s 1"], GONE),
        (["EXPIRE s -1"], GONE),
        (["MULTI", "DEL s", "SET s v", "EXEC"], WRONG_TYPE),
        (["MULTI", "XADD s 1-1 a 1", "XGROUP DESTROY s g", "EXEC"], GONE),
    ],
    ids=lambda value: "; ".join(value) if isinstance(value, list) else "",
)
def test_what_ends_the_waiting_of_a_group_reader(reader, commands, told):
    admin, reader = reader
    for command in commands:
        reply = admin.call(*command.split())
        assert reply[0] != "-", reply
    assert reader.reply() == told
    assert reader.call("PING") == ("+", b"PONG")
    waits(admin, 0)


def test_what_does_not(reader):
    admin, reader = reader
    for command in ["XGROUP CREATE s h 0", "XGROUP SETID s g 0", "EXPIRE s 1000", "XTRIM s MAXLEN 0", "XACK s g 1-1", "FLUSHDB", "PING"][:-2]:
        assert admin.call(*command.split())[0] != "-"
    assert blocked(admin) == 1
    admin.call("XADD", "s", "1-1", "a", "1")
    assert entries(reader.reply()) == [b"1-1"]


def test_a_flush_of_another_database_is_not_heard(reader):
    admin, reader = reader
    admin.call("SELECT", "5")
    assert admin.call("FLUSHDB") == ("+", b"OK")
    assert blocked(admin) == 1
    admin.call("SELECT", "0")
    admin.call("XADD", "s", "1-1", "a", "1")
    assert entries(reader.reply()) == [b"1-1"]


def test_after_a_swap_the_other_stream_is_waited_for(running):
    admin, reader = running.connect(), running.connect()
    reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "0")
    waits(admin, 1)
    assert admin.call("SWAPDB", "0", "1") == ("+", b"OK")
    admin.call("XADD", "s", "1-1", "a", "1")
    assert entries(reader.reply()) == [b"1-1"]


@pytest.mark.snug_only
def test_who_waits_for_the_last_entry_is_given_the_last(running):
    admin, reader = running.connect(), running.connect()
    reader.send("XREAD", "BLOCK", "0", "COUNT", "9", "STREAMS", "s", "+")
    waits(admin, 1)
    for command in ["MULTI", "XADD s 1-1 a 1", "XADD s 2-1 a 1", "XADD s 3-1 a 1", "EXEC"]:
        admin.call(*command.split())
    assert entries(reader.reply()) == [b"3-1"]


def test_many_are_served_in_the_order_in_which_they_came(running):
    admin = running.connect()
    admin.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    readers = []
    for number in range(40):
        readers.append(running.connect())
        readers[-1].send("XREADGROUP", "GROUP", "g", f"c{number}", "COUNT", "1", "BLOCK", "0", "STREAMS", "s", ">")
        waits(admin, number + 1)
    for number in range(1, 21):
        admin.send("XADD", "s", f"{number}-1", "a", "1")
    for number in range(20):
        admin.reply()
    admin.call("MULTI")
    for number in range(21, 41):
        admin.call("XADD", "s", f"{number}-1", "a", "1")
    admin.call("EXEC")
    for number, reader in enumerate(readers, 1):
        assert entries(reader.reply()) == [b"%d-1" % number]
    waits(admin, 0)


def test_one_that_goes_gives_its_place_to_the_next(running):
    admin = running.connect()
    admin.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    readers = []
    for number in range(3):
        readers.append(running.connect())
        readers[-1].send("XREADGROUP", "GROUP", "g", f"c{number}", "COUNT", "1", "BLOCK", "0", "STREAMS", "s", ">")
        waits(admin, number + 1)
    readers[0].close()
    waits(admin, 2)
    admin.call("XADD", "s", "1-1", "a", "1")
    assert entries(readers[1].reply()) == [b"1-1"]
    admin.call("XADD", "s", "2-1", "a", "1")
    assert entries(readers[2].reply()) == [b"2-1"]


def test_one_that_is_killed_gets_nothing(running):
    admin, reader = running.connect(), running.connect()
    number = reader.call("CLIENT", "ID")[1]
    reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "0")
    waits(admin, 1)
    assert admin.call("CLIENT", "KILL", "ID", number) == (":", 1)
    assert reader.at_end()
    waits(admin, 0)
    assert admin.call("CLIENT", "UNBLOCK", number) == (":", 0)


def test_time_passes(running):
    admin, reader = running.connect(), running.connect(protocol=3)
    for timeout in (1, 20, 60):
        began = time.monotonic()
        assert reader.call("XREAD", "BLOCK", timeout, "STREAMS", "s", "0") == ("_", None)
        assert time.monotonic() - began >= timeout / 1000
    waits(admin, 0)
    # Nobody is left registered: a later entry goes to nobody.
    admin.call("XADD", "s", "1-1", "a", "1")
    assert reader.call("PING") == ("+", b"PONG")


def test_what_is_pipelined_waits_and_takes_little_memory(running):
    admin, reader = running.connect(), running.connect()
    before = running.rss_bytes()
    reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "0")
    waits(admin, 1)
    one = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\n" + b"x" * 1000 + b"\r\n"
    commands = 20_000
    sender = threading.Thread(target=lambda: reader.send_raw(one * commands))
    sender.start()
    time.sleep(0.3)
    assert admin.call("EXISTS", "k") == (":", 0)
    assert running.rss_bytes() - before < 10_000_000
    admin.call("XADD", "s", "1-1", "a", "1")
    assert entries(reader.reply()) == [b"1-1"]
    for _ in range(commands):
        assert reader.reply() == ("+", b"OK")
    sender.join()


def test_a_pause_does_not_keep_time_from_passing(running):
    admin, reader = running.connect(), running.connect()
    reader.send("XREAD", "BLOCK", "50", "STREAMS", "s", "0")
    reader.send("PING")
    waits(admin, 1)
    admin.call("CLIENT", "PAUSE", "100000", "WRITE")
    assert reader.reply()[1] is None
    assert reader.reply() == ("+", b"PONG")
    admin.call("CLIENT", "UNPAUSE")


def test_a_paused_read_of_a_group_waits_for_the_pause_then_for_an_entry(running):
    admin, reader = running.connect(), running.connect()
    admin.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    admin.call("CLIENT", "PAUSE", "100000", "WRITE")
    reader.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">")
    reader.send("PING")
    assert admin.call("PING") == ("+", b"PONG")
    admin.call("CLIENT", "UNPAUSE")
    waits(admin, 1)
    admin.call("XADD", "s", "1-1", "a", "1")
    assert entries(reader.reply()) == [b"1-1"]
    assert reader.reply() == ("+", b"PONG")


def test_events_of_a_served_read_reach_everybody(running):
    admin, reader, listener = running.connect(), running.connect(protocol=3), running.connect()
    admin.call("CONFIG", "SET", "notify-keyspace-events", "KEA")
    admin.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    listener.call("PSUBSCRIBE", "__keyevent*")
    reader.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">")
    waits(admin, 1)
    admin.call("XADD", "s", "1-1", "a", "1")
    reader.reply()
    heard = [listener.frame()[1][2][1] for _ in range(2)]
    assert heard == [b"__keyevent@0__:xgroup-createconsumer", b"__keyevent@0__:xadd"]


def test_monitor_shows_a_command_when_it_comes_and_once(running):
    admin, reader, monitor = running.connect(), running.connect(), running.connect()
    assert monitor.call("MONITOR") == ("+", b"OK")
    reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "0")
    assert monitor.frame()[1].endswith(b'"XREAD" "BLOCK" "0" "STREAMS" "s" "0"')
    until(1, lambda: blocked(admin))
    admin.call("XADD", "s", "1-1", "a", "1")
    entries(reader.reply())
    admin.call("ECHO", "end")
    shown = []
    while not shown or b"ECHO" not in shown[-1]:
        shown.append(monitor.frame()[1])
    assert not any(b"XREAD" in line for line in shown)


def test_the_server_ends_while_clients_wait(target):
    server = target.start("--enable-debug-command", "local", workers=2)
    admin, readers = server.connect(), [server.connect() for _ in range(10)]
    for reader in readers:
        reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "0")
    waits(admin, 10)
    server.process.terminate()
    assert server.process.wait(WAIT_SECONDS) == 0, server.log()
    assert all(reader.at_end() for reader in readers)


def test_large_arguments_of_a_command_that_waits(running):
    admin, reader = running.connect(), running.connect()
    key = b"k" * 200_000
    reader.send("XREAD", "BLOCK", "0", "STREAMS", key, "t", "$", "$")
    waits(admin, 1)
    admin.call("XADD", key, "1-1", "a", "1")
    assert reader.reply()[1][0][1][0] == ("$", key)


def test_every_entry_reaches_one_consumer(running):
    """Producers and waiting consumers race; nobody sleeps on an entry."""
    admin = running.connect()
    admin.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    producers, consumers, each = 4, 12, 1500
    taken, lock, failures = [], threading.Lock(), []

    def produce():
        with running.connect() as connection:
            for _ in range(each):
                connection.call("XADD", "s", "*", "a", "1")

    def consume(number):
        try:
            with running.connect() as connection:
                while True:
                    reply = connection.call(
                        "XREADGROUP", "GROUP", "g", f"c{number}", "COUNT", str(1 + number % 3), "BLOCK", "0", "STREAMS", "s", ">"
                    )
                    if reply == GONE:
                        return
                    ids = entries(reply)
                    connection.call("XACK", "s", "g", *ids)
                    with lock:
                        taken.extend(ids)
        except (Closed, AssertionError, OSError) as error:
            failures.append(error)

    threads = [threading.Thread(target=consume, args=(n,)) for n in range(consumers)]
    writers = [threading.Thread(target=produce) for _ in range(producers)]
    for thread in threads + writers:
        thread.start()
    for thread in writers:
        thread.join()
    until(producers * each, lambda: len(taken))
    waits(admin, consumers)
    assert admin.call("XPENDING", "s", "g")[1][0] == (":", 0)
    admin.call("DEL", "s")
    for thread in threads:
        thread.join()
    assert not failures
    assert len(set(taken)) == producers * each
    waits(admin, 0)


def test_waiting_and_leaving_at_the_same_time(running):
    """Timeouts, CLIENT UNBLOCK, new entries and ends of connections race."""
    admin = running.connect()
    stop = threading.Event()
    failures = []

    def read(number):
        try:
            while not stop.is_set():
                with running.connect() as connection:
                    for turn in range(20):
                        reply = connection.call("XREAD", "BLOCK", str(1 + turn % 3), "STREAMS", "s", f"t{number % 3}", "$", "$")
                        assert reply[0] == "*" or reply[1].startswith(b"UNBLOCKED"), reply
                    connection.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
        except (Closed, AssertionError, OSError) as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    numbers = range(1, 400)
    for turn in range(400):
        admin.send("XADD", "s" if turn % 3 else f"t{turn % 2}", "*", "a", "1")
        admin.send("CLIENT", "UNBLOCK", numbers[turn % len(numbers)], "ERROR")
        admin.reply()
        admin.reply()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    waits(admin, 0)


def test_who_monitors_uses_no_keys(running):
    """As redis-server has it, which takes who monitors for a kind of replica."""
    other, monitor = running.connect(), running.connect()
    assert monitor.call("MONITOR") == ("+", b"OK")
    flags = [line.split(b" flags=")[1].split(b" ")[0] for line in other.call("CLIENT", "LIST")[1].splitlines() if b"cmd=monitor" in line]
    assert flags == [b"O"]
    for command in (["GET", "k"], ["SET", "k", "v"], ["PUBLISH", "c", "m"], ["SPUBLISH", "c", "m"]):
        assert monitor.call(*command) == ("-", b"ERR Replica can't interact with the keyspace")
    assert monitor.call("RESET") == ("+", b"RESET")
    assert monitor.call("GET", "k")[0] == "$"
    assert monitor.call("PUBLISH", "c", "m") == (":", 0)


def test_who_monitors_sees_its_own_commands_after_their_replies(running):
    monitor, other = running.connect(), running.connect()

    def sees(*words):
        assert monitor.frame()[1].endswith(b"] " + b" ".join(b'"%s"' % word for word in words))

    assert monitor.call("MONITOR") == ("+", b"OK")
    assert monitor.call("ECHO", "a") == ("$", b"a")
    sees(b"ECHO", b"a")
    assert monitor.call("MULTI") == ("+", b"OK")
    sees(b"MULTI")
    assert monitor.call("ECHO", "b") == ("+", b"QUEUED")
    assert monitor.call("PUBLISH", "c", "m") == ("-", b"ERR Replica can't interact with the keyspace")
    assert monitor.call("EXEC")[0] == "-"
    sees(b"EXEC")
    monitor.call("MULTI")
    sees(b"MULTI")
    monitor.call("ECHO", "c")
    assert monitor.call("EXEC") == ("*", [("$", b"c")])
    sees(b"ECHO", b"c")
    sees(b"EXEC")
    monitor.send("CLIENT", "REPLY", "SKIP")
    sees(b"CLIENT", b"REPLY", b"SKIP")
    monitor.send("ECHO", "unseen")
    monitor.send("CLIENT", "REPLY", "OFF")
    monitor.send("ECHO", "unseen")
    assert monitor.call("CLIENT", "REPLY", "ON") == ("+", b"OK")
    sees(b"CLIENT", b"REPLY", b"ON")
    assert other.call("ECHO", "d") == ("$", b"d")
    sees(b"ECHO", b"d")
    assert monitor.call("QUIT") == ("+", b"OK")


def test_monitor_hides_user_and_password_and_nothing_else(running):
    other, monitor = running.connect(), running.connect()
    assert monitor.call("MONITOR") == ("+", b"OK")
    other.call("HELLO", "3", "AUTH", "a", "b", "SETNAME", "x")
    assert monitor.frame()[1].endswith(b'"HELLO" "3" "AUTH" "(redacted)" "(redacted)" "SETNAME" "x"')
    other.call("HELLO", "2", "SETNAME", "auth")
    assert monitor.frame()[1].endswith(b'"HELLO" "2" "SETNAME" "auth"')


def test_reset_keeps_protection_from_eviction(running):
    connection = running.connect()
    assert connection.call("CLIENT", "NO-EVICT", "ON") == ("+", b"OK")
    assert connection.call("RESET") == ("+", b"RESET")
    assert b" flags=e " in connection.call("CLIENT", "INFO")[1]


def test_what_came_while_a_client_waited_takes_no_memory_afterwards(running):
    """What it sends meanwhile is read, up to some size, and that is given back."""
    waiting, other = running.connect(), running.connect()
    number = waiting.call("CLIENT", "ID")[1]

    def held(field):
        told = other.call("CLIENT", "LIST", "ID", number)[1].decode()
        return int(dict(pair.split("=") for pair in told.split())[field])

    waiting.send("BLPOP", "list", 0)
    waiting.send_raw(b"PING\r\n" * 20_000)
    deadline = time.monotonic() + WAIT_SECONDS
    while held("qbuf") < 50_000:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    other.call("RPUSH", "list", "a")
    assert waiting.frame() == ("*", [("$", b"list"), ("$", b"a")])
    for _ in range(20_000):
        assert waiting.frame() == ("+", b"PONG")
    # Also of a client that goes on asking for little, without a rest.
    deadline = time.monotonic() + WAIT_SECONDS
    while held("qbuf") + held("qbuf-free") > 10_000:
        assert time.monotonic() < deadline
        assert waiting.call("PING") == ("+", b"PONG")
