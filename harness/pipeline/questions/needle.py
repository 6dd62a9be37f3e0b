"""`prompt=needle`: one definition in prose, at depths from the beginning to the end in turn (Kamradt
2023, "Needle in a haystack")."""

import random
from typing import Any

from harness.config import PromptConfig
from harness.pipeline.questions.haystack import hidden
from harness.pipeline.questions.question import Question


def questions(prompt: PromptConfig, tokenizer: Any) -> list[Question]:
    """`prompt.samples` questions about contexts of `prompt.length` tokens."""
    from harness.model.assets import facts

    rows = []
    for number in range(prompt.samples):
        rng = random.Random(f"needle/{prompt.seed}/{number}")
        ((name, value),) = facts.pairs(rng, 1, True)
        depth = number / max(prompt.samples - 1, 1)
        context = hidden(rng, tokenizer, prompt.length, [(depth, facts.define(name, value))])
        expected = facts.answer(name, value).removesuffix(" .")
        rows.append(Question(context, f" {facts.ask(name)}", expected))
    return rows
