"""Metrics by hand, and what each one sees."""

import math

import pytest
import torch

from harness.compare import metrics


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor([rows], dtype=torch.float32)


def ids(*tokens: int) -> torch.Tensor:
    return torch.tensor([tokens])


def test_equal_logits_are_perfect() -> None:
    a = torch.randn(2, 3, 11)
    found = metrics.compare(a, a.clone(), torch.zeros(2, 3, dtype=torch.int64))
    assert (
        found["bitwise_equal"] and found["max_abs_diff"] == found["kl_max"] == found["max_ulp"] == 0
    )
    assert found["top1_agreement"] == found["top5_overlap"] == 1
    assert found["first_divergence"] is None


def test_by_hand() -> None:
    expected, found = logits([0.0, 0.0]), logits([math.log(3), 0.0])
    got = metrics.compare(found, expected, ids(1))
    assert got["max_abs_diff"] == pytest.approx(math.log(3))
    assert got["mean_abs_diff"] == pytest.approx(math.log(3) / 2)
    assert got["kl_max"] == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25))
    assert got["nll_delta"] == pytest.approx(math.log(0.5) - math.log(0.25))


def test_first_divergence_is_the_first_other_token() -> None:
    expected = logits([1.0, 0.0], [1.0, 0.0], [1.0, 0.0])
    found = logits([1.0, 0.0], [0.0, 1.0], [0.0, 1.0])
    got = metrics.compare(found, expected, ids(0, 0, 0))
    assert got["first_divergence"] == 1
    assert got["top1_agreement"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ulp_counts_representable_values(dtype: torch.dtype) -> None:
    one = torch.ones(1, dtype=dtype)
    up = torch.nextafter(one.float(), torch.tensor([2.0])) if dtype == torch.float32 else None
    near = up if up is not None else (one.view(torch.int16) + 1).view(dtype)
    assert metrics.max_ulp(near, one) == 1
    assert metrics.max_ulp(-one, -one) == 0
    zero = torch.zeros(1, dtype=dtype)
    assert metrics.max_ulp(-zero, zero) == 0


def test_ulp_across_zero_and_nan() -> None:
    tiny = torch.tensor([1.4e-45])
    assert metrics.max_ulp(tiny, -tiny) == 2
    assert metrics.max_ulp(torch.tensor([math.nan]), torch.ones(1)) is None


def test_the_noise_floor_takes_the_worst_of_each() -> None:
    a = torch.randn(1, 4, 9)
    rows = [metrics.compare(a + e, a, torch.zeros(1, 4, dtype=torch.int64)) for e in (1e-3, 1e-2)]
    floor = metrics.worst(rows)
    assert floor["max_abs_diff"] == max(r["max_abs_diff"] for r in rows)
    assert floor["bitwise_equal"] is False
