"""The quantizer that a configuration declares, and what it did to keys and values."""

from typing import Any

import torch

from harness.config import QuantizeConfig
from harness.quantize.base import Quantizer
from harness.quantize.registry import quantizer
from harness.snapshot.codes import dense
from harness.snapshot.state import LayerState, State


def quantizer_of(settings: QuantizeConfig) -> Quantizer | None:
    """The quantizer of a QuantizeConfig; None for `quantize=none`."""
    return None if settings.name == "none" else quantizer(settings)


def quantization(
    quantizer: Quantizer, plain: State, small: State, seconds: float
) -> dict[str, Any]:
    """What `result.json` says about `small`, which the `quantizer` made of `plain` in `seconds`: bytes
    of K/V before and after, and the errors of every layer and head."""
    return {
        "quantizer": quantizer.settings.name,
        "seconds": seconds,
        "plain_bytes": plain.kv_bytes,
        "kv_bytes": small.kv_bytes,
        "layers": errors(plain, small),
    }


def errors(plain: State, small: State) -> list[dict[str, Any]]:
    """One row per layer and KV head that holds codes: the error of keys and of values as a share of
    their own size (root mean square), and the largest. `plain` holds the same tokens."""
    rows = []
    for before, after in zip(plain.layers, small.layers, strict=True):
        if any(segment.coded for segment in after.segments):
            rows += _errors(before, after)
    return rows


def _errors(before: LayerState, after: LayerState) -> list[dict[str, Any]]:
    heads = after.segments[0].key.shape[1]
    rows = [{"layer": after.index, "head": head} for head in range(heads)]
    for part in ("key", "value"):
        whole, start = getattr(before, part), 0
        off, size, worst = (torch.zeros(heads, dtype=torch.float64) for _ in range(3))
        for segment in after.segments:
            stop = start + segment.tokens
            exact = whole[:, :, start:stop].double()
            gap = (dense(getattr(segment, part)).double() - exact).abs()
            off += gap.square().sum((0, 2, 3)).cpu()
            size += exact.square().sum((0, 2, 3)).cpu()
            worst = torch.maximum(worst, gap.amax((0, 2, 3)).cpu())
            start = stop
        share = (off / size.clamp(min=torch.finfo(torch.float64).tiny)).sqrt()
        for row, error, largest in zip(rows, share.tolist(), worst.tolist(), strict=True):
            row |= {f"{part}_error": error, f"{part}_max_error": largest}
    return rows
