"""Celery: a worker of four threads that is killed with SIGKILL half-way and started
again, acknowledged late and given back after the visibility timeout; countdowns,
chords, groups, results. A task may be done twice where its worker was killed. One may
be lost: Kombu takes a message from its list first and notes it as unacknowledged then."""

import signal
import time

from account import SECONDS, URL, Workers, done, first_time, for_a_while, settle
from celery import Celery, chord

app = Celery("celery_jobs", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=4,
    broker_transport_options={"visibility_timeout": 3, "unacked_restore_limit": 1000},
    result_expires=600,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


@app.task(bind=True, max_retries=5)
def work(self, job):
    if job % 17 == 0 and first_time(job):
        raise self.retry(countdown=0.2)
    done(job)
    return job * 2


@app.task
def part(number):
    done(number, "parts")
    return number


@app.task
def total(parts):
    return sum(parts)


WORKER = ["-m", "celery", "-A", "celery_jobs", "worker", "-P", "threads", "-c", "4", "-l", "ERROR", "--without-mingle", "-Q"]
QUEUES = [f"queue{n}" for n in range(3)]


def main():
    put, chords = 0, []
    kill_at = time.monotonic() + SECONDS / 2
    with Workers([*WORKER, ",".join([*QUEUES, "celery"])]) as workers:
        for job in for_a_while():
            queue = QUEUES[job % 3]
            work.apply_async((job,), queue=queue, countdown=0.5 if job % 23 == 0 else None)
            if job % 50 == 0:
                parts = range(job, job + 4)
                chords.append((sum(parts), chord([part.s(n) for n in parts], total.s()).apply_async()))
            put = job + 1
            if kill_at and time.monotonic() > kill_at:
                workers.processes[0].send_signal(signal.SIGKILL)
                workers.processes[0].wait()
                workers.processes[0] = workers.launch([*WORKER, ",".join([*QUEUES, "celery"])])
                kill_at = None
        sums = sum(result.get(timeout=60) == expected for expected, result in chords)
        settle(put, chords=len(chords), sums=sums, may_repeat=64, may_lose=1)
