"""Where a reply may differ from redis-server's, one by one, and why.

Everything that is not in this table is compared type for type and word for
word. An error is always compared word for word, unless its rule is `error_of`.
A rule is (pattern over the command's words in lower case, comparison, reason);
the first that matches counts. In a pattern * stands for anything.
"""

import fnmatch
import itertools
import re

from harness.resp import to_bytes

SCALARS = {"+", "$", ":", ",", "="}


def same(a, b):
    return a == b


def same_type(a, b):
    return a[0] == b[0] and (a[1] is None) == (b[1] is None)


def same_shape(a, b):
    """Types and lengths equal at every depth."""
    if a[0] != b[0]:
        return False
    if isinstance(a[1], list) and isinstance(b[1], list):
        if a[0] == "%":
            return len(a[1]) == len(b[1]) and all(
                same(x, y) and same_shape(v, w) for (x, v), (y, w) in zip(a[1], b[1])
            )
        return len(a[1]) == len(b[1]) and all(map(same_shape, a[1], b[1]))
    return same_type(a, b)


def unordered(a, b):
    """The same elements (or pairs) in any order."""
    if a[0] != b[0] or not isinstance(a[1], list) or not isinstance(b[1], list):
        return a == b
    return sorted(map(repr, a[1])) == sorted(map(repr, b[1]))


def unordered_pairs(a, b):
    """A map, or RESP2's flat list of pairs, in any order of its keys."""
    if a[0] != b[0] or not isinstance(a[1], list) or not isinstance(b[1], list):
        return a == b
    return sorted(map(repr, pairs(a))) == sorted(map(repr, pairs(b)))


def rows(reply):
    """Elements or pairs: RESP3 nests what RESP2 lays flat."""
    nested = any(element[0] == "*" for element in reply[1])
    return reply[1] if nested else pairs(reply)


def unordered_rows(a, b):
    """A sample of fields with values, or of members with scores, in any order."""
    if a[0] != b[0] or not isinstance(a[1], list) or not isinstance(b[1], list):
        return a == b
    return len(a[1]) == len(b[1]) and sorted(map(repr, rows(a))) == sorted(map(repr, rows(b)))


def scanned(compare):
    """A cursor, which must be equal, and what was found."""

    def found(a, b):
        if a[0] != b[0] or not a[1] or not b[1] or len(a[1]) != len(b[1]):
            return a == b
        return a[1][0] == b[1][0] and compare(a[1][1], b[1][1])

    return found


def pairs(reply):
    if reply[0] == "%":
        return reply[1]
    return list(zip(reply[1][::2], reply[1][1::2]))


def numbers_within(tolerance):
    """Numbers this close count as equal; negative ones (-1, -2) must be equal."""

    def compare(a, b):
        if a[0] != ":" or b[0] != ":" or min(a[1], b[1]) < 0:
            return a == b
        return abs(a[1] - b[1]) <= tolerance

    return compare


def except_fields(*names):
    """Maps compared in order, the values of the named fields by type alone."""
    left_out = {n.encode() for n in names}

    def compare(a, b):
        if a[0] != b[0] or a[0] not in "*%" or a[1] is None or b[1] is None:
            return a == b
        left, right = pairs(a), pairs(b)
        return len(left) == len(right) and all(
            k == m and (v == w or (k[1] in left_out and v[0] == w[0])) for (k, v), (m, w) in zip(left, right)
        )

    return compare


def same_keys(a, b):
    """Maps with the same keys in the same order and values of the same types."""
    if a[0] != b[0] or a[0] not in "*%":
        return a == b
    return [(k, v[0]) for k, v in pairs(a)] == [(k, v[0]) for k, v in pairs(b)]


def with_holes(pattern):
    """Text equal once every match of `pattern` is replaced."""

    def blank(reply):
        kind, value = reply
        if isinstance(value, bytes):
            return (kind, re.sub(pattern.encode(), b"?", value))
        if isinstance(value, list) and kind == "%":
            return (kind, [(blank(k), blank(v)) for k, v in value])
        if isinstance(value, list):
            return (kind, [blank(v) for v in value])
        return reply

    return lambda a, b: blank(a) == blank(b)


def client_lines(a, b):
    """CLIENT LIST: as many lines, each with redis-server's fields first."""
    if a[0] != b[0] or not isinstance(a[1], bytes) or not isinstance(b[1], bytes):
        return a == b
    left, right = a[1].splitlines(), b[1].splitlines()
    if len(left) != len(right):
        return False
    stable = (b"name", b"db", b"sub", b"psub", b"ssub", b"multi", b"watch", b"cmd", b"user", b"resp", b"redir", b"flags")
    for x, y in zip(left, right):
        wanted = dict(f.split(b"=", 1) for f in x.split(b" "))
        got = dict(f.split(b"=", 1) for f in y.split(b" "))
        if not set(wanted) <= set(got):
            return False
        if any(k in wanted and wanted[k] != got[k] for k in stable):
            return False
    return True


def rules(line):
    """A user's rules as told: commands in any order behind `+@all` or `-@all`."""
    parts = []
    for part in re.split(rb"([()])", line):
        words = part.split(b" ")
        first = next((i for i, w in enumerate(words) if w in (b"+@all", b"-@all")), len(words))
        parts += words[: first + 1] + sorted(words[first + 1 :])
    return parts


def told_rules(a, b):
    """ACL LIST and ACL GETUSER: equal but for the order of single commands."""
    if a[0] != b[0]:
        return False
    if isinstance(a[1], bytes):
        return rules(a[1]) == rules(b[1])
    if isinstance(a[1], list):
        left, right = (pairs(a), pairs(b)) if a[0] == "%" else (a[1], b[1])
        flat = lambda items: [x for i in items for x in (i if isinstance(i[0], tuple) else (i,))]
        left, right = flat(left), flat(right)
        return len(left) == len(right) and all(map(told_rules, left, right))
    return a == b


def acl_log(a, b):
    """ACL LOG: redis-server's fields first, but for the age; clients as CLIENT LIST."""
    if a[0] != b[0] or not isinstance(a[1], list) or len(a[1]) != len(b[1]):
        return a == b
    for left, right in zip(a[1], b[1]):
        if left[0] != right[0]:
            return False
        for (name, x), (other, y) in zip(pairs(left), pairs(right)):
            same = client_lines if name[1] == b"client-info" else same_type if name[1] == b"age-seconds" else None
            if name != other or not (same(x, y) if same else x == y):
                return False
    return True


def known_to_both(a, b):
    """ACL CAT of a category: no command of one that the other has elsewhere; which
    commands each has is compared in test_acl.py."""
    return a[0] == b[0] and (a[0] == "-" or isinstance(a[1], list))


def error_of(a, b):
    """Both are errors with the same first word."""
    return a[0] == b[0] == "-" and a[1].split(b" ")[0] == b[1].split(b" ")[0]


def as_map(reply):
    """A map, or RESP2's flat list, by name."""
    return {key[1]: value for key, value in pairs(reply)}


def consumers(a, b):
    """XINFO CONSUMERS: names and what is pending; 7.2 adds `inactive`."""
    if a[0] != b[0] or len(a[1]) != len(b[1]):
        return False
    left, right = map(as_map, a[1]), map(as_map, b[1])
    return all(x.keys() <= y.keys() and all(x[f] == y[f] for f in (b"name", b"pending")) for x, y in zip(left, right))


def without_times(rows, column):
    """Rows of pending entries without the column that holds a time."""
    return [(kind, row[:column] + row[column + 1 :]) for kind, row in rows[1]]


def pending(a, b):
    """XPENDING of a range: all but how long each has been idle."""
    return a[0] == b[0] and without_times(a, 2) == without_times(b, 2)


def full_consumer(reply):
    fields = as_map(reply)
    return fields[b"name"], fields[b"pel-count"], without_times(fields[b"pending"], 1)


def full_group(reply):
    fields = as_map(reply)
    rest = [fields[f] for f in (b"name", b"last-delivered-id", b"entries-read", b"lag", b"pel-count")]
    return rest, without_times(fields[b"pending"], 2), list(map(full_consumer, fields[b"consumers"][1]))


def stream_full(a, b):
    """XINFO STREAM FULL: all but radix tree figures and times."""
    if not same_keys(a, b):
        return False
    left, right = as_map(a), as_map(b)
    others = set(left) - {b"radix-tree-keys", b"radix-tree-nodes", b"groups"}
    if any(left[f] != right[f] for f in others):
        return False
    return list(map(full_group, left[b"groups"][1])) == list(map(full_group, right[b"groups"][1]))


def usages(reply):
    """The lines of a container's help that name a subcommand and its arguments."""
    lines = [text.decode() for _, text in reply[1]]
    return [line for line in lines[1:] if not line.startswith(" ")]


def own_help(a, b):
    """A container's help: Redis's first line and last subcommand, then for each
    subcommand that both have Redis's usage, in its order, each described by one
    line in Snug's own words."""
    if a[0] != b[0] or not isinstance(a[1], list) or not isinstance(b[1], list):
        return a == b
    if a[1][0] != b[1][0] or {kind for kind, _ in a[1]} != {kind for kind, _ in b[1]}:
        return False
    # Whichever of the two is Snug: it may know more, and it may know less.
    left, right = usages(a), usages(b)
    first = lambda lines: {line.split(" ")[0] for line in lines}
    both = first(left) & first(right)
    shared = lambda lines: [line for line in lines if line.split(" ")[0] in both]
    return shared(left) == shared(right) and left[-1] == right[-1] == "HELP" and len(both) > 2


RULES = [
    ("* help", own_help, "the lines are in Snug's own words"),
    ("acl genpass*", same_type, "random"),
    ("acl log*", acl_log, "times, connection numbers, memory; 7.2 adds fields"),
    ("acl cat *", known_to_both, "in no order, and of commands that only one has"),
    ("acl list", told_rules, "redis-server tells single commands in the order of a hash table"),
    ("acl getuser *", told_rules, "redis-server tells single commands in the order of a hash table"),
    ("time", same_shape, "the clock"),
    ("hello*", except_fields("id", "version", "server"), "connection number, version, product name"),
    ("client id", same_type, "connection numbers are each server's own"),
    ("client info*", client_lines, "addresses, numbers, ages, memory"),
    ("client list*", client_lines, "addresses, numbers, ages, memory"),
    ("hgetall *", unordered_pairs, "a hash promises no order"),
    ("hkeys *", unordered, "a hash promises no order"),
    ("hvals *", unordered, "a hash promises no order"),
    ("hscan *", scanned(unordered_pairs), "a hash promises no order"),
    ("smembers *", unordered, "a set promises no order"),
    ("sinter *", unordered, "a set promises no order"),
    ("sunion *", unordered, "a set promises no order"),
    ("sdiff *", unordered, "a set promises no order"),
    ("sscan *", scanned(unordered), "a set promises no order"),
    ("zscan *", scanned(unordered_pairs), "a scan promises no order"),
    # Where as many are asked for as the test can have put in, all must come.
    ("spop * *", unordered, "in no order; where fewer than all are taken, servers part ways and no test goes on"),
    ("srandmember * [1-9][0-9][0-9]*", unordered, "all of them, in no order"),
    ("hrandfield * [1-9][0-9][0-9]* withvalues", unordered_rows, "all of them, in no order"),
    ("hrandfield * [1-9][0-9][0-9]*", unordered, "all of them, in no order"),
    ("zrandmember * [1-9][0-9][0-9]* withscores", unordered_rows, "all of them, in no order"),
    ("zrandmember * [1-9][0-9][0-9]*", unordered, "all of them, in no order"),
    ("srandmember *", same_shape, "random; test_samples.py says what must hold"),
    ("hrandfield *", same_shape, "random; test_samples.py says what must hold"),
    ("zrandmember *", same_shape, "random; test_samples.py says what must hold"),
    ("sort* by nosort*", unordered, "a set unsorted promises no order; lists and sorted sets are compared exactly, by !"),
    ("geo* asc*", same, "sorted"),
    ("geo* desc*", same, "sorted"),
    ("geosearch *", unordered, "unsorted unless it is asked for"),
    ("georadius*", unordered, "unsorted unless it is asked for"),
    ("ttl *", numbers_within(1), "the clock moves between the two servers"),
    ("expiretime *", numbers_within(1), "a relative expiry starts at each server's own now"),
    ("pttl *", numbers_within(3000), "the clock moves between the two servers"),
    ("pexpiretime *", numbers_within(3000), "a relative expiry starts at each server's own now"),
    ("object idletime *", numbers_within(2), "the clock"),
    ("object freq *", numbers_within(3), "the counter grows by chance"),
    ("keys *", unordered, "redis-server promises no order"),
    ("randomkey", same_type, "random"),
    ("config get *", unordered_pairs, "redis-server promises no order"),
    ("pubsub channels*", unordered, "redis-server promises no order"),
    ("pubsub shardchannels*", unordered, "redis-server promises no order"),
    ("xadd * [*] *", same_type, "the ID holds the time"),
    ("xinfo stream * full*", stream_full, "radix tree figures, times; 7.2 adds active-time"),
    ("xinfo consumers *", consumers, "times; 7.2 adds inactive"),
    ("xpending * * * *", pending, "how long each has been idle"),
    ("xinfo stream *", except_fields("radix-tree-keys", "radix-tree-nodes", "seen-time", "active-time"), "radix tree figures"),
    ("memory usage *", same_type, "each server's own layout"),
    ("memory stats", same_type, "each server's own memory"),
    ("memory doctor", same_type, "advice in each server's own words"),
    ("memory malloc-stats", same_type, "each allocator's own words"),
    ("debug object *", same_type, "an address and sizes"),
    ("debug htstats*", same_type, "each server's own tables"),
    ("slowlog get*", same_type, "times"),
    ("slowlog len", same_type, "what is slow differs"),
    ("latency doctor", same_type, "advice in each server's own words"),
    ("latency latest", same_type, "times"),
    ("latency histogram*", same_type, "times"),
    ("lolwut*", same_type, "a drawing and a version"),
    ("info*", same_type, "compared field by field in test_info.py"),
    ("command docs*", same_type, "compared in test_command_table.py"),
    ("command list*", unordered, "redis-server promises no order"),
    ("command count", same_type, "the number of commands grows with the versions"),
    ("cluster nodes", with_holes("[0-9a-f]{40}|\\d+@\\d+|127\\.0\\.0\\.1|,[^ ,]*(?= )"), "node ID, ports, own address"),
    ("cluster myid", same_type, "node ID"),
    ("cluster myshardid", same_type, "shard ID"),
    ("cluster slots", same_shape, "node ID, port"),
    ("cluster shards", same_shape, "node ID, port, offset"),
    ("cluster info", with_holes("cluster_(stats|current|my|size)[a-z_]*:\\d+"), "message counts, epochs; a size of 1 until it is first reckoned"),
    ("cluster getkeysinslot *", same_shape, "which keys come, and in which order, is not promised"),
]


def left_everything(words):
    """UNSUBSCRIBE and its kin without arguments: redis-server walks a hash
    table, so the channels come in no order, while the counts do."""
    return len(words) == 1 and to_bytes(words[0]).lower() in (b"unsubscribe", b"punsubscribe", b"sunsubscribe")


def publishes(words):
    return to_bytes(words[0]).lower() in (b"publish", b"spublish")


def reply_first(frames):
    """What a client publishes to itself comes after the reply since 7.2, before
    it in 7.0."""
    return sorted(frames, key=lambda frame: frame[0] == ">")


def in_any_order(frames):
    """The names of such frames sorted, their counts left where they are."""
    whole = [f for f in frames if f[0] in "*>" and f[1] and len(f[1]) == 3]
    if len(whole) != len(frames):
        return frames
    names = sorted(repr(f[1][1]) for f in whole)
    return [(f[0], [f[1][0], ("$", name.encode()), f[1][2]]) for f, name in zip(whole, names)]


def patterns_in_any_order(frames):
    """One message that reaches a client by several patterns comes once for
    each, in the order of redis-server's hash table: sorted here."""
    out = []
    for _message, group in itertools.groupby(frames, key=message_by_pattern):
        group = list(group)
        out += sorted(group, key=repr) if message_by_pattern(group[0]) else group
    return out


def message_by_pattern(frame):
    """Channel and content of a `pmessage`, else None."""
    if frame[0] in "*>" and frame[1] and len(frame[1]) == 4 and frame[1][0] == ("$", b"pmessage"):
        return repr(frame[1][2:])
    return None


UNBALANCED = b"ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."

WRONG_ARITY = "ERR wrong number of arguments for '%s' command"

#: What 7.2 says instead of 7.0, by the command.
NEWER_ERRORS = {
    # WITHSCORE may follow.
    (b"zrank", (WRONG_ARITY % "zrank").encode()): b"ERR syntax error",
    (b"zrevrank", (WRONG_ARITY % "zrevrank").encode()): b"ERR syntax error",
    (b"xread", UNBALANCED): b"ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.",
    (b"xreadgroup", UNBALANCED): b"ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.",
}


def newer(words, reply):
    """The reference's reply as 7.2 words it."""
    kind, value = reply
    text = NEWER_ERRORS.get((to_bytes(words[0]).lower(), value)) if kind == "-" else None
    return (kind, text) if text else reply


def describe(words):
    """The command's words, lower case, as the patterns see them."""
    return " ".join(to_bytes(w).decode("latin-1").lower() for w in words[:30])


def equal(words, a, b):
    """Whether reply `b` may stand for the reference's reply `a`."""
    if a == b:
        return True
    if a is None or b is None:
        return False
    if newer(words, a) == b:
        return True
    text = describe(words)
    for pattern, compare, _reason in RULES:
        if fnmatch.fnmatchcase(text, pattern):
            if "-" in (a[0], b[0]) and compare is not error_of:
                return False
            return compare(a, b)
    return False
