"""The cells of an evaluation (policy, quantizer, budget) as rows of its table: what they are called, and which
one to choose."""

from typing import Any

WHOLE = "full cache"
RIGHT = "contains"  # the measure that an answer is right by
WORSE = 0.05  # share of answers lost from which on no cell is chosen, however few the prompts

Row = dict[str, Any]


def is_full(row: Row) -> bool:
    return (row["prune"], row["quantize"], row["budget"]) == ("none", "none", 1.0)


def full(rows: list[Row]) -> Row:
    """What the full cache answered; asked in the first way, where there are several."""
    return next(r for r in rows if r["measure"] == RIGHT and is_full(r))


def best(rows: list[Row]) -> Row | None:
    """The smallest cell that is neither measurably worse than the full cache nor `WORSE` below it, asked when
    that was asked first; None where there is none."""
    whole, right = full(rows), [r for r in rows if r["measure"] == RIGHT]
    others = [r for r in right if not is_full(r) and r["asked"] == whole["asked"]]
    return (
        min(filter(good, others), key=lambda r: r["kv_bytes"], default=None)
        if whole["value"]
        else None
    )


def good(row: Row) -> bool:
    """Whether a cell is neither measurably worse than the full cache nor `WORSE` below it, and has a right answer."""
    return bool(row["delta_high"] >= 0 and row["delta"] > -WORSE and row["value"])


def nearest(rows: list[Row]) -> Row | None:
    """The cell that comes nearest to the full cache, asked when that was asked first: the most right answers, of as
    many the fewest bytes; None where there is no other cell, or the full cache has no right answer."""
    whole, right = full(rows), [r for r in rows if r["measure"] == RIGHT]
    others = [r for r in right if not is_full(r) and r["asked"] == whole["asked"]]
    near = max(others, key=lambda r: (r["value"], -r["kv_bytes"]), default=None)
    return near if whole["value"] else None


def name(row: Row) -> str:
    """A cell in a person's words."""
    if is_full(row):
        return WHOLE
    parts = [row["prune"] if row["prune"] != "none" else "", f"{row['budget']:.0%}" if row["budget"] < 1 else ""]  # fmt: skip
    parts.append(row["quantize"] if row["quantize"] != "none" else "")
    return " ".join(part for part in parts if part)
