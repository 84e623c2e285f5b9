"""Random commands of all types, from several connections at once."""

import random
import threading

from differential.generators import GROUPS, sequence
from harness.resp import Closed

#: What changes the server rather than keys, or waits.
LEFT_OUT = {
    *["debug", "config", "client", "monitor", "shutdown", "replicaof", "slaveof", "wait", "failover", "psync", "sync", "replconf"],
    *["subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe", "reset", "quit", "hello", "auth"],
    *["blpop", "brpop", "blmove", "brpoplpush", "blmpop", "bzpopmin", "bzpopmax", "bzmpop", "xread", "acl", "script", "function", "eval", "snug"],
    # Fields that expire are of Redis 7.4.
    *["hexpire", "hpexpire", "hexpireat", "hpexpireat", "hpersist", "hgetex", "hsetex", "hgetdel"],
}
WRITERS = 3


def commands(seed, count):
    """Commands of every group in turn, in a random order."""
    rng = random.Random(seed)
    groups = [group for group in GROUPS if group not in ("pubsub", "scripts")]
    made = []
    while len(made) < count:
        # A part of each group, so that types meet on the same keys.
        for step in sequence(rng.choice(groups), rng, 20):
            if step.action == "call" and step.name not in LEFT_OUT:
                made.append(step.args)
    return made[:count]


def write(node, seed, count, writers=WRITERS):
    """Has several clients send random commands at once. Errors are part of it."""
    failed = []

    def one(number):
        try:
            with node.connect() as connection:
                connection.call("SELECT", number % 2)
                drawn = commands(f"{seed}-{number}", count // writers)
                for at in range(0, len(drawn), 40):
                    connection.pipeline(drawn[at : at + 40])
        except Closed as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, f"{node.kind} closed a connection: {node.log()}"
