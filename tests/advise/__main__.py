"""The table of all workloads: `python -m advise --snug PATH`. Ends with 1 if a prediction
is off by more than 10 percent. With `--cost 3000000` what it costs a server of so many keys."""

import argparse
import sys

from advise import WORKLOADS, compare, cost
from harness import servers

MOST_OFF = 0.10
MOST_SPENT, MOST_SECONDS = 0.01, 300


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snug", required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="times the sizes of the table in advise")
    parser.add_argument("--flags", default="", help="further flags of `snug advise`")
    parser.add_argument("--program", help="predicts instead of the server under test")
    parser.add_argument("--cost", type=int, metavar="KEYS", help="what it costs a redis-server of so many keys, and no table")
    parser.add_argument("workloads", nargs="*", default=[])
    args = parser.parse_args()
    target = servers.Target(args.snug)
    if args.cost:
        took, spent, told = cost(target, args.cost, args.flags.split())
        print(f"{told['keys']} keys, {told['keys_seen']} looked at, {told['values_read']} read: {took:.0f} s")
        print(f"CPU of the server: {spent:.2f} s, {spent / took:.2%} of that time")
        return spent / took > MOST_SPENT or took > MOST_SECONDS
    print(f"{'workload':<18}{'keys':>9}{'redis MB':>10}{'predicted':>11}{'95 %':>17}{'actual':>9}{'off':>8}", flush=True)
    bad = missed = 0
    for workload in args.workloads or WORKLOADS:
        predicted, actual, told = compare(target, [workload], args.scale, args.flags.split(), args.program)
        off = predicted / actual - 1
        bad += abs(off) > MOST_OFF
        low, high = (told["snug"]["cooled"][end] / 1e6 for end in ("low", "high"))
        missed += not low <= actual / 1e6 <= high
        redis, interval = (told["source_bytes"] or 0) / 1e6, f"{low:.2f}..{high:.2f}"
        print(
            f"{workload:<18}{told['keys']:>9}{redis:>10.2f}{predicted / 1e6:>11.2f}{interval:>17}{actual / 1e6:>9.2f}{off:>+8.1%}",
            flush=True,
        )
    print(f"{missed} outside of the interval, {bad} off by more than {MOST_OFF:.0%}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
