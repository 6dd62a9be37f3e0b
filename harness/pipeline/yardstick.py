"""The runs that a restored run is measured with, and whether they may be: scale, noise, soundness.

Source of the scale: the FlashAttention tests (error against a higher precision, at most twice the
plain path's own). Here the plain path has no cache, so that a fault of the cache cannot hide in it.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import torch

from harness import progress
from harness.cache import library
from harness.capture import new_cache, positions_of, prefill, whole_cache
from harness.capture.layers import kv_format
from harness.compare.soundness import (
    PlainPath,
    Soundness,
    carried,
    exact_path,
    orders,
    rounded_path,
    single_rounding,
)
from harness.config import CompareConfig
from harness.model.experts import experts
from harness.model.loaded import Loaded
from harness.model.oracle import FOREIGN, Cost, Oracle
from harness.pipeline.drive import Rollout, Uninterrupted
from harness.pipeline.noise import CHUNK
from harness.pipeline.tail import Past, Tail, committed, tail_of
from harness.snapshot.codes import dense
from harness.snapshot.digest import digest_named
from harness.snapshot.state import FULL, LayerState, Segment, State

WORK = 2e10  # parameters times tokens; beyond, float64 of the whole is minutes, and a twin is asked
MORE = 6  # tokens after those of the run, fed several at once
SINGLES, DEAR = 16, 4  # calls of the run repeated in float64; where each of them widens all weights
PROBE = 24  # tokens
EXACT = 4  # times as long as in the working dtype takes a pass in float64, until its pace is known
KEPT = 2  # yardsticks that one loaded model remembers


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
        return orders(self.asked.layers, self.largest, _gap(self.plain, self.exact[:, 1:]))


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
        plan = _plan(loaded, batch, state.tokens, run, chunk, settings.oracle, settings.noise_chunk)
        *measured, _ = plan  # the last are those of the check of logic
        with progress.whole("judging", sum(_worth(model, calls) for model, calls in measured)):
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
    fed, other = reference.fed, settings.noise_chunk
    with _counted(loaded, state, fed, "noise, without a cache"):
        uncached = alone(loaded, state, fed, before=1, chunks=reference.chunks)
    with _counted(loaded, state, fed, f"noise, chunks of {other}", (1,) * fed.shape[1], other):
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
        rounding = carried(_gap(uncached, known), wide.largest, loaded.dtype)
    exact = known if settings.oracle else None
    scale = exact if exact is not None else alone(loaded, state, fed, True, 1, reference.chunks)
    error = _gap(uncached, scale)
    against = "float64" if exact is not None else "itself beside other rows"
    if known is not None:
        narrow = single_rounding(_gap(uncached, known), wide.largest, loaded.dtype)
        wide = replace(wide, rounding=narrow)
    who = "" if asked is loaded else " (twin)"
    paths = plain_paths("the uninterrupted run", wide, fed.shape[1], rounding, who)
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


def routed(loaded: Loaded) -> bool:
    """Whether experts are chosen by argmax: a tie may fall otherwise in another order of the same sums,
    which is rounding and moves logits by far more than rounding does. Float64 alone is asked then."""
    return experts(loaded.text_config)[0] > 1


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
    keys and values to an empty cache on the way, which is bit-equal to having none (asked of each model, `_records`).
    """
    oracle = asked.oracle
    ids = torch.cat([fed, _more(asked, state, fed)], 1)
    pattern = _pattern(chunks, ids.shape[1] - fed.shape[1], SINGLES if oracle.keeps else DEAR)
    base = _unbranched(state, branches)
    with oracle.watched() as narrowed:
        made = None
        if chunk is None and bool(state.attention_mask.all()) and _records(oracle):
            with _counted(oracle, state, ids, "float64 oracle"):
                made = _recorded(oracle, state, ids)
        if made is not None:
            exact, layers = made
            truth = _truth(oracle, base, exact[::branches, 0], unbranched(layers, branches))
            cache = library.to_cache(oracle.loaded, truth)
            if branches > 1:
                cache.batch_repeat_interleave(branches)
            live = Uninterrupted(oracle, cache, state.unpruned(exact[:, 0]))
        else:
            with _counted(oracle, state, ids, "float64 oracle"):
                exact = alone(oracle, state, ids, before=1, chunks=pattern)
            pieces = [len(ids) * count for count in progress.pieces(state.tokens, chunk)]
            with _passes(oracle, "float64, prefill", pieces):
                live = prefilled(oracle, state, chunk)
            layers = list(live.commit().layers)
            truth = _truth(oracle, base, exact[::branches, 0], unbranched(layers, branches))
        plain, count = [], 0
        tail: Tail = ()
        with _passes(oracle, "float64 with a cache", [len(ids) * count for count in pattern]):
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
    room = _room(asked, state.tokens + fed.shape[1])
    return state.token_ids[:, -max(room, 1) :].to(fed) if room > 0 else fed[:, :0]


def _room(asked: Loaded | Oracle, end: int) -> int:
    """How many of MORE tokens may follow the first `end`."""
    limit = (asked.loaded if isinstance(asked, Oracle) else asked).max_positions
    room = MORE if asked.switch is None else 0
    return room if limit is None else max(min(room, limit - end), 0)


def _pattern(chunks: Sequence[int], more: int, singles: int) -> tuple[int, ...]:
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


def _records(oracle: Oracle) -> bool:
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
    """Who runs in `_measured` and in the check of logic, in order, and the tokens of each of its calls."""
    new, ones = sum(chunks), (1,) * sum(chunks)
    plan: list[tuple[Loaded | Oracle, list[int]]] = [
        (loaded, _calls(batch, tokens, new, (), None)),
        (loaded, _calls(batch, tokens, new, ones, noise_chunk)),
    ]
    model = (loaded if oracle else _asked(loaded, tokens + new)).oracle
    more = _room(model, tokens + new)
    plan.append((model, _calls(batch, tokens, new + more, (), None)))
    if chunk is not None or not _records(model):
        plan.append((model, [batch * piece for piece in progress.pieces(tokens, chunk)]))
    pattern = _pattern(chunks or (new,), more, SINGLES if model.keeps else DEAR)
    steps = [batch * count for count in pattern]
    return [*plan, (model, steps), (model, steps)]


def _counted(
    model: Loaded | Oracle,
    state: State,
    fed: torch.Tensor,
    what: str,
    chunks: Sequence[int] = (),
    chunk: int | None = None,
) -> AbstractContextManager[None]:
    """One run of `model` over the whole buffer and `fed`, for whoever looks; see `_calls`."""
    return _passes(model, what, _calls(len(fed), state.tokens, fed.shape[1], chunks, chunk))


def _passes(
    model: Loaded | Oracle, what: str, calls: Sequence[int]
) -> AbstractContextManager[None]:
    return progress.passes(model.model, model.layers, what, list(calls), _worth(model, calls))


def _gap(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).abs().max())


def _name(loaded: Loaded) -> str:
    return str(loaded.dtype).removeprefix("torch.")
