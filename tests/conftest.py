"""Options and servers shared by all tests.

    --snug PATH   the server under test (or $SNUG; default target/release/snug).
                  A redis-server here proves the tests: it must pass them all,
                  but for those marked `snug_only`.
"""

import os
import pathlib
import shutil
import signal

import pytest

from harness import faults, servers
from harness.certificates import make as make_certificates
from harness.compare import Pair

ROOT = pathlib.Path(__file__).resolve().parents[1]
LONGEST_SECONDS = int(os.environ.get("SNUG_TEST_SECONDS", 300))
#: Ways to run Snug. The whole suite runs in the first, a subset in the others.
VARIANTS = {
    "usual": {"flags": [], "workers": 2},
    "one-worker": {"flags": [], "workers": 1},
    # Packs whatever can be packed, also where that makes it longer, within
    # milliseconds: each command may find its strings packed, raw or on the way.
    "packs-at-once": {
        "flags": [
            *["--pack-cold-after", "0", "--pack-min-size", "1", "--pack-min-saving", "-100000"],
            *["--hz", "500", "--stream-node-max-entries", "4"],
        ],
        "workers": 2,
    },
    # Whatever goes through two items runs in a thread of its own.
    "aside": {"flags": ["--long-command-items", "1"], "workers": 2},
    # Before each command whatever may lie on disk goes there, packed if it can be.
    "tiered": {
        "flags": ["--tier-path", "tier", "--pack-cold-after", "0", "--pack-min-size", "1", "--hz", "500"],
        "workers": 2,
        "tiered": True,
    },
}


def pytest_addoption(parser):
    default = os.environ.get("SNUG", ROOT / "target" / "release" / "snug")
    parser.addoption("--snug", default=str(default), help="path of the server under test")


def pytest_configure(config):
    config.addinivalue_line("markers", "snug_only: says nothing about redis-server")
    servers.raise_open_file_limit()


def pytest_collection_modifyitems(config, items):
    if servers.Target(config.getoption("--snug")).is_redis:
        for item in items:
            if item.get_closest_marker("snug_only"):
                item.add_marker(pytest.mark.skip(reason="the server under test is a redis-server"))


def pytest_report_header(config):
    return f"server under test: {config.getoption('--snug')}"


@pytest.fixture(autouse=True)
def no_test_hangs():
    """A test that waits for what never comes fails instead; nothing is timed."""

    def give_up(*_):
        raise TimeoutError(f"the test waited for {LONGEST_SECONDS} s for what never came")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST_SECONDS)
    yield
    signal.alarm(0)


@pytest.fixture(scope="session")
def target(request):
    target = servers.Target(request.config.getoption("--snug"))
    if not pathlib.Path(target.path).exists():
        pytest.exit(f"no server under test at {target.path}: build it, or name it with --snug or $SNUG", 2)
    return target


@pytest.fixture
def server(target, request):
    """A server of its own for one test; its log is shown if the test fails."""
    flags = getattr(request, "param", [])
    server = target.start("--enable-debug-command", "local", *flags)
    yield server
    finish(server)


@pytest.fixture(scope="module")
def shared_server(target):
    """One server for all tests of a module."""
    server = target.start("--enable-debug-command", "local")
    yield server
    finish(server)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A folder of certificates (`harness/certificates.py`)."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """What makes a disk fail, to be preloaded (`harness/faults.py`)."""
    library = faults.library(tmp_path_factory.mktemp("faults"))
    if not library:
        pytest.skip("faults are put in by a library that takes Linux and a C compiler")
    return library


def finish(server):
    died = not server.alive()
    print(f"log of {' '.join(server.command)}:\n{server.log()}")
    server.stop()
    assert not died, "the server died during the test"


class Pairs:
    """Reference and tested server per variant, started when first needed and
    started again when one of them died."""

    def __init__(self, target):
        self.target, self.running = target, {}

    def get(self, variant="usual", cluster=False):
        key = (variant, cluster)
        pair = self.running.get(key)
        if pair and not (pair.reference.alive() and pair.tested.alive()):
            self.stop(pair)
            pair = None
        if not pair:
            pair = self.running[key] = self.start(variant, cluster)
        return pair

    def start(self, variant, cluster):
        flags = ["--enable-debug-command", "local"]
        if cluster:
            flags += ["--cluster-enabled", "yes"]
        how = VARIANTS[variant]
        both = [f for f in how["flags"] if f in servers.without_own_flags(how["flags"])]
        # redis-server waits this long before it takes its own slots for served.
        own = ["--cluster-node-timeout", "500"] if cluster else []
        reference = servers.redis(*flags, *both, *own)
        if self.target.is_redis:
            flags += own
        try:
            return Pair(reference, self.target.start(*flags, *how["flags"], workers=how["workers"]), how.get("tiered", False))
        except BaseException:
            reference.stop()
            raise

    @staticmethod
    def stop(pair):
        codes = [(s, s.log(), s.stop()) for s in (pair.reference, pair.tested)]
        return [(s, log, code) for s, log, code in codes if code not in (0, None)]

    def stop_all(self):
        return [bad for pair in self.running.values() for bad in self.stop(pair)]


@pytest.fixture(scope="session")
def pairs(target):
    pairs = Pairs(target)
    yield pairs
    bad = pairs.stop_all()
    assert not bad, "a server did not end cleanly:\n" + "\n".join(f"{code}: {log}" for _s, log, code in bad)
