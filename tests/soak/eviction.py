"""A second server, which evicts all the time. What it answers is either right or
missing: never an older value, never a mixture, never a stream with a hole.

One thread owns all of its keys and knows what it wrote last. A string is that or
absent. A stream is all that was added since it was last absent. What is written comes
to several times the limit, so much of it has to be evicted.
"""

import collections
import json
import random

from harness.servers import info_fields
from soak.commands import order, row, user, words
from soak.owner import Failure, text
from soak.weather import POLICIES, SETTINGS, expect

STRINGS, STREAMS = 6000, 20
#: Above what an empty server uses when it starts; what it packs with and
#: unpacked blocks come to up to 12 MB more, which cannot be evicted. A third of the
#: strings does not shrink, and comes to about this by itself.
LIMIT_BYTES = (13_000_000, 18_000_000)
EVICTING = ["allkeys-lru", "allkeys-lfu", "allkeys-random"]
BATCH_COMMANDS = 40


class Forgetful:
    """The server's keys, as far as they are known."""

    def __init__(self, soak):
        self.soak, self.rng = soak, random.Random(f"{soak.seed}:eviction")
        self.strings = {}
        self.streams = collections.defaultdict(list)
        self.next_id = 1

    def run(self, ending):
        with self.soak.evicting.connect() as c:
            empty = used(c)
            self.change(c, empty)
            while not ending.is_set():
                if self.rng.random() < 0.01:
                    self.change(c, empty)
                steps = [self.step() for _ in range(BATCH_COMMANDS)]
                for (command, check), reply in zip(steps, c.pipeline([command for command, _ in steps])):
                    if not check(reply):
                        raise Failure(f"evicting server: {text(command)}: {reply[0]} {str(reply[1])[:2000]}\n{state(c)}")
                    self.soak.counts["replies of the evicting server"] += 1

    def change(self, c, empty):
        """Another limit, or another way to evict or to pack."""
        limit = empty + self.rng.randint(*LIMIT_BYTES)
        expect(c, "+", "CONFIG", "SET", "maxmemory", limit, "maxmemory-policy", self.rng.choice(EVICTING))
        if self.soak.evicting.kind == "snug":
            name = self.rng.choice(list(SETTINGS))
            expect(c, "+", "CONFIG", "SET", name, self.rng.choice(SETTINGS[name]))
            expect(c, "+", "SNUG", "POLICY", "SET", json.dumps(self.rng.choice(POLICIES)))

    def step(self):
        """A command, and what tells whether its reply can be."""
        if self.rng.random() < 0.15:
            return self.stream_step()
        number = self.rng.randrange(STRINGS)
        key = f"{['user', 'order', 'noise'][number % 3]}:{number}"
        roll = self.rng.random()
        if roll < 0.4:
            return self.set(key, [user, order, noise][number % 3](self.rng))
        if roll < 0.5:
            return self.append(key, words(self.rng, 1, 4).encode())
        if roll < 0.6:
            begin, end = self.rng.randint(0, 500), self.rng.randint(0, 1500)
            return ("GETRANGE", key, begin, end), lambda reply: reply[1] == b"" or reply[1] == self.strings[key][begin : end + 1]
        return ("GET", key), lambda reply: reply[0] in "$_" and (reply[1] is None or reply[1] == self.strings.get(key))

    def set(self, key, value):
        def check(reply):
            self.strings[key] = value
            return reply == ("+", b"OK")

        return ("SET", key, value), check

    def append(self, key, tail):
        """The length tells whether it was there."""

        def check(reply):
            before = self.strings.get(key, b"")
            if reply != (":", len(before) + len(tail)):
                before = b""
            self.strings[key] = before + tail
            return reply == (":", len(before) + len(tail))

        return ("APPEND", key, tail), check

    def stream_step(self):
        key = f"stream:{self.rng.randrange(STREAMS)}"
        known = self.streams[key]
        roll = self.rng.random()
        if roll < 0.8:
            id, fields = f"{self.next_id}-1", [str(f) if not isinstance(f, bytes) else f for f in row(self.rng)]
            self.next_id += 1

            def added(reply):
                known.append((id.encode(), [f if isinstance(f, bytes) else f.encode() for f in fields]))
                return reply == ("$", id.encode())

            return ("XADD", key, id, *fields), added
        if roll < 0.85:

            def deleted(reply):
                known.clear()
                return reply[0] == ":"

            return ("DEL", key), deleted

        def suffix(reply):
            """What was there longest may be gone, with all that was there then."""
            got = [(entry[1][0][1], [field for _, field in entry[1][1][1]]) for entry in reply[1]]
            right = got == known[len(known) - len(got) :]
            del known[: len(known) - len(got)]
            return reply[0] == "*" and right

        return ("XRANGE", key, "-", "+"), suffix


def noise(rng):
    return rng.randbytes(rng.randint(2000, 24_000))


def state(connection):
    """For a failure: how much memory there was, and in what."""
    fields = info_fields(connection.call("INFO", "everything")[1].decode())
    return {name: value for name, value in fields.items() if "memory" in name or "evict" in name or "bytes" in name or name == "db0"}


def used(connection):
    return int(info_fields(expect(connection, "$", "INFO", "memory")[1].decode())["used_memory"])
