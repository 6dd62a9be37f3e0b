"""Judge a restored run: noise floor, oracle, mutation audit and verdict, all in the same run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.compare import metrics as measure
from harness.compare.verdict import decide, errors
from harness.pipeline import drive
from harness.pipeline.drive import Path
from harness.snapshot.state import State


@dataclass(frozen=True)
class Judgement:
    """Everything that `result.json` says about equivalence. `curves`: per step, for the plots."""

    verdict: str
    reason: str
    metrics: dict[str, Any]
    noise: dict[str, Any]
    oracle: dict[str, Any]
    curves: dict[str, dict[str, list[float]]] = field(default_factory=dict)


def judge(
    loaded: Any,
    state: State,
    reference: Path,
    restored: Path,
    settings: Any,
    waived: Sequence[Any] = (),
) -> Judgement:
    """Compare `restored` with `reference`, both fed the same ids after the unpruned `state`.

    settings: a CompareConfig. Mutates nothing.
    """
    fed, nexts = reference.fed, reference.ids[:, 1:]
    paths = {
        "full recompute": drive.recomputed(loaded, state, fed),
        f"prefill in chunks of {settings.noise_chunk}": drive.rechunked(
            loaded, state, fed, settings.noise_chunk
        ),
    }
    found = measure.compare(restored.logits, reference.logits, nexts)
    noise = measure.worst(
        [measure.compare(logits, reference.logits, nexts) for logits in paths.values()]
    )
    exact = drive.oracle(loaded, state, fed) if settings.oracle else None
    oracle = errors(restored.logits, reference.logits, exact)
    other = (restored.ids != reference.ids).any(0).nonzero()
    other_token = int(other[0, 0]) if len(other) else None
    verdict, reason = decide(
        restored.logits, reference.logits, found, noise, oracle, other_token, waived
    )
    curves = {"restored": measure.per_step(restored.logits, reference.logits)}
    curves |= {
        f"noise: {name}": measure.per_step(logits, reference.logits)
        for name, logits in paths.items()
    }
    return Judgement(verdict, reason, found, noise, oracle, curves)


def mutation(decoder: Any, before: Any, steps: int) -> dict[str, Any]:
    """Whether the object the caller handed in changed while `decoder` took `steps` steps."""
    after = decoder.fingerprint(before.digest is not None)
    changed = (before.length, before.identity, before.digest) != (
        after.length, after.identity, after.digest,
    )  # fmt: skip
    return {
        "mutated": changed,
        "length_before": before.length,
        "length_after": after.length,
        "digest_before": before.digest,
        "digest_after": after.digest,
        "bytes_copied_per_token": decoder.bytes_copied / max(steps, 1),
    }
