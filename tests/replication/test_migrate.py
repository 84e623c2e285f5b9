"""`snug migrate`: from redis-server to Snug while clients write all the time, and back."""

import subprocess
import threading
import time

import pytest

from harness.nodes import call, eventually, lead, wait_until_same
from harness.resp import Closed, Connection
from replication.workload import write

pytestmark = pytest.mark.snug_only


def migrate(target, old, new, *flags, url=None):
    command = [target.path, "migrate", url or f"redis://127.0.0.1:{old.port}", "--to", f"redis://127.0.0.1:{new.port}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


class Clients:
    """Write to one server and, when that is a replica, to the other; each keeps what was
    acknowledged, and the longest time between two acknowledgements."""

    def __init__(self, first, second, count=3):
        self.ports, self.stop = [first.port, second.port], False
        self.written, self.pauses = [[] for _ in range(count)], [0.0] * count
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        at, n, last = 0, 0, time.monotonic()
        connection = Connection(self.ports[at])
        while not self.stop:
            try:
                kind, text = connection.call("SET", f"w{number}:{n}", n)
            except Closed:
                kind, text = "-", b"closed"
            if kind == "+":
                now = time.monotonic()
                self.pauses[number] = max(self.pauses[number], now - last)
                last = now
                self.written[number].append(n)
                n += 1
            elif text.startswith((b"READONLY", b"closed")):
                at = 1 - at
                connection = Connection(self.ports[at])
            else:
                raise AssertionError(text)

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join()

    def lost(self, node):
        with node.connect() as connection:
            missing = []
            for number, written in enumerate(self.written):
                for at in range(0, len(written), 1000):
                    some = written[at : at + 1000]
                    values = connection.call("MGET", *[f"w{number}:{n}" for n in some])[1]
                    missing += [n for n, (_, value) in zip(some, values) if value != str(n).encode()]
            return missing


def test_from_redis_to_snug_and_back_while_clients_write(nodes, target):
    old, new = nodes.start("redis"), nodes.start("snug")
    write(old, "migrate", 1500)
    call(old, "DEBUG", "POPULATE", 20000, "key", 200)
    clients = Clients(old, new)
    try:
        eventually("writes", lambda: all(len(w) > 50 for w in clients.written))
        code, said = migrate(target, old, new, "--sample", "300")
        assert code == 0 and "all are the same" in said, said
        assert call(old, "ROLE")[0][1] == b"master", "nothing is switched unasked"
        # The same command goes on from there.
        code, said = migrate(target, old, new, "--sample", "300", "--switch")
        assert code == 0 and "is the primary: writes waited for" in said, said
        before = [len(w) for w in clients.written]
        eventually("writes to go on", lambda: all(len(w) > b + 50 for w, b in zip(clients.written, before)))
        assert call(old, "ROLE")[0][1] == b"slave" and call(new, "ROLE")[0][1] == b"master"
        # The way back.
        call(new, "FAILOVER", "TIMEOUT", 10000)
        eventually("the old primary", lambda: call(old, "ROLE")[0][1] == b"master")
        before = [len(w) for w in clients.written]
        eventually("writes to go on", lambda: all(len(w) > b + 50 for w, b in zip(clients.written, before)))
    finally:
        clients.end()
    print(f"{sum(map(len, clients.written))} writes, longest pause {max(clients.pauses):.3f} s\n{said}")
    wait_until_same(old, new)
    assert not clients.lost(old) and not clients.lost(new)


def test_what_is_in_the_way_is_said_first(nodes, target):
    old, new, other = nodes.start("redis"), nodes.start("snug"), nodes.start("redis")
    call(new, "SET", "own", "key")
    code, said = migrate(target, old, new)
    assert code == 1 and "it holds 1 keys" in said and "nothing was changed" in said
    code, said = migrate(target, old, other)
    assert code == 1 and "is no Snug server" in said
    call(new, "FLUSHALL")
    call(old, "EVAL", "return 1", 0)
    call(old, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    code, said = migrate(target, old, new)
    assert code == 1 and "maxmemory-policy is 'allkeys-lru'" in said, said
    code, said = migrate(target, old, new, "--check")
    assert code == 0 and "nothing was changed" in said
    assert new.info()["role"] == "master"
    code, said = migrate(target, old, new, "--despite-warnings")
    assert code == 0 and new.info()["role"] == "slave", said
    lead(new)


def test_after_the_switch_it_says_so_and_changes_nothing(nodes, target):
    old, new = nodes.start("redis"), nodes.start("snug")
    call(old, "SET", "a", "b")
    assert migrate(target, old, new, "--switch")[0] == 0
    eventually("the old one to follow", lambda: old.info()["master_link_status"] == "up")
    for flags in (["--switch"], ["--switch", "--replace"], []):
        code, said = migrate(target, old, new, *flags)
        assert code == 0 and "is the primary already" in said, said
    assert (new.info()["role"], old.info()["role"]) == ("master", "slave")
    other = nodes.start("snug")
    code, said = migrate(target, old, other, "--switch")
    assert code == 1 and "is a replica: it cannot hand over" in said, said


def test_a_server_is_not_moved_onto_itself(nodes, target):
    new = nodes.start("snug")
    call(new, "SET", "a", "b")
    code, said = migrate(target, new, new, "--replace", "--despite-warnings")
    assert code == 1 and "both are the same server" in said, said
    assert new.info()["role"] == "master"


def test_an_old_server_that_dies_ends_it(nodes, target):
    old, new = nodes.start("redis", "--rdb-key-save-delay", "10000"), nodes.start("snug")
    call(old, "DEBUG", "POPULATE", 20000, "key", 200)
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(migrate(target, old, new, "--despite-warnings")))
    thread.start()
    eventually("the data set to come", lambda: new.info().get("master_sync_in_progress") == "1")
    nodes.kill(old)
    thread.join()
    code, said = outcome[0]
    assert code == 1 and str(old.port) in said, said


def test_a_sample_that_differs_stops_it(nodes, target):
    old, new = nodes.start("redis"), nodes.start("snug", "--replica-read-only", "no")
    call(old, "SET", "a", "b")
    assert migrate(target, old, new)[0] == 0
    call(new, "SET", "a", "other")
    code, said = migrate(target, old, new, "--switch")
    assert code == 1 and "key a of database 0 differs" in said
    assert call(old, "ROLE")[0][1] == b"master"
