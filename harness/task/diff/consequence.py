"""What follows from another difference. From another text: keys and values from where two texts part on, lengths, the
next position, logits. From pruning: that a state holds fewer tokens. What differs in the tokens that both hold does not."""

from collections.abc import Iterable
from dataclasses import replace

import torch

from harness.snapshot.history import tokens_held
from harness.snapshot.state import LayerState, State
from harness.task.diff.deviation import HELD, Deviation, tensor_difference

LENGTHS = ("token_ids", "attention_mask", "next_position")
PARTS = ("key", "value", "positions")
PRUNED = ("kv_format", "pruned")


def parted(one: State, two: State) -> int | None:
    """The index of the first token that is another, of any row; None where the one text begins the other, and of
    other batches."""
    if one.batch != two.batch:
        return None
    few = min(one.tokens, two.tokens)
    other = (one.token_ids[:, :few] != two.token_ids[:, :few]).any(0).nonzero()
    return int(other[0, 0]) if len(other) else None


def marked(deviations: Iterable[Deviation], one: State, two: State) -> list[Deviation]:
    """The deviations, those that follow from other tokens, or from pruning, marked as such; a layer that differs in the
    tokens that both hold and read alike, by what differs there. Of padded states nothing is changed."""
    found = list(deviations)
    if not bool(one.attention_mask.all() and two.attention_mask.all()):
        return found
    if torch.equal(one.token_ids, two.token_ids):
        fewer = tokens_held(one) != tokens_held(two)
        return [_pruned(d, one, two) for d in found] if fewer else found
    place = parted(one, two)
    if place is None or one.pruned or two.pruned:
        return found
    return [_marked(deviation, one, two, place) for deviation in found]


def only_pruned(deviations: Iterable[Deviation]) -> bool:
    """Whether nothing differs but that one state holds fewer of the same tokens."""
    own = [d for d in deviations if not d.follows]
    return bool(own) and all((d.what, d.where) == PRUNED for d in own)


def _pruned(deviation: Deviation, one: State, two: State) -> Deviation:
    what, where = deviation.what, deviation.where
    if what == "kv_format" and (at := HELD.fullmatch(where)):
        return replace(deviation, derived=at[2] == "kept")
    if not what.startswith("layer.") or where != "form" or one.batch != 1:
        return deviation
    _, index, part, *rest = what.split(".")
    if rest or part not in PARTS:
        return deviation
    a, b = (state.layers[int(index)] for state in (one, two))
    if part == "positions":
        return replace(deviation, derived=_shared(a, b, "key") is not None)
    if (both := _shared(a, b, part)) is None:
        return deviation
    return tensor_difference(f"{what}, of the tokens that both hold", *both) or replace(
        deviation, derived=True
    )


def _shared(
    one: LayerState, two: LayerState, part: str
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The keys or values `[kv_heads, tokens, head_dim]` of the tokens that the smaller of two layers holds, in both,
    head by head; None where the other does not hold them all."""
    small, large = sorted((one, two), key=lambda layer: layer.kept)
    few, many = (_places(layer) for layer in (small, large))
    if few.shape[0] != many.shape[0]:
        return None
    at = torch.searchsorted(many, few).clamp(max=many.shape[1] - 1)
    if not torch.equal(many.gather(1, at), few):
        return None
    mine, whole = getattr(small, part)[0], getattr(large, part)[0]
    theirs = whole.gather(1, at.unsqueeze(-1).expand(-1, -1, whole.shape[-1]))
    return (mine, theirs) if small is one else (theirs, mine)


def _places(layer: LayerState) -> torch.Tensor:
    """The positions `[kv_heads, kept]` of what the heads of the only row hold."""
    row = layer.positions[0]
    return (row if row.dim() == 2 else row.expand(layer.key.shape[1], -1)).contiguous()


def _marked(deviation: Deviation, one: State, two: State, place: int) -> Deviation:
    what = deviation.what
    if what == "token_ids" and deviation.where != "form":
        return deviation
    if what.startswith("layer."):
        return _layer(deviation, one, two, place)
    document = (what == "kv_format" and bool(HELD.fullmatch(deviation.where))) or (
        what == "prompt_meta" and deviation.where.startswith(("buffer.", "text"))
    )
    return replace(deviation, derived=what in LENGTHS or what == "logits" or document)


def _layer(deviation: Deviation, one: State, two: State, place: int) -> Deviation:
    _, index, part, *rest = deviation.what.split(".")
    if (
        rest or part not in PARTS
    ):  # codes, what is recurrent, attention received: they hold all tokens at once
        return replace(deviation, derived=True)
    a, b = (_before(state.layers[int(index)], place, part) for state in (one, two))
    positions = [_before(state.layers[int(index)], place, "positions") for state in (one, two)]
    if not torch.equal(*positions):
        return deviation  # each holds other tokens of what both read
    early = tensor_difference(f"{deviation.what}, before the texts part", a, b)
    return early or replace(deviation, derived=True)


def _before(layer: LayerState, place: int, part: str) -> torch.Tensor:
    """What a layer holds of the tokens before index `place`: `[batch, kv_heads, tokens, head_dim]`."""
    early = layer.positions[0] < place
    held: torch.Tensor = getattr(layer, part)
    return held[:, early] if part == "positions" else held[:, :, early]
