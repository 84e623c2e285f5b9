"""A client with keys of its own, and redis-server to say what is right.

Promises: every reply of the server under test is compared with redis-server's
to the same command, and from time to time every value, expiry and group.

Expiry. Both servers see one clock, but not in the same instant. So an owner
remembers when each of its keys may expire, and touches none whose time comes
within `HORIZON_SECONDS`. Afterwards the key must be gone, on both. A batch that
took about as long as that, on a busy machine, may have met an expiry in between:
its keys are then deleted on both sides, and counted as given up.

Memory. While `Pressure` is on, a command may be refused with -OOM; then it did
nothing, and redis-server is not asked. At any other time -OOM is a failure.
Commands are therefore sent in units that are refused as a whole: one command,
or one transaction.
"""

import collections
import random
import time

from harness import exceptions
from harness.resp import show, to_bytes, word
from soak.commands import CARRIES_EXPIRY, Commands, NoKey

HORIZON_SECONDS = 1.0
#: So long after its time a key has surely expired for both.
SURE_SECONDS = 0.05
LIFE_SECONDS = (1.5, 7.0)
BATCH_COMMANDS = 40
#: What is sent before replies are read must fit in the kernel's buffers.
BATCH_BYTES = 60_000
REMEMBERED_COMMANDS = 5000
SHOWN_COMMANDS = 25
OWN_ANSWERS = (b"ERR no such key", b"WRONGTYPE")


class Failure(Exception):
    """What was lost, or answered otherwise than by redis-server."""


class Owner:
    def __init__(self, name, snug, reference, pressure, seed):
        self.name, self.servers, self.pressure = name, (snug, reference), pressure
        self.counts = collections.Counter()
        self.rng = random.Random(f"{seed}:{name}")
        self.commands = Commands(name, self.rng, self.usable, self.a_time)
        self.times = collections.defaultdict(set)
        self.past = collections.deque(maxlen=REMEMBERED_COMMANDS)
        self.tested = self.reference = None
        self.connect()

    def connect(self):
        """Anew, both in the same protocol."""
        self.close()
        protocol = self.rng.choice([2, 3])
        self.tested, self.reference = (server.connect(protocol) for server in self.servers)

    def close(self):
        for connection in (self.tested, self.reference):
            if connection:
                connection.close()

    def run(self, ending):
        """Batch after batch until `ending` is set, then everything once more."""
        while not ending.is_set():
            roll = self.rng.random()
            if roll < 0.002:
                self.compare_all()
            elif roll < 0.006:
                self.connect()
            else:
                self.exchange(self.batch())
        self.compare_all()
        self.close()

    # What may expire when.

    def a_time(self):
        """A time in milliseconds at which a key shall expire."""
        return int((time.time() + self.rng.uniform(*LIFE_SECONDS)) * 1000)

    def usable(self, key):
        """Whether the key is sure not to expire while a batch runs."""
        now = time.time()
        return not self.may_expire(key, now - SURE_SECONDS, now + HORIZON_SECONDS)

    def may_expire(self, key, begin, end):
        times = self.times.get(key)
        if not times:
            return False
        times.difference_update([at for at in times if at / 1000 < begin - 60])
        return any(begin <= at / 1000 <= end for at in times)

    def note_times(self, command, deadlines):
        keys = self.commands.keys_of(command)
        for key in keys:
            self.times[key].update(deadlines)
        if command[0] in CARRIES_EXPIRY and len(keys) == 2:
            self.times[keys[1]] |= self.times[keys[0]]

    # What is sent.

    def batch(self):
        """Units of commands that stand or fall together."""
        units, size = [], 0
        most = self.rng.choice([1, 5, BATCH_COMMANDS, BATCH_COMMANDS])
        while len(units) < most and size < BATCH_BYTES:
            try:
                unit = self.unit()
            except NoKey:
                continue
            units.append(unit)
            size += sum(len(to_bytes(part)) for command in unit for part in command)
        return units

    def unit(self):
        """One command, or a transaction: what memory is refused to as a whole."""
        roll = self.rng.random()
        if roll < 0.02:
            return [("snug", self.rng.choice(["pack", "pack", "unpack", "object"]), self.any_key())]
        if roll < 0.05:
            inside = [command for _ in range(self.rng.randint(1, 6)) for command in self.drawn()]
            return [("multi",), *inside, (self.rng.choice(["exec"] * 9 + ["discard"]),)]
        if roll < 0.055:
            return self.commands.burst()
        drawn = self.drawn()
        return drawn if len(drawn) == 1 else [("multi",), *drawn, ("exec",)]

    def any_key(self):
        return self.commands.key(self.rng.choice(list(self.commands.keys)))

    def drawn(self):
        commands, deadlines = self.commands.draw()
        for command in commands:
            self.note_times(command, deadlines)
        return commands

    # What is compared.

    def exchange(self, units):
        """Sends units to the server under test, those that it did not refuse to
        redis-server too, and compares the replies."""
        if self.servers[0].kind != "snug":
            units = [unit for unit in units if unit[0][0] != "snug"]
        self.counts["commands"] += sum(map(len, units))
        begin, phase = time.time(), self.pressure.phase
        replies = iter(self.tested.pipeline([command for unit in units for command in unit]))
        answered = [(unit, [next(replies) for _ in unit]) for unit in units]
        refusable = self.pressure.was_on_since(phase)
        asked = [pair for pair in answered if not self.is_settled(*pair, refusable)]
        wanted = iter(self.reference.pipeline([command for unit, _ in asked for command in unit]))
        end = time.time() + SURE_SECONDS
        keys = {key for unit in units for command in unit for key in self.commands.keys_of(command)}
        if end - begin > HORIZON_SECONDS / 2 and any(self.may_expire(key, begin - SURE_SECONDS, end) for key in keys):
            self.give_up(keys)
            return
        for unit, got in asked:
            self.compare(unit, [next(wanted) for _ in unit], got)

    def is_settled(self, unit, got, refusable):
        """Whether there is nothing to ask redis-server: only Snug knows the
        command, or memory was short and nothing was done."""
        self.past.append((unit, got))
        if unit[0][0] == "snug":
            kind, value = got[0]
            if kind == "-" and not value.startswith(OWN_ANSWERS):
                self.fail(unit, "an integer or a map", got)
            self.counts["packed or unpacked by command"] += kind == ":" and value
            return True
        if not any(kind == "-" and b"OOM command not allowed" in value for kind, value in got):
            return False
        if not refusable:
            self.fail(unit, "no -OOM: memory is not short", got)
        if unit[-1] == ("exec",) and not got[-1][1].startswith(b"EXECABORT"):
            self.fail(unit, "EXECABORT after -OOM", got)
        self.counts["refused for want of memory"] += len(unit)
        return True

    def compare(self, unit, wanted, got):
        for command, a, b in zip(unit, wanted, got):
            self.counts["replies compared"] += 1
            if command == ("exec",) and a[0] == b[0] == "*" and a[1] and b[1]:
                fine = len(a[1]) == len(b[1]) and all(map(exceptions.equal, unit[1:-1], a[1], b[1]))
            else:
                # Expiries are set as times here, so no clock excuses a difference.
                fine = a == b or command[0] != "pexpiretime" and exceptions.equal(command, a, b)
            if not fine:
                self.fail(unit, show(a), [b])

    def compare_all(self):
        """Every key: type, value, expiry, groups and what is pending in them."""
        self.counts["full comparisons"] += 1
        for kind, keys in self.commands.keys.items():
            step = 1 if kind in ("large", "stream", *COLLECTIONS) else 50
            for at in range(0, len(keys), step):
                keys_now = [key for key in keys[at : at + step] if self.usable(key)]
                self.exchange([[command] for key in keys_now for command in everything_of(key, kind)])
                self.counts["values compared in full"] += len(keys_now)
        self.compare_names()

    def compare_names(self):
        """No key too many, none missing."""
        begin = time.time()
        unsure = {key for key in self.times if not self.usable(key)}
        sides = [connection.call("keys", f"{self.name}:*") for connection in (self.tested, self.reference)]
        if time.time() - begin > HORIZON_SECONDS:
            return
        got, wanted = ({name.decode() for _, name in reply[1]} - unsure for reply in sides)
        if got != wanted:
            raise Failure(f"{self.name}: keys lost: {sorted(wanted - got)}; that should not be: {sorted(got - wanted)}")

    def give_up(self, keys):
        self.counts["keys given up, the machine was too slow"] += len(keys)
        for connection in (self.tested, self.reference):
            connection.call("del", *keys)
        for key in keys:
            self.times.pop(key, None)

    def fail(self, unit, wanted, got):
        """With what was done to the same keys before."""
        keys = {key for command in unit for key in self.commands.keys_of(command)}
        of_these = [pair for pair in self.past if any(keys & set(self.commands.keys_of(command)) for command in pair[0])]
        lines = [f"    {text(command)}\n        -> {show(reply)[:200]}" for done, replies in of_these[-SHOWN_COMMANDS:] for command, reply in zip(done, replies)]
        said = "\n".join(show(reply)[:2000] for reply in got)
        raise Failure(f"{self.name}: {'; '.join(map(text, unit))}\nwanted: {wanted[:2000]}\ngot: {said}\nbefore it:\n" + "\n".join(lines))


def text(command):
    return " ".join(word(part)[:300] for part in command)


def everything_of(key, kind):
    """Commands whose replies together tell all there is about a key."""
    commands = [("type", key), ("pexpiretime", key)]
    if kind in ("stream", "odd"):
        commands += [("xrange", key, "-", "+"), ("xinfo", "stream", key, "full", "count", "0")]
    if kind in COLLECTIONS:
        return [*commands, (*COLLECTIONS[kind][:1], key, *COLLECTIONS[kind][1:])]
    return commands if kind == "stream" else [*commands, ("get", key), ("strlen", key)]


#: What tells all of a collection.
COLLECTIONS = {
    "list": ("lrange", 0, -1),
    "hash": ("hgetall",),
    "set": ("smembers",),
    "zset": ("zrange", 0, -1, "withscores"),
}
