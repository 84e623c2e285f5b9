"""A server with a content port for the tests of this folder."""

import pytest

from harness import servers
from harness.content import Content, serving


@pytest.fixture(scope="module")
def content(target):
    """One server for all tests of a module; each has keys of its own."""
    server = serving(target, "--admin-port", str(servers.free_port()), "--admin-token", "token").start()
    yield Content(server)
    print(server.log())
    assert server.alive() and server.stop() == 0


@pytest.fixture
def own_content(target, request):
    """A server for one test, with the flags that it names."""
    server = serving(target, *getattr(request, "param", [])).start()
    yield Content(server)
    print(server.log())
    server.stop()
