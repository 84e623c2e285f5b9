"""redis-py as it comes from PyPI, at its defaults."""

import threading
import time

import pytest
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(shared_server, request):
    client = redis.Redis(port=shared_server.port, protocol=request.param, decode_responses=True)
    client.flushall()
    yield client
    client.close()


def test_strings(client):
    assert client.set("k", "v") is True
    assert client.get("k") == "v" and client.get("none") is None
    assert client.set("k", "w", nx=True) is None
    assert client.set("k", "w", get=True) == "v"
    assert client.set("k", "x", ex=100) and 98 <= client.ttl("k") <= 100
    assert client.mset({"a": 1, "b": 2}) and client.mget("a", "b", "none") == ["1", "2", None]
    assert client.incr("n") == 1 and client.incrby("n", 5) == 6 and client.incrbyfloat("n", 0.5) == 6.5
    assert client.decr("m") == -1 and client.append("a", "0") == 2 and client.strlen("a") == 2
    assert client.getrange("k", 0, 0) == "x" and client.setrange("k", 1, "yz") == 3
    assert client.getdel("k") == "xyz" and client.getex("a", ex=50) == "10" and client.getset("a", "z") == "10"
    assert client.setnx("fresh", 1) is True and client.setnx("fresh", 1) is False
    assert client.lcs("a", "b") == "" and client.lcs("a", "a", len=True) == 1


def test_bits(client):
    assert client.setbit("k", 7, 1) == 0 and client.getbit("k", 7) == 1
    assert client.bitcount("k") == 1 and client.bitpos("k", 1) == 7
    client.set("a", "foobar")
    assert client.bitop("AND", "d", "a", "a") == 6 and client.get("d") == "foobar"
    assert client.bitfield("f").set("u8", 0, 200).incrby("u8", 0, 100).get("u8", 0).execute() == [0, 44, 44]
    assert client.bitfield("f", "SAT").incrby("u8", 0, 255).execute() == [255]


def test_keys(client):
    client.mset({f"k{i}": i for i in range(50)})
    assert sorted(client.keys("k1?")) == [f"k1{i}" for i in range(10)]
    assert set(client.scan_iter(match="k*", count=7)) == {f"k{i}" for i in range(50)}
    assert set(client.scan_iter(_type="string")) == {f"k{i}" for i in range(50)}
    assert client.exists("k1", "k2", "none") == 2 and client.delete("k1", "none") == 1 and client.unlink("k2") == 1
    assert client.rename("k3", "r") and client.renamenx("k4", "r") is False and client.copy("k5", "c") is True
    assert client.type("r") == "string" and client.touch("r", "c") == 2 and client.randomkey() is not None
    assert client.expire("r", 100) and client.expire("r", 50, gt=True) is False and client.persist("r")
    assert client.pexpireat("r", 9999999999123) and client.pexpiretime("r") == 9999999999123
    assert client.object("encoding", "k6") == "int" and client.dbsize() == 49
    assert client.move("k7", 1) and client.memory_usage("k6") > 0
    assert client.wait(0, 0) == 0


def test_errors_are_exceptions(client):
    client.xadd("s", {"f": "v"})
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.get("s")
    client.set("k", "abc")
    with pytest.raises(redis.ResponseError, match="not an integer"):
        client.incr("k")
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.execute_command("NOSUCH")


def test_pipelines(client):
    pipe = client.pipeline(transaction=False)
    for number in range(1000):
        pipe.set(f"k{number}", number)
        pipe.get(f"k{number}")
    replies = pipe.execute()
    assert replies[1::2] == [str(n) for n in range(1000)] and all(replies[::2])
    pipe = client.pipeline(transaction=False).set("k", "abc").incr("k").get("k")
    replies = pipe.execute(raise_on_error=False)
    assert isinstance(replies[1], redis.ResponseError) and replies[2] == "abc"


def test_transactions_with_watch(client):
    def increment(pipe):
        value = int(pipe.get("n") or 0)
        pipe.multi()
        pipe.set("n", value + 1)

    def work():
        own = redis.Redis(port=client.connection_pool.connection_kwargs["port"])
        for _ in range(20):
            own.transaction(increment, "n")
        own.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("n") == "80"
    with client.pipeline() as pipe:
        pipe.watch("n")
        client.set("n", "changed")
        pipe.multi()
        pipe.set("n", "lost")
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert client.pipeline().set("a", 1).incr("a").get("a").execute() == [True, 2, "2"]


def test_lock(client):
    """redis-py's lock needs scripts to let go; taking it needs SET NX PX."""
    assert client.set("lock", "token", nx=True, px=10000)
    assert client.set("lock", "other", nx=True, px=10000) is None


def messages(pubsub, count):
    got = []
    deadline = time.monotonic() + 20
    while len(got) < count and time.monotonic() < deadline:
        message = pubsub.get_message(timeout=1)
        if message:
            got.append((message["type"], message["channel"], message["data"]))
    return got


def test_pubsub(client):
    pubsub = client.pubsub()
    pubsub.subscribe("a", "b")
    pubsub.psubscribe("c*")
    assert messages(pubsub, 3) == [("subscribe", "a", 1), ("subscribe", "b", 2), ("psubscribe", "c*", 3)]
    assert client.publish("a", "hello") == 1 and client.publish("cc", "you") == 1 and client.publish("none", "x") == 0
    assert messages(pubsub, 2) == [("message", "a", "hello"), ("pmessage", "cc", "you")]
    assert sorted(client.pubsub_channels()) == ["a", "b"] and client.pubsub_numpat() == 1
    assert client.pubsub_numsub("a", "none") == [("a", 1), ("none", 0)]
    assert pubsub.ping() is not False
    pubsub.unsubscribe()
    pubsub.punsubscribe()
    pubsub.close()


def test_pubsub_in_a_thread(client):
    got = []
    pubsub = client.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe(ch=lambda message: got.append(message["data"]))
    thread = pubsub.run_in_thread(sleep_time=0.01)
    deadline = time.monotonic() + 20
    while client.pubsub_numsub("ch")[0][1] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    for number in range(100):
        client.publish("ch", number)
    while len(got) < 100 and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.stop()
    thread.join()
    assert got == [str(n) for n in range(100)]


def test_keyspace_notifications(client):
    client.config_set("notify-keyspace-events", "KEA")
    pubsub = client.pubsub(ignore_subscribe_messages=True)
    pubsub.psubscribe("__keyspace@0__:*")
    messages(pubsub, 0)
    client.set("k", "v")
    client.delete("k")
    got = []
    deadline = time.monotonic() + 20
    while len(got) < 2 and time.monotonic() < deadline:
        message = pubsub.get_message(timeout=1)
        if message:
            got.append((message["channel"], message["data"]))
    assert got == [("__keyspace@0__:k", "set"), ("__keyspace@0__:k", "del")]
    client.config_set("notify-keyspace-events", "")
    pubsub.close()


def test_streams(client):
    first = client.xadd("s", {"temp": "20", "hum": "50"})
    for number in range(500):
        client.xadd("s", {"temp": number, "hum": number % 7}, maxlen=400, approximate=False)
    assert client.xlen("s") == 400
    entries = client.xrange("s")
    assert len(entries) == 400 and entries[-1][1] == {"temp": "499", "hum": "2"}
    assert client.xrevrange("s", count=1)[0] == entries[-1]
    read = client.xread({"s": entries[-3][0]})
    rows = read["s"][0] if isinstance(read, dict) else read[0][1]
    assert rows == entries[-2:]
    assert client.xdel("s", entries[0][0], first) == 1 and client.xtrim("s", maxlen=10, approximate=False) == 389
    info = client.xinfo_stream("s")
    assert info["length"] == 10 and info["last-generated-id"] == entries[-1][0]
    assert client.xinfo_stream("s", full=True)["length"] == 10


def test_consumer_groups(client):
    client.xgroup_create("s", "g", id="$", mkstream=True)
    with pytest.raises(redis.ResponseError, match="BUSYGROUP"):
        client.xgroup_create("s", "g")
    assert client.xgroup_createconsumer("s", "g", "idle") == 1
    ids = [client.xadd("s", {"n": number}) for number in range(10)]
    read = client.xreadgroup("g", "first", {"s": ">"}, count=6)
    rows = read["s"][0] if isinstance(read, dict) else read[0][1]
    assert [row[0] for row in rows] == ids[:6]
    client.xreadgroup("g", "second", {"s": ">"})
    assert client.xack("s", "g", *ids[:2]) == 2
    summary = client.xpending("s", "g")
    assert (summary["pending"], summary["min"], summary["max"]) == (8, ids[2], ids[9])
    assert {one["name"]: one["pending"] for one in summary["consumers"]} == {"first": 4, "second": 4}
    detail = client.xpending_range("s", "g", "-", "+", 3, consumername="second")
    assert [one["message_id"] for one in detail] == ids[6:9] and detail[0]["times_delivered"] == 1
    assert client.xclaim("s", "g", "second", 0, [ids[2]], justid=True) == [ids[2]]
    client.xdel("s", ids[3])
    cursor, claimed, deleted = client.xautoclaim("s", "g", "third", 0, "0-0", count=2)
    assert cursor == ids[4] and [row[0] for row in claimed] == [ids[2]] and deleted == [ids[3]]
    groups = client.xinfo_groups("s")
    assert [(one["name"], one["pending"], one["consumers"], one["lag"]) for one in groups] == [("g", 7, 4, 0)]
    assert {one["name"]: one["pending"] for one in client.xinfo_consumers("s", "g")} == {"first": 2, "idle": 0, "second": 4, "third": 1}
    full = client.xinfo_stream("s", full=True)
    assert full["groups"][0]["pel-count"] == 7
    assert client.xgroup_delconsumer("s", "g", "second") == 4 and client.xgroup_setid("s", "g", "0")
    assert client.xgroup_destroy("s", "g") == 1


def test_waiting_for_a_stream(client):
    got = []
    pool = client.connection_pool.__class__(**client.connection_pool.connection_kwargs)

    def wait():
        other = redis.Redis(connection_pool=pool)
        got.append(other.xread({"s": "$"}, block=30_000))

    thread = threading.Thread(target=wait)
    thread.start()
    while client.info("clients")["blocked_clients"] == 0:
        time.sleep(0.005)
    added = client.xadd("s", {"n": 1})
    thread.join()
    rows = got[0]["s"][0] if isinstance(got[0], dict) else got[0][0][1]
    assert rows == [(added, {"n": "1"})]
    assert not client.xread({"s": "$"}, block=5)
    pool.disconnect()


def test_connection_and_server(client):
    assert client.ping() and client.echo("x") == "x"
    assert client.client_setname("me") and client.client_getname() == "me"
    assert any(c["name"] == "me" for c in client.client_list())
    assert client.client_id() == client.client_info()["id"]
    info = client.info()
    assert info["redis_mode"] == "standalone" and info["used_memory"] > 0
    assert client.info("keyspace") == {} and len(client.time()) == 2
    assert client.config_get("maxmemory") == {"maxmemory": "0"} and client.config_set("maxmemory", "0")
    assert client.slowlog_len() >= 0 and client.command_count() > 80
    assert client.config_resetstat() and client.flushdb() and client.swapdb(0, 1)
    assert client.command_getkeys("MSET", "a", 1, "b", 2) == ["a", "b"]
    assert "get" in client.command()


def test_binary_safety(shared_server):
    with redis.Redis(port=shared_server.port) as client:
        value = bytes(range(256)) * 1000
        key = b"\x00\r\n\xff"
        client.set(key, value)
        assert client.get(key) == value
        big = value * 40
        client.set("big", big)
        assert client.get("big") == big


def test_selecting_a_database_and_a_pool(shared_server):
    with redis.Redis(port=shared_server.port, db=5, client_name="five") as client:
        client.flushdb()
        client.set("k", "five")
        assert client.client_getname() in ("five", b"five")
    with redis.Redis(port=shared_server.port) as client:
        assert client.get("k") is None
        assert client.move("k", 5) is False


def test_password(target):
    server = target.start("--requirepass", "secret")
    try:
        with redis.Redis(port=server.port, password="secret") as client:
            assert client.ping()
        with redis.Redis(port=server.port, username="default", password="secret", protocol=3) as client:
            assert client.ping()
        with redis.Redis(port=server.port) as client, pytest.raises(redis.AuthenticationError):
            client.ping()
        with redis.Redis(port=server.port, password="wrong") as client, pytest.raises(redis.AuthenticationError):
            client.ping()
    finally:
        server.stop()


def test_reconnects_after_client_kill(client):
    other = redis.Redis(port=client.connection_pool.connection_kwargs["port"], retry=Retry(NoBackoff(), 3))
    other.ping()
    client.client_kill_filter(skipme=True, _type="normal")
    assert other.ping()
    other.close()


@pytest.fixture
def cluster_server(target):
    server = target.start("--cluster-enabled", "yes", *(["--cluster-node-timeout", "500"] if target.is_redis else []))
    with redis.Redis(port=server.port) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        deadline = time.monotonic() + 20
        while "cluster_state:ok" not in str(client.execute_command("CLUSTER", "INFO")) and time.monotonic() < deadline:
            time.sleep(0.05)
    yield server
    server.stop()


@pytest.mark.parametrize("protocol", [2, 3], ids=["resp2", "resp3"])
def test_cluster_client(cluster_server, protocol):
    with RedisCluster(host="127.0.0.1", port=cluster_server.port, protocol=protocol, decode_responses=True) as client:
        for number in range(300):
            client.set(f"k{number}", number)
        assert [client.get(f"k{n}") for n in range(300)] == [str(n) for n in range(300)]
        assert client.mset({"{t}a": 1, "{t}b": 2}) and client.mget("{t}a", "{t}b") == ["1", "2"]
        assert client.mset_nonatomic({"x": 1, "y": 2, "z": 3}) and client.mget_nonatomic("x", "y", "z") == ["1", "2", "3"]
        assert set(client.scan_iter(match="k*")) == {f"k{n}" for n in range(300)}
        assert client.delete("k1") == 1 and client.exists("k1", "k2", "k3") == 2
        assert client.xadd("s", {"f": "v"}) and client.xlen("s") == 1
        pipe = client.pipeline()
        for number in range(100):
            pipe.incr(f"n{number}")
        assert pipe.execute() == [1] * 100
        assert client.cluster_keyslot("foo") == 12182 and client.cluster_countkeysinslot(12182) == 0
        assert client.dbsize() == 405 and client.cluster_info()["cluster_state"] == "ok"
        with pytest.raises(Exception, match="(?i)slot"):
            client.execute_command("MGET", "a", "b")
        client.flushall()


def test_client_side_cache(shared_server):
    """redis-py's own cache: what is read twice is asked for once, and what others change
    is never told from the cache."""
    from redis.cache import CacheConfig

    client = redis.Redis(port=shared_server.port, protocol=3, decode_responses=True, cache_config=CacheConfig())
    other = redis.Redis(port=shared_server.port, decode_responses=True)
    other.flushall()
    other.set("k", "1")
    other.hset("h", mapping={"f": "a", "g": "b"})

    def reads():
        return sum(figures["calls"] for name, figures in other.info("commandstats").items() if name in ("cmdstat_get", "cmdstat_hgetall", "cmdstat_mget"))

    assert client.get("k") == "1" and client.hgetall("h") == {"f": "a", "g": "b"}
    before = reads()
    for _ in range(20):
        assert client.get("k") == "1" and client.hgetall("h") == {"f": "a", "g": "b"}
    assert reads() == before and client.get_cache().size == 2

    def changes(change, read, wanted):
        read()
        change()
        deadline = time.monotonic() + 30
        # The message is on its way: soon, and from then on, what is told is new.
        while read() != wanted:
            assert time.monotonic() < deadline, change
        assert read() == wanted

    changes(lambda: other.set("k", "2"), lambda: client.get("k"), "2")
    changes(lambda: other.hdel("h", "g"), lambda: client.hgetall("h"), {"f": "a"})
    changes(lambda: other.expire("k", 0), lambda: client.get("k"), None)
    changes(lambda: other.mset({"a": 1, "b": 2}), lambda: client.mget("a", "b"), ["1", "2"])
    changes(lambda: other.eval("redis.call('set', KEYS[1], 7)", 1, "a"), lambda: client.mget("a", "b"), ["7", "2"])
    changes(lambda: other.rename("a", "b"), lambda: client.get("b"), "7")
    changes(other.flushall, lambda: client.get("b"), None)
    # Its own write is seen at once.
    client.set("k", "mine")
    assert client.get("k") == "mine"
    client.close()
    other.close()
