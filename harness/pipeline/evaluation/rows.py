"""Answers to averages: one row per cell and measure, with its interval and its distance from the full
cache on the same prompts."""

from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

from harness.pipeline.evaluation.statistics import mean, paired, paired_shares, share
from harness.snapshot.result import CELL

SHARES = ("exact", "contains")
MEANS = ("nll", "kl", "divergence_step", "key_error", "value_error")
FULL = {"prune": "none", "quantize": "none", "budget": 1.0}

Row = dict[str, Any]


def called(option: str, source: Mapping[str, Any]) -> str:
    """What the model is called in the rows: its option, or the folder it came from."""
    return str(source["name"]) if option == "path" else option


def averages(model: str, prompt: str, answered: list[list[Row]]) -> list[Row]:
    """Rows of evaluate.json. answered: per question its answers, one per cell, alike in each."""
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for answers in answered:
        for answer in answers:
            cells.setdefault(tuple(answer[key] for key in CELL), []).append(answer)
    rows = []
    for place, said in cells.items():
        where = dict(zip(CELL, place, strict=True))
        full = cells[tuple({**where, **FULL}[key] for key in CELL)]
        seconds = [a["per_token_s"] for a in said if a["per_token_s"] is not None]
        cost = {
            "kv_bytes": fmean(a["kv_bytes"] for a in said),
            "kept_tokens": fmean(a["kept_tokens"] for a in said),
            "per_token_s": median(seconds) if seconds else None,
        }
        for measure in (*SHARES, *MEANS):
            if any(measure not in a for a in said):
                continue
            values = [a[measure] for a in said]
            kinds = (share, paired_shares) if measure in SHARES else (mean, paired)
            average = kinds[0](values)
            known = all(measure in a for a in full)
            gap = kinds[1](values, [a[measure] for a in full]) if known else {}
            row = {"model": model, "prompt": prompt, **where, "measure": measure}
            rows.append({**row, **average, **gap, **cost})
    return rows
