"""Codes as other programs write them, in the form that a snapshot keeps: the same numbers, none rounded anew.

llama.cpp's `q8_0` and `q4_0` are blocks of 32 numbers of a row behind a float16 scale; mlx's are groups of a
row with a scale and a bias, packed from the lowest bits. Source: ggml's quants, `mlx.core.quantize`.
"""

from dataclasses import replace

import numpy as np
import torch

from harness.snapshot.codes import Codes, packed, unpacked

BLOCK = 32
Q4_0, Q8_0 = 2, 8  # ggml's numbers
MIDDLE = 8  # the code of 0 in q4_0


def ggml(raw: np.ndarray, kind: int) -> Codes:
    """Rows of blocks `[rows, bytes]` as Codes of `[1, 1, rows, numbers]`."""
    size = 2 + BLOCK * (8 if kind == Q8_0 else 4) // 8
    blocks = torch.from_numpy(raw.reshape(len(raw), -1, size).copy())
    scale = blocks[..., :2].contiguous().view(torch.float16)[..., 0]
    body, zero = blocks[..., 2:], None
    if kind == Q8_0:
        codes = body.contiguous().view(torch.int8).flatten(1)
    else:
        codes = packed(torch.cat([body & 15, body >> 4], -1).flatten(1), 4)
        zero = scale * -MIDDLE
        if not bool(zero.isfinite().all()):
            scale, zero = scale.float(), scale.float() * -MIDDLE
    bits, width = (8 if kind == Q8_0 else 4), blocks.shape[1] * BLOCK
    row = [None if t is None else t[None, None] for t in (codes, scale, zero)]
    assert row[0] is not None and row[1] is not None
    return Codes(row[0], row[1], row[2], bits, width, (1, BLOCK), torch.float32)


def mlx(
    words: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor, group: int, bits: int
) -> Codes:
    """`words` `[batch, kv_heads, tokens, head_dim * bits / 32]` uint32, scale and bias a number per group.
    Raises ValueError for a form that is not written."""
    codes = words.contiguous().view(torch.uint8)
    width = codes.shape[-1] * 8 // bits if bits in (2, 4, 8) else 0
    if words.dim() != 4 or group < 1 or width < 1 or width % group:
        raise ValueError(f"codes of {bits} bits in groups of {group} are not read")
    if list(scale.shape) != [*words.shape[:3], width // group] or scale.shape != bias.shape:
        raise ValueError(f"its scales are {list(scale.shape)} for codes of {list(words.shape)}")
    return Codes(codes, scale, bias, bits, width, (1, group), torch.float32)


def by_head(codes: Codes, heads: int) -> Codes | None:
    """`[1, 1, tokens, heads * head_dim]` as `[1, heads, tokens, head_dim]`; None where a block belongs to two
    heads."""
    size = codes.width // heads
    if codes.width % heads or size % codes.span[1]:
        return None
    parts = codes.moved(
        lambda t: t[0, 0].unflatten(1, (heads, -1)).transpose(0, 1)[None].contiguous()
    )
    return replace(parts, width=size)


def in_halves(codes: Codes) -> Codes | None:
    """Keys whose RoPE turned neighbours in the library's order, which turns halves: every code stays what
    it is, under the scale that it had. None where a block does not fit that."""
    numbers = codes.span[1]
    half = numbers // 2
    if numbers % 2 or codes.width % numbers:
        return None
    each = unpacked(codes.codes, codes.bits, codes.width)
    turned = packed(torch.cat([each[..., 0::2], each[..., 1::2]], -1), codes.bits)
    scale, zero = (None if t is None else torch.cat([t, t], -1) for t in (codes.scale, codes.zero))
    assert scale is not None
    return replace(codes, codes=turned, scale=scale, zero=zero, span=(1, half))


def unturned(numbers: torch.Tensor, size: int) -> torch.Tensor:
    """`[..., width]` before a Hadamard matrix of `size` turned every `size` of them; it is its own inverse.
    llama.cpp turns what it keeps in codes, so that no number stands out (its pull request 21038)."""
    blocks = numbers.unflatten(-1, (-1, size)).double()
    step = 1
    while step < size:
        pairs = blocks.unflatten(-1, (-1, 2, step))
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        blocks = torch.stack([first + second, first - second], -2).flatten(-3)
        step *= 2
    return (blocks / size**0.5).flatten(-2).to(numbers.dtype)
