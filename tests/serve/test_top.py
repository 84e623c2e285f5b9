"""`snug top`: on a terminal, and as text."""

import os
import pty
import signal
import struct
import subprocess
import termios
from fcntl import ioctl

import pytest

from harness import servers
from harness.packing import until

pytestmark = pytest.mark.snug_only


def run(target, *words, code=0):
    done = subprocess.run([target.path, "top", *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def url(server):
    return f"redis://127.0.0.1:{server.port}"


class Screen:
    """`snug top` on a terminal of its own."""

    def __init__(self, target, *words):
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.slave, self.seen = slave, b""
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen([target.path, "top", "--interval", "0.1", *words], stdin=slave, stdout=slave, stderr=slave)
        os.set_blocking(self.master, False)

    def shows(self, text):
        try:
            self.seen += os.read(self.master, 1 << 20)
        except BlockingIOError:
            pass
        return text in self.seen

    def end(self):
        code = self.process.wait(20)
        assert self.shows(b"\x1b[?1049l") and self.shows(b"\x1b[?25h"), "the screen is left"
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is as it was"
        os.close(self.master)
        os.close(self.slave)
        return code


def test_a_look_is_text_where_there_is_no_terminal(target, server):
    with server.connect() as connection:
        for n in range(100):
            connection.call("SET", f"user:{n}", f"name {n}")
    text = run(target, url(server), "--once")
    assert "keys 100" in text and "packing" in text and "command" in text and "info" in text
    redis = servers.redis()
    text = run(target, url(redis), "--plain", "--once", "--interval", "0.1")
    redis.stop()
    assert "redis 7" in text and "packing" not in text
    assert "cannot reach" in run(target, url(redis), "--once", code=1)


@pytest.mark.parametrize("how", ["q", "SIGTERM", "SIGINT"])
def test_the_terminal_is_as_it_was(target, server, how):
    screen = Screen(target, url(server))
    until(lambda: screen.shows(b"commands, by calls"), "nothing was shown")
    os.write(screen.master, b"s")
    until(lambda: screen.shows(b"commands, by time"), "commands were not ordered anew")
    if how == "q":
        os.write(screen.master, b"q")
    elif how == "SIGTERM":
        screen.process.send_signal(signal.SIGTERM)
    else:
        # Ctrl-C is the terminal's own.
        screen.process.send_signal(signal.SIGINT)
    assert screen.end() == 0


def test_a_server_that_went_away_is_tried_again(target):
    redis = servers.redis()
    screen = Screen(target, url(redis))
    until(lambda: screen.shows(b"commands, by calls"), "nothing was shown")
    redis.process.kill()
    redis.process.wait()
    until(lambda: screen.shows(b"trying again"), "nobody was told")
    screen.seen = b""
    redis.launch()
    redis.wait_until_ready()
    until(lambda: screen.shows(b"q quit"), "it was not found again")
    os.write(screen.master, b"q")
    assert screen.end() == 0
    redis.stop()
