"""Dramatiq: one process of four threads, priorities, delays, retries, results."""

import dramatiq
from account import PORT, Workers, done, first_time, for_a_while, settle
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

broker = RedisBroker(host="127.0.0.1", port=PORT)
broker.add_middleware(Results(backend=RedisBackend(host="127.0.0.1", port=PORT)))
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=5, min_backoff=100, max_backoff=500, store_results=True)
def work(job, fails):
    if fails and first_time(job):
        raise RuntimeError("once")
    done(job)
    return job * 2


def main():
    put, last = 0, None
    with Workers(["-m", "dramatiq", "dramatiq_jobs", "--processes", "1", "--threads", "4"]):
        for job in for_a_while():
            delay = 700 if job % 23 == 0 else None
            last = work.send_with_options(args=(job, job % 17 == 0), delay=delay)
            put = job + 1
        settle(put)
        assert last.get_result(block=True, timeout=10_000) == (put - 1) * 2
