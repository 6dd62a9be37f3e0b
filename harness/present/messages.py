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
OPTIONAL = ("where", "when")  # arguments without which a sentence is whole

_PAST = "what it goes on from is not what its ids give: "
_NEXT = "what would be stored next is not right: "

REASONS: dict[str, str] = {
    "bit_equal": "logits are bit-equal to {against}",
    "oracle_error": "error against float64 {restored:.3g}, plain path {plain:.3g}",
    "noise_gap": "largest difference {gap:.3g}, noise floor {floor:.3g}",
    "stored_logits": "the stored logits are off by {off:.3g}, rounding explains {bound:.3g}",
    "same_tokens": "{why}; every {how} token is the same",
    "other_token": "at step {step} another token is {how}; {why}",
    "other_first_token": "from the stored logits another token is {how}; {why}",
    "other_generated": "of what was generated, at step {step} another token is {how}; {why}",
    "not_finite_logits": "the restored path produced logits that are not finite",
    "waived": "restored with {count} waived, the first: {first}",
    "unsound_path": "{path} is off by {error:.3g} from the same model without a cache, rounding explains {bound:.3g}: "
    "what would be compared with is itself wrong",
    "unsound_numbers": "{path} or the same model without a cache gives logits that are not numbers, or larger than the "
    "dtype holds: there is nothing to compare with",
    # checks
    "unsound": "{path} is off by {error:.3g} from the model without a cache, rounding explains {bound:.3g}",
    "function": "the cache computes another function: in {dtype} its logits are off by {off:.3g}, rounding explains {bound:.3g}",
    "several": "fed several tokens at once, the cache computes another function: off by {off:.3g}, rounding explains {bound:.3g}",
    "crop": "after a crop the cache computes another function: off by {off:.3g}, rounding explains {bound:.3g}",
    "crop_raises": "after a crop the cache fails ({why})",
    "row": _PAST + "the {part} of token {token} in layer {layer}, head {head} is {off:.3g} noise floors off, {bound:g} allowed",
    "foreign": _PAST + "the {part} of token {token} in layer {layer}, head {head} is no nearer to its own token than to others",
    "head": _PAST + "{evidence}",
    "state": _PAST + "the {part} of layer {layer} is {off:.3g} noise floors off, {bound:g} allowed",
    "not_finite": _PAST + "the {part} of layer {layer} is not finite",
    "missing": _PAST + "layer {layer} lacks {part}",
    "coarse": _PAST + "the {part} of token {token} in layer {layer}, head {head} is {off:.3g} noise floors off, near to its "
    "own token, {bound:g} allowed",
    "rewritten": "what it hands on is not what it went on from: layer {layer} holds another past",
    "next_row": _NEXT + "the {part} of token {token} in layer {layer}, head {head} is {off:.3g} noise floors off, {bound:g} allowed",
    "next_coarse": _NEXT + "the {part} of token {token} in layer {layer}, head {head} is {off:.3g} noise floors off, {bound:g} allowed",
    "next_state": _NEXT + "the {part} of layer {layer} is {off:.3g} noise floors off, {bound:g} allowed",
    "next_missing": _NEXT + "layer {layer} lacks {part}",
    "next_not_finite": _NEXT + "the {part} of layer {layer} is not finite",
    "refused": "the cache cannot be asked in float64 or float32 ({why})",
    "pruned_again": "what was read between two prunings cannot be computed again",
    "no_other_cache": "no other cache serves this state",
    # a state beside itself
    "itself_exact": "bit-equal to the {state} state{when} under cache={cache}",
    "itself_rounded": "as the {state} state{when} under cache={cache}, within rounding",
    "itself_off": "the {state} state itself is not continued by cache={by} as by cache={cache}: its logits are off by "
    "{off:.3g}, rounding explains {bound:.3g}",
    "itself_token": "the {state} state itself is not continued by cache={by}: step {step} chooses another token than "
    "with cache={cache}",
    "not_as_saved": "the {state} state did not come back as it was saved: {seen}; logits are off by {off:.3g}, rounding "
    "explains {bound:.3g}",
    # nothing judged
    "nothing": "nothing was judged",
    "saved": "saved: every byte was read back and matches its digest",
    "over_limit": "not compared: {tokens} tokens are more than the limit of {limit}",
    "over_budget": "not compared: judging would take about {takes_s:.4g} s, more than compare.budget_s={budget:g}; {ask} asks for it "
    "however long it takes",
    "loop_pruned": "a loop prunes as it goes, so there is no uninterrupted run to equal",
    "loop_plain": "a loop that drops nothing is the uninterrupted run; task=resume compares one",
    "chat": "{message}",
    "chat_typed": "{message}; what is typed is not judged (task=resume snapshot=DIR judges any of its turns)",
    "summary": "{message}",
    # no end
    **dict.fromkeys(
        (
            "harness_error", "config_problem", "input_problem", "unsupported_model", "misfit", "missing_extra",
            "too_long", "untrusted_plugin", "untrusted",
        ),
        "{message}",
    ),
    "unexpected": "unexpected {type}: {message}",
    "snapshot_invalid": "the snapshot{where} is not valid, nothing was restored from it: {faults}",
    "state_invalid": "the state cannot be saved{where}, nothing was written: {faults}",
    "restore_refused": "what was saved{where} is not what is loaded now: {differences}",
    "proof_failed": "what was saved{where} fails its proof: on this model its K/V do not reproduce its stored logits: "
    "{differences}",
    "waived_before": "what was saved{where} went on although differences were waived: {differences}",
}  # fmt: skip
TEMPLATES: dict[str, str] = {**NOTES, **REASONS}


def coded() -> bool:
    """Whether codes are asked for in place of sentences."""
    return os.environ.get("HARNESS_MESSAGES") == CODES


def message(
    code: str, args: Mapping[str, Any] | None = None, table: Mapping[str, str] | None = None
) -> str:
    """The sentence of `code` with its `args`; the code and its arguments where those are asked for, or none is known."""
    return _codes(code, args or {}) if coded() else sentence(code, args, table)


def sentence(
    code: str, args: Mapping[str, Any] | None = None, table: Mapping[str, str] | None = None
) -> str:
    """The same whatever is asked for: for what a record keeps as a text."""
    given = {key: value for key, value in (args or {}).items() if value is not None}
    template = (TEMPLATES if table is None else table).get(code)
    return _codes(code, given) if template is None else template.format_map(_Shown(given))


def worded(reason: Any, plain: bool = False) -> str:
    """A `reason` of a record as a text; of a text itself. plain: a sentence whatever is asked for."""
    if not isinstance(reason, Mapping) or "code" not in reason:
        return str(reason or "")
    code, args = str(reason["code"]), dict(reason.get("args") or {})
    if coded() and not plain:
        return _codes(code, args)
    waived = args.pop("waived", None)
    said = sentence(code, args)
    return f"{said}; {worded(waived, True)}" if waived else said


def _codes(code: str, args: Mapping[str, Any]) -> str:
    given = ((key, value) for key, value in args.items() if value is not None)
    return " ".join([code, *(f"{key}={_argument(value)}" for key, value in given)])


def _argument(value: Any) -> str:
    """An argument beside its code; a reason among them in brackets."""
    nested = isinstance(value, Mapping) and "code" in value
    return f"({_codes(str(value['code']), value.get('args') or {})})" if nested else str(value)


class _Shown(dict[str, Any]):
    """Arguments as a person reads them: three digits of a float, a list with commas; a missing one is `?`."""

    def __getitem__(self, key: str) -> Any:
        return Word(super().get(key, "" if key in OPTIONAL else "?"))


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
        if isinstance(value, Mapping) and "code" in value:
            return sentence(str(value["code"]), value.get("args"))
        if isinstance(value, Mapping):
            return " ".join(f"{key}={Word(inner):}" for key, inner in value.items())
        if isinstance(value, list | tuple):
            return ", ".join(f"{Word(inner):}" for inner in value)
        return str(value)
