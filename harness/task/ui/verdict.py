"""The page's proof: write the state, read it back, continue both ways, and judge what came back."""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.cache.registry import decoder as build_decoder
from harness.compare import metrics
from harness.compare.verdict import decide
from harness.errors import HarnessError, InputProblem
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.restore import identity_check
from harness.save import store
from harness.snapshot.state import State
from harness.task.prune import compared

UNJUDGED = {"restored": None, "plain": None, "ratio": None}  # no float64 run knows a pruned past


@dataclass(frozen=True)
class Proof:
    """against: what the restored path was compared with. noise: empty where none was measured."""

    verdict: str
    reason: str
    against: str
    steps: int
    metrics: dict[str, Any]
    noise: dict[str, Any]
    stored_bytes: int
    save_s: float
    load_s: float


def proven(session: Any, state: State, folder: Path, steps: int) -> Proof:
    """Save `state` below `folder`, restore it, continue at most `steps` tokens and judge them.

    A whole state is judged as `task=resume` does it: against a run recomputed from the token buffer,
    beside noise floor and oracle. A pruned or a very long one is compared with the same state
    continued in memory. Raises InputProblem where the model has no positions left.
    """
    room = session.loaded.max_positions
    left = steps if room is None else min(steps, room - int(state.next_position.max()))
    if left < 1:
        raise InputProblem(
            "this thought fills every position the model has: nothing can follow it."
        )
    back, waived, size, save_s, load_s = _there_and_back(session, state, folder)
    session = replace(session, cfg=replace(session.cfg, steps=left), times={})
    if state.pruned or state.tokens > session.cfg.compare.limit:
        against = "the same state continued in memory, never saved"
        verdict, reason, found, noise = _beside_memory(session, state, back, waived)
    else:
        against = "a run that was never interrupted, recomputed from the token buffer"
        made = compared(session, state, back, waived)
        verdict, reason = made["verdict"], made["reason"]
        found, noise = made["metrics"], made["noise_floor"]
    return Proof(verdict, reason, against, left, found, noise, size, save_s, load_s)


def _there_and_back(session: Any, state: State, folder: Path) -> tuple[State, list[Any], int, float, float]:  # fmt: skip
    """`state` as it comes back from a snapshot that is gone afterwards, what the identity check
    waived, bytes stored, seconds to save and to load."""
    with tempfile.TemporaryDirectory(prefix="proof-", dir=folder) as room:
        target, start = Path(room) / "snapshot", time.perf_counter()
        store.save(replace(state, parent=None), target, session.cfg.save)
        saved = time.perf_counter()
        back, _ = store.load(target)
        loaded = time.perf_counter()
        waived = identity_check(session, back, target)
        size = store.stored_bytes(target)
        return back.to(session.loaded.device), waived, size, saved - start, loaded - saved


def _beside_memory(session: Any, state: State, back: State, waived: list[Any]) -> tuple[str, str, dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Verdict, reason, metrics and noise floor: what another cache does to the state in memory."""
    cache = session.cfg.cache
    plain = _continued(session, state, cache)
    restored = _continued(session, back, cache, plain.fed)
    found = metrics.compare(restored.logits, plain.logits, plain.ids[:, 1:])
    try:
        other = replace(cache, name="view" if cache.name == "cloned" else "cloned")
        again = _continued(session, state, other, plain.fed)
        noise = metrics.compare(again.logits, plain.logits, plain.ids[:, 1:])
    except HarnessError:  # no other cache serves this model: only bit-equal counts
        noise = {}
    parted = (restored.ids != plain.ids).any(0).nonzero()
    token, floor = int(parted[0, 0]) if len(parted) else None, noise or {"max_abs_diff": 0.0}
    verdict, reason = decide(restored.logits, plain.logits, found, floor, UNJUDGED, token, waived)
    return verdict, reason, found, noise


def _continued(session: Any, state: State, cache: Any, follow: Any = None) -> drive.Path:
    sampler = Sampler(session.cfg.sampling, session.cfg.seed, state.rng)
    decoder = build_decoder(session.loaded, state, cache)
    return drive.drive(decoder, sampler, session.cfg.steps, follow=follow)
