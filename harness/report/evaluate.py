"""The page of `task=evaluate`: what is answered against what is held, one table, what was said."""

from math import exp, nan
from typing import Any

from harness.report import plots
from harness.report.html import section, soundness

COLUMNS = (
    "cell", "asked", "KiB", "bytes", "ms", "contains", "95%", "exact", "ppl", "KL", "differs at",
)  # fmt: skip
SHOWN = ("cell", "asked", "KiB", "ms", "contains", "95%", "ppl", "KL")  # on the console
PLACE = ("prune", "quantize", "budget", "cache", "asked")
BEST = 3  # answers shown per cell that is worse than the full cache
APART = 0.08  # how far series of the same size stand apart, as a share of it
WHOLE = "full cache"
WORSE = 0.05  # share of answers lost from which on a cell is called worse, however few the prompts

Row = dict[str, Any]


def sections(rows: list[Row], answered: dict[str, list[Row]], plain: Row) -> list[Row]:
    """Blocks of the page for `html.page`. plain: the `soundness` block of the path that fills cells."""
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
            "Every cell",
            text="Contains: the answer has the expected one in it. Exact: up to its first full stop it "
            "is the expected one. Bytes: of the full cache's. ppl: perplexity of the expected answer. KL: "
            "to the full cache, along the expected answer. Differs at: the first token said "
            "otherwise, on average.",
            columns=list(COLUMNS),
            rows=_table(rows),
        ),
        section(
            "Against the full cache, prompt by prompt",
            columns=["policy", "quantize", "kept", "asked", "measure", "difference", "from", "to"],
            rows=_differences(rows),
        ),
    ]
    if errors := [r for r in rows if r["measure"] in ("key_error", "value_error")]:
        made.append(
            section(
                "Errors of the codes",
                text="Root mean squares as shares of the keys' and the values' own, means over layers "
                "and heads; per layer and head in the report of a single run.",
                columns=["policy", "quantize", "kept", "measure", "share", "of full bytes"],
                rows=[
                    [r["prune"], r["quantize"], r["budget"], r["measure"], f"{r['value']:.3%}",
                     f"{r['kv_bytes'] / _full(rows, r)['kv_bytes']:.1%}"]
                    for r in errors
                ],
            )
        )  # fmt: skip
    made.append(section("What was said otherwise than by the full cache", columns=["cell", "said", "full cache"], rows=otherwise(answered)))  # fmt: skip
    return [*made, soundness(plain)]


def shown(rows: list[Row]) -> list[Row]:
    """The table's rows by column, for the console."""
    return [dict(zip(COLUMNS, row, strict=True)) for row in _table(rows)]


def conclusion(rows: list[Row]) -> str:
    """One sentence: the smallest cell that answers as much as the full cache does."""
    right = [r for r in rows if r["measure"] == "contains"]
    full = next(r for r in right if _is_full(r))
    others = [r for r in right if not _is_full(r) and r["asked"] == full["asked"]]
    good = [r for r in others if r["delta_high"] >= 0 and r["delta"] > -WORSE and r["value"]]
    if not full["value"]:
        return (
            f"nothing can be told from these {full['n']} prompts: the full cache answers none of them, "
            "so there is nothing to lose"
        )
    said = f"{full['n']} prompts: the full cache answers {full['value']:.0%}"
    if not good:
        return said + ("; every other cell answers fewer" if others else "")
    best = min(good, key=lambda r: r["kv_bytes"])
    share = best["kv_bytes"] / full["kv_bytes"]
    return (
        f"{said}; the smallest that is not measurably worse is {name(best)}: "
        f"{best['value']:.0%} from {share:.0%} of the bytes, where {full['n']} prompts cannot tell a "
        f"loss below {best['value'] - best['low']:.0%}"
    )


def children(rows: list[Row]) -> list[Row]:
    """One MLflow run per cell."""
    made = []
    for place, cell in cells(rows).items():
        where = dict(zip(PLACE, place, strict=True))
        first = next(iter(cell.values()))
        metrics = {f"answers/{m}": r["value"] for m, r in cell.items()}
        metrics |= {"size/kv_bytes": first["kv_bytes"]}
        metrics["answers/perplexity"] = exp(cell["nll"]["value"])
        if first["per_token_s"] is not None:
            metrics["time/per_token_s"] = first["per_token_s"]
        tags = {k: str(v) for k, v in where.items()}
        made.append({"name": name(where), "tags": tags, "metrics": metrics})
    return made


def cells(rows: list[Row]) -> dict[tuple[Any, ...], dict[str, Row]]:
    """The rows by cell, in the order of `PLACE`, and measure; the full cache comes first."""
    made: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        made.setdefault(tuple(row[key] for key in PLACE), {})[row["measure"]] = row
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


def _table(rows: list[Row]) -> list[list[Any]]:
    several = len({row["cache"] for row in rows}) > 1
    made = []
    for place, cell in cells(rows).items():
        where = dict(zip(PLACE, place, strict=True))
        right, seconds = cell["contains"], cell["contains"]["per_token_s"]
        share = right["kv_bytes"] / _full(rows, right)["kv_bytes"]
        made.append(
            [
                name(where) + (f", {where['cache']}" if several else ""),
                where["asked"],
                round(right["kv_bytes"] / 1024),
                f"{share:.1%}",
                None if seconds is None else round(1000 * seconds, 2),
                round(right["value"], 3),
                f"{right['low']:.2f}-{right['high']:.2f}",
                round(cell["exact"]["value"], 3),
                exp(cell["nll"]["value"]),
                cell["kl"]["value"],
                cell["divergence_step"]["value"],
            ]
        )
    return made


def _differences(rows: list[Row]) -> list[list[Any]]:
    return [
        [r["prune"], r["quantize"], r["budget"], r["asked"], r["measure"], r["delta"],
         r["delta_low"], r["delta_high"]]
        for r in rows
        if r["measure"] in ("contains", "nll") and not _is_full(r)
    ]  # fmt: skip


def otherwise(answered: dict[str, list[Row]]) -> list[list[str]]:
    """A few answers of each cell that differ from the full cache's."""
    made: list[list[str]] = []
    count: dict[str, int] = {}
    for answers in answered.values():
        full: dict[str, str] = {}
        for answer in answers:
            if _is_full(answer):
                full[answer["cache"]] = answer["said"]
                continue
            cell = name(answer)
            if answer["said"] != full[answer["cache"]] and count.get(cell, 0) < BEST:
                count[cell] = count.get(cell, 0) + 1
                made.append([cell, answer["said"].strip(), full[answer["cache"]].strip()])
    return sorted(made, key=lambda row: row[0])


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
