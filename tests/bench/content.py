"""Content over HTTP beside nginx, and what encodings save and cost.

    python tests/bench/content.py --snug target/release/snug [--seconds 5] [--cores 0 1]

Prints three tables in Markdown. The first: GET of 10 KB of JSON by `wrk` on the second core
from a server with one worker on the first: nginx with `gzip_static` and the same file, and
Snug with the string raw, packed in gzip and sent as it lies, encoded once and kept, and
packed with its family's dictionary. The second: bytes on the wire and CPU for each encoding,
for JSON of 10 KB to 1 MB. The third: what `snug bench capture` has put, fetched over HTTP, kind
by kind. CPU is the server's own, from /proc. Needs nginx and wrk (Debian
has both).
"""

import argparse
import gzip
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import servers  # noqa: E402
from harness.content import Content, serving  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
NGINX = """worker_processes 1; daemon off; pid {dir}/pid; error_log {dir}/error;
events {{ worker_connections 1024; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; gzip_static on; types {{ application/json json; }}
open_file_cache max=1000; client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c; uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
server {{ listen 127.0.0.1:{port}; root {dir}; }} }}"""


def document(size):
    """JSON of records, of about so many bytes."""
    chance, rows, length = random.Random(1), [], 2
    names = ["Ada", "Bo", "Cleo", "Dan", "Eve", "Finn"]
    while length < size:
        rows.append({"id": chance.randrange(10**9), "name": chance.choice(names), "at": 1764040000 + chance.randrange(10**6), "tags": chance.sample(names, 2), "note": f"seen {chance.randrange(100)} times"})
        length += len(json.dumps(rows[-1])) + 2
    return json.dumps(rows).encode()


def cpu(pid):
    """Seconds that a process and its children have used."""
    family = {pid} | {int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    fields = [pathlib.Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split() for p in family]
    return sum(int(f[11]) + int(f[12]) for f in fields) / TICKS


def load(url, pid, seconds, core, encoding):
    """Requests a second, p99 in ms, and CPU microseconds of the server for each request."""
    before = cpu(pid)
    words = ["taskset", "-c", str(core), "wrk", "-t1", "-c32", f"-d{seconds}s", "--latency"]
    if encoding:
        words += ["-H", f"Accept-Encoding: {encoding}"]
    said = subprocess.run([*words, url], capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in said, said
    rate = float(re.search(r"Requests/sec: +([\d.]+)", said)[1])
    count = int(re.search(r"(\d+) requests in", said)[1])
    p99, unit = re.search(r"99% +([\d.]+)(us|ms|s)", said).groups()
    p99 = float(p99) * {"us": 0.001, "ms": 1, "s": 1000}[unit]
    return rate, p99, (cpu(pid) - before) * 1e6 / count


def beside_nginx(target, seconds, cores):
    body = document(10_000)
    print(f"GET of {len(body)} bytes of JSON, one core each for server and wrk, 32 connections, {seconds} s.\n")
    print("| server | sent | requests/s | p99 ms | CPU us a request |\n| --- | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        port = servers.free_port()
        (folder / "doc.json").write_bytes(body)
        (folder / "doc.json.gz").write_bytes(gzip.compress(body, 9))
        (folder / "conf").write_text(NGINX.format(dir=folder, port=port))
        folder.chmod(0o755)
        nginx = subprocess.Popen(["taskset", "-c", str(cores[0]), shutil.which("nginx") or "/usr/sbin/nginx", "-c", str(folder / "conf")])
        try:
            time.sleep(1)
            for encoding in ("", "gzip"):
                figures = load(f"http://127.0.0.1:{port}/doc.json", nginx.pid, seconds, cores[1], encoding)
                print(f"| nginx | {encoding or 'identity'} | {figures[0]:,.0f} | {figures[1]:.2f} | {figures[2]:.1f} |")
        finally:
            nginx.terminate()
            nginx.wait()
    server = serving(target, "--pack", "no", workers=1)
    server.command = ["taskset", "-c", str(cores[0]), *server.command]
    server.start()
    content = Content(server)
    try:
        content.put("doc", body, Content_Type="application/json")
        content.put("gzipped", body, Content_Type="application/json")
        content.ask("PUT", "/content/config", b'{"rules": [{"key": "gzipped", "codec": "gzip", "level": 9}]}')
        for key, encoding, what in [("doc", "", "raw"), ("doc", "gzip", "encoded once and kept"), ("gzipped", "gzip", "as it lies")]:
            if what == "as it lies":
                with server.connect() as client:
                    client.call("CONFIG", "SET", "pack", "yes")
                    client.call("SNUG", "PACK", key)
            figures = load(f"http://127.0.0.1:{content.port}/content/{key}", server.pid, seconds, cores[1], encoding)
            print(f"| Snug, {what} | {encoding or 'identity'} | {figures[0]:,.0f} | {figures[1]:.2f} | {figures[2]:.1f} |")
    finally:
        server.stop()


def encodings(target, cores):
    print("\nBytes on the wire, and CPU of the server for each request; nothing kept.\n")
    print("| JSON, bytes | identity | us | zstd | us | br | us | gzip | us |\n| ---: " + "| ---: " * 8 + "|")
    server = serving(target, "--pack", "no", "--content-cache-bytes", "0", workers=1).start()
    os.sched_setaffinity(server.pid, {cores[0]})
    content = Content(server)
    try:
        for size in (10_000, 100_000, 1_000_000):
            body = document(size)
            content.put("doc", body, Content_Type="application/json")
            row = [f"{len(body):,}"]
            for encoding in ("identity", "zstd", "br", "gzip"):
                connection = http.client.HTTPConnection("127.0.0.1", content.port)
                before, count, end, wire = cpu(server.pid), 0, time.monotonic() + 2, 0
                while time.monotonic() < end:
                    connection.request("GET", "/content/doc", headers={"Accept-Encoding": encoding})
                    wire = len(connection.getresponse().read())
                    count += 1
                row += [f"{wire:,}", f"{(cpu(server.pid) - before) * 1e6 / count:,.0f}"]
                connection.close()
            print("| " + " | ".join(row) + " |")
    finally:
        server.stop()


def capture(target, path, seconds):
    """What a capture pipeline has put over RESP, fetched over HTTP, kind by kind."""
    print(f"\n`capture`, {seconds} s of it at a fiftieth of its rate over RESP, then 200 of each kind over HTTP: bytes on the wire for each byte, and CPU us a KiB.\n")
    print("| kind | mean bytes | identity us | zstd | us | br | us | gzip | us | verdict |\n| --- | ---: " + "| ---: " * 7 + "| --- |")
    server = serving(target, "--pack", "no", "--content-cache-bytes", "0", workers=1).start()
    content = Content(server)
    try:
        subprocess.run([path, "bench", "capture", "--port", str(server.port), "--scale", "0.02", "--duration", str(seconds)], check=True, capture_output=True)
        # The pipeline keeps them some seconds; here they stay.
        paths = {}
        with server.connect() as client:
            for kind in ("packet", "session", "http-meta", "http-body", "http-log"):
                found = json.loads(content.ask("GET", f"/content?prefix={kind}&count=200")[1])["keys"]
                paths[kind] = [key["href"] for key in found if client.call("PERSIST", key["key"]) == (":", 1)]
        for kind, paths in paths.items():
            row, ratios = [], {}
            for encoding in ("identity", "zstd", "br", "gzip"):
                connection = http.client.HTTPConnection("127.0.0.1", content.port)
                before, raw, wire, until = cpu(server.pid), 0, 0, time.monotonic() + 1
                while time.monotonic() < until:
                    for href in paths:
                        connection.request("GET", href, headers={"Accept-Encoding": encoding})
                        answer = connection.getresponse()
                        assert answer.status == 200, href
                        wire += len(answer.read())
                        raw += sizes[href] if encoding != "identity" else 0
                connection.close()
                raw = raw or wire
                if encoding == "identity":
                    sizes = {href: len(content.ask("GET", href)[1]) for href in paths}
                    row.append(f"{sum(sizes.values()) / len(sizes):,.0f}")
                else:
                    ratios[encoding] = wire / raw
                    row.append(f"{wire / raw:.2f}")
                row.append(f"{(cpu(server.pid) - before) * 1e6 / (raw / 1024):.1f}")
            verdict = "as it is" if min(ratios.values()) > 0.9 else "encoded"
            print(f"| {kind} | " + " | ".join(row) + f" | {verdict} |")
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snug", default="target/release/snug")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs=2, default=[0, 1])
    parser.add_argument("--only", nargs="*", choices=["nginx", "encodings", "capture"])
    options = parser.parse_args()
    target = servers.Target(str(pathlib.Path(options.snug).resolve()))
    parts = {
        "nginx": lambda: beside_nginx(target, options.seconds, options.cores),
        "encodings": lambda: encodings(target, options.cores),
        "capture": lambda: capture(target, options.snug, options.seconds),
    }
    [run() for name, run in parts.items() if name in (options.only or parts)]


if __name__ == "__main__":
    main()
