"""Other numbers of databases than 16: what commands answer, and that files and streams
of commands carry keys of any of them, to redis-server and back."""

import pytest

from harness import servers
from harness.nodes import Nodes, call, eventually, follow, wait_until_same

pytestmark = pytest.mark.snug_only

COMMANDS = [
    line.split()
    for line in """
        SELECT {last}
        SET k v
        SELECT {count}
        SELECT -1
        SELECT 99999999999
        SELECT x
        MOVE k {count}
        MOVE k 0
        GET k
        SELECT 0
        GET k
        COPY k k DB {last}
        COPY k k DB {count}
        COPY k k DB -1
        SWAPDB 0 {last}
        SWAPDB 0 {count}
        SWAPDB {count} 0
        SWAPDB 0 -1
        DBSIZE
        CONFIG GET databases
        SET again v EX 1000
        FLUSHDB
        SELECT {last}
        DBSIZE
        FLUSHALL
        DBSIZE
    """.strip().splitlines()
]


@pytest.fixture
def nodes(target):
    nodes = Nodes(target)
    yield nodes
    nodes.stop()


@pytest.mark.parametrize("count", [1, 17, 1000])
def test_commands_answer_as_redis_does(target, count):
    flags = ("--databases", str(count))
    ours, theirs = target.start(*flags), servers.redis(*flags)
    with ours.connect() as mine, theirs.connect() as other:
        for command in COMMANDS:
            command = [word.format(count=count, last=count - 1) for word in command]
            assert mine.call(*command) == other.call(*command), command
        # A transaction locks the slots of the databases that it selects.
        for connection in (mine, other):
            connection.call("MULTI")
            connection.call("SELECT", count - 1)
            connection.call("SET", "in", "transaction")
            assert connection.call("EXEC")[1] == [("+", b"OK"), ("+", b"OK")]
            connection.call("CLIENT", "SETNAME", "me")
            assert f" db={count - 1} ".encode() in connection.call("CLIENT", "LIST")[1]
        assert f"db{count - 1}" in ours.info()
    ours.stop(), theirs.stop()


def fill(node, dbs):
    with node.connect() as connection:
        for db in dbs:
            connection.call("SELECT", db)
            connection.call("SET", f"key {db}", db)
            connection.call("EXPIRE", f"key {db}", 1000)
            connection.call("RPUSH", "list", *range(db % 50 + 1))


DBS = [0, 9, 10, 99, 100, 255, 999]
MANY = ("--databases", "1000", "--enable-debug-command", "local")


def test_files_carry_every_database(nodes):
    theirs, ours = nodes.start("redis", *MANY), nodes.start("snug", *MANY, "--appendonly", "yes")
    fill(ours, DBS)
    wanted = call(ours, "DEBUG", "DIGEST")
    # The append-only file, then a snapshot, then redis-server's eyes.
    call(ours, "DEBUG", "RELOAD")
    assert call(ours, "DEBUG", "DIGEST") == wanted
    nodes.restart(ours)
    assert call(ours, "DEBUG", "DIGEST") == wanted
    call(ours, "SAVE")
    (theirs.directory / "dump.rdb").write_bytes((ours.directory / "dump.rdb").read_bytes())
    call(theirs, "DEBUG", "RELOAD", "NOSAVE")
    assert call(theirs, "DEBUG", "DIGEST") == wanted


def test_a_file_of_more_databases_is_refused(nodes, target):
    more = nodes.start("redis", *MANY)
    fill(more, DBS)
    call(more, "SAVE")
    fewer = target.server("--databases", "999")
    (fewer.directory / "dump.rdb").write_bytes((more.directory / "dump.rdb").read_bytes())
    fewer.launch()
    assert fewer.process.wait(servers.START_SECONDS) == 1
    assert "there is no database 999: they are 999" in fewer.log()
    fewer.stop()


@pytest.mark.parametrize("kinds", [("redis", "snug"), ("snug", "redis"), ("snug", "snug")])
def test_replicas_have_every_database(nodes, kinds):
    primary, replica = (nodes.start(kind, *MANY, "--repl-diskless-sync-delay", "0") for kind in kinds)
    fill(primary, DBS[:4])
    follow(replica, primary)
    fill(primary, DBS)
    wait_until_same(primary, replica)
    with primary.connect() as connection:
        connection.call("SWAPDB", 999, 100)
        connection.call("SELECT", 999)
        connection.call("COPY", "list", "list", "DB", 500)
        connection.call("MOVE", "list", 501)
        connection.call("SELECT", 255)
        connection.call("FLUSHDB")
    wait_until_same(primary, replica)


def test_a_database_costs_little_until_it_is_used(target):
    def used(count):
        server = target.start("--databases", str(count))
        figure = int(server.info()["used_memory"])
        server.stop()
        return figure

    assert used(10_000) - used(16) < 10_000 * 64
