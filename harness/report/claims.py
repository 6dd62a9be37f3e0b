"""The claims as one page: each with its verdict and the answer in a line, then what was measured of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.report.badge import kind, sign
from harness.report.html import cell, grouped, prose, section
from harness.report.picture import axes, plots, scatter

BEYOND = 4.0  # noise floors that a shift must exceed before it is called one
FLOORS = (
    "A noise floor is what another order of the same sums does to a logit, a shift the largest change of any logit; "
    f"one of up to {BEYOND:g} noise floors counts as noise."
)
MEASURED = f"What is often said of caches, put to a measurement in this run. {FLOORS}"


@dataclass(frozen=True)
class Layout:
    """How the figures of a claim are told. names: `figure -> words`. Figures that are a table: its `rows`,
    `part of a figure -> words` below `head`, and its `columns`, `figure with {} for that part -> words`.
    curves: `column -> (title, unit)` of those that are drawn, by `places`, `row -> number`, named `along`."""

    names: Mapping[str, str] = field(default_factory=dict)
    head: str = ""
    rows: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    places: Mapping[str, float] = field(default_factory=dict)
    along: str = ""

    def tabled(self, figures: Mapping[str, Any]) -> list[list[Any]]:
        """The rows of the table, of which any figure was measured."""
        made = []
        for row, words in self.rows.items():
            values = [figures.get(column.format(row)) for column in self.columns]
            if any(value is not None for value in values):
                made.append([words, *("" if v is None else grouped(v) for v in values)])
        return made

    def single(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        """The figures that stand in no cell of the table, by their words."""
        return {self.names[key]: v for key, v in figures.items() if key not in self.cells()}

    def cells(self) -> set[str]:
        """The figures that the table may have."""
        return {column.format(row) for row in self.rows for column in self.columns}

    def drawn(self, figures: Mapping[str, Any]) -> list[str]:
        """A panel for each curve."""
        return [self._curve(figures, column, *told) for column, told in self.curves.items()]

    def _curve(self, figures: Mapping[str, Any], column: str, title: str, unit: str) -> str:
        made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
        line = [(x, figures.get(column.format(row))) for row, x in self.places.items()]
        xs, ys = zip(
            *[(x, float(y)) for x, y in line if y is not None] or [(0.0, 0.0)], strict=True
        )
        scatter.footed(axis, list(ys))
        axes.between(axis.xaxis, list(xs))
        axis.plot(xs, ys, marker="o", color=plots.COLOURS[0], linewidth=1.8)
        plots.label(axis, title, self.along, unit)
        return plots.svg(made)


def sections(rows: list[dict[str, Any]], layouts: Mapping[str, Layout]) -> list[dict[str, Any]]:
    """A summary when there is more than one claim, each with a link to its own block, which is folded then.
    layouts: by the name of the claim."""
    many = len(rows) > 1
    summary = section(
        "The answers",
        text=MEASURED,
        columns=["what is claimed", "verdict", "in short"],
        rows=[
            [
                {"text": prose(r["says"]), "href": f"#{r['claim']}", "kind": "claim"},
                cell(r["verdict"], kind=kind(r["verdict"]), sign=sign(r["verdict"])),
                r["answer"],
            ]
            for r in rows
        ],
    )
    return [*[summary] * many, *(_one(row, layouts[row["claim"]], many) for row in rows)]


def _one(row: dict[str, Any], layout: Layout, many: bool) -> dict[str, Any]:
    """The block of a claim. many: it is one of several, so it is folded and says how it is run alone."""
    figures = row["figures"]
    facts = (("Measured with", row["model"]), ("Conditions", row["conditions"]))
    said = [row["because"], *(f"{name}: {what}." for name, what in facts if what)]
    alone = [f"It alone: `task.only=[{row['claim']}]`."] * many
    floors = [FLOORS] * (not many and any("noise_floors" in key for key in figures))
    parts = [section("", text=" ".join([*said, *floors, *alone]))]
    told = layout.single(figures)
    words = any(
        isinstance(value, str) for value in told.values()
    )  # then numbers stand on the left too
    single = [
        [name, f"{v:,}" if words and type(v) is int else grouped(v)] for name, v in told.items()
    ]
    if table := layout.tabled(figures):
        columns = [layout.head, *layout.columns.values()]
        drawn = layout.drawn(figures)
        parts.append(section(row["claim"], panels=drawn, columns=columns, rows=table))
    if single:
        parts.append(section(row["claim"], columns=["figure", "value"], rows=single))
    verdict = row["verdict"]
    pill = {"text": verdict, "kind": kind(verdict), "sign": sign(verdict)}
    title = prose(row["says"])
    return section(title, text=row["answer"], id=row["claim"], pill=pill, parts=parts, fold=many)
