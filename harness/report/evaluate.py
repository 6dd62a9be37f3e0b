"""The page of `task=evaluate`: what is answered against what is held, one table, what was said."""

import json
from collections.abc import Sequence
from math import exp, nan
from pathlib import Path
from typing import Any

from harness.report import plots
from harness.report.html import cell, section, soundness
from harness.snapshot.objective import ANSWERS
from harness.snapshot.result import CELL, ROWS

COLUMNS = (
    "cell", "asked", "KiB", "bytes", "ms", "contains", "95%", "exact", "ppl", "KL", "differs at",
)  # fmt: skip
HEADS = (
    "cell", "asked", "KiB held", "of full bytes", "ms per token", "right", "95% interval", "exact",
    "perplexity", "KL, nats", "same tokens",
)  # fmt: skip
SHOWN = ("cell", "asked", "KiB", "ms", "contains", "95%", "ppl", "KL")  # on the console
MEANT = ("contains", "95%", "KL", "KiB")  # of each point of a sweep
ANSWER, LONG = next(iter(ANSWERS)), 200  # lines that are shown at once
BEST = 3  # answers shown per cell that is worse than the full cache
APART = 0.08  # how far series of the same size stand apart, as a share of it
WHOLE = "full cache"
MEASURES = {"contains": "share of right answers", "nll": "nats per token of the expected text"}
FELT = 0.001  # nats a token more from which on an expected text is called less likely: 0.1% of perplexity
WORSE = 0.05  # share of answers lost from which on a cell is called worse, however few the prompts

Row = dict[str, Any]


def sections(
    rows: list[Row], answered: dict[str, list[Row]], asking: Sequence[Any], plain: Row
) -> list[Row]:
    """Blocks of the page for `html.page`. answered: by the number of the question in `asking` and when it
    was asked (`0/after`). plain: the `soundness` block of the path that fills cells."""
    winner = best([r for r in rows if r["measure"] == "contains"])
    made = [
        section(
            "Answers against memory",
            text="Each point is a policy or quantizer at a budget; bars are 95% intervals (Wilson for "
            "shares, bootstrap over the prompts otherwise), the dashed line is the full cache. "
            "Joined: the Pareto front, where nothing smaller is as good.",
            legend=plots.colours(
                " ".join(p for p in group if p != "none") for group in _groups(rows)
            ),
            panels=_pictures(rows),
        ),
        section(
            "Every policy, quantizer and budget",
            text="Right: the answer has the expected one in it; exact: up to its first full stop it is the "
            "expected one. Perplexity: of the expected text itself, put straight after the question (1: no "
            "surprise); where a model answers in other words it is large though the answer is right. KL: to "
            "the full cache, along the expected text. Same tokens: said before the first one that the full "
            "cache does not say, on average; the full cache's own row says how many there could be.",
            columns=list(HEADS),
            rows=[_marked(row, winner) for row in _table(rows)],
        ),
        section(
            "Against the full cache, prompt by prompt",
            text="The mean difference with its 95% interval; one that holds 0 tells nothing apart.",
            columns=["cell", "asked", "measure", "difference", "from", "to", ""],
            rows=_differences(rows),
        ),
    ]
    if errors := [r for r in rows if r["measure"] in ("key_error", "value_error")]:
        made.append(
            section(
                "Errors of the codes",
                text="Root mean squares as shares of the keys' and the values' own, means over layers "
                "and heads; per layer and head in the report of a single run.",
                columns=["cell", "asked", "of", "error", "of full bytes"],
                rows=[
                    [name(r), r["asked"], f"{r['measure'].partition('_')[0]}s", f"{r['value']:.3%}",
                     f"{r['kv_bytes'] / _full(rows, r)['kv_bytes']:.1%}"]
                    for r in errors
                ],
            )
        )  # fmt: skip
    columns = ["cell", "question", "expected", "said", "full cache", "first other token"]
    changed = otherwise(answered, asking)
    told = f"Up to {BEST} answers of each cell; tokens are counted from 1, with their ids."
    if not changed:
        told = "Every cell said what the full cache says, token for token."
    made.append(section("What was said otherwise than by the full cache", text=told, columns=columns, rows=changed))  # fmt: skip
    return [*made, soundness(plain)]


def shown(rows: list[Row]) -> list[Row]:
    """The table's rows by column, for the console."""
    return [dict(zip(COLUMNS, row, strict=True)) for row in _table(rows)]


def beside(folder: Path, points: list[Row], axes: list[str]) -> list[Row]:
    """The block of a sweep of evaluations that have several cells each: each cell, point by point. points: of
    the sweep in `folder`, one row each. Nothing where a figure of each says it all."""
    tables = [(point, folder / point["point"] / ROWS) for point in points]
    made: dict[tuple[Any, ...], list[list[Any]]] = {}
    for point, table in tables if ANSWER not in points[0] else ():
        for row in shown(json.loads(table.read_text("utf-8"))) if table.is_file() else ():
            there = cell(point["point"], f"{point['point']}/report.html")
            line = [row["cell"], row["asked"], there, *(plots.short(point[a]) for a in axes)]
            made.setdefault((row["cell"], row["asked"]), []).append(
                [*line, *(row[c] for c in MEANT)]
            )
    if not made:
        return []
    heads = ["cell", "asked", "folder", *axes, *(HEADS[COLUMNS.index(c)] for c in MEANT)]
    lines = [line for some in made.values() for line in some]
    text = "Each cell under every option, one below the other."
    return [
        section(
            "What each point answered", text=text, columns=heads, rows=lines, fold=len(lines) > LONG
        )
    ]


def conclusion(rows: list[Row]) -> str:
    """One sentence: the smallest cell that answers as much as the full cache does; which asking that is
    about, and what the same cell answers in the others."""
    right = [r for r in rows if r["measure"] == "contains"]
    full = next(r for r in right if _is_full(r))
    if not full["value"]:
        return (
            f"nothing can be told from these {full['n']} prompts: the full cache answers none of them, "
            "so there is nothing to lose"
        )
    several = len({r["asked"] for r in right}) > 1
    when = f", asked {full['asked']}" if several else ""
    said = f"{full['n']} prompts{when}: the full cache answers {full['value']:.0%}"
    winner = best(right)
    if winner is None:
        return said + "; every other cell answers fewer" * any(not _is_full(r) for r in right)
    alike = ("prune", "quantize", "budget", "cache")
    otherwise = "".join(
        f"; asked {r['asked']}, it answers {r['value']:.0%} and the full cache {_full(right, r)['value']:.0%}"
        for r in right
        if r["asked"] != winner["asked"] and all(r[key] == winner[key] for key in alike)
    )
    likely = [r for r in rows if r["measure"] == "nll" and all(r[k] == winner[k] for k in CELL)]
    if (lost := max((r["delta"] for r in likely if (r["delta_low"] or 0) > 0), default=0)) > FELT:
        by = f"{lost:.2g} nats a token"
        otherwise = f"; its expected text is measurably less likely, by {by}{otherwise}"
    share = winner["kv_bytes"] / full["kv_bytes"]
    return (
        f"{said}; by share of right answers, the smallest that is not measurably worse is "
        f"{name(winner)}: "
        f"{winner['value']:.0%} from {share:.0%} of the bytes, where {full['n']} prompts cannot tell a "
        f"loss below {winner['value'] - winner['low']:.0%}{otherwise}"
    )


def best(right: list[Row]) -> Row | None:
    """The smallest cell that is not measurably worse than the full cache, asked when that was asked first;
    None where there is none. right: the rows of `contains`."""
    full = next(r for r in right if _is_full(r))
    others = [r for r in right if not _is_full(r) and r["asked"] == full["asked"]]
    good = [r for r in others if r["delta_high"] >= 0 and r["delta"] > -WORSE and r["value"]]
    return min(good, key=lambda r: r["kv_bytes"], default=None) if full["value"] else None


def children(rows: list[Row]) -> list[Row]:
    """One MLflow run per cell."""
    made, several = [], len({row["asked"] for row in rows}) > 1
    for place, values in cells(rows).items():
        where = dict(zip(CELL, place, strict=True))
        when = f", asked {where['asked']}" * several
        first = next(iter(values.values()))
        metrics = {f"answers/{m}": r["value"] for m, r in values.items()}
        metrics |= {"size/kv_bytes": first["kv_bytes"]}
        metrics["answers/perplexity"] = exp(values["nll"]["value"])
        if first["per_token_s"] is not None:
            metrics["time/per_token"] = first["per_token_s"]
        tags = {k: str(v) for k, v in where.items()}
        made.append({"name": f"{name(where)}{when}", "tags": tags, "metrics": metrics})
    return made


def cells(rows: list[Row]) -> dict[tuple[Any, ...], dict[str, Row]]:
    """The rows by cell, in the order of `CELL`, and measure; the full cache comes first."""
    made: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        made.setdefault(tuple(row[key] for key in CELL), {})[row["measure"]] = row
    return made


def _is_full(row: Row) -> bool:
    return (row["prune"], row["quantize"], row["budget"]) == ("none", "none", 1.0)


def _full(rows: list[Row], row: Row) -> Row:
    alike = ("cache", "asked")
    return next(r for r in rows if _is_full(r) and all(r[k] == row[k] for k in alike))


def name(row: Row) -> str:
    """A cell in a person's words."""
    if _is_full(row):
        return WHOLE
    parts = [row["prune"] if row["prune"] != "none" else "", f"{row['budget']:.0%}" if row["budget"] < 1 else ""]  # fmt: skip
    parts.append(row["quantize"] if row["quantize"] != "none" else "")
    return " ".join(part for part in parts if part)


def _named(row: Row, several: bool) -> str:
    return name(row) + (f", {row['cache']}" if several else "")


def _table(rows: list[Row]) -> list[list[Any]]:
    several = len({row["cache"] for row in rows}) > 1
    made = []
    for place, values in cells(rows).items():
        where = dict(zip(CELL, place, strict=True))
        right, seconds = values["contains"], values["contains"]["per_token_s"]
        share = right["kv_bytes"] / _full(rows, right)["kv_bytes"]
        made.append(
            [
                _named(where, several),
                where["asked"],
                round(right["kv_bytes"] / 1024),
                f"{share:.1%}",
                None if seconds is None else round(1000 * seconds, 2),
                round(right["value"], 3),
                f"{right['low']:.2f}-{right['high']:.2f}",
                round(values["exact"]["value"], 3),
                exp(values["nll"]["value"]),
                values["kl"]["value"],
                values["divergence_step"]["value"],
            ]
        )
    return made


def _marked(row: list[Any], winner: Row | None) -> list[Any]:
    """A line of the table, its cell marked where it is the one to choose."""
    names = [] if winner is None else [_named(winner, several) for several in (False, True)]
    chosen = winner is not None and row[0] in names and row[1] == winner["asked"]
    return [cell(row[0], kind="good best"), *row[1:]] if chosen else row


def _differences(rows: list[Row]) -> list[list[Any]]:
    made = []
    for r in rows:
        if r["measure"] not in MEASURES or _is_full(r):
            continue
        low, high = r["delta_low"], r["delta_high"]
        below, above = (high < 0, low > 0) if low is not None else (False, False)
        worse, better = (below, above) if r["measure"] == "contains" else (above, below)
        said = "worse" if worse else "better" if better else "not told apart"
        tone = "bad" if worse else "good" if better else "soft"
        line = [name(r), r["asked"], MEASURES[r["measure"]], r["delta"], low, high]
        made.append([*line, cell(said, kind=tone)])
    return made


def otherwise(answered: dict[str, list[Row]], asking: Sequence[Any]) -> list[list[Any]]:
    """A few answers of each cell that differ from the full cache's, in text or only in tokens."""
    made: list[list[Any]] = []
    count: dict[str, int] = {}
    for number, answers in answered.items():
        asked = asking[int(number.partition("/")[0])]
        full: dict[str, Row] = {}
        for answer in answers:
            if _is_full(answer):
                full[answer["cache"]] = answer
                continue
            where, whole = name(answer), full[answer["cache"]]
            place = answer["divergence_step"]
            if place < whole["divergence_step"] and count.get(where, 0) < BEST:
                count[where] = count.get(where, 0) + 1
                said = [cell(_heard(a), kind=("bad long", "good long")[bool(a["contains"])]) for a in (answer, whole)]  # fmt: skip
                ids = [_token(a.get("ids"), place) for a in (answer, whole)]
                made.append([where, asked.question, asked.expected, *said, f"{place + 1}: {' for '.join(ids)}"])  # fmt: skip
    return sorted(made, key=lambda row: row[0])


def _heard(answer: Row) -> str:
    """What was said, and whether it is right: colour is not all that tells it."""
    return f"{answer['said'].strip()} ({'right' if answer['contains'] else 'wrong'})"


def _token(ids: list[int] | None, place: int) -> str:
    return "?" if ids is None else str(ids[place]) if place < len(ids) else "the end"


def _pictures(rows: list[Row]) -> list[str]:
    asked = list(dict.fromkeys(r["asked"] for r in rows))
    panels = [("contains", a) for a in asked] + [("nll", asked[0])]
    return [_panel(rows, measure, when) for measure, when in panels]


def _groups(rows: list[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((r["prune"], r["quantize"]) for r in rows if not _is_full(r)))


def _panel(rows: list[Row], measure: str, when: str) -> str:
    made, (axis,) = plots.figure(plots.WIDTH, 3.6)
    some = [r for r in rows if r["measure"] == measure and r["asked"] == when]
    groups = _groups(rows)
    for number, group in enumerate(groups):
        line = [r for r in some if (r["prune"], r["quantize"]) == group and not _is_full(r)]
        line.sort(key=lambda r: r["kv_bytes"])
        beside = 1 + APART * (number - len(groups) / 2) / len(groups)
        known = [r if r["low"] is not None else {**r, "low": nan, "high": nan} for r in line]
        low, high = [r["value"] - r["low"] for r in known], [r["high"] - r["value"] for r in known]
        axis.errorbar(
            [beside * r["kv_bytes"] / 1024 for r in line], [r["value"] for r in line], [low, high],
            fmt=plots.mark(number) + ":", markersize=4, linewidth=0.8,
            color=plots.COLOURS[number % len(plots.COLOURS)],
        )  # fmt: skip
    for row in some:
        if _is_full(row):
            axis.axhline(row["value"], color=plots.INK, linestyle="--", linewidth=1)
    right = measure == "contains"
    front = pareto(some, larger=right)
    axis.plot([r["kv_bytes"] / 1024 for r in front], [r["value"] for r in front],
              color=plots.INK, linewidth=0.7, alpha=0.6)  # fmt: skip
    axis.set_xlim(0, 1.05 * max(r["kv_bytes"] for r in some) / 1024)
    if right:
        axis.set_ylim(-0.03, 1.05)
    title = "Right answers" if right else "Expected answer"
    plots.label(
        axis, f"{title}, asked {when}", "KiB of K/V held", "share" if right else "nats per token"
    )
    return plots.svg(made)


def pareto(rows: list[Row], larger: bool) -> list[Row]:
    """The rows that no smaller one matches, from the smallest; larger: whether a larger value is better."""
    front: list[Row] = []
    for row in sorted(rows, key=lambda r: (r["kv_bytes"], -r["value"] if larger else r["value"])):
        better = row["value"] > front[-1]["value"] if larger and front else None
        better = row["value"] < front[-1]["value"] if not larger and front else better
        if not front or better:
            front.append(row)
    return front
