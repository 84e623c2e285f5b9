"""What streams have beyond Redis's: a limit in bytes, and figures of packing."""

import pytest

from harness.packing import record, until

pytestmark = pytest.mark.snug_only

TOGETHER = ("-", b"ERR syntax error, MAXLEN, MINID and MAXSIZE options at the same time are not compatible")


def tokens(arguments):
    """All tokens among a command's arguments."""
    for argument in map(record, arguments):
        if b"token" in argument:
            yield argument[b"token"]
        yield from tokens(argument.get(b"arguments", []))


def test_maxsize_is_told_of_and_goes_alone(server):
    with server.connect() as c:
        for command in ("XADD", "XTRIM"):
            docs = record(("*", record(c.call("COMMAND", "DOCS", command))[command.lower().encode()]))
            assert {b"MAXLEN", b"MINID", b"MAXSIZE"} <= set(tokens(docs[b"arguments"]))
        c.call("XADD", "s", "1-1", "f", "v")
        for first, second in (("MAXSIZE", "MAXLEN"), ("MINID", "MAXSIZE"), ("MAXSIZE", "MAXSIZE")):
            assert c.call("XTRIM", "s", first, 5, second, 5) == TOGETHER
            assert c.call("XADD", "s", first, 5, second, 5, "*", "f", "v") == TOGETHER


def test_trimming_does_not_make_the_ratio_rise(server):
    with server.connect() as c:
        for number in range(1, 701):
            c.call("XADD", "s", f"{number}-1", "f", "the same %d" % (number % 7))
        until(lambda: record(c.call("XINFO", "STREAM", "s"))[b"packed-blocks"] == 1)
        before = record(c.call("XINFO", "STREAM", "s"))
        assert c.call("XTRIM", "s", "MAXLEN", 400) == (":", 300)
        after = record(c.call("XINFO", "STREAM", "s"))
        assert after[b"packed-bytes"] < before[b"packed-bytes"]
        assert after[b"raw-bytes"] < before[b"raw-bytes"] * 0.62
        assert 1 < float(after[b"ratio"]) <= float(before[b"ratio"])
