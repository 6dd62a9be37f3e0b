"""What the token buffer gives in float64, where rounding cannot hide the answer: the truth that everything is held against."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

from harness import progress
from harness.cache import library
from harness.capture import new_cache, whole_cache
from harness.capture.layers import kv_format
from harness.compare.soundness import PlainPath, exact_path, gap, orders
from harness.model.loaded import Loaded
from harness.model.oracle import Oracle
from harness.pipeline.drive import Uninterrupted
from harness.pipeline.plain import alone, counted, passes, prefilled
from harness.pipeline.tail import Tail, committed, tail_of
from harness.snapshot.codes import dense
from harness.snapshot.state import FULL, LayerState, Segment, State

MORE = 6  # tokens after those of the run, fed several at once
SINGLES, DEAR = 8, 4  # calls of the run repeated in float64; where each of them widens all weights
PROBE = 24  # tokens


@dataclass(frozen=True)
class Float64:
    """The runs of logic, where rounding cannot hide the answer. Nothing of the state that is judged is in them but its ids.

    asked: the model whose oracle ran: the whole one, or its twin. truth: the State that the token buffer gives.
    ids: `[batch, m]`, fed after it: what the run was fed, and a few more. chunks: in which lengths.
    exact: `[batch, 1 + m, vocab]`, uncached; the first row belongs to the last token of the buffer.
    plain: `[batch, m, vocab]`, by the library's growing cache; tail: what that stores of the run's ids. narrowed: of these runs,
    see `Oracle.watched`. rounding: of a float32 run, as far as it is known.
    """

    asked: Loaded
    truth: State
    ids: torch.Tensor
    chunks: tuple[int, ...]
    exact: torch.Tensor
    plain: torch.Tensor
    tail: Tail
    narrowed: frozenset[str]
    rounding: float | None

    @property
    def largest(self) -> float:
        return float(self.exact.abs().max())

    @property
    def bound(self) -> float:
        """What orders of the same float64 computation may differ by."""
        return orders(self.asked.layers, self.largest, gap(self.plain, self.exact[:, 1:]))


def plain_paths(
    name: str, wide: Float64, count: int, rounding: float | None = None, who: str = ""
) -> list[PlainPath]:
    """The library's cached run in float64 beside the uncached one: its first `count` tokens, in the chunks of `name`, and
    those after them, several at once. rounding: see `exact_path`."""
    exact, paths = wide.exact[:, 1:], []
    for what, rows in ((name, slice(0, count)), ("several tokens at once", slice(count, None))):
        if exact[:, rows].shape[1]:
            pair = wide.plain[:, rows], exact[:, rows]
            paths.append(exact_path(f"{what} in float64{who}", *pair, wide.asked.layers, rounding))
    return paths


def in_float64(
    asked: Loaded,
    state: State,
    fed: torch.Tensor,
    chunks: Sequence[int],
    chunk: int | None = None,
    branches: int = 1,
) -> Float64:
    """What the token buffer of `state` and `fed` `[batch, n]` after it give in float64, without a cache and with the
    library's growing one. chunks: in which lengths `fed` was fed. chunk: of the prefill.

    Where every layer keeps every token, one uncached pass gives the truth as well: the library's attention hands its
    keys and values to an empty cache on the way, which is bit-equal to having none (asked of each model, `records`).
    """
    oracle = asked.oracle
    ids = torch.cat([fed, _more(asked, state, fed)], 1)
    pattern = pattern_of(chunks, ids.shape[1] - fed.shape[1], SINGLES if oracle.keeps else DEAR)
    base = _unbranched(state, branches)
    with oracle.watched() as narrowed:
        made = None
        if chunk is None and bool(state.attention_mask.all()) and records(oracle):
            with counted(oracle, state, ids, "float64 oracle"):
                made = _recorded(oracle, state, ids)
        if made is not None:
            exact, layers = made
            truth = _truth(oracle, base, exact[::branches, 0], unbranched(layers, branches))
            cache = library.to_cache(oracle.loaded, truth)
            if branches > 1:
                cache.batch_repeat_interleave(branches)
            live = Uninterrupted(oracle, cache, state.unpruned(exact[:, 0]))
        else:
            with counted(oracle, state, ids, "float64 oracle"):
                exact = alone(oracle, state, ids, before=1, chunks=pattern)
            pieces = [len(ids) * count for count in progress.pieces(state.tokens, chunk)]
            with passes(oracle, "float64, prefill", pieces):
                live = prefilled(oracle, state, chunk)
            layers = list(live.commit().layers)
            truth = _truth(oracle, base, exact[::branches, 0], unbranched(layers, branches))
        plain, count = [], 0
        tail: Tail = ()
        with passes(oracle, "float64 with a cache", [len(ids) * count for count in pattern]):
            for piece in ids.to(oracle.device).split(list(pattern), dim=1):
                plain.append(live.step(piece))
                count += piece.shape[1]
                if count == fed.shape[1]:
                    tail = tail_of(committed(live), count)
    every = torch.cat(plain, 1)
    return Float64(asked, truth, ids, pattern, exact, every, tail, frozenset(narrowed), None)


def _more(asked: Loaded, state: State, fed: torch.Tensor) -> torch.Tensor:
    """`[batch, <= MORE]` ids to feed after `fed`, those that the buffer ends with: as many as the model has positions for,
    none where its RoPE factors switch."""
    room = room_after(asked, state.tokens + fed.shape[1])
    return state.token_ids[:, -max(room, 1) :].to(fed) if room > 0 else fed[:, :0]


def room_after(asked: Loaded | Oracle, end: int) -> int:
    """How many of MORE tokens may follow the first `end`."""
    limit = (asked.loaded if isinstance(asked, Oracle) else asked).max_positions
    room = MORE if asked.switch is None else 0
    return room if limit is None else max(min(room, limit - end), 0)


def pattern_of(chunks: Sequence[int], more: int, singles: int) -> tuple[int, ...]:
    """The calls of a run as they were, as far as `singles` goes, its rest in one, and `more` tokens in two of several."""
    parts = (*chunks[:singles], sum(chunks[singles:]), more // 2, more - more // 2)
    return tuple(part for part in parts if part)


def _unbranched(state: State, branches: int) -> State:
    """One row for each past."""
    if branches == 1:
        return state
    rows = slice(None, None, branches)
    each = {name: getattr(state, name)[rows] for name in ("token_ids", "attention_mask", "next_position", "logits")}  # fmt: skip
    return replace(state, **each)


def unbranched(layers: Sequence[LayerState], branches: int) -> Sequence[LayerState]:
    """`layers` with one row for each past."""
    if branches == 1:
        return layers
    rows = slice(None, None, branches)
    return [
        replace(
            la,
            segments=tuple(
                Segment(dense(s.key)[rows], dense(s.value)[rows], s.positions[rows])
                for s in la.segments
            ),
            recurrent=MappingProxyType({name: t[rows] for name, t in la.recurrent.items()}),
        )
        for la in layers
    ]


def _truth(
    oracle: Oracle, base: State, logits: torch.Tensor, layers: Sequence[LayerState]
) -> State:
    ids, mask = base.token_ids.to(oracle.device), base.attention_mask.to(oracle.device)
    there = replace(base, token_ids=ids, attention_mask=mask, parent=None).unpruned(logits)
    described = kv_format(oracle.loaded, layers) | {"dtype": "float64"}
    documents = MappingProxyType({**base.documents, "kv_format": described})
    return replace(there, layers=tuple(layers), documents=documents)


def records(oracle: Oracle) -> bool:
    """Whether every layer keeps every token, and a forward onto an empty cache is bit-equal to one without."""
    kinds = {type(layer).__name__ for layer in new_cache(oracle.loaded).layers}
    if kinds != {"DynamicLayer"} or oracle.switch is not None:
        return False
    if oracle.records is None:
        vocabulary = oracle.loaded.text_config.vocab_size
        ids = torch.arange(PROBE, device=oracle.device)[None] % vocabulary
        cache = whole_cache()
        alike = torch.equal(oracle.uncached(ids, PROBE), oracle.once(ids, PROBE, cache))
        full = [la.keys is not None and la.keys.shape[2] == PROBE for la in cache.layers]
        oracle.records = alike and len(full) == oracle.layers and all(full)
    return oracle.records


def _recorded(
    oracle: Oracle, state: State, ids: torch.Tensor
) -> tuple[torch.Tensor, list[LayerState]]:
    """Logits of one uncached pass a row, as `alone` gives them with `before=1`, and the layers that it made of the buffer."""
    rows: dict[tuple[int, ...], tuple[torch.Tensor, Any]] = {}
    each = []
    for row, more in zip(state.token_ids.to(oracle.device), ids.to(oracle.device), strict=True):
        whole = torch.cat([row, more])[None]
        key = tuple(whole[0].tolist())
        if key not in rows:
            cache = whole_cache()
            rows[key] = oracle.once(whole, 1 + len(more), cache), cache
        each.append(rows[key])
    count = state.tokens
    positions = torch.arange(count, device=oracle.device).expand(len(each), -1)
    layers = []
    for index in range(len(each[0][1].layers)):
        keys, values = (
            torch.cat([getattr(c.layers[index], part)[:, :, :count] for _, c in each])
            for part in ("keys", "values")
        )
        layers.append(LayerState(index, FULL, (Segment(keys, values, positions),), count))
    return torch.cat([logits for logits, _ in each]), layers
