"""Nodes that are stopped and started again go on where their file was: what they lack is
sent, and not everything."""

import pytest

from harness.nodes import call, eventually, follow, lead, wait_until_online, wait_until_same, wait_until_up
from harness.resp import Closed
from replication.workload import write

pytestmark = pytest.mark.snug_only


def end(node):
    """Stops a node that has saved."""
    with node.connect() as connection:
        try:
            connection.call("SHUTDOWN", "SAVE")
        except Closed:
            pass
    node.process.wait(60)


def again(nodes, node, *flags):
    node.command += flags
    nodes.restart(node)


@pytest.mark.parametrize("kind", ["redis", "snug"])
def test_a_replica_that_starts_again(nodes, kind):
    primary, replica = nodes.chain(kind, "snug")
    write(primary, "before", 400)
    # The database of the stream is part of the place.
    call(primary, "SET", "a", 1, db=7)
    wait_until_same(primary, replica)
    with primary.connect() as connection:
        connection.call("SELECT", 7)
        connection.call("SET", "b", 1)
        wait_until_same(primary, replica)
        end(replica)
        connection.call("SET", "b", 2)
    again(nodes, replica, "--replicaof", f"127.0.0.1 {primary.port}")
    wait_until_up(replica)
    write(primary, "after", 400)
    wait_until_same(primary, replica)
    info = primary.info()
    assert (info["sync_full"], info["sync_partial_ok"]) == ("1", "1")


@pytest.mark.parametrize("kind", ["redis", "snug"])
def test_a_primary_that_comes_back_as_a_replica(nodes, kind):
    primary, replica = nodes.chain("snug", kind)
    write(primary, "before", 400)
    wait_until_same(primary, replica)
    end(primary)
    lead(replica)
    write(replica, "meanwhile", 400)
    again(nodes, primary, "--replicaof", f"127.0.0.1 {replica.port}")
    wait_until_up(primary)
    write(replica, "after", 400)
    wait_until_same(replica, primary)
    assert replica.info()["sync_full"] == "0"


@pytest.mark.parametrize("kind", ["redis", "snug"])
def test_a_primary_that_starts_again(nodes, kind):
    primary, replica = nodes.chain("snug", kind)
    call(primary, "CONFIG", "SET", "repl-ping-replica-period", 3600)
    write(primary, "before", 400)
    for n in range(50):
        call(primary, "SET", f"goes{n}", "v", "PX", 400)
    wait_until_same(primary, replica)
    identity = primary.info()["master_replid"]
    call(primary, "DEBUG", "SET-ACTIVE-EXPIRE", 0)
    end(primary)
    again(nodes, primary)
    wait_until_up(replica)
    info = primary.info()
    assert info["master_replid2"] == identity and info["sync_full"] == "0", info
    # Those whose time has come meanwhile go on both sides.
    eventually("the end of keys", lambda: not [n for n in range(50) if call(primary, "EXISTS", f"goes{n}")])
    write(primary, "after", 400)
    wait_until_same(primary, replica)
    call(replica, "REPLICAOF", "NO", "ONE")
    assert call(replica, "DBSIZE") == call(primary, "DBSIZE")


def test_what_was_saved_too_early_is_sent_anew(nodes):
    primary, replica = nodes.chain("snug", "snug")
    call(primary, "SET", "a", 1)
    call(primary, "SAVE")
    call(primary, "SET", "a", 2)
    wait_until_same(primary, replica)
    nodes.kill(primary)
    nodes.restart(primary)
    wait_until_up(replica)
    wait_until_same(primary, replica)
    assert call(replica, "GET", "a") == b"1"
    info = primary.info()
    assert (info["sync_full"], info["sync_partial_err"]) == ("1", "1")


def test_a_replica_of_another_keeps_its_database(nodes):
    """Who changes from one replica of a primary to another goes on in the same stream."""
    primary, one, other = nodes.chain("redis", "snug", "snug")
    follow(other, primary)
    wait_until_up(other)
    with primary.connect() as connection:
        connection.call("SELECT", 7)
        connection.call("SET", "a", 1)
        wait_until_same(primary, one, other)
        follow(other, one)
        wait_until_up(other)
        wait_until_online(one, other)
        connection.call("SET", "b", 2)
    wait_until_same(primary, one, other)
    assert call(other, "GET", "b", db=7) == b"2"
    assert int(one.info()["sync_full"]) == 1
