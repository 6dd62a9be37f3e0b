"""The page of `task=loop`: whether the budget held and the past was left alone, then the steps as a picture."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import machine
from harness.present.messages import worded
from harness.report.html import section
from harness.report.picture import plots

TRACE = "trace.json"
GOOD = "\u2713"
ROOM = 1.06  # above the highest line of a picture

Row = dict[str, Any]


def trace(folder: Path) -> list[Row]:
    """The steps of the loop that ran in `folder`; none where they are not there."""
    with suppress(OSError, ValueError):
        return json.loads((folder / TRACE).read_text("utf-8"))
    return []


def pills(result: Row, steps: list[Row]) -> list[dict[str, str]]:
    """What such a run came to, as `html.page` has them: the budget, and the past."""
    loop, most = result["loop"], _most(result, steps)
    changed = bool(result["mutation"]["mutated"])
    past = "past written into" if changed else "past only read"
    told = [{"text": past, "kind": "bad" if changed else "good", "sign": "\u00d7" if changed else GOOD}]  # fmt: skip
    if loop["budget"] is None:
        return told
    held = most <= loop["budget"]
    words = "budget held" if held else "more than the budget between two prunings"
    return [{"text": words, "kind": "good" if held else "soft", "sign": GOOD * held}, *told]


def sentence(result: Row, steps: list[Row]) -> str:
    """What the loop did, in one line, and below it why nobody judged what it said."""
    loop, size = result["loop"], result["size"]
    tokens, most = size["tokens"], _most(result, steps)
    ran = f"{machine.many(loop['steps'], 'step')} of one token{' each' * (loop['steps'] > 1)}"
    ran += ", up to its own end" * bool(loop["ended"])
    kept = f"at most {most:,} of {tokens:,} tokens held" if loop["budget"] else f"all {tokens:,} tokens held"  # fmt: skip
    budget = f" (budget {loop['budget']:,})" if loop["budget"] else ""
    changed = loop.get("mutated_steps") or 0
    past = f"the past was written into in {machine.many(changed, 'step')}" if changed else "no step wrote into the past"  # fmt: skip
    return f"{ran}: {kept}{budget}, {past}.\nNot judged: {worded(result['reason'])}."


def sections(result: Row, steps: list[Row]) -> list[Row]:
    """One block with what was held after each step and how sure each token was; none without the steps."""
    if not steps:
        return []
    told = "Held: tokens of a layer after each step; dotted: all that were read, which a cache without pruning "
    told += "holds. Probability: that which the model gave to the token that was chosen."
    return [section("Step by step", text=told, panels=[_held(result, steps), _sure(steps)])]


def _most(result: Row, steps: list[Row]) -> int:
    return max([result["size"]["kept_tokens"], *(row["kept"] for row in steps)])


def _held(result: Row, steps: list[Row]) -> str:
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    places = [row["step"] for row in steps]
    last = result["size"]["tokens"]
    alone = "o" if len(steps) < 2 else ""
    axis.plot(
        places, [row["kept"] for row in steps], color=plots.COLOURS[0], linewidth=2, marker=alone
    )
    every = [last - len(steps) + place for place in range(1, len(steps) + 1)]
    axis.plot(places, every, ":", color=plots.INK, linewidth=1.4)
    axis.set_ylim(0, ROOM * max(last, *(row["kept"] for row in steps)))
    plots.whole(axis.xaxis)
    plots.whole(axis.yaxis)
    plots.label(axis, "Held after each step", "step", "tokens")
    return plots.svg(made)


def _sure(steps: list[Row]) -> str:
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    axis.plot([row["step"] for row in steps], [row["probability"] for row in steps], color=plots.COLOURS[1],
              marker="o" if len(steps) < 2 else "", linewidth=1.4)  # fmt: skip
    axis.set_ylim(0, 1.03)
    axis.yaxis.set_major_formatter(plots.percent)
    plots.whole(axis.xaxis)
    plots.label(axis, "Probability of the chosen token", "step", "%")
    return plots.svg(made)
