"""redis-py's lock and Pottery's Redlock: what they guard is a number in a file that
is read, incremented and written by several processes; none of the steps is lost."""

import sys
import time

import redis
from account import FOLDER, SECONDS, URL, Workers, report
from pottery import Redlock

KINDS = ("redis-py", "redlock")


def lock(kind, connection):
    if kind == "redis-py":
        return connection.lock("lock:" + kind, timeout=20, sleep=0.001)
    return Redlock(key="lock:" + kind, masters={connection}, auto_release_time=20)


def step(kind):
    path = FOLDER / kind
    number = int(path.read_text())
    time.sleep(0.0005)
    path.write_text(str(number + 1))


def worker():
    connection = redis.Redis.from_url(URL)
    steps = dict.fromkeys(KINDS, 0)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for kind in KINDS:
            with lock(kind, connection):
                step(kind)
                steps[kind] += 1
    for kind, number in steps.items():
        with open(FOLDER / f"{kind}-steps", "a") as file:
            file.write(f"{number}\n")


def main():
    for kind in KINDS:
        (FOLDER / kind).write_text("0")
    with Workers(*[[__file__, "worker"]] * 4) as workers:
        for process in workers.processes:
            assert process.wait(SECONDS + 60) == 0
    connection = redis.Redis.from_url(URL)
    held = connection.lock("lock:redis-py", timeout=1)
    assert held.acquire(blocking=False)
    assert not connection.lock("lock:redis-py").acquire(blocking=False), "two have it"
    assert held.extend(5) and held.reacquire() and held.owned()
    held.release()
    made = {kind: sum(map(int, (FOLDER / f"{kind}-steps").read_text().split())) for kind in KINDS}
    kept = {kind: int((FOLDER / kind).read_text()) for kind in KINDS}
    report(put=sum(made.values()), lost=sum(made[kind] - kept[kind] for kind in KINDS), twice=0)


if __name__ == "__main__":
    worker() if sys.argv[1:] == ["worker"] else main()
