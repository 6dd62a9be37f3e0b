"""What a cache may not hide behind: numbers that are none, nothing listed, an answer that stops early."""

import math

import numpy as np
import pytest

from harness.engine import Answer
from harness.task.referee import tops
from harness.task.referee.verdict import decide

COLD = Answer((3, 4, 5), ({3: -0.1, 9: -2.5}, {4: -0.2, 9: -2.0}, {5: -0.3, 9: -1.5}), 0)


def judged(*listed: dict[int, float]) -> str:
    answer = Answer(COLD.tokens[: len(listed)], listed, 20)
    return decide(tops.compare(answer, COLD), floor=1e-6)[0]


def test_the_same_is_exact_and_a_step_of_rounding_equivalent() -> None:
    assert judged(*COLD.tops) == "exact"
    assert judged({3: -0.1, 9: -2.5000005}, *COLD.tops[1:]) == "equivalent"


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("token", [0, 1])
def test_what_is_not_a_number_is_never_small(step, token) -> None:
    listed = [dict(top) for top in COLD.tops]
    listed[step][list(listed[step])[token]] = math.nan
    assert judged(*listed) == "drifted"
    exact = np.zeros((3, 12))
    assert math.inf in tops.errors(Answer(COLD.tokens, tuple(listed), 20), exact)


def test_nothing_listed_is_nothing_shown() -> None:
    assert judged({}, *COLD.tops[1:]) == "drifted"


def test_what_both_rule_out_is_no_difference() -> None:
    cold = Answer((3,), ({3: -0.1, 9: -math.inf},), 0)
    again = Answer((3,), ({3: -0.1000001, 9: -math.inf},), 20)
    metrics = tops.compare(again, cold)
    assert metrics["max_abs_diff"] < 1e-6 and metrics["kl_max"] < 1e-6


def test_an_answer_that_ends_early_is_another_one() -> None:
    assert judged(*COLD.tops[:2]) == "diverged"
    assert judged() == "diverged"  # at once, too: an empty answer differs nowhere


def test_two_that_say_nothing_agree_on_nothing() -> None:
    nothing = Answer((), (), 20)
    assert decide(tops.compare(nothing, nothing), floor=1e-6)[0] == "unjudged"


def test_a_floor_without_end_allows_nothing() -> None:
    answer = Answer(COLD.tokens, ({3: -0.4, 9: -1.5}, *COLD.tops[1:]), 20)
    assert decide(tops.compare(answer, COLD), floor=math.inf)[0] == "drifted"
