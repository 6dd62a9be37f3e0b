"""The page's proof: write the state, read it back, continue both ways, and judge what came back."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.cache.registry import decoder as build_decoder
from harness.compare import metrics
from harness.compare.soundness import Soundness
from harness.compare.verdict import decide
from harness.config import CacheConfig
from harness.errors import HarnessError, InputProblem
from harness.model.sampler import Sampler
from harness.pipeline import drive, yardstick
from harness.pipeline.judge import ITSELF
from harness.pipeline.line import Line, Restored
from harness.pipeline.session import Session
from harness.present.conclusion import conclusion
from harness.present.messages import worded
from harness.results.reason import Reason
from harness.snapshot.state import State

UNJUDGED = {"restored": None, "plain": None, "ratio": None}  # no float64 run knows a pruned past
MEMORY = "the same state continued in memory, never saved"
UNASKED = "What pruning changed is not asked here: compare it with a branch that keeps every token."


@dataclass(frozen=True)
class Proof:
    """against: what the restored path was compared with; beside: that in a few words. noise: empty where
    none was measured. conclusion: the verdict in one sentence."""

    verdict: str
    reason: str
    against: str
    steps: int
    metrics: dict[str, Any]
    noise: dict[str, Any]
    stored_bytes: int
    save_s: float
    load_s: float
    beside: str
    conclusion: str


def proven(session: Session, state: State, folder: Path, steps: int) -> Proof:
    """Save `state` below `folder`, restore it, continue at most `steps` tokens and judge them.

    A whole state is judged as `task=resume` does it, against a run recomputed from the token buffer. A
    pruned or a very long one is compared with the same state continued in memory. Raises InputProblem
    where the model has no positions left.
    """
    end = session.loaded.max_positions
    left = steps if end is None else min(steps, end - int(state.next_position.max()))
    if left < 1:
        raise InputProblem(
            "this thought fills every position the model has: nothing can follow it."
        )
    cfg = replace(session.cfg, steps=left, out=None)
    with tempfile.TemporaryDirectory(prefix="proof-", dir=folder) as scratch:
        line = Line(replace(session, cfg=cfg, folder=Path(scratch), times={}))
        stored = line.save(replace(state, parent=None))
        restored, size = line.restore(stored), stored.nbytes
    coded = bool(state.documents["kv_format"].get("quantized"))
    if state.pruned or state.tokens > cfg.compare.limit:
        kind = " and ".join(["pruned"] * state.pruned + ["quantized"] * coded) or "whole"
        beside = f"the same {kind} state, in memory"
        against = f"the same {kind} state continued in memory, never saved"
        verdict, reason, apart, noise = _beside_memory(line.session, state, restored)
        record = {"verdict": verdict, "reason": reason, "metrics": apart, "noise_floor": noise}
        record |= {"against": ITSELF}
    else:
        run = "a run in full precision" if coded else "a run"
        beside = "full precision, without a pause" if coded else "a run without a pause"
        against = f"{run} that was never interrupted, recomputed from the token buffer"
        if coded:  # whether it came back as saved is asked apart from what the codes changed
            line.made = state
        made = line.judge(restored, state)
        verdict, reason, apart, noise = made.verdict, made.reason, made.metrics, made.noise
        record = {**made.record(), **({"quantization": {"of": "a state"}} if coded else {})}
    took = line.session.times["save"], line.session.times["load"]
    headline = conclusion({**record, "size": {"stored_bytes": size}})
    if state.pruned:
        headline += f" {UNASKED}"
    return Proof(
        verdict, worded(reason), against, left, apart, noise, size, *took, beside, headline
    )


def _beside_memory(
    session: Session, state: State, restored: Restored
) -> tuple[str, Reason, dict[str, Any], dict[str, Any]]:
    """Verdict, reason, metrics and noise floor: what another cache does to the state in memory."""
    cache = session.cfg.cache
    memory = _continued(session, state, cache)
    try:
        other = replace(cache, name="view" if cache.name == "cloned" else "cloned")
        again = _continued(session, state, other, memory.fed)
        noise = metrics.compare(again.logits, memory.logits, memory.ids[:, 1:])
    except HarnessError:  # no other cache serves this model: only bit-equal counts
        noise = {}
    drive.aside(session.loaded, state)
    back = _continued(session, restored.state, cache, memory.fed)
    apart = metrics.compare(back.logits, memory.logits, memory.ids[:, 1:])
    parted = (back.ids != memory.ids).any(0).nonzero()
    token, floor = int(parted[0, 0]) if len(parted) else None, noise or {"max_abs_diff": 0.0}
    sound = _soundness(session, state, memory)
    verdict, reason = decide(
        back.logits, memory.logits, apart, floor, UNJUDGED, token, restored.waived, sound, MEMORY
    )
    return verdict, reason, apart, noise


def _soundness(session: Session, state: State, memory: drive.Rollout) -> Soundness | None:
    """Whether the model's cached path over the whole buffer computes what it computes without a cache.
    None where that would take too long."""
    if state.tokens > session.cfg.compare.limit:
        return None
    name, chunk = "the model's own cached run", session.cfg.prompt.chunk
    return yardstick.soundness(session.loaded, state, memory.fed, name, memory.chunks, chunk)


def _continued(
    session: Session, state: State, cache: CacheConfig, follow: torch.Tensor | None = None
) -> drive.Rollout:
    sampler = Sampler(session.cfg.sampling, session.cfg.seed, state.rng)
    decoder = build_decoder(session.loaded, state, cache)
    return drive.drive(decoder, sampler, session.cfg.steps, follow=follow)
