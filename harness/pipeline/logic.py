"""Does the cache compute this model's function? The decoder under test continues in float64, where rounding cannot hide it.

The very class with the very options goes on from what the ids give (nothing of the snapshot but its ids), beside one
uncached pass. A state that holds another past on purpose is asked over what it keeps. What runs compiled code of the
working dtype is asked in float32 as well, which that code serves; what refuses float64 is asked there alone.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.attention.parts import by_head
from harness.cache.library import layer_masks
from harness.capture import positions_of
from harness.compare.checks import FAILED, NOT_ASKED, Check
from harness.compare.soundness import UNIT32, gap
from harness.config import CacheConfig
from harness.errors import HarnessError, UnsupportedModel
from harness.model.loaded import Loaded
from harness.pipeline.budget import continuation
from harness.pipeline.float64 import Float64
from harness.pipeline.way import Way
from harness.snapshot.state import LayerState, Segment, State

LIMIT = 4.0  # healthy caches measure 2.1 times the plain path's own error in float32, planted faults 5.2 and more
CROPPED = 2  # tokens let go of and fed again
UNCACHED, KEPT, OTHER = "uncached", "uncached over the same tokens", "another cache"


@dataclass(frozen=True)
class Question:
    """start: where the decoder goes on from, in float64. target: `[rows, m, vocab]` float64, what follows. against: what
    that was computed by."""

    start: State
    target: torch.Tensor
    against: str


def logic(loaded: Loaded, held: State, way: Way, wide: Float64, count: int) -> list[Check]:
    """Whether the decoder that `way` names computes what the model computes. held: what it went on from, whose tensors say
    only which tokens are kept. count: tokens of the judged run, before those that are fed several at once. Mutates nothing."""
    try:
        question = _question(held, way, wide)
    except HarnessError:
        question = None
    if question is None:
        return [Check("logic", NOT_ASKED, "no_other_cache")]
    checks: list[Check] = []
    why = ""
    oracle = wide.asked.oracle
    try:
        with oracle.watched() as narrowed, oracle.entered() as model:
            checks = list(_answers(model, question, way, wide, count, narrowed))
    except Exception as problem:  # of whatever class somebody wrote: then float32 is asked
        why = type(problem).__name__
    if why or (way.compiled and wide.asked.dtype != torch.float32):
        checks.append(_in_float32(question, way, wide, "kernel" if not why else "logic", why))
    return checks


def _answers(
    model: Loaded, question: Question, way: Way, wide: Float64, count: int, narrowed: set[str]
) -> Iterator[Check]:
    """The runs of one decoder in float64: as the run was fed, several at once, after a crop. narrowed: grows as they run;
    what rounds to float32 by itself, a kernel or a store of its own, may be off by that."""
    plain = CacheConfig(name=way.cache.name) if getattr(way.cache, "compile", False) else way.cache
    decoder = continuation(model, question.start, plain, way.prune, way.kept)
    ids, bound, at = wide.ids.to(model.device), wide.bound, 0
    float32 = LIMIT * (wide.rounding or UNIT32 * (wide.asked.layers + 1) * wide.largest)
    more = {"dtype": "float64", "against": question.against}

    def answer(name: str, code: str, logits: torch.Tensor, first: int) -> Check:
        target = question.target[:, first : first + logits.shape[1]]
        off, narrow = gap(logits, target), bool(narrowed - wide.narrowed)
        if narrow and bound < off <= float32:
            return Check.of(name, off, float32, code, "narrow", **more)
        step = None if off <= bound else first + _first(logits, target, bound)
        return Check.of(name, off, bound, code, step=step, **more)

    runs: dict[bool, list[torch.Tensor]] = {False: [], True: []}
    for part in ids.split(list(wide.chunks), 1):
        try:
            runs[at >= count].append(decoder.step(part))
        except Exception as problem:
            if at < count:
                raise
            yield answer("logic", "function", torch.cat(runs[False], 1), 0)
            figures = {"why": type(problem).__name__}
            yield Check("logic/several", NOT_ASKED, "raises", figures, needed=False)
            return
        at += part.shape[1]
    yield answer("logic", "function", torch.cat(runs[False], 1), 0)
    if runs[True]:
        yield answer("logic/several", "several", torch.cat(runs[True], 1), count)
    crop = getattr(decoder, "crop", None)
    if crop is None or at <= CROPPED or not crop(CROPPED):
        return
    try:
        yield answer("logic/crop", "crop", decoder.step(ids[:, -CROPPED:]), at - CROPPED)
    except Exception as problem:
        yield Check("logic/crop", FAILED, "crop_raises", {"why": type(problem).__name__})


def _first(logits: torch.Tensor, target: torch.Tensor, bound: float) -> int:
    """The first step, from 0, whose logits leave the bound."""
    apart = (logits.double() - target).abs().amax((0, 2))
    return int((~(apart <= bound)).nonzero()[0, 0])


def _in_float32(question: Question, way: Way, wide: Float64, name: str, why: str) -> Check:
    """The same in float32, beside the library's growing cache or another one: LIMIT times its error is allowed."""
    try:
        model = wide.asked.single()
        start = cast(question.start, torch.float32)
        names = ("dynamic",) if question.against == UNCACHED else way.others
        scale = None
        for other in names:
            with suppress(HarnessError):
                scale = gap(_run(model, start, CacheConfig(name=other), way, wide), question.target)
                break
        if scale is None:
            return Check(name, NOT_ASKED, "no_other_cache")
        off = gap(_run(model, start, way.cache, way, wide), question.target)
    except Exception as problem:
        return Check(name, NOT_ASKED, "refused", {"why": why or type(problem).__name__})
    bound = LIMIT * max(scale, torch.finfo(torch.float32).eps * wide.largest)
    return Check.of(
        name, off, bound, "function", "float32", dtype="float32", against=question.against
    )


def _run(model: Loaded, start: State, cache: Any, way: Way, wide: Float64) -> torch.Tensor:
    cache = replace(cache, branches=way.cache.branches)
    decoder = continuation(model, start, cache, way.prune, way.kept)
    pieces = wide.ids.to(model.device).split(list(wide.chunks), 1)
    return torch.cat([decoder.step(part) for part in pieces], 1)


def _question(held: State, way: Way, wide: Float64) -> Question | None:
    whole = not (held.pruned or held.quantized or way.kept) and in_place(held)
    if whole:
        return Question(wide.truth, wide.exact[:, 1:], UNCACHED)
    oracle = wide.asked.oracle
    if (
        held.pruned
        and in_place(held)
        and not (held.quantized or way.kept)
        and way.cache.branches == 1
    ):
        start = kept(wide.truth, held)
        with suppress(UnsupportedModel), oracle.entered() as model:
            return Question(start, _masked(model, start, wide), KEPT)
    start = (
        wide.truth
        if way.kept and not held.pruned and not held.quantized
        else cast(held, torch.float64)
    )
    for name in way.others:
        with suppress(HarnessError), oracle.entered() as model:
            return Question(start, _run(model, start, CacheConfig(name=name), way, wide), OTHER)
    return None


def in_place(state: State) -> bool:
    """Whether the tokens that `state` keeps stand at their own positions."""
    return bool((state.next_position == state.attention_mask.sum(1)).all())


def cast(state: State, dtype: torch.dtype) -> State:
    """`state` with every floating-point number in `dtype`; codes stay as they are and give numbers of it."""

    def one(kept: Any) -> Any:
        if isinstance(kept, torch.Tensor):
            return kept.to(dtype) if kept.is_floating_point() else kept
        zero = None if kept.zero is None else kept.zero.to(dtype)
        return replace(kept, scale=kept.scale.to(dtype), zero=zero, dtype=dtype)

    layers = tuple(
        replace(
            la,
            segments=tuple(replace(s, key=one(s.key), value=one(s.value)) for s in la.segments),
            recurrent={name: one(t) for name, t in la.recurrent.items()},
        )
        for la in state.layers
    )
    return replace(state, layers=layers, logits=state.logits.to(dtype))


def kept(truth: State, small: State) -> State:
    """The rows of `truth` at the positions that `small` keeps in each layer and head."""
    layers = []
    for whole, part in zip(truth.layers, small.layers, strict=True):
        if not part.segments:
            layers.append(whole)
            continue
        places, places_of = part.positions.to(whole.key.device), whole.positions
        each = places if places.dim() == 3 else places[:, None].expand(-1, whole.key.shape[1], -1)
        offset = places_of[:, -1] - (whole.kept - 1)  # of a row: its position less its place
        at = (each - offset[:, None, None]).clamp(min=0)
        key, value = (
            t.gather(2, at[..., None].expand(-1, -1, -1, t.shape[3]))
            for t in (whole.key, whole.value)
        )
        segment = Segment(key, value, places)
        layers.append(replace(part, segments=(segment,), recurrent=whole.recurrent, received=None))
    return replace(truth, layers=tuple(layers), next_position=small.next_position.to(truth.device))


def _masked(model: Loaded, small: State, wide: Float64) -> torch.Tensor:
    """`[batch, m, vocab]` of an uncached pass whose new tokens see what `small` keeps of the past. Raises
    UnsupportedModel where the model's attention takes no such mask."""
    ids = torch.cat([small.token_ids, wide.ids.to(small.token_ids)], 1)
    past, total = small.tokens, ids.shape[1]
    pad = (small.attention_mask == 0).sum(1)
    masks: dict[int, torch.Tensor | None] = {
        la.index: _sees(la, pad, past, total, model.text_config.num_attention_heads)
        for la in small.layers
        if la.segments
    }
    ones = torch.ones_like(wide.ids).to(small.attention_mask)
    where = positions_of(torch.cat([small.attention_mask, ones], 1))
    with layer_masks(model, masks):
        return model.once(ids, where, None, None, wide.ids.shape[1])


def _sees(layer: LayerState, pad: torch.Tensor, past: int, total: int, heads: int) -> torch.Tensor:
    """`[batch, 1 or heads, total, total]` bool: who sees whom in this layer."""
    places = layer.positions if layer.per_head else layer.positions[:, None]
    batch, each, _ = places.shape
    there = torch.zeros(batch, each, past + 1, dtype=torch.bool, device=places.device)
    there.scatter_(2, torch.where(places >= 0, places + pad[:, None, None], past), True)
    mask = torch.ones(batch, each, total, total, dtype=torch.bool, device=places.device).tril()
    mask[:, :, past:, :past] = there[:, :, None, :past]
    for row, padding in enumerate(pad.tolist()):
        mask[row, :, :, :padding] = False
        mask[row, :, :padding, 0] = True  # padding sees something, whatever it is
    if layer.window:
        at = torch.arange(total, device=places.device)
        mask &= at[:, None] - at[None] < layer.window
    return by_head(mask, heads)
