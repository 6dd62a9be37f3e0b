"""The pictures of `task=evaluate` where its cells hold much the same: a row for each, its mark and its interval."""

from typing import Any

from harness.machine import human
from harness.report.picture import plots
from harness.snapshot.cells import RIGHT, is_full, name
from harness.snapshot.result import CELL

FEW = 2  # sizes of cells that make no axis: whose mark is whose, a row each tells better
ROW, ABOVE, BELOW = 0.27, 0.5, 0.55  # inches of a row, of the title, of the axis
LETTER, SIDE = 0.068, 0.85  # inches of a letter of a name; for the size at the right
SIZE, ROUND = 5.5, 2.3  # points across a mark; so many marks across a ring
SPARE = 0.05  # of the axis beyond its smallest and largest value
LIKELY, UNIT = "NLL of the expected text", "nats per token, lower is better"
TEXT = (
    "Each row is a cell: its mark, the bar of its 95% interval (Wilson for shares, bootstrap over the prompts "
    "otherwise), and at the right the keys and values that it holds. The dashed line is the full cache."
)

Row = dict[str, Any]


def fit(rows: list[Row]) -> bool:
    """Whether the cells hold so few sizes that these are no axis."""
    sizes = {human(int(r["kv_bytes"])) for r in rows if not is_full(r)}
    return 0 < len(sizes) <= FEW


def titled(rows: list[Row], measure: str, when: str) -> str:
    """What a picture shows, and when it was asked where some were asked otherwise."""
    several = len({r["asked"] for r in rows}) > 1
    if measure == RIGHT:
        return "Right answers" + f", asked {when} pruning" * several
    return f"NLL of the expected text, asked {when} pruning" if several else LIKELY


def panel(rows: list[Row], measure: str, when: str, winner: Row | None = None) -> str:
    """The picture of one measure and asking. winner: the cell that a ring is around."""
    some = [r for r in rows if r["measure"] == measure and r["asked"] == when]
    several = len({r["cache"] for r in some}) > 1
    names = [name(r) + f", {r['cache']}" * several for r in some]
    height = ABOVE + BELOW + ROW * len(some)
    made, (axis,) = plots.figure(plots.WIDTH, height)
    made.subplots_adjust(
        left=(0.15 + LETTER * max(map(len, names))) / plots.WIDTH, right=1 - SIDE / plots.WIDTH,
        bottom=BELOW / height, top=1 - ABOVE / height,
    )  # fmt: skip
    for place, row in enumerate(some):
        low, high = (row["value"] if row[end] is None else row[end] for end in ("low", "high"))
        whole = is_full(row)
        axis.errorbar(
            [row["value"]], [place], xerr=[[row["value"] - low], [high - row["value"]]], fmt="o", markersize=SIZE,
            elinewidth=1.4, color=plots.INK if whole else plots.COLOURS[0],
        )  # fmt: skip
        if whole:
            axis.axvline(row["value"], color=plots.INK, linestyle="--", linewidth=1, zorder=0)
        if winner and all(row[key] == winner[key] for key in CELL):
            axis.plot([row["value"]], [place], "o", markersize=ROUND * SIZE, fillstyle="none",
                      color=plots.INK, clip_on=False)  # fmt: skip
        axis.text(1.04, place, human(int(row["kv_bytes"])), fontsize=8, color=plots.INK, va="center",
                  transform=axis.get_yaxis_transform())  # fmt: skip
    axis.set_yticks(range(len(some)), names, fontsize=8)
    axis.set_ylim(len(some) - 0.4, -0.6)
    axis.grid(False, axis="y")
    _reach(axis, some, measure == RIGHT)
    unit = "% of the prompts" if measure == RIGHT else UNIT
    said = titled(rows, measure, when)
    made.text(0.15 / plots.WIDTH, 1 - 0.3 / height, said, fontsize=10, color=plots.INK)
    axis.set_xlabel(unit, fontsize=9, color=plots.INK)
    axis.set_label(f"{said}, {unit}, by cell")
    return plots.svg(made)


def _reach(axis: Any, some: list[Row], right: bool) -> None:
    """The axis from the smallest end of an interval to the largest; of a share from none to all."""
    ends = [r[key] for r in some for key in ("value", "low", "high") if r[key] is not None]
    low, high = (0.0, 1.0) if right else (min(ends), max(ends))
    spare = SPARE * (high - low or 1.0)
    axis.set_xlim(low - spare, high + spare)
    axis.locator_params(axis="x", nbins=5)
    if right:
        axis.xaxis.set_major_formatter(plots.percent)
