"""The pictures of a sweep: what its points cost, and how far their logits went."""

from functools import partial
from html import escape
from typing import Any

from harness.report.badge import kind
from harness.report.html import section
from harness.report.names import plain
from harness.report.picture import plots
from harness.report.run.yardstick import TWICE
from harness.report.sweep import pruned, roles, rounding, scatter
from harness.report.sweep import verdicts as grid
from harness.report.sweep.variation import is_seed
from harness.report.terminal.console import number

Row = dict[str, Any]
SHAPED = ("prune", "cache", "save", "quantize")  # axes that get markers before others
SAME, BUDGET = "top1_agreement", "prune.budget"
ALLOWED = f"ratio, {TWICE:g} is allowed"
COST = [
    ("per_token_s", "Continue", "s per token"),
    ("save_s", "Save", "s"),
    ("load_s", "Load", "s"),
]
APART = [("kl_max", "Largest KL per step", "nats"), (SAME, "Steps with the same likeliest token", "%"),
         ("max_abs_diff", "Largest logit difference", "logits"), ("error_ratio", "Error over rounding's own", ALLOWED)]  # fmt: skip
MEAN = (
    "kl_mean",
    "Mean KL per step",
    "nats",
)  # in place of the first where tokens are others: it tells which is nearest
SEEN = 1.01  # times another: less is a hundredth of a picture, about the width of a line
KIB, MARKS = 1024, 8
CROWD = 24  # marks of more than one size in a panel: more are told apart by a panel for each size
NOISE = 100  # noise floors further apart than this are no one line


def sections(rows: list[Row], axes: list[str]) -> list[Row]:
    """Cost and divergence over the points that came to their end; what is the same in all of them is
    said, not drawn, and one point alone is no picture."""
    measured = [r for r in rows if r.get("stored_bytes") and r.get("per_token_s")]
    axes = [a for a in axes if _several(measured, a)]
    if len(measured) < 2:
        return []
    # A drawn number has no marker of its own.
    few = [a for a in axes if len(roles.values(measured, a)) <= MARKS]
    by = next((a for a in few if a in SHAPED), next(iter(few), None))
    option = next((a for a in axes if a != by), by)
    other = any(r["verdict"] == "diverged" and r.get("kl_mean") for r in measured)
    measures = _held([MEAN, *APART[1:]] if other else APART, measured)
    text = _text(measured, axes)  # how many tokens it is says less than which it is
    # Where layers or heads keep other numbers of tokens, the most of them says little.
    held = "kv_bytes" if BUDGET in axes else "kept_tokens"
    across = (text, option) if text else (held, option)
    apart = _panels("How far the logits went", "From the uninterrupted run", measured, axes,
                    across, measures, None if text == by else by)  # fmt: skip
    if axes and all(map(is_seed, axes)):  # a seed makes nothing larger or slower
        return [apart]
    cost = _panels("Size and speed", "Each timed once, so that a small difference says nothing: seconds per "
                   "continued token, to save and to load", measured, axes, ("stored_bytes", option), COST, "save" if "save" in few else by)  # fmt: skip
    return [apart, {**cost, "fold": "save" not in axes}]  # which is chosen for these alone


def _text(rows: list[Row], axes: list[str]) -> str | None:
    """The option that says which text was read, where it is no number and nothing else changes how many tokens of it
    are kept."""
    if any(axis.partition(".")[0] == "prune" for axis in axes):
        return None
    texts = [a for a in axes if a == "text" or a.partition(".")[0] == "prompt"]
    return next((a for a in texts if scatter.positions([r[a] for r in rows])[1]), None)


def doubled(rows: list[Row]) -> bool:
    """Whether the error against float64 is the largest difference over one constant in every point: beyond rounding
    the oracle and the uninterrupted run are as good as one, and the same picture need not be drawn twice."""
    pairs = [(r.get("max_abs_diff"), r.get("error_ratio")) for r in rows]
    ratios = [error / apart for apart, error in pairs if apart and error]
    several = len({apart for apart, _ in pairs}) > 1
    return several and len(ratios) == len(rows) and max(ratios) <= SEEN * min(ratios)


def _held(measures: list[tuple[str, str, str]], rows: list[Row]) -> list[tuple[str, str, str]]:
    """The same measures, without what is allowed where no pruned point is held to it, and without what another of
    them shows."""
    free, twice = all(map(pruned.allowed, rows)), doubled(rows)
    return [
        (k, name, "ratio" if free and k == "error_ratio" else unit)
        for k, name, unit in measures
        if not (twice and k == "error_ratio")
    ]


def _panels(
    title: str, said: str, rows: list[Row], axes: list[str], across: tuple[str, str | None],
    measures: list[tuple[str, str, str]], by: str | None,
) -> Row:  # fmt: skip
    """One panel per measure that is not the same everywhere, over the first of `across` that varies."""
    x = next((key for key in across if key and _several(rows, key)), "point")
    keys = [key for key, *_ in measures]
    few = [a for a in axes if len(roles.values(rows, a)) <= MARKS]
    xs = [x, *(a for a in few if a != x and measures is not COST)]  # of time the size is asked
    x, group = roles.chosen(rows, axes, xs, [by, *few], keys)
    called = plain(x)
    if x.endswith("_bytes"):
        rows, called = [{**r, x: r[x] / KIB} for r in rows], called.replace("bytes", "KiB")
    drawn_by_chance = is_seed(x)
    if drawn_by_chance:
        rows = sorted(rows, key=lambda r: (len(str(r[x])), str(r[x])))
    size, mute = roles.given(rows, axes, x, group)
    facet = size if size and len(rows) > CROWD else None
    size = size if not facet else None
    parts = roles.values(rows, facet) if facet else [""]
    apart = None  # seconds that were taken once are no curve
    if measures is not COST:  # no way leads from one of these to another
        apart = [a for a in axes if a != x and not roles.ordered(rows, a, x)]
    panels, constant, noisy, own, lost, aside, limited = [], [], False, False, False, False, False
    rows = [{**r, SAME: 100 * r[SAME]} if r.get(SAME) is not None else r for r in rows]
    for key, name, unit in measures:
        values = {r[key] for r in rows if r.get(key) is not None}
        if len(values) > 1:
            floors = _floors(rows) if key == "kl_max" else {}
            noisy = noisy or bool(floors)
            own = own or (
                key == "kl_max" and _models(rows) and any(r.get("noise_kl_max") for r in rows)
            )
            lost = lost or scatter.lost([*values, *floors.values()]) > 0
            limit = TWICE if unit == ALLOWED else None
            limited = limited or limit is not None
            for part in parts:
                mine = {d: floor for d, floor in floors.items() if facet != "dtype" or d == part}
                panel, moved = scatter.scatter(rows, x, key, partial(_kind, by=group), (group, size), f"{name}, {facet}={plots.short(part)}" if facet else name, called, unit,
                                               mine, apart, drawn_by_chance, limit, axes, (facet, part) if facet else None)  # fmt: skip
                panels.append(panel)
                aside = aside or moved
        elif values:
            constant.append(f"{plain(key)} is {number(values.pop())}{'%' * (key == SAME)}")
    told = f"{said}, by {called}{_along(rows, axes, x)}." if panels else ""
    told += f" A panel for each value of {facet}, all on one scale." * bool(panels and facet)
    told += (
        f" No mark tells {' or '.join(mute)}: each says it where it is pointed at, and links to its run."
        * bool(panels and mute)
    )
    if aside:
        told += f" {scatter.ASIDE}"
    if noisy:
        some = len(_floors(rows)) < len(roles.values(rows, "dtype"))
        none = "; no line where that is nothing" if some else ""
        told += f" Dashed, by the largest KL: its noise floor, what a recompute does with nothing wrong{none}."
    if limited:
        told += f" Dashed, by the error: the {TWICE:g} that is allowed."
    if own:
        told += " No noise floor is drawn: each model has its own."
    if lost:
        told += " Shaded: practically nothing beside the rest, and not to scale."
    if any(key == SAME for key, *_ in measures) and any(map(rounding.tied, rows)):
        told += f" An equivalent point with another token has a near tie there, {rounding.DECIDES}."
    if constant:
        told = f"{told} The same in every point: {'; '.join(constant)}.".strip()
    return section(title, text=told, panels=panels, legend=_legend(rows, group, size) if panels else "")  # fmt: skip


def _floors(rows: list[Row]) -> dict[str, float]:
    """The noise floor of each dtype that has one; none where the prompts of a dtype differ so much that it would be
    no one line, and none over several models, which each have their own."""
    lines: dict[str, float] = {}
    if _models(rows):
        return lines
    for dtype in roles.values(rows, "dtype"):
        mine = [r["noise_kl_max"] for r in rows if str(r.get("dtype", "")) == dtype]
        floors = sorted(f for f in mine if f)
        if floors and floors[-1] <= NOISE * floors[0]:
            lines[dtype] = floors[len(floors) // 2]
    return lines


def _models(rows: list[Row]) -> bool:
    return any(len(roles.values(rows, key)) > 1 for key in ("model", "model.path"))


def _several(rows: list[Row], key: str) -> bool:
    return len({str(r[key]) for r in rows}) > 1


def _kind(row: Row, by: str | None = None) -> str:
    """How full a mark is drawn: by its verdict where its colour tells an option (`by`), else as the table tells it."""
    own = kind(row["verdict"])
    if by:
        return own
    tone = pruned.tone({**row, "outcome": None})
    return f"{tone} {own}" if tone == scatter.PALE and own in ("fair", "bad") else tone


def _along(rows: list[Row], axes: list[str], x: str) -> str:
    """Which option the place of a mark tells, in brackets."""
    told = ((a, roles.ordered(rows, a, x)) for a in axes if a != x)
    each = [f"{a} {', '.join(map(plots.short, order))}" for a, order in told if order]
    return f" ({' and '.join(each)} from the left)" if each else ""


def _legend(rows: list[Row], by: str | None, size: str | None) -> str:
    """How full the marks of a verdict are, whose colour and shape is whose, and what a size says."""
    words: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda r: grid.rank(grid.word(r))):
        some = words.setdefault(_kind(row, by), [])
        some += [grid.word(row)] * (grid.word(row) not in some)
    said = "".join(
        f'<span><b class="{"" if by else tone.split()[0]}">{scatter.FULLNESS[tone]}</b> {escape(" or ".join(some))}</span>'
        for tone, some in words.items()
    )
    if by is not None:
        said += f"<span>{escape(by)}:</span>" + "".join(
            f'<span><b style="color:{scatter.colour(number)}">{plots.SHAPES[mark]}</b> {escape(group)}</span>'
            for number, (group, mark) in enumerate(scatter.markers(rows, by).items())
        )
    if size is not None:
        said += f"<span>{escape(size)}:</span>" + "".join(
            f'<span><b style="font-size:{0.7 + 0.35 * place:.2f}em">\u25cb</b> {escape(plots.short(value))}</span>'
            for place, value in enumerate(roles.values(rows, size))
        )
    return said
