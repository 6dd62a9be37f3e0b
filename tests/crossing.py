"""Which pairs of a product every run of the suite takes, and which only `make test-slow` does."""

import pytest


def crossed(one: list[str], other: list[str], shift: int = 0) -> list:
    """All pairs, the slow ones marked: of the others each value of either side is in one at least, and
    another `shift` chooses others."""
    count, long = len(other), range(max(len(one), len(other)))
    quick = {(one[n % len(one)], other[(n + shift) % count]) for n in long}
    slow = pytest.mark.slow
    return [
        pytest.param(a, b, marks=() if (a, b) in quick else slow, id=f"{a}-{b}")
        for a in one
        for b in other
    ]
