"""What lies ahead is reckoned by sums as a layer does them, and by the model itself where that matters."""

import pytest
import torch

from harness.model import pace
from harness.model.oracle import Cost
from harness.progress import FEWEST, weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_is_timed_as_a_layer_multiplies(dtype, monkeypatch) -> None:
    """By the transposed weight: the other way is ten times slower in bfloat16 on some processors."""
    seen = []
    monkeypatch.setattr(pace, "linear", lambda a, w: seen.append((a.shape, w.shape)) or a @ w.T)
    assert pace.product.__wrapped__(dtype, "cpu") > 0
    assert {shape for _, shape in seen} == {(pace.SIDE, pace.SIDE)} and seen[0][0][0] == pace.ROWS


def test_a_call_of_few_tokens_takes_as_long_as_the_weights_are_read(monkeypatch) -> None:
    """On some processors as long as the sums of hundreds of tokens; in float64 they are made each time."""
    assert weight([1, 100]) == FEWEST + 100 and weight([1]) == FEWEST
    monkeypatch.setattr(pace, "product", lambda dtype, device: 1e12)
    monkeypatch.setattr(pace, "reading", lambda dtype, device: 1e-9)
    there = torch.device("cpu")
    timed = pace.Pace()
    seconds = timed.calls(10**9, [1] * 10, torch.bfloat16, there)
    assert seconds == pytest.approx(10.0)
    for slow in (7.0, 2.0, 2.0, 3.0):  # the first one imports and compiles
        timed.stepped(slow)
    assert timed.calls(10**9, [1] * 10, torch.bfloat16, there) == pytest.approx(20.0)
    assert pace.widening.__wrapped__(torch.bfloat16, "cpu") > 0


@pytest.mark.parametrize(
    "seconds, told", [(7.4, "about 7 s"), (43, "about 40 s"), (99, "about 2 minutes")]
)
def test_an_estimate_is_told_no_finer_than_it_is(seconds, told) -> None:
    assert Cost(seconds, 0).about == told
