"""Digests see every bit, and see bytes rather than memory layout."""

import json
import math

import pytest
import torch

from harness.snapshot import digest

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8,
          torch.float8_e4m3fn, torch.float8_e5m2, torch.bool]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_bit_changes_the_digest(dtype: torch.dtype) -> None:
    raw = torch.zeros(64, dtype=torch.uint8)
    before = digest.digest_tensor(raw.view(dtype) if dtype != torch.bool else raw.bool())
    raw[17] = 1
    assert digest.digest_tensor(raw.view(dtype) if dtype != torch.bool else raw.bool()) != before


def test_a_view_and_its_copy_have_one_digest() -> None:
    whole = torch.arange(60.0).view(3, 4, 5)
    view = whole.transpose(0, 1)[1:]
    assert digest.digest_tensor(view) == digest.digest_tensor(view.contiguous())


def test_negative_zero_and_nan_payloads_are_bits_too() -> None:
    assert digest.digest_tensor(torch.tensor([0.0])) != digest.digest_tensor(torch.tensor([-0.0]))


def test_canonical_json_is_one_form() -> None:
    assert digest.canonical({"b": 1, "a": "é"}) == '{"a":"é","b":1}'.encode()
    assert json.loads(digest.canonical({"x": [1, None]})) == {"x": [1, None]}
    with pytest.raises(ValueError):
        digest.canonical({"x": math.nan})


def test_named_digest_covers_name_shape_and_dtype() -> None:
    t = torch.zeros(4)
    base = digest.digest_named({"a": t})
    assert base != digest.digest_named({"b": t})
    assert base != digest.digest_named({"a": t.view(2, 2)})
    assert base != digest.digest_named({"a": t.view(torch.int32)})


def test_empty_tensor() -> None:
    assert digest.digest_tensor(torch.zeros(0)) == digest.digest_bytes(b"")
