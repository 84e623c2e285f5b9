"""Flask-Limiter and the library below it: each strategy lets exactly as many requests
through as its limit says, several processes asking at once."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from account import SECONDS, URL, report
from flask import Flask
from flask_limiter import Limiter
from limits import parse, storage, strategies

STRATEGIES = ("fixed-window", "moving-window", "sliding-window-counter")
LIMIT = 40


def app(strategy):
    site = Flask(strategy)
    limiter = Limiter(
        lambda: "somebody", app=site, storage_uri=URL, strategy=strategy, key_prefix=f"{strategy}-{time.time()}"
    )

    @site.route("/")
    @limiter.limit(f"{LIMIT}/hour")
    def index():
        return "in"

    return site.test_client()


def main():
    wrong = asked = 0
    for strategy in STRATEGIES:
        client = app(strategy)
        codes = [client.get("/").status_code for _ in range(LIMIT + 20)]
        asked += len(codes)
        wrong += abs(codes.count(200) - LIMIT) + abs(codes.count(429) - 20)
    store = storage.storage_from_string(URL)
    end = time.monotonic() + SECONDS
    rounds = 0
    with ThreadPoolExecutor(8) as pool:
        while time.monotonic() < end:
            for kind in (strategies.FixedWindowRateLimiter, strategies.MovingWindowRateLimiter):
                limit, ask = parse("100/hour"), kind(store)
                let_in = list(pool.map(lambda _: ask.hit(limit, kind.__name__, str(rounds)), range(150)))
                asked += len(let_in)
                wrong += abs(let_in.count(True) - 100)
            rounds += 1
    report(put=asked, lost=wrong, twice=0)


if __name__ == "__main__":
    sys.exit(main())
