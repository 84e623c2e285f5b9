"""`snug compare`: programs started, pinned and interleaved; bounds; two reports;
the pages that it writes."""

import json
import os
import re
import shutil
import subprocess

import pytest

from harness.bench import address
from harness import servers

SHORT = ["--workload", "set-get", "-t", "set", "-n", 4000, "-P", 8, "--rest", 0]


def compare(bench, *words, code=0):
    path = bench.folder / "compare.json"
    path.unlink(missing_ok=True)
    done = bench.run("compare", *words, "--json", path, code=code)
    return json.loads(path.read_text()), done


def test_rounds_are_interleaved(bench):
    report, done = compare(bench, "snug", "redis=redis-server", *SHORT, "--rounds", 3)
    order = [(r["round"], r["target"]) for r in report["results"]]
    assert order == [(n, t) for n in (1, 2, 3) for t in ("snug", "redis")]
    assert all(r["operations"] == 4000 for r in report["results"])
    servers_seen = {r["target"]: r["server"] for r in report["results"]}
    assert servers_seen["snug"].startswith("snug ") and servers_seen["redis"].startswith("redis 7")
    assert "snug/redis" in done.stdout and "ops/s" in done.stdout and "±" in done.stdout


def test_programs_are_pinned(bench):
    """A target's cores are those of its process, whatever the load's are."""
    spy = bench.folder / "redis-spy"
    seen = bench.folder / "cores"
    spy.write_text(f'#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status >>{seen}\nexec /usr/bin/redis-server "$@"\n')
    spy.chmod(0o755)
    cores = sorted(os.sched_getaffinity(0))
    compare(bench, f"a@{cores[0]}={spy}", f"b@{cores[-1]}={spy}", *SHORT, "--rounds", 2)
    given = re.findall(r"\d+$", seen.read_text(), re.MULTILINE)
    assert given == [str(cores[0]), str(cores[-1])] * 2


def test_nothing_is_left_running(bench):
    marker = bench.folder / "redis-marked"
    marker.symlink_to("/usr/bin/redis-server")
    compare(bench, f"a={marker}", f"b={marker}", *SHORT, "--rounds", 1)
    assert subprocess.run(["pgrep", "-f", str(marker)], capture_output=True).returncode == 1


def test_bounds_set_the_exit_code(bench):
    two = ["a=redis-server", "b=redis-server", *SHORT, "--rounds", 1]
    compare(bench, *two, "--fail-if", "set.throughput<0.0001", "--fail-if", "set-get.cpu>10000")
    _, done = compare(bench, *two, "--fail-if", "set.throughput<10000", code=3)
    assert re.fullmatch(r"snug: set.throughput<10000: set ops/s a/b is [0-9.]+\n", done.stderr)
    _, done = compare(bench, *two, "--fail-if", "xadd.throughput<0.1", code=3)
    assert done.stderr == "snug: xadd.throughput<0.1: nothing was measured that this could be said of\n"
    for bad in ("set.throughput", "set.nonsense<1", "<1"):
        assert bench.run("compare", *two, "--fail-if", bad, code=2).stderr.startswith("error: ")


def altered(report, factor):
    changed = json.loads(json.dumps(report))
    for result in changed["results"]:
        for kind in result["kinds"]:
            kind["throughput"] *= factor
    return changed


def test_two_reports_differ_beyond_noise_or_not(bench):
    """The noise is put in by hand: rounds of 100, 102 and 104 thousand a second."""
    report, _ = compare(bench, "one=redis-server", "--workload", "set-get", "-t", "set", "-n", 3000, "--rounds", 3, "--rest", 0)
    for result, speed in zip(report["results"], (1e5, 1.02e5, 1.04e5)):
        result["kinds"][0]["throughput"] = speed
    old, same, slow, fast = (bench.folder / f"{name}.json" for name in ("old", "same", "slow", "fast"))
    for path, factor in ((old, 1), (same, 1.01), (slow, 0.8), (fast, 1.3)):
        path.write_text(json.dumps(altered(report, factor)))

    def verdict(new):
        (line,) = [line for line in bench.run("compare", old, new).stdout.splitlines() if "ops/s" in line]
        return line.split()[-1]

    assert [verdict(path) for path in (slow, fast)] == ["worse", "better"]
    assert verdict(same) not in ("better", "worse")
    assert "new/old" in bench.run("compare", old, slow).stdout
    done = bench.run("compare", old, slow, "--fail-if", "set.throughput<0.95", code=3)
    assert "set ops/s new/old is 0.800" in done.stderr
    bench.run("compare", old, fast, "--fail-if", "set.throughput<0.95")
    assert bench.run("compare", old, bench.folder / "none.json", code=1).stderr.startswith("snug: cannot read ")
    slow.write_text("{}")
    assert bench.run("compare", old, slow, code=1).stderr.startswith("snug: cannot read ")


def test_what_does_not_start_is_one_line_and_the_others_run(bench):
    report, done = compare(bench, "redis=redis-server", "none=/nonexistent/server", "bad=redis-server --nonsense 1", *SHORT, "--rounds", 1, code=1)
    assert [r["operations"] for r in report["results"]] == [4000, 0, 0]
    lines = done.stderr.splitlines()
    assert lines[0].startswith("snug: none set-get: cannot start /nonexistent/server: No such file")
    assert lines[1].startswith("snug: bad set-get: redis-server did not come up: ") and len(lines) == 2
    assert bench.run("compare", "a=redis-server", "a=redis-server", code=1).stderr == "snug: two targets are called 'a'\n"


def test_running_servers_with_a_password(bench):
    server = servers.redis("--requirepass", "secret")
    try:
        place = f"a=127.0.0.1:{server.port}"
        report, _ = compare(bench, place, *SHORT, "--rounds", 1, "-a", "secret", "--flush")
        assert report["results"][0]["operations"] == 4000
        _, done = compare(bench, place, *SHORT, "--rounds", 1, code=1)
        assert "NOAUTH" in done.stderr
    finally:
        server.stop()


def test_pages_and_their_plots(bench):
    docs = bench.folder / "docs"
    docs.mkdir()
    compare(bench, "a=redis-server", "b=redis-server", *SHORT, "--rounds", 2, "--docs", docs)
    page = (docs / "benchmarks.md").read_text()
    links = re.findall(r"\]\((\S+\.svg)\)", page)
    assert len(links) >= 4 and all((docs / link).stat().st_size > 500 for link in links)
    assert "redis 7" in page and " compare a=redis-server b=redis-server " in page.replace("'", "") and re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", page)


@pytest.mark.skipif(not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), reason="no Chromium is installed")
def test_a_browser_shows_a_real_report(bench, redis):
    page = bench.folder / "report.html"
    bench.bench(*address(redis), "-t", "set,xadd", "-P", "1,16", "-n", 20000, "--html", page)
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={bench.folder / 'profile'}"]
    done = subprocess.run([browser, *flags, "--dump-dom", f"file://{page}"], capture_output=True, text=True, timeout=120)
    assert done.stdout.count("<svg") >= 4 and "<polyline" in done.stdout and "<rect" in done.stdout
    assert "CONSOLE" not in done.stderr, done.stderr
