"""`snug bench` and `redis-benchmark` on the same server, in turns: both figures are
printed (`tests/run bench/test_agreement.py -s`), none is asserted: a shared machine
decides them. What is asserted is that both did the same work."""

import csv
import io
import statistics
import subprocess

import pytest

from harness.bench import address

ROUNDS = 5
REQUESTS = 100_000


def of_redis_benchmark(port, pipeline):
    words = ["redis-benchmark", "-p", port, "-t", "set,get", "-n", REQUESTS, "-c", 50, "-P", pipeline, "-d", 64, "-r", 100000, "--csv"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=200, check=True)
    rows = csv.DictReader(io.StringIO(done.stdout))
    return {row["test"].lower(): (float(row["rps"]), float(row["p50_latency_ms"]) * 1000) for row in rows}


def of_snug_bench(bench, port, pipeline):
    words = ["-p", port, "-t", "set,get", "-n", REQUESTS, "-c", 50, "-P", pipeline, "-d", 64, "-r", 100000]
    report, _ = bench.report(*words)
    return {r["step"]: (r["throughput"], r["kinds"][0]["latency"]["p50_us"]) for r in report["results"]}


@pytest.mark.parametrize("pipeline", [1, 16, 100])
def test_both_generators_on_one_server(bench, redis, pipeline):
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(of_redis_benchmark(redis.port, pipeline))
        ours.append(of_snug_bench(bench, redis.port, pipeline))
    for test in ("set", "get"):
        for name, index in (("ops/s", 0), ("p50 us", 1)):
            one, other = ([run[test][index] for run in runs] for runs in (ours, theirs))
            a, b = statistics.median(one), statistics.median(other)
            spread = sum((max(x) - min(x)) / 2 / statistics.median(x) for x in (one, other) if statistics.median(x))
            ratio = a / b if b else float("nan")
            print(f"P{pipeline} {test} {name}: snug bench {a:,.0f}, redis-benchmark {b:,.0f}, ratio {ratio:.2f}, noise {spread:.0%}")
    with redis.connect() as connection:
        stats = connection.call("INFO", "commandstats")[1].decode()
    for test in ("set", "get"):
        # redis-benchmark sends whole batches and may send more than it was asked to.
        calls = int(stats.split(f"cmdstat_{test}:calls=")[1].split(",")[0])
        assert 2 * ROUNDS * REQUESTS <= calls <= 2 * ROUNDS * REQUESTS * 1.01
