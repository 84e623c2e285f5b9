"""What replication costs, beside redis-server to redis-server on the same data:
`python tests/bench/replication.py PATH_OF_SNUG [documents]`, from the folder `tests`'s virtual
environment. Prints bytes and seconds of a full synchronisation of documents (`json-zipf`) and
of tasks in lists (`list-celery`), what a replica takes of the throughput of its primary, and how
far behind it is under full load."""

import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import servers  # noqa: E402
from harness.nodes import FLAGS, call, eventually, follow, is_up, lead, offset  # noqa: E402


def start(kind, snug):
    target = servers.Target(snug)
    return target.start(*FLAGS) if kind == "snug" else servers.redis(*FLAGS)


def fill(snug, node, workload, scale):
    command = [snug, "bench", workload, "--scale", str(scale), "-p", str(node.port), "--rest", "0", "-q"]
    subprocess.run(command, check=True, capture_output=True)


def rest(node):
    """Packing has nothing to do any more, as far as that can be seen."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 10:
        packed = int(node.info().get("packed_bytes", 0))
        if packed != last:
            last, since = packed, time.monotonic()
        time.sleep(0.5)


def synchronise(primary, replica):
    before, began = int(primary.info().get("total_net_repl_output_bytes", 0)), time.monotonic()
    follow(replica, primary)
    eventually("the link", lambda: is_up(replica), 300)
    took = time.monotonic() - began
    return int(primary.info().get("total_net_repl_output_bytes", 0)) - before, took


def throughput(node):
    command = ["redis-benchmark", "-p", str(node.port), "-t", "set", "-n", "400000", "-r", "100000", "-d", "100", "-P", "16", "-c", "50", "--csv"]
    rows = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return float(rows[-1].split(",")[1].strip('"'))


def main():
    snug = sys.argv[1]
    scale = float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
    for workload in ("json-zipf", "list-celery"):
        for kind in ("redis", "snug"):
            primary, replica = start(kind, snug), start(kind, snug)
            fill(snug, primary, workload, scale)
            if kind == "snug":
                rest(primary)
            sent, took = synchronise(primary, replica)
            keys = call(replica, "DBSIZE")
            print(f"{workload:12} {kind:6} {sent / 1e6:8.1f} MB {took:6.2f} s  {keys} keys", flush=True)
            primary.stop(), replica.stop()
    for kind in ("redis", "snug"):
        primary, replica = start(kind, snug), start(kind, snug)
        alone = max(throughput(primary) for _ in range(2))
        synchronise(primary, replica)
        furthest, both = 0, 0
        for _ in range(2):
            both = max(both, throughput(primary))
            furthest = max(furthest, offset(primary) - offset(replica))
        began = time.monotonic()
        eventually("the replica", lambda: offset(replica) >= offset(primary))
        print(f"{kind:6} alone {alone:9.0f}/s, with a replica {both:9.0f}/s ({100 * both / alone - 100:+.0f} %), then {furthest} bytes behind, gone after {time.monotonic() - began:.2f} s", flush=True)
        lead(replica)
        primary.stop(), replica.stop()


if __name__ == "__main__":
    main()
