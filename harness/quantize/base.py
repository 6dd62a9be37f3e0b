"""Quantizing: join what is plain, keep the most recent, turn the rest into codes. A variant supplies the
codes of one tensor; everything else is this procedure.

The State is only read. What is coded already stays as it is, so nothing is ever rounded twice, and
recurrent tensors, which are rewritten at every step, are left alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import torch

from harness.config import QuantizeConfig, at_least, one_of
from harness.errors import ConfigProblem, InputProblem, UnsupportedModel
from harness.snapshot.codes import Codes, dense, faults, packed
from harness.snapshot.state import LayerState, Segment, State, aligned


class Quantizer(ABC):
    """Turns a State's keys and values into codes. settings: an option of `quantize`; construction checks
    it. recent: most recent tokens that stay in full precision (`quantize.recent`)."""

    def __init__(self, settings: QuantizeConfig):
        self.settings = settings
        self.recent = getattr(settings, "recent", 0)
        at_least("quantize.recent", self.recent, 0)
        at_least("quantize.group", getattr(settings, "group", 1), 1)
        one_of("quantize.axis", getattr(settings, "axis", "token"), ("token", "channel"))
        one_of("quantize.bits", str(getattr(settings, "bits", 8)), ("2", "4", "8"))

    @abstractmethod
    def encode(self, tensor: torch.Tensor, part: str) -> Codes:
        """Codes of `tensor` `[batch, kv_heads, tokens, head_dim]`; part: `key` or `value`. Mutates
        nothing. Raises UnsupportedModel for a shape that it cannot code."""

    def quantize(self, state: State) -> State:
        """A State whose layers hold codes, but for the last `recent` tokens of each.

        Raises UnsupportedModel when the state keeps no keys and values, InputProblem when another quantizer has
        coded them all. Mutates nothing.
        """
        if not any(layer.segments for layer in state.layers):
            raise UnsupportedModel(
                f"quantize={self.settings.name} has nothing to quantize: this model keeps no keys "
                "and values. Use quantize=none."
            )
        layers = tuple(self._layer(layer) for layer in state.layers)
        before = state.documents["kv_format"].get("quantized", [])
        if (
            before
            and before[-1] != self.record()
            and coded_tokens(layers) == coded_tokens(state.layers)
        ):
            raise InputProblem(
                f"quantize={self.settings.name} has nothing left to quantize: all of this state is codes of "
                f"{before[-1]['quantizer']} already. Quantize the state from before that."
            )
        return state.with_layers(layers, quantized=[*before, self.record()])

    def span(self, tensor: torch.Tensor) -> tuple[int, int]:
        """(tokens, numbers) of `tensor` that share a scale, by `settings.axis` and `settings.group`."""
        group, axis = self.settings.group, getattr(self.settings, "axis", "token")
        return (group, 1) if axis == "channel" else (1, min(group, tensor.shape[3]))

    def record(self) -> dict[str, Any]:
        """What the snapshot says about this quantizing (JSON-able, part of element +3)."""
        return {"quantizer": self.settings.name, "recent": self.recent}

    def _layer(self, layer: LayerState) -> LayerState:
        old, recent = _parted(layer.segments, layer.kept - self.recent)
        segments: list[Segment] = []
        for coded, run in groupby(old, key=lambda s: s.coded):
            alike = list(run)
            segments += alike if coded else [self._segment(joined(alike))]
        return replace(layer, segments=(*segments, *recent))

    def _segment(self, plain: Segment) -> Segment:
        key, value = self._codes(dense(plain.key), "key"), self._codes(dense(plain.value), "value")
        return Segment(key, value, plain.positions)

    def _codes(self, tensor: torch.Tensor, part: str) -> Codes:
        """`encode`, checked as a variant from outside needs it."""
        codes, who = self.encode(tensor, part), f"quantize={self.settings.name}: `encode`"
        if codes.shape != tensor.shape:
            raise ConfigProblem(
                f"{who} returned codes of {list(codes.shape)} for {part}s of {list(tensor.shape)}."
            )
        stored = {
            p: (str(t.dtype).removeprefix("torch."), list(t.shape)) for p, t in codes.tensors()
        }
        if wrong := faults(codes.document(), stored, tensor.shape[2]):
            raise ConfigProblem(f"{who} returned what cannot be stored: it {wrong[0]}.")
        for name, scale in (("scale", codes.scale), ("zero", codes.zero)):
            if scale is None or bool(scale.isfinite().all()) or not bool(tensor.isfinite().all()):
                continue
            raise ConfigProblem(
                f"{who} returned a {name} that is not finite for {part}s that are: every number is "
                "`code * scale + zero`, so the scale of a span that is all zero has to be 0 or more, not NaN."
            )
        return codes


def coded_tokens(layers: Sequence[LayerState]) -> int:
    """Tokens that are codes, over all layers."""
    return sum(s.tokens for layer in layers for s in layer.segments if s.coded)


def joined(segments: Sequence[Segment]) -> Segment:
    """Neighbouring plain segments as one; no copy where there is one."""
    if len(segments) == 1:
        return segments[0]
    key, value = (torch.cat([dense(getattr(s, p)) for s in segments], 2) for p in ("key", "value"))
    return Segment(key, value, torch.cat(aligned([s.positions for s in segments]), -1))


def _parted(segments: Sequence[Segment], tokens: int) -> tuple[list[Segment], list[Segment]]:
    """The segments of the first `tokens` tokens and those of the rest, as views. A coded segment
    stays with the first."""
    old: list[Segment] = []
    recent: list[Segment] = []
    for segment in segments:
        cut = min(max(tokens, 0), segment.tokens)
        tokens -= segment.tokens
        if segment.coded:
            old.append(segment)
            continue
        old += [segment.cut(0, cut)] if cut else []
        recent += [segment.cut(cut, segment.tokens)] if cut < segment.tokens else []
    return old, recent


def spans(tensor: torch.Tensor, span: tuple[int, int]) -> torch.Tensor:
    """`[batch, kv_heads, tokens, head_dim]` as `[batch, kv_heads, T, D, tokens * numbers]`, one row per
    span; what is missing at the end is filled with the last there is, which changes no extreme."""
    tokens, numbers = span
    more = (-tensor.shape[3] % numbers, -tensor.shape[2] % tokens)
    if any(more):
        wide = torch.cat([tensor, tensor[..., -1:].expand(-1, -1, -1, more[0])], 3)
        tensor = torch.cat([wide, wide[:, :, -1:].expand(-1, -1, more[1], -1)], 2)
    split = tensor.unflatten(3, (-1, numbers)).unflatten(2, (-1, tokens))
    return split.transpose(3, 4).flatten(4)


def compact(scale: torch.Tensor) -> torch.Tensor:
    """`scale` in float16 where that holds it without loss of range, else in float32. Codes are
    computed from what this returns, so that its rounding costs next to nothing."""
    half = torch.finfo(torch.float16)
    sizes = scale.abs()
    fits = bool((sizes <= half.max).all()) and bool(((sizes >= half.tiny) | (sizes == 0)).all())
    return scale.to(torch.float16 if fits else torch.float32)


def symmetric(tensor: torch.Tensor, span: tuple[int, int], kind: torch.dtype) -> Codes:
    """Codes of type `kind` (int8 or a float8) around 0: the largest of a span gets the largest code."""
    largest = 127.0 if kind == torch.int8 else torch.finfo(kind).max
    scale = compact(spans(tensor.float(), span).abs().amax(-1) / largest)
    blank = Codes(tensor, scale, None, 8, tensor.shape[3], span, tensor.dtype)
    scaled = tensor.float() / _divisor(blank, scale)
    codes = (scaled.round() if kind == torch.int8 else scaled).clamp(-largest, largest).to(kind)
    return replace(blank, codes=codes.contiguous())


def asymmetric(tensor: torch.Tensor, span: tuple[int, int], bits: int) -> Codes:
    """Codes of `bits` bits from the smallest of a span to its largest, packed."""
    rows = spans(tensor.float(), span)
    zero = compact(rows.amin(-1))
    scale = compact((rows.amax(-1) - zero.float()) / (2**bits - 1))
    blank = Codes(tensor, scale, zero, 8, tensor.shape[3], span, tensor.dtype)
    offset = tensor.float() - blank.spread(zero.float())
    codes = (offset / _divisor(blank, scale)).round().clamp(0, 2**bits - 1)
    return replace(blank, codes=packed(codes.to(torch.uint8), bits), bits=bits)


def _divisor(blank: Codes, scale: torch.Tensor) -> torch.Tensor:
    """The scale of every number; 1 where a span is all the same and its scale is 0."""
    each = blank.spread(scale.float())
    return torch.where(each == 0, 1.0, each)
