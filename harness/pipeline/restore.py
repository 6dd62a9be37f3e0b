"""Is the snapshot allowed to continue on what is loaded now? Identity, sampler, and the proof."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.cache.registry import decoder as build_decoder
from harness.capture import new_cache, positions_of, prefill
from harness.compare.identity import Difference, differences, element
from harness.errors import HarnessError, RestoreRefused, UnsupportedModel
from harness.snapshot.codes import dense
from harness.snapshot.digest import digest_tensor
from harness.snapshot.state import LayerState, Segment, State

MARGIN = 8.0  # how often the proof may exceed the noise of this very model on this very machine
PROBE = 64  # tokens over which that noise is measured


def identity_check(
    session: Any, state: State, where: Path | str, sampler: Any = None
) -> list[Difference]:
    """Every difference between `state`'s identity and what is loaded; without any, the proof.

    sampler: the one that goes on, where it is meant to be the one that was saved. Raises
    RestoreRefused with all differences, unless `restore.strict=false`: then they are waived and
    returned.
    """
    found = identity(session, state, sampler) or proof(session.loaded, state, session.cfg.cache)
    if found and session.cfg.restore.strict:
        raise RestoreRefused(str(where), found)
    return found


def identity(session: Any, state: State, sampler: Any = None) -> list[Difference]:
    """Differences between `state`'s documents and the model, tokenizer and sampler of now."""
    found = differences(
        state.documents,
        session.documents,
        str(state.dtype).removeprefix("torch."),
        str(session.loaded.dtype).removeprefix("torch."),
    )
    if sampler is not None:
        saved = state.documents["generation"].get("sampler")
        found += element(
            "generation",
            {"sampler": saved, "generator": digest_tensor(state.rng)},
            {"sampler": sampler.document(), "generator": digest_tensor(sampler.rng)},
        )
    return found


def proof(loaded: Any, state: State, settings: Any) -> list[Difference]:
    """Feed the last token again over the past without it: the stored logits must come out.

    The allowance is measured here and now: what splitting a prefill does to this model's logits.
    Empty when it holds, or where it cannot be given: a pruned or quantized past, a window that has already
    dropped a token, recurrent state, a single token.
    """
    state = state.to(loaded.device)
    before = one_step_back(state)
    if before is None:
        return []
    try:
        decoder = build_decoder(loaded, before, replace(settings, branches=1))
        replayed = decoder.step(state.token_ids[:, -1:])[:, -1]
    except UnsupportedModel:  # about the cache and the model, not about the snapshot
        raise
    except (HarnessError, RuntimeError, ValueError, IndexError, TypeError) as problem:
        return [_failed("replay of the last token", "logits", f"{type(problem).__name__}")]
    if replayed.shape != state.logits.shape:
        return [_failed("shape", list(state.logits.shape), list(replayed.shape))]
    found = []
    measured = {
        "replay of the last token": (replayed - state.logits, noise(loaded, state)),
        "its keys and values": (_last_kv_gap(decoder, state), kv_noise(loaded, state)),
    }
    for what, (gap, floor) in measured.items():
        off, allowed = float(gap.double().abs().max()), MARGIN * floor
        if not off <= allowed:
            found.append(_failed(what, f"within {allowed:.3g}", f"off by {off:.3g}"))
    return found


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


def noise(loaded: Any, state: State) -> float:
    """Largest logit difference between one prefill and the same ids in four, on healthy material:
    only the ids come from `state`. Never below one rounding of the largest logit."""
    ids = state.token_ids[:, -PROBE:].to(loaded.device)
    mask = torch.ones_like(ids)
    positions = positions_of(mask)
    ids = ids.clamp(max=loaded.text_config.vocab_size - 1)
    whole = prefill(loaded, ids, mask, positions, new_cache(loaded)).double()
    gaps = [
        float((prefill(loaded, ids, mask, positions, new_cache(loaded), chunk) - whole).abs().max())
        for chunk in {max(ids.shape[1] // 4, 1), max(ids.shape[1] - 1, 1)}
    ]
    return max(*gaps, float(whole.abs().max()) * torch.finfo(loaded.dtype).eps)


def kv_noise(loaded: Any, state: State) -> float:
    """The same for keys and values: what the split of a prefill does to them."""
    ids = state.token_ids[:, -PROBE:].to(loaded.device).clamp(max=loaded.text_config.vocab_size - 1)
    mask = torch.ones_like(ids)
    held = []
    for chunk in (None, max(ids.shape[1] // 4, 1), max(ids.shape[1] - 1, 1)):
        cache = new_cache(loaded)
        prefill(loaded, ids, mask, positions_of(mask), cache, chunk)
        held.append([t.double() for la in cache.layers for t in (la.keys, la.values)])
    largest = max(float(t.abs().max()) for t in held[0])
    gaps = [float((a - b).abs().max()) for other in held[1:] for a, b in zip(held[0], other)]
    return max(*gaps, largest * torch.finfo(loaded.dtype).eps)


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
    kept = tuple(rest)
    if last.tokens > 1:
        cut = Segment(last.key[:, :, :-1], last.value[:, :, :-1], last.positions[..., :-1])
        kept = (*kept, cut)
    return replace(layer, segments=kept, seen=layer.seen - 1)


def _failed(field: str, saved: Any, found: Any) -> Difference:
    return Difference("+1 logits", f"proof: {field}", saved, found)
