"""What a sweep came to, in words: the console's last lines, the name and the description of its run."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness import machine, process
from harness.report.names import folder as called
from harness.report.names import in_brief
from harness.report.picture import plots
from harness.report.sweep import (
    agreement,
    baseline,
    choice,
    codes,
    conclusion,
    ending,
    evaluated,
    inert,
    overall,
    precision,
    price,
    pruned,
    right,
    rounding,
    search,
    shortfall,
    tally,
    variation,
)
from harness.report.sweep import cells as answers
from harness.report.sweep import verdicts as grid
from harness.report.sweep.baseline import CONTROL
from harness.report.sweep.verdicts import WHY, word
from harness.report.terminal.console import Say, number
from harness.snapshot.objective import front, shown
from harness.snapshot.record import PENDING, read
from harness.snapshot.result import DONE, ORDER, UNJUDGED, tallied

Row = dict[str, Any]
STOPPED = "Stopped after "  # begins what is said of a sweep that was
SIZED = {"kv_bytes": "K/V", "stored_bytes": "on disk"}  # shown where they differ
SOME = 10  # points that are named one by one
MOVED = "  # track.uri=ADDRESS too, where the server has another address by now"


def searched(rows: list[Row], ways: Iterable[str]) -> bool:
    """Whether objectives say it all: there are some, and nothing was judged."""
    return bool(list(ways)) and all(row["verdict"] == UNJUDGED for row in rows)


def counts(rows: list[Row]) -> dict[str, int]:
    """How many points came out how, in the words of their task, what is not as required first."""
    return tallied((word(row), not int(row.get("exit_code") or 0)) for row in rows)


def counted(rows: list[Row]) -> str:
    """The same in one line: `1 failed, 2 exact`."""
    return ", ".join(f"{count} {said}" for said, count in counts(rows).items())


def told(
    rows: list[Row],
    ways: dict[str, int],
    total: int | None = None,
    once: bool = False,
    chosen: str = "",
) -> tuple[str, str]:
    """`(words, sentence)`: what the sweep came to, and which point to choose; for a search its front and
    its best. ways: objectives, as `objective.directions`. total: points that were asked for, where those that
    are missing shall be told of. once: as older versions told it. chosen: of evaluations which cell to choose."""
    words, sentence = counted(rows), search.conclusion(rows, ways)
    if once and sentence:
        sentence = search.reached(rows, ways)
    if searched(rows, ways) and sentence:
        words = f"{machine.many(len(rows), 'point')} searched"
        sentence = ". ".join(filter(None, (search.headline(rows, ways), sentence)))
    elif not sentence:
        every, rows = rows, rows if once else inert.once(rows, ways)
        axes, so_far = variation.varied(rows, ways), " so far" * bool(total and len(every) < total)
        mine = rows if once else baseline.tried(rows, axes)
        some = overall.chosen(mine, axes)
        sentence = conclusion.told(some, axes, mine, so_far, once)
        if not once:
            sentence = pruned.told(mine, some, axes, so_far, sentence) or sentence
            sentence = f"{sentence} {agreement.beside(some, axes, rows)}".rstrip()
            sentence = f"{tally.sentence(mine, axes)} {sentence}".strip()
            sentence = baseline.beside_full(sentence, rows, axes)
            sentence, rows = inert.counted(sentence, rows, every, axes), every
    if own := evaluated.words(rows, variation.varied(rows, ways)):
        words, sentence = own, chosen or sentence
    if total and len(rows) < total:
        part = f"{len(rows)} of {machine.many(total, 'point')}"
        best = sentence.replace("The best: ", "best so far: ")
        said = f"{part}, {best}" if best != sentence else f"{part}. {best}"
        return f"{part}: {words}", said if sentence else ""
    return words, sentence


def said(
    rows: list[Row], ways: dict[str, int], total: int | None, chosen: str = "", spread: str = "", once: bool = False
) -> tuple[str, str, str, str]:  # fmt: skip
    """`(words, sentence, table, best)`: what a sweep's run is told; the same words, with what was measured where no
    point is to be chosen, and the one best point. rows: of evaluations as `evaluated.completed` makes them. total,
    chosen: as of `told`. spread: what came out over the seeds, as the console has it. once: as older versions told it,
    which left to the console how far one prompt carries, and that a seed draws nothing."""
    words, sentence = told(rows, ways, total, chosen=chosen)
    best = winners(rows, ways)[1]
    if sentence and not (once or chosen or searched(rows, ways)):
        sentence = f"{sentence} {_caution(rows, ways)}".rstrip()
    axes = variation.varied(rows, ways) if rows else []
    level = "" if once or not rows else rounding.alike(rows, axes)
    plain = " ".join(filter(None, (missed(rows), level, spread or measured(rows, ways, once))))
    sentence = sentence or plain
    sentence += f" {inert.sentence(rows, axes)}".rstrip() * (not once)
    above = {} if once else right.above(rows, axes)
    sentence = " ".join(filter(None, (*above.values(), sentence)))
    if total and len(rows) < total:
        part = f"{len(rows)} of {machine.many(total, 'point')}"
        rest = sentence.removeprefix(part) if sentence.startswith(part) else f". {sentence}"
        sentence = f"{STOPPED}{part}{rest}".strip()
    return (
        words,
        sentence,
        markdown(rows, ways),
        best[0]["point"] if best else "",
    )


def _caution(rows: list[Row], ways: dict[str, int]) -> str:
    """How far so few prompts carry, where a point is to be chosen."""
    axes = variation.varied(few := inert.once(rows, ways), ways)
    return price.caution(overall.chosen(baseline.tried(few, axes), axes), axes, few)


def missed(rows: list[Row]) -> str:
    """How many points ended with another exit code than 0, how and which, in a sentence; empty where none did."""
    short = [row for row in rows if int(row["exit_code"])]
    if not short:
        return ""
    which = ", ".join(str(row["point"]) for row in short[:SOME]) + ", ..." * (len(short) > SOME)
    return f"Not as required: {counted(short)} of {machine.many(len(rows), 'point')} ({which})."


def winners(
    rows: list[Row], ways: Mapping[str, int], once: bool = False, each: bool = False
) -> tuple[dict[str, str], list[Row]]:
    """The points that are marked, and how (`choice.marks`); in a list the one whose command stands for them, where
    one is best whatever was asked. ways: objectives. once: as older versions told them. each: as those did that had no
    setting which is best over the seeds."""
    rows = rows if once or each else inert.once(rows, ways)
    axes, best = variation.varied(rows, ways), search.ranked(rows, dict(ways), once)[:1]
    if not once and evaluated.words(rows, axes):
        some = evaluated.chosen(rows, axes, each)
        marks = {r["point"]: "best" if r[evaluated.SAFE] else "best nearest" for r in some}
        return marks, some if len(some) == 1 else []
    mine = rows if once else baseline.tried(rows, axes)
    choose = overall.of_each if each else overall.chosen
    some = best or (choice.leading(mine, axes, True) if once else choose(mine, axes))
    one = len(some) == 1 or not any(map(variation.asks, axes))
    return (choice.marks if once or each else overall.marks)(
        some, axes, [] if best else mine
    ), some[:1] * one


def once_marked(rows: list[Row], ways: Mapping[str, int]) -> list[str]:
    """The points that were marked while a question in which all tie had no best one."""
    axes = variation.varied(rows, ways)
    return [row["point"] for row in overall.chosen(baseline.tried(rows, axes), axes, once=True)]


def measured(rows: list[Row], ways: Iterable[str] = (), once: bool = False, bare: bool = False) -> str:  # fmt: skip
    """What was varied and between which figures it lies, in a sentence, where no point is to be chosen. ways: objectives.
    once: as older versions told it, which held pruned states to rounding. bare: without what was varied."""
    axes = variation.varied(rows, ways) if rows else []
    told = [f"varied: {', '.join(axes)}"] if axes and not bare else []
    if ratios := _known([row for row in rows if once or _held(row)], "error_ratio"):
        some = f" of the {machine.many(len(ratios), 'point')} held to rounding"
        some *= len(ratios) < len(_known(rows, "error_ratio"))
        told.append(f"the largest error{some} is {max(ratios):.3g} of rounding's own (2 allowed)")
    if sizes := _known(rows, "stored_bytes"):
        ends = dict.fromkeys(machine.human(size) for size in (min(sizes), max(sizes)))
        told.append(f"{' to '.join(ends)} on disk")
    said = "; ".join(told)
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def _held(row: Row) -> bool:
    """Whether a point's error is held to rounding: it holds all that was read, as it was computed or in codes that were
    not allowed to change anything."""
    exact = str(row.get("quantize") or "none") == "none"
    return pruned.whole(row) and (exact or int(row["exit_code"]) != 0)


def _known(rows: list[Row], key: str) -> list[float]:
    return [float(row[key]) for row in rows if isinstance(row.get(key), int | float)]


def markdown(
    rows: list[Row], ways: Mapping[str, int] | None = None, once: bool = False, each: bool = False
) -> str:
    """What was varied and what came out, point by point: the table of the parent run's description, where the
    best points are marked. ways: objectives. once, each: as of `winners`."""
    ways = dict(ways or {})
    axes, alone = variation.varied(rows, ways), searched(rows, ways)
    if not once and evaluated.words(rows, axes):
        return evaluated.markdown(rows, axes, ways, winners(rows, ways, each=each)[0])
    best, marks = (
        {id(rows[place]) for place in front(rows, ways)},
        winners(rows, ways, once, each)[0],
    )
    far = not alone and any(
        r["verdict"] in ("drifted", "diverged") and r.get("kl_mean") for r in rows
    )
    held = any(r.get("save") == "memory" for r in rows)  # which has little on disk
    sizes = [k for k in SIZED if len({r.get(k) for r in rows} - {None}) > 1 and not alone]
    sizes = [k for k in sizes if not (held and k == "stored_bytes")]
    head = ["folder", *axes, *ways, *["front"] * bool(best), *["mean KL (nats)"] * far, *(SIZED[k] for k in sizes), *([] if alone else ["outcome", "reason"])]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    controlled = not once and len({row.get("prune") == CONTROL for row in rows}) > 1
    for row in rows:
        place, mark = row["point"], marks.get(row["point"], "").rpartition(" ")[2]
        mark += " policy" * (mark == "nearest" and controlled)
        cells = [f"**{place}** ({mark})" if mark else place, *(plots.short(row[a]) for a in axes)]
        cells += [shown(name, row[name]) for name in ways]
        cells += ["\u25c6" * (id(row) in best)] * bool(best)
        cells += [number(row.get("kl_mean"))] * far
        cells += ["-" if row.get(k) is None else machine.human(row[k]) for k in sizes]
        cells += [] if alone else [word(row), in_brief(row.get(WHY) or row["reason"], 120)]
        lines.append(f"| {' | '.join(str(c).replace('|', '/') for c in cells)} |")
    return "\n".join(lines)


def pending(folder: Path, rows: list[Row]) -> list[str]:
    """The points that the tracking server does not have yet."""
    return [r["point"] for r in rows if (folder / r["point"] / PENDING).exists()]


def again(folder: Path) -> str:
    """The command that runs what is missing in a sweep and uploads what is pending."""
    return f"python -m harness -m {shlex.quote(f'resume={_here(folder)}')}"


def typed(folder: Path) -> str:
    """The same as it is typed from where the person stands."""
    return again(folder).replace("python -m harness", process.spelled(), 1)


def closing(
    folder: Path,
    rows: list[Row],
    total: int | None,
    aged: list[str],
    stopped: bool = False,
    spread: str = "",
) -> list[str]:
    """What the console says at the end. aged: points that other code than today's has run. stopped: how to
    go on is said elsewhere. spread: what came out over the seeds, where these were all that was varied."""
    say, ways, lines = Say(), search.ways(folder, rows), [""]
    words, best = told(rows, ways)
    if not searched(rows, ways) and set(counts(rows)) != {DONE}:
        label = "verdicts" if set(counts(rows)) <= {*ORDER} else "outcome"
        lines.append(say.labelled(label, words))
        every = variation.varied(rows, ways)
        above = right.above(rows, every)
        lines += [say.labelled(*pair) for pair in above.items()]
        few = inert.once(rows, ways)
        axes = variation.varied(few, ways)
        mine = baseline.tried(few, axes)
        marked = overall.chosen(mine, axes)
        only = len(mine) == len(few) and not pruned.told(mine, marked, axes)
        label = ("best" if only else "conclusion") + " so far" * bool(total and len(rows) < total)
        said = price.beside(folder, marked, axes, few)
        best = f"{best.removeprefix('The best: ')} {said}".rstrip()
        lines += [say.labelled(label, best)] * bool(best and not ways)
        idle = inert.sentence(rows, every)
        lines += [say.labelled("seeds", idle or spread)] * bool(
            (spread or idle) and best and not ways
        )
        ended = [row for row in rows if row["verdict"] not in grid.STOPPED]
        level = rounding.alike(rows, axes)  # where no point is to be chosen
        plain = f"{level} {spread or measured(rows) * bool(ended[1:])}".strip()
        plain = f"{shortfall.differing(rows)} {plain}".strip()
        lines += [say.labelled("conclusion", plain)] * bool(
            plain and not best and "damage" not in above
        )
        notes = [tell(few, axes) for tell in (codes.idle, precision.sentence, rounding.near_ties)]
        lines += [say.labelled("note", note) for note in notes if note]
    if chosen := answers.conclusion(folder, rows):
        lines.append(say.labelled("best", chosen))
    elif spread and set(counts(rows)) == {DONE} and not best:  # as its run is told
        lines.append(say.labelled("conclusion", spread))
    lines += ending.stopped(folder, rows)
    place, left = _here(folder), ""
    if total and len(rows) < total:
        lines.append(f"missing:      {total - len(rows)} of {total}")
        left = typed(folder)
    if waiting := pending(folder, rows):
        reasons = (read(folder / name / PENDING).get("reason", "") for name in waiting)
        why = next((str(reason) for reason in reasons if str(reason).startswith("cannot")), "")
        some = ", ".join(map(called, waiting[:SOME]))
        more = f" and {len(waiting) - SOME} more" if waiting[SOME:] else ""
        lines.append(f"not uploaded: {some}{more}{f': {why}' * bool(why)}")
        left = f"{typed(folder)}{MOVED}"
    lines += ending.exits(rows, say)
    if left and not stopped:
        lines.append(f"go on with:   {left}")
    elif not stopped and any(row["verdict"] == "failed" for row in rows):
        lines.append(f"run again:    {typed(folder)}  # what failed, once its cause is mended")
    if aged:
        lines.append(f"other code:   {', '.join(map(called, aged))} ran before the code changed; delete what is to run again, and resume")  # fmt: skip
    cells = [f"cells:        {place}/answers.csv"] * (folder / "answers.csv").is_file()
    return [*lines, f"table:        {place}/sweep.csv", *cells, f"page:         {place}/sweep.html"]


def _here(path: Path) -> Path:
    """Relative to the working directory where it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
