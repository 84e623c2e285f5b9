"""`snug check` and `snug convert`: files that servers leave behind, without a server."""

import random
import subprocess
import time

import pytest

from differential.test_dumps import Client, facts, fill
from harness import servers

pytestmark = pytest.mark.snug_only
DEBUG = ("--enable-debug-command", "local")
KEYS = 28


@pytest.fixture(scope="module")
def saved(target, tmp_path_factory):
    """A dump.rdb by redis-server with values of all types, and what is in it."""
    redis = servers.redis(*DEBUG)
    client = Client(redis)
    for n in range(KEYS):
        client.call("SELECT", n % 3)
        fill(client, random.Random(n), f"k{n}", n % 7, [1, 20, 300][n % 3])
    client.call("PEXPIREAT", "k2", 9_999_999_999_999)
    told = tell(client)
    assert client.call("SAVE") == b"OK"
    path = tmp_path_factory.mktemp("saved") / "dump.rdb"
    path.write_bytes((redis.directory / "dump.rdb").read_bytes())
    redis.stop()
    return path, told


def tell(client):
    told = []
    for n in range(KEYS):
        client.call("SELECT", n % 3)
        told.append(facts(client, f"k{n}") + [client.call("PEXPIRETIME", f"k{n}")])
    return told


def run(target, *args):
    done = subprocess.run([target.path, *map(str, args)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_a_file_goes_to_snugs_format_and_back(target, saved, tmp_path):
    dump, told = saved
    code, text = run(target, "check", dump)
    assert code == 0 and f"database 0: {len(range(0, KEYS, 3))} keys, 0 of them expire" in text, text
    assert "stream: 4" in text and "whole" in text and "redis-ver: 7.0" in text
    image, back = tmp_path / "dump.snug", tmp_path / "dump.rdb"
    assert run(target, "convert", dump, image) == (0, f"{KEYS} keys written to {image}\n")
    code, text = run(target, "check", image)
    assert code == 0 and "Snug's format" in text and "stream: 4" in text, text
    assert run(target, "convert", image, back)[0] == 0
    code, text = run(target, "convert", image, back)
    assert code == 1 and "is there already" in text
    assert run(target, "check", back)[0] == 0
    # Redis loads what came back, and it is the same.
    redis = servers.redis(*DEBUG)
    (redis.directory / "dump.rdb").write_bytes(back.read_bytes())
    try:
        client = Client(redis)
        assert client.call("DEBUG", "RELOAD", "NOSAVE") == b"OK"
        assert tell(client) == told
    finally:
        redis.stop()


@pytest.mark.parametrize("to_snug", [False, True])
def test_damage_is_told_and_cut(target, saved, tmp_path, to_snug):
    path = tmp_path / "file"
    if to_snug:
        assert run(target, "convert", saved[0], path)[0] == 0
    else:
        path.write_bytes(saved[0].read_bytes())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 9 // 10])
    code, text = run(target, "check", path)
    assert code == 1 and "DAMAGED: " in text and "the end is missing" in text, text
    damaged = path.read_bytes()
    code, text = run(target, "check", "--fix", path)
    assert code == 0 and "cut there" in text, text
    assert (tmp_path / "file.damaged").read_bytes() == damaged
    code, text = run(target, "check", path)
    assert code == 0 and "whole" in text, text
    assert run(target, "convert", path, tmp_path / "cut")[0] == 0


def test_append_only_files_are_checked_and_cut(target, tmp_path):
    base, increment = tmp_path / "a.1.base.aof", tmp_path / "a.1.incr.aof"
    manifest = tmp_path / "a.manifest"
    manifest.write_text("file a.1.base.aof seq 1 type b\nfile a.1.incr.aof seq 1 type i\n")
    command = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"
    transaction = b"*1\r\n$5\r\nMULTI\r\n" + command + b"*1\r\n$4\r\nEXEC\r\n"
    base.write_bytes(command * 3)
    increment.write_bytes(b"#TS:1700000000\r\n" + command + transaction + transaction[:-9])
    code, text = run(target, "check", manifest)
    assert code == 1 and "commands: 3" in text and "last time noted: 1700000000" in text, text
    assert f"whole up to byte {16 + len(command + transaction)}" in text, text
    assert run(target, "check", "--fix", manifest)[0] == 0
    assert increment.read_bytes() == b"#TS:1700000000\r\n" + command + transaction
    assert run(target, "check", manifest)[0] == 0
    (tmp_path / "else").write_text("something else")
    assert run(target, "check", tmp_path / "else")[0] == 1


def loads(target, files, *flags):
    """Whether a server starts from these files, and what its log says then."""
    server = target.server(*DEBUG, *flags)
    for name, content in files.items():
        path = server.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    try:
        server.launch()
        # Who is refused may be answered for a moment, so only the log tells that all is there.
        while server.process.poll() is None:
            if "DB loaded from disk" in server.log():
                with server.connect() as connection:
                    while (reply := connection.call("DBSIZE"))[0] != ":":
                        time.sleep(0.02)
                    return True, reply[1]
            time.sleep(0.02)
        return False, server.log()
    finally:
        server.stop()


def set_of(key):
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$1\r\nv\r\n" % (len(key), key)


def append_only(base, increment, base_name=b"base.aof"):
    """The files of an append-only file of two parts, or of one."""
    lines = [b"file a.1.%s seq 1 type b\n" % base_name] * (base is not None)
    lines += [b"file a.1.incr.aof seq 1 type i\n"] * (increment is not None)
    files = {f"a.1.{base_name.decode()}": base, "a.1.incr.aof": increment, "a.manifest": b"".join(lines)}
    return {f"appendonlydir/{name}": content for name, content in files.items() if content is not None}


def check_and_load(target, folder, files, *flags):
    """What `snug check` says, and what a server does: of the manifest, or the only file."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    looked_at = next((name for name in files if name.endswith("manifest")), next(iter(files)))
    if len(files) > 1 or looked_at.endswith("manifest"):
        flags += ("--appendonly", "yes", "--appendfilename", "a")
    return run(target, "check", folder / looked_at), loads(target, files, *flags)


@pytest.mark.parametrize("change", [(b"k7\r\n", b"k7X\n"), (b"k7\r\n", b"k7\rX"), (b"$2\r\nk7", b"$2\rXk7"), (b"*3\r\n", b"*3\rX")])
def test_what_ends_a_line_counts_for_the_server_as_for_the_check(target, tmp_path, change):
    commands = b"".join(set_of(b"k%d" % n) for n in range(30)).replace(*change, 1)
    (code, text), (started, log) = check_and_load(target, tmp_path, append_only(None, commands))
    why = "a line or an argument of the command does not end as it should"
    assert code == 1 and why in text and not started and why in log, (text, log)


def test_only_the_last_of_several_files_is_cut(target, tmp_path):
    files = append_only(set_of(b"a") + set_of(b"b")[:-3], set_of(b"c"))
    check_and_load(target, tmp_path, files)
    manifest, base, increment = (tmp_path / "appendonlydir" / name for name in ("a.manifest", "a.1.base.aof", "a.1.incr.aof"))
    damaged = base.read_bytes()
    code, text = run(target, "check", "--fix", manifest)
    assert code == 1 and "NOT CUT: " in text and str(increment) in text and base.read_bytes() == damaged, text
    # Nothing builds on it once the other holds nothing.
    increment.write_bytes(b"")
    code, text = run(target, "check", "--fix", manifest)
    assert code == 0 and base.read_bytes() == set_of(b"a"), text
    files = {f"appendonlydir/{path.name}": path.read_bytes() for path in (manifest, base, increment)}
    assert loads(target, files, "--appendonly", "yes", "--appendfilename", "a") == (True, 1)


def test_what_stands_behind_the_end_of_a_dump_is_no_damage(target, saved, tmp_path):
    dump = saved[0].read_bytes()
    (code, text), (started, keys) = check_and_load(target, tmp_path, {"dump.rdb": dump + b"*"})
    assert code == 0 and "behind its end: 1 bytes" in text and started, (text, keys)
    # Behind a base it is a command that is not whole.
    (code, text), (started, log) = check_and_load(target, tmp_path, append_only(dump + b"X\r\n", b"", b"base.rdb"))
    assert code == 1 and "a line is no command" in text and not started, (text, log)


@pytest.mark.parametrize(
    "manifest, is_one",
    [
        (b"FILE a.1.base.aof SEQ 1 TYPE b\n", True),
        (b"seq 1 type b file a.1.base.aof\n", True),
        (b"  file a.1.base.aof seq 1 type b\r\n", True),
        (b"# a note\nfile a.1.base.aof seq 1 type b\n", True),
        (b"", False),
        (b"hello\n", False),
    ],
)
def test_a_manifest_is_one_for_the_check_if_it_is_for_the_server(target, tmp_path, manifest, is_one):
    files = append_only(set_of(b"a"), None) | {"appendonlydir/a.manifest": manifest}
    (code, text), (started, log) = check_and_load(target, tmp_path, files)
    assert (code == 0, started) == (is_one, is_one), (text, log)
    assert is_one or "line 1 of the manifest: " in text and "line 1 of the manifest: " in log, (text, log)


@pytest.mark.parametrize("name", ["dump.rdb", "dump.snug"])
@pytest.mark.parametrize("content", [b"", set_of(b"k")])
def test_a_snapshot_does_not_begin_as_an_append_only_file(target, tmp_path, name, content):
    (code, text), (started, log) = check_and_load(target, tmp_path, {name: content})
    assert code == 1 and "a snapshot begins otherwise" in text and not started, (text, log)
    assert run(target, "check", "--fix", tmp_path / name)[0] == 1
    assert (tmp_path / name).read_bytes() == content


def test_a_key_that_is_there_twice_is_refused(target, tmp_path):
    # A string of one byte, twice; RDB without a sum.
    key = b"\0\x03key\x01v"
    (code, text), (started, log) = check_and_load(target, tmp_path, {"dump.rdb": b"REDIS0010\xfe\0" + key * 2 + b"\xff" + bytes(8)})
    why = "key 'key' of database 0 is there twice"
    assert code == 1 and why in text and not started and why in log, (text, log)
    code, text = run(target, "convert", tmp_path / "dump.rdb", tmp_path / "dump.snug")
    assert code == 1 and why in text and not (tmp_path / "dump.snug").exists(), text
    # In another database it is another key.
    (tmp_path / "two.rdb").write_bytes(b"REDIS0010\xfe\0" + key + b"\xfe\x01" + key + b"\xff" + bytes(8))
    assert run(target, "check", tmp_path / "two.rdb")[0] == 0


def test_an_increment_may_begin_with_a_snapshot(target, tmp_path):
    dump = b"REDIS0010\xfe\0\0\x03key\x01v\xff" + bytes(8)
    files = append_only(set_of(b"a"), dump + b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n" + set_of(b"b"))
    (code, text), loaded = check_and_load(target, tmp_path, files)
    assert code == 0 and loaded == (True, 3), (text, loaded)
    # Behind an image no command could stand: what is changed next would be lost.
    assert run(target, "convert", "--to", "snug", tmp_path / "appendonlydir" / "a.1.incr.aof", tmp_path / "image")[0] == 0
    files = append_only(set_of(b"a"), (tmp_path / "image").read_bytes())
    (code, text), (started, log) = check_and_load(target, tmp_path, files)
    why = "byte 0: only a base can be in Snug's format"
    assert code == 1 and why in text and not started and why in log, (text, log)


def test_a_command_that_is_not_there_is_told_and_not_cut(target, tmp_path):
    commands = set_of(b"a") + b"*1\r\n$9\r\nFROBNICAT\r\n" + set_of(b"b")
    (code, text), (started, log) = check_and_load(target, tmp_path, append_only(None, commands))
    assert code == 1 and f"byte {len(set_of(b'a'))}: there is no command 'FROBNICAT'" in text and not started, (text, log)
    increment = tmp_path / "appendonlydir" / "a.1.incr.aof"
    code, text = run(target, "check", "--fix", increment)
    assert code == 1 and "NOT CUT" in text and increment.read_bytes() == commands, text


def test_a_transaction_ends_that_has_begun(target, tmp_path):
    commands = set_of(b"a") + b"*1\r\n$4\r\nEXEC\r\n" + set_of(b"b")
    (code, text), (started, log) = check_and_load(target, tmp_path, append_only(None, commands))
    assert code == 1 and "EXEC without MULTI" in text and not started and "EXEC without MULTI" in log, (text, log)


def test_append_only_files_go_back_to_a_time(target, tmp_path):
    def command(n):
        return b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n%d\r\n" % n

    def time(second):
        return b"#TS:%d\r\n" % second

    base, one, two = (tmp_path / name for name in ("a.1.base.aof", "a.1.incr.aof", "a.2.incr.aof"))
    manifest = tmp_path / "a.manifest"
    manifest.write_text("file a.1.base.aof seq 1 type b\nfile a.1.incr.aof seq 1 type i\nfile a.2.incr.aof seq 2 type i\n")
    transaction = b"*1\r\n$5\r\nMULTI\r\n" + command(2) + time(1030) + command(3) + b"*1\r\n$4\r\nEXEC\r\n"
    begin = time(1010) + command(0) + time(1020) + command(1)
    base.write_bytes(time(1005) + command(9))
    one.write_bytes(begin + transaction)
    two.write_bytes(time(1040) + command(4))
    # Earlier than the base, or later than everything: nothing happens.
    code, text = run(target, "check", "--to-timestamp", 1004, manifest)
    assert code == 1 and "is of 1005, which is later: nothing was cut" in text, text
    code, text = run(target, "check", "--to-timestamp", 1040, manifest)
    assert code == 0 and "nothing in it is later" in text, text
    assert two.stat().st_size > 0
    # What has no times is not cut.
    bare = tmp_path / "bare.aof"
    bare.write_bytes(command(1))
    code, text = run(target, "check", "--to-timestamp", 1, bare)
    assert code == 1 and "no times are noted" in text, text
    # A transaction is of the time that is noted within it.
    code, text = run(target, "check", "--to-timestamp", 1029, manifest)
    assert code == 0 and f"cut at byte {len(begin)}" in text, text
    assert (one.read_bytes(), two.read_bytes()) == (begin, b"")
    assert (tmp_path / "a.1.incr.aof.later").read_bytes() == begin + transaction
    assert (tmp_path / "a.2.incr.aof.later").read_bytes() == time(1040) + command(4)
    assert run(target, "check", "--to-timestamp", 1010, manifest)[0] == 0
    assert one.read_bytes() == time(1010) + command(0)
    manifest.write_text("file a.1.base.aof seq 1 type b\nfile a.1.incr.aof seq 0 type i\n")
    code, text = run(target, "check", manifest)
    assert code == 1 and "line 2 of the manifest: it has no number" in text, text
