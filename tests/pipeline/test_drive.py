"""Where generation stops: at the steps that were asked for, or where every row comes to its end."""

from typing import Any

import pytest
import torch

import harness
from harness.config import SamplingConfig
from harness.model.ending import Ending
from harness.model.loaded import Loaded
from harness.model.sampler import NEVER, Sampler
from harness.pipeline import drive
from harness.pipeline.drive import rebuilt

TEXTS = ["let k be 5 . the bird sang .", "the man put the stone by"]


@pytest.fixture(scope="module")
def tiny() -> Loaded:
    return harness.load_model("tiny")


def _driven(
    tiny: Loaded, ending: Ending = NEVER, text: Any = TEXTS[0], **how: Any
) -> drive.Rollout:
    live, _ = rebuilt(tiny, harness.capture_text(tiny, text))
    return drive.drive(live, Sampler(SamplingConfig("greedy"), ending=ending), 8, **how)


def test_generation_stops_after_an_end_of_sequence(tiny: Loaded) -> None:
    whole = _driven(tiny)
    end = int(whole.ids[0, 3])
    first = whole.ids[0].tolist().index(end)
    short = _driven(tiny, Ending(frozenset({end})))
    assert short.ended and not whole.ended
    assert short.fed.tolist() == whole.fed[:, : first + 1].tolist()  # the end itself is fed
    assert short.said.tolist() == short.fed.tolist() and whole.said.shape[1] == 9
    assert torch.equal(short.logits, whole.logits[:, : first + 1])


def test_what_is_followed_is_followed_to_its_end(tiny: Loaded) -> None:
    whole = _driven(tiny)
    ending = Ending(frozenset({int(whole.ids[0, 0])}))
    short = _driven(tiny, ending, follow=whole.fed[:, :5])
    assert short.fed.tolist() == whole.fed[:, :5].tolist()


def test_a_row_that_ends_first_is_frozen_and_the_other_goes_on(tiny: Loaded) -> None:
    whole = _driven(tiny, text=TEXTS)
    end = next(i for i in whole.ids[0].tolist() if i not in whole.ids[1].tolist())
    first = whole.ids[0].tolist().index(end)
    short = _driven(tiny, Ending(frozenset({end}), pad=2), TEXTS)
    assert short.ids[0].tolist() == whole.ids[0, : first + 1].tolist() + [2] * (8 - first)
    assert short.ids[1].tolist() == whole.ids[1].tolist() and not short.ended


@pytest.mark.parametrize(
    "runs, seconds, took",
    [(5, [0.01, 0.03, 0.02, 0.05, 0.04], 0.025), (5, [2.0, 9.0], 2.0), (1, [0.01, 9.0], 0.01)],
)
def test_a_short_prefill_is_timed_several_times_and_a_long_one_once(
    tiny: Loaded, monkeypatch: pytest.MonkeyPatch, runs: int, seconds: list[float], took: float
) -> None:
    """Of 10, 30, 20 and 50 ms, which is a tenth of a second and more, the median is 25."""
    state, clock, left = harness.capture_text(tiny, TEXTS[0]), [0.0], list(seconds)
    real = drive.prefill

    def slow(*given: Any) -> Any:
        clock[0] += left.pop(0)
        return real(*given)

    monkeypatch.setattr(drive, "prefill", slow)
    monkeypatch.setattr(drive.time, "perf_counter", lambda: clock[0])
    assert drive.recompute_seconds(tiny, state, runs) == pytest.approx(took)
