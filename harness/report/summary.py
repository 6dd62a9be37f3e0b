"""What a sweep came to, in words: the console's last lines, the name and the description of its run."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.report import choice, plots, search
from harness.report import verdicts as grid
from harness.report.names import folder as called
from harness.report.names import in_brief
from harness.report.verdicts import word
from harness.snapshot.objective import front, shown
from harness.snapshot.record import PENDING, read
from harness.snapshot.result import DONE, ORDER, UNJUDGED

Row = dict[str, Any]
SOME = 10  # points that are named one by one


def searched(rows: list[Row], ways: Iterable[str]) -> bool:
    """Whether objectives say it all: there are some, and nothing was judged."""
    return bool(list(ways)) and all(row["verdict"] == UNJUDGED for row in rows)


def counts(rows: list[Row]) -> dict[str, int]:
    """How many points came out how, the best first, in the words of their task."""
    tally = Counter(map(word, rows))
    return {w: tally[w] for w in (*ORDER, *(w for w in tally if w not in ORDER)) if tally[w]}


def counted(rows: list[Row]) -> str:
    """The same in one line: `2 exact, 1 failed`."""
    return ", ".join(f"{count} {said}" for said, count in counts(rows).items())


def told(rows: list[Row], ways: dict[str, int]) -> tuple[str, str]:
    """`(words, sentence)`: what the sweep came to, and which point to choose; for a search its front and
    its best. ways: objectives, as `objective.directions`."""
    sentence = search.conclusion(rows, ways)
    if searched(rows, ways) and sentence:
        headline = search.headline(rows, ways)
        return ". ".join(filter(None, (headline, sentence.rstrip(".")))), sentence
    axes = choice.varied(rows, ways)
    best = sentence or choice.told(choice.chosen(rows, axes), axes, rows)
    return counted(rows), best


def markdown(rows: list[Row], ways: Mapping[str, int] | None = None) -> str:
    """What was varied and what came out, point by point: the table of the parent run's description. ways:
    objectives."""
    ways = dict(ways or {})
    axes, alone = choice.varied(rows, ways), searched(rows, ways)
    best = {id(rows[place]) for place in front(rows, ways)}
    head = ["folder", *axes, *ways, *["front"] * bool(best), *([] if alone else ["outcome", "reason"])]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [row["point"], *(plots.short(row[a]) for a in axes)]
        cells += [shown(name, row[name]) for name in ways]
        cells += ["\u25c6" * (id(row) in best)] * bool(best)
        cells += [] if alone else [word(row), in_brief(row["reason"], 120)]
        lines.append(f"| {' | '.join(str(c).replace('|', '/') for c in cells)} |")
    return "\n".join(lines)


def pending(folder: Path, rows: list[Row]) -> list[str]:
    """The points that the tracking server does not have yet."""
    return [r["point"] for r in rows if (folder / r["point"] / PENDING).exists()]


def again(folder: Path) -> str:
    """The command that runs what is missing in a sweep and uploads what is pending."""
    return f"python -m harness -m {shlex.quote(f'resume={_here(folder)}')}"


def closing(
    folder: Path, rows: list[Row], total: int | None, aged: list[str], stopped: bool = False
) -> list[str]:
    """What the console says at the end. aged: points that other code than today's has run. stopped: how to
    go on is said elsewhere."""
    ways, lines = search.ways(folder, rows), [""]
    words, best = told(rows, ways)
    if not searched(rows, ways) and set(counts(rows)) != {DONE}:
        lines.append(f"{'verdicts' if set(counts(rows)) <= {*ORDER} else 'outcome'}:".ljust(14) + words)  # fmt: skip
        label = "best so far:" if total and len(rows) < total else "best:"
        lines += [f"{label:14}{best.removeprefix('The best: ')}"] * bool(best and not ways)
    lines += _failed(rows)
    place, left = _here(folder), ""
    if total and len(rows) < total:
        lines.append(f"missing:      {total - len(rows)} of {total}")
        left = again(folder)
    if waiting := pending(folder, rows):
        reasons = (read(folder / name / PENDING).get("reason", "") for name in waiting)
        why = next((str(reason) for reason in reasons if str(reason).startswith("cannot")), "")
        some = ", ".join(map(called, waiting[:SOME]))
        more = f" and {len(waiting) - SOME} more" if waiting[SOME:] else ""
        lines.append(f"not uploaded: {some}{more}{f': {why}' * bool(why)}")
        left = again(folder)
    if left and not stopped:
        lines.append(f"go on with:   `{left}`")
    if aged:
        lines.append(f"other code:   {', '.join(map(called, aged))} ran before the code changed; delete what is to run again, and resume")  # fmt: skip
    return [*lines, f"table:        {place}/sweep.csv", f"page:         {place}/sweep.html"]


def _failed(rows: list[Row]) -> list[str]:
    """Points that came to no end, those that say the same in one line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in (r for r in rows if r["verdict"] in grid.STOPPED):
        mine = str(row.get("folder") or "")  # which no two points share
        said = str(row["reason"]).replace(f"{mine}/", ".../") if mine else row["reason"]
        said = in_brief(said, 150)
        alike.setdefault((row["verdict"], said), []).append(row["point"])
    lines = []
    for (verdict, said), points in list(alike.items())[:20]:
        some = ", ".join(map(called, points[:SOME]))
        some += f" and {len(points) - SOME} more" if points[SOME:] else ""
        lines.append(f"  {some} {verdict}: {said}")
    return lines


def _here(path: Path) -> Path:
    """Relative to the working directory where it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
