"""A third server, whose commits are replayed into a second store within it
(`DEBUG MIRROR`). Several clients write to the same keys at once, in pipelines and
transactions, while keys expire, are evicted, packed and unpacked; whenever it is
asked, the two stores hold the same.
"""

import random
import threading
import time

from soak.commands import Commands, NoKey
from soak.owner import Failure
from soak.weather import SETTINGS, expect

WRITERS = 3
BATCH_COMMANDS = 60
CHECK_SECONDS = 0.5
#: What is seldom done: whole databases change, or memory is short for a while.
RARE = [
    [("FLUSHDB",)],
    [("SWAPDB", "0", "1")],
    [("FLUSHALL", "ASYNC")],
    [("CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", "1mb"), ("CONFIG", "SET", "maxmemory", "0")],
]


class Mirrored:
    """The writers and the one who checks."""

    def __init__(self, soak):
        self.soak = soak

    def run(self, ending):
        server = self.soak.mirrored
        with server.connect() as c:
            expect(c, "+", "DEBUG", "MIRROR", "START")
            writers = [threading.Thread(target=self.soak.guard, args=(lambda ending, n=n: self.write(n, ending),), daemon=True) for n in range(WRITERS)]
            for writer in writers:
                writer.start()
            while not ending.is_set():
                ending.wait(CHECK_SECONDS)
                self.check(c)
            for writer in writers:
                writer.join()
            self.check(c)

    def check(self, c):
        reply = c.call("DEBUG", "MIRROR", "CHECK")
        if reply != ("+", b"OK"):
            raise Failure(f"mirrored server: {str(reply[1])[:4000]}")
        self.soak.counts["mirrors compared"] += 1

    def write(self, number, ending):
        rng = random.Random(f"{self.soak.seed}:mirrored:{number}")
        soon = lambda: int(time.time() * 1000) + rng.choice([1, 20, 500, 5000])
        commands = Commands("m", rng, lambda key: True, soon)
        with self.soak.mirrored.connect() as c:
            while not ending.is_set():
                roll = rng.random()
                if roll < 0.003:
                    c.pipeline(rng.choice(RARE))
                if roll > 0.997:
                    name = rng.choice(list(SETTINGS))
                    expect(c, "+", "CONFIG", "SET", name, rng.choice(SETTINGS[name]))
                batch = []
                while len(batch) < BATCH_COMMANDS:
                    try:
                        batch += commands.burst() if rng.random() < 0.02 else commands.draw()[0]
                    except NoKey:
                        continue
                if rng.random() < 0.3 and not any(command[0] in ("multi", "exec") for command in batch):
                    batch = [("multi",), *batch, ("exec",)]
                c.pipeline(batch)
                self.soak.counts["commands mirrored"] += len(batch)
