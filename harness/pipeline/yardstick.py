"""The runs that a restored run is measured with, and whether they may be: scale, noise, soundness.

Source of the scale: the FlashAttention tests (error against a higher precision, at most twice the
plain path's own). Here the plain path has no cache, so that a fault of the cache cannot hide in it.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch

from harness import progress
from harness.capture import new_cache, positions_of, prefill
from harness.compare.soundness import PlainPath, Soundness, carried, exact_path, rounded_path
from harness.config import CompareConfig
from harness.model.experts import experts
from harness.model.loaded import Loaded
from harness.model.oracle import Cost, Oracle
from harness.pipeline.drive import Rollout, Uninterrupted
from harness.pipeline.noise import CHUNK
from harness.pipeline.past import Floors, floors, past_of
from harness.pipeline.tail import Tail, committed, tail_of
from harness.snapshot.digest import digest_named
from harness.snapshot.state import State

WORK = 2e10  # parameters times tokens; beyond, float64 of the whole is minutes, and a twin is asked
FEW = 4  # tokens after a prefill in other chunks: enough to see whether the prefill was one
EXACT = 4  # times as long as in the working dtype takes a pass in float64, until its pace is known
KEPT = 4  # yardsticks that one loaded model remembers


@dataclass(frozen=True)
class Yardstick:
    """Logits `[batch, n, vocab]` after the fed ids, each row alone and unpadded.

    uncached: the library's own forward in the working dtype. exact: the same in float64, None where
    `compare.oracle=false`. rechunked: a second plain path, the prompt in other chunks; tail: what it
    would store of the fed ids; past: how far its keys and values before them are from the reference's.
    """

    uncached: torch.Tensor
    exact: torch.Tensor | None
    rechunked: torch.Tensor
    tail: Tail
    past: Floors
    soundness: Soundness


def cost(
    loaded: Loaded,
    batch: int,
    tokens: int,
    oracle: bool,
    chunks: Sequence[int] = (),
    *,
    again: bool = True,
    small: bool = False,
) -> Cost:
    """What a verdict on `[batch, tokens]` takes, the last of them fed in calls of `chunks`: every pass that
    `measure` makes, by those of this very model that were timed last, see `Pace`. again: and the uninterrupted
    run. small: and what a pruned or a quantized state takes besides: the same steps under another cache and as
    products of one row, and prefills in four splits that tell a rounding from a fault."""
    new = sum(chunks)
    plan = _plan(loaded, batch, tokens - new, chunks, None, oracle)
    run = [batch * count for count in (tokens - new, *chunks)]
    more = [run] * again
    if small:
        splits = {None, max((tokens - new) // 4, 1), max(tokens - new - 1, 1), CHUNK}
        prefills = [batch * n for split in splits for n in progress.pieces(tokens - new, split)]
        more += [run[1:], [run[0], *[batch] * new], prefills]
    seconds = sum(loaded.ahead(calls) for calls in more)
    for model, calls in plan:
        seconds += model.ahead(calls, loaded.oracle) if isinstance(model, Oracle) else model.ahead(calls)  # fmt: skip
    return Cost(seconds, loaded.oracle.cost(batch, tokens).nbytes if oracle else 0)


def measure(
    loaded: Loaded,
    state: State,
    reference: Rollout,
    settings: CompareConfig,
    chunk: int | None = None,
) -> Yardstick:
    """The yardstick for `reference`, the plain cached run over `state`'s token buffer.

    settings: a CompareConfig. chunk: how that run's prompt was prefilled. Remembered for as long as
    the very same run is judged again (its logits bit for bit), so that a sweep pays it once.
    """
    known: dict[Any, Yardstick] = loaded.__dict__.setdefault("_yardsticks", {})
    tensors = {"ids": state.token_ids, "mask": state.attention_mask}
    tensors |= {"fed": reference.fed, "logits": reference.logits}
    key = (
        *(chunk, settings.noise_chunk, settings.oracle, reference.chunks),
        digest_named(tensors),
    )
    if key not in known:
        batch, run = len(reference.fed), reference.chunks
        plan = _plan(loaded, batch, state.tokens, run, chunk, settings.oracle, settings.noise_chunk)
        with progress.whole("judging", sum(_worth(model, calls) for model, calls in plan)):
            known[key] = _measured(loaded, state, reference, settings, chunk)
        if len(known) > KEPT:
            del known[next(iter(known))]
    return known[key]


def _measured(
    loaded: Loaded, state: State, reference: Rollout, settings: CompareConfig, chunk: int | None
) -> Yardstick:
    fed, other = reference.fed, settings.noise_chunk
    begun = fed[:, :FEW]
    with _counted(loaded, state, fed, "noise, without a cache"):
        uncached = alone(loaded, state, fed, chunks=reference.chunks)
    with _counted(loaded, state, fed, f"noise, chunks of {other}", (1,) * fed.shape[1], other):
        again, live = cached(loaded, state, fed, (1,) * fed.shape[1], other)
    states = committed(live)
    tail = tail_of(states, fed.shape[1])
    past = floors(state, reference.past, past_of(states), loaded.dtype)
    del live, states
    exact = None
    if settings.oracle:
        with _counted(loaded.oracle, state, fed, "float64 oracle"):
            exact = alone(loaded.oracle, state, fed, chunks=reference.chunks)
    scale = exact if exact is not None else alone(loaded, state, fed, True, chunks=reference.chunks)
    error = float((uncached.double() - scale.double()).abs().max())
    against = "float64" if exact is not None else "itself beside other rows"
    largest = float(scale.abs().max())
    rounding = None if exact is None else carried(error, largest, loaded.dtype)
    own = uncached if exact is None else None
    ones, chunked = (1,) * begun.shape[1], f"a prefill in chunks of {other}"
    paths = [
        logic(loaded, state, fed, "the uninterrupted run", reference.chunks, chunk, rounding, own),
        logic(loaded, state, begun, chunked, ones, other, rounding, own),
    ]
    if not routed(loaded):
        both = {
            "the uninterrupted run": reference.logits,
            chunked: again,
        }
        paths += [
            rounded_path(f"{name} in {_name(loaded)}", logits, error, scale, loaded.dtype)
            for name, logits in both.items()
        ]
    soundness = Soundness({"error": error, "against": against}, paths)
    return Yardstick(uncached, exact, again, tail, past, soundness)


def routed(loaded: Loaded) -> bool:
    """Whether experts are chosen by argmax: a tie may fall otherwise in another order of the same sums,
    which is rounding and moves logits by far more than rounding does. Float64 alone is asked then."""
    return experts(loaded.text_config)[0] > 1


def logic(
    loaded: Loaded,
    state: State,
    fed: torch.Tensor,
    name: str,
    chunks: Sequence[int],
    chunk: int | None,
    rounding: float | None = None,
    own: torch.Tensor | None = None,
) -> PlainPath:
    """Whether a cached path computes what the uncached pass computes, asked in float64.

    chunks: lengths in which `fed` was fed. chunk: of the prefill. rounding: what
    float64 rounds to here, where that is known; else it follows from `own` `[batch, n or more, vocab]`, the uncached
    run in the working dtype, where the whole model is asked. The whole model answers where that
    is cheap, else its twin: the model's own class and weights with its first layers, as many as have
    one of each kind.
    """
    asked = _asked(loaded, state.tokens + fed.shape[1])
    model, who = asked.oracle, "" if asked is loaded else " (twin)"
    with _counted(model, state, fed, "float64 with a cache", chunks, chunk):
        stepped, _ = cached(model, state, fed, chunks, chunk)
    with _counted(model, state, fed, "float64 without a cache"):
        uncached = alone(model, state, fed, chunks=chunks)
    if rounding is None and own is not None and asked is loaded:
        error = float((own[:, : fed.shape[1]].double() - uncached).abs().max())
        rounding = carried(error, float(uncached.abs().max()), loaded.dtype)
    if model.narrowed:
        rounding = None
    return exact_path(f"{name} in float64{who}", stepped, uncached, model.layers, rounding)


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
    ids, mask = state.token_ids.to(model.device), state.attention_mask.to(model.device)
    cache = new_cache(model)
    last = prefill(model, ids, mask, positions_of(mask), cache, chunk)
    there = replace(state, token_ids=ids, attention_mask=mask)
    live = Uninterrupted(model, cache, there.unpruned(last[:, -1]))
    pieces = fed.to(model.device).split(list(chunks), dim=1)
    first = [last[:, -1:]] if before else []
    return torch.cat([*first, *(live.step(piece) for piece in pieces)], 1), live


def rechunked(
    loaded: Loaded, state: State, fed: torch.Tensor, chunk: int, before: bool = False
) -> torch.Tensor:
    """The second plain path: the prompt prefilled in other chunks, then token by token."""
    return cached(loaded, state, fed, (1,) * fed.shape[1], chunk, before)[0]


def _asked(loaded: Loaded, tokens: int) -> Loaded:
    """Who is asked in float64 about that many tokens: the whole model, or its twin where that is dear."""
    return loaded.twin if loaded.parameters * tokens > WORK else loaded


def _calls(
    batch: int, tokens: int, new: int, chunks: Sequence[int], chunk: int | None
) -> list[int]:
    """Tokens of each call of a cached run; of one without a cache, a row each, where `chunks` is empty."""
    if not chunks:
        return [tokens + new] * batch
    return [batch * piece for piece in (*progress.pieces(tokens, chunk), *chunks)]


def _worth(model: Loaded | Oracle, calls: Sequence[int]) -> float:
    """Work of `calls`, in layers of the working dtype times tokens: the passes of a verdict beside each other."""
    return progress.weight(calls) * model.layers * (EXACT if isinstance(model, Oracle) else 1)


def _plan(
    loaded: Loaded,
    batch: int,
    tokens: int,
    chunks: Sequence[int],
    chunk: int | None,
    oracle: bool,
    noise_chunk: int = CompareConfig.noise_chunk,
) -> list[tuple[Loaded | Oracle, list[int]]]:
    """Who runs in `_measured`, in order, and the tokens of each of its calls."""
    new = sum(chunks)
    begun, ones = min(new, FEW), (1,) * new
    plan: list[tuple[Loaded | Oracle, list[int]]] = [
        (loaded, _calls(batch, tokens, new, (), None)),
        (loaded, _calls(batch, tokens, new, ones, noise_chunk)),
    ]
    if oracle:
        plan.append((loaded.oracle, _calls(batch, tokens, new, (), None)))
    for count, fed, size in ((new, chunks, chunk), (begun, ones[:begun], noise_chunk)):
        model = _asked(loaded, tokens + count).oracle
        plan.append((model, _calls(batch, tokens, count, fed, size)))
        plan.append((model, _calls(batch, tokens, count, (), None)))
    return plan


def _counted(
    model: Loaded | Oracle,
    state: State,
    fed: torch.Tensor,
    what: str,
    chunks: Sequence[int] = (),
    chunk: int | None = None,
) -> AbstractContextManager[None]:
    """One run of `model` over the whole buffer and `fed`, for whoever looks; see `_calls`."""
    calls = _calls(len(fed), state.tokens, fed.shape[1], chunks, chunk)
    return progress.passes(model.model, model.layers, what, calls, _worth(model, calls))


def _name(loaded: Loaded) -> str:
    return str(loaded.dtype).removeprefix("torch.")
