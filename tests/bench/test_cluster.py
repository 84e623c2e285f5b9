"""Clusters: three redis-server nodes, started by the comparison or there already;
slots that move while the load runs."""

import json
import subprocess
import time

import pytest

from harness.bench import address
from harness import servers

SLOTS = 16384


def node_ids(nodes):
    ids = []
    for node in nodes:
        with node.connect() as connection:
            ids.append(connection.call("CLUSTER", "MYID")[1].decode())
    return ids


@pytest.fixture
def cluster():
    """Three nodes with a third of the slots each."""
    nodes = [servers.redis("--cluster-enabled", "yes", "--cluster-node-timeout", "2000") for _ in range(3)]
    try:
        for index, node in enumerate(nodes):
            first, last = SLOTS * index // 3, SLOTS * (index + 1) // 3 - 1
            with node.connect() as connection:
                connection.call("CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
                assert connection.call("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))[1] == b"OK"
        with nodes[0].connect() as connection:
            for node in nodes[1:]:
                connection.call("CLUSTER", "MEET", "127.0.0.1", str(node.port))
        for node in nodes:
            with node.connect() as connection:
                while not ready(connection.call("CLUSTER", "INFO")[1].decode()):
                    time.sleep(0.05)
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def ready(info):
    return "cluster_state:ok" in info and "cluster_known_nodes:3" in info


def sizes(nodes):
    counts = []
    for node in nodes:
        with node.connect() as connection:
            counts.append(int(connection.call("DBSIZE")[1]))
    return counts


def errors(nodes):
    text = ""
    for node in nodes:
        with node.connect() as connection:
            text += connection.call("INFO", "errorstats")[1].decode()
    return text


def test_each_request_goes_to_its_node(bench, cluster):
    for pipeline in (1, 16, 100):
        words = ["--cluster", "-t", "set,get", "-r", 20000, "-n", 40000, "-P", pipeline, "--fill"]
        report, stderr = bench.report(*address(cluster[1]), *words)
        assert stderr == ""
        assert [r["operations"] for r in report["results"]] == [20000, 40000, 40000]
        assert report["results"][0]["server"].endswith("cluster of 3")
    assert sum(sizes(cluster)) == 20000 and min(sizes(cluster)) > 6000
    # A known map sends nothing astray.
    assert "MOVED" not in errors(cluster)
    memory = report["results"][0]["memory"]
    assert memory["rested"]["keys"] == 20000


def test_slots_that_move_are_followed(bench, cluster):
    path = bench.folder / "moved.json"
    words = ["bench", "-q", "--cluster", "-p", cluster[0].port, "-t", "set", "-r", "100000", "-P", 16, "--duration", 5, "--json", path]
    running = subprocess.Popen([bench.path, *map(str, words)], stderr=subprocess.PIPE, text=True)
    with cluster[0].connect() as connection:
        while b"cmdstat_set" not in connection.call("INFO", "commandstats")[1]:
            time.sleep(0.01)
    ids = node_ids(cluster)
    # The last slots that are empty now would be a race; so a slot is emptied and given away.
    with cluster[0].connect() as source, cluster[2].connect() as destination:
        given = 0
        for slot in range(200):
            destination.call("CLUSTER", "SETSLOT", str(slot), "NODE", ids[2])
            while True:
                keys = source.call("CLUSTER", "GETKEYSINSLOT", str(slot), "100")[1]
                if keys:
                    source.call("DEL", *[key[1] for key in keys])
                    continue
                if source.call("CLUSTER", "SETSLOT", str(slot), "NODE", ids[2])[1] == b"OK":
                    given += 1
                    break
        assert given == 200
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 0, stderr
    (result,) = json.loads(path.read_text())["results"]
    assert result["failure"] is None and result["kinds"][0]["errors"] == 0
    redirected = [f["value"] for f in result["figures"] if f["name"] == "requests redirected"]
    assert redirected and redirected[0] >= 1
    assert "errorstat_MOVED" in errors(cluster)


def test_a_node_that_dies_is_named(bench, cluster):
    path = bench.folder / "died.json"
    words = ["bench", "-q", "--cluster", "-p", cluster[0].port, "-t", "set", "-r", "1000", "--duration", 60, "--json", path]
    running = subprocess.Popen([bench.path, *map(str, words)], stderr=subprocess.PIPE, text=True)
    with cluster[2].connect() as connection:
        while b"cmdstat_set" not in connection.call("INFO", "commandstats")[1]:
            time.sleep(0.01)
    cluster[2].process.kill()
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 1
    (line,) = stderr.splitlines()
    assert f"127.0.0.1:{cluster[2].port} closed the connection after " in line
    assert json.loads(path.read_text())["results"][0]["operations"] > 0


def test_a_server_alone_is_no_cluster(bench, redis):
    line = bench.refusal(*address(redis), "--cluster")
    assert line == "CLUSTER SLOTS: ERR This instance has cluster support disabled"


def test_a_cluster_without_its_slots(bench):
    node = servers.redis("--cluster-enabled", "yes")
    try:
        assert "16384 slots are served by no node" in bench.refusal(*address(node), "--cluster")
    finally:
        node.stop()


def test_compare_starts_three_nodes(bench):
    path = bench.folder / "compare.json"
    words = ["--workload", "set-get-cluster", "--scale", "0.002", "--rounds", 1, "--rest", 0, "-q", "--json", path]
    bench.run("compare", "one=redis-server", "two=redis-server", *words)
    results = json.loads(path.read_text())["results"]
    assert {r["target"] for r in results} == {"one", "two"}
    assert {r["workload"] for r in results} == {"set-get-cluster"}
    assert all(r["failure"] is None and r["server"].endswith("cluster of 3") for r in results)
    assert {r["step"] for r in results} >= {f"cluster-{t}/P{p}" for t in ("set", "get") for p in (1, 16, 100)}
