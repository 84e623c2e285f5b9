"""What goes wrong is said in one clear line, with an exit code, and what was
measured until then is kept."""

import csv
import json
import os
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
    [["-c", "0"], ["-P", "x"], ["--nonsense"], ["-d", "1g"], ["--rate", "-1"], ["--cacert", "ca.crt"], ["--user", "u"], ["--resp", "4"], ["--target", "db"], ["-3", "--resp", "2"]],
)
def test_wrong_flags(bench, flags):
    done = bench.bench(*flags, code=2)
    assert done.stderr.startswith("error: ") and done.stdout == ""


@pytest.mark.parametrize("flag", ["-n", "-c", "-P", "-d", "-r", "--duration", "--scale"])
def test_numbers_below_zero_are_out_of_range(bench, flag):
    done = bench.bench(flag, "-5", code=2)
    assert done.stderr.startswith("error: invalid value '-5' for '") and "tip" not in done.stderr


def test_wrong_names(bench, redis):
    assert bench.refusal("no-such-workload", code=2) == "no workload is called 'no-such-workload'; `snug bench list` names them"
    assert bench.refusal("-t", "set,nonsense", code=2).startswith("no test is called 'nonsense'; there are ping, ")
    assert bench.refusal("--command", "set 'a", code=2).startswith("unbalanced quotes")
    compared = bench.run("compare", "redis=redis-server", "--workload", "no-such-workload", code=2)
    assert compared.stderr.startswith("snug: no workload is called 'no-such-workload'")


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


@pytest.mark.parametrize("reply", [b"$99999999999\r\n", b"*1\r\n" * 2000])
def test_replies_that_would_never_end(bench, reply):
    """A peer that greets as a server does, and answers SET with a reply without end."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client):
        try:
            while request := client.recv(65536):
                client.sendall(reply if b"SET" in request else b"-ERR no\r\n" if b"INFO" in request else b"+PONG\r\n")
        except OSError:
            pass

    def accept():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        report, stderr = bench.report("-p", listener.getsockname()[1], "-t", "set", "-n", 10, code=1)
        assert "is not RESP" in stderr and report["results"][0]["throughput"] == 0
    finally:
        listener.close()


def test_a_server_that_does_not_tell_of_itself(bench, redis):
    with redis.connect() as connection:
        connection.call("ACL", "SETUSER", "worker", "on", ">pw", "~*", "+set", "+get")
    report, stderr = bench.report(*address(redis), "--user", "worker", "-a", "pw", "-n", 500)
    (line,) = stderr.splitlines()
    assert line.startswith("snug: server: its memory and CPU time are not known: NOPERM ")
    assert [(r["operations"], r["memory"], r["cpu"]) for r in report["results"]] == [(500, None, None)] * 2


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stalled", [False, True])
def test_an_interrupted_run_keeps_what_it_measured(bench, redis, number, stalled):
    table, full = (bench.folder / f"interrupted.{form}" for form in ("csv", "json"))
    running = subprocess.Popen(
        [bench.path, "bench", "-q", "-p", str(redis.port), "-t", "set,get", "--duration", "600", "--csv", str(table), "--json", str(full)],
        stderr=subprocess.PIPE,
        text=True,
    )
    with redis.connect() as connection:
        while b"cmdstat_set" not in connection.call("INFO", "commandstats")[1]:
            time.sleep(0.01)
    if stalled:
        redis.process.send_signal(signal.SIGSTOP)
    try:
        running.send_signal(number)
        _, stderr = running.communicate(timeout=45)
    finally:
        redis.process.send_signal(signal.SIGCONT)
    assert running.returncode == 130
    assert stderr == "snug: interrupted: only what was measured until then is reported\n"
    (row,) = csv.DictReader(table.open())
    assert row["step"] == "set" and row["interrupted"] == "1" and int(row["operations"]) > 0
    report = json.loads(full.read_text())
    assert report["interrupted"] and [r["interrupted"] for r in report["results"]] == [True]


def test_a_report_that_cannot_be_written(bench):
    """Said before anything is measured: here there is not even a server."""
    done = bench.bench("-q", "-p", servers.free_port(), "--json", "/nonexistent/report.json", code=1)
    assert done.stderr == "snug: cannot write /nonexistent/report.json: No such file or directory (os error 2)\n"
    assert bench.refusal("--json", "-", "--html", "-", code=2) == "only one report can go to standard output"
    old = bench.folder / "old.json"
    old.write_text("old")
    bench.refusal("-p", servers.free_port(), "--json", old)
    assert old.read_text() == "old"


def test_a_reader_that_goes_away_or_a_full_disk(bench, redis):
    path = bench.folder / "kept.json"
    command = [bench.path, "bench", "--rest", "0", "-p", str(redis.port), "-n", "500", "-t", "get", "--json", str(path)]
    for words in (command, [bench.path, "bench", "list"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (1, "snug: cannot write to standard output: No space left on device (os error 28)\n")
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
        os.close(writer)
        assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(path.read_text())["results"][0]["operations"] == 500
