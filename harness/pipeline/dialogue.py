"""One chat over one growing state: each turn sends only ids that were never sent before.

The source is the g99 script: render the whole chat, slice the ids at the cursor, forward the rest at
absolute positions. The slice is only taken after a check that the script lacks: what is re-rendered
must begin with the very ids that were processed.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from harness.cache.registry import decoder as build_decoder
from harness.capture import check_length, new_cache, positions_of, prefill
from harness.errors import InputProblem
from harness.model.loaded import Loaded
from harness.model.sampler import Sampler
from harness.pipeline.session import Session
from harness.snapshot.state import State
from harness.tokenizer.history import History
from harness.tokenizer.policy import Encoded, encode, render


@dataclass(frozen=True)
class Mismatch:
    """The first id at which the re-rendered history and the token buffer part."""

    index: int
    buffer: str
    rendered: str

    def __str__(self) -> str:
        return f"token {self.index} was {self.buffer!r} when it was processed, re-rendered it is {self.rendered!r}"


@dataclass(frozen=True)
class Exchange:
    """One turn. ids: the answer, its end token included. sent: ids fed before it. seconds: from the question
    to the last token of the answer, the check of the prefix included."""

    ask: str
    answer: str
    ids: tuple[int, ...]
    sent: int
    total: int
    seconds: float
    rendering: float
    mismatch: Mismatch | None = None


@dataclass
class Dialogue:
    """A chat in progress. `ask` grows it; `state` is the pause after the last turn.

    repair: what a mismatch does: True goes on with the true ids, False raises InputProblem.
    """

    session: Session
    sampler: Sampler
    repair: bool = True
    messages: list[dict[str, str]] = field(default_factory=list)
    decoder: Any = None
    buffer: list[int] = field(default_factory=list)  # every id processed so far
    _ended: bool = True

    def __post_init__(self) -> None:
        self._history = History(self.session.loaded.tokenizer)

    @classmethod
    def resumed(cls, session: Session, state: State, repair: bool = True) -> "Dialogue":
        """The chat that `state` paused: its messages, its generator, its ids."""
        sampler = session.sampler(state)
        meta = state.documents["prompt_meta"]
        decoder = build_decoder(session.loaded, state, session.cfg.cache)
        messages = [dict(turn) for turn in meta["turns"]]
        buffer = state.token_ids[0].tolist()
        return cls(session, sampler, repair, messages, decoder, buffer, meta.get("ended", True))

    def ask(self, text: str, limit: int) -> Exchange:
        """The user says `text`; the model answers with at most `limit` tokens."""
        start = time.perf_counter()
        asked = [*self.messages, {"role": "user", "content": text}]
        whole = self._history.encode(asked)
        rendering = time.perf_counter() - start
        new, mismatch = self._unsent(whole, asked)
        check_length(self.session.loaded, len(self.buffer) + len(new), limit)
        logits = self._send(asked, new)
        ids = self._answer(logits, limit)
        answer = self._text(ids)
        self.messages = [*asked, {"role": "assistant", "content": answer}]
        seconds = time.perf_counter() - start
        return Exchange(
            text, answer, tuple(ids), len(new), len(self.buffer), seconds, rendering, mismatch
        )

    def state(self, parent: str | None = None) -> State:
        """The pause after the last turn, immutable; the dialogue can go on meanwhile."""
        state = replace(self.sampler.paused(self.decoder.commit()), parent=parent)
        return state.document("prompt_meta", turns=self.messages, ended=self._ended)

    def _unsent(
        self, whole: Encoded, asked: Sequence[dict[str, str]]
    ) -> tuple[tuple[int, ...], Mismatch | None]:
        """The ids to send, after the check that history is what it was."""
        buffer = tuple(self.buffer)
        if whole.ids[: len(buffer)] == buffer:
            return whole.ids[len(buffer) :], None
        mismatch = self._mismatch(buffer, whole.ids)
        if not self.repair:
            raise InputProblem(
                f"the re-rendered chat is not what was processed: {mismatch}. Use "
                "task.on_mismatch=repair to go on with the ids that were processed."
            )
        return self._after_history(whole.text, asked), mismatch

    def _mismatch(self, buffer: Sequence[int], ids: Sequence[int]) -> Mismatch:
        length = min(len(buffer), len(ids))
        index = next((i for i in range(length) if buffer[i] != ids[i]), length)
        name = self.session.loaded.tokenizer.convert_ids_to_tokens
        there = name(ids[index]) if index < len(ids) else "nothing"
        return Mismatch(index, name(buffer[index]) if index < len(buffer) else "nothing", there)

    def _after_history(self, text: str, asked: Sequence[dict[str, str]]) -> tuple[int, ...]:
        """Ids of what follows the history in the rendered `text`: history itself is never re-tokenized."""
        tokenizer = self.session.loaded.tokenizer
        before = render(tokenizer, asked[:-1], generate=False)
        if not text.startswith(before):
            raise InputProblem(
                "this chat template rewrites earlier turns, so no history can be kept."
            )
        new = tuple(tokenizer(text[len(before) :], add_special_tokens=False)["input_ids"])
        if self._ended:
            return new
        closing = tuple(tokenizer(before, add_special_tokens=False)["input_ids"])[-1:]
        return (*closing, *new)

    def _send(self, asked: Sequence[dict[str, str]], new: tuple[int, ...]) -> torch.Tensor:
        """Logits `[1, vocab]` after `new`; the first turn is the prefill."""
        self.buffer += new
        if self.decoder is None:
            whole = encode("chat", self.session.loaded.tokenizer, "", asked)
            captured = self.session.capture([whole], self.sampler)
            self.decoder = build_decoder(
                self.session.loaded, captured.state, self.session.cfg.cache
            )
            return captured.state.logits
        return self.decoder.step(torch.tensor([new]))[:, -1]

    def _answer(self, logits: torch.Tensor, limit: int) -> list[int]:
        """Generated ids up to and including the one that ends the answer; all of them are fed."""
        ids: list[int] = []
        seen = torch.tensor([self.buffer])
        self.sampler.begin(self.decoder.state, seen.shape[1] - self.decoder.state.tokens)
        self._ended = False
        while len(ids) < limit and not bool(self.sampler.ended(seen)):
            token = self.sampler.choose(logits, seen)
            seen = torch.cat([seen, token], dim=1)
            ids.append(int(token))
            self._ended = ids[-1] in self.sampler.ending.ids
            logits = self.decoder.step(token)[:, -1]
        self.buffer += ids
        return ids

    def _text(self, ids: Sequence[int]) -> str:
        kept = ids[:-1] if self._ended else ids
        return self.session.loaded.tokenizer.decode(list(kept), skip_special_tokens=False).strip()


def answered_anew(
    loaded: Loaded, ids: torch.Tensor, limit: int, ends: set[int]
) -> tuple[list[int], float]:
    """The naive twin of a turn: the whole chat, `ids` `[1, tokens]`, processed again from the first
    token. The greedy answer and the seconds it took. Keeps nothing."""
    start = time.perf_counter()
    ids = ids.to(loaded.device)
    mask = torch.ones_like(ids)
    cache, position = new_cache(loaded), ids.shape[1]
    logits = prefill(loaded, ids, mask, positions_of(mask), cache)[:, -1]
    chosen: list[int] = []
    while len(chosen) < limit and (not chosen or chosen[-1] not in ends):
        token = logits.argmax(-1, keepdim=True)
        chosen.append(int(token))
        where = torch.tensor([[position]], device=ids.device)
        logits = loaded.forward(token, where, None, cache)[:, -1]
        position += 1
    return chosen, time.perf_counter() - start
