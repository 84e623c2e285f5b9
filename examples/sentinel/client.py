"""Writes once in a while, to whoever is the primary, and says who that is."""

import time

import redis
from redis.sentinel import Sentinel

sentinel = Sentinel([("127.0.0.1", port) for port in (26401, 26402, 26403)], socket_timeout=1)
primary = sentinel.master_for("mine", socket_timeout=1)
number = 0
while True:
    number += 1
    try:
        primary.set("number", number)
        # A replica has it too: it survives the loss of the primary.
        replicas = primary.wait(1, 500)
        print(f"{time.strftime('%X')} wrote {number} to {sentinel.discover_master('mine')}, {replicas} replicas have it", flush=True)
    except redis.RedisError as error:
        print(f"{time.strftime('%X')} not written: {error}", flush=True)
    time.sleep(0.5)
