"""What waits for replicas, and what a snapshot keeps, is not what `maxmemory` is about: no key
goes for it, and no write is refused."""

import pytest

KEYS = 20_000
ROUNDS = 3
FLAGS = ["--maxmemory", "40mb", "--pack", "no", "--save", ""]


def fill(client):
    for first in range(0, KEYS, 500):
        replies = client.pipeline([("SET", f"k{n}", "x" * 1000) for n in range(first, first + 500)])
        assert set(replies) == {("+", b"OK")}


@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
def test_a_replica_that_takes_nothing_costs_no_key_and_no_write(target, policy):
    server = target.start(*FLAGS, "--maxmemory-policy", policy, "--repl-diskless-sync-delay", "0")
    with server.connect() as client, server.connect(receive_buffer=4096) as replica:
        fill(client)
        replica.send("PSYNC", "?", "-1")
        for _ in range(ROUNDS):
            fill(client)
        assert client.call("DBSIZE") == (":", KEYS)
        info = server.info()
        assert int(info["evicted_keys"]) == 0
        assert int(info["mem_not_counted_for_evict"]) > 30 << 20
        assert int(info["used_memory"]) - int(info["mem_not_counted_for_evict"]) < 40 << 20
    server.stop()


def test_a_snapshot_costs_no_key(target):
    server = target.start(*FLAGS, "--maxmemory-policy", "allkeys-lru", "--rdb-key-save-delay", "20")
    with server.connect() as client:
        for n in range(0, KEYS + 12_000, 500):
            client.pipeline([("SET", f"k{n + m}", "x" * 1000) for m in range(500)])
        before = int(server.info()["evicted_keys"])
        assert client.call("BGSAVE")[0] == "+"
        # Each is changed, and what it held is kept; some are new, and others go for them.
        for _ in range(ROUNDS):
            fill(client)
        assert int(server.info()["evicted_keys"]) == before
        assert client.call("DBSIZE") == (":", KEYS + 12_000)
    server.stop()
