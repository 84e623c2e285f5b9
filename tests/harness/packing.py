"""What Snug says about its packing, for tests that look at it."""

import time

WAIT_SECONDS = 240
#: Flags with which nothing becomes cold by itself: it is packed when a test says so.
NEVER = ["--pack-cold-after", "1000000"]


def record(frame):
    """A reply of fields and values as a dictionary."""
    values = [value for _, value in frame[1]]
    return dict(zip(values[::2], values[1::2]))


def about(connection, key):
    """What a value is made of."""
    return record(connection.call("SNUG", "OBJECT", key))


def families(connection):
    """The families of values by their shapes."""
    rows = map(record, connection.call("SNUG", "FAMILIES")[1])
    return {row[b"shape"]: row for row in rows}


def until(holds, what="what was waited for never came"):
    """Waits until it holds; else fails and says what was wrong."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
