"""The chat as a page: time per turn, what was said, what was recalled, what was resumed."""

from typing import Any

from harness.report import plots
from harness.report.html import section
from harness.report.names import plain


def sections(rows: list[dict[str, Any]], figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Timing plot, figures and the turns."""
    columns = ["turn", "ask", "answer", "expect", "recalled", "sent_tokens", "total_tokens",
               "cached_s", "naive_s", "naive_equal", "restored_equal", "stored_bytes", "mismatch"]  # fmt: skip
    return [
        section(
            "Time per turn",
            text="Measured side by side, turn by turn, from the question to the last token of the "
            "answer. Cached: only new ids are sent. Naive: the whole chat is processed again.",
            legend=plots.colours(("naive", "cached")),
            panels=[timing(rows)],
        ),
        section(
            "Figures", columns=["what", "value"], rows=[[plain(k), v] for k, v in figures.items()]
        ),
        section(
            "Turns",
            text="restored equal: the chat restored from the pause after this turn answered the "
            "next one with exactly the same tokens.",
            columns=[plain(c) for c in columns],
            rows=[[row.get(c) for c in columns] for row in rows],
        ),
    ]


def timing(rows: list[dict[str, Any]]) -> str:
    """Milliseconds per turn, cached beside naive."""
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    for number, (key, name) in enumerate((("naive_s", "naive"), ("cached_s", "cached"))):
        known = [(r["turn"], r[key] * 1e3) for r in rows if r.get(key) is not None]
        if known:
            axis.plot(
                *zip(*known, strict=True),
                color=plots.COLOURS[number],
                marker=plots.mark(number),
                markersize=4,
                linewidth=1.8,
                label=name,
            )
    axis.set_ylim(bottom=0)
    plots.label(axis, "Time per turn", "turn", "ms")
    return plots.svg(made)
