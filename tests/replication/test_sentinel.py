"""Three of Debian's Sentinels, unmodified, watch a group of Snug nodes and a
redis-server: they discover it, fail over when the primary dies, reconfigure the others and
the one that comes back; redis-py's client follows."""

import os
import threading

import pytest
import redis
from redis.sentinel import Sentinel as Client

from harness.nodes import call, eventually, follow, wait_until_same, wait_until_up
from harness.resp import Closed
from harness.sentinels import GROUP, PATIENCE_SECONDS, Sentinel

pytestmark = pytest.mark.snug_only
#: Mixed groups too, and the primary that comes back: a minute each.
SLOW = os.environ.get("SNUG_SLOW") == "1"


@pytest.fixture
def sentinels(nodes):
    def watch(primary):
        started = [Sentinel(primary) for _ in range(3)]
        nodes.all.extend(started)
        for sentinel in started:
            sentinel.start()
        return started

    return watch


def role(node):
    """Sentinel ends the connections of clients when it changes a role."""
    try:
        info = node.info()
    except Closed:
        return ""
    return info["role"] + info.get("master_link_status", "")


def knows_everybody(sentinel, replicas):
    up = [fact for fact in sentinel.known("REPLICAS") if fact["master-link-status"] == "ok" and "down" not in fact["flags"]]
    return len(up) == replicas and len(sentinel.known("SENTINELS")) == 2


@pytest.mark.parametrize("kinds", [("snug", "snug", "snug"), ("redis", "snug", "redis"), ("snug", "redis", "snug")][: 3 if SLOW else 1], ids="-".join)
def test_sentinels_fail_over_and_clients_follow(nodes, sentinels, kinds):
    # Each of Snug's has a configuration file, into which Sentinel has the role written.
    primary, *replicas = [nodes.start(kind, **({"config_lines": ["#"]} if kind == "snug" else {})) for kind in kinds]
    # Those that are never to be promoted are known for it.
    call(replicas[1], "CONFIG", "SET", "replica-priority", 0)
    for replica in replicas:
        follow(replica, primary)
    wait_until_up(*replicas)
    watching = sentinels(primary)
    for sentinel in watching:
        eventually("all to be known", lambda s=sentinel: knows_everybody(s, 2))
    client = Client([("127.0.0.1", sentinel.port) for sentinel in watching], socket_timeout=5)
    writer = client.master_for(GROUP, socket_timeout=5)
    written, stop = [], threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            try:
                number += 1
                writer.set(f"n{number}", number)
                # Executed by a replica: it is not to be lost.
                if writer.wait(1, 1000) >= 1:
                    written.append(number)
            except redis.RedisError:
                stop.wait(0.05)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        eventually("some writes", lambda: len(written) > 20)
        nodes.kill(primary)
        for sentinel in watching:
            eventually("the new primary", lambda s=sentinel: s.primary() == replicas[0].port, PATIENCE_SECONDS)
        before = len(written)
        eventually("writes to go on", lambda: len(written) > before + 20)
        wait_until_up(replicas[1])
        if SLOW:
            # Who comes back is made a replica, which takes Sentinel some twenty seconds.
            nodes.restart(primary)
            eventually("it to be told", lambda: "slave" in role(primary))
            eventually("its link", lambda: "up" in role(primary))
    finally:
        stop.set()
        thread.join()
    wait_until_same(replicas[0], replicas[1])
    if kinds[2] == "snug":
        file = (replicas[1].directory / "server.conf").read_text()
        assert f"replicaof 127.0.0.1 {replicas[0].port}" in file, file
    with replicas[0].connect() as connection:
        values = [v for _, v in connection.call("MGET", *[f"n{n}" for n in written])[1]]
    # A replica had executed them, but Sentinel does not wait for the one that has most.
    lost = [n for n, value in zip(written, values) if value is None]
    assert not lost, lost


@pytest.mark.skipif(not SLOW, reason="Sentinel takes ten seconds to reconfigure who was the primary: SNUG_SLOW=1")
def test_sentinel_is_asked_to_fail_over(nodes, sentinels):
    """Between two living nodes, there and back: from redis-server to Snug, and home."""
    primary, replica = nodes.chain("redis", "snug")
    watching = sentinels(primary)
    for sentinel in watching:
        eventually("all to be known", lambda s=sentinel: knows_everybody(s, 1))
    for new, old in ((replica, primary), (primary, replica)):
        eventually("it to begin", lambda: watching[0].ask("FAILOVER", GROUP) == b"OK")
        eventually("the new primary", lambda: all(s.primary() == new.port for s in watching), PATIENCE_SECONDS)
        eventually("the old one to follow", lambda: role(old) == "slaveup")
        call(new, "SET", "from", new.port)
        wait_until_same(new, old)
