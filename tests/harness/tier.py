"""Has values go to the disk tier while a test runs, and tells how many did.

By itself a value goes when memory is short, which no test can wait for between any two
commands. `SNUG TIER` has it go at once: afterwards it is on disk, if it is one that may be.
"""

import contextlib
import itertools
import random
import string
import threading
from dataclasses import replace

from harness.resp import to_bytes
from harness.servers import info_fields


class Mover:
    """Has values go by a connection of its own."""

    def __init__(self, connection):
        self.connection = connection

    def move(self):
        """Whatever may lie on disk is there afterwards, in all databases."""
        told = info_fields(self.connection.call("INFO", "keyspace")[1].decode())
        numbers = [name.removeprefix("db") for name in told if name.startswith("db")]
        asked = [command for number in numbers for command in (("SELECT", number), ("KEYS", "*"))]
        replies = self.connection.pipeline(asked)
        going = []
        for number, (_, keys) in zip(numbers, replies[1::2]):
            going += [("SELECT", number), *(("SNUG", "TIER", key) for _, key in keys)]
        for kind, said in self.connection.pipeline(going):
            # A key may have expired since, and writing may be refused for now.
            assert kind != "-" or b"disk" not in said, said


@contextlib.contextmanager
def values_going(server):
    """While this lasts, values go again and again, whoever uses them."""
    ending, failed = threading.Event(), []

    def run():
        try:
            with server.connect() as connection:
                mover = Mover(connection)
                while not ending.is_set():
                    mover.move()
        except Exception as error:  # noqa: BLE001: it is raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
    if failed:
        raise failed[0]


def moved(server):
    """How many values have gone to disk and have come back since the server started."""
    fields = server.info()
    return int(fields["tier_values_left"]), int(fields["tier_values_brought"])


#: Lengths of grown words: just enough to go alone, and so much that a few of them make a
#: collection which no longer lies in its entry.
LENGTHS = itertools.cycle([80, 130, 90, 400, 2500, 70, 900])
#: More than what lies in an entry.
LONGEST = 70_000


def grow(words, longest):
    """A long word for each of these, the same in every run. Not of one letter over and
    over: it would be packed into less than what goes to disk."""
    draws = random.Random(7)
    letters = (string.ascii_letters + string.digits).encode()
    grown = {}
    for text in map(to_bytes, words):
        length = LONGEST if text in longest else next(LENGTHS)
        grown[text] = text + bytes(draws.choices(letters, k=length))
    return grown


def with_words(steps, words):
    """The steps with words in the place of others, wherever they stand but as a command."""
    return [replace(s, args=(*s.args[:1], *(words.get(to_bytes(a), a) for a in s.args[1:]))) for s in steps]
