"""`prompt=variable_tracking`: a value handed from name to name across prose, asked for by the last name
(Hsieh et al. 2024, RULER: variable tracking)."""

import random
from typing import Any

from harness.config import PromptConfig
from harness.pipeline.questions.haystack import hidden
from harness.pipeline.questions.question import Question


def questions(prompt: PromptConfig, tokenizer: Any) -> list[Question]:
    """`prompt.samples` questions about contexts of `prompt.length` tokens with chains of
    `prompt.definitions` names: the first is given a value, each other the one before it."""
    from harness.model.assets import facts

    rows = []
    for number in range(prompt.samples):
        rng = random.Random(f"variable_tracking/{prompt.seed}/{number}")
        (first, value), *others = facts.pairs(rng, prompt.definitions, True)
        names = [first, *(name for name, _ in others)]
        said = [value, *names]
        steps = [facts.define(name, said[i]) for i, name in enumerate(names)]
        depths = sorted(rng.random() for _ in steps)
        context = hidden(rng, tokenizer, prompt.length, list(zip(depths, steps, strict=True)))
        expected = facts.answer(names[-1], value).removesuffix(" .")
        rows.append(Question(context, f" {facts.ask(names[-1])}", expected))
    return rows
