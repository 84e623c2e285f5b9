"""Users in files: the ACL file, the configuration file, and what is written there; and
that no password is told where it does not belong."""

import os
import subprocess

import pytest

pytestmark = pytest.mark.snug_only


def users(connection):
    return [line.decode() for _, line in connection.call("ACL", "LIST")[1]]


@pytest.fixture
def with_file(target, tmp_path):
    """A server with an ACL file, and that file."""
    file = tmp_path / "users.acl"
    file.write_text("user default on nopass ~* &* +@all\n\nuser a on >secret ~a* +get (+set ~b)\n")
    server = target.start("--aclfile", str(file))
    yield server, file
    server.stop()


def test_a_file_is_loaded_and_saved(with_file):
    server, file = with_file
    with server.connect() as connection, server.connect() as other:
        before = users(connection)
        assert before[0].startswith("user a on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~a* resetchannels")
        assert other.call("AUTH", "a", "secret") == ("+", b"OK")
        file.write_text("user b on nopass +nosuch\nuser b on\n")
        kind, error = connection.call("ACL", "LOAD")
        assert kind == "-" and f"{file}:1: Error in applying operation '+nosuch'".encode() in error
        assert b"no change to the previously active ACL rules" in error
        assert users(connection) == before
        assert other.call("GET", "a1") == ("$", None)
        file.write_text("user b on nopass +get ~*\n")
        assert connection.call("ACL", "LOAD") == ("+", b"OK")
        assert users(connection) == ["user b on nopass ~* resetchannels -@all +get", "user default on nopass ~* &* +@all"]
        # Who had logged in as another user is gone.
        assert other.at_end()
        connection.call("ACL", "SETUSER", "c", "on", ">x", "+@read", "(~k &c +publish)")
        os.chmod(file, 0o640)
        assert connection.call("ACL", "SAVE") == ("+", b"OK")
        assert file.stat().st_mode & 0o777 == 0o640
        assert file.read_text().splitlines() == users(connection)
        assert [path.name for path in file.parent.iterdir()] == ["users.acl"]
        file.unlink()
        kind, error = connection.call("ACL", "LOAD")
        assert error == f"ERR Error loading ACLs, opening file '{file}': No such file or directory".encode()
        assert len(users(connection)) == 3
        assert connection.call("ACL", "SAVE") == ("+", b"OK")
        # A file made anew is nobody else's to read.
        assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_wrong_with_users_is_said_before_anything_starts(target, tmp_path):
    file = tmp_path / "users.acl"
    conf = tmp_path / "snug.conf"

    def refusal(lines, *flags):
        conf.write_text(lines)
        command = [target.path, "serve", str(conf), "--port", "0", *flags]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
        assert done.returncode == 1 and "secret" not in done.stderr + done.stdout
        return done.stderr

    file.write_text("user a on >secret +nosuch\n")
    assert "users.acl:1: Error in applying operation '+nosuch'" in refusal("", "--aclfile", str(file))
    assert "No such file" in refusal("aclfile nowhere.acl\n")
    both = refusal("user b on\n", "--aclfile", str(file))
    assert "not in both" in both
    assert "line 2: 'user a': Error in ACL SETUSER modifier '+nosuch'" in refusal("\nuser a on >secret +nosuch\n")
    assert "(hidden)" in refusal("user a on <secret\n")
    assert "Duplicate user found" in refusal("user a on\nuser a off\n")
    assert "Spaces not allowed" in refusal('user "a b" on\n')
    assert "wrong number of arguments" in refusal("user\n")
    assert "Unmatched parenthesis" in refusal("user a (+get\n")


def test_users_of_the_configuration_file_are_kept_there(target):
    lines = ["user a on >secret ~a* +get (+set ~b)", "# a comment", "requirepass first", "user b off"]
    server = target.start(config_lines=lines)
    file = server.directory / "server.conf"
    try:
        with server.connect() as connection:
            assert connection.call("AUTH", "first") == ("+", b"OK")
            assert connection.call("ACL", "LOAD")[0] == "-"
            before = users(connection)
            assert connection.call("CONFIG", "REWRITE") == ("+", b"OK")
            text = file.read_text()
            assert "secret" not in text and text.index("user a") < text.index("# a comment")
            assert [line for line in text.splitlines() if line.startswith("user ")] == before
            connection.call("ACL", "DELUSER", "a", "b")
            assert connection.call("CONFIG", "REWRITE") == ("+", b"OK")
            # The default user has the password of requirepass, which is enough to say.
            assert "user" not in file.read_text()
            connection.call("ACL", "SETUSER", "default", "-flushall")
            connection.call("ACL", "SETUSER", "c", "on", "nopass", "+ping")
            assert connection.call("CONFIG", "REWRITE") == ("+", b"OK")
            before = users(connection)
        server.process.terminate()
        server.process.wait()
        server.start()
        with server.connect() as connection:
            assert connection.call("AUTH", "first") == ("+", b"OK")
            assert users(connection) == before
            assert connection.call("FLUSHALL")[1].startswith(b"NOPERM")
    finally:
        server.stop()


def test_no_password_is_shown(target):
    server = target.start("--slowlog-log-slower-than", "0")
    try:
        with server.connect() as watcher, server.connect() as connection:
            watcher.send("MONITOR")
            assert watcher.reply() == ("+", b"OK")
            assert connection.call("ACL", "SETUSER", "a", "on", ">secret", "+@all", "~*")[0] == "+"
            assert connection.call("ACL", "SETUSER", "b", ">secret", "(nosuch")[0] == "-"
            assert connection.call("AUTH", "a", "secret")[0] == "+"
            assert connection.call("AUTH", "a", "secret-not")[0] == "-"
            assert connection.call("HELLO", "3", "AUTH", "a", "secret")[0] == "%"
            assert connection.call("CONFIG", "SET", "requirepass", "secret")[0] == "+"
            assert connection.call("GET", "end")[0] == "_"
            seen = b""
            while b'"end"' not in seen:
                seen += watcher.frame()[1]
            assert b"secret" not in seen
            for command in (["SLOWLOG", "GET", "100"], ["CLIENT", "LIST"], ["ACL", "LOG"], ["ACL", "LIST"], ["ACL", "GETUSER", "a"], ["INFO", "everything"]):
                assert "secret" not in repr(connection.call(*command)), command
            # Redis shows this one too, to who may use CONFIG.
            assert "secret" in repr(connection.call("CONFIG", "GET", "requirepass"))
        assert "secret" not in server.log(1000)
    finally:
        server.stop()


def test_a_changed_user_is_another_for_all_its_connections(server):
    """Several connections, so that those of both workers are among them."""
    with server.connect() as admin:
        admin.call("ACL", "SETUSER", "u", "on", "nopass", "+@all", "~*")
        theirs = [server.connect() for _ in range(8)]
        assert all(c.call("AUTH", "u", "x") == ("+", b"OK") for c in theirs)
        assert all(c.call("SET", "k", "v") == ("+", b"OK") for c in theirs)
        assert admin.call("ACL", "SETUSER", "u", "-set") == ("+", b"OK")
        assert all(c.call("SET", "k", "v")[1].startswith(b"NOPERM") for c in theirs)
        assert all(c.call("GET", "k") == ("$", b"v") for c in theirs)
        # A pipeline stops where the right ends.
        theirs[0].send("GET", "k")
        assert admin.call("ACL", "SETUSER", "u", "+@all") == ("+", b"OK")
        assert theirs[0].reply() == ("$", b"v")
        assert admin.call("ACL", "DELUSER", "u") == (":", 1)
        assert all(c.at_end() for c in theirs)


def test_shapes_of_keys_are_told_to_administrators(shared_server):
    with shared_server.connect() as connection:
        connection.call("ACL", "SETUSER", "app", "on", "nopass", "~app:*", "+@all", "-@admin", "-@dangerous")
        for what in (["FAMILIES"], ["DICTIONARIES"], ["POLICY", "GET"], ["OBJECT", "other:1"], ["PACK", "other:1"]):
            denied = connection.call("ACL", "DRYRUN", "app", "SNUG", *what)
            assert b"has no permissions" in denied[1], (what, denied)
        assert connection.call("ACL", "DRYRUN", "app", "SNUG", "OBJECT", "app:1") == ("+", b"OK")
        connection.call("ACL", "DELUSER", "app")
