"""A table is a list of columns and of rows of facts: one renderer each for the terminal, HTML, Markdown and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from harness.results.fact import Fact

NUMBERS = (int, float)
WIDEST = 160  # characters of a line
WHOLE = 12  # characters of a cell that no terminal breaks


@dataclass(frozen=True)
class Column:
    """key: of a row. fact: heading, format and meaning."""

    key: str
    fact: Fact

    @property
    def heading(self) -> str:
        return self.fact.heading or self.key.replace("_", " ")

    def show(self, row: Mapping[str, Any]) -> str:
        return self.fact.show(row.get(self.key))


@dataclass(frozen=True)
class Table:
    """rows: mappings, of which `columns` show some. mark: key of a row that is true for the one to look at first."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    mark: str = ""

    def varying(self, *keep: str) -> "Table":
        """Without the columns that say the same in every row, but for `keep`."""
        told = [c for c in self.columns if c.key in keep or len({c.show(r) for r in self.rows}) > 1]
        return Table(self.title, told or self.columns[:1], self.rows, self.mark)

    def cells(self) -> list[list[str]]:
        return [[column.show(row) for column in self.columns] for row in self.rows]

    def right(self, column: Column) -> bool:
        """Whether a column holds numbers, which stand on the right."""
        return all(isinstance(row.get(column.key), (*NUMBERS, type(None))) for row in self.rows)


def terminal(table: Table) -> Any:
    """A rich Table."""
    from rich import box
    from rich import table as rich

    made = rich.Table(
        title=table.title or None,
        box=box.ASCII2,
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    for column in table.columns:
        longest = max((len(column.show(row)) for row in table.rows), default=0)
        made.add_column(
            column.heading,
            justify="right" if table.right(column) else "left",
            overflow="fold",
            min_width=longest if longest <= WHOLE else None,
        )
    for row, cells in zip(table.rows, table.cells(), strict=True):
        marked = bool(table.mark and row.get(table.mark))
        made.add_row(*(_plain(cell) for cell in cells), style="bold" if marked else None)
    return made


def printed(console: Any, table: Table) -> None:
    """Print it on a rich Console, on longer lines than it has where cells would be cut off."""
    from rich.measure import Measurement

    made, width = terminal(table), console.width
    console.width = WIDEST
    console.width = max(width, min(Measurement.get(console, console.options, made).maximum, WIDEST))
    console.print(made)
    console.width = width


def html(table: Table) -> str:
    """A `<table>`; the meaning of a column is its heading's tooltip."""
    heads = "".join(
        f'<th scope="col"{" class=n" if table.right(c) else ""} title="{escape(c.fact.meaning)}">{escape(c.heading)}</th>'
        for c in table.columns
    )
    lines = []
    for row, cells in zip(table.rows, table.cells(), strict=True):
        kind = ' class="best"' if table.mark and row.get(table.mark) else ""
        shown = "".join(
            f"<td{' class=n' if table.right(c) else ''}>{_linked(row, c, cell)}</td>"
            for c, cell in zip(table.columns, cells, strict=True)
        )
        lines.append(f"<tr{kind}>{shown}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def markdown(table: Table) -> str:
    lines = [
        "| " + " | ".join(c.heading for c in table.columns) + " |",
        "|" + "---|" * len(table.columns),
    ]
    lines += [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        for cells in table.cells()
    ]
    return "\n".join(lines)


def comma_separated(keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """CSV of raw values, a column per key; nothing is rounded."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(keys), extrasaction="ignore")
    writer.writeheader()
    writer.writerows({k: "" if row.get(k) is None else row[k] for k in keys} for row in rows)
    return out.getvalue()


def _linked(row: Mapping[str, Any], column: Column, cell: str) -> str:
    href = row.get(f"{column.key}_href")
    return f'<a href="{escape(str(href))}">{escape(cell)}</a>' if href else escape(cell)


def _plain(cell: str) -> str:
    from rich.markup import escape as markup

    return markup(cell)
