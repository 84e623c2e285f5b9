"""HyperLogLogs to the byte: random sequences, whole and broken sketches, against
redis-server; after each command the value itself is compared.

A sketch that is corrupt may be left in two ways, for Redis keeps what it had changed
before it came upon that: such a key is removed.
"""

import random

import pytest

from conftest import VARIANTS

KEYS = ["a", "b", "c", "d"]
COMMANDS = 1500
LIMITS = [0, 20, 100, 1000, 3000, 3000, 3000, 16000]


def elements(rng):
    def one():
        return rng.choice([str(rng.randrange(50)), str(rng.getrandbits(60)), rng.randbytes(rng.randrange(40))])

    return [one() for _ in range(rng.choice([0, 1, 1, 1, 2, 5, 50, 300]))]


def header(rng, form):
    cardinality = rng.choice([bytes(7) + b"\x80", bytes(8), rng.randbytes(8)])
    return b"HYLL" + bytes([form, rng.choice([0, 0, 0, 1]), 0, 0]) + cardinality


def runs(rng):
    """A sparse sketch's runs, which make up its registers or do not."""
    out, left, fits = b"", 16384, rng.random() < 0.6
    while left > 0 and (fits or rng.random() > 0.01):
        kind = rng.choice(["zero", "val", "val", "xzero"])
        most = {"zero": 64, "val": 4, "xzero": rng.choice([300, 16384])}[kind]
        count = rng.randint(1, most)
        count = min(count, left) if fits else count
        left -= count
        if kind == "zero":
            out += bytes([count - 1])
        elif kind == "val":
            out += bytes([0x80 | rng.randrange(32) << 2 | (count - 1)])
        else:
            out += bytes([0x40 | (count - 1) >> 8, (count - 1) & 255])
    return out


def dense(rng):
    registers = rng.choice([rng.randbytes(12288), b"\xff" * 12288, bytes(12288)])
    return (header(rng, 0) + registers)[: rng.choice([12304, 12304, 12303])]


def command(rng, key):
    several = [rng.choice([*KEYS, "none"]) for _ in range(rng.randint(1, 4))]
    choices = [
        (35, lambda: ["PFADD", key, *elements(rng)]),
        (15, lambda: ["PFCOUNT", key]),
        (10, lambda: ["PFCOUNT", *several]),
        (10, lambda: ["PFMERGE", key, *several]),
        (2, lambda: ["DEL", key]),
        (4, lambda: ["CONFIG", "SET", "hll-sparse-max-bytes", rng.choice(LIMITS)]),
        (6, lambda: ["PFDEBUG", rng.choice(["getreg", "decode", "decode", "encoding", "todense"]), key]),
        (8, lambda: ["SET", key, header(rng, 1) + runs(rng)]),
        (2, lambda: ["SET", key, dense(rng)]),
        (2, lambda: ["SET", key, rng.choice(["HYLL", "1", "x" * 200, header(rng, 2) + b"x"])]),
        (1, lambda: ["EXPIRE", key, 1000]),
    ]
    return rng.choices([make for _, make in choices], [weight for weight, _ in choices])[0]()


@pytest.mark.parametrize("variant", VARIANTS)
def test_sketches(pairs, variant):
    if variant != "usual" and pairs.target.is_redis:
        pytest.skip("the server under test is a redis-server")
    rng = random.Random(variant)
    pair = pairs.get(variant)
    pair.clean()
    servers = [pair.reference.connect(), pair.tested.connect()]

    def both(*args):
        wanted, got = (server.call(*args) for server in servers)
        return wanted, got

    for _ in range(COMMANDS):
        key = rng.choice(KEYS)
        args = command(rng, key)
        wanted, got = both(*args)
        assert got == wanted, f"{args[:6]}: {str(wanted)[:200]} here {str(got)[:200]}"
        if b"INVALIDOBJ" in str(wanted).encode():
            both("DEL", key)
        wanted, got = both("GET", key)
        assert got == wanted, f"after {args[:6]}: {str(wanted)[:200]} here {str(got)[:200]}"
    both("CONFIG", "SET", "hll-sparse-max-bytes", 3000)
    for server in servers:
        server.close()
    pair.clean()
