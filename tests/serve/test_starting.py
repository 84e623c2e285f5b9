"""How a server starts: flags, configuration file, what is refused and how."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading

import pytest

from harness.packing import until
from harness.resp import Connection

WAIT_SECONDS = 30


def refused(server):
    """Launches what must not start: exit code 1, one line, nobody listening."""
    done = subprocess.run(server.command, capture_output=True, text=True, timeout=WAIT_SECONDS, stdin=subprocess.DEVNULL)
    said = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode == 1, f"exit code {done.returncode}: {said}"
    return said


def config(server, name):
    with server.connect() as connection:
        reply = connection.call("CONFIG", "GET", name)
    return reply[1][1][1].decode() if reply[1] else None


FLAGS = [
    (["--maxmemory", "1gb"], "maxmemory", "1073741824"),
    (["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"], "maxmemory-policy", "allkeys-lru"),
    (["--notify-keyspace-events", "KEA"], "notify-keyspace-events", "AKE"),
    (["--timeout", "300"], "timeout", "300"),
    (["--databases", "4"], "databases", "4"),
    (["--maxclients", "123"], "maxclients", "123"),
    (["--proto-max-bulk-len", "1mb"], "proto-max-bulk-len", "1048576"),
    (["--slowlog-log-slower-than", "-1"], "slowlog-log-slower-than", "-1"),
    (["--TIMEOUT", "5"], "timeout", "5"),
    (["--hz", "1000"], "hz", "500"),
    (["--save", "900", "1", "--save", "300 10"], "save", "900 1 300 10"),
    (["--save", "900", "1", "--save"], "save", ""),
    (["--unixsocketperm", "700"], "unixsocketperm", "700"),
    (["--shutdown-on-sigterm", "nosave", "now"], "shutdown-on-sigterm", "nosave now"),
    (["--slave-announce-port", "7000"], "replica-announce-port", "7000"),
    (["--client-output-buffer-limit", "pubsub 1mb 512kb 10"], "client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 1048576 524288 10"),
    (["--client-output-buffer-limit", "pubsub", "1mb", "512kb", "10"], "client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 1048576 524288 10"),
    (["--stream-node-max-entries", "50"], "stream-node-max-entries", "50"),
    (["--maxmemory 700mb"], "maxmemory", "734003200"),
    (["--maxmemory 700mb", "--timeout", "5"], "maxmemory", "734003200"),
    (["--save '900 1'", "--timeout 5"], "save", "900 1"),
    (["--masterauth", "--secret word"], "masterauth", "--secret word"),
    (["--masterauth", "--hz", "--timeout", "5"], "masterauth", "--hz"),
    (["--masterauth", "-", "--timeout", "5"], "masterauth", "-"),
    (["--masterauth", "--help"], "masterauth", "--help"),
    (["--masterauth", "two\nlines #\"'"], "masterauth", "two\nlines #\"'"),
    (["--save", "900", "1", "--save", "--timeout", "5"], "save", ""),
]  # fmt: skip
OWN_FLAGS = [
    (["--pack", "no"], "pack", "no"),
    ([], "pack", "yes"),
    (["--pack-min-size", "128"], "pack-min-size", "128"),
    (["--pack-min-saving", "50"], "pack-min-saving", "50"),
    (["--pack-cold-after", "7"], "pack-cold-after", "7"),
]


@pytest.mark.parametrize("flags, name, value", FLAGS, ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_flags(target, flags, name, value):
    server = target.start(*flags)
    try:
        assert config(server, name) == value
    finally:
        server.stop()


@pytest.mark.snug_only
@pytest.mark.parametrize("flags, name, value", OWN_FLAGS, ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_own_flags(target, flags, name, value):
    server = target.start(*flags)
    try:
        assert config(server, name) == value
    finally:
        server.stop()


@pytest.mark.parametrize("access", ["no", "local"])
def test_who_may_say_where_files_are_written(target, access, tmp_path):
    server = target.start("--enable-protected-configs", access)
    try:
        with server.connect() as connection:
            told = connection.call("CONFIG", "SET", "dir", str(tmp_path))
        assert (told == ("+", b"OK")) == (access == "local"), told
        assert (config(server, "dir") == str(tmp_path)) == (access == "local")
    finally:
        server.stop()


@pytest.mark.snug_only
def test_workers_are_threads(target):
    def workers(server):
        names = (path / "comm" for path in pathlib.Path(f"/proc/{server.pid}/task").iterdir())
        return sum(name.read_text().startswith("worker") for name in names)

    for count in (1, 4):
        server = target.start(workers=count)
        try:
            until(lambda server=server, count=count: workers(server) == count)
        finally:
            server.stop()


BAD_FLAGS = [
    ["--nosuch", "1"], ["--port", "abc"], ["--port", "65536"], ["--port", "-1"], ["--maxmemory", "1xb"], ["--maxmemory", "-1"],
    ["--maxmemory-policy", "sometimes"], ["--timeout", "-1"], ["--timeout", "soon"], ["--databases", "0"], ["--maxclients", "0"],
    ["--notify-keyspace-events", "q"], ["--cluster-enabled", "maybe"], ["--client-output-buffer-limit", "pubsub 1mb"],
    ["--client-output-buffer-limit", "nosuch 1 1 1"], ["--hz"], ["--maxmemory"], ["--proto-max-bulk-len", "1"],
    ["--timeout", "1", "2"], ["--masterauth", "a", "b"], ["--timeout", "007"], ["--timeout", "+7"], ["--timeout", "--hz", "5"], ["--masterauth \"x"],
    ["timeout", "5"], ["--rename-command", "get"], ["--rename-command", "get", "a", "b"],
    ["--hz", "-5"], ["--save", "a b c"], ["--save", "1 2 3"], ["--save", "0 1"], ["--appendfsync", "banana"], ["--oom-score-adj", "foo"],
    ["--supervised", "foo"], ["--dbfilename", "a/b"], ["--appenddirname", "a/b"], ["--set-max-intset-entries", "-4"],
    ["--shutdown-timeout", "-1"], ["--repl-timeout", "0"], ["--cluster-announce-port", "70000"], ["--io-threads", "129"],
    ["--cluster-preferred-endpoint-type", "foo"], ["--unixsocketperm", "1000"], ["--unixsocketperm", "9"], ["--oom-score-adj-values", "1 2"],
    ["--oom-score-adj-values", "1 2 2001"], ["--shutdown-on-sigint", "never"], ["--socket-mark-id", "-1"], ["--syslog-facility", "mail"],
]  # fmt: skip
OWN_BAD_FLAGS = [
    ["--workers", "65"], ["--workers", "many"], ["--workers", "-1"], ["--pack", "maybe"], ["--pack-min-saving", "101"],
    ["--pack-min-size", "-1"], ["--pack-level", "99"], ["--pack-nosuch", "1"], ["nosuch-file.conf"], ["--dir", "/nonexistent/folder"],
    ["--bind", "not an address"], ["--bind", "203.0.113.77"], ["--aclfile", "users.acl"], 
]  # fmt: skip


@pytest.mark.parametrize("flags", BAD_FLAGS, ids=" ".join)
def test_bad_flags_are_refused(target, flags):
    server = target.server(*flags)
    assert refused(server)


@pytest.mark.snug_only
@pytest.mark.parametrize("flags", BAD_FLAGS + OWN_BAD_FLAGS, ids=" ".join)
def test_bad_flags_are_refused_in_one_clear_line(target, flags):
    server = target.server()
    server.command = [*target.command(), *flags]
    if not any(f in flags for f in ("--port", "--bind")):
        server.command += ["--port", str(server.port)]
    said = refused(server)
    assert len(said) == 1, said
    named = flags[0].lstrip("-").split()[0]
    assert named in said[0] or flags[-1] in said[0], f"{said[0]!r} names neither {named!r} nor its value"
    assert "panicked" not in said[0]


GOOD_FILE = """
# a comment
   # another

maxmemory 50mb
MAXMEMORY-POLICY allkeys-lru
notify-keyspace-events "Kx"
timeout 77
client-output-buffer-limit pubsub 2mb 1mb 30
slowlog-max-len 5
requirepass "with space\\x41"
"""


def test_a_configuration_file(target):
    server = target.server(config_lines=GOOD_FILE.splitlines())
    server.start()
    try:
        with server.connect() as connection:
            assert connection.call("GET", "k") == ("-", b"NOAUTH Authentication required.")
            assert connection.call("AUTH", "with spaceA") == ("+", b"OK")
            got = connection.call("CONFIG", "GET", "maxmemory*", "timeout", "notify-keyspace-events", "slowlog-max-len")[1]
        found = dict(zip((v[1].decode() for v in got[::2]), (v[1].decode() for v in got[1::2])))
        wanted = {
            "maxmemory": "52428800", "maxmemory-policy": "allkeys-lru", "timeout": "77", "notify-keyspace-events": "xK",
            "slowlog-max-len": "5",
        }  # fmt: skip
        assert wanted.items() <= found.items()
    finally:
        server.stop()


def test_flags_come_after_the_file(target):
    server = target.server("--timeout", "9", config_lines=["timeout 5", "hz 50"])
    server.start()
    try:
        assert (config(server, "timeout"), config(server, "hz")) == ("9", "50")
    finally:
        server.stop()


def test_a_file_includes_another(target):
    server = target.server(config_lines=["timeout 5", "include more.conf"])
    (server.directory / "more.conf").write_text("timeout 6\n")
    server.start()
    try:
        assert config(server, "timeout") == "6"
    finally:
        server.stop()


def test_a_file_includes_what_fits_a_pattern(target):
    """In the order of names; a pattern that fits nothing is no error, a name that is not there is."""
    server = target.server(config_lines=["include conf.d/*.conf", "include nothing/*.conf", "include conf.d/[x]y?", "hz 20"])
    more = server.directory / "conf.d"
    more.mkdir()
    (more / "1.conf").write_text("timeout 6\n")
    (more / "2.conf").write_text("timeout 7\nslowlog-max-len 3\n")
    (more / ".hidden.conf").write_text("timeout 8\n")
    (more / "other").write_text("timeout 9\n")
    server.start()
    try:
        assert [config(server, name) for name in ("timeout", "slowlog-max-len", "hz")] == ["7", "3", "20"]
    finally:
        server.stop()


def test_lines_of_save_add_up(target):
    server = target.server(config_lines=["save 60 9", 'save ""', "save 900 1", "save 300 10"])
    server.command = [word for word in server.command if word not in ("--save", "")]
    server.start()
    try:
        assert config(server, "save") == "900 1 300 10"
        with server.connect() as connection:
            assert connection.call("CONFIG", "REWRITE") == ("+", b"OK")
        # Read again, the file says the same.
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(WAIT_SECONDS)
        server.start()
        assert config(server, "save") == "900 1 300 10"
    finally:
        server.stop()


def test_a_line_of_save_without_a_value_adds_nothing(target):
    server = target.server(config_lines=["save 60 9", "save", "save 900 1", "save"])
    server.command = [word for word in server.command if word not in ("--save", "")]
    server.start()
    try:
        assert config(server, "save") == "60 9 900 1"
    finally:
        server.stop()


@pytest.mark.parametrize("words, timeout", [(["timeout", "7"], "7"), (["timeout", "7", "--timeout 8"], "8"), (["timeout 7"], None), (["timeout", "7", "hz", "5"], None)])
def test_a_parameter_without_dashes_behind_the_file(target, words, timeout):
    server = target.server(config_lines=["timeout 5"])
    at = server.command.index(str(server.directory / "server.conf")) + 1
    server.command[at:at] = words
    if timeout is None:
        assert refused(server)
        return
    server.start()
    try:
        assert config(server, "timeout") == timeout
    finally:
        server.stop()


def test_values_are_bytes(target):
    """A password of any bytes lets in who knows it, from the file, a flag or CONFIG SET, and through a rewrite."""
    server = target.server("--masterauth", os.fsdecode(b"\xff--\xfe"))
    file = server.directory / "server.conf"
    file.write_bytes(b'# caf\xe9\nrequirepass p\xe9\xff\ninclude \xe9.conf\n')
    pathlib.Path(os.fsdecode(bytes(server.directory) + b"/\xe9.conf")).write_text("timeout 7\n")
    server.command.insert(len(target.command()), str(file))
    server.start()
    try:
        with server.connect() as connection:
            assert connection.call("AUTH", "p\ufffd\ufffd")[0] == "-"
            assert connection.call("AUTH", b"p\xe9\xff") == ("+", b"OK")
            assert connection.call("CONFIG", "GET", "masterauth")[1][1] == ("$", b"\xff--\xfe")
            assert connection.call("CONFIG", "GET", "timeout")[1][1] == ("$", b"7")
            assert connection.call("CONFIG", "SET", "requirepass", b'new \x00\xff"') == ("+", b"OK")
            assert connection.call("CONFIG", "REWRITE") == ("+", b"OK")
        rewritten = file.read_bytes()
        assert rewritten.startswith(b"# caf\xe9\nrequirepass ") and b"\ninclude \xe9.conf\n" in rewritten, rewritten
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(WAIT_SECONDS)
        server.launch()
        server.wait_until_ready()
        with server.connect() as connection:
            assert connection.call("AUTH", b'new \x00\xff"') == ("+", b"OK")
    finally:
        server.stop()


def test_many_rewrites_at_once(target):
    """Each replaces the whole file: what is there at any moment is complete, and nothing is left beside it."""
    server = target.server(config_lines=["# first", *(f"# {n}" * 50 for n in range(200)), "timeout 5"])
    file = server.directory / "server.conf"
    server.start()
    os.chmod(file, 0o600)
    answers = []

    def rewrite():
        with server.connect() as connection:
            answers.extend(connection.call("CONFIG", "REWRITE") for _ in range(30))

    try:
        threads = [threading.Thread(target=rewrite) for _ in range(6)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            text = file.read_text()
            assert text.startswith("# first\n") and "\ntimeout 5\n" in text
        for thread in threads:
            thread.join()
        assert answers == [("+", b"OK")] * 180
        assert sorted(path.name for path in server.directory.iterdir()) == ["log.txt", "server.conf"]
        assert target.is_redis or file.stat().st_mode & 0o777 == 0o600
    finally:
        server.stop()


def test_a_rewrite_that_cannot_be(target):
    """Nothing is lost of a file that cannot be read."""
    server = target.server(config_lines=["timeout 5"])
    server.start()
    file = server.directory / "server.conf"
    try:
        file.rename(server.directory / "kept.conf")
        file.mkdir()
        with server.connect() as connection:
            assert connection.call("CONFIG", "REWRITE") == ("-", b"ERR Rewriting config file: Is a directory")
        assert file.is_dir()
    finally:
        server.stop()


def test_the_folder_is_told_in_full(target):
    server = target.server("--enable-protected-configs", "local", config_lines=["timeout 5"])
    (server.directory / "deeper").mkdir()
    server.command[server.command.index("--dir") + 1] = "."
    server.start()
    try:
        assert config(server, "dir") == str(server.directory)
        with server.connect() as connection:
            assert connection.call("CONFIG", "SET", "dir", "deeper") == ("+", b"OK")
            assert connection.call("CONFIG", "SET", "dir", "nosuch", "timeout", "6")[0] == "-"
            assert connection.call("CONFIG", "REWRITE") == ("+", b"OK")
        assert config(server, "dir") == str(server.directory / "deeper")
        assert str(server.directory / "deeper") in (server.directory / "server.conf").read_text()
    finally:
        server.stop()


@pytest.mark.parametrize("seconds", ["32767", "32768", "2147483647"])
def test_any_keepalive_lets_clients_in(target, seconds):
    server = target.start("--tcp-keepalive", seconds)
    try:
        with server.connect() as connection:
            assert connection.call("PING") == ("+", b"PONG")
            assert connection.call("CONFIG", "SET", "tcp-keepalive", "5") == ("+", b"OK")
            assert connection.call("CONFIG", "SET", "tcp-keepalive", seconds) == ("+", b"OK")
        assert config(server, "tcp-keepalive") == seconds
    finally:
        server.stop()


def test_debug_is_for_nobody_unless_it_is_allowed(target):
    server = target.start()
    try:
        assert config(server, "enable-debug-command") == "no"
        with server.connect() as connection:
            kind, text = connection.call("DEBUG", "SLEEP", "0")
        assert kind == "-" and text.startswith(b'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local"')
    finally:
        server.stop()


def test_the_file_comes_from_standard_input(target):
    server = target.server("--hz", "30")
    server.command.insert(len(target.command()), "-")
    with open(server.log_path, "ab") as log:
        server.process = subprocess.Popen(server.command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=server.directory)
    server.process.stdin.write(b"timeout 12\nhz 20\n")
    server.process.stdin.close()
    try:
        server.wait_until_ready()
        assert (config(server, "timeout"), config(server, "hz")) == ("12", "30")
        with server.connect() as connection:
            assert connection.call("CONFIG", "REWRITE") == ("-", b"ERR The server is running without a config file")
    finally:
        server.stop()


def test_a_relative_file_is_rewritten_where_it_is(target):
    """The server works in `dir`, where the name would mean another file."""
    server = target.server(config_lines=["timeout 5"])
    elsewhere = server.directory / "elsewhere"
    elsewhere.mkdir()
    server.command = [{str(server.directory / "server.conf"): "server.conf"}.get(word, word) for word in server.command]
    server.command[server.command.index("--dir") + 1] = str(elsewhere)
    server.start()
    try:
        assert server.info()["config_file"] == str(server.directory / "server.conf")
        with server.connect() as connection:
            assert connection.call("CONFIG", "SET", "timeout", "6") == ("+", b"OK")
            assert connection.call("CONFIG", "REWRITE") == ("+", b"OK")
        assert "timeout 6" in (server.directory / "server.conf").read_text()
        assert not list(elsewhere.iterdir())
    finally:
        server.stop()


STOCK = pathlib.Path("/etc/redis/redis.conf")


@pytest.mark.skipif(not STOCK.exists(), reason="redis-server's own configuration is not installed")
def test_redis_servers_own_file_is_taken(target):
    """All of it but what says where things are on that machine."""
    there = re.compile(r"(daemonize|logfile|dir|pidfile|bind|port) ")
    lines = [line for line in STOCK.read_text(errors="replace").splitlines() if not there.match(line)]
    server = target.server(config_lines=lines)
    server.start()
    try:
        assert config(server, "oom-score-adj-values") == "0 200 800"
    finally:
        server.stop()


def test_a_folder_that_is_not_there(target):
    server = target.start("--enable-protected-configs", "local")
    try:
        with server.connect() as connection:
            said = connection.call("CONFIG", "SET", "dir", "/nonexistent")
        assert said == ("-", b"ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or directory")
    finally:
        server.stop()


BAD_LINES = ["nosuch 1", "timeout soon", "timeout", "maxmemory 1xb", 'requirepass "unbalanced', "maxmemory-policy sometimes", "timeout 1 2"]


@pytest.mark.parametrize("line", BAD_LINES)
def test_bad_lines_are_refused(target, line):
    server = target.server(config_lines=["# a comment", "hz 10", line])
    assert refused(server)


@pytest.mark.snug_only
@pytest.mark.parametrize("line", BAD_LINES)
def test_bad_lines_are_refused_with_their_place(target, line):
    server = target.server(config_lines=["# a comment", "hz 10", line])
    said = refused(server)
    assert len(said) == 1, said
    assert "line 3" in said[0], said


def test_rewrite_keeps_comments_and_survives_a_restart(target):
    server = target.server(config_lines=["# keep me", "timeout 5", "", "maxmemory 1mb"])
    server.start()
    with server.connect() as connection:
        assert connection.call("CONFIG", "SET", "maxmemory", "2mb", "slowlog-max-len", "7") == ("+", b"OK")
        assert connection.call("CONFIG", "REWRITE") == ("+", b"OK")
    text = (server.directory / "server.conf").read_text()
    assert "# keep me" in text and "timeout 5" in text and "maxmemory 2mb" in text.replace("2097152", "2mb")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(WAIT_SECONDS) == 0
    server.start()
    try:
        assert (config(server, "maxmemory"), config(server, "timeout"), config(server, "slowlog-max-len")) == ("2097152", "5", "7")
    finally:
        server.stop()


def test_the_port_is_taken(target):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = target.server()
        at = server.command.index("--port") + 1
        server.command[at] = str(taken.getsockname()[1])
        said = refused(server)
        assert any("ddress already in use" in line for line in said), said


@pytest.mark.snug_only
def test_the_port_is_taken_by_another_snug(target):
    """SO_REUSEPORT must not let two servers share a port unawares."""
    first = target.start()
    try:
        second = target.server()
        second.command[second.command.index("--port") + 1] = str(first.port)
        said = refused(second)
        assert len(said) == 1 and "ddress already in use" in said[0] and str(first.port) in said[0], said
    finally:
        first.stop()


def test_listens_where_told_and_nowhere_else(target):
    server = target.start()
    try:
        with pytest.raises(OSError):
            Connection(server.port, host="127.0.0.2").close()
    finally:
        server.stop()


def test_listens_on_several_addresses(target):
    server = target.server("--bind", "127.0.0.1", "127.0.0.3")
    server.start()
    try:
        with Connection(server.port, host="127.0.0.3") as connection:
            assert connection.call("PING") == ("+", b"PONG")
    finally:
        server.stop()


@pytest.mark.snug_only
def test_help_and_version(target):
    for flags in (["--help"], ["serve", "--help"], ["--version"]):
        done = subprocess.run([target.path, *flags], capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert done.returncode == 0 and done.stdout.strip(), flags
    done = subprocess.run([target.path, "nosuch"], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode != 0 and "panicked" not in done.stderr


@pytest.mark.snug_only
def test_logs_for_people(target):
    server = target.start()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(WAIT_SECONDS)
    text = server.log()
    assert str(server.port) in text, "the log does not tell the port"
    server.stop()


@pytest.mark.snug_only
def test_what_has_no_effect_is_said_once(target):
    server = target.start("--list-compress-depth", "1", "--hll-sparse-max-bytes", "3000", "--jemalloc-bg-thread", "no")
    with server.connect() as connection:
        for _ in range(2):
            assert connection.call("CONFIG", "SET", "lfu-decay-time", "7")[1] == b"OK"
    lines = [line for line in server.log(1000).splitlines() if "without effect" in line]
    server.stop()
    said = {name for name in ("jemalloc-bg-thread", "list-compress-depth", "lfu-decay-time", "hll-sparse-max-bytes") for line in lines if name in line}
    # The last one has its default.
    assert len(lines) == 3 and said == {"jemalloc-bg-thread", "list-compress-depth", "lfu-decay-time"}, lines
    assert all("why=" in line for line in lines)


@pytest.mark.snug_only
def test_logs_in_json(target):
    server = target.server("--log-format", "json")
    server.start()
    with server.connect() as connection:
        connection.call("SET", "k", "v")
        connection.send_raw(b"*abc\r\n")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(WAIT_SECONDS) == 0
    lines = server.log(1000).splitlines()
    server.stop()
    assert lines
    for line in lines:
        entry = json.loads(line)
        assert {"timestamp", "level"} <= set(entry), line


@pytest.mark.snug_only
@pytest.mark.parametrize("flags, enabled", [([], "0"), (["--disable-thp", "no"], "1")])
def test_huge_pages_are_refused_unless_allowed(target, flags, enabled):
    server = target.start(*flags)
    try:
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    finally:
        server.stop()
    assert f"THP_enabled:\t{enabled}\n" in status
