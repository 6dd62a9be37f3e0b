"""Codes: packed and unpacked, cut at any place, decoded in part as in whole, described and checked."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from harness.config import option
from harness.quantize.registry import names, quantizer
from harness.snapshot import codes as room
from harness.snapshot.codes import Codes, packed, unpacked

WIDTH = {"key": 24, "value": 16}
HALF_STEP = {  # largest error of a number, in shares of the largest of its group
    "int8": 0.5 / 127,
    "int4": 2 * 0.5 / 15,
    "fp8_e4m3": 2**-4,
    "fp8_e5m2": 2**-3,
    "kivi": 2 * 0.5 / 3,
    "library": 2 * 0.5 / 15,
}


def settings(name: str, **given) -> Any:
    small = {"kivi": {"bits": 2, "group": 8}, "library": {"group": 8}}
    return option("quantize", name, **{"group": 8, **small.get(name, {}), **given})


def numbers(width: int = 24, tokens: int = 21, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    draw = torch.Generator().manual_seed(width)
    made = torch.randn(2, 3, tokens, width, generator=draw)
    made[..., 3] *= 20  # a channel that is large in every token, as keys have them
    return made.to(dtype)


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("width", [1, 3, 8, 17])
def test_packing_gives_every_code_back(bits: int, width: int) -> None:
    draw = torch.randint(0, 2**bits, (2, 3, 5, width), dtype=torch.uint8)
    stored = packed(draw, bits)
    assert stored.shape[-1] == -(-width * bits // 8)
    assert torch.equal(unpacked(stored, bits, width), draw)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_error_is_half_a_step_of_the_group(name: str, part: str, dtype: torch.dtype) -> None:
    given = numbers(dtype=dtype)
    before = given.clone()
    made = quantizer(settings(name)).encode(given, part)
    assert torch.equal(given, before)
    decoded = made.dense()
    assert decoded.dtype == dtype and decoded.shape == given.shape == made.shape
    rounding = torch.finfo(torch.float16).eps + torch.finfo(dtype).eps
    largest = given.abs().amax().double()
    if name not in ("kivi",):  # a token at a time: its own largest bounds its error
        largest = given.abs().amax(-1, keepdim=True).double()
    allowed = (HALF_STEP[name] * (1 + 4 * rounding) + 2 * rounding) * largest
    assert bool(((decoded.double() - given.double()).abs() <= allowed).all())
    assert not torch.equal(decoded, given)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("axis", ["token", "channel"])
def test_a_block_decodes_as_the_same_block_of_the_whole(name: str, axis: str) -> None:
    given = {} if name in ("kivi", "library") else {"axis": axis}
    made = quantizer(settings(name, **given)).encode(numbers(), "key")
    whole = made.dense()
    for start in range(0, 21, 4):
        for stop in range(start + 1, 22, 3):
            cut = made[:, :, start:stop]
            assert torch.equal(cut.dense(), whole[:, :, start:stop])
            again = cut[:, :, 0 : (stop - start + 1) // 2]  # a cut of a cut
            assert torch.equal(again.dense(), cut.dense()[:, :, 0 : (stop - start + 1) // 2])


@pytest.mark.parametrize("name", names())
def test_codes_are_small_and_their_description_brings_them_back(name: str) -> None:
    made = quantizer(settings(name, group=16)).encode(numbers(32, 64), "key")
    assert made.nbytes < numbers(32, 64).nbytes * (0.32 if made.bits == 8 else 0.26)
    document = json.loads(json.dumps(made.document()))
    again = Codes.of(document, dict(made.tensors()))
    assert torch.equal(again.dense(), made.dense())


def test_a_span_of_equal_numbers_and_one_of_zeros_are_kept_exactly() -> None:
    for name in ("int8", "int4", "fp8_e4m3", "fp8_e5m2"):
        for value in (0.0, 3.5):
            given = torch.full((1, 1, 4, 8), value)
            decoded = quantizer(settings(name)).encode(given, "value").dense()
            # scales are float16: half its last place is the most that one of them can lose
            assert torch.allclose(decoded, given, rtol=2**-10, atol=0), name


def test_numbers_beyond_float16_are_scaled_all_the_same() -> None:
    for size in (1e9, 1e-12):
        given = numbers() * size
        for name in ("int8", "int4"):
            decoded = quantizer(settings(name)).encode(given, "key").dense()
            gap = (decoded - given).abs() / given.abs().amax(-1, keepdim=True)
            assert float(gap.max()) <= HALF_STEP[name] * 1.01, (name, size)


def test_per_channel_keeps_a_channel_that_is_always_large_apart() -> None:
    given = numbers(32, 64)
    quiet = [i for i in range(32) if i != 3]

    def error(axis: str) -> float:
        made = quantizer(settings("int4", axis=axis, group=32)).encode(given, "key").dense()
        return float((made - given)[..., quiet].square().mean())

    assert error("channel") < error("token") / 4


SOUND = {"bits": 4, "width": 16, "span": [1, 8], "skip": 0, "dtype": "float32", "zero": True}
SHAPES = {
    "codes": ("uint8", [1, 2, 5, 8]),
    "scale": ("float16", [1, 2, 5, 2]),
    "zero": ("float16", [1, 2, 5, 2]),
}


def test_a_sound_description_has_no_faults() -> None:
    assert room.faults(SOUND, SHAPES, 5) == []


@pytest.mark.parametrize(
    "change",
    [
        {"bits": 3}, {"width": 0}, {"width": True}, {"span": [0, 8]}, {"span": [1]}, {"skip": 1},
        {"dtype": "int64"}, {"zero": False}, {"zero": 1}, {"more": 1}, {"width": 18},
    ],
)  # fmt: skip
def test_a_description_that_does_not_fit_is_named(change: dict) -> None:
    assert room.faults({**SOUND, **change}, SHAPES, 5)


@pytest.mark.parametrize(
    "part, shape",
    [
        ("codes", ("int64", [1, 2, 5, 8])), ("codes", ("uint8", [1, 2, 4, 8])),
        ("scale", ("float16", [1, 2, 5, 1])), ("scale", ("int8", [1, 2, 5, 2])),
        ("zero", ("float16", [1, 1, 5, 2])),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_their_description_are_named(part: str, shape: tuple) -> None:
    assert room.faults(SOUND, {**SHAPES, part: shape}, 5)


def test_codes_are_cut_by_tokens_only() -> None:
    made = quantizer(settings("int8")).encode(numbers(), "key")
    with pytest.raises(IndexError, match="tokens only"):
        made[:, 0:1, 0:2]
    assert made[:, :, -1:].shape[2] == 1
    assert replace(made, codes=made.codes + 1).dense().sum() != made.dense().sum()
