"""Open files: the limit is raised, or clients are told that there is no room; the
admin port answers in any case."""

import http.client
import os
import pathlib
import re
import resource
import time

import pytest

from harness import servers
from harness.resp import Closed, Connection

FULL = ("-", b"ERR max number of clients reached")


def limited(target, soft, hard, *flags, **how):
    """A server that begins with these limits of open files."""
    server = target.server(*flags, **how)
    server.command = ["/bin/sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" "$@"', *server.command]
    return server


def limit_of(server):
    (line,) = [line for line in pathlib.Path(f"/proc/{server.pid}/limits").read_text().splitlines() if line.startswith("Max open files")]
    return int(line.split()[3])


def config(server, name):
    with server.connect() as connection:
        return int(connection.call("CONFIG", "GET", name)[1][1][1])


def health(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_limit_is_raised(target):
    server = limited(target, 256, 12000, "--maxclients", "5000").start()
    try:
        assert config(server, "maxclients") == 5000
        assert limit_of(server) >= 5032
        assert re.search(r"Increased maximum number of open files to \d+ \(it was originally set to 256\)\.", server.log(1000))
        # redis-server lowers the hard limit as well, and may not raise it again.
        if target.is_snug:
            with server.connect() as connection:
                assert connection.call("CONFIG", "SET", "maxclients", "6000") == ("+", b"OK")
            assert limit_of(server) >= 6032
    finally:
        server.stop()


@pytest.mark.skipif(os.geteuid() == 0 and not pathlib.Path("/usr/bin/setpriv").exists(), reason="root raises the hard limit")
def test_clients_are_limited_where_it_cannot_be(target):
    admin_port = servers.free_port()
    flags = [] if target.is_redis else ["--admin-port", str(admin_port)]
    server = limited(target, 200, 256, *flags)
    if os.geteuid() == 0:
        server.command = ["/usr/bin/setpriv", "--bounding-set", "-sys_resource", *server.command]
    server.start()
    clients = []
    try:
        most = config(server, "maxclients")
        assert limit_of(server) == 256 and 100 < most <= 256 - 32
        log = server.log(1000)
        assert "You requested maxclients of 10000 requiring at least " in log
        assert f"Current maximum open files is 256. maxclients has been reduced to {most} to compensate for low ulimit. If you need higher maxclients increase 'ulimit -n'." in log
        with server.connect() as connection:
            wanted = f"ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to handle the specified number of clients, try with {most}"
            assert connection.call("CONFIG", "SET", "maxclients", "5000") == ("-", wanted.encode())
        assert config(server, "maxclients") == most
        # The last connections of this test may still be about to be closed.
        while int(server.info()["connected_clients"]) > 1:
            time.sleep(0.01)
        served, refused = 0, 0
        for _ in range(400):
            clients.append(Connection(server.port))
            if served < most:
                assert clients[-1].call("PING") == ("+", b"PONG")
                served += 1
            else:
                assert clients[-1].reply() == FULL
                refused += 1
        assert (served, refused) == (most, 400 - most)
        assert target.is_redis or health(admin_port) == 200
    finally:
        for client in clients:
            client.close()
        server.stop()


@pytest.mark.snug_only
def test_too_few_to_start(target):
    server = limited(target, 40, 40)
    if os.geteuid() == 0:
        server.command = ["/usr/bin/setpriv", "--bounding-set", "-sys_resource", *server.command]
    with pytest.raises(RuntimeError, match=r"Your current 'ulimit -n' of 40 is not enough for the server to start\."):
        server.start()


def rejected(connection):
    return int(servers.info_fields(connection.call("INFO", "stats")[1].decode())["rejected_connections"])


def answer(connection):
    """What PING is answered. Whoever is turned away may be reset before it has read why."""
    try:
        return connection.call("PING")
    except Closed:
        return FULL


@pytest.mark.snug_only
def test_none_left(target):
    """The limit is lowered to about what is open, and the rest used up: nobody is left hanging."""
    admin_port = servers.free_port()
    server = target.start("--admin-port", str(admin_port))
    try:
        served = server.connect()
        # Both have what they need before there is no more.
        assert served.call("PING") == ("+", b"PONG") and health(admin_port) == 200
        highest = max(int(name) for name in os.listdir(f"/proc/{server.pid}/fd"))
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (highest + 1, 20000))
        others = [server.connect()]
        while answer(others[-1]) == ("+", b"PONG"):
            others.append(server.connect())
        others.append(server.connect())
        for _ in range(10):
            # What the admin port or another has just closed may be had.
            with Connection(server.port) as connection:
                assert answer(connection) in (FULL, ("+", b"PONG"))
            assert health(admin_port) == 200
        while answer(others[-1]) == ("+", b"PONG"):
            others.append(server.connect())
        assert served.call("PING") == ("+", b"PONG")
        assert rejected(served) > 1
        assert re.search("cannot accept an? (admin )?connection", server.log())
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (20000, 20000))
        with server.connect() as connection:
            assert connection.call("PING") == ("+", b"PONG")
    finally:
        server.stop()
