"""Streamed products against float64 and against the library's own, on every layout of memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cache.kernels import compiled, stream
from harness.cache.manual.pieces import linear


@st.composite
def products(draw):
    """Rows, and stored matrices that are dense, a slice of a longer buffer, or strided rows."""
    n, many, width = draw(st.integers(1, 3)), draw(st.integers(1, 90)), draw(st.integers(1, 70))
    many += draw(st.sampled_from([0, 0, compiled.PIECE - 20, 2 * compiled.PIECE]))
    rows = draw(st.integers(1, 9))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16]))
    torch.manual_seed(draw(st.integers(0, 2**20)))
    layout = draw(st.sampled_from(["dense", "slice", "rows", "heads"]))
    if layout == "dense":
        stored = torch.randn(n, many, width)
    elif layout == "slice":
        stored = torch.randn(n, many + 7, width + 3).to(dtype)[:, 4 : 4 + many, 2 : 2 + width]
    elif layout == "rows":
        stored = torch.randn(n, 2 * many, width).to(dtype)[:, ::2]
    else:
        stored = torch.randn(many, n, width).to(dtype).transpose(0, 1)
    return (
        torch.randn(n, rows, width).to(dtype),
        torch.rand(n, many, rows).transpose(1, 2),
        stored.to(dtype),
    )


def no_worse(found, library, exact, terms):
    """At most twice the library's error, or that of `terms` float32 roundings of the largest size."""
    error, plain = ((t.double() - exact).abs().max() for t in (found, library))
    assert error <= 2 * plain + 2**-24 * terms**0.5 * exact.abs().max(), (
        float(error),
        float(plain),
    )


@settings(max_examples=60, deadline=None)
@given(case=products())
def test_streamed_products_are_as_near_to_float64_as_the_librarys(case):
    rows, weights, stored = case
    before = stored.clone()
    turned = stored.transpose(1, 2)
    no_worse(stream.scores(rows, stored), torch.bmm(rows.float(), turned.float()),
             torch.bmm(rows.double(), turned.double()), stored.shape[2])  # fmt: skip
    no_worse(stream.values(weights, stored), torch.bmm(weights, stored.float()),
             torch.bmm(weights.double(), stored.double()), stored.shape[1])  # fmt: skip
    assert torch.equal(before, stored)


def test_the_number_of_threads_changes_no_bit():
    torch.manual_seed(0)
    stored = torch.randn(2, 5000, 64)
    rows, weights = torch.randn(2, 4, 64), torch.rand(2, 4, 5000)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append((stream.scores(rows, stored), stream.values(weights, stored)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_nothing_is_hidden_by_the_compilers_liberties():
    """Infinities and NaN come through: the kernels may reorder sums, not assume finite numbers."""
    stored = torch.ones(1, 40, 8)
    stored[0, 3, 2], stored[0, 7, 1] = float("inf"), float("nan")
    scores = stream.scores(torch.ones(1, 2, 8), stored)
    assert scores[0, 0, 3] == float("inf") and scores[0, 1, 7].isnan() and scores[0, 0, 0] == 8
    values = stream.values(torch.ones(1, 2, 40), stored)
    assert values[0, 0, 2] == float("inf") and values[0, 1, 1].isnan() and values[0, 0, 0] == 40


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_a_streamed_projection_is_the_modules_own(dtype, bias):
    torch.manual_seed(0)
    module = torch.nn.Linear(512, 512, bias=bias).to(dtype)
    hidden = torch.randn(1, 3, 512).to(dtype)
    assert stream.serves(hidden[0], module.weight)
    with torch.no_grad():
        exact = torch.nn.functional.linear(
            hidden.double(), module.weight.double(), module.bias.double() if bias else None
        )
        no_worse(linear(module, hidden), module(hidden), exact, 512)
        module.weight[5, 7] += 1
        assert (linear(module, hidden) - exact).abs().max() > 0.01


def test_a_wrapped_projection_is_called_as_it_is():
    module = torch.nn.Linear(512, 512)
    module.register_forward_hook(lambda _, __, out: out + 1)
    hidden = torch.randn(1, 1, 512)
    with torch.no_grad():
        assert torch.equal(linear(module, hidden), module(hidden))
