"""The runs that a restored run is measured with, and whether they may be: scale, noise, soundness.

Source of the scale: the FlashAttention tests (error against a higher precision, at most twice the
plain path's own). Here the plain path has no cache, so that a fault of the cache cannot hide in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import torch

from harness import progress
from harness.compare.soundness import (
    Soundness,
    carried,
    gap,
    rounded_path,
    single_rounding,
)
from harness.config import CompareConfig
from harness.model.experts import experts
from harness.model.loaded import Loaded
from harness.model.oracle import FOREIGN, Cost, Oracle
from harness.pipeline.drive import Rollout
from harness.pipeline.float64 import (
    DEAR,
    SINGLES,
    Float64,
    in_float64,
    pattern_of,
    plain_paths,
    records,
    room_after,
)
from harness.pipeline.noise import CHUNK
from harness.pipeline.plain import alone, calls_of, counted, prefilled, worth
from harness.pipeline.tail import Past, Tail, committed, tail_of
from harness.snapshot.digest import digest_named
from harness.snapshot.state import State

WORK = 2e10  # parameters times tokens; beyond, float64 of the whole is minutes, and a twin is asked
PIECES = 8
KEPT = 2  # yardsticks that one loaded model remembers


@dataclass(frozen=True)
class Yardstick:
    """Logits `[batch, 1 + n, vocab]` of the last token of the buffer and after the fed ids, each row alone and unpadded.

    uncached: the library's own forward in the working dtype. exact: the same in float64, None where
    `compare.oracle=false`. rechunked: `[batch, n, vocab]`, a second plain path, the prompt in other chunks; begun: its
    layers after the prompt; tail: what it would store of the fed ids.
    """

    uncached: torch.Tensor
    exact: torch.Tensor | None
    rechunked: torch.Tensor
    begun: Past
    tail: Tail
    soundness: Soundness
    wide: Float64


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
    `measure` and the check of logic make, by those of this very model that were timed last, see `Pace`. again: and the
    uninterrupted run. small: and what a pruned or a quantized state takes besides: the same steps under another cache and
    as products of one row, and prefills in four splits that tell a rounding from a fault."""
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
    nbytes = loaded.oracle.cost(batch, tokens).nbytes if oracle else 0
    return Cost(seconds, nbytes)


def measure(
    loaded: Loaded,
    state: State,
    reference: Rollout,
    settings: CompareConfig,
    chunk: int | None = None,
    branches: int = 1,
) -> Yardstick:
    """The yardstick for `reference`, the plain cached run over `state`'s token buffer.

    settings: a CompareConfig. chunk: how that run's prompt was prefilled. branches: rows of `state` that share one
    past. Remembered for as long as the very same run is judged again (its logits bit for bit), so that a sweep pays it once.
    """
    known: dict[Any, Yardstick] = loaded.__dict__.setdefault("_yardsticks", {})
    tensors = {"ids": state.token_ids, "mask": state.attention_mask}
    tensors |= {"fed": reference.fed, "logits": reference.logits}
    key = (
        *(chunk, settings.noise_chunk, settings.oracle, reference.chunks, branches),
        digest_named(tensors),
    )
    if key not in known:
        batch, run = len(reference.fed), reference.chunks
        plan = _plan(loaded, batch, state.tokens, run, chunk, settings.oracle, settings)
        *measured, _ = plan  # the last are those of the check of logic
        with progress.whole("judging", sum(worth(model, calls) for model, calls in measured)):
            known[key] = _measured(loaded, state, reference, settings, chunk, branches)
        if len(known) > KEPT:
            del known[next(iter(known))]
    return known[key]


def _measured(
    loaded: Loaded,
    state: State,
    reference: Rollout,
    settings: CompareConfig,
    chunk: int | None,
    branches: int,
) -> Yardstick:
    fed, other = reference.fed, noise_pieces(settings, state.tokens)
    with counted(loaded, state, fed, "noise, without a cache"):
        uncached = alone(loaded, state, fed, before=1, chunks=reference.chunks)
    with counted(loaded, state, fed, f"noise, chunks of {other}", (1,) * fed.shape[1], other):
        live = prefilled(loaded, state, other)
        begun = live.commit().layers
        again = torch.cat([live.step(ids) for ids in fed.to(loaded.device).split(1, 1)], 1)
    tail = tail_of(committed(live), fed.shape[1])
    del live
    asked = loaded if settings.oracle else _asked(loaded, state.tokens + fed.shape[1])
    wide = in_float64(asked, state, fed, reference.chunks, chunk, branches)
    known = wide.exact[:, : 1 + fed.shape[1]] if asked is loaded else None
    rounding = None
    if known is not None and not wide.narrowed - {FOREIGN}:
        rounding = carried(gap(uncached, known), wide.largest, loaded.dtype)
    exact = known if settings.oracle else None
    scale = exact if exact is not None else alone(loaded, state, fed, True, 1, reference.chunks)
    error = gap(uncached, scale)
    against = "float64" if exact is not None else "itself beside other rows"
    if known is not None:
        narrow = single_rounding(gap(uncached, known), wide.largest, loaded.dtype)
        wide = replace(wide, rounding=narrow)
    who = "" if asked is loaded else " (twin)"
    paths = plain_paths("the uninterrupted run", wide, fed.shape[1], rounding, who)
    if rounding is not None and not all(path.sound for path in paths):
        # the tokens after the run may amplify rounding by more than those of the run: measured there too
        more = gap(alone(loaded, state, wide.ids, before=1), wide.exact)
        if (wider := carried(more, wide.largest, loaded.dtype)) is not None:
            paths = plain_paths("the uninterrupted run", wide, fed.shape[1], wider, who)
    if not routed(loaded):
        both = {
            "the uninterrupted run": reference.logits,
            f"a prefill in chunks of {other}": again,
        }
        paths += [
            rounded_path(f"{name} in {_name(loaded)}", logits, error, scale[:, 1:], loaded.dtype)
            for name, logits in both.items()
        ]
    soundness = Soundness({"error": error, "against": against}, paths)
    return Yardstick(uncached, exact, again, begun, tail, soundness, wide)


def noise_pieces(settings: CompareConfig | None, tokens: int) -> int:
    """Tokens of each piece of the second plain prefill: `compare.noise_chunk`, of a long text PIECES pieces, since each
    reads all weights."""
    least = CompareConfig.noise_chunk if settings is None else settings.noise_chunk
    return max(least, ceil(tokens / PIECES))


def routed(loaded: Loaded) -> bool:
    """Whether experts are chosen by argmax: a tie may fall otherwise in another order of the same sums,
    which is rounding and moves logits by far more than rounding does. Float64 alone is asked then."""
    return experts(loaded.text_config)[0] > 1


def soundness(
    loaded: Loaded,
    state: State,
    fed: torch.Tensor,
    name: str,
    chunks: Sequence[int],
    chunk: int | None = None,
) -> Soundness:
    """Whether the library's own cached path over the buffer and `fed` computes what it computes without a cache; asked of
    the model's twin where that is dear."""
    asked = _asked(loaded, state.tokens + fed.shape[1])
    wide = in_float64(asked, state, fed, chunks, chunk)
    who = "" if asked is loaded else " (twin)"
    return Soundness({"against": "float64"}, plain_paths(name, wide, fed.shape[1], None, who))


def _asked(loaded: Loaded, tokens: int) -> Loaded:
    """Who is asked in float64 about that many tokens: the whole model, or its twin where that is dear."""
    return loaded.twin if loaded.parameters * tokens > WORK else loaded


def _plan(
    loaded: Loaded,
    batch: int,
    tokens: int,
    chunks: Sequence[int],
    chunk: int | None,
    oracle: bool,
    settings: CompareConfig | None = None,
) -> list[tuple[Loaded | Oracle, list[int]]]:
    """Who runs in `_measured` and in the check of logic, in order, and the tokens of each of its calls."""
    new, ones = sum(chunks), (1,) * sum(chunks)
    plan: list[tuple[Loaded | Oracle, list[int]]] = [
        (loaded, calls_of(batch, tokens, new, (), None)),
        (loaded, calls_of(batch, tokens, new, ones, noise_pieces(settings, tokens))),
    ]
    model = (loaded if oracle else _asked(loaded, tokens + new)).oracle
    more = room_after(model, tokens + new)
    plan.append((model, calls_of(batch, tokens, new + more, (), None)))
    if chunk is not None or not records(model):
        plan.append((model, [batch * piece for piece in progress.pieces(tokens, chunk)]))
    pattern = pattern_of(chunks or (new,), more, SINGLES if model.keeps else DEAR)
    steps = [batch * count for count in pattern]
    return [*plan, (model, steps), (model, steps)]


def _name(loaded: Loaded) -> str:
    return str(loaded.dtype).removeprefix("torch.")
