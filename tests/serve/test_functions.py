"""Libraries of functions are carried from server to server, redis-server's too."""

import pytest

from harness import servers

LIBRARY = "#!lua name={0}\nredis.register_function('{0}_f', function(keys, args) return args[1] .. '{0}' end)"


@pytest.fixture
def two(target):
    ours, theirs = target.start(workers=2), servers.redis()
    yield ours, theirs
    ours.stop()
    theirs.stop()


@pytest.mark.snug_only
def test_libraries_are_restored_from_either_server(two):
    ours, theirs = two
    for source, other in [(ours, theirs), (theirs, ours), (ours, ours)]:
        with source.connect() as here, other.connect() as there:
            here.call("FUNCTION", "FLUSH")
            for name in ("one", "two"):
                assert here.call("FUNCTION", "LOAD", LIBRARY.format(name))[0] == "$"
            payload = here.call("FUNCTION", "DUMP")[1]
            there.call("FUNCTION", "FLUSH")
            assert there.call("FUNCTION", "RESTORE", payload) == ("+", b"OK")
            assert there.call("FCALL", "one_f", "0", "x") == ("$", b"xone")
            assert there.call("FUNCTION", "RESTORE", payload)[0] == "-"
            assert there.call("FUNCTION", "RESTORE", payload, "REPLACE") == ("+", b"OK")
            there.call("FUNCTION", "LOAD", LIBRARY.format("three"))
            assert there.call("FUNCTION", "RESTORE", payload, "FLUSH") == ("+", b"OK")
            assert len(there.call("FUNCTION", "LIST")[1]) == 2
            damaged = payload[:-1] + bytes([payload[-1] ^ 1])
            assert there.call("FUNCTION", "RESTORE", damaged)[1].startswith(b"ERR DUMP payload")


@pytest.mark.snug_only
def test_every_worker_knows_a_library(target):
    server = target.start(workers=2)
    with server.connect() as first:
        first.call("FUNCTION", "LOAD", LIBRARY.format("lib"))
        for _ in range(12):
            with server.connect() as other:
                assert other.call("FCALL", "lib_f", "0", "x") == ("$", b"xlib")
        first.call("FUNCTION", "DELETE", "lib")
        for _ in range(12):
            with server.connect() as other:
                assert other.call("FCALL", "lib_f", "0", "x")[1] == b"ERR Function not found"
    server.stop()
