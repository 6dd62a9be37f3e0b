"""State: everything that made up a thought, immutable. Nothing downstream of capture writes into it.

Source: the Big 8+4 taxonomy of inference state, plus the generation state as element 13.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch

from harness.snapshot.codes import Codes, coded, dense
from harness.snapshot.transfer import Transfer

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


class Portable:
    """A frozen dataclass that can be copied and sent to another process, its read-only mappings too."""

    def __reduce__(self) -> tuple[Any, ...]:
        plain = {name: _thawed(value) for name, value in vars(self).items()}
        return _frozen, (type(self), plain)


def _thawed(value: Any) -> Any:
    return dict(value) if isinstance(value, MappingProxyType) else value


def _frozen(kind: type, values: dict[str, Any]) -> Any:
    return kind(**{k: MappingProxyType(v) if isinstance(v, dict) else v for k, v in values.items()})


@dataclass(frozen=True)
class Segment:
    """Keys and values of tokens that were appended together.

    key, value: `[batch, kv_heads, tokens, head_dim]` (value may have another head_dim), or the Codes
    that stand for it; both or neither.
    positions: `[batch, tokens]` int64, absolute, strictly increasing; negative means left padding.
    `[batch, kv_heads, tokens]` where heads keep different tokens; a head that keeps fewer than the
    others is padded on the left.
    origin: id of the snapshot that stores these bytes already, or None.
    """

    key: torch.Tensor | Codes
    value: torch.Tensor | Codes
    positions: torch.Tensor
    origin: str | None = None

    @property
    def coded(self) -> bool:
        """Whether keys and values are kept as codes."""
        return isinstance(self.key, Codes)

    @property
    def tokens(self) -> int:
        return self.key.shape[2]

    @property
    def nbytes(self) -> int:
        return self.key.nbytes + self.value.nbytes

    def cut(self, start: int, stop: int) -> "Segment":
        """Tokens `start:stop`, as views; the same object where that is all of them."""
        if start == 0 and stop == self.tokens:
            return self
        return Segment(
            self.key[:, :, start:stop],
            self.value[:, :, start:stop],
            self.positions[..., start:stop],
        )

    @classmethod
    def stacked(cls, parts: "Sequence[Segment]") -> "Segment":
        """Segments of as many tokens each as the rows of one; a copy."""

        def rows(several: list[Any]) -> Any:
            return Codes.stacked(several) if isinstance(several[0], Codes) else torch.cat(several)

        positions = torch.cat(aligned([s.positions for s in parts]))
        return cls(rows([s.key for s in parts]), rows([s.value for s in parts]), positions)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """`(part, tensor)` of everything held, in stored order."""
        for part in ("key", "value"):
            kv = getattr(self, part)
            if isinstance(kv, Codes):
                yield from ((f"{part}_{name}", tensor) for name, tensor in kv.tensors())
            else:
                yield part, kv
        yield "positions", self.positions


@dataclass(frozen=True, eq=False)
class LayerState(Portable):
    """One layer's memory: segments in order of position, or recurrent tensors for linear layers.

    seen: tokens this layer ever processed; a sliding layer keeps fewer than it saw, so the count is
    recorded and never inferred from a length.
    received: `[batch, kv_heads, rows, kept]` float32, attention that each kept token received, summed
    over the query heads of a KV head: one row that sums all queries, or one row per recent query.
    None: not observed. Format 1 stored `[batch, rows, kept]`, summed over all heads.
    """

    index: int
    kind: str
    segments: tuple[Segment, ...] = ()
    seen: int = 0
    window: int | None = None
    recurrent: Mapping[str, torch.Tensor] = field(default_factory=lambda: MappingProxyType({}))
    received: torch.Tensor | None = None

    def __repr__(self) -> str:
        shape = f", {self.kept} kept" if self.segments else ""
        return f"LayerState({self.index}, {self.kind}, {self.seen} tokens read{shape}, {self.nbytes} bytes)"

    @property
    def kept(self) -> int:
        """Tokens whose keys and values are still held."""
        return sum(s.tokens for s in self.segments)

    @property
    def key(self) -> torch.Tensor:
        """`[batch, kv_heads, kept, head_dim]`; no copy when there is one plain segment."""
        return _joined([dense(s.key) for s in self.segments], 2)

    @property
    def value(self) -> torch.Tensor:
        """`[batch, kv_heads, kept, head_dim]`; no copy when there is one plain segment."""
        return _joined([dense(s.value) for s in self.segments], 2)

    @property
    def positions(self) -> torch.Tensor:
        """`[batch, kept]` int64, or `[batch, kv_heads, kept]` where heads keep different tokens."""
        return _joined(aligned([s.positions for s in self.segments]), -1)

    @property
    def per_head(self) -> bool:
        """Whether KV heads may hold different tokens."""
        return any(s.positions.dim() == 3 for s in self.segments)

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for s in self.segments) + sum(t.nbytes for t in self.recurrent.values())

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """`(name, tensor)` of everything held, in stored order."""
        for number, segment in enumerate(self.segments):
            stem = f"layer.{self.index}.segment.{number}"
            yield from ((f"{stem}.{part}", tensor) for part, tensor in segment.tensors())
        for part, tensor in sorted(self.recurrent.items()):
            yield f"layer.{self.index}.{part}", tensor
        if self.received is not None:
            yield f"layer.{self.index}.received", self.received


@dataclass(frozen=True, eq=False)
class State(Portable):
    """The 13 elements. Tensors are shared, never copied; `dataclasses.replace` makes a changed State. `==` asks
    whether it is the same object; whether it is the same thought, `harness.judge` does.

    layers: element 1 and the positions of element 3; `layers[0].key` and `.value` are tensors
    `[batch, kv_heads, kept, head_dim]`, `.positions` `[batch, kept]`. They are read from `.segments`, in which they
    are changed: `replace(layer, segments=(replace(layer.segments[0], key=mine),))`.
    token_ids: `[batch, tokens]` int64, every id processed (element 4), padding included.
    attention_mask: `[batch, tokens]` int64, 0 for padding (element 5).
    next_position: `[batch]` int64, where the next token goes (element 3).
    logits: `[batch, vocab]` of the last token (+1).
    rng: `[n]` uint8, state of the sampler's generator (13).
    documents: JSON-able, by element name (2, 3, 6, 7, 8, +2, +3, +4, 13).
    tokenizer_files: file name -> bytes, as `save_pretrained` wrote them.
    parent: id of the snapshot this state continues, or None.
    """

    layers: tuple[LayerState, ...]
    token_ids: torch.Tensor
    attention_mask: torch.Tensor
    next_position: torch.Tensor
    logits: torch.Tensor
    rng: torch.Tensor
    documents: Mapping[str, Any]
    tokenizer_files: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    parent: str | None = None

    def __repr__(self) -> str:
        """One line: a State is too large to be printed."""
        kind = str(self.dtype).removeprefix("torch.") if self.layers else "no keys or values"
        kind += " as codes" * self.quantized
        kept = f" ({self.kept_tokens} kept)" * self.pruned
        return (
            f"State({len(self.layers)} layers, {self.batch} x {self.tokens} tokens{kept}, {kind}, "
            f"{self.kv_bytes} bytes)"
        )

    @property
    def batch(self) -> int:
        return self.token_ids.shape[0]

    @property
    def tokens(self) -> int:
        """Length of the token buffer: what was sent to the model."""
        return self.token_ids.shape[1]

    @property
    def kept_tokens(self) -> int:
        """The largest number of tokens any layer without a window still holds."""
        full = [layer.kept for layer in self.layers if layer.segments and layer.window is None]
        return max(full or [layer.kept for layer in self.layers if layer.segments] or [0])

    @property
    def pruned(self) -> bool:
        """Whether any layer holds fewer tokens than its own attention would still look at."""
        return any(
            layer.segments
            and layer.kept < min(layer.seen, layer.window - 1 if layer.window else layer.seen)
            for layer in self.layers
        )

    @property
    def quantized(self) -> bool:
        """Whether any layer keeps codes in place of its keys and values."""
        return any(s.coded for layer in self.layers for s in layer.segments)

    @property
    def kv_bytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    @property
    def dtype(self) -> torch.dtype:
        """Of keys and values as attention reads them, whatever they are kept as."""
        return next(
            kept.dtype
            for layer in self.layers
            for kept in (*(s.key for s in layer.segments), *layer.recurrent.values())
        )

    @property
    def device(self) -> torch.device:
        return next(t.device for layer in self.layers for _, t in layer.tensors())

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor with its stored name, layers first."""
        for layer in self.layers:
            yield from layer.tensors()
        yield "next_position", self.next_position
        yield "token_ids", self.token_ids
        yield "attention_mask", self.attention_mask
        yield "logits", self.logits
        yield "rng", self.rng

    def to(self, device: torch.device) -> "State":
        """The same State on `device`; nothing is copied when it is there already."""
        if all(t.device == device for _, t in self.tensors()):
            return self

        way = Transfer(device)
        layers = tuple(
            replace(
                layer,
                segments=tuple(
                    replace(
                        s,
                        key=_moved(s.key, way),
                        value=_moved(s.value, way),
                        positions=way.to(s.positions),
                    )
                    for s in layer.segments
                ),
                recurrent=MappingProxyType({k: way.to(v) for k, v in layer.recurrent.items()}),
                received=None if layer.received is None else way.to(layer.received),
            )
            for layer in self.layers
        )
        moved = replace(
            self,
            layers=layers,
            token_ids=way.to(self.token_ids),
            attention_mask=way.to(self.attention_mask),
            next_position=way.to(self.next_position),
            logits=way.to(self.logits),
        )
        way.finish()
        return moved

    def unpruned(self, logits: torch.Tensor) -> "State":
        """The token buffer and the `logits` `[batch, vocab]` that follow it, without any K/V: where
        an uninterrupted run over the same tokens stands."""
        position = self.attention_mask.sum(dim=1)
        return replace(self, layers=(), next_position=position, logits=logits)

    def branched(self, branches: int) -> "State":
        """Rows repeated for `branches` continuations of each: ids, mask, next position and logits.
        The layers stay as they are, one copy for all (the same object for one branch)."""
        if branches == 1:
            return self

        def repeated(rows: torch.Tensor) -> torch.Tensor:
            if len(rows) == 1:  # then no copy is needed
                return rows.expand(branches, *rows.shape[1:])
            return rows.repeat_interleave(branches, 0)

        return replace(
            self,
            token_ids=repeated(self.token_ids),
            attention_mask=repeated(self.attention_mask),
            next_position=repeated(self.next_position),
            logits=repeated(self.logits),
        )

    def with_layers(self, layers: tuple[LayerState, ...], **changes: Any) -> "State":
        """A State that holds `layers`, described again in element +3; `changes` are merged there."""
        described = [
            {
                **{k: v for k, v in entry.items() if k != "coded"},
                "seen": layer.seen,
                "segments": [s.tokens for s in layer.segments],
                "received": layer.received is not None,
                **coded(layer.segments),
            }
            for entry, layer in zip(self.documents["kv_format"]["layers"], layers, strict=True)
        ]
        return replace(self, layers=layers).document("kv_format", layers=described, **changes)

    def document(self, name: str, **changes: Any) -> "State":
        """A State whose document `name` has `changes` merged in."""
        merged = {**self.documents, name: {**self.documents.get(name, {}), **changes}}
        return replace(self, documents=MappingProxyType(merged))


def aligned(parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Positions in one form: all `[batch, kv_heads, tokens]` as soon as one of them is."""
    heads = max((p.shape[1] for p in parts if p.dim() == 3), default=None)
    if heads is None:
        return list(parts)
    return [p if p.dim() == 3 else p[:, None].expand(-1, heads, -1) for p in parts]


def _moved(kept: torch.Tensor | Codes, way: Transfer) -> torch.Tensor | Codes:
    return kept.moved(way.to) if isinstance(kept, Codes) else way.to(kept)


def _joined(parts: list[torch.Tensor], dim: int) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
