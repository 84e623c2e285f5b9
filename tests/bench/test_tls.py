"""TLS targets: a redis-server with certificates of an authority made for the
test, with and without certificates for clients."""

import pytest

from harness import certificates as tls
from harness import servers

def tls_server(certificates, clients):
    port = servers.free_port()
    server = servers.redis(*tls.flags(certificates, port, clients))
    server.tls_port = port
    return server


@pytest.fixture(scope="module")
def secure(certificates):
    server = tls_server(certificates, "no")
    yield server
    server.stop()


def test_load_arrives_through_tls(bench, certificates, secure):
    ca = ["-p", secure.tls_port, "--tls", "--cacert", certificates / "ca.crt"]
    for shape in (["-c", 1, "-P", 1, "-n", 500], ["-c", 20, "-P", 100, "-n", 50000], ["-c", 3, "-d", "1m", "-P", 4, "-n", 60], ["--resp", 3, "-n", 1000]):
        with secure.connect() as connection:
            connection.call("CONFIG", "RESETSTAT")
        report, stderr = bench.report(*ca, *shape, "-r", 10, "-t", "set,get")
        assert stderr == ""
        count = int(shape[-1])
        assert [r["operations"] for r in report["results"]] == [count, count]
        with secure.connect() as connection:
            stats = connection.call("INFO", "commandstats")[1].decode()
        assert f"cmdstat_set:calls={count}," in stats and f"cmdstat_get:calls={count}," in stats


def test_the_process_is_seen_through_tls(bench, certificates, secure):
    report, _ = bench.report("-p", secure.tls_port, "--tls", "--cacert", certificates / "ca.crt", "-n", 5000, "-t", "set")
    assert report["results"][0]["cpu"]["seconds"] > 0


def test_open_loop_through_tls(bench, certificates, secure):
    report, _ = bench.report("-p", secure.tls_port, "--tls", "--cacert", certificates / "ca.crt", "-t", "set", "--rate", 2000, "-n", 600)
    assert report["results"][0]["operations"] == 600


def test_a_workload_that_reads_replies_through_tls(bench, certificates, secure):
    report, stderr = bench.report("-p", secure.tls_port, "--tls", "--cacert", certificates / "ca.crt", "stream-mixed", "--scale", "0.002")
    assert stderr == "" and all(r["failure"] is None for r in report["results"])


def test_names_are_verified(bench, certificates, secure):
    trusted = ["-p", secure.tls_port, "-n", 100, "--tls", "--cacert", certificates / "ca.crt"]
    bench.report("-h", "localhost", *trusted)
    bench.report(*trusted, "--sni", "localhost")
    line = bench.refusal(*trusted, "--sni", "elsewhere.example")
    assert line.startswith(f"no TLS with 127.0.0.1:{secure.tls_port}: invalid peer certificate: certificate not valid for name")
    bench.report(*trusted[:4], "--tls", "--insecure")


def test_an_unknown_authority_is_refused(bench, certificates, secure):
    place = ["-p", secure.tls_port, "--tls"]
    assert "invalid peer certificate" in bench.refusal(*place, "--cacert", certificates / "other.crt")
    assert "No such file or directory" in bench.refusal(*place, "--cacert", certificates / "none.crt")
    assert "holds no certificate" in bench.refusal(*place, "--cacert", certificates / "ca.key")


def test_tls_where_there_is_none(bench, certificates, secure):
    trusted = ["--tls", "--cacert", certificates / "ca.crt"]
    line = bench.refusal("-p", secure.port, *trusted)
    assert line.startswith(f"no TLS with 127.0.0.1:{secure.port}: ") and line.endswith("does it speak TLS on this port?")
    assert bench.refusal("-p", secure.tls_port).startswith((f"lost the connection to 127.0.0.1:{secure.tls_port}", "127.0.0.1"))


def test_certificates_for_clients(bench, certificates):
    server = tls_server(certificates, "yes")
    try:
        trusted = ["-p", server.tls_port, "-n", 1000, "--tls", "--cacert", certificates / "ca.crt"]
        bench.refusal(*trusted)
        own = ["--cert", certificates / "client.crt", "--key", certificates / "client.key"]
        report, _ = bench.report(*trusted, *own)
        assert [r["operations"] for r in report["results"]] == [1000, 1000]
        wrong = ["--cert", certificates / "client.crt", "--key", certificates / "other.key"]
        assert bench.refusal(*trusted, *wrong).startswith("--cert and --key: ")
    finally:
        server.stop()
