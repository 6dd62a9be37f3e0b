"""Is the snapshot allowed to continue on what is loaded now? Identity, sampler, and the proof."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.cache.library import Replay
from harness.capture import new_cache, positions_of, prefill
from harness.capture.layers import layers_of
from harness.compare.identity import (
    Difference,
    differences,
    element,
    explained,
    fits,
    waived_earlier,
    wordless,
)
from harness.config import DTYPES, CacheConfig
from harness.errors import HarnessError, RestoreRefused, UnsupportedModel
from harness.model.loaded import Loaded
from harness.model.sampler import Sampler
from harness.pipeline.noise import largest, noise
from harness.pipeline.origin import ids_alone, typed
from harness.snapshot.codes import dense
from harness.snapshot.digest import digest_tensor
from harness.snapshot.state import LayerState, Segment, State

MARGIN = 8.0  # how often the proof may exceed the noise of this very model on this very machine
PROBE = 64  # tokens over which that noise is measured


def identity_check(
    session: Any, state: State, where: Path | str, sampler: Sampler | None = None
) -> tuple[State, list[Difference]]:
    """Every difference between `state`'s identity and what is loaded; without any, the proof: as far
    as `restore.verify` asks for it; and whatever was waived before.

    sampler: the one that goes on, where it is meant to be the one that was saved. Raises
    RestoreRefused with all differences, unless `restore.strict=false`: then they are waived, and
    returned with the State to go on from, which carries them.
    """
    verify = session.cfg.restore.verify
    mismatches = [] if verify == "digest" else identity(session, state, sampler)
    within = not mismatches and verify == "proof"
    if within:
        mismatches = proof(session.loaded, state)
    earlier, mixed = waived_earlier(state.documents, but=mismatches), not mismatches
    if (mismatches or earlier) and session.cfg.restore.strict:
        said = [*mismatches, *earlier]
        blame = blamed(session.loaded, state) if within and not mixed else None
        configs = (
            d.get("model_config", {}).get("config") for d in (state.documents, session.documents)
        )
        able = fits(*(c if isinstance(c, Mapping) else {} for c in configs))
        able &= state.dtype == session.loaded.dtype  # no cache goes on with keys of another type
        unwritten = wordless(mismatches) or ids_alone(state.documents)
        load = "" if unwritten else typed(state.documents.get("source"), session.loaded.origin)
        raise RestoreRefused(str(where), said, explained(mismatches), blame, mixed, able, load)
    if not (mismatches or earlier) and verify != "digest":
        state = placed(state, session.loaded.origin)
    return waiving(state, mismatches), [*mismatches, *earlier]


def placed(state: State, origin: Mapping[str, Any]) -> State:
    """`state`, whose documents name the folder that the very weights of its capture were loaded from now, as does every
    snapshot of what it grows into: the one of then may be gone, or was an object of Python, which no command knows. The
    same object where it is the same folder, and for a model that is no folder."""
    once, now = state.documents.get("source") or {}, origin.get("path")
    if not now or once.get("path") == now:
        return state
    if once.get("path"):
        return state.document("source", path=now)
    made = once.get("option") == "wrapped"
    return state.document("source", option="path", path=now) if made else state


def waiving(state: State, waived: Sequence[Difference]) -> State:
    """`state`, whose documents say from now on that `waived` was let pass, as does every snapshot of
    what it grows into; the same object for nothing new. Its identity stays that of its capture."""
    earlier = state.documents.get("waived", {}).get("differences", [])
    rows = [d.row() for d in waived]
    new = [row for row in rows if _named(row) not in map(_named, earlier)]
    return state.document("waived", differences=[*earlier, *new]) if new else state


def _named(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells one waived difference from another: a proof measures other numbers every time."""
    measured = str(row.get("field")).startswith("proof: ")
    return row.get("element"), row.get("field"), None if measured else row.get("found")


def identity(session: Any, state: State, sampler: Sampler | None = None) -> list[Difference]:
    """Differences between `state`'s documents and the model, tokenizer and sampler of now."""
    mismatches = differences(
        state.documents,
        session.documents,
        str(state.dtype).removeprefix("torch."),
        str(session.loaded.dtype).removeprefix("torch."),
    )
    if sampler is not None:
        saved = state.documents["generation"].get("sampler")
        mismatches += element(
            "generation",
            {"sampler": saved, "generator": digest_tensor(state.rng)},
            {"sampler": sampler.document(), "generator": digest_tensor(sampler.rng)},
        )
    return mismatches


def proof(loaded: Loaded, state: State) -> list[Difference]:
    """Feed the last token again over the past without it: the stored logits must come out.

    One decode step, by the library's own forward over a cache of its own, so that identity is proven
    whatever cache is going to be used. The allowance was measured in the same way when the state was
    captured (`floor`); a state without one has its floor measured here and now.
    Empty when it holds, or where it cannot be given: a past that is pruned or quantized, a window that has already
    dropped a token, recurrent state, a single token.
    """
    state = state.to(loaded.device)
    try:
        again = replayed(loaded, state)
    except (UnsupportedModel, torch.OutOfMemoryError):  # not about the snapshot
        raise
    except (HarnessError, RuntimeError, ValueError, IndexError, TypeError) as problem:
        return [_failed("replay of the last token", "logits", f"{type(problem).__name__}")]
    if again is None:
        return []
    logits, kv_gap = again
    if logits.shape != state.logits.shape:
        return [_failed("shape", list(state.logits.shape), list(logits.shape))]
    off = {"logits": largest(logits - state.logits), "kv": kv_gap}
    floors = _allowed(loaded, state, off, largest(logits))
    measured = {
        "replay of the last token": (off["logits"], floors["logits"]),
        "its keys and values": (off["kv"], floors["kv"]),
    }
    return [
        _failed(what, f"within {MARGIN * floor:.3g}", f"off by {off:.3g}")
        for what, (off, floor) in measured.items()
        if not off <= MARGIN * floor
    ]


def blamed(loaded: Loaded, state: State) -> str:
    """Who is to blame that the proof of `state` fails, as far as a prefill of its ids can tell: where that
    gives the stored logits, this model is the one of the capture, and its keys and values say whether
    the `state` was changed or the `model` computes one token otherwise. Empty where nobody can know."""
    state = state.to(loaded.device)
    cache, positions = new_cache(loaded), positions_of(state.attention_mask)
    try:
        logits = prefill(loaded, state.token_ids, state.attention_mask, positions, cache)[:, -1]
        fresh, floors = layers_of(cache, positions), floors_now(loaded, state)
        again = [t for la in fresh for t in (la.key, la.value)]
        stored = [t for la in state.layers for t in (la.key, la.value)]
        if not largest(logits - state.logits) <= MARGIN * floors["logits"]:
            return ""
        real = state.attention_mask[:, None, :, None] != 0
        off = max(
            largest((a.double() - b.double()) * real) for a, b in zip(stored, again, strict=True)
        )
    except (HarnessError, RuntimeError, ValueError, IndexError, TypeError):
        return ""
    return "model" if off <= MARGIN * floors["kv"] else "state"


def _allowed(
    loaded: Loaded, state: State, off: Mapping[str, float], scale: float
) -> dict[str, float]:
    """The floor that was measured when `state` was captured; where that is missing, or was measured
    on another kind of device, the one of here and now (the larger of both).

    off: how far the replay is. scale: the largest of its logits. A snapshot does not excuse itself: what
    is off by more than rounding is held against the noise of here too, whatever floor is stored.
    """
    stored = state.documents.get("proof") or {}
    same = bool(stored) and stored.get("device", "cpu") == loaded.device.type
    unit, kept_as = torch.finfo(loaded.dtype).eps, _kept_as(loaded, state)
    rounding = {"logits": max(unit, kept_as[0]) * scale, "kv": max(unit, *kept_as) * scale}
    # the noise of here takes several prefills; below what is allowed whatever it is, nobody needs it
    least = {what: min(stored.get(what, 0.0), MARGIN * rounding[what]) for what in off}
    if all(size <= MARGIN * least[what] for what, size in off.items()):
        return least
    allowed = {}
    for what, size in floors_now(loaded, state).items():
        wanted = stored[what] if same else max(size, stored.get(what, 0.0))
        allowed[what] = min(wanted, MARGIN * max(size, rounding[what]))
    return allowed


def _kept_as(loaded: Loaded, state: State) -> tuple[float, float]:
    """One rounding of a number near 1, of what kept these keys and values before (another program's file): of a narrower
    type, which its numbers have to show, and of codes that were opened, which move the last token's own row alone."""
    form = state.documents["kv_format"]
    bits = [entry.get("bits") for entry in form.get("quantized") or ()]
    codes = max((2.0 ** (1 - b) for b in bits if isinstance(b, int) and b > 1), default=0.0)
    if form.get("rounded_to") not in DTYPES:
        return 0.0, codes
    kind = getattr(torch, form["rounded_to"])
    numbers = (t for la in state.layers for s in la.segments for t in (s.key, s.value))
    shown = all(
        isinstance(t, torch.Tensor) and torch.equal(t.to(kind).to(t.dtype), t) for t in numbers
    )
    return torch.finfo(kind).eps if shown else 0.0, codes


def floor(loaded: Loaded, state: State) -> dict[str, Any] | None:
    """What the replay of the last token differs by on healthy material, right after the capture:
    `logits` and `kv`, never below one rounding of the largest, and `device` where that is not the
    CPU. None where there is no proof.

    It is replayed where the past lies otherwise in memory too, as it will once it comes from disk:
    libraries multiply by other kernels there, which round otherwise."""
    again = [replayed(loaded, state, moved) for moved in (False, True)]
    gaps = [(largest(r[0] - state.logits), r[1]) for r in again if r is not None]
    if not gaps:
        return None
    logits, kv = map(max, zip(*gaps, strict=True))
    eps = torch.finfo(loaded.dtype).eps
    last = [
        dense(t)[:, :, -1:]
        for la in state.layers
        for t in (la.segments[-1].key, la.segments[-1].value)
    ]
    where = loaded.device.type
    return {
        "logits": max(logits, largest(state.logits) * eps),
        "kv": max(kv, max(largest(t) for t in last) * eps),
        **({} if where == "cpu" else {"device": where}),
    }


def replayed(
    loaded: Loaded, state: State, moved: bool = False
) -> tuple[torch.Tensor, float] | None:
    """Logits `[batch, vocab]` of the last token, fed again over the past without it, and the largest
    difference of its keys and values. None where that past is not contained in `state`.

    moved: over copies of the past, a layer at a time, that lie in memory as no allocator puts them."""
    before = one_step_back(state)
    if before is None:
        return None
    decoder = Replay(loaded, state, before, CacheConfig("cloned"), moved)
    logits = decoder.step(state.token_ids[:, -1:])[:, -1]
    return logits, float(_last_kv_gap(decoder, state).detach().max())


def floors_now(loaded: Loaded, state: State) -> dict[str, float]:
    """What another split of a prefill does here, on healthy material: only ids come from `state`."""
    ids = state.token_ids[:1, -PROBE:].to(loaded.device)
    measured = noise(loaded, ids.clamp(max=loaded.text_config.vocab_size - 1))
    return {"logits": measured.last, "kv": measured.kv}


def one_step_back(state: State) -> State | None:
    """The State before its last token, as views; None where it is not contained in `state`."""
    if state.tokens < 2 or state.pruned or state.quantized or not state.layers:
        return None
    if any(not la.segments or la.recurrent or la.kept != la.seen for la in state.layers):
        return None
    return replace(
        state,
        layers=tuple(_shorter(layer) for layer in state.layers),
        token_ids=state.token_ids[:, :-1],
        attention_mask=state.attention_mask[:, :-1],
        next_position=state.next_position - 1,
    )


def _last_kv_gap(decoder: Any, state: State) -> torch.Tensor:
    """`[layers * 2]` largest difference of the last token's stored and replayed keys and values."""
    gaps = []
    for layer in state.layers:
        fresh = decoder.new_kv(layer.index, 1)
        last = layer.segments[-1]
        for stored, new in zip((dense(last.key), dense(last.value)), fresh):
            gaps.append((stored[:, :, -1:].double() - new[:, :, -1:].double()).abs().max())
    return torch.stack(gaps)


def _shorter(layer: LayerState) -> LayerState:
    *rest, last = layer.segments
    segments = tuple(rest)
    if last.tokens > 1:
        cut = Segment(last.key[:, :, :-1], last.value[:, :, :-1], last.positions[..., :-1])
        segments = (*segments, cut)
    return replace(layer, segments=segments, seen=layer.seen - 1)


def _failed(field: str, saved: Any, measured: Any) -> Difference:
    return Difference("+1 logits", f"proof: {field}", saved, measured)
