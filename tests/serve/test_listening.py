"""`CONFIG SET port` and `bind`: the server moves, whoever is connected stays."""

import socket

import pytest

from harness import servers
from harness.resp import Connection

OK = ("+", b"OK")


@pytest.fixture(params=[1, 3], ids=["1 worker", "3 workers"])
def server(target, request):
    server = target.start(workers=request.param)
    yield server
    server.stop()


def told(connection, name):
    return connection.call("CONFIG", "GET", name)[1][1][1].decode()


def answers(port, host="127.0.0.1"):
    """Whether as many connections as no worker could be spared are served."""
    for _ in range(20):
        with Connection(port, host=host) as connection:
            assert connection.call("PING") == ("+", b"PONG")
    return True


def refuses(port, host="127.0.0.1"):
    """In the end: a worker closes a socket when it comes to it."""
    for _ in range(5000):
        try:
            socket.create_connection((host, port)).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:
            pass
    return False


def test_another_port_and_back(server):
    stays = server.connect()
    port = servers.free_port()
    assert stays.call("CONFIG", "SET", "port", port) == OK
    assert answers(port)
    assert refuses(server.port)
    assert told(stays, "port") == str(port)
    assert stays.call("CONFIG", "SET", "port", server.port) == OK
    assert answers(server.port)
    assert refuses(port)


def test_a_port_that_is_taken_changes_nothing(server):
    admin = server.connect()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        wanted = "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check server logs."
        assert admin.call("CONFIG", "SET", "timeout", 77, "port", port, "maxmemory", "10000001") == ("-", wanted.encode())
    assert [told(admin, name) for name in ("timeout", "port", "maxmemory")] == ["0", str(server.port), "0"]
    assert answers(server.port)


def test_another_address_and_back(server):
    admin = server.connect()
    assert admin.call("CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2") == OK
    assert answers(server.port) and answers(server.port, "127.0.0.2")
    assert admin.call("CONFIG", "SET", "bind", "127.0.0.2") == OK
    assert refuses(server.port) and answers(server.port, "127.0.0.2")
    assert admin.call("CONFIG", "SET", "bind", "127.0.0.1") == OK
    assert refuses(server.port, "127.0.0.2") and answers(server.port)


def test_an_address_that_is_not_there(server):
    admin = server.connect()
    wanted = b"ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified addresses."
    assert admin.call("CONFIG", "SET", "bind", "192.0.2.1") == ("-", wanted)
    assert told(admin, "bind") == "127.0.0.1"
    assert answers(server.port)


def outer_address():
    """An address of this machine that is no loopback address; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return asking.getsockname()[0]


def test_protected_mode(target):
    """Who comes from elsewhere is told why, unless there is a password or it is off."""
    outer = outer_address()
    if outer is None or outer.startswith("127."):
        pytest.skip("this machine has no address but loopback ones")
    server = target.start("--bind", f"127.0.0.1 {outer}")

    def told_outside():
        with Connection(server.port, host=outer) as connection:
            return connection.call("PING")

    def is_kept_out():
        with Connection(server.port, host=outer) as connection:
            return connection.frame()[1].startswith(b"DENIED Redis is running in protected mode")

    try:
        with server.connect() as inside:
            rejected = int(server.info()["rejected_connections"])
            assert is_kept_out()
            assert int(server.info()["rejected_connections"]) == rejected + 1
            assert inside.call("CONFIG", "SET", "protected-mode", "no") == OK
            assert told_outside() == ("+", b"PONG")
            assert inside.call("CONFIG", "SET", "protected-mode", "yes") == OK
            assert is_kept_out()
            # What counts is whether anybody may come in as the default user.
            assert inside.call("ACL", "SETUSER", "default", "resetpass", ">secret") == OK
            assert told_outside()[1].startswith(b"NOAUTH")
            assert inside.call("ACL", "SETUSER", "default", "nopass") == OK
            assert is_kept_out()
    finally:
        server.stop()
