"""How a server ends: signals, SHUTDOWN, with clients and work at hand."""

import signal
import threading
import time

import pytest

from harness.resp import Closed, Connection

WAIT_SECONDS = 30


@pytest.fixture
def running(target):
    server = target.start("--enable-debug-command", "local")
    yield server
    server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_a_signal_ends_it_cleanly(running, number):
    idle = running.connect()
    waiting = running.connect()
    waiting.send_raw(b"*2\r\n$4\r\nEC")
    subscriber = running.connect()
    subscriber.send("SUBSCRIBE", "ch")
    subscriber.frame()
    running.process.send_signal(number)
    assert running.process.wait(WAIT_SECONDS) == 0, running.log()
    for connection in (idle, waiting, subscriber):
        assert connection.at_end()
    with pytest.raises(OSError):
        Connection(running.port)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGPIPE], ids=lambda s: s.name)
def test_a_signal_that_changes_nothing(running, number):
    running.process.send_signal(number)
    time.sleep(0.2)
    with running.connect() as connection:
        assert connection.call("PING") == ("+", b"PONG")


def test_a_signal_under_load(running):
    stop = threading.Event()

    def load():
        try:
            with running.connect() as connection:
                while not stop.is_set():
                    connection.send_raw(b"SET k v\r\n" * 100)
                    for _ in range(100):
                        connection.reply()
        except (Closed, OSError):
            pass

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    with running.connect() as connection:
        for _ in range(1000):
            if connection.call("EXISTS", "k") == (":", 1):
                break
            time.sleep(0.01)
        else:
            raise AssertionError("the load writes nothing")
    running.process.send_signal(signal.SIGTERM)
    code = running.process.wait(WAIT_SECONDS)
    stop.set()
    for thread in threads:
        thread.join()
    assert code == 0, running.log()


@pytest.mark.snug_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_a_second_signal_ends_it_at_once(running, number):
    """Every worker asleep: the first signal has to wait, the second does not."""
    sleepers = [running.connect() for _ in range(8)]
    for connection in sleepers:
        connection.send("DEBUG", "SLEEP", "600")
    running.process.send_signal(number)
    time.sleep(0.5)
    if running.alive():
        running.process.send_signal(number)
    assert running.process.wait(WAIT_SECONDS) is not None


@pytest.mark.parametrize("words", [("SHUTDOWN",), ("SHUTDOWN", "NOSAVE"), ("shutdown", "now", "nosave", "force"), ("SHUTDOWN", "NOW")], ids=" ".join)
def test_shutdown(running, words):
    other = running.connect()
    other.call("PING")
    with running.connect() as connection:
        connection.send(*words)
        assert connection.at_end()
    assert running.process.wait(WAIT_SECONDS) == 0, running.log()
    assert other.at_end()


def test_shutdown_is_refused_within_a_transaction(running):
    with running.connect() as connection:
        connection.call("MULTI")
        assert connection.call("SHUTDOWN", "NOSAVE") == ("-", b"ERR Command not allowed inside a transaction")
        assert connection.call("EXEC")[1].startswith(b"EXECABORT")
        assert connection.call("PING") == ("+", b"PONG")


def test_it_starts_again_on_the_same_port(target):
    server = target.server()
    for _ in range(5):
        server.start()
        with server.connect() as connection:
            assert connection.call("SET", "k", "v") == ("+", b"OK")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(WAIT_SECONDS) == 0
    server.stop()


def test_kill_leaves_a_port_that_can_be_taken_again(target):
    server = target.server()
    for _ in range(3):
        server.start()
        with server.connect() as connection:
            connection.call("PING")
            server.process.kill()
            server.process.wait()
    server.stop()
