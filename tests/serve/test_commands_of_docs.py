"""Every command line of README and docs, executed.

A block that begins with ```sh is run line by line, in a folder of its own and a network
of its own: ports are free there, and 10.0.0.1 is this machine. `snug serve` goes on in the
background, and must answer. A block that cannot run has a comment above it that says why:

    <!-- not run: it takes minutes of two cores -->

A block of any other kind that holds such a line fails the test.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "packaging" / "README.md"]
BLOCK = re.compile(r"(?:<!-- not run: (?P<why>[^>]+) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(?:snug|make|redis-\w+|curl|pip|npm|npx|docker|apt|dpkg|systemctl) ")
#: Servers that a page takes for granted.
STAGE = {
    "high-availability.md": ["redis-server --bind 10.0.0.1 --requirepass secret --save ''", "redis-server --bind 10.0.0.2 --requirepass password --save ''"],
    "advise.md": ["redis-server --bind 10.0.0.1 --save '' --protected-mode no"],
    "configuration.md": [],
}
#: What stands in docs for places that a test has elsewhere.
PLACES = {"/etc/snug/": "etc/", "/etc/snug.conf": "etc/snug.conf", "/var/lib/snug": "lib", "@old:": "@10.0.0.2:"}
WAIT_SECONDS = 60


def blocks(page):
    return [block.groupdict() for block in BLOCK.finditer(page.read_text())]


def lines(text):
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.lstrip().startswith("#")]


class Shell:
    """A folder in which lines are run, and the servers that they started."""

    def __init__(self, snug, page, folder):
        self.snug, self.page, self.folder, self.servers = snug, page, folder, {}
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "snug").symlink_to(snug)
        for name in ("etc", "lib"):
            (folder / name).mkdir()
        (folder / "etc" / "snug.conf").write_text("maxclients 100\n")
        (folder / "etc" / "users.acl").write_text("user default on nopass ~* &* +@all\n")
        (folder / "page.html").write_text("<html><p>a page</p></html>")
        (folder / "policy.json").write_text('{"level": 3}')
        self.environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        for line in STAGE.get(page.name, []):
            process = subprocess.Popen(shlex.split(line), cwd=folder / "lib", stdout=subprocess.DEVNULL)
            address = re.search(r"--bind (\S+)", line)[1]
            self.servers[address] = process
            self.wait_for(process, f"{address}:6379", line)

    def fail(self, line, why):
        sys.exit(f"{self.page}: {line}\n  {why}")

    def wait_for(self, process, *address):
        *address, line = address
        deadline = time.monotonic() + WAIT_SECONDS
        while subprocess.run([self.snug, "ping", *address], capture_output=True).returncode != 0:
            if process.poll() is not None or time.monotonic() > deadline:
                self.fail(line, f"does not answer (exit code {process.poll()})")
            time.sleep(0.05)

    def run(self, line):
        for place, here in PLACES.items():
            line = line.replace(place, here)
        words = shlex.split(line, comments=True)
        if words[:2] == ["snug", "serve"] and not words[2:3] == ["--help"]:
            flags = dict(zip(words, words[1:]))
            tls = flags.get("--port") == "0"
            port = flags.get("--tls-port" if tls else "--port", "6379")
            # Two of one folder cannot run at once: a page shows one after the other.
            for earlier in [name for name in self.servers if name.isdigit()]:
                self.stop(earlier)
            process = subprocess.Popen(["sh", "-c", "exec " + line], cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL)
            self.servers[port] = process
            self.wait_for(process, f"127.0.0.1:{port}", *(["--tls"] if tls else []), line)
            return
        done = subprocess.run(["sh", "-c", line], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=240)
        if done.returncode != 0 or "(error)" in done.stdout:
            self.fail(line, f"{done.returncode}: {done.stdout[-1000:]}{done.stderr[-1000:]}")

    def stop(self, name):
        process = self.servers.pop(name, None)
        if process is not None:
            process.terminate()
            process.wait(WAIT_SECONDS)

    def end(self):
        for name in list(self.servers):
            self.stop(name)


def run_all(snug, folder):
    """In a network of its own. Prints how many lines were run."""
    for words in (["link", "set", "lo", "up"], ["addr", "add", "10.0.0.1/32", "dev", "lo"], ["addr", "add", "10.0.0.2/32", "dev", "lo"]):
        subprocess.run(["ip", *words], check=True)
    count = 0
    for page in PAGES:
        shell = Shell(snug, page, folder / page.name.removesuffix(".md") / page.parent.name)
        try:
            for block in blocks(page):
                if block["kind"] == "sh" and not block["why"]:
                    for line in lines(block["text"]):
                        shell.run(line)
                        count += 1
        finally:
            shell.end()
    print(count, "run")


def test_every_command_line_is_run_or_says_why_not():
    silent = []
    for page in PAGES:
        for block in blocks(page):
            if block["kind"] != "sh" and not block["why"]:
                silent += [(page.name, line) for line in block["text"].splitlines() if COMMAND.match(line)]
        plain = BLOCK.sub("", page.read_text())
        silent += [(page.name, line) for line in plain.splitlines() if line.startswith("    ") and COMMAND.match(line.strip())]
    assert not silent


def test_commands(target, tmp_path):
    import pytest

    if target.is_redis:
        pytest.skip("the commands are Snug's")
    missing = [tool for tool in ("unshare", "ip", "redis-cli", "redis-server", "curl") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root's rights and {', '.join(missing) or 'nothing else'}")
    # Docs come to a handful of servers and as many clients: the wait is for them.
    done = subprocess.run(["unshare", "--net", sys.executable, __file__, os.path.realpath(target.path), tmp_path], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 12, done.stdout


if __name__ == "__main__":
    run_all(sys.argv[1], pathlib.Path(sys.argv[2]))
