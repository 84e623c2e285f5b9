"""Random command sequences, shrunk to the shortest that still differs.

    SNUG_RANDOM_COMMANDS   commands per group and protocol (default 4,000)
    SNUG_RANDOM_SEED       first seed (default 1); every run of CI is the same
"""

import os
import random

import pytest

from conftest import VARIANTS
from differential.generators import GROUPS, sequence
from harness.shrink import shrink

COMMANDS = int(os.environ.get("SNUG_RANDOM_COMMANDS", 4000))
SEED = int(os.environ.get("SNUG_RANDOM_SEED", 1))
LENGTH = 150
#: Groups run again in the other ways of running Snug, with fewer commands.
SUBSET = ["strings", "streams", "mixed"]


@pytest.mark.parametrize("protocol", [2, 3], ids=["resp2", "resp3"])
@pytest.mark.parametrize("group", GROUPS)
def test_random(pairs, group, protocol):
    search(pairs.get(), group, protocol, COMMANDS)


@pytest.mark.snug_only
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "usual"])
@pytest.mark.parametrize("group", SUBSET)
def test_random_in_variant(pairs, group, variant):
    search(pairs.get(variant), group, 2, COMMANDS // 2)


def search(pair, group, protocol, commands):
    for number in range(max(1, commands // LENGTH)):
        seed = f"{group}-{SEED + number}"
        steps = sequence(group, random.Random(seed), LENGTH)
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
