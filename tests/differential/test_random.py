"""Random command sequences, shrunk to the shortest that still differs.

    SNUG_RANDOM_COMMANDS   commands per group and protocol (default 4,000)
    SNUG_RANDOM_SEED       first seed (default 1); every run of CI is the same
"""

import os
import random
from dataclasses import replace

import pytest

from conftest import VARIANTS
from differential.generators import GROUPS, KEYS, sequence
from harness.cases import parse_line
from harness.packing import until
from harness.servers import info_fields
from harness.shrink import shrink

COMMANDS = int(os.environ.get("SNUG_RANDOM_COMMANDS", 4000))
SEED = int(os.environ.get("SNUG_RANDOM_SEED", 1))
LENGTH = 150
#: Groups run again in the other ways of running Snug, with fewer commands. With a disk tier
#: in test_tiered.py, over values that are large enough for it.
SUBSET = ["strings", "streams", "groups", "lists", "hashes", "sets", "sorted_sets", "collections", "mixed"]


@pytest.mark.parametrize("protocol", [2, 3], ids=["resp2", "resp3"])
@pytest.mark.parametrize("group", GROUPS)
def test_random(pairs, group, protocol):
    search(pairs.get(), group, protocol, COMMANDS)


@pytest.mark.snug_only
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v not in ("usual", "tiered")])
@pytest.mark.parametrize("group", SUBSET)
def test_random_in_variant(pairs, group, variant):
    search(pairs.get(variant), group, 2, COMMANDS // 2)


@pytest.fixture(scope="module")
def cluster_pair(pairs):
    """Both in cluster mode, with all slots."""
    pair = pairs.get(cluster=True)
    cover = [parse_line("cluster addslotsrange 0 16383"), parse_line("until cluster_state:ok cluster info")]
    found = pair.difference(cover)
    assert not found, found
    yield pair
    pair.clean()
    found = pair.difference([parse_line("cluster flushslots")])
    assert not found, found


@pytest.mark.parametrize("group", ["strings", "keys", "transactions", "streams", "groups", "lists", "sets", "sorted_sets"])
def test_random_in_cluster_mode(cluster_pair, group):
    search(cluster_pair, group, 2, COMMANDS // 2, tagged)


#: Keys as applications have them, which are packed.
NAMES = {
    "a": "session:3f0c8a52-1b7e-4e6a-9d5b-0c2f7a91e344",
    "b": ":1:views.decorators.cache.cache_page.d41d8cd98f00b204e9800998ecf8427e",
    "c": "user:00012345:profile",
    "d": "user:12345:profile",
    "e": "{order:77}:LINES:D41D8CD98F00B204E9800998ECF8427E",
    "f": "session:3f0c8a52-1b7e-4e6a-9d5b-0c2f7a91e345",
}


@pytest.mark.snug_only
@pytest.mark.parametrize("group", [*SUBSET, "keys", "transactions"])
def test_random_over_packed_keys(pairs, group):
    """What keys share is learnt first, from many that have it."""
    pair = pairs.get("packs-at-once")
    shapes = ["session:{:08x}-1b7e-4e6a-9d5b-0c2f7a91e344", ":1:views.decorators.cache.cache_page.{:032x}", "user:{:09}:profile"]
    keys = [parse_line(f"set {shape.format(n * 7919)} v") for shape in shapes for n in range(300)]
    found = pair.difference(keys, 2, batch=True)
    assert not found, found
    with pair.tested.connect() as c:
        until(lambda: int(info_fields(c.call("INFO", "packing")[1].decode())["key_fragments"]) >= 3, "nothing was learnt")
    search(pair, group, 2, COMMANDS // 4, named)


def named(steps):
    return [replace(s, args=tuple(NAMES.get(a, a) for a in s.args)) for s in steps]


def tagged(steps):
    """Half of the keys moved into one slot, so that some commands cross slots."""
    together = {key: "{t}" + key for key in KEYS[::2]}
    return [replace(s, args=tuple(together.get(a, a) for a in s.args)) for s in steps]


def search(pair, group, protocol, commands, change=lambda steps: steps):
    for number in range(max(1, commands // LENGTH)):
        seed = f"{group}-{SEED + number}"
        steps = change(sequence(group, random.Random(seed), LENGTH))
        found = pair.difference(steps, protocol, batch=True)
        if found:
            pytest.fail(report(pair, seed, found, protocol), pytrace=False)


def report(pair, seed, found, protocol):
    """The shortest sequence with the same kind of difference, to be pasted."""
    steps = shrink(found.steps, lambda s: same_difference(pair, s, protocol, found))
    shortest = pair.difference(steps, protocol, batch=True) or found
    lines = "\n".join(s.text() for s in shortest.steps)
    return f"seed {seed}, RESP{protocol}\n{shortest}\n\nto be pasted into differential/cases/:\n\n== found by seed {seed} [resp{protocol}]\n{lines}\n"


def same_difference(pair, steps, protocol, found):
    again = pair.difference(steps, protocol, batch=True)
    return again is not None and again.step.name == found.step.name
