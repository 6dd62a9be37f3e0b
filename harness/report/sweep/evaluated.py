"""A grid of evaluations: the cell that each point comes to, how many of these are safe, and the one of all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import machine
from harness.report.picture import plots
from harness.report.sweep.variation import CHOICE, FIGURES, asks, group, is_seed
from harness.report.sweep.verdicts import WHY
from harness.snapshot.cells import best, name, nearest
from harness.snapshot.objective import directions, front, shown
from harness.snapshot.result import CELL, DONE, ROWS

SAFE, RIGHT, BYTES, KL = FIGURES
HEADS = ("cell", "safe", "right", "K/V", "KL (nats)")
EACH = " in each"  # after the cell that all points come to
Row = dict[str, Any]


def completed(folder: Path, rows: list[Row]) -> list[Row]:
    """`rows`, the points of the sweep in `folder`, with the `cell` that each evaluation comes to (its smallest safe
    choice, else the nearest), whether it is `safe`, and its figures; as they are where a search has said what it looks
    for, or none is an evaluation."""
    if directions(folder):
        return rows
    told = [{**row, **_cell(folder / row["point"] / ROWS)} for row in rows]
    return told if any(CHOICE in row for row in told) else rows


def _cell(table: Path) -> Row:
    """What the evaluation of this table comes to, no cell where its prompts cannot tell or the full cache is alone;
    nothing where it is no evaluation."""
    try:
        rows = json.loads(table.read_text("utf-8"))
        safe = best(rows)
        one = safe or nearest(rows)
    except (OSError, ValueError, KeyError, StopIteration):
        return {}
    if one is None:
        return {CHOICE: ""}
    figures = {r["measure"]: r["value"] for r in rows if all(r[k] == one[k] for k in CELL)}
    return {CHOICE: name(one), SAFE: safe is not None, RIGHT: one["value"], BYTES: one["kv_bytes"],
            KL: figures.get("kl")}  # fmt: skip


def sought(rows: list[Row], ways: Mapping[str, int]) -> list[str]:
    """The figures that a sweep's run has of its points: those of cells, else the objectives `ways`."""
    return [RIGHT, BYTES, KL] if any(row.get(CHOICE) for row in rows) else [*ways]


def chosen(rows: list[Row], axes: list[str], each: bool = False) -> list[Row]:
    """The points to choose: the smallest that is safe, else the nearest; where nothing but seeds was asked that one of
    each, if it has the same options and cell under every seed. None where points were asked other things, or have no
    cells. each: as older versions told it, which chose none over seeds."""
    asked, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    some = [[r for r in mine if r.get(CHOICE)] for mine in group(rows, asked).values()]
    if not all(some) or not all(map(is_seed, asked)) or (asked and (each or not options)):
        return []
    best = [*map(_best, some)]
    return best if len({(*(str(r[a]) for a in options), r[CHOICE]) for r in best}) == 1 else []


def _best(some: list[Row]) -> Row:
    safe = [row for row in some if row[SAFE]]
    small = min(safe, key=lambda row: (row[BYTES], -row[RIGHT]), default=None)
    return small or max(some, key=lambda row: (row[RIGHT], -row[BYTES]))


def words(rows: list[Row], axes: list[str]) -> str:
    """How many points have a safe choice, and which is the one of all: `2 of 3 safe: keydiff 25% 100% right` (over seeds
    the least and the most, `92% to 100% right`); of points that were asked different things which each comes to, if it is the same: `2 of 2 safe: keydiff 25% in each`.
    Empty where none has cells."""
    asked = [row for row in rows if CHOICE in row]
    some = [row for row in asked if row[CHOICE]]
    if not some:
        return f"nothing to choose in {machine.many(len(asked), 'point')}" * bool(asked)
    safe, best = sum(row[SAFE] for row in some), chosen(rows, axes)
    told = f"{safe or 'none'} of {len(some)} safe"
    if mute := len(asked) - len(some):  # the full cache fails most prompts there
        told += f" ({mute} cannot tell)"
    if best:
        ends = (of(row[RIGHT] for row in best) for of in (min, max))
        share = " to ".join(dict.fromkeys(f"{100 * end:.3g}%" for end in ends)) + " right"
        told += f": {best[0][CHOICE]} {share}" if safe else f", {share} at most"
    elif safe == len(some) and len({row[CHOICE] for row in some}) == 1:
        told += f": {some[0][CHOICE]}{EACH * (len(some) > 1)}"
    stopped = [row["outcome"] for row in rows if CHOICE not in row and row["outcome"] != DONE]
    counts = [f"{stopped.count(word)} {word}" for word in dict.fromkeys(stopped)]
    return ", ".join([*counts, told])


def markdown(
    rows: list[Row], axes: list[str], ways: Mapping[str, int], marks: Mapping[str, str]
) -> str:
    """Each point with its cell, as a table. ways: objectives, of which the front is marked. marks: as of `winners`."""
    best = {id(rows[place]) for place in front(rows, ways)}
    failed = any(CHOICE not in row for row in rows)
    heads = ["folder", *axes, *HEADS, *["front"] * bool(best), *["reason"] * failed]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        place, mark = row["point"], marks.get(row["point"], "").rpartition(" ")[2]
        cells = [f"**{place}** ({mark})" if mark else place, *(plots.short(row[a]) for a in axes)]
        cells += _told(row) if row.get(CHOICE) else ["-"] * len(HEADS)
        cells += ["\u25c6" * (id(row) in best)] * bool(best)
        cells += [
            f"{row['outcome']}: {row.get(WHY) or row['reason']}"[:120] * (CHOICE not in row)
        ] * failed
        lines.append(f"| {' | '.join(' '.join(str(c).replace('|', '/').split()) for c in cells)} |")
    return "\n".join(lines)


def _told(row: Row) -> list[str]:
    share = f"{100 * row[RIGHT]:.3g}%"
    return [
        row[CHOICE],
        "yes" if row[SAFE] else "no",
        share,
        machine.human(row[BYTES]),
        shown(KL, row[KL]),
    ]
