"""Pictures as inline SVG. Text and axes take the page's own colour, so they read in light and dark."""

import io
import math
import re
from typing import Any

INK = "#010203"  # drawn with this, shown as the page's text colour
RANGE = 20  # a logarithmic axis where the largest value is more than so many times the smallest
COLOURS = ("#2a78d6", "#e07b39", "#2f9e6e", "#a05bc4", "#c94a5a", "#8a8f98")


def figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    """A matplotlib figure with `columns` axes, styled for the page. Off-screen, no global state."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height))
    made.patch.set_alpha(0)
    made.subplots_adjust(
        left=0.9 / width, right=1 - 0.15 / width, bottom=0.5 / height, top=1 - 0.35 / height,
        wspace=0.9 * columns / width,
    )  # fmt: skip
    axes = made.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.patch.set_alpha(0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(INK)
        axis.tick_params(colors=INK, labelsize=9)
        axis.grid(True, alpha=0.25, linewidth=0.6)
    return made, axes


def label(axis: Any, title: str, x: str, y: str) -> None:
    axis.text(0, 1.05, title, fontsize=10, color=INK, transform=axis.transAxes)
    axis.set_xlabel(x, fontsize=9, color=INK)
    axis.set_ylabel(y, fontsize=9, color=INK)


def plain(axis: Any) -> None:
    """A few logarithmic ticks as `1e-05`: typeset powers and dozens of ticks cost more time than
    all the rest of a report."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    locator = axis.get_major_locator()
    if hasattr(locator, "numticks"):
        locator.set_params(numticks=6)


def legend(axis: Any) -> None:
    axis.legend(fontsize=8, frameon=False, labelcolor=INK)


def svg(made: Any) -> str:
    """The figure as an `<svg>` element: no fixed size, no metadata, deterministic ids."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "harness", "svg.fonttype": "none"}):
        made.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1), count=1)  # fmt: skip
    return text.replace(INK, "currentColor")


def divergence(curves: dict[str, dict[str, list[float]]]) -> str:
    """KL and largest difference per step, the restored run against the noise paths."""
    made, axes = figure(9, 3.2, 2)
    for axis, key, unit in ((axes[0], "kl", "KL in nats"), (axes[1], "max_abs_diff", "logits")):
        positive = []
        for number, (name, curve) in enumerate(curves.items()):
            values = curve[key]
            positive += [v for v in values if v > 0]
            style = "-" if number == 0 else "--"
            axis.plot(values, style, color=COLOURS[number % 6], linewidth=1.8 - 0.4 * bool(number), label=name)  # fmt: skip
        if positive:
            axis.set_yscale("symlog", linthresh=min(positive))
        plain(axis.yaxis)
        title = "KL per step" if key == "kl" else "Largest difference per step"
        label(axis, title, "step", unit)
    made.subplots_adjust(top=0.76)
    made.legend(*axes[0].get_legend_handles_labels(), loc="upper center", ncols=3,
                fontsize=8, frameon=False, labelcolor=INK)  # fmt: skip
    return svg(made)


def timings(seconds: dict[str, float | None]) -> str:
    """One horizontal bar per stage."""
    known = {k: v for k, v in seconds.items() if v}
    made, (axis,) = figure(9, 0.4 + 0.32 * len(known))
    bars = axis.barh(list(known), [max(v, 1e-6) for v in known.values()], color=COLOURS[0])
    axis.bar_label(bars, [f"{v:.4f} s" for v in known.values()], fontsize=8, color=INK, padding=3)
    axis.set_xscale("log")
    plain(axis.xaxis)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    label(axis, "Time per stage", "seconds, logarithmic", "")
    return svg(made)


def scatter(
    rows: list[dict[str, Any]], panels: list[tuple[str, str, str, str, str]], by: str
) -> str:
    """Small multiples of points `rows[x] -> rows[y]`, one colour per value of `by`.

    panels: `(x, y, title, x label, y label)`; rows without a value are left out of a panel.
    """
    made, axes = figure(10.5, 3.2, len(panels))
    groups = list(dict.fromkeys(str(r[by]) for r in rows))
    many = len(groups) > len(COLOURS)  # too many to tell apart: one colour, no legend
    for axis, (x, y, title, under, beside) in zip(axes, panels, strict=True):
        for number, group in enumerate(groups):
            mine = [
                r for r in rows if str(r[by]) == group and r[x] is not None and r[y] is not None
            ]
            axis.scatter([r[x] for r in mine], [r[y] for r in mine], s=22, alpha=0.75,
                         color=COLOURS[0 if many else number], label=group)  # fmt: skip
        found = [r[y] for r in rows if isinstance(r[y], int | float)]
        positive = [v for v in found if v > 0]
        if positive and max(positive) > RANGE * min(positive):
            if len(positive) == len(found):
                axis.set_yscale("log")
            else:  # with room for the zeros below the smallest
                low, decades = min(positive), math.log10(max(positive) / min(positive))
                axis.set_yscale("symlog", linthresh=low, linscale=max(0.5, decades / 4))
                axis.set_ylim(bottom=-low / 2)
        plain(axis.yaxis)
        axis.locator_params(axis="x", nbins=4)
        axis.margins(x=0.12)
        label(axis, title, under, beside)
    made.subplots_adjust(top=0.78)
    if not many:
        made.legend(*axes[0].get_legend_handles_labels(), loc="upper center", ncols=6,
                fontsize=8, frameon=False, labelcolor=INK)  # fmt: skip
    return svg(made)
