"""What redis-server answers, Snug answers of values that lie on disk: random commands and
random Lua programs over values large enough to go there.

    SNUG_RANDOM_COMMANDS, SNUG_RANDOM_SEED, SNUG_PROGRAMS   as in test_random.py, test_programs.py

`test_directed.py` runs its cases with a tier too (the variant `tiered` in conftest.py).
"""

import os
import random

import pytest

from differential import test_random
from differential.generators import ELEMENTS, GROUPS, TEXTS
from differential.programs import KEYS, Program
from differential.test_programs import plain, same
from harness.compare import Pair
from harness.resp import Closed, Silent, to_bytes
from harness.tier import Mover, grow, moved, values_going, with_words

pytestmark = pytest.mark.snug_only

#: Whoever has values go looks at all keys, and so finds out which have expired: a listener
#: hears of it earlier than at redis-server. Messages lie on no disk.
LEFT_OUT = {"notifications", "pubsub"}
TIERED = [group for group in GROUPS if group not in LEFT_OUT]
COMMANDS = test_random.COMMANDS // 2
PROGRAMS = int(os.environ.get("SNUG_PROGRAMS", 1500)) // 5


def is_plain_text(word):
    """Whether a word is nothing but a value: no number, no key, no option."""
    text = to_bytes(word)
    return len(text) > 3 and not any(text.startswith(b"%d" % n) for n in range(10)) and text[:1] not in b"+-. "


GROWN = grow([w for w in dict.fromkeys([*TEXTS, *ELEMENTS]) if is_plain_text(w)], longest=[b"q" * 200])


def grown(steps):
    # The longest common subsequence takes as much time as their lengths multiplied.
    return with_words([s for s in steps if s.name != "lcs"], GROWN)


@pytest.mark.parametrize("group", TIERED)
def test_random_commands_find_values_on_disk(pairs, group):
    pair = pairs.get("tiered")
    before = moved(pair.tested)
    test_random.search(pair, group, 2, COMMANDS, grown)
    went, came = (now - then for now, then in zip(moved(pair.tested), before))
    print(f"{went} values went to disk, {came} came back")
    assert went > COMMANDS // 20 and came > COMMANDS // 100, (went, came)


@pytest.mark.parametrize("group", TIERED)
def test_random_commands_while_values_go(pairs, group):
    """In pipelines, while another client has values go: whether a command finds its values
    on disk, in memory or on the way, nobody knows."""
    tiered = pairs.get("tiered")
    pair = Pair(tiered.reference, tiered.tested)
    before = moved(pair.tested)
    with values_going(pair.tested):
        test_random.search(pair, group, 3, COMMANDS, grown)
        # On a busy machine the commands may be over before the first value goes.
        while moved(pair.tested) == before:
            test_random.search(pair, group, 3, COMMANDS, grown)
    went, came = (now - then for now, then in zip(moved(pair.tested), before))
    print(f"{went} values went to disk, {came} came back")


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
def test_programs_find_values_on_disk(pairs, declared):
    """Keys that a script declares are brought before it begins, others when it comes to them."""
    number, died, went, came = 0, 0, 0, 0
    while number < PROGRAMS:
        pair = pairs.get("tiered")
        before = moved(pair.tested)
        number, survived = run_from(number, pair, declared)
        # redis-server 7.0 has holes that a program may find.
        died += not survived
        went, came = (total + now - then for total, now, then in zip((went, came), moved(pair.tested), before))
    assert died <= PROGRAMS // 50
    print(f"{went} values went to disk, {came} came back")
    # Those that are not declared come only where the program gets so far.
    assert went > PROGRAMS // 2 and came > PROGRAMS // (2 if declared else 15), (went, came)


def run_from(first, pair, declared):
    """Runs programs until all have run or redis-server has died; which is next, and whether
    it lives."""
    pair.clean()
    with pair.reference.connect() as reference, pair.tested.connect() as tested, pair.tested.connect() as third:
        mover = Mover(third)
        for number in range(first, PROGRAMS):
            seed = f"tiered-{number + test_random.SEED}"
            draws = random.Random(seed)
            program = Program(draws).text()
            if not declared:
                program = f"local KEYS = {{{', '.join(map(repr, KEYS))}}}\n{program}"
            told = f"seed {seed}\n{program}"
            for command in values(draws):
                assert reference.call(*command) == tested.call(*command), (told, command)
            keys = KEYS if declared else []
            mover.move()
            command = ["EVAL", program, str(len(keys)), *keys, "x", "2"]
            got = plain(tested.call(*command))
            try:
                wanted = plain(reference.call(*command))
            except (Closed, Silent):
                pair.reference.stop()
                return number + 1, False
            assert same(wanted, got), f"{told}\nredis {wanted}\nsnug {got}"
            digests = [c.call("DEBUG", "DIGEST") for c in (reference, tested)]
            assert digests[0] == digests[1], f"{told}\nkeys differ"
    return PROGRAMS, True


def values(draws):
    """Commands that give the keys of programs values which go to disk."""
    one, two, three = KEYS
    text = lambda: draws.choice(list(GROWN.values()))
    yield ("DEL", *KEYS)
    yield draws.choice([("SET", one, text()), ("SADD", one, text(), "x", "2")])
    yield draws.choice([("HSET", two, "f", "5", "x", text()), ("ZADD", two, "1", text(), "2", "m")])
    yield draws.choice([("RPUSH", three, text(), "x"), ("XADD", three, "1-1", "f", text())])
