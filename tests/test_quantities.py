"""What is counted is told in the number that it has, and nothing is said of what took no time."""

import pytest

from harness import machine
from harness.task import faults


def test_one_is_singular() -> None:
    told = [machine.many(n, noun) for n, noun in ((1, "claim"), (2, "claim"), (0, "family"))]
    assert told == ["1 claim", "2 claims", "0 families"]


def test_times_are_told_where_there_are_any() -> None:
    row = {f"{name}_s": 0.01 for name in (*faults.COLUMNS, "plain", "diagnosis")}
    assert faults.seconds([row]) == "Time: less than a tenth of a second"
    assert faults.seconds([row, row | {"plain_s": 1.5}]) == "Time: plain 1.5 s"


@pytest.mark.parametrize(
    "words, says",
    [
        (["task=claims", "task.only=[cursor]"], "1 claim settled: 1 "),
        (["task=faults", "fault=layer_swap", "steps=2"], "Time: "),
    ],
)
def test_closing_lines_say_neither_one_things_nor_zeros(harness, words, says) -> None:
    done = harness(*words)
    assert done.code == 0 and says in done.out, done.out
    assert " 0.0" not in done.reason and ", 0 " not in done.reason
