"""The content port's doors: accounts, TLS, limits, and peers that are hostile or slow."""

import base64
import contextlib
import random
import select
import shutil
import socket
import subprocess
import threading

import pytest

from harness import certificates as tls
from harness import servers
from harness.content import Content, path_of, said, serving
from harness.packing import until

pytestmark = pytest.mark.snug_only

CURL = shutil.which("curl")


def basic(user, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_accounts(own_content):
    content = own_content
    with content.server.connect() as client:
        client.call("ACL", "SETUSER", "reader", "on", ">r", "~doc:*", "+get", "+scan")
        client.call("ACL", "SETUSER", "writer", "on", ">w", "~doc:*", "+get", "+set")
        client.call("CONFIG", "SET", "requirepass", "secret")
        client.call("AUTH", "secret")
        reader, writer, default = basic("reader", "r"), basic("writer", "w"), basic("", "secret")

        def status(method, path, who=(), body=None):
            return content.ask(method, path, body, dict(who))[0]

        assert status("PUT", "/content/doc:1", writer, b"x") == 201
        for who, method, path, expected in [
            ((), "GET", "/content/doc:1", 401), (basic("reader", "x"), "GET", "/content/doc:1", 401), ({"Authorization": "Bearer x"}, "GET", "/content/doc:1", 401),
            (reader, "GET", "/content/doc:1", 200), (reader, "GET", "/content/other", 403), (reader, "DELETE", "/content/doc:1", 403),
            (reader, "GET", "/content", 200), (writer, "GET", "/content", 403), (writer, "DELETE", "/content/doc:1", 403),
            (default, "GET", "/content/other", 404), (reader, "GET", "/content/config", 403), (default, "GET", "/content/config", 200),
            (default, "DELETE", "/content/doc:1", 204), (basic("default", "secret"), "GET", "/content", 200),
        ]:  # fmt: skip
            assert status(method, path, who) == expected, (who, method, path)
        assert status("PUT", "/content/doc:1", reader, b"x" * 200_000) == 403
        assert status("POST", "/content?prefix=doc:", writer, b"x") == 201
        assert status("POST", "/content", writer, b"x") == 403
        assert "Basic" in content.ask("GET", "/content/doc:1")[2]["WWW-Authenticate"]
        logged = client.call("ACL", "LOG")[1]
        assert any(("$", b"other") in entry[1] and ("$", b"reader") in entry[1] for entry in logged)
        # A right that is taken away is gone for whoever is connected.
        with contextlib.closing(content.connect()) as connection:
            for expected in (404, 403):
                connection.request("GET", "/content/doc:2", headers=reader)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == expected
                client.call("ACL", "SETUSER", "reader", "-get")


def test_it_is_a_client(content):
    with content.server.connect() as client, contextlib.closing(content.connect()) as connection:
        client.call("CONFIG", "RESETSTAT")
        connection.request("GET", "/content/none")
        connection.getresponse().read()
        line = next(line for line in client.call("CLIENT", "LIST")[1].split(b"\n") if b"lib-name=http" in line)
        assert b"cmd=get" in line and b" user=default " in line
        assert b"cmdstat_get:calls=1" in client.call("INFO", "commandstats")[1]
        assert b"keyspace_misses:1" in client.call("INFO", "stats")[1]
        client.call("CLIENT", "KILL", "ID", line.split(b"id=")[1].split(b" ")[0])
        assert connection.sock.recv(1) == b""


def test_a_pause_holds_writes_up(content):
    with content.server.connect() as client:
        client.call("CLIENT", "PAUSE", "100000", "WRITE")
        done = []
        thread = threading.Thread(target=lambda: done.append(content.put("paused", b"x")[0]))
        thread.start()
        until(lambda: b"blocked_clients:1" in client.call("INFO", "clients")[1] or client.call("CLIENT", "LIST")[1].count(b"flags=b") == 1)
        assert content.get("paused")[0] == 404 and not done
        client.call("CLIENT", "UNPAUSE")
        thread.join()
        assert done == [201]


@pytest.mark.parametrize("own_content", [["--maxmemory", "30mb"]], indirect=True)
def test_memory_that_is_short(own_content):
    body = random.Random(2).randbytes(1_000_000)
    statuses = [own_content.put(f"k{n}", body)[0] for n in range(40)]
    full = statuses.index(507)
    assert set(statuses[:full]) == {201} and set(statuses[full:]) == {507} and full > 10
    assert b"OOM" in own_content.put("k", body)[1]
    assert own_content.get("k1")[1] == body
    with own_content.server.connect() as client:
        client.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    until(lambda: own_content.put("k", body)[0] in (201, 204))


@pytest.mark.parametrize("own_content", [["--appendonly", "yes", "--appendfsync", "always"]], indirect=True)
def test_what_is_answered_is_on_disk(own_content):
    for n in range(20):
        assert own_content.put("k", str(n).encode())[0] in (201, 204)
    log = b"".join(path.read_bytes() for path in own_content.server.directory.glob("appendonlydir/*incr*"))
    assert b"\r\n19\r\n" in log


@pytest.mark.parametrize("own_content", [["--proto-max-bulk-len", "1mb", "--maxclients", "20"]], indirect=True)
def test_limits(own_content):
    content = own_content
    assert content.put("k", b"x" * (1 << 20))[0] == 201
    head = b"PUT /content/k HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    assert content.raw(head + b"Content-Length: 1048577\r\n\r\n").startswith(b"HTTP/1.1 413")
    chunks = head + b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b"y" * 65536 + b"\r\n") * 17 + b"0\r\n\r\n"
    assert content.raw(chunks).startswith(b"HTTP/1.1 413")
    assert content.get("k")[1] == b"x" * (1 << 20)
    assert content.raw(b"GET /content/k HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 300_000).startswith(b"HTTP/1.1 431")
    assert content.raw(b"GET /content/k HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 100 + b"\r\n").startswith(b"HTTP/1.1 431")
    peers = [socket.create_connection(("127.0.0.1", content.port)) for _ in range(30)]
    refused = []
    until(lambda: [refused.append(peer) for peer in peers if has_more(peer)] and len(refused) >= 10)
    assert said(refused[0]).startswith(b"HTTP/1.1 503")
    [peer.close() for peer in peers]
    until(lambda: content.get("none")[0] == 404)


def head_of(size):
    """The head of a request without its end."""
    head = b"GET /content/none HTTP/1.1\r\nHost: x\r\nX: "
    return head + b"y" * (size - len(head))


def test_heads_are_short(content):
    end = b"\r\nConnection: close\r\n\r\n"
    for size, status in [(15_000, b"404"), (17_000, b"431"), (100_000, b"431"), (1_000_000, b"431")]:
        assert content.raw(head_of(size) + end)[9:12] == status, size
    # It is refused when there is too much of it, not at its end; nor is a large body before
    # it, or many requests, what makes it longer.
    assert content.raw(head_of(17_000))[9:12] == b"431"
    put = b"PUT /content/longhead HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000
    get = b"GET /content/none HTTP/1.1\r\nHost: x\r\n\r\n"
    for before in (put, get * 100):
        assert content.raw(before + head_of(17_000) + end).split(b"HTTP/1.1 ")[-1].startswith(b"431")
    lines = b"GET /content/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    for count, status in [(62, b"404"), (63, b"431")]:
        assert content.raw(lines + b"X: y\r\n" * count + b"\r\n")[9:12] == status, count


@pytest.mark.skipif(not CURL, reason="curl is not installed")
def test_heads_of_http_2_are_short(content):
    url = f"http://127.0.0.1:{content.port}/content/none"
    for headers, status in [(["x: y"] * 60, b"404"), (["x: y"] * 70, b"431"), (["x: y"] * 200, b"431"), (["x: " + "y" * 10_000] * 2, b"431")]:
        words = [word for header in headers for word in ("--header", header)]
        done = subprocess.run([CURL, "--silent", "--http2-prior-knowledge", "--output", "/dev/null", "--write-out", "%{http_code}", *words, url], capture_output=True, timeout=60)
        assert done.stdout == status, len(headers)


@pytest.mark.parametrize("own_content", [["--requirepass", "secret"]], indirect=True)
def test_unfinished_heads_are_counted_and_cost_little(own_content):
    content, many, size = own_content, 200, 15_000
    with content.server.connect() as client, contextlib.ExitStack() as peers:
        client.call("AUTH", "secret")

        def lines():
            return [line for line in client.call("CLIENT", "LIST")[1].split(b"\n") if b"lib-name=http" in line]

        def sum_of(field):
            return sum(int(line.split(field)[1].split()[0]) for line in lines())

        def used():
            return int(client.call("INFO", "memory")[1].split(b"used_memory:")[1].split()[0])

        before = used()
        for _ in range(many):
            peers.enter_context(socket.create_connection(("127.0.0.1", content.port))).sendall(head_of(size))
        until(lambda: sum_of(b" qbuf=") == many * size)
        counted, taken = sum_of(b" tot-mem="), used() - before
        assert many * size < counted < many * 50_000
        assert taken < many * 60_000 and counted > taken * 0.7, (taken, counted)
        client.call("CONFIG", "SET", "maxmemory-clients", "1mb")
        with socket.create_connection(("127.0.0.1", content.port)) as one_more:
            one_more.sendall(head_of(size))
            until(lambda: sum_of(b" tot-mem=") < 1_100_000)
        # Who has not logged in has no body received.
        said = content.raw(b"PUT /content/x HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 401") and b"connection: close" in said.lower()


def has_more(peer):
    """Whether a peer has said something, or has closed."""
    return bool(select.select([peer], [], [], 0)[0])


def test_a_body_that_breaks_off_leaves_nothing(content):
    body = random.Random(3).randbytes(1_000_000)
    head = b"PUT /content/broken HTTP/1.1\r\nHost: x\r\n"
    starts = [
        head + b"Content-Length: 1000000\r\n\r\n" + body[:500_000],
        head + b"Content-Length: 10\r\n\r\nabc",
        head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\n80000\r\n" + body[:300_000],
        head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    ]
    with content.server.connect() as client:
        before = content.server.info()["used_memory"]
        for start in starts:
            with socket.create_connection(("127.0.0.1", content.port), timeout=60) as peer:
                peer.sendall(start)
                peer.shutdown(socket.SHUT_WR)
                answer = said(peer)
                assert not answer or answer.startswith(b"HTTP/1.1 400"), answer
            with socket.create_connection(("127.0.0.1", content.port), timeout=60) as peer:
                peer.sendall(start)
        until(lambda: client.call("CLIENT", "LIST")[1].count(b"lib-name=http") == 0)
        assert client.call("KEYS", "*broken*") == ("*", [])
        until(lambda: int(content.server.info()["used_memory"]) < int(before) + 300_000)


NOISE = [
    b"\r\n\r\n", b"GET\r\n\r\n", b"GET /content/x\r\n\r\n", b"GET /content/x HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
    b"*1\r\n$4\r\nPING\r\n", b"GET /content/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"GET /content/x HTTP/1.1\r\nHost : x\r\n\r\n",
    b"PUT /content/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", b"GET /content/\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 100,
    b"GET /content/x HTTP/1.1\r\nHost: x\r\nRange: bytes=" + b"0-0," * 3000 + b"\r\nConnection: close\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04" + b"\xff" * 2000,
]  # fmt: skip


def test_noise(content):
    """Whatever comes is answered or ended, and nobody else is disturbed."""
    chance = random.Random(4)
    for noise in NOISE + [chance.randbytes(chance.randrange(1, 3000)) for _ in range(40)]:
        with socket.create_connection(("127.0.0.1", content.port), timeout=60) as peer:
            with contextlib.suppress(OSError):
                peer.sendall(noise)
                peer.shutdown(socket.SHUT_WR)
                answer = said(peer)
                assert not answer.startswith(b"HTTP/1.1 2"), (noise, answer)
    for noise in NOISE:
        changed = bytearray(b"GET /content/x HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"a\", W/\"b\"\r\nRange: bytes=0-1,3-\r\n\r\n")
        for _ in range(4):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        with socket.create_connection(("127.0.0.1", content.port), timeout=60) as peer:
            peer.sendall(changed)
            peer.shutdown(socket.SHUT_WR)
            said(peer)
    assert content.put("fine", b"x")[0] in (201, 204)


def test_large_bodies_hold_nobody_up(content):
    """Who fetches 20 MB and reads nothing, and who puts as much slowly, costs a bounded
    amount, and small requests go on."""
    body = random.Random(5).randbytes(20_000_000)
    content.put("huge", body)
    used = int(content.server.info()["used_memory"])
    readers = []
    for _ in range(8):
        peer = socket.create_connection(("127.0.0.1", content.port), timeout=60)
        peer.sendall(b"GET /content/huge HTTP/1.1\r\nHost: x\r\n\r\n")
        readers.append(peer)
    with socket.create_connection(("127.0.0.1", content.port), timeout=60) as writer:
        writer.sendall(b"PUT /content/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n")
        for n in range(10):
            writer.sendall(body[n * 100_000 : (n + 1) * 100_000])
            assert content.put("small", b"x")[0] in (201, 204) and content.get("small")[1] == b"x"
        assert int(content.server.info()["used_memory"]) < used + 20_000_000
        writer.sendall(body[1_000_000:])
        assert writer.recv(100).startswith(b"HTTP/1.1 201")
    first = readers.pop()
    received = said_bytes(first, 20_000_000)
    assert received == body
    [peer.close() for peer in readers]
    assert content.get("slow")[1] == body
    for key in ("huge", "slow"):
        content.ask("DELETE", path_of(key))


def said_bytes(peer, size):
    """The body of an answer of this length."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += peer.recv(1)
    whole = bytearray()
    while len(whole) < size:
        more = peer.recv(1 << 20)
        assert more
        whole += more
    return bytes(whole)


@pytest.fixture
def secure(target, certificates):
    flags = tls.flags(certificates, servers.free_port(), "optional")
    server = serving(target, *flags, "--content-tls", "yes").start()
    yield Content(server, tls.trusting(certificates))
    server.stop()


def test_tls(secure, certificates):
    body = random.Random(6).randbytes(2_000_000)
    assert secure.put("k", body)[0] == 201
    assert secure.get("k")[1] == body
    assert secure.get("k", Range="bytes=1000000-1000009")[1] == body[1_000_000:1_000_010]
    with secure.server.connect() as client:
        client.call("ACL", "SETUSER", "someone", "on", "~k", "+get")
        client.call("CONFIG", "SET", "tls-auth-clients-user", "CN")
        client.call("ACL", "SETUSER", "default", "off")
    assert secure.get("k")[0] == 401
    named = Content(secure.server, tls.trusting(certificates, "client"))
    assert named.get("k")[1] == body and named.put("k", b"x")[0] == 403


@pytest.mark.skipif(not CURL, reason="curl is not installed")
@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_curl(content, version, tmp_path):
    body = random.Random(7).randbytes(3_000_000)
    (tmp_path / "body").write_bytes(body)
    url = f"http://127.0.0.1:{content.port}/content/curl"

    def curl(*words):
        done = subprocess.run([CURL, "--silent", "--show-error", version, *words], capture_output=True, check=True, timeout=60)
        return done.stdout

    code = ["--output", str(tmp_path / "out"), "--write-out", "%{http_code} %{http_version} "]
    shown = "2" if "2" in version.replace("--http1", "") else "1.1"
    assert curl(*code, "--upload-file", str(tmp_path / "body"), url).split()[1].decode() == shown
    assert curl(url) == body
    assert curl("--range", "5-9", url) == body[5:10]
    tag = curl("--head", url).decode().lower().split("etag: ")[1].split()[0]
    assert curl(*code, "--header", f"If-None-Match: {tag}", url).startswith(b"304")
    # Many at once on one connection.
    urls = [f"{url}?n={n}" for n in range(20)]
    assert curl("--parallel", "--parallel-immediate", *urls).count(body[:50]) == 20
    assert curl(*code, "--request", "DELETE", url).startswith(b"204")


@pytest.mark.skipif(not CURL, reason="curl is not installed")
def test_curl_in_tls_speaks_http_2(secure, certificates):
    done = subprocess.run(
        [CURL, "--silent", "--cacert", str(certificates / "ca.crt"), "--write-out", "%{http_version}", "--upload-file", "-", f"https://localhost:{secure.port}/content/k"],
        input=b"x" * 100_000, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == b"2" and secure.get("k")[1] == b"x" * 100_000
