"""What each seed of a sweep said: the beginning of its texts beside its verdict."""

from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import Any

from harness.report import plots
from harness.report.html import cell, section
from harness.report.seeds import is_seed
from harness.report.verdicts import marked, word
from harness.snapshot.record import read

BEGINNING = 60  # characters of a text

Row = dict[str, Any]


def sections(folder: Path, rows: list[Row], axes: list[str]) -> list[Row]:
    """One block with a line per point of the sweep in `folder` where a seed was varied; none where no point has a
    text. axes: the options that were varied, the seeds of which stand first."""
    seeds = list(filter(is_seed, axes))
    order = [*seeds, *(axis for axis in axes if axis not in seeds)]
    lines = []
    for row in rows if seeds else ():
        text: Row = {}
        with suppress(OSError, ValueError):
            text = read(folder / row["point"] / "result.json").get("text") or {}
        if text.get("continuation"):
            said = [_begin(text.get(key)) for key in ("continuation", "restored")]
            lines.append([*(plots.short(row[a]) for a in order), marked(row, {}, word(row)), *said])
    if not lines:
        return []
    told = "The beginning of what each run said; of the restored run, what it chooses at each step, the tokens of "
    told += "the uninterrupted run being fed. Each verdict links to the whole."
    columns = [*order, "verdict", "uninterrupted", "restored"]
    return [section("What each seed said", text=told, columns=columns, rows=lines)]


def _begin(text: Any) -> Any:
    return cell(shorten(str(text or ""), BEGINNING, placeholder=" ..."), kind="words")
