"""Keys and values of a record beside those of its second run, where the bits may differ.

Elsewhere the same computation rounds otherwise, so digests say nothing there. How far rounding may go
is measured in the audit: the same configuration a third time, in another precision. What two roundings
of one number may differ by is at most the error of the one plus that of the other.
"""

from collections.abc import Iterator
from typing import Any

import torch

from harness.snapshot.codes import Codes, dense
from harness.snapshot.state import LayerState, State
from harness.task.audit.finding import Finding

SIDES, MARGIN = 2.0, 2.0  # the record rounds as well as the second run; another machine a bit worse
UNMEASURED = "not the bits of the second run, and no floor could be measured"
WHY = "further from the second run than rounding explains, as measured in this audit"


def other_precision(dtype: str) -> str:
    """The precision that shows how far `dtype` rounds."""
    return "float32" if dtype == "float64" else "float64"


def compare(
    recorded: State, fresh: State, other: State | None
) -> tuple[list[Finding], dict[str, float]]:
    """Differences that rounding does not explain, and the floors `tensor -> largest difference` allowed.

    recorded, fresh: the states of a record and of its second run. other: of a third run in another
    precision; None when it could not be made, and then no floor is known and only equal bits pass.
    """
    findings = list(_shapes(recorded, fresh, other))
    floors: dict[str, float] = {}
    if findings:
        return findings, floors
    exact = dict(_tensors(other, fresh)) if other is not None else {}
    ours = dict(_tensors(recorded, fresh))
    for name, now in _tensors(fresh, fresh):
        was, beside = ours.get(name), exact.get(name)
        if was is None:
            continue  # other tokens were kept, which `_shapes` has judged
        off = _apart(was, now)
        if off == 0.0:
            continue
        if beside is None or beside.shape != now.shape:
            findings.append(Finding(name, "as digested", f"off by {off:.3g}", UNMEASURED))
            continue
        floors[name] = floor = _floor(name, now, beside, fresh)
        if not off <= floor:
            why = f"{WHY}: {floor:.3g}"
            findings.append(Finding(name, "as digested", f"off by {off:.3g}", why))
    return findings, floors


def _shapes(recorded: State, fresh: State, other: State | None) -> Iterator[Finding]:
    """What no rounding changes: layers, their kinds, tokens; and positions, unless the other precision
    shows that which tokens a policy keeps here is itself a matter of rounding."""
    for label in ("token_ids", "attention_mask", "next_position"):
        was, now = getattr(recorded, label), getattr(fresh, label)
        if not torch.equal(was.cpu(), now.cpu()):
            yield Finding(label, "as recorded", "others", "the second run read other tokens")
    if len(recorded.layers) != len(fresh.layers):
        yield Finding("layers", len(recorded.layers), len(fresh.layers), "another number of layers")
        return
    for was, now in zip(recorded.layers, fresh.layers, strict=True):
        if _form(was) != _form(now):
            why = "the second run keeps other tensors here"
            yield Finding(f"layer.{now.index}", str(_form(was)), str(_form(now)), why)
        elif (
            was.segments
            and not _alike(was, now)
            and (other is None or _alike(other.layers[now.index], now))
        ):
            why = "the second run keeps other tokens here"
            yield Finding(f"layer.{now.index}.positions", "as recorded", "others", why)


def _alike(one: LayerState, two: LayerState) -> bool:
    return torch.equal(one.positions, two.positions)


def _form(layer: LayerState) -> list[Any]:
    parts = {name: list(t.shape) for name, t in layer.recurrent.items()}
    shapes = [list(layer.key.shape), list(layer.value.shape)] if layer.segments else []
    dtypes = [str(dense(s.key[:, :, :0]).dtype) for s in layer.segments[:1]]
    return [layer.kind, layer.seen, shapes, dtypes, parts]


def _tensors(state: State, like: State) -> Iterator[tuple[str, torch.Tensor]]:
    """`(name, numbers)` of everything computed in floating point that `like` holds; float64."""
    for layer, model in zip(state.layers, like.layers, strict=True):
        stem = f"layer.{layer.index}"
        # in another precision a policy may keep other tokens: then nothing is comparable
        if layer.segments and _alike(layer, model):
            yield f"{stem}.key", layer.key.double()
            yield f"{stem}.value", layer.value.double()
        for part, tensor in sorted(layer.recurrent.items()):
            if tensor.is_floating_point():
                yield f"{stem}.{part}", tensor.double()
    yield "logits", state.logits.double()


def _floor(name: str, now: torch.Tensor, other: torch.Tensor, fresh: State) -> float:
    """How far two honest roundings of this tensor may lie apart."""
    dtype = _dtype(fresh)
    unit = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    gap = _apart(now, other)
    if dtype == torch.float64:  # the other one is float32, whose rounding is what was seen
        gap *= unit / torch.finfo(torch.float32).eps
    largest = float(now[now.isfinite()].abs().max()) if now.isfinite().any() else 0.0
    return SIDES * MARGIN * gap + unit * largest + _step(name, fresh)


def _dtype(state: State) -> torch.dtype:
    dtypes = [dense(s.key[:, :, :0]).dtype for layer in state.layers for s in layer.segments[:1]]
    return dtypes[0] if dtypes else state.logits.dtype


def _step(name: str, state: State) -> float:
    """The width of one code, where this layer is quantized: a number on the border takes either."""
    _, _, rest = name.partition("layer.")
    index, _, part = rest.partition(".")
    scales = [
        float(codes.scale.double().abs().max())
        for layer in state.layers
        if str(layer.index) == index
        for segment in layer.segments
        if isinstance(codes := getattr(segment, part, None), Codes) and codes.scale.numel()
    ]
    return max(scales, default=0.0)


def _apart(one: torch.Tensor, two: torch.Tensor) -> float:
    """The largest difference; infinite where one side is no number and the other is."""
    same = (one == two) | (one.isnan() & two.isnan())
    off = torch.where(same, 0.0, (one - two).abs()).nan_to_num(nan=float("inf"))
    return float(off.max()) if off.numel() else 0.0
