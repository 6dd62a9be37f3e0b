"""How far two sets of logits are apart, per step and overall. Nothing is mutated."""

from collections.abc import Iterable
from typing import Any

import torch

from harness.results.metric import measured
from harness.results.run import fact_of


def compare(actual: torch.Tensor, expected: torch.Tensor, ids: torch.Tensor) -> dict[str, Any]:
    """Metrics of `actual` against `expected`, both `[batch, steps, vocab]`.

    ids: `[batch, steps]` the token that followed at each step (for the likelihood difference).
    KL is KL(expected || actual) in nats per step; `first_divergence` is the first step whose most
    probable token differs, counted from 0 (every sentence counts it from 1), or None. `max_ulp` counts representable values between the two.
    """
    a, b = actual.double(), expected.double()
    gap = (a - b).abs()
    log_a, log_b = a.log_softmax(-1), b.log_softmax(-1)
    kl = (log_b.exp() * (log_b - log_a)).sum(-1).clamp(min=0)
    same = a.argmax(-1) == b.argmax(-1)
    k = min(5, a.shape[-1])
    top_a, top_b = a.topk(k).indices, b.topk(k).indices
    overlap = (top_a[..., :, None] == top_b[..., None, :]).any(-1).double().mean(-1)
    chosen = ids[..., None].to(a.device)
    nll = (log_b.gather(-1, chosen) - log_a.gather(-1, chosen))[..., 0]
    wrong = (~same).any(0).nonzero()
    return {
        "bitwise_equal": bool(torch.equal(actual, expected)),
        "max_abs_diff": float(gap.max()),
        "mean_abs_diff": float(gap.mean()),
        "max_ulp": max_ulp(actual, expected),
        "kl_mean": float(kl.mean()),
        "kl_max": float(kl.max()),
        "top1_agreement": float(same.double().mean()),
        "top5_overlap": float(overlap.mean()),
        "first_divergence": int(wrong[0, 0]) if len(wrong) else None,
        "nll_delta": float(nll.mean()),
        **{own.name: own(actual, expected, ids) for own in measured()},
    }


def per_step(actual: torch.Tensor, expected: torch.Tensor) -> dict[str, list[float]]:
    """`max_abs_diff` and `kl` at each step, the worst of the batch."""
    a, b = actual.double(), expected.double()
    log_a, log_b = a.log_softmax(-1), b.log_softmax(-1)
    kl = (log_b.exp() * (log_b - log_a)).sum(-1).clamp(min=0)
    return {
        "max_abs_diff": (a - b).abs().amax(-1).amax(0).tolist(),
        "kl": kl.amax(0).tolist(),
    }


def max_ulp(actual: torch.Tensor, expected: torch.Tensor) -> int | None:
    """Largest distance in units in the last place; None when dtypes differ or a value is NaN."""
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    if actual.dtype != expected.dtype or bool(actual.isnan().any() | expected.isnan().any()):
        return None
    integer = bits[actual.element_size()]
    top = torch.iinfo(integer).min

    def ordered(values: torch.Tensor) -> torch.Tensor:
        raw = values.contiguous().view(integer)
        return torch.where(raw < 0, top - raw, raw).to(torch.int64)

    return int((ordered(actual) - ordered(expected)).abs().max())


def noise_floor(
    paths: Iterable[torch.Tensor], reference: torch.Tensor, nexts: torch.Tensor
) -> dict[str, Any]:
    """What plain `paths` differ by from a plain `reference`, all `[batch, steps, vocab]`: for each metric
    the value furthest from perfect. nexts: as of `compare`."""
    return worst([compare(path, reference, nexts) for path in paths])


def worst(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The noise floor: for each metric the value furthest from perfect among `rows`."""
    out: dict[str, Any] = {}
    for key in rows[0]:
        values = [r[key] for r in rows if r[key] is not None]
        if fact_of(f"metrics.{key}").better == "higher":
            out[key] = min(values) if values else None
        else:
            out[key] = max(values, key=abs) if values else None
    return out
