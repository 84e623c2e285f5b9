"""The tests tested: a server that gives one wrong reply must be found out."""

import random

import pytest

from differential.generators import GROUPS, sequence
from differential.test_random import report
from harness import exceptions, servers
from harness.cases import Case, parse, parse_line, split
from harness.compare import Pair
from harness.impostor import Impostor
from harness.resp import to_bytes, word
from harness.shrink import shrink


@pytest.fixture(scope="module")
def two_redis():
    running = [servers.redis(), servers.redis()]
    yield running
    for server in running:
        server.stop()


def lie(two_redis, alter):
    return Pair(two_redis[0], Impostor(two_redis[1], alter))


def steps(*lines):
    return [parse_line(line) for line in lines]


def only(command, wrong):
    """Alters the replies to one command."""
    return lambda args, reply, past: wrong if args[0].lower() == command else reply


@pytest.mark.parametrize(
    "lines, command, wrong",
    [
        (["set k v", "strlen k"], b"strlen", b":2\r\n"),
        (["set k v", "strlen k"], b"strlen", b"$1\r\n1\r\n"),
        (["set k v"], b"set", b"$2\r\nOK\r\n"),
        (["get none"], b"get", b"*-1\r\n"),
        (["get none"], b"get", b"$0\r\n\r\n"),
        (["get"], b"get", b"-ERR wrong number of arguments for 'GET' command\r\n"),
        (["set k v", "incr k"], b"incr", b"-ERR value is not an integer\r\n"),
        (["xadd s 1-1 f v", "xrange s - +"], b"xrange", b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nw\r\n"),
        (["set k v ex 100", "ttl k"], b"ttl", b":-1\r\n"),
        (["set k v ex 100", "ttl k"], b"ttl", b":90\r\n"),
        (["mset a 1 b 2", "keys *"], b"keys", b"*1\r\n$1\r\na\r\n"),
        (["hset h a 1 b 2", "hgetall h"], b"hgetall", b"*4\r\n$1\r\na\r\n$1\r\n2\r\n$1\r\nb\r\n$1\r\n1\r\n"),
        (["sadd s a b", "smembers s"], b"smembers", b"*2\r\n$1\r\na\r\n$1\r\na\r\n"),
        (["sadd s a b", "srandmember s 500"], b"srandmember", b"*2\r\n$1\r\na\r\n$1\r\na\r\n"),
        (["sadd s a b", "srandmember s 1"], b"srandmember", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        (["hset h a 1", "hscan h 0"], b"hscan", b"*2\r\n$1\r\n7\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n"),
        (["hset h a 1", "hscan h 0"], b"hscan", b"*2\r\n$1\r\n0\r\n*2\r\n$1\r\n1\r\n$1\r\na\r\n"),
        (["zadd z 1 a 2 b", "zrandmember z 100 withscores"], b"zrandmember", b"*4\r\n$1\r\na\r\n$1\r\n2\r\n$1\r\nb\r\n$1\r\n1\r\n"),
        (["time"], b"time", b"*1\r\n$1\r\n1\r\n"),
        (["time"], b"time", b"-ERR no clock\r\n"),
    ],
)
def test_one_wrong_reply_is_found(two_redis, lines, command, wrong):
    honest = Pair(*two_redis).difference(steps(*lines))
    assert honest is None, honest
    found = lie(two_redis, only(command, wrong)).difference(steps(*lines))
    assert found and found.step.name == command.decode()


def test_a_missing_and_a_superfluous_message_are_found(two_redis):
    lines = steps("2> subscribe ch", "publish ch x", "2<")
    assert Pair(*two_redis).difference(lines) is None
    twice = lambda args, reply, past: reply * 2 if args[0] == b"subscribe" else reply
    assert lie(two_redis, twice).difference(lines)


def test_a_wrong_reply_within_exec_is_found(two_redis):
    lines = steps("multi", "set k v ex 100", "time", "pttl k", "get k", "exec")
    assert Pair(*two_redis).difference(lines) is None
    wrong = lambda args, reply, past: reply.replace(b"$1\r\nv\r\n", b"$1\r\nw\r\n")
    assert lie(two_redis, wrong).difference(lines).step.name == "exec"


def test_exact_steps_know_no_exception(two_redis):
    later = lambda args, reply, past: b":9999999999001\r\n" if args[0] == b"pexpiretime" else reply
    plain = steps("set k v pxat 9999999999000", "pexpiretime k")
    exact = steps("set k v pxat 9999999999000", "! pexpiretime k")
    assert lie(two_redis, later).difference(plain) is None
    assert lie(two_redis, later).difference(exact)


def test_a_random_run_shrinks_to_the_commands_that_matter(two_redis):
    def forgets(args, reply, past):
        """GETRANGE is wrong on a key that SETBIT has touched before."""
        touched = {p[1] for p in past if p[0] == b"setbit" and len(p) > 1}
        wrong = args[0] == b"getrange" and len(args) > 1 and args[1] in touched
        return b"$5\r\nwrong\r\n" if wrong else reply

    pair = lie(two_redis, forgets)
    run = []
    rng = random.Random(7)
    for group in ("bits", "strings"):
        run += [s for s in sequence(group, rng, 80)[1:]]
    run += steps("set a v", "setbit a 3 1", "get a", "getrange a 0 -1")
    found = pair.difference(run, batch=True)
    assert found and found.step.name == "getrange"
    text = report(pair, "test", found, 2)
    pasted = text.split("== ", 1)[1].splitlines()[1:]
    assert len(pasted) == 2 and "setbit" in pasted[0] and "getrange" in pasted[1], text


def test_shrink_finds_the_pair_that_matters():
    calls = []

    def fails(candidate):
        calls.append(candidate)
        return 17 in candidate and 83 in candidate

    assert shrink(list(range(100)), fails) == [17, 83]
    assert len(calls) < 200


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_printed_can_be_pasted(group):
    run = [s for s in sequence(group, random.Random(3), 300)]
    text = "== pasted\n" + "\n".join(s.text() for s in run)
    again = parse(text)[0].steps
    for step, read in zip(run, again, strict=True):
        assert (read.action, read.connection) == (step.action, step.connection)
        if step.action == "call":
            assert [word(a) for a in read.args] == [word(a) for a in step.args]


def test_words():
    assert split(r'set "a b\x00\r\n\"" ' + r"'c\n' \x d*3 " + '"ab"*3 ""') == [
        b"set", b'a b\x00\r\n"', b"c\\n", b"\\x", b"d*3", b"ababab", b"",
    ]


def test_ranges_of_words():
    assert split("rpush k e{1..3} {-1..1}") == [b"rpush", b"k", b"e1", b"e2", b"e3", b"-1", b"0", b"1"]
    assert split("f{1..2}|v{3..4}x m{1..2}|y") == [b"f1", b"v3x", b"f2", b"v4x", b"m1", b"y", b"m2", b"y"]
    assert split("{2..0}|m{7..9}") == [b"2", b"m7", b"1", b"m8", b"0", b"m9"]
    assert split('"{1..3}" {t}a {1..x}') == [b"{1..3}", b"{t}a", b"{1..x}"]


def test_a_case_reads_as_written():
    case = parse("== title [resp3] [nodrain]\n2>> get k\nid = 2> client id\n2<\nsnug: ping\n= +PONG\nsleep 5")[0]
    assert isinstance(case, Case) and case.flags == ["resp3", "nodrain"] and not case.runs_in(2)
    assert [s.action for s in case.steps] == ["send", "call", "drain", "call", "sleep"]
    assert case.steps[1].keep_as == "id" and case.steps[1].connection == 2
    assert case.steps[3].snug_only and case.steps[3].expected == ["+PONG"]


def bulks(*words):
    return ("*", [("*", bulks(*w)[1]) if isinstance(w, tuple) else ("$", to_bytes(w)) for w in words])


@pytest.mark.parametrize(
    "command, one, other",
    [
        ("hgetall h", bulks("a", "1", "b", "2"), bulks("b", "2", "a", "1")),
        ("sunion s t", bulks("a", "b", "c"), bulks("c", "a", "b")),
        ("hscan h 0", bulks("0", ("a", "1", "b", "2")), bulks("0", ("b", "2", "a", "1"))),
        ("sscan s 0", bulks("0", ("a", "b")), bulks("0", ("b", "a"))),
        ("hrandfield h 100 withvalues", bulks(("a", "1"), ("b", "2")), bulks(("b", "2"), ("a", "1"))),
        ("zrandmember z -3", bulks("a", "a", "b"), bulks("b", "a", "b")),
        ("sort s by nosort", bulks("a", "b"), bulks("b", "a")),
        ("geosearch g fromlonlat 1 1 byradius 1 km", bulks("a", "b"), bulks("b", "a")),
    ],
)
def test_what_promises_no_order_may_come_in_any(command, one, other):
    assert exceptions.equal(split(command), one, other)
    assert not exceptions.equal(split(command), one, (one[0], one[1][:-1]))


def test_what_is_asked_for_in_order_must_come_in_it():
    for command in ("geosearch g frommember m byradius 1 km asc", "georadius g 1 1 1 km withdist desc", "sort l alpha", "zrange z 0 -1"):
        assert not exceptions.equal(split(command), bulks("a", "b"), bulks("b", "a"))


def test_every_exception_has_a_reason_and_no_two_say_the_same():
    assert all(reason for _p, _c, reason in exceptions.RULES)
    patterns = [p for p, _c, _r in exceptions.RULES]
    assert len(set(patterns)) == len(patterns)
