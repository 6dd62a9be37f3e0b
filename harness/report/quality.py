"""The page of `task=quality`: quality against memory, recall by distance and depth, the position
fault, one table."""

from typing import Any

from harness.report import plots
from harness.report.html import section

FULL = "full cache"
COLUMNS = ("policy", "budget", "kept", "KiB", "ms", "ppl", "x full", "KL", "recall after",
           "before")  # fmt: skip


def sections(rows: list[dict[str, Any]], found: list[dict[str, Any]], refused: str) -> list[dict]:
    """Blocks of the page for `html.page`."""
    near = found[0]["budget"] if found else 0.25
    made = [
        section(
            "Quality against memory",
            text="Held-out text read after pruning, and questions about definitions in the context. "
            "Bands are 95% intervals over the seeds; the dashed line is the full cache.",
            svg=_against_memory(rows),
        ),
    ]
    if any(r["distance"] for r in rows):
        made.append(
            section(
                f"Recall by distance and by depth, {near:.0%} of the cache kept",
                text="Asked after pruning: the policy did not know the question. Asked before: it "
                "saw the question, and its last queries could vote for the answer.",
                svg=_by_place(rows, near),
            )
        )
    made.append(
        section(
            f"The position fault, {near:.0%} of the cache kept",
            text="The same pruned keys, at their true positions, turned to closed-up positions, and "
            "with the length of the cache taken for the next position. " + refused,
            svg=_fault(rows, near),
        )
    )
    made.append(section("Every policy at every budget", columns=list(COLUMNS), rows=_table(rows)))
    keys = [*dict.fromkeys(k for entry in found for k in entry)]
    cells = [[k, *(_cell(entry.get(k)) for entry in found)] for k in keys if k != "policy"]
    made.append(section("Figures at that budget", columns=["what", *(e["policy"] for e in found)], rows=cells))  # fmt: skip
    return made


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The table's rows by column, for the console."""
    return [dict(zip(COLUMNS, row, strict=True)) for row in _table(rows)]


def _table(rows: list[dict[str, Any]]) -> list[list[Any]]:
    made = []
    places = dict.fromkeys((r["policy"], r["budget"]) for r in rows)
    for policy, budget in sorted(places, key=lambda p: (p[0] == FULL, p[0], p[1])):
        mine = [
            r for r in _where(rows, policy=policy, positions="original") if r["budget"] == budget
        ]
        got = {(r["measure"], r["asked"]): r for r in _where(mine, distance=None, depth=None)}
        first = mine[0]
        values = [
            got.get(key)
            for key in (
                ("perplexity", None), ("perplexity over full", None), ("divergence", None),
                ("recall", "after pruning"), ("recall", "before pruning"),
            )
        ]  # fmt: skip
        step = first["per_token_s"]
        made.append(
            [
                policy, budget, round(first["kept_tokens"]), round(first["kv_bytes"] / 1024),
                None if step is None else round(1000 * step, 2),
                *(None if v is None else v["value"] for v in values),
            ]
        )  # fmt: skip
    return made


def _where(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [r for r in rows if all(r[k] == v for k, v in wanted.items())]


def _policies(rows: list[dict[str, Any]]) -> list[str]:
    return [*dict.fromkeys(r["policy"] for r in rows if r["policy"] != FULL)]


def _against_memory(rows: list[dict[str, Any]]) -> str:
    panels: list[tuple[str, str | None, str, str]]
    panels = [("perplexity", None, "Perplexity of held-out text", "perplexity")]
    if _where(rows, measure="recall"):
        panels += [
            ("recall", "after pruning", "Recall, asked after pruning", "share right"),
            ("recall", "before pruning", "Recall, asked before pruning", "share right"),
        ]
    made, axes = plots.figure(4.2 * len(panels), 3.6, len(panels))
    for axis, (measure, asked, title, unit) in zip(axes, panels, strict=True):
        some = _where(rows, measure=measure, asked=asked, positions="original", distance=None, depth=None)  # fmt: skip
        for number, policy in enumerate(_policies(rows)):
            line = sorted(_where(some, policy=policy), key=lambda r: r["kv_bytes"])
            _curve(axis, [r["kv_bytes"] / 1024 for r in line], line, number, policy)
        for row in _where(some, policy=FULL):
            axis.axhline(row["value"], color=plots.INK, linestyle="--", linewidth=1)
        if measure == "perplexity":
            axis.set_yscale("log")
        plots.label(axis, title, "KiB of K/V kept", unit)
    plots.legend(axes[0])
    return plots.svg(made)


def _by_place(rows: list[dict[str, Any]], budget: float) -> str:
    made, axes = plots.figure(12.6, 3.4, 4)
    panels = [(a, k) for a in ("after pruning", "before pruning") for k in ("distance", "depth")]
    for axis, (asked, key) in zip(axes, panels, strict=True):
        some = [
            r for r in _where(rows, measure="recall", asked=asked, positions="original") if r[key]
        ]
        for number, policy in enumerate([*_policies(rows), FULL]):
            line = _where(some, policy=policy, budget=1.0 if policy == FULL else budget)
            line.sort(key=lambda r: r[key])
            _curve(axis, [r[key] for r in line], line, number, policy, dashed=policy == FULL)
        unit = "words to the question" if key == "distance" else "depth in the context"
        axis.set_ylim(-0.03, 1.03)
        plots.label(axis, f"Asked {asked}", unit, "share right")
    plots.legend(axes[0])
    return plots.svg(made)


def _curve(axis: Any, x: list[float], line: list[dict[str, Any]], number: int, name: str, dashed: bool = False) -> None:  # fmt: skip
    colour = plots.INK if dashed else plots.COLOURS[number % len(plots.COLOURS)]
    axis.plot(x, [r["value"] for r in line], "--" if dashed else "o-", color=colour, markersize=3.5, linewidth=1.5, label=name)  # fmt: skip
    axis.fill_between(x, [r["low"] for r in line], [r["high"] for r in line], color=colour, alpha=0.13, linewidth=0)  # fmt: skip


def _fault(rows: list[dict[str, Any]], budget: float) -> str:
    made, axes = plots.figure(9, 3.4, 2)
    names = _policies(rows)
    for axis, (measure, title, unit) in zip(
        axes,
        [("divergence", "Divergence from the unpruned run", "KL in nats"),
         ("perplexity over full", "Perplexity over the full cache's", "times")],
        strict=True,
    ):  # fmt: skip
        for number, positions in enumerate(("original", "reindexed", "length as position")):
            some = {r["policy"]: r for r in _where(rows, measure=measure, positions=positions, budget=budget)}  # fmt: skip
            held = [(i, some[n]) for i, n in enumerate(names) if n in some]
            values = [r["value"] for _, r in held]
            spread = [[r["value"] - r["low"] for _, r in held], [r["high"] - r["value"] for _, r in held]]  # fmt: skip
            axis.bar([i + 0.27 * (number - 1) for i, _ in held], values, 0.25, yerr=spread, color=plots.COLOURS[(0, 2, 4)[number]], ecolor=plots.INK, error_kw={"linewidth": 0.8}, label=positions)  # fmt: skip
        axis.set_xticks(range(len(names)), names, rotation=20, fontsize=8)
        plots.label(axis, title, "", unit)
    plots.legend(axes[0])
    return plots.svg(made)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " to ".join(f"{v:.3g}" for v in value)
    return value
