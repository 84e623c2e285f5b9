"""What durability costs, beside redis-server: `make durability`, or

    cd tests && python -m bench.durability --snug ../target/release/snug --scale 0.1

Not a test: it measures, and asserts nothing. Four tables, in Markdown:

  append-only file   CPU seconds of the server per million SETs and their rate, without it,
                     with everysec and with always
  files              what the same data take on disk, and seconds and CPU seconds to save
                     and to load them
  snapshot           a snapshot while 50 clients write as fast as they can: p99.9 and the
                     longest wait, memory that it takes

CPU seconds are the server's own, its children's included (redis-server forks): they say
more than rates where a machine has other things to do. Runs are interleaved and repeated.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import servers  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
MEGABYTE = 1e6


def stat(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def cpu_seconds(pid):
    """Of the process, its threads and its children, those that have ended included."""
    fields = stat(pid)
    ticks = sum(int(fields[n]) for n in (11, 12, 13, 14))
    for child in children(pid):
        try:
            fields = stat(child)
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def own_bytes(pid):
    """Memory that the process and its children have, what they share counted once."""
    total = 0
    for one in (pid, *children(pid)):
        try:
            text = pathlib.Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total * 1024


class Bench:
    def __init__(self, snug, work):
        self.snug, self.work = snug, pathlib.Path(work)

    def server(self, kind, *flags):
        common = ["--enable-debug-command", "local"]
        if kind == "redis":
            return servers.Server([servers.REDIS_SERVER], "reference", [*common, *flags]).start()
        return servers.Server([self.snug, "serve"], "snug", [*common, *flags]).start()

    def load(self, server, workload, *flags):
        """Runs a workload of `snug bench`; its report, and the server's CPU seconds."""
        report = self.work / "report.json"
        before = cpu_seconds(server.pid)
        command = [self.snug, "bench", workload, "-p", str(server.port), "-q", "--json", str(report), *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr or done.stdout}")
        return json.loads(report.read_text()), cpu_seconds(server.pid) - before


def call(server, *words):
    with server.connect() as connection:
        return connection.call(*words)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(title, *cells):
    print(f"\n### {title}\n", flush=True)
    row(*cells)
    row(*["---"] * len(cells))


def append_only(bench, rounds, requests):
    settings = {
        "off": ["--appendonly", "no"],
        "everysec": ["--appendonly", "yes", "--appendfsync", "everysec"],
        "always": ["--appendonly", "yes", "--appendfsync", "always"],
    }
    head("Append-only file: SET of 64 bytes by 50 clients, CPU seconds per million (thousand a second)", "", "pipeline", *settings, "everysec costs")
    for pipeline in (1, 16):
        for kind in ("snug", "redis"):
            cpu, rate = {}, {}
            for _ in range(rounds):
                for name, flags in settings.items():
                    server = bench.server(kind, *flags)
                    few = name == "always" and pipeline == 1
                    count = requests * (1 if pipeline == 1 else 4) // (8 if few else 1)
                    report, seconds = bench.load(server, "set-get", "-t", "set", "-P", str(pipeline), "-d", "64", "-r", "100000", "-c", "50", "-n", str(count), "--rest", "0")
                    cpu.setdefault(name, []).append(seconds * 1e6 / count)
                    rate.setdefault(name, []).append(report["results"][-1]["throughput"] / 1000)
                    server.stop()
            best = {name: min(all) for name, all in cpu.items()}
            cells = [f"{best[name]:.2f} ({max(rate[name]):.0f})" for name in settings]
            row(kind, pipeline, *cells, f"{best['everysec'] / best['off'] * 100 - 100:+.0f} % CPU, {max(rate['everysec']) / max(rate['off']) * 100 - 100:+.0f} % rate")


WORKLOADS = ["json-zipf", "list-celery", "stream-flights", "hash-profiles"]


def timed(server, what):
    before, began = cpu_seconds(server.pid), time.monotonic()
    what()
    return time.monotonic() - began, cpu_seconds(server.pid) - before


def loaded(server):
    while server.info()["loading"] != "0":
        time.sleep(0.002)


def at_rest(server):
    """Waits until memory has not become less for a few seconds: what cools is packed."""
    least, since, began = None, time.monotonic(), time.monotonic()
    while time.monotonic() < min(since + 6, began + 120):
        used = int(server.info()["used_memory"])
        if least is None or used < least * 0.995:
            least, since = used, time.monotonic()
        time.sleep(0.5)


def files(bench, workloads, scale):
    head("Files", "workload", "", "file, MB", "save, s", "CPU s", "load, s", "CPU s")
    for workload in workloads:
        for kind, flags in (
            ("redis", []),
            ("snug, rdb", ["--save-format", "rdb"]),
            ("snug", ["--save-format", "snug"]),
        ):
            # It is given time to pack, as a server has between two busy hours.
            own = ["--pack-cpu-percent", "100", "--pack-cold-after", "2"] if flags else []
            server = bench.server(kind.split(",")[0], *flags, *own)
            bench.load(server, workload, "--scale", str(scale), "--duration", "60")
            at_rest(server)
            digest = call(server, "DEBUG", "DIGEST")
            if "snug" in kind:
                # What is packed at rest is what is saved; packing is no part of saving.
                call(server, "CONFIG", "SET", "pack", "no")
            save, save_cpu = timed(server, lambda: call(server, "SAVE"))
            (path,) = [p for p in server.directory.iterdir() if p.suffix in (".rdb", ".snug")]
            size = path.stat().st_size
            server.process.kill()
            server.process.wait()
            began = time.monotonic()
            server.start()
            loaded(server)
            load, load_cpu = time.monotonic() - began, cpu_seconds(server.pid)
            if call(server, "DEBUG", "DIGEST") != digest:
                sys.exit(f"{workload}: what {kind} loaded is not what it saved")
            row(workload, kind, f"{size / MEGABYTE:.1f}", f"{save:.2f}", f"{save_cpu:.2f}", f"{load:.2f}", f"{load_cpu:.2f}")
            server.stop()


def snapshot(bench, keys, seconds):
    head("Snapshot under a full write load: SET of 100 bytes by 50 clients", "", "", "thousand a second", "p99.9, ms", "longest, ms", "memory, MB", "most in it, MB")
    for kind in ("redis", "snug"):
        for saves in (False, True):
            server = bench.server(kind)
            bench.load(server, "set-get", "-t", "set", "-P", "16", "-d", "100", "-r", str(keys), "--key-distribution", "sequential", "-n", str(keys), "--rest", "0")
            before, most, stop = own_bytes(server.pid), [0], threading.Event()

            def watch(server=server, most=most, stop=stop, saves=saves):
                while not stop.is_set():
                    if saves and server.info()["rdb_bgsave_in_progress"] == "0":
                        call(server, "BGSAVE")
                    most[0] = max(most[0], own_bytes(server.pid))
                    time.sleep(0.05)

            watcher = threading.Thread(target=watch)
            watcher.start()
            report, _ = bench.load(server, "set-get", "-t", "set", "-P", "1", "-d", "100", "-r", str(keys), "-c", "50", "--duration", str(seconds), "--rest", "0")
            stop.set()
            watcher.join()
            result = report["results"][-1]
            waits = result["kinds"][0]["latency"]
            figures = (f"{result['throughput'] / 1000:.0f}", f"{waits['p999_us'] / 1000:.2f}", f"{waits['max_us'] / 1000:.2f}")
            row(kind, "saving" if saves else "", *figures, f"{before / MEGABYTE:.0f}", f"{most[0] / MEGABYTE:.0f}")
            server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snug", default="target/release/snug")
    parser.add_argument("--scale", type=float, default=0.1, help="of the workloads of the second table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=400_000)
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the third table")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--workload", action="append", help="of the second table; all four if none")
    parser.add_argument("parts", nargs="*", help="append-only, files, snapshot; all if none")
    options = parser.parse_args()
    parts = options.parts or ["append-only", "files", "snapshot"]
    bench = Bench(str(pathlib.Path(options.snug).resolve()), servers.tempfile.mkdtemp(prefix="snug-durability-"))
    if "append-only" in parts:
        append_only(bench, options.rounds, options.requests)
    if "files" in parts:
        files(bench, options.workload or WORKLOADS, options.scale)
    if "snapshot" in parts:
        snapshot(bench, options.keys, options.seconds)


if __name__ == "__main__":
    main()
