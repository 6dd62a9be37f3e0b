"""What is told of the parts of a run that have runs of their own below it: cells, faults, claims."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.snapshot.cells import RIGHT, best, name, nearest
from harness.snapshot.objective import shown
from harness.snapshot.result import ROWS

SAID = {
    "contains": "{} of the answers right", "exact": "{} to the letter",
    "nll": "{} nats per token of the expected text", "kl": "KL {} nats from the full cache",
    "divergence_step": "{} tokens said before one that the full cache does not say",
    "key_error": "keys off by {}", "value_error": "values off by {}", "perplexity": "perplexity {}",
    "kv_bytes": "{} of keys and values", "per_token": "{} ms per token",
}  # fmt: skip
NONE = "no safe choice"  # of an evaluation
SHARES = (RIGHT, "exact")  # told in percent
ENDS = (f"{RIGHT}_low", f"{RIGHT}_high")  # of the 95% interval of that share
CALLED = {"evaluate": "cells"}  # by task; of others the parts are called as it is


def called(task: str) -> str:
    """What the parts of a task's run are called."""
    return CALLED.get(task, task)


def above(rows: list[dict[str, Any]]) -> list[tuple[str, float, int]]:
    """The metrics that a run has of those below it, `rows`: of the ones that are marked (the full cache, the best
    cell), each in a section of its own. Those of all would show the last one's as the run's."""
    marked = [row for row in rows if row.get("as")]
    told = [(row["as"], k, float(v)) for row in marked for k, v in row["metrics"].items()]
    return [(f"{section}/{key.rpartition('/')[2]}", value, 0) for section, key, value in told]


def parameters(row: dict[str, Any], above: dict[str, str]) -> dict[str, str]:
    """The parameters of a part: its own and, where it has any, those of the run `above` that hold for it too. A
    key of an option (`prune.window`) holds where the option does."""
    own: dict[str, str] = row.get("params") or {}
    other = {key for key, value in own.items() if above.get(key) != value}
    same = {k: v for k, v in above.items() if k.partition(".")[0] not in other}
    chosen = {k: v for k, v in same.items() if not k.startswith("task.")}  # lists of all parts
    return chosen | own if own else {}


def interval(figures: dict[str, Any]) -> str:
    """The 95% interval of the share of right answers among a cell's metrics: `68-100%`; `-` where there is none."""
    low, high = (figures.get(f"answers/{end}") for end in ENDS)
    return "-" if low is None or high is None else f"{100 * low:.0f}-{100 * high:.0f}%"


def right(*shares: float) -> str:
    """A share of right answers, or the least and the most of several: `100% right`, `25% to 100% right`."""
    return f"{' to '.join(dict.fromkeys(map(_percent, shares)))} right"


def contained(*shares: float) -> str:
    """The same as older versions said it: `contains 0.25 to 1`."""
    return f"{RIGHT} {' to '.join(dict.fromkeys(shown(RIGHT, share) for share in shares))}"


def told(row: dict[str, Any], tail: str = "", say: Callable[..., str] = right) -> dict[str, str]:
    """The tags that say what a part came to: the share of right answers of a cell, of a fault and of a claim the
    word that its name ends with; all its figures in a sentence, which is its description too, of a claim with what is
    claimed. tail: the end of that. say: `contained` for the words of older versions."""
    figures = {key.rpartition("/")[2]: value for key, value in row["metrics"].items()}
    figures = {key: value for key, value in figures.items() if key not in ENDS}
    share = figures.get(RIGHT)
    word = row["name"].partition(": ")[2] if share is None else say(share)
    if not word:
        return {}
    told = [_said(key, value, say is right) for key, value in figures.items()]
    said = row["tags"].get("says") or ", ".join(filter(None, told)) or word
    claimed = [f"The claim: {claim}" for claim in [row["tags"].get("claimed")] if claim]
    note = "\n\n".join(filter(None, (f"**{word}**: {said}", *claimed, tail)))
    return {"outcome": word, "conclusion": said, "mlflow.note.content": note}


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _said(key: str, value: float | None, percent: bool) -> str:
    """A figure in words with its unit, a share in `percent`; nothing of one that was not measured."""
    if value is None or value != value:
        return ""
    if percent and key in SHARES:
        return SAID[key].format(_percent(value))
    if key.startswith("per_token"):
        value *= 1000
    return SAID.get(key, f"{key.replace('_', ' ')} {{}}").format(shown(key, value))


def answered(folder: Path, say: Callable[..., str] = right) -> str:
    """What an evaluation came to, in a few words: its best cell and the share of right answers of that; where none is
    safe, that and the most of them; without a cell to choose from `ranged`. say: as of `told`."""
    try:
        rows = json.loads((folder / ROWS).read_text("utf-8"))
        winner, near = best(rows), nearest(rows)
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return ranged(folder, say)
    if winner:
        return f"{name(winner)}: {say(winner['value'])}"
    return f"{NONE}, {say(near['value'])} at most" if near else ranged(folder, say)


def ranged(folder: Path, say: Callable[..., str] = right) -> str:
    """The share of right answers of an evaluation, the least and the most of its cells; empty of a run that asked
    nothing. say: as of `told`."""
    try:
        rows = json.loads((folder / ROWS).read_text("utf-8"))
        shares = sorted({float(row["value"]) for row in rows if row["measure"] == RIGHT})
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return say(*shares[:1], *shares[-1:]) if shares else ""
