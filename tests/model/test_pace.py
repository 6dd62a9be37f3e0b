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


def test_a_call_of_few_tokens_takes_as_long_as_the_weights_are_read() -> None:
    assert 1 <= pace.fewest(torch.float32, "cpu") <= FEWEST == pace.fewest(torch.float32, "cuda")
    assert weight([1, 100], 3) == 103 and weight([1]) == FEWEST


@pytest.mark.parametrize(
    "seconds, told", [(7.4, "about 7 s"), (43, "about 40 s"), (99, "about 2 minutes")]
)
def test_an_estimate_is_told_no_finer_than_it_is(seconds, told) -> None:
    assert Cost(seconds, 0).about == told
