"""What stands above the page of a sweep: its badge, the sentence a stranger reads first, and below it the rest."""

from collections import Counter
from pathlib import Path
from typing import Any

from harness import machine
from harness.report.sweep import (
    agreement,
    baseline,
    cells,
    choice,
    codes,
    conclusion,
    inert,
    overall,
    precision,
    price,
    pruned,
    right,
    rounding,
    search,
    seeds,
    shortfall,
    tally,
    texts,
    unfinished,
)
from harness.report.sweep.baseline import CONTROL
from harness.report.sweep.summary import counted, counts, measured, searched
from harness.report.sweep.verdicts import STOPPED

LONG = 100  # characters; what is said below so many begins a line of its own
MOST = 2 * LONG  # characters on top
FEW = 4  # options that are named one by one
SAME = "so every point is the same run: sampling=sample draws"
IDLE = "could not begin"

Row = dict[str, Any]


def told(
    folder: Path, rows: list[Row], axes: list[str], ways: dict[str, int], total: int | None, mixed: int
) -> tuple[str, str, str]:  # fmt: skip
    """`(badge, lines, colour)` of the sweep in `folder`, as `html.page` has them. axes: the options that were varied.
    ways: objectives. total: points that were asked for. mixed: points that other code has run than the rest."""
    bad = sum(int(row["exit_code"]) != 0 for row in rows)
    left = max((total or 0) - len(rows), 0)
    alone, sure = searched(rows, ways), cells.intervals(folder, rows)
    found = search.headline(rows, ways) if alone and not bad else ""
    badge = found or _badge(rows, bad, left)
    first = _opening(folder, rows, axes, badge, total, alone) * (not found or bool(left))
    wrong = _answerless(rows)
    below: list[str] = []
    lost = search.hopeless(rows, ways)
    above = right.above(rows, axes)
    harm = above.pop("damage", "")
    answer = " ".join([search.conclusion(rows, ways, sure), *above.values()])
    if lost:
        answer += " None reaches anything."
    else:
        first, (more, *below) = _chosen(folder, rows, axes, ways, first, left)
        answer += f" {more} {cells.alone(folder, rows)}".rstrip()
    if axes == ["seed"] and not left and inert.sentence(rows, axes):
        own = " (prune=random draws by prune.seed)" * any(r.get("prune") == CONTROL for r in rows)
        first = f"{inert.DRAWS[:-1]}, {SAME}{own}.\n{first}".strip()
    text = "\n".join(filter(None, [harm, _top(first, answer.strip(), rows), *below]))
    if not alone and not left:
        tried = baseline.tried(rows, axes)
        text += f"\n{shortfall.sentence(tried, axes, bool(choice.short_of(tried)))}".rstrip()
    if not overall.chosen(baseline.tried(rows, axes), axes) and all(
        str(row.get("mutated")) == "True" for row in rows
    ):
        text += "\nNone is called best: every point writes into your cache."
    for tell in (codes.idle, precision.sentence, rounding.near_ties):
        text += f"\n{tell(rows, axes)}".rstrip()
    was = "was" if mixed == 1 else "were"
    text += f"\n{machine.many(mixed, 'point')} {was} run by other code than the rest." * bool(mixed)
    tone = "bad" if bad else "soft" if left else _tone(rows, bool(lost or wrong or mixed))
    return badge, text.strip(), tone


def _opening(
    folder: Path, rows: list[Row], axes: list[str], badge: str, total: int | None, alone: bool
) -> str:
    """How many points there are and what they came to; where some came to no end, what was swept as well."""
    many = machine.many(total or len(rows), "point")
    whole = total in (None, len(rows))
    part, over = many if whole else f"{len(rows)} of {many}", _over(axes)
    if any(row["verdict"] in STOPPED for row in rows):
        return f"{part}{over}: {_tally(folder, rows)}."
    if spread := seeds.sentence(rows, axes):
        return f"{part} {spread}."
    tally = counted(rows)
    if not badge.startswith(tally) and not alone:
        return f"{part}{over}: {tally}."
    return (
        f"{part}{over}, {'each ' * (len(rows) > 1)}run to its end."
        if whole
        else f"{part}{over} have run."
    )


def _over(axes: list[str]) -> str:
    if not axes:
        return ""
    *others, last = axes
    if len(axes) > FEW:
        return f" over {len(axes)} options"
    return f" over {', '.join(others)} and {last}" if others else f" over {last}"


def _tally(folder: Path, rows: list[Row]) -> str:
    """How many points came out how; of those that failed, how many could not begin."""
    tally, idle = counts(rows), unfinished.idle(folder, rows)
    if idle:
        ran = tally.pop("failed") - idle
        tally = ({"failed": ran} if ran else {}) | {IDLE: idle} | tally
    return ", ".join(f"{count} {word}" for word, count in tally.items())


def _chosen(
    folder: Path, rows: list[Row], axes: list[str], ways: dict[str, int], first: str, left: int
) -> tuple[str, list[str]]:
    """`first`, without it where what follows counts the points itself, and which point to choose, below which each
    further sentence is a line."""
    if len(once := inert.once(rows, ways)) < len(rows):
        axes = [a for a in axes if a != "seed"]
        own, (said, *below) = _chosen(folder, once, axes, ways, first, left)
        return own, [inert.counted(said, once, rows, axes), *below, inert.DRAWS]
    so_far, best = " so far" * bool(left), search.ranked(rows, ways)[:1]
    mine = baseline.tried(rows, axes)
    nearest = best if search.by_nearness(ways) else []
    winners = nearest or overall.chosen(mine, axes)
    most, said = tally.sentence(mine, axes), conclusion.told(winners, axes, mine, so_far)
    pruning = pruned.told(mine, winners, axes, so_far, said)
    said = f"{most} {pruning or said}".strip()
    if pruning:
        own, pruning = first if seeds.sentence(rows, axes) or len(mine) < len(rows) else "", said
        first_other = texts.parted(folder, winners)
        return own, _beside(f"{pruning} {first_other}".rstrip(), winners, axes, rows)
    if winners and not best:
        costs = [
            say(winners, axes, rows) for say in (price.required, price.sentence, price.smaller)
        ]
        return first, [*_beside(said, winners, axes, rows), *costs]
    alone = baseline.beside_full(conclusion.told([], axes, mine), rows, axes)
    level = rounding.alike(rows, axes) or alone
    if not (winners or ways or alone or seeds.sentence(rows, axes)) and len(_ended(rows)) > 1:
        level = f"{level} {measured(rows, bare=True)}".strip()
    return first, [cells.conclusion(folder, rows) or level]


def _ended(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["verdict"] not in STOPPED]


def _beside(said: str, winners: list[Row], axes: list[str], rows: list[Row]) -> list[str]:
    """Which points are chosen, in sentences, with those that are nearer and refused; then what is said beside them."""
    refused = agreement.held(winners, axes, rows)  # else who stops there takes the wrong point
    below = [line for line in agreement.each(winners, axes, rows) if line != refused]
    said = f"{baseline.beside_full(said, rows, axes)} {refused}".rstrip()
    return [said, *below, price.caution(winners, axes, rows)]


def _top(first: str, answer: str, rows: list[Row]) -> str:
    """How many points came out how, and which to choose: where that is long the one to choose begins, but where points
    came to no end."""
    stopped = any(row["verdict"] in STOPPED for row in rows)
    if not (stopped or len(first) > LONG or len(first) + len(answer) > MOST):
        return f"{first} {answer}".strip()
    return "\n".join(filter(None, (first, answer) if stopped else (answer, first)))


def _answerless(rows: list[Row]) -> bool:
    """Whether answers were expected and every one is wrong."""
    return {row.get("answer") for row in rows} - {None} == {"wrong"}


def _tone(rows: list[Row], lost: bool) -> str:
    """The colour of the whole: that of its worst verdict, and no success where every answer is wrong."""
    kinds = set(map(pruned.tone, rows))
    worst = next((k for k in ("bad", "fair", "soft", "alike") if k in kinds), "good")
    return "fair" if lost and worst in ("good", "alike", "soft") else worst


def _badge(rows: list[Row], bad: int, left: int) -> str:
    """What the points came to, in a few words. A sweep that asked for little says what it got, not only
    that it got what it asked for; one of which points are `left` says so, and blames none of them."""
    ended = Counter(row["verdict"] for row in rows if row["verdict"] in STOPPED)
    if ended:
        (first, count), *others = sorted(ended.items())
        said = ", ".join([f"{count} of {len(rows)} {first}", *(f"{n} {w}" for w, n in others)])
    elif bad:
        said = f"{len(rows) - bad} of {len(rows)} as required"
    else:
        said = f"{counted(rows)} so far" if left else counted(rows)
    return f"{said}, {left} missing" if left else said
