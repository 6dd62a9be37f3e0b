"""What a search looks for: the figures of a finished point that a sweeper is told (`report.objectives`),
which way each is better, and the points that no other one beats (the Pareto front)."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import isfinite, nan
from pathlib import Path
from typing import Any

from harness import foreign
from harness.snapshot.result import CELL, ROWS

WAYS = {"minimize": -1, "maximize": 1}
BLOCKS = ("metrics", "oracle", "noise_floor", "mutation", "size", "time_s")
# Of an evaluation, and which way each is better.
ANSWERS = {"evaluate.contains": 1, "evaluate.kv_bytes": -1, "evaluate.kl": -1}
BYTES, KIB = "bytes", 1024


def objectives(folder: Path, names: Sequence[str]) -> tuple[float, ...]:
    """One number per name, of the point in `folder`; no number where it failed or has no such figure:
    `size.kv_bytes` is a figure of `result.json`; `evaluate.contains` that measure in the last cell of
    `evaluate.json`, and `evaluate.kv_bytes` a column of its last row."""
    return tuple(_number(folder, name) for name in names)


def directions(sweep: Path) -> dict[str, int]:
    """Each objective of the sweep in the folder `sweep`, in order: 1 where more is better, -1 where less
    is, 0 where its sweeper does not say (a grid asks for nothing)."""
    try:
        told = foreign.read_yaml(sweep / "multirun.yaml")
        names = told["report"]["objectives"] or []
        way = told["hydra"]["sweeper"].get("direction") or []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    ways = [way] if isinstance(way, str) else way
    both = zip_longest(names, ways[: len(names)], fillvalue="")
    return {str(name): WAYS.get(str(which), 0) for name, which in both}


def searches(sweep: Path) -> bool:
    """Whether the sweeper of the sweep in the folder `sweep` was Optuna's."""
    try:
        told = foreign.read_yaml(sweep / "multirun.yaml")
        return "optuna" in str(told["hydra"]["sweeper"]["_target_"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def answered(points: Sequence[Path]) -> list[str]:
    """The figures of evaluations that have one cell each beside the full cache; none where one has not."""
    tables = [p / ROWS for p in points]
    if not tables or not all(table.is_file() for table in tables):
        return []
    cells = ({str([r.get(k) for k in CELL]) for r in foreign.read_json(t)} for t in tables)
    return list(ANSWERS) if all(len(some) == 2 for some in cells) else []


def front(rows: Sequence[Mapping[str, Any]], ways: Mapping[str, int]) -> list[int]:
    """The places in `rows` that no other row beats: at least as good in every objective, and better in
    one. Rows without a number do not take part; none where a direction is unknown."""
    if not ways or not all(ways.values()):
        return []
    measured = [
        (tuple(-way * row[name] for name, way in ways.items()), place)
        for place, row in enumerate(rows)
        if all(isinstance(row.get(name), int | float) for name in ways)
    ]
    best: list[tuple[tuple[float, ...], int]] = []  # of values of which less is better
    for values, place in sorted(measured):
        if not any(
            other != values and all(o <= v for o, v in zip(other, values, strict=True))
            for other, _ in best
        ):
            best.append((values, place))
    return sorted(place for _, place in best)


def names(folder: Path) -> list[str]:
    """The figures that the finished point in `folder` has, those too that came to nothing beside others."""
    result = foreign.read_json(folder / "result.json")
    blocks = [(name, block) for name in BLOCKS if any((block := result.get(name) or {}).values())]
    for file in sorted(folder.glob("*.json")):
        rows = foreign.read_json(file)
        if isinstance(rows, list) and rows and isinstance(rows[-1], dict):
            measures = {str(row["measure"]): row.get("value") for row in rows if "measure" in row}
            blocks.append((file.stem, {**measures, **rows[-1]}))
    return [
        f"{name}.{key}"
        for name, block in blocks
        for key, value in block.items()
        if _is_number(value) or (value is None and any(map(_is_number, block.values())))
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(folder: Path, name: str) -> float:
    first, _, rest = name.partition(".")
    table = folder / f"{first}.json"
    try:
        if first != "result" and rest and table.is_file():
            return float(_of_rows(foreign.read_json(table), rest))
        node = foreign.read_json(folder / "result.json")
        for key in name.split("."):
            if not any(node.values()):  # all zero: of a task that stores nothing
                return nan
            node = node[key]
        return float(node)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return nan


def _of_rows(rows: list[dict[str, Any]], name: str) -> Any:
    measured = [row for row in rows if row.get("measure") == name]
    return measured[-1]["value"] if measured else rows[-1][name]


def figures(folder: Path, names: Sequence[str]) -> dict[str, float | None]:
    """`objectives` by name, None for what is no number."""
    told = zip(names, objectives(folder, names), strict=True)
    return {name: value if isfinite(value) else None for name, value in told}


def shown(name: str, value: Any) -> str:
    """A figure for a person: three digits, bytes in KiB, `-` for no number."""
    if isinstance(value, int | float) and name.endswith(BYTES):
        return f"{value / KIB:,.0f} KiB" if value >= 10 * KIB else f"{value:,.0f} bytes"
    if value is None or value != value:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def said(told: Mapping[str, Any]) -> str:
    """Figures by name in one line, by the last part of each name: `contains 1, kv_bytes 170 KiB`."""
    return ", ".join(f"{name.rpartition('.')[2]} {shown(name, v)}" for name, v in told.items())
