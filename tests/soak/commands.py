"""Random commands for a soak, in the templates of `differential/generators.py`.

Keys are of kinds, by what is put into them; a command stays within a kind, so
that how much there is in all stays the same: large values are never copied over
small ones. Only `odd` mixes types, with small values.

Left out, as there: whatever depends on the clock or on another client's keys.
"""

import json
import random
import uuid

from differential.generators import DRAW, expand, templates_of

#: Kinds of keys: how many an owner has of each, and how often it takes one.
KINDS = {
    "tiny": (80, 30),
    "user": (150, 20),
    "order": (150, 20),
    "event": (100, 12),
    "letter": (100, 12),
    "number": (30, 10),
    "bits": (20, 10),
    "large": (6, 2),
    "stream": (6, 45),
    "list": (12, 20),
    "hash": (12, 20),
    "set": (12, 16),
    "zset": (12, 20),
    "odd": (12, 10),
}
DOCUMENTS = ("user", "order", "event", "letter")
GROUP_NAMES = ["g", "h"]
CONSUMERS = ["alice", "bob"]
WORDS = "the quick brown fox jumps over lazy dogs while invoices wait for customers who never came back".split()
NOTICE = " ".join(f"clause {n}: {WORDS[n * 7 % len(WORDS)]} shall not {WORDS[n * 5 % len(WORDS)]}," for n in range(9))
STATES = ["open", "paid", "shipped", "returned"]
STREAM_LENGTH = 700
#: Beyond this a string is not written at an offset.
SPANS = {"tiny": 90, "odd": 90, "large": 250_000}
LARGE_BYTES = (66_000, 250_000)

LIFE = """
del K
unlink K+
exists K+
touch K
type K
rename K K
renamenx K K
copy K K replace
copy K K
pexpireat K TIME
pexpireat K TIME
expireat K FAR
persist K
pexpiretime K
"""

STRINGS = """
set K V
set K V
set K V
set K V
set K V DEADLINE
set K V nx|xx|get|keepttl
setnx K V
getset K V
mset K V K V
get K
get K
get K
get K
mget K+
getdel K
getex K DEADLINE
getex K persist
append K TAIL
append K TAIL
strlen K
getrange K AT AT
getrange K AT AT
setrange K WITHIN TAIL
getbit K BO
bitcount K
""" + LIFE

NUMBERS = """
set K N
set K N DEADLINE
incr K
incr K
decr K
incrby K S
decrby K S
incrby K N
get K
getrange K S S
append K 1
strlen K
""" + LIFE

BITS = """
setbit K BO B
setbit K BO B
getbit K BO
bitcount K
bitcount K S S byte|bit
bitpos K B
bitpos K B S S byte|bit
bitop and|or|xor K K+
bitop not K K
bitfield K FIELDOP+
bitfield_ro K get FT FO
get K
set K V
""" + LIFE

#: Few of those that rewrite it all: a large value lives long enough to cool.
LARGE = """
set K V
set K V DEADLINE
get K
get K
mget K K
strlen K
getrange K AT AT
getrange K AT AT
getrange K AT AT
append K TAIL
setrange K WITHIN TAIL
setbit K BO B
getbit K BO
bitcount K
bitpos K B
copy K K replace
rename K K
del K
pexpireat K TIME
"""

STREAMS = """
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K maxlen LENGTH NEWID ROW
xadd K NEWID ROW
xadd K NEWID ROW
xadd K nomkstream NEWID ROW
xlen K
xrange K - + count 20
xrange K ID + count FEW
xrange K ID ID
xrange K (ID + count FEW
xrevrange K + - count FEW
xrevrange K ID - count FEW
xread count FEW streams K ID
xdel K ID+
xdel K ID+
xtrim K maxlen LENGTH
xgroup create K G 0|$ mkstream
xgroup setid K G ID
xreadgroup group G C count FEW streams K >
xreadgroup group G C count FEW streams K >
xreadgroup group G C count FEW noack? streams K >
xreadgroup group G C count FEW streams K 0
xack K G ID+
xack K G ID+
xpending K G
xpending K G - + FEW
xclaim K G C 0 ID+
xautoclaim K G C 0 0 count FEW
xinfo stream K
xinfo groups K
xinfo stream K full count FEW
"""

#: Commands of a stream that seldom come, so that it lives long enough to be packed.
STREAM_ENDS = """
del K
rename K K
copy K K replace
pexpireat K TIME
persist K
xtrim K maxlen FEW
xadd K nomkstream minid = ID NEWID ROW
xgroup destroy K G
xgroup destroy K G
xgroup delconsumer K G C
"""

#: Collections: short ones, and such as take many pages. What is drawn at random is left
#: out, and how many there are of members and fields bounds how much there is.
LISTS = """
rpush K ITEM+
rpush K ITEM+
rpush K ITEM ITEM ITEM ITEM ITEM ITEM ITEM ITEM
lpush K ITEM+
lpush K ITEM ITEM ITEM ITEM ITEM ITEM ITEM ITEM
lpushx K ITEM
rpushx K ITEM
lpop K
rpop K
lpop K FEW
rpop K FEW
llen K
lindex K PLACE
lset K PLACE ITEM
linsert K before|after ITEM ITEM
lrange K PLACE PLACE
lrange K 0 20
lrem K S ITEM
ltrim K 0 MOST
lpos K ITEM
lmove K K left|right left|right
rpoplpush K K
"""

HASHES = """
hset K FIELD ITEM
hset K FIELD ITEM FIELD ITEM FIELD ITEM FIELD ITEM FIELD ITEM FIELD ITEM
hset K FIELD ITEM FIELD N FIELD ITEM
hsetnx K FIELD ITEM
hget K FIELD
hget K FIELD
hmget K FIELD FIELD FIELD
hlen K
hexists K FIELD
hstrlen K FIELD
hdel K FIELD
hdel K FIELD FIELD FIELD
hincrby K COUNTER S
hincrby K COUNTER S
"""

SETS = """
sadd K MEMBER
sadd K MEMBER MEMBER MEMBER MEMBER MEMBER MEMBER MEMBER MEMBER
sadd K NUMBER NUMBER NUMBER NUMBER NUMBER NUMBER
srem K MEMBER
srem K MEMBER NUMBER MEMBER
sismember K MEMBER
smismember K MEMBER NUMBER MEMBER
scard K
smove K K MEMBER
sintercard 2 K K
sinter K K
"""

SORTED_SETS = """
zadd K SCORE MEMBER
zadd K SCORE MEMBER SCORE MEMBER SCORE MEMBER SCORE MEMBER SCORE MEMBER SCORE MEMBER
zadd K SCORE NUMBER SCORE NUMBER SCORE NUMBER
zadd K gt|lt|nx|xx SCORE MEMBER
zincrby K S MEMBER
zscore K MEMBER
zmscore K MEMBER NUMBER
zrank K MEMBER
zrevrank K NUMBER
zcard K
zcount K S SCORE
zrange K PLACE PLACE withscores
zrevrange K 0 20
zrangebyscore K S SCORE limit 0 30
zrem K MEMBER NUMBER
zpopmin K
zpopmax K
zpopmin K FEW
"""

#: Of all collections, what seldom comes, so that they live long enough to be packed.
COLLECTION_ENDS = {
    "list": "ltrim K PLACE PLACE\n",
    "hash": "",
    "set": "sinterstore K K K\nsunionstore K K K\nsdiffstore K K K\n",
    "zset": "zremrangebyrank K PLACE PLACE\nzremrangebyscore K S SCORE\nzunionstore K 2 K K\nzinterstore K 2 K K\n",
}

TEMPLATES = {
    **{
        kind: templates_of(text * 15 + LIFE + COLLECTION_ENDS[kind])
        for kind, text in [("list", LISTS), ("hash", HASHES), ("set", SETS), ("zset", SORTED_SETS)]
    },
    "tiny": templates_of(STRINGS),
    "number": templates_of(NUMBERS),
    "bits": templates_of(BITS),
    "large": templates_of(LARGE),
    "stream": templates_of(STREAMS * 30 + STREAM_ENDS),
    "odd": templates_of(STRINGS + NUMBERS + STREAMS + STREAM_ENDS),
    **{kind: templates_of(STRINGS) for kind in DOCUMENTS},
}
#: Commands whose destination takes over the source's expiry.
CARRIES_EXPIRY = {"rename", "renamenx", "copy"}


def words(rng, least, most):
    return " ".join(rng.choices(WORDS, k=rng.randint(least, most)))


def user(rng):
    number = rng.randrange(10_000)
    roles = rng.sample(["reader", "writer", "owner", "auditor"], rng.randint(1, 3))
    about = {"id": number, "name": words(rng, 2, 3), "mail": f"user{number}@example.org", "roles": roles, "text": words(rng, 40, 180)}
    return json.dumps(about).encode()


def order(rng):
    lines = [{"sku": f"{rng.randrange(2**32):08x}", "count": rng.randint(1, 9), "price": rng.randint(100, 9999) / 100} for _ in range(rng.randint(5, 30))]
    return json.dumps({"order": rng.randrange(10**9), "state": rng.choice(STATES), "lines": lines}).encode()


def event(rng):
    about = {"at": 1_700_000_000 + rng.random() * 1000, "host": f"node-{rng.randrange(40)}", "level": rng.choice(["info", "warn"]), "message": words(rng, 4, 12)}
    return json.dumps(about, separators=(",", ":")).encode()


def letter(rng):
    """Boilerplate, longer than what is said in it: phrases as long as a phrase may be."""
    return (words(rng, 0, 12) + NOTICE[: rng.choice([130, 200, 260, len(NOTICE)])] + words(rng, 0, 3)).encode()


def tiny(rng):
    return rng.choice([words(rng, 0, 8).encode(), rng.randbytes(rng.randint(0, 30)), str(rng.randint(-1000, 1000)).encode(), b"y" * rng.randint(40, 70)])


def bits(rng):
    return rng.choice([rng.randbytes(rng.randint(1, 500)), bytes(rng.randint(1, 2500)), b"\xf0" * rng.randint(1, 500)])


def large(rng):
    """Lines of documents, sometimes with a part that no codec makes shorter."""
    size = rng.randint(*LARGE_BYTES)
    block = b"\n".join(rng.choice([user, order])(rng) for _ in range(12))
    parts, length = [], 0
    while length < size:
        at = rng.randrange(len(block))
        part = block[at : at + rng.randint(500, 8000)] if rng.random() < 0.9 else rng.randbytes(4000)
        parts.append(part)
        length += len(part)
    return b"".join(parts)[:size]


VALUES = {"tiny": tiny, "odd": tiny, "user": user, "order": order, "event": event, "letter": letter, "bits": bits, "large": large}


def row(rng):
    """Fields of a stream's entry, of one of three shapes."""
    shape = rng.random()
    if shape < 0.6:
        return ["user_id", rng.randint(1, 5000), "action", rng.choice(["read", "write", "delete"]), "took", f"{rng.random():.6f}", "text", words(rng, 2, 10)]
    if shape < 0.9:
        return ["payload", event(rng)]
    return ["id", f"{rng.getrandbits(64):016x}", "noise", rng.randbytes(rng.randint(0, 60))]


def item(rng):
    """What is queued, or a field's value."""
    return rng.choice([event, tiny, user])(rng) if rng.random() < 0.3 else rng.choice(ITEMS)


def member(rng):
    return rng.choice(MEMBERS)


_some = random.Random(1)
#: So few that they are met again.
ITEMS = [*(event(_some) for _ in range(200)), *(words(_some, 1, 6).encode() for _ in range(200)), *(str(n * 37).encode() for n in range(200))]
MEMBERS = [*(str(uuid.UUID(int=_some.getrandbits(128))) for _ in range(600)), *(f"player:{n}" for n in range(600))]


class Commands:
    """Draws commands over the keys of one owner. `usable(key)` says whether a
    key may be touched now, `a_time()` draws when one shall expire."""

    def __init__(self, owner, rng, usable, a_time):
        self.rng, self.usable, self.a_time = rng, usable, a_time
        self.keys = {kind: [f"{owner}:{kind}:{n}" for n in range(count)] for kind, (count, _) in KINDS.items()}
        self.names = {key for keys in self.keys.values() for key in keys}
        self.last_id = [1_700_000_000_000, 0]
        self.ids = ["0-1"]
        self.deadlines = []
        self.draws = {kind: self.draw_of(kind) for kind in KINDS}

    def draw_of(self, kind):
        """What the words in capitals stand for, for keys of a kind."""
        span = SPANS.get(kind, 1500)
        return {
            **DRAW,
            "K": lambda rng: self.key(kind),
            "V": VALUES.get(kind, tiny),
            "TAIL": lambda rng: words(rng, 1, 300 if kind == "large" else 6),
            "AT": lambda rng: rng.randint(-span, span),
            "WITHIN": lambda rng: rng.randrange(span),
            "BO": lambda rng: rng.randrange(8 * span),
            "S": lambda rng: rng.randint(-20, 40),
            "N": lambda rng: rng.choice([rng.randint(-1000, 1000), rng.getrandbits(60), 2**63 - 1]),
            "B": lambda rng: rng.randint(0, 1),
            "TIME": lambda rng: self.deadline(),
            "DEADLINE": lambda rng: ["pxat", self.deadline()],
            "ID": lambda rng: rng.choice(self.ids),
            "(ID": lambda rng: "(" + rng.choice(self.ids),
            "NEWID": lambda rng: self.new_id(),
            "FEW": lambda rng: rng.randint(1, 25),
            "LENGTH": lambda rng: STREAM_LENGTH if rng.random() < 0.99 else rng.randint(100, STREAM_LENGTH),
            "G": lambda rng: rng.choice(GROUP_NAMES),
            "C": lambda rng: rng.choice(CONSUMERS),
            "ROW": row,
            "ITEM": item,
            "PLACE": lambda rng: rng.randint(-1100, 1100),
            "MOST": lambda rng: rng.randint(700, 1000),
            "FIELD": lambda rng: f"field:{rng.randrange(800)}",
            "COUNTER": lambda rng: f"count:{rng.randrange(20)}",
            "MEMBER": member,
            "NUMBER": lambda rng: rng.randrange(1500) * rng.choice([1, 1, 1, 10**9]),
            "SCORE": lambda rng: rng.choice([rng.randint(0, 5000), rng.randint(1_700_000_000, 1_700_000_900), rng.randint(0, 900) / 100]),
        }

    def key(self, kind):
        for _ in range(50):
            key = self.rng.choice(self.keys[kind])
            if self.usable(key):
                return key
        raise NoKey

    def deadline(self):
        self.deadlines.append(self.a_time())
        return self.deadlines[-1]

    def new_id(self):
        """Above every ID so far, whichever stream it is for."""
        if self.rng.random() < 0.3:
            self.last_id[1] += 1
        else:
            self.last_id = [self.last_id[0] + self.rng.choice([1, 1, 1, 7, 1000]), 0]
        self.ids.append("{}-{}".format(*self.last_id))
        del self.ids[: -2 * STREAM_LENGTH]
        return self.ids[-1]

    def draw(self):
        """Commands that belong together (nearly always one), and when keys of
        theirs may expire because of them."""
        kind = self.rng.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
        self.deadlines = []
        command, _ = expand(self.rng.choice(TEMPLATES[kind]), self.rng, self.draws[kind])
        return [tuple(command), *company(command)], self.deadlines

    def burst(self):
        """Entries enough to fill blocks of a stream, as one transaction."""
        key = self.key("stream")
        rows = [("xadd", key, "maxlen", STREAM_LENGTH, self.new_id(), *row(self.rng)) for _ in range(self.rng.randint(20, 120))]
        return [("multi",), *rows, ("exec",)]

    def keys_of(self, command):
        return [word for word in command if isinstance(word, str) and word in self.names]


def company(command):
    """Every group always has all of its consumers: 7.2 makes them earlier than
    redis-server 7.0 does, which makes none for a read in vain."""
    if command[:2] not in (["xgroup", "create"], ["xgroup", "delconsumer"]):
        return []
    return [("xgroup", "createconsumer", *command[2:4], consumer) for consumer in CONSUMERS]


class NoKey(Exception):
    """Every key that was tried is about to expire: try something else."""
