"""The pictures of a sweep: what its points cost, and how far their logits went."""

from html import escape
from typing import Any

from harness.report import plots
from harness.report import verdicts as grid
from harness.report.badge import kind
from harness.report.console import number
from harness.report.html import section
from harness.report.names import plain

Row = dict[str, Any]
SHAPED = ("prune", "cache", "save", "quantize")  # axes that get markers before others
COST = [
    ("per_token_s", "Continue", "s per token"),
    ("save_s", "Save", "s"),
    ("load_s", "Load", "s"),
]
APART = [("kl_max", "Largest KL per step", "nats"), ("max_abs_diff", "Largest logit difference", "logits"),
         ("error_ratio", "Error over rounding's own", "ratio, 2 is allowed")]  # fmt: skip
KIB, MARKS = 1024, 8
NOISE = 100  # noise floors further apart than this are no one line


def sections(rows: list[Row], axes: list[str]) -> list[Row]:
    """Cost and divergence over the points that came to their end; what is the same in all of them is
    said, not drawn, and one point alone is no picture."""
    measured = [r for r in rows if r.get("stored_bytes") and r.get("per_token_s")]
    axes = [a for a in axes if _several(measured, a)]
    if len(measured) < 2:
        return []
    few = [
        a for a in axes if len(_values(measured, a)) <= MARKS
    ]  # a drawn number has no marker of its own
    by = next((a for a in few if a in SHAPED), next(iter(few), None))
    option = next((a for a in axes if a != by), by)
    return [
        _panels("Size and speed", "Seconds per continued token, to save and to load",
                measured, axes, ("stored_bytes", option), COST, by),
        _panels("How far the logits went", "From the uninterrupted run",
                measured, axes, ("kept_tokens", option), APART, by),
    ]  # fmt: skip


def _panels(
    title: str, said: str, rows: list[Row], axes: list[str], across: tuple[str, str | None],
    measures: list[tuple[str, str, str]], by: str | None,
) -> Row:  # fmt: skip
    """One panel per measure that is not the same everywhere, over the first of `across` that varies."""
    x = next((key for key in across if key and _several(rows, key)), "point")
    called = plain(x)
    if x == "stored_bytes":
        rows, called = [{**r, x: r[x] / KIB} for r in rows], called.replace("bytes", "KiB")
    group = by if by != x else None
    size = next((a for a in axes if a not in (x, group) and len(_values(rows, a)) <= 3), None)
    panels, constant, noisy = [], [], False
    for key, name, unit in measures:
        values = {r[key] for r in rows if r.get(key) is not None}
        if len(values) > 1:
            floors = _floors(rows) if key == "kl_max" else {}
            noisy = noisy or bool(floors)
            panels.append(plots.scatter(rows, x, key, _kind, (group, size), name, called, unit, floors))  # fmt: skip
        elif values:
            constant.append(f"{plain(key)} is {number(values.pop())}")
    told = f"{said}, by {called}." if panels else ""
    if noisy:
        some = len(_floors(rows)) < len(_values(rows, "dtype"))
        rest = "; no line where that is nothing" if some else ""
        told += f" Dashed: the noise floor, what a recompute does with nothing wrong{rest}."
    if constant:
        told = f"{told} The same in every point: {'; '.join(constant)}.".strip()
    return section(title, text=told, panels=panels, legend=_legend(rows, group, size) if panels else "")  # fmt: skip


def _floors(rows: list[Row]) -> dict[str, float]:
    """The noise floor of each dtype that has one; none where the prompts or models of a dtype differ so
    much that it would be no one line."""
    lines = {}
    for dtype in _values(rows, "dtype"):
        mine = [r["noise_kl_max"] for r in rows if str(r.get("dtype", "")) == dtype]
        floors = sorted(f for f in mine if f)
        if floors and floors[-1] <= NOISE * floors[0]:
            lines[dtype] = floors[len(floors) // 2]
    return lines


def _values(rows: list[Row], key: str) -> list[str]:
    return list(dict.fromkeys(str(r.get(key, "")) for r in rows))


def _several(rows: list[Row], key: str) -> bool:
    return len({str(r[key]) for r in rows}) > 1


def _kind(row: Row) -> str:
    return kind(row["verdict"])


def _legend(rows: list[Row], by: str | None, size: str | None) -> str:
    """The verdicts in their colours, what each marker is, and what its size says."""
    said = grid.legend(rows)
    marks = plots.markers(rows, by)
    if by is not None and len(set(marks.values())) == len(marks):
        said += "".join(f"<span>{plots.SHAPES[m]} {escape(g)}</span>" for g, m in marks.items())
    return said + "".join(
        f'<span><b style="font-size:{0.55 + 0.4 * place:.2f}em">\u25cb</b> {escape(value)}</span>'
        for place, value in enumerate(_values(rows, size) if size else [])
    )
