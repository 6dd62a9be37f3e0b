"""What a figure is called on a page: the record's keys in a person's words."""

import textwrap
from typing import Any

from harness.snapshot.result import GOOD
from harness.snapshot.words import altered

NAMES = {
    "bitwise_equal": "bit-equal logits",
    "max_abs_diff": "largest difference of a logit",
    "mean_abs_diff": "mean difference of a logit",
    "max_ulp": "largest difference in units in the last place",
    "kl_mean": "KL divergence per step, mean (nats)",
    "kl_max": "KL divergence per step, largest (nats)",
    "top1_agreement": "share of steps with the same most likely token",
    "top5_overlap": "share of the five most likely tokens in common",
    "first_divergence": "first step with another most likely token",
    "same_draws": "share of draws that are the same token",
    "first_other_draw": "first step that draws another token, counted from 1",
    "nll_delta": "change of the tokens' negative log likelihood (nats)",
    "restored": "largest error of the restored run",
    "plain": "largest error of the plain path (the model run without a cache)",
    "ratio": "times the plain path's error against float64 (2 is allowed)",
    "restored_mean": "mean error of the restored run",
    "plain_mean": "mean error of the plain path",
    "mutated": "the cache that it went on from was written into",
    "length_before": "its length before, in positions",
    "length_after": "its length after, in positions",
    "digest_before": "its digest before",
    "digest_after": "its digest after",
    "bytes_copied_per_token": "bytes copied per token",
    "tokens": "tokens read",
    "kept_tokens": "tokens kept",
    "kv_bytes": "bytes of keys and values",
    "stored_bytes": "bytes on disk",
    "load_model": "load the model",
    "prefill": "prefill",
    "prune": "prune",
    "save": "save",
    "load": "load, every byte checked",
    "verify": "verify that it fits what is loaded",
    "restore": "restore into a cache",
    "first_token": "first token",
    "per_token": "each further token",
    "recompute": "recompute the past instead, a second prefill",
    "back": "bring it back: load + verify + restore",
    "prefilled": "recompute: one prefill of the same tokens",
    "error_ratio": "error over rounding's own",
    "save_s": "seconds to save",
    "load_s": "seconds to load",
    "per_token_s": "seconds per token",
    "ratio_to_dynamic": "times as fast as dynamic",
    "times_limit": "times the limit",
    "open_s": "seconds to open",
    "reused_tokens": "tokens reused",
    "prompt_tokens": "tokens of the prompt",
    "noise_floor": "noise floor",
    "oracle_error": "error against float64",
    "plain_error": "the same of the plain path",
    "first_beyond": "first step beyond",
    "bad": "runs beyond",
    "answer": "answer",
    "point": "folder",
    "cached_growth": "median time per turn, last quarter over first (turn 1 left out), cached",
    "naive_growth": "median time per turn, last quarter over first (turn 1 left out), naive",
    "recalled": "answers that were right",
    "recall_questions": "answers that were expected",
    "mismatches": "turns that the template wrote in other tokens",
    "total_turns": "turns in all",
    "without_text": "tokens said that have no text in this tokenizer",
    "evaluate.contains": "share of right answers",
    "evaluate.exact": "share of exact answers",
    "evaluate.kv_bytes": "bytes of keys and values held",
    "evaluate.nll": "nats per token of the expected answer",
    "evaluate.kl": "KL divergence from the full cache (nats)",
    "evaluate.divergence_step": "tokens said before the first other one",
    "evaluate.per_token_s": "seconds per token",
}
FLOOR = "how far two right ways to compute the same thing differ"


def folder(point: object) -> str:
    """A sweep's point as people are told of it: by its folder, whose name Hydra counts from 0."""
    return f".../{point}"


def plain(key: str) -> str:
    """The name of a figure, or the key with its underscores gone; `size.kv_bytes` is its last part."""
    return NAMES.get(key) or NAMES.get(key.rpartition(".")[2]) or key.replace("_", " ")


def in_brief(reason: object, width: int = 300) -> str:
    """A reason of several lines, some of them a list, in one; cut between words where it is longer."""
    said = ""
    for line in filter(None, map(str.strip, str(reason or "").splitlines())):
        listed = line.startswith("- ")
        mark = "" if not said or said[-1] in ":.;!?" else ";" if listed else "."
        said += f"{mark} {line.removeprefix('- ')}"
    return textwrap.shorten(said, width, placeholder=" ...", break_on_hyphens=False)


def judged_by(result: dict[str, Any]) -> str:
    """The figure that a verdict rests on beside what it is held to; empty where there was no float64 run, and of what
    is pruned on purpose, which rounding does not judge."""
    oracle = result.get("oracle") or {}
    free = result.get("pruned") and result.get("required") not in GOOD
    if oracle.get("restored") is None or free:
        return ""
    own, path = (f"{oracle[key]:.3g}" for key in ("restored", "plain"))
    return f"error against float64 {own}; the plain path (the model run without a cache) has {path}, and twice that is allowed (the noise floor is no limit)"


def beside(result: dict[str, Any]) -> str:
    """Which two runs the figures are of, as a heading."""
    own = altered(result)
    return f"{own.capitalize()} against the full cache" if own else "Restored against uninterrupted"


def itself_as(block: dict[str, Any]) -> str:
    """Which state the other cache continued."""
    return "the state before it was saved," if block.get("against") == "saved" else "the same state"
