"""Go back: a State as it was after its first N tokens, to say something else from there.

Full attention is cut: keys and values of the first N tokens are what they were, and the last of them
is fed again over its own stored keys and values for the logits that follow it. A window that has let
go of tokens, and a recurrent state, cannot be cut. They start from the nearest snapshot of the lineage
that is not past N, and replay the rest, or from nothing, whichever costs less.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness import machine
from harness.cache.library import Replay
from harness.capture import capture, new_cache, positions_of, prefill
from harness.compare.identity import differences
from harness.config import CacheConfig, PruneConfig
from harness.config.place import no_place
from harness.errors import HarnessError, InputProblem
from harness.model.loaded import Loaded
from harness.pipeline.budget import continuation
from harness.save import store
from harness.save.ancestry import ancestors
from harness.snapshot.coherence import buffer_document
from harness.snapshot.digest import digest_tensor
from harness.snapshot.state import LayerState, State

CUT, CHECKPOINT, PREFILL = "cut", "checkpoint", "prefill"
PROBE = 32  # tokens of the prefill that tells what one costs


@dataclass(frozen=True)
class Rewind:
    """state: with the first `at` of `of` tokens. how: `cut`, `checkpoint` (the snapshot `source`, which
    holds `checkpoint_bytes` of K/V and recurrent state) or `prefill`. replayed: tokens fed again."""

    state: State
    how: str
    at: int
    of: int
    replayed: int
    seconds: float
    source: str | None = None
    checkpoint_bytes: int = 0

    def document(self) -> dict[str, Any]:
        """For `result.json`."""
        return {
            "at": self.at,
            "of": self.of,
            "how": self.how,
            "replayed_tokens": self.replayed,
            "seconds": self.seconds,
            "source": self.source,
            "checkpoint_bytes": self.checkpoint_bytes,
        }

    @property
    def way(self) -> str:
        """How it came there, in words."""
        again = machine.many(self.replayed, "token")
        ways = {
            CUT: f"cut there, {again} replayed for the logits",
            CHECKPOINT: f"from the checkpoint {self.source}, {again} replayed",
            PREFILL: f"processed anew, {again}",
        }
        return ways[self.how]

    def __str__(self) -> str:
        return f"back at token {self.at} of {self.of}: {self.way}"


@dataclass(frozen=True)
class Checkpoint:
    """A snapshot that the lineage still holds; only its manifest was read."""

    place: Path
    manifest: Mapping[str, Any]

    @property
    def tokens(self) -> int:
        return int(self.manifest["tokens"])

    @property
    def entries(self) -> Sequence[Mapping[str, Any]]:
        return self.manifest["documents"]["kv_format"]["layers"]  # type: ignore[no-any-return]

    def begins(self, state: State) -> bool:
        """Whether its tokens are the first ones of `state`."""
        named = {row["name"]: row["digest"] for row in self.manifest["tensors"]}
        ids = state.token_ids[:, : self.tokens].contiguous()
        return named.get("token_ids") == digest_tensor(ids.cpu())

    def state(self, like: State) -> State | None:
        """Read and verified; None where it is damaged, pruned or another model's than `like`."""
        try:
            state, _ = store.load(self.place)
        except HarnessError:
            return None
        kind = str(like.dtype).removeprefix("torch.")
        if state.pruned or state.quantized or state.dtype != like.dtype:
            return None
        return None if differences(state.documents, like.documents, kind, kind) else state


def checkpoints(place: Path | str) -> Iterator[Checkpoint]:
    """The lineage of the snapshot at `place`, nearest first."""
    return (Checkpoint(folder, manifest) for folder, manifest in ancestors(place))


def rewound(
    loaded: Loaded,
    state: State,
    at: int,
    cache: CacheConfig,
    lineage: Iterable[Checkpoint] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> Rewind:
    """`state` as it was after its first `at` tokens. It is only read. The generator stays where it is:
    what is drawn next is drawn anew. lineage: looked at only where `state` cannot be cut. tell: is
    told what a long replay is going to take, before it starts.

    Raises InputProblem for a place that `state` does not have, several rows, or what was pruned away.
    """
    _check(state, at)
    start, state = time.perf_counter(), state.to(loaded.device)

    def rewind(
        back: State, how: str, replayed: int, source: str | None = None, nbytes: int = 0
    ) -> Rewind:
        back = _described(replace(back, rng=state.rng), loaded.tokenizer)
        if waiver := state.documents.get("waived"):  # a checkpoint may be older than that
            back = back.document("waived", **waiver)
        if at < state.tokens:
            back = back.document("generation", begun=None)  # what comes now begins here
        seconds = time.perf_counter() - start
        return Rewind(back, how, at, state.tokens, replayed, seconds, source, nbytes)

    if at == state.tokens:
        return rewind(state, CUT, 0)
    switched = loaded.switch is not None and at <= loaded.switch < state.tokens
    if state.pruned or (_whole(state.documents["kv_format"]["layers"]) and not switched):
        return rewind(cut(loaded, state, at), CUT, 1)
    for point in lineage:
        if point.tokens > at or not point.begins(state):
            continue
        missing = at - point.tokens
        if not _worth(loaded, missing, at):
            break
        if (earlier := point.state(state)) is None:
            continue
        earlier = earlier.to(loaded.device)
        if missing:
            loaded.cost(missing).announce(tell, f"replaying {missing} tokens")
            decoder = continuation(
                loaded, earlier, replace(cache, branches=1), PruneConfig(name="none")
            )
            decoder.step(state.token_ids[:, point.tokens : at])
            return rewind(decoder.commit(), CHECKPOINT, missing, point.place.name, earlier.kv_bytes)
        same = replace(earlier, tokenizer_files=state.tokenizer_files)
        return rewind(same, CHECKPOINT, 0, point.place.name, earlier.kv_bytes)
    loaded.cost(at).announce(tell, f"processing {at} tokens anew")
    ids, mask = state.token_ids[:, :at], state.attention_mask[:, :at]
    documents = {k: v for k, v in state.documents.items() if k != "kv_format"}
    anew = capture(loaded, ids, mask, documents, state.tokenizer_files, state.rng).state
    return rewind(replace(anew, parent=state.parent), PREFILL, at)


def cut(loaded: Loaded, state: State, at: int) -> State:
    """The first `at` tokens of `state`, whose layers hold them; keys and values are views. The logits
    come from one decode step of the last token over its own stored keys and values."""
    back = _shortened(state, at)
    decoder = Replay(loaded, back, _shortened(state, at - 1), CacheConfig(name="cloned"))
    return replace(back, logits=decoder.step(back.token_ids[:, -1:])[:, -1])


def _check(state: State, at: int) -> None:
    if state.batch != 1 or not bool(state.attention_mask.all()):
        raise InputProblem(
            f"at={at} goes back in one line of thought; this state holds {state.batch} rows."
        )
    if not 1 <= at <= state.tokens:
        raise no_place(at, state.tokens)
    if not state.pruned or at == state.tokens:
        return
    pruned = state.documents["kv_format"].get("pruned") or []
    if any(stage.get("positions") == "reindexed" for stage in pruned):
        raise InputProblem(
            f"at={at}: the kept tokens of this pruned state were given new positions, so that it "
            "cannot go back. Go back in the snapshot it was pruned from."
        )
    if any(la.recurrent or (la.window and la.seen >= la.window) for la in state.layers):
        raise InputProblem(
            f"at={at}: this state is pruned, so its windows and recurrent layers cannot be processed "
            "again. Go back in the snapshot it was pruned from."
        )
    for layer in state.layers:
        if layer.segments and not bool((layer.positions == at - 1).any(-1).all()):
            raise InputProblem(
                f"at={at} is inside what was pruned away: layer {layer.index} does not hold token "
                f"{at - 1} any more. Go back in the snapshot it was pruned from."
            )
        if layer.segments and len((layer.positions < at).sum(-1).unique()) > 1:
            raise InputProblem(
                f"at={at}: the KV heads of layer {layer.index} kept different numbers of tokens from "
                "before it, so it cannot be cut there. Go back in the snapshot it was pruned from."
            )


def _whole(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether layers described like this hold every token they saw, and nothing that only grows."""
    return not any(
        entry["recurrent"] or (entry["segments"] and sum(entry["segments"]) < entry["seen"])
        for entry in entries
    )


def _shortened(state: State, tokens: int) -> State:
    """The first `tokens` tokens; the logits are still those of the last one."""
    layers = tuple(_first(layer, tokens) for layer in state.layers)
    short = replace(
        state,
        token_ids=state.token_ids[:, :tokens],
        attention_mask=state.attention_mask[:, :tokens],
        next_position=torch.full_like(state.next_position, tokens),
    )
    return short.with_layers(layers)


def _first(layer: LayerState, tokens: int) -> LayerState:
    left = int((layer.positions < tokens).sum(-1).max()) if layer.segments else 0
    segments = []
    for segment in layer.segments:
        if left > 0:
            segments.append(segment.cut(0, min(left, segment.tokens)))
        left -= segment.tokens
    processed = min(layer.seen, tokens)
    return replace(layer, segments=tuple(segments), seen=processed, received=None)


def _described(state: State, tokenizer: Any) -> State:
    """`state` with what element +4 says of tokens that are not there any more left out."""
    meta, at = state.documents.get("prompt_meta") or {}, state.tokens
    changes: dict[str, Any] = {}
    if meta.get("buffer") and meta["buffer"]["tokens"] > at:
        prefix = list(meta.get("prefix_ids") or [])[:at]
        special = [row for row in meta.get("special_tokens") or [] if row["index"] < at]
        changes |= {"buffer": buffer_document(state.token_ids.cpu().contiguous())}
        changes |= {"prefix_ids": prefix, "special_tokens": special}
        changes |= {"prefix": tokenizer.decode(prefix) if prefix else ""}
    ends = meta.get("ends") or []
    if meta.get("turns") and (not ends or ends[-1] != at):
        ends = [end for end in ends if end <= at]
        first = sum(turn["role"] == "system" for turn in meta["turns"][:1])
        said = first + 2 * len(ends) if ends and ends[-1] == at else 0
        changes |= {"turns": meta["turns"][:said], "ends": ends if said else [], "ended": None}
    return state.document("prompt_meta", **changes) if changes else state


def _worth(loaded: Loaded, missing: int, at: int) -> bool:
    """Whether feeding `missing` tokens to a checkpoint costs less than a prefill of `at`: always where
    they can be fed at once; else measured, one step beside a prefill."""
    if missing == 0 or not loaded.one_at_a_time:
        return True
    ids = torch.zeros(1, min(PROBE, at), dtype=torch.int64, device=loaded.device)
    mask = torch.ones_like(ids)
    positions = positions_of(mask)
    took = []
    for _ in range(2):  # the first warms up
        cache = new_cache(loaded)
        start = time.perf_counter()
        prefill(loaded, ids, mask, positions, cache)
        middle = time.perf_counter()
        loaded.forward(ids[:, :1], positions[:, -1:] + 1, None, cache, keep=1)
        took = [middle - start, time.perf_counter() - middle]
    return missing * took[1] < max(at / ids.shape[1], 1) * took[0]
