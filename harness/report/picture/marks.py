"""Whose a mark in a picture of a sweep is: its point's name when pointed at, and a link to its report."""

import re
from collections.abc import Iterable, Sequence
from html import escape, unescape
from typing import Any

from harness.results.points import word

# A line that is drawn with such an id has its points in order, one `use` for each.
GROUP = re.compile(r'<g id="marks:([^"]*)">(.*?)</g>', re.S)
USE = re.compile(r"<use [^>]*?/>")
APART, WITHIN = "\x1e", "\x1f"  # of points; of a point's link and name

Row = dict[str, Any]


def gid(rows: Sequence[Row], axes: Iterable[str]) -> str | None:
    """The id of a line whose marks are these points; none where they are no points of a sweep."""
    if any("point" not in row for row in rows):
        return None
    axes = list(axes)
    said = [
        WITHIN.join((target(row), ", ".join([*(f"{a}={row.get(a)}" for a in axes), word(row)])))
        for row in rows
    ]
    return f"marks:{APART.join(said)}"


def target(row: Row) -> str:
    """Where a point's link leads, from the sweep's folder."""
    return f"{row['point']}/report.html"


def linked(svg: str) -> str:
    """The picture with a name and a link on each mark that `gid` knows, and without those ids. The table has the
    same links, so that a keyboard passes these by."""

    def line(found: re.Match[str]) -> str:
        told = iter(unescape(found[1]).split(APART))

        def mark(use: re.Match[str]) -> str:
            where, _, name = next(told, "").partition(WITHIN)
            said = f"<title>{escape(name)}</title>{use[0]}"
            return f'<a href="{escape(where)}" tabindex="-1">{said}</a>' if where else use[0]

        return f"<g>{USE.sub(mark, found[2])}</g>"

    return GROUP.sub(line, svg)
