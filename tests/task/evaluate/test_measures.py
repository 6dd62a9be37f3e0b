"""Whether an answer is right, and how sure a share of right answers is."""

import pytest
import torch

from harness.errors import InputProblem
from harness.pipeline.evaluation.statistics import mean, paired, paired_shares, share
from harness.pipeline.questions import score
from harness.pipeline.questions.question import Question
from harness.pipeline.questions.score import scores


@pytest.mark.parametrize(
    "said, expected, exact, contains",
    [
        (" k is 10 . the bird", "k is 10", 1, 1),
        ("k  is 10", "k is 10", 1, 1),
        (" well k is 10 .", "k is 10", 0, 1),
        (" k is 101 .", "k is 10", 0, 0),
        (" m is 10 .", "k is 10", 0, 0),
        (" 3.5\nnext", "3.5", 1, 1),
        ("", "k is 10", 0, 0),
        (" 10.5 .", "10", 0, 0),
        (" -10", "10", 0, 0),
        (" 10,000", "10", 0, 0),
        (" 1,500", "500", 0, 0),
        (" 9,10, 9-10", "10", 0, 1),
        (" Dr. Jones", "Dr. Smith", 0, 0),
        (" Dr. Smith. He", "Dr. Smith.", 1, 1),
        (" . no", ". yes", 0, 0),
        (" It is Paris.", "paris", 0, 1),
        (" k IS 10", "K is 10", 0, 1),
        (" anything", "", 0, 0),
        (" anything", " \n", 0, 0),
    ],
)
def test_scores(said: str, expected: str, exact: int, contains: int) -> None:
    assert scores(said, Question("c", "q", expected)) == {"exact": exact, "contains": contains}


def test_a_pattern_is_searched_for() -> None:
    """It says what is right, in place of the expected text: a stricter form too."""
    question = Question("c", "q", "ten", r"\b(10|ten)\b")
    assert scores("it is 10 .", question) == {"exact": 0, "contains": 1}
    assert scores("it is 110 .", question) == {"exact": 0, "contains": 0}
    assert scores("ten", Question("c", "q", "ten", "^10$")) == {"exact": 1, "contains": 0}


def test_a_pattern_that_never_ends_is_one_message(monkeypatch) -> None:
    monkeypatch.setattr(score, "SECONDS", 0.05)
    with pytest.raises(InputProblem, match=r"'\^\(a\|a\)\*\$' of a question takes more than"):
        scores("a" * 60 + "!", Question("c", "q", "x", r"^(a|a)*$"))


def test_intervals() -> None:
    for hits in ([1.0] * 12, [0.0] * 12, [1.0, 0.0] * 6):
        found = share(hits)
        assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
        assert found["high"] - found["low"] > 0.2
    wide, narrow = mean([0.0, 1.0] * 3), mean([0.0, 1.0] * 300)
    assert wide["high"] - wide["low"] > 5 * (narrow["high"] - narrow["low"])
    better = paired([0.9, 1.9, 2.9], [1.0, 2.0, 3.0])  # always the same: no doubt at all
    assert better["delta"] == pytest.approx(-0.1) and better["delta_high"] < 0


def test_a_difference_of_shares_is_as_doubtful_as_its_prompts_are_few() -> None:
    few, many = paired_shares([1.0] * 4, [1.0] * 4), paired_shares([1.0] * 400, [1.0] * 400)
    assert few["delta"] == many["delta"] == 0
    assert few["delta_low"] < -0.4 and -0.01 < many["delta_low"] < 0
    assert (paired([1.0] * 4, [1.0] * 4)["delta_low"]) == 0  # what bootstrap alone would say
    got = paired_shares([1.0] * 14 + [0.0] * 6, [1.0] * 16 + [0.0] * 4)
    assert got["delta"] == pytest.approx(-0.1)
    assert -0.35 < got["delta_low"] < -0.2 and 0 < got["delta_high"] < 0.12
    worse = paired_shares([0.0] * 30, [1.0] * 30)
    assert worse["delta"] == worse["delta_low"] == -1 and worse["delta_high"] < -0.7


def test_few_prompts_bound_a_mean_as_wide_as_they_are_few() -> None:
    one = mean([0.7])
    assert (one["value"], one["low"], one["high"]) == (0.7, None, None)
    assert paired([0.7], [0.5])["delta_low"] is None
    draw = torch.Generator().manual_seed(3)
    samples = torch.randn(300, 5, dtype=torch.float64, generator=draw)
    bounds = [mean(sample.tolist()) for sample in samples]
    inside = sum(b["low"] <= 0 <= b["high"] for b in bounds) / len(bounds)
    drawn = torch.randint(5, (2000, 5), generator=draw)
    plain = samples[:, drawn].mean(2).quantile(torch.tensor([0.025, 0.975]).double(), dim=1)
    alone = ((plain[0] <= 0) & (plain[1] >= 0)).double().mean()  # percentiles as they are
    assert alone < 0.86 < 0.89 < inside < 0.99
