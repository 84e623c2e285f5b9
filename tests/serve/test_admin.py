"""The admin port: who is let in, what hostile and slow peers get, the policy over
HTTP, and metrics that parse in both formats and say what INFO says."""

import contextlib
import http.client
import json
import pathlib
import random
import re
import shutil
import socket
import subprocess
import threading
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from harness import servers
from harness.packing import NEVER, about, until
from test_policy import AT_ONCE, BAD, PNG, VALUE, policy

pytestmark = pytest.mark.snug_only

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TOKEN = "s3cret-token"
OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Admin:
    """A server with an admin port."""

    def __init__(self, server):
        self.server, self.port = server, int(server.command[server.command.index("--admin-port") + 1])

    def ask(self, path, method="GET", token=TOKEN, body=None, headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = dict(headers)
        if token is not None:
            headers.setdefault("Authorization", f"Bearer {token}")
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def raw(self, *pieces, pause=0):
        """Sends bytes and reads until the server closes; what it said."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as peer:
            try:
                for piece in pieces:
                    peer.sendall(piece)
                    time.sleep(pause)
                said = b""
                while more := peer.recv(65536):
                    said += more
                return said
            except (ConnectionResetError, BrokenPipeError):
                return b""

    def metrics(self, accept=""):
        status, text, headers = self.ask("/metrics", headers={"Accept": accept})
        assert status == 200
        is_open = headers["Content-Type"].startswith("application/openmetrics-text")
        return list((parse_open if is_open else parse_plain)(text)), headers["Content-Type"], text

    def value(self, name, **labels):
        found = [s.value for family in self.metrics()[0] for s in family.samples if s.name == name and labels.items() <= s.labels.items()]
        assert len(found) <= 1, found
        return found[0] if found else None


def admin_server(target, *flags, **how):
    return target.server("--admin-port", str(servers.free_port()), "--enable-debug-command", "local", *flags, **how)


@pytest.fixture
def admin(target, request):
    server = admin_server(target, "--admin-token", TOKEN, *getattr(request, "param", NEVER)).start()
    yield Admin(server)
    print(server.log())
    assert server.stop() == 0


def threads(server):
    return {path.read_text().strip() for path in pathlib.Path(f"/proc/{server.pid}/task").glob("*/comm")}


def test_it_is_off_unless_it_is_asked_for(target, admin):
    server = target.start()
    try:
        assert "admin" not in threads(server) and "admin" in threads(admin.server)
        assert not (server.directory / "snug-admin.token").exists()
    finally:
        server.stop()
    assert not (admin.server.directory / "snug-admin.token").exists(), "a token was given"


def test_a_token_is_made_and_kept(target):
    server = admin_server(target)
    path = server.directory / "snug-admin.token"
    server.start()
    try:
        token = path.read_text().strip()
        assert path.stat().st_mode & 0o777 == 0o600 and len(token) == 40
        assert token not in server.log()
        until(lambda: "the admin port listens" in server.log())
        listens = next(line for line in server.log().splitlines() if "the admin port listens" in line)
        assert f"127.0.0.1:{Admin(server).port}" in listens and str(path.resolve()) in listens
        assert Admin(server).ask("/metrics", token=token)[0] == 200
        assert Admin(server).ask("/metrics", token="")[0] == 401
        server.process.terminate()
        server.process.wait(30)
        server.start()
        assert Admin(server).ask("/metrics", token=token)[0] == 200, "the same after a restart"
    finally:
        server.stop()


@pytest.mark.parametrize("content", ["", "two words", "x" * 2000])
def test_a_bad_token_file_refuses_to_start(target, content):
    server = admin_server(target)
    (server.directory / "snug-admin.token").write_text(content)
    done = subprocess.run(server.command, cwd=server.directory, capture_output=True, text=True, timeout=30)
    said = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode == 1 and len(said) == 1 and "admin-token-file" in said[0], said


def test_a_port_that_is_taken_refuses_to_start(target, admin):
    server = target.server("--admin-port", str(admin.port), "--admin-token", "x")
    done = subprocess.run(server.command, capture_output=True, text=True, timeout=30)
    said = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode == 1 and len(said) == 1 and "admin-port" in said[0], said


def test_no_token_is_made_for_a_port_that_is_taken(target, admin):
    server = target.server("--admin-port", str(admin.port))
    done = subprocess.run(server.command, cwd=server.directory, capture_output=True, text=True, timeout=30)
    said = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode == 1 and len(said) == 1 and "admin-port" in said[0], said
    assert not (server.directory / "snug-admin.token").exists()


def test_who_is_let_in(admin):
    for path in ("/healthz", "/readyz"):
        status, text, _ = admin.ask(path, token=None)
        assert (status, text) == (200, {"/healthz": "ok\n", "/readyz": "ready\n"}[path])
        assert admin.ask(path, "HEAD", token=None)[:2] == (200, "")
    for token in (None, "", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), " "):
        for path, method in [("/metrics", "GET"), ("/content/config", "GET"), ("/content/config", "PUT"), ("/nosuch", "GET")]:
            status, text, headers = admin.ask(path, method, token=token)
            assert status == 401 and "error" in json.loads(text), (path, token)
            assert headers["WWW-Authenticate"].startswith("Bearer")
    for header in (TOKEN, f"Basic {TOKEN}", "Bearer", "bearer", "B"):
        assert admin.ask("/metrics", token=None, headers={"Authorization": header})[0] == 401
    assert admin.ask("/metrics", token=None, headers={"Authorization": f"bearer {TOKEN}"})[0] == 200
    with admin.server.connect() as c:
        c.call("CONFIG", "SET", "admin-token", "another", "slowlog-log-slower-than", "0")
        assert admin.ask("/metrics")[0] == 401
        assert admin.ask("/metrics", token="another")[0] == 200
        for cannot in ("a\nb", "a\tb", " a", "a ", "a\x7f", "\r\n"):
            kind, said = c.call("CONFIG", "SET", "admin-token", cannot)
            assert kind == "-" and b"what an HTTP header can carry" in said, cannot
            assert admin.ask("/metrics", token="another")[0] == 200
        c.call("CONFIG", "SET", "admin-token", "two words")
        assert admin.ask("/metrics", token="two words")[0] == 200
        c.call("CONFIG", "SET", "admin-token", "hidden-now")
        assert b"hidden-now" not in repr(c.call("SLOWLOG", "GET")).encode()


def test_paths_and_methods_that_are_not_there(admin):
    for path in ("/", "/nosuch", "/metrics/", "/content", "/../metrics"):
        status, text, _ = admin.ask(path)
        assert status == 404 and "error" in json.loads(text), path
    for path, allowed in [("/metrics", "GET, HEAD"), ("/content/config", "GET, HEAD, PUT"), ("/healthz", "GET, HEAD")]:
        for method in ("POST", "DELETE", "OPTIONS"):
            status, _, headers = admin.ask(path, method)
            assert (status, headers["Allow"]) == (405, allowed)
    assert admin.ask("/metrics?name=x")[0] == 200


def test_requests_that_are_none_or_too_large(admin):
    head = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    assert b" 200 " in admin.raw(head + b"\r\n")[:20]
    assert admin.raw(head + b"X: " + b"x" * 100_000 + b"\r\n\r\n")[:12] in (b"HTTP/1.1 431", b"")
    assert admin.raw(head + b"".join(b"X%d: y\r\n" % n for n in range(500)) + b"\r\n")[:12] in (b"HTTP/1.1 431", b"")
    assert admin.raw(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n")[:12] in (b"HTTP/1.1 414", b"HTTP/1.1 431", b"")
    for nonsense in (b"*1\r\n$4\r\nPING\r\n", b"\0" * 5000, b"GET\r\n\r\n"):
        assert admin.raw(nonsense)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431", b"")
    assert admin.ask("/healthz", token=None)[0] == 200


def test_slow_peers_are_cut_off_and_keep_nobody_out(admin):
    head = f"PUT /content/config HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n".encode()
    idle = [socket.create_connection(("127.0.0.1", admin.port)) for _ in range(100)]
    # A hundred that say nothing fill every place; each is given up in its time.
    assert admin.ask("/healthz", token=None)[0] == 200
    for peer in idle:
        peer.close()
    said = []
    slow = [lambda: said.append(admin.raw(b"GET /metrics HTTP/1.1\r\n")), lambda: said.append(admin.raw(head + b"{"))]
    waiting = [threading.Thread(target=one) for one in slow]
    for one in waiting:
        one.start()
    for one in waiting:
        one.join()
    assert all(b" 200 " not in text[:20] for text in said), said
    assert policy_over_http(admin) == "{}\n"
    with admin.server.connect() as c:
        assert c.call("PING") == ("+", b"PONG")


def test_half_sent_heads_keep_nobody_out(admin):
    halves = []
    for _ in range(60):
        halves.append(socket.create_connection(("127.0.0.1", admin.port)))
        halves[-1].sendall(b"GET /heal")
    time.sleep(0.2)
    for _ in range(10):
        begun = time.monotonic()
        assert admin.ask("/healthz", token=None)[0] == 200
        assert time.monotonic() - begun < 2
    # The first gave their places up, the last have theirs still.
    halves[0].settimeout(1)
    with contextlib.suppress(ConnectionResetError):
        assert halves[0].recv(100) == b""
    halves[-1].sendall(b"thz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert halves[-1].recv(1000).startswith(b"HTTP/1.1 200 ")
    for peer in halves:
        peer.close()


def test_slow_bodies_keep_nobody_out(admin):
    head = f"PUT /content/config HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n".encode()
    slow = []
    for _ in range(40):
        slow.append(socket.create_connection(("127.0.0.1", admin.port)))
        slow[-1].sendall(head + b"{")
    assert admin.ask("/healthz", token=None)[0] == 200
    # Of the 32 first, the later ones have their places still: health waited for
    # nobody's end.
    slow[20].sendall(b" " * 998 + b"}")
    assert slow[20].recv(1000).startswith(b"HTTP/1.1 200 ")
    for peer in slow:
        peer.close()


def test_a_body_that_is_announced_too_long_is_refused_at_once(admin):
    begun = time.monotonic()
    head = f"PUT /content/config HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 99999999999\r\n\r\n"
    said = admin.raw(head.encode() + b"{}")
    assert said.startswith(b"HTTP/1.1 413 ") and b"longer than 262144 bytes" in said, said
    assert time.monotonic() - begun < 4
    assert policy_over_http(admin) == "{}\n"


def policy_over_http(admin):
    status, text, headers = admin.ask("/content/config")
    assert status == 200 and headers["Content-Type"] == "application/json"
    return text


@pytest.mark.parametrize("admin", [AT_ONCE], indirect=True)
def test_the_policy_over_http(admin):
    with admin.server.connect() as c:
        c.call("SET", "doc:1", VALUE)
        until(lambda: about(c, "doc:1")[b"codec"] == b"zstd")
        rules = {"level": 5, "rules": [{"key": "doc:*", "codec": "lz4"}]}
        status, text, _ = admin.ask("/content/config", "PUT", body=json.dumps(rules))
        assert status == 200 and json.loads(text) == rules
        assert json.loads(policy(c)) == json.loads(policy_over_http(admin)) == rules
        until(lambda: about(c, "doc:1")[b"codec"] == b"lz4")
        for body, why in [*BAD, (b"\xff", "not UTF-8"), ("", "no policy"), (" \n", "no policy")]:
            status, text, _ = admin.ask("/content/config", "PUT", body=body)
            assert status == (413 if "262144" in why else 400), (status, why)
            assert why in json.loads(text)["error"]
        assert json.loads(policy(c)) == rules, "what cannot be leaves what is"


def test_metrics_in_both_formats(admin):
    with admin.server.connect() as c:
        c.call("SET", "k", "v")
        c.call("XADD", "s", "*", "f", "v")
        c.call("NOSUCH")
    plain, kind, text = admin.metrics("text/plain")
    assert kind.startswith("text/plain; version=0.0.4") and "# EOF" not in text
    opened, kind, text = admin.metrics(OPEN_METRICS)
    assert kind.startswith("application/openmetrics-text; version=1.0.0") and text.endswith("# EOF\n")
    names = lambda families: {sample.name for family in families for sample in family.samples}
    assert names(plain) == names(opened)
    told = {f.name: (f.type, f.documentation) for f in opened}
    # OpenMetrics has no summary whose quantiles are percents.
    for name in [name for name, (kind, _) in told.items() if kind == "unknown"]:
        kind, text = told.pop(name)
        if not name.endswith(("_sum", "_count")):
            told[name] = ("summary", text)
    assert told == {f.name.removesuffix("_total"): (f.type, f.documentation) for f in plain}
    for family in plain:
        assert family.documentation and family.samples, family.name
        assert family.type in ("gauge", "counter", "histogram", "summary"), family.name


def test_metrics_say_what_info_says(admin):
    with admin.server.connect() as c:
        for n in range(50):
            c.call("SET", f"key:{n}", n)
            c.call("GET", f"key:{n}")
        c.call("GET", "nosuch")
        c.call("EXPIRE", "key:1", 1000)
        c.call("INCR", "key:1", "x")
        c.call("SELECT", 3)
        c.call("SET", "other", "x")
    info = admin.server.info()
    assert info["db0"].startswith("keys=50,expires=1,")
    samples = {(s.name, *sorted(s.labels.items())): s.value for f in admin.metrics()[0] for s in f.samples}
    source = (DOCS.parent / "crates/server/src/admin/metrics/exporter.rs").read_text()
    rows = re.findall(r'^ +\(\s*"(\w+)",\s*"(redis_\w+)",\s*(\w+),\s*"', source, re.MULTILINE)
    assert len(rows) > 80
    moving = re.compile(r"memory|allocator|fragmentation|cpu|uptime|instantaneous|net_|rss|frag|commands_processed|connections_received|reads_|writes_|clients$|clients_normal|expire_cycle|max_.*put_buffer")
    for field, name, kind in rows:
        value = samples[(name + ("_total" if kind == "Counter" else ""),)]
        if not moving.search(name):
            wanted = float(info[field] == "ok") if kind == "Status" else float(info[field])
            assert value == wanted, (field, value, info[field])
    assert samples[("redis_keyspace_hits_total",)] == 50 and samples[("redis_keyspace_misses_total",)] == 1
    assert samples[("redis_db_keys", ("db", "db0"))] == 50 and samples[("redis_db_keys", ("db", "db3"))] == 1
    assert samples[("redis_db_keys_expiring", ("db", "db0"))] == 1
    for db in range(16):
        assert samples[("redis_db_keys", ("db", f"db{db}"))] == {0: 50, 3: 1}.get(db, 0)
        assert samples[("redis_db_keys_expiring", ("db", f"db{db}"))] == {0: 1}.get(db, 0)
        assert (("redis_db_avg_ttl_seconds", ("db", f"db{db}")) in samples) == (db in (0, 3))
    assert samples[("redis_commands_total", ("cmd", "get"))] == 51
    assert samples[("redis_commands_rejected_calls_total", ("cmd", "incr"))] == 1
    assert samples[("redis_errors_total", ("err", "ERR"))] == 1
    assert samples[("snug_command_seconds_count", ("cmd", "set"))] == 51
    assert samples[("snug_command_seconds_bucket", ("cmd", "set"), ("le", "+Inf"))] == 51
    assert abs(samples[("redis_memory_used_bytes",)] - float(info["used_memory"])) < 4e6
    assert samples[("redis_up",)] == 1
    with admin.server.connect() as c:
        c.call("CONFIG", "SET", "latency-tracking-info-percentiles", "50 99.9")
        stats = c.call("INFO", "latencystats", "commandstats")[1].decode()
    for accept in ("text/plain", OPEN_METRICS):
        samples = {(s.name, *sorted(s.labels.items())): s.value for f in admin.metrics(accept)[0] for s in f.samples}
        told = re.search(r"latency_percentiles_usec_get:p50=([\d.]+),p99.9=([\d.]+)\r", stats)
        for percent, usec in zip(("50", "99.9"), told.groups()):
            assert samples[("redis_latency_percentiles_usec", ("cmd", "get"), ("quantile", percent))] == float(usec)
        calls, usec = re.search(r"cmdstat_get:calls=(\d+),usec=(\d+)", stats).groups()
        assert samples[("redis_latency_percentiles_usec_count", ("cmd", "get"))] == int(calls)
        assert samples[("redis_latency_percentiles_usec_sum", ("cmd", "get"))] == int(usec)
    assert abs(samples[("redis_start_time_seconds",)] + float(admin.server.info()["uptime_in_seconds"]) - time.time()) < 3


# Without dictionaries, or "zstd" might have become "phrases" by the time one looks.
@pytest.mark.parametrize("admin", [[*AT_ONCE, "--pack-dictionary-size", "0"]], indirect=True)
def test_metrics_of_packing(admin):
    with admin.server.connect() as c:
        c.call("SNUG", "POLICY", "SET", '{"rules": [{"key": "l:*", "codec": "lz4"}, {"key": "n:*", "codec": "none"}], "level": 5}')
        for n in range(300):
            c.call("SET", f"l:{n}", VALUE)
            c.call("SET", f"n:{n}", VALUE)
            c.call("SET", f"png:{n}", PNG)
            c.call("XADD", "s", "*", "field", f"value {n}" * 10)
        for n in range(300):
            until(lambda: about(c, f"l:{n}")[b"codec"] == b"lz4")
            until(lambda: about(c, f"png:{n}")[b"codec"] == b"zstd")
            assert c.call("GET", f"png:{n}") == ("$", PNG)
        until(lambda: about(c, "s")[b"codec"] == b"zstd")
    info = admin.server.info()
    for codec, level, mime in [("lz4", "0", "application"), ("zstd", "5", "image")]:
        labels = {"type": "string", "codec": codec, "level": level, "mime": mime}
        assert admin.value("snug_packing_values_total", **labels) >= 300
        assert admin.value("snug_packing_raw_bytes_total", **labels) > 2 * admin.value("snug_packing_packed_bytes_total", **labels) > 0
    left = {"type": "string", "codec": "none", "level": "0", "mime": "application"}
    assert admin.value("snug_packing_values_total", **left) >= 300
    assert admin.value("snug_packing_raw_bytes_total", **left) == admin.value("snug_packing_packed_bytes_total", **left) >= 300 * len(VALUE)
    assert admin.value("snug_packing_values_total", type="stream", codec="zstd") >= 1
    assert admin.value("snug_packed_bytes", type="string") > 0
    assert admin.value("snug_value_bytes", type="stream") == float(info["raw_bytes_stream"])
    assert admin.value("snug_packed_ratio") > 2
    assert admin.value("snug_family_left_by_policy_total", type="string", family="n:#") >= 300
    assert admin.value("snug_family_raw_bytes_total", type="string", family="l:#") > 2 * admin.value("snug_family_packed_bytes_total", type="string", family="l:#")
    assert admin.value("snug_pack_seconds_count", type="string") >= 600
    assert admin.value("snug_pack_seconds_count", type="stream") >= 1
    assert admin.value("snug_unpack_seconds_count", type="string") >= 300 // 16
    assert 0 < admin.value("snug_sweeper_turn_longest_seconds") and 0 < admin.value("snug_sweeper_share") <= 1


MB = 1_000_000
WORDS = b"packed raw segment chain slot " * 7 + b"and so on, "


def large(size, seed=0):
    """A text of that size, of which no two segments are alike."""
    lines = (b"%d %d %s" % (seed, n * 7919, WORDS) for n in range(size // len(WORDS) + 1))
    return b"".join(lines)[:size]


def values(admin):
    """Raw and packed values by type, which INFO tells as /metrics does."""
    info = admin.server.info()
    told = {name: (int(info[f"values_raw_{name}"]), int(info[f"values_packed_{name}"])) for name in ("string", "stream")}
    for name, counts in told.items():
        assert tuple(admin.value("snug_values", type=name, state=state) for state in ("raw", "packed")) == counts
    return told


@pytest.mark.parametrize("admin", [NEVER], indirect=True)
def test_values_are_counted_by_type_and_state(admin):
    with admin.server.connect() as c:
        assert values(admin) == {"string": (0, 0), "stream": (0, 0)}
        for key, value in {"int": 7, "text": VALUE, "other": VALUE, "large": large(MB), "noise": large(MB)}.items():
            c.call("SET", key, value)
        assert values(admin)["string"] == (5, 0)
        for key in ("text", "large"):
            assert c.call("SNUG", "PACK", key) == (":", 1)
        assert values(admin)["string"] == (3, 2)
        c.call("SET", "large", "small and raw")
        c.call("COPY", "text", "copy")
        c.call("SELECT", 3)
        c.call("SET", "text", "x")
        c.call("SELECT", 0)
        assert values(admin)["string"] == (5, 2)
        c.call("APPEND", "copy", "more")
        c.call("RENAME", "text", "renamed")
        c.call("DEL", "int")
        assert values(admin)["string"] == (5, 1)
        for n in range(2000):
            c.call("XADD", "log", "*", "field", f"the value {n} " * 10)
        c.call("XADD", "short", "*", "field", "value")
        until(lambda: int(admin.server.info()["blocks_packed"]) > 0)
        assert values(admin) == {"string": (5, 1), "stream": (1, 1)}
        c.call("XTRIM", "log", "MAXLEN", "0")
        assert values(admin)["stream"] == (2, 0)
        c.call("SET", "log", "of another type")
        assert values(admin) == {"string": (6, 1), "stream": (1, 0)}
        c.call("FLUSHALL", "SYNC")
        assert values(admin) == {"string": (0, 0), "stream": (0, 0)}


def counted(admin, name, **labels):
    return admin.value(name, **labels) or 0


@pytest.mark.parametrize("admin", [NEVER], indirect=True)
def test_large_values_are_counted_as_others_are(admin):
    labels = {"type": "string", "codec": "zstd", "level": "1"}
    groups = ["application", "text"]  # JSON, and large()'s lines
    outcome = lambda: tuple(sum(counted(admin, f"snug_packing_{what}_total", mime=group, **labels) for group in groups) for what in ("values", "raw_bytes", "packed_bytes"))
    packings = lambda: counted(admin, "snug_pack_seconds_count", type="large_string")
    unpackings = lambda: counted(admin, "snug_unpack_seconds_count", type="large_string")
    value = large(MB)
    segments = -(-MB // 131_072)
    with admin.server.connect() as c:
        c.call("SET", "small", VALUE)
        assert c.call("SNUG", "PACK", "small") == (":", 1)
        small = int(about(c, "small")[b"packed-bytes"])
        assert outcome() == (1, len(VALUE), small)
        assert (packings(), unpackings()) == (0, 0)
        c.call("SET", "doc", value)
        assert c.call("SNUG", "PACK", "doc") == (":", 1)
        form = int(about(c, "doc")[b"packed-bytes"])
        assert outcome() == (2, len(VALUE) + MB, small + form)
        assert packings() == 1 and 0 < admin.value("snug_pack_seconds_sum", type="large_string") < 10
        assert c.call("GETRANGE", "doc", 0, 9)[1] == value[:10]
        assert unpackings() == 1, "the segment that it lies in"
        assert c.call("GET", "doc") == ("$", value)
        assert unpackings() == 1 + segments
        assert c.call("APPEND", "doc", "!") == (":", MB + 1)
        assert unpackings() == 1 + 2 * segments
        # In a transaction the same is done at once.
        c.call("MULTI")
        c.call("SNUG", "PACK", "doc")
        c.call("SETRANGE", "doc", MB, "?")
        assert c.call("EXEC") == ("*", [(":", 1), (":", MB + 1)])
        assert outcome()[:2] == (3, len(VALUE) + 2 * MB + 1)
        assert (packings(), unpackings()) == (2, 1 + 3 * segments)
        assert admin.value("snug_unpack_seconds_sum", type="large_string") > 0
        # What is not packed is timed and not counted.
        c.call("SET", "noise", random.Random(1).randbytes(MB // 3))
        assert c.call("SNUG", "PACK", "noise") == (":", 0)
        assert (packings(), outcome()[0]) == (3, 3)
        # The policy is told, and the MIME type.
        c.call("SNUG", "POLICY", "SET", '{"rules": [{"key": "pic:*", "codec": "lz4"}]}')
        c.call("SET", "pic:1", PNG + value)
        assert c.call("SNUG", "PACK", "pic:1") == (":", 1)
        labels, groups = {"type": "string", "codec": "lz4", "level": "0"}, ["image"]
        assert outcome() == (1, len(PNG) + MB, int(about(c, "pic:1")[b"packed-bytes"]))


@pytest.mark.parametrize("admin", [["--pack-cold-after", "60"]], indirect=True)
def test_large_values_that_are_packed_ahead_are_counted(admin):
    limit, count = 64 * MB, 50
    with admin.server.connect() as c:
        c.call("CONFIG", "SET", "maxmemory", limit)
        for n in range(count):
            assert c.call("SET", f"doc:{n}", large(MB, n)) == ("+", b"OK")
        until(lambda: float(admin.server.info()["memory_pressure"]) == 0)
        c.call("CONFIG", "SET", "pack", "no")
        info = admin.server.info()
        ahead, saved, packed = (int(info[name]) for name in ("strings_packed_ahead", "saved_bytes_ahead", "values_packed_string"))
        assert 0 < ahead <= packed <= count, "what was due when there was room again is packed too"
        assert ahead * MB // 2 < saved <= int(info["saved_bytes"])
        assert admin.value("snug_strings_packed_ahead_total") == ahead
        assert admin.value("snug_packing_raw_bytes_total", type="string", codec="zstd") == packed * MB


def change_at_once(connections, keys, size):
    """Has each client change its large packed value, all at the same time."""
    for connection, key in zip(connections, keys):
        assert connection.call("SNUG", "PACK", key) == (":", 1)
    for connection, key in zip(connections, keys):
        connection.send("SETRANGE", key, size - 1, ".")
    for connection in connections:
        assert connection.reply() == (":", size)


def workspaces(admin):
    return {state: admin.value("snug_workspaces", state=state) for state in ("in_use", "free")}


@pytest.fixture(params=[1, 6])
def one_worker(target, request):
    """A server with one worker, and how many workspaces that has."""
    flags = ["--pack-workspaces", str(request.param), "--pack-slice-us", "50", *NEVER]
    server = admin_server(target, "--admin-token", TOKEN, *flags, workers=1).start()
    yield Admin(server), request.param
    assert server.stop() == 0


def test_workspaces_are_waited_for_where_there_are_too_few(one_worker):
    (admin, most), size = one_worker, 4 * MB
    keys = [f"doc:{n}" for n in range(6)]
    enough = most == len(keys)
    assert workspaces(admin) == {"in_use": 0, "free": 0} and admin.value("snug_workspaces_bytes") == 0
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(admin.server.connect()) for _ in keys]
        for n, (connection, key) in enumerate(zip(connections, keys)):
            connection.call("SET", key, large(size, n))
            assert connection.call("SNUG", "PACK", key) == (":", 1)
        assert workspaces(admin) == {"in_use": 0, "free": 1}, "one is made, and used by one after the other"
        each = admin.value("snug_workspaces_bytes")
        assert each > 100_000 and admin.value("snug_workspace_waits_total") == admin.value("snug_workspace_wait_seconds_total") == 0
        # How many really come at the same time is up to the machine.
        made = lambda: sum(workspaces(admin).values())
        waits = lambda: admin.value("snug_workspace_waits_total")
        until(lambda: change_at_once(connections, keys, size) or (made() > 1 if enough else waits() > 0))
        assert workspaces(admin)["in_use"] == admin.value("snug_workspaces_waited_for") == 0
        assert admin.value("snug_workspaces_bytes") == each * made()
        info = admin.server.info()
        assert (int(info["workspaces"]), int(info["workspaces_in_use"]), int(info["workspaces_waited_for"])) == (made(), 0, 0)
        assert int(info["workspace_waits"]) == waits()
        if enough:
            assert 1 < made() <= most and waits() == admin.value("snug_workspace_wait_seconds_total") == 0
        else:
            assert made() == 1 and waits() > 0
            assert "times a large value waited for one" in doctor(connections[0])
            assert 0 < admin.value("snug_workspace_wait_seconds_total") and 0 < int(info["workspace_wait_usec"])
        connections[0].call("CONFIG", "RESETSTAT")
        info = admin.server.info()
        assert info["workspace_waits"] == info["workspace_wait_usec"] == "0" and int(info["workspaces"]) == made()


def test_how_many_workspaces_there_may_be_is_settled_at_the_start(target, admin):
    with admin.server.connect() as c:
        assert c.call("CONFIG", "GET", "pack-workspaces")[1][1] == ("$", b"2")
        assert c.call("CONFIG", "SET", "pack-workspaces", "4")[0] == "-"
    for number in ("0", "65", "-1", "two", ""):
        server = target.server("--pack-workspaces", number)
        done = subprocess.run(server.command, capture_output=True, text=True, timeout=30)
        said = (done.stdout + done.stderr).strip().splitlines()
        assert done.returncode == 1 and len(said) == 1 and "pack-workspaces" in said[0], said


@pytest.mark.parametrize("admin", [AT_ONCE], indirect=True)
def test_labels_are_bounded(admin):
    letters = "abcdefghijklmnopqrstuvwxyz"
    with admin.server.connect() as c:
        # Each shape of key has enough to be a family of its own.
        for n in range(12):
            for a in letters:
                for b in letters[:6]:
                    c.call("SET", f'{a}{b}"\\\n:{n}', VALUE * (2400 // len(VALUE)))
        until(lambda: int(admin.server.info()["strings_packed"]) >= 12 * 26 * 6)
    families, _, _ = admin.metrics(OPEN_METRICS)
    rows = {s.labels["family"]: s.value for f in families if f.name == "snug_family_values" for s in f.samples}
    assert len(rows) == 65 and rows["(others)"] >= 26 * 6 - 64
    assert 'aa"\\\n:#' in rows


def metrics_of_the_page():
    return {name: kind for name, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", (DOCS / "metrics.md").read_text(), re.MULTILINE)}


@pytest.mark.parametrize("admin", [AT_ONCE], indirect=True)
def test_every_metric_is_documented(admin):
    with admin.server.connect() as c:
        c.call("SET", "k", VALUE, "EX", "1000")
        # Some are told only while there is an append-only file.
        c.call("CONFIG", "SET", "appendonly", "yes")
        c.call("NOSUCH")
        c.call("CONFIG", "SET", "slowlog-log-slower-than", "0")
        c.call("PING")
        until(lambda: about(c, "k")[b"codec"] == b"zstd")
    found = {f.name + ("_total" if f.type == "counter" else ""): f.type for f in admin.metrics("text/plain")[0]}
    assert metrics_of_the_page() == found


def test_the_dashboard_asks_for_what_there_is():
    board = json.loads((DOCS / "grafana-dashboard.json").read_text())
    documented = metrics_of_the_page()
    known = set(documented) | {f"{n}{s}" for n, kind in documented.items() if kind == "histogram" for s in ("_bucket", "_sum", "_count")}
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(asked) >= 15
    for expr in asked:
        names = set(re.findall(r"\b(?:snug|redis)_\w+", expr))
        assert names and names <= known, expr
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_prometheus_takes_the_example(tmp_path, admin):
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    example = (DOCS / "prometheus.yml").read_text()
    (tmp_path / "snug-admin.token").write_text(TOKEN)
    config = tmp_path / "prometheus.yml"
    config.write_text(example.replace("/var/lib/snug", str(tmp_path)))
    done = subprocess.run([promtool, "check", "config", str(config)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    for accept in ("text/plain", OPEN_METRICS):
        if accept == "text/plain":
            done = subprocess.run([promtool, "check", "metrics"], input=admin.metrics(accept)[2], capture_output=True, text=True, timeout=60)
            assert "error" not in done.stderr.lower(), done.stderr


def doctor(c):
    return c.call("MEMORY", "DOCTOR")[1].decode()


@pytest.mark.parametrize("admin", [[*AT_ONCE, "--pack-cpu-percent", "100"]], indirect=True)
def test_the_doctor_speaks_of_packing(admin):
    with admin.server.connect() as c:
        assert doctor(c).startswith("This server uses little memory")
        c.call("SNUG", "POLICY", "SET", '{"rules": [{"key": "left:*", "codec": "none"}]}')
        rng = random.Random(1)
        for n in range(300):
            c.call("SET", f"noise:{n}", rng.randbytes(20_000))
            c.call("SET", f"left:{n}", VALUE * 20)
            c.call("SET", f"doc:{n}", VALUE)
        until(lambda: "noise:#: 300 values looked at; they are random" in doctor(c))
        until(lambda: "left:#: 300 values looked at; the policy leaves them raw" in doctor(c))
        said = doctor(c)
        assert said.startswith(("Nothing is unusual about the memory", "What is unusual about the memory of this server:"))
        assert "Freed memory" not in said or "MEMORY PURGE gives" in said
        c.call("MEMORY", "PURGE")
        assert "MEMORY PURGE gives" not in doctor(c), "it was followed"
        assert "About packing:" in said and "Family doc:#" not in said
        # Were there no more than a little, nothing would be said of packing.
        noise = rng.randbytes(8_000_000)
        c.call("FLUSHALL")
        c.call("XADD", "s", "*", "f", noise)
        assert "About packing:" in doctor(c) and "Family" not in doctor(c)
        for n in range(300):
            c.call("SET", f"noise:{n}", rng.randbytes(20_000))
        until(lambda: "Family noise:#" in doctor(c))
        assert "Family left:#" not in doctor(c)
        c.call("FLUSHALL")
        assert "0 of 0" not in doctor(c)
        c.call("CONFIG", "SET", "pack", "no")
        c.call("XADD", "s", "*", "f", noise)
        assert "Packing is off" in doctor(c)
