"""Between Snug nodes values travel as they lie in memory: packed, with the dictionaries that
they need. Others are sent RDB, from the same node and at the same time."""

import json
import random

import pytest

from harness.nodes import call, eventually, follow, lead, wait_until_same, wait_until_up
from replication.workload import write

pytestmark = pytest.mark.snug_only
PACKS = ["--pack-cold-after", "0", "--hz", "500"]


def fill(node, seed):
    """Documents that look alike, a stream, a queue and tables, and bytes that nothing packs."""
    rng = random.Random(seed)
    with node.connect() as connection:
        for base in range(0, 3000, 100):
            document = {"name": f"user {rng.random()}", "roles": ["reader", "writer"], "note": "the same words again and again"}
            commands = [("SET", f"doc:{n}", json.dumps({**document, "number": n})) for n in range(base, base + 100)]
            commands += [("XADD", "events", f"{seed}{n + 1}-1", "kind", "click", "user", n, "page", f"/shop/{n % 7}") for n in range(base, base + 100)]
            commands += [("RPUSH", "queue", json.dumps({"task": "send", "args": [n, document]})) for n in range(base, base + 100)]
            commands += [("HSET", f"table:{base}", f"field {n}", f"value number {n}") for n in range(100)]
            connection.pipeline(commands)
        connection.call("SET", "random", rng.randbytes(30_000))
        connection.call("SET", "text", b"all work and no play " * 20_000)


def wait_until_packed(node):
    eventually("packing", lambda: int(node.info()["packed_from_bytes"]) > 700_000)


def sent(node):
    return int(node.info()["total_net_repl_output_bytes"])


@pytest.mark.parametrize("load", ["disabled", "on-empty-db", "swapdb"])
def test_packed_values_stay_packed(nodes, load):
    primary = nodes.start("snug", *PACKS)
    fill(primary, 1)
    wait_until_packed(primary)
    write(primary, f"{load} pieces", 300)
    replica, other = nodes.start("snug", "--repl-diskless-load", load, "--pack", "no"), nodes.start("redis")
    follow(replica, primary)
    wait_until_up(replica)
    whole = sent(primary)
    follow(other, primary)
    wait_until_same(primary, replica, other)
    assert whole < sent(primary) - whole, "less than redis-server is sent"
    assert int(replica.info()["packed_from_bytes"]) > 500_000, "packed as it came"
    # Once more, over what is there: with dictionaries of its own, learnt of other values.
    lead(replica)
    call(replica, "FLUSHALL")
    call(replica, "CONFIG", "SET", "pack", "yes", "pack-cold-after", 0, "hz", 500, "repl-backlog-ttl", 1)
    fill(replica, 2)
    wait_until_packed(replica)
    eventually("the end of the old stream", lambda: replica.info()["repl_backlog_active"] == "0")
    follow(replica, primary)
    wait_until_up(replica)
    write(primary, f"{load} after", 300)
    wait_until_same(primary, replica, other)
    assert "could not be taken in" not in replica.log(1000)


def test_who_writes_does_not_wait_for_a_replica_that_takes_nothing(nodes, proxy):
    primary = nodes.start("snug", "--repl-timeout", "300", "--pack", "no")
    call(primary, "DEBUG", "POPULATE", 8000, "key", 3000)
    replica = nodes.start("redis")
    link = proxy(primary)
    link.pause_after = 200_000
    follow(replica, primary, link.port)
    eventually("the pause", lambda: link.passed >= 200_000)
    with primary.connect() as connection:
        # Far more than a snapshot keeps in memory of what is changed behind its back.
        for base in range(0, 8000, 500):
            connection.pipeline([("SET", f"key:{n}", "changed") for n in range(base, base + 500)])
    assert b"state=send_bulk" in call(primary, "INFO", "replication")
    link.pause_after = None
    wait_until_up(replica)
    wait_until_same(primary, replica)
