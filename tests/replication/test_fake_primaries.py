"""Primaries that break off or lose their frame: what came of them is not served."""

import pytest

from harness.listening import Listening
from harness.nodes import call, eventually

pytestmark = pytest.mark.snug_only

REPL_ID = b"0123456789abcdef0123456789abcdef01234567"
#: An RDB file of version 9 with keys that are well formed, cut off in front of its end.
HALF = b"REDIS0009\xfe\x00" + b"".join(b"\x00\x04k%03d\x01v" % n for n in range(200))
EMPTY = b"REDIS0009\xff" + bytes(8)


class Primary(Listening):
    """Answers a replica's handshake, sends what it is given, and keeps count of requests."""

    def __init__(self, payload, after=b""):
        self.payload, self.after, self.asked = payload, after, []
        super().__init__()

    def serve(self, connected):
        with connected, connected.makefile("rb") as lines:
            while head := lines.readline():
                words = [lines.read(int(lines.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
                name = words[0].upper()
                if name == b"PSYNC":
                    self.asked.append(words[1])
                    connected.sendall(b"+FULLRESYNC %s 0\r\n" % REPL_ID + self.payload)
                    if not self.after:
                        return
                    connected.sendall(self.after)
                elif words[:2] != [b"REPLCONF", b"ACK"]:
                    connected.sendall(b"+PONG\r\n" if name == b"PING" else b"+OK\r\n")


def bulk(payload, promised=None):
    return b"$%d\r\n" % (promised or len(payload)) + payload


def follow(server, primary):
    assert call(server, "REPLICAOF", "127.0.0.1", primary.port) == b"OK"
    eventually("a second attempt", lambda: len(primary.asked) > 1)


def has_nothing(server):
    """No key, as soon as it says how many there are: it goes on trying to load some."""
    def keys():
        with server.connect() as connection:
            kind, payload = connection.call("DBSIZE")
        assert kind == ":" or payload.startswith(b"LOADING "), payload
        return (kind, payload) if kind == ":" else None

    return eventually("an answer", keys) == (":", 0)


@pytest.mark.parametrize("mode", ["disabled", "on-empty-db", "swapdb"])
def test_half_a_data_set_is_none(nodes, mode):
    server = nodes.start("snug", "--repl-diskless-load", mode)
    follow(server, Primary(bulk(HALF, 2 * len(HALF))))
    assert has_nothing(server)
    assert call(server, "REPLICAOF", "NO", "ONE") == b"OK"
    assert call(server, "DBSIZE") == 0


def test_a_broken_data_set_leaves_nothing_of_itself(nodes):
    server = nodes.start("snug")
    # All of it is there, and in its middle something that is no type.
    follow(server, Primary(bulk(HALF + b"\x63" + EMPTY[9:])))
    assert has_nothing(server)


def test_a_line_in_the_stream_is_no_command(nodes):
    server = nodes.start("snug")
    stream = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n" + b"SET b 2\r\n"
    primary = Primary(bulk(EMPTY), stream)
    follow(server, primary)
    assert call(server, "EXISTS", "b") == 0
    # It does not ask for what would follow: where that is, it does not know.
    assert set(primary.asked) == {b"?"}
