"""What streams have beyond Redis's: figures of packing."""

import pytest

from harness.packing import record, until

pytestmark = pytest.mark.snug_only


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
