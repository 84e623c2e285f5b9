"""Random commands, group by group, over a few keys, so that they meet.

A group is a list of templates, one a line. A word in capitals is drawn anew
each time (see `DRAW`), a|b|c takes one of these, a trailing ? leaves the word
out half of the time, a trailing + repeats it one to three times. A line is as
likely as it is often listed. `WAIT` in a line stands for a pause long enough
for `PX 1` to be over, so that expiry happens between commands, never within.

Left out here because two servers cannot agree on them: IDs from the clock,
RANDOMKEY, which members SPOP takes, cursors of SCAN, DBSIZE (it counts keys that have expired and that
nothing has looked at yet, and what looks differs).
"""

from harness.cases import Step
from harness.resp import to_bytes

KEYS = ["a", "b", "c", "d", "e", "f"]
GROUP_NAMES = ["g", "h", ""]
CONSUMERS = ["c", "d", "e"]
CHANNELS = ["ch1", "ch2", "ch3"]
INTEGERS = [0, 1, -1, 2, 3, 5, 7, 8, 10, 63, 64, 100, 255, 256, 1000, -5, -100, 2**31, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63)]
ODD = ["", "abc", "1.5", " 1", "1 ", "+1", "-0", "00", "9223372036854775808", "-9223372036854775809", "0x10", "1e3", "nan", "inf", "\x00"]
TEXTS = ["", "x", "hello", "hello world", "0", "1", "10", "-7", "3.14", "12345678901234567890", "\x00\x01\xff", "y" * 44, "y" * 45, "z" * 63, "z" * 64, "q" * 200]
#: What collections hold: few enough to meet again, of every shape. No empty
#: one, and none that equals another up to a zero byte: SORT ALPHA stops there.
ELEMENTS = [
    *["0", "1", "2", "-1", "10", "127", "128", "-129", "4096", "32768", "-8388609", "2147483648", "9223372036854775807", "-9223372036854775808"],
    *["01", "+1", "-0", "1e3", "9223372036854775808", "1.5", "3.14159265358979", "-0.25", "1.50", "inf", " 1"],
    *["a", "b", "c", "hello", "Hello", "hello world", "x" * 63, "x" * 64, "x" * 65, "long " * 60, "y" * 3000],
    *["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b811-9dad-11d1-80b4-00c04fd430c8", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"],
    *["deadbeef", "DEADBEEF", "d41d8cd98f00b204e9800998ecf8427e", "00ff"],
    *[b"bin\x00ary", b"\xff\xfe", b"\r\n", b"\xc3\x28"],
]
FIELDS = ["f", "g", "h", "temp", "id", "01", "1", "F", "field-with-a-longer-name", "z" * 65, b"\xff"]
#: Halves and whole numbers: sums of these are exact in whatever order.
SCORES = ["0", "1", "2", "3", "1.5", "-1.5", "0.5", "-7", "10", "1e3", "100000", "0.25", "4294967296", "-2147483648"]
LEX_KEYS = ["lex1", "lex2"]
FAR = [9999999999, 9999999998, 8888888888]


def _text(rng):
    roll = rng.random()
    if roll < 0.75:
        return rng.choice(TEXTS)
    if roll < 0.9:
        return str(rng.randint(-1000, 1000))
    if roll < 0.97:
        return bytes(rng.choices(b"ab\x00\xff", k=rng.randint(1, 40)))
    return b"{\"n\":%d,\"s\":\"%s\"}" % (rng.randint(0, 9), b"w" * rng.randint(0, 3000))


def _integer(rng):
    if rng.random() < 0.06:
        return rng.choice(ODD)
    if rng.random() < 0.6:
        return rng.randint(-12, 12)
    return rng.choice(INTEGERS)


def _small(rng):
    return rng.choice(ODD) if rng.random() < 0.03 else rng.randint(-20, 40)


def _bit(rng):
    return rng.choice([0, 1, 0, 1, 0, 1, 2, -1, "x"]) if rng.random() < 0.2 else rng.randint(0, 1)


def _bit_offset(rng):
    if rng.random() < 0.04:
        return rng.choice([-1, 4294967296, "abc", ""])
    return rng.choice([rng.randint(0, 80), rng.randint(0, 2000)])


def _field_offset(rng):
    return rng.choice([str(_bit_offset(rng)), f"#{rng.randint(0, 9)}"])


def _field_type(rng):
    if rng.random() < 0.04:
        return rng.choice(["u64", "i65", "u0", "x8", ""])
    return rng.choice(["u1", "u2", "u4", "u7", "u8", "u16", "u31", "u63", "i1", "i2", "i5", "i8", "i16", "i33", "i63", "i64"])


def _id(rng):
    """A stream ID of a small space; now and then a broken or a huge one."""
    roll = rng.random()
    if roll < 0.04:
        return rng.choice(["abc", "", "1-", "-1", "18446744073709551615-18446744073709551615", "18446744073709551616", "0-0", "0"])
    if roll < 0.2:
        return str(rng.randint(0, 30))
    return f"{rng.randint(0, 30)}-{rng.randint(0, 4)}"


def _range_end(rng):
    return rng.choice(["-", "+", "-", "+", _id(rng), _id(rng), "(" + _id(rng)])


def _new_id(rng):
    """An ID likely to be above the last: the second half of the space."""
    drawn = _id(rng).replace("18446744073709551615-18446744073709551615", "60-9")
    return rng.choice([f"{rng.randint(0, 60)}-{rng.randint(0, 9)}", f"{rng.randint(1, 60)}-*", str(rng.randint(1, 60)), drawn])


def _last_id(rng):
    """An ID above all of `_new_id`: below the highest that was deleted, XSETID is
    refused since 7.2."""
    return f"{rng.randint(61, 64)}-{rng.randint(0, 9)}"


def _trim(rng):
    """Exact trimming only: ~ depends on how each server blocks its entries."""
    by = rng.choice(["maxlen", "minid"])
    edge = rng.randint(0, 12) if by == "maxlen" else _id(rng)
    return [by, *rng.choice([[], ["="]]), edge]


def _seconds(rng):
    """A relative expiry, hardly ever the same twice: whether GT holds between
    two equal ones depends on the millisecond in which each server looks."""
    return rng.randint(100, 10_000_000)


def _expiry(rng):
    return rng.choice([
        ["ex", _seconds(rng)], ["px", _seconds(rng) * 1000 + 7],
        ["exat", rng.choice(FAR)], ["pxat", rng.choice(FAR) * 1000],
        ["exat", 1], ["pxat", 1], ["ex", rng.choice([0, -1, "1.5", 2**63 - 1])], ["px", "abc"],
    ])


def _element(rng):
    return str(rng.randint(-300, 300)) if rng.random() < 0.2 else rng.choice(ELEMENTS)


def _score(rng):
    if rng.random() < 0.04:
        return rng.choice(["inf", "-inf", "nan", "abc", "", "+inf", "1e400", " 1"])
    return rng.choice(SCORES)


def _score_end(rng):
    if rng.random() < 0.03:
        return rng.choice(["abc", "(", "nan", "[1", ""])
    return rng.choice(["", "", "("]) + rng.choice([*SCORES, "-inf", "+inf", "inf"])


def _lex_end(rng):
    if rng.random() < 0.03:
        return rng.choice(["a", "", "++", "(("])
    element = _element(rng)
    return rng.choice(["-", "+", rng.choice([b"[", b"("]) + to_bytes(element)])


def _claim(rng):
    return rng.choice([["force"], ["justid"], ["retrycount", _small(rng)], ["idle", rng.randint(0, 5)], ["lastid", _id(rng)], ["time", _small(rng)]])


DRAW = {
    "G": lambda r: r.choice(GROUP_NAMES),
    "C": lambda r: r.choice(CONSUMERS),
    "CLAIM": _claim,
    # Never so near to a time that went by that the two servers may differ.
    "IDLE": lambda r: r.choice([0, 0, 0, -1, 100_000_000, 10**12]),
    "K": lambda r: r.choice(KEYS),
    "V": _text,
    "N": _integer,
    "S": _small,
    "B": _bit,
    "BO": _bit_offset,
    "FO": _field_offset,
    "FT": _field_type,
    "F": lambda r: r.choice(["0.1", "1", "-1.5", "1e3", "3.0", "0.000001", "1e17", "123456.789", "-0.1", "1e-5", str(_integer(r))]),
    "E": _element,
    "HF": lambda r: r.choice(FIELDS) if r.random() < 0.7 else f"n{r.randint(0, 20)}",
    # What SORT looks up: a field of the hash that an element names.
    "HP": lambda r: "*->" + r.choice(["f", "g", "temp"]),
    "HFV": lambda r: [DRAW["HF"](r), _element(r)],
    "SC": _score,
    "SM": lambda r: [_score(r), _element(r)],
    "ZM": lambda r: ["0", _element(r)],
    "SEND": _score_end,
    "LEND": _lex_end,
    # Mostly of the right type, which so many types would else seldom meet.
    "GK": lambda r: r.choice(["geo1", "geo2"] if r.random() < 0.9 else KEYS),
    "PK": lambda r: r.choice(["hll1", "hll2"] if r.random() < 0.9 else KEYS),
    "LK": lambda r: r.choice(LEX_KEYS),
    "W": lambda r: r.choice(["1", "2", "0.5", "3", "-1", "abc"] if r.random() < 0.2 else ["1", "2", "0.5", "3"]),
    "PW": lambda r: r.choice(["1", "2", "0.5", "3"]),
    "AGG": lambda r: r.choice(["sum", "min", "max"]),
    "SIDE": lambda r: r.choice(["left", "right"]),
    "UP": lambda r: r.choice(["min", "max"]),
    "NS": lambda r: r.randint(1, 3),
    "LON": lambda r: f"{r.uniform(-30, 30):.4f}" if r.random() < 0.97 else r.choice(["181", "abc"]),
    "LAT": lambda r: f"{r.uniform(-30, 30):.4f}" if r.random() < 0.97 else r.choice(["86", "abc"]),
    "RAD": lambda r: f"{r.uniform(100, 4000):.2f}",
    "UNIT": lambda r: r.choice(["m", "km", "km", "km", "mi", "ft"]),
    "PLACE": lambda r: f"p{r.randint(0, 25)}",
    "ID": _id,
    "NEWID": _new_id,
    "LASTID": _last_id,
    "END": _range_end,
    "TRIM": _trim,
    "EXPIRY": _expiry,
    "FAR": lambda r: r.choice(FAR),
    "TTL": lambda r: r.choice([_seconds(r), _seconds(r), _seconds(r), 0, -1, r.choice(ODD + INTEGERS[-2:])]),
    "LATER": _seconds,
    "COND": lambda r: r.choice(["nx", "xx", "gt", "lt"]),
    "CH": lambda r: r.choice(CHANNELS),
    "PAT": lambda r: r.choice(["ch*", "ch?", "*", "c[h]1", "ch[12]", "none*"]),
    "GLOB": lambda r: r.choice(["*", "?", "[ab]", "[^a]", "a*", "[a-c]", "z", ""]),
    "KV": lambda r: [r.choice(KEYS), _text(r)],
    "FV": lambda r: [r.choice(["f", "g", "temp", ""]), _text(r)],
    "DB": lambda r: r.choice([0, 1, 2, 0, 1, 2, 15, 16, -1, "x"]),
    "FIELDOP": lambda r: r.choice([
        ["get", _field_type(r), _field_offset(r)],
        ["set", _field_type(r), _field_offset(r), _integer(r)],
        ["incrby", _field_type(r), _field_offset(r), _integer(r)],
        ["overflow", r.choice(["wrap", "sat", "fail"]), "incrby", _field_type(r), _field_offset(r), _integer(r)],
    ]),
}

SETUP_TYPES = """
set K V
set K S
append K V
xadd K NEWID FV+
xadd K NEWID FV
del K
set K V px 1 WAIT
pexpire K 1 WAIT
type K
exists K+
ttl K
object encoding K
"""

STRINGS = """
set K V
set K V EXPIRY?
set K V nx|xx|get|keepttl
set K V nx|xx get
set K V EXPIRY? nx|xx|get|keepttl? get?
get K
get K
getex K EXPIRY?
getex K persist
getdel K
getset K V
setnx K V
setex K TTL V
psetex K LATER V
mget K+ K
mset KV+
msetnx KV+
incr K
decr K
incrby K N
decrby K N
incrbyfloat K F
append K V
strlen K
getrange K S S
substr K S S
setrange K S V
lcs K K
lcs K K len
lcs K K idx minmatchlen? S? withmatchlen?
object encoding K
ttl K
""" + SETUP_TYPES

BITS = """
setbit K BO B
setbit K BO B
getbit K BO
bitcount K
bitcount K S S byte|bit?
bitpos K B
bitpos K B S
bitpos K B S S byte|bit?
bitop and|or|xor K K+
bitop not K K
bitop and|or|xor|not K K+
bitfield K FIELDOP+
bitfield K FIELDOP+
bitfield_ro K get FT FO
bitfield_ro K FIELDOP
get K
strlen K
setrange K S V
incr K
""" + SETUP_TYPES

KEYSPACE = """
del K+
unlink K+
exists K+
touch K+
type K
rename K K
renamenx K K
copy K K
copy K K replace
copy K K db DB replace?
move K DB
select DB
swapdb DB DB
keys GLOB
flushdb
expire K TTL
expire K TTL COND
expire K TTL COND COND
pexpire K TTL
pexpire K TTL COND?
expireat K FAR COND?
pexpireat K 9999999999123 COND?
expireat K 1
persist K
ttl K
pttl K
expiretime K
pexpiretime K
object encoding K
object refcount K
get K
xlen K
set K V EXPIRY?
set K V ex LATER
scan 0 count 1000 match zzz
""" + SETUP_TYPES

STREAMS = """
xadd K NEWID FV
xadd K NEWID FV
xadd K NEWID FV+
xadd K nomkstream? TRIM NEWID FV+
xadd K nomkstream NEWID FV
xlen K
xrange K - +
xrange K END END
xrange K END END count S
xrevrange K END END
xrevrange K END END count S
xdel K ID+
xdel K ID+
xtrim K TRIM
xread streams K ID
xread count S streams K K ID ID
xread streams K K ID $
xinfo stream K
xinfo stream K full
xinfo stream K full count S
xsetid K LASTID
xsetid K LASTID entriesadded S maxdeletedid ID
rename K K
copy K K replace
expire K LATER
persist K
""" + SETUP_TYPES

CONSUMER_GROUPS = """
xadd K NEWID FV
xadd K NEWID FV
xadd K NEWID FV
xadd K NEWID FV
xgroup create K G ID
xgroup create K G $ mkstream
xgroup create K G 0 mkstream entriesread S
xgroup setid K G ID
xgroup setid K G $
xgroup setid K G 0 entriesread S
xgroup destroy K G
xgroup createconsumer K G C
xgroup delconsumer K G C
xreadgroup group G C streams K >
xreadgroup group G C streams K >
xreadgroup group G C count S streams K >
xreadgroup group G C noack? streams K >
xreadgroup group G C streams K K > >
xreadgroup group G C streams K K > ID
xreadgroup group G C streams K 0
xreadgroup group G C count S streams K ID
xack K G ID+
xack K G ID+
xpending K G
xpending K G
xpending K G END END S
xpending K G - + 20
xpending K G - + S C
xpending K G idle IDLE END END S
xpending K G idle IDLE - + S C
xclaim K G C IDLE ID+
xclaim K G C IDLE ID+ CLAIM
xclaim K G C 0 ID+ CLAIM+
xautoclaim K G C IDLE END
xautoclaim K G C 0 0 count S
xautoclaim K G C 0 ID count S justid
xinfo groups K
xinfo groups K
xinfo consumers K G
xinfo stream K
xinfo stream K full
xinfo stream K full count S
xdel K ID+
xdel K ID+
xtrim K TRIM
xsetid K LASTID
xread streams K ID
rename K K
copy K K replace
xrange K - +
""" + SETUP_TYPES

TRANSACTIONS = """
multi
multi
exec
exec
exec
discard
watch K
watch K+
watch K
unwatch
set K V
set K V
get K
incr K
append K V
del K
rename K K
mget K+ K
mset KV+
xadd K NEWID FV
xrange K - +
expire K LATER
expire K -1
swapdb 0 1
select 0|1|2
flushdb
move K DB
copy K K replace
nosuchcommand K
ping
set K V ex LATER
"""

PUBSUB = """
subscribe CH+
unsubscribe CH+
unsubscribe
psubscribe PAT+
punsubscribe PAT+
punsubscribe
ssubscribe CH
sunsubscribe CH
sunsubscribe
publish CH V
publish CH V
publish CH V
spublish CH V
pubsub channels
pubsub channels PAT
pubsub numsub CH+
pubsub numpat
pubsub shardchannels
pubsub shardnumsub CH+
ping
ping V
get K
set K V
reset
"""

NOTIFICATIONS = """
set K V
set K V EXPIRY
append K V
incr K
getdel K
getex K EXPIRY
setrange K S V
mset KV+
setbit K BO B
bitop or K K+
del K+
expire K TTL
persist K
rename K K
copy K K replace
move K DB
xadd K NEWID FV
xadd K TRIM NEWID FV
xdel K ID
xtrim K TRIM
set K V px 1 WAIT
get K
exists K
"""

COLLECTION_TYPES = """
rpush K E+
hset K HFV+
sadd K E+
zadd K SM+
set K V
del K
del K
rename K K
copy K K replace
expire K LATER
pexpire K 1 WAIT
type K
exists K+
ttl K
object encoding K
object encoding K
"""

LISTS = """
rpush K E+
rpush K E+
lpush K E+
lpush K E E E E E E E E
rpush K E E E E E E E E
lpushx K E+
rpushx K E+
lpop K
rpop K
lpop K S
rpop K S
llen K
lindex K S
lset K S E
lset K S E
linsert K before|after E E
linsert K before|after E E
lrange K 0 -1
lrange K 0 -1
lrange K S S
lrem K S E
lrem K 0 E
ltrim K S S
ltrim K 0 N
lpos K E
lpos K E rank S
lpos K E count S
lpos K E rank S count S maxlen S
lmove K K SIDE SIDE
lmove K K SIDE SIDE
rpoplpush K K
lmpop 1 K SIDE
lmpop 2 K K SIDE count S
lmpop S K SIDE
blpop K K 0.001
sort K
sort K alpha
sort K alpha desc limit S S
sort K by nosort get # store K
""" + COLLECTION_TYPES

HASHES = """
hset K HFV
hset K HFV+
hset K HFV HFV HFV HFV
hsetnx K HF E
hmset K HFV+
hget K HF
hget K HF
hmget K HF+
hgetall K
hgetall K
hkeys K
hvals K
hlen K
hexists K HF
hstrlen K HF
hdel K HF
hdel K HF+
hincrby K HF N
hincrby K HF S
hincrbyfloat K HF F
hrandfield K
hrandfield K S
hrandfield K 1000
hrandfield K 1000 withvalues
hrandfield K S withvalues
hscan K 0 count 1000
hscan K 0 match GLOB count 1000
sort K
""" + COLLECTION_TYPES

SETS = """
sadd K E
sadd K E+
sadd K E E E E
sadd K S S S
sadd K S
srem K E+
srem K S+
sismember K E
smismember K E+
scard K
smembers K
smembers K
spop K 1000
spop K 0
srandmember K
srandmember K S
srandmember K 1000
smove K K E
smove K K S
sinter K+
sunion K+
sdiff K+
sinterstore K K+
sunionstore K K+
sdiffstore K K+
sintercard 2 K K
sintercard 2 K K limit S
sintercard S K K
sscan K 0 count 1000
sscan K 0 match GLOB count 1000
sort K
sort K alpha
sort K by nosort store K
""" + COLLECTION_TYPES

SORTED_SETS = """
zadd K SM
zadd K SM+
zadd K SM SM SM SM
zadd K SM SM SM SM
zadd K nx|xx|gt|lt SM+
zadd K nx|xx|gt|lt? xx|gt|lt? ch? SM+
zadd K nx|xx|gt|lt? incr SM
zincrby K SC E
zincrby K SC E
zscore K E
zmscore K E+
zcard K
zrank K E
zrevrank K E
zrem K E+
zcount K SEND SEND
zrange K 0 -1 withscores
zrange K 0 -1 withscores
zrange K S S rev? withscores?
zrange K SEND SEND byscore rev? withscores?
zrange K SEND SEND byscore limit S S withscores
zrevrange K S S withscores?
zrangebyscore K SEND SEND withscores?
zrangebyscore K SEND SEND withscores? limit S S
zrevrangebyscore K SEND SEND withscores? limit S S
zrangestore K K S S rev?
zrangestore K K SEND SEND byscore
zremrangebyrank K S S
zremrangebyscore K SEND SEND
zpopmin K
zpopmax K
zpopmin K S
zpopmax K S
zmpop 1 K UP
zmpop 2 K K UP count S
bzpopmin K K 0.001
zunion 2 K K withscores
zunion 2 K K weights W W withscores
zunion 2 K K weights PW PW aggregate AGG withscores
zunion 3 K K K aggregate min|max
zinter 2 K K withscores
zinter 2 K K weights PW PW aggregate AGG withscores
zdiff 2 K K withscores
zdiff 3 K K K
zunionstore K 2 K K
zunionstore K 2 K K weights PW PW aggregate AGG
zinterstore K 2 K K
zdiffstore K 2 K K
zintercard 2 K K
zintercard 2 K K limit S
zunion S K K
zrandmember K
zrandmember K S
zrandmember K 1000 withscores
zscan K 0 count 1000
zadd LK ZM+
zadd LK ZM ZM ZM ZM
zrem LK E+
zrange LK LEND LEND bylex
zrange LK LEND LEND bylex rev limit S S
zrangebylex LK LEND LEND
zrangebylex LK LEND LEND limit S S
zrevrangebylex LK LEND LEND
zlexcount LK LEND LEND
zremrangebylex LK LEND LEND
zrangestore K LK LEND LEND bylex
zrange LK 0 -1
zrank LK E
sort K
sort K alpha
""" + COLLECTION_TYPES

DERIVED = """
sort K
sort K desc
sort K alpha
sort K alpha desc
sort K alpha limit S S
sort K limit S S
sort K by w* get #
sort K by w* get # get w* limit S S
sort K by HP
sort K get HP get #
sort K by nosort store K
sort K store K
sort K desc get w* store K
sort_ro K alpha
sort_ro K get #
set w1 S
set w2 S
set w-1 E
set w10 S
hset K HFV+
rpush K S S S S
sadd K S S S
lrange K 0 -1
zadd K SM+
geoadd GK LON LAT PLACE
geoadd GK LON LAT PLACE LON LAT PLACE LON LAT PLACE
geoadd GK nx|xx? ch? LON LAT PLACE LON LAT PLACE
geopos GK PLACE+
geohash GK PLACE+
geodist GK PLACE PLACE UNIT?
geosearch GK fromlonlat LON LAT byradius RAD UNIT asc withdist
geosearch GK fromlonlat LON LAT bybox RAD RAD UNIT desc withcoord withhash
geosearch GK frommember PLACE byradius RAD UNIT
geosearch GK frommember PLACE bybox RAD RAD km asc count NS
geosearchstore GK GK fromlonlat LON LAT byradius RAD km
geosearchstore GK GK frommember PLACE bybox RAD RAD km asc storedist
georadius GK LON LAT RAD km asc count NS withdist
georadiusbymember GK PLACE RAD km store GK
georadius_ro GK LON LAT RAD UNIT
pfadd PK E+
pfadd PK S+
pfadd PK S S S S S S S S S S
pfcount PK
pfcount PK+
pfmerge PK PK+
get PK
pfdebug encoding PK
pfdebug todense PK
""" + COLLECTION_TYPES

GROUPS = {
    "strings": STRINGS,
    "bits": BITS,
    "keys": KEYSPACE,
    "streams": STREAMS,
    "groups": CONSUMER_GROUPS,
    "transactions": TRANSACTIONS,
    "pubsub": PUBSUB,
    "notifications": NOTIFICATIONS,
    "lists": LISTS,
    "hashes": HASHES,
    "sets": SETS,
    "sorted_sets": SORTED_SETS,
    "derived": DERIVED,
    "collections": LISTS + HASHES + SETS + SORTED_SETS + KEYSPACE + TRANSACTIONS,
    # A key whose time has come is told as expired by whoever looks for it, where Redis
    # replaces it without looking: no time comes here.
    "collection_notifications": "\n".join(
        line
        for line in (LISTS + HASHES + SETS + SORTED_SETS + DERIVED).splitlines()
        if not line.endswith(" WAIT")
    ),
    "mixed": STRINGS + BITS + KEYSPACE + STREAMS + CONSUMER_GROUPS + TRANSACTIONS,
}
#: Groups in which several connections take part, and how many.
CONNECTIONS = {"transactions": 3, "pubsub": 3, "mixed": 2, "collections": 2}
#: Groups whose keyspace events a second connection hears.
HEARD = ["notifications", "collection_notifications"]
#: Low enough that a sequence reaches them.
THRESHOLDS = [
    ("config", "set", "hash-max-listpack-entries", "12"),
    ("config", "set", "set-max-intset-entries", "12"),
    ("config", "set", "zset-max-listpack-entries", "12"),
]
#: What comes first in a sequence of a group.
_HEARS = [Step("call", 1, ("config", "set", "notify-keyspace-events", "KEA")), Step("call", 2, ("psubscribe", "__key*"))]
_LOW = [Step("call", 1, words) for words in THRESHOLDS]
FIRST = {group: _HEARS for group in HEARD} | {group: _LOW for group in ("hashes", "sets", "sorted_sets", "collections")}
_HOUSEKEEPING = [Step("call", 1, ("debug", "set-active-expire", "0"))]


def templates(group):
    return templates_of(GROUPS[group])


def templates_of(text):
    return [line.split() for line in text.split("\n") if line]


def expand(template, rng, draws=DRAW):
    """One command drawn from a template; True if a pause must follow."""
    args, pause = [], False
    for word in template:
        if word == "WAIT":
            pause = True
            continue
        if word.endswith("?"):
            word = word[:-1]
            if rng.random() < 0.5:
                continue
        times = rng.randint(1, 3) if word.endswith("+") and word != "+" else 1
        word = word.rstrip("+") or word
        for _ in range(times):
            drawn = draws[word](rng) if word in draws else rng.choice(word.split("|"))
            args += drawn if isinstance(drawn, list) else [drawn]
    return args, pause


def damage(args, rng):
    """A slip of the pen: an argument too few, too many, or another one."""
    args = list(args)
    at = rng.randrange(len(args))
    # redis-server's messages end at a zero byte, being C strings; Snug's do not.
    odd = [w for w in ODD if w != "\x00"]
    roll = rng.random()
    if roll < 0.35:
        del args[-1 if at == 0 else at]
    elif roll < 0.7:
        args.insert(at + 1, rng.choice(odd + ["nx", "get", "count", "*"]))
    elif at:
        args[at] = rng.choice([w for w in odd if not w.strip("+-0 ").isdigit()])
    return args or ["ping"]


def safe(args):
    """Whether two servers can agree on the command at all."""
    words = [to_bytes(a).lower() for a in args]
    if words[0] in (b"xadd",) and any(w == b"*" for w in words[2:]):
        return False
    if words[0] in (b"xadd", b"xtrim") and b"~" in words:
        return False
    if words[0] in (b"xread", b"xreadgroup") and b"block" in words:
        return False
    if words[0] == b"spop":
        # What is popped must not be left to chance: nothing, or everything.
        return len(words) == 3 and words[2] in (b"1000", b"0")
    if words[0] == b"zadd" and words[1:2] and words[1].startswith(b"lex"):
        # Ranges by bytes promise nothing where scores differ.
        return all(w == b"0" for w in words[2::2])
    if words[0] in (b"blpop", b"bzpopmin"):
        return words[-1] == b"0.001"
    if words[0] in (b"sort", b"sort_ro") and b"by" in words:
        # Equal weights compared as words leave the order open.
        return b"alpha" not in words
    if words[0] == b"xclaim" and b"time" in words and b"idle" in words:
        return False
    if words[0] in (b"setrange", b"setbit", b"bitfield"):
        return not any(w.lstrip(b"#").isdigit() and 10**6 < int(w.lstrip(b"#")) < 2**29 for w in words[2:3])
    return True


def company(args):
    """What follows a command so that every group always has all of its
    consumers: 7.2 makes them earlier than redis-server 7.0 does, which makes
    none for a read or claim in vain."""
    words = [to_bytes(a).lower() for a in args]
    if words[0] != b"xgroup" or len(words) < 4 or words[1] not in (b"create", b"delconsumer"):
        return []
    return [("xgroup", "createconsumer", args[2], args[3], consumer) for consumer in CONSUMERS]


def sequence(group, rng, length):
    """Steps of one random sequence."""
    steps = list(_HOUSEKEEPING) + list(FIRST.get(group, []))
    lines = templates(group)
    connections = CONNECTIONS.get(group, 1)
    connection, short_lived = 1, False
    while len(steps) < length:
        if connections > 1 and rng.random() < 0.4:
            connection = rng.randint(1, connections)
        args, pause = expand(rng.choice(lines), rng)
        if rng.random() < 0.02:
            args = damage(args, rng)
        if not safe(args):
            continue
        steps.append(Step("call", connection, tuple(args)))
        steps += [Step("call", connection, words) for words in company(args)]
        short_lived |= pause
        if pause or (args[0] == "exec" and short_lived):
            # Queued in MULTI, a short life begins with EXEC.
            steps.append(Step("sleep", args=(4,)))
            short_lived &= pause
        if group == "pubsub" and args[0] in ("publish", "spublish"):
            # A message and a reply to another command may overtake one another.
            steps += [Step("drain", c) for c in range(1, connections + 1)]
        if group in HEARD and rng.random() < 0.15:
            steps.append(Step("drain", 2))
    return steps
