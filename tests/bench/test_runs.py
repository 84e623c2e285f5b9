"""`snug bench` against redis-server, as a user runs it: what is sent arrives, is
counted and is reported in every form."""

import csv
import io
import json
import signal
import subprocess
import time

import pytest

from harness.bench import address


def test_every_request_arrives_once(bench, redis):
    words = ["-n", 30000, "-c", 7, "-P", "1,16", "-r", "1k", "-d", "1k", "-t", "set,get", "--threads", 2]
    report, stderr = bench.report(*address(redis), *words)
    assert stderr == ""
    assert [r["step"] for r in report["results"]] == ["set/P1", "get/P1", "set/P16", "get/P16"]
    assert all(r["operations"] == 30000 and r["failure"] is None for r in report["results"])
    with redis.connect() as connection:
        calls = connection.call("INFO", "commandstats")[1].decode()
        assert "cmdstat_set:calls=60000," in calls and "cmdstat_get:calls=60000," in calls
        assert connection.call("STRLEN", "key:000000000007") == (":", 1024)


def test_one_template_and_resp3(bench, redis):
    report, _ = bench.report(*address(redis), "--resp", 3, "--command", "xadd __key__ * d __data__", "-r", 10, "-d", 32, "-P", 8, "-n", 5000)
    (result,) = report["results"]
    assert result["step"] == "xadd" and result["memory"]["items"] == 5000
    with redis.connect() as connection:
        assert sum(connection.call("XLEN", f"key:{n:012}")[1] for n in range(10)) == 5000


def test_the_three_forms_tell_the_same(bench, redis):
    files = {form: bench.folder / f"report.{form}" for form in ("csv", "json", "html")}
    flags = [word for form, path in files.items() for word in (f"--{form}", path)]
    done = bench.bench(*address(redis), "-t", "set,xadd", "-P", 4, "-n", 20000, *flags)
    assert "set" in done.stdout and "ops/s" in done.stdout and done.stderr == ""
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    assert [(row["step"], row["operations"]) for row in rows] == [("set", "20000"), ("xadd", "20000")]
    assert all(float(row["cpu_s_per_million"]) > 0 and float(row["p99_us"]) > 0 for row in rows)
    page = files["html"].read_text()
    assert page.count("<svg") >= 4 and "src=" not in page


def test_a_report_to_standard_output_is_alone_there(bench, redis):
    done = bench.bench(*address(redis), "-n", 1000, "--csv", "-")
    assert len(list(csv.DictReader(io.StringIO(done.stdout)))) == 2


def test_html_to_standard_output_is_alone_there(bench, redis):
    done = bench.bench(*address(redis), "-n", 500, "--html", "-")
    assert done.stdout.startswith("<!DOCTYPE html>") and done.stdout.endswith("</html>\n")


def test_a_stall_at_the_end_is_charged_to_everyone_who_waited(bench, redis):
    """The server stands still from some moment until after the last request was
    due: what was not sent is counted, and its wait is in the latencies."""
    path = bench.folder / "stalled.json"
    running = subprocess.Popen(
        [bench.path, "bench", "-q", "--rest", "0", "-p", str(redis.port), "-t", "get", "--rate", "1000", "--duration", "6", "--json", str(path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    with redis.connect() as connection:
        while b"cmdstat_get" not in connection.call("INFO", "commandstats")[1]:
            time.sleep(0.01)
    redis.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(8)
    finally:
        redis.process.send_signal(signal.SIGCONT)
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 0
    (result,) = json.loads(path.read_text())["results"]
    (kind,) = result["kinds"]
    assert result["operations"] + kind["unsent"] == kind["latency"]["count"] == 6000
    assert kind["unsent"] > 0 and f"{kind['unsent']} of 6000 requests that were due could not be sent" in stderr
    # It was stopped after the first request and for 8 seconds: whatever was not sent
    # by 6 seconds waited for 2 and more.
    assert kind["latency"]["avg_us"] * 6000 > kind["unsent"] * 2e6


def test_more_than_a_server_can_take_is_said(bench, redis):
    path = bench.folder / "overload.csv"
    done = bench.bench("-q", *address(redis), "-t", "get", "-c", 1, "--rate", 2_000_000, "--duration", 1, "--csv", path)
    (row,) = csv.DictReader(path.open())
    assert int(row["operations"]) + int(row["unsent"]) == 2_000_000 and int(row["unsent"]) > 0
    assert f"{row['unsent']} of 2000000 requests that were due could not be sent" in done.stderr
    report, stderr = bench.report(*address(redis), "-t", "get", "-n", 300, "--rate", 1000, "--duration", 60)
    assert report["results"][0]["operations"] == 300 and stderr == ""


def test_bytes_per_item_need_items(bench, redis):
    report, _ = bench.report(*address(redis), "-t", "set,xadd", "-n", 20000, "-P", 16)
    of = {r["step"]: r["memory"] for r in report["results"]}
    assert of["set"]["items"] == 1 and of["set"]["bytes_per_item"] is None
    assert of["xadd"]["items"] == 20000 and of["xadd"]["bytes_per_item"] > 0


def test_names_of_redis_benchmark(bench, redis):
    report, stderr = bench.report(*address(redis), "-3", "-t", "ping_inline,ping_mbulk,mset", "-n", 200, "-r", 1000, "-d", 8)
    assert stderr == "" and [r["operations"] for r in report["results"]] == [200] * 3
    with redis.connect() as connection:
        assert 500 < connection.call("DBSIZE")[1] <= 1000
        stats = connection.call("INFO", "commandstats")[1].decode()
        assert "cmdstat_mset:calls=200," in stats


def test_the_same_seed_sends_the_same(bench, redis):
    digests = []
    for seed in (5, 5, 6):
        bench.report(*address(redis), "--flush", "stream-events", "--scale", "0.002", "--seed", seed)
        with redis.connect() as connection:
            entries = connection.call("XRANGE", "events", "-", "+")[1]
            digests.append([fields for _, (_, fields) in ((0, entry[1]) for entry in entries)])
    assert len(digests[0]) == 2000
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("workload", ["stream-events", "stream-identical", "stream-lookup", "stream-mixed", "json-zipf", "populate"])
def test_workloads_by_name(bench, workload):
    from harness import servers

    server = servers.redis("--enable-debug-command", "local")
    try:
        report, stderr = bench.report(*address(server), workload, "--scale", "0.001")
        assert stderr == "" and report["results"]
        assert all(r["failure"] is None for r in report["results"])
    finally:
        server.stop()


def test_capture_expires_what_it_writes(bench, redis):
    report, _ = bench.report(*address(redis), "capture", "--scale", "0.05", "--duration", "2")
    (result,) = report["results"]
    assert {kind["name"] for kind in result["kinds"]} == {"packet", "session", "http-meta", "http-body", "http-log"}
    with redis.connect() as connection:
        keys = int(connection.call("DBSIZE")[1])
        info = connection.call("INFO", "keyspace")[1].decode()
    assert f"expires={keys}," in info


@pytest.mark.parametrize("part", ["codec-stream", "codec-levels", "disk-blobs"])
def test_packing_alone_needs_no_server(bench, part):
    path = bench.folder / "codec.json"
    done = bench.run("bench", part, "--cell-time", "0.001", "--data-dir", bench.folder, "--json", path)
    assert done.stdout.startswith(part) and done.stderr == ""
    codec = json.loads(path.read_text())["codec"]
    if part == "codec-stream":
        lines = {(l["direction"], l["variant"], l["raw_bytes"] >> 20) for l in codec["streams"]}
        variants = ("one-shot", "one-shot, chains", "blocking", "preemptible", "eight preemptible")
        assert lines == {(d, v, s) for d in ("pack", "unpack") for v in variants for s in (1, 10)}
    elif part == "codec-levels":
        assert [(l["raw_bytes"], l["level"]) for l in codec["levels"]] == [(s, l) for s in (16384, 131072) for l in (3, 9, 19)]
        assert all(l["ratio"] > 1.5 for l in codec["levels"])
    else:
        stored = {(l["raw_bytes"], l["codec"]): l["stored_bytes"] for l in codec["blobs"]}
        assert len(stored) == 9 and stored[(16384, "zstd")] < 0.6 * stored[(16384, "none")]


def test_names_are_listed_and_examples_shown(bench):
    listed = bench.run("bench", "list").stdout
    for name in ("set-get", "stream-celery", "codec-stream", "disk-blobs", "set-get-cluster", "suite"):
        assert f"{name} " in listed
    assert "Examples:" in bench.run("bench", "--help").stdout
    assert "Examples:" in bench.run("compare", "--help").stdout
