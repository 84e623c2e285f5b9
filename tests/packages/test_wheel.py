"""The wheel, in an environment of its own: the program, snugdb.Server, and pytest's
fixtures, used as its page says."""

import re
import sys

import pytest

from .conftest import ROOT, run

pytestmark = pytest.mark.snug_only

CHECKS = """
import os, pathlib, snugdb, pytest

def reply(server, *words):
    return server._ask(*(word.encode() for word in words))

def test_it_is_there_within_the_block():
    with snugdb.Server(maxmemory="64mb", notify_keyspace_events="KA") as server:
        assert server.url == f"redis://127.0.0.1:{server.port}/0" and server.running
        assert reply(server, "SET", "k", "v") == b"+OK\\r\\n" and reply(server, "GET", "k") == b"v"
        assert b"67108864" in server._ask(b"INFO", b"memory")
        pid = server.pid
    assert not server.running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

def test_two_at_once_and_a_password():
    with snugdb.Server(password="s3 cret") as one, snugdb.Server() as other:
        assert one.port != other.port
        assert reply(one, "SET", "k", "1") == b"+OK\\r\\n" and reply(other, "GET", "k") is None
        assert "s3%20cret" in one.url

def test_data_is_kept_in_a_directory(tmp_path):
    server = snugdb.Server(directory=tmp_path, appendonly=True).start()
    reply(server, "SET", "k", "kept")
    port = server.port
    server.restart()
    assert (server.port, reply(server, "GET", "k")) == (port, b"kept")
    server.stop()
    assert (tmp_path / "appendonlydir").is_dir()

def test_what_is_wrong_is_said():
    with pytest.raises(snugdb.ServerError, match="maxmemory"):
        snugdb.Server(maxmemory="much").start()
    with pytest.raises(snugdb.ServerError, match="unknown parameter"):
        snugdb.Server(maxmemmory="1mb").start()

def test_nothing_is_left_behind():
    server = snugdb.Server().start()
    folder = pathlib.Path(server._own_directory.name)
    assert folder.is_dir()
    server.stop()
    assert not folder.exists()

def test_the_fixture(snug):
    assert snug.keys() == [] and snug.set("key", "value") and snug.get("key") == b"value"

def test_the_fixture_again(snug, snug_server):
    assert snug.keys() == [] and snug.info()["process_id"] == snug_server.pid
"""


def test_wheel(binary, tmp_path):
    run(ROOT / "packaging" / "wheel" / "build", binary, tmp_path, env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    # pytest and redis-py are the tests' own; the wheel needs neither.
    site = run(sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    own = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel)
    (tmp_path / "venv" / own).joinpath("tests.pth").write_text(site)
    assert re.fullmatch(r"snug \d+\.\d+\.\d+\n", run(tmp_path / "venv" / "bin" / "snug", "--version"))
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "test_checks.py").write_text(CHECKS)
    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "checks", cwd=tmp_path)
    assert "7 of 7" in re.sub(r"(\d+) passed", r"\1 of 7", said), said
    page = (ROOT / "packaging" / "wheel" / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "checks" / "test_page.py").write_text("\n".join(blocks))
    assert "1 passed" in run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "checks/test_page.py", cwd=tmp_path)
