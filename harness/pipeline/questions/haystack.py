"""Prose of a length in tokens, whatever the tokenizer, with sentences put where they are wanted."""

import random
from collections.abc import Sequence
from typing import Any

from harness.errors import InputProblem


def count(tokenizer: Any, text: str) -> int:
    """Tokens of `text`, nothing added."""
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def hidden(
    rng: random.Random, tokenizer: Any, length: int, planted: Sequence[tuple[float, str]]
) -> str:
    """Prose of at most `length` tokens with each `(depth, sentence)` of `planted` after that share of
    the prose (0 the beginning, 1 the end); equal depths keep their order.

    Raises InputProblem when the sentences alone are longer.
    """
    from harness.model.assets import corpus

    room = length - count(tokenizer, " ".join(sentence for _, sentence in planted))
    if room < 0:
        raise InputProblem(
            f"prompt.length={length} tokens cannot hold what is asked about, which takes "
            f"{length - room}. Give a larger prompt.length or a smaller prompt.definitions."
        )
    prose: list[str] = []
    while room > 0:
        for sentence in corpus.prose(rng, max(room, 16)).removesuffix(" .").split(" . "):
            room -= count(tokenizer, f" {sentence} .")
            if room < 0:
                break
            prose.append(f"{sentence} .")
    sentences = len(prose)
    for depth, sentence in sorted(planted, key=lambda p: p[0])[::-1]:
        prose.insert(round(depth * sentences), sentence)
    return " ".join(prose)
