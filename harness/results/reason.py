"""Why something came out as it did: a code and its arguments. `harness/present/messages.py` has a sentence for each."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

Reason = dict[str, Any]


class Code(StrEnum):
    """Every code of a `reason` in `result.json`."""

    # a comparison of logits
    BIT_EQUAL = "bit_equal"
    ORACLE_ERROR = "oracle_error"
    NOISE_GAP = "noise_gap"
    STORED_LOGITS = "stored_logits"
    SAME_TOKENS = "same_tokens"
    OTHER_TOKEN = "other_token"
    OTHER_FIRST_TOKEN = "other_first_token"
    OTHER_GENERATED = "other_generated"
    NOT_FINITE_LOGITS = "not_finite_logits"
    WAIVED = "waived"
    UNSOUND_PATH = "unsound_path"
    UNSOUND_NUMBERS = "unsound_numbers"
    # a check behind it: what it found, or why it was not asked
    UNSOUND = "unsound"
    FUNCTION = "function"
    SEVERAL = "several"
    CROP = "crop"
    CROP_RAISES = "crop_raises"
    ROW = "row"
    FOREIGN = "foreign"
    HEAD = "head"
    STATE = "state"
    NOT_FINITE = "not_finite"
    MISSING = "missing"
    COARSE = "coarse"
    REWRITTEN = "rewritten"
    NEXT_ROW = "next_row"
    NEXT_COARSE = "next_coarse"
    NEXT_STATE = "next_state"
    NEXT_MISSING = "next_missing"
    NEXT_NOT_FINITE = "next_not_finite"
    REFUSED = "refused"
    PRUNED_AGAIN = "pruned_again"
    NO_OTHER_CACHE = "no_other_cache"
    # a pruned or quantized state beside itself
    ITSELF_EXACT = "itself_exact"
    ITSELF_ROUNDED = "itself_rounded"
    ITSELF_OFF = "itself_off"
    ITSELF_TOKEN = "itself_token"
    NOT_AS_SAVED = "not_as_saved"
    # nothing was judged
    NOTHING = "nothing"
    SAVED = "saved"
    OVER_LIMIT = "over_limit"
    OVER_BUDGET = "over_budget"
    LOOP_PRUNED = "loop_pruned"
    LOOP_PLAIN = "loop_plain"
    CHAT = "chat"
    CHAT_TYPED = "chat_typed"
    SUMMARY = "summary"  # of a table; args: message
    # no end: by the class of what was raised
    HARNESS_ERROR = "harness_error"
    CONFIG_PROBLEM = "config_problem"
    INPUT_PROBLEM = "input_problem"
    UNSUPPORTED_MODEL = "unsupported_model"
    MISFIT = "misfit"
    MISSING_EXTRA = "missing_extra"
    TOO_LONG = "too_long"
    UNTRUSTED_PLUGIN = "untrusted_plugin"
    UNTRUSTED = "untrusted"
    SNAPSHOT_INVALID = "snapshot_invalid"
    STATE_INVALID = "state_invalid"
    RESTORE_REFUSED = "restore_refused"
    PROOF_FAILED = "proof_failed"
    WAIVED_BEFORE = "waived_before"
    UNEXPECTED = "unexpected"


def reason(code: str, **args: Any) -> Reason:
    """JSON-able; arguments that are None are left out. Raises ValueError for a code that is none of `Code`."""
    given = {key: value for key, value in args.items() if value is not None}
    return {"code": str(Code(code)), "args": given}


def of(value: Any) -> Reason:
    """`value` where it is a reason; a text as the summary that it is."""
    if isinstance(value, Mapping):
        return dict(value)
    return reason(Code.SUMMARY, message=str(value)) if value else reason(Code.NOTHING)


def code_of(value: Any) -> str:
    """The code of a reason; empty of anything else."""
    return str(value.get("code") or "") if isinstance(value, Mapping) else ""


def args_of(value: Any) -> Mapping[str, Any]:
    """Its arguments; none of anything else."""
    args = value.get("args") if isinstance(value, Mapping) else None
    return args if isinstance(args, Mapping) else {}


def find(value: Any, *codes: str) -> Reason | None:
    """The reason with one of `codes`: `value` itself, or one among its arguments."""
    if code_of(value) in codes:
        return dict(value)
    inner = (find(arg, *codes) for arg in args_of(value).values())
    return next((found for found in inner if found), None)
