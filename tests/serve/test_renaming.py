"""`rename-command`: each answer compared with redis-server's."""

import pathlib
import shutil
import subprocess

import pytest

from harness import servers
from harness.nodes import eventually

LONG = "fetch-it-by-a-name-that-is-longer-than-any-command"
LINES = [
    "rename-command GET fetch",
    f'rename-command Fetch "{LONG}"',
    'rename-command set "get"',
    "rename-command CONFIG cfg",
    'rename-command OBJECT ""',
    "rename-command MULTI begin",
    "rename-command del DEL",
    "rename-command slowlog slow",
    "rename-command XINFO about",
    "rename-command Debug tests",
]
ASKED = """
get k v|GET k w ex 100|set k v|fetch k|LONG k|LONG|LONG k k
cfg get timeout|CFG GET timeout|config get timeout|cfg|cfg nosuch|cfg get|object help|object encoding k|del k
begin|get k 1|LONG k|nosuch|exec|multi|begin|get k 1|begin|exec|exec
slow get 1 2|slow GET a b|slow nosuch|xadd s 1-1 a b|about stream s x|about STREAM s full x|about x|tests nosuch|tests jmap a b c|debug help
command info get|command info set|command info LONG|command info config|command info cfg|command info cfg|get|command info object object|encoding
command getkeys get a b|command getkeys LONG a|command getkeys set a b|command getkeys object encoding a
command list filterby pattern get|command list filterby pattern set|command list filterby pattern config*|command list filterby pattern object*|command list filterby pattern cfg*
"""


@pytest.fixture
def both(target):
    flags = ["--enable-debug-command", "local"]
    reference = servers.Server([servers.REDIS_SERVER], "reference", flags, LINES)
    running = [reference.start(), target.server(*flags, config_lines=LINES).start()]
    yield [server.connect() for server in running]
    for server in running:
        server.stop()


def plain(reply):
    """A reply with its sets in order."""
    kind, value = reply
    if isinstance(value, list):
        value = [plain(v) for v in value]
        return kind, sorted(value, key=repr) if all(v[0] in "$+" for v in value) else value
    return reply


def asked():
    for line in ASKED.strip().splitlines():
        begun = []
        for part in line.replace("LONG", LONG).split("|"):
            # `a|b` is a name here where it follows one of a container.
            if part in ("get", "encoding"):
                begun[-1] += "|" + part
            else:
                begun.append(part)
        yield from begun


def test_what_is_answered_by_which_name(both):
    for words in asked():
        wanted, got = (plain(connection.call(*words.split())) for connection in both)
        if words.startswith("command info"):
            # Which command it is: what is told of each is compared elsewhere.
            wanted, got = ([row[1][0] if row[1] else None for row in reply[1]] for reply in (wanted, got))
        assert got == wanted, words


def test_what_is_counted_keeps_its_own_name(both):
    found = []
    for connection in both:
        for words in ("get k v", f"{LONG} k", "cfg get timeout", "set k v"):
            connection.call(*words.split())
        fields = connection.call("INFO", "commandstats")[1].decode()
        found.append({line.split(":")[0] for line in fields.splitlines() if line.startswith("cmdstat")} - {"cmdstat_ping"})
        assert [connection.call("LATENCY", "HISTOGRAM", name)[1][:1] for name in ("get", LONG, "set")] == [[("$", b"set")], [("$", b"get")], []]
        assert [reply[1] for reply in connection.call("COMMAND", "DOCS", "get")[1][:1]] == [b"set"]
        assert connection.call("CFG", "HELP")[1][0] == ("+", b"CFG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
    assert found[0] == found[1] == {"cmdstat_get", "cmdstat_set", "cmdstat_config|get"}


@pytest.mark.snug_only
def test_what_is_gone_is_not_counted(both):
    """Without `object` and its five subcommands."""
    connection = both[1]
    names = [name.decode() for _, name in connection.call("COMMAND", "LIST")[1]]
    assert not [name for name in names if name.startswith("object")]
    assert {"get", "set", "config", "config|get", "multi"} <= set(names)
    top = [name for name in names if "|" not in name]
    assert connection.call("COMMAND", "COUNT") == (":", len(top))
    assert len(connection.call("COMMAND")[1]) == len(top)


def test_a_rewrite_keeps_the_lines(target):
    server = target.server(config_lines=LINES)
    server.start()
    try:
        with server.connect() as connection:
            assert connection.call("CFG", "SET", "timeout", "7") == ("+", b"OK")
            assert connection.call("CFG", "REWRITE") == ("+", b"OK")
        lines = (server.directory / "server.conf").read_text().splitlines()
        assert [line for line in lines if line.startswith("rename")] == LINES
        assert "timeout 7" in lines
    finally:
        server.stop()


REFUSED = [
    (["rename-command nosuch x"], "No such command in rename-command"),
    (['rename-command get ""', "rename-command get x"], "No such command in rename-command"),
    (["rename-command get SET"], "Target command name already exists"),
]


@pytest.mark.parametrize("lines, why", REFUSED)
def test_what_cannot_be_renamed(target, lines, why):
    for server in (servers.Server([servers.REDIS_SERVER], "reference", (), ["hz 10", *lines]), target.server(config_lines=["hz 10", *lines])):
        done = subprocess.run(server.command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
        shutil.rmtree(server.directory)
        said = (done.stdout + done.stderr).strip().splitlines()
        assert done.returncode == 1 and said[-1].endswith(why), said
        if "snug" in pathlib.Path(server.command[0]).name:
            assert said[0].endswith(f"server.conf, line {1 + len(lines)}: {why}") and len(said) == 1


def test_a_flag_renames_too(target):
    server = target.start("--rename-command", "get", "fetch", "--rename-command get2 x".replace("get2", "fetch"))
    try:
        with server.connect() as connection:
            assert connection.call("x", "k") == ("$", None)
            assert connection.call("get", "k")[0] == "-"
    finally:
        server.stop()


@pytest.mark.snug_only
def test_what_renamed_commands_have_written_is_executed_again(target):
    """By a start that has other names, and by a replica that has."""
    renamed = ["--rename-command", "SET", "get2", "--rename-command", "MULTI", "begin", "--rename-command", "XGROUP", "groups"]
    server = target.start("--appendonly", "yes", *renamed)
    replica = target.start("--repl-diskless-sync-delay", "0", "--rename-command", "SET", "other")
    try:
        with server.connect() as c, replica.connect() as r:
            r.call("REPLICAOF", "127.0.0.1", str(server.port))
            eventually("the link", lambda: replica.info()["master_link_status"] == "up")
            assert c.call("get2", "k", "v") == ("+", b"OK")
            assert c.call("groups", "CREATE", "x", "g", "0", "MKSTREAM") == ("+", b"OK")
            c.call("begin")
            c.call("get2", "a", "1")
            c.call("get2", "b", "2")
            c.call("EXEC")
            eventually("all at the replica", lambda: r.call("MGET", "k", "a", "b")[1] == [("$", b"v"), ("$", b"1"), ("$", b"2")])
            assert r.call("EXISTS", "x") == (":", 1)
        server.process.kill()
        server.process.wait()
        server.start()
        eventually("what was saved", lambda: server.info()["loading"] == "0")
        with server.connect() as c:
            assert c.call("MGET", "k", "a", "b")[1] == [("$", b"v"), ("$", b"1"), ("$", b"2")]
            assert c.call("EXISTS", "x") == (":", 1)
    finally:
        server.stop()
        replica.stop()
