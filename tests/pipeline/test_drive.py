"""Where generation stops: at the steps that were asked for, or where the sequence ends."""

from typing import Any

import pytest
import torch

import harness
from harness.config import SamplingConfig
from harness.model.loaded import Loaded
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.line import rebuilt


@pytest.fixture(scope="module")
def tiny() -> Loaded:
    return harness.load_model("tiny")


def _driven(tiny: Loaded, **how: Any) -> drive.Path:
    state = harness.capture_text(tiny, "let k be 5 . the bird sang .")
    live, _ = rebuilt(tiny, state)
    return drive.drive(live, Sampler(SamplingConfig("greedy")), 8, **how)


def test_generation_stops_after_an_end_of_sequence(tiny: Loaded) -> None:
    whole = _driven(tiny)
    end = int(whole.ids[0, 3])
    first = whole.ids[0].tolist().index(end)
    short = _driven(tiny, ends={end})
    assert short.ended and not whole.ended
    assert short.fed.tolist() == whole.fed[:, : first + 1].tolist()  # the end itself is fed
    assert torch.equal(short.logits, whole.logits[:, : first + 1])


def test_what_is_followed_is_followed_to_its_end(tiny: Loaded) -> None:
    whole = _driven(tiny)
    short = _driven(tiny, follow=whole.fed[:, :5], ends={int(whole.ids[0, 0])})
    assert short.fed.tolist() == whole.fed[:, :5].tolist()


def test_a_continuation_from_python_ends_as_well(
    tiny: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = harness.capture_text(tiny, "let k be 5 . the bird sang .")
    whole = harness.resume(tiny, state, steps=8)
    "".join(whole)
    monkeypatch.setattr("harness.api.end_tokens", lambda model: {whole.ids[2]})
    short = harness.resume(tiny, state, steps=8)
    "".join(short)
    assert short.ids == whole.ids[: whole.ids.index(whole.ids[2]) + 1]
