"""Disks that fail while the server works: full, read-only, failing in a sync, hanging,
gone. Writes are refused, it is told, nothing acknowledged is lost, and it goes on by
itself when the disk is well again."""

import errno
import shutil
import subprocess

import pytest

from harness.faults import Disk
from harness.resp import Silent
from serve.test_persistence import AOF, again, call, kill, loaded, until

pytestmark = pytest.mark.snug_only


@pytest.fixture
def start(target, shim, tmp_path, monkeypatch):
    started = []

    def start(*flags):
        disk = Disk(tmp_path / f"faults-{len(started)}")
        for name, value in disk.environment(shim).items():
            monkeypatch.setenv(name, value)
        server = target.server(*flags)
        started.append((server, disk))
        return loaded(server.start()), disk

    yield start
    for server, disk in started:
        disk.heal()
        server.stop()


class Writer:
    """Writes one key after the other, and knows which were acknowledged."""

    def __init__(self, server):
        self.server, self.sent, self.told = server, 0, []
        self.connection = server.connect()
        self.waiting = []

    def write(self, wait=20):
        """Writes one more; whether it was taken. None if there is no answer yet."""
        self.connection.send("SET", f"k{self.sent}", f"v{self.sent}")
        self.waiting.append(self.sent)
        self.sent += 1
        return self.answer(wait)

    def answer(self, wait=20):
        try:
            kind, text = self.connection.reply(wait)
        except Silent:
            return None
        number = self.waiting.pop(0)
        if kind == "+":
            self.told.append(number)
            return True
        assert text.startswith(b"MISCONF "), text
        return False

    def all_there(self):
        names = [f"k{number}" for number in self.told]
        got = call(self.server, "MGET", *names)[1]
        return [value for _, value in got] == [f"v{number}".encode() for number in self.told]


def refused(writer):
    """Writes until it is refused."""
    until(lambda: writer.write() is False)


def taken(writer):
    until(lambda: writer.write() is True)


def settled(server):
    """The append-only file is whole on disk, and all that was acknowledged is in it."""
    until(lambda: server.info()["aof_last_write_status"] == "ok" and server.info()["aof_pending_rewrite"] == "0")
    assert call(server, "WAITAOF", "1", "0", "0")[1][0] == (":", 1)


KINDS = {
    "read-only": dict(write=errno.EROFS, sync=errno.EROFS, name=errno.EROFS),
    "failing in writes": dict(write=errno.EIO),
    "failing in syncs": dict(sync=errno.EIO),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_disk_that_fails_and_is_well_again(start, policy, kind):
    server, disk = start(*AOF, "--appendfsync", policy, "--save", "3600", "1000000")
    writer = Writer(server)
    for _ in range(50):
        assert writer.write()
    settled(server)
    disk.set(**KINDS[kind])
    if policy == "always":
        # What is not on disk is not acknowledged, but as soon as it is.
        assert writer.write(0.3) is None
        other = Writer(server)
        other.sent = 1000
        refused(other)
    else:
        other = writer
        refused(writer)
    assert server.info()["aof_last_write_status"] == "err"
    # With `always` reads wait for the disk too: what they tell may not be on it.
    assert policy == "always" or call(server, "GET", "k1") == ("$", b"v1")
    if kind != "failing in syncs":
        until(lambda: call(server, "BGSAVE")[0] == "+")
        until(lambda: server.info()["rdb_last_bgsave_status"] == "err")
    until(lambda: call(server, "BGREWRITEAOF")[0] == "+")
    until(lambda: server.info()["aof_last_bgrewrite_status"] == "err")
    disk.heal()
    if policy == "always":
        assert until(lambda: writer.answer() is True)
    # No snapshot that failed stands in the way: one is saved anew.
    until(lambda: call(server, "SAVE") == ("+", b"OK"))
    taken(other)
    settled(server)
    until(lambda: call(server, "BGREWRITEAOF")[0] == "+")
    until(lambda: server.info()["aof_rewrite_in_progress"] == "0" and server.info()["aof_rewrite_scheduled"] == "0")
    assert server.info()["aof_last_bgrewrite_status"] == "ok"
    settled(server)
    kill(server)
    again(server)
    assert writer.all_there() and other.all_there()


def test_a_disk_that_hangs_in_a_sync(start):
    server, disk = start(*AOF, "--appendfsync", "always")
    writer = Writer(server)
    assert writer.write()
    disk.set(hang=1)
    assert writer.write(0.3) is None
    # Who needs no disk is served. It is told how long it lasts, and then writes are refused.
    assert call(server, "PING") == ("+", b"PONG")
    until(lambda: int(server.info()["snug_aof_stalled_seconds"]) >= 1)
    until(lambda: server.info()["aof_last_write_status"] == "err")
    other = Writer(server)
    other.sent = 1000
    assert other.write() is False
    assert call(server, "SET", "x", "y")[1] == b"MISCONF Errors writing to the AOF file: the disk has not answered for 10 seconds"
    disk.heal()
    assert writer.answer() is True
    taken(other)
    settled(server)
    info = server.info()
    assert info["snug_aof_stalled_seconds"] == "0" and info["aof_delayed_fsync"] == "1"
    kill(server)
    again(server)
    assert writer.all_there() and other.all_there()


def test_while_a_sync_hangs_what_is_acknowledged_survives_the_process(start):
    """With `everysec`: replies wait for the system to have what was written, and not for
    the sync, which workers keep clear of."""
    server, disk = start(*AOF, "--appendfsync", "everysec")
    writer = Writer(server)
    assert writer.write()
    disk.set(hang=1)
    until(lambda: (writer.write(), server.info()["aof_pending_bio_fsync"] == "1")[1])
    for _ in range(50):
        assert writer.write()
    kill(server)
    disk.heal()
    again(server)
    assert writer.all_there()


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_the_folder_is_removed(start, policy):
    """What was in it is lost, and all there is is put on disk anew."""
    server, _ = start(*AOF, "--appendfsync", policy)
    writer = Writer(server)
    for _ in range(50):
        assert writer.write()
    shutil.rmtree(server.directory / "appendonlydir")

    def is_there_again():
        writer.write()
        return (server.directory / "appendonlydir" / "appendonly.aof.manifest").exists()

    until(is_there_again)
    call(server, "CONFIG", "SET", "appendfsync", "always")
    settled(server)
    taken(writer)
    settled(server)
    kill(server)
    again(server)
    assert writer.all_there()


def test_the_whole_folder_is_removed_and_comes_back(target, tmp_path):
    work = tmp_path / "data"
    work.mkdir()
    server = target.server(*AOF, "--appendfsync", "everysec", "--save", "3600", "1000000")
    server.command[server.command.index("--dir") + 1] = str(work)
    loaded(server.start())
    try:
        writer = Writer(server)
        assert writer.write()
        shutil.rmtree(work)
        refused(writer)
        assert call(server, "SAVE")[0] == "-"
        work.mkdir()
        until(lambda: call(server, "SAVE") == ("+", b"OK"))
        assert (work / "dump.rdb").exists()
        taken(writer)
        settled(server)
        kill(server)
        again(server)
        assert writer.all_there()
    finally:
        server.stop()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 MB."""
    path = tmp_path / "small"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "snug-test", path], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here; RLIMIT_FSIZE and faults.c stand for a full disk")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_disk_that_is_full(target, small_disk, policy):
    server = target.server(*AOF, "--appendfsync", policy, "--save", "3600", "1000000", "--pack", "no")
    server.command[server.command.index("--dir") + 1] = str(small_disk)
    loaded(server.start())
    try:
        call(server, "DEBUG", "POPULATE", "2000", "filler", "1000")
        writer = Writer(server)
        assert writer.write()
        settled(server)
        filler = small_disk / "else"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(65536))
            except OSError as error:
                assert error.errno == errno.ENOSPC
        # Neither a snapshot nor a rewrite finds room; the old files stay.
        before = sorted(p.name for p in (small_disk / "appendonlydir").iterdir())
        assert call(server, "SAVE")[0] == "-"
        assert call(server, "BGREWRITEAOF")[0] == "+"
        until(lambda: server.info()["aof_last_bgrewrite_status"] == "err")
        assert not [p for p in small_disk.iterdir() if p.name.startswith(("temp-", "dump.rdb.", "dump.snug")) and not p.name.endswith(".lock")]
        assert set(before) - {"appendonly.aof.1.incr.aof"} <= {p.name for p in (small_disk / "appendonlydir").iterdir()}
        # It is the append-only file that is to refuse.
        call(server, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        with server.connect() as flood:
            until(lambda: (flood.send("SET", "large", "x" * 100_000), server.info()["aof_last_write_status"] == "err")[1])
        assert call(server, "SET", "a", "b")[1].startswith(b"MISCONF ")
        filler.unlink()
        until(lambda: server.info()["aof_last_write_status"] == "ok")
        until(lambda: call(server, "SAVE") == ("+", b"OK"))
        taken(writer)
        settled(server)
        kill(server)
        again(server)
        assert writer.all_there()
        assert call(server, "DBSIZE")[1] >= 2001
    finally:
        server.stop()
