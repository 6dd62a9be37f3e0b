"""Every sentence that is shown: one place each, by the code of what happened. `HARNESS_MESSAGES=codes` shows the codes.

A template takes the arguments that travel with its code. Nothing but this room words a fact, and nothing reads a sentence.
"""

import os
from collections.abc import Mapping
from typing import Any

from harness.snapshot.words import NO_NEARER

CODES = "codes"

NOTES: dict[str, str] = {  # of a sweep: the kinds of `results.sweep.Note`
    "stopped": "{points} {verdict}: {reason}",
    "below_requirement": "{n} of {of} points are below what is required: {points}.",
    "no_answer_right": "No point gives the expected answer.",
    "damage": "Damaged on purpose: {of} points, {noticed} noticed.",
    "damage_missed": "Damaged on purpose: {of} points, {noticed} noticed; not noticed: {missed}.",
    "seed_inert": "The seed draws nothing with sampling=greedy.",
    "quantizer_idle": "quantize={quantizers} changed nothing: same figures as quantize=none.",
    "near_tie": "Equivalent but for a near tie, which rounding decides: {points}.",
    "all_mutate_cache": "No point is recommended: every one writes into the caller's cache.",
    "control_as_close": f"{NO_NEARER}: the control, prune=random, has {{nats}} nats.",
    "tied": "As good: {settings}.",
    "few_prompts": "This rests on {n} prompt(s): task=evaluate compares policies in general.",
    "limit_not_reached": "Every point is as good: the limit was not reached. Search {side} {option}={value:g}.",
}
SWEEP: dict[str, str] = {  # the lines of a sweep that are no notes
    "counts": "{points} over {axes}: {counts}.",
    "counts_alone": "{points}: {counts}.",
    "incomplete": "Stopped after {done} of {asked} points.",
    "best": "Best: {setting} ({figures}).",
    "nearest": "Nearest to the full cache: {setting} ({figures}).",
    "nearest_below": "None is as required; nearest to the full cache: {setting} ({figures}).",
    "best_cell": "Smallest safe cell: {cell} with {setting} ({figures}).",
    "nearest_cell": "No safe cell; nearest: {cell} with {setting} ({figures}).",
    "cell_in_each": "Smallest safe cell: {cell} in each of {n} points.",
    "no_cell": "No cell is recommended for all points; `answers.csv` has the cells of each.",
    "front": "{n} of {of} points on the Pareto front.",
    "front_ends": "From {least} to {most}.",
    "baseline": "Baseline, the full cache: {setting}.",
    "exit_stopped": "{code}: {n} of {of} points came to no end",
    "exit_below": "{code}: {n} of {of} points are worse than required",
    "other_code": "{points} ran before the code changed; delete what is to run again, and resume",
    "not_uploaded": "{points}",
    "missing": "{n} of {of}",
}
RANKING = (
    "Ranked by: points below what is required, wrong answers, caller's cache untouched, on disk, worst verdict, median KL where "
    "tokens changed (5% ties), median bytes (0.1% ties). Never recommended: the full cache, prune=random, what writes into "
    "the caller's cache."
)
RANKING_CELLS = "Recommended: the smallest cell that is not measurably worse than the full cache, else the one with the most right answers."
RANKING_SEARCH = (
    "Recommended: the point of the Pareto front that is best by the first objective; divergences within 5% tie, then the next "
    "objective decides."
)
TEMPLATES: dict[str, str] = {}


def message(
    code: str, args: Mapping[str, Any] | None = None, table: Mapping[str, str] | None = None
) -> str:
    """The sentence of `code` with its `args`; the code and its arguments where those are asked for, or none is known."""
    given = {key: value for key, value in (args or {}).items() if value is not None}
    template = (TEMPLATES if table is None else table).get(code)
    if template is None or os.environ.get("HARNESS_MESSAGES") == CODES:
        return " ".join([code, *(f"{key}={value}" for key, value in given.items())])
    return template.format_map(_Shown(given))


class _Shown(dict[str, Any]):
    """Arguments as a person reads them: three digits of a float, a list with commas; a missing one is `?`."""

    def __getitem__(self, key: str) -> Any:
        return Word(super().get(key, "?"))


class Word:
    """One argument; a format of the template's own is applied where it is a number."""

    def __init__(self, value: Any):
        self.value = value

    def __format__(self, spec: str) -> str:
        value = self.value
        if isinstance(value, bool) or value is None:
            return {True: "yes", False: "no", None: "-"}[value]
        if isinstance(value, float):
            return format(value, spec or ".3g")
        if isinstance(value, int) and spec:
            return format(value, spec)
        if isinstance(value, Mapping):
            return " ".join(f"{key}={Word(inner):}" for key, inner in value.items())
        if isinstance(value, list | tuple):
            return ", ".join(f"{Word(inner):}" for inner in value)
        return str(value)
