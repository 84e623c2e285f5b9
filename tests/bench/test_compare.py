"""`snug compare`: programs started, pinned and interleaved; bounds; two reports;
the pages that it writes."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

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
    two[two.index("-t") + 1] = "get"
    _, done = compare(bench, *two, "--fail-if", "get.bytes<0.1", code=3)
    assert done.stderr == "snug: get.bytes<0.1: nothing was measured that this could be said of\n"
    for bad in ("set.throughput", "set.nonsense<1", "<1", "get.throughput<nan", "get.cpu>inf"):
        assert bench.run("compare", *two, "--fail-if", bad, code=2).stderr.startswith("error: ")


@pytest.mark.parametrize(
    "words, line",
    [
        (["{none}.json"], "'{none}.json' is a report, which is compared with one other: OLD.json NEW.json"),
        (["a.json", "b.json", "c.json"], "'a.json' is a report, which is compared with one other: OLD.json NEW.json"),
        (["{report}"], "'{report}' is a report, which is compared with one other: OLD.json NEW.json"),
        (["snug", "x={none}"], "cannot start {none}: No such file or directory (os error 2)"),
        (["snug", "--server-cores", "1000"], "core 1000 cannot be had: there are "),
        (["snug", "--fail-if", "nonsense.cpu>1"], "--fail-if: nothing here is called 'nonsense'; the steps are set"),
        (["snug", "--workload", "nonsense"], "no workload is called 'nonsense'; `snug bench list` names them"),
        (["a=redis-server", "a=redis-server"], "two targets are called 'a'"),
    ],
)
def test_wrong_arguments_are_said_before_anything_runs(bench, words, line):
    report = bench.folder / "new.report"
    report.write_text('{"results": []}')
    places = {"none": bench.folder / "none", "report": report}
    path = bench.folder / "out.json"
    given = [word.format(**places) for word in words]
    done = bench.run("compare", *given, *SHORT, "--json", path, code=2)
    assert done.stderr.startswith("snug: " + line.format(**places)) and len(done.stderr.splitlines()) == 1
    assert done.stdout == "" and not path.exists()


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
    slow.write_text(json.dumps(report | {"results": []}))
    assert bench.run("compare", old, slow, code=1).stderr == "snug: the new report has no results\n"
    slow.write_text("{}")
    assert bench.run("compare", old, slow, code=1).stderr.startswith("snug: cannot read ")


def test_two_reports_of_several_targets(bench):
    report, _ = compare(bench, "a=redis-server", "b=redis-server", *SHORT, "--rounds", 1)
    old, new = bench.folder / "old.json", bench.folder / "new.json"
    old.write_text(json.dumps(report))
    new.write_text(json.dumps(altered(report, 1.5)))
    done = bench.run("compare", old, new, "--fail-if", "set.throughput<0.95")
    assert "a: set" in done.stdout and "b: set" in done.stdout and done.stderr == ""
    done = bench.run("compare", old, new, "--fail-if", "set.throughput<2", code=3)
    assert "set.throughput<2: b: set ops/s new/old is 1.500\n" in done.stderr


def test_reports_of_other_settings(bench, redis):
    def report(name, *words):
        path = bench.folder / f"{name}.json"
        bench.bench("-q", *address(redis), "-n", 1000, "--json", path, *words)
        return path

    one = report("one", "--command", "get a", "-d", 3)
    (result,) = json.loads(one.read_text())["results"]
    assert result["settings"]["data-size"] == "3" and result["settings"]["command"] == "get a"
    other = report("other", "--command", "get __key__", "-d", 2000, "-P", 50)
    lines = bench.run("compare", one, other).stderr.splitlines()
    assert lines == [
        "snug: get: command is get __key__ in the new report, get a in the old",
        "snug: get: data-size is 2000 in the new report, 3 in the old",
        "snug: get: pipeline is 50 in the new report, 1 in the old",
    ]
    assert bench.run("compare", one, one).stderr == ""
    done = bench.run("compare", one, report("set", "-t", "set"), code=1)
    assert done.stderr == "snug: no step was measured in both reports: old has get; new has set\n"


def test_what_does_not_start_is_one_line_and_the_others_run(bench):
    report, done = compare(bench, "redis=redis-server", "bad=redis-server --nonsense 1", "false=false", *SHORT, "--rounds", 1, code=1)
    assert [r["operations"] for r in report["results"]] == [4000, 0, 0]
    lines = done.stderr.splitlines()
    assert lines[0].startswith("snug: bad set-get: redis-server did not come up: ")
    assert lines[1] == "snug: false set-get: false did not come up: it wrote nothing" and len(lines) == 2


class Interrupted:
    """A comparison to be ended while it is busy with a server of its own."""

    def __init__(self, bench):
        self.server = bench.folder / "redis-marked"
        self.server.symlink_to("/usr/bin/redis-server")
        self.json = bench.folder / "interrupted.json"
        words = ["compare", f"marked={self.server}", "--workload", "set-get", "-t", "set", "--duration", "100", "--json", self.json]
        self.compare = subprocess.Popen(
            [bench.path, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever runs the tests may ignore it, and who ignores it is not told.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )

    def servers(self):
        found = subprocess.run(["pgrep", "-f", f"^{self.server} "], capture_output=True, text=True).stdout
        # One that is dead and not yet waited for has no command line.
        return [int(pid) for pid in found.split() if Path(f"/proc/{pid}/cmdline").read_bytes()]

    def info(self):
        # redis-server writes its address there once it listens.
        port = re.search(r" 127\.0\.0\.1:(\d+)", Path(f"/proc/{self.servers()[0]}/cmdline").read_text())
        if port is None:
            return ""
        return subprocess.run(["redis-cli", "-p", port[1], "info", "commandstats"], capture_output=True, text=True).stdout

    def folders(self):
        return list(Path(tempfile.gettempdir()).glob(f"snug-compare-{self.compare.pid}-*"))


@pytest.fixture
def run(bench):
    run = Interrupted(bench)
    try:
        until(lambda: run.servers() and "cmdstat_set" in run.info())
        yield run
    finally:
        run.compare.kill()
        run.compare.communicate()
        for folder in run.folders():
            shutil.rmtree(folder)


def until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_run_and_its_server(run, name):
    run.compare.send_signal(signal.Signals[name])
    _, stderr = run.compare.communicate(timeout=60)
    assert run.compare.returncode == 130 and stderr == "snug: interrupted: only what was measured until then is reported\n"
    assert json.loads(run.json.read_text())["results"][0]["operations"] > 0
    assert run.servers() == [] and run.folders() == []


def test_a_second_signal_does_not_wait_for_the_server(run):
    (server,) = run.servers()
    os.kill(server, signal.SIGSTOP)
    # Two of one kind, while the first is not yet taken, would be one.
    run.compare.send_signal(signal.SIGTERM)
    run.compare.send_signal(signal.SIGINT)
    run.compare.communicate(timeout=60)
    assert run.compare.returncode == 130
    assert json.loads(run.json.read_text())["results"][0]["operations"] > 0
    assert run.servers() == [] and run.folders() == []


def test_a_server_does_not_outlive_a_killed_comparison(run):
    run.compare.kill()
    until(lambda: run.servers() == [])


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
