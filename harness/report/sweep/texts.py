"""What each seed of a sweep said, or each point with other tokens: the beginning of its texts beside its verdict."""

from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import Any

from harness.report.html import cell, section
from harness.report.picture import plots
from harness.report.sweep.pruned import judged
from harness.report.sweep.variation import is_seed
from harness.report.sweep.verdicts import marked, word
from harness.snapshot.record import read
from harness.snapshot.words import numbered

BEGINNING = 60  # characters of a text
LONG = 60  # lines that are shown at once
FEW = 3  # values of an option that are named one by one where a line has all of them

Row = dict[str, Any]


def sections(folder: Path, rows: list[Row], axes: list[str]) -> list[Row]:
    """One block with a line for each text of the sweep in `folder` where a seed was varied; else of its drifted and
    diverged points, where one said something else. None where no point has a text. axes: the options that were varied,
    the seeds of which stand first."""
    seeds = list(filter(is_seed, axes))
    order = [*seeds, *(axis for axis in axes if axis not in seeds)]
    alike: dict[tuple[Any, ...], list[Row]] = {}
    moved = [row for row in rows if row["verdict"] in ("drifted", "diverged")]
    for row in rows if seeds else moved:
        text: Row = {}
        with suppress(OSError, ValueError):
            text = numbered(read(folder / row["point"] / "result.json").get("text") or {})
        if text.get("continuation"):
            said = [str(text.get(key) or "") for key in ("continuation", "restored", "expected")]
            alike.setdefault((word(row), *said), []).append(row)
    changed = any(whole != restored for *_, whole, restored, _ in alike)
    if not alike or not (seeds or changed):
        return []
    told = "The beginning of what each run said; of the restored run, what it chooses at each step, the tokens of "
    told += "the uninterrupted run being fed. "
    told += "What said the same shares a line. Each verdict links to the whole."
    lines, asked = [], any(row.get("answer") for row in rows)
    told_apart = [(said, some) for said, rs in alike.items() for some in _lines(rs, order)]
    for (_, whole, restored, expected), some in told_apart:
        drawn = [_those(some, axis, rows) for axis in order]
        answer = [_begin(f"{expected} ({some[0].get('answer') or '-'})")] * asked
        lines.append([*drawn, marked(some[0], {}, word(some[0])), *answer, *map(_begin, (whole, restored))])  # fmt: skip
    other = "restored or pruned" if any(map(judged, rows)) else "restored"
    columns = [*order, "verdict", *["expected"] * asked, "uninterrupted", other]
    whole = [said for *_, said, _, _ in alike]
    if lines[1:] and len(set(whole)) == 1:
        told += f" The uninterrupted run says in each: {_begun(whole[0])}"
        columns.remove("uninterrupted")
        lines = [[*line[:-2], line[-1]] for line in lines]
    title = f"What each {'seed' if seeds else 'point'} said"
    return [section(title, text=told, columns=columns, rows=lines, fold=len(lines) > LONG)]


def _lines(alike: list[Row], axes: list[str]) -> list[list[Row]]:
    """Points that said the same, those of a line together: every combination of the values that the line names, so
    that two lines are joined where they differ in one option alone."""
    lines = [[row] for row in alike]
    for axis in axes:
        joined: dict[tuple[Any, ...], list[Row]] = {}
        for line in lines:
            rest = tuple(frozenset(str(r[a]) for r in line) for a in axes if a != axis)
            joined.setdefault(rest, []).extend(line)
        lines = list(joined.values())
    return lines


def _those(some: list[Row], axis: str, rows: list[Row]) -> str:
    """The values of one option in a line: `all 12` where these are all of several options."""
    values = list(dict.fromkeys(plots.short(row[axis]) for row in some))
    every = len({str(row[axis]) for row in rows})
    many = len(values) == every > FEW and not is_seed(axis)
    return f"all {every}" if many else ", ".join(values)


def _begun(text: str) -> str:
    return shorten(text, BEGINNING, placeholder=" ...")


def _begin(text: str) -> Any:
    return cell(_begun(text), kind="words")
