"""An operator's life with the Debian package, in a clean Debian: install, start, load,
restart, rotate, upgrade, back up, restore, remove, purge.

The root is made by mmdebstrap once and kept; without root's rights, or without the tools
and a mirror, the test is skipped and says why. No systemd runs in it: the test does what
the unit says.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from harness import servers
from harness.resp import Closed, Connection

from .conftest import ROOT, run

pytestmark = pytest.mark.snug_only

WAIT_SECONDS = 60
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "snug-root"
TOOLS = ("mmdebstrap", "dh", "dpkg-buildpackage", "unshare", "chroot")


def until(condition, what):
    deadline = time.monotonic() + WAIT_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return value


def clean_root():
    """The archive of a clean root, made if it is not there."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a clean root")
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    codename = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE)
    if not codename or "ID=debian" not in pathlib.Path("/etc/os-release").read_text():
        pytest.skip("this is no Debian, so its program would not run in one")
    archive = CACHE / f"{codename[1]}.tar"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = CACHE / f"{codename[1]}.{os.getpid()}.tar"
        # What the package depends on is there: installing it needs no mirror.
        made = subprocess.run(["mmdebstrap", "--mode=root", "--variant=minbase", "--include=systemd,logrotate", codename[1], fresh], capture_output=True, text=True, timeout=280)
        if made.returncode != 0:
            fresh.unlink(missing_ok=True)
            pytest.skip(f"a clean root cannot be made here: {made.stderr.strip().splitlines()[-1:]}")
        fresh.rename(archive)
    return archive


class Machine:
    """A clean root, and commands in it."""

    def __init__(self, root):
        self.root = root

    def command(self, *words):
        inside = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside, str(self.root), *map(str, words)]

    def run(self, *words):
        return run(*self.command(*words), env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"})

    def path(self, name):
        return self.root / name.lstrip("/")


class Service:
    """What systemd would do with the unit."""

    def __init__(self, machine):
        self.machine = machine
        text = (machine.path("/lib/systemd/system/snug.service")).read_text()
        self.says = dict(re.findall(r"^(\w+)=(.+)$", text, re.MULTILINE))
        self.process = None
        for kind, folder in (("StateDirectory", "/var/lib"), ("LogsDirectory", "/var/log"), ("RuntimeDirectory", "/run")):
            mode = self.says[f"{kind}Mode"]
            machine.run("install", "-d", "-o", self.says["User"], "-g", self.says["Group"], "-m", mode, f"{folder}/{self.says[kind]}")

    def start(self):
        words = self.says["ExecStart"].split()
        limits = ["sh", "-c", f"umask {self.says['UMask']}; exec \"$@\"", "sh"]
        command = self.machine.command("setpriv", "--reuid", self.says["User"], "--regid", self.says["Group"], "--clear-groups", *limits, *words)
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            said = self.process.communicate(timeout=WAIT_SECONDS)[1]
            assert self.process.returncode == 0, said
            self.process = None


@pytest.fixture
def machine(tmp_path):
    archive = clean_root()
    root = tmp_path / "root"
    root.mkdir()
    run("tar", "--extract", "--file", archive, "--directory", root, "--exclude=./dev/*")
    yield Machine(root)
    shutil.rmtree(root, ignore_errors=True)


def answers(port):
    try:
        with Connection(port) as connection:
            return connection.call("PING") == ("+", b"PONG")
    except (OSError, Closed):
        return False


@pytest.mark.skipif(not shutil.which("lintian"), reason="lintian is not installed")
def test_lintian_has_nothing_to_say(package):
    said = run("lintian", "--allow-root", "--fail-on", "error,warning", package)
    assert not said.strip(), said


@pytest.fixture(scope="session")
def package(binary, tmp_path_factory):
    missing = [tool for tool in ("dh", "dpkg-buildpackage") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    return build(binary, tmp_path_factory.mktemp("deb"))


def build(binary, folder):
    environment = {**os.environ, "SNUG_DEB_COMPRESSION": "-Zgzip -z1"}
    return run(ROOT / "packaging" / "deb" / "build", binary, folder, env=environment).split()[-1]


def next_version(package, folder, version):
    """The same package as one of a later version."""
    run("dpkg-deb", "--raw-extract", package, folder / "next")
    control = folder / "next" / "DEBIAN" / "control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.MULTILINE))
    run("dpkg-deb", "-Znone", "--build", folder / "next", folder / "next.deb")
    return folder / "next.deb"


def test_an_operators_life(machine, package, binary, tmp_path):
    version = run(binary, "--version").split()[1]
    newer = next_version(package, tmp_path, f"{version}+next1")
    shutil.copy(package, machine.path("/root/first.deb"))
    shutil.copy(newer, machine.path("/root/next.deb"))

    # Install: a user, a configuration that only the service may read, a manual.
    machine.run("dpkg", "--install", "/root/first.deb")
    user = machine.run("getent", "passwd", "snug")
    assert user.endswith(("/usr/sbin/nologin\n", "/bin/false\n"))
    assert machine.run("stat", "--format", "%U %G %a", "/etc/snug/snug.conf") == "root snug 640\n"
    assert machine.run("snug", "--version") == f"snug {version}\n"
    assert "/etc/snug/snug.conf" in machine.run("dpkg-query", "--show", "--showformat", "${Conffiles}", "snugdb")
    enabled = machine.path("/etc/systemd/system/multi-user.target.wants/snug.service")
    assert enabled.is_symlink()
    said = subprocess.run(machine.command("systemd-analyze", "verify", "--man=no", "/lib/systemd/system/snug.service"), capture_output=True, text=True, timeout=WAIT_SECONDS).stderr
    assert not [line for line in said.splitlines() if "snug.service" in line], said

    # Start, on a port of this test: the operator's change of a conffile.
    port = servers.free_port()
    config = machine.path("/etc/snug/snug.conf")
    config.write_text(config.read_text().replace("port 6379\n", f"port {port}\n", 1) + "enable-debug-command local\nmaxmemory 200mb\n")
    service = Service(machine)
    service.start()
    try:
        until(lambda: answers(port), "the service does not answer")
        machine.run("snug", "ping", f"127.0.0.1:{port}")

        # Load.
        with Connection(port) as connection:
            users = [("SET", f"user:{number}", f'{{"id":{number},"name":"user number {number}","active":true}}') for number in range(1000)]
            assert set(connection.pipeline(users)) == {("+", b"OK")}
            for number in range(100):
                connection.call("XADD", "events", "*", "user", str(number), "what", "came in")
            digest = connection.call("DEBUG", "DIGEST")

        # Restart: what was there is there.
        service.stop()
        assert machine.run("stat", "--format", "%U %a", "/var/lib/snug/dump.rdb") == "snug 600\n"
        service.start()
        until(lambda: answers(port), "it does not come back")
        with Connection(port) as connection:
            until(lambda: connection.call("DEBUG", "DIGEST") == digest, "the data differ after a restart")

        # Rotate, as logrotate and its signal do.
        log = machine.path("/var/log/snug/snug.log")
        before = log.read_text()
        assert "ready to accept connections" in before
        rule = machine.path("/etc/logrotate.d/snug").read_text()
        assert "--signal=HUP" in rule
        machine.path("/root/rotate.conf").write_text(re.sub(r"postrotate.*?endscript", f"postrotate\n kill -HUP {service.process.pid}\n endscript", rule, flags=re.DOTALL))
        machine.run("logrotate", "--force", "--state", "/root/state", "/root/rotate.conf")
        until(lambda: log.exists() and "opened again" in log.read_text(), "the log is not made anew")
        assert log.with_name("snug.log.1").read_text().startswith(before)
        assert answers(port)

        # Back up while it runs.
        with Connection(port) as connection:
            assert connection.call("SAVE") == ("+", b"OK")
        shutil.copy(machine.path("/var/lib/snug/dump.rdb"), machine.path("/root/backup.rdb"))
        assert "user" not in machine.run("snug", "check", "/root/backup.rdb").partition("DAMAGED")[2]

        # Upgrade: data and the changed configuration stay.
        service.stop()
        machine.run("dpkg", "--install", "/root/next.deb")
        assert machine.run("dpkg-query", "--show", "--showformat", "${Version}", "snugdb") == f"{version}+next1"
        assert f"port {port}\n" in config.read_text()
        assert machine.run("stat", "--format", "%U %G %a", "/etc/snug/snug.conf") == "root snug 640\n"
        service.start()
        until(lambda: answers(port), "it does not start after the upgrade")
        with Connection(port) as connection:
            until(lambda: connection.call("DEBUG", "DIGEST") == digest, "the data differ after the upgrade")

            # An accident, and the backup put back.
            assert connection.call("FLUSHALL") == ("+", b"OK")
        service.stop()
        machine.run("install", "-o", "snug", "-g", "snug", "-m", "600", "/root/backup.rdb", "/var/lib/snug/dump.rdb")
        service.start()
        until(lambda: answers(port), "it does not start with the backup")
        with Connection(port) as connection:
            until(lambda: connection.call("DEBUG", "DIGEST") == digest, "the backup is not what was saved")
        service.stop()
    finally:
        if service.process is not None:
            service.process.kill()
            service.process.wait()

    # Remove: the program goes, configuration and data stay. Purge: all of it goes.
    machine.run("dpkg", "--remove", "snugdb")
    assert not machine.path("/usr/bin/snug").exists()
    assert config.exists() and machine.path("/var/lib/snug/dump.rdb").exists()
    machine.run("dpkg", "--purge", "snugdb")
    for gone in ("/etc/snug", "/var/lib/snug", "/var/log/snug", "/etc/logrotate.d/snug"):
        assert not machine.path(gone).exists(), gone
    assert not enabled.is_symlink()


def test_a_container_needs_no_more_than_its_image(binary, tmp_path):
    """The image's folders as root, and the user that it names: no shell, no tools."""
    if os.geteuid() != 0:
        pytest.skip("only root can change the root")
    context = tmp_path / "context"
    run(ROOT / "packaging" / "container" / "rootfs", binary, context)
    text = (context / "Containerfile").read_text()
    user = re.search(r"^USER (\S+)$", text, re.MULTILINE)[1]
    entry = re.findall(r'"([^"]*)"', re.search(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[1])
    health = re.findall(r'"([^"]*)"', re.search(r"^HEALTHCHECK .*CMD (.*)$", text, re.MULTILINE)[1])
    root = context / "root"
    assert not (root / "bin").exists() and not (root / "usr" / "bin" / "sh").exists()
    (root / "data").mkdir()
    os.chown(root / "data", *map(int, user.split(":")))
    port = servers.free_port()
    start = ["chroot", f"--userspec={user}", str(root)]
    environment = {"SNUG_ADDRESS": f"127.0.0.1:{port}", "PATH": os.environ["PATH"]}
    assert subprocess.run([*start, *health], env=environment, capture_output=True, timeout=WAIT_SECONDS).returncode == 1
    # The host's own network is not to be opened for the test.
    entry = ["127.0.0.1" if word == "* -::*" else word for word in entry]
    server = subprocess.Popen([*start, *entry, "--port", str(port), "--requirepass", "secret"], env={"PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL)
    try:
        until(lambda: subprocess.run([*start, *health], env=environment, capture_output=True, timeout=WAIT_SECONDS).returncode == 0, "the health check fails")
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(WAIT_SECONDS) == 0
