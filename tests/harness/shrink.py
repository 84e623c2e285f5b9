"""Delta debugging: the shortest run of steps that still fails.

Costs at most `budget` runs; each candidate runs from an empty database.
"""


def shrink(steps, fails, budget=400):
    """`fails(steps)` must be true; returns a subsequence that still fails and
    (within the budget) from which no single step can be left out."""
    left = [budget]

    def still(candidate):
        if left[0] <= 0:
            return False
        left[0] -= 1
        return fails(candidate)

    size = max(1, len(steps) // 2)
    while True:
        at, shorter = 0, False
        while at < len(steps) and len(steps) > 1:
            candidate = steps[:at] + steps[at + size :]
            if candidate and still(candidate):
                steps, shorter = candidate, True
            else:
                at += size
        if size == 1 and not shorter:
            return steps
        if not shorter or size > len(steps):
            size = max(1, size // 2)
        if left[0] <= 0:
            return steps
