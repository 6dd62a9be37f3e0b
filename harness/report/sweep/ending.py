"""With what a sweep ends on the console: why points came to no end, and why its exit code is another than 0."""

from pathlib import Path
from typing import Any

from harness import machine
from harness.report.failure import why
from harness.report.names import folder as called
from harness.report.names import in_brief
from harness.report.sweep.verdicts import STOPPED, word
from harness.report.terminal.console import Say
from harness.snapshot.result import ORDER

SOME = 10  # points that are named one by one
REASONS = 20  # why points came to no end, told one by one

Row = dict[str, Any]


def exits(rows: list[Row], say: Say) -> list[str]:
    """Why a sweep ends with another exit code than 0: its worst point's, and what is worse than required besides."""
    missed = [r for r in rows if int(r.get("exit_code") or 0) == 1 and r["verdict"] in ORDER]
    worst, told = max((int(row.get("exit_code") or 0) for row in rows), default=0), []
    if worst > 1:
        ended = [r for r in rows if int(r.get("exit_code") or 0) == worst]
        words = sorted({str(r["verdict"]) for r in ended})
        verdicts = " or ".join(w if w == "failed" else f"{_is(ended)} {w}" for w in words)
        told.append(f"{machine.many(len(ended), 'point')} {verdicts}")
    if missed:
        words = [*dict.fromkeys(map(word, sorted(missed, key=lambda r: ORDER.index(r["verdict"]))))]
        worse = f"{machine.many(len(missed), 'point')} {_is(missed)} worse than required"
        told.append(f"{worse} ({_named(missed)}: {' or '.join(words)})")
    return [say.labelled("exit code", f"{worst}: {'; '.join(told)}")] * bool(told)


def _is(rows: list[Row]) -> str:
    return "is" if len(rows) == 1 else "are"


def _named(rows: list[Row]) -> str:
    more = f" and {len(rows) - SOME} more in the table below" if rows[SOME:] else ""
    return ", ".join(called(r["point"]) for r in rows[:SOME]) + more


def stopped(folder: Path, rows: list[Row]) -> list[str]:
    """Points that came to no end, those that say the same in one line."""
    alike: dict[tuple[str, str], list[Row]] = {}
    for row in (r for r in rows if r["verdict"] in STOPPED):
        said = why(folder / row["point"], row)
        said = in_brief(said.removeprefix("Not saved: ").removeprefix("Not restored: "), 150)
        alike.setdefault((row["verdict"], said), []).append(row)
    lines = []
    for (verdict, said), points in list(alike.items())[:REASONS]:
        lines.append(f"  {_named(points)} {verdict}: {said}")
    if left := [row for points in list(alike.values())[REASONS:] for row in points]:
        lines.append(
            f"  {machine.many(len(left), 'more point')} for other reasons: see the table below"
        )
    return lines
