"""Where an answer was expected: how many points give it, under which options, before anything else is said of them."""

from typing import Any

from harness import machine
from harness.report.picture import plots
from harness.report.sweep import baseline, damaged, earlier, tally
from harness.report.sweep.variation import asks, group

FEW = 4  # options that are told one by one
NONE = "No point gives a right answer."

Row = dict[str, Any]


def sentence(rows: list[Row], axes: list[str]) -> str:
    """That, in a sentence; empty where none was expected, all are right, or `tally.sentence` says it."""
    known = [row for row in rows if row.get("answer")]
    right = [row for row in known if row["answer"] == "right"]
    if (
        len(right) == len(known)
        or not earlier.told()
        or tally.sentence(baseline.tried(rows, axes), axes)
    ):
        return ""
    if not right:
        return NONE
    options = [axis for axis in axes if not asks(axis)]
    by = group(known, options)
    if not 1 < len(by) <= FEW:
        return f"{len(right)} of {machine.many(len(known), 'point')} give the right answer."
    said = [
        f"{_named(options, name)} {sum(r['answer'] == 'right' for r in some)} of {len(some)}"
        for name, some in by.items()
    ]
    return f"Right answers: {', '.join(said)}."


def above(rows: list[Row], axes: list[str]) -> dict[str, str]:
    """What goes before which point to choose, under the words that stand before it on a console: the answers, and what
    became of damage that was done on purpose."""
    told = {"answers": sentence(rows, axes), "damage": damaged.sentence(rows, axes)}
    return {label: said for label, said in told.items() if said}


def _named(options: list[str], name: tuple[str, ...]) -> str:
    return " ".join(
        f"{axis}={plots.short(value)}" for axis, value in zip(options, name, strict=True)
    )
