"""What the best point of a sweep costs otherwise: its figures beside those of the others, as measured."""

from pathlib import Path
from typing import Any

from harness import machine
from harness.report.names import folder as called
from harness.report.picture import plots
from harness.report.sweep import pruned, texts
from harness.report.sweep.baseline import REDUCERS
from harness.report.sweep.choice import stored
from harness.report.sweep.variation import asks, group, is_seed
from harness.report.sweep.verdicts import STOPPED
from harness.snapshot.result import GOOD, MOMENT

LESS = 0.95  # of another's bytes: more of them is as much
FEW = 8  # texts are too few to tell of others
WORTH = 1.5  # times another's time: less, of something timed once, is noise
TIMES = {"load_s": "loading it takes", "per_token_s": "each further token takes"}  # fmt: skip

Row = dict[str, Any]


def sentence(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """What the one best point has of the largest one's bytes, and each time of it that another point's, asked the
    same, is clearly below; empty where there is not one such point, or nothing of it was measured."""
    if len(winners) != 1:
        return ""
    (best,) = winners
    others = [
        row
        for row in _asked_alike(best, axes, rows)
        if row is not best and row["verdict"] not in STOPPED
    ]
    said = []
    known = [row for row in others if row.get("stored_bytes")]
    largest = max(known, key=stored, default=best)
    if best.get("stored_bytes") and stored(best) < LESS * stored(largest):
        part = stored(best) / stored(largest)
        where = " on disk" * ("memory" not in {best.get("save"), largest.get("save")})
        past = _past(best, largest, part)
        said.append(f"{part:.0%} of the bytes{where} of {_named(largest, axes)}, the largest{past}")
    for key, words in TIMES.items():
        timed = [row for row in others if row.get(key)]
        least = min(timed, key=lambda row: row[key], default=None)
        mine = best.get(key)
        if least and mine and mine > max(WORTH * least[key], least[key] + MOMENT):
            there = _named(least, axes)
            said.append(f"{words} {mine / least[key]:.1f} times as long as in {there}, the fastest")
    timed_once = " (timed once)" * any("times as long" in part for part in said)
    return f"What the point chosen costs: {'; '.join(said)}{timed_once}." if said else ""


def _past(best: Row, largest: Row, part: float) -> str:
    """What it has of the keys and values alone, where that is another share: on disk stand tokenizer and documents too."""
    own, whole = best.get("kv_bytes"), largest.get("kv_bytes")
    share = f"{own / whole:.0%}" if own and whole else ""
    return f" ({share} of its keys and values)" if share and share != f"{part:.0%}" else ""


def smaller(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """Which point gives the right answer in clearly fewer bytes than the one that is chosen, which keeps the tokens
    beside it; empty where none does, or no answer was expected."""
    if (
        len(winners) != 1
        or winners[0].get("answer") != "right"
        or not winners[0].get("stored_bytes")
    ):
        return ""
    (best,) = winners
    right = [
        row
        for row in _asked_alike(best, axes, rows)
        if row.get("answer") == "right" and row.get("stored_bytes")
    ]
    right = [row for row in right if row["verdict"] == "diverged" and not int(row["exit_code"])]
    least = min(right, key=stored, default=best)
    if stored(least) >= LESS * stored(best):
        return ""
    share = stored(least) / stored(best)
    return f"With other tokens the right answer comes also in {share:.0%} of these bytes: {_named(least, axes)}."


def required(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """The smallest of the points that are as required, where the nearest of those that were tried beside it is not;
    empty elsewhere."""
    questions = [axis for axis in axes if asks(axis)]
    short = winners and all(int(row.get("exit_code") or 0) for row in winners)
    kept = [
        r
        for r in rows
        if r.get("stored_bytes") and r["verdict"] in GOOD and not int(r["exit_code"])
    ]
    if not short or len(kept) < 2 or len(group(rows, questions)) > 1:
        return ""
    least = min(kept, key=stored)
    if stored(least) >= LESS * max(map(stored, kept)):
        return ""
    return (
        f"As required, and the smallest that is: {_named(least, axes)} ({stored(least):,} bytes)."
    )


def beside(folder: Path, winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """What the console says behind which point of the sweep in `folder` to choose."""
    told = [say(winners, axes, rows) for say in (required, smaller, caution)]
    lost = pruned.every(rows) and all(row["verdict"] == "diverged" for row in rows)
    return " ".join(filter(None, [texts.parted(folder, winners) if lost else "", *told]))


def _asked_alike(best: Row, axes: list[str], rows: list[Row]) -> list[Row]:
    """The points that were asked the same as `best`."""
    questions = [axis for axis in axes if asks(axis)]
    return group(rows, questions)[tuple(str(best[axis]) for axis in questions)]


def _named(row: Row, axes: list[str]) -> str:
    """A point by what varies; by its folder where nothing does."""
    return " ".join(f"{axis}={plots.short(row[axis])}" for axis in axes) or called(row["point"])


def caution(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """That points with other logits than the full cache's were asked one question, or few texts alone, where they were
    pruned or quantized otherwise; empty elsewhere. A seed that draws no prompt asks nothing else."""
    asked = [axis for axis in axes if asks(axis) and not _drawn(axis)]
    less = {axis.partition(".")[0] for axis in axes} & {*REDUCERS}
    other = winners and all(row["verdict"] in ("drifted", "diverged") for row in winners)
    texts = len({tuple(str(row.get(axis)) for axis in asked) for row in rows})
    if not all(map(_reads, asked)) or texts > FEW or not less or not other:
        return ""
    what = "policy" if "prune" in less else "quantizer"
    steps = {int(row.get("steps") or 0) for row in rows}
    over = f" over {machine.many(max(steps), 'step')}" if len(steps) == 1 and any(steps) else ""
    who = "One prompt{} says" if texts == 1 else f"{texts} prompts{{}} say"
    return f"{who.format(over)} how these runs compare, not which {what} is better in general: for that, task=evaluate."


def _drawn(axis: str) -> bool:
    """Whether an option draws tokens, those that are said or those that are kept, and no other text."""
    return is_seed(axis) and not _reads(axis)


def _reads(axis: str) -> bool:
    """Whether an option says what is read."""
    return axis == "text" or axis.partition(".")[0] == "prompt"
