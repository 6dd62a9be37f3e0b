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
BEFORE, AFTER = 3, 4  # words around the first that is another one
LONG = 60  # lines that are shown at once
FEW = 3  # values of an option that are named one by one where a line has all of them

SAID = {"right": "said", "wrong": "not said"}  # of an expected answer

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
    told = "The beginning of what each run said, or the place where the two part; of the restored run, what it chooses "
    told += "at each step, the tokens of the uninterrupted run being fed. "
    told += "What said the same shares a line. Each verdict links to the whole."
    lines, asked = [], any(row.get("answer") for row in rows)
    told_apart = [(said, some) for said, rs in alike.items() for some in _lines(rs, order)]
    for (_, whole, restored, expected), some in told_apart:
        drawn = [_those(some, axis, rows) for axis in order]
        answer = [_begin(f"{expected}: {SAID.get(str(some[0].get('answer')), '-')}")] * asked
        shown = _begin(whole), cell(_told(whole, restored), kind="words")
        lines.append([*drawn, marked(some[0], {}, word(some[0])), *answer, *shown])
    other = "restored or pruned" if any(map(judged, rows)) else "restored"
    columns = [*order, "verdict", *["expected"] * asked, "uninterrupted", other]
    whole = [said for *_, said, _, _ in alike]
    if lines[1:] and len(set(whole)) == 1:
        told += f" The uninterrupted run says in each: {_begun(whole[0])}"
        columns.remove("uninterrupted")
        lines = [[*line[:-2], line[-1]] for line in lines]
    title = f"What each {'seed' if seeds else 'point'} said"
    return [section(title, text=told, columns=columns, rows=lines, fold=len(lines) > LONG)]


def parted(folder: Path, winners: list[Row]) -> str:
    """What the one point says that is chosen because it is nearest, and whose words are others, in a sentence; empty of
    any other, and where an answer was expected, which counts first."""
    if len(winners) != 1 or winners[0]["verdict"] != "diverged" or winners[0].get("answer"):
        return ""
    with suppress(OSError, ValueError):
        text = numbered(read(folder / winners[0]["point"] / "result.json").get("text") or {})
        whole, own = (
            " ".join(str(text.get(k) or "").split()) for k in ("continuation", "restored")
        )
        if whole and own and whole != own:
            first, second = _fork(whole, own)
            return f'It says "{second}" where the full cache says "{first}".'
    return ""


def _fork(whole: str, own: str) -> tuple[str, str]:
    """Both from a few words before the first that is another one."""
    ours, theirs = own.split(), whole.split()
    at = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs))
    )
    cut = max(0, at - BEFORE)
    return _excerpt(theirs, cut), _excerpt(ours, cut)


def _excerpt(words: list[str], begin: int) -> str:
    end = begin + BEFORE + AFTER
    return "... " * bool(begin) + " ".join(words[begin:end]) + " ..." * (end < len(words))


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


def _told(whole: str, own: str) -> str:
    """The beginning of a text; where that is the beginning of the uninterrupted run's too, the place at which they part."""
    if own == whole or _begun(own) != _begun(whole):
        return _begun(own)
    return _fork(" ".join(whole.split()), " ".join(own.split()))[1]


def _begun(text: str) -> str:
    return shorten(text, BEGINNING, placeholder=" ...")


def _begin(text: str) -> Any:
    return cell(_begun(text), kind="words")
