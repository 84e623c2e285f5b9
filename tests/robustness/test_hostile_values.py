"""Values made to mislead what learns from them: they cost little memory more than they do
unpacked, keep no other family from packing, and come back to the byte."""

import json
import random
import string

import pytest

from advise import used
from harness.bystander import MB
from harness.packing import about, until

COUNT, GOOD, AT_ONCE = 12_000, 3_000, 500


def document(rng):
    record = {
        "id": rng.randrange(10**6),
        "name": rng.choice(["alice", "bob", "carol"]),
        "mail": f"{rng.getrandbits(32):x}@example.org",
        "plan": rng.choice(["free", "pro"]),
        "created": f"2026-0{rng.randrange(1, 9)}-{rng.randrange(10, 28)}",
    }
    return json.dumps(record).encode()


def word(rng):
    return "".join(rng.choices(string.ascii_lowercase, k=8))


def of_new_shapes(rng):
    """Each key is of a shape of its own, and each value an object of other fields."""
    for n in range(COUNT):
        name = ":".join(word(rng) for _ in range(rng.randrange(1, 6)))
        yield f"{name}:{n}", json.dumps({word(rng): rng.randbytes(30).hex(), word(rng): n}).encode()


def poisoned(rng):
    """What is learnt from is nothing like what follows."""
    for n in range(COUNT):
        yield f"p:{n}", document(rng) if n < 1200 else rng.randbytes(130)


def alike(rng):
    """All begin as a document does, and go on as noise."""
    for n in range(COUNT):
        yield f"a:{n}", document(rng)[:60] + rng.randbytes(90)


def changing(rng):
    """A value is of another kind each time that it is written."""
    kinds = [
        lambda: document(rng),
        lambda: rng.randbytes(120),
        lambda: rng.randbytes(60).hex().encode(),
        lambda: " ".join(word(rng) for _ in range(14)).encode(),
        lambda: b"\x80\x04\x95" + rng.randbytes(100),
        lambda: b"".join(rng.randrange(1000).to_bytes(4, "little") for _ in range(30)),
        lambda: b"\x1f\x8b\x08" + rng.randbytes(100),
    ]
    for n in range(COUNT):
        yield f"c:{n % 4000}", kinds[n % len(kinds)]()


def load(connection, pairs):
    """Sets them all; what there is in the end."""
    pairs = list(pairs)
    for begin in range(0, len(pairs), AT_ONCE):
        connection.pipeline([("SET", key, value) for key, value in pairs[begin : begin + AT_ONCE]])
    return dict(pairs)


def good(numbers):
    rng = random.Random(numbers.start)
    return [(f"good:{n}", document(rng)) for n in numbers]


@pytest.mark.snug_only
@pytest.mark.parametrize("hostile", [of_new_shapes, poisoned, alike, changing])
def test_hostile_values_cost_little_and_harm_no_other_family(target, hostile):
    plain = target.start("--pack", "no", workers=1)
    try:
        with plain.connect() as c:
            empty = used(plain.info())
            load(c, hostile(random.Random(7)))
            unpacked = used(plain.info()) - empty
    finally:
        plain.stop()

    server = target.start("--pack-cold-after", "1", workers=1)
    try:
        with server.connect() as c:

            def are_packed(values):
                return all(about(c, key)[b"packed-bytes"] > 0 for key in values)

            values = load(c, good(range(GOOD)))
            until(lambda: are_packed(values), "a family on its own does not pack")
            before = used(server.info())
            values |= load(c, hostile(random.Random(7)))
            later = load(c, good(range(GOOD, 2 * GOOD)))
            until(lambda: are_packed(later), "another family does not pack any more")
            # What it packs with, and samples, come and go; what came later is less than a megabyte.
            until(lambda: used(server.info()) - before < 1.05 * unpacked + MB, "they cost much more than unpacked")
            values |= later
            for key, value in values.items():
                assert c.call("GET", key) == ("$", value), key
            assert server.info()["values_damaged"] == "0"
    finally:
        server.stop()
