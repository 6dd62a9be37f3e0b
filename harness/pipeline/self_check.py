"""A pruned or a quantized state beside itself, continued another way.

The run that was never interrupted holds another past than such a state does, so what the cache makes of the
state is lost in what the pruning made of the past. Here the state is fed the same ids under a cache that shares
no forward with the judged one. Where it was saved in this very run, it is the state from before that, on the model
from before: what parts the two is the cache's doing or that of the way through the snapshot, and which of them is
found by continuing what came back under that other cache too.
"""

from dataclasses import replace
from typing import Any

import torch

from harness.compare import metrics as measure
from harness.compare.checks import failed, unasked
from harness.compare.verdict import decide
from harness.config import CacheConfig, CompareConfig
from harness.errors import HarnessError
from harness.model.loaded import Loaded
from harness.pipeline.budget import continuation
from harness.pipeline.drive import Rollout, aside
from harness.pipeline.judge import Judgement
from harness.pipeline.noise import largest
from harness.pipeline.round_trip import parted
from harness.pipeline.way import Way, meant
from harness.results.reason import Code, reason
from harness.snapshot import history
from harness.snapshot.result import GOOD, UNJUDGED
from harness.snapshot.state import State
from harness.snapshot.words import altered

UNMEASURED = {"restored": None, "plain": None, "ratio": None}  # no float64 run knows such a past
FIGURES = ("max_abs_diff", "kl_max", "top1_agreement")
SAVED, RESTORED = (
    "saved",
    "restored",
)  # what was continued the other way, before or after a snapshot


def beside(
    judgement: Judgement,
    loaded: Loaded,
    state: State,
    way: Way,
    path: Rollout,
    settings: CompareConfig,
    before: tuple[Loaded, State] | None = None,
) -> Judgement:
    """`judgement` on `path`, on which `state` was continued on `loaded` by `way`, with the block `itself` of
    `result.json`; as it is where the state holds what its ids give. before: the model that captured it and
    the state as it was before it was saved, where they are known.

    What rounding does was measured for it by plain paths, so no fault of a cache widens what is allowed.
    Mutates nothing.
    """
    first = before or (loaded, state)
    if not (way.kept or meant(first[1])):
        return judgement
    block = _block(judgement, *first, way, path, SAVED if before else RESTORED)
    if before and block["verdict"] in GOOD:
        block = _first_token(block, before[1], state)
    elif before and block["verdict"] != UNJUDGED:
        after = _block(judgement, loaded, state, way, path, RESTORED)
        block = _lost(block, before[1], state) if after["verdict"] in GOOD else after
    block = _checked(block, judgement, state)
    required = "equivalent" if settings.require == "exact" else settings.require  # another's sums
    return replace(judgement, itself={**block, "required": required})


def _checked(block: dict[str, Any], judgement: Judgement, state: State) -> dict[str, Any]:
    """`block`, whose verdict is no better than the checks of logic and of stored tensors allow. Numbers that were opened
    from codes are coarse, and near to their own tokens; so is what windows hold that was read after a pruning, but for
    the first layer, which sees no past."""
    if block["verdict"] not in GOOD:
        return block
    opened = bool(state.documents["kv_format"].get("quantized"))
    first = 0 if opened else 1 if history.reduced(state) and not state.pruned else None
    asked = [
        c
        for c in judgement.checks
        if c.name != "numbers"
        and not (first is not None and c.code == "coarse" and c.figures["layer"] >= first)
    ]
    if (wrong := failed(asked)) is not None:
        return {**block, "verdict": "drifted", "reason": wrong.reason}
    if (missing := unasked(asked)) is not None:
        return {**block, "verdict": UNJUDGED, "reason": missing.reason}
    return block


def _block(
    judgement: Judgement, loaded: Loaded, state: State, way: Way, path: Rollout, against: str
) -> dict[str, Any]:
    whose = _whose(state, bool(way.kept))
    when = " before it was saved" if against == SAVED else None
    block: dict[str, Any] = dict.fromkeys(("cache", *FIGURES, "noise")) | {"against": against}
    aside(loaded, state)
    for name in way.others:
        try:
            expected = _logits(loaded, state, way, name, path)
        except HarnessError:  # this one does not serve the model, or such a state
            continue
        break
    else:
        return {**block, "verdict": UNJUDGED, "reason": reason(Code.NO_OTHER_CACHE)}
    metrics = measure.compare(path.logits, expected, path.ids[:, 1:])
    floor = {"max_abs_diff": _floor(judgement, expected)}
    first = metrics["first_divergence"]
    token = None if first is None else first + 1
    verdict, _ = decide(path.logits, expected, metrics, floor, UNMEASURED, token, ())
    about = {"state": whose, "cache": name}
    if verdict in GOOD:
        code = Code.ITSELF_EXACT if verdict == "exact" else Code.ITSELF_ROUNDED
        why = reason(code, when=when, **about)
    elif verdict == "diverged" and token is not None:
        why = reason(Code.ITSELF_TOKEN, by=way.cache.name, step=token, **about)
    else:
        off, bound = metrics["max_abs_diff"], floor["max_abs_diff"]
        why = reason(Code.ITSELF_OFF, by=way.cache.name, off=off, bound=bound, **about)
    figures = {key: metrics[key] for key in FIGURES} | {"noise": floor["max_abs_diff"]}
    return {**block, **figures, "cache": name, "verdict": verdict, "reason": why}


def _first_token(block: dict[str, Any], saved: State, back: State) -> dict[str, Any]:
    """`block`, and whether the logits that choose the first token, which no cache computes, came `back` as they
    were `saved`."""
    now = back.logits.to(saved.logits)
    gap = largest(now.double() - saved.logits.double())
    if gap <= block["noise"]:
        return block
    other = bool((now.argmax(-1) != saved.logits.argmax(-1)).any())
    verdict = "diverged" if other else "drifted"
    return _lost({**block, "verdict": verdict, "max_abs_diff": gap}, saved, back)


def _lost(block: dict[str, Any], saved: State, back: State) -> dict[str, Any]:
    """`block` where every cache goes on alike with what came `back`, and otherwise than with what was `saved`."""
    cause, element, seen = parted(saved, back)
    off, bound = block["max_abs_diff"], block["noise"]
    why = reason(Code.NOT_AS_SAVED, state=_whose(saved), seen=str(seen), off=off, bound=bound)
    return {**block, "reason": why, "cause": cause, "element": element}


def _whose(state: State, kept: bool = False) -> str:
    """What was done to the state, in words. kept: tokens are dropped as it goes on."""
    form = state.documents["kv_format"]
    fewer, coded = (
        kept or state.pruned or form.get("pruned"),
        state.quantized or form.get("quantized"),
    )
    return altered({"pruned": fewer, "quantization": coded})


def _floor(judgement: Judgement, logits: torch.Tensor) -> float:
    """How far rounding alone parts two paths: as the run measured it, by the noise and by the plain path's error
    against float64, which both may have; one rounding of the largest logit at least."""
    least = torch.finfo(logits.dtype).eps * float(logits.abs().max())
    return max(judgement.noise["max_abs_diff"], 2 * (judgement.oracle["plain"] or 0.0), least)


def _logits(loaded: Loaded, state: State, way: Way, name: str, path: Rollout) -> torch.Tensor:
    """`[rows, n, vocab]` of what `path` was fed, in as many pieces, under another cache."""
    cache = CacheConfig(name=name, branches=way.cache.branches)
    decoder = continuation(loaded, state, cache, way.prune, way.kept)
    fed = path.fed.to(loaded.device).split(list(path.chunks), dim=1)
    logits = torch.cat([decoder.step(ids) for ids in fed], 1)
    return logits[..., : path.logits.shape[-1]].to(path.logits.device)
