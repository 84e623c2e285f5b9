"""Snug as a service: flags over the file, supervisors, the background, logs that are
rotated, the files of `packaging/`, and words for who mistypes."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
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
    for flags in (["--help"], ["--version"]):
        with subprocess.Popen([*target.command(), *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            program.stdout.close()
            assert program.stderr.read() == b""
            assert program.wait(WAIT_SECONDS) == 0
    snug = target.command()[0]
    for words in (["--help"], ["bench", "--help"], ["compare", "--help"], ["--version"]):
        with subprocess.Popen([snug, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            program.stdout.close()
            assert b"panicked" not in program.stderr.read()
            program.wait(WAIT_SECONDS)


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
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "snug.service"], capture_output=True, text=True, timeout=WAIT_SECONDS)
    about_it = [line for line in done.stderr.splitlines() if "snug.service" in line and "ser \"snug\"" not in line]
    assert not about_it, about_it
