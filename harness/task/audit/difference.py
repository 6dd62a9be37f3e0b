"""Does a second run say what the record says? Bitwise where the environment is the same, otherwise
within the noise floor that the audit measures."""

from collections.abc import Iterator, Mapping
from math import sqrt
from pathlib import Path
from typing import Any

from harness.report.audit import figures
from harness.snapshot.record import flat, value_at
from harness.snapshot.result import GOOD
from harness.task.audit import derivation, other_model, refusal, tolerance
from harness.task.audit.finding import Finding

# whatever may change the last bit; the rest of `environment` is reported, not decisive
DECISIVE = ("platform", "cpu", "cpu_capability", "gpu", "cuda", "device", "dtype", "threads",
            "attention_implementation", "deterministic", "matmul_precision")  # fmt: skip
DECISIVE_VERSIONS = ("torch", "transformers", "tokenizers", "numpy", "safetensors")
FROM_CONFIG = ("seed", "sampling_seed", "model_seed", "dtype", "attention_implementation")
EXACT = {"size": ("tokens", "kept_tokens", "kv_bytes"), "mutation": ("mutated", "length_before",
         "length_after", "bytes_copied_per_token"), "text": ("token_ids", "restored_ids", "prompt"),
         "model": ("name", "revision", "commit")}  # fmt: skip
# words and choices that follow from the run; a record from before there were such claims nothing
SAID = ("schema", "against", "pruned", "sampler", "text.continuation", "text.restored", "text.account", "text.placed", "text.ended",
        "text.added", "text.streamed", "text.steps", "text.read", "text.apart", "text.apart_ids", "text.pieces", "text.branches", "text.expected", "text.continuation_right", "text.restored_right",
        "model.option", "snapshot.format", "snapshot.format_version", "quantization.quantizer", "pruned_from",
        "loop.first_step", "loop.steps", "loop.ended", "loop.budget", "loop.mutated_steps", "chat.turns",
        "chat.recalled", "chat.recall_questions", "chat.mismatches")  # fmt: skip
# where the bits are the same, every leaf but these, which are judged elsewhere, are a place, or are measured
APART = ("environment", "time_s", "metrics", "elements", "options", "waived", "verdict", "required", "task", "curves",
         "conclusion", "folder", "snapshot", "evaluation.resumed", *SAID)  # fmt: skip
MEASURED = ("_s", "_s_per_token", "seconds", "_growth", "time_ratio", "resident_bytes")
ROUNDED = ("kv_cache", "positions", "logits")  # compared number by number in `rounding`
MORE = "more than rounding explains"  # of numbers
FACTOR = 2.0
FORMLESS = (AttributeError, TypeError, LookupError, ValueError, ArithmeticError, RuntimeError)
UNCONFIGURED = "the recorded configuration does not give what the result claims"
# what every run of these tasks that was judged has written since there are records
JUDGED = ("experiment", "resume")
BLOCKS = ("metrics", "noise_floor", "oracle", "soundness", "elements", "size", "time_s")
OWN = {"exit_code", "mlflow", "next"}  # what a record may say of itself


def changes(recorded: Mapping[str, Any], again: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is different about the two environments: `what`, `recorded`, `found`, `decisive`."""
    before, after = (dict(flat(e)) for e in (recorded, again))
    rows = []
    for key in dict.fromkeys([*before, *after]):
        was, now = before.get(key), after.get(key)
        if was != now and key not in ("command", "date"):
            decisive = key in DECISIVE or key in [f"versions.{v}" for v in DECISIVE_VERSIONS]
            rows.append({"what": key, "recorded": was, "found": now, "decisive": decisive})
    return rows


def since(recorded: Mapping[str, Any], again: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`changes` between the environments of two results; none where the second run does not say its own."""
    was, now = recorded.get("environment") or {}, again.get("environment") or {}
    return changes(was, now) if now else []


def formed(findings: Iterator[Finding]) -> Iterator[Finding]:
    """What a comparison finds; where it breaks off, since the record is not built as a run builds
    one, that is a difference too."""
    try:
        yield from findings
    except FORMLESS as problem:
        explanation = "the record does not have the form that every run gives it"
        broken = f"{type(problem).__name__}: {problem}"[:200]
        yield Finding("result.json", "the blocks that a run writes", broken, explanation)


def compare(
    recorded: Mapping[str, Any],
    again: Mapping[str, Any],
    changed: list[dict[str, Any]],
    salted: bool = False,
) -> Iterator[Finding]:
    """Everything in which the second run's result is not the recorded one.

    recorded, again: two `result.json`. changed: from `changes`; any decisive entry allows rounding.
    salted: the snapshots are encrypted, so equal contents have other ids.
    """
    reasons = [f"{c['what']} {c['recorded']} -> {c['found']}" for c in changed if c["decisive"]]
    same = not reasons
    why = (
        "nothing that decides the bits has changed, so the record does not say what the run said"
        if same
        else f"{MORE}; changed since: " + "; ".join(reasons)
    )
    if "options" not in again and recorded.get("verdict") == again.get("verdict") == "failed":
        if recorded.get("reason") != again.get("reason"):
            yield Finding("reason", recorded.get("reason"), again.get("reason"), why)
        return  # neither had a sound configuration: nothing ran
    if other := list(other_model.findings(recorded, again, same)):
        yield from other
        why = other_model.CONSEQUENCE
    words = why.replace(MORE, "the run says something else")
    was, now = recorded.get("verdict"), again.get("verdict")
    if was != now and not (not same and {was, now} <= set(GOOD)):
        yield Finding("verdict", was, now, words)
    for key in ("required", "task"):
        if recorded.get(key) != again.get(key):
            yield Finding(key, recorded.get(key), again.get(key), UNCONFIGURED)
    if (
        again.get("verdict") in ("failed", "refused")
        and recorded.get("verdict") != again["verdict"]
    ):
        yield Finding("run", "completed", again.get("reason"), "it cannot be run again as recorded")
        return
    for key in recorded.keys() - again.keys() - OWN:
        yield Finding(key, "a block", None, "a run of this configuration writes no such block")
    for key in BLOCKS if again.get("task") in JUDGED else ():
        if again.get(key) and not recorded.get(key):
            explanation = "every version writes this block, so it was taken out of the record"
            yield Finding(key, recorded.get(key), "a block", explanation)
    yield from _blocks(recorded, again, same, salted, why)
    judged = recorded.get("verdict") not in figures.CAME
    if figures.came(recorded) == "refused":
        yield from refusal.differences(recorded, again, changed, salted, why)
    for key in SAID if judged else ():
        was, now = value_at(recorded, key), value_at(again, key)
        if was != now and was is not None:
            number = isinstance(was, int | float) and not isinstance(was, bool)
            yield Finding(key, was, now, why if number else words)
    if judged:
        judged_here = {*APART, *OWN}
        if not same:
            judged_here |= {
                "itself",
                "reason",
                *(f"{b}.{k}" for b, keys in EXACT.items() for k in keys),
            }
        evaluated = again.get("task") == "evaluate"
        if evaluated and not same and recorded.get("verdict") == again.get("verdict"):
            judged_here |= {"reason", "evaluation.code"}  # follow from the record's own answers
        apart = tolerance.Apart(tuple(judged_here), MEASURED)
        yield from tolerance.leaves(recorded, again, apart, same, why)
    for own in (derivation.sentence, derivation.figures, derivation.machine):
        yield from own(recorded)
    yield from _metrics(recorded, again, same, why)
    yield from _itself(recorded, again, same, why)
    yield from _elements(recorded, again, changed, same, why)


def _blocks(recorded: Any, again: Any, same: bool, salted: bool, why: str) -> Iterator[Finding]:
    for block, keys in EXACT.items():
        was, now = recorded.get(block) or {}, again.get(block) or {}
        for key in keys:
            if was.get(key) != now.get(key):
                named = UNCONFIGURED if block == "model" else why
                yield Finding(f"{block}.{key}", was.get(key), now.get(key), named)
    was, now = recorded.get("environment") or {}, again.get("environment") or {}
    for key in FROM_CONFIG:
        if was.get(key) != now.get(key):
            yield Finding(f"environment.{key}", was.get(key), now.get(key), UNCONFIGURED)
    was, now = recorded.get("options") or {}, again.get("options") or {}
    for key in dict.fromkeys([*was, *now]):
        if key != "track" and was.get(key) != now.get(key):
            yield Finding(f"options.{key}", was.get(key), now.get(key), UNCONFIGURED)
    if (recorded.get("waived") or []) != (again.get("waived") or []):
        yield Finding("waived", recorded.get("waived"), again.get("waived"), why)
    if same:
        was, now = (r.get("snapshot", {}).get("id") for r in (recorded, again))
        if was != now and not salted:
            yield Finding("snapshot.id", was, now, why)
        was, now = ((r.get("next") or {}).get("digest") for r in (recorded, again))
        if was is not None and was != now:
            yield Finding("next.digest", was, now, why)
        if recorded.get("curves") != again.get("curves"):
            yield Finding("curves", "per-step values", "others", why)


def _metrics(recorded: Any, again: Any, same: bool, why: str) -> Iterator[Finding]:
    was, now = recorded.get("metrics") or {}, again.get("metrics") or {}
    # measured by the audit; a record's own could be made up
    floors = [again.get("noise_floor") or {}]
    for key in dict.fromkeys([*was, *now]):
        a, b = was.get(key), now.get(key)
        if a == b or (not same and explained(key, a, b, floors)):
            continue
        yield Finding(f"metrics.{key}", a, b, why)


def _itself(recorded: Any, again: Any, same: bool, why: str) -> Iterator[Finding]:
    """A pruned or a quantized state beside itself under another cache. The same bits repeat every leaf of
    it; elsewhere the figures are apart by the noise."""
    was, now = recorded.get("itself") or {}, again.get("itself") or {}
    if now and not was:
        yield Finding("itself", None, "a block", "every version writes it, so it was taken out")
    if same or not (was and now):
        return
    floors = [{**(again.get("noise_floor") or {}), "max_abs_diff": now.get("noise")}]
    for key in dict.fromkeys([*was, *now]):
        a, b = was.get(key), now.get(key)
        if a == b or key == "reason" or (key == "verdict" and {a, b} <= set(GOOD)):
            continue
        alike = tolerance.near(a, b) if key == "noise" else explained(key, a, b, floors)
        if not alike:
            yield Finding(f"itself.{key}", a, b, why)


# of a turn, beside its times; older chats have not the second
STORED = ("stored_bytes", "stored_whole")
# they follow from the ids, or from what is compared; older chats have none of them
LATER = ("without_text", "shown", "restored_verdict")


def turns(recorded: list[Any], again: list[Any]) -> Iterator[Finding]:
    """A chat's turns, but for their times: the words, the ids and what was checked of them."""
    recorded, again = ([_unplaced(turn) for turn in side] for side in (recorded, again))
    if len(recorded) != len(again):
        yield Finding("chat.json: turns", len(recorded), len(again), "turns are missing or added")
    for was, now in zip(recorded, again):
        for key in dict.fromkeys([*was, *now]):
            older = key in LATER and key not in was
            if (
                was.get(key) != now.get(key)
                and not older
                and not key.endswith((*MEASURED, *STORED))
            ):
                explanation = "the chat run again does not say this"
                what = f"chat.json: turn {was.get('turn')} {key}"
                yield Finding(what, was.get(key), now.get(key), explanation)


def _unplaced(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn with the name of its snapshot alone: where that was written is a place."""
    where = turn.get("snapshot")
    return {**turn, "snapshot": Path(where).name} if isinstance(where, str) else turn


def traces(recorded: list[Any], again: list[Any], elsewhere: bool) -> Iterator[Finding]:
    """A loop's steps: tokens, positions and what was culled; `elsewhere` the probabilities may round."""
    if len(recorded) != len(again):
        yield Finding("trace.json: steps", len(recorded), len(again), "steps are missing or added")
    for was, now in zip(recorded, again):
        for key in dict.fromkeys([*was, *now]):
            if was.get(key) != now.get(key) and not (elsewhere and key in ("probability", "top")):
                what = f"trace.json: step {was.get('step')} {key}"
                yield Finding(
                    what, was.get(key), now.get(key), "the loop run again does not say this"
                )


def explained(key: str, a: Any, b: Any, floors: list[dict[str, Any]]) -> bool:
    """Whether the noise floors measured in the audit allow metric `key` to be `a` here and `b` there.

    A logit error of e moves a KL divergence by at most e * |p - q| <= e * sqrt(2 KL) (Pinsker), on
    top of the noise's own KL.
    """
    if key == "bitwise_equal":
        return True  # the verdict says whether that matters
    if key == "first_divergence":
        return any(f.get(key) is not None for f in floors)
    if a is None or b is None or isinstance(a, str) or isinstance(b, str):
        return False
    return abs(a - b) <= allowance(key, a, b, floors)


def allowance(key: str, a: float, b: float, floors: list[dict[str, Any]]) -> float:
    """How far apart `explained` lets metric `key` be."""
    noise = max((abs(f.get(key) or 0.0) for f in floors), default=0.0)
    if key in ("top1_agreement", "top5_overlap"):
        return 1 - min(1.0 if (share := f.get(key)) is None else share for f in floors)
    if key in ("kl_mean", "kl_max", "nll_delta"):
        logits = max((f.get("max_abs_diff") or 0.0 for f in floors), default=0.0)
        spread = 1.0 if key == "nll_delta" else min(1.0, sqrt(2 * max(abs(a), abs(b))))
        noise += logits * spread
    return FACTOR * noise


def _elements(recorded: Any, again: Any, changed: Any, same: bool, why: str) -> Iterator[Finding]:
    """Digests of the 13 elements. What was computed in floating point may round elsewhere; under
    another library version the config documents may gain fields."""
    newer = any(c["what"].startswith("versions.") for c in changed if c["decisive"])
    rows = {e["name"]: e["digest"] for e in again.get("elements") or []}
    keys = ("number", "label", "name", "kept_as")
    was, now = ([[e[k] for k in keys] for e in r.get("elements") or []] for r in (recorded, again))
    if was != now:
        yield Finding("elements", "the 13 elements", "others", why)
    for entry in recorded.get("elements") or []:
        name, digest = entry["name"], rows.get(entry["name"])
        if entry["digest"] == digest or (not same and name in ROUNDED):
            continue
        if newer and name in ("model_config", "kv_format", "tokenizer"):
            continue
        yield Finding(f"element {entry['label']} {name}", entry["digest"], digest, why)
