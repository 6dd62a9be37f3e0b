"""Sizes as people read them: never in powers of ten."""

import pytest

from harness.machine import human


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [
        (10, "0.00977 KiB"),
        (999 * 1024, "999 KiB"),
        (1000 * 1024, "0.977 MiB"),
        (1023 * 1024, "0.999 MiB"),
        (2**20, "1 MiB"),
        (1010 * 2**20, "0.986 GiB"),
    ],
)
def test_a_size_is_said_in_the_unit_that_takes_three_digits(nbytes: int, said: str) -> None:
    assert human(nbytes) == said
