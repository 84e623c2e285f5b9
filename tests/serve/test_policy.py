"""Policies: from a file, from the configuration, live; what is refused and how; and
that what was packed under one policy follows the next."""

import json
import subprocess

import pytest

from harness.packing import NEVER, about, families, until

pytestmark = pytest.mark.snug_only

VALUE = b'{"name":"alice","roles":["reader","writer"]}' * 8
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + b"the same again " * 50
AT_ONCE = ["--pack-cold-after", "0", "--hz", "500", "--pack-dictionary-size", "2048"]
#: What cannot be, and a piece of what is said of it.
BAD = [
    ("{", "EOF while parsing"),
    ("[3]", "a policy is a JSON object"),
    ('{"levels": 3}', "unknown field `levels`"),
    ('{"level": 23}', "level 23 is not between 1 and 22"),
    ('{"skip": ["image"]}', "'image' is neither a MIME type nor a prefix"),
    ('{"rules": [{"type": "hash"}]}', "'hash' is not one of string, stream"),
    ('{"rules": [{"level": 3}, {}]}', "rules[1]: neither a condition nor a codec or level"),
    ('{"types": {"text/html": 1, "text/html": 9}}', "types: duplicate field `text/html`"),
    ('{"rules": [{"codec": "zip"}]}', "unknown variant `zip`"),
    ('{"rules": [{"size_min": 2, "size_max": 1}]}', "size_min is above size_max"),
    ('{"rules": [' + ",".join(["{}"] * 257) + "]}", "longer than 256"),
    ('{"level": 3' + " " * 300_000 + "}", "longer than 262144 bytes"),
]


def policy(connection):
    return connection.call("CONFIG", "GET", "pack-policy")[1][1][1].decode()


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_set_and_read_both_ways(server):
    with server.connect() as c:
        assert policy(c) == "{}"
        assert c.call("CONFIG", "SET", "pack-policy", '{ "level": 9,\n "skip": ["image/"] }') == ("+", b"OK")
        assert json.loads(policy(c)) == {"level": 9, "skip": ["image/"]}
        assert c.call("SNUG", "POLICY", "GET") == ("$", policy(c).encode())
        rules = {"rules": [{"key": "sessión:*", "codec": "lz4"}, {"type": "stream", "level": 12}]}
        assert c.call("SNUG", "POLICY", "SET", json.dumps(rules)) == ("+", b"OK")
        assert json.loads(policy(c)) == rules
        for through in ("CONFIG SET", "SNUG POLICY SET"):
            until(lambda: any(f'through="{through}"' in line and "the packing policy was replaced" in line for line in server.log().splitlines()))
        assert c.call("CONFIG", "SET", "pack-policy", "") == ("+", b"OK")
        assert policy(c) == "{}"
        for wrong in (["SNUG", "POLICY", "PUT"], ["SNUG", "POLICY", "SET"], ["SNUG", "POLICY", "GET", "x"]):
            assert c.call(*wrong) == ("-", b"ERR syntax error")
        assert b"POLICY SET <json>" in b"".join(line for _, line in c.call("SNUG", "HELP")[1])


@pytest.mark.parametrize("server", [NEVER], indirect=True)
@pytest.mark.parametrize("text, why", BAD, ids=[why for _, why in BAD])
def test_what_cannot_be_is_refused_with_its_reason(server, text, why):
    with server.connect() as c:
        c.call("CONFIG", "SET", "pack-policy", '{"level":7}')
        for command in (["CONFIG", "SET", "pack-policy"], ["SNUG", "POLICY", "SET"]):
            kind, said = c.call(*command, text)
            assert kind == "-" and why in said.decode(), said
        assert policy(c) == '{"level":7}'


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_new_values_go_by_it_at_once(server):
    with server.connect() as c:
        rules = [{"key": "l:*", "codec": "lz4"}, {"key": "n:*", "codec": "none"}, {"size_min": 200, "key": "s:*", "codec": "snappy"}]
        c.call("SNUG", "POLICY", "SET", json.dumps({"rules": rules, "skip": ["image/"]}))
        for key, value, codec in [("l:1", VALUE, b"lz4"), ("n:1", VALUE, b"none"), ("s:1", VALUE, b"snappy"), ("s:2", VALUE[:180], b"zstd"), ("x", PNG, b"none")]:
            c.call("SET", key, value)
            assert c.call("SNUG", "PACK", key) == (":", int(codec != b"none"))
            assert about(c, key)[b"codec"] == codec
            assert c.call("GET", key) == ("$", value)
        assert families(c)[b"n:#"][b"left-by-policy"] == 1


@pytest.mark.parametrize("server", [NEVER], indirect=True)
def test_json_text_and_svg_are_known_by_their_bytes(server):
    with server.connect() as c:
        rules = [{"mime": "application/json", "codec": "lz4"}, {"mime": "text/plain", "codec": "snappy"}, {"mime": "image/", "codec": "none"}]
        c.call("SNUG", "POLICY", "SET", json.dumps({"rules": rules}))
        words = b"the same again " * 20
        svg = b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg">' + words + b"</svg>"
        long = b'{"words": "' + words * 1000 + b'"}\n'
        for key, value, codec in [("json", VALUE, b"lz4"), ("text", words, b"snappy"), ("svg", svg, b"none"), ("bytes", b"\0" + words, b"zstd"), ("large", long, b"lz4")]:
            c.call("SET", key, value)
            assert c.call("SNUG", "PACK", key) == (":", int(codec != b"none")), key
            assert about(c, key)[b"codec"] == codec, key
            assert c.call("GET", key) == ("$", value)


@pytest.mark.parametrize("server", [AT_ONCE], indirect=True)
def test_old_values_follow_as_they_are_swept(server):
    with server.connect() as c:
        for n in range(200):
            c.call("SET", f"doc:{n}", VALUE + str(n).encode())
            c.call("SET", f"png:{n}", PNG + str(n).encode())
            c.call("XADD", "stream", "*", "field", f"value {n}")
        # A family's dictionary may be one of phrases: what zstd was chosen for then.
        shown = lambda key: about(c, key)[b"codec"].replace(b"phrases", b"zstd")
        is_codec = lambda key, codec: lambda: shown(key) == codec
        until(is_codec("doc:1", b"zstd"))
        until(is_codec("png:1", b"zstd"))
        for policy, doc, png in [
            ({"rules": [{"key": "doc:*", "codec": "lz4"}]}, b"lz4", b"zstd"),
            ({"rules": [{"type": "string", "codec": "none"}]}, b"none", b"none"),
            ({"skip": ["image/"]}, b"zstd", b"none"),
            ({"rules": [{"mime": "image/png", "codec": "gzip", "level": 9}], "level": 5}, b"zstd", b"gzip"),
        ]:
            assert c.call("CONFIG", "SET", "pack-policy", json.dumps(policy)) == ("+", b"OK")
            for n in (0, 77, 199):
                until(is_codec(f"doc:{n}", doc))
                until(is_codec(f"png:{n}", png))
                assert c.call("GET", f"doc:{n}") == ("$", VALUE + str(n).encode())
                assert c.call("GET", f"png:{n}") == ("$", PNG + str(n).encode())
            assert families(c)[b"doc:#"][b"codec"].replace(b"phrases", b"zstd") == doc
        assert families(c)[b"png:#"][b"level"] == 9


@pytest.mark.parametrize("server", [[*AT_ONCE, "--stream-node-max-entries", "100"]], indirect=True)
def test_the_blocks_of_streams_follow_too(server):
    with server.connect() as c:
        entries = [[str(n), "text", f"the value of entry {n}, and some more of it"] for n in range(1, 3001)]
        for id, *fields in entries:
            c.call("XADD", "s:1", id, *fields)
        until(lambda: about(c, "s:1")[b"codec"] == b"zstd")
        columns = about(c, "s:1")[b"packed-bytes"]
        for codec in (b"lz4", b"none", b"zstd"):
            rules = {"rules": [{"type": "stream", "key": "s:*", "codec": codec.decode()}]}
            c.call("SNUG", "POLICY", "SET", json.dumps(rules))
            until(lambda: about(c, "s:1")[b"codec"] == codec)
            until(lambda: server.info()["blocks_pending"] == "0")
            packed = about(c, "s:1")[b"packed-bytes"]
            assert (packed == 0) == (codec == b"none") and (codec != b"lz4" or packed > columns), (codec, packed)
            read = c.call("XRANGE", "s:1", "-", "+")[1]
            assert len(read) == 3000 and read[1234][1][1][1][1][1] == entries[1234][2].encode()


def test_a_file_and_what_comes_before_it(target):
    server = target.server(*NEVER, "--pack-policy-file", "policy.json", config_lines=["hz 10"])
    (server.directory / "policy.json").write_text('{"level": 11}\n')
    server.start()
    try:
        with server.connect() as c:
            assert policy(c) == '{"level":11}'
            assert c.call("CONFIG", "REWRITE") == ("+", b"OK")
            assert "pack-policy {" not in (server.directory / "server.conf").read_text(), "the file says it"
            wanted = {"rules": [{"key": "a'\"\\b é*", "codec": "none"}]}
            assert c.call("SNUG", "POLICY", "SET", json.dumps(wanted)) == ("+", b"OK")
            assert c.call("CONFIG", "REWRITE") == ("+", b"OK")
        server.process.terminate()
        assert server.process.wait(30) == 0
        server.start()
        with server.connect() as c:
            assert json.loads(policy(c)) == wanted, "what was set comes before the file"
    finally:
        server.stop()


def test_what_the_file_says_is_not_kept_beside_it(target):
    server = target.server(*NEVER, "--pack-policy-file", "policy.json", config_lines=["hz 10", 'pack-policy "{\\"level\\": 9}"', "maxclients 50"])
    (server.directory / "policy.json").write_text('{"level": 11}\n')
    server.start()
    try:
        with server.connect() as c:
            for level, kept in ((9, True), (11, False), (7, True), (11, False)):
                assert c.call("SNUG", "POLICY", "SET", json.dumps({"level": level})) == ("+", b"OK")
                assert c.call("CONFIG", "REWRITE") == ("+", b"OK")
                lines = (server.directory / "server.conf").read_text().splitlines()
                assert any(line.startswith("pack-policy ") for line in lines) == kept, (level, lines)
                assert "hz 10" in lines and "maxclients 50" in lines
    finally:
        server.stop()


@pytest.mark.parametrize("text, why", BAD + [(None, "No such file"), (b"\xff\xfe", "UTF-8")], ids=lambda v: v if isinstance(v, str) and len(v) < 60 else None)
def test_a_bad_file_refuses_to_start(target, text, why):
    server = target.server("--pack-policy-file", "policy.json")
    if text is not None:
        (server.directory / "policy.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = subprocess.run(server.command, cwd=server.directory, capture_output=True, text=True, timeout=30)
    said = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode == 1 and len(said) == 1, said
    assert "pack-policy-file 'policy.json': " in said[0] and why in said[0], said[0]
