"""What a container's image is made of, started as the image says: its root, its user, its
words, its look whether it is well. No tool for containers is needed: chroot does."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from harness import servers
from harness.resp import Closed, Connection

from .conftest import ROOT, run

pytestmark = pytest.mark.snug_only

WAIT_SECONDS = 60


def until(condition, what):
    deadline = time.monotonic() + WAIT_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return value


def answer(port, *command):
    try:
        with Connection(port) as connection:
            return connection.call(*command)
    except (OSError, Closed):
        return None


def test_the_image_serves_and_keeps_its_data(binary, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can enter another root")
    run(ROOT / "packaging" / "container" / "rootfs", binary, tmp_path / "image")
    says = dict(re.findall(r"^(\w+) (.*(?:\\\n.*)*)$", (tmp_path / "image" / "Containerfile").read_text(), re.MULTILINE))
    user, group = says["USER"].split(":")
    root = tmp_path / "image" / "root"
    shutil.move(tmp_path / "image" / "data", root / "data")
    os.chown(root / "data", int(user), int(group))
    port = servers.free_port()
    name, _, _ = says["ENV"].partition("=")

    def inside(words):
        return ["chroot", f"--userspec={says['USER']}", root, *words]

    entry = inside(json.loads(says["ENTRYPOINT"]))
    health = inside(json.loads(says["HEALTHCHECK"].partition(" CMD ")[2]))
    environment = {name: f"127.0.0.1:{port}"}
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

    def serve():
        process = subprocess.Popen([*entry, "--port", str(port)], env=path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        until(lambda: answer(port, "PING") or process.poll() is not None, "the server answers")
        return process

    def stop(process):
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=WAIT_SECONDS)[1]
        assert process.returncode == 0, said

    is_well = lambda: subprocess.run(health, env={**path, **environment}, capture_output=True, timeout=WAIT_SECONDS).returncode == 0  # noqa: E731
    assert not is_well()
    process = serve()
    try:
        assert is_well()
        ids = re.search(r"^Uid:\s+(\d+)", open(f"/proc/{process.pid}/status").read(), re.MULTILINE)
        assert ids[1] == user
        assert answer(port, "SET", "key", "value") == ("+", b"OK")
        # Names of hosts are looked up in there.
        assert answer(port, "REPLICAOF", "no.such.host.invalid", "1")[0] == "+"
        assert answer(port, "REPLICAOF", "NO", "ONE")[0] == "+"
        stop(process)
        process = serve()
        assert answer(port, "GET", "key") == ("$", b"value")
        stop(process)
        assert not is_well()
    finally:
        process.kill()
        process.wait()
