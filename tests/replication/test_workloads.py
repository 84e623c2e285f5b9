"""Random workloads of all types: after each phase every node holds the same, whoever is
the primary, whoever the replica, and however often the link was cut."""

import os

import pytest

from harness.nodes import call, eventually, follow, lead, wait_until_same, wait_until_up
from replication.workload import write

COMMANDS = int(os.environ.get("SNUG_RANDOM_COMMANDS", 1500))
SEED = os.environ.get("SNUG_RANDOM_SEED", "1")
pytestmark = pytest.mark.snug_only


@pytest.mark.parametrize("kinds", [("redis", "snug"), ("snug", "redis"), ("snug", "snug", "redis"), ("redis", "snug", "snug")], ids="-".join)
def test_all_types_reach_the_end_of_the_chain(nodes, kinds):
    first = nodes.start(kinds[0])
    # Something to be sent as a whole.
    write(first, f"{SEED} before", COMMANDS)
    chain = [first]
    for kind in kinds[1:]:
        node = nodes.start(kind)
        # While the primary is written to.
        follow(node, chain[-1])
        write(first, f"{SEED} {kind}", COMMANDS)
        wait_until_up(node)
        chain.append(node)
        wait_until_same(*chain)
    for phase in range(2):
        write(first, f"{SEED} {phase}", COMMANDS)
        wait_until_same(*chain)


def test_links_that_are_cut_lose_nothing(nodes, proxy):
    primary, replica, other = nodes.start("redis"), nodes.start("snug"), nodes.start("redis")
    up, down = proxy(primary), proxy(replica)
    follow(replica, primary, up.port)
    wait_until_up(replica)
    follow(other, replica, down.port)
    wait_until_up(other)
    for phase in range(3):
        for link in (up, down):
            # In the middle of a command, most likely.
            link.allow(2003 + 991 * phase)
            write(primary, f"{SEED} {phase}", COMMANDS // 3)
            eventually("the cut", lambda cut=link: cut.left == 0)
            link.allow(None)
            wait_until_same(primary, replica, other)
    for node in (primary, replica):
        stats = node.info()
        assert int(stats["sync_full"]) <= 2, stats["sync_full"]
        assert int(stats["sync_partial_ok"]) > 0


def test_roles_change_and_nothing_is_sent_anew(nodes):
    a, b, c = nodes.chain("snug", "snug", "redis")
    write(a, f"{SEED} a", COMMANDS // 2)
    wait_until_same(a, b, c)
    # The one in the middle leads, and the others come to it.
    lead(b)
    follow(a, b)
    write(b, f"{SEED} b", COMMANDS // 2)
    wait_until_up(a, c)
    wait_until_same(b, a, c)
    lead(c)
    follow(b, c)
    wait_until_up(b)
    write(c, f"{SEED} c", COMMANDS // 2)
    wait_until_same(c, b, a)
    # Each got everything once, at the start.
    assert [int(node.info()["sync_full"]) for node in (a, b, c)] == [1, 1, 0]


def test_nodes_that_are_killed_come_back(nodes):
    primary, replica, other = nodes.chain("snug", "snug", "snug")
    write(primary, f"{SEED} one", COMMANDS // 3)
    wait_until_same(primary, replica, other)
    nodes.kill(replica)
    write(primary, f"{SEED} two", COMMANDS // 3)
    nodes.restart(replica)
    follow(replica, primary)
    wait_until_same(primary, replica, other)
    # The primary is lost, and its replica takes over.
    nodes.kill(primary)
    lead(replica)
    write(replica, f"{SEED} three", COMMANDS // 3)
    nodes.restart(primary)
    follow(primary, replica)
    wait_until_up(primary)
    wait_until_same(replica, primary, other)


@pytest.mark.parametrize("kinds", [("redis", "snug"), ("snug", "redis"), ("snug", "snug")], ids="-".join)
def test_libraries_of_functions_follow(nodes, kinds):
    def library(name):
        return f"#!lua name={name}\nredis.register_function('{name}_f', function() return '{name}' end)"

    primary, replica = (nodes.start(kind) for kind in kinds)
    call(primary, "FUNCTION", "LOAD", library("before"))
    call(replica, "FUNCTION", "LOAD", library("own"))
    follow(replica, primary)
    wait_until_up(replica)
    call(primary, "FUNCTION", "LOAD", library("after"))
    eventually("the library", lambda: len(call(replica, "FUNCTION", "LIST")) == 2)
    call(primary, "FUNCTION", "DELETE", "before")
    eventually("its end", lambda: len(call(replica, "FUNCTION", "LIST")) == 1)
