"""Huey: priorities, delays, retries, a lock that lets one task in at a time, results;
storage is Huey's priority queue in Redis, which is Lua."""

import threading
import time

from account import PORT, Workers, counts, done, first_time, for_a_while, settle
from huey import PriorityRedisHuey

huey = PriorityRedisHuey("jobs", host="127.0.0.1", port=PORT)
inside = threading.Lock()


@huey.task(retries=5, retry_delay=0)
def work(job, fails):
    if fails and first_time(job):
        raise RuntimeError("once")
    done(job)
    return job * 2


@huey.task(retries=200, retry_delay=0)
@huey.lock_task("one-at-a-time")
def alone(job):
    if not inside.acquire(blocking=False):
        done(job, "overlaps")
        return
    time.sleep(0.001)
    done(job, "alone")
    inside.release()


def main():
    put, last, locked = 0, None, 0
    with Workers(["-m", "huey.bin.huey_consumer", "huey_jobs.huey", "--workers", "4", "--delay", "0.05", "--quiet"]):
        for job in for_a_while():
            if job % 23 == 0:
                work.schedule((job, False), delay=1)
            else:
                last = work(job, job % 17 == 0, priority=job % 5)
            if job % 100 == 0:
                alone(locked)
                locked += 1
            put = job + 1
        settle(put, overlaps=sum(counts("overlaps").values()))
        assert last.get(blocking=True, timeout=20) is not None
