"""Innocent clients beside a hostile one: they PING all the time, and every PING
must be answered. Also watches how much memory the server takes meanwhile."""

import threading

from harness.resp import Connection

MB = 1_000_000
#: Enough that each of a few workers gets one, whichever the kernel gives them to.
WARMING = 32


class Bystanders:
    """A context: so many connections, one thread, one PING after another.

    On leaving, all PINGs were answered, and the server's resident memory never
    rose more than `growth_bytes` above what it was on entering. By then every
    worker has answered: one that has not started yet would count its own memory
    (6 MB) as growth.
    """

    def __init__(self, server, growth_bytes, connections=4):
        self.server, self.growth_bytes = server, growth_bytes
        self.connections = [Connection(server.port) for _ in range(connections)]
        self.answered, self.wrong = 0, []
        self.ending = threading.Event()

    def __enter__(self):
        for _ in range(WARMING):
            with Connection(self.server.port) as connection:
                connection.call("PING")
        self.before = self.highest = self.server.rss_bytes()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def run(self):
        while not self.ending.wait(0.005):
            for connection in self.connections:
                try:
                    reply = connection.call("PING")
                except Exception as error:  # whatever it is, it is no PONG
                    self.wrong.append(repr(error))
                    return
                if reply != ("+", b"PONG"):
                    self.wrong.append(reply)
                self.answered += 1
            self.highest = max(self.highest, self.server.rss_bytes())

    def __exit__(self, kind, *_):
        self.ending.set()
        self.thread.join()
        if kind is None:
            assert not self.wrong, f"a bystander was disturbed: {self.wrong[:3]}"
            for connection in self.connections:
                assert connection.call("PING") == ("+", b"PONG")
            grown = max(self.highest, self.server.rss_bytes()) - self.before
            assert grown <= self.growth_bytes, f"grew by {grown / MB:.1f} MB, allowed {self.growth_bytes / MB:.1f}"
        for connection in self.connections:
            connection.close()
