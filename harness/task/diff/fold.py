"""One row for all layers that differ in the same way."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.report.terminal.console import number
from harness.snapshot.words import spanned
from harness.task.diff.deviation import LAYERED, Deviation

TENSOR = re.compile(r"layer\.(\d+)\.(.+)")


def folded(deviations: Sequence[Deviation]) -> list[Deviation]:
    """The same, with one row for all layers of which a document says the same two things, or whose tensors have the
    same two forms: the largest difference of any of them, if they could be compared."""
    alike: dict[Any, list[tuple[int, Deviation]]] = {}
    for place, d in enumerate(deviations):
        if d.what == "kv_format" and (at := LAYERED.fullmatch(d.where)) and at[1].isdigit():
            alike.setdefault((at[2], d.a, d.b), []).append((int(at[1]), d))
        elif d.where == "form" and (at := TENSOR.fullmatch(d.what)):
            alike.setdefault((at[2], d.a, d.b, d.derived), []).append((int(at[1]), d))
        else:
            alike[place] = [(0, d)]
    return [_one(key, rows) for key, rows in alike.items()]


def _one(key: Any, rows: list[tuple[int, Deviation]]) -> Deviation:
    layers, (first, *more) = spanned([layer for layer, _ in rows]), [d for _, d in rows]
    if first.what == "kv_format" and isinstance(key, tuple):
        return replace(first, where=f"layers[{layers}].{key[0]}")
    if not more:
        return first
    gaps = [d.gap for d in (first, *more) if d.gap is not None]
    amount = f"at most {number(max(gaps))}" if gaps else first.amount
    return replace(
        first,
        what=f"layers {layers}",
        where=f"{key[0]} form",
        amount=amount,
        gap=max(gaps, default=None),
    )
