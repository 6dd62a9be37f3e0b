"""`prompt=multi_key`: many definitions of one form in prose, one of them asked for, so that finding a
definition is not enough (Hsieh et al. 2024, RULER: multi-key needles)."""

import random
from typing import Any

from harness.config import PromptConfig
from harness.pipeline.questions.haystack import hidden
from harness.pipeline.questions.question import Question


def questions(prompt: PromptConfig, tokenizer: Any) -> list[Question]:
    """`prompt.samples` questions about contexts of `prompt.length` tokens with `prompt.definitions`
    keys each."""
    from harness.model.assets import facts

    rows = []
    for number in range(prompt.samples):
        rng = random.Random(f"multi_key/{prompt.seed}/{number}")
        keys = facts.pairs(rng, prompt.definitions, True)
        planted = [(rng.random(), facts.define(*pair)) for pair in keys]
        context = hidden(rng, tokenizer, prompt.length, planted)
        name, value = keys[number % len(keys)]
        expected = facts.answer(name, value).removesuffix(" .")
        rows.append(Question(context, f" {facts.ask(name)}", expected))
    return rows
