"""The verdicts of a sweep at a glance: a grid over the options that were varied, or a tile per point."""

from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from harness.report.badge import sign
from harness.report.html import cell, section
from harness.report.names import folder
from harness.report.picture import plots
from harness.report.sweep import pruned
from harness.report.sweep.variation import is_seed
from harness.snapshot.result import ORDER, UNJUDGED

WHY = "why"  # of a point's row, where it came to no end: its diagnosis in short
STOPPED = ("failed", "refused")  # such points have no figures
ACROSS, DOWN = 8, 40  # columns and lines of a grid that can still be read
BEST = (
    "Among points that were asked the same: first what meets what is required, then the right answer where one is "
    "expected, then what leaves the caller's cache as it was (what writes into it is never the best), then what is on disk (what "
    "memory alone holds is never the best beside it), then the better verdict. Of points with other tokens than the full cache's and no right answer the nearer to it comes next: the "
    "smaller mean KL divergence (up to 5% above the smallest ties), without one the later first other token. Then fewer bytes (a "
    "thousandth more ties: a header is a few digits longer), then logits nearer to the full cache's, where these are "
    "more than rounding (mean KL divergence, which ties in the same way). Points equal in all of it tie and are marked "
    "alike, unless one takes over ten times another's time per token in each of several questions. A control "
    "(prune=random) is not chosen where a policy is there. Where seeds alone ask something else and each has another "
    "best, the setting is marked that is best over all of them: by the same order, of how many of its points come "
    "behind, then of medians, which also tie within what the seeds differ by. Where no point meets what is required and keeps the tokens, "
    "what comes first by the same order is marked as the nearest."
)
NEAREST = (
    "Marked: the nearest to the full cache, by the smaller mean KL divergence (up to 5% above the smallest ties), then fewer "
    "bytes; on another measure another point may lead."
)

SETTING = "Marked: every point of the one setting that is best over the seeds, whatever it came to with a seed by itself."

Row = dict[str, Any]


def sections(rows: list[Row], axes: list[str], best: Mapping[str, str], why: str = "") -> list[Row]:
    """One block where anything was varied, and below it, folded, by what points are marked. best: these points,
    and as what. why: they are, in a few words, where that is not `BEST`."""
    if not axes:
        return []
    near = bool(best) and not why and all("nearest" in mark for mark in best.values())
    ended = [int(row["exit_code"]) != 0 for row in rows if row["verdict"] not in STOPPED]
    near = (
        near and len(set(ended)) < 2
    )  # else what meets what is required came first, be it further off
    said = [
        why * bool(best) or NEAREST * near,
        SETTING * (not why and _setting(rows, axes, best)),
        _both(rows),
    ]
    block = _block(rows, axes, best, " ".join(filter(None, said)))
    rule = section("How the best is chosen", text=BEST, fold=True)
    return [block, *[rule] * bool(best and not why and not near)]


def _setting(rows: list[Row], axes: list[str], best: Mapping[str, str]) -> bool:
    """Whether every point of one setting is marked, whatever seed it had."""
    others = [axis for axis in axes if not is_seed(axis)]
    marked = {tuple(str(row[a]) for a in others) for row in rows if row["point"] in best}
    mine = [row for row in rows if tuple(str(row[a]) for a in others) in marked]
    return len(marked) == 1 and len(others) < len(axes) and len(mine) == len(best) > 1


def _both(rows: list[Row]) -> str:
    """What the verdicts of pruned and of quantized points are, in words; nothing where there are none."""
    kinds = {
        "pruned": ("pruning", "compare.require_pruned", list(filter(pruned.judged, rows))),
        "quantized": ("its codes", "compare.require", list(filter(pruned.coded, rows))),
    }
    there = {word: told for word, told in kinds.items() if told[2]}
    if not there:
        return ""
    some = [row for _, _, part in there.values() for row in part]
    restores = ", ".join(f"{n} {v}" for v, n in Counter(r[pruned.RESTORE] for r in some).items())
    keys = [key for _, key, part in there.values() if any(map(pruned.free, part))]
    free = f" Grey: that is allowed ({', '.join(keys)})." if keys else ""
    changed = " or ".join(word for word, _, _ in there.values())
    return (
        f"The verdict on a {' or '.join(there)} point is on what {changed} changed.{free} "
        f"Its restore by itself: {restores}."
    )


def _block(rows: list[Row], axes: list[str], best: Mapping[str, str], why: str) -> Row:
    sizes = {axis: len({str(r[axis]) for r in rows}) for axis in axes}
    if not axes[1:] and len(rows) <= DOWN:
        return _column(rows, axes[0], best, why)
    across = min(axes, key=lambda axis: sizes[axis])
    if sizes[across] > ACROSS or len(rows) > DOWN * sizes[across]:
        return _tiles(rows, best, why)
    return _grid(rows, across, [a for a in axes if a != across], best, why)


def word(row: Row) -> str:
    """What a point came to, in the word of its task: its verdict where that is what it is for."""
    return str(row.get("outcome") or row["verdict"])


def called(row: Row, axes: Iterable[str]) -> str:
    """A point by what varies; by its number where nothing does."""
    return " ".join(f"{axis}={plots.short(row[axis])}" for axis in axes) or str(row["point"])


def rank(verdict: Any) -> int:
    """Where a verdict stands, the best one first; what is no verdict stands with what was not judged."""
    return ORDER.index(verdict if verdict in ORDER else UNJUDGED)


def legend(rows: list[Row]) -> str:
    """The verdicts that are there, each with its colour and its sign."""
    said = sorted(dict.fromkeys((word(r), pruned.tone(r)) for r in rows), key=lambda v: rank(v[0]))
    return "".join(f'<span><b class="key {t}">{sign(v)}</b> {escape(v)}</span>' for v, t in said)


def marked(row: Row, best: Mapping[str, str], text: str = "") -> Any:
    """The cell of a verdict: its sign, its colour, a link to the run, and that it is the best, or the nearest."""
    verdict = word(row)
    where = target(row) if text else ""
    tone = f"{pruned.tone(row)} {best.get(row['point'], '')}".rstrip()
    return cell(text or verdict, where, tone, sign(verdict))


def target(row: Row) -> str:
    """Where a point's link leads, from the sweep's folder."""
    return f"{row['point']}/report.html"


def _column(rows: list[Row], axis: str, best: Mapping[str, str], why: str) -> Row:
    """The values of the one option that was varied, each with its verdict."""
    order = _values(rows, axis)
    lines = sorted(rows, key=lambda row: order.index(str(row[axis])))
    table = [[plots.short(row[axis]), marked(row, best, _said(row))] for row in lines]
    told = f"Every verdict links to its run. {why}"
    return section(
        "Verdicts", text=told, legend=legend(rows), columns=[axis, "verdict"], rows=table
    )


def _grid(rows: list[Row], across: str, down: list[str], best: Mapping[str, str], why: str) -> Row:
    """The option with the fewest values across, the others down; each verdict links to its point's report."""
    columns = _values(rows, across)
    lines: dict[tuple[str, ...], Row] = {}
    for row in rows:
        line = lines.setdefault(tuple(str(row[a]) for a in down), {})
        line[str(row[across])] = marked(row, best, _said(row))
    seen = [_values(rows, a) for a in down]
    order = sorted(
        lines, key=lambda key: [known.index(k) for known, k in zip(seen, key, strict=True)]
    )
    table = [[*map(plots.short, key), *(lines[key].get(c, "") for c in columns)] for key in order]
    told = f"{across} across; every verdict links to its run. {why}"
    named = map(plots.short, columns)
    heads = [*down, *(f"{across}={c}" if not down else c for c in named)]
    return section("Verdicts", text=told, legend=legend(rows), columns=heads, rows=table)


def _values(rows: list[Row], axis: str) -> list[str]:
    """What an axis was given, numbers by their size and anything else as it was typed."""
    values = list(dict.fromkeys(str(r[axis]) for r in rows))
    try:
        return sorted(values, key=float)
    except ValueError:
        return values


def _tiles(rows: list[Row], best: Mapping[str, str], why: str) -> Row:
    tiles = "".join(
        f'<a class="{pruned.tone(r)}{" best" * (r["point"] in best)}" href="{escape(target(r))}" '
        f'title="{escape(folder(r["point"]))}: {escape(_said(r))}" '
        f'aria-label="{escape(folder(r["point"]))}: {escape(_said(r))}"><i>{sign(word(r))}</i></a>'
        for r in rows
    )
    told = f"A tile per point, in order; each links to its run. {why}"
    return section(
        "Verdicts", text=told, legend=legend(rows), svg=f'<div class="tiles">{tiles}</div>'
    )


def _said(row: Row) -> str:
    return f"{word(row)}, {row['answer']}" if row.get("answer") else word(row)
