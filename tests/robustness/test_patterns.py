"""Patterns made to recurse or to backtrack without end (CVE-2024-31228, CVE-2022-36021):
wherever a client may give one, the server answers."""

import pytest

#: Many stars that lead somewhere, many that lead nowhere, brackets and escapes.
PATTERNS = [
    "*" * 100_000,
    "*?" * 50_000,
    "a*" * 50_000 + "b",
    "*a" * 900 + "b",
    "[*]" * 30_000,
    "*[^a]" * 900 + "b",
    "\\*" * 50_000,
    "[" * 10_000,
    "*[a-" * 100,
]
KEY = "a" * 10_000


@pytest.fixture(scope="module")
def filled(shared_server):
    with shared_server.connect() as connection:
        connection.call("SET", KEY, "x")
        connection.call("HSET", "h", KEY, "x")
        connection.call("FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('f', function() end)")
    return shared_server


@pytest.mark.parametrize("number", range(len(PATTERNS)))
def test_a_pattern_of_many_wildcards_is_answered(filled, number):
    pattern = PATTERNS[number]
    with filled.connect() as one, filled.connect() as two:
        for command in [
            ["KEYS", pattern],
            ["SCAN", "0", "MATCH", pattern, "COUNT", "100000"],
            ["HSCAN", "h", "0", "MATCH", pattern],
            ["CONFIG", "GET", pattern],
            ["COMMAND", "LIST", "FILTERBY", "PATTERN", pattern],
            ["FUNCTION", "LIST", "LIBRARYNAME", pattern],
            ["PUBSUB", "CHANNELS", pattern],
            ["SORT", "h", "BY", pattern],
            ["ACL", "SETUSER", "limited", "reset", "on", "nopass", "+@all", "~" + pattern, "&" + pattern],
            ["ACL", "DRYRUN", "limited", "get", KEY],
            ["ACL", "DRYRUN", "limited", "publish", KEY, "x"],
            ["ACL", "SETUSER", "limited", "(%R~" + pattern + " +@all)"],
            ["ACL", "DELUSER", "limited"],
            ["EVAL", "return redis.call('keys', ARGV[1])", "0", pattern],
        ]:
            one.call(*command)
        two.call("PSUBSCRIBE", pattern)
        assert one.call("PUBLISH", KEY, "x")[0] == ":"
        assert one.call("PING") == ("+", b"PONG")
