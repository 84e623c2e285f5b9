"""How near `snug advise` comes to what Snug then uses: `make advise`.

The same workloads of `snug bench` are loaded into a redis-server and into a Snug. The one
is asked what it would take in Snug; the other is left to cool, and is asked what it takes.
"""

import json
import subprocess
import time

from harness import servers

#: Workloads, their share of the full size, and what else they are run with. `set-get`
#: fills its keyspace; those that go on for a time go on for a second.
WORKLOADS = {
    "set-get": (1, ["-t", "set", "-n", "1", "-r", "200000", "-d", "64", "--fill"]),
    "populate": (0.2, []),
    "stream-events": (0.2, []),
    "stream-identical": (0.125, []),
    "stream-celery": (0.2, []),
    "list-celery": (0.2, []),
    "hash-profiles": (0.2, []),
    "hash-jobs": (0.2, []),
    "hash-sessions": (0.2, []),
    "hash-big": (0.3, []),
    "set-ints": (0.3, []),
    "set-uuids": (0.3, []),
    "zset-board": (0.3, []),
    "zset-uuids": (0.3, []),
    "zset-recent": (0.2, []),
    "list-feed": (0.2, []),
    "set-tags": (0.2, []),
    "stream-flights": (0.3, []),
    "stream-lookup": (0.1, []),
    "stream-mixed": (0.1, []),
    "json-zipf": (0.05, ["--duration", "1"]),
    "capture": (0.1, ["--duration", "5"]),
    "large-values": (0.1, ["--duration", "2"]),
}
#: Packs soon, so that nobody waits long. With an LFU policy, what was read cools at every
#: pass, as what was written does, and not at one of eight by chance. Nothing is evicted.
SOON = ["--pack-cold-after", "1", "--maxmemory-policy", "allkeys-lfu", "--enable-debug-command", "local"]
REST_SECONDS, REST_MAX_SECONDS = 5, 120


def load(path, server, workload, scale=1.0):
    share, flags = WORKLOADS[workload]
    words = [path, "bench", workload, "-p", str(server.port), "-q", "--rest", "0", "--scale", str(share * scale), *flags]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{workload}: {done.stdout}\n{done.stderr}"


def keep(server):
    """Gives keys that expire a day: they would go while the one cools and the other is asked."""
    with server.connect() as connection:
        keys = [key for _, key in connection.call("KEYS", "*")[1]]
        connection.pipeline([("EXPIRE", key, 24 * 3600, "XX") for key in keys])


def advice(path, server, *flags, percent=100):
    """What `snug advise` says, as JSON; it may take that share of the server's time."""
    share = [] if percent is None else ["--cpu-percent", str(percent)]
    words = [path, "advise", f"redis://127.0.0.1:{server.port}", "--json", *share, *flags]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def cpu_seconds(info):
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def cost(target, keys, flags=()):
    """What `snug advise` costs a redis-server of so many keys, as a user runs it: its CPU
    seconds, the same over the seconds that were spent on reading, and the whole advice."""
    redis = servers.redis("--enable-debug-command", "local")
    try:
        with redis.connect() as connection:
            connection.call("DEBUG", "POPULATE", int(keys * 0.7), "page", 200)
            step = 1000
            for first in range(0, int(keys * 0.3), step):
                connection.pipeline(
                    [
                        ("HSET", f"user:{n}", "name", f"user {n * 7919 % 999_983}", "mail", f"{n}@example.org", "visits", n % 997, "plan", "free")
                        for n in range(first, first + step)
                    ]
                )
        time.sleep(2)
        before, began = redis.info(), time.monotonic()
        time.sleep(10)
        idle = (cpu_seconds(redis.info()) - cpu_seconds(before)) / (time.monotonic() - began)
        before, began = redis.info(), time.monotonic()
        told = advice(target.path, redis, *flags, percent=None)
        took = time.monotonic() - began
        spent = cpu_seconds(redis.info()) - cpu_seconds(before) - idle * took
        return took, spent, told
    finally:
        redis.stop()


def used(info):
    """What a Snug with this INFO uses, without its clients and what it used at its start."""
    return int(info["used_memory"]) - int(info["used_memory_startup"]) - int(info["mem_clients_normal"])


def cooled(server, empty):
    """What a Snug uses for its data when nothing is packed any more; `empty` is what it
    used when it had none. It is the least that was seen: what Snug packs with, a megabyte,
    is taken and given back."""
    began = time.monotonic()
    last, since, cpu, least = 0, began, 0, used(server.info())
    while time.monotonic() - began < REST_MAX_SECONDS and time.monotonic() - since <= REST_SECONDS:
        time.sleep(0.5)
        info = server.info()
        now, packing = used(info), int(info["pack_cpu_milliseconds"])
        waiting = int(info["strings_pending"]) + int(info["blocks_pending"])
        # Looking for what has cooled takes a little, always.
        if waiting > 0 or abs(now - last) > last / 500 or packing > cpu + 25:
            last, since, cpu = now, time.monotonic(), packing
        least = min(least, now)
    return least - empty


def warmed(path, server, workload):
    """What a Snug uses that has no data but has had some: what it counts of commands is made
    when one is called for the first time, and stays. Nothing is learnt meanwhile."""
    with server.connect() as connection:
        connection.call("CONFIG", "SET", "pack", "no")
        load(path, server, workload, 0.01)
        server.info()
        connection.call("FLUSHALL")
        connection.call("CONFIG", "SET", "pack", "yes")
    began = time.monotonic()
    last, now = -1, used(server.info())
    while now != last and time.monotonic() - began < REST_MAX_SECONDS:
        time.sleep(1)
        last, now = now, used(server.info())
    return now


def compare(target, workloads, scale=1.0, flags=(), program=None):
    """Predicted and actual bytes, and the whole advice; `program` predicts, if it is another."""
    redis = servers.redis("--enable-debug-command", "local")
    snug = target.start(*SOON, workers=1)
    try:
        empty = max(warmed(target.path, snug, workload) for workload in workloads)
        for workload in workloads:
            for server in (redis, snug):
                load(target.path, server, workload, scale)
                if "expires=0" not in server.info()["db0"]:
                    keep(server)
        told = advice(program or target.path, redis, *flags)
        return told["snug"]["cooled"]["value"], cooled(snug, empty), told
    finally:
        redis.stop()
        snug.stop()
