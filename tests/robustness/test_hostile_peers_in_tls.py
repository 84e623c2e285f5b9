"""Hostile peers that come in through TLS: those of `test_hostile_peers.py`, and those
who do not shake hands as they should. Bystanders are plain, and are not disturbed."""

import random
import socket
import ssl

import pytest

from harness import certificates as tls
from harness import servers
from harness.bystander import MB, WARMING, Bystanders
from harness.resp import Closed, Connection
from test_hostile_peers import (  # noqa: F401
    eventually,
    scaled,
    test_a_bulk_above_the_configured_limit,
    test_a_claim_begun_costs_what_was_sent,
    test_a_client_that_never_reads_is_cut_at_its_limit,
    test_a_subscriber_that_never_reads_is_cut,
    test_claims_past_a_limit_are_refused,
    test_dying_in_the_middle_of_a_command,
    test_dying_while_a_large_reply_is_on_its_way,
    test_garbage,
    test_one_byte_at_a_time,
)


@pytest.fixture
def server(target, certificates):
    port = servers.free_port()
    server = target.start("--enable-debug-command", "local", *tls.flags(certificates, port))
    server.tls_port, server.tls = port, tls.trusting(certificates)
    # Until every worker has opened what it works with.
    for _ in range(WARMING):
        assert served(server)
    yield server
    died = not server.alive()
    print(server.log())
    server.stop()
    assert not died


def served(server):
    with server.connect() as connection:
        return connection.call("PING") == ("+", b"PONG")


def test_those_who_stall_do_not_keep_others_out(server):
    """More of them than hands are shaken at once."""
    with Bystanders(server, 32 * MB):
        stalling = [socket.create_connection(("127.0.0.1", server.tls_port)) for _ in range(scaled(700))]
        for number, connection in enumerate(stalling):
            # Nothing, or the beginning of a record that is never whole.
            connection.sendall(b"\x16\x03\x01\x02\x00\x01" if number % 2 else b"")
        assert served(server)
        with Connection(server.port) as plain:
            assert plain.call("PING") == ("+", b"PONG")
        for connection in stalling:
            connection.close()
    assert eventually(lambda: server.open_files() < 200)


def test_garbage_for_a_handshake(server):
    noise = random.Random(7)
    with Bystanders(server, 32 * MB):
        for number in range(scaled(100)):
            with socket.create_connection(("127.0.0.1", server.tls_port), timeout=30) as connection:
                try:
                    connection.sendall(b"\x16\x03\x01\x40\x00" * (number % 2) + noise.randbytes(20_000))
                    while connection.recv(4096):
                        pass
                except (ConnectionError, TimeoutError):
                    pass
        assert served(server)


def test_leaving_in_the_middle_of_a_handshake(server, certificates):
    context = tls.trusting(certificates)
    for _ in range(scaled(100)):
        with socket.create_connection(("127.0.0.1", server.tls_port)) as plain:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            with pytest.raises(ssl.SSLWantReadError):
                session.do_handshake()
            plain.sendall(outgoing.read())
    assert served(server)
    assert eventually(lambda: server.open_files() < 200)


def test_the_most_clients_counts_those_who_shake_hands(server):
    with Connection(server.port) as plain:
        assert plain.call("CONFIG", "SET", "maxclients", "40") == ("+", b"OK")
        stalling = [socket.create_connection(("127.0.0.1", server.tls_port)) for _ in range(60)]
        assert eventually(lambda: rejected(plain) >= 20)
        for connection in stalling:
            connection.close()
        assert eventually(lambda: is_served(server))


def rejected(connection):
    return int(servers.info_fields(connection.call("INFO", "stats")[1].decode())["rejected_connections"])


def is_served(server):
    try:
        return served(server)
    except (OSError, Closed):
        return False
