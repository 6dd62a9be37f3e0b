"""Streamed products against float64 and against the library's own, on every layout of memory."""

from threading import Thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from harness.attention.kernels.cpu import arithmetic, program, stream, team

ROUNDING = 2.0**-24
dtypes = st.sampled_from([torch.float32, torch.bfloat16])


def laid_out(how, dtype, *shape):
    """Random numbers, dense, as a slice of a longer buffer, or as the library lays out a new token."""
    *outer, many, width = shape
    if how == "slice":
        return torch.randn(*outer, many + 7, width + 3).to(dtype)[..., 4 : 4 + many, 2 : 2 + width]
    if how == "rows":
        return torch.randn(*outer, 2 * many, width).to(dtype)[..., ::2, :]
    if how == "heads":
        return torch.randn(many, *outer, width).to(dtype).movedim(0, -2)
    return torch.randn(*shape).to(dtype)


layouts = st.sampled_from(["dense", "slice", "rows", "heads"])


@st.composite
def projections(draw):
    torch.manual_seed(draw(st.integers(0, 2**20)))
    dtype, width = draw(dtypes), draw(st.integers(1, 70) | st.sampled_from([64, 512]))
    rows = laid_out("dense", dtype, draw(st.integers(1, 9)), width)
    sizes = draw(st.lists(st.integers(1, 200), min_size=1, max_size=3))
    return rows, [laid_out(draw(layouts), dtype, many, width) for many in sizes]


@settings(max_examples=60, deadline=None)
@given(case=projections())
def test_projections_are_as_near_to_float64_as_the_librarys(case):
    rows, weights = case
    before = [weight.clone() for weight in weights]
    for found, weight in zip(stream.project(rows, weights), weights, strict=True):
        turned = weight.double().T
        exact = rows.double() @ turned
        plain = (rows.float() @ weight.float().T - exact).abs().max()
        floor = ROUNDING * rows.shape[1] ** 0.5 * (rows.double().abs() @ turned.abs()).max()
        assert (found - exact).abs().max() <= 2 * plain + floor
    assert all(torch.equal(a, b) for a, b in zip(before, weights, strict=True))


@st.composite
def attentions(draw):
    """Scaled queries, and parts that all branches or each branch alone reads."""
    torch.manual_seed(draw(st.integers(0, 2**20)))
    base, branches, kv_heads = (draw(st.integers(1, 3)) for _ in range(3))
    group, new, dtype = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(dtypes)
    width = draw(st.integers(1, 70) | st.sampled_from([16, 64, 96, 128]))
    depth = draw(st.sampled_from([width, width, 16, 40, 80]))
    query = (
        torch.randn(base * branches, kv_heads * group, new, width).to(dtype).float() / width**0.5
    )
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        tokens = draw(st.integers(1, 90) | st.sampled_from([program.PIECE, 2 * program.PIECE + 9]))
        own = base * draw(st.sampled_from([1, branches]))
        place = draw(layouts)
        parts.append(
            tuple(laid_out(place, dtype, own, kv_heads, tokens, d) for d in (width, depth))
        )
    return query, parts


def joined(query, parts, dtype):
    """Attention the plain way: everything repeated and concatenated."""
    batch, heads = query.shape[:2]

    def whole(which):
        made = [p[which].repeat_interleave(batch // len(p[which]), 0) for p in parts]
        together = torch.cat(made, 2).to(dtype)
        return together.repeat_interleave(heads // together.shape[1], 1)

    key, value = whole(0), whole(1)
    scores = query.to(dtype) @ key.transpose(2, 3)
    return torch.softmax(scores, -1) @ value, key, value


@settings(max_examples=100, deadline=None)
@given(case=attentions())
def test_attention_in_one_pass_is_as_near_to_float64_as_the_plain_way(case):
    query, parts = case
    before = [t.clone() for part in parts for t in part]
    found = stream.attend(query, parts)
    exact, key, value = joined(query, parts, torch.float64)
    plain = (joined(query, parts, torch.float32)[0] - exact).abs().max()
    scores = (query.double().abs() @ key.abs().transpose(2, 3)).max() * query.shape[-1] ** 0.5
    floor = ROUNDING * (scores + key.shape[2] ** 0.5) * value.abs().max()
    assert found.shape == exact.shape
    assert (found - exact).abs().max() <= 2 * plain + floor
    assert all(
        torch.equal(a, b) for a, b in zip(before, (t for p in parts for t in p), strict=True)
    )


def test_a_part_that_is_not_read_would_be_noticed():
    """The twin of the test above: with its last token left out, the error is far beyond the bound."""
    torch.manual_seed(0)
    query, part = torch.randn(1, 4, 1, 32), (torch.randn(1, 2, 40, 32), torch.randn(1, 2, 40, 32))
    short = stream.attend(query, [tuple(t[:, :, :-1] for t in part)])
    assert (short - joined(query, [part], torch.float64)[0]).abs().max() > 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_number_of_threads_changes_no_bit(dtype):
    torch.manual_seed(0)
    part = [torch.randn(1, 2, 5000, 64).to(dtype) for _ in range(2)]
    query, rows, weight = torch.randn(1, 8, 1, 64), torch.randn(2, 64), part[0][0, 0]
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append((stream.attend(query, [part]), *stream.project(rows, [weight])))
    finally:
        torch.set_num_threads(before)
    assert all(
        torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True)
    )


def test_several_threads_of_the_caller_do_not_meet():
    torch.manual_seed(0)
    part = [torch.randn(1, 2, 3000, 64) for _ in range(2)]
    queries = [torch.randn(1, 8, 1, 64) for _ in range(6)]
    alone = [stream.attend(query, [part]) for query in queries]
    found: list = [None] * len(queries)

    def work(i):
        for _ in range(5):
            found[i] = stream.attend(queries[i], [part])

    threads = [Thread(target=work, args=(i,)) for i in range(len(queries))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(alone, found, strict=True))


def test_nothing_is_hidden_by_the_compilers_liberties():
    """Infinities and NaN come through: the kernels may reorder sums, not assume finite numbers."""
    for count in (1, 4):  # one by one, and in vectors
        weight = torch.ones(40, 16)
        weight[3, 2], weight[7, 1] = float("inf"), float("nan")
        (out,) = stream.project(torch.ones(count, 16), [weight])
        assert out[0, 3] == float("inf") and out[0, 7].isnan() and out[0, 0] == 16
        key, value = torch.ones(1, 1, 40, 16), torch.ones(1, 1, 40, 16)
        value[0, 0, 3, 2], value[0, 0, 7, 1] = float("inf"), float("nan")
        out = stream.attend(torch.ones(1, count, 1, 16), [(key, value)])[0, 0, 0]
        assert out[2] == float("inf") and out[1].isnan() and out[0] == 1
        key[0, 0, 5, 0] = float("nan")
        assert stream.attend(torch.ones(1, count, 1, 16), [(key, value)]).isnan().all()


def test_the_exponential_is_good_to_one_and_a_half_units_in_the_last_place():
    @njit
    def each(x, y):
        for i in range(len(x)):
            y[i] = arithmetic._exp(x[i])

    x = np.linspace(-86.9, 0, 200_001).astype(np.float32)
    y = np.empty_like(x)
    each(x, y)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(y - exact) / np.spacing(exact.astype(np.float32))).max() < 1.5
    x = np.array([0, -88, -np.inf, np.nan], np.float32)
    each(x, y)
    assert y[:3].tolist() == [1, 0, 0] and np.isnan(y[3])


def test_compiled_code_gets_the_threads_of_torch():
    assert team.available()
    assert team._parallel() is not None, "this torch brought no OpenMP library that is known"


@pytest.mark.parametrize("tokens", [40, 20_000])
@pytest.mark.parametrize("size", [1.0, 1e4, 1e9])
def test_huge_scores_choose_one_key_and_stay_finite(tokens, size):
    """In float64 for few scores, in float32 for many: either way the largest score takes it all."""
    torch.manual_seed(0)
    query, part = torch.randn(1, 1, 1, 16) * size, [torch.randn(1, 1, tokens, 16) for _ in range(2)]
    found = stream.attend(query, [tuple(part)])
    exact = joined(query, [tuple(part)], torch.float64)[0]
    plain = joined(query, [tuple(part)], torch.float32)[0]
    assert (found - exact).abs().max() <= 2 * (plain - exact).abs().max() + 4e-6
