"""What is saved is what comes back: snapshots and append-only files, Snug's and Redis's,
after an end, a crash, and while the disk fails."""

import os
import random
import resource
import shutil
import signal
import subprocess
import threading
import time

import pytest

from differential.generators import expand, templates
from harness import servers
from harness.resp import Closed, Silent

pytestmark = pytest.mark.snug_only
WAIT_SECONDS = 60
DEBUG = ["--enable-debug-command", "local"]
AOF = [*DEBUG, "--appendonly", "yes"]
GROUPS = ["strings", "bits", "keys", "lists", "hashes", "sets", "sorted_sets", "streams", "groups"]


def call(server, *words):
    with server.connect() as connection:
        return connection.call(*words)


def digest(server):
    return call(server, "DEBUG", "DIGEST")[1]


def until(what, *, seconds=WAIT_SECONDS):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return found


def loaded(server):
    until(lambda: server.info()["loading"] == "0")
    return server


def kill(server):
    server.process.kill()
    server.process.wait()


def again(server):
    """The same server once more, in its folder."""
    return loaded(server.start())


def shut(server, *how):
    with server.connect() as connection:
        connection.send("SHUTDOWN", *how)
        assert connection.at_end(), connection.frame()
    assert server.process.wait(WAIT_SECONDS) == 0, server.log()


def fill(server, seed, count=1500):
    """Random data of all types in some databases; whatever is refused is no matter."""
    rng = random.Random(seed)
    with server.connect() as connection:
        for n in range(count):
            if n % 200 == 0:
                connection.call("SELECT", str(rng.choice([0, 0, 3, 15])))
            words = expand(rng.choice(templates(rng.choice(GROUPS))), rng)
            if words and str(words[0]).upper() not in ("WAIT",) and "BLOCK" not in [str(w).upper() for w in words]:
                connection.call(*words)
        connection.call("SET", "large", "x" * 300_000)
        connection.call("RPUSH", "long", *[f"item {n}" for n in range(3000)])
        connection.call("ZADD", "board", *[word for n in range(2000) for word in (str(n / 4), f"member:{n}")])
        connection.call("HSET", "fields", *[word for n in range(2000) for word in (f"field:{n}", str(n))])
        connection.call("SADD", "members", *[f"{n:032x}" for n in range(2000)])
        for n in range(500):
            connection.call("XADD", "events", f"{n + 1}-1", "kind", "click", "user", str(n % 7))
        connection.call("XGROUP", "CREATE", "events", "workers", "0")
        connection.call("XREADGROUP", "GROUP", "workers", "one", "COUNT", "50", "STREAMS", "events", ">")
        connection.call("SET", "expires", "later", "EX", "100000")


@pytest.fixture
def start(target):
    """Starts servers, and ends them."""
    started = []

    def start(*flags, redis=False, files_of=None):
        server = servers.Server([servers.REDIS_SERVER], "reference", flags) if redis else target.server(*flags)
        if files_of is not None:
            for name in ("dump.rdb", "dump.snug", "appendonlydir", "appendonly.aof"):
                path = files_of.directory / name
                if path.is_dir():
                    shutil.copytree(path, server.directory / name)
                elif path.exists():
                    shutil.copy(path, server.directory)
        started.append(server)
        return loaded(server.start())

    yield start
    for server in started:
        server.stop()


def test_a_snapshot_comes_back_and_goes_to_redis_and_back(start):
    first = start(*DEBUG)
    fill(first, 1)
    expected = digest(first)
    assert call(first, "SAVE") == ("+", b"OK")
    kill(first)
    assert digest(again(first)) == expected
    theirs = start(*DEBUG, redis=True, files_of=first)
    assert digest(theirs) == expected
    call(theirs, "SET", "redis", "was here")
    expected = digest(theirs)
    call(theirs, "SAVE")
    assert digest(start(*DEBUG, files_of=theirs)) == expected


def dumps(server):
    return sorted(name for name in os.listdir(server.directory) if name.startswith("dump.") and not name.endswith(".lock"))


def dictionaries(server):
    """By family: its dictionary, for those that have one."""
    with server.connect() as connection:
        rows = connection.call("SNUG", "DICTIONARIES")[1]
    return len(rows)


def fill_packed(server, count=4000):
    """Values that are packed with dictionaries, all of them."""
    with server.connect() as connection:
        for n in range(count):
            connection.send("SET", f"user:{n}", f'{{"id":{n},"name":"user {n * 7919 % 1000}","mail":"u{n}@example.org","active":true}}')
        for n in range(count):
            connection.reply()
        for n in range(count):
            connection.send("HSET", f"profile:{n}", "name", f"user {n * 7919 % 1000}", "city", f"city {n % 40}", "mail", f"u{n}@example.org")
        for n in range(count):
            connection.reply()

def test_a_snapshot_in_snugs_format_comes_back_as_it_was(start, target):
    first = start(*DEBUG, "--save-format", "snug", "--pack-cold-after", "0")
    fill(first, 11)
    fill_packed(first)
    until(lambda: dictionaries(first) > 0)
    expected, known = digest(first), dictionaries(first)
    call(first, "CONFIG", "SET", "pack", "no")
    sizes = []
    for compressed in ("no", "yes"):
        call(first, "CONFIG", "SET", "rdbcompression", compressed)
        assert call(first, "SAVE") == ("+", b"OK")
        assert dumps(first) == ["dump.snug"]
        sizes.append((first.directory / "dump.snug").stat().st_size)
    assert sizes[1] < sizes[0] * 0.9
    used = int(first.info()["used_memory_dataset"])
    kill(first)
    again(first)
    assert digest(first) == expected
    assert dictionaries(first) >= known
    assert int(first.info()["used_memory_dataset"]) < used * 1.2
    # It can be looked at, and made into RDB, which redis-server loads.
    snug = target.command()[0]
    checked = subprocess.run([snug, "check", first.directory / "dump.snug"], capture_output=True, text=True)
    assert checked.returncode == 0 and "whole" in checked.stdout, checked
    rdb = first.directory / "dump.rdb"
    converted = subprocess.run([snug, "convert", first.directory / "dump.snug", rdb], capture_output=True, text=True)
    assert converted.returncode == 0, converted
    assert digest(start(*DEBUG, redis=True, files_of=first)) == expected
    rdb.unlink()
    # All of it again, in a server that has it already.
    assert call(first, "DEBUG", "RELOAD") == ("+", b"OK")
    assert digest(first) == expected
    # A snapshot in one format takes the place of one in the other.
    call(first, "CONFIG", "SET", "save-format", "rdb")
    call(first, "SET", "one", "more")
    expected = digest(first)
    assert call(first, "SAVE") == ("+", b"OK")
    assert dumps(first) == ["dump.rdb"]
    kill(first)
    assert digest(again(first)) == expected


def test_of_two_snapshots_the_newer_one_counts(start):
    server = start(*DEBUG, "--save-format", "snug")
    call(server, "SET", "k", "snug")
    call(server, "SAVE")
    snug = (server.directory / "dump.snug").read_bytes()
    call(server, "CONFIG", "SET", "save-format", "rdb")
    call(server, "SET", "k", "rdb")
    call(server, "SAVE")
    kill(server)
    (server.directory / "dump.snug").write_bytes(snug)
    for newer, older in (("snug", "rdb"), ("rdb", "snug")):
        os.utime(server.directory / f"dump.{older}", (1, 1))
        os.utime(server.directory / f"dump.{newer}", (2, 2))
        again(server)
        assert call(server, "GET", "k") == ("$", newer.encode())
        assert "there are two snapshots" in server.log()
        kill(server)
    # What a file is, is told by how it begins.
    os.remove(server.directory / "dump.snug")
    (server.directory / "dump.rdb").write_bytes(snug)
    assert call(again(server), "GET", "k") == ("$", b"snug")


@pytest.mark.parametrize("base", ["snug", "yes", "no"])
def test_the_base_of_an_append_only_file_is_written_as_is_asked(start, base):
    first = start(*AOF, "--aof-use-rdb-preamble", base, "--appendfsync", "always")
    fill(first, 12)
    call(first, "FUNCTION", "LOAD", LIBRARY.format("kept"))
    call(first, "HSET", "expiring", "a", "1", "b", "2")
    call(first, "ZADD", "scores", "inf", "a", "-inf", "b", "0.1", "c", "3e300", "d")
    call(first, "XADD", "emptied", "5-1", "a", "b")
    call(first, "XDEL", "emptied", "5-1")
    assert call(first, "BGREWRITEAOF")[0] == "+"
    until(lambda: first.info()["aof_rewrite_in_progress"] == "0")
    call(first, "APPEND", "after", "x")
    expected = digest(first)
    kill(first)
    ending = {"snug": "snug", "yes": "rdb", "no": "aof"}[base]
    assert f"appendonly.aof.2.base.{ending}" in os.listdir(first.directory / "appendonlydir")
    again(first)
    assert digest(first) == expected
    assert libraries(first) == [b"kept"]
    if base != "snug":
        theirs = start(*AOF, redis=True, files_of=first)
        assert digest(theirs) == expected
        assert libraries(theirs) == [b"kept"]


def test_an_append_only_file_comes_back_and_goes_to_redis_and_back(start):
    first = start(*AOF, "--appendfsync", "always", "--aof-use-rdb-preamble", "yes")
    fill(first, 2)
    assert call(first, "BGREWRITEAOF")[0] == "+"
    fill(first, 3, count=500)
    until(lambda: first.info()["aof_rewrite_in_progress"] == "0")
    call(first, "COPY", "long", "longer")
    call(first, "SWAPDB", "0", "3")
    expected = digest(first)
    kill(first)
    assert digest(again(first)) == expected
    theirs = start(*AOF, redis=True, files_of=first)
    assert digest(theirs) == expected
    call(theirs, "INCR", "redis was here")
    call(theirs, "BGREWRITEAOF")
    until(lambda: theirs.info()["aof_rewrite_in_progress"] == "0")
    call(theirs, "INCR", "redis was here")
    expected = digest(theirs)
    shut(theirs)
    assert digest(start(*AOF, files_of=theirs)) == expected


def test_an_append_only_file_of_one_file_is_taken_over(start):
    server = start(*AOF)
    kill(server)
    shutil.rmtree(server.directory / "appendonlydir")
    old = b"*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"
    (server.directory / "appendonly.aof").write_bytes(old)
    again(server)
    with server.connect() as connection:
        connection.call("SELECT", "2")
        assert connection.call("MGET", "k", "n")[1] == [("$", b"v"), ("$", b"1")]
    names = os.listdir(server.directory / "appendonlydir")
    assert "appendonly.aof" in names and "appendonly.aof" not in os.listdir(server.directory)
    call(server, "BGREWRITEAOF")
    until(lambda: "appendonly.aof.2.base.snug" in os.listdir(server.directory / "appendonlydir"))


def test_large_values_are_dumped_and_restored(start):
    """Aside, where workers serve others meanwhile, and within a transaction at once."""
    server = start(*DEBUG)
    theirs = start(*DEBUG, redis=True)
    with server.connect() as connection, theirs.connect() as reference:
        connection.call("SET", "text", "".join(f"word {n} " for n in range(300_000)))
        for n in range(0, 60_000, 5000):
            connection.call("HSET", "fields", *[word for at in range(n, n + 5000) for word in (f"field:{at}", f"value {at}")])
        for name in ("text", "fields"):
            before = connection.call("DEBUG", "DIGEST-VALUE", name)
            kind, payload = connection.call("DUMP", name)
            assert kind == "$"
            # What is behind it in the pipeline comes behind it.
            connection.send("DUMP", name)
            connection.send("PING")
            assert connection.reply() == ("$", payload) and connection.reply() == ("+", b"PONG")
            connection.call("MULTI")
            connection.call("DUMP", name)
            connection.call("RESTORE", f"{name}:2", "0", payload)
            assert connection.call("EXEC")[1] == [("$", payload), ("+", b"OK")]
            assert connection.call("RESTORE", name, "0", payload)[1].startswith(b"BUSYKEY")
            assert connection.call("RESTORE", name, "0", payload, "REPLACE") == ("+", b"OK")
            assert connection.call("RESTORE", f"{name}:3", "0", payload[:-1] + b"?")[0] == "-"
            assert reference.call("RESTORE", name, "0", payload) == ("+", b"OK")
            assert connection.call("RESTORE", f"{name}:3", "0", reference.call("DUMP", name)[1]) == ("+", b"OK")
            values = connection.call("DEBUG", "DIGEST-VALUE", name, f"{name}:2", f"{name}:3")[1]
            assert values == before[1] * 3


def test_a_snapshot_is_of_one_moment(start):
    """Pairs that are only ever changed together, saved while they are."""
    server = start(*DEBUG)
    call(server, "DEBUG", "POPULATE", "30000")
    stop = threading.Event()

    def write(seed):
        rng = random.Random(seed)
        with server.connect() as connection:
            while not stop.is_set():
                n = rng.randrange(300)
                connection.call("MULTI")
                connection.call("INCR", f"left:{n}")
                connection.call("INCR", f"right:{n}")
                connection.call("EXEC")

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        assert call(server, "SAVE") == ("+", b"OK")
        copy = start(files_of=server)
        with copy.connect() as connection:
            left = connection.call("MGET", *[f"left:{n}" for n in range(300)])
            right = connection.call("MGET", *[f"right:{n}" for n in range(300)])
            assert left == right
            assert connection.call("DBSIZE")[1] >= 30000
    stop.set()
    for thread in threads:
        thread.join()


def test_a_snapshot_can_be_slowed_down(start):
    server = start(*DEBUG)
    call(server, "DEBUG", "POPULATE", "20000")
    call(server, "CONFIG", "SET", "rdb-key-save-delay", "20000")
    call(server, "BGSAVE")
    until(lambda: server.info()["rdb_bgsave_in_progress"] == "1")
    until(lambda: int(server.info()["current_save_keys_processed"]) > 0)
    # What is changed from now on is not in it.
    call(server, "SET", "key:7", "later")
    assert server.info()["rdb_bgsave_in_progress"] == "1"
    call(server, "CONFIG", "SET", "rdb-key-save-delay", "-1000")
    until(lambda: server.info()["rdb_bgsave_in_progress"] == "0")
    kill(server)
    again(server)
    assert (call(server, "DBSIZE"), call(server, "GET", "key:7")) == ((":", 20000), ("$", b"value:7"))


def test_flushall_does_not_defeat_a_snapshot(start):
    server = start(*DEBUG)
    call(server, "DEBUG", "POPULATE", "200000")
    assert call(server, "BGSAVE")[0] == "+"
    call(server, "FLUSHALL")
    until(lambda: server.info()["rdb_bgsave_in_progress"] == "0")
    assert server.info()["rdb_last_bgsave_status"] == "ok"
    assert call(start(files_of=server), "DBSIZE")[1] in (0, 200000)


def test_how_it_ends_decides_what_is_saved(start):
    server = start(*DEBUG, "--save", "3600", "1")
    call(server, "SET", "k", "1")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(WAIT_SECONDS) == 0
    assert call(again(server), "GET", "k") == ("$", b"1")
    call(server, "SET", "k", "2")
    shut(server, "NOSAVE")
    assert call(again(server), "GET", "k") == ("$", b"1")
    call(server, "CONFIG", "SET", "save", "")
    call(server, "SET", "k", "3")
    shut(server, "SAVE")
    assert call(again(server), "GET", "k") == ("$", b"3")


def test_save_points_save(start):
    server = start(*DEBUG, "--save", "1", "3")
    before = call(server, "LASTSAVE")[1]
    with server.connect() as connection:
        for n in range(3):
            connection.call("SET", str(n), "x")
    until(lambda: call(server, "LASTSAVE")[1] > before)
    assert server.info()["rdb_changes_since_last_save"] == "0"
    kill(server)
    assert call(again(server), "DBSIZE") == (":", 3)


def test_what_cannot_be_saved_refuses_writes(start):
    server = start(*DEBUG, "--save", "3600", "1000000")
    call(server, "SET", "k", "1")
    obstacle = server.directory / f"temp-{server.pid}.rdb"
    obstacle.mkdir()
    assert call(server, "SAVE")[0] == "-"
    assert call(server, "SET", "k", "2")[1].startswith(b"MISCONF Redis is configured to save RDB snapshots")
    assert call(server, "PING")[1].startswith(b"MISCONF")
    assert call(server, "GET", "k") == ("$", b"1")
    with server.connect() as connection:
        connection.send("SHUTDOWN")
        assert connection.frame() == ("-", b"ERR Errors trying to SHUTDOWN. Check logs.")
    call(server, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    assert call(server, "SET", "k", "2") == ("+", b"OK")
    call(server, "CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
    obstacle.rmdir()
    assert call(server, "SAVE") == ("+", b"OK")
    assert call(server, "SET", "k", "3") == ("+", b"OK")


def test_a_full_disk_refuses_writes_and_loses_nothing(start, target):
    """The process may not make files longer: a write that goes beyond fails in part."""
    server = start(*AOF, "--appendfsync", "always")
    pid = server.pid
    everything = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (20_000, everything[1]))
    with server.connect() as held, server.connect() as other:
        acknowledged = 0
        while acknowledged < 1000:
            held.send("SET", f"k{acknowledged}", "x" * 100)
            try:
                assert held.reply(0.5) == ("+", b"OK")
            except Silent:
                break
            acknowledged += 1
        assert 50 < acknowledged < 250
        until(lambda: server.info()["aof_last_write_status"] == "err")
        assert other.call("SET", "a", "b")[1].startswith(b"MISCONF Errors writing to the AOF file: ")
        # What was read is of what is not on disk: it is not told.
        other.send("EXISTS", f"k{acknowledged}")
        with pytest.raises(Silent):
            other.reply(0.2)
        # Who asks for the end is refused, and the file stays on.
        for how in ([], ["NOSAVE"]):
            with server.connect() as ending:
                assert ending.call("SHUTDOWN", *how) == ("-", b"ERR Errors trying to SHUTDOWN. Check logs.")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "not ending" in server.log())
        assert server.info()["aof_enabled"] == "1"
        assert call(server, "SET", "a", "b")[1].startswith(b"MISCONF Errors writing to the AOF file: ")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, everything)
        # What was executed and not acknowledged is, as soon as it is on disk.
        assert held.reply() == ("+", b"OK")
        assert other.reply() == (":", 1)
        until(lambda: server.info()["aof_last_write_status"] == "ok")
        assert other.call("SET", "a", "b") == ("+", b"OK")
    kill(server)
    assert call(again(server), "DBSIZE") == (":", acknowledged + 2)


def test_who_waits_for_a_full_disk_is_told_nothing_when_the_server_ends_by_force(start):
    server = start(*AOF, "--appendfsync", "always", "--save", "")
    call(server, "SET", "a", "1")
    everything = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1000, everything[1]))
    with server.connect() as held:
        held.send("SET", "large", "x" * 10_000)
        until(lambda: server.info()["aof_last_write_status"] == "err")
        with server.connect() as ending:
            ending.send("SHUTDOWN", "FORCE")
            assert ending.at_end()
        assert held.at_end()
    assert server.process.wait(WAIT_SECONDS) == 0
    assert call(again(server), "KEYS", "*") == ("*", [("$", b"a")])


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_file_that_was_removed_while_nobody_writes_is_written_anew(start, policy):
    server = start(*AOF, "--appendfsync", policy, "--save", "")
    call(server, "SET", "a", "1")
    shutil.rmtree(server.directory / "appendonlydir")
    until(lambda: server.info()["aof_rewrites"] == "1")
    until(lambda: server.info()["aof_last_write_status"] == "ok")
    shutil.rmtree(server.directory / "appendonlydir")
    # At once: the end is refused until the file is there again.
    with server.connect() as ending:
        with pytest.raises(Closed):
            for _ in range(100):
                assert ending.call("SHUTDOWN") == ("-", b"ERR Errors trying to SHUTDOWN. Check logs.")
    assert server.process.wait(WAIT_SECONDS) == 0
    assert call(again(server), "GET", "a") == ("$", b"1")


def test_a_snapshot_that_failed_is_tried_again(start):
    """Whatever save points ask for: writes are refused until it succeeds."""
    server = start("--save", "3600", "1")
    obstacle = server.directory / "dump.rdb"
    obstacle.mkdir()
    call(server, "SET", "k", "1")
    assert call(server, "SAVE")[0] == "-"
    assert call(server, "SET", "k", "2")[1].startswith(b"MISCONF ")
    obstacle.rmdir()
    until(lambda: call(server, "SET", "k", "2") == ("+", b"OK"))


def test_the_end_waits_for_the_base_of_a_file_that_was_just_turned_on(start):
    server = start(*DEBUG, "--save", "")
    call(server, "DEBUG", "POPULATE", "100000")
    assert call(server, "CONFIG", "SET", "appendonly", "yes") == ("+", b"OK")
    shut(server)
    server.command += ["--appendonly", "yes"]
    assert call(again(server), "DBSIZE") == (":", 100_000)


def test_two_servers_never_share_their_files(start, target):
    for flags, name in ((AOF, "appendonly.aof.lock"), ([*DEBUG, "--save", "60", "1"], "dump.rdb.lock")):
        first = start(*flags)
        second = target.server(*flags)
        at = second.command.index("--dir") + 1
        second.command[at] = str(first.directory)
        second.launch()
        assert second.process.wait(WAIT_SECONDS) == 1
        assert f"{name} is locked: another server uses these files" in second.log()
        assert call(first, "PING") == ("+", b"PONG")


def test_nobody_is_served_what_was_loaded_in_part(start):
    server = start(*DEBUG)
    call(server, "DEBUG", "POPULATE", "100000")
    call(server, "SAVE")
    kill(server)
    path = server.directory / "dump.rdb"
    damaged = bytearray(path.read_bytes())
    damaged[-1000] ^= 1
    path.write_bytes(damaged)
    server.launch()
    answers = set()
    while server.process.poll() is None:
        try:
            with server.connect() as connection:
                while True:
                    answers.add(connection.call("SET", "new", "1"))
        except (Closed, OSError):
            pass
    assert server.process.wait() == 1
    assert answers <= {("-", b"LOADING Redis is loading the dataset in memory")}


def test_what_is_damaged_is_refused_with_where_and_why(start, target):
    server = start(*DEBUG)
    fill(server, 4, count=200)
    call(server, "SAVE")
    kill(server)
    path = server.directory / "dump.rdb"
    whole = path.read_bytes()
    for damaged in (whole[:1000], whole[:2000] + b"\xfb" + whole[2001:], b"REDIS9999" + whole[9:], b"hello"):
        path.write_bytes(damaged)
        server.launch()
        assert server.process.wait(WAIT_SECONDS) == 1
        assert "dump.rdb: " in server.log(4)
    path.write_bytes(whole)
    again(server)
    call(server, "CONFIG", "SET", "save-format", "snug")
    call(server, "SAVE")
    kill(server)
    path = server.directory / "dump.snug"
    whole = path.read_bytes()
    for damaged in (whole[:1000], whole[:2000] + b"\xfb" + whole[2001:], whole[:9] + b"\x09" + whole[10:], whole + b"\0"):
        path.write_bytes(damaged)
        server.launch()
        assert server.process.wait(WAIT_SECONDS) == 1
        assert "dump.snug: byte " in server.log(4)
    path.write_bytes(whole)
    again(server)


def test_an_append_only_file_that_was_cut_off_is_loaded_up_to_there(start):
    server = start(*AOF, "--appendfsync", "always")
    call(server, "SET", "k", "1")
    with server.connect() as connection:
        connection.call("MULTI")
        connection.call("SET", "k", "2")
        connection.call("SET", "j", "2")
        connection.call("EXEC")
    kill(server)
    path = server.directory / "appendonlydir" / "appendonly.aof.1.incr.aof"
    whole = path.read_bytes()
    for damaged in (whole[:-3], whole[: whole.index(b"EXEC") - 8], whole[:-20] + b"\0" * 20, whole[: whole.index(b"MULTI") + 30] + b"\0" * 200_000):
        path.write_bytes(damaged)
        again(server)
        assert call(server, "MGET", "k", "j")[1] == [("$", b"1"), ("$", None)]
        kill(server)
        assert path.read_bytes() == whole[: whole.index(b"*1\r\n$5\r\nMULTI")]
    path.write_bytes(whole[:-3])
    server.command += ["--aof-load-truncated", "no"]
    server.launch()
    assert server.process.wait(WAIT_SECONDS) == 1
    assert "aof-load-truncated would cut it there" in server.log(3)
    # In the middle nothing is cut off.
    path.write_bytes(whole.replace(b"SET", b"SOT", 1))
    server.launch()
    assert server.process.wait(WAIT_SECONDS) == 1
    assert "appendonly.aof.1.incr.aof: byte" in server.log(3) and "unknown command" in server.log(3)


def test_while_it_loads_it_says_so(start, target):
    """A pipe in the place of the snapshot: it loads until somebody has written to it."""
    saved = start(*DEBUG)
    call(saved, "SET", "k", "v")
    call(saved, "SAVE")
    content = (saved.directory / "dump.rdb").read_bytes()
    server = target.server(*DEBUG)
    os.mkfifo(server.directory / "dump.rdb")
    server.start()
    try:
        assert server.info()["loading"] == "1"
        assert call(server, "GET", "k") == ("-", b"LOADING Redis is loading the dataset in memory")
        assert call(server, "PING") == ("-", b"LOADING Redis is loading the dataset in memory")
        with open(server.directory / "dump.rdb", "wb") as pipe:
            pipe.write(content)
        assert call(loaded(server), "GET", "k") == ("$", b"v")
        os.remove(server.directory / "dump.rdb")
    finally:
        server.stop()


def test_the_append_only_file_is_turned_on_and_off(start):
    server = start(*DEBUG)
    fill(server, 5, count=300)
    assert call(server, "WAITAOF", "1", "0", "0")[1] == b"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
    assert call(server, "CONFIG", "SET", "appendonly", "yes") == ("+", b"OK")
    until(lambda: server.info().get("aof_pending_rewrite") == "0")
    with server.connect() as connection:
        connection.call("SET", "after", "1")
        assert connection.call("WAITAOF", "1", "0", "0")[1] == [(":", 1), (":", 0)]
        assert connection.call("WAITAOF", "0", "1", "10")[1] == [(":", 1), (":", 0)]
    expected = digest(server)
    kill(server)
    server.command += ["--appendonly", "yes"]
    assert digest(again(server)) == expected
    assert call(server, "CONFIG", "SET", "appendonly", "no") == ("+", b"OK")
    assert server.info()["aof_enabled"] == "0"
    call(server, "SET", "not", "there")
    kill(server)
    assert digest(again(server)) == expected


def test_it_is_rewritten_when_it_has_grown(start):
    server = start(*AOF, "--auto-aof-rewrite-min-size", "100kb")
    with server.connect() as connection:
        for n in range(3000):
            connection.call("SET", f"k{n % 10}", "x" * 100)
    until(lambda: int(server.info()["aof_rewrites"]) > 0)
    assert call(server, "WAITAOF", "1", "0", "0")[1] == [(":", 1), (":", 0)]
    until(lambda: int(server.info()["aof_current_size"]) < 300_000)
    manifest = (server.directory / "appendonlydir" / "appendonly.aof.manifest").read_text()
    assert ".1.base." not in manifest
    kill(server)
    assert call(again(server), "DBSIZE") == (":", 10)


def test_a_reload_changes_nothing(start):
    server = start(*AOF)
    fill(server, 6)
    expected = digest(server)
    assert call(server, "DEBUG", "RELOAD") == ("+", b"OK")
    assert digest(server) == expected
    call(server, "SET", "after", "reload")
    expected = digest(server)
    shut(server)
    assert digest(again(server)) == expected


def killed_under_load(server, policy, rng, clients=4):
    """Kills a server that is written to; what each client was told, in order."""
    told = [[] for _ in range(clients)]

    def write(number):
        mine = told[number]
        try:
            with server.connect() as connection:
                connection.call("SELECT", str(number))
                n = 0
                while True:
                    batch = rng.randrange(1, 8)
                    for at in range(n, n + batch):
                        connection.send("SET", f"k{at}", f"{at}")
                    for at in range(n, n + batch):
                        assert connection.reply() == ("+", b"OK")
                        mine.append(at)
                    n += batch
        except (Closed, OSError):
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    until(lambda: all(len(mine) > 20 for mine in told))
    time.sleep(rng.random() / 4)
    if rng.random() < 0.5:
        call(server, "BGREWRITEAOF")
        time.sleep(rng.random() / 50)
    kill(server)
    for thread in threads:
        thread.join()
    return told


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_kill_under_load_loses_nothing_that_may_not_be(start, policy):
    """Nothing that was acknowledged, whatever `appendfsync` says: the system has it before
    the client is told. And of each client a beginning is there."""
    rng = random.Random(os.environ.get("SNUG_KILL_SEED", policy))
    for _ in range(int(os.environ.get("SNUG_KILLS", 10))):
        server = start(*AOF, "--appendfsync", policy)
        told = killed_under_load(server, policy, rng)
        again(server)
        for number, mine in enumerate(told):
            with server.connect() as connection:
                connection.call("SELECT", str(number))
                held = connection.call("DBSIZE")[1]
                names = [f"k{at}" for at in range(held)]
                values = connection.call("MGET", *names)[1] if names else []
                assert values == [("$", str(at).encode()) for at in range(held)], "it is no beginning"
            lost = len(mine[held:])
            assert not lost, f"{lost} of {len(mine)} acknowledged writes are lost"
        server.stop()


LIBRARY = "#!lua name={0}\nredis.register_function('{0}_f', function(keys, args) return '{0}' end)"


def libraries(server):
    with server.connect() as c:
        return [dict(zip(*[iter(one[1])] * 2))[("$", b"library_name")][1] for one in c.call("FUNCTION", "LIST")[1]]


def test_libraries_of_functions_are_kept(target):
    server = target.start(*AOF)
    try:
        with server.connect() as c:
            for name in ("one", "two", "three"):
                c.call("FUNCTION", "LOAD", LIBRARY.format(name))
            c.call("FUNCTION", "DELETE", "two")
            payload = c.call("FUNCTION", "DUMP")[1]
        kept = libraries(server)
        assert kept == [b"one", b"three"]
        # From the append-only file, which is synced once a second.
        shut(server, "NOSAVE")
        again(server)
        assert libraries(server) == kept
        with server.connect() as c:
            assert c.call("BGREWRITEAOF")[0] == "+"
            until(lambda: server.info()["aof_rewrite_in_progress"] == "0")
            c.call("FUNCTION", "FLUSH")
            assert c.call("FUNCTION", "RESTORE", payload) == ("+", b"OK")
            # In a transaction, with a key beside it.
            c.call("MULTI")
            c.call("SET", "k", "v")
            c.call("FUNCTION", "LOAD", "REPLACE", LIBRARY.format("three"))
            c.call("EXEC")
            c.call("DEBUG", "RELOAD")
        assert libraries(server) == kept
        shut(server, "NOSAVE")
        again(server)
        assert libraries(server) == kept
        assert call(server, "FCALL", "three_f", "0") == ("$", b"three")
        # From a snapshot; redis-server finds them in it too.
        assert call(server, "SAVE")[0] == "+"
        shut(server, "NOSAVE")
        theirs = servers.Server([servers.REDIS_SERVER], "reference")
        shutil.copy(server.directory / "dump.rdb", theirs.directory / "dump.rdb")
        loaded(theirs.start())
        try:
            assert sorted(libraries(theirs)) == kept
        finally:
            theirs.stop()
    finally:
        server.stop()


@pytest.mark.parametrize("hides", ["yes", "no"])
def test_the_log_tells_of_no_data_if_it_is_not_to(target, hides):
    """What is wrong with a file, here a value that ends in the middle, is told without the
    names of keys."""
    flags = ("--hide-user-data-from-log", hides)
    server = target.start(*flags)
    with server.connect() as connection:
        connection.call("SET", "secret-key", "secret-value")
        connection.call("SAVE")
    dump = (server.directory / "dump.rdb").read_bytes()
    server.stop()
    cut = target.server(*flags)
    (cut.directory / "dump.rdb").write_bytes(dump[: dump.index(b"secret-value") + 3])
    cut.launch()
    assert cut.process.wait(servers.START_SECONDS) == 1
    assert ("secret" in cut.log()) == (hides == "no")
    cut.stop()


@pytest.mark.parametrize("policy", ["everysec", "always"])
def test_an_append_only_file_that_is_turned_on_beside_a_rewrite_comes_to_be(target, policy):
    """The rewrite began before there was a file: it is of no use to it, and keeps nobody."""
    for _ in range(6):
        server = target.start("--appendfsync", policy)
        with server.connect() as client:
            replies = client.pipeline([("BGREWRITEAOF",), ("CONFIG", "SET", "appendonly", "yes"), ("SAVE",), ("SET", "k", "x")])
            assert replies[-1] == ("+", b"OK")
            until(lambda: server.info()["aof_rewrite_in_progress"] == "0")
            assert client.call("SET", "k", "y") == ("+", b"OK")
        server.stop()
