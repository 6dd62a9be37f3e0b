"""What can be seen of a thought without asking the model: its next tokens, the attention its tokens
received, which layers and heads still hold them, two branches side by side."""

from dataclasses import replace
from typing import Any

import torch

from harness.compare import metrics
from harness.errors import InputProblem
from harness.snapshot.state import LayerState, State, aligned
from harness.task.ui.answers import Comparison, Place
from harness.task.ui.branches import Branches
from harness.tokenizer import pieces


class View(Branches):
    """loaded: the model, for its tokenizer."""

    loaded: Any

    def compare(self, a: str, b: str, top: int = 8) -> Comparison:
        """The next-token logits of branch `a` beside those of branch `b`."""
        if a not in self.branches or b not in self.branches or a == b:
            raise InputProblem("comparing needs two branches. Branch first, then take them apart.")
        one, two = self.branches[a].state, self.branches[b].state
        ids = one.logits.argmax(-1, keepdim=True)
        apart = metrics.compare(two.logits[:, None], one.logits[:, None], ids)
        p, q = (s.logits[0].double().softmax(-1) for s in (one, two))
        best = torch.maximum(p, q).topk(min(top, len(p))).indices.tolist()
        rows = [(i, self.spelled(i), float(p[i]), float(q[i])) for i in best]
        parted = _parted(one, two)
        stale = parted is None and apart["bitwise_equal"] and not _same_cache(one, two)
        made = Comparison(a, b, (one.tokens, two.tokens), parted, apart, rows, stale)
        self.answers.compared = Place(a, one), Place(b, two), made
        return made

    def likely(self, top: int = 10) -> list[tuple[int, str, float]]:
        """`(id, text, probability)` of the most probable next tokens, as the sampler sees them."""
        branch = self.branch
        p = branch.sampler().probabilities(branch.state.logits, branch.state.token_ids)[0]
        best = p.topk(min(top, len(p)))
        rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [(i, self.spelled(i), v) for i, v in rows]

    @property
    def prompt(self) -> str:
        """The text that the current branch began with: as typed, or decoded up to the first token that
        the model wrote."""
        branch = self.branch
        if branch.prompt:
            return branch.prompt
        ids = branch.state.token_ids[0].tolist()[: min(branch.own, default=None)]
        decode = self.loaded.tokenizer.decode
        return str(decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @property
    def holding(self) -> bool:
        """Whether any layer of the current branch holds keys and values."""
        return any(layer.segments for layer in self.branch.state.layers)

    @property
    def recurrent(self) -> bool:
        """Whether any layer of the current branch keeps a recurrent state."""
        return any(layer.recurrent for layer in self.branch.state.layers)

    def brightness(self) -> list[float] | None:
        """Attention that each token received, summed over queries and heads, the mean of the layers
        that hold it; None where it was not recorded."""
        state, held = self.branch.state, self.holders()
        if held is None or not bright(state):
            return None
        total = torch.zeros(state.tokens, dtype=torch.float64)
        for layer in state.layers:
            if layer.segments:
                assert layer.received is not None
                each = layer.received[0].sum(-2).double().cpu()
                at = layer.positions[0].cpu().expand(each.shape)
                real = at >= 0
                total.index_add_(0, at[real], each[real])
        return (total / held[0].clamp(min=1)).tolist()

    def holders(self) -> tuple[torch.Tensor, torch.Tensor, int] | None:
        """`(layers [tokens], KV heads [tokens], heads in all)` that still hold each token; None where
        kept tokens were renumbered, and where no layer holds any."""
        state = self.branch.state
        if int(state.next_position[0]) != state.tokens or not self.holding:
            return None
        layers, heads = (torch.zeros(state.tokens, dtype=torch.int64) for _ in range(2))
        total = 0
        for layer in state.layers:
            if layer.segments:
                many = layer.key.shape[1]
                total += many
                at = layer.positions[0].cpu()
                for counted, each in ((layers, at.flatten().unique()),
                                      (heads, at.expand(many, -1).flatten())):  # fmt: skip
                    real = each[each >= 0]
                    counted.index_add_(0, real, torch.ones_like(real))
        return layers, heads, total

    def text(self, ids: list[int]) -> str:
        """Text of `ids`, special tokens shown."""
        return pieces.text(self.loaded.tokenizer, ids)

    def spelled(self, token: int) -> str:
        """Text of `token` alone; `<E6>` for each byte of a part of a character."""
        return pieces.piece(self.loaded.tokenizer, token)

    def pieces(self, ids: list[int]) -> list[str]:
        """Text of each of `ids`; the last token of a character has it."""
        return pieces.pieces(self.loaded.tokenizer, ids)


def bright(state: State) -> bool:
    """Whether every layer that holds tokens carries the attention they received."""
    holding = [layer for layer in state.layers if layer.segments]
    return bool(holding) and all(layer.received is not None for layer in holding)


def held(layer: LayerState) -> float:
    """Tokens that `layer` holds, on average over KV heads."""
    return float((layer.positions >= 0).sum(-1).double().mean()) if layer.segments else 0.0


def rescored(old: LayerState, new: LayerState) -> LayerState:
    """`new`, a selection of `old`'s tokens, with the attention these had received in `old`."""
    if old.received is None or not new.segments:
        return replace(new, received=None)
    if not new.per_head:
        at = torch.searchsorted(old.positions[0].contiguous(), new.positions[0].contiguous())
        return replace(new, received=old.received[..., at])
    one, two = aligned([old.positions, new.positions])
    at = torch.searchsorted(one.contiguous(), two.contiguous()).clamp(max=old.kept - 1)
    received = old.received
    if received.dim() == 3:  # summed over the heads: format 1
        received = received[:, None].expand(-1, at.shape[1], -1, -1)
    at = at[:, :, None].expand(-1, -1, received.shape[2], -1)
    return replace(new, received=received.gather(3, at))


def _parted(a: State, b: State) -> int | None:
    """First place where the two token buffers differ; None when they are the same."""
    one, two = a.token_ids[0].tolist(), b.token_ids[0].tolist()
    shorter = min(len(one), len(two))
    differ = (place for place in range(shorter) if one[place] != two[place])
    return next(differ, None if len(one) == len(two) else shorter)


def _same_cache(a: State, b: State) -> bool:
    """Whether the layers of both hold the same keys and values."""
    return a is b or all(
        not one.segments or (torch.equal(one.key, two.key) and torch.equal(one.value, two.value))
        for one, two in zip(a.layers, b.layers, strict=True)
    )
