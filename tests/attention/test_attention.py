"""Split attention against the plain reference: every split, window, mask, dtype and shape."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.attention import split
from harness.attention.parts import Part, Queries
from harness.attention.reference import reference_attention
from harness.attention.split import split_attention

EPSILON = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 4e-3, torch.float16: 5e-4}


@st.composite
def cases(draw):
    """Shapes, where the parts are cut, gaps in the positions, and every kind of mask."""
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    base, branches = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    tokens, new = draw(st.integers(0, 700)), draw(st.integers(1, 5))
    cuts = sorted(draw(st.lists(st.integers(0, tokens), max_size=3)))
    return {
        "seed": draw(st.integers(0, 2**20)),
        "shape": (base, branches, kv_heads, group, tokens, new),
        "dims": (draw(st.sampled_from([8, 24])), draw(st.sampled_from([8, 24]))),
        "cuts": [0, *cuts, tokens],
        "padding": draw(st.sampled_from([0, 0, 3])),
        "gap": draw(st.sampled_from([1, 1, 2, 3])),
        "window": draw(st.sampled_from([None, None, 1, 5, 64, 1000])),
        "softcap": draw(st.sampled_from([None, None, 5.0])),
        "bias": draw(st.booleans()),
        "sinks": draw(st.booleans()),
        "sharp": draw(st.sampled_from([1.0, 8.0])),
        "block": draw(st.sampled_from([split.BLOCK, 600])),
    }


def build(case, dtype):
    """Query, parts, queries, the rest of the arguments, and what the reference is given."""
    base, branches, kv_heads, group, tokens, new = case["shape"]
    torch.manual_seed(case["seed"])
    batch, heads, (dim, value_dim) = base * branches, kv_heads * group, case["dims"]
    query = (torch.randn(batch, heads, new, dim) * case["sharp"]).to(dtype)
    past = torch.randn(base, kv_heads, tokens, dim).to(dtype)
    value = torch.randn(base, kv_heads, tokens, value_dim).to(dtype)
    fresh = torch.randn(batch, kv_heads, new, dim).to(dtype)
    fresh_value = torch.randn(batch, kv_heads, new, value_dim).to(dtype)
    padding = torch.arange(base)[:, None] * case["padding"]
    positions = (torch.arange(tokens)[None] - padding) * case["gap"]
    positions = positions.expand(base, -1)
    end = (tokens - padding) * case["gap"]
    ahead = (end + torch.arange(new)[None]).repeat_interleave(branches, 0)
    parts = [
        Part.of(past[:, :, a:b], value[:, :, a:b], positions[:, a:b])
        for a, b in zip(case["cuts"], case["cuts"][1:], strict=False)
    ]
    parts.append(Part.of(fresh, fresh_value, ahead))
    bias = torch.randn(1, heads, 1, tokens + new).to(dtype) if case["bias"] else None
    sinks = torch.randn(heads) * 3 if case["sinks"] else None
    extra = {"window": case["window"], "softcap": case["softcap"], "bias": bias, "sinks": sinks}

    def every(t):
        return t.repeat_interleave(branches, 0)

    joined = (torch.cat([every(past), fresh], 2), torch.cat([every(value), fresh_value], 2),
              torch.cat([every(positions), ahead], 1))  # fmt: skip
    return query, parts, Queries.of(ahead), dim**-0.5, extra, joined


def errors(case, dtype):
    """Errors of split attention and of the plain path in `dtype`, against float64."""
    query, parts, queries, scale, extra, (key, value, positions) = build(case, dtype)
    before = [t.clone() for p in parts for t in (p.key, p.value, p.positions)]
    split = split_attention(query, parts, queries, scale, **extra)
    assert split.dtype == dtype
    for old, now in zip(
        before, [t for p in parts for t in (p.key, p.value, p.positions)], strict=True
    ):
        assert torch.equal(old, now)
    wide = {k: v.double() if torch.is_tensor(v) else v for k, v in extra.items()}
    exact = reference_attention(query.double(), key.double(), value.double(), positions,
                                queries.positions, scale, **wide)  # fmt: skip
    same = {k: v.to(dtype) if torch.is_tensor(v) else v for k, v in extra.items()}
    plain = reference_attention(query, key, value, positions, queries.positions, scale, **same)
    size = float(exact.abs().max())
    split, plain = ((t.double() - exact).abs() for t in (split, plain))
    return {"split": float(split.max()), "plain": float(plain.max()), "size": size,
            "mean": float(split.mean()), "plain_mean": float(plain.mean())}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_split_attention_is_as_near_to_float64_as_plain_attention(dtype, case):
    old, split.BLOCK = split.BLOCK, case["block"]
    try:
        found = errors(case, dtype)
    finally:
        split.BLOCK = old
    assert found["split"] <= 2 * found["plain"] + EPSILON[dtype] * max(found["size"], 1.0), found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [(1, 1), (1, 4), (16, 4)])
def test_long_pasts_take_the_streaming_kernels_and_stay_accurate(dtype, rows):
    branches, group = rows
    case = {"seed": 1, "shape": (1, branches, 2, group, 5000, 1), "dims": (64, 64), "cuts": [0, 3000, 5000],
            "padding": 0, "gap": 1, "window": None, "softcap": None, "bias": False, "sinks": False,
            "sharp": 6.0}  # fmt: skip
    found = errors(case, dtype)
    assert found["mean"] <= 2 * found["plain_mean"], found
    assert found["split"] <= 2 * found["plain"], found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("tokens, dim", [(40, 16), (600, 16), (900, 40), (2100, 16)])
def test_where_one_way_of_attending_ends_and_the_next_begins(dtype, padding, tokens, dim):
    """Many tokens of narrow heads are still few numbers: every kernel must take every dtype."""
    case = {"seed": 3, "shape": (1, 1, 2, 2, tokens, 1), "dims": (dim, dim), "cuts": [0, tokens - 20, tokens],
            "padding": padding, "gap": 1, "window": None, "softcap": None, "bias": False, "sinks": False,
            "sharp": 2.0}  # fmt: skip
    found = errors(case, dtype)
    assert found["mean"] <= 2 * found["plain_mean"] + EPSILON[dtype] * found["size"], found
    assert found["split"] <= 2 * found["plain"] + EPSILON[dtype] * max(found["size"], 1.0), found


@pytest.mark.parametrize("twin", ["window", "position", "scale", "part", "softcap"])
def test_a_corrupted_twin_is_far_away(twin):
    case = {"seed": 2, "shape": (1, 1, 2, 2, 40, 2), "dims": (8, 8), "cuts": [0, 20, 40], "padding": 0,
            "gap": 1, "window": 16, "softcap": 5.0, "bias": False, "sinks": False, "sharp": 2.0}  # fmt: skip
    query, parts, queries, scale, extra, joined = build(case, torch.float32)
    right = reference_attention(query, *joined[:2], joined[2], queries.positions, scale, **extra)
    assert (split_attention(query, parts, queries, scale, **extra) - right).abs().max() < 1e-5
    if twin == "window":
        extra["window"] = 15
    elif twin == "softcap":
        extra["softcap"] = 4.0
    elif twin == "position":
        queries = Queries.of(queries.positions + 1)
    elif twin == "scale":
        scale *= 1.01
    else:
        parts = parts[1:]
        extra["window"] = 32
    assert (split_attention(query, parts, queries, scale, **extra) - right).abs().max() > 1e-4


def test_the_page_names_every_file():
    folder = Path(split.__file__).parent
    page = (folder / "README.md").read_text()
    files = {str(f.relative_to(folder)) for f in folder.rglob("*.py") if f.stat().st_size}
    listed = {line.split("`")[1] for line in page.splitlines() if ".py` |" in line}
    assert files == listed
