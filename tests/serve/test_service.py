"""Snug as a service: flags over the file, supervisors, the background, logs that are
rotated, the files of `packaging/`, and words for who mistypes."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from harness import servers
from harness.resp import Closed, Connection

pytestmark = pytest.mark.snug_only

ROOT = pathlib.Path(__file__).resolve().parents[2]
WAIT_SECONDS = 60


def until(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    return condition()


def run(target, *flags, **more):
    return subprocess.run([*target.command(), *map(str, flags)], capture_output=True, text=True, timeout=WAIT_SECONDS, **more)


def test_flags_win_over_what_the_file_has_wrong(target):
    """Debian's own unit starts redis-server in this way, with `daemonize yes` in the file."""
    server = target.server("--supervised", "systemd", "--daemonize", "no", "--maxclients", "100", config_lines=["daemonize yes", "maxclients none", "port 1"])
    server.start()
    try:
        with server.connect() as connection:
            assert connection.call("CONFIG", "GET", "daemonize")[1][1] == ("$", b"no")
        assert server.alive()
    finally:
        server.stop()


@pytest.mark.parametrize("mode", ["systemd", "auto"])
@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(target, tmp_path, monkeypatch, mode, abstract):
    name = f"@snug-test-{os.getpid()}-{mode}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(name.replace("@", "\0") if abstract else name)
        notify.settimeout(WAIT_SECONDS)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        # Who is supervised does not go into the background.
        server = target.server("--supervised", mode, "--daemonize", "yes")
        server.launch()
        try:
            told = notify.recv(1000).decode()
            assert told.startswith("READY=1\nSTATUS=")
            with server.connect() as connection:
                assert connection.call("PING") == ("+", b"PONG")
            server.process.send_signal(signal.SIGTERM)
            assert notify.recv(1000).decode().startswith("STOPPING=1\n")
            assert server.process.wait(WAIT_SECONDS) == 0
        finally:
            server.stop()


#: What systemd does of a service whose sockets it opened: they are descriptors from 3 on.
ACTIVATE = """
import os, sys
sockets, command = [int(fd) for fd in sys.argv[1].split(",")], sys.argv[2:]
high = [os.dup(os.dup(fd)) for fd in sockets]
while min(high) < 3 + len(high):
    high = [os.dup(fd) for fd in high]
for place, fd in enumerate(high):
    os.dup2(fd, 3 + place)
    os.close(fd)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)))
os.execv(command[0], command)
"""


def activated(server, *sockets):
    """The server, started by somebody who listens already."""
    fds = [listener.fileno() for listener in sockets]
    words = [sys.executable, "-c", ACTIVATE, ",".join(map(str, fds)), *server.command]
    return subprocess.Popen(words, pass_fds=fds, cwd=server.directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def test_sockets_that_were_there_before(target, tmp_path):
    """Clients that come while nobody serves wait for the next who does."""
    path = str(tmp_path / "socket")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path)
        unix.listen()
        server = target.server("--bind", "127.0.0.1", "--port", str(tcp.getsockname()[1]), "--unixsocket", path, "--workers", "2")
        for round_ in range(2):
            # Before the server is there.
            clients = [socket.create_connection(tcp.getsockname()) for _ in range(8)]
            by_path = socket.socket(socket.AF_UNIX)
            by_path.connect(path)
            process = activated(server, tcp, unix)
            try:
                for client in [*clients, by_path]:
                    client.settimeout(WAIT_SECONDS)
                    client.sendall(b"PING\r\n")
                    assert client.recv(100) == b"+PONG\r\n"
                    client.close()
            finally:
                process.terminate()
                process.communicate()
            assert process.returncode == 0
            assert os.path.exists(path), "the socket is another's"


def test_a_socket_that_nothing_names(target):
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        server = target.server("--bind", "127.0.0.1")
        process = activated(server, tcp)
        said = process.communicate(timeout=WAIT_SECONDS)[1]
        assert process.returncode == 1 and f"a socket at 127.0.0.1:{tcp.getsockname()[1]}" in said
    with open(os.devnull) as no_socket:
        process = activated(server, no_socket)
        said = process.communicate(timeout=WAIT_SECONDS)[1]
        assert process.returncode == 1 and "LISTEN_FDS" in said and "not a socket" in said


def answers(port):
    try:
        with Connection(port) as connection:
            return connection.call("PING") == ("+", b"PONG")
    except (OSError, Closed):
        return False


def test_in_the_background(target, tmp_path):
    port = servers.free_port()
    flags = ["--port", port, "--dir", tmp_path, "--daemonize", "yes", "--pidfile", "snug.pid", "--logfile", "snug.log", "--workers", 1]
    started = run(target, *flags)
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    pid = int((tmp_path / "snug.pid").read_text())
    try:
        # Whoever started it is told when it is ready, not before.
        assert answers(port)
        assert os.getsid(pid) == pid
        assert "ready to accept connections" in (tmp_path / "snug.log").read_text()
        again = run(target, *flags)
        assert again.returncode == 1 and f"can't bind to 127.0.0.1:{port}" in again.stderr
    finally:
        os.kill(pid, signal.SIGTERM)
    assert until(lambda: not (tmp_path / "snug.pid").exists())
    assert until(lambda: not answers(port))
    wrong = run(target, *flags, "--maxclients", 0)
    assert wrong.returncode == 1 and "maxclients" in wrong.stderr and wrong.stderr.count("\n") == 1


def test_a_log_that_is_rotated(target):
    """With a signal at once; without one within a second of the next line."""
    server = target.server("--logfile", "snug.log", "--hz", "10")
    server.start()
    try:
        log, old = server.directory / "snug.log", server.directory / "snug.log.1"
        assert "ready to accept" in log.read_text()
        log.rename(old)
        server.process.send_signal(signal.SIGHUP)
        assert until(log.exists)
        log.unlink()

        def says_something():
            with server.connect() as connection:
                connection.call("CONFIG", "SET", "bind", "192.0.2.1")
            return log.exists() and "cannot listen" in log.read_text()

        assert until(says_something)
        assert server.alive()
    finally:
        server.stop()


def test_help_into_a_closed_pipe(target):
    for flags in (["--help"], ["--help-all"], ["--version"]):
        with subprocess.Popen([*target.command(), *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            program.stdout.close()
            assert program.stderr.read() == b""
            assert program.wait(WAIT_SECONDS) == 0
    snug = target.command()[0]
    for words in (["--help"], ["bench", "--help"], ["compare", "--help"], ["config"], ["completions", "bash"], ["--version"]):
        with subprocess.Popen([snug, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            program.stdout.close()
            assert b"panicked" not in program.stderr.read()
            program.wait(WAIT_SECONDS)


def test_every_command_tells_of_itself(target):
    snug = target.command()[0]

    def commands(*words):
        done = subprocess.run([snug, *words, "--help"], capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert done.returncode == 0 and "Usage: snug" in done.stdout, (words, done)
        _, _, listed = done.stdout.partition("\nCommands:\n")
        return re.findall(r"^  (\S+) ", listed.partition("\n\n")[0], re.MULTILINE)

    first = commands()
    assert {"serve", "bench", "compare", "advise"} <= set(first)
    for name in first:
        for below in commands(name) if name != "help" else []:
            if below != "help":
                commands(name, below)


@pytest.mark.parametrize("flags, said", [(["-p", "6380"], "'port'"), (["--prot", "6380"], "'port'"), (["--maxmem", "1"], "'maxmemory'"), (["--xyzzy", "1"], "--help")])
def test_a_flag_that_is_none(target, flags, said):
    done = run(target, *flags)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1


def test_the_version(target):
    done = run(target, "--version")
    assert done.returncode == 0 and re.fullmatch(r"snug \d+\.\d+\.\d+\n", done.stdout)


def test_the_sample_configuration_is_taken(target, tmp_path):
    """As it is, and with everything that it has commented out of what needs no files."""
    text = (ROOT / "packaging" / "snug.conf").read_text()
    text = re.sub(r"/var/(lib|log)/snug|/run/snug", str(tmp_path), text)
    more = re.sub(r"^# ((?:maxmemory|unixsocket|requirepass)\S* .*)$", r"\1", text, flags=re.MULTILINE)
    for lines in (text, more):
        server = target.server(config_lines=lines.splitlines())
        # Its own place, so that the log says what went wrong.
        server.command += ["--logfile", "", "--bind", "127.0.0.1"]
        server.start()
        server.stop()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_the_unit_is_sound(target, tmp_path):
    unit = (ROOT / "packaging" / "systemd" / "snug.service").read_text()
    unit = unit.replace("/usr/bin/snug", target.path)
    (tmp_path / "snug.service").write_text(unit)
    shutil.copy(ROOT / "packaging" / "systemd" / "snug.socket", tmp_path)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "snug.service", tmp_path / "snug.socket"], capture_output=True, text=True, timeout=WAIT_SECONDS)
    about_it = [line for line in done.stderr.splitlines() if "snug.s" in line and "ser \"snug\"" not in line]
    assert not about_it, about_it


def test_help_by_topic_and_by_parameter(target):
    screen = run(target, "--help")
    assert screen.returncode == 0 and screen.stdout.count("\n") <= 40
    topics = re.findall(r"^  ([a-z]+) +[a-z-]+", screen.stdout.partition("by topic")[2], re.MULTILINE)
    assert {"network", "memory", "packing", "disk"} <= set(topics)
    everything = run(target, "--help-all").stdout
    for topic in topics:
        page = run(target, "--help", topic)
        assert page.returncode == 0 and page.stdout.strip() in everything
    assert "noeviction" in run(target, "--help", "maxmemory-policy").stdout
    wrong = run(target, "--help", "maxmemmory")
    assert wrong.returncode == 1 and "'maxmemory'" in wrong.stderr


def test_the_configuration_that_snug_prints_is_taken(target, tmp_path):
    """As it is, and with every line of it in force."""
    text = subprocess.run([target.command()[0], "config"], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^  --(\S+) ", run(target, "--help-all").stdout.partition("WITHOUT EFFECT")[0], re.MULTILINE)
    lines = [line for line in text.splitlines() if line[2:].split(" ")[0] in names and (line == "# dir ." or not line.endswith("."))]
    in_force = [line.removeprefix("# ") for line in lines]
    assert sorted(line.split(" ")[0] for line in in_force) == sorted(names)
    for config in (text.splitlines(), [line for line in in_force if not line.startswith(("port ", "dir "))]):
        server = target.server(config_lines=config)
        server.start()
        server.stop()


def test_man_pages_and_completions(target, tmp_path):
    snug = target.command()[0]
    subprocess.run([snug, "man", tmp_path / "man"], check=True, timeout=WAIT_SECONDS)
    page = (tmp_path / "man" / "snug-serve.1").read_text()
    assert ".TH snug-serve 1" in page and "maxmemory\\-policy" in page and "allkeys\\-lru" in page
    assert {"snug.1", "snug-bench.1", "snug-check.1"} <= {file.name for file in (tmp_path / "man").iterdir()}
    for shell, check in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])):
        script = subprocess.run([snug, "completions", shell], capture_output=True, text=True, check=True, timeout=WAIT_SECONDS).stdout
        assert "maxmemory-policy" in script
        if shutil.which(shell):
            (tmp_path / shell).write_text(script)
            subprocess.run([*check, tmp_path / shell], check=True, timeout=WAIT_SECONDS)
    ask = f"source {tmp_path}/bash; COMP_WORDS=(snug serve --maxmemory-p); COMP_CWORD=2; _snug snug --maxmemory-p serve; echo ${{COMPREPLY[@]}}"
    offered = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=WAIT_SECONDS).stdout
    assert offered.split() == ["--maxmemory-policy"], offered


def test_a_file_of_a_later_server_is_taken(target):
    """What Redis 7.2 or Valkey 8 have more is passed over, and the log says so."""
    server = target.server(config_lines=["locale-collate \"\"", "max-new-connections-per-cycle 10", "io-threads 4"])
    server.start()
    try:
        log = server.log(100)
        assert "locale-collate" in log and "max-new-connections-per-cycle" in log
        assert "io-threads" in log and "see workers" in log
    finally:
        server.stop()
    wrong = run(target, "--loadmodule", "/usr/lib/redis/modules/x.so")
    assert wrong.returncode == 1 and "modules cannot be loaded" in wrong.stderr


def test_ping_tells_by_its_code(target, tmp_path):
    snug = target.command()[0]

    def ping(*words):
        return subprocess.run([snug, "ping", *map(str, words)], capture_output=True, text=True, timeout=WAIT_SECONDS)

    server = target.server("--requirepass", "secret", "--unixsocket", str(tmp_path / "socket"))
    server.start()
    try:
        for place in (f"127.0.0.1:{server.port}", f"localhost:{server.port}", tmp_path / "socket"):
            done = ping(place)
            assert done.returncode == 0 and done.stdout.startswith("NOAUTH"), done
    finally:
        server.stop()
    done = ping(f"127.0.0.1:{server.port}")
    assert done.returncode == 1 and "refused" in done.stderr
    # Somebody who is there and says nothing.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = ping(f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", 1)
        assert done.returncode == 1 and "no answer in time" in done.stderr
