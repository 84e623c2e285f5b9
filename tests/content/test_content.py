"""Content over HTTP: what is put is what RESP answers and the other way round, and what
HTTP says of it: types, tags, conditions, ranges, times."""

import email.parser
import email.policy
import json
import random
import threading
import time
import urllib.parse

import pytest

from harness.content import Content, path_of, serving
from harness.packing import until
from harness.servers import info_fields

pytestmark = pytest.mark.snug_only

LARGE = random.Random(1).randbytes(300_000)
TEXT = ("some text that packs well, and again. " * 40_000).encode()


def test_it_is_off_unless_it_is_asked_for(target):
    server = target.start()
    try:
        with server.connect() as client:
            assert client.call("CONFIG", "GET", "content-port")[1][1] == ("$", b"0")
        assert "content" not in server.log()
    finally:
        server.stop()


@pytest.mark.parametrize("key", ["k", "a/b", "a b?c#d%", "ключ", b"\x00\xff\r\n", "config", "..", "{tag}x", "a}b"], ids=repr)
@pytest.mark.parametrize("body", [b"", b"12345", b"<p>x", LARGE[:65_536], LARGE[:65_537], LARGE], ids=len)
def test_http_and_resp_answer_the_same(content, key, body):
    raw = key if isinstance(key, bytes) else key.encode()
    with content.server.connect() as client:
        client.call("DEL", raw)
        status, said, headers = content.put(key, body)
        assert (status, said) == (201, b"")
        assert urllib.parse.unquote_to_bytes(headers["Location"]) == b"/content/" + raw
        assert client.call("GET", raw) == ("$", body)
        assert client.call("TYPE", raw) == ("+", b"string")
        status, said, headers = content.ask("GET", headers["Location"])
        assert (status, said) == (200, body)
        tag = headers["ETag"]
        assert content.put(key, body)[0] == 204
        client.call("SET", raw, body + b"!")
        status, said, headers = content.get(key)
        assert (status, said, headers["ETag"] != tag) == (200, body + b"!", True)
        status, said, headers = content.ask("HEAD", path_of(key))
        assert (status, said, headers["Content-Length"]) == (200, b"", str(len(body) + 1))
        assert content.ask("DELETE", path_of(key))[0] == 204
        assert client.call("EXISTS", raw) == (":", 0)
        assert content.ask("DELETE", path_of(key))[0] == content.get(key)[0] == 404


def test_what_is_known_of_a_string(content):
    page = {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "max-age=60", "Content-Language": "en", "X-Other": "x"}
    before = int(time.time())
    content.put("page", b"<html>", **page)
    headers = content.get("page")[2]
    assert {name: headers[name] for name in page} == page | {"X-Other": None}
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Accept-Ranges"] == "bytes"
    modified = time.strptime(headers["Last-Modified"], "%a, %d %b %Y %H:%M:%S GMT")
    assert before <= time.mktime(modified) - time.timezone <= time.time()
    with content.server.connect() as client:
        card = json.loads(client.call("GET", "snug:content:{page}")[1])
        assert card["type"] == page["Content-Type"] and f'"{card["tag"]}"' == headers["ETag"]
        # What somebody else writes is not what was declared.
        client.call("SET", "page", '{"a": 1}')
        headers = content.get("page")[2]
        assert headers["Content-Type"] == "application/json"
        assert headers["Last-Modified"] is headers["Cache-Control"] is None
        client.call("SET", "page", "<html>")
        # A card that is none is not believed, nor one of another type.
        for forge in (("SET", "snug:content:{page}", "{}"), ("SET", "snug:content:{page}", "\x00"), ("HSET", "snug:content:{page}", "a", "b")):
            client.call("DEL", "snug:content:{page}")
            assert client.call(*forge)[0] != "-"
            assert content.get("page")[2]["Content-Type"] == "text/plain; charset=utf-8"
        content.ask("DELETE", path_of("page"))
        assert client.call("KEYS", "*page*") == ("*", [])


def test_what_nobody_declared_is_what_it_looks_like(content):
    for body, kind in [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
        (b'{"a": [1, 2]}', "application/json"),
        (b"[" + b"1," * 100_000 + b"1]", "application/json"),
        (b"a line", "text/plain; charset=utf-8"),
        (b"<!DOCTYPE html><script>1</script>", "text/plain; charset=utf-8"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "text/plain; charset=utf-8"),
        (b"\0\1\2", "application/octet-stream"),
    ]:
        content.put("kind", body)
        assert content.get("kind")[2]["Content-Type"] == kind


def test_conditions(content):
    def put(body, **headers):
        return content.put("c", body, **headers)[0]

    assert put(b"1", If_Match="*") == 412
    assert put(b"1", If_None_Match="*") == 201
    assert put(b"2", If_None_Match="*") == 412
    _, body, headers = content.get("c")
    tag, modified = headers["ETag"], headers["Last-Modified"]
    assert body == b"1"
    assert content.get("c", If_None_Match=tag)[:2] == (304, b"")
    assert content.get("c", If_None_Match=f'"x", W/{tag}')[2]["ETag"] == tag
    assert content.get("c", If_None_Match='"x"', If_Modified_Since=modified)[0] == 200
    assert content.get("c", If_Modified_Since=modified)[0] == 304
    assert content.get("c", If_Modified_Since="Sun, 06 Nov 1994 08:49:37 GMT")[0] == 200
    assert content.get("c", If_Match='"x"')[0] == 412
    assert put(b"2", If_Match='"x"') == put(LARGE, If_Match='"x"') == 412
    for behind in ("-foo", "-", "-gzip-gzip", "-x-gzip"):
        assert put(b"2", If_Match=f'"{tag[1:-1]}{behind}"') == 412, behind
    assert put(b"1", If_Match=f'"{tag[1:-1]}-gzip"') == 204
    assert put(b"2", If_Unmodified_Since="Sun, 06 Nov 1994 08:49:37 GMT") == 412
    assert put(LARGE, If_Match=tag) == 204
    new = content.get("c")[2]["ETag"]
    assert new != tag and put(b"3", If_Match=f"{tag}, {new}") == 204
    assert content.ask("DELETE", path_of("c"), headers={"If-Match": tag})[0] == 412
    assert content.ask("DELETE", path_of("c"), headers={"If-Match": content.get("c")[2]["ETag"]})[0] == 204
    assert content.ask("DELETE", path_of("c"), headers={"If-Match": "*"})[0] == 412


def test_one_of_many_who_add_one_wins_each_time(content):
    """Lost updates: several clients count up with If-Match."""
    content.put("counter", b"0")

    def count():
        with_luck = 0
        while with_luck < 10:
            _, body, headers = content.get("counter")
            status = content.put("counter", str(int(body) + 1).encode(), If_Match=headers["ETag"])[0]
            assert status in (204, 412, 409)
            with_luck += status == 204

    threads = [threading.Thread(target=count) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert content.get("counter")[1] == b"40"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("body", [LARGE[:1000], TEXT[:60_000], TEXT], ids=len)
def test_ranges(content, body, packed):
    content.put("r", body, **{"Content-Type": "text/x"})
    if packed:
        with content.server.connect() as client:
            client.call("SNUG", "PACK", "r")
    size = len(body)
    for asked, ranges in [
        ("0-0", [(0, 1)]), ("5-9", [(5, 10)]), ("-7", [(size - 7, size)]), (f"{size - 1}-", [(size - 1, size)]), ("9-99999999", [(9, size)]),
        ("0-1,5-6", [(0, 2), (5, 7)]), (f"-1,0-0,{size}-", [(size - 1, size), (0, 1)]), (f"{size // 2}-{size // 2 + 200_000},0-4", [(size // 2, min(size, size // 2 + 200_001)), (0, 5)]),
    ]:  # fmt: skip
        status, said, headers = content.get("r", Range=f"bytes={asked}")
        assert status == 206 and int(headers["Content-Length"]) == len(said), asked
        if len(ranges) == 1:
            (first, end), = ranges
            assert said == body[first:end] and headers["Content-Range"] == f"bytes {first}-{end - 1}/{size}"
            assert headers["Content-Type"] == "text/x"
            continue
        whole = b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n" + said
        parts = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(whole).get_payload()
        assert [part["Content-Range"] for part in parts] == [f"bytes {a}-{b - 1}/{size}" for a, b in ranges]
        assert [part.get_payload(decode=True) for part in parts] == [body[a:b] for a, b in ranges]
    for asked in (f"{size}-", "-0"):
        status, _, headers = content.get("r", Range=f"bytes={asked}")
        assert (status, headers["Content-Range"]) == (416, f"bytes */{size}")
    tag = content.get("r")[2]["ETag"]
    for asked, more in [("bytes=x", {}), ("lines=0-1", {}), ("bytes=3-1", {}), ("bytes=0-1", {"If-Range": '"x"'}), ("bytes=" + "0-," * 9, {})]:
        assert content.get("r", Range=asked, **more)[:2] == (200, body), asked
    assert content.get("r", Range="bytes=0-1", If_Range=tag)[:2] == (206, body[:2])
    # A date may be that of other bytes of the same second.
    assert content.get("r", Range="bytes=0-1", If_Range=content.get("r")[2]["Last-Modified"])[:2] == (200, body)
    assert content.ask("HEAD", path_of("r"), headers={"Range": "bytes=0-1"})[0] == 200


def test_how_long_it_lives(content):
    assert content.put("t", b"x", Snug_TTL="1000")[0] == 201
    assert 990 <= int(content.get("t")[2]["Snug-TTL"]) <= 1000
    with content.server.connect() as client:
        assert 990_000 < client.call("PTTL", "t")[1] <= 1_000_000
        assert 990_000 < client.call("PTTL", "snug:content:{t}")[1] <= 1_000_000
        content.put("t", b"x")
        assert client.call("PTTL", "t") == client.call("PTTL", "snug:content:{t}") == (":", -1)
    assert content.get("t")[2]["Snug-TTL"] is None
    for wrong in ("0", "-1", "x", "", "1.5", "99999999999999999999"):
        assert content.put("t", b"y", Snug_TTL=wrong)[0] == 400, wrong
    content.put("t", b"x", Snug_TTL="1")
    until(lambda: content.get("t")[0] == 404)


def test_made_up_keys(content):
    made = [content.ask("POST", "/content?prefix=made%2F", body)[2]["Location"] for body in (b"one", LARGE)]
    assert len(set(made)) == 2 and all(path.startswith("/content/made/") for path in made)
    assert [content.ask("GET", path)[1] for path in made] == [b"one", LARGE]


def test_listing(content):
    names = {f"list/{n}*[x]".encode() for n in range(250)} | {b"list/\xff"}
    with content.server.connect() as client:
        for name in names:
            client.call("SET", name, "x")
        client.call("SET", "listed", "x")
        client.call("RPUSH", "list/of", "x")
        content.put(b"list/card", b"x")
    for prefix, expected in [("list/", names | {b"list/card"}), ("list/1*[", set()), ("list/1*", {b"list/1*[x]"})]:
        seen, cursor, pages = set(), "", 0
        while cursor is not None:
            status, body, headers = content.ask("GET", f"/content?count=50&prefix={urllib.parse.quote(prefix)}{cursor}")
            assert (status, headers["Content-Type"]) == (200, "application/json")
            page = json.loads(body)
            seen |= {urllib.parse.unquote_to_bytes(key["href"]).removeprefix(b"/content/") for key in page["keys"]}
            assert all(key["key"].encode() in seen for key in page["keys"] if "key" in key)
            cursor = f"&cursor={page['cursor']}" if "cursor" in page else None
            pages += 1
        if prefix == "list/1*[":
            expected = {b"list/1*[x]"}
        assert seen == expected
    for wrong in ("count=0", "count=1001", "cursor=x", "cursor=99999999999999999999999", "other=1", "prefix=a&prefix=b"):
        assert content.ask("GET", f"/content?{wrong}")[0] == 400


def test_other_types_are_left_alone(content):
    with content.server.connect() as client:
        client.call("RPUSH", "queue", "a")
        for method in ("GET", "PUT", "DELETE"):
            assert content.ask(method, "/content/queue", b"x" if method == "PUT" else None)[0] == 409
        assert client.call("LLEN", "queue") == (":", 1)


def test_methods_and_paths(content):
    for method, path, status in [
        ("PATCH", "/content/x", 405), ("POST", "/content/x", 405), ("PUT", "/content", 405), ("DELETE", "/content", 405),
        ("POST", "/content/config", 405), ("GET", "/", 404), ("GET", "/content/", 404), ("GET", "/contents", 404),
        ("OPTIONS", "/content/x", 204), ("OPTIONS", "*", 204), ("GET", "/content/%zz", 400), ("GET", "/content/snug:content:%7Bx%7D", 400), ("TRACE", "/content/x", 405),
    ]:  # fmt: skip
        said, _, headers = content.ask(method, path, b"" if method in ("PUT", "POST", "PATCH") else None)
        assert said == status, (method, path)
        assert (status in (204, 405)) == ("Allow" in headers)
    assert content.put("x", b"a", Content_Range="bytes 0-0/9")[0] == 400
    assert content.put("x", b"a", Content_Type="nonsense")[0] == 400
    for twice in (b"Content-Type: text/a", b"Snug-TTL: 5", b"Cache-Control: no-store"):
        said = content.raw(b"PUT /content/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n" + (twice + b"\r\n") * 2 + b"\r\na")
        assert said.startswith(b"HTTP/1.1 400"), twice
    assert content.get("x")[0] == 404
    content.put("x", b"a")
    for twice in (b"Range: bytes=0-0", b'If-Range: "a"', b"Authorization: Basic OnA=", b"If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", b"If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"):
        said = content.raw(b"GET /content/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + (twice + b"\r\n") * 2 + b"\r\n")
        assert said.startswith(b"HTTP/1.1 400"), twice
    content.ask("DELETE", "/content/x")


def test_requests_that_others_may_read_otherwise_are_refused(content):
    put = b"PUT /content/framed HTTP/1.1\r\nConnection: close\r\n"
    chunked = b"\r\n\r\n1\r\na\r\n0\r\n\r\n"
    for head, status in [
        (b"Content-Length: 1\r\n\r\na", 400),
        (b"Host: a\r\nHost: b\r\nContent-Length: 1\r\n\r\na", 400),
        (b"Host: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", 400),
        (b"Host: a\r\nTransfer-Encoding: gzip, chunked" + chunked, 501),
        (b"Host: a\r\nTransfer-Encoding: chunked, chunked" + chunked, 501),
        (b"Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked" + chunked, 501),
        (b"Host: a\r\nTransfer-Encoding: gzip\r\n\r\na", 400),
        (b"Host: a\r\nTransfer-Encoding: xchunked\r\n\r\na", 400),
        (b"Host: a\r\nContent-Length: 18446744073709551615\r\n\r\na", 431),
        (b"Host: a b/ %\r\nContent-Length: 1\r\n\r\na", 400),
        (b"Host: a@b\r\nContent-Length: 1\r\n\r\na", 400),
    ]:
        said = content.raw(put + head)
        assert int(said.split()[1]) == status, (head, said)
    assert content.get("framed")[0] == 404
    for host in (b"", b"a.b:80", b"[::1]:8080", b"127.0.0.1"):
        said = content.raw(b"GET /content/framed HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 404"), host
    assert content.raw(put + b"Host: a\r\nTransfer-Encoding: Chunked" + chunked).startswith(b"HTTP/1.1 201")
    # HTTP/1.0 knows no hosts.
    assert content.raw(b"GET /content/framed HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\na")


def test_who_is_refused_before_the_body_is_told_that_the_connection_ends(content):
    put = b"PUT /content/refused HTTP/1.1\r\nHost: a\r\n"
    for head, status in [(b"Content-Length: 9999999999\r\n\r\na", 413), (b"Expect: 100-continue\r\nContent-Length: 9999999999\r\n\r\n", 413), (b"Snug-TTL: x\r\nContent-Length: 200000\r\n\r\n", 400)]:
        said = content.raw(put + head)
        assert int(said.split()[1]) == status and b"\r\nconnection: close\r\n" in said.lower(), said
    # Whose body was read goes on.
    wrong = put + b'If-Match: "x"\r\nContent-Length: 1\r\n\r\na'
    said = content.raw(wrong, wrong, b"GET /content/refused HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert [part.split()[0] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"412", b"412", b"404"]


def test_the_policy_takes_no_conditions_and_no_encodings(content):
    admin = Content(content.server)
    admin.port = int(content.server.command[content.server.command.index("--admin-port") + 1])
    for port, token in ((content, {}), (admin, {"Authorization": "Bearer token"})):
        before = port.ask("GET", "/content/config", headers=token)[1]
        for headers, status in [({"If-Match": '"x"'}, 400), ({"If-None-Match": "*"}, 400), ({"If-Unmodified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"}, 400), ({"Content-Encoding": "gzip"}, 415)]:
            said, body, _ = port.ask("PUT", "/content/config", b'{"level": 5}', token | headers)
            assert said == status and b"policy" in body, headers
        assert port.ask("GET", "/content/config", headers=token)[1] == before
        assert port.ask("PUT", "/content/config", before, token | {"Content-Encoding": "identity"})[0] == 200


def test_what_is_on_disk_is_read_only_where_its_bytes_matter(target):
    """And what is damaged there can be replaced and removed."""
    server = serving(target, "--tier-path", "tier", "--pack", "no", "--maxmemory", "100mb").start()
    content = Content(server)
    changes = [("PUT", {}, 204), ("PUT", {"If-None-Match": "*"}, 412), ("PUT", {"If-Match": "*"}, 204), ("DELETE", {"If-Match": "*"}, 204), ("DELETE", {}, 204)]
    bodies = (LARGE, TEXT[:5_000])

    def leave(client):
        client.call("FLUSHALL")
        for body in bodies:
            for n in range(len(changes)):
                content.put(f"{len(body)}:{n}", body, Content_Type="text/x")
                for key in (f"{len(body)}:{n}", f"snug:content:{{{len(body)}:{n}}}"):
                    client.call("SNUG", "TIER", key)
        fields = info_fields(client.call("INFO", "tier")[1].decode())
        assert int(fields["tier_values"]) >= len(bodies) * len(changes)
        return fields["tier_read_bytes"]

    def change():
        for body in bodies:
            for n, (method, headers, status) in enumerate(changes):
                for small in (b"new", LARGE) if method == "PUT" else (None,):
                    said = content.ask(method, path_of(f"{len(body)}:{n}"), small, headers)[0]
                    assert said == status, (method, headers, len(body))
                    assert status != 204 or method == "DELETE" or content.get(f"{len(body)}:{n}")[1] == small

    try:
        with server.connect() as client:
            read = leave(client)
            change()
            assert info_fields(client.call("INFO", "tier")[1].decode())["tier_read_bytes"] == read
            leave(client)
            for file in (server.directory / "tier").glob("*.seg"):
                file.write_bytes(b"\xaa" * file.stat().st_size)
            for method, headers in [("GET", {}), ("HEAD", {}), ("PUT", {"If-Match": '"x"'}), ("DELETE", {"If-Match": '"x"'})]:
                for body in bodies:
                    status, said, _ = content.ask(method, path_of(f"{len(body)}:0"), b"x" if method == "PUT" else None, headers)
                    assert status == 500 and (method == "HEAD" or b"cannot be read back from disk" in said)
            change()
        assert "a value is damaged" in server.log()
    finally:
        server.stop()


def test_pages_of_other_sites_may_not_write(content):
    here = f"http://127.0.0.1:{content.port}"
    for headers, status in [
        ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Sec-Fetch-Site": "cross-site", "Origin": here}, 403),
        ({"Origin": here}, 204), ({"Sec-Fetch-Site": "same-origin"}, 204), ({}, 204),
    ]:  # fmt: skip
        content.put("site", b"x")
        assert content.ask("PUT", "/content/site", b"y", headers)[0] == status, headers


def test_the_policy(content):
    policy = b'{"skip":["image/"],"types":{"text/html":9}}'
    status, body, _ = content.ask("PUT", "/content/config", policy)
    assert status == 200 and json.loads(body) == json.loads(policy)
    for wrong in (b"", b"{", b'{"level": 99}', b'{"types": {"text": 1}}', b"\xff", b"x" * 300_000):
        status, body, _ = content.ask("PUT", "/content/config", wrong)
        assert status == (413 if len(wrong) > 90_000 else 400) and json.loads(body)["error"], wrong
    assert json.loads(content.ask("GET", "/content/config")[1]) == json.loads(policy)
    with content.server.connect() as client:
        assert json.loads(client.call("CONFIG", "GET", "pack-policy")[1][1][1]) == json.loads(policy)
    content.ask("PUT", "/content/config", b"{}")


def test_it_is_data_like_any_other(target):
    """Commits of puts and deletions: a mirror, a replica and the append-only file have the
    strings and what is known of them."""
    server = serving(target, "--appendonly", "yes").start()
    content = Content(server)
    replica = serving(target, "--replicaof", f"127.0.0.1 {server.port}").start()
    try:
        with server.connect() as client, replica.connect() as other:
            assert client.call("DEBUG", "MIRROR", "START")[0] != "-"
            until(lambda: replica.info()["master_link_status"] == "up")
            client.call("CONFIG", "SET", "notify-keyspace-events", "KEA")
            with server.connect() as watcher, server.connect() as listener:
                content.put("watched", b"1")
                watcher.call("WATCH", "watched")
                listener.call("SUBSCRIBE", "__keyevent@0__:set")
                content.put("watched", b"2", Content_Type="text/css", Snug_TTL="5000")
                watcher.call("MULTI")
                watcher.call("PING")
                assert watcher.call("EXEC") == ("*", None)
                assert listener.reply()[1][2] == ("$", b"watched")
            content.put("large", LARGE)
            content.put("gone", b"x")
            content.ask("DELETE", "/content/gone")
            assert client.call("DEBUG", "MIRROR", "CHECK")[0] != "-"
            client.call("WAIT", "1", "30000")
            assert other.call("DEBUG", "DIGEST") == client.call("DEBUG", "DIGEST")
            mirrored = Content(replica)
            assert mirrored.get("watched")[2]["Content-Type"] == "text/css"
            status, body, _ = mirrored.put("x", b"x")
            assert status == 403 and b"READONLY" in body
            digest = client.call("DEBUG", "DIGEST")
        server.process.kill()
        server.process.wait(30)
        server.start()
        with server.connect() as client:
            until(lambda: content.get("watched")[0] == 200)
            assert client.call("DEBUG", "DIGEST") == digest
        assert content.get("watched")[2]["Content-Type"] == "text/css" and content.get("large")[1] == LARGE
    finally:
        replica.stop()
        server.stop()


def test_in_a_cluster(target):
    server = serving(target, "--cluster-enabled", "yes").start()
    content = Content(server)
    try:
        with server.connect() as client:
            client.call("CLUSTER", "ADDSLOTSRANGE", "0", "8000")
            until(lambda: b"cluster_state" in client.call("CLUSTER", "INFO")[1])
            client.call("CONFIG", "SET", "cluster-require-full-coverage", "no")
            seen = {}
            for key in ("a", "b", "{x}y", "a}b", "c"):
                slot = client.call("CLUSTER", "KEYSLOT", key)[1]
                status = content.put(key, b"x", Content_Type="text/css")[0]
                assert status == (201 if slot <= 8000 else 503 if status == 503 else 421), (key, slot, status)
                seen[status] = key
                if status == 201:
                    kind = "text/plain; charset=utf-8" if key == "a}b" else "text/css"
                    assert content.get(key)[2]["Content-Type"] == kind
                    assert client.call("CLUSTER", "COUNTKEYSINSLOT", slot) == (":", 1 if key == "a}b" else 2)
            assert len(seen) == 2
    finally:
        server.stop()
