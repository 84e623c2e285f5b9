"""A packet-capture pipeline at its full rate, over RESP and over HTTP: `make capture`, or

    cd tests && python -m bench.capture --snug ../target/release/snug [--scale 1] [--first]

Not a test: it measures, and asserts nothing. What is written is what `snug bench capture`
writes: 10,500 values a second, 100 MB, each kept 10 or 30 seconds. Tables, in Markdown:

  resp       beside redis-server: rates, latency, CPU, bytes held for each kind, and the
             verdict on it. One worker; rounds take turns; figures are medians
  http       the same values at the same rate by PUT, each with its Content-Type and its time
             to live: what is reached, CPU of a request, with packing and without, bytes held
             with what is known beside a value, verdicts, and what packing counts by MIME type

The server has the first core, what loads it the other. Over HTTP that is wrk with
`capture.lua`: 64 connections, each with one request under way, sent when it is due or as soon
after as one of them is free; latency is from when it was sent. Its values are drawn from
some thousands of each kind, which `snug bench capture` made. Needs wrk (Debian has it).
"""

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from bench.content import cpu  # noqa: E402
from harness import packing, servers  # noqa: E402
from harness.content import serving  # noqa: E402

#: Writes a second, seconds kept.
KINDS = {"packet": (6000, 10), "session": (2400, 30), "http-meta": (700, 30), "http-body": (700, 30), "http-log": (700, 30)}
RATE = sum(rate for rate, _ in KINDS.values())
#: What a kind is declared as over HTTP. A body by what it is: see `type_of`.
TYPES = {"packet": "application/vnd.tcpdump.pcap", "session": "application/json", "http-meta": "application/json", "http-log": "text/plain"}
#: Values that are drawn from.
POOL = 12_000
#: Keys of each kind that are looked at.
SAMPLE = 200
CONNECTIONS = 64
SCRIPT = pathlib.Path(__file__).with_name("capture.lua")
TOKEN = "measured"


def median(rows):
    return statistics.median(rows)


def verdicts(connection):
    """Of each kind, the verdict on its family and what that makes of a byte."""
    told = {}
    for shape, family in packing.families(connection).items():
        kind = next((kind for kind in KINDS if shape.decode().startswith(kind + ":")), None)
        if kind and family[b"type"] == b"string":
            codec = family[b"codec"].decode()
            told[kind] = family[b"verdict"].decode() + (f", {codec}" if codec else "")
    return told


class Bench:
    def __init__(self, options):
        self.options = options
        self.target = servers.Target(options.snug)

    def on_its_core(self, server):
        """A server that is to run on the first core, started."""
        server.command = ["taskset", "-c", str(self.options.cores[0]), *server.command]
        server.start()
        if self.options.first:
            for thread in pathlib.Path(f"/proc/{server.pid}/task").iterdir():
                if (thread / "comm").read_text().startswith(("worker-", "redis-server")):
                    os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))
        return server

    def on_the_other(self):
        """What a program that loads the server is started by."""
        return [*(["chrt", "-r", "1"] if self.options.first else []), "taskset", "-c", str(self.options.cores[1])]

    def generate(self, server, *flags):
        """`snug bench capture` on the other core; its result."""
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            words = [*self.on_the_other(), self.options.snug, "bench", "capture", "-q", "--port", str(server.port)]
            subprocess.run([*words, *map(str, flags), "--json", report.name], check=True)
            return json.load(open(report.name))["results"][0]

    # Over RESP.

    def resp(self):
        options, rows = self.options, {"Snug": [], "redis-server": []}
        told = {}
        for number in range(options.rounds):
            for name, found in rows.items():
                server = self.target.server(*self.options.flags.split(), workers=1) if name == "Snug" else servers.Server([servers.REDIS_SERVER], "redis")
                server = self.on_its_core(server)
                try:
                    found.append(self.generate(server, "--scale", options.scale, "--duration", options.seconds, "--seed", number + 1))
                    with server.connect() as connection:
                        told = verdicts(connection) if name == "Snug" else told
                finally:
                    server.stop()
                self.say(name, found[-1])
        self.print_resp(rows, told)

    @staticmethod
    def say(name, row):
        print(f"{name}: {row['throughput']:,.0f}/s, {row['cpu']['per_million']:.1f} CPU s a million", file=sys.stderr)

    def print_resp(self, rows, told):
        options = self.options
        print(f"\n`capture` over RESP, {RATE * options.scale:,.0f} writes a second for {options.seconds} s, medians of {options.rounds}:\n")
        print("| server | writes a second | MB a second | not sent | CPU s a million | CPU s a million, load | used MB | resident MB |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for name, found in rows.items():
            columns = [
                f"{median([r['throughput'] for r in found]):,.0f}",
                f"{median([r['sent_bytes'] / r['seconds'] for r in found]) / 1e6:.1f}",
                f"{median([sum(k['unsent'] for k in r['kinds']) for r in found]):,.0f}",
                f"{median([r['cpu']['per_million'] for r in found]):.1f}",
                f"{median([r['cpu']['client_seconds'] / r['operations'] * 1e6 for r in found]):.1f}",
                f"{median([r['memory']['ended']['used'] for r in found]) / 1e6:,.0f}",
                f"{median([r['memory']['ended']['resident'] for r in found]) / 1e6:,.0f}",
            ]
            print(f"| {name} | " + " | ".join(columns) + " |")
        print("\n| kind | writes a second, asked | Snug | redis-server | p50 us, Snug | redis-server | p99 us, Snug | redis-server | bytes held a byte, Snug | redis-server | ratio | verdict |")
        print("| --- | " + "---: | " * 10 + "--- |")
        for kind, (rate, _) in KINDS.items():
            of = lambda found, read: median([read(next(k for k in r["kinds"] if k["name"] == kind)) for r in found])
            held = lambda found: median([next(f["value"] for f in r["figures"] if f["name"].startswith(kind + ":")) for r in found])
            columns = [f"{rate * options.scale:,.0f}"]
            columns += [f"{of(found, lambda k: k['throughput']):,.0f}" for found in rows.values()]
            columns += [f"{of(found, lambda k: k['latency'][p]):,.0f}" for p in ("p50_us", "p99_us") for found in rows.values()]
            columns += [f"{held(found):.2f}" for found in rows.values()]
            columns += [f"{held(rows['Snug']) / held(rows['redis-server']):.2f}", told.get(kind, "")]
            print(f"| {kind} | " + " | ".join(columns) + " |")

    # Over HTTP.

    def http(self):
        pool, found = self.pool(), {"yes": [], "no": []}
        for _ in range(self.options.rounds):
            for pack, rows in found.items():
                server = serving(self.target, "--pack", pack, "--admin-port", str(servers.free_port()), "--admin-token", TOKEN, *self.options.flags.split(), workers=1)
                server = self.on_its_core(server)
                try:
                    rows.append(self.put(server, pool))
                finally:
                    server.stop()
                print(f"HTTP, pack {pack}: {rows[-1]['rate']:,.0f}/s, {rows[-1]['cpu_us']:.1f} CPU us a request", file=sys.stderr)
        self.print_http(*found.values())

    def pool(self):
        """Values of each kind as `snug bench capture` makes them."""
        server = self.target.start("--pack", "no", workers=1)
        try:
            self.generate(server, "--rate", 20_000, "-n", POOL, "--rest", 0)
            with server.connect() as connection:
                keys = [key for _, key in connection.call("KEYS", "*")[1]]
                values = connection.pipeline([("GET", key) for key in keys])
        finally:
            server.stop()
        pool = {kind: [] for kind in KINDS}
        for key, (_, value) in zip(keys, values):
            if value is not None:
                pool[key.decode().split(":")[0]].append(value)
        return pool

    def put(self, server, pool):
        """Writes for some seconds; what came of it."""
        options = self.options
        port = int(server.command[server.command.index("--content-port") + 1])
        shares = [str(word) for kind, (rate, _) in KINDS.items() for word in (kind, rate)]
        before, load_before = cpu(server.pid), os.times()
        with tempfile.NamedTemporaryFile() as file:
            write_pool(pool, file.name)
            words = [*self.on_the_other(), "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{options.seconds}s", "-s", str(SCRIPT)]
            words += [f"http://127.0.0.1:{port}", "--", file.name, str(RATE * options.scale), *shares]
            said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        used = os.times()
        result = {name: float(value) for name, value in re.findall(r"(\S+)=(\S+)", said[said.index("told:") :])}
        done = result["requests"]
        of_kinds = sum(result[kind] for kind in KINDS)
        with server.connect() as connection:
            return {
                **result,
                "cpu_us": (cpu(server.pid) - before) * 1e6 / done,
                "rate": done / result["seconds"],
                "rates": {kind: result[kind] / of_kinds * done / result["seconds"] for kind in KINDS},
                "load_cpu": used.children_user + used.children_system - load_before.children_user - load_before.children_system,
                "used": int(server.info()["used_memory"]),
                "resident": server.rss_bytes(),
                "held": {kind: held(connection, kind) for kind in KINDS},
                "verdicts": verdicts(connection),
                "mime": by_mime(int(server.command[server.command.index("--admin-port") + 1])),
            }

    def print_http(self, packed, raw):
        options = self.options
        print(f"\n`capture` over HTTP, {RATE * options.scale:,.0f} PUT a second for {options.seconds} s, medians of {options.rounds}:\n")
        print("| packing | PUT a second | failed | p50 ms | p99 ms | CPU us a request | of one core, % | CPU us a request, load | used MB | resident MB |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for name, rows in (("on", packed), ("off", raw)):
            of = lambda read: median([read(row) for row in rows])
            columns = [
                f"{of(lambda r: r['rate']):,.0f}",
                f"{of(lambda r: r['bad']):,.0f}",
                f"{of(lambda r: r['p50']):.2f}",
                f"{of(lambda r: r['p99']):.2f}",
                f"{of(lambda r: r['cpu_us']):.1f}",
                f"{of(lambda r: r['cpu_us'] * r['rate']) / 1e4:.0f}",
                f"{of(lambda r: r['load_cpu'] * 1e6 / (r['rate'] * r['seconds'])):.1f}",
                f"{of(lambda r: r['used']) / 1e6:,.0f}",
                f"{of(lambda r: r['resident']) / 1e6:,.0f}",
            ]
            print(f"| {name} | " + " | ".join(columns) + " |")
        print("\n| kind | Content-Type | PUT a second, asked | reached | bytes | held, packing off | held, on | held a byte, off | on | ratio | verdict |")
        print("| --- | --- | " + "---: | " * 8 + "--- |")
        for kind, (rate, _) in KINDS.items():
            (off, on), (off_length, length) = ([median([row["held"][kind][part] for row in rows]) for rows in (raw, packed)] for part in (0, 1))
            columns = [TYPES.get(kind, "image/jpeg, application/gzip, text/html"), f"{rate * options.scale:,.0f}"]
            columns += [f"{median([row['rates'][kind] for row in packed]):,.0f}", f"{length:,.0f}", f"{off:,.0f}", f"{on:,.0f}"]
            columns += [f"{off / off_length:.2f}", f"{on / length:.2f}", f"{on / length * off_length / off:.2f}"]
            print(f"| {kind} | " + " | ".join([*columns, packed[-1]["verdicts"].get(kind, "")]) + " |")
        print("\n| MIME types | codec | values | raw MB | packed MB | share |\n| --- | --- | ---: | ---: | ---: | ---: |")
        for (mime, codec), (values, of, to) in sorted(packed[-1]["mime"].items()):
            print(f"| {mime} | {codec} | {values:,} | {of / 1e6:,.1f} | {to / 1e6:,.1f} | {to / max(1, of):.2f} |")


def held(connection, kind):
    """Mean bytes that a value of a kind takes, key and what is known beside it included, and
    mean bytes of its values."""
    cursor, keys = b"0", []
    while len(keys) < SAMPLE:
        (_, cursor), (_, found) = connection.call("SCAN", cursor, "MATCH", f"{kind}:*", "COUNT", "1000")[1]
        keys += [key for _, key in found]
        if cursor == b"0":
            break
    total, lengths = [], []
    for key in keys[:SAMPLE]:
        card = b"snug:content:{%s}" % key
        length, *usages = (reply[1] for reply in connection.pipeline([("STRLEN", key), ("MEMORY", "USAGE", key), ("MEMORY", "USAGE", card)]))
        if length and usages[0]:
            lengths.append(length)
            total.append(sum(usage or 0 for usage in usages))
    return (statistics.mean(total), statistics.mean(lengths)) if total else (0, 0)


def by_mime(port):
    """Of strings, by group of MIME types and codec: values, bytes before, bytes after."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    text = urllib.request.urlopen(request).read().decode()
    found = collections.defaultdict(lambda: [0, 0, 0])
    for at, name in enumerate(("values", "raw_bytes", "packed_bytes")):
        for labels, value in re.findall(rf"^snug_packing_{name}_total{{(.*)}} (\S+)$", text, re.M):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if labels["type"] == "string":
                found[labels["mime"], labels["codec"]][at] += int(float(value))
    return found


def type_of(kind, value):
    """What a value is declared as: bodies that were compressed before are images or gzip, the
    others pages."""
    if kind != "http-body":
        return TYPES[kind]
    return "text/html" if value[:256].isascii() else ("image/jpeg" if value[0] % 2 else "application/gzip")


def write_pool(pool, path):
    """Values as `capture.lua` reads them."""
    with open(path, "wb") as file:
        for kind, values in pool.items():
            for value in values:
                file.write(f"{kind} {KINDS[kind][1]} {type_of(kind, value)} {len(value)}\n".encode() + value + b"\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snug", default="../target/release/snug")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--seconds", type=int, default=45)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, nargs=2, default=[0, 1])
    parser.add_argument("--flags", default="", help="more flags of Snug, as '--pack-cpu-percent 25'")
    parser.add_argument("--first", action="store_true", help="run ahead of whatever else the machine does, which root may")
    parser.add_argument("tables", nargs="*", choices=["resp", "http", []], default=[], help="all without any")
    options = parser.parse_args()
    options.snug = str(pathlib.Path(options.snug).resolve())
    bench = Bench(options)
    for table in options.tables or ["resp", "http"]:
        getattr(bench, table)()


if __name__ == "__main__":
    main()
