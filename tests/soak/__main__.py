"""`python -m soak`, run in the folder of the tests."""

import argparse
import os
import sys

from harness import servers
from soak.run import Soak, random_seed


def main():
    root = servers.ROOT
    parser = argparse.ArgumentParser(prog="python -m soak", description="Everything at once, compared with redis-server; see soak/__init__.py.")
    parser.add_argument("--snug", default=os.environ.get("SNUG", root / "target" / "release" / "snug"), help="the server under test")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="of what is random; drawn if not given")
    options = parser.parse_args()
    seed = random_seed() if options.seed is None else options.seed
    print(f"soak: {options.seconds:g} s, seed {seed}", flush=True)
    servers.raise_open_file_limit()
    soak = Soak(servers.Target(options.snug), options.seconds, seed)
    soak.run()
    print(soak.report())
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
