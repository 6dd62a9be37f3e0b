"""Parts attended apart by the flash kernel and joined by log-sum-exp, on the CPU's kernel of that kind."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.attention import split
from harness.attention.kernels.cuda import flash
from harness.attention.reference import reference_attention
from harness.attention.split import split_attention

from .test_attention import EPSILON, build, cases

HALF = [torch.bfloat16, torch.float16]


@pytest.fixture
def everywhere(monkeypatch):
    """Split attention takes the flash kernel on a CPU too; counts how often it did."""
    served = []

    def attend(query, parts, scale):
        out = real(query, parts, scale)
        served.append(out is not None)
        return out

    real = flash.attend
    monkeypatch.setattr(split.flash, "available", lambda query: query.dtype in HALF)
    monkeypatch.setattr(split.flash, "attend", attend)
    return served


@st.composite
def half_cases(draw):
    """Those of split attention that flash can take: one head_dim, nothing added to the scores."""
    case = draw(cases())
    width = draw(st.sampled_from([8, 64]))
    sharp = draw(st.sampled_from([1.0, 8.0, 40.0]))  # scores of up to hundreds
    return case | {"dims": (width, width), "softcap": None, "bias": False, "sinks": False, "sharp": sharp}  # fmt: skip


@pytest.mark.parametrize("dtype", HALF)
def test_joined_by_log_sum_exp_is_as_near_to_float64_as_plain_attention(dtype, everywhere):
    @settings(max_examples=80, deadline=None)
    @given(case=half_cases())
    def check(case):
        query, parts, queries, scale, extra, (key, value, positions) = build(case, dtype)
        found = split_attention(query, parts, queries, scale, **extra)
        assert found.dtype == dtype
        wide = (t.double() for t in (query, key, value))
        exact = reference_attention(*wide, positions, queries.positions, scale, **extra)
        plain = reference_attention(query, key, value, positions, queries.positions, scale, **extra)
        error, floor = (float((t.double() - exact).abs().max()) for t in (found, plain))
        assert error <= 2 * floor + EPSILON[dtype] * max(float(exact.abs().max()), 1.0), case

    check()
    assert sum(everywhere) > 20, "hardly a case went through the kernel"


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("branches, group", [(1, 1), (1, 8), (16, 4)])
def test_a_long_past_beside_a_padded_tail(dtype, branches, group, everywhere):
    """What a fixed-shape step asks for: an unmasked past, and a tail with room that nobody sees."""
    case = {"seed": 3, "shape": (1, branches, 2, group, 3000, 12), "dims": (64, 64), "cuts": [0, 1000, 3000],
            "padding": 0, "gap": 1, "window": None, "softcap": None, "bias": False, "sinks": False,
            "sharp": 6.0}  # fmt: skip
    query, parts, queries, scale, _, (key, value, positions) = build(case, dtype)
    *past, tail = parts
    query, seen = query[:, :, :1], torch.arange(12).expand(branches, 1, 1, 12) < 5
    given = [(p.key, p.value, None) for p in past] + [(tail.key, tail.value, seen)]
    found = flash.attend(query, given, scale)
    held = (key[:, :, :-7], value[:, :, :-7], positions[:, :-7], queries.positions[:, 4:5])
    exact = reference_attention(*(t.double() for t in (query, *held[:2])), *held[2:], scale)
    plain = reference_attention(query, *held, scale)
    error, floor = ((t.double() - exact).abs() for t in (found, plain))
    assert error.max() <= 2 * floor.max() and error.mean() <= 2 * floor.mean()
    if group == 1:
        return  # two rows, which look at the tail too little to tell
    wrong = flash.attend(query, [*given[:-1], (tail.key, tail.value, torch.ones_like(seen))], scale)
    assert (wrong.double() - exact).abs().max() > 5 * error.max()


def test_what_the_kernel_cannot_take_is_left_to_the_products():
    def tried(width=16, dtype=torch.bfloat16, deep=None, seen=None):
        query, key = torch.randn(1, 4, 1, width).to(dtype), torch.randn(1, 2, 9, width).to(dtype)
        value = torch.randn(1, 2, 9, deep or width).to(dtype)
        return flash.attend(query, [(key, value, seen)], 0.25)

    assert tried() is not None
    for refused in ({"dtype": torch.float32}, {"width": 264}, {"width": 12}, {"deep": 24},
                    {"seen": torch.ones(1, 1, 9, dtype=torch.bool)}):  # fmt: skip
        assert tried(**refused) is None, refused
    odd = torch.randn(1, 2, 9, 17).bfloat16()[..., 1:]  # rows that are not aligned
    assert flash.attend(torch.randn(1, 4, 1, 16).bfloat16(), [(odd, odd, None)], 0.25) is None


def test_the_schema_of_the_cuda_kernel_is_the_one_that_is_called():
    """The CUDA kernel itself cannot run here; that it is there, and gives what is taken from it, can be told."""
    schema = torch.ops.aten._scaled_dot_product_flash_attention.default._schema
    assert [r.name for r in schema.returns][:2] == ["output", "logsumexp"]
    arguments = {a.name: a for a in schema.arguments}
    assert [*arguments][:3] == ["query", "key", "value"] and arguments["scale"].kwarg_only
    meta = torch.empty(1, 4, 8, 64, dtype=torch.bfloat16, device="meta")
    past = torch.empty(1, 4, 300, 64, dtype=torch.bfloat16, device="meta")
    out, mass, *_ = torch.ops.aten._scaled_dot_product_flash_attention(meta, past, past, scale=0.1)
    assert out.shape == meta.shape and mass.shape == meta.shape[:3] and mass.dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("branches, group", [(1, 1), (1, 8), (16, 4)])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_on_cuda_the_kernel_gives_output_and_natural_log_sum_exp(dtype, branches, group, width):
    torch.manual_seed(0)
    query = torch.randn(2, 3, branches * group, width, device="cuda").to(dtype) * 4
    key, value = torch.randn(2, 2, 3, 5000, width, device="cuda").to(dtype)
    assert flash.available(query)
    out, mass = flash.flash(query, key, value, width**-0.5)
    scores = query.double() @ key.double().mT * width**-0.5
    assert (mass - torch.logsumexp(scores, -1)).abs().max() < 1e-3
    exact = torch.softmax(scores, -1) @ value.double()
    assert (out - exact).abs().max() <= 8 * EPSILON[dtype] * exact.abs().max()
    assert mass.shape == query.shape[:3]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
def test_on_cuda_split_attention_is_as_near_to_float64_as_plain_attention(dtype):
    case = {"seed": 3, "shape": (1, 4, 2, 4, 3000, 3), "dims": (64, 64), "cuts": [0, 1000, 3000], "padding": 0,
            "gap": 1, "window": None, "softcap": None, "bias": False, "sinks": False, "sharp": 6.0}  # fmt: skip
    with torch.device("cuda"):
        query, parts, queries, scale, extra, (key, value, positions) = build(case, dtype)
    found = split_attention(query, parts, queries, scale, **extra)
    wide = (t.double() for t in (query, key, value))
    exact = reference_attention(*wide, positions, queries.positions, scale, **extra)
    plain = reference_attention(query, key, value, positions, queries.positions, scale, **extra)
    error, floor = (float((t.double() - exact).abs().max()) for t in (found, plain))
    assert error <= 2 * floor + EPSILON[dtype]
