"""Pictures as inline SVG. Text and axes take the page's own colour, so they read in light and dark."""

import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from harness.report import names

INK = "#010203"  # drawn with this, shown as the page's text colour
DECADES = 60  # a logarithmic axis that spans less has ticks between the powers of ten
BETWEEN = (1, 2, 5)  # which: these times a power
NARROW = 8  # one that spans less has more of them
FINER = (1, 1.5, 2, 3, 4, 5, 6, 8)  # which
TWO = 2  # ticks: one alone says nothing of a scale
RANGE = 20  # a logarithmic axis where the largest value is more than so many times the smallest
VERDICTS = {  # drawn with the first, shown as the second: they follow the page into the dark
    "good": ("#010204", "var(--good)"),
    "fair": ("#010205", "var(--fair)"),
    "bad": ("#010206", "var(--bad)"),
    "alike": ("#010207", "var(--alike)"),
    "soft": ("#010208", "var(--soft)"),
}
JOIN, HALF = 0.45, 0.5  # of a joining line, of a mark that is half transparent: more in the dark
FAINT = {JOIN: "join", HALF: "half"}
MARKERS = "os^Dv<>P"
SHAPES = dict(zip(MARKERS, "\u25cf\u25a0\u25b2\u25c6\u25bc\u25c0\u25b6\u271a", strict=True))
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LONG = re.compile(r"-?\d+\.\d{5,}(e-?\d+)?")
ASIDE = 0.12  # of a panel's width: so far left of it its title begins
LETTER, LINE = 0.083, 0.17  # inches of a title: across one of its letters, from line to line
WIDTH, HEIGHT = 4.5, 3.0  # inches of one panel: legible at 400 pixels
COLOURS = ("#2a78d6", "#cf6a26", "#2b9266", "#a05bc4", "#c94a5a", "#d8589f", "#b08d1e", "#1597a5")


def figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    """A matplotlib figure with `columns` axes, styled for the page. Off-screen, no global state."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height))
    made.patch.set_alpha(0)
    made.subplots_adjust(
        left=0.75 / width, right=1 - 0.15 / width, bottom=0.5 / height, top=1 - 0.35 / height,
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
    """y: the unit; it stands beside the title, where no tick can run into it. A title that is wider than its panel
    has a second line, for which the panel makes room: before anything is placed in it by its points."""
    lines = textwrap.wrap(f"{title}, {y}", _letters(axis))
    if len(lines) > 1:
        made = axis.figure
        more = (len(lines) - 1) * LINE / made.get_figheight()
        made.subplots_adjust(top=made.subplotpars.top - more)
    axis.text(-ASIDE, 1.05, "\n".join(lines), fontsize=10, color=INK, transform=axis.transAxes)
    axis.set_xlabel(x, fontsize=9, color=INK)
    axis.set_label(f"{title}, {y}, by {x}")  # what a screen reader says


def _letters(axis: Any) -> int:
    """How many letters of a title there is room for above a panel, whatever the page's font is."""
    place = axis.get_position()
    end = min(place.x1 + ASIDE * place.width, 1.0)
    wide = (end - place.x0 + ASIDE * place.width) * axis.figure.get_figwidth()
    return int(wide / LETTER)


def against_context(axis: Any, title: str, unit: str) -> None:
    """What grows with the past: both axes logarithmic, with two numbers or more beside what was measured."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    plain(axis.yaxis)
    low, high = axis.get_ylim()
    if sum(low <= tick <= high for tick in axis.get_yticks()) < TWO:
        axis.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda tokens, _: f"{tokens:,.0f}"))
    label(axis, title, "past tokens (both axes logarithmic)", unit)


def plain(axis: Any) -> None:
    """A few logarithmic ticks as `10⁻⁶`, in letters: typeset powers and dozens of ticks cost more time than
    all the rest of a report."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_minor_locator(NullLocator())
    low, high = axis.get_view_interval()
    if axis.get_scale() == "log" and (high <= DECADES * low or len(steps(low, high, (1,))) < TWO):
        few = high > NARROW * low
        axis.set_major_locator(LogLocator(subs=BETWEEN if few else FINER))
    digits = 3  # more where the values are nearly alike
    if axis.get_scale() == "linear" and high > low:
        digits = max(3, 2 + math.ceil(math.log10(max(abs(low), abs(high)) / (high - low))))
    locator = axis.get_major_locator()
    if hasattr(locator, "numticks"):
        locator.set_params(numticks=6)
    shown = [t for t in axis.get_majorticklocs() if t > 0 and low <= t <= high]
    power = axis.get_scale() != "linear" and any("e" in f"{t:.{digits}g}" for t in shown)
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value, digits, power)))


def whole(axis: Any) -> None:
    """Whole numbers alone at the ticks of an axis that counts; of one place there is that one."""
    from matplotlib.ticker import MaxNLocator

    low, high = axis.get_view_interval()
    if high - low < 1:
        axis.set_ticks([round((low + high) / 2)])
        return
    axis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def percent(share: float, _: Any = None) -> str:
    """A share at an axis whose unit is %."""
    return f"{100 * share:.3g}"


def tick(value: float, digits: int = 3, power: bool = False) -> str:
    """A number at an axis: `250`, `2·10⁻⁶`, `10⁻⁶`. power: also of one that needs no power of ten to be
    short, but from 1 to 10, as others beside it are written."""
    text = f"{value:.{digits}g}"
    if power and value > 0 and not 1 <= value <= 10:
        text = re.sub(r"\.?0*e", "e", f"{value:.{digits - 1}e}")
    base, exponent, raised = text.partition("e")
    if not exponent:
        return text
    tens = f"10{str(int(raised)).translate(RAISED)}"
    return tens if base == "1" else f"{base}·{tens}"


def colours(names: Iterable[str]) -> str:
    """A page's legend: each series' own mark and colour beside its name, in the order of COLOURS."""
    return "".join(
        f'<span><b style="color:{COLOURS[number % len(COLOURS)]}">{SHAPES[mark(number)]}</b> {escape(name)}</span>'
        for number, name in enumerate(names)
    )


def mark(number: int) -> str:
    """The marker of a series: each has its own, and another colour with it each time they begin anew."""
    return MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def svg(made: Any) -> str:
    """The figure as an `<svg>` element: no fixed size, no metadata, deterministic ids, one image with
    the names of its axes for whoever hears the page."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "harness", "svg.fonttype": "none"}):
        made.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1), count=1)  # fmt: skip
    said = escape("; ".join(str(axis.get_label()) for axis in made.axes), quote=True)
    text = text.replace("<svg", f'<svg role="img" aria-label="{said}"', 1)
    for ink, colour in VERDICTS.values():
        text = text.replace(ink, colour)
    for share, name in FAINT.items():
        text = text.replace(f"-opacity: {share};", f"-opacity: var(--{name}, {share});")
    return text.replace(INK, "currentColor")


def divergence(curves: dict[str, dict[str, list[float]]]) -> list[str]:
    """Two panels: KL and largest difference per step, the restored run against the noise paths."""
    return [
        _curves(curves, "kl", "KL per step", "nats"),
        _curves(curves, "max_abs_diff", "Largest difference per step", "logits"),
    ]


def _curves(curves: dict[str, dict[str, list[float]]], key: str, title: str, unit: str) -> str:
    made, (axis,) = figure(WIDTH, HEIGHT)
    every: list[float] = []
    for number, curve in enumerate(curves.values()):
        values = curve[key]
        every += [v for v in values if v == v]
        style = "--" if number else "-"
        colour, width = COLOURS[number % len(COLOURS)], 1.4 if number else 1.8
        axis.plot(range(1, len(values) + 1), values, style, color=colour, linewidth=width)
    if any(every):
        scaled(axis, every)
    else:
        axis.set_ylim(-1, 1)
        axis.set_yticks([0])
    plain(axis.yaxis)
    whole(axis.xaxis)
    label(axis, title, "step", unit)
    return svg(made)


def curve_names(curves: Iterable[str]) -> str:
    """The legend of `divergence`: a dash of each curve's own kind beside its name."""
    return "".join(
        _dash(COLOURS[number % len(COLOURS)], name, "4 3" if number else "")
        for number, name in enumerate(curves)
    )


def _dash(colour: str, name: str, dashes: str) -> str:
    return (
        f'<span><svg aria-hidden="true" viewBox="0 0 28 10"><line x1="0" x2="28" y1="5" y2="5" stroke="{colour}" '
        f'stroke-width="2.5" stroke-dasharray="{dashes}"/></svg>{escape(name)}</span>'
    )


def bars(names: list[str], values: list[float], title: str, unit: str) -> str:
    """A panel with a lying bar per name, and its value beside it; the panel makes room for the longest name."""
    made, (axis,) = figure(WIDTH, 1.1 + 0.3 * len(names))
    axis.barh(range(len(names)), values, color=COLOURS[0], height=0.6)
    axis.set_yticks(range(len(names)), names, fontsize=9)
    axis.invert_yaxis()
    axis.grid(False, axis="y")
    axis.set_xlim(0, 1.15 * max(*values, 0) or 1)
    for place, value in enumerate(values):
        axis.text(value, place, f" {value:.3g}", fontsize=8, color=INK, va="center")
    label(axis, title, unit, unit)
    axis.set_xlabel("")  # which the title says
    left = max(0.75, LETTER * max(map(len, names)) + 0.15)
    made.subplots_adjust(left=left / WIDTH)
    return svg(made)


def together(panels: list[str], names: list[str]) -> str:
    """Panels side by side in one picture with its own legend, for where there is no page around it."""
    wide, high = WIDTH * 72, HEIGHT * 72
    parts = [
        panel.replace(
            "<svg", f'<svg x="{place * wide:g}" y="20" width="{wide:g}" height="{high:g}"', 1
        )
        for place, panel in enumerate(panels)
    ]
    keys = "".join(
        f'<tspan fill="{COLOURS[number % len(COLOURS)]}" dx="14">{escape(name)}</tspan>'
        for number, name in enumerate(names)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {wide * len(panels):g} {high + 20:g}" font-family="sans-serif">'
        f'<text x="30" y="14" font-size="10">{keys}</text>{"".join(parts)}</svg>'
    )


def timings(seconds: dict[str, float | None]) -> str:
    """One line per stage, all in one unit, a dot on a logarithmic scale: plain HTML, so that it fits any width."""
    known = {stage: taken for stage, taken in seconds.items() if taken}
    if not known:
        return ""
    low, high = math.log10(min(known.values())), math.log10(max(known.values()))
    unit, much = ("s", 1.0) if low >= 0 else ("ms", 1e3)
    lines = "".join(
        f'<tr><td class="name">{escape(names.plain(stage))}</td><td class="track"><i style="left:'
        f'{(math.log10(taken) - low) / max(high - low, 1e-9) * 100:.1f}%"></i></td>'
        f'<td class="n">{_amount(taken * much)}\u00a0{unit}</td></tr>'
        for stage, taken in known.items()
    )
    return f'<table class="timings" aria-label="Time per stage"><tbody>{lines}</tbody></table>'


def _amount(value: float) -> str:
    """Three digits, and no power of ten."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def short(value: Any) -> str:
    """A swept value for a person: a search draws 17 digits of a number; nothing where there is none."""
    text = "" if value is None else str(value)
    return f"{float(text):.4g}" if LONG.fullmatch(text) else text


def scaled(axis: Any, values: list[float], nothing: float = 0.0) -> None:
    """Logarithmic where the values span much; zeros, and all up to `nothing`, keep room below the others."""
    positive = [v for v in values if v > nothing]
    if not positive or (max(positive) <= RANGE * min(positive) and not nothing):
        return
    if len(positive) == len(values):
        axis.set_yscale("log")
        return
    low = steps(min(positive) / 10, min(positive), BETWEEN)[-1]  # round, as every tick
    decades = math.log10(max(positive) / low)
    axis.set_yscale("symlog", linthresh=low, linscale=max(0.5, decades / 4))
    axis.set_ylim(bottom=-low / 2)
    powers = steps(low, max(positive), (1,))[:: -max(1, math.ceil(decades / 4))]
    finer = (steps(low, max(positive), subs) for subs in (BETWEEN, FINER))
    axis.set_yticks([0, *(next((ticks for ticks in (powers, *finer) if ticks[1:]), [low]))])


def steps(low: float, high: float, subs: Sequence[float]) -> list[float]:
    """These times the powers of ten, from `low` to `high`."""
    span = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [at for e in span for sub in subs if low <= (at := sub * 10.0**e) <= high]
