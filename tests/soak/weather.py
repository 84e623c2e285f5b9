"""What goes on while the owners work: settings that change, memory that is short,
clients that come, go, and read slowly.

Each of these is a function of one thread, `(soak, ending)`, which works until
`ending` is set and raises `Failure` for an answer that cannot be.
"""

import contextlib
import json
import random
import socket

from harness.resp import Silent, encode
from harness.servers import info_fields
from soak.owner import Failure

#: Settings that change, and to what. What is likely is listed more than once.
SETTINGS = {
    "pack": ["yes", "yes", "yes", "yes", "no"],
    "pack-cold-after": [0, 0, 1, 2],
    "pack-min-size": [1, 64, 64, 1000],
    "pack-min-saving": [-100_000, 0, 30, 30, 60],
    "pack-cpu-percent": [1, 10, 50, 100],
    "pack-level": [-7, 1, 3, 3, 9, 15],
    "pack-dictionary-size": [0, 1024, 2048, 2048, 16_384],
    "pack-slice-us": [50, 250, 2000],
    "hz": [10, 100, 500],
    "stream-node-max-entries": [4, 100, 100],
}
POLICIES = [
    {},
    {},
    {"level": 9},
    {"level": 1, "skip": ["application/json"]},
    {"types": {"application/json": 12, "text/": 1}},
    {"rules": [{"type": "stream", "codec": "none"}]},
    {"rules": [{"type": "stream", "codec": "lz4"}, {"type": "string", "codec": "gzip"}]},
    {"rules": [{"key": "*:user:*", "codec": "snappy"}, {"key": "*:order:*", "codec": "lz4"}, {"key": "*:large:*", "codec": "brotli", "level": 4}]},
    {"rules": [{"key": "*:event:*", "codec": "none"}, {"size_min": 65_536, "codec": "zlib", "level": 6}]},
    {"rules": [{"mime": "application/json", "level": 5}, {"codec": "lz4", "size_max": 200}]},
]
REFUSED_POLICIES = ["{", '{"level": 99}', '{"rules": [{"codec": "zip"}]}']
LOOKS = [
    ["INFO", "everything"],
    ["SNUG", "FAMILIES"],
    ["SNUG", "DICTIONARIES"],
    ["SNUG", "POLICY", "GET"],
    ["MEMORY", "DOCTOR"],
    ["MEMORY", "STATS"],
    ["DBSIZE"],
    ["SCAN", "0", "COUNT", "1000"],
    ["CLIENT", "LIST"],
]
SLOW_KEYS = 3


class Pressure:
    """When memory is short, so that who is refused knows whether that is right.
    `phase` counts the changes, both ways."""

    def __init__(self):
        self.on, self.phase, self.times = False, 0, 0

    def was_on_since(self, phase):
        """Whether it was on at any moment since `phase` was read."""
        return self.on or self.phase != phase

    def begin(self):
        self.on, self.phase, self.times = True, self.phase + 1, self.times + 1

    def end(self):
        self.on, self.phase = False, self.phase + 1


def expect(connection, wanted, *command):
    reply = connection.call(*command)
    if reply[0] not in wanted:
        raise Failure(f"{command}: {reply}")
    return reply


def change_settings(soak, ending):
    """Packing's settings and policies at random, and looks at what they do."""
    rng = random.Random(f"{soak.seed}:settings")
    with soak.snug.connect() as c:
        while not ending.wait(rng.uniform(0.02, 0.4)):
            roll = rng.random()
            if roll < 0.2:
                expect(c, "$*%:", *rng.choice(LOOKS))
            elif roll < 0.25:
                expect(c, "-", "SNUG", "POLICY", "SET", rng.choice(REFUSED_POLICIES))
            elif roll < 0.5:
                policy = rng.choice(POLICIES)
                how = rng.choice([("SNUG", "POLICY", "SET"), ("CONFIG", "SET", "pack-policy")])
                expect(c, "+", *how, json.dumps(policy))
                if json.loads(expect(c, "$", "SNUG", "POLICY", "GET")[1]) != policy:
                    raise Failure(f"the policy is not what was set: {policy}")
                soak.counts["policies set"] += 1
            else:
                name = rng.choice(list(SETTINGS))
                expect(c, "+", "CONFIG", "SET", name, rng.choice(SETTINGS[name]))
                soak.counts["settings changed"] += 1


def press_memory(soak, ending):
    """Phases in which memory is short, without eviction: what is there stays."""
    rng = random.Random(f"{soak.seed}:pressure")
    with soak.snug.connect() as c:
        while not ending.wait(min(rng.uniform(2, 8), soak.seconds * rng.uniform(0.05, 0.15))):
            used = int(info_fields(expect(c, "$", "INFO", "memory")[1].decode())["used_memory"])
            soak.pressure.begin()
            expect(c, "+", "CONFIG", "SET", "maxmemory", int(used * rng.uniform(0.9, 1.02)))
            ending.wait(min(rng.uniform(0.2, 2), soak.seconds * 0.05))
            expect(c, "+", "CONFIG", "SET", "maxmemory", 0)
            soak.pressure.end()


def send_away(soak, ending):
    """Values that go to the disk tier although memory is not short."""
    rng = random.Random(f"{soak.seed}:tier")
    with soak.snug.connect() as one, soak.mirrored.connect() as other:
        while not ending.wait(rng.uniform(0, 0.01)):
            c = rng.choice([one, other])
            key = expect(c, "$_", "RANDOMKEY")[1]
            # It may have gone meanwhile.
            if key is not None and expect(c, ":-", "SNUG", "TIER", key) == (":", 1):
                soak.counts["values sent to disk"] += 1


def visit(soak, ending):
    """Clients that come and go, most of them without a good-bye."""
    rng = random.Random(f"{soak.seed}:visitors")
    key = lambda kind: f"{rng.choice(soak.names)}:{kind}:{rng.randrange(6)}"
    visits = [
        lambda: [["PING"]],
        lambda: [["GET", key("large")]] * 20,
        lambda: [["MGET", *[key("large") for _ in range(5)]], ["XRANGE", key("stream"), "-", "+"]],
        lambda: [["SUBSCRIBE", "news"], ["PING"]],
        lambda: [["MULTI"], ["GET", key("user")], ["SET", key("user"), "never"]],
        lambda: [["WATCH", key("order")], ["GET", key("order")]],
        lambda: [["XREAD", "BLOCK", "0", "STREAMS", key("stream"), "$"]],
        lambda: [["HELLO", "3"], ["CLIENT", "SETNAME", "visitor"], ["BITCOUNT", key("large")]],
        lambda: [["GETRANGE", key("large"), "1000", "200000"]] * 3,
    ]
    while not ending.wait(rng.uniform(0.005, 0.1)):
        with soak.snug.connect() as c:
            data = b"".join(map(encode, rng.choice(visits)()))
            c.send_raw(data if rng.random() < 0.7 else data[: rng.randrange(len(data))])
            if rng.random() < 0.3:
                with contextlib.suppress(Silent):
                    c.frame(wait=0.05)
            if rng.random() < 0.3:
                # Closes with a reset, whatever is on its way.
                c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        soak.counts["visits"] += 1


def slow_value(number, version):
    """A value that tells which it is."""
    rng = random.Random(f"{number}:{version}")
    block = b" ".join(b"%d" % rng.randrange(1000) for _ in range(2000)) + rng.randbytes(500)
    head = b"%d:%d " % (number, version)
    return head + block * (rng.randint(100_000, 400_000) // len(block))


def read_slowly(soak, ending):
    """Many large replies asked for at once and taken at leisure. Values that are
    overwritten meanwhile come as they were when they were read."""
    rng = random.Random(f"{soak.seed}:slow")
    versions = [0] * SLOW_KEYS
    with soak.snug.connect() as c:
        for number in range(SLOW_KEYS):
            while not write_slow(soak, c, number, 0) and not ending.wait(0.01):
                pass
        while not ending.wait(0.05):
            number = rng.randrange(SLOW_KEYS)
            key = f"slow:{number}"
            oldest = versions[number]
            with soak.snug.connect(receive_buffer=16_384) as slow:
                slow.send_raw(encode(["GET", key]) * 12)
                if rng.random() < 0.5 and write_slow(soak, c, number, oldest + 1):
                    versions[number] += 1
                right = [("$", slow_value(number, version)) for version in range(oldest, versions[number] + 1)]
                for _ in range(rng.choice([3, 12])):
                    ending.wait(rng.uniform(0, 0.1))
                    reply = slow.frame()
                    if reply not in right:
                        raise Failure(f"{key}: a slow reader got {reply[0]} {len(reply[1] or b'')} bytes, {(reply[1] or b'')[:40]}..., which was never there")
                    # It never goes back to what was before.
                    del right[: right.index(reply)]
                    soak.counts["slow replies"] += 1


def write_slow(soak, connection, number, version):
    """Whether it could be written: memory may be short."""
    phase = soak.pressure.phase
    reply = connection.call("SET", f"slow:{number}", slow_value(number, version))
    if reply[0] == "-" and reply[1].startswith(b"OOM") and soak.pressure.was_on_since(phase):
        return False
    if reply != ("+", b"OK"):
        raise Failure(f"SET slow:{number}: {reply}")
    return True
