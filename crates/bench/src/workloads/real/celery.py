"""Enqueues tasks with a real Celery and writes down what it put into Redis.

Usage: celery.py PORT COUNT QUEUES FILE

Celery, unmodified, publishes COUNT calls of `tasks.load_test_job` with one
integer over QUEUES queues of the Redis on PORT. Then each queue's list is read,
and the messages are written to FILE in the order in which they were sent:

    u32 queue, u32 length, message; little-endian, again and again
"""

import struct
import sys

import redis
from celery import Celery

READ_AT_ONCE = 1000


def publish(port, count, queues):
    app = Celery("tasks", broker=f"redis://127.0.0.1:{port}/0")

    @app.task(name="tasks.load_test_job")
    def load_test_job(number):
        return number

    with app.producer_or_acquire() as producer:
        for number in range(count):
            load_test_job.apply_async((number,), queue=f"queue{number % queues}", producer=producer)


def messages(client, queue):
    """A queue's messages, oldest first: Celery pushes at the head."""
    name = f"queue{queue}"
    end = client.llen(name)
    while end > 0:
        start = max(0, end - READ_AT_ONCE)
        yield from reversed(client.lrange(name, start, end - 1))
        end = start


def main():
    port, count, queues = (int(word) for word in sys.argv[1:4])
    publish(port, count, queues)
    client = redis.Redis(port=port)
    sources = [messages(client, queue) for queue in range(queues)]
    with open(sys.argv[4], "wb") as out:
        for number in range(count):
            queue = number % queues
            message = next(sources[queue])
            out.write(struct.pack("<II", queue, len(message)) + message)


main()
