"""COMMAND: what Snug's command table says of each command, against 7.0's.

Only commands that both know are compared; which ones issue by issue Snug must
know is listed here, so that none gets lost.
"""

import pytest

#: Every command of the foundation. A container stands for its subcommands too.
KNOWN = """
hello auth ping echo quit reset select client command info config dbsize flushdb flushall swapdb time lolwut
memory slowlog latency debug shutdown object wait module
del unlink exists type touch rename renamenx copy move randomkey keys scan
expire pexpire expireat pexpireat ttl pttl expiretime pexpiretime persist
set get getex getdel getset setnx setex psetex mget mset msetnx incr decr incrby decrby incrbyfloat append strlen
getrange substr setrange lcs setbit getbit bitcount bitpos bitop bitfield bitfield_ro
multi exec discard watch unwatch
subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe publish spublish pubsub
cluster readonly readwrite asking
xadd xlen xrange xrevrange xdel xtrim xread xinfo xsetid
lpush rpush lpushx rpushx lpop rpop llen lindex lset linsert lrange lrem ltrim lpos lmove rpoplpush lmpop
blpop brpop blmove brpoplpush blmpop bzpopmin bzpopmax bzmpop
hset hsetnx hmset hget hmget hgetall hkeys hvals hlen hstrlen hexists hdel hincrby hincrbyfloat hrandfield hscan
sadd srem sismember smismember scard smembers spop srandmember smove sscan
sinter sintercard sinterstore sunion sunionstore sdiff sdiffstore
zadd zincrby zscore zmscore zcard zrank zrevrank zrem zcount zlexcount zpopmin zpopmax zmpop zrandmember zscan
zrange zrangestore zrangebyscore zrangebylex zrevrange zrevrangebyscore zrevrangebylex
zremrangebyrank zremrangebyscore zremrangebylex
zunion zunionstore zinter zinterstore zintercard zdiff zdiffstore
sort sort_ro geoadd geodist geohash geopos geosearch geosearchstore
georadius georadius_ro georadiusbymember georadiusbymember_ro pfadd pfcount pfmerge pfdebug
""".split()
#: (command, field) that differ between 7.0 and the 7.2 that Snug reports, or by nature.
DIFFERS = {
    ("quit", "flags"): "7.2 deprecates QUIT and changed nothing else",
    ("quit", "arity"): "a command of the table since 7.2",
    ("zrank", "arity"): "7.2 adds WITHSCORE",
    ("zrevrank", "arity"): "7.2 adds WITHSCORE",
}
FIELDS = ["name", "arity", "flags", "first", "last", "step", "categories", "tips", "key_specs"]


def command_info(server):
    with server.connect() as connection:
        found = {}
        for entry in connection.call("COMMAND")[1]:
            collect(entry, found)
        return found


def collect(entry, found):
    values = entry[1]
    row = dict(zip(FIELDS, [*(plain(v) for v in values[:8]), specs(values[8])]))
    found[row["name"]] = row
    for sub in values[9][1] if len(values) > 9 else []:
        collect(sub, found)


def specs(reply):
    """Key specifications, in their order: flags as a set, the rest as it is. What
    redis-server remarks on some in prose Snug does not repeat."""
    rows = []
    for entry in reply[1]:
        fields = entry[1]
        pairs = dict(fields) if entry[0] == "%" else dict(zip(fields[::2], fields[1::2]))
        row = {plain(name): repr(value) for name, value in pairs.items() if plain(name) not in ("flags", "notes")}
        rows.append((plain(pairs[("$", b"flags")]), sorted(row.items())))
    return rows


def plain(reply):
    kind, value = reply
    if kind in "*~":
        return sorted(plain(v) for v in value)
    return value.decode() if isinstance(value, bytes) else value


@pytest.fixture(scope="module")
def tables(pairs):
    pair = pairs.get()
    return command_info(pair.reference), command_info(pair.tested)


def test_all_commands_are_there(tables):
    missing = [name for name in KNOWN if name not in tables[1]]
    assert not missing


@pytest.mark.parametrize("field", [f for f in FIELDS[1:] if f != "tips"])
def test_field(tables, field):
    reference, tested = tables
    both = sorted(set(reference) & set(tested))
    assert len(both) >= len(KNOWN) - 2
    wrong = {
        name: f"{reference[name][field]} here {tested[name][field]}"
        for name in both
        if reference[name][field] != tested[name][field] and (name, field) not in DIFFERS
    }
    assert not wrong, "\n".join(f"{k}: redis-server {v}" for k, v in wrong.items())


def test_subcommands(tables):
    reference, tested = tables
    wanted = {n for n in reference if "|" in n and n.split("|")[0] in KNOWN}
    # For more than one node.
    later = {
        "cluster|bumpepoch", "cluster|failover", "cluster|forget", "cluster|meet", "cluster|replicate",
        "cluster|set-config-epoch", "cluster|setslot",
    }  # fmt: skip
    missing = sorted(wanted - set(tested) - later)
    assert not missing


def test_docs(pairs, tables):
    """Summaries are in our own words; since and group are facts."""
    pair = pairs.get()
    docs = []
    for server in (pair.reference, pair.tested):
        with server.connect(3) as connection:
            reply = connection.call("COMMAND", "DOCS")
            docs.append({k[1].decode(): {n[1].decode(): v for n, v in d[1]} for k, d in reply[1]})
    wanted, got = docs
    both = [n for n in KNOWN if n in wanted and n in got]
    assert len(both) >= len(KNOWN) - 2
    wrong = [
        f"{n} {field}: {wanted[n][field]} here {got[n].get(field)}"
        for n in both
        for field in ("since", "group")
        if got[n].get(field) != wanted[n][field]
    ]
    without = [n for n in both if not got[n].get("summary", ("$", b""))[1] or "complexity" not in got[n]]
    without = [n for n in without if "complexity" in wanted[n]]
    assert not wrong and not without, "\n".join(wrong + without)


def test_list_count_and_info_agree(pairs):
    with pairs.get().tested.connect() as connection:
        names = [plain(v) for v in connection.call("COMMAND", "LIST")[1]]
        top = [plain(e[1][0]) for e in connection.call("COMMAND")[1]]
        count = connection.call("COMMAND", "COUNT")[1]
    assert count == len(top)
    assert sorted(n for n in names if "|" not in n) == sorted(top)
    assert len(set(names)) == len(names)


def test_wrong_arity_is_refused_for_every_command(pairs, tables):
    """One argument too few, and for a fixed arity one too many."""
    pair = pairs.get()
    wrong = []
    for name, row in sorted(tables[1].items()):
        if name not in tables[0] or name.split("|")[0] not in KNOWN:
            continue
        words = name.split("|")
        arity = row["arity"]
        tries = [words + ["x"] * (abs(arity) - len(words) - 1)] if abs(arity) > len(words) else []
        if arity > 0:
            tries.append(words + ["x"] * (arity - len(words) + 1))
        for args in tries:
            replies = []
            for server in (pair.reference, pair.tested):
                with server.connect() as connection:
                    replies.append(connection.call(*args))
            if replies[0] != replies[1]:
                wrong.append(f"{' '.join(args)}: {replies[0]} here {replies[1]}")
    assert not wrong, "\n".join(wrong)


def test_every_command_of_redis_is_there(pairs):
    pair = pairs.get()
    names = []
    for server in (pair.reference, pair.tested):
        with server.connect() as connection:
            names.append({plain(name) for name in connection.call("COMMAND", "LIST")[1] if b"|" not in name[1]})
    assert not names[0] - names[1]
