"""One chat over one growing state: each turn sends only ids that were never sent before.

The source is the g99 script: render the whole chat, slice the ids at the cursor, forward the rest at
absolute positions. The slice is only taken after a check that the script lacks: what is re-rendered
must begin with the very ids that were processed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from harness.capture import (
    capture,
    check_length,
    check_vocabulary,
    new_cache,
    positions_of,
    prefill,
)
from harness.errors import InputProblem
from harness.model.loaded import Loaded
from harness.model.sampler import Sampler
from harness.model.switch import crosses
from harness.pipeline.rewind import Rewind, checkpoints, rewound
from harness.pipeline.rope_switch import decoder
from harness.pipeline.session import Session, tokenizer_files
from harness.snapshot.state import State
from harness.tokenizer.history import History
from harness.tokenizer.policy import Encoded, continuation, encode, render
from harness.tokenizer.shown import Shown, shown, wordless

WARM = 4  # tokens
PLACEHOLDER = "\u2042 what was said \u2042"  # no template changes it, no answer contains it


def _nobody(piece: str) -> None:
    """Where nobody listens."""


def _never() -> bool:
    """Where nobody stops an answer."""
    return False


@dataclass(frozen=True)
class Mismatch:
    """The first id at which the re-rendered history and the token buffer part."""

    index: int
    buffer: str
    rendered: str

    def __str__(self) -> str:
        return f"token {self.index + 1} was {self.buffer!r} when it was processed, re-rendered it is {self.rendered!r}"


@dataclass(frozen=True)
class Exchange:
    """One turn. ids: the answer, its end token included. sent: ids fed before it. seconds: from the question
    to the last token of the answer, the check of the prefix included, without `apart`: what the first turn alone
    took for the state that every pause goes on from, beside reading its tokens. ended: by the model itself.
    numbered: what a row of `chat.json` says where some ids of the answer have no text."""

    ask: str
    answer: str
    ids: tuple[int, ...]
    sent: int
    total: int
    seconds: float
    rendering: float
    mismatch: Mismatch | None = None
    ended: bool = True
    numbered: Mapping[str, Any] = field(default_factory=dict)
    apart: float = 0.0


@dataclass
class Dialogue:
    """A chat in progress. `ask` grows it; `state` is the pause after the last turn.

    A model without a chat template is given what is typed as it is, and goes on from it. repair: what
    a mismatch does: True goes on with the true ids, False raises InputProblem. asked, ends: tokens
    before and after each answer. tell: is told what long work is going to take, before it starts.
    """

    session: Session
    sampler: Sampler
    repair: bool = True
    messages: list[dict[str, str]] = field(default_factory=list)
    decoder: Any = None
    buffer: list[int] = field(default_factory=list)  # every id processed so far
    asked: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    tell: Callable[[str], None] = _nobody
    _ended: bool = True  # the last id ends a sequence
    _whole: bool = True  # the last answer came to its end

    def __post_init__(self) -> None:
        self._history = History(self.session.loaded.tokenizer)

    @property
    def template(self) -> bool:
        """Whether turns are rendered by a chat template."""
        return bool(getattr(self.session.loaded.tokenizer, "chat_template", None))

    @property
    def turns(self) -> int:
        """How many questions were asked."""
        return sum(m["role"] == "user" for m in self.messages)

    @property
    def numbered(self) -> dict[str, Any]:
        """Of the last answer, where some of its ids have no text: how many, and `shown`, the answer with their numbers."""
        if not self.ends:
            return {}
        tokenizer, ids = self.session.loaded.tokenizer, self.buffer[self.asked[-1] : self.ends[-1]]
        said = ids[:-1] if ids[-1] in self.sampler.ending.ids else ids
        without = sum(wordless(tokenizer, token) for token in said)
        return {"without_text": without, "shown": shown(tokenizer, said).strip()} if without else {}

    @classmethod
    def resumed(cls, session: Session, state: State, repair: bool = True) -> "Dialogue":
        """The chat that `state` paused: its messages, its generator, its ids."""
        one = cls(session, session.sampler(state), repair)
        one._take(state)
        return one

    def _take(self, state: State) -> None:
        """Go on from `state`, which is only read."""
        meta = state.documents["prompt_meta"]
        self.decoder = decoder(self.session.loaded, state, self.session.cfg.cache)
        self.messages = [dict(turn) for turn in meta["turns"]]
        self.buffer = state.token_ids[0].tolist()
        self.asked, self.ends = list(meta.get("asked") or []), list(meta.get("ends") or [])
        ended = meta.get("ended", True)
        self._ended = self.buffer[-1] in self.sampler.ending.ids if ended is None else ended
        self._history = History(self.session.loaded.tokenizer)

    def warm(self) -> None:
        """Read a few tokens of nothing and go on from them, kept nowhere: what is compiled, mapped or
        prepared at its first use is no part of the first turn's seconds."""
        session = self.session
        ids = torch.zeros(1, WARM, dtype=torch.int64)
        state = capture(session.loaded, ids, torch.ones_like(ids), {"prompt_meta": {}}).state
        other = decoder(session.loaded, state, session.cfg.cache)
        other.step(ids)
        other.step(ids[:, :1])
        session.loaded.cost(WARM)  # how fast this machine multiplies, asked once
        _ = session.documents, tokenizer_files(session.loaded)  # made once for a model
        if self.template:
            question = {"role": "user", "content": "."}
            History(session.loaded.tokenizer).encode([*self.messages, question])

    def ask(
        self,
        text: str,
        limit: int,
        hear: Callable[[str], None] = _nobody,
        stopped: Callable[[], bool] = _never,
    ) -> Exchange:
        """The user says `text`; the model answers with at most `limit` tokens. hear: is told the answer
        piece by piece. stopped: asked before each token; the answer ends there."""
        start = time.perf_counter()
        messages = [*self.messages, {"role": "user", "content": text}]
        first = self.decoder is None
        whole = self._encoded(messages, first)
        rendering = time.perf_counter() - start
        new, mismatch = self._unsent(whole, messages)
        check_length(self.session.loaded, len(self.buffer) + len(new), limit)
        check_vocabulary(self.session.loaded, new)
        logits, apart = self._send(whole, new, messages)
        ids, answer = self._answer(logits, limit, hear, stopped)
        self.messages = [*messages, {"role": "assistant", "content": answer}]
        self.asked.append(len(self.buffer) - len(ids))
        self.ends.append(len(self.buffer))
        seconds = time.perf_counter() - start - apart
        sent, buffer = len(new), len(self.buffer)
        said = (text, answer, tuple(ids), sent, buffer)
        return Exchange(*said, seconds, rendering, mismatch, self._whole, self.numbered, apart)

    def again(
        self,
        place: Path,
        limit: int,
        hear: Callable[[str], None] = _nobody,
        stopped: Callable[[], bool] = _never,
    ) -> Exchange:
        """Answer the last question anew, from where it had just been read; the generator goes on, so
        that another answer is drawn. place: the last pause."""
        start = time.perf_counter()
        *messages, _ = self.messages
        questions, ends = self.asked, self.ends[:-1]
        check_length(self.session.loaded, questions[-1], limit)
        self._back(questions[-1], place)
        ids, answer = self._answer(self.decoder.state.logits, limit, hear, stopped)
        self.messages = [*messages, {"role": "assistant", "content": answer}]
        self.asked, self.ends = questions, [*ends, len(self.buffer)]
        seconds = time.perf_counter() - start
        text = messages[-1]["content"]
        said = (text, answer, tuple(ids), 0, len(self.buffer))
        return Exchange(*said, seconds, 0.0, None, self._whole, self.numbered)

    def back(self, place: Path) -> Rewind | None:
        """Undo the last turn. place: the last pause. None where it was the first: the chat is new."""
        if self.ends[1:]:
            return self._back(self.ends[-2], place)
        self.messages = [m for m in self.messages[:1] if m["role"] == "system"]
        self.decoder, self.buffer, self.asked, self.ends = None, [], [], []
        self._ended, self._history = True, History(self.session.loaded.tokenizer)
        return None

    def _back(self, at: int, place: Path) -> Rewind:
        session = self.session
        state, lineage = self.state(), checkpoints(place)
        rewind = rewound(session.loaded, state, at, session.cfg.cache, lineage, self.tell)
        self._take(rewind.state)
        return rewind

    def state(self, parent: str | None = None) -> State:
        """The pause after the last turn, immutable; the dialogue can go on meanwhile."""
        state = replace(self.sampler.paused(self.decoder.commit()), parent=parent)
        said = {"turns": self.messages, "asked": self.asked, "ends": self.ends}
        return state.document("prompt_meta", **said, ended=self._ended)

    def _encoded(self, messages: Sequence[dict[str, str]], first: bool) -> Encoded:
        """The whole chat as ids, or what is typed next where there is no template."""
        if self.template:
            return self._history.encode(messages)
        policy, tokenizer = self.session.cfg.tokenizer, self.session.loaded.tokenizer
        text = messages[-1]["content"]
        if not first:
            return continuation(policy, tokenizer, text)
        system = "".join(m["content"] + "\n" for m in messages if m["role"] == "system")
        return encode(policy, tokenizer, system + text)

    def _unsent(
        self, whole: Encoded, messages: Sequence[dict[str, str]]
    ) -> tuple[tuple[int, ...], Mismatch | None]:
        """The ids to send, after the check that history is what it was."""
        buffer = tuple(self.buffer)
        if not self.template:
            return whole.ids, None
        if whole.ids[: len(buffer)] == buffer:
            return whole.ids[len(buffer) :], None
        mismatch = self._mismatch(buffer, whole.ids)
        if not self.repair:
            raise InputProblem(
                f"the re-rendered chat is not what was processed: {mismatch}. Use "
                "task.on_mismatch=repair to go on with the ids that were processed."
            )
        return self._after_history(messages), mismatch

    def _mismatch(self, buffer: Sequence[int], ids: Sequence[int]) -> Mismatch:
        length = min(len(buffer), len(ids))
        index = next((i for i in range(length) if buffer[i] != ids[i]), length)
        name = self.session.loaded.tokenizer.convert_ids_to_tokens
        there = name(ids[index]) if index < len(ids) else "nothing"
        return Mismatch(index, name(buffer[index]) if index < len(buffer) else "nothing", there)

    def _after_history(self, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
        """Ids of what follows the last answer: history itself is never re-tokenized. The template is
        asked with a placeholder in the answer's place, since some leave out part of an answer later."""
        tokenizer = self.session.loaded.tokenizer
        *before, _, question = messages
        turns = [*before, {"role": "assistant", "content": PLACEHOLDER}, question]
        _, there, text = render(tokenizer, turns, generate=True).rpartition(PLACEHOLDER)
        if not there:
            raise InputProblem(
                "this chat template rewrites earlier turns, so no history can be kept."
            )
        new = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        return new[1:] if self._ended and new[:1] == tuple(self.buffer[-1:]) else new

    def _send(
        self, whole: Encoded, new: tuple[int, ...], messages: Sequence[dict[str, str]]
    ) -> tuple[torch.Tensor, float]:
        """Logits `[1, vocab]` after `new`; the first turn is the prefill, and has seconds apart from it: of its
        documents, its elements and how closely its last token is repeated."""
        session, apart = self.session, 0.0
        session.loaded.cost(len(new)).announce(self.tell, f"reading {len(new)} tokens")
        if self.decoder is None:
            start = time.perf_counter()
            row = encode("chat", session.loaded.tokenizer, "", messages) if self.template else whole
            captured = session.capture([row], self.sampler)
            apart = time.perf_counter() - start - captured.prefill_s
            self.decoder = decoder(session.loaded, captured.state, session.cfg.cache)
            logits = captured.state.logits
        else:
            logits = self.decoder.step(torch.tensor([new]))[:, -1]
        self.buffer += new
        return logits, apart

    def _answer(
        self,
        logits: torch.Tensor,
        limit: int,
        hear: Callable[[str], None],
        stopped: Callable[[], bool],
    ) -> tuple[list[int], str]:
        """Generated ids up to and including the one that ends the answer, all of them fed, and their
        text."""
        stream = Shown(self.session.loaded.tokenizer)
        ids: list[int] = []
        context = torch.tensor([self.buffer])
        self.sampler.begin(self.decoder.state, context.shape[1] - self.decoder.state.tokens)
        self._ended = self._whole = False
        while len(ids) < limit and not self._whole and not stopped():
            token = self.sampler.choose(logits, context)
            context = torch.cat([context, token], dim=1)
            self._whole = bool(self.sampler.ended(context))
            self._ended = int(token) in self.sampler.ending.ids
            if not self._ended:
                hear(stream.add(int(token)))
            logits = self.decoder.step(token)[:, -1]
            ids.append(int(token))
            self.buffer.append(int(token))
        hear(stream.rest())
        return ids, stream.text.strip()


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
        ids = torch.cat([ids, token], dim=1)
        if crosses(loaded.switch, position, position + 1):
            cache, mask = new_cache(loaded), torch.ones_like(ids)
            logits = prefill(loaded, ids, mask, positions_of(mask), cache)[:, -1]
        else:
            where = torch.tensor([[position]], device=ids.device)
            logits = loaded.forward(token, where, None, cache)[:, -1]
        position += 1
    return chosen, time.perf_counter() - start
