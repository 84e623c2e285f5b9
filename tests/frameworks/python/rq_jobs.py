"""RQ: two workers, a scheduler, jobs that fail once and are tried again, jobs that
are due later, results read back."""

import sys
from datetime import timedelta

import redis
from account import URL, Workers, done, first_time, for_a_while, settle
from rq import Queue, Retry, SimpleWorker


def work(job, fails):
    if fails and first_time(job):
        raise RuntimeError("once")
    done(job)
    return job * 2


def main():
    connection = redis.Redis.from_url(URL)
    queue = Queue("jobs", connection=connection)
    put, last = 0, None
    with Workers([__file__, "worker"], [__file__, "worker"]):
        for job in for_a_while():
            fails = job % 17 == 0
            retry = Retry(max=3, interval=[0, 1, 1]) if fails else None
            if job % 23 == 0:
                queue.enqueue_in(timedelta(seconds=1), work, job, fails, retry=retry)
            else:
                last = queue.enqueue(work, job, fails, retry=retry)
            put = job + 1
        settle(put)
    assert last.return_value() is not None, "no result"


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        connection = redis.Redis.from_url(URL)
        SimpleWorker([Queue("jobs", connection=connection)], connection=connection).work(with_scheduler=True)
    else:
        main()
