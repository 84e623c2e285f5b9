"""Encodings: what a client takes decides in what a body is sent, and whatever it is sent in,
it is the string. gzip by Python's own module, zstd and brotli by curl, if that has them."""

import gzip
import json
import random
import re
import shutil
import subprocess
import zlib

import pytest

from harness import servers
from harness.content import Content, path_of, serving
from harness.packing import until

pytestmark = pytest.mark.snug_only

CURL = shutil.which("curl")
DOCUMENT = json.dumps([{"id": n, "name": f"somebody {n * 7919 % 1000}", "tags": ["a", "b", n % 3]} for n in range(180)]).encode()
LONG = json.dumps([{"id": n, "name": f"somebody {n * 7919 % 1000}", "tags": ["a", "b", n % 3]} for n in range(20_000)]).encode()
NOISE = random.Random(8).randbytes(50_000)


def has(feature):
    return CURL and feature in subprocess.run([CURL, "--version"], capture_output=True, text=True).stdout


@pytest.mark.parametrize("body", [DOCUMENT, LONG], ids=len)
def test_gzip(content, body):
    content.put("z", body, Content_Type="application/json")
    plain = content.get("z")
    assert plain[1] == body and plain[2]["Content-Encoding"] is None and plain[2]["Vary"] == "Accept-Encoding"
    for _ in range(2):
        status, said, headers = content.get("z", Accept_Encoding="gzip")
        assert (status, headers["Content-Encoding"], headers["Vary"]) == (200, "gzip", "Accept-Encoding")
        assert gzip.decompress(said) == body and len(said) < len(body) / 2
        assert headers["ETag"] == plain[2]["ETag"][:-1] + '-gzip"' and headers["Content-Type"] == "application/json"
    tag = headers["ETag"]
    assert content.get("z", Accept_Encoding="gzip", If_None_Match=tag)[0] == 304
    assert content.get("z", Accept_Encoding="gzip", If_None_Match=tag)[2]["ETag"] == tag
    assert content.get("z", If_None_Match=tag)[0] == 200, "not what this client would be sent"
    assert content.get("z", If_None_Match=plain[2]["ETag"], Accept_Encoding="gzip")[0] == 304
    status, said, headers = content.get("z", Accept_Encoding="gzip", Range="bytes=5-9")
    assert (status, said, headers["Content-Encoding"]) == (206, body[5:10], None)
    status, said, headers = content.ask("HEAD", path_of("z"), headers={"Accept-Encoding": "gzip"})
    assert (status, said, headers["Content-Encoding"]) == (200, b"", "gzip")
    # Who changes what was sent in an encoding names the tag of that.
    assert content.put("z", body + b" ", If_Match=tag)[0] == 204
    assert gzip.decompress(content.get("z", Accept_Encoding="gzip")[1]) == body + b" "


def test_what_is_not_worth_it_goes_as_it_is(content):
    for body, kind in [(b"short", "text/plain"), (NOISE, "application/octet-stream"), (NOISE, "application/json")]:
        content.put("n", body, Content_Type=kind)
        status, said, headers = content.get("n", Accept_Encoding="gzip, br, zstd")
        assert (status, said, headers["Content-Encoding"]) == (200, body, None)
        status, said, headers = content.get("n", Accept_Encoding="gzip, identity;q=0")
        assert gzip.decompress(said) == body, "it must be"
    assert content.get("n", Accept_Encoding="identity;q=0")[0] == 406
    content.ask("PUT", "/content/config", b'{"skip": ["application/json"]}')
    try:
        content.put("n", DOCUMENT, Content_Type="application/json")
        assert content.get("n", Accept_Encoding="gzip")[2]["Content-Encoding"] is None
        content.put("n", DOCUMENT, Content_Type="text/x")
        assert content.get("n", Accept_Encoding="gzip")[2]["Content-Encoding"] == "gzip"
    finally:
        content.ask("PUT", "/content/config", b"{}")


def counted(content, how):
    """Bodies that were sent in this way, by the metrics."""
    admin = Content(content.server)
    admin.port = int(content.server.command[content.server.command.index("--admin-port") + 1])
    text = admin.ask("GET", "/metrics", headers={"Authorization": "Bearer token"})[1].decode()
    return float(re.search(rf'^snug_content_bodies_total{{sent="{how}"}} (.*)$', text, re.MULTILINE)[1])


@pytest.mark.parametrize("codec", ["gzip", "brotli", "zstd"])
@pytest.mark.parametrize("body", [DOCUMENT, LONG], ids=len)
def test_as_it_lies(content, codec, body):
    """A packed string in an encoding that the client takes is what is sent, byte for byte."""
    name = {"brotli": "br"}.get(codec, codec)
    content.ask("PUT", "/content/config", json.dumps({"rules": [{"key": f"lies-{codec}", "codec": codec, "level": 5}]}).encode())
    try:
        key = f"lies-{codec}"
        content.put(key, body, Content_Type="application/json")
        raw = content.get(key)
        with content.server.connect() as client:
            client.call("SNUG", "PACK", key)
            packed = {k[1]: v[1] for k, v in zip(*[iter(client.call("SNUG", "OBJECT", key)[1])] * 2)}
            assert packed[b"codec"] == codec.encode(), packed
        before = counted(content, "lying")
        seen = [content.get(key, Accept_Encoding=name) for _ in range(3)]
        for status, said, headers in seen:
            assert (status, headers["Content-Encoding"], headers["ETag"]) == (200, name, raw[2]["ETag"][:-1] + f'-{name}"')
        assert len({said for _, said, _ in seen}) == 1
        if body is DOCUMENT or codec == "zstd":
            assert counted(content, "lying") >= before + 3
        said = seen[0][1]
        if codec == "gzip":
            assert gzip.decompress(said) == body
        if body is DOCUMENT or codec == "zstd":
            # A header of at most some bytes a segment is all that is added or taken away.
            assert abs(len(said) - packed[b"packed-bytes"]) < 20 + 15 * (1 + len(body) // 131072), packed
        if CURL and has(codec):
            url = f"http://127.0.0.1:{content.port}{path_of(key)}"
            done = subprocess.run([CURL, "--silent", "--show-error", "--compressed", url], capture_output=True, check=True, timeout=60)
            assert done.stdout == body
        assert content.get(key)[1] == content.get(key, Accept_Encoding="deflate")[1] == body
        with content.server.connect() as client:
            assert client.call("GET", key) == ("$", body)
            # Another value at the key is another body, whatever was kept of the old one.
            client.call("SET", key, body + b"x")
            assert content.get(key, Accept_Encoding="identity")[1] == body + b"x"
            client.call("SNUG", "PACK", key)
            assert content.get(key, Accept_Encoding=name)[2]["ETag"] != seen[0][2]["ETag"]
            # Of what nobody declared the type is seen, though nobody unpacks it.
            content.put(key, body)
            client.call("SNUG", "PACK", key)
            assert {content.get(key, Accept_Encoding=name)[2]["Content-Type"] for _ in range(3)} == {"application/json"}
    finally:
        content.ask("PUT", "/content/config", b"{}")


@pytest.mark.parametrize("feature,name", [("zstd", "zstd"), ("brotli", "br"), ("libz", "gzip")])
@pytest.mark.parametrize("body", [DOCUMENT, LONG], ids=len)
def test_made_for_curl(content, feature, name, body):
    if not has(feature):
        pytest.skip(f"curl has no {feature}")
    content.put("made", body)
    url = f"http://127.0.0.1:{content.port}/content/made"
    done = subprocess.run([CURL, "--silent", "--show-error", "--compressed", "--header", f"Accept-Encoding: {name}", url], capture_output=True, check=True, timeout=60)
    assert done.stdout == body


def test_requests_may_be_encoded(content):
    for body in (DOCUMENT, LONG, b"", NOISE):
        status, _, headers = content.put("e", gzip.compress(body), Content_Encoding="gzip")
        assert status in (201, 204) and headers["ETag"] is None
        assert content.get("e")[1] == body
    zipped = gzip.compress(DOCUMENT)
    content.put("e", b"before")
    for body, name, status in [
        (zipped[:-5], "gzip", 400), (zipped + b"x", "gzip", 400), (b"nonsense", "gzip", 400), (b"nonsense", "zstd", 400), (b"\xff" * 50, "br", 400),
        (b"", "gzip", 400), (zlib.compress(b"x"), "deflate", 415), (zipped, "gzip, zstd", 415), (b"x", "nonsense", 415),
    ]:  # fmt: skip
        said, _, headers = content.put("e", body, Content_Encoding=name)
        assert said == status, (body[:20], name)
        assert status != 415 or "gzip" in headers["Accept-Encoding"]
    assert content.get("e")[1] == b"before"
    assert content.put("e", b"x", Content_Encoding="identity")[0] == 204


def test_lines_of_accept_encoding_are_one_list(content):
    content.put("lines", DOCUMENT, Content_Type="application/json")
    for lines, encoding in [((b"gzip;q=0.1", b"br"), b"br"), ((b"deflate", b"br"), b"br"), ((b"identity;q=0", b"gzip"), b"gzip")]:
        head = b"HEAD /content/lines HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + b"".join(b"Accept-Encoding: " + line + b"\r\n" for line in lines)
        assert b"\r\ncontent-encoding: " + encoding + b"\r\n" in content.raw(head + b"\r\n").lower()


def test_a_bomb_costs_no_more_than_a_body_may(target):
    server = serving(target, "--proto-max-bulk-len", "1mb").start()
    content = Content(server)
    try:
        used = int(server.info()["used_memory"])
        bomb = gzip.compress(bytes(200_000_000))
        assert len(bomb) < 1_000_000
        assert content.put("bomb", bomb, Content_Encoding="gzip")[0] == 413
        until(lambda: int(server.info()["used_memory"]) < used + 3_000_000)
        assert int(server.info()["used_memory_peak"]) < used + 10_000_000
        assert content.get("bomb")[0] == 404
    finally:
        server.stop()


def test_the_admin_port_too(target):
    port = servers.free_port()
    server = serving(target, "--admin-port", str(port), "--admin-token", "token").start()
    try:
        admin = Content(server)
        admin.port = port
        token = {"Authorization": "Bearer token"}
        plain = admin.ask("GET", "/metrics", headers=token)
        zipped = admin.ask("GET", "/metrics", headers=token | {"Accept-Encoding": "gzip"})
        assert plain[2]["Content-Encoding"] is None and zipped[2]["Content-Encoding"] == "gzip"
        names = [set(line.split()[0] for line in body.splitlines() if line) for body in (plain[1], gzip.decompress(zipped[1]))]
        assert names[0] == names[1] and len(zipped[1]) < len(plain[1]) / 3
        assert admin.ask("GET", "/healthz", headers={"Accept-Encoding": "gzip"})[1] == b"ok\n"
    finally:
        server.stop()


PAGE = """<!DOCTYPE html><title>waiting</title><body><img id=a src="/content/a.png"><img id=b src="/content/b.svg">
<script>addEventListener("load", async () => {
  const data = await (await fetch("/content/data.json")).json();
  const seen = [document.getElementById("a").naturalWidth, document.getElementById("b").naturalWidth, data.length];
  document.title = "seen " + seen.join(" ");
});</script>%s"""


def test_a_browser_shows_a_page(content, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("chromium is not installed")

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", (3).to_bytes(4, "big") + (2).to_bytes(4, "big") + b"\x08\x02\0\0\0")
    png += chunk(b"IDAT", zlib.compress(b"".join(b"\0" + b"\xff\0\0" * 3 for _ in range(2)))) + chunk(b"IEND", b"")
    content.put("a.png", png, Content_Type="image/png")
    content.put("b.svg", b'<svg xmlns="http://www.w3.org/2000/svg" width="7" height="5"/>', Content_Type="image/svg+xml")
    content.put("page.html", (PAGE % ("<!-- and text that packs well -->" * 200)).encode(), Content_Type="text/html")
    with content.server.connect() as client:
        for codec in ("zstd", "brotli", "gzip"):
            content.ask("PUT", "/content/config", json.dumps({"rules": [{"key": "data.json", "codec": codec}]}).encode())
            content.put("data.json", LONG, Content_Type="application/json")
            client.call("SNUG", "PACK", "data.json")
            shown = subprocess.run(
                [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / codec}", "--virtual-time-budget=20000", "--dump-dom", f"http://127.0.0.1:{content.port}/content/page.html"],
                capture_output=True, text=True, timeout=200,
            ).stdout  # fmt: skip
            assert "<title>seen 3 7 20000</title>" in shown, (codec, shown[:300])
    content.ask("PUT", "/content/config", b"{}")
