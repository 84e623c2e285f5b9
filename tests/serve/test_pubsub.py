"""What a client publishes to itself: after its command's reply, as since Redis
7.2. redis-server 7.0 puts it before, and in `EXEC` into the reply's array."""

import pytest


def message(channel, text):
    return (">", [("$", b"message"), ("$", channel), ("$", text)])


@pytest.fixture
def client(target):
    server = target.start(workers=1)
    connection = server.connect(protocol=3)
    connection.send("SUBSCRIBE", "ch")
    assert connection.frame()[0] == ">"
    yield connection
    server.stop()


def frames(connection, *command):
    """All that the command is answered, up to a mark sent behind it."""
    connection.send(*command)
    connection.send("ECHO", "the end")
    got = []
    while not got or got[-1] != ("$", b"the end"):
        got.append(connection.frame())
    return got[:-1]


@pytest.mark.snug_only
def test_after_the_reply(client):
    assert frames(client, "PUBLISH", "ch", "one") == [(":", 1), message(b"ch", b"one")]


@pytest.mark.snug_only
def test_after_the_reply_of_a_transaction(client):
    for command in ["MULTI", "PUBLISH ch one", "INCR n", "PUBLISH ch two"]:
        client.call(*command.split())
    wanted = [("*", [(":", 1), (":", 1), (":", 1)]), message(b"ch", b"one"), message(b"ch", b"two")]
    assert frames(client, "EXEC") == wanted


@pytest.mark.snug_only
def test_a_subscription_that_the_same_transaction_ends(client):
    for command in ["MULTI", "PUBLISH ch last", "UNSUBSCRIBE ch"]:
        client.call(*command.split())
    assert message(b"ch", b"last") == frames(client, "EXEC")[-1]
    assert frames(client, "PUBLISH", "ch", "nobody") == [(":", 0)]


@pytest.mark.snug_only
def test_the_event_of_ones_own_write(client):
    client.call("CONFIG", "SET", "notify-keyspace-events", "KEA")
    client.send("SUBSCRIBE", "__keyevent@0__:set")
    assert client.frame()[0] == ">"
    assert frames(client, "SET", "k", "v") == [("+", b"OK"), message(b"__keyevent@0__:set", b"k")]


@pytest.mark.snug_only
def test_replies_that_are_off(client):
    client.send("CLIENT", "REPLY", "OFF")
    client.send("PUBLISH", "ch", "one")
    assert client.frame() == message(b"ch", b"one")
