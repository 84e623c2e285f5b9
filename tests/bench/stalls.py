"""What small commands wait while another client works on collections of a million: `make stalls`,
or

    cd tests && python -m bench.stalls --snug ../target/release/snug

Not a test: it measures, and asserts nothing. One table, in Markdown, of Snug beside redis-server:
`GET`s of small values at a fixed rate (a request is charged from when it was due), alone, and
while another client, again and again, copies and deletes each type, stores intersections and
unions, trims a list, and reads collections whole. For each the times of the small commands, and
how often the other came to its end.

Values of `--items` items: sets of integers and of UUIDs, a hash, a sorted set, a list.
"""

import argparse
import csv
import pathlib
import random
import subprocess
import sys
import threading
import uuid

import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import servers  # noqa: E402

#: Items in one command that fills.
AT_ONCE = 1000


def fill(client, items):
    """The collections, each of so many items."""
    chance = random.Random(1)
    def send(command, key, each, numbers):
        pipe = client.pipeline(transaction=False)
        for start in range(0, len(numbers), AT_ONCE):
            pipe.execute_command(command, key, *(word for n in numbers[start : start + AT_ONCE] for word in each(n)))
        pipe.execute()

    drawn = lambda: chance.sample(range(10 * items), items)  # noqa: E731
    send("SADD", "ints", lambda n: (n,), drawn())
    send("SADD", "others", lambda n: (n,), drawn())
    send("SADD", "uuids", lambda n: (str(uuid.UUID(int=chance.getrandbits(128))),), range(items))
    send("HSET", "hash", lambda n: (f"field:{n}", f"value:{n}"), range(items))
    send("ZADD", "zset", lambda n: (n % 1000, f"player:{n}"), range(items))
    send("RPUSH", "list", lambda n: (f"item:{n}",), range(items))


def copied(key):
    return lambda client: (client.copy(key, "copy", replace=True), client.delete("copy"))


#: What the other client does again and again, by name.
WORKS = {
    "alone": None,
    "COPY, DEL of a set of integers": copied("ints"),
    "COPY, DEL of a set of UUIDs": copied("uuids"),
    "COPY, DEL of a hash": copied("hash"),
    "COPY, DEL of a sorted set": copied("zset"),
    "COPY, LTRIM, DEL of a list": lambda client: (client.copy("list", "copy", replace=True), client.ltrim("copy", 300_000, -300_001), client.delete("copy")),
    "SINTERSTORE": lambda client: client.sinterstore("stored", ["ints", "others"]),
    "SUNIONSTORE": lambda client: client.sunionstore("stored", ["ints", "others"]),
    "ZUNIONSTORE": lambda client: client.zunionstore("stored", ["zset", "ints"]),
    "ZRANGEBYSCORE, ZREMRANGEBYRANK": lambda client: (client.copy("zset", "copy", replace=True), client.zremrangebyrank("copy", 1000, -1000)),
    "SORT BY nosort, LIMIT": lambda client: client.sort("list", start=0, num=10, alpha=True),
}


class Other(threading.Thread):
    """A client that does one thing until it is told to stop."""

    def __init__(self, client, work):
        super().__init__()
        self.client, self.work, self.done, self.ended = client, work, 0, threading.Event()

    def run(self):
        while self.work and not self.ended.is_set():
            self.work(self.client)
            self.done += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def small(snug, server, rate, seconds):
    """`GET`s at that rate: the row of `snug bench`."""
    command = [snug, "bench", "-p", str(server.port), "-t", "get", "-r", "10000", "--fill", "-c", "50", "--rate", str(rate), "--duration", str(seconds), "--rest", "0", "-q", "--csv", "-"]
    return list(csv.DictReader(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()))[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snug", default="../target/release/snug", help="the server, and its bench")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=5000, help="small commands a second")
    parser.add_argument("--seconds", type=float, default=5, help="of each line")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="lines whose name has this")
    options = parser.parse_args()
    snug = str(pathlib.Path(options.snug).resolve())
    target = servers.Target(snug)
    print("| meanwhile | server | times | p50 us | p99 us | p99.9 us | max us |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name, server in (("Snug", target.start(workers=options.workers)), ("redis-server", servers.redis())):
        try:
            fill(redis.Redis(port=server.port, socket_timeout=600), options.items)
            for work_name, work in WORKS.items():
                if options.only not in work_name:
                    continue
                with Other(redis.Redis(port=server.port, socket_timeout=600), work) as other:
                    row = small(snug, server, options.rate, options.seconds)
                print(f"| {work_name} | {name} | {other.done or ''} | {row['p50_us']} | {row['p99_us']} | {row['p999_us']} | {row['max_us']} |", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
