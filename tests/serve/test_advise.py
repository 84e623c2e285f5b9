"""`snug advise`: what it reads, and how it ends where it cannot. How near it comes to what
is used then, `make advise` tells."""

import json
import subprocess

import pytest

import advise
from harness import servers

pytestmark = pytest.mark.snug_only
MOST_OFF = 0.10


@pytest.fixture(scope="module")
def redis():
    redis = servers.redis()
    yield redis
    redis.stop()


def run(target, source, *flags, code=0):
    words = [target.path, "advise", str(source), "--cpu-percent", "100", *map(str, flags)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def url(server, login=""):
    return f"redis://{login}127.0.0.1:{server.port}"


def changes(redis):
    return redis.info()["rdb_changes_since_last_save"]


def fill(connection):
    """All types, in two databases, with keys and values of any bytes."""
    call = connection.call
    for db in (0, 3):
        call("SELECT", db)
        for n in range(200):
            call("SET", f"page:{n}", f"<html><body>page {n} of db {db}</body></html>" * 5)
            call("HSET", f"user:{n}:mail", "name", f"name {n}", "mail", f"{n}@example.org", "\xff\x00\r\n", n)
            call("SET", f"session:{n}", n, *(["EX", 5000] if n % 2 else []))
        call("SET", b"\xff\x00\r\n<b>", b"\x00\xff" * 40)
        call("SET", "", "")
        call("SETRANGE", "large", 3_000_000, "x")
        call("PFADD", "sketch", *range(100))
        call("RPUSH", "queue", *range(2500))
        call("SADD", "tags", *(f"tag {n}" for n in range(2500)))
        call("ZADD", "board", *(word for n in range(2500) for word in (n / 7, f"player {n}")))
        for n in range(1200):
            call("XADD", "events", "*", "kind", "read", "number", n)
        call("XGROUP", "CREATE", "events", "group", 0)
        call("XREADGROUP", "GROUP", "group", "consumer", "COUNT", 50, "STREAMS", "events", ">")


def test_an_account_that_may_read_is_enough(target, redis, tmp_path):
    with redis.connect() as connection:
        fill(connection)
        before = changes(redis)
        connection.call("ACL", "SETUSER", "reader", "on", ">p@ss", "~*", "+@read", "+@connection", "+info")
    page = tmp_path / "page.html"
    told = json.loads(run(target, url(redis, "reader:p%40ss@"), "--json", "--html", page))
    assert told["source"] == url(redis), "a password is not told"
    assert told["keys"] == told["keys_seen"] == told["values_read"] == 2 * 608
    assert {shape["kind"] for shape in told["snug"]["shapes"]} == {"string", "hash", "list", "set", "zset", "stream"}
    shapes = {shape["shape"]: shape for shape in told["snug"]["shapes"]}
    assert shapes[r"\xff\x00\r\n<b>"]["keys"] == 2
    assert shapes["large"]["raw"] == 2 * 3_000_001
    assert 0.4 < shapes["session:#"]["expiring"] < 0.6
    assert any("CONFIG GET" in denied for denied in told["facts"]["denied"])
    assert any("session:#" in line for line in told["advice"]["staying"]), "half of them never expire"
    assert [large["key"] for large in told["advice"]["large"]] == ["large", "large"]
    text = page.read_text()
    assert text.count("<svg") == 2 and "&lt;b&gt;" in text and "<b>" not in text
    assert changes(redis) == before


def test_a_file_is_enough(target, redis):
    with redis.connect() as connection:
        connection.call("FLUSHALL")
        fill(connection)
        connection.call("SAVE")
    told = json.loads(run(target, redis.directory / "dump.rdb", "--json"))
    assert told["keys"] == told["values_read"] == 2 * 608 and told["facts"]["functions"] == 0
    served = json.loads(run(target, url(redis), "--json"))
    told, served = (report["snug"]["cooled"]["value"] for report in (told, served))
    assert abs(told / served - 1) < MOST_OFF, (told, served)


def test_what_is_predicted_comes_true(target):
    """A short form of `make advise`: some of its workloads, a part of their size, in one server."""
    predicted, actual, told = advise.compare(target, ["hash-profiles", "stream-events"], scale=0.1)
    assert abs(predicted / actual - 1) < MOST_OFF, (predicted, actual)
    assert actual < told["source_bytes"]


def test_a_large_collection_that_is_alone_is_read_whole(target, redis):
    count = 150_000
    with redis.connect() as connection:
        connection.call("FLUSHALL")
        for first in range(0, count, 1000):
            connection.call("SADD", "ints", *(n * 7919 % 10_000_019 for n in range(first, first + 1000)))
    told = json.loads(run(target, url(redis), "--json"))["snug"]
    whole = json.loads(run(target, url(redis), "--json", "--elements-of-key", count))["snug"]
    assert told["shapes"][0]["raw"] == whole["shapes"][0]["raw"] >= 4 * count


def test_nothing_is_predicted_from_nothing(target, redis):
    with redis.connect() as connection:
        connection.call("FLUSHALL")
    assert "nothing to predict from" in run(target, url(redis))


def test_why_it_cannot_is_said_in_a_line(target, redis, tmp_path):
    with redis.connect() as connection:
        connection.call("FLUSHALL")
        connection.call("SET", "key", "value")
        connection.call("ACL", "SETUSER", "nobody", "on", ">secret", "+info", "+ping", "+client")
    broken = tmp_path / "dump.rdb"
    broken.write_bytes(b"REDIS0010\xfe\x00")
    cases = {
        f"redis://127.0.0.1:{servers.free_port()}": "cannot reach",
        url(redis, "nobody:wrong@"): "WRONGPASS",
        url(redis, "nobody:secret@"): "ACL SETUSER advise",
        f"rediss://127.0.0.1:{redis.port}": "does it speak TLS",
        "http://db": "is to begin with redis://",
        broken: "the end is missing",
        tmp_path / "none.rdb": "",
    }
    for source, part in cases.items():
        flags = ["--insecure"] if str(source).startswith("rediss") else []
        text = run(target, source, *flags, code=1)
        assert part in text and text.startswith("snug advise: ") and len(text.splitlines()) == 1, text
        assert "secret" not in text
