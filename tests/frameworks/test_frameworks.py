"""Job queues, locks, caches and limiters as their users install them, each doing its
main job under load against a server that packs whatever can be packed at once.

A program of `python/` or `node/` puts jobs in for a while, has workers do them, and
keeps an account outside the server: none is lost, and none is done twice unless the
framework says so (a worker that was killed). `SNUG_FRAMEWORK_SECONDS` says for how
long each puts jobs in: 2 by default, `make frameworks` takes 20.
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import VARIANTS, finish

HERE = pathlib.Path(__file__).parent
HOME = HERE.parents[1] / ".data" / "frameworks"
SECONDS = float(os.environ.get("SNUG_FRAMEWORK_SECONDS", 2))
PYTHON = sorted(path.stem for path in (HERE / "python").glob("*.py") if path.stem != "account")
NODE = sorted(path.stem for path in (HERE / "node").glob("*.mjs") if path.stem != "account")


def install(part):
    subprocess.run([HERE / "setup", part], check=True, stdin=subprocess.DEVNULL)


def run(target, tmp_path, command, **env):
    flags = VARIANTS["packs-at-once"]["flags"]
    server = target.start("--enable-debug-command", "local", *flags)
    try:
        env = {**os.environ, **env, "PORT": str(server.port), "SECONDS": str(SECONDS), "FOLDER": str(tmp_path)}
        process = subprocess.run(command, env=env, cwd=HERE, capture_output=True, text=True, timeout=SECONDS * 3 + 200)
        print(process.stderr[-3000:])
        lines = [line for line in process.stdout.splitlines() if line.startswith("ACCOUNT ")]
        assert process.returncode == 0 and lines, process.stdout[-2000:]
        account = json.loads(lines[-1].removeprefix("ACCOUNT "))
        print(account)
        with server.connect() as connection:
            errors = connection.call("INFO", "errorstats")[1].decode()
        assert account["put"] > 0 and account["lost"] <= account.get("may_lose", 0), account
        assert account["twice"] <= account.get("may_repeat", 0), account
        assert "damaged" not in errors.lower()
        return account
    finally:
        finish(server)


@pytest.mark.parametrize("name", PYTHON)
def test_python(target, tmp_path, name):
    install("python")
    # Imported, not run as `__main__`: workers find the tasks by the module's name.
    home = HOME / ("python-arq" if name == "arq_jobs" else "python")
    command = [home / "bin" / "python", "-c", f"import {name}; {name}.main()"]
    account = run(target, tmp_path, command, PYTHONPATH=str(HERE / "python"))
    assert account.get("overlaps", 0) == 0
    assert account.get("chords", 0) == account.get("sums", 0)


@pytest.mark.parametrize("name", NODE)
def test_node(target, tmp_path, name):
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    install("node")
    # Node finds packages beside the program.
    program = tmp_path / f"{name}.mjs"
    for file in (HERE / "node").glob("*.mjs"):
        shutil.copy(file, tmp_path)
    (tmp_path / "node_modules").symlink_to(HOME / "node" / "node_modules")
    run(target, tmp_path, ["node", program])


@pytest.mark.skipif(not shutil.which("sidekiq"), reason="Debian's ruby-sidekiq is not installed")
def test_sidekiq(target, tmp_path):
    account = run(target, tmp_path, ["ruby", HERE / "ruby" / "sidekiq_jobs.rb"])
    assert account["dead"] == 0


@pytest.mark.skipif(not shutil.which("go"), reason="Go is not installed")
def test_go(target, tmp_path):
    install("go")
    run(target, tmp_path, [HOME / "go-redis"])


@pytest.mark.skipif(not shutil.which("mvn"), reason="Maven is not installed")
def test_java(target, tmp_path):
    install("java")
    jars = [HOME / "java" / "target" / "frameworks-1.jar", *(HOME / "java" / "target" / "dependency").glob("*.jar")]
    run(target, tmp_path, ["java", "-cp", os.pathsep.join(map(str, jars)), "Clients"])
