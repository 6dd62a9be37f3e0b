"""The decode kernels against float64: on CUDA, and by Triton's interpreter where Triton is installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.attention.kernels.cuda import decode

ROOT = Path(__file__).resolve().parents[2]
EPSILON = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
# rows of the past, branches, KV heads, query heads of each, new tokens, head_dim, tokens of the past
SHAPES = [(1, 1, 2, 4, 1, 64, 700), (2, 3, 2, 2, 2, 64, 300), (1, 5, 1, 4, 1, 80, 520), (1, 16, 2, 2, 1, 16, 33)]  # fmt: skip


def made(shape, dtype, device="cpu"):
    """A query and the ways in which a step's past and tail may be masked."""
    rows, branches, kv_heads, group, new, width, tokens = shape
    draw = torch.Generator().manual_seed(tokens)
    numbers = lambda *sizes: torch.randn(*sizes, generator=draw).to(device, dtype)  # noqa: E731
    marks = lambda *sizes: (torch.rand(*sizes, generator=draw) < 0.4).to(device)  # noqa: E731
    query = numbers(rows * branches, kv_heads * group, new, width) * 3
    past = [numbers(rows, kv_heads, tokens, width) for _ in "kv"]
    tail = [numbers(rows * branches, kv_heads, 20, width) for _ in "kv"]
    late, shared = marks(rows * branches, 1, new, 20), marks(rows * branches, kv_heads, new, tokens)
    return query, {
        "past": [(*past, None)],
        "padded tail": [(*past, None), (*tail, late)],
        "masked by head": [(*past, shared), (*tail, late)],
        "two pasts": [(*past, None), (*past, shared), (*tail, None)],
        "nothing seen": [(*tail, torch.zeros_like(late))],
    }


def exact(query, parts, scale):
    """Plain attention in float64; zeros for a row that sees nothing."""
    scores, values = [], []
    for key, value, seen in parts:
        wide = [
            t.double().repeat_interleave(len(query) // len(t), 0).repeat_interleave(query.shape[1] // t.shape[1], 1)
            for t in (key, value)
        ]  # fmt: skip
        score = query.double() @ wide[0].mT * scale
        if seen is not None:
            by_head = seen.expand(-1, key.shape[1], -1, -1) if seen.shape[1] == 1 else seen
            score = score.masked_fill(
                ~by_head.repeat_interleave(query.shape[1] // key.shape[1], 1), -torch.inf
            )
        scores.append(score)
        values.append(wide[1])
    return torch.softmax(torch.cat(scores, -1), -1).nan_to_num(0.0) @ torch.cat(values, -2)


def check(shape, dtype, device="cpu"):
    query, cases = made(shape, dtype, device)
    scale = query.shape[-1] ** -0.5
    for name, parts in cases.items():
        expected = exact(query, parts, scale)
        found = decode.attend(query, parts, scale)
        assert found is not None and found.dtype == dtype, name
        error = (found.double() - expected).abs().max()
        assert error <= 2 * EPSILON[dtype] * max(float(expected.abs().max()), 1.0), (name, error)
        assert torch.equal(found, decode.attend(query, parts, scale)), name  # bit for bit, again
    wrong = decode.attend(query, [(k, v, None) for k, v, _ in cases["padded tail"]], scale)
    assert (
        wrong.double() - exact(query, cases["padded tail"], scale)
    ).abs().max() > 0.05  # a mask is heeded


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize(
    "shape", [*SHAPES, (1, 1, 4, 8, 1, 64, 32768), (1, 32, 4, 8, 1, 128, 5000)]
)
def test_on_cuda_the_decode_kernels_give_what_float64_gives(shape, dtype):
    check(shape, dtype, "cuda")


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs Triton")
def test_the_decode_kernels_interpreted_give_what_float64_gives():
    """By the interpreter, which takes float16 alone. It is asked for before Triton is imported."""
    code = "from tests.attention.test_decode_kernels import *\nfor shape in SHAPES: check(shape, torch.float16)"
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_without_triton_the_step_is_left_to_the_library(monkeypatch):
    query, cases = made(SHAPES[0], torch.float16)
    monkeypatch.setattr(decode, "INTERPRETED", True)
    monkeypatch.setattr(decode, "_program", lambda: None)
    assert decode.attend(query, cases["past"], 0.1) is None


@pytest.mark.parametrize("kind", [RuntimeError, Exception])
def test_kernels_that_cannot_be_started_are_tried_once_and_said(monkeypatch, kind):
    def compiled(*arguments):
        raise kind("Failed to find C compiler.")

    query, cases = made(SHAPES[0], torch.float16)
    monkeypatch.setattr(decode, "INTERPRETED", True)
    monkeypatch.setattr(decode, "_program", lambda: "there")
    monkeypatch.setattr(decode, "_usable", True)
    monkeypatch.setattr(decode, "_attended", compiled)
    with pytest.warns(RuntimeWarning, match="Failed to find C compiler.*gcc"):
        assert decode.attend(query, cases["past"], 0.1) is None
    monkeypatch.setattr(decode, "_attended", lambda *arguments: pytest.fail("tried again"))
    assert decode.attend(query, cases["past"], 0.1) is None


def test_want_of_memory_is_no_want_of_kernels(monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    query, cases = made(SHAPES[0], torch.float16)
    monkeypatch.setattr(decode, "available", lambda query: True)
    monkeypatch.setattr(decode, "_attended", full)
    with pytest.raises(torch.OutOfMemoryError):
        decode.attend(query, cases["past"], 0.1)
    assert decode._usable


def test_what_is_no_decode_step_is_left_to_the_library(monkeypatch):
    monkeypatch.setattr(decode, "available", lambda query: True)
    monkeypatch.setattr(decode, "_attended", lambda query, parts, scale: query)
    query, cases = made(SHAPES[0], torch.float16)
    assert decode.attend(query, cases["past"], 0.1) is query
    many = query.expand(-1, -1, decode.NEW + 1, -1)
    for other in (many, query.float(), torch.cat((query, query), -1)[..., ::2]):
        assert decode.attend(other, cases["past"], 0.1) is None
