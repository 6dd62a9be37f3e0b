"""The verdicts of a sweep at a glance: a grid over the options that were varied, or a tile per point."""

from html import escape
from typing import Any

from harness.report.html import cell, section

KIND = {"exact": "good", "equivalent": "good", "drifted": "fair", "diverged": "bad",
        "unsound": "bad", "refused": "bad", "failed": "bad"}  # fmt: skip
NEUTRAL = "soft"  # what was not judged
STOPPED = ("failed", "refused")  # such points have no report
ACROSS, DOWN = 8, 40  # columns and lines of a grid that can still be read
BEST = "Best: as required, the right answer, the better verdict, fewer bytes, less time, in this order."


def sections(found: list[dict[str, Any]], axes: list[str], best: dict[str, Any] | None) -> list[dict[str, Any]]:  # fmt: skip
    """One block where anything was varied. best: the row that is marked."""
    if not axes:
        return []
    sizes = {axis: len({str(r[axis]) for r in found}) for axis in axes}
    across = min(axes, key=lambda axis: sizes[axis])
    if sizes[across] > ACROSS or len(found) > DOWN * sizes[across]:
        return [_tiles(found, best)]
    return [_grid(found, across, [a for a in axes if a != across], best)]


def target(row: dict[str, Any]) -> str:
    """Where a point's link leads, from the sweep's folder."""
    return f"{row['point']}/{'result.json' if row['verdict'] in STOPPED else 'report.html'}"


def _grid(found: list[dict[str, Any]], across: str, down: list[str], best: Any) -> dict[str, Any]:
    """The option with the fewest values across, the others down; each verdict links to its point's report."""
    columns = list(dict.fromkeys(str(r[across]) for r in found))
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in found:
        kind = KIND.get(row["verdict"], "") + " best" * (row is best)
        line = lines.setdefault(tuple(str(row[a]) for a in down), {})
        line[str(row[across])] = cell(_said(row), target(row), kind)
    seen = [list(dict.fromkeys(str(r[a]) for r in found)) for a in down]
    order = sorted(
        lines, key=lambda key: [known.index(k) for known, k in zip(seen, key, strict=True)]
    )
    table = [[*key, *(lines[key].get(c, "") for c in columns)] for key in order]
    told = f"{across} across; every verdict links to its run. {BEST * (best is not None)}"
    heads = [*down, *(f"{across}={c}" if not down else c for c in columns)]
    return section("Verdicts", text=told, columns=heads, rows=table)


def _tiles(found: list[dict[str, Any]], best: Any) -> dict[str, Any]:
    tiles = "".join(
        f'<a class="{KIND.get(r["verdict"], NEUTRAL)}{" best" * (r is best)}" href="{escape(target(r))}" '
        f'title="point {escape(r["point"])}: {escape(_said(r))}"></a>'
        for r in found
    )
    told = f"A tile per point, in order; each links to its run. {BEST * (best is not None)}"
    return section("Verdicts", text=told, svg=f'<div class="tiles">{tiles}</div>')


def _said(row: dict[str, Any]) -> str:
    return f"{row['verdict']}, {row['answer']}" if row.get("answer") else str(row["verdict"])
