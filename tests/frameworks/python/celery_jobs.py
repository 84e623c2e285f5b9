"""Celery: a worker of four threads that is killed with SIGKILL half-way, in the midst of
jobs, and started again, acknowledged late and given back after the visibility timeout;
countdowns, chords, groups, results. A task may be done twice where its worker was killed.
One may be lost: Kombu takes a message from its list first and notes it as unacknowledged
then. A chord counts its parts, and one of which a part was lost or done twice never ends,
on redis-server neither: none is under way when the worker is killed."""

import signal
import time

from account import SECONDS, URL, Workers, done, first_time, has_begun, settle, wait_for
from celery import Celery, chord

app = Celery("celery_jobs", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=4,
    broker_transport_options={
        "visibility_timeout": 10,
        "unacked_restore_limit": 1000,
        # Else it is looked for them each 100 seconds.
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
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
def long_work(job):
    first_time(job)
    time.sleep(2)
    done(job)


@app.task
def part(number):
    done(number, "parts")
    return number


@app.task
def total(parts):
    return sum(parts)


QUEUES = [f"queue{n}" for n in range(3)]
WORKER = ["-m", "celery", "-A", "celery_jobs", "worker", "-P", "threads", "-c", "4", "-l", "ERROR", "--without-mingle"]
WORKER += ["-Q", ",".join([*QUEUES, "celery"])]


class Jobs:
    """Jobs that are put in, counted from 0, and a chord for each fifty."""

    def __init__(self):
        self.put, self.chords = 0, []

    def put_one(self):
        job = self.put
        work.apply_async((job,), queue=QUEUES[job % 3], countdown=0.5 if job % 23 == 0 else None)
        if job % 50 == 0:
            parts = range(job, job + 4)
            self.chords.append((sum(parts), chord([part.s(n) for n in parts], total.s()).apply_async()))
        self.put += 1

    def put_for(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.put_one()

    def put_long_ones(self, count):
        """Jobs that take a while, and waits until all have begun."""
        first, self.put = self.put, self.put + count
        for job in range(first, self.put):
            long_work.apply_async((job,))
        while not all(has_begun(job) for job in range(first, self.put)):
            time.sleep(0.05)

    def right_sums(self):
        """How many chords have ended with the sum that they should."""
        return sum(result.get(timeout=60) == expected for expected, result in self.chords)


def main():
    jobs = Jobs()
    with Workers(WORKER) as workers:
        jobs.put_for(SECONDS / 2)
        jobs.right_sums()
        wait_for(jobs.put)
        jobs.put_long_ones(4)
        workers.processes[0].send_signal(signal.SIGKILL)
        workers.processes[0].wait()
        workers.processes[0] = workers.launch(WORKER)
        jobs.put_for(SECONDS / 2)
        sums = jobs.right_sums()
        settle(jobs.put, chords=len(jobs.chords), sums=sums, may_repeat=64, may_lose=1)
