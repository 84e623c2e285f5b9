"""TLS: who is let in, what is refused whole, what a change does to those who are
connected; redis-cli, redis-py and redis-benchmark as they are."""

import socket
import ssl
import subprocess

import pytest
import redis

from harness import certificates as tls
from harness import servers
from harness.packing import until
from harness.resp import Closed, Connection, encode

WAIT_SECONDS = 60
NOT_UPDATED = b"ERR CONFIG SET failed (possibly related to argument '%s') - Unable to update TLS configuration. Check server logs."
OK = ("+", b"OK")


def start(target, certificates, *flags, clients="no", name="server", **more):
    port = servers.free_port()
    server = target.server(*tls.flags(certificates, port, clients, name), "--enable-debug-command", "local", *flags, **more)
    server.tls_port = port
    server.tls = tls.trusting(certificates)
    return server


@pytest.fixture(params=["server", "elliptic"])
def secure(target, certificates, request):
    server = start(target, certificates, name=request.param)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def asking(target, certificates):
    server = start(target, certificates, clients="yes").start()
    yield server
    server.stop()


def shakes(server, context):
    """Whether a client with this context is let in, and answered."""
    try:
        with Connection(server.tls_port, tls=context) as connection:
            return connection.call("PING") == ("+", b"PONG")
    except (ssl.SSLError, OSError, Closed):
        return False


def test_commands_large_values_and_pipelines(secure):
    for protocol in (2, 3):
        with secure.connect(protocol) as connection:
            value = bytes(range(256)) * 12_000
            assert connection.call("SET", "large", value) == OK
            assert connection.call("GET", "large") == ("$", value)
            commands = [("SET", f"k{n}", b"v" * n) for n in range(2000)]
            assert connection.pipeline(commands) == [OK] * 2000
            commands = [("GET", f"k{n}") for n in range(2000)]
            assert connection.pipeline(commands) == [("$", b"v" * n) for n in range(2000)]


def test_whole_pipelines_before_the_first_reply_is_read(secure):
    """What the socket does not take is held back, in the session and behind it."""
    with secure.connect() as connection:
        connection.call("SET", "k", b"x" * 50_000)
        # Short enough to fit into the socket whole: a TLS connection of Python's is
        # nothing for two threads.
        connection.send_raw(encode(("GET", "k")) * 600)
        for _ in range(600):
            assert connection.reply() == ("$", b"x" * 50_000)


def test_a_reply_leaves_while_its_client_waits_for_something_else(secure):
    """The tail of a large reply that the socket did not take at once."""
    with secure.connect(receive_buffer=4096) as connection, secure.connect() as other:
        other.call("SET", "large", b"y" * 400_000)
        connection.send("GET", "large")
        connection.send("BLPOP", "list", "0")
        assert connection.reply() == ("$", b"y" * 400_000)
        other.call("RPUSH", "list", "a")
        assert connection.reply() == ("*", [("$", b"list"), ("$", b"a")])


def test_pushes_arrive(secure):
    with secure.connect() as subscriber, secure.connect() as other:
        subscriber.call("SUBSCRIBE", "news")
        assert other.call("PUBLISH", "news", "hello") == (":", 1)
        assert subscriber.frame() == ("*", [("$", b"message"), ("$", b"news"), ("$", b"hello")])


def test_the_last_word_arrives_and_then_the_end(secure):
    with secure.connect() as connection:
        connection.send("SET", "k", "v")
        connection.send("QUIT")
        assert [connection.reply(), connection.reply()] == [OK, OK]
        with pytest.raises(Closed):
            connection.reply()


def test_only_tls(target, certificates):
    server = start(target, certificates, "--port", "0")
    server.launch()
    try:
        log = server.log
        while "eady to accept connections" not in log():
            assert server.alive(), log()
        assert shakes(server, server.tls)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", server.port)).close()
    finally:
        server.stop()


def test_clients_must_show_a_certificate(asking, certificates):
    assert shakes(asking, tls.trusting(certificates, "client"))
    assert not shakes(asking, tls.trusting(certificates))
    assert not shakes(asking, tls.trusting(certificates, "other"))
    with Connection(asking.port) as plain:
        assert plain.call("CONFIG", "SET", "tls-auth-clients", "optional") == OK
        assert shakes(asking, tls.trusting(certificates)) and shakes(asking, tls.trusting(certificates, "client"))
        assert not shakes(asking, tls.trusting(certificates, "other"))
        assert plain.call("CONFIG", "SET", "tls-auth-clients", "no") == OK
        assert shakes(asking, tls.trusting(certificates))


@pytest.mark.snug_only
def test_the_user_whom_a_certificate_names(asking, certificates):
    """Its common name is `someone`."""

    def who():
        with Connection(asking.tls_port, tls=tls.trusting(certificates, "client")) as client:
            return client.call("ACL", "WHOAMI"), client.call("SET", "k", "v")

    with Connection(asking.port) as plain:
        assert plain.call("ACL", "SETUSER", "someone", "on", "nopass", "~k", "+get", "+acl|whoami") == OK
        assert who() == (("$", b"default"), OK)
        assert plain.call("CONFIG", "SET", "tls-auth-clients-user", "CN") == OK
        name, denied = who()
        assert name == ("$", b"someone") and denied[0] == "-" and denied[1].startswith(b"NOPERM")
        # Who has left is listed until the server reads the end of its connection.
        until(lambda: b"user=someone" not in plain.call("CLIENT", "LIST")[1])
        # Who is off, or is not there, is nobody.
        assert plain.call("ACL", "SETUSER", "someone", "off") == OK
        assert who() == (("$", b"default"), OK)
        assert plain.call("ACL", "DELUSER", "someone") == (":", 1)
        assert who() == (("$", b"default"), OK)


def test_authorities_of_a_folder(target, certificates, tmp_path):
    (tmp_path / "0.pem").write_bytes((certificates / "ca.crt").read_bytes())
    (tmp_path / "notes.txt").write_text("no certificate")
    server = start(target, certificates, clients="yes")
    at = server.command.index("--tls-ca-cert-file")
    server.command[at : at + 2] = ["--tls-ca-cert-dir", str(tmp_path)]
    if target.is_redis:
        pytest.skip("OpenSSL finds certificates in a folder by hashes")
    server.start()
    try:
        assert shakes(server, tls.trusting(certificates, "client"))
        assert not shakes(server, tls.trusting(certificates, "other"))
    finally:
        server.stop()


def test_an_encrypted_key(target, certificates):
    server = start(target, certificates, "--tls-key-file", str(certificates / "encrypted.key"), "--tls-key-file-pass", "open sesame").start()
    try:
        assert shakes(server, server.tls)
        with Connection(server.port) as plain:
            wanted = ("-", NOT_UPDATED % b"tls-key-file-pass")
            assert plain.call("CONFIG", "SET", "tls-key-file-pass", "wrong") == wanted
        assert shakes(server, server.tls)
        assert "open sesame" not in server.log(1000) and "wrong" not in server.log(1000)
    finally:
        server.stop()


def test_other_certificates_at_run_time_drop_nobody(target, secure, certificates):
    """And what is bad is refused whole."""
    with Connection(secure.port) as plain, secure.connect() as stays:
        cert, key = (str(certificates / name) for name in ("elliptic.crt", "elliptic.key"))
        assert plain.call("CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key) == OK
        assert stays.call("PING") == ("+", b"PONG")
        assert shakes(secure, secure.tls)
        bad = [
            ("tls-cert-file", certificates / "missing.crt"),
            # Not of the key in force; of OpenSSL's two kinds it may have one each.
            *([] if target.is_redis else [("tls-cert-file", certificates / "server.crt")]),
            ("tls-key-file", certificates / "ca.crt"),
            ("tls-ca-cert-file", certificates / "ca.key"),
            ("tls-protocols", "SSLv3"),
            ("tls-ciphers", "no-such-cipher"),
        ]
        for name, value in bad:
            assert plain.call("CONFIG", "SET", "timeout", "77", name, value) == ("-", NOT_UPDATED % name.encode()), (name, value)
        told = plain.call("CONFIG", "GET", "timeout", "tls-cert-file", "tls-protocols")[1]
        assert dict(zip(told[::2], told[1::2]))[("$", b"timeout")] == ("$", b"0")
        assert dict(zip(told[::2], told[1::2]))[("$", b"tls-cert-file")] == ("$", cert.encode())
        assert stays.call("PING") == ("+", b"PONG")
        assert shakes(secure, secure.tls)


def test_another_port_at_run_time(secure):
    port = servers.free_port()
    with secure.connect() as stays:
        assert stays.call("CONFIG", "SET", "tls-port", port) == OK
        assert stays.call("PING") == ("+", b"PONG")
        secure.tls_port, before = port, secure.tls_port
        assert shakes(secure, secure.tls)
        assert stays.call("CONFIG", "SET", "tls-port", "0") == OK
        assert stays.call("CONFIG", "SET", "tls-port", before) == OK
        secure.tls_port = before
        assert shakes(secure, secure.tls)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_protocols_and_ciphers(secure, certificates, version):
    context = tls.trusting(certificates)
    context.minimum_version = context.maximum_version = version
    old = version == ssl.TLSVersion.TLSv1_2
    mine, other = ("TLSv1.2", "TLSv1.3") if old else ("TLSv1.3", "TLSv1.2")
    with Connection(secure.port) as plain:
        assert plain.call("CONFIG", "SET", "tls-protocols", f"TLSv1.1 {mine}") == OK
        assert shakes(secure, context)
        assert plain.call("CONFIG", "SET", "tls-protocols", other) == OK
        assert not shakes(secure, context)
        cipher = "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256" if old else "TLS_CHACHA20_POLY1305_SHA256"
        name = "tls-ciphers" if old else "tls-ciphersuites"
        assert plain.call("CONFIG", "SET", "tls-protocols", "", name, cipher) == OK
        with Connection(secure.tls_port, tls=context) as connection:
            assert connection.socket.cipher()[0] in cipher


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed(target, secure, certificates, version):
    context = tls.trusting(certificates)
    context.minimum_version = context.maximum_version = version

    def reused(session=None):
        with socket.create_connection(("127.0.0.1", secure.tls_port)) as plain:
            with context.wrap_socket(plain, server_hostname="localhost", session=session) as wrapped:
                wrapped.sendall(b"PING\r\n")
                assert wrapped.recv(100) == b"+PONG\r\n"
                return wrapped.session, wrapped.session_reused

    session, first = reused()
    assert not first
    _, second = reused(session)
    assert second
    with Connection(secure.port) as plain:
        assert plain.call("CONFIG", "SET", "tls-session-caching", "no") == OK
    # OpenSSL goes on giving out tickets.
    if version == ssl.TLSVersion.TLSv1_2 and target.is_snug:
        assert not reused(reused()[0])[1]


@pytest.mark.snug_only
@pytest.mark.parametrize(
    "left_out, said",
    [
        ("--tls-cert-file", "No tls-cert-file configured!"),
        ("--tls-key-file", "No tls-key-file configured!"),
        ("--tls-ca-cert-file", "Either tls-ca-cert-file or tls-ca-cert-dir must be specified"),
    ],
)
def test_what_is_missing_is_said_at_start(target, certificates, left_out, said):
    server = start(target, certificates, clients="yes")
    at = server.command.index(left_out)
    del server.command[at : at + 2]
    done = subprocess.run(server.command, capture_output=True, timeout=WAIT_SECONDS, cwd=server.directory)
    assert done.returncode == 1 and said in done.stderr.decode()


def test_redis_cli_and_redis_benchmark(secure, certificates):
    place = ["-p", str(secure.tls_port), "--tls", "--cacert", str(certificates / "ca.crt")]
    done = subprocess.run(["redis-cli", *place, "set", "k", "v"], capture_output=True, timeout=WAIT_SECONDS, check=True)
    assert done.stdout == b"OK\n"
    done = subprocess.run(["redis-benchmark", *place, "-t", "set,get", "-n", "2000", "-P", "16", "--csv"], capture_output=True, timeout=WAIT_SECONDS, check=True)
    assert done.stdout.count(b"\n") == 3, done.stdout


def test_redis_py(asking, certificates):
    files = {name: str(certificates / file) for name, file in (("ssl_ca_certs", "ca.crt"), ("ssl_certfile", "client.crt"), ("ssl_keyfile", "client.key"))}
    with redis.Redis(port=asking.tls_port, ssl=True, **files) as client:
        with client.pipeline() as pipe:
            pipe.set("a", "1").incr("a").get("a")
            assert pipe.execute() == [True, 2, b"2"]


def test_a_plain_client_at_the_tls_port(secure):
    with socket.create_connection(("127.0.0.1", secure.tls_port), timeout=WAIT_SECONDS) as plain:
        plain.sendall(b"PING\r\n")
        assert b"".join(iter(lambda: received(plain), b"")) == b""
    assert shakes(secure, secure.tls)


def received(plain):
    try:
        return plain.recv(1000)
    except ConnectionResetError:
        return b""


@pytest.mark.snug_only
def test_the_admin_port_speaks_tls(target, certificates):
    port = servers.free_port()
    server = start(target, certificates, "--admin-port", str(port), "--admin-tls", "yes").start()
    try:
        place = f"https://localhost:{port}/healthz"
        done = subprocess.run(["curl", "-sS", "--cacert", str(certificates / "ca.crt"), place], capture_output=True, timeout=WAIT_SECONDS, check=True)
        assert done.stdout == b"ok\n"
        plain = subprocess.run(["curl", "-sS", f"http://localhost:{port}/healthz"], capture_output=True, timeout=WAIT_SECONDS)
        assert plain.returncode != 0
    finally:
        server.stop()
