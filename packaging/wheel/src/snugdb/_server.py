"""A Snug server as an object.

The server is a process of its own, on a free port of 127.0.0.1. It is ready when it
answers under its own process id: another server that took the port meanwhile is not
mistaken for it.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from urllib.parse import quote


class ServerError(RuntimeError):
    """The server did not start. The text has the end of its log."""


def program():
    """The path of the snug program: of this package, or on the PATH; SNUG_PROGRAM names another."""
    named = os.environ.get("SNUG_PROGRAM")
    if named:
        return named
    schemes = [None, sysconfig.get_preferred_scheme("user")] if hasattr(sysconfig, "get_preferred_scheme") else [None]
    for scheme in schemes:
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        path = Path(folder) / "snug"
        if path.is_file():
            return str(path)
    found = shutil.which("snug")
    if found is None:
        raise ServerError("the snug program is not installed")
    return found


class Server:
    """A server, running from start() to stop(), or for the length of a with block.

    port: 0 for a free one. directory: where it keeps its data; without one it has a
    folder that is removed when it stops, and saves nothing. password: that clients must
    give. startup_seconds: how long it may take to start. Any other keyword is a
    parameter of `snug serve`, with _ for -: Server(maxmemory="1gb").
    """

    host = "127.0.0.1"

    def __init__(self, port=0, directory=None, password=None, startup_seconds=30, **parameters):
        self._asked_port = port
        self.port = port or None
        self.directory = Path(directory).resolve() if directory is not None else None
        self.password = password
        self.startup_seconds = startup_seconds
        self.parameters = {name.replace("_", "-"): value for name, value in parameters.items()}
        self.process = None
        self._own_directory = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def __repr__(self):
        state = self.url if self.running else "stopped"
        return f"<snugdb.Server {state}>"

    @property
    def running(self):
        """Whether its process is there."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        """The id of its process."""
        return self.process.pid if self.process else None

    @property
    def url(self):
        """Where it is, as clients take it."""
        secret = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis://{secret}{self.host}:{self.port}/0"

    @property
    def log(self):
        """What it has logged since it was started, unless it logs to a file of yours."""
        return self._log_file.read_text(errors="replace") if self._log_file and self._log_file.exists() else ""

    _log_file = None

    def client(self, **options):
        """A redis.Redis for it; needs redis-py."""
        import redis

        return redis.Redis.from_url(self.url, **options)

    def start(self):
        """Starts it, and returns when it takes commands."""
        if self.running:
            return self
        # A free port may be taken by somebody else before the server has it.
        tries = 1 if self._asked_port else 5
        for attempt in range(tries):
            try:
                self._start_once()
                return self
            except ServerError as error:
                if attempt + 1 == tries or "can't bind" not in str(error):
                    raise
        return self

    def stop(self, seconds=30):
        """Ends it as SIGTERM does, which saves what is to be saved; kills it if that takes too long."""
        process, self.process = self.process, None
        if process is not None:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(seconds)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            atexit.unregister(self.stop)
        if self._own_directory is not None:
            self._own_directory.cleanup()
            self._own_directory = None

    def restart(self):
        """Stops it and starts it again, on the same port. Data is kept if it has a directory."""
        self._asked_port = self.port or self._asked_port
        self.stop()
        return self.start()

    def flush(self):
        """Removes every key."""
        self._ask(b"FLUSHALL")

    def _start_once(self):
        folder = self.directory
        parameters = dict(self.parameters)
        if folder is None:
            self._own_directory = self._own_directory or tempfile.TemporaryDirectory(prefix="snugdb-")
            folder = Path(self._own_directory.name)
            parameters.setdefault("save", "")
        folder.mkdir(parents=True, exist_ok=True)
        self.port = self._asked_port or free_port()
        command = [program(), "serve", "--port", str(self.port), "--bind", self.host, "--dir", str(folder), "--daemonize", "no"]
        if self.password:
            command += ["--requirepass", self.password]
        for name, value in parameters.items():
            value = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
            command += [f"--{name}", str(value)]
        self._log_file = folder / "snug.log"
        with open(self._log_file, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        atexit.register(self.stop)
        try:
            self._wait()
        except BaseException as error:
            said = self.log[-2000:]
            self.stop()
            if isinstance(error, ServerError):
                raise ServerError(f"{error}: {said.strip()}") from None
            raise

    def _wait(self):
        deadline = time.monotonic() + self.startup_seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerError(f"the server ended with {self.process.returncode}")
            try:
                answer = self._ask(b"INFO", b"server", b"persistence") or b""
            except OSError:
                answer = b""
            if f"process_id:{self.process.pid}\r".encode() in answer and b"\nloading:0" in answer:
                return
            # Its own accounts: it answers, and will not say who it is.
            if answer.startswith((b"-NOAUTH", b"-WRONGPASS", b"-NOPERM")) and b"can't bind" not in self.log.encode():
                time.sleep(0.05)
                if self.process.poll() is None:
                    return
            time.sleep(0.01)
        raise ServerError(f"the server was not ready after {self.startup_seconds} seconds")

    def _ask(self, *words):
        """The reply to one command: a line, a string of bytes, or None."""
        with socket.create_connection((self.host, self.port), timeout=5) as connection:
            with connection.makefile("rwb") as stream:
                if self.password:
                    stream.write(encoded(b"AUTH", self.password.encode()))
                    stream.flush()
                    stream.readline()
                stream.write(encoded(*words))
                stream.flush()
                line = stream.readline()
                if line.startswith(b"$-"):
                    return None
                return stream.read(int(line[1:])) if line.startswith(b"$") else line


def encoded(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def free_port():
    """A port of 127.0.0.1 that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
