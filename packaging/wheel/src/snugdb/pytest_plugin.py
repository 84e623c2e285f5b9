"""Fixtures of pytest: a server for the run, and a client of it without any keys."""

import pytest

from ._server import Server


@pytest.fixture(scope="session")
def snug_server():
    """A snugdb.Server, one for all tests of a run."""
    with Server() as server:
        yield server


@pytest.fixture
def snug(snug_server):
    """A redis.Redis of a server without any keys."""
    pytest.importorskip("redis", reason="the fixture snug needs redis-py: pip install redis")
    snug_server.start()
    snug_server.flush()
    client = snug_server.client()
    yield client
    client.close()
