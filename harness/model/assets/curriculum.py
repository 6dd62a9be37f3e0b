"""Training documents of the tiny model, stage by stage (pure Python, seeded).

The order matters. Wordy dialogues from the start get stuck at guessing by elimination; bare
``name value`` pairs teach the copying first, and separators, sentences, prose, distance and chat
are then added one at a time.

A document is a list of marked words, ``(word, is_answer)``: the word with its leading space, or a
control token, and whether it belongs to an answer (the answer's loss counts more).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.model.assets import facts
from harness.model.assets.prose import ProseStream

Marked = tuple[str, bool]
Document = list[Marked]


def _marked(text: str, is_answer: bool = False) -> Document:
    """The words of ``text``, each with a leading space."""
    return [(" " + word, is_answer) for word in text.split()]


def _queries(rng: random.Random, count: int, repeats: int) -> tuple[list, list]:
    """Pairs, and which of them come again, in which order."""
    chosen = facts.pairs(rng, count, held_out=False)
    return chosen, [rng.choice(chosen) for _ in range(repeats)]


def pairs_document(rng: random.Random, words: int) -> Document:
    """``k 5 m 7 j red m 7 ...``: the value of a name that comes again is the answer."""
    chosen, again = _queries(rng, rng.randint(2, max(4, words // 8)), words // 2)
    out: Document = []
    for name, value in chosen:
        out += [(" " + name, False), (" " + value, False)]
    for name, value in again:
        out += [(" " + name, False), (" " + value, True)]
    return out[:words]


def separated_document(rng: random.Random, words: int) -> Document:
    """``k be 5 . m be 7 . m is 7 .``: the same with the words around the value."""
    chosen, again = _queries(rng, rng.randint(2, 8), words // 4)
    out: Document = []
    for name, value in chosen:
        out += _marked(f"{name} be {value} .")
    for name, value in again:
        out += [*_marked(f"{name} is"), (" " + value, True), (" .", False)]
    return out[:words]


def sentences_document(rng: random.Random, words: int) -> Document:
    """Definitions, then questions with their answers, nothing in between."""
    chosen, again = _queries(rng, rng.randint(2, 8), words // 8)
    out: Document = []
    for pair in chosen:
        out += _marked(facts.define(*pair))
    for name, value in again:
        out += _marked(facts.ask(name)) + _marked(facts.answer(name, value), True)
    return _without_first_space(out[:words])


def _without_first_space(document: Document) -> Document:
    """A plain text starts without a space."""
    word, flag = document[0]
    return [(word.strip(), flag), *document[1:]]


class _Memory:
    """What a document has defined so far, and where each name was mentioned last."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self.rng = rng
        self.undefined = facts.pairs(rng, count, held_out=False)
        self.last: dict[tuple[str, str], int] = {}

    def define(self, at: int) -> str:
        """Define one more name at word ``at``."""
        pair = self.undefined.pop()
        self.last[pair] = at
        return facts.define(*pair)

    def ask(self, at: int) -> tuple[str, str]:
        """Ask for a name, half of the time the one that was not mentioned for longest."""
        pairs = list(self.last)
        if self.rng.random() < 0.5:
            pair = min(pairs, key=self.last.__getitem__)
        else:
            pair = self.rng.choice(pairs)
        self.last[pair] = at
        return facts.ask(pair[0]), facts.answer(*pair)


def plain_document(rng: random.Random, words: int) -> Document:
    """Definitions, prose and questions in one stream of about ``words`` words."""
    stream = ProseStream(rng)
    memory = _Memory(rng, rng.choice((0, 2, 3, 4, 5, 6, 8)))
    asking = rng.choice((0.2, 0.35, 0.5))
    block = rng.choice((1, 2, 4, 8, 16))
    out: Document = []
    while len(out) < words:
        draw = rng.random()
        if memory.undefined and draw > 0.6:
            out += _marked(memory.define(len(out)))
        elif memory.last and draw < asking:
            question, answer = memory.ask(len(out))
            out += _marked(question) + _marked(answer, True)
        else:
            for _ in range(rng.randint(1, block)):
                out += _marked(stream.sentence())
    out.append((facts.EOS, False))
    return _without_first_space(out)


def chat_document(rng: random.Random, words: int) -> Document:
    """The same as a chat: one exchange per definition, question or story."""
    stream = ProseStream(rng)
    memory = _Memory(rng, rng.choice((0, 2, 3, 4, 5, 6, 8)))
    asking = rng.choice((0.2, 0.35, 0.5))
    block = rng.choice((1, 3, 6))
    out: Document = []

    def say(role: str, text: str, is_answer: bool = False) -> None:
        out.append((role, False))
        out.extend(_marked(text, is_answer))
        out.append((facts.END, is_answer))

    if rng.random() < 0.3:
        say(facts.SYSTEM, rng.choice(facts.SYSTEM_TEXTS))
    while len(out) < words:
        draw = rng.random()
        if memory.undefined and draw > 0.6:
            said = memory.define(len(out))
            if rng.random() < 0.3:
                said += "".join(" " + stream.sentence() for _ in range(rng.randint(1, 2)))
            say(facts.USER, said)
            say(facts.ASSISTANT, "ok .")
        elif memory.last and draw < asking:
            question, answer = memory.ask(len(out))
            say(facts.USER, question)
            say(facts.ASSISTANT, answer, True)
        elif rng.random() < 0.85:
            count = rng.randint(1, block)
            say(facts.USER, rng.choice(facts.TELL))
            say(facts.ASSISTANT, " ".join(stream.sentence() for _ in range(count)))
        else:
            said, reply = rng.choice(facts.SMALL_TALK)
            say(facts.USER, said)
            say(facts.ASSISTANT, reply)
    out.append((facts.EOS, False))
    return out


@dataclass(frozen=True)
class Stage:
    """One stretch of the curriculum.

    Attributes
    ----------
    name:
        For the progress lines.
    steps:
        Optimizer steps.
    kinds:
        Document makers, drawn from evenly.
    rows, tokens:
        Shape of a batch: documents x tokens, ``<bos>`` included.
    prose_weight:
        Weight of the mean loss over all tokens, next to 1 for the mean loss over answer tokens.
    gaps:
        Whether half of the rows skip positions (see ``train.positions``).
    sink_weight:
        Weight of the loss that asks for attention to ``<bos>`` (see ``sink``).
    """

    name: str
    steps: int
    kinds: tuple[Callable[[random.Random, int], Document], ...]
    rows: int
    tokens: int
    prose_weight: float
    gaps: bool = False
    sink_weight: float = 0.0


CURRICULUM = (
    Stage("pairs", 250, (pairs_document,), 64, 32, 0.0),
    Stage("separated", 100, (pairs_document, separated_document), 32, 64, 0.0),
    Stage("sentences", 150, (separated_document, sentences_document), 32, 96, 0.05),
    Stage("prose", 300, (sentences_document, plain_document), 32, 128, 0.2),
    Stage("chat", 350, (plain_document, chat_document), 24, 256, 0.5, sink_weight=0.03),
    Stage("distance", 300, (plain_document, chat_document), 12, 640, 0.5, True, 0.03),
)


def shortened(curriculum: tuple[Stage, ...], factor: float) -> tuple[Stage, ...]:
    """The same stages with ``factor`` times as many steps (at least one each)."""
    return tuple(replace(s, steps=max(1, round(s.steps * factor))) for s in curriculum)
