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
from harness.model import pace
from harness.model.experts import experts
from harness.model.loaded import Loaded
from harness.model.oracle import Cost, Oracle
from harness.model.twin import kinds_seen
from harness.pipeline.drive import Rollout, Uninterrupted
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


def cost(loaded: Loaded, batch: int, tokens: int, oracle: bool, chunks: Sequence[int] = ()) -> Cost:
    """What a verdict on `[batch, tokens]` takes, the last of them fed in calls of `chunks`: three runs in the
    working dtype (uninterrupted, without a cache, in other chunks) and five in float64, four of them by a
    twin where that is dear. By the passes of this very model that were timed last, see `Pace`."""
    new, all_ = sum(chunks), batch * tokens
    fewest = pace.fewest(loaded.dtype, str(loaded.device))
    cached = progress.weight((batch * n for n in (tokens - new, *chunks)), fewest)
    singly = progress.weight((batch * n for n in (tokens - new, *[1] * new)), fewest)
    working = loaded.cost(cached + singly + all_).seconds
    if not oracle:
        return Cost(working, 0)
    exact = loaded.oracle.cost(batch, tokens)
    whole = loaded.parameters * tokens <= WORK or loaded.twin is loaded
    passes = 5 if whole else 1 + 4 * max(kinds_seen(loaded.model), 2) / loaded.layers
    fed = progress.weight(
        batch * n for n in (tokens - new, *chunks)
    )  # each call widens the weights
    passes += (passes - 1) / 2 * (fed / all_ - 1)  # half of these four feed as the run does
    return Cost(working + passes * exact.seconds, exact.nbytes)


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
        with progress.whole("judging", _planned(loaded, state, reference, settings, chunk)):
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
    ones, chunked = (1,) * begun.shape[1], f"a prefill in chunks of {other}"
    paths = [
        logic(loaded, state, fed, "the uninterrupted run", reference.chunks, chunk, rounding),
        logic(loaded, state, begun, chunked, ones, other, rounding),
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
) -> PlainPath:
    """Whether a cached path computes what the uncached pass computes, asked in float64.

    chunks: lengths in which `fed` was fed. chunk: of the prefill. rounding: what
    float64 rounds to here, where that is known. The whole model answers where that
    is cheap, else its twin: the model's own class and weights with its first layers, as many as have
    one of each kind.
    """
    asked = _asked(loaded, state.tokens + fed.shape[1])
    model, who = asked.oracle, "" if asked is loaded else " (twin)"
    with _counted(model, state, fed, "float64 with a cache", chunks, chunk):
        stepped, _ = cached(model, state, fed, chunks, chunk)
    with _counted(model, state, fed, "float64 without a cache"):
        uncached = alone(model, state, fed, chunks=chunks)
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


def _calls(state: State, fed: torch.Tensor, chunks: Sequence[int], chunk: int | None) -> list[int]:
    """Tokens of each call of a cached run; of one without a cache, a row each, where `chunks` is empty."""
    batch, new = fed.shape
    if not chunks:
        return [state.tokens + new] * batch
    return [batch * piece for piece in (*progress.pieces(state.tokens, chunk), *chunks)]


def _worth(model: Loaded | Oracle, calls: Sequence[int]) -> float:
    """Work of `calls`, in layers of the working dtype times tokens: the passes of a verdict beside each other."""
    return progress.weight(calls) * model.layers * (EXACT if isinstance(model, Oracle) else 1)


def _planned(
    loaded: Loaded, state: State, reference: Rollout, settings: CompareConfig, chunk: int | None
) -> float:
    """The `_worth` of all passes that `_measured` counts."""
    fed, other = reference.fed, settings.noise_chunk
    begun, ones = fed[:, :FEW], (1,) * fed.shape[1]
    total = _worth(loaded, _calls(state, fed, (), None))
    total += _worth(loaded, _calls(state, fed, ones, other))
    if settings.oracle:
        total += _worth(loaded.oracle, _calls(state, fed, (), None))
    for ids, chunks, size in ((fed, reference.chunks, chunk), (begun, ones[:FEW], other)):
        model = _asked(loaded, state.tokens + ids.shape[1]).oracle
        total += _worth(model, _calls(state, ids, chunks, size))
        total += _worth(model, _calls(state, ids, (), None))
    return total


def _counted(
    model: Loaded | Oracle,
    state: State,
    fed: torch.Tensor,
    what: str,
    chunks: Sequence[int] = (),
    chunk: int | None = None,
) -> AbstractContextManager[None]:
    """One run of `model` over the whole buffer and `fed`, for whoever looks; see `_calls`."""
    calls = _calls(state, fed, chunks, chunk)
    return progress.passes(model.model, model.layers, what, calls, _worth(model, calls))


def _name(loaded: Loaded) -> str:
    return str(loaded.dtype).removeprefix("torch.")
