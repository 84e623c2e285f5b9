"""Some seconds of the soak, so that `make soak` never is the first to find out."""

import os

import pytest

from soak.run import Soak

SECONDS = 10
SEED = int(os.environ.get("SNUG_RANDOM_SEED", 1))


@pytest.mark.parametrize("tier", [False, pytest.param(True, marks=pytest.mark.snug_only)], ids=["in-memory", "with-a-tier"])
def test_everything_at_once_loses_nothing(target, tier):
    soak = Soak(target, SECONDS, SEED, tier)
    soak.run()
    print(soak.report())
    assert not soak.failures, soak.report()
    if target.is_snug:
        assert not tier or soak.counts["values sent to disk"] > 0
        assert soak.counts["mirrors compared"] > 0 and soak.counts["commands mirrored"] > 0
    for what in ("values compared in full", "replies compared", "visits", "slow replies"):
        assert soak.counts[what] > 0, f"{what}: none"
