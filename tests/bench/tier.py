"""The disk tier on a data set ten times `maxmemory`: `make tier`, or

    cd tests && python -m bench.tier --snug ../target/release/snug

Not a test: it measures, and asserts nothing. Three tables, in Markdown:

  rate       reads by Zipf's law (0.99), after writes by it: what share memory answers, here
             and in a redis-server of the same `maxmemory` that evicts by LRU, for which the
             others are gone
  hits       reads of the keys that are in memory, beside a server without a tier that has
             all of them: rate, CPU seconds a million
  misses     reads of keys drawn evenly by one client, nine of ten of which are on disk, and
             what the device takes for such a record (`pread`, nothing of it in the page cache)

One worker. Values are random letters and digits, which packing makes a quarter smaller.
Rounds are interleaved; figures are medians.
"""

import argparse
import csv
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import servers  # noqa: E402

SIZE = 4096
#: Keys that the table of hits reads: a fifth of what fits.
HOT = 0.02
TABLES = ("rate", "hits", "misses")


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.limit = ["--maxmemory", str(options.keys * SIZE // 10), "--maxmemory-policy", "allkeys-lru"]
        self.target = servers.Target(options.snug)

    def tiered(self):
        return self.target.start("--tier-path", str(self.folder), "--tier-max-bytes", "100gb", *self.limit, workers=1)

    def load(self, server, *flags):
        """One step of `snug bench`: its row."""
        command = [self.options.snug, "bench", "-p", str(server.port), "-d", str(SIZE), "--payload", "random", "--rest", "0", "-q", "--csv", "-", *map(str, flags)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return list(csv.DictReader(done.stdout.splitlines()))[-1]

    def fill(self, server):
        """All keys, in order."""
        self.load(server, "-t", "set", "-r", self.options.keys, "-n", self.options.keys, "--key-distribution", "sequential", "-c", 50, "-P", 4)
        self.rest(server)

    def rest(self, server):
        """Until nothing goes to disk any more."""
        last, since = None, time.monotonic()
        while time.monotonic() - since < 5:
            info = server.info()
            now = [info.get(name) for name in ("tier_values_left", "packed_bytes")]
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(0.2)

    def zipf(self, server, seconds, kind="get"):
        return self.load(server, "-t", kind, "-r", self.options.keys, "--key-distribution", "zipf", "-c", 50, "-P", 1, "--duration", seconds)

    def hit_rate(self):
        print(f"{self.options.keys} values of {SIZE} bytes, maxmemory a tenth of them\n\n| server | answered from memory, % | reads a second |\n| --- | --- | --- |")
        redis = servers.redis(*self.limit)
        snug = self.tiered()
        try:
            for name, server in (("redis-server", redis), ("Snug", snug)):
                self.fill(server)
                for kind in ("set", "get"):
                    self.zipf(server, self.options.seconds, kind)
                before = server.info()
                row = self.zipf(server, self.options.seconds)
                after = server.info()
                reads = float(row["operations"])
                missed = "keyspace_misses" if server is redis else "tier_values_brought"
                share = 1 - (int(after[missed]) - int(before[missed])) / reads
                print(f"| {name} | {100 * share:.1f} | {float(row['throughput']):.0f} |", flush=True)
        finally:
            redis.stop()
            snug.stop()

    def hits(self):
        print("\n| pipeline | a second, no tier | with one | | CPU s a million, no tier | with one | |\n| --- | --- | --- | --- | --- | --- | --- |")
        plain, tiered = self.target.start(workers=1), self.tiered()
        try:
            hot = int(self.options.keys * HOT)
            for server in (plain, tiered):
                self.fill(server)
                for _ in range(3):
                    self.load(server, "-t", "get", "-r", hot, "-n", hot, "--key-distribution", "sequential", "-P", 16)
                self.rest(server)
            for pipeline in (1, 16):
                rows = {server: [] for server in (plain, tiered)}
                for _ in range(self.options.rounds):
                    for server, found in rows.items():
                        row = self.load(server, "-t", "get", "-r", hot, "-c", 50, "-P", pipeline, "--duration", self.options.seconds / 2)
                        found.append((float(row["throughput"]), float(row["cpu_s_per_million"])))
                (rate, cpu), (tier_rate, tier_cpu) = ([statistics.median(column) for column in zip(*found)] for found in rows.values())
                print(f"| {pipeline} | {rate:.0f} | {tier_rate:.0f} | {100 * tier_rate / rate - 100:+.0f} % | {cpu:.2f} | {tier_cpu:.2f} | {100 * tier_cpu / cpu - 100:+.0f} % |", flush=True)
        finally:
            plain.stop()
            tiered.stop()

    def misses(self):
        print("\n| | p50 us | p99 us |\n| --- | --- | --- |")
        tiered = self.tiered()
        try:
            self.fill(tiered)
            rows, device = [], []
            for _ in range(self.options.rounds):
                row = self.load(tiered, "-t", "get", "-r", self.options.keys, "-c", 1, "-P", 1, "--duration", self.options.seconds / 2)
                rows.append([float(row[name]) for name in ("p50_us", "p99_us")])
                device.append(self.device())
            for name, found in (("the device's own read", device), ("GET, nine of ten from disk", rows)):
                middle, late = (statistics.median(column) for column in zip(*found))
                print(f"| {name} | {middle:.0f} | {late:.0f} |", flush=True)
        finally:
            tiered.stop()

    def device(self, reads=3000):
        """Reads of a record's size at random places of the tier's files."""
        files = [os.open(path, os.O_RDONLY) for path in self.folder.glob("*.seg")]
        took = []
        for _ in range(reads):
            file = random.choice(files)
            at = random.randrange(max(1, os.fstat(file).st_size - SIZE))
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
            os.posix_fadvise(file, at & ~4095, 2 * SIZE, os.POSIX_FADV_DONTNEED)
            began = time.perf_counter()
            os.pread(file, SIZE * 3 // 4, at)
            took.append((time.perf_counter() - began) * 1e6)
        for file in files:
            os.close(file)
        took.sort()
        return took[len(took) // 2], took[len(took) * 99 // 100]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snug", default="../target/release/snug", help="the server, and its bench")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of each load; half of that for hits and misses")
    parser.add_argument("--folder", default=".", help="where the tier's files are: a disk, not memory")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}; all if none")
    options = parser.parse_args()
    if unknown := set(options.tables) - set(TABLES):
        parser.error(f"no table is called {unknown.pop()}")
    options.snug = str(pathlib.Path(options.snug).resolve())
    for table in options.tables or TABLES:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="snug-tier-") as folder:
            bench = Bench(options, folder)
            {"rate": bench.hit_rate, "hits": bench.hits, "misses": bench.misses}[table]()


if __name__ == "__main__":
    main()
