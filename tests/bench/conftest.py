"""What the tests of `snug bench` and `snug compare` share."""

import pytest

from harness import servers
from harness.bench import Bench


@pytest.fixture
def bench(target, tmp_path):
    if target.is_redis:
        pytest.skip("the program under test is a redis-server")
    return Bench(target.path, tmp_path)


@pytest.fixture
def redis():
    server = servers.redis()
    yield server
    server.stop()
