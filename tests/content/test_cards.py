"""What is known of a string follows it: a card is removed when its string is gone or has
other bytes, expires with it, and declares the type that the packing policy goes by."""

import http.client
import json

import pytest

from harness import servers
from harness.content import Content, path_of, serving
from harness.packing import about, until

pytestmark = pytest.mark.snug_only

TEXT = b"some text that packs well, again and again. " * 200
CARD = "snug:content:{k}"


def exists(client, key):
    return client.call("EXISTS", key) == (":", 1)


@pytest.mark.parametrize(
    "commands",
    [
        [("DEL", "k")],
        [("UNLINK", "k")],
        [("GETDEL", "k")],
        [("RENAME", "k", "other")],
        [("MOVE", "k", "1")],
        [("PEXPIREAT", "k", "1")],
        [("PEXPIRE", "k", "50")],
        [("SET", "k", "else")],
        [("APPEND", "k", "x")],
        [("DEL", "k"), ("RPUSH", "k", "a")],
        [("MULTI",), ("DEL", "k"), ("SET", "k", "else"), ("EXEC",)],
        [("EVAL", "return redis.call('DEL', KEYS[1])", "1", "k")],
    ],
    ids=lambda commands: " ".join(commands[-1]),
)
@pytest.mark.parametrize("body", [b"short", TEXT], ids=len)
def test_a_card_goes_with_what_it_is_about(own_content, commands, body):
    own_content.put("k", body, Content_Type="text/html")
    own_content.put("stays", body, Content_Type="text/html")
    with own_content.server.connect() as client:
        assert exists(client, CARD)
        for command in commands:
            assert client.call(*command)[0] != "-"
        until(lambda: not exists(client, CARD), "the card is removed")
        assert exists(client, "snug:content:{stays}")
    assert own_content.get("stays")[2]["Content-Type"] == "text/html"


def test_a_card_stays_while_it_is_right(own_content):
    own_content.put("k", TEXT, Content_Type="text/html")
    with own_content.server.connect() as client:
        # The same bytes, packed or not, and keys of such a name that are no cards.
        client.call("SET", "k", TEXT)
        client.call("SNUG", "PACK", "k")
        client.call("SET", "snug:content:{x}", "mine")
        client.call("HSET", "snug:content:{y}", "a", "b")
        client.call("SET", "x", "1")
        client.call("SET", "y", "1")
        client.call("DEL", "x", "y")
        # Cards expire with their strings.
        client.call("EXPIRE", "k", "1000")
        until(lambda: client.call("TTL", CARD)[1] > 990, "it expires too")
        client.call("PERSIST", "k")
        until(lambda: client.call("TTL", CARD) == (":", -1), "it stays too")
        assert client.call("GET", "snug:content:{x}") == ("$", b"mine") and exists(client, "snug:content:{y}")
    assert own_content.get("k")[2]["Content-Type"] == "text/html"
    own_content.ask("DELETE", path_of("k"))


def test_replicas_and_files_have_it_too(target):
    server = serving(target, "--appendonly", "yes").start()
    content = Content(server)
    replica = serving(target, "--replicaof", f"127.0.0.1 {server.port}").start()
    try:
        with server.connect() as client, replica.connect() as other:
            until(lambda: replica.info()["master_link_status"] == "up")
            assert client.call("DEBUG", "MIRROR", "START")[0] != "-"
            for n in range(200):
                content.put(f"k{n}", TEXT, Content_Type="text/html")
            client.call("DEL", *[f"k{n}" for n in range(0, 200, 2)])
            until(lambda: client.call("DBSIZE") == (":", 200), "cards are removed")
            until(lambda: other.call("DBSIZE") == (":", 200), "at the replica too")
            assert client.call("DEBUG", "MIRROR", "CHECK") == ("+", b"OK")
            client.call("WAIT", "1", "30000")
            digest = client.call("DEBUG", "DIGEST")
            assert other.call("DEBUG", "DIGEST") == digest
        server.process.kill()
        server.process.wait(30)
        server.start()
        with server.connect() as client:
            until(lambda: server.info()["loading"] == "0")
            assert client.call("DEBUG", "DIGEST") == digest
    finally:
        replica.stop()
        server.stop()


def codec(client, key):
    return about(client, key)[b"codec"].decode()


@pytest.mark.parametrize("size", [1, 100], ids=["short", "long"])
def test_the_declared_type_decides_how_a_string_is_packed(own_content, size):
    text = TEXT * size
    policy = {
        "skip": ["image/", "application/zip"],
        "rules": [
            {"mime": "text/css", "codec": "gzip", "level": 9},
            {"mime": "text/csv", "size_max": 10**8, "codec": "none"},
            {"mime": "application/", "codec": "lz4"},
        ],
    }
    assert own_content.ask("PUT", "/content/config", json.dumps(policy))[0] == 200
    expected = [
        ("image/png", "none"), ("application/zip", "lz4"), ("text/css", "gzip"), ("Text/CSS; charset=utf-8", "gzip"),
        ("text/csv", "none"), ("application/x", "lz4"), ("text/x", "zstd"), ("application/octet-stream", "zstd"), (None, "zstd"),
    ]  # fmt: skip
    with own_content.server.connect() as client:
        for n, (kind, _) in enumerate(expected):
            own_content.put(f"k{n}", text, **({"Content-Type": kind} if kind else {}))
            client.call("SNUG", "PACK", f"k{n}")
        assert [codec(client, f"k{n}") for n in range(len(expected))] == [codec for _, codec in expected]
        # By itself, too.
        client.call("CONFIG", "SET", "pack-cold-after", "0")
        own_content.put("image", text, Content_Type="image/png")
        own_content.put("css", text, Content_Type="text/css")
        until(lambda: codec(client, "css") == "gzip", "it is packed")
        assert codec(client, "image") == "none"
        # A string whose card is out of date is what it looks like; of long ones that is not found out.
        if size == 1:
            # What is packed before its card is removed would still be decided on by that.
            client.call("CONFIG", "SET", "pack-cold-after", "1000")
            client.call("SET", "image", text + b"!")
            until(lambda: not exists(client, "snug:content:{image}"), "the card is removed")
            client.call("CONFIG", "SET", "pack-cold-after", "0")
            until(lambda: codec(client, "image") == "zstd", "it is packed")


@pytest.mark.parametrize("own_content", [["--admin-port", str(servers.free_port()), "--admin-token", "token"]], indirect=True)
def test_metrics_are_by_the_declared_type(own_content):
    with own_content.server.connect() as client:
        for n, kind in enumerate(("text/html", "font/ttf", "model/x")):
            own_content.put(f"k{n}", TEXT, Content_Type=kind)
            assert client.call("SNUG", "PACK", f"k{n}") == (":", 1)
    _, metrics, _ = metrics_of(own_content)
    for group in ("text", "font", "model"):
        lines = [line for line in metrics.splitlines() if line.startswith("snug_packing_values_total") and f'mime="{group}"' in line]
        assert any(float(line.split()[-1]) >= 1 for line in lines), (group, metrics)


def metrics_of(content):
    port = int(content.server.command[content.server.command.index("--admin-port") + 1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics", headers={"Authorization": "Bearer token"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers
