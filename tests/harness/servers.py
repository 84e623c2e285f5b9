"""Starts and stops the servers that the tests talk to.

Each server gets a free port, a directory of its own and a log file; it is
stopped by its process id, and its log is shown when it does not start or died.
"""

import ctypes
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from harness.resp import Closed, Connection, Silent

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDIS_SERVER = shutil.which("redis-server") or "/usr/bin/redis-server"
START_SECONDS = 30
PR_SET_PDEATHSIG = 1
PRCTL = ctypes.CDLL(None).prctl


def end_with_parent():
    """Asks the kernel to end this process when the tests die, however they do."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    """A port free now, together with its cluster bus port (+10000); both below
    the range from which the kernel takes ports for outgoing connections."""
    while True:
        port = random.randrange(11000, 22000)
        if all(is_free(p) for p in (port, port + 10000)):
            return port


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def info_fields(text):
    """The text of INFO as a dictionary of its fields."""
    return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)


class Server:
    """A running server: `port`, `pid`, `directory`, `log`."""

    def __init__(self, command, kind, flags=(), config_lines=None):
        self.kind = kind
        self.port = free_port()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"snug-test-{kind}-"))
        self.log_path = self.directory / "log.txt"
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory), "--save", ""]
        if config_lines is not None:
            path = self.directory / "server.conf"
            path.write_text("\n".join(config_lines) + "\n")
            own = [str(path), *own]
        self.command = [*command, *own, *flags]
        self.process = None
        # Where and how `connect` shakes hands, if it is to come in through TLS.
        self.tls_port = self.tls = None

    def start(self):
        self.launch()
        try:
            self.wait_until_ready()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        return self

    def launch(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.directory, preexec_fn=end_with_parent
            )

    def wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.command} ended with {self.process.returncode}\n{self.log()}")
            try:
                with Connection(self.port) as probe:
                    if probe.call("PING")[0] in "+-":
                        return
            except (OSError, Closed, Silent):
                time.sleep(0.01)
        raise RuntimeError(f"{self.command} did not answer\n{self.log()}")

    def connect(self, protocol=2, **more):
        return Connection(self.tls_port if self.tls else self.port, protocol, tls=self.tls, **more)

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def log(self, lines=40):
        if not self.log_path.exists():
            return ""  # It was stopped before.
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def peak_rss_bytes(self):
        """The most resident memory that the server has ever had."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def rss_bytes(self):
        """Resident memory, from the kernel."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def info(self):
        """INFO as a dictionary of its fields."""
        with self.connect() as connection:
            return info_fields(connection.call("INFO", "everything")[1].decode())

    def stop(self):
        """Asks it to end, then makes sure; returns the exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        code = self.process.returncode
        shutil.rmtree(self.directory, ignore_errors=True)
        return code


class Target:
    """How to start the server under test, whichever binary that is."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.is_redis = "redis-server" in pathlib.Path(self.path).name
        self.is_snug = not self.is_redis

    def command(self):
        return [self.path] if self.is_redis else [self.path, "serve"]

    def server(self, *flags, workers=2, config_lines=None):
        """A server not started yet. Snug's own flags are dropped when the
        target is a redis-server, which then proves the tests themselves."""
        flags = list(flags)
        if self.is_redis:
            flags = without_own_flags(flags)
        else:
            flags += ["--workers", str(workers)]
        return Server(self.command(), "redis" if self.is_redis else "snug", flags, config_lines)

    def start(self, *flags, **more):
        return self.server(*flags, **more).start()


#: Parameters that redis-server does not have, beside those of packing and of the disk tier.
OWN = ("--workers", "--pack", "--log-format", "--long-command-items")


def without_own_flags(flags):
    kept, skip = [], False
    for flag in flags:
        if skip:
            skip = False
        elif flag in OWN or flag.startswith(("--pack-", "--tier-")):
            skip = True
        else:
            kept.append(flag)
    return kept


def redis(*flags):
    """Debian's redis-server, the reference."""
    return Server([REDIS_SERVER], "reference", flags).start()


def raise_open_file_limit(wanted=20000):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
