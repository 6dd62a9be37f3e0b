"""The architecture table: one line per family, one column per cache, reasons below."""

from typing import Any

from harness.report.badge import KIND, SIGNS
from harness.report.html import cell, section


def sections(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks of the page for `architectures.json` rows."""
    caches = list(dict.fromkeys(r["cache"] for r in rows))
    cells = {(r["family"], r["cache"]): r["outcome"] for r in rows}
    families = list(dict.fromkeys(r["family"] for r in rows))
    table = [[f, *(_coloured(cells[f, c]) for c in caches)] for f in families]
    told = [
        [r["family"], r["cache"], r["outcome"], r["reason"]]
        for r in rows
        if r["outcome"] not in ("exact", "equivalent") or "recomputation" in r["reason"]
    ]
    return [
        section(
            "Architectures and caches",
            text="Each cell is the worst of its cases: pasts below, at and beyond the window, "
            "several new tokens and one, a batch of two with left padding.",
            columns=["family", *caches],
            rows=table,
        ),
        section(
            "Why not",
            text=""
            if told
            else "Every cache serves every family that was asked, and no cell is wrong.",
            columns=["family", "cache", "outcome", "reason"],
            rows=told,
        ),
        section(
            "Error against float64, over the plain path's",
            columns=["family", *caches],
            rows=[
                [
                    f,
                    *(
                        next(r["error_ratio"] for r in rows if (r["family"], r["cache"]) == (f, c))
                        for c in caches
                    ),
                ]
                for f in families
            ],
        ),
    ]


def _coloured(outcome: str) -> Any:
    """A verdict in its colour and with its sign; what is only not served stays plain."""
    if outcome not in KIND or outcome == "refused":
        return outcome
    return cell(outcome, kind=KIND[outcome], sign=SIGNS[outcome])
