"""What streams have beyond Redis's: a limit in bytes, and figures of packing."""

import pytest

from harness.packing import about, record, until

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
        until(lambda: about_stream(c, "s")[b"packed-blocks"] == 1)
        before = about_stream(c, "s")
        assert c.call("XTRIM", "s", "MAXLEN", 400) == (":", 300)
        after = about_stream(c, "s")
        assert after[b"packed-bytes"] < before[b"packed-bytes"]
        assert after[b"raw-bytes"] < before[b"raw-bytes"] * 0.62
        assert 1 < float(after[b"ratio"]) <= float(before[b"ratio"])


def about_stream(c, key):
    """What packing saves in a stream, and its length."""
    return record(("*", about(c, key)[b"stream"])) | {b"length": c.call("XLEN", key)[1]}


def settle(c, key):
    """Waits until all sealed blocks are packed; what there is then."""
    until(lambda: (now := about_stream(c, key))[b"blocks"] == now[b"packed-blocks"])
    return about_stream(c, key)


def clicks(key, form, limit, numbers):
    for n in numbers:
        step = n * 7919 % 100_003
        entry = ("user", f"user{step % 1000}@example.com", "page", f"/some/page/path/{step % 97}")
        yield ("XADD", key, "MAXSIZE", form, limit, "*", *entry, "ms", step % 4999)


@pytest.mark.parametrize("form", ["~", "="])
def test_a_burst_leaves_what_fits_once_it_is_packed(server, form):
    with server.connect() as c:
        for begin in range(0, 30_000, 600):
            c.pipeline(list(clicks("s", form, 60_000, range(begin, begin + 600))))
            before = settle(c, "s")
        assert before[b"length"] < 25_000, "more than fits"
        c.pipeline(list(clicks("s", form, 60_000, range(30_000, 36_000))))
        after = settle(c, "s")
        assert after[b"length"] > before[b"length"] * 0.85
        assert after[b"packed-bytes"] > 50_000
        if form == "=":
            c.call("XTRIM", "s", "MAXSIZE", "=", 60_000)
            assert about_stream(c, "s")[b"length"] > before[b"length"] * 0.8


@pytest.mark.parametrize("form", ["~", "="])
def test_a_burst_into_a_new_stream_stays_if_it_fits_once_packed(server, form):
    with server.connect() as c:
        command = ("XADD", "s", "MAXSIZE", form, 20_000, "*", "b", "hello", "a")
        c.pipeline([(*command, f"value number {n}") for n in range(20_000)])
        assert settle(c, "s")[b"length"] == 20_000


@pytest.mark.parametrize("server", [["--pack", "no"]], indirect=True)
def test_where_nothing_is_packed_raw_bytes_are_limited(server):
    with server.connect() as c:
        c.pipeline(list(clicks("s", "=", 20_000, range(3_000))))
        assert 19_800 < about_stream(c, "s")[b"packed-bytes"] <= 20_000
