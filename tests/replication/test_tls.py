"""Links inside TLS, of Snug and of redis-server, with certificates asked for and without."""

import pytest

from harness import certificates as tls
from harness.nodes import call, eventually, follow, is_up, lead, refusal, wait_until_online, wait_until_same, wait_until_up
from harness.servers import free_port
from replication.test_migrate import migrate
from replication.workload import write

pytestmark = pytest.mark.snug_only


@pytest.fixture
def start(nodes, certificates):
    """Starts a node that serves TLS and follows inside it."""

    def node(kind, *flags, clients="yes"):
        port = free_port()
        started = nodes.start(kind, *tls.flags(certificates, port, clients), "--tls-replication", "yes", *flags)
        started.inside = port
        return started

    return node


@pytest.mark.parametrize("kinds", [("redis", "snug"), ("snug", "redis"), ("snug", "snug")], ids="-".join)
def test_links_inside_tls(start, kinds):
    primary, replica = (start(kind) for kind in kinds)
    write(primary, "before", 400)
    call(primary, "SET", "large", b"x" * 3_000_000)
    follow(replica, primary, primary.inside)
    wait_until_up(replica)
    write(primary, "after", 400)
    call(primary, "SET", "larger", b"y" * 5_000_000)
    wait_until_same(primary, replica)
    # It is to be reached inside TLS too: so they can change places.
    assert f"port={replica.inside},state=".encode() in call(primary, "INFO", "replication")
    eventually("it to be online", lambda: b"state=online" in call(primary, "INFO", "replication"))
    call(primary, "FAILOVER", "TO", "127.0.0.1", replica.inside)
    eventually("the new primary", lambda: replica.info()["role"] == "master")
    wait_until_up(primary)
    call(replica, "SET", "c", "d")
    wait_until_same(replica, primary)


@pytest.mark.parametrize("kind", ["redis", "snug"])
def test_certificates_that_are_asked_for(start, nodes, certificates, kind):
    """A certificate of its own for the link; and what is refused without one, or from an
    authority that is not known."""
    primary = start(kind)
    here = lambda name: str(certificates / name)
    own = ["--tls-client-cert-file", here("client.crt"), "--tls-client-key-file", here("client.key")]
    replica = nodes.start("snug", "--tls-replication", "yes", "--tls-ca-cert-file", here("ca.crt"), *own)
    follow(replica, primary, primary.inside)
    wait_until_up(replica)
    call(primary, "SET", "a", "b")
    wait_until_same(primary, replica)
    for flags in (["--tls-ca-cert-file", here("ca.crt")], ["--tls-ca-cert-file", here("other.crt"), *own]):
        stranger = nodes.start("snug", "--tls-replication", "yes", *flags)
        follow(stranger, primary, primary.inside)
        eventually("the refusal", lambda: "the link to the primary is down" in stranger.log())
        assert not is_up(stranger)
        # What is set right is in force with the next attempt.
        call(stranger, "CONFIG", "SET", "tls-ca-cert-file", here("ca.crt"), "tls-client-cert-file", here("client.crt"), "tls-client-key-file", here("client.key"))
        wait_until_up(stranger)
    plain = nodes.start("snug")
    assert refusal(plain, "CONFIG", "SET", "tls-replication", "yes").startswith("ERR CONFIG SET failed")
    assert call(plain, "CONFIG", "GET", "tls-replication")[1][1] == b"no"


@pytest.mark.parametrize("kinds", [("redis", "snug"), ("snug", "redis"), ("snug", "snug")], ids="-".join)
def test_keys_move_inside_tls(start, certificates, kinds):
    here, there = (start(kind, "--tls-cluster", "yes") for kind in kinds)
    values = {"small": b"x", "large": b"y" * 3_000_000, **{f"k:{n}": b"%d" % n for n in range(300)}}
    for key, value in values.items():
        call(here, "SET", key, value)
    assert call(here, "MIGRATE", "127.0.0.1", there.inside, "", 0, 10000, "KEYS", *values) == b"OK"
    assert call(here, "DBSIZE") == 0
    assert {key: call(there, "GET", key) for key in values} == values
    # A port that does not speak TLS takes none, and neither does an authority unknown.
    call(here, "SET", "stays", "here")
    moves = ("MIGRATE", "127.0.0.1", there.port, "stays", 0, 1000)
    assert refusal(here, *moves).startswith("IOERR error or timeout")
    if kinds[0] == "redis":
        # It keeps its connection for ten seconds.
        return
    call(here, "CONFIG", "SET", "tls-ca-cert-file", str(certificates / "other.crt"))
    moves = ("MIGRATE", "127.0.0.1", there.inside, "stays", 0, 1000)
    assert refusal(here, *moves).startswith("IOERR error or timeout")
    assert (call(here, "GET", "stays"), call(there, "EXISTS", "stays")) == (b"here", 0)
    # Without TLS the other port is the one.
    call(here, "CONFIG", "SET", "tls-ca-cert-file", str(certificates / "ca.crt"), "tls-cluster", "no")
    assert call(here, "MIGRATE", "127.0.0.1", there.port, "stays", 0, 1000) == b"OK"
    assert call(there, "GET", "stays") == b"here"


def test_migration_inside_tls(start, target, certificates):
    old, new = start("redis"), start("snug", clients="no")
    write(old, "migrate", 600)
    flags = ["--cacert", certificates / "ca.crt", "--cert", certificates / "client.crt", "--key", certificates / "client.key"]

    def run(*more):
        return migrate(target, old, new, *map(str, flags), *more, url=f"rediss://127.0.0.1:{old.inside}")

    call(new, "CONFIG", "SET", "tls-replication", "no")
    code, said = run("--sample", "100")
    assert code == 0 and "all are the same" in said, said
    assert call(new, "CONFIG", "GET", "tls-replication")[1][1] == b"yes"
    wait_until_online(old, type("Inside", (), {"port": new.inside}))
    code, said = run("--switch")
    assert code == 0 and "is the primary" in said, said
    wait_until_up(old)
    call(new, "SET", "a", "b")
    wait_until_same(new, old)
    lead(old)
