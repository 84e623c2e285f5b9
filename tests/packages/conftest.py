"""What the tests of packages share: the program under test without its symbols, as
packages have it."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*words, **more):
    """Runs a command; its output is in the failure."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600, **more)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def binary(target, tmp_path_factory):
    if not shutil.which("strip"):
        pytest.skip("strip is not installed")
    path = tmp_path_factory.mktemp("binary") / "snug"
    run("strip", "--output-file", path, target.path)
    return path
