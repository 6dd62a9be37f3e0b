"""The tables of a sweep: every point in a line, and what each option came to."""

import re
from statistics import median_high
from typing import Any

from harness.config.draws import SHARE
from harness.report.badge import kind, sign
from harness.report.html import cell, grouped, section
from harness.report.names import plain
from harness.report.picture import plots
from harness.report.sweep import panels, pruned, search, unfinished
from harness.report.sweep.summary import counts
from harness.report.sweep.verdicts import STOPPED, marked, target, word
from harness.report.terminal.console import number
from harness.snapshot.objective import ANSWERS, front

TABLE = {
    SHARE: "same draws, %", "top1_agreement": "same token, %", "kl_mean": "KL, mean", "kl_max": "KL, largest", "max_abs_diff": "logits", "error_ratio": "error",
    "kept_mean": "kept, mean", "kept_tokens": "tokens kept", "kv_bytes": "K/V bytes", "stored_bytes": "bytes", "save_s": "save, s", "load_s": "load, s", "per_token_s": "token, s",
    "mutated": "your cache was", "bytes_copied_per_token": "bytes copied",
}  # fmt: skip
MEANT = {
    SHARE: "same draws: share of the tokens drawn that are the uninterrupted run's", "top1_agreement": "same token: share of steps whose most likely token is the uninterrupted run's most likely one, whatever was drawn", "kl_mean": "KL: divergence per step in nats, KL(uninterrupted || restored)", "max_abs_diff": "logits: the largest difference of one",
    "error_ratio": "error: over rounding's own, 2 is allowed", "kept_mean": "kept, mean: tokens of a layer and head on average, beside the most that one keeps", "stored_bytes": "bytes: on disk",
    "bytes_copied_per_token": "bytes copied: per token",
}  # fmt: skip
SHARES = (SHARE, panels.SAME)  # told in percent
FREE = ", 2 is allowed"  # not of what pruning may change
HELD = ("kept_mean", "kept_tokens", "kv_bytes")  # shown where it is what the points are about
TOUCHED = ("mutated", "bytes_copied_per_token")  # shown where points differ in them
# Left to `sweep.csv` where a line has no room, in this order.
LESS = ("max_abs_diff", "kl_max", "load_s", "save_s")
OWN = (
    "an exact point repeats every bit of the uninterrupted run, and so its rounding too: against float64 an equivalent "
    "one, which rounds otherwise, can be nearer"
)
ROOM = 12  # columns beside each other on a page of 1400 pixels
# Of a reason: what stands beside it as figures.
SHOWN = re.compile(r"error against float64 [^,;]+, plain path [^;]+(; )?")
WITH = " that has figures"
MANY = 60  # more points than that: a table by option stands first, the points are folded
FEW = 12  # values of an option that are told one by one

Row = dict[str, Any]


def every(
    points: list[Row], axes: list[str], first: dict[str, str], ways: dict[str, int], alone: bool
) -> Row:
    """The section with a line for each point. What is the same in all of them is said once, above. first: the
    points that are marked, and as what. ways: objectives. alone: they say it all; no verdict, no reason."""
    keys = [k for k in TABLE if any(r.get(k) is not None for r in points)]
    if not any(r.get("stored_bytes") for r in points):
        keys = [k for k in keys if k != "stored_bytes"]
    if not any(a.partition(".")[0] in ("prune", "quantize") for a in axes):
        keys = [k for k in keys if k not in HELD]
    if panels.doubled(points):
        keys = [k for k in keys if k != "error_ratio"]
    ended = [r for r in points if r["verdict"] not in STOPPED] or points
    same = [k for k in keys if ended[1:] and len({r.get(k) for r in ended}) == 1]
    keys = [k for k in keys if k not in same]
    told = [
        f"{plain(k)} {number(_shown(k, ended[0][k])) + '%' if k in SHARES else _number(ended[0][k])}"
        for k in same
        if k not in TOUCHED
    ]
    listed = len(points) - len(ended) <= unfinished.MOST
    told_above = f'see "{unfinished.title(points)}"' * listed
    reasons = [] if alone else [_why(r, told_above) for r in points]
    if points[1:] and len(set(reasons)) == 1:
        told, reasons = [*told, *filter(None, reasons[:1])], []
    figured = [*ways, *(n for n in ANSWERS if n in points[0] and n not in ways)]
    asked = ["answer"] if "answer" in points[0] else []
    best = {id(points[place]) for place in front(points, ways)}
    columns = ["folder", *axes, *map(search.heading, figured), *["front"] * bool(best)]
    both = not alone and any(map(pruned.judged, points))
    came_back = {r.get(pruned.RESTORE) for r in ended}
    if both and ended[1:] and len(came_back) == 1:
        told, both = [*told, f"{pruned.RESTORE} {came_back.pop()}"], False
    columns += [pruned.RESTORE] * both
    columns += [
        *["pruning" if all(map(pruned.judged, points)) else "verdict"] * (not alone),
        *asked,
        *["reason"] * any(reasons),
    ]
    spare = [k for k in LESS if k in keys][: max(0, len(columns) + len(keys) - ROOM)]
    keys = [k for k in keys if k not in spare]
    lines = []
    for place, r in enumerate(points):
        line = [cell(r["point"], target(r)), *(plots.short(r[a]) for a in axes)]
        line += [search.cell(name, r[name]) for name in figured]
        if best:
            line.append(cell("\u25c6 front" if id(r) in best else "", kind="alike"))
        if both:
            came = r.get(pruned.RESTORE)
            line.append(
                cell(came or "", kind=kind(came) if came else "", sign=sign(came) if came else "")
            )
        if not alone:
            line.append(marked(r, first))
        line += [cell(r[k], kind="good" if r[k] == "right" else "bad") for k in asked]
        if any(reasons):
            line.append(reasons[place])
        lines.append([*line, *(_shown(k, r[k]) for k in keys)])
    columns += [TABLE[k] for k in keys]
    free = all(map(pruned.allowed, points))
    text = ". ".join(
        sentence[:1].upper() + sentence[1:]
        for sentence in (
            f"the same in every point{WITH * (len(ended) < len(points))}: {'; '.join(map(_said, told))}"
            if told
            else "",
            "; ".join(said.removesuffix(FREE * free) for k, said in MEANT.items() if k in keys),
            OWN * ("error_ratio" in keys and nearer(points)),
            "every figure: sweep.csv" * bool(spare),
        )
        if sentence
    )
    text += "." * bool(text)
    return section("Every point", text=text, columns=columns, rows=lines, fold=len(points) > MANY)


def nearer(points: list[Row]) -> bool:
    """Whether an equivalent point lies nearer to float64 than an exact one."""
    exact, other = (
        [r["error_ratio"] for r in points if r["verdict"] == v and r.get("error_ratio") is not None]
        for v in ("exact", "equivalent")
    )
    return bool(exact and other) and max(exact) > min(other)


def by_option(points: list[Row], axes: list[str]) -> list[Row]:
    """What each option came to, where there are too many points to look at one by one."""
    if len(points) <= MANY:
        return []
    said = list(counts(points))
    keys = [
        k
        for k in ("kl_mean", "stored_bytes", "per_token_s")
        if any(r.get(k) is not None for r in points)
    ]
    table = []
    for axis in axes:
        groups: dict[str, list[Row]] = {}
        for row in points:
            groups.setdefault(str(row[axis]), []).append(row)
        if len(groups) <= FEW:
            for value, some in groups.items():
                known = ([r[k] for r in some if r.get(k) is not None] for k in keys)
                middle = [median_high(values) if values else None for values in known]
                table.append([f"{axis}={value}", len(some), *(sum(word(r) == v for r in some) for v in said), *middle])  # fmt: skip
    columns = ["option", "points", *said, *(f"{TABLE[k]}, median" for k in keys)]
    return [section("By option", columns=columns, rows=table)] if table else []


def _why(row: Row, above: str) -> str:
    """The reason of a point without what its figures say. above: where those that came to no end are told, if so."""
    reason = str(row["reason"] or "")
    if row["verdict"] in STOPPED:
        return above or reason.partition("\n")[0]
    figured = row.get("error_ratio") is not None
    return SHOWN.sub("", reason).removesuffix("; ") if figured else reason


def _shown(key: str, value: Any) -> Any:
    if key == "mutated":
        return "" if value is None else "written into" if value else "only read"
    if key in SHARES:
        return _percent(value)
    whole = key == "bytes_copied_per_token" and isinstance(value, float)
    return grouped(round(value) if whole else value)


def _number(value: Any) -> str:
    return f"{value:,}" if type(value) is int else number(value)


def _percent(share: float | None) -> float | None:
    return share if share is None else float(f"{100 * share:.3g}")


def _said(value: str) -> str:
    return value.rstrip(".")
