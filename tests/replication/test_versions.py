"""Other versions of Redis, and Valkey, as primary and as replica of Snug: SNUG_OTHERS names
their binaries, with colons between them. Without it there is only Debian's, as everywhere."""

import os

import pytest

from harness import servers
from harness.nodes import call, eventually, follow, wait_until_online, wait_until_same, wait_until_up
from replication.workload import write

OTHERS = os.environ.get("SNUG_OTHERS", servers.REDIS_SERVER).split(":")
pytestmark = pytest.mark.snug_only
COMMANDS = int(os.environ.get("SNUG_RANDOM_COMMANDS", 1000))


@pytest.fixture(params=OTHERS, ids=lambda path: "-".join(path.split("/")[-3:]))
def other(request, nodes):
    def start(*flags):
        flags = ["--repl-diskless-sync-delay", "0", *flags]
        # 6.2 has no such parameter, and needs none.
        if "6.2" not in os.popen(f"{request.param} --version").read():
            flags += ["--enable-debug-command", "local"]
        node = servers.Server([request.param], "other", flags).start()
        nodes.all.append(node)
        return node

    return start


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_as_primary(nodes, other, diskless):
    primary, replica = other("--repl-diskless-sync", diskless), nodes.start("snug")
    write(primary, f"other {diskless}", COMMANDS)
    call(primary, "DEBUG", "POPULATE", 3000)
    follow(replica, primary)
    write(primary, f"meanwhile {diskless}", COMMANDS)
    wait_until_up(replica)
    wait_until_same(primary, replica)
    # A link that is cut goes on where it was.
    call(replica, "CLIENT", "KILL", "TYPE", "master")
    write(primary, f"after {diskless}", COMMANDS)
    wait_until_same(primary, replica)
    assert int(primary.info()["sync_full"]) == 1


def test_as_replica(nodes, other):
    primary, replica = nodes.start("snug"), other()
    if replica.info()["redis_version"].startswith("6."):
        pytest.skip("it does not read RDB of version 10: redis-server 7.0 cannot be its primary either")
    write(primary, "to other", COMMANDS)
    call(primary, "SET", "large", b"x" * 3_000_000)
    follow(replica, primary)
    write(primary, "meanwhile", COMMANDS)
    wait_until_up(replica)
    wait_until_same(primary, replica)


def test_in_turn(nodes, other):
    """They change places, there and back, and nothing is sent anew."""
    nodes_in_turn = [other(), nodes.start("snug")]
    follow(nodes_in_turn[1], nodes_in_turn[0])
    wait_until_up(nodes_in_turn[1])
    for turn in range(3):
        primary, replica = nodes_in_turn
        write(primary, f"turn {turn}", COMMANDS // 2)
        wait_until_same(primary, replica)
        wait_until_online(primary, replica)
        call(primary, "FAILOVER", "TO", "127.0.0.1", replica.port)
        eventually("the new primary", lambda: replica.info()["role"] == "master")
        wait_until_up(primary)
        nodes_in_turn.reverse()
    assert sum(int(node.info()["sync_full"]) for node in nodes_in_turn) == 1
