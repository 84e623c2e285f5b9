"""What the programs of this folder share: where the server is, for how long to put
jobs in, and an account of jobs that does not go through the server under test.

A job that has done its work appends its number to a file; `settle` waits until all
that were put in are there, and prints how many were lost or done more than once.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import time

PORT = int(os.environ["PORT"])
SECONDS = float(os.environ["SECONDS"])
FOLDER = pathlib.Path(os.environ["FOLDER"])
URL = f"redis://127.0.0.1:{PORT}/0"
#: How long all jobs may take that are left when no more are put in.
DRAIN_SECONDS = 90


def done(job, ledger="done"):
    """A job has done its work. A short line is appended whole, whoever else writes."""
    with open(FOLDER / ledger, "ab", buffering=0) as file:
        file.write(b"%d\n" % job)


def seen(job, ledger):
    """How often this job was told to `done` in that ledger."""
    return counts(ledger)[job]


def first_time(job):
    """Whether nobody has asked this of the job before."""
    try:
        os.close(os.open(FOLDER / f"tried-{job}", os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def has_begun(job):
    """Whether somebody has."""
    return (FOLDER / f"tried-{job}").exists()


def counts(ledger="done"):
    try:
        return collections.Counter(int(line) for line in (FOLDER / ledger).read_text().split())
    except FileNotFoundError:
        return collections.Counter()


def for_a_while(most=10**9):
    """Numbers of jobs to put in, until the time is over."""
    end = time.monotonic() + SECONDS
    job = 0
    while time.monotonic() < end and job < most:
        yield job
        job += 1


def wait_for(number, ledger="done"):
    """Waits until as many jobs are done."""
    end = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < end and len(counts(ledger)) < number:
        time.sleep(0.05)


def settle(put, ledger="done", **more):
    """Waits for the jobs that were put in, but those that may be lost, and prints the
    account."""
    wait_for(put - more.get("may_lose", 0), ledger)
    found = counts(ledger)
    report(put=put, lost=sum(job not in found for job in range(put)), twice=sum(n > 1 for n in found.values()), **more)


def report(**account):
    print("ACCOUNT " + json.dumps(account), flush=True)


class Workers:
    """Processes that end when the block does, killed if they do not."""

    def __init__(self, *commands):
        self.commands = commands

    def __enter__(self):
        self.processes = [self.launch(command) for command in self.commands]
        return self

    @staticmethod
    def launch(command):
        return subprocess.Popen(
            [sys.executable, *command], stdout=sys.stderr, stdin=subprocess.DEVNULL, cwd=pathlib.Path(__file__).parent
        )

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
