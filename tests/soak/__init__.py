"""A soak: minutes of everything at once, with nothing lost and memory flat.

    tests/soak         python -m soak --seconds 600 --seed 7     (make soak)

    commands.py        the random commands, by what a key holds
    owner.py           a client with keys of its own, and redis-server beside it
    weather.py         what goes on meanwhile: policies, pressure, rude clients
    eviction.py        a second server, which may forget but never err
    run.py             starts all of it, samples memory, says how it went

Each owner has its own keys, so redis-server can be asked the very same without
any agreement on order, and every reply is compared with its reply. The number
of keys and the size of values are bounded, so memory has no reason to grow.
"""
