"""Right answers over several questions: which options have the most, whatever is best in each of them."""

from typing import Any

from harness import machine
from harness.report.sweep.choice import option, stored
from harness.report.sweep.variation import asks, group
from harness.report.sweep.which import FEW, called

Row = dict[str, Any]


def sentence(rows: list[Row], axes: list[str]) -> str:
    """Which options have the most right answers over the questions that all of them were asked, and which of these is
    the smallest; empty where nothing was expected, one question was asked, or all are right. rows: those to choose
    among."""
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    asked, by = group(rows, questions), group(rows, options)
    answers = {row.get("answer") for row in rows}
    if len(asked) < 2 or len(by) < 2 or answers != {"right", "wrong"}:
        return ""
    if any(len(some) != len(asked) for some in by.values()):
        return ""  # the sweep did not get to all
    right = {name: sum(r["answer"] == "right" for r in some) for name, some in by.items()}
    most = max(right.values())
    leading = [name for name in by if right[name] == most]
    size = {name: sum(map(stored, by[name])) for name in leading}
    least = min(leading, key=size.__getitem__)
    of = f"{most} of {len(asked)}"
    if len(leading) == len(by):
        return ""
    if len(leading) <= FEW:
        said = called({*leading}, options, questions, rows)[0]
        more = _smallest(least, options, rows) if len({*size.values()}) > 1 else ""
    else:
        said = called({least}, options, questions, rows)[0]
        more = f", the smallest of {machine.many(len(leading), 'such choice')}"
    return f"Most right answers over {' and '.join(questions)}: {said} ({of}{more})."


def _smallest(name: tuple[str, ...], options: list[str], rows: list[Row]) -> str:
    row = next(row for row in rows if option(row, options) == name)
    return f", the smallest of them {' '.join(f'{a}={row[a]}' for a in options)}"
