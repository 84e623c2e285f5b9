"""redis-cli of Debian: interactive, through a terminal, and its tools."""

import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

from harness.impostor import Impostor
from harness.resp import encode

WAIT_SECONDS = 30
COLOUR = re.compile("\x1b\\[[0-9;]*m")


@pytest.fixture
def server(shared_server):
    with shared_server.connect() as connection:
        connection.call("FLUSHALL")
    return shared_server


def cli(server, *args, feed=None):
    """What redis-cli prints; it must end by itself and with success."""
    done = subprocess.run(
        ["redis-cli", "-p", str(server.port), *args], input=feed, capture_output=True, timeout=WAIT_SECONDS * 2
    )
    output = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    assert done.returncode == 0, output
    return output


class Terminal:
    """redis-cli with a terminal in front of it."""

    def __init__(self, server, *args):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="dumb", HOME=str(server.directory))
            os.execvp("redis-cli", ["redis-cli", "-p", str(server.port), *args])
        self.shown = ""

    def expect(self, text):
        """Reads until `text` shows; returns all shown before it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in self.shown:
            ready, _, _ = select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not show; this did: {self.shown!r}"
            try:
                self.shown += COLOUR.sub("", os.read(self.terminal, 65536).decode(errors="replace"))
            except OSError as error:
                raise AssertionError(f"redis-cli ended; shown: {self.shown!r}") from error
        before, self.shown = self.shown.split(text, 1)
        return before

    def type(self, line):
        os.write(self.terminal, line.encode() + b"\n")

    def say(self, line, answer, prompt):
        self.type(line)
        assert answer in self.expect(prompt), line

    def end(self):
        try:
            os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(server):
    opened = []

    def start(*args):
        opened.append(Terminal(server, *args))
        return opened[-1]

    yield start
    for one in opened:
        one.end()


@pytest.mark.parametrize("protocol", [(), ("-3",)], ids=["resp2", "resp3"])
def test_interactive(server, terminal, protocol):
    shell = terminal(*protocol)
    prompt = f"127.0.0.1:{server.port}> "
    in_transaction = f"127.0.0.1:{server.port}(TX)> "
    shell.expect(prompt)
    shell.say("set k hello", "OK", prompt)
    shell.say("get k", '"hello"', prompt)
    shell.say("get none", "(nil)", prompt)
    shell.say("incr n", "(integer) 1", prompt)
    shell.say("incr k", "(error) ERR value is not an integer or out of range", prompt)
    shell.say("nosuch", "(error) ERR unknown command 'nosuch'", prompt)
    shell.say("mget k none", '1) "hello"', prompt)
    shell.say("multi", "OK", in_transaction)
    shell.say("incr n", "QUEUED", in_transaction)
    shell.say("exec", "1) (integer) 2", prompt)
    shell.say("select 3", "OK", f"127.0.0.1:{server.port}[3]> ")
    shell.say("select 0", "OK", prompt)
    shell.say("xadd s 1-1 f v", '"1-1"', prompt)
    shell.say("xrange s - +", '"1-1"', prompt)
    shell.say("info server", "redis_version:", prompt)
    shell.say("client list", "cmd=client", prompt)
    shell.say("help set", "SET key value", prompt)
    shell.say("debug sleep 0", "OK", prompt)
    shell.type("quit")


def test_interactive_subscribe(server, terminal):
    shell = terminal()
    shell.expect("> ")
    shell.type("subscribe news")
    shell.expect('3) (integer) 1')
    with server.connect() as connection:
        assert connection.call("PUBLISH", "news", "flash") == (":", 1)
    shell.expect('3) "flash"')


def test_arguments_files_and_formats(server):
    assert cli(server, "set", "k", "v") == "OK\n"
    assert cli(server, "-x", "set", "from-stdin", feed=b"a\r\nb") == "OK\n"
    assert cli(server, "get", "from-stdin") == "a\r\nb\n"
    assert cli(server, "--no-raw", "get", "from-stdin") == '"a\\r\\nb"\n'
    assert cli(server, feed=b"set a 1\nincr a\nget a\n") == "OK\n2\n2\n"
    assert cli(server, "--csv", "mget", "a", "none") == '"2",NULL\n'
    assert cli(server, "--json", "mget", "a", "none").strip() == '["2",null]'
    assert cli(server, "-n", "5", "dbsize") == "0\n"
    assert cli(server, "-r", "3", "incr", "n") == "1\n2\n3\n"
    assert "ERR unknown command" in cli(server, "nosuch")


def test_pipe_inserts_in_mass(server):
    number = 20000
    commands = b"".join(encode(("SET", f"key:{i}", "x" * (i % 300))) for i in range(number))
    assert f"errors: 0, replies: {number}" in cli(server, "--pipe", feed=commands)
    assert cli(server, "dbsize") == f"{number}\n"
    inline = b"".join(b"SET inline:%d v\r\n" % i for i in range(1000)) + b"INCR\r\n"
    done = subprocess.run(["redis-cli", "-p", str(server.port), "--pipe"], input=inline, capture_output=True, timeout=60)
    assert b"errors: 1, replies: 1001" in done.stdout


def fill(server):
    with server.connect() as connection:
        for number in range(500):
            connection.call("SET", f"k{number}", "x" * number)
        for number in range(40):
            connection.call("XADD", "stream:big", f"{number + 1}-1", "f", "v")
        connection.call("XADD", "stream:small", "1-1", "f", "v")


def test_bigkeys(server):
    fill(server)
    output = cli(server, "--bigkeys")
    assert "Sampled 502 keys in the keyspace!" in output
    assert re.search(r"Biggest string found .\"?k499\"?. has 499 bytes", output), output
    assert re.search(r"Biggest stream found .*stream:big.* has 40 entries", output), output
    assert re.search(r"500 strings with 124750 bytes", output) and re.search(r"2 streams with 41 entries", output)


def test_memkeys(server):
    fill(server)
    output = cli(server, "--memkeys")
    assert "Sampled 502 keys in the keyspace!" in output
    assert re.search(r"Biggest string found .* has [1-9]\d* bytes", output), output
    assert re.search(r"Biggest stream found .* has [1-9]\d* bytes", output), output


def test_scan(server):
    fill(server)
    assert len(set(cli(server, "--scan").split())) == 502
    assert sorted(cli(server, "--scan", "--pattern", "k49?").split()) == [f"k49{i}" for i in range(10)]


def lines_of_endless(server, count, *args):
    """The first lines of a tool that never ends."""
    process = subprocess.Popen(["redis-cli", "-p", str(server.port), *args], stdout=subprocess.PIPE, text=True)
    try:
        return [process.stdout.readline() for _ in range(count)]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def test_stat(server):
    fill(server)
    lines = lines_of_endless(server, 4, "--stat", "-i", "0.05")
    assert "keys" in lines[1] and "mem" in lines[1]
    columns = lines[2].split()
    assert columns[0] == "502" and re.fullmatch(r"[\d.]+[BKMG]", columns[1]), lines


def test_latency(server):
    output = cli(server, "--latency", "-i", "0.2", "--raw")
    low, high, mean, samples = output.split()[:4]
    assert float(low) >= 0 and float(high) >= float(low) and int(samples) > 0


@pytest.mark.snug_only
def test_own_command_from_the_shell(server):
    cli(server, "set", "k", "v")
    assert cli(server, "snug", "help")
    assert cli(server, "snug", "object", "k")


@pytest.fixture
def cluster_server(target):
    server = target.start("--cluster-enabled", "yes", *(["--cluster-node-timeout", "500"] if target.is_redis else []))
    cli(server, "cluster", "addslotsrange", "0", "16383")
    deadline = time.monotonic() + 20
    while "cluster_state:ok" not in cli(server, "cluster", "info") and time.monotonic() < deadline:
        time.sleep(0.05)
    yield server
    server.stop()


def test_cluster_mode(cluster_server):
    address = f"127.0.0.1:{cluster_server.port}"
    assert cli(cluster_server, "-c", "set", "foo", "bar") == "OK\n"
    output = cli(cluster_server, "--cluster", "check", address)
    assert "All nodes agree about slots configuration" in output and "All 16384 slots covered" in output
    assert "1 keys | 16384 slots" in cli(cluster_server, "--cluster", "info", address)


def benchmark(server, *args):
    done = subprocess.run(
        ["redis-benchmark", "-p", str(server.port), "-q", *args], capture_output=True, text=True, timeout=180
    )
    output = (done.stdout + done.stderr).replace("\r", "\n")
    assert done.returncode == 0, output
    assert "rror" not in output.replace("WARNING: Could not fetch server CONFIG", ""), output
    return output


@pytest.mark.parametrize(
    "how",
    [(), ("-P", "16"), ("-P", "100", "-c", "10"), ("--threads", "2"), ("-r", "1000", "-d", "1000"), ("-k", "0"), ("-3",)],
    ids=" ".join,
)
def test_benchmark(server, how):
    tests = "ping_inline,ping_mbulk,set,get,incr,mset"
    output = benchmark(server, "-n", "2000", "-t", tests, *how)
    for name in ("PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET (10 keys)"):
        assert re.search(rf"^{re.escape(name)}: ([\d.]+|inf) requests per second", output, re.M), output


def test_benchmark_of_one_command(server):
    output = benchmark(server, "-n", "3000", "-r", "100000", "-P", "16", "xadd", "stream", "*", "f", "__rand_int__")
    assert "requests per second" in output
    with server.connect() as connection:
        # Whole pipelines are sent: a few more than asked for.
        assert 3000 <= connection.call("XLEN", "stream")[1] < 3000 + 50 * 16


def test_benchmark_in_cluster_mode(cluster_server):
    """redis-benchmark refuses a cluster of one node, whoever serves it; so it
    is told of two, which both are this one, with half of the slots each."""

    def two_nodes(args, reply, past):
        if [a.lower() for a in args] != [b"cluster", b"nodes"]:
            return reply
        where = f"127.0.0.1:{cluster_server.port}@{cluster_server.port + 10000}"
        text = "".join(
            f"{name * 40} {where} master - 0 0 {epoch} connected {slots}\n"
            for name, epoch, slots in (("a", 1, "0-8191"), ("b", 2, "8192-16383"))
        )
        return b"$%d\r\n%s\r\n" % (len(text), text.encode())

    guide = Impostor(cluster_server, two_nodes)
    output = benchmark(guide, "--cluster", "-n", "4000", "-t", "set,get", "-r", "1000", "-P", "4")
    guide.stop()
    assert re.search(r"^SET: [\d.]+ requests per second", output, re.M), output
    assert re.search(r"^GET: [\d.]+ requests per second", output, re.M), output
    with cluster_server.connect() as connection:
        assert connection.call("DBSIZE")[1] > 100
