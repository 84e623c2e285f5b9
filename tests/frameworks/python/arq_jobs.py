"""arq: a worker of ten at once, jobs put off, jobs that ask to be tried again, unique
job ids, results."""

import asyncio

from account import PORT, Workers, done, first_time, for_a_while, settle
from arq import Retry, create_pool
from arq.connections import RedisSettings

SETTINGS = RedisSettings(host="127.0.0.1", port=PORT)


async def work(_context, job, fails):
    if fails and first_time(job):
        raise Retry(defer=0.3)
    done(job)
    return job * 2


class WorkerSettings:
    functions = [work]
    redis_settings = SETTINGS
    max_jobs = 10
    poll_delay = 0.05
    handle_signals = True


async def put_in():
    pool = await create_pool(SETTINGS)
    put, last = 0, None
    with Workers(["-m", "arq", "arq_jobs.WorkerSettings"]):
        for job in for_a_while():
            defer = 0.7 if job % 23 == 0 else None
            last = await pool.enqueue_job("work", job, job % 17 == 0, _job_id=f"job-{job}", _defer_by=defer)
            if job % 50 == 0:
                # The same id again is refused while the job or its result is known.
                assert await pool.enqueue_job("work", job, False, _job_id=f"job-{job}") is None
            put = job + 1
        settle(put)
        assert await last.result(timeout=10) == (put - 1) * 2


def main():
    asyncio.run(put_in())
