"""Feed tokens and score: a new State with the attention that its newest queries gave added to what
every held token had received. Loop and page share it."""

from dataclasses import dataclass, replace
from itertools import groupby

import torch

from harness.capture.expected import Expectation
from harness.capture.observe import Observation, observing
from harness.config import CacheConfig
from harness.model.loaded import Loaded
from harness.pipeline.rope_switch import decoder as build_decoder
from harness.prune.base import EVERY_QUERY, EXPECTED
from harness.snapshot.state import LayerState, Segment, State


@dataclass(frozen=True)
class Fed:
    """state: the new State. logits: `[1, new, vocab]`. mutated: whether the past was written to. bytes_copied: by the cache."""

    state: State
    logits: torch.Tensor
    mutated: bool
    bytes_copied: float


def feed(
    loaded: Loaded, state: State, ids: torch.Tensor, cache: CacheConfig, queries: int | None
) -> Fed:
    """Feed `ids` `[1, new]` to `state`, which is only read. cache: a CacheConfig. queries: what to
    record, see `Policy.observes`; None records nothing, and EXPECTED is not added up but estimated
    anew when it is needed. Raises InputProblem beyond the model's positions."""
    queries = None if queries == EXPECTED else queries
    decoder = build_decoder(loaded, state, cache)
    before = decoder.fingerprint()
    with observing(loaded, queries) as observation:
        logits = decoder.step(ids)
    grown, mutated = decoder.commit(), decoder.fingerprint() != before
    if queries is not None:
        if not _complete(
            state, observation, ids.shape[1]
        ):  # an attention of its own: ask the model's
            with observing(loaded, queries) as observation:
                build_decoder(loaded, state, replace(cache, name="cloned")).step(ids)
        layers = [
            _scored(old, new, observation, queries)
            for old, new in zip(state.layers, grown.layers, strict=True)
        ]
        grown = grown.with_layers(tuple(layers))
    return Fed(grown, logits, mutated, decoder.bytes_copied)


def joined(layer: LayerState) -> LayerState:
    """`layer` with one segment of its own: no view keeps what was culled in memory. Quantized
    segments become plain ones."""
    keys = [segment.key for segment in layer.segments]
    if not keys[1:] and all(isinstance(k, torch.Tensor) and k.is_contiguous() for k in keys):
        return layer
    segment = Segment(
        layer.key.contiguous(), layer.value.contiguous(), layer.positions.contiguous()
    )
    return replace(layer, segments=(segment,))


def compact(layer: LayerState) -> LayerState:
    """`layer` with neighbouring plain segments as one, and no view that keeps what was culled in memory; codes
    stay codes."""
    if not any(segment.coded for segment in layer.segments):
        return joined(layer)
    segments: list[Segment] = []
    for coded, run in groupby(layer.segments, key=lambda segment: segment.coded):
        alike = tuple(run)
        segments += alike if coded else joined(replace(layer, segments=alike)).segments
    return replace(layer, segments=tuple(segments))


def _complete(state: State, observation: Observation | Expectation, new: int) -> bool:
    """Whether every key of every layer was seen to receive attention."""
    return all(
        layer.index in observation.layers
        and observation.layers[layer.index].shape[-1] == layer.kept + new
        for layer in state.layers
        if layer.segments
    )


def _scored(
    old: LayerState, new: LayerState, observation: Observation | Expectation, queries: int
) -> LayerState:
    """`new` with the newest queries' attention added to what `old` had received."""
    if old.received is None or not new.segments or old.index not in observation.layers:
        return new
    weights = observation.layers[old.index]
    if old.received.dim() == 3:  # summed over the heads: format 1
        weights = weights.sum(1)
    earlier = torch.nn.functional.pad(old.received, (0, weights.shape[-1] - old.kept))
    if queries == EVERY_QUERY:
        total = earlier + weights
    else:
        total = torch.cat([earlier, weights], -2)[..., -queries:, :]
    return replace(new, received=total[..., total.shape[-1] - new.kept :].contiguous())
