"""What replication costs and how soon it helps, beside redis-server to redis-server:
`make replication`, or

    cd tests && python -m bench.replication --snug ../target/release/snug sync load paced failover

Not a test: it measures, and asserts nothing. Three tables, in Markdown:

  sync       bytes and seconds of a full synchronisation, of documents (`json-zipf`) and of
             tasks in lists (`list-celery`), and CPU seconds of both nodes
  load       what a replica takes of its primary's rate and CPU, under as many SETs as
             redis-benchmark sends; how far behind the replica is meanwhile
  paced      the same at one rate for all, which leaves both nodes time: CPU, latency, and how
             far behind the replica is
  failover   from the death of a primary to the first write that its successor takes, by
             three Sentinels

Runs are interleaved and repeated. On two cores the replica and redis-benchmark want the
same cores as the primary: CPU seconds say there what the rate does not.
"""

import argparse
import csv
import pathlib
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from bench.durability import cpu_seconds  # noqa: E402
from harness import servers  # noqa: E402
from harness.nodes import FLAGS, Nodes, eventually, follow, is_up, wait_until_online, wait_until_up  # noqa: E402
from harness.resp import Closed, Connection, Silent  # noqa: E402
from harness.sentinels import Sentinel  # noqa: E402

KINDS = ("redis", "snug")
SETS = 400_000
TABLES = ("sync", "load", "paced", "failover")


class Bench:
    def __init__(self, options):
        self.options = options
        self.target = servers.Target(options.snug)

    def nodes(self):
        return Nodes(self.target)

    def sync(self):
        print("| data | nodes | MB | seconds | CPU s, primary | CPU s, replica |\n| --- | --- | --- | --- | --- | --- |")
        for workload in ("json-zipf", "list-celery"):
            nodes = self.nodes()
            primaries = {kind: nodes.start(kind) for kind in KINDS}
            for kind, primary in primaries.items():
                fill = [self.options.snug, "bench", workload, "--scale", str(self.options.scale), "-p", str(primary.port), "--rest", "0", "-q"]
                subprocess.run(fill, check=True, capture_output=True)
            rest(primaries["snug"])
            rows = {kind: [] for kind in KINDS}
            for _ in range(self.options.rounds):
                for kind, primary in primaries.items():
                    replica = nodes.start(kind)
                    rows[kind].append(synchronise(primary, replica))
                    replica.stop()
                    nodes.all.remove(replica)
            for kind in KINDS:
                sent, took, of_primary, of_replica = (statistics.median(column) for column in zip(*rows[kind]))
                print(f"| {workload} | {kind} | {sent / 1e6:.2f} | {took:.2f} | {of_primary:.2f} | {of_replica:.2f} |", flush=True)
            stop(nodes)

    def load(self):
        print("| nodes | SET/s alone | with a replica | | CPU s a million, alone | with one | | behind, median MB | most MB |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        rows = {kind: [] for kind in KINDS}
        for _ in range(self.options.rounds):
            for kind in KINDS:
                nodes = self.nodes()
                primary, replica = nodes.start(kind), nodes.start(kind)
                # Keys are there then, for both.
                throughput(primary)
                alone, cpu_alone = throughput(primary)
                follow(replica, primary)
                wait_until_up(replica)
                wait_until_online(primary, replica)
                with Behind(primary, replica) as behind:
                    both, cpu_both = throughput(primary)
                rows[kind].append((alone, both, cpu_alone, cpu_both, statistics.median(behind.seen) / 1e6, max(behind.seen) / 1e6))
                stop(nodes)
        for kind in KINDS:
            alone, both, cpu_alone, cpu_both, middle, most = (statistics.median(column) for column in zip(*rows[kind]))
            print(
                f"| {kind} | {alone:.0f} | {both:.0f} | {100 * both / alone - 100:+.0f} % | {cpu_alone:.2f} | {cpu_both:.2f} "
                f"| {100 * cpu_both / cpu_alone - 100:+.0f} % | {middle:.2f} | {most:.2f} |",
                flush=True,
            )

    def paced(self):
        print(
            f"{self.options.rate} SETs a second\n\n| nodes | CPU s a million, alone | with a replica | | of the replica | p50 us, alone | with one | p99 us, alone | with one "
            "| behind, median KB | most KB |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
        )
        rows = {kind: [] for kind in KINDS}
        for _ in range(self.options.rounds):
            for kind in KINDS:
                nodes = self.nodes()
                primary, replica = nodes.start(kind), nodes.start(kind)
                self.at_a_rate(primary)
                alone = self.at_a_rate(primary)
                follow(replica, primary)
                wait_until_up(replica)
                wait_until_online(primary, replica)
                before = cpu_seconds(replica.pid)
                with Behind(primary, replica) as behind:
                    both = self.at_a_rate(primary)
                own = (cpu_seconds(replica.pid) - before) / both["operations"] * 1e6
                rows[kind].append(
                    (alone["cpu_s_per_million"], both["cpu_s_per_million"], own)
                    + tuple(run[name] for name in ("p50_us", "p99_us") for run in (alone, both))
                    + (statistics.median(behind.seen) / 1e3, max(behind.seen) / 1e3)
                )
                stop(nodes)
        for kind in KINDS:
            alone, both, own, *rest = (statistics.median(column) for column in zip(*rows[kind]))
            print(f"| {kind} | {alone:.2f} | {both:.2f} | {100 * both / alone - 100:+.0f} % | {own:.2f} | " + " | ".join(f"{figure:.0f}" for figure in rest) + " |", flush=True)

    def at_a_rate(self, node):
        """Ten seconds of SETs: the row of `snug bench`."""
        command = [self.options.snug, "bench", "-p", str(node.port), "-t", "set", "-r", "100000", "-d", "100", "-P", "16", "-c", "50"]
        command += ["--rate", str(self.options.rate), "--duration", "10", "--rest", "0", "-q", "--csv", "-"]
        rows = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        (row,) = csv.DictReader(rows)
        return {name: float(row[name]) for name in ("cpu_s_per_million", "p50_us", "p99_us", "operations")}

    def failover(self):
        print("| nodes | seconds without a primary, each round | median |\n| --- | --- | --- |")
        rows = {kind: [] for kind in KINDS}
        for _ in range(self.options.rounds):
            for kind in KINDS:
                rows[kind].append(self.lost_primary(kind))
        for kind in KINDS:
            each = ", ".join(f"{seconds:.2f}" for seconds in rows[kind])
            print(f"| {kind} | {each} | {statistics.median(rows[kind]):.2f} |", flush=True)

    def lost_primary(self, kind):
        """How long nobody took a write."""
        nodes = self.nodes()
        own = {"config_lines": ["#"]} if kind == "snug" else {}
        primary, *replicas = (nodes.start(kind, **own) for _ in range(3))
        for replica in replicas:
            follow(replica, primary)
        wait_until_up(*replicas)
        watching = [Sentinel(primary, down_after_ms=1000) for _ in range(3)]
        nodes.all += watching
        for sentinel in watching:
            sentinel.start()
        for sentinel in watching:
            eventually("all to be known", lambda s=sentinel: len(s.known("REPLICAS")) == 2 and len(s.known("SENTINELS")) == 2)
        time.sleep(2)
        nodes.kill(primary)
        began = time.monotonic()
        eventually("a write to be taken", lambda: any(takes_writes(replica) for replica in replicas))
        took = time.monotonic() - began
        stop(nodes)
        return took


class Behind:
    """Looks how many bytes a replica is behind, until its end."""

    def __init__(self, primary, replica):
        self.nodes, self.seen, self.ended = (primary, replica), [], False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        with self.nodes[0].connect() as primary, self.nodes[1].connect() as replica:
            while not self.ended:
                # The replica's first would count what came between the two.
                there, here = (offset(connection) for connection in (primary, replica))
                self.seen.append(max(0, there - here))
                time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()


def offset(connection):
    return int(servers.info_fields(connection.call("INFO", "replication")[1].decode())["master_repl_offset"])


def takes_writes(node):
    try:
        with Connection(node.port) as connection:
            return connection.call("SET", "after", "all")[0] == "+"
    except (Closed, Silent, OSError):
        return False


def rest(node):
    """Packing has nothing to do any more, as far as that can be seen."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 10:
        packed = int(node.info().get("packed_bytes", 0))
        if packed != last:
            last, since = packed, time.monotonic()
        time.sleep(0.5)


def synchronise(primary, replica):
    def sent():
        return int(primary.info().get("total_net_repl_output_bytes", 0))

    before, cpu, own, began = sent(), cpu_seconds(primary.pid), cpu_seconds(replica.pid), time.monotonic()
    follow(replica, primary)
    eventually("the link", lambda: is_up(replica), 300)
    took = time.monotonic() - began
    # The process that redis-server saved with has ended.
    eventually("its end", lambda: primary.info()["rdb_bgsave_in_progress"] == "0")
    return sent() - before, took, cpu_seconds(primary.pid) - cpu, cpu_seconds(replica.pid) - own


def throughput(node):
    """SETs a second, and the server's CPU seconds for a million of them."""
    before = cpu_seconds(node.pid)
    command = ["redis-benchmark", "-p", str(node.port), "-t", "set", "-n", str(SETS), "-r", "100000", "-d", "100", "-P", "16", "-c", "50", "--csv"]
    rows = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return float(rows[-1].split(",")[1].strip('"')), (cpu_seconds(node.pid) - before) / SETS * 1e6


def stop(nodes):
    for node in nodes.all:
        node.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snug", default="../target/release/snug", help="the server, and its bench")
    parser.add_argument("--scale", type=float, default=0.1, help="how much data to synchronise")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=100_000, help="SETs a second, for the table `paced`")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}; all if none")
    options = parser.parse_args()
    if unknown := set(options.tables) - set(TABLES):
        parser.error(f"no table is called {unknown.pop()}")
    options.snug = str(pathlib.Path(options.snug).resolve())
    bench = Bench(options)
    for table in options.tables or TABLES:
        getattr(bench, table)()


if __name__ == "__main__":
    main()
