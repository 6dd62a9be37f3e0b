"""Plain runs: the library's own forward and its growing cache, with nothing of ours in between."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch

from harness import progress
from harness.capture import new_cache, positions_of, prefill
from harness.model.loaded import Loaded
from harness.model.oracle import Oracle
from harness.pipeline.drive import Uninterrupted
from harness.snapshot.state import State

EXACT = 4  # times as long as in the working dtype takes a pass in float64, until its pace is known


def alone(
    model: Any,
    state: State,
    fed: torch.Tensor,
    beside: bool = False,
    before: int = 0,
    chunks: Sequence[int] = (),
    singly: bool = False,
) -> torch.Tensor:
    """Logits after `fed` `[batch, n]` (and after the last `before` tokens of the buffer): `[batch,
    before + n, vocab]`, one uncached pass per row of the batch, without padding.

    model: a Loaded or its Oracle. beside: in a batch of two, another composition of the same sums. singly: in a
    third one, that of decode steps.
    chunks: in which lengths `fed` is fed, single tokens by default; only a model whose RoPE factors
    switch at a length asks: what was said before the switch is computed by a pass that ends there.
    """
    ids, mask = state.token_ids.to(model.device), state.attention_mask.to(model.device)
    rows: dict[tuple[int, ...], torch.Tensor] = {}
    run = model.singly if singly else model.uncached
    logits = []
    for row, real, more in zip(ids, mask.bool(), fed.to(model.device), strict=True):
        whole = torch.cat([row[real], more])
        key = tuple(whole.tolist())
        if key not in rows:
            batch = whole[None].repeat(2, 1) if beside else whole[None]
            last = before + len(more)
            lengths = [int(real.sum()), *(chunks or (1,) * len(more))]
            early = _before(model.switch, lengths) - (len(whole) - last)
            parts = [run(batch, last)[:1]]
            if early > 0:
                cut = len(whole) - last + early
                parts = [run(batch[:, :cut], early)[:1], parts[0][:, early:]]
            rows[key] = torch.cat(parts, 1)
        logits.append(rows[key])
    return torch.cat(logits)


def _before(switch: int | None, lengths: Sequence[int]) -> int:
    """How many tokens were fed in calls that ended before the switch; 0 where there is none to pass."""
    ends = list(accumulate(lengths))
    if switch is None or ends[-1] <= switch:
        return 0
    return max((end for end in ends if end <= switch), default=0)


def prefilled(model: Loaded | Oracle, state: State, chunk: int | None) -> Uninterrupted:
    """A plain cached run in `model`'s precision that read the buffer of `state` in pieces of `chunk`."""
    ids, mask = state.token_ids.to(model.device), state.attention_mask.to(model.device)
    cache = new_cache(model)
    last = prefill(model, ids, mask, positions_of(mask), cache, chunk)
    there = replace(state, token_ids=ids, attention_mask=mask)
    return Uninterrupted(model, cache, there.unpruned(last[:, -1]))


def cached(
    model: Loaded | Oracle,
    state: State,
    fed: torch.Tensor,
    chunks: Sequence[int],
    chunk: int | None,
    before: bool = False,
) -> tuple[torch.Tensor, Uninterrupted]:
    """Logits `[batch, n, vocab]` (with `before`, and of the prompt's last token) of a plain cached run in `model`'s precision: the prompt in pieces of
    `chunk`, then `fed` in pieces of `chunks`, by the code that every plain run goes through; and that run itself."""
    live = prefilled(model, state, chunk)
    pieces = fed.to(model.device).split(list(chunks), dim=1)
    first = [live.state.logits[:, None]] if before else []
    return torch.cat([*first, *(live.step(piece) for piece in pieces)], 1), live


def rechunked(
    loaded: Loaded, state: State, fed: torch.Tensor, chunk: int, before: bool = False
) -> torch.Tensor:
    """The second plain path: the prompt prefilled in other chunks, then token by token."""
    return cached(loaded, state, fed, (1,) * fed.shape[1], chunk, before)[0]


def calls_of(
    batch: int, tokens: int, new: int, chunks: Sequence[int], chunk: int | None
) -> list[int]:
    """Tokens of each call of a cached run; of one without a cache, a row each, where `chunks` is empty."""
    if not chunks:
        return [tokens + new] * batch
    return [batch * piece for piece in (*progress.pieces(tokens, chunk), *chunks)]


def worth(model: Loaded | Oracle, calls: Sequence[int]) -> float:
    """Work of `calls`, in layers of the working dtype times tokens: the passes of a verdict beside each other."""
    return progress.weight(calls) * model.layers * (EXACT if isinstance(model, Oracle) else 1)


def counted(
    model: Loaded | Oracle,
    state: State,
    fed: torch.Tensor,
    what: str,
    chunks: Sequence[int] = (),
    chunk: int | None = None,
) -> AbstractContextManager[None]:
    """One run of `model` over the whole buffer and `fed`, for whoever looks; see `calls_of`."""
    return passes(model, what, calls_of(len(fed), state.tokens, fed.shape[1], chunks, chunk))


def passes(model: Loaded | Oracle, what: str, calls: Sequence[int]) -> AbstractContextManager[None]:
    return progress.passes(model.model, model.layers, what, list(calls), worth(model, calls))
