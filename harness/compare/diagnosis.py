"""Numerics or a dirty cache? What is wrong with a restored state, where it begins, and why we say so.

A state is laid beside what its own token buffer gives when it is computed anew on the model of now.
Documents are asked first (identity, buffer, mask, cursor), then numbers: the first layer and token
that leave the noise, and which single kind of damage explains them. Nothing is mutated.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from harness.compare import likeness, spread
from harness.compare.likeness import Pair
from harness.compare.picture import (
    MARGIN,
    Recomputed,
    aligned,
    much,
    other_layer,
    picture_of,
    stepped,
    worn,
)
from harness.snapshot import coherence, manifest
from harness.snapshot.elements import BY_NUMBER
from harness.snapshot.history import since, tokens_held
from harness.snapshot.state import State
from harness.snapshot.words import altered, listed, on_average

CAUSES = (
    "rounding", "position", "token buffer", "mask", "layer", "head", "block", "recurrent state",
    "indexer", "scale", "logits", "identity", "library", "routing", "cache",
)  # fmt: skip
TENSOR = re.compile(r"^state-\w+\S* (\w+) (?:does not match|is )")  # of a file that is no layer's
Evidence = tuple[str, str, str]  # cause, element, what was seen
NOTHING = "nothing leaves the noise"
COARSE = "quantized on purpose: a row loses more than a step of its codes and is near its own token all the same"
CODED = "quantized on purpose: every key and value is within a step of its code, which is rounding and no damage"


@dataclass(frozen=True)
class Diagnosis:
    """cause: one of CAUSES. element: name of the element. layer, head, token: the first that leave
    the noise, where there is one (`rounding` without a layer: nothing leaves it). A cache row is what a layer
    keeps of one token. picture: error of K/V in noise floors, one list per layer, one number per kept token
    (recurrent layers: one)."""

    cause: str
    element: str
    evidence: str
    layer: int | None = None
    head: int | None = None
    token: int | None = None
    picture: list[list[float]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """JSON-able, as in `result.json`."""
        names = ("cause", "element", "layer", "head", "token", "evidence", "picture")
        return {name: getattr(self, name) for name in names}


def refusal(differences: Sequence[Any], faults: Sequence[str] = ()) -> Diagnosis | None:
    """What identity (a list of Difference) and a reader's `faults` say by themselves, if anything."""
    if differences:
        first = differences[0]
        element = first.element.split(" ", 1)[-1]
        if element == "logits":  # the proof: says that something is wrong, not what
            return None
        return Diagnosis("identity", element, str(first))
    for fault in faults:
        if "has layer_type" in fault:
            return Diagnosis("layer", "kv_cache", fault)
        if named := TENSOR.search(fault):
            return Diagnosis("block", BY_NUMBER[manifest.element_of(named[1])].name, fault)
        if "layer." in fault or "truncated" in fault or ".safetensors" in fault:
            return Diagnosis("block", "kv_cache", fault)
        if "rng" in fault:
            return Diagnosis("identity", "generation", fault)
        if "format_version" in fault or "kv_format" in fault:
            return Diagnosis("identity", "kv_format", fault)
    return None


def documented(state: State) -> Diagnosis | None:
    """What the elements of `state` say against each other, without a number recomputed."""
    problems = coherence.faults(state)
    for fault in problems:
        if fault.startswith("K/V "):
            return Diagnosis("identity", "kv_format", fault)
    return _padding(state) or _buffer(problems) or _mask(state, problems) or _rows(state, problems)


def explain(state: State, right: Recomputed) -> Diagnosis:
    """The cause that explains how `state` differs from `right`, by numbers alone. Where K/V are
    kept as codes, one step of the codes is no difference."""
    coded = any(s.coded for layer in state.layers for s in layer.segments)
    right = replace(right, floors=[stepped(state, right, i) for i in range(len(right.floors))])
    picture, first = picture_of(state, right)
    if first is None:
        if since(state) < state.tokens:
            return Diagnosis("block", "kv_cache", dropped(state), picture=picture)
        if not coded and (faint := _together(state, right)):
            return replace(faint, picture=picture)
        drift = worn(state, right)
        gap = float((state.logits.double() - right.logits.double()).abs().max())
        allowed = MARGIN * right.logits_floor
        if drift:
            layer, name, off = drift
            away = f"{name} of layer {layer} is {off:.3g} times its own noise off"
            evidence = f"{away}, and all K/V is in the noise"
            cause = "indexer" if name.startswith("indexer") else "recurrent state"
            return Diagnosis(cause, "kv_cache", evidence, layer, picture=picture)
        if not gap <= allowed:
            noise = f"(noise {right.logits_floor:.3g})"
            evidence = f"K/V is in the noise, the stored logits are off by {gap:.3g} {noise}"
            return Diagnosis("logits", "logits", evidence, picture=picture)
        evidence = CODED if coded else NOTHING
        return Diagnosis("rounding", "kv_cache", evidence, picture=picture)
    layer, heads, token = first
    cause, element, evidence = _numbers(state, right, layer, picture)
    if evidence == dropped(state):
        return Diagnosis(cause, element, evidence, picture=picture)
    off = picture[layer][token]
    numbers = ", ".join(map(str, heads))
    said = f"head {numbers}" if not heads[1:] else f"heads {numbers}"
    if 1 < len(heads) == state.layers[layer].key.shape[1]:
        said = "every head"
    where = f"first at layer {layer}, {said}, token {token}: {much(off, coded, bool(heads[1:]))}"
    return Diagnosis(cause, element, f"{evidence}; {where}", layer, heads[0], token, picture)


def _together(state: State, right: Recomputed) -> Diagnosis | None:
    """The first layer and head whose numbers leave the noise together, although none does alone."""
    for layer in state.layers:
        pair = right.kv[layer.index]
        floors = right.spread[layer.index] if right.spread else {}
        if not (layer.segments and floors) or pair is None:
            continue
        real = layer.positions >= 0
        real = real if layer.per_head else real[:, None]
        parts = zip(("key", "value"), (layer.key, layer.value), aligned(pair, layer), strict=True)
        for part, stored, expected in parts:
            seen = spread.spread(stored, expected, real)
            floor = {kind: floors[f"{part} {kind}"] for kind in spread.KINDS}
            if found := spread.beyond(seen, floor):
                kind, head = found
                off = float(seen[kind][head])
                evidence = spread.said(part, kind, head, layer.index, off, floor[kind])
                cause = "scale" if kind == spread.ALONG else "head"
                return Diagnosis(cause, "kv_cache", evidence, layer.index, head)
    return None


def _numbers(state: State, right: Recomputed, layer: int, picture: list[list[float]]) -> Evidence:
    """`(cause, element, evidence)` of K/V that leave the noise, `layer` being the first that does."""
    pairs = {la.index: (la.key, la.value) for la in state.layers if la.segments}
    wanted = {
        la.index: aligned(kv, la)
        for la in state.layers
        if la.segments and (kv := right.kv[la.index]) is not None
    }
    floors = {i: right.floors[i] for i in pairs}
    allowed = {i: (MARGIN * f["key"], MARGIN * f["value"]) for i, f in floors.items()}
    stored, expected, limit = pairs[layer], wanted[layer], allowed[layer]
    off = {i for i in pairs if max(picture[i], default=0.0) > MARGIN}
    rows = [t for t, error in enumerate(picture[layer]) if not error <= MARGIN]
    coded = any(s.coded for la in state.layers for s in la.segments)  # codes are few numbers anyway
    if zeros := _zeros(stored, rows):
        return "block", "kv_cache", zeros
    if not coded and (narrow := likeness.narrow(list(pairs.values()))):
        return "rounding", "kv_cache", f"every number is one of {narrow}"
    other = other_layer(state, right, layer, allowed)
    if other is not None:
        if other != layer and other_layer(state, right, other, allowed) == layer:
            both = f"layers {layer} and {other} are exchanged, each holds the K/V of the other"
            return "layer", "kv_cache", both
        return "layer", "kv_cache", f"layer {layer} holds the K/V of layer {other}"
    if likeness.near(stored[0], expected[1], limit[1]):
        return "layer", "kv_cache", "the keys are the values of this layer"
    if heads := likeness.head_order(stored, expected, limit):
        return "head", "kv_cache", f"the heads of layer {layer} stand in the order {heads}"
    for evidence, read in likeness.layouts():
        if likeness.near(stored[1], read(expected[1]), limit[1]):
            return "head", "kv_cache", evidence
    times = likeness.factor(stored[1], expected[1], limit[1])
    if times is not None and abs(times - 1) > 1e-3:
        return "scale", "kv_cache", f"the values are {times:.4g} times what they should be"
    first = min(pairs)
    if layer == first and first == 0 and likeness.near(stored[1], expected[1], limit[1]):
        alike = likeness.turned_in_pairs if coded or _opened(state) else likeness.turned
        if alike(stored[0], expected[0], limit[0]) and len(rows) > 1:
            evidence = "values are right and keys are turned: other positions or factors"
            return "position", "positions", evidence
    if (coded or _opened(state)) and all(_coarse(state, wanted, i) for i in off):
        return "rounding", "kv_cache", COARSE
    by = (1,) if layer == 0 else (0, 1)  # values of the first layer know the token and no position
    clean = [likeness.near(stored[p], expected[p], limit[p]) for p in (0, 1)]
    if any(clean) and len(rows) >= len(picture[layer]) - 1:
        p, part = (1, "values") if clean[0] else (0, "keys")
        if not coded and (narrow := likeness.narrowed(stored[p], expected[p], limit[p])):
            return "rounding", "kv_cache", f"only the {part} are off: all of them are {narrow}"
        evidence = f"only the {part} are off, all of them: they were changed, or the model computes them otherwise"
        return "identity", "attention_weights", evidence
    if moved := likeness.other_rows(stored, expected, rows, limit, by):
        row, source = next(iter(moved.items()))
        many = f"{len(moved)} cache rows hold what belongs in others: " * (len(moved) > 1)
        return "block", "kv_cache", f"{many}cache row {row} holds what belongs in row {source}"
    if any(clean):
        part = "values" if clean[0] else "keys"
        return "block", "kv_cache", f"only the {part} of {_span(rows)} are off"
    if layer != first and _after_pruning(state, off, picture):
        return "block", "kv_cache", dropped(state)
    padded = (state.attention_mask == 0).any(1)
    if layer > min(pairs) and bool(padded.any()):
        alone = [likeness.near(stored[p][~padded], expected[p][~padded], limit[p]) for p in (0, 1)]
        if bool(padded.all()) or all(alone):
            evidence = "tokens and positions are right, what padded rows attended to before layer"
            return "mask", "attention_mask", f"{evidence} {layer} is not"
    if tie := [(at, token) for at, token in right.ties if at < layer and token <= rows[0]]:
        at, token = tie[0]
        return "routing", "model_config", f"the router of layer {at} ties at token {token}"
    return _spread(layer, off, set(pairs), rows, len(picture[layer]))


def _zeros(stored: Pair, rows: list[int]) -> str:
    """That the values of `rows` are all zero, or their keys; empty where neither are."""
    key, value = (bool(kept[:, :, rows].any()) for kept in stored)
    if not value:
        return f"{_span(rows)} {_many(rows, 'holds', 'hold')} zeros"
    return "" if key else f"the keys of {_span(rows)} are zeros"


def dropped(state: State) -> str:
    """What a state says of itself that was pruned on purpose."""
    done = altered({"pruned": True, "quantization": state.documents["kv_format"].get("quantized")})
    said = f"{done} on purpose: {on_average(*tokens_held(state), f' of {state.tokens:,} tokens are kept')}"
    later = ", and those read since then saw only what was left of the past"
    return f"{said}{later if since(state) < state.tokens else ''}"


def _after_pruning(state: State, off: set[int], picture: list[list[float]]) -> bool:
    """Whether every row that leaves the noise in the layers `off` was read over a pruned past."""
    end = since(state) - int((state.attention_mask == 0).sum(1).max())
    for layer in state.layers:
        if layer.index in off:
            at = layer.positions.amax(1) if layer.per_head else layer.positions
            rows = torch.tensor([not error <= MARGIN for error in picture[layer.index]])
            if bool((at.cpu()[:, rows] < end).any()):
                return False
    return True


def _opened(state: State) -> bool:
    """Whether codes were kept once, and what they say is held as plain numbers since."""
    return bool(state.documents["kv_format"].get("quantized")) and not state.quantized


def _coarse(state: State, wanted: Mapping[int, Pair], index: int) -> bool:
    """Whether the codes of a layer are those of its own rows, however much they lose."""
    layer = next(la for la in state.layers if la.index == index)
    real = layer.positions >= 0
    real = real if layer.per_head else real[:, None]
    pairs = zip((layer.key, layer.value), wanted[index], strict=True)
    return (_opened(state) or any(s.coded for s in layer.segments)) and all(
        likeness.rounded(stored, expected, real.to(stored.device)) for stored, expected in pairs
    )


def _spread(layer: int, off: set[int], every: set[int], rows: list[int], count: int) -> Evidence:
    """What is left to tell by where the error lies: single layers, single rows, or all from here on."""
    rest = f"{len(off)} of {len(every)} layers are off"
    if len(rows) < count - 1:
        belong = _many(rows, "belongs", "belong")
        return "block", "kv_cache", f"{_span(rows)} {belong} to none of the tokens in the buffer"
    if layer == min(every):
        return "block", "kv_cache", f"no cache row is one of a token in the buffer; {rest}"
    evidence = f"layer {layer} holds another past, although layer {min(every)} is right; {rest}"
    return "layer", "kv_cache", evidence


def _padding(state: State) -> Diagnosis | None:
    """Whether mask and positions disagree about which rows are padding."""
    mask = state.attention_mask
    for layer in state.layers:
        if not layer.segments or layer.kept != mask.shape[1] or layer.positions.dim() != 2:
            continue
        padding = layer.positions < 0
        doubled = (layer.positions[:, 1:] == 0) & (layer.positions[:, :-1] == 0)
        if bool((padding != (mask == 0)).any()):
            evidence = "the mask and the positions disagree about which rows are padding"
            return Diagnosis("mask", "attention_mask", evidence, layer.index)
        if bool(doubled.any()):
            evidence = "several rows stand at position 0: padding that was given a place"
            return Diagnosis("mask", "attention_mask", evidence, layer.index)
    return None


def _buffer(problems: list[str]) -> Diagnosis | None:
    prefix = [f for f in problems if "recorded prefix" in f]
    for fault in prefix or [f for f in problems if "ids that were sent" in f]:
        element = "prompt_meta" if prefix else "token_buffer"
        return Diagnosis("token buffer", element, fault)
    return None


def _mask(state: State, problems: list[str]) -> Diagnosis | None:
    if state.attention_mask.shape != state.token_ids.shape:
        shapes = f"{list(state.attention_mask.shape)} and {list(state.token_ids.shape)}"
        return Diagnosis("mask", "attention_mask", f"mask and token buffer are {shapes}")
    hidden = [f for f in problems if "attention mask hides" in f]
    return Diagnosis("mask", "attention_mask", hidden[0]) if hidden else None


def _rows(state: State, problems: list[str]) -> Diagnosis | None:
    """Whether cursor and rows fit the buffer."""
    tokens = state.attention_mask.sum(dim=1)
    if not state.documents["kv_format"].get("pruned") and bool(
        (state.next_position != tokens).any()
    ):
        text = f"the next position is {listed(state.next_position.tolist())} after {listed(tokens.tolist())} tokens"
        return Diagnosis("position", "positions", text)
    for layer in state.layers:
        ends = layer.positions.amax(-1).flatten() if layer.kept else torch.zeros(0)
        if layer.seen <= state.tokens and bool((ends >= state.next_position.max()).any()):
            text = f"layer {layer.index} holds a row at or beyond the next position"
            return Diagnosis("position", "positions", text, layer.index)
        if layer.segments and (not layer.kept or layer.seen != state.tokens):
            rows = f"{layer.kept} rows of {layer.seen}"
            text = f"layer {layer.index} holds {rows}, the buffer {state.tokens} tokens"
            return Diagnosis("block", "kv_cache", text, layer.index)
    lost = [f for f in problems if "no pruning is recorded" in f]
    return Diagnosis("block", "kv_cache", lost[0]) if lost else None


def _many(rows: list[int], one: str, several: str) -> str:
    return one if len(rows) == 1 else several


def _span(rows: list[int]) -> str:
    """`cache row 3` or `cache rows 3 to 9`: of a layer, counted from 0 among the tokens that it keeps."""
    return f"cache row {rows[0]}" if len(rows) == 1 else f"cache rows {rows[0]} to {rows[-1]}"
