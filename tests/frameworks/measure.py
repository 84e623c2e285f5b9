"""BullMQ on Snug beside redis-server: rates, CPU seconds of the server, memory of jobs that
are finished. `make bullmq` runs it; the figures are medians of some rounds.

    tests/frameworks/measure.py --snug target/release/snug --jobs 100000 --rounds 3
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness import servers  # noqa: E402

HOME = HERE.parents[1] / ".data" / "frameworks"
#: How long memory is watched after the last job, and for how long it has to stay.
COOLS_SECONDS = 300
SETTLED_SECONDS = 45


def info(connection, section):
    text = connection.call("INFO", section)[1].decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def cpu(connection):
    figures = info(connection, "cpu")
    return float(figures["used_cpu_user"]) + float(figures["used_cpu_sys"])


def used(connection):
    return int(info(connection, "memory")["used_memory"])


def cooled(connection):
    """Memory when it no longer falls."""
    least, since, end = used(connection), time.monotonic(), time.monotonic() + COOLS_SECONDS
    while time.monotonic() < end and time.monotonic() - since < SETTLED_SECONDS:
        time.sleep(0.5)
        now = used(connection)
        if now < least * 0.995:
            least, since = now, time.monotonic()
    return used(connection)


def kinds(connection, count):
    """Bytes a job by kind of key: hashes of jobs are sampled, others are told whole."""
    found, cursor, sampled = {}, "0", 0
    while True:
        _, (cursor_reply, keys) = connection.call("SCAN", cursor, "COUNT", "1000")
        for _, key in keys[1]:
            last = key.decode().rsplit(":", 1)[-1]
            if last.isdigit():
                sampled += 1
                if sampled % 50:
                    continue
            size = connection.call("MEMORY", "USAGE", key, "SAMPLES", "0")[1] or 0
            name = "a job's hash" if last.isdigit() else last
            total, number = found.get(name, (0, 0))
            found[name] = (total + size, number + 1)
        cursor = cursor_reply[1].decode()
        if cursor == "0":
            break
    per_job = {name: total / number * (count if name == "a job's hash" else number) / count for name, (total, number) in found.items()}
    return {name: round(size, 1) for name, size in sorted(per_job.items(), key=lambda pair: -pair[1])}


def once(server, jobs):
    """One round: figures by phase."""
    with tempfile.TemporaryDirectory() as folder, server.connect() as connection:
        modules = pathlib.Path(os.environ.get("NODE_MODULES", HOME / "node" / "node_modules"))
        program = pathlib.Path(folder) / "bullmq.mjs"
        program.write_text((HERE / "measure" / "bullmq.mjs").read_text())
        (pathlib.Path(folder) / "node_modules").symlink_to(modules)
        env = {**os.environ, "PORT": str(server.port), "JOBS": str(jobs)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        node = subprocess.Popen(["node", program], env=env, text=True, **pipes)
        empty, figures = used(connection), {}
        before = cpu(connection)
        go(node)
        for line in node.stdout:
            told = json.loads(line)
            if told["phase"] == "end":
                break
            now = cpu(connection)
            figures[told["phase"]] = {
                "jobs a second": told["jobs"] / told["seconds"],
                "CPU microseconds a job": (now - before) / told["jobs"] * 1e6,
            }
            before = now
            go(node)
        assert node.wait() == 0, "jobs were lost"
        at_once = used(connection) - empty
        figures["memory"] = {"bytes a finished job, at once": at_once / jobs, "cooled": (cooled(connection) - empty) / jobs}
        figures["kinds"] = kinds(connection, jobs)
        return figures


def go(node):
    node.stdin.write("\n")
    node.stdin.flush()


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--snug", default="target/release/snug")
    options.add_argument("--jobs", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--workers", type=int, default=1)
    options = options.parse_args()
    if "NODE_MODULES" not in os.environ:
        subprocess.run([HERE / "setup", "node"], check=True, stdin=subprocess.DEVNULL)
    rounds = {"redis-server": [], "snug": []}
    for _ in range(options.rounds):
        for name, found in rounds.items():
            start = servers.redis if name == "redis-server" else servers.Target(options.snug).start
            server = start() if name == "redis-server" else start(workers=options.workers)
            try:
                found.append(once(server, options.jobs))
            finally:
                server.stop()
    medians = {}
    for name, found in rounds.items():
        print(f"{name}, medians of {options.rounds}, {options.jobs} jobs")
        for phase in ("add", "addBulk", "process", "memory"):
            for what in found[0][phase]:
                median = statistics.median(figures[phase][what] for figures in found)
                medians[name, phase, what] = median
                print(f"  {phase:8} {what:32} {median:10.1f}")
        print(f"  bytes a job by kind of key: {found[-1]['kinds']}")
    print("snug's share of redis-server's")
    for (name, phase, what), value in medians.items():
        if name == "snug":
            print(f"  {phase:8} {what:32} {value / medians['redis-server', phase, what]:10.2f}")


if __name__ == "__main__":
    main()
