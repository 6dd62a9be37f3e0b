"""The cells of an evaluation (policy, quantizer, budget) as rows of its table: what they are called, and which
one to choose."""

from typing import Any

WHOLE = "full cache"
RIGHT = "contains"  # the measure that an answer is right by
WORSE = 0.05  # share of answers lost from which on no cell is chosen, however few the prompts
LEAST = 0.5  # share of answers of the full cache below which nobody can say what another cell loses
CHOICE, NO_CHOICE, CANNOT_TELL, ALONE = "choice", "no_choice", "cannot_tell", "full_cache_alone"

Row = dict[str, Any]


def is_full(row: Row) -> bool:
    return (row["prune"], row["quantize"], row["budget"]) == ("none", "none", 1.0)


def full(rows: list[Row]) -> Row:
    """What the full cache answered; asked in the first way, where there are several."""
    return next(r for r in rows if r["measure"] == RIGHT and is_full(r))


def tells(rows: list[Row]) -> bool:
    """Whether the full cache itself answers most of the prompts; of others they measure the model, no cell."""
    return bool(full(rows)["value"] >= LEAST)


def code(rows: list[Row]) -> str:
    """What an evaluation comes to."""
    if not tells(rows):
        return CANNOT_TELL
    return CHOICE if best(rows) else NO_CHOICE if nearest(rows) else ALONE


def _others(rows: list[Row]) -> list[Row]:
    """What the other cells answered, asked when the full cache was asked first; none where that tells nothing."""
    whole, right = full(rows), [r for r in rows if r["measure"] == RIGHT]
    others = [r for r in right if not is_full(r) and r["asked"] == whole["asked"]]
    return others if tells(rows) else []


def best(rows: list[Row]) -> Row | None:
    """The smallest cell that is neither measurably worse than the full cache nor `WORSE` below it, asked when
    that was asked first; None where there is none, or where nothing tells."""
    return min(filter(good, _others(rows)), key=lambda r: r["kv_bytes"], default=None)


def good(row: Row) -> bool:
    """Whether a cell is neither measurably worse than the full cache nor `WORSE` below it, and has a right answer."""
    return bool(row["delta_high"] >= 0 and row["delta"] > -WORSE and row["value"])


def nearest(rows: list[Row]) -> Row | None:
    """The cell that comes nearest to the full cache, asked when that was asked first: the most right answers, of as
    many the fewest bytes; None where there is no other cell, or where nothing tells."""
    return max(_others(rows), key=lambda r: (r["value"], -r["kv_bytes"]), default=None)


def name(row: Row) -> str:
    """A cell in a person's words."""
    if is_full(row):
        return WHOLE
    parts = [row["prune"] if row["prune"] != "none" else "", f"{row['budget']:.0%}" if row["budget"] < 1 else ""]  # fmt: skip
    parts.append(row["quantize"] if row["quantize"] != "none" else "")
    return " ".join(part for part in parts if part)
