"""Runs `snug bench` and `snug compare` as a user does and reads what they report."""

import json
import subprocess


class Bench:
    """Runs the program and keeps what it wrote."""

    def __init__(self, path, folder):
        self.path, self.folder = path, folder

    def run(self, *words, code=0):
        """Runs `snug WORDS` and checks its exit code; nothing is a terminal."""
        done = subprocess.run(
            [self.path, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=240,
            stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder)},
        )
        assert done.returncode == code, f"{words}: code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def bench(self, *words, code=0):
        return self.run("bench", "--rest", "0", *words, code=code)

    def report(self, *words, code=0):
        """The JSON report of a `bench` run, and what was written to stderr."""
        path = self.folder / "report.json"
        path.unlink(missing_ok=True)
        done = self.bench("-q", "--json", path, *words, code=code)
        return json.loads(path.read_text()), done.stderr

    def refusal(self, *words, code=1):
        """The one line with which a run is refused."""
        done = self.bench("-q", *words, code=code)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("snug: "), done.stderr
        return lines[0].removeprefix("snug: ")


def address(server):
    return ["-p", server.port]
