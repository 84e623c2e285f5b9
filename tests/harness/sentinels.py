"""Sentinels as Debian has them, unmodified, and what they say."""

from harness.resp import Connection
from harness.servers import REDIS_SERVER, Server

GROUP = "mine"

#: On a busy machine Sentinel takes its own pauses for a clock that leaps, and rests 30
#: seconds (TILT). It promotes no replica whose link was down ten times as long as
#: this before it noticed: with a second here, it would never fail over again.
DOWN_AFTER_MS = 4000
#: A rest, and several elections.
PATIENCE_SECONDS = 180


class Sentinel(Server):
    """`redis-sentinel` is redis-server by another name."""

    def __init__(self, primary, quorum=2, down_after_ms=DOWN_AFTER_MS):
        lines = [
            f"sentinel monitor {GROUP} 127.0.0.1 {primary.port} {quorum}",
            f"sentinel down-after-milliseconds {GROUP} {down_after_ms}",
            f"sentinel failover-timeout {GROUP} 5000",
            f"sentinel parallel-syncs {GROUP} 2",
        ]
        super().__init__([REDIS_SERVER], "sentinel", (), lines)
        path = self.directory / "server.conf"
        path.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {self.directory}\n{path.read_text()}")
        self.command = [REDIS_SERVER, str(path), "--sentinel"]

    def ask(self, *args):
        with Connection(self.port) as connection:
            return connection.call("SENTINEL", *args)[1]

    def primary(self):
        """The port of whoever it takes for the primary."""
        return int(self.ask("GET-MASTER-ADDR-BY-NAME", GROUP)[1][1])

    def known(self, what):
        """Facts of each replica or other Sentinel that it knows."""
        facts = [[word.decode() for _, word in fields] for _, fields in self.ask(what, GROUP)]
        return [dict(zip(fields[::2], fields[1::2])) for fields in facts]
