"""What an evaluation comes to: the smallest cell that is safe to choose, in two short sentences and in a badge."""

from math import expm1
from typing import Any

from harness.machine import many
from harness.snapshot.cells import RIGHT, WORSE, best, full, good, is_full, name, nearest, tells
from harness.snapshot.result import CELL

SAFE = (
    "by right answers it is not measurably worse than the full cache and "
    f"less than {100 * WORSE:g} percentage points below it"
)  # what a cell is chosen for
CHOICE, NO_CHOICE, CANNOT = "Smallest safe choice", "No safe choice", "these prompts cannot tell"
FEW = 20  # prompts; what is said of fewer begins with how many they are
BLIND = 0.1  # share of answers that could be lost unseen, from which on what is said of safety begins with that
BARELY = 0.05  # of a difference: an interval that ends nearer to 0 hangs on a prompt or two
MUCH = 0.4  # the same, from which on nothing should be chosen by them
PARTS = {25: "a quarter", 50: "half", 75: "three quarters"}  # of the bytes, in percent

ALIKE = ("prune", "quantize", "budget", "cache")  # a cell, however it was asked

Row = dict[str, Any]


def conclusion(rows: list[Row]) -> str:
    """The smallest safe cell and what so many prompts may have missed; where there is none, what comes nearest. Where
    something else is to be said against that cell, or it was asked otherwise too, a sentence each."""
    right = [r for r in rows if r["measure"] == RIGHT]
    whole, winner = full(rows), best(right)
    if not tells(rows):
        told = _cannot(whole)
        return f"{told[0].upper()}{told[1:]}"
    several = len({r["asked"] for r in right}) > 1
    when = f" where the question is asked {whole['asked']} pruning" * several
    if winner is None:
        near = nearest(right)
        return " ".join([_none(near, whole, when), *_otherwise(right, near)])
    lost = _less_likely(rows, winner)
    head = f"{_by(winner['n'], CHOICE)}{' by right answers' * bool(lost)}{when}"
    head += reach([winner]) * (winner["n"] >= FEW)
    share = _share(winner["kv_bytes"] / whole["kv_bytes"])
    said = [
        f"{head}: {name(winner)} ({_beside(winner, whole)}, {share} of the bytes).",
        _missed(winner),
        lost,
    ]
    return " ".join(filter(None, [*said, *_otherwise(right, winner)]))


def pills(rows: list[Row]) -> list[dict[str, str]]:
    """What stands above the page, as `html.page` has it: the cell to choose, or that there is none; nothing where
    there was none to choose from."""
    winner = best(rows)
    if winner and blind(winner):
        said = f"{name(winner)}: {hits(winner)} of {winner['n']} right"
        return [{"text": said, "kind": "fair", "sign": "?"}]
    if winner:
        said = f"{name(winner)}: {100 * winner['value']:.3g}% right"
        return [{"text": said, "kind": "good", "sign": "\u2713"}]
    if not tells(rows):
        return [{"text": CANNOT, "kind": "soft", "sign": "?"}]
    others = any(not is_full(row) for row in rows)
    return [{"text": NO_CHOICE.lower(), "kind": "fair", "sign": "\u2013"}] * others


def hits(row: Row) -> int:
    """How many prompts were answered right."""
    return round(row["value"] * row["n"])


def blind(winner: Row) -> bool:
    """Whether so few prompts were asked that a cell which lost much could look like this one."""
    return bool(winner["delta_low"] <= -BLIND)


def reach(winners: list[Row]) -> str:
    """`, as far as 8 prompts can tell`: how far that goes which is said of the cells that were chosen; empty where so
    many were asked that no large loss can hide."""
    asked = sorted({row["n"] for row in filter(blind, winners)})
    if not asked:
        return ""
    few = f"{asked[0]} to " * (len(asked) > 1)
    return f", as far as {few}{many(asked[-1], 'prompt')} can tell"


def _otherwise(right: list[Row], chosen: Row | None) -> list[str]:
    """What comes of it where the question was asked otherwise, a sentence for each: what the cell `chosen` has there,
    and which is safe there where that one is not; where nothing was safe to choose, what is, or comes nearest, there."""
    said: list[str] = []
    if not chosen:
        return said
    for asked in dict.fromkeys(row["asked"] for row in right):
        there = [row for row in right if row["asked"] == asked]
        alike = [row for row in there if _same(row, chosen, ALIKE)]
        if asked == chosen["asked"] or not alike:
            continue
        if not tells(there):
            said.append(f"Asked {asked} pruning, {_cannot(full(there))}")
            continue
        safe = best(there)
        if best(right):
            told = f"it has {_told(alike[0], there)}"
            if not good(alike[0]):
                told += (
                    f"; safe there: {name(safe)} ({_told(safe, there)})"
                    if safe
                    else "; no cell is safe there"
                )
        elif safe:
            told = f"the {CHOICE.lower()} is {name(safe)} ({_told(safe, there)})"
        else:
            near = nearest(there) or alike[0]
            told = f"no cell is safe either, and the nearest is {name(near)} ({_told(near, there)})"
        said.append(f"Asked {asked} pruning, {told}.")
    return said


def _cannot(whole: Row) -> str:
    """That the full cache fails most of the prompts."""
    prompts = many(whole["n"], "prompt")
    return f"{CANNOT}: the full cache itself has {hits(whole)} of {prompts} right."


def _by(count: int, said: str) -> str:
    """What is said, behind how many prompts it rests on where those are few."""
    return f"By {many(count, 'prompt')}, {said[0].lower()}{said[1:]}" if count < FEW else said


def _told(row: Row, there: list[Row]) -> str:
    """`_beside`, of the full cache that was asked the same in the same cache."""
    return _beside(row, next(r for r in there if is_full(r) and r["cache"] == row["cache"]))


def _none(near: Row | None, whole: Row, when: str) -> str:
    """That no cell is safe, and which comes nearest: the most right answers, of as many the fewest bytes."""
    said = f"{hits(whole)} of {whole['n']} right"
    if not near:
        return f"The full cache{when}: {said}. Nothing smaller was tried."
    beside = f"The nearest is {name(near)}: {hits(near)} of {near['n']} right."
    if not near["value"]:
        beside = "No other cell has one right."
    return f"{_by(whole['n'], NO_CHOICE)}{when}: the full cache has {said}, and no other cell keeps that. {beside}"


def _beside(row: Row, whole: Row) -> str:
    """How many answers of a cell are right, and of the full cache where that is not all there are."""
    said = f"{hits(row)} of {row['n']} right"
    if hits(row) == hits(whole):
        return said + ", as with the full cache" * (hits(row) < row["n"])
    return f"{said}, {hits(whole)} with the full cache"


def _missed(winner: Row) -> str:
    """The largest loss that the interval of the paired difference leaves room for, in a sentence."""
    prompts = many(winner["n"], "prompt")
    if winner["delta_low"] >= 0:
        return f"No loss shows in {prompts}."
    who, few = "They" if blind(winner) else prompts, winner["delta_low"] <= -MUCH
    said = f"{who} could miss a loss of up to {-100 * winner['delta_low']:.0f} points"
    return f"{said}{': too few to choose by' * few}."


def _less_likely(rows: list[Row], winner: Row) -> str:
    """That the expected text itself is less likely with the cell, as far as the interval tells; empty where that
    holds 0. An end of it that is next to nothing is what few prompts leave: it is no measure."""
    likely = [r for r in rows if r["measure"] == "nll" and _same(r, winner, CELL)]
    likely = [r for r in likely if (r["delta_low"] or 0) > 0]
    if not likely:
        return ""
    row = max(likely, key=lambda r: r["delta"])
    lost, least = row["delta"], row["delta_low"]
    more = f"{lost:.2g} nats a token, {float(f'{100 * expm1(lost):.2g}'):g}% of perplexity"
    if least < BARELY * lost:
        return f"On average the expected text is less likely with it ({more}), though barely told from 0 ({least:.1g} at the least)."
    return f"The expected text is measurably less likely with it ({more})."


def _share(part: float) -> str:
    return PARTS.get(round(100 * part), f"{part:.0%}")


def _same(one: Row, other: Row, keys: tuple[str, ...]) -> bool:
    return all(one[key] == other[key] for key in keys)
