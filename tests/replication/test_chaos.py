"""Three nodes under load while links are cut, slow and broken into parts, and nodes are
stopped, killed and started again, the primary too. Each client keeps an account of what was
acknowledged, and it is held against what replication promises:

- as long as the primary lives, nothing that was acknowledged is lost;
- when it dies and the replica that has most takes its place, what a `WAIT 1` was answered for
  is there, and of the rest only the end of each client's writes may be missing;
- in the end all nodes hold the same.

SNUG_CHAOS_SECONDS is how long it goes on, `make chaos` a long one. SNUG_RANDOM_SEED repeats
the order of what happens, though not to the microsecond."""

import os
import random
import signal
import threading
import time

import pytest

from harness.nodes import Proxy, call, eventually, follow, is_up, lead, offset, wait_until_same, wait_until_up
from harness.resp import Closed, Connection, Silent

pytestmark = pytest.mark.snug_only
SECONDS = float(os.environ.get("SNUG_CHAOS_SECONDS", 3))
SEED = os.environ.get("SNUG_RANDOM_SEED", "1")
CLIENTS = 4


class Client:
    """Writes one number after the other to whoever is the primary; every second client
    waits for a replica each time."""

    def __init__(self, group, number):
        self.group, self.number, self.waits = group, number, number % 2 == 0
        self.key = f"client{number}"
        # Acknowledged by the primary, and those of them that a replica has.
        self.written, self.replicated = [], []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        n, connection, at = 0, None, None
        while not self.group.ended:
            if connection is None or at is not self.group.primary:
                at = self.group.primary
                connection = self.reach(at)
                if connection is None:
                    time.sleep(0.02)
                    continue
            n += 1
            try:
                kind, _ = connection.call("SET", f"{self.key}:{n}", n)
                if kind != "+":
                    connection = None
                    continue
                with self.group.lock:
                    # What another primary than now's has said counts for nothing.
                    if at is self.group.primary:
                        self.written.append(n)
                if self.waits:
                    kind, count = connection.call("WAIT", 1, 500)
                    with self.group.lock:
                        if kind == ":" and count >= 1 and at is self.group.primary:
                            self.replicated.append(n)
            except (Closed, Silent, OSError):
                connection = None

    @staticmethod
    def reach(node):
        try:
            return Connection(node.port) if node else None
        except OSError:
            return None

    def judge(self, node, has_died):
        """What is missing on a node; with a new primary, what is gone is struck out."""
        missing = []
        with node.connect() as connection:
            for at in range(0, len(self.written), 500):
                some = self.written[at : at + 500]
                values = connection.call("MGET", *[f"{self.key}:{n}" for n in some])[1]
                missing += [n for n, (_, value) in zip(some, values) if value != str(n).encode()]
        assert not missing or has_died, (self.key, missing[:10], "lost though no primary died")
        lost = set(missing)
        assert not lost & set(self.replicated), (self.key, sorted(lost & set(self.replicated))[:10], "a replica had it")
        assert missing == self.written[len(self.written) - len(missing) :], (self.key, missing[:10], "not the end of what was written")
        del self.written[len(self.written) - len(missing) :]
        return len(missing)


class Group:
    def __init__(self, nodes, kinds, rng):
        self.nodes, self.rng = nodes, rng
        self.lock, self.ended, self.lost = threading.Lock(), False, 0
        self.all = [nodes.start(kind, "--repl-timeout", "5") for kind in kinds]
        self.primary, self.links, self.told = self.all[0], {}, []
        for replica in self.replicas():
            self.link(replica)
        wait_until_up(*self.replicas())
        self.clients = [Client(self, number) for number in range(CLIENTS)]

    def replicas(self):
        return [node for node in self.all if node is not self.primary]

    def link(self, replica):
        """Has a replica follow the primary, by way of a new proxy."""
        old = self.links.pop(replica, None)
        self.links[replica] = Proxy(self.primary.port)
        follow(replica, self.primary, self.links[replica].port)
        if old:
            old.stop()

    def something(self):
        """One thing that happens."""
        rng = self.rng
        replica = rng.choice(self.replicas())
        link = self.links[replica]
        name = rng.choice(["cut", "cut", "slow", "parts", "stop", "stop primary", "kill", "kill primary"])
        self.told.append((name, replica.kind))
        if name == "cut":
            link.allow(rng.randrange(1, 3000))
            time.sleep(0.1)
            link.allow(None)
        elif name in ("slow", "parts"):
            link.delay, link.split = (0.02, 1 << 14) if name == "slow" else (0, rng.randrange(1, 40))
            time.sleep(0.4)
            link.delay, link.split = 0, 1 << 14
        elif name in ("stop", "stop primary"):
            node = replica if name == "stop" else self.primary
            node.process.send_signal(signal.SIGSTOP)
            time.sleep(0.3)
            node.process.send_signal(signal.SIGCONT)
        elif name == "kill":
            self.nodes.kill(replica)
            self.again(replica)
            self.link(replica)
            # What it had acknowledged is lost with it: the other has to have it, too.
            self.wait_until_all_are_near()
        else:
            self.wait_until_all_are_near()
            self.kill_primary()

    def again(self, node):
        """Starts a node again; redis-server keeps what it was sent as a file, and loads it."""
        self.nodes.restart(node)
        eventually("what was saved", lambda: node.info()["loading"] == "0")

    def wait_until_all_are_near(self):
        wait_until_up(*self.replicas())
        at = offset(self.primary)
        eventually("replicas to be near", lambda: all(is_up(r) and offset(r) >= at for r in self.replicas()))

    def kill_primary(self):
        dead = self.primary
        # A replica that is behind may be another than the one that answered a client.
        self.links[self.rng.choice(self.replicas())].delay = 0.05
        time.sleep(0.1)
        replicas = self.replicas()
        self.nodes.kill(dead)
        # Until it is known what is left, nobody writes.
        with self.lock:
            self.primary = None
        # What was on its way to them may still come.
        eventually("the links to be down", lambda: not any(is_up(replica) for replica in replicas))
        best = max(replicas, key=offset)
        lead(best)
        self.judge(best, has_died=True)
        with self.lock:
            self.primary = best
        self.again(dead)
        for node in self.replicas():
            self.link(node)
        wait_until_up(*self.replicas())

    def judge(self, node, has_died):
        for client in self.clients:
            self.lost += client.judge(node, has_died)

    def stop(self):
        self.ended = True
        for client in self.clients:
            client.thread.join()
        for link in self.links.values():
            link.stop()


@pytest.mark.parametrize("kinds", [("snug", "snug", "redis"), ("redis", "snug", "snug")], ids="-".join)
def test_nothing_is_lost_that_was_promised(nodes, kinds):
    rng = random.Random(f"{SEED} {kinds}")
    group = Group(nodes, kinds, rng)
    until = time.monotonic() + SECONDS
    try:
        while time.monotonic() < until or "kill primary" not in [name for name, _ in group.told]:
            group.something()
        wait_until_up(*group.replicas())
    except BaseException:
        print(group.told)
        group.ended = True
        raise
    finally:
        links, group.links = group.links, {}
        group.stop()
    wait_until_same(group.primary, *group.replicas())
    group.judge(group.primary, has_died=False)
    written = sum(len(client.written) for client in group.clients)
    print(f"{len(group.told)} events, {written} writes there, {group.lost} lost that nobody had waited for")
    assert written > 50
    for link in links.values():
        link.stop()
