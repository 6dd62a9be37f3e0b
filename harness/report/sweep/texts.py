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
            options = (plots.short(row[axis]) for axis in order[len(seeds) :])
            alike.setdefault((*options, word(row), *said), []).append(row)
    changed = any(whole != restored for *_, whole, restored, _ in alike)
    if not alike or not (seeds or changed):
        return []
    told = "The beginning of what each run said; of the restored run, what it chooses at each step, the tokens of "
    told += "the uninterrupted run being fed. "
    told += (
        "Seeds that said the same share a line. " * bool(seeds) + "Each verdict links to the whole."
    )
    lines, asked = [], any(row.get("answer") for row in rows)
    for (*others, _, whole, restored, expected), some in alike.items():
        drawn = [", ".join(dict.fromkeys(plots.short(r[seed]) for r in some)) for seed in seeds]
        answer = [_begin(f"{expected} ({some[0].get('answer') or '-'})")] * asked
        lines.append([*drawn, *others, marked(some[0], {}, word(some[0])), *answer, *map(_begin, (whole, restored))])  # fmt: skip
    other = "restored or pruned" if any(map(judged, rows)) else "restored"
    columns = [*order, "verdict", *["expected"] * asked, "uninterrupted", other]
    whole = [said for *_, said, _, _ in alike]
    if lines[1:] and len(set(whole)) == 1:
        told += f" The uninterrupted run says in each: {_begun(whole[0])}"
        columns.remove("uninterrupted")
        lines = [[*line[:-2], line[-1]] for line in lines]
    title = f"What each {'seed' if seeds else 'point'} said"
    return [section(title, text=told, columns=columns, rows=lines, fold=len(lines) > LONG)]


def _begun(text: str) -> str:
    return shorten(text, BEGINNING, placeholder=" ...")


def _begin(text: str) -> Any:
    return cell(_begun(text), kind="words")
