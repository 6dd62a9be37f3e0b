"""What a sweep came to over its seeds: one line for all that were run under the same options."""

from collections.abc import Callable, Collection
from statistics import median
from typing import Any

from harness import machine
from harness.report.html import cell, section
from harness.report.names import plain
from harness.report.picture import axes, plots
from harness.report.sweep import scatter
from harness.report.sweep.summary import counts
from harness.report.sweep.variation import group, is_seed
from harness.report.sweep.verdicts import STOPPED, marked, word
from harness.report.terminal.console import number
from harness.snapshot.result import GOOD

FIGURES = ("evaluate.contains", "kl_mean", "kl_max")  # the first that is there
FEW = 4  # options that a sentence tells one by one
MANY = 16  # names that fit under one picture
ENDS: dict[str, Callable[[list[float]], float]] = {"median": median, "smallest": min, "largest": max}  # fmt: skip
BRIEF = 2  # of which it tells the figures too: those of more are in the table
PLAIN = {  # what a verdict says of a point beside others
    "exact": "bitwise the same",
    "equivalent": "within rounding",
    "drifted": "the same tokens",
    "diverged": "other tokens",
}
NARROW = 0.12  # half as wide as a median's mark

Row = dict[str, Any]


def sentence(rows: list[Row], axes: list[str], once: bool = False) -> str:
    """What a sweep over seeds came to, for each value of the option that tells the outcomes apart, or each of a `FEW`
    other options; it stands after the number of its points. Empty for another sweep. once: as older versions told it, which
    knew of no such option."""
    seeds, others = list(filter(is_seed, axes)), [a for a in axes if not is_seed(a)]
    groups = group(rows, others)
    if not seeds or not all(some[1:] for some in groups.values()):
        return ""
    if said := _parted(rows, others) if len(groups) > BRIEF and not once else []:
        return f"over {' and '.join([*seeds, *others])}: {'; '.join(said)}"
    if len(groups) > FEW:
        return ""
    said = [
        "".join(f"{a}={v} " for a, v in zip(others, name, strict=True)) + _came_to(some)
        for name, some in groups.items()
    ]
    return f"over {' and '.join([*seeds, *others])}: {'; '.join(said)}"


def told(rows: list[Row], axes: list[str], once: bool = False) -> str:
    """The same as a whole sentence."""
    said = sentence(rows, axes, once)
    return f"{machine.many(len(rows), 'point')} {said}." if said else ""


def alike(rows: list[Row], axes: list[str], marked: Collection[str]) -> list[str]:
    """The points `marked` where they are one choice, under every seed that was tried: their figures are the sweep's best.
    None where they are several."""
    seeds, others = list(filter(is_seed, axes)), [a for a in axes if not is_seed(a)]
    mine = [row for row in rows if row["point"] in marked]
    one = mine[1:] and len(group(mine, others)) == 1 and len(mine) == len(group(rows, seeds))
    return [row["point"] for row in mine] if one else []


def _parted(rows: list[Row], others: list[str]) -> list[str]:
    """What each value of that option came to which tells the outcomes apart, so that none is of two of its values; empty
    where no option does."""
    for axis in others:
        groups = group(rows, [axis])
        kinds = [{word(row) for row in some} for some in groups.values()]
        if 1 < len(kinds) <= FEW and sum(map(len, kinds)) == len(set.union(*kinds)):
            return [f"{axis}={name}: {_in_words(some)}" for (name,), some in groups.items()]
    return []


def _in_words(rows: list[Row]) -> str:
    """`within rounding in all 6`, `the same tokens in 4, other tokens in 2 of 6`."""
    tally = {PLAIN.get(said, said): count for said, count in counts(rows).items()}
    if any(row.get("answer") for row in rows):
        tally["the right answer"] = sum(row.get("answer") == "right" for row in rows)
    whole = [f"{said} in all {n}" for said, n in tally.items() if n == len(rows)]
    part = [f"{said} in {n}" for said, n in tally.items() if n < len(rows)]
    return ", ".join([*whole, *[f"{', '.join(part)} of {len(rows)}"] * bool(part)])


def _came_to(rows: list[Row]) -> str:
    """`all equivalent, error 0.31 to 0.52 of rounding's own (median 0.4, 2 allowed)`."""
    tally = counts(rows)
    few = [f"{count} {said}" for said, count in tally.items()]
    told = few if few[1:] else [f"all {said}" for said in tally]
    if any(r.get("answer") for r in rows):
        told.append(f"{sum(r.get('answer') == 'right' for r in rows)} right")
    judged = ("error_ratio",) if {*tally} <= {*GOOD} else ()
    keys = (k for k in (*judged, *FIGURES) if any(r.get(k) is not None for r in rows))
    key = next(keys, "")
    if values := _values(rows, key):
        low, middle, high = (number(of(values)) for of in (min, median, max))
        ratio = key == "error_ratio"
        spread = low if low == high else f"{low} to {high}"
        beside = [f"median {middle}"] * (low != high) + ["2 allowed"] * ratio
        name, own = ("error", " of rounding's own") if ratio else (plain(key), "")
        told.append(
            f"{name} {spread}{own}{' in each' * (low == high)}"
            + f" ({', '.join(beside)})" * bool(beside)
        )
    return ", ".join(told)


def sections(rows: list[Row], axes: list[str]) -> list[Row]:
    """One block where a seed was varied: of all points that differ in nothing else, how many came out how, and
    the spread of the figure that says most. axes: the options that were varied."""
    seeds = list(filter(is_seed, axes))
    others = [a for a in axes if a not in seeds]
    groups = group(rows, others)
    key = next((k for k in FIGURES if any(r.get(k) is not None for r in rows)), "")
    if not seeds or not any(some[1:] for some in groups.values()):
        return []
    words = list(counts(rows))
    asked = any(r.get("answer") for r in rows)
    spread = {name: _values(some, key) for name, some in groups.items()}
    moved = any(len(set(values)) > 1 for values in spread.values())
    shown = ENDS if moved else {plain(key): median}
    lines = []
    for name, some in groups.items():
        line: list[Any] = [*map(plots.short, name), len(some)]
        line += [_count(some, said) for said in words]
        if asked:
            line.append(sum(r.get("answer") == "right" for r in some))
        values = spread[name]
        line += [of(values) if values else None for of in shown.values()] if key else []
        lines.append(line)
    figure, who = plain(key), " and ".join(seeds)
    heads = [*others, "seeds", *words, *["right"] * asked, *(shown if key else ())]
    text = f"Over {who}: how many points came out how"
    text += f", and {figure}{': its median, smallest and largest' * moved}." if key else "."
    if key and not moved:
        text += f" In no line does {' or '.join(seeds)} change it."
    panels = [_picture(spread, figure)] if moved and len(groups) <= MANY else []
    return [section("Over the seeds", text=text, panels=panels, columns=heads, rows=lines)]


def _values(rows: list[Row], key: str) -> list[float]:
    return [float(r[key]) for r in rows if r["verdict"] not in STOPPED and isinstance(r.get(key), int | float)]  # fmt: skip


def _count(rows: list[Row], said: str) -> Any:
    """How many came out so, in the colour of it and with its sign; nothing for none."""
    mine = [r for r in rows if word(r) == said]
    return marked(mine[0], {}) | {"text": str(len(mine)), "href": ""} if mine else cell("")


def _picture(spread: dict[tuple[str, ...], list[float]], figure: str) -> str:
    """A mark per seed above its options, those that would hide one another side by side, a bar from the smallest to the
    largest, a stroke at the median."""
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    every = [v for values in spread.values() for v in values]
    for place, values in enumerate(spread.values()):
        if not values:
            continue
        ink, middle = plots.COLOURS[0], median(values)
        axis.plot([place, place], [min(values), max(values)], color=ink, linewidth=5, alpha=0.25)
        axis.plot([place - NARROW, place + NARROW], [middle, middle], color=plots.INK, linewidth=1.8)  # fmt: skip
    scatter.footed(axis, every)
    names = scatter.brief([" ".join(map(plots.short, name)) or "all" for name in spread])
    scatter.named(made, axis, names)
    for place, values in enumerate(spread.values()):
        at = axes.abreast(axis, [float(place)] * len(values), values, [*range(len(values))])
        axis.plot([place + by for by in at], values, linestyle="none", marker="o", markersize=5,
                  fillstyle="none", color=plots.COLOURS[0])  # fmt: skip
    title, _, unit = figure.rstrip(")").partition(" (")
    plots.label(axis, title, "", unit or "share")
    return plots.svg(made)
