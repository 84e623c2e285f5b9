"""The Unix socket: its file, its clients; and `bind` with addresses that are not there."""

import os
import stat
import subprocess

import pytest

from harness.resp import Connection


@pytest.fixture
def started(target):
    """A server with a socket in its own folder."""
    server = target.server("--unixsocketperm", "750")
    path = server.directory / "socket"
    server.command += ["--unixsocket", str(path)]
    path.write_text("left by somebody else")
    server.start()
    yield server, path
    server.stop()


def test_the_file_is_made_anew_and_removed_at_the_end(started):
    server, path = started
    assert stat.S_ISSOCK(os.stat(path).st_mode) and stat.S_IMODE(os.stat(path).st_mode) == 0o750
    with Connection(path) as connection:
        assert connection.call("PING") == ("+", b"PONG")
    directory = server.directory
    server.process.terminate()
    server.process.wait(30)
    assert not path.exists(), list(directory.iterdir())


def test_clients_are_shown_with_the_path(started):
    server, path = started
    with Connection(path) as local, server.connect() as other:
        line = local.call("CLIENT", "INFO")[1].decode()
        assert f" addr={path}:0 laddr={path}:0 " in line and " flags=U " in line
        other.call("CLIENT", "SETNAME", "watcher")
        watcher = server.connect()
        assert watcher.call("MONITOR") == ("+", b"OK")
        local.call("ECHO", "here")
        assert f"[0 unix:{path}] \"ECHO\" \"here\"" in watcher.frame()[1].decode()
        assert other.call("CLIENT", "KILL", "ADDR", f"{path}:0") == (":", 1)


def test_every_worker_serves_it(started):
    """Also while others are connected, and with values that need more than one write."""
    _, path = started
    connections = [Connection(path) for _ in range(40)]
    for number, connection in enumerate(connections):
        value = bytes([number]) * 300_000
        assert connection.call("SET", number, value) == ("+", b"OK")
        assert connection.call("GET", number) == ("$", value)
    for connection in connections:
        connection.close()


def test_redis_cli(started):
    _, path = started
    done = subprocess.run(["redis-cli", "-s", str(path), "ping"], capture_output=True, timeout=60, check=True)
    assert done.stdout == b"PONG\n"


def test_only_the_socket(target):
    server = target.server()
    path = server.directory / "socket"
    server.command += ["--unixsocket", str(path), "--port", "0"]
    server.launch()
    try:
        while not path.exists():
            assert server.alive(), server.log()
        with Connection(path) as connection:
            assert connection.call("PING") == ("+", b"PONG")
    finally:
        server.stop()


def test_addresses_that_may_be_missing(target):
    server = target.server()
    server.command += ["--bind", "127.0.0.1", "-192.0.2.1", "-::1"]
    server.start()
    try:
        with server.connect() as connection:
            assert connection.call("PING") == ("+", b"PONG")
            assert connection.call("CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2 -192.0.2.1") == ("+", b"OK")
            with Connection(server.port, host="127.0.0.2") as other:
                assert other.call("PING") == ("+", b"PONG")
    finally:
        server.stop()
