"""Texts of the tiny model: training documents and held-out recall dialogues (pure Python).

Plain form, the project's own wording (lower case, spaces before punctuation)::

    let k be 5 . the bird sang . what is k ? k is 5 .

Chat form, as ``chat_template.jinja`` renders it (every content has one leading space)::

    <bos><user> let k be 5 .<end><assistant> ok .<end><user> what is k ?<end><assistant> k is 5 .<end>

*Held out.* A pair (name, value) is held out when a hash of it says so (one pair in eight). Training
documents define and ask only the other pairs, held-out dialogues only these: a held-out answer
was never seen in training, in any dialogue.

*Distances* are words between the full stop that ends the definition and the question's "what",
control tokens counted as words; in this vocabulary a word is one token.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from harness.model.assets.facts import (
    ASSISTANT,
    BOS,
    DEFINITION_WORDS,
    END,
    NAMES,
    SMALL_TALK,
    SYSTEM_TEXTS,
    TELL,
    VALUES,
    Pair,
    answer,
    ask,
    define,
    is_held_out,
    pairs,
)
from harness.model.assets.prose import MIN_SENTENCE_WORDS, ProseStream, prose, vocabulary

__all__ = [
    "NAMES",
    "VALUES",
    "RecallDialogue",
    "chat_turns",
    "is_held_out",
    "pairs",
    "prose",
    "recall_chat",
    "recall_dialogue",
    "render_chat",
    "vocabulary",
]

Turn = dict[str, str]


@dataclass(frozen=True)
class RecallDialogue:
    """One dialogue that ends in a question.

    Attributes
    ----------
    text:
        Plain form: everything up to and including the question, without ``<bos>`` and without a
        trailing space. Chat form: the rendered chat up to and including ``<assistant>``, with
        ``<bos>``.
    answer:
        What the model has to say next, with its leading space: ``" k is 5 ."``.
    name, value:
        What is asked and what is right.
    definitions:
        All (name, value) of the dialogue, in order of appearance; the asked one is among them.
    distance:
        Words (= tokens) between the end of the asked definition and the question.
    turns:
        The same dialogue as chat messages ending in the user's question; empty in plain form.
    """

    text: str
    answer: str
    name: str
    value: str
    definitions: tuple[Pair, ...]
    distance: int
    turns: tuple[Turn, ...] = ()


def render_chat(turns: Sequence[Turn], add_generation_prompt: bool = False) -> str:
    """The text that ``chat_template.jinja`` makes of ``turns`` (kept equal to it by a test)."""
    body = "".join(f"<{t['role']}> {t['content'].strip()}{END}" for t in turns)
    return BOS + body + (ASSISTANT if add_generation_prompt else "")


def _arrange(
    rng: random.Random, distance: int, definitions: list[Pair], slot: int
) -> tuple[list[Pair], list[Pair]]:
    """Split the definitions other than the first into those before it and those after it.

    ``slot`` is what one definition costs in words; those after have to fit into ``distance``.
    """
    others = definitions[1:]
    after: list[Pair] = []
    room = distance
    for pair in list(others):
        left = room - slot
        if rng.random() < 0.5 and (left == 0 or left >= MIN_SENTENCE_WORDS):
            after.append(pair)
            others.remove(pair)
            room = left
    return others, after


def recall_dialogue(
    rng: random.Random,
    distance: int,
    definitions: int = 4,
    held_out: bool = True,
    lead: int = 0,
) -> RecallDialogue:
    """A plain dialogue whose asked definition ends exactly ``distance`` words before the question.

    Parameters
    ----------
    distance:
        Words between definition and question: 0, or 4 and more.
    definitions:
        How many names are defined (2 to 6 in the reports); some before the asked one and some
        after it as far as they fit.
    held_out:
        Which side of the split the pairs come from.
    lead:
        Words of prose before the first definition: 0, or 4 and more.
    """
    chosen = pairs(rng, definitions, held_out)
    name, value = chosen[0]
    before, after = _arrange(rng, distance, chosen, DEFINITION_WORDS)
    stream = ProseStream(rng)
    sentences = stream.exactly(lead)
    for pair in before:
        sentences.append(define(*pair))
        if rng.random() < 0.5:
            sentences.append(stream.sentence())
    sentences.append(define(name, value))
    filler = stream.exactly(distance - DEFINITION_WORDS * len(after))
    for pair in after:
        filler.insert(rng.randint(0, len(filler)), define(*pair))
    sentences += [*filler, ask(name)]
    return RecallDialogue(
        text=" ".join(sentences),
        answer=" " + answer(name, value),
        name=name,
        value=value,
        definitions=(*before, chosen[0], *after),
        distance=distance,
    )


def user(content: str) -> Turn:
    """A user message."""
    return {"role": "user", "content": content}


def assistant(content: str) -> Turn:
    """An assistant message."""
    return {"role": "assistant", "content": content}


DEFINITION_TURN_WORDS = DEFINITION_WORDS + 6
"""``<user>`` definition ``<end>``, ``<assistant>`` ok . ``<end>``: 7 and 4 words."""


def _filler_turns(stream: ProseStream, words: int) -> list[Turn]:
    """User and assistant turns of exactly ``words`` words (at least 20), control tokens included."""
    turns: list[Turn] = []
    while words:
        request = stream.rng.choice(TELL)
        room = words - len(request.split()) - 4
        count = stream.rng.randint(8, 40)
        if room - count < 20:
            count = room if room <= 48 else room - 24
        turns += [user(request), assistant(" ".join(stream.exactly(count)))]
        words = room - count
    return turns


def recall_chat(
    rng: random.Random, distance: int, definitions: int = 4, held_out: bool = True
) -> RecallDialogue:
    """A chat whose asked definition ends exactly ``distance`` words before the question.

    ``distance`` is 6 ("ok ." and control tokens) or at least 10. Words over that a turn of its own
    cannot hold go into the user's turn, behind the definition: "let k be 5 . the bird sang .".
    """
    chosen = pairs(rng, definitions, held_out)
    name, value = chosen[0]
    room = distance - 6
    before, after = _arrange(rng, room, chosen, DEFINITION_TURN_WORDS)
    stream = ProseStream(rng)
    turns: list[Turn] = []
    if rng.random() < 0.25:
        turns.append({"role": "system", "content": rng.choice(SYSTEM_TEXTS)})
    for pair in before:
        turns += [user(define(*pair)), assistant("ok .")]
        if rng.random() < 0.3:
            turns += [user(rng.choice(TELL)), assistant(stream.sentence())]
    room -= DEFINITION_TURN_WORDS * len(after)
    padding = room if room < 24 else rng.choice((0, 0, 4))
    turns += [user(" ".join([define(name, value), *stream.exactly(padding)])), assistant("ok .")]
    exchanges = [[user(define(*pair)), assistant("ok .")] for pair in after]
    filler = _filler_turns(stream, room - padding)
    for at in range(0, len(filler), 2):
        exchanges.append(filler[at : at + 2])
    rng.shuffle(exchanges)
    turns += [turn for exchange in exchanges for turn in exchange]
    turns.append(user(ask(name)))
    return RecallDialogue(
        text=render_chat(turns, add_generation_prompt=True),
        answer=" " + answer(name, value),
        name=name,
        value=value,
        definitions=(*before, chosen[0], *after),
        distance=distance,
        turns=tuple(turns),
    )


def chat_turns(
    rng: random.Random,
    turns: int,
    held_out: bool = True,
    definitions: int | None = None,
    sentences: tuple[int, int] = (10, 24),
    max_distance: int = 256,
    system: bool = False,
) -> list[Turn]:
    """A long chat of ``turns`` messages (an even number), user and assistant in turn.

    Definitions are spread over the first four fifths, questions come after them, stories and small
    talk in between; the assistant's answers are right. Forty turns are about 1200 tokens.

    Parameters
    ----------
    definitions:
        How many names are defined over the whole chat; one per six turns, at most 6, if None.
    sentences:
        Least and largest length of a story.
    max_distance:
        A name is only asked this many words (= tokens) or less after its definition.
    system:
        Put a system message first, in addition to ``turns``.
    """
    stream = ProseStream(rng)
    count = definitions or max(1, min(6, turns // 6))
    undefined = pairs(rng, count, held_out)
    defined_at: dict[Pair, int] = {}
    questioned: set[Pair] = set()
    out: list[Turn] = []
    words = 0
    if system:
        out.append({"role": "system", "content": rng.choice(SYSTEM_TEXTS)})
    for exchange in range(turns // 2):
        near = [p for p, at in defined_at.items() if words - at <= max_distance]
        fresh = [p for p in near if p not in questioned]
        share = (count - len(undefined)) / count
        draw = rng.random()
        if undefined and share <= exchange / (turns // 2) * 1.25 and (not exchange or draw < 0.8):
            pair = undefined.pop(0)
            defined_at[pair] = words + 1 + DEFINITION_WORDS
            said, reply = define(*pair), "ok ."
        elif near and draw < 0.5:
            pair = rng.choice(fresh or near)
            questioned.add(pair)
            said, reply = ask(pair[0]), answer(*pair)
        elif draw < 0.92:
            said = rng.choice(TELL)
            reply = " ".join(stream.sentence() for _ in range(rng.randint(*sentences)))
        else:
            said, reply = rng.choice(SMALL_TALK)
        out += [user(said), assistant(reply)]
        words += len(said.split()) + len(reply.split()) + 4
    return out
