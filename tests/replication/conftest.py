import pytest

from harness.nodes import Nodes, Proxy


@pytest.fixture
def nodes(target):
    nodes = Nodes(target)
    yield nodes
    nodes.stop()


@pytest.fixture
def proxy():
    """Makes proxies to a node's port."""
    made = []

    def to(node):
        made.append(Proxy(node.port))
        return made[-1]

    yield to
    for one in made:
        one.stop()
