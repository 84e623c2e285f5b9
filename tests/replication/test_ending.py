"""The end of a primary: what replicas lack is waited for (`shutdown-timeout`)."""

import signal

import pytest

from harness.nodes import call, eventually, follow, refusal, wait_until_online, wait_until_up

WAIT_SECONDS = 60
KINDS = pytest.mark.parametrize("kind", ["snug", "redis"])


def group(nodes, kind, *flags):
    """A primary, and a replica that has stopped before a write."""
    primary, replica = nodes.start(kind, "--shutdown-timeout", "1000", *flags), nodes.start("redis")
    follow(replica, primary)
    wait_until_up(replica)
    wait_until_online(primary, replica)
    replica.process.send_signal(signal.SIGSTOP)
    call(primary, "SET", "before", "the end")
    return primary, replica


def ended(node):
    return node.process.wait(WAIT_SECONDS)


@KINDS
def test_the_end_waits_for_replicas_and_is_called_off(nodes, kind):
    primary, replica = group(nodes, kind)
    try:
        assert refusal(primary, "SHUTDOWN", "ABORT") == "ERR No shutdown in progress."
        with primary.connect() as asking, primary.connect() as writing:
            asking.send("SHUTDOWN", "NOSAVE")
            # It has begun when a write is held back.
            sent = 0
            while not int(primary.info()["blocked_clients"]) > (kind == "redis"):
                writing.send("SET", "during", "the end")
                sent += 1
            assert call(primary, "GET", "before") == b"the end"
            assert call(primary, "SHUTDOWN", "ABORT") == b"OK"
            assert asking.reply() == ("-", b"ERR Errors trying to SHUTDOWN. Check logs.")
            assert all(writing.reply() == ("+", b"OK") for _ in range(sent))
        assert refusal(primary, "SHUTDOWN", "ABORT") == "ERR No shutdown in progress."
        with primary.connect() as asking:
            asking.send("SHUTDOWN", "NOSAVE")
            replica.process.send_signal(signal.SIGCONT)
            assert asking.at_end()
        assert ended(primary) == 0
    finally:
        replica.process.send_signal(signal.SIGCONT)
    eventually("all of it", lambda: (call(replica, "GET", "before"), call(replica, "GET", "during")) == (b"the end", b"the end"))


@KINDS
@pytest.mark.parametrize("how", ["NOW", "no time", "SIGTERM"])
def test_the_end_comes_now(nodes, kind, how):
    primary, replica = group(nodes, kind, *(["--shutdown-on-sigterm", "nosave now"] if how == "SIGTERM" else []))
    try:
        if how == "no time":
            call(primary, "CONFIG", "SET", "shutdown-timeout", "0")
        if how == "SIGTERM":
            primary.process.send_signal(signal.SIGTERM)
        else:
            with primary.connect() as asking:
                asking.send("SHUTDOWN", "NOSAVE", *(["NOW"] if how == "NOW" else []))
                assert asking.at_end()
        assert ended(primary) == 0
    finally:
        replica.process.send_signal(signal.SIGCONT)


@KINDS
def test_a_time_is_over(nodes, kind):
    primary, replica = group(nodes, kind)
    try:
        call(primary, "CONFIG", "SET", "shutdown-timeout", "1")
        primary.process.send_signal(signal.SIGTERM)
        assert ended(primary) == 0
    finally:
        replica.process.send_signal(signal.SIGCONT)
