"""The milliseconds per token of an evaluation's cells: their spread, and over how many prompts they are."""

from statistics import quantiles
from typing import Any

from harness import machine
from harness.report.html import cell
from harness.snapshot.result import CELL

MS = ".2f"  # milliseconds, of a median and of its spread

Row = dict[str, Any]


def told(answered: dict[str, list[Row]]) -> str:
    """Over how many prompts the times are, the others of which were not timed; empty where none was."""
    once = {name for name, said in answered.items() if any(a["per_token_s"] for a in said)}
    some, every = ({name.partition("/")[0] for name in names} for names in (once, answered))
    if not some:
        return ""
    first = f"the first {len(some)} of " * (some < every)
    over = f"{first}{machine.many(len(every), 'prompt')}"
    if len(some) == 1:
        return f" Times: of {over}."
    return (
        f" Times: the median over {over} and the middle half of these, every cell in turn at each prompt; where these "
        "halves overlap, no cell is the faster."
    )


def timed(
    median: float | None, place: tuple[Any, ...], answered: dict[str, list[Row]]
) -> list[Any]:
    """A cell's milliseconds per token and their spread, to as many digits."""
    return ["" if median is None else cell(f"{median:{MS}}", kind="n"), spread(place, answered)]


def spread(place: tuple[Any, ...], answered: dict[str, list[Row]]) -> str:
    """The quartiles of a cell's milliseconds per token over the prompts: `0.71-1.90`; what was timed once has none."""
    some = [
        a["per_token_s"]
        for said in answered.values()
        for a in said
        if tuple(a[key] for key in CELL) == place
    ]
    known = [1000 * seconds for seconds in some if seconds is not None]
    if len(known) < 2:
        return "timed once" if known else ""
    low, _, high = quantiles(known, n=4, method="inclusive")
    return f"{low:{MS}}-{high:{MS}}"
