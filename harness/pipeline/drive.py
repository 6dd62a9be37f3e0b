"""Run on from a paused state, along every path that is compared. All paths see the same ids."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol

import torch

from harness import progress
from harness.attention.kernels.cpu.program import compiling
from harness.capture import new_cache, positions_of, prefill
from harness.capture.layers import layers_of
from harness.model.loaded import Loaded
from harness.model.oracle import Oracle
from harness.model.sampler import Sampler
from harness.model.switch import crosses
from harness.pipeline.tail import Past, Tail, committed, past_of, tail_of
from harness.snapshot.result import MOMENT
from harness.snapshot.state import State

ASIDE = 32  # tokens of another thought: enough to leave a trace


@dataclass(frozen=True)
class Rollout:
    """One path over the same `fed` ids.

    logits: `[batch, n, vocab]`, one row per fed id. ids: `[batch, n + 1]`, what this path chose (or
    was given): `ids[:, 0]` from the stored logits, `ids[:, i + 1]` from `logits[:, i]`.
    fed: `[batch, n]`. times: seconds, `first_token` and the median `per_token`. rng: the sampler's
    generator before it drew the last of `ids`, which is not fed: where who continues goes on.
    chunks: in which lengths `fed` was fed. ended: every row came to its end. stored: `[batch, vocab]`,
    the logits that `ids[:, 0]` was chosen from. tail: what would be stored of `fed`. past: the layers that
    the runner holds at its end; begun: those that it began with, of a plain run. given: how many of `fed` a text gave, before what was generated. drawn: what
    was generated need not be the most likely token.
    """

    logits: torch.Tensor
    ids: torch.Tensor
    fed: torch.Tensor
    times: dict[str, float]
    rng: torch.Tensor | None = None
    chunks: tuple[int, ...] = ()
    ended: bool = False
    stored: torch.Tensor | None = None
    tail: Tail = ()
    past: Past = ()
    begun: Past = ()
    given: int = 0
    drawn: bool = False

    @property
    def said(self) -> torch.Tensor:
        """`ids` without the last ones where all rows had ended: nothing comes after an end."""
        return self.ids[:, : self.fed.shape[1]] if self.ended else self.ids


class Runner(Protocol):
    """What goes on from a state: a Decoder, or Uninterrupted."""

    @property
    def state(self) -> State: ...

    def step(self, ids: torch.Tensor) -> torch.Tensor: ...

    def commit(self) -> State: ...


class Uninterrupted:
    """The run that was never interrupted: it goes on with the very cache the prefill filled. Where the
    model's RoPE factors switch, it processes everything again, as the library's `generate` does."""

    def __init__(self, loaded: Loaded | Oracle, live: Any, state: State):
        self.loaded, self.state, self._cache = loaded, state, live
        self._position, self._mask = state.next_position[:, None], state.attention_mask
        self._padded = not bool(state.attention_mask.all())
        self._ids = state.token_ids.to(loaded.device)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Feed `ids` `[batch, new]`; logits `[batch, new, vocab]`. Grows the live cache."""
        ids = ids.to(self.loaded.device)
        self._mask = torch.cat([self._mask, torch.ones_like(ids)], dim=1)
        positions = self._position + torch.arange(ids.shape[1], device=ids.device)
        self._position = self._position + ids.shape[1]
        mask = self._mask if self._padded else None
        self._ids = torch.cat([self._ids, ids], dim=1)
        last = int(self._position.max())
        if crosses(self.loaded.switch, last - ids.shape[1], last):
            self._cache, where = new_cache(self.loaded), positions_of(self._mask)
            return self.loaded.forward(self._ids, where, mask, self._cache, keep=ids.shape[1])
        return self.loaded.forward(ids, positions, mask, self._cache)

    def commit(self) -> State:
        """The layers of the live cache as they are now, shared, and the ids that filled them."""
        layers = layers_of(self._cache, positions_of(self._mask), self.loaded.text_config)
        return replace(
            self.state,
            layers=layers,
            token_ids=self._ids,
            attention_mask=self._mask,
            next_position=self._position[:, 0],
        )


def drive(
    runner: Runner,
    sampler: Sampler,
    steps: int,
    prompt: torch.Tensor | None = None,
    follow: torch.Tensor | None = None,
    on_token: Callable[[torch.Tensor], None] = lambda ids: None,
) -> Rollout:
    """Feed `prompt` `[batch, k]` in one call, then `steps` tokens one by one.

    follow: `[batch, k + n]` ids to feed whatever this path would choose itself (teacher forcing), n
    steps. on_token sees each generated token `[batch, 1]` before it is fed. Where the sampler says
    that every row has ended, no more is generated; a row that ends before the others goes on with
    padding. Times leave out what was compiled meanwhile. Advances `runner` and `sampler`.
    """
    stored = runner.state.logits
    context, last = runner.state.token_ids.cpu(), stored
    count = 0 if prompt is None else prompt.shape[1]
    chosen, logits, fed, seconds = [], [], [], []
    sampler.begin(runner.state, count)
    begun = runner.commit().layers if isinstance(runner, Uninterrupted) else ()

    def feed(ids: torch.Tensor) -> torch.Tensor:
        nonlocal context
        start, compiled = time.perf_counter(), compiling()
        out = runner.step(ids)
        if out.is_cuda:
            torch.cuda.synchronize(out.device)
        seconds.append(time.perf_counter() - start - (compiling() - compiled))
        context = torch.cat([context, ids.cpu()], dim=1)
        logits.append(out)
        fed.append(ids.cpu())
        return out[:, -1]

    if prompt is not None and count:
        last = feed(prompt)
        chosen.append(prompt.cpu())
    ended = False
    for i in range(steps if follow is None else follow.shape[1] - count):
        choice = sampler.choose(last, context)
        chosen.append(choice)
        on_token(choice)
        last = feed(choice if follow is None else follow[:, count + i : count + i + 1])
        ended = bool(sampler.ended(context).all())
        if follow is None and ended:
            break
    rng = sampler.rng
    chosen.append(sampler.choose(last, context))
    lengths = tuple(ids.shape[1] for ids in fed)
    states = committed(runner)
    times = {"first_token": seconds[0], "per_token": median(seconds[1:] or seconds)}
    return Rollout(
        torch.cat(logits, 1),
        torch.cat(chosen, 1),
        torch.cat(fed, 1),
        times,
        rng,
        lengths,
        ended,
        stored,
        tail_of(states, sum(lengths)),
        past_of(states),
        begun,
        count,
        not sampler.plain,
    )


def rebuilt(loaded: Loaded, state: State, chunk: int | None = None) -> tuple[Uninterrupted, float]:
    """A run that goes on from the whole token buffer of `state`, and the seconds its prefill took."""
    ids, mask = state.token_ids.to(loaded.device), state.attention_mask.to(loaded.device)
    cache = new_cache(loaded)
    calls = [len(ids) * piece for piece in progress.pieces(ids.shape[1], chunk)]
    with progress.passes(loaded.model, loaded.layers, "prefill again", calls):
        start = time.perf_counter()
        logits = prefill(loaded, ids, mask, positions_of(mask), cache, chunk)
        seconds = time.perf_counter() - start
    return Uninterrupted(loaded, cache, state.unpruned(logits[:, -1])), seconds


def aside(loaded: Loaded, state: State) -> None:
    """Let the model think of something else: the first tokens of `state`, those after the very first
    backwards, onto an empty cache. What it keeps outside of its cache is that thought's from here on, as
    it is wherever a thought is brought back; a restored run that needs it is not the uninterrupted one."""
    begun = state.token_ids[:, :ASIDE].to(loaded.device)
    ids = torch.cat([begun[:, :1], begun[:, 1:].flip(1)], dim=1)
    mask = torch.ones_like(ids)
    prefill(loaded, ids, mask, positions_of(mask), new_cache(loaded))


def recompute_seconds(loaded: Loaded, state: State, runs: int = 1) -> float:
    """Seconds to rebuild the cache from the token buffer: what a snapshot saves. The median of `runs` prefills,
    or of as many as a tenth of a second is enough for: a short one by itself says what else the machine did."""
    ids, mask = state.token_ids.to(loaded.device), state.attention_mask.to(loaded.device)
    took: list[float] = []
    while len(took) < runs and (not took or sum(took) < MOMENT):
        start = time.perf_counter()
        prefill(loaded, ids, mask, positions_of(mask), new_cache(loaded))
        if ids.is_cuda:
            torch.cuda.synchronize(ids.device)
        took.append(time.perf_counter() - start)
    return median(took)
