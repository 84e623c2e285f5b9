"""Accounts beside redis-server's: which commands are in which category, users of
random rules, and each key of each command."""

import os
import random

import pytest

from differential.test_command_table import plain
from harness import servers

SEED = int(os.environ.get("SNUG_RANDOM_SEED", 1))
#: Commands that differ between 7.0 and the 7.2 that Snug reports, or by nature.
NOT_COMPARED = {"quit"}


@pytest.fixture(scope="module")
def both(target):
    """Two servers, for users of these tests alone."""
    flags = ["--enable-debug-command", "local"]
    running = [servers.redis(*flags), target.start(*flags)]
    connections = [server.connect() for server in running]
    yield connections
    for server, connection in zip(running, connections):
        connection.close()
        server.stop()


def commands(connection):
    return {plain(name) for name in connection.call("COMMAND", "LIST")[1]} - NOT_COMPARED


def test_every_category_has_the_same_commands(both):
    known = set.intersection(*map(commands, both))
    categories = [[plain(name) for name in c.call("ACL", "CAT")[1]] for c in both]
    assert categories[0] == categories[1] and len(categories[0]) == 21
    for category in categories[0]:
        inside = [{plain(name) for name in c.call("ACL", "CAT", category)[1]} for c in both]
        assert inside[0] & known == inside[1] & known, category
        # Rules may name what Redis has and Snug does not serve.
        assert inside[0] <= inside[1], category


def test_rules_of_redis_name_what_is_not_served(both):
    def told(connection):
        """The user's rules; Redis tells them in no order."""
        (line,) = [w[1] for w in connection.call("ACL", "LIST")[1] if w[1].startswith(b"user u ")]
        return sorted(line.split())

    rules = ["reset", "on", "nopass", "~*", "+@all", "-module", "-cluster|failover", "+cluster|meet", "-cluster|forget"]
    for more in [rules, ["-@dangerous"], ["+module|list"], ["-cluster"], ["+cluster|slots"], ["+@admin"], ["-module|load"]]:
        assert [c.call("ACL", "SETUSER", "u", *more) for c in both] == [("+", b"OK")] * 2
        assert told(both[0]) == told(both[1]), more


def some_rules(rng, names, categories):
    """Rules as somebody in a hurry would write them."""
    rules = []
    for _ in range(rng.randrange(1, 9)):
        kind = rng.randrange(8)
        sign = rng.choice("+-")
        if kind < 2:
            rules.append(f"{sign}@{rng.choice([*categories, 'all', 'all'])}")
        elif kind < 5:
            rules.append(sign + rng.choice(names))
        elif kind == 5:
            rules.append(rng.choice(["~", "%R~", "%W~", "%RW~"]) + rng.choice(["a*", "b?", "[cd]*", "k", "*"]))
        elif kind == 6:
            rules.append("&" + rng.choice(["a*", "b", "*"]))
        else:
            rules.append(rng.choice(["allkeys", "resetkeys", "allchannels", "resetchannels", "+select|0", "+set|a1"]))
    if rng.random() < 0.3:
        inner = [r for r in some_rules(rng, names, categories) if not r.startswith("(")]
        rules.append(f"({' '.join(inner)})")
    return rules


#: What rules are made of, for rules that are wrong.
PIECES = ["+", "-", "@", "|", "~", "%", "R", "W", "RW", "&", "*", "(", ")", "<", ">", "#", "!", " ", "", "\xff", "all", "get", "config"]
PIECES += ["config|get", "select", "allkeys", "on", "off", "nopass", "reset", "resetkeys", "a", "0" * 64, "f" * 63, '"', "'", "client|id", "nosuch"]


def wrong_rules(rng, names, categories):
    """Rules as an attacker writes them, or somebody who guesses."""
    rules = some_rules(rng, names, categories) if rng.random() < 0.5 else []
    for _ in range(rng.randrange(1, 4)):
        if rules and rng.random() < 0.3:
            word = list(rng.choice(rules))
            at = rng.randrange(len(word) + 1)
            word[at : at + rng.randrange(2)] = rng.choice(PIECES)
        else:
            word = [rng.choice(PIECES) for _ in range(rng.randrange(1, 5))]
        rules.insert(rng.randrange(len(rules) + 1), "".join(word))
    return [rule.encode("latin-1") for rule in rules]


def test_wrong_rules_are_refused_in_the_same_words(both):
    rng = random.Random(SEED + 2)
    names = sorted(set.intersection(*map(commands, both)))
    categories = [plain(name) for name in both[0].call("ACL", "CAT")[1]]
    for _ in range(1500):
        rules = wrong_rules(rng, names, categories)
        told = [c.call("ACL", "SETUSER", "w", *rules) for c in both]
        assert told[0] == told[1], rules
        if rng.random() < 0.1:
            [c.call("ACL", "DELUSER", "w") for c in both]


KEYS = ["a1", "b1", "c1", "d1", "k", "x"]
#: Commands with their keys, as K, and channels, as C.
SHAPES = """
get K|set K v|set K v get|getdel K|getex K|append K v|strlen K|incr K|mget K K|mset K v K v|msetnx K v|del K K|unlink K
exists K K|type K|ttl K|expire K 1|persist K|rename K K|renamenx K K|copy K K|move K 1|touch K|object encoding K|memory usage K
setbit K 0 1|getbit K 0|bitcount K|bitop and K K K|bitfield K get u8 0|bitfield K set u8 0 1|bitfield_ro K get u8 0
lpush K v|rpop K|lrange K 0 1|llen K|lmove K K left left|rpoplpush K K|lmpop 2 K K left|blpop K K 1|linsert K before a b|lrem K 0 a
hset K f v|hget K f|hdel K f|hexists K f|hincrby K f 1|hgetall K|hsetnx K f v
sadd K m|spop K|smove K K m|sinter K K|sinterstore K K K|sunionstore K K|sdiffstore K K|sintercard 2 K K|smembers K|scard K
zadd K 1 m|zrem K m|zrange K 0 1|zrangestore K K 0 1|zunionstore K 2 K K|zinter 2 K K|zmpop 1 K min|bzpopmin K 1|zincrby K 1 m|zpopmin K
xadd K * f v|xlen K|xrange K - +|xread streams K K 0 0|xreadgroup group g c streams K >|xgroup create K g $|xdel K 1-1|xtrim K maxlen 1
geoadd K 1 1 m|georadius K 1 1 1 m store K|geosearchstore K K fromlonlat 1 1 byradius 1 m|pfadd K m|pfcount K K|pfmerge K K
sort K|sort K store K|sort_ro K|watch K|select 0|select 1|ping|config get x|config set x y|client id|client kill x
publish C m|subscribe C C|psubscribe C|ssubscribe C|spublish C m|multi|auth x|hello|keys x|flushall|acl whoami|debug sleep 0|debug object K
""".replace("\n", "|").strip("|").split("|")


def filled(shape, rng):
    return [rng.choice(KEYS) if w == "K" else rng.choice("abc") if w == "C" else w for w in shape.split(" ")]


def test_users_of_random_rules_may_do_the_same(both):
    """As ACL DRYRUN tells, command by command; and both tell rules that lead back."""
    rng = random.Random(SEED)
    names = sorted(set.intersection(*map(commands, both)))
    categories = [plain(name) for name in both[0].call("ACL", "CAT")[1]]
    for number in range(150):
        rules = some_rules(rng, names, categories)
        made = [c.call("ACL", "SETUSER", "u", "reset", *rules) for c in both]
        assert made[0] == made[1], rules
        tries = [filled(rng.choice(SHAPES), rng) for _ in range(60)]
        told = [[c.call("ACL", "DRYRUN", "u", *t) for t in tries] for c in both]
        for attempt, a, b in zip(tries, *told):
            assert a == b, f"{rules}: {attempt}"
        if number % 10 == 0:
            line = [w[1] for w in both[1].call("ACL", "LIST")[1] if w[1].startswith(b"user u ")][0]
            # What Snug tells of a user is understood by redis-server, where it has
            # the commands, and leads Snug back.
            words = line.split(b" ")[2:]
            assert both[1].call("ACL", "SETUSER", "u", "reset", *words)[0] == "+"
            again = [both[1].call("ACL", "DRYRUN", "u", *t) for t in tries]
            assert again == told[1], f"{rules}: {line}"


def test_random_commands_are_answered_alike(both):
    """The same user on both, its commands executed: replies and refusals."""
    rng = random.Random(SEED + 1)
    skip = ("blpop", "bzpopmin", "subscribe", "psubscribe", "ssubscribe", "multi", "client", "hello", "debug", "config", "xadd", "spop", "auth", "select")
    shapes = [s for s in SHAPES if s.split(" ")[0] not in skip]
    for c in both:
        c.call("FLUSHALL")
        c.call("ACL", "LOG", "RESET")
    for _ in range(25):
        rules = ["on", "nopass", "+@all", *[r for r in some_rules(rng, ["get", "set", "del"], ["write", "read"]) if "@all" not in r]]
        for c in both:
            assert c.call("ACL", "SETUSER", "v", "reset", *rules) == ("+", b"OK"), rules
        users = [c for c in (b.__class__(b.socket.getpeername()[1]) for b in both)]
        assert [u.call("AUTH", "v", "x") for u in users] == [("+", b"OK")] * 2
        for _ in range(40):
            words = filled(rng.choice(shapes), rng)
            replies = [u.call(*words) for u in users]
            kind = [r[0] for r in replies]
            if "-" in kind:
                assert replies[0] == replies[1], f"{rules}: {words}"
            else:
                assert kind[0] == kind[1], f"{rules}: {words}"
        for u in users:
            u.close()
    logs = [[entry_of(e) for e in c.call("ACL", "LOG", "128")[1]] for c in both]
    assert logs[0] == logs[1] and len(logs[0]) > 30


def entry_of(entry):
    fields = dict(zip([k[1] for k in entry[1][::2]], [v[1] for v in entry[1][1::2]]))
    return [fields[name] for name in (b"count", b"reason", b"context", b"object", b"username")]


#: What the walk over all commands puts where a key is not: an argument that fits.
ARGUMENTS = {
    "lmpop": ["1", "K", "left"], "blmpop": ["0", "1", "K", "left"], "zmpop": ["1", "K", "min"],
    "bzmpop": ["0", "1", "K", "min"], "sintercard": ["1", "K"], "zunion": ["1", "K"], "zinter": ["1", "K"],
    "zdiff": ["1", "K"], "zintercard": ["1", "K"], "zunionstore": ["K", "1", "K"], "zinterstore": ["K", "1", "K"],
    "zdiffstore": ["K", "1", "K"], "xread": ["streams", "K", "0"], "xreadgroup": ["group", "g", "c", "streams", "K", ">"],
    "sort": ["K", "store", "K"], "georadius": ["K", "0", "0", "1", "m", "store", "K"],
    "georadiusbymember": ["K", "m", "1", "m", "storedist", "K"], "bitop": ["and", "K", "K"],
    "eval": ["x", "1", "K"], "eval_ro": ["x", "1", "K"], "evalsha": ["x", "1", "K"], "evalsha_ro": ["x", "1", "K"],
    "fcall": ["x", "1", "K"], "fcall_ro": ["x", "1", "K"], "migrate": ["h", "1", "", "0", "1", "keys", "K"],
}  # fmt: skip


def with_keys(name, row):
    """A command's words with K where a key is, and where those are; None for a
    command without keys."""
    words = name.split("|")
    if name in ARGUMENTS:
        words = words + ARGUMENTS[name]
    else:
        first, last, step = row[3:6]
        if first == 0:
            return None
        count = max(abs(row[1]), first + 1)
        words += ["x"] * (count - len(words))
        end = last if last > 0 else count + last
        for at in range(first, end + 1, step):
            words[at] = "K"
    return words


@pytest.mark.snug_only
def test_no_key_of_any_command_is_open_to_who_may_not_use_it(both):
    """For every command and each of its keys: a user with other keys alone is
    refused, and one with all of them is not."""
    snug = both[1]
    rows = {}

    def collect(entry):
        row = [plain(v) for v in entry[1][:6]]
        specs = entry[1][8][1]
        channels = [f for s in specs for f in s[1][1][1] if f[1] == b"not_key"]
        rows[row[0]] = (row, bool(specs) and not channels, [plain(s[1][1]) for s in specs])
        for sub in entry[1][9][1]:
            collect(sub)

    for entry in snug.call("COMMAND")[1]:
        collect(entry)
    assert snug.call("ACL", "SETUSER", "w", "reset", "+@all", "~mine*")[0] == "+"
    assert snug.call("ACL", "SETUSER", "r", "reset", "+@all", "%R~mine*")[0] == "+"
    walked = 0
    for name, (row, has_keys, specs) in sorted(rows.items()):
        words = with_keys(name, row) if has_keys else None
        if has_keys:
            assert words, f"{name}: the walk does not know its arguments"
        if not words:
            continue
        walked += 1
        keys = [at for at, word in enumerate(words) if word == "K"]
        mine = [f"mine{at}" if at in keys else word for at, word in enumerate(words)]
        allowed = snug.call("ACL", "DRYRUN", "w", *mine)
        assert allowed == ("+", b"OK"), f"{name}: {mine}: {allowed}"
        for at in keys:
            other = [*mine[:at], "other", *mine[at + 1 :]]
            wanted = ("$", b"This user has no permissions to access the 'other' key")
            assert snug.call("ACL", "DRYRUN", "w", *other) == wanted, f"{name}: {other}"
        # Who may read alone: as the key specifications say.
        writes = any({"update", "insert", "delete"} & set(flags) for flags in specs)
        if name not in ("set", "bitfield", "sort", "georadius", "georadiusbymember"):
            read = snug.call("ACL", "DRYRUN", "r", *mine)
            assert (read == ("+", b"OK")) == (not writes), f"{name}: {mine}: {read}"
    assert walked > 150
