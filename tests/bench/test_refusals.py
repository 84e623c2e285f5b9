"""What goes wrong is said in one clear line, with an exit code, and what was
measured until then is kept."""

import json
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness.bench import address
from harness import servers


@pytest.mark.parametrize(
    "flags",
    [["-c", "0"], ["-P", "x"], ["--nonsense"], ["-d", "1g"], ["--rate", "-1"], ["--cacert", "ca.crt"], ["--user", "u"], ["--resp", "4"], ["--target", "db"]],
)
def test_wrong_flags(bench, flags):
    done = bench.bench(*flags, code=2)
    assert done.stderr.startswith("error: ") and done.stdout == ""


def test_wrong_names(bench, redis):
    assert bench.refusal("no-such-workload") == "no workload is called 'no-such-workload'; `snug bench list` names them"
    assert bench.refusal("-t", "set,nonsense").startswith("no test is called 'nonsense'; there are ping, set, ")
    assert bench.refusal("--command", "set 'a").startswith("unbalanced quotes")


def test_unreachable(bench):
    port = servers.free_port()
    assert bench.refusal("-p", port) == f"cannot reach 127.0.0.1:{port}: Connection refused (os error 111)"
    assert bench.refusal("-h", "no-such-host.invalid").startswith("cannot reach no-such-host.invalid:6379: ")
    assert bench.refusal("-p", port, "--flush") == f"cannot reach 127.0.0.1:{port}: Connection refused (os error 111)"


def test_passwords(bench):
    server = servers.redis("--requirepass", "right")
    try:
        place = f"127.0.0.1:{server.port}"
        assert bench.refusal(*address(server)) == f"{place} refused the connection: NOAUTH Authentication required."
        assert bench.refusal(*address(server), "-a", "wrong").startswith(f"{place} refused the connection: WRONGPASS")
        report, _ = bench.report(*address(server), "-a", "right", "-n", 100)
        assert "right" not in report["command"].split()
        report, _ = bench.report(*address(server), "--user", "default", "-a", "right", "-n", 100)
        assert len(report["results"]) == 2
    finally:
        server.stop()


def test_a_peer_that_is_no_server(bench):
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.recv(100)
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            client.close()

    threading.Thread(target=answer, daemon=True).start()
    try:
        line = bench.refusal("-p", listener.getsockname()[1])
        assert "does not speak RESP" in line
    finally:
        listener.close()


def test_errors_of_the_server_are_counted_and_shown(bench, redis):
    report, stderr = bench.report(*address(redis), "--command", "incr mykey notanumber", "-n", 100, code=1)
    assert "ERR wrong number of arguments" in stderr and len(stderr.splitlines()) == 1
    assert report["results"][0]["kinds"][0]["errors"] == 100


def test_a_server_that_dies_leaves_partial_results(bench, redis):
    path = bench.folder / "partial.json"
    running = subprocess.Popen(
        [bench.path, "bench", "-q", "-p", str(redis.port), "-t", "set", "-P", "16", "--duration", "60", "--json", str(path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    with redis.connect() as connection:
        while b"cmdstat_set" not in connection.call("INFO", "commandstats")[1]:
            time.sleep(0.01)
    redis.process.send_signal(signal.SIGKILL)
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 1
    (line,) = stderr.splitlines()
    assert line.startswith(f"snug: server set: 127.0.0.1:{redis.port} closed the connection after ")
    (result,) = json.loads(path.read_text())["results"]
    assert result["operations"] > 0 and result["kinds"][0]["latency"]["count"] == result["operations"]


def test_an_interrupted_run_keeps_what_it_measured(bench, redis):
    path = bench.folder / "interrupted.csv"
    running = subprocess.Popen(
        [bench.path, "bench", "-q", "-p", str(redis.port), "-t", "set,get", "--duration", "60", "--csv", str(path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    with redis.connect() as connection:
        while b"cmdstat_set" not in connection.call("INFO", "commandstats")[1]:
            time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 0 and stderr == ""
    assert len(path.read_text().splitlines()) == 2


def test_a_report_that_cannot_be_written(bench, redis):
    done = bench.bench("-q", *address(redis), "-n", 100, "--json", "/nonexistent/report.json", code=1)
    assert done.stderr == "snug: cannot write /nonexistent/report.json: No such file or directory (os error 2)\n"
